//! Whether a plugin that says nothing is still there.
//!
//! Owns the pings: when one is due and when their silence is a verdict. A plugin that talks, or works on a call, is not
//! asked: some do one thing at a time and answer nothing meanwhile, and calls have limits of their own. Refuses to act:
//! the watcher does.

use std::time::Duration;

use plugward_protocol::modern;

use super::{Launched, Running};
use crate::session::RequestError;

/// Pings in a row without an answer that make a verdict: one may meet a pause of the machine.
const MISSES_MAX: u32 = 2;

/// Longest wait for an answer; a ping asks for nothing but a sign of life.
const PING_LIMIT_MAX: Duration = Duration::from_secs(10);

/// The error code of a server that does not know a method.
const METHOD_NOT_FOUND: i64 = -32601;

/// First revision without pings: its servers are asked what they are instead.
const REVISION_WITHOUT_PING: &str = "2026-07-28";

/// Resolves with the reason once the plugin does not answer pings any more; never for one that knows none.
pub(super) async fn unresponsive(running: &Running, launched: &Launched, every: Duration) -> String {
    let method = match running.protocol_version.as_deref() >= Some(REVISION_WITHOUT_PING) {
        true => modern::methods::DISCOVER,
        false => "ping",
    };
    if every.is_zero() {
        return std::future::pending().await;
    }
    let session = &launched.session;
    let limit = every.min(PING_LIMIT_MAX);
    let (mut heard, mut misses) = (session.messages_in(), 0);
    loop {
        tokio::time::sleep(every).await;
        let is_busy = running.route.admission.running() > 0;
        if is_busy || session.messages_in() != heard {
            (heard, misses) = (session.messages_in(), 0);
            continue;
        }
        match session.request(method, None, limit).await {
            // It answers, and it will not know the method the next time either.
            Err(RequestError::Rejected(error)) if error.code == METHOD_NOT_FOUND => break,
            // The end of the conversation is told elsewhere.
            Err(RequestError::Unavailable(_)) => break,
            Err(RequestError::TimedOut { .. }) if session.messages_in() == heard => misses += 1,
            _ => misses = 0,
        }
        heard = session.messages_in();
        if misses >= MISSES_MAX {
            return format!("it answered none of {MISSES_MAX} pings within {limit:?} each");
        }
    }
    std::future::pending().await
}
