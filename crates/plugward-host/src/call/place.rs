//! The way of a call that may go on to a process that runs.
//!
//! Owns the place a call takes at its plugin and at the host, and what happens when the plugin sleeps or its process is
//! replaced while the call waits: the call follows its tool to where it is now, as long as it is the same tool. Refuses
//! deadlines: the call path's own covers the wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::admission::{Place, Refused, Share};
use super::{CallPath, Target};
use crate::error::CallFailure;
use crate::registry::RegisteredTool;

/// Times a call follows its tool. Each takes the start of a process, so that more of them in the time of one call are a
/// plugin that cannot be kept up with.
const MOVES_MAX: usize = 16;

/// A place at a process, given back when it is dropped.
pub(super) struct Placed {
    moved_to: Option<RegisteredTool>,
    _own: Place,
    _shared: Place,
}

impl Placed {
    /// The tool as it is registered where the call goes; `asked` if it did not move.
    pub(super) fn tool<'a>(&'a self, asked: &'a RegisteredTool) -> &'a RegisteredTool {
        self.moved_to.as_ref().unwrap_or(asked)
    }
}

impl CallPath {
    /// Waits for a place, starting the plugin if it sleeps; `wakes` tells that it did.
    pub(super) async fn place(
        &self,
        asked: &RegisteredTool,
        share: &Share,
        wakes: &AtomicBool,
    ) -> Result<Placed, CallFailure> {
        let mut moved_to: Option<RegisteredTool> = None;
        for _ in 0..MOVES_MAX {
            let tool = moved_to.as_ref().unwrap_or(asked);
            match tool.route.admission.enter(share).await {
                Ok(own) => match &tool.route.target {
                    Target::Session(_) | Target::Command(_) | Target::Nowhere => {
                        let shared = self.admission.enter(share).await.map_err(|error| refused("the host", error))?;
                        return Ok(Placed { moved_to, _own: own, _shared: shared });
                    }
                    Target::Asleep(sleep) => {
                        wakes.store(true, Ordering::Release);
                        sleep.wake().await.map_err(|reason| CallFailure::Unavailable { reason })?;
                    }
                },
                // Where its tools lead now, if anywhere.
                Err(Refused::Closed) => {}
                Err(full) => return Err(refused("the plugin", full)),
            }
            moved_to = Some(self.successor(tool)?);
        }
        Err(CallFailure::Unavailable { reason: "it is started over and over".to_owned() })
    }

    /// The same tool on another way.
    fn successor(&self, tool: &RegisteredTool) -> Result<RegisteredTool, CallFailure> {
        let unavailable = |reason: &str| CallFailure::Unavailable { reason: reason.to_owned() };
        let snapshot = self.registry.snapshot();
        match snapshot.by_id(&tool.id.to_string()) {
            Some(next) if Arc::ptr_eq(&next.route, &tool.route) => Err(unavailable("it is stopping")),
            // The arguments were checked, and the call allowed, for what the tool was.
            Some(next) if next.definition.digest != tool.definition.digest => {
                Err(unavailable("the tool changed while the call waited; look at the list again"))
            }
            Some(next) => Ok(next.clone()),
            None => Err(unavailable("it is stopping")),
        }
    }
}

fn refused(whose: &str, refused: Refused) -> CallFailure {
    match refused {
        Refused::Full { running, waiting } => {
            CallFailure::Busy { reason: format!("{whose} has {running} calls running and {waiting} waiting") }
        }
        Refused::Closed => CallFailure::Unavailable { reason: "it is stopping".to_owned() },
    }
}
