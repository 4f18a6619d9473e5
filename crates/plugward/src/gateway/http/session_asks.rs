//! Questions of plugins to the client of a session over HTTP, which go out on the stream of the request that led to them,
//! and its answers, which are posted.
//!
//! Owns which question waits under which id. Refuses to ask a client that reads no stream: nobody would see it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use plugward_host::{Ask, Counterpart};
use plugward_protocol::mcp::methods;
use plugward_protocol::{RequestId, RpcError, envelope};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::{mpsc, oneshot};

/// Questions of one request on their way to its stream.
const MAX_WAITING_ASKS: usize = 4;

type Reply = oneshot::Sender<Result<Box<RawValue>, RpcError>>;

/// The questions of one session.
#[derive(Default)]
pub(super) struct SessionAsks {
    /// What the client declared in its handshake.
    capabilities: OnceLock<Box<RawValue>>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    last_id: u64,
    waiting: HashMap<u64, Reply>,
}

/// The questions of one request: those without an answer are over when it is.
pub(super) struct RequestAsks<'a> {
    asks: &'a SessionAsks,
    questions: mpsc::Receiver<Ask>,
    sent: Vec<u64>,
}

impl SessionAsks {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the client declared out of the parameters of its `initialize`.
    pub(super) fn declared(&self, params: Option<&RawValue>) {
        #[derive(serde::Deserialize)]
        struct Params {
            capabilities: Box<RawValue>,
        }
        if let Some(params) = params.and_then(|params| serde_json::from_str::<Params>(params.get()).ok()) {
            let _ = self.capabilities.set(params.capabilities);
        }
    }

    /// The client as plugins may turn to it during one request, and where their questions come out.
    pub(super) fn during(&self, session: u64, reads_stream: bool) -> (Option<Counterpart>, RequestAsks<'_>) {
        let (sender, questions) = mpsc::channel(MAX_WAITING_ASKS);
        let capabilities = self.capabilities.get().filter(|_| reads_stream).cloned();
        let counterpart = capabilities.map(|all| Counterpart::new(format!("session:{session}"), all, sender));
        (counterpart, RequestAsks { asks: self, questions, sent: Vec::new() })
    }

    /// The client answered; to what was not asked, or is over, nobody listens.
    pub(super) fn answered(&self, id: &RequestId, outcome: Result<Box<RawValue>, RpcError>) {
        let Ok(id) = id.to_string().parse::<u64>() else { return };
        let reply = self.table().waiting.remove(&id);
        if let Some(reply) = reply {
            let _ = reply.send(outcome);
        }
    }
}

impl RequestAsks<'_> {
    /// The next question, as a message for the stream. Ends when nobody can ask any more.
    pub(super) async fn next(&mut self) -> Option<String> {
        let ask = self.questions.recv().await?;
        let id = {
            let mut table = self.asks.table();
            table.last_id += 1;
            let id = table.last_id;
            table.waiting.insert(id, ask.reply);
            id
        };
        self.sent.push(id);
        Some(envelope::request(id, &ask.method, ask.params.as_deref()))
    }

    /// What the client is told of questions that are over without an answer.
    pub(super) fn given_up(&mut self) -> Vec<String> {
        let over: Vec<u64> = {
            let mut table = self.asks.table();
            self.sent.drain(..).filter(|id| table.waiting.remove(id).is_some()).collect()
        };
        let note = |id: &u64| {
            let params = to_raw_value(&json!({"requestId": id, "reason": "the request that asked has ended"})).ok();
            envelope::notification(methods::CANCELLED, params.as_deref())
        };
        over.iter().map(note).collect()
    }
}

impl Drop for RequestAsks<'_> {
    fn drop(&mut self) {
        let mut table = self.asks.table();
        for id in &self.sent {
            table.waiting.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_question_waits_under_an_id_of_its_own_and_no_longer_than_its_request() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let asks = SessionAsks::default();
        assert!(asks.during(1, true).0.is_none(), "before the handshake");
        asks.declared(Some(&raw(r#"{"capabilities":{"roots":{}}}"#)));
        assert!(asks.during(1, false).0.is_none(), "nobody would see it");
        let (counterpart, mut during) = asks.during(1, true);
        drop(counterpart.unwrap());
        assert!(during.next().await.is_none(), "nobody can ask any more");
        let (reply, answer) = oneshot::channel();
        asks.table().waiting.insert(7, reply);
        during.sent.push(7);
        asks.answered(&RequestId::from("7"), Ok(raw("{}")));
        asks.answered(&RequestId::from(8), Ok(raw("{}")));
        assert_eq!(asks.table().waiting.len(), 1, "a text is not the number that was asked under");
        asks.answered(&RequestId::from(7), Ok(raw("{}")));
        assert!(answer.await.unwrap().is_ok());
        let (reply, answer) = oneshot::channel();
        asks.table().waiting.insert(9, reply);
        during.sent.push(9);
        let told = during.given_up();
        assert!(told.len() == 1 && told[0].contains("\"requestId\":9"), "{told:?}");
        assert!(answer.await.is_err(), "whoever asked is told by the end of its channel");
    }
}
