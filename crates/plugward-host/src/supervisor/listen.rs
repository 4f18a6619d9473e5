//! Keeps the stream of notices of a plugin without a handshake open, for as long as its process lives.
//!
//! Owns what is asked for, which is what the plugin says it tells, and the pause before a stream that ended is opened
//! anew. Refuses to act on notices: the watcher does, as for every plugin.

use std::sync::Arc;
use std::time::Duration;

use plugward_protocol::ServerHello;
use plugward_protocol::modern::ListenFilter;
use serde_json::value::RawValue;

use super::Launched;
use crate::host::Inner;
use crate::raw_object::RawObject;
use crate::session::{RequestError, Session};

/// Pause before a stream that ended is opened again; doubled for one that ends again and again.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Asks for the notices the plugin says it has. Ends with the conversation, or with a plugin that will not have it.
pub(super) fn follow(inner: &Arc<Inner>, launched: &Launched, hello: &ServerHello) {
    let wanted = announced(&hello.capabilities);
    if wanted == ListenFilter::default() {
        return;
    }
    let (session, over) = (Arc::clone(&launched.session), launched.over.clone());
    inner.tasks.spawn(async move {
        let mut pause = PAUSE_MIN;
        loop {
            let is_wanted = tokio::select! {
                biased;
                () = over.cancelled() => return,
                _ = session.ended() => return,
                is_wanted = listened(&session, &wanted) => is_wanted,
            };
            if !is_wanted {
                return;
            }
            tokio::select! {
                () = over.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    });
}

/// One stream to its end; whether it makes sense to open another.
async fn listened(session: &Session, wanted: &ListenFilter) -> bool {
    match session.listen(wanted).await {
        Ok(()) | Err(RequestError::Invalid(_) | RequestError::TimedOut { .. }) => true,
        // It has no streams, or is gone.
        Err(_) => false,
    }
}

fn announced(capabilities: &RawValue) -> ListenFilter {
    let tells = |name: &str| {
        let section = RawObject::parse(capabilities).and_then(|all| all.get(name).and_then(RawObject::parse));
        section.is_some_and(|section| section.get("listChanged").is_some_and(|raw| raw.get() == "true"))
    };
    ListenFilter {
        tools: tells("tools"),
        prompts: tells("prompts"),
        resources: tells("resources"),
        ..ListenFilter::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_told_is_asked_for() {
        // SU-01: a plugin may refuse a filter that names what it does not have.
        let filter = |text: &str| announced(&RawValue::from_string(text.to_owned()).unwrap());
        assert_eq!(filter("{}"), ListenFilter::default());
        assert_eq!(filter(r#"{"tools":{},"prompts":{"listChanged":false},"resources":7}"#), ListenFilter::default());
        let two = filter(r#"{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true}}"#);
        assert_eq!(two, ListenFilter { tools: true, resources: true, ..ListenFilter::default() });
    }
}
