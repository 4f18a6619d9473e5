//! Permission requests that wait for a person.
//!
//! Owns the table of open requests and who has been told yes for the rest of the session (requirement 82). Each
//! request is answered once, by whichever face is first; it ends with its call in any case. Refuses to decide.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use plugward_policy::{PermissionName, PluginId, ToolId};
use tokio::sync::{oneshot, watch};

use crate::views::{Answer, PendingAsk};

/// Open requests at once; a further call is refused rather than queued behind a person.
pub(crate) const MAX_OPEN_ASKS: usize = 64;

/// Open requests of one plugin: more questions about one plugin than anybody answers at a time, and few enough that
/// it does not use up the places of the others.
pub(crate) const MAX_OPEN_ASKS_PER_PLUGIN: usize = 8;

struct Open {
    view: PendingAsk,
    deadline: Instant,
    answer: oneshot::Sender<Answer>,
}

/// The table.
pub(crate) struct Asks {
    open: Mutex<BTreeMap<String, Open>>,
    session: Mutex<HashSet<(ToolId, PermissionName)>>,
    changed: watch::Sender<u64>,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AskEnd {
    Allowed,
    Denied,
    TimedOut,
    /// As many as this limit wait already, of all plugins or of this one.
    TooMany {
        limit: usize,
    },
}

impl Default for Asks {
    fn default() -> Self {
        Self { open: Mutex::default(), session: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl Asks {
    /// Whether a person said yes to this tool and permission for the session.
    pub(crate) fn allowed_for_session(&self, tool: &ToolId, permission: &PermissionName) -> bool {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the names are copied: mostly nothing was allowed this way.
        !session.is_empty() && session.contains(&(tool.clone(), permission.clone()))
    }

    /// Forgets every yes for tools of a plugin: what carries their names from now on is not what it was given for.
    pub(crate) fn forget(&self, plugin: &PluginId) {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.retain(|(tool, _)| tool.plugin() != plugin);
    }

    /// Asks and waits; dropping the future takes the request back.
    pub(crate) async fn ask(
        &self,
        tool: &ToolId,
        permission: &PermissionName,
        caller: &str,
        reason: String,
        limit: Duration,
    ) -> AskEnd {
        let request_id = format!("permission_{}", crate::ids::random_hex::<8>());
        let (answer, answered) = oneshot::channel();
        let view = PendingAsk {
            request_id: request_id.clone(),
            tool: tool.clone(),
            permission: permission.to_string(),
            caller: caller.to_owned(),
            asked_at: SystemTime::now(),
            expires_in: limit,
            reason,
        };
        {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            if open.len() >= MAX_OPEN_ASKS {
                return AskEnd::TooMany { limit: MAX_OPEN_ASKS };
            }
            let of_plugin = open.values().filter(|other| other.view.tool.plugin() == tool.plugin()).count();
            if of_plugin >= MAX_OPEN_ASKS_PER_PLUGIN {
                return AskEnd::TooMany { limit: MAX_OPEN_ASKS_PER_PLUGIN };
            }
            open.insert(request_id.clone(), Open { view, deadline: Instant::now() + limit, answer });
        }
        let _withdraw = Withdraw { asks: self, request_id };
        self.changed.send_modify(|version| *version += 1);
        match tokio::time::timeout(limit, answered).await {
            Ok(Ok(Answer::AllowOnce)) => AskEnd::Allowed,
            Ok(Ok(Answer::AllowSession)) => {
                let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
                session.insert((tool.clone(), permission.clone()));
                AskEnd::Allowed
            }
            Ok(Ok(Answer::Deny) | Err(_)) => AskEnd::Denied,
            Err(_) => AskEnd::TimedOut,
        }
    }

    /// Answers a request; false if there is none (any more).
    pub(crate) fn answer(&self, request_id: &str, answer: Answer) -> bool {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(request_id);
        open.is_some_and(|open| open.answer.send(answer).is_ok())
    }

    /// The open requests, oldest id first.
    pub(crate) fn pending(&self) -> Vec<PendingAsk> {
        let now = Instant::now();
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pending: Vec<PendingAsk> = open
            .values()
            .map(|open| PendingAsk { expires_in: open.deadline.saturating_duration_since(now), ..open.view.clone() })
            .collect();
        pending.sort_by_key(|ask| ask.asked_at);
        pending
    }

    /// Told when a request opens or ends.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

struct Withdraw<'a> {
    asks: &'a Asks,
    request_id: String,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        self.asks.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.request_id);
        self.asks.changed.send_modify(|version| *version += 1);
    }
}
