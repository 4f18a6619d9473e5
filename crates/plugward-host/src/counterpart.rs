//! Whoever made the request that is under way, as far as a plugin may turn to it.
//!
//! Owns how a question gets there: as a result, after which the request is made again, or over a channel, with an answer
//! while the request waits. Refuses to know sessions and transports, which faces do, and what may be asked, which
//! [`crate::rounds`] does.

use plugward_policy::PluginId;
use plugward_protocol::RpcError;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

/// A question of a plugin on its way to the client. Dropping `reply` means that there will be no answer.
#[derive(Debug)]
pub struct Ask {
    /// Who asks.
    pub plugin: PluginId,
    /// `elicitation/create`, `sampling/createMessage` or `roots/list`.
    pub method: String,
    /// Parameters, ready to be shown.
    pub params: Option<Box<RawValue>>,
    /// Where the answer goes. Closed when nobody waits for it any more.
    pub reply: oneshot::Sender<Result<Box<RawValue>, RpcError>>,
}

/// One client during one request.
#[derive(Debug, Clone)]
pub struct Counterpart {
    /// Whom a question is bound to.
    pub(crate) client: String,
    /// What it declared, an object.
    pub(crate) capabilities: Box<RawValue>,
    asks: Option<mpsc::Sender<Ask>>,
}

impl Counterpart {
    /// A client that can be asked while its request waits. The channel is bounded by whoever makes it.
    pub fn new(client: impl Into<String>, capabilities: Box<RawValue>, asks: mpsc::Sender<Ask>) -> Self {
        Self { client: client.into(), capabilities, asks: Some(asks) }
    }

    /// A client that takes questions as results and makes its request again.
    pub fn of_rounds(client: impl Into<String>, capabilities: Box<RawValue>) -> Self {
        Self { client: client.into(), capabilities, asks: None }
    }

    pub(crate) fn takes_rounds(&self) -> bool {
        self.asks.is_none()
    }

    /// Asks now, and waits for the answer.
    pub(crate) async fn ask(
        &self,
        plugin: &PluginId,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> Result<Box<RawValue>, RpcError> {
        let gone = || RpcError::new(INTERNAL_ERROR, "the client went away");
        // Whoever takes rounds answers with its next request.
        let asks = self.asks.as_ref().ok_or_else(|| RpcError::method_not_found(&method))?;
        let (reply, answer) = oneshot::channel();
        asks.send(Ask { plugin: plugin.clone(), method, params, reply }).await.map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// The code of a failure that is nobody's parameters.
const INTERNAL_ERROR: i64 = -32603;
