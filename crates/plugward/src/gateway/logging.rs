//! `logging/setLevel`, and what a client reads of the log messages of plugins.
//!
//! Owns the levels of both eras. Refuses to announce logging that no plugin does; a client with a session that sets a level
//! all the same is not refused (case B089).

use plugward_host::Listener;
use plugward_protocol::mcp::codes;
use plugward_protocol::modern::LogLevel;
use plugward_protocol::{RequestMeta, RpcError};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::empty_object;

/// What a session reads of its own calls before it names a level: what concerns whoever called, without details.
const UNNAMED: LogLevel = LogLevel::Info;

/// From which level on a client wants to read what is logged during a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WantedLevel {
    pub(super) level: LogLevel,
    /// It named the level itself.
    pub(super) is_named: bool,
}

impl WantedLevel {
    /// Of a client with a session.
    pub(super) fn of_session(listener: &Listener) -> Self {
        let named = listener.log_level();
        Self { level: named.unwrap_or(UNNAMED), is_named: named.is_some() }
    }

    /// Of a request without one, which is told nothing unless it says so (LO-01).
    pub(super) fn of_request(meta: &RequestMeta) -> Option<Self> {
        meta.log_level.map(|level| Self { level, is_named: true })
    }
}

/// Answers `logging/setLevel`.
pub(super) fn set_level(listener: &Listener, params: Option<&RawValue>) -> Result<Box<RawValue>, RpcError> {
    #[derive(Deserialize)]
    struct Params {
        level: String,
    }
    let named = params.and_then(|params| serde_json::from_str::<Params>(params.get()).ok());
    let level = named.and_then(|params| LogLevel::parse(&params.level));
    let level = level.ok_or_else(|| RpcError::new(codes::INVALID_PARAMS, "`level` is not a level"))?;
    listener.set_log_level(level);
    Ok(empty_object())
}
