//! `subscriptions/listen`: a stream of notices that its client asked for.
//!
//! Owns what a stream promises (its first message says what it will carry), the pause that turns a storm into one
//! notice, and its end. Refuses to tell what is not true (case B039) and what was not asked for (SU-01).

use plugward_protocol::RpcError;
use plugward_protocol::mcp::methods;
use plugward_protocol::modern::{self, ListenFilter};
use serde_json::value::RawValue;

use super::modern::Exchange;
use super::notices::COALESCE;
use super::tools_call::{self, Note};

/// Carries notices until the client gives the stream up (then nobody reads the answer) or the server ends.
pub(super) async fn run(exchange: &Exchange) -> Result<Box<RawValue>, RpcError> {
    let wanted = ListenFilter::parse(exchange.params.as_deref())?;
    // What no plugin can cause here is not promised.
    let honoured = ListenFilter { tools: wanted.tools, ..ListenFilter::default() };
    tokio::select! {
        biased;
        () = exchange.cancel.cancelled() => Err(tools_call::given_up()),
        () = exchange.closing.cancelled() => Ok(modern::stream_closed(&exchange.id)),
        never = carry(exchange, &honoured) => match never {},
    }
}

async fn carry(exchange: &Exchange, honoured: &ListenFilter) -> std::convert::Infallible {
    let (host, lists) = (exchange.server.host(), exchange.server.lists());
    let mut version = host.tools_version();
    // What the client lists once it knows that the stream is open cannot be older than this.
    let mut known = lists.current(host).fingerprint;
    note(exchange, modern::methods::ACKNOWLEDGED, modern::acknowledged(&exchange.id, honoured)).await;
    if !honoured.tools {
        return std::future::pending().await;
    }
    loop {
        if version.changed().await.is_err() {
            return std::future::pending().await;
        }
        tokio::time::sleep(COALESCE).await;
        version.mark_unchanged();
        let current = lists.current(host).fingerprint;
        if current != known {
            known = current;
            note(exchange, methods::TOOLS_LIST_CHANGED, modern::on_stream(&exchange.id)).await;
        }
    }
}

async fn note(exchange: &Exchange, method: &'static str, params: Box<RawValue>) {
    // Without a reader the stream is about to be cancelled.
    let _ = exchange.notes.send(Note { request: exchange.id.clone(), method, params }).await;
}
