//! Backend `mcp_http`: one conversation with one server elsewhere, behind the same [`Session`] as a process of this machine.
//!
//! ```text
//!                    commands, cancels                       POST, one for each message
//!  supervisor, calls ----------------> driver --- exchange ------------------------------> server
//!                                        |            ^  JSON, or a stream of events
//!                                        |            |
//!                                        +- follow -- peer <-- GET, notices of older revisions
//! ```
//!
//! Owns what HTTP adds to the protocol: sessions that get lost and are begun anew once, streams that break and go on, the
//! headers each revision wants, servers of the first HTTP transport, and what a status means. A request is repeated only
//! where the server cannot have acted on it, or where acting twice changes nothing: never a call of a tool. Refuses to
//! decide whether the server may be reached, which `outbound` does, and to restart anything: a server that cannot be
//! reached again and again ends the conversation, and the supervisor begins another after its pauses.

mod driver;
mod events;
mod exchange;
mod follow;
mod greet;
mod mirror;
mod peer;
mod status;

use std::sync::Arc;

use hyper::header::{HeaderName, HeaderValue};
use plugward_policy::{RemoteTransport, WebUrl};
use tokio::sync::{mpsc, watch};

use super::log::PluginLog;
use super::{COMMAND_QUEUE, MAX_IN_FLIGHT, Session, SessionSettings, Shared};
use crate::outbound::Outbound;
use driver::Driver;
use peer::Peer;

/// Where a server is, and the way there.
pub(crate) struct Remote {
    pub(crate) url: WebUrl,
    pub(crate) transport: RemoteTransport,
    /// Sent with each request.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) outbound: Outbound,
}

impl Session {
    /// Begins a conversation with a server elsewhere. Nothing is sent before it is greeted.
    pub(crate) fn open_http(remote: Remote, log: Arc<PluginLog>, settings: SessionSettings) -> Session {
        let (commands, command_rx) = mpsc::channel(COMMAND_QUEUE);
        let (cancels, cancel_rx) = mpsc::channel(MAX_IN_FLIGHT + COMMAND_QUEUE);
        let (ended_tx, ended) = watch::channel(None);
        let shared = Arc::new(Shared::default());
        let (peer, jobs) = Peer::new(remote, Arc::clone(&shared), log, settings);
        let driver = Driver::new(peer, jobs);
        tokio::spawn(async move {
            let (ending, left) = driver.run(command_rx, cancel_rx).await;
            ended_tx.send_replace(Some(ending));
            // Who waits for one of these learns the reason above.
            drop(left);
        });
        Session::with(commands, cancels, shared, ended)
    }
}
