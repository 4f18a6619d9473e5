//! What is behind a tool: a conversation with a running server, or a command. Owns that the call path need not know
//! which. Refuses to judge answers.

use std::sync::Arc;

use plugward_sandbox::Enforcement;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::session::{RequestError, Session, ToolCall};
use crate::supervisor::command::CommandTarget;
use crate::supervisor::sleep::Sleep;

/// Where calls go.
pub(crate) enum Target {
    /// To a running MCP server.
    Session(Arc<Session>),
    /// To a command, once for each call.
    Command(CommandTarget),
    /// Nowhere yet: the place of a call is where a process is started by it.
    Asleep(Arc<Sleep>),
    /// Nowhere: a plugin without tools.
    Nowhere,
}

impl Target {
    /// Runs one call; `cancel` ends it at once.
    pub(crate) async fn call_tool(
        &self,
        call: ToolCall,
        cancel: &CancellationToken,
    ) -> Result<Box<RawValue>, RequestError> {
        match self {
            Self::Session(session) => session.call_tool(call, cancel).await,
            // The future of a command is large, and most calls are not of one.
            Self::Command(target) => Box::pin(target.call(call, cancel)).await,
            // No place is given out here; said rather than assumed.
            Self::Asleep(_) => Err(RequestError::Unavailable("it is asleep".to_owned())),
            Self::Nowhere => Err(RequestError::Unavailable("it has no tools".to_owned())),
        }
    }

    /// Whether its calls share one process.
    pub(crate) fn has_process(&self) -> bool {
        matches!(self, Self::Session(_))
    }

    /// Whether results may be questions.
    pub(crate) fn asks_by_results(&self) -> bool {
        matches!(self, Self::Session(session) if session.is_stateless())
    }

    /// Signs of life so far.
    pub(crate) fn messages_in(&self) -> u64 {
        match self {
            Self::Session(session) => session.messages_in(),
            Self::Command(target) => target.heard(),
            Self::Asleep(_) | Self::Nowhere => 0,
        }
    }

    /// What isolated the last run of a command.
    pub(crate) fn last_enforcement(&self) -> Option<Enforcement> {
        match self {
            Self::Session(_) | Self::Asleep(_) | Self::Nowhere => None,
            Self::Command(target) => target.enforcement(),
        }
    }

    /// Ends the runs of a command that are under way. A session ends with its process.
    pub(crate) fn stop(&self) {
        if let Self::Command(target) = self {
            target.stop();
        }
    }
}
