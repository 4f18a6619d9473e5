//! Exit codes: the part of the command line's contract that scripts rely on.
//!
//! Owns the one mapping from failures to codes. Refuses texts: those are in the error itself.

use std::process::ExitCode;

use plugward_host::{CallFailure, ErrorCode};
use serde::{Deserialize, Serialize};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Exit {
    /// Done.
    Ok,
    /// It failed, or the tool says that it failed.
    Failure,
    /// The command, its arguments or the settings are wrong.
    Usage,
    /// No such plugin, tool, trace or request.
    NotFound,
    /// Denied, or it needs a person's consent first.
    Denied,
    /// The plugin does not start or does not run.
    Unhealthy,
    /// No answer in time.
    Timeout,
}

impl Exit {
    /// The number the process ends with.
    pub(crate) fn number(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::NotFound => 3,
            Exit::Denied => 4,
            Exit::Unhealthy => 5,
            Exit::Timeout => 124,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.number())
    }
}

impl From<ErrorCode> for Exit {
    fn from(code: ErrorCode) -> Self {
        match code {
            ErrorCode::PluginNotFound | ErrorCode::ToolNotFound => Exit::NotFound,
            ErrorCode::ToolArgumentInvalid => Exit::Usage,
            ErrorCode::PluginPermissionRequired
            | ErrorCode::McpTrustApprovalRequired
            | ErrorCode::McpTrustDigestStale
            | ErrorCode::McpSandboxRequired
            | ErrorCode::PermissionDenied
            // Nobody said yes: what helps is a person, not a longer limit.
            | ErrorCode::PermissionTimeout => Exit::Denied,
            ErrorCode::PluginHostUnavailable
            | ErrorCode::PluginHostStartFailed
            | ErrorCode::PluginCircuitOpen
            | ErrorCode::McpInitializeFailed
            | ErrorCode::McpToolListFailed
            | ErrorCode::McpToolSchemaInvalid => Exit::Unhealthy,
            ErrorCode::PluginAlreadyInstalled
            | ErrorCode::PluginManifestInvalid
            | ErrorCode::PluginPackageInvalid
            | ErrorCode::PluginPermissionUnknown
            | ErrorCode::PluginToolConflict
            | ErrorCode::PluginBusy
            | ErrorCode::PluginStateConflict
            | ErrorCode::McpCapabilityUnsupported
            | ErrorCode::McpToolCallFailed
            | ErrorCode::McpToolResultTooLarge
            | ErrorCode::HomeInUse
            | ErrorCode::HomeUnusable
            | ErrorCode::HostStopping
            | ErrorCode::Internal => Exit::Failure,
        }
    }
}

impl From<&CallFailure> for Exit {
    fn from(failure: &CallFailure) -> Self {
        match failure {
            CallFailure::TimedOut { .. } => Exit::Timeout,
            CallFailure::ToolNotFound { .. }
            | CallFailure::ArgumentInvalid { .. }
            | CallFailure::Denied { .. }
            | CallFailure::AskTimedOut { .. }
            | CallFailure::Busy { .. }
            | CallFailure::CircuitOpen { .. }
            | CallFailure::Unavailable { .. }
            | CallFailure::Cancelled
            | CallFailure::Rejected(_)
            | CallFailure::ResultInvalid { .. }
            | CallFailure::RequestTooLarge { .. }
            | CallFailure::ResultTooLarge { .. }
            | CallFailure::Stopping => Exit::from(failure.code()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts branch on these numbers.
    #[test]
    fn numbers_are_the_published_ones() {
        let all = [
            (Exit::Ok, 0),
            (Exit::Failure, 1),
            (Exit::Usage, 2),
            (Exit::NotFound, 3),
            (Exit::Denied, 4),
            (Exit::Unhealthy, 5),
            (Exit::Timeout, 124),
        ];
        for (exit, number) in all {
            assert_eq!(exit.number(), number);
        }
        assert!(ErrorCode::ALL.iter().all(|code| Exit::from(*code) != Exit::Ok), "no failure may look like success");
    }

    /// Whoever writes a script reads the page, not this file.
    #[test]
    fn the_page_of_codes_tells_these_numbers() {
        let page = include_str!("../../../docs/errors.md");
        for code in ErrorCode::ALL {
            let row = page.lines().find(|line| line.starts_with(&format!("| `{code}` |"))).unwrap();
            let told = row.split('|').nth(2).and_then(|column| column.split(',').next()).unwrap();
            assert_eq!(told.trim(), Exit::from(code).number().to_string(), "{row}");
        }
    }
}
