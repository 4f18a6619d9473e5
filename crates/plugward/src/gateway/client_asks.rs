//! Questions of plugins on their way to the client of a session over stdio, and its answers.
//!
//! Owns which question waits under which request of ours. Refuses to ask what the client did not declare: the host has
//! checked it. Bounded by the channel and by the connection's table.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use plugward_host::{Ask, Counterpart};
use plugward_protocol::mcp::codes;
use plugward_protocol::{Connection, OutboundId, RequestFailure, RequestTiming, RpcError};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

/// Questions on their way to the session; more wait at their plugins.
const MAX_WAITING_ASKS: usize = 8;

/// Longest wait for an answer. The call that asked ends sooner; this is for one whose end went unseen.
const ANSWER_LIMIT: Duration = Duration::from_secs(3600);

type Reply = oneshot::Sender<Result<Box<RawValue>, RpcError>>;

/// The questions of one session.
pub(super) struct ClientAsks {
    asks_in: mpsc::Sender<Ask>,
    asks_out: mpsc::Receiver<Ask>,
    waiting: HashMap<OutboundId, Reply>,
    /// What the client declared in its handshake.
    capabilities: Option<Box<RawValue>>,
}

impl ClientAsks {
    pub(super) fn new() -> Self {
        let (asks_in, asks_out) = mpsc::channel(MAX_WAITING_ASKS);
        Self { asks_in, asks_out, waiting: HashMap::new(), capabilities: None }
    }

    /// Takes what the client declared out of the parameters of its `initialize`.
    pub(super) fn declared(&mut self, params: &RawValue) {
        #[derive(serde::Deserialize)]
        struct Params {
            capabilities: Box<RawValue>,
        }
        self.capabilities = serde_json::from_str::<Params>(params.get()).ok().map(|params| params.capabilities);
    }

    /// The client as plugins may turn to it.
    pub(super) fn counterpart(&self, session: u64) -> Option<Counterpart> {
        let capabilities = self.capabilities.clone()?;
        Some(Counterpart::new(format!("session:{session}"), capabilities, self.asks_in.clone()))
    }

    /// The next question. Never ends.
    pub(super) async fn next(&mut self) -> Option<Ask> {
        self.asks_out.recv().await
    }

    /// Sends a question to the client.
    pub(super) fn send(&mut self, connection: &mut Connection, now: Instant, ask: Ask) {
        if ask.reply.is_closed() {
            return;
        }
        let id = connection.reserve_id();
        match connection.send_request(now, id, &ask.method, ask.params, RequestTiming::within(ANSWER_LIMIT)) {
            Ok(()) => drop(self.waiting.insert(id, ask.reply)),
            Err(error) => {
                let _ = ask.reply.send(Err(RpcError::new(codes::INTERNAL_ERROR, error.to_string())));
            }
        }
    }

    /// The client answered.
    pub(super) fn answered(&mut self, id: OutboundId, outcome: Result<Box<RawValue>, RpcError>) {
        if let Some(reply) = self.waiting.remove(&id) {
            let _ = reply.send(outcome);
        }
    }

    /// There will be no answer.
    pub(super) fn failed(&mut self, id: OutboundId, cause: &RequestFailure) {
        self.answered(id, Err(RpcError::new(codes::INTERNAL_ERROR, cause.to_string())));
    }

    /// Takes back what nobody waits for any more; the client is told, so that it need not ask its person.
    pub(super) fn sweep(&mut self, connection: &mut Connection, now: Instant) {
        let over: Vec<OutboundId> =
            self.waiting.iter().filter(|(_, reply)| reply.is_closed()).map(|(id, _)| *id).collect();
        for id in over {
            self.waiting.remove(&id);
            connection.cancel(now, id, "the request that asked has ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_declared_nothing_is_no_counterpart() {
        // Requests before a handshake, and of the stateless revisions, are asked in other ways or not at all.
        let mut asks = ClientAsks::new();
        assert!(asks.counterpart(1).is_none());
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        asks.declared(&raw(r#"{"protocolVersion":"2025-11-25"}"#));
        assert!(asks.counterpart(1).is_none());
        asks.declared(&raw(r#"{"capabilities":{"roots":{}}}"#));
        assert!(asks.counterpart(1).is_some());
    }
}
