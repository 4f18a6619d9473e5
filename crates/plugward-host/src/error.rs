//! Every way an operation of the host can fail, with the stable code a caller may rely on.
//!
//! Owns the code table (the edge maps codes to exit codes, HTTP status numbers and JSON-RPC errors, once) and the
//! sentences people read. Refuses: wire formats, and any text that holds argument values, secrets or stderr.

use std::time::Duration;

use plugward_protocol::RpcError;

/// Stable code of a failure. The words are part of the interface: scripts and agents compare them
/// (requirement 155). docs/errors.md explains each one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// No plugin has this id.
    PluginNotFound,
    /// A plugin with this id is installed already.
    PluginAlreadyInstalled,
    /// The package or its manifest cannot be read as a plugin.
    PluginManifestInvalid,
    /// The package cannot be copied or has changed on disk.
    PluginPackageInvalid,
    /// A permission that the plugin declares has not been granted.
    PluginPermissionRequired,
    /// A permission name is not in the catalogue of this deployment or not in the manifest.
    PluginPermissionUnknown,
    /// A tool of the plugin has the id, or in pass-through naming the name, of a tool that is registered already.
    PluginToolConflict,
    /// The plugin's process is not there, died, or broke the protocol.
    PluginHostUnavailable,
    /// The plugin's process could not be started.
    PluginHostStartFailed,
    /// The call queue of the plugin or of the host is full.
    PluginBusy,
    /// The circuit breaker of the plugin is open.
    PluginCircuitOpen,
    /// The operation does not fit the state the plugin is in.
    PluginStateConflict,
    /// The handshake failed.
    McpInitializeFailed,
    /// The plugin or the manifest asks for something this host does not do.
    McpCapabilityUnsupported,
    /// `tools/list` failed or broke a limit.
    McpToolListFailed,
    /// A tool definition is not acceptable, or the set differs from the declared one.
    McpToolSchemaInvalid,
    /// The tool ran and failed, or the call did not get an answer.
    McpToolCallFailed,
    /// The answer is larger than the plugin's limit.
    McpToolResultTooLarge,
    /// Nobody approved what would run now.
    McpTrustApprovalRequired,
    /// The digest given is not the digest of what would run now.
    McpTrustDigestStale,
    /// The environment asks for a sandbox that this host cannot witness.
    McpSandboxRequired,
    /// No tool has this name.
    ToolNotFound,
    /// The arguments do not fit the tool's schema.
    ToolArgumentInvalid,
    /// The policy or a person said no.
    PermissionDenied,
    /// Nobody answered the permission request in time.
    PermissionTimeout,
    /// The home folder is in use by another process.
    HomeInUse,
    /// The home folder or its database cannot be used.
    HomeUnusable,
    /// The host is shutting down.
    HostStopping,
    /// A defect of this program.
    Internal,
}

impl ErrorCode {
    /// All codes, in the order of docs/errors.md.
    pub const ALL: [ErrorCode; 29] = [
        ErrorCode::PluginNotFound,
        ErrorCode::PluginAlreadyInstalled,
        ErrorCode::PluginManifestInvalid,
        ErrorCode::PluginPackageInvalid,
        ErrorCode::PluginPermissionRequired,
        ErrorCode::PluginPermissionUnknown,
        ErrorCode::PluginToolConflict,
        ErrorCode::PluginHostUnavailable,
        ErrorCode::PluginHostStartFailed,
        ErrorCode::PluginBusy,
        ErrorCode::PluginCircuitOpen,
        ErrorCode::PluginStateConflict,
        ErrorCode::McpInitializeFailed,
        ErrorCode::McpCapabilityUnsupported,
        ErrorCode::McpToolListFailed,
        ErrorCode::McpToolSchemaInvalid,
        ErrorCode::McpToolCallFailed,
        ErrorCode::McpToolResultTooLarge,
        ErrorCode::McpTrustApprovalRequired,
        ErrorCode::McpTrustDigestStale,
        ErrorCode::McpSandboxRequired,
        ErrorCode::ToolNotFound,
        ErrorCode::ToolArgumentInvalid,
        ErrorCode::PermissionDenied,
        ErrorCode::PermissionTimeout,
        ErrorCode::HomeInUse,
        ErrorCode::HomeUnusable,
        ErrorCode::HostStopping,
        ErrorCode::Internal,
    ];

    /// The word itself.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorCode::PluginNotFound => "PLUGIN_NOT_FOUND",
            ErrorCode::PluginAlreadyInstalled => "PLUGIN_ALREADY_INSTALLED",
            ErrorCode::PluginManifestInvalid => "PLUGIN_MANIFEST_INVALID",
            ErrorCode::PluginPackageInvalid => "PLUGIN_PACKAGE_INVALID",
            ErrorCode::PluginPermissionRequired => "PLUGIN_PERMISSION_REQUIRED",
            ErrorCode::PluginPermissionUnknown => "PLUGIN_PERMISSION_UNKNOWN",
            ErrorCode::PluginToolConflict => "PLUGIN_TOOL_CONFLICT",
            ErrorCode::PluginHostUnavailable => "PLUGIN_HOST_UNAVAILABLE",
            ErrorCode::PluginHostStartFailed => "PLUGIN_HOST_START_FAILED",
            ErrorCode::PluginBusy => "PLUGIN_BUSY",
            ErrorCode::PluginCircuitOpen => "PLUGIN_CIRCUIT_OPEN",
            ErrorCode::PluginStateConflict => "PLUGIN_STATE_CONFLICT",
            ErrorCode::McpInitializeFailed => "MCP_INITIALIZE_FAILED",
            ErrorCode::McpCapabilityUnsupported => "MCP_CAPABILITY_UNSUPPORTED",
            ErrorCode::McpToolListFailed => "MCP_TOOL_LIST_FAILED",
            ErrorCode::McpToolSchemaInvalid => "MCP_TOOL_SCHEMA_INVALID",
            ErrorCode::McpToolCallFailed => "MCP_TOOL_CALL_FAILED",
            ErrorCode::McpToolResultTooLarge => "MCP_TOOL_RESULT_TOO_LARGE",
            ErrorCode::McpTrustApprovalRequired => "MCP_TRUST_APPROVAL_REQUIRED",
            ErrorCode::McpTrustDigestStale => "MCP_TRUST_DIGEST_STALE",
            ErrorCode::McpSandboxRequired => "MCP_SANDBOX_REQUIRED",
            ErrorCode::ToolNotFound => "TOOL_NOT_FOUND",
            ErrorCode::ToolArgumentInvalid => "TOOL_ARGUMENT_INVALID",
            ErrorCode::PermissionDenied => "PERMISSION_DENIED",
            ErrorCode::PermissionTimeout => "PERMISSION_TIMEOUT",
            ErrorCode::HomeInUse => "HOME_IN_USE",
            ErrorCode::HomeUnusable => "HOME_UNUSABLE",
            ErrorCode::HostStopping => "HOST_STOPPING",
            ErrorCode::Internal => "INTERNAL_ERROR",
        }
    }

    /// Whether the same request may succeed later without anyone changing anything.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            ErrorCode::PluginHostUnavailable
                | ErrorCode::PluginBusy
                | ErrorCode::PluginCircuitOpen
                | ErrorCode::PermissionTimeout
                | ErrorCode::HomeInUse
                | ErrorCode::HostStopping
        )
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failed operation: its code, a sentence for people, and what they can do next.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct HostError {
    /// Stable code.
    pub code: ErrorCode,
    /// One sentence: subject first, lower case, no trailing stop.
    pub message: String,
    /// The one next step that helps, when there is one.
    pub hint: Option<String>,
    /// Further lines: each difference of a contract, each diagnostic of a manifest.
    pub details: Vec<String>,
    /// Trying the same again cannot help; automatic restarts stop here.
    pub is_permanent: bool,
}

impl HostError {
    /// An error with a code and a sentence.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, details: Vec::new(), is_permanent: false }
    }

    /// Adds what to do next.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Marks it as one that trying again cannot mend.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.is_permanent = true;
        self
    }

    /// Adds further lines.
    #[must_use]
    pub fn with_details(mut self, details: Vec<String>) -> Self {
        self.details = details;
        self
    }

    /// No plugin has the id `id`.
    pub fn plugin_not_found(id: &str, known: &[String]) -> Self {
        let error = Self::new(ErrorCode::PluginNotFound, format!("plugin `{id}` is not installed"));
        if known.is_empty() {
            error.with_hint("nothing is installed yet; start with `plugward install FOLDER`")
        } else {
            error.with_hint(format!("installed: {}", known.join(", ")))
        }
    }

    /// A defect of this program: `what` names the step that failed.
    pub fn internal(what: impl std::fmt::Display) -> Self {
        Self::new(ErrorCode::Internal, format!("plugward failed at a step it should not fail at: {what}"))
    }
}

/// Why a call has no successful result. Each has a stable word of its own under the seed's code (issue item 6).
#[derive(Debug, Clone)]
pub enum CallFailure {
    /// No tool has this name.
    ToolNotFound {
        /// The name asked for.
        name: String,
    },
    /// The arguments do not fit the schema; the texts never hold a value.
    ArgumentInvalid {
        /// One line per violation.
        violations: Vec<String>,
    },
    /// Policy or a person said no.
    Denied {
        /// The explanation of the decision.
        reason: String,
    },
    /// Nobody answered the permission request within the bound.
    AskTimedOut {
        /// The bound.
        limit: Duration,
    },
    /// The queue is full.
    Busy {
        /// Which limit, with its value.
        reason: String,
    },
    /// The circuit breaker is open.
    CircuitOpen {
        /// Time after which it is worth trying again.
        retry_after: Duration,
    },
    /// The plugin is not running or broke off.
    Unavailable {
        /// What happened.
        reason: String,
    },
    /// No answer within the limit.
    TimedOut {
        /// The limit that ran out.
        limit: Duration,
        /// The setting that holds the limit.
        setting: &'static str,
    },
    /// The caller cancelled.
    Cancelled,
    /// The plugin answered with a JSON-RPC error.
    Rejected(RpcError),
    /// The plugin answered with something that is no tool result.
    ResultInvalid {
        /// What is wrong with it.
        reason: String,
    },
    /// The arguments make a message over the size limit.
    RequestTooLarge {
        /// Size in bytes.
        bytes: usize,
        /// Limit in bytes.
        limit: usize,
    },
    /// The answer is over a size limit.
    ResultTooLarge {
        /// Size in bytes.
        bytes: u64,
        /// Limit in bytes.
        limit: u64,
    },
    /// The host is shutting down.
    Stopping,
}

impl CallFailure {
    /// The seed's code.
    pub fn code(&self) -> ErrorCode {
        match self {
            CallFailure::ToolNotFound { .. } => ErrorCode::ToolNotFound,
            CallFailure::ArgumentInvalid { .. } => ErrorCode::ToolArgumentInvalid,
            CallFailure::Denied { .. } => ErrorCode::PermissionDenied,
            CallFailure::AskTimedOut { .. } => ErrorCode::PermissionTimeout,
            CallFailure::Busy { .. } => ErrorCode::PluginBusy,
            CallFailure::CircuitOpen { .. } => ErrorCode::PluginCircuitOpen,
            CallFailure::Unavailable { .. } => ErrorCode::PluginHostUnavailable,
            CallFailure::TimedOut { .. }
            | CallFailure::Cancelled
            | CallFailure::Rejected(_)
            | CallFailure::RequestTooLarge { .. }
            | CallFailure::ResultInvalid { .. } => ErrorCode::McpToolCallFailed,
            CallFailure::ResultTooLarge { .. } => ErrorCode::McpToolResultTooLarge,
            CallFailure::Stopping => ErrorCode::HostStopping,
        }
    }

    /// The stable word that tells failures under one code apart.
    pub fn cause(&self) -> &'static str {
        match self {
            CallFailure::ToolNotFound { .. } => "tool_not_found",
            CallFailure::ArgumentInvalid { .. } => "argument_invalid",
            CallFailure::Denied { .. } => "denied",
            CallFailure::AskTimedOut { .. } => "ask_timed_out",
            CallFailure::Busy { .. } => "busy",
            CallFailure::CircuitOpen { .. } => "circuit_open",
            CallFailure::Unavailable { .. } => "unavailable",
            CallFailure::TimedOut { .. } => "timed_out",
            CallFailure::Cancelled => "cancelled",
            CallFailure::Rejected(_) => "rejected",
            CallFailure::RequestTooLarge { .. } => "request_too_large",
            CallFailure::ResultInvalid { .. } => "result_invalid",
            CallFailure::ResultTooLarge { .. } => "result_too_large",
            CallFailure::Stopping => "stopping",
        }
    }

    /// The sentence for people; `tool` is the internal id.
    pub fn message(&self, tool: &str) -> String {
        match self {
            CallFailure::ToolNotFound { name } => format!("tool `{name}` is not known"),
            CallFailure::ArgumentInvalid { violations } => {
                format!("arguments of `{tool}` do not fit its schema: {}", violations.join("; "))
            }
            CallFailure::Denied { reason } => format!("call of `{tool}` was refused: {reason}"),
            CallFailure::AskTimedOut { limit } => {
                format!("call of `{tool}` needs a person's permission and nobody answered within {limit:?}")
            }
            CallFailure::Busy { reason } => format!("call of `{tool}` was not admitted: {reason}"),
            CallFailure::CircuitOpen { retry_after } => format!(
                "plugin of `{tool}` failed repeatedly and is paused; try again in {} s",
                retry_after.as_secs_f32().ceil()
            ),
            CallFailure::Unavailable { reason } => format!("plugin of `{tool}` is not available: {reason}"),
            CallFailure::TimedOut { limit, setting } => {
                format!("`{tool}` did not answer within {limit:?} (limit `{setting}`)")
            }
            CallFailure::Cancelled => format!("call of `{tool}` was cancelled by its caller"),
            CallFailure::Rejected(error) => {
                format!("`{tool}` answered with error {}: {}", error.code, error.message)
            }
            CallFailure::ResultInvalid { reason } => format!("`{tool}` answered with an invalid result: {reason}"),
            CallFailure::RequestTooLarge { bytes, limit } => format!(
                "call of `{tool}` makes a message of {bytes} bytes, over the limit of {limit} bytes \
                 (limit `backend.max_message_bytes`)"
            ),
            CallFailure::ResultTooLarge { bytes, limit } => {
                format!("result of `{tool}` has {bytes} bytes, over the limit of {limit} bytes")
            }
            CallFailure::Stopping => "the host is shutting down".to_owned(),
        }
    }

    /// Whether it speaks against the health of the plugin (and not of the caller, the policy or the task at hand).
    pub fn counts_against_plugin(&self) -> bool {
        matches!(
            self,
            CallFailure::Unavailable { .. } | CallFailure::TimedOut { .. } | CallFailure::ResultInvalid { .. }
        )
    }
}
