//! Our MCP server face: all approved tools of all plugins as one server over a byte stream.
//!
//! ```text
//! client --bytes--> driver --Connection--> one task per request --> Host::call --> plugin
//!        <--bytes--        <----- answers, progress, notices <-----
//! ```
//!
//! Owns the methods a client may use, one file each, and the mapping of [`CallFailure`](plugward_host::CallFailure) to
//! JSON-RPC and tool results. The rules of the wire (ids, batches, malformed lines, versions) are
//! [`plugward_protocol`]'s; what a call does is [`plugward_host`]'s. Refuses to change what a plugin said: definitions,
//! arguments and results pass as the text they arrived as, apart from the tool's name (case B034).

mod client_asks;
mod driver;
pub(crate) mod http;
mod initialize;
mod instructions;
mod listen;
mod logging;
mod modern;
mod notices;
mod offers;
mod output;
mod search;
mod server;
#[cfg(test)]
mod tests;
mod tools_call;
mod tools_list;
mod view;

use std::time::Duration;

use plugward_host::Host;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::profile::Profile;

pub(crate) use server::Server;

/// How long the first `tools/list` waits for plugins that are starting. Clients list right after the handshake and
/// many never list again, so a short wait spares them an empty list; a longer one would let a plugin that hangs hold up
/// the others (case B036).
pub(crate) const FIRST_LIST_WAIT: Duration = Duration::from_secs(2);

/// The result of what has none, and the arguments of a call that names none.
fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Options of one MCP session.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// How long the first `tools/list` waits for plugins that are starting.
    pub(crate) first_list_wait: Duration,
    /// What the client gets.
    pub(crate) profile: Profile,
    /// The name of the token it showed, where it has one of its own.
    pub(crate) token_name: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { first_list_wait: FIRST_LIST_WAIT, profile: Profile::default(), token_name: None }
    }
}

/// Tokens that search mode costs at the start of a session.
pub(crate) fn search_tokens() -> u64 {
    search::definitions().iter().map(|definition| crate::cost::of_definition(definition.get())).sum()
}

/// Serves one MCP client until it closes its end and every request it sent is answered (case B086).
///
/// The session ends early when the client goes away or does not read; the log says so, and it is no failure of ours.
/// Dropping the future cancels the calls under way.
pub(crate) async fn serve(
    host: Host,
    reader: impl AsyncRead + Send + Unpin + 'static,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    options: Options,
) {
    let session = driver::Driver::new(Server::new(host, options), driver::Limits::default());
    if let Err(error) = session.run(reader, writer).await {
        tracing::warn!("an MCP session was ended: {error:#}");
    }
}
