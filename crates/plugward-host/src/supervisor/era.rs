//! Which of the two ways a conversation with a plugin begins, and what is remembered of it.
//!
//! ```text
//! manifest says      that one, and nothing else is tried
//! remembered modern  server/discover          --an older server's answer--> a fresh process, initialize
//! remembered legacy  initialize               --refused-------------------> a fresh process, server/discover
//! not known          server/discover          --an older server's answer--> a fresh process, initialize
//! ```
//!
//! Owns this table, both greetings, and the memory, which is of one launch digest: what was approved anew is asked anew. Some servers end
//! or are confused by a first message they do not know, hence the fresh process. Refuses to start processes.

use std::sync::Arc;
use std::time::Duration;

use plugward_policy::ProtocolMode;
use plugward_protocol::{
    ClientHello, ClientMeta, HandshakeError, Implementation, ProbeFailure, ProtocolVersion, ServerHello,
};

use super::{Launched, Plugin, start};
use crate::error::{ErrorCode, HostError};
use crate::host::Inner;

/// Longest wait for the answer to a first question that the plugin may not know. Servers that say nothing to it cost
/// this much once.
const PROBE_LIMIT_MAX: Duration = Duration::from_secs(10);

/// How a conversation begins, and what follows if it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Greeting {
    /// With `initialize`. `else_asked`: one that refuses may be one of the other kind.
    Handshake {
        /// Whether a refusal leads to the other one.
        else_asked: bool,
    },
    /// With `server/discover`. `else_greeted`: one that does not know it may be one of the other kind.
    Discovery {
        /// Whether not knowing it leads to the other one.
        else_greeted: bool,
    },
    /// With the one, and in the same process with the other: for a process that is looked at once.
    Either,
}

/// Why a plugin is not to be talked to.
pub(super) struct Ungreeted {
    pub(super) error: HostError,
    /// How to try with a fresh process.
    pub(super) next: Option<Greeting>,
}

impl From<HostError> for Ungreeted {
    fn from(error: HostError) -> Self {
        Self { error, next: None }
    }
}

/// How to begin with what `digest` stands for.
pub(super) async fn first(inner: &Arc<Inner>, plugin: &Plugin, digest: &str) -> Greeting {
    match plugin.manifest.backend.protocol {
        ProtocolMode::Legacy => return Greeting::Handshake { else_asked: false },
        ProtocolMode::Modern => return Greeting::Discovery { else_greeted: false },
        ProtocolMode::Auto => {}
    }
    let id = plugin.id.to_string();
    let kept = inner.blocking(move |inner| inner.path.store.setting(&era_key(&id))).await;
    let is_legacy = kept.ok().flatten().is_some_and(|text| text == remembered(digest, false));
    match is_legacy {
        true => Greeting::Handshake { else_asked: true },
        false => Greeting::Discovery { else_greeted: true },
    }
}

/// Keeps what was found out, so that later starts do not ask.
pub(super) async fn remember(inner: &Arc<Inner>, plugin: &Plugin, digest: &str, hello: &ServerHello) {
    if plugin.manifest.backend.protocol != ProtocolMode::Auto {
        return;
    }
    let (id, text) = (plugin.id.to_string(), remembered(digest, !hello.version.is_legacy()));
    let kept = inner.blocking(move |inner| {
        let (store, key) = (&inner.path.store, era_key(&id));
        if store.setting(&key)?.as_deref() == Some(&text) {
            return Ok(());
        }
        store.set_setting(&key, Some(&text))
    });
    if let Err(error) = kept.await {
        tracing::warn!(code = %error.code, "how a plugin is greeted was not kept: {}", error.message);
    }
}

/// Setting that tells how the process of a launch digest is greeted.
pub(crate) fn era_key(id: &str) -> String {
    format!("era.{id}")
}

fn remembered(digest: &str, is_modern: bool) -> String {
    format!("{} {digest}", if is_modern { "modern" } else { "legacy" })
}

/// Who we are, to every plugin.
pub(super) fn identity() -> Implementation {
    Implementation {
        name: "plugward".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        title: Some("Plugward".to_owned()),
    }
}

/// Asks a plugin what it is.
pub(super) async fn discover(
    plugin: &Plugin,
    launched: &Launched,
    else_greeted: bool,
) -> Result<ServerHello, Ungreeted> {
    let startup = plugin.manifest.backend.startup_timeout;
    // Half of the time is left for the other way.
    let limit = if else_greeted { (startup / 2).min(PROBE_LIMIT_MAX) } else { startup };
    let failure = match launched.session.discover(ClientMeta::new(identity()), limit).await {
        Ok(hello) => return Ok(hello),
        Err(failure) => failure,
    };
    let ended = match &failure {
        ProbeFailure::Legacy(HandshakeError::Closed | HandshakeError::Broken(_)) => true,
        ProbeFailure::Legacy(_) | ProbeFailure::NoCommonVersion { .. } | ProbeFailure::Refused(_) => false,
    };
    // It may quote what the plugin wrote.
    let reason = plugin.redactor.redact(&failure.to_string()).into_owned();
    let code = if ended { ErrorCode::PluginHostUnavailable } else { ErrorCode::McpInitializeFailed };
    let error = HostError::new(code, format!("plugin `{}` failed to start a conversation: {reason}", plugin.id));
    match failure {
        ProbeFailure::Legacy(_) if else_greeted => {
            Err(Ungreeted { error, next: Some(Greeting::Handshake { else_asked: false }) })
        }
        // A version nobody here speaks stays unknown however often it is asked for (B032).
        ProbeFailure::NoCommonVersion { .. } => Err(error.permanent().into()),
        ProbeFailure::Legacy(_) | ProbeFailure::Refused(_) => Err(error.into()),
    }
}

/// `initialize` and its answer. One that refuses it may be a server without handshakes.
pub(super) async fn handshake(
    plugin: &Plugin,
    launched: &Launched,
    else_asked: bool,
) -> Result<ServerHello, Ungreeted> {
    let hello = ClientHello {
        version: ProtocolVersion::LATEST_LEGACY,
        client: identity(),
        // Nothing is offered: what a server asks of its client is refused at once (B038).
        capabilities: no_capabilities(),
    };
    match launched.session.handshake(hello, plugin.manifest.backend.startup_timeout).await {
        Ok(hello) => Ok(hello),
        Err(error) => {
            let is_refusal = matches!(error, HandshakeError::Rejected(_));
            let next = (else_asked && is_refusal).then_some(Greeting::Discovery { else_greeted: false });
            Err(Ungreeted { error: handshake_error(plugin, launched, &error).await, next })
        }
    }
}

pub(super) async fn handshake_error(plugin: &Plugin, launched: &Launched, error: &HandshakeError) -> HostError {
    let code = match error {
        // The seed's words: a process that ended or does not speak the protocol is no host (requirements 52, 128).
        HandshakeError::Closed | HandshakeError::Broken(_) => ErrorCode::PluginHostUnavailable,
        _ => ErrorCode::McpInitializeFailed,
    };
    let reason = match error {
        HandshakeError::Closed => {
            // A plugin may break a rule before it is greeted.
            let ending = launched.session.ended().await;
            match ending.is_fault {
                true => ending.reason,
                false => super::watch::describe_end(launched, error.to_string()).await,
            }
        }
        _ => error.to_string(),
    };
    // It may quote what the plugin wrote.
    let reason = plugin.redactor.redact(&reason);
    let message = format!("plugin `{}` failed to initialize: {reason}", plugin.id);
    let host_error = start::failure_with_stderr(plugin, launched, HostError::new(code, message));
    match error {
        // A version nobody here speaks stays unknown however often it is asked for (B032).
        HandshakeError::UnsupportedVersion { .. } => host_error.permanent(),
        HandshakeError::Closed if launched.session.is_hopeless() => host_error.permanent(),
        _ => host_error,
    }
}

fn no_capabilities() -> Box<serde_json::value::RawValue> {
    serde_json::value::to_raw_value(&serde_json::Map::new())
        .unwrap_or_else(|_| serde_json::value::RawValue::NULL.to_owned())
}
