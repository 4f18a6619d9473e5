//! Between a running plugin and the clients that want to be told what it says unasked.
//!
//! Owns what the plugin is asked for on behalf of all of them, again for each process, and the handing on of what comes.
//! Refuses to keep the plugin's calls waiting: it asks beside them, with a limit of its own.

use std::sync::Arc;

use super::{Launched, Plugin};
use crate::host::Inner;

/// Attends a plugin until its conversation ends.
pub(super) fn attend(inner: &Arc<Inner>, plugin: &Arc<Plugin>, launched: &Launched) {
    let (session, over) = (Arc::clone(&launched.session), launched.over.clone());
    if !session.hands_on_logs() {
        return;
    }
    let (audience, plugin) = (Arc::clone(&inner.audience), plugin.id.clone());
    inner.tasks.spawn(async move {
        let mut changes = audience.changes();
        changes.mark_changed();
        loop {
            tokio::select! {
                biased;
                () = over.cancelled() => return,
                _ = session.ended() => return,
                Ok(()) = changes.changed() => {
                    if let Some(level) = audience.level(&plugin) {
                        session.set_log_level(level).await;
                    }
                }
                logged = session.logged() => audience.log(&plugin, &logged),
            }
        }
    });
}
