//! What a plugin says about itself and what it may do, as pure values. Owns the manifest and its
//! reading, identifiers, permissions of tools and of the machine, decisions with their explanation, the digest of what a person
//! agreed to, exposed tool names, which values are secret, and the legal moves between states.
//! Refuses file systems, environments, processes and clocks: everything comes in as an argument, so
//! every rule here can be tested by a table.

mod access;
mod approval;
mod canonical;
mod command;
mod decision;
mod expand;
mod id;
mod manifest;
mod naming;
mod permission;
mod prompt;
mod secret;
mod state;
mod visible;
mod webhook;

pub use access::{
    Access, AccessError, AccessFieldError, AccessLine, AccessPermission, DISK_BYTES_DEFAULT, ExpandAccessError,
    ExpandPathError, ExpandedAccess, FILE_BYTES_DEFAULT, GRANT_PATH_BYTES_MAX, MEMORY_BYTES_DEFAULT, NET_PORT_DEFAULT,
    NetError, NetRule, NetTarget, OPEN_FILES_DEFAULT, PROCESSES_DEFAULT, PathError, PathGrant, Permission,
    PermissionError, ResourceLimits, Risk, URL_BYTES_MAX, UrlError, VARIABLE_NAME_BYTES_MAX, VariableError,
    VariableName, WebUrl, special_address,
};
pub use approval::{ApprovalSubject, ApprovalTextError, ApprovedArgument, Change, PinError, ToolPin};
pub use canonical::CanonicalError;
pub use command::{
    ARGUMENT_BYTES_MAX, ARGUMENTS_BYTES_MAX, ArgumentError, COMMAND_TIMEOUT_DEFAULT, CommandTool, ExitMeaning,
    GATE_NAME_VARIABLE, Gate, GatePhase, GateSeverity, Group, Invocation, Item, OUTPUT_BYTES_DEFAULT, OutputForm,
    Overflow, Parameter, ParameterKind, Piece, Prepared, SHELL, ShellScript, TOOL_NAME_VARIABLE, Template,
    UnknownGatePhase, Word, WorkingDirectory, is_parameter_name,
};
pub use decision::{Decision, DecisionInput, ReasonStep, StandingAnswer, decide};
pub use expand::{ExpandBackendError, ExpandError, ExpandedBackend, FieldError, expand, expand_backend};
pub use id::{
    Digest, IdError, PERMISSION_NAME_BYTES_MAX, PLUGIN_ID_BYTES_MAX, PermissionName, PluginId,
    REMOTE_TOOL_NAME_BYTES_MAX, RemoteToolName, ToolId,
};
pub use manifest::{
    Backend, BackendKind, CONCURRENT_CALLS_DEFAULT, Diagnostic, Isolation, MANIFEST_BYTES_MAX, MESSAGE_BYTES_DEFAULT,
    Manifest, ManifestError, ManifestErrorKind, NamePattern, ParsedManifest, PatternError, ProtocolMode,
    QUEUED_CALLS_DEFAULT, RESULT_BYTES_DEFAULT, RemoteServer, RemoteTransport, RestartMode, STARTUP_TIMEOUT_DEFAULT,
    STARTUP_TIMEOUT_LAUNCHER, SandboxLevel, Severity, StdoutMode, Supervision, TOOL_TIMEOUT_DEFAULT, ToolFilter,
    UnknownSandboxLevel, parse_manifest,
};
pub use naming::{EXPOSED_NAME_BYTES_MAX, ExposedName, NamingError, NamingMode, PluginTools, expose};
pub use permission::{Catalogue, Effect, GrantSet, UnknownEffect};
pub use prompt::{PROMPT_VALUE_BYTES_MAX, PromptArgument, PromptError, PromptMessage, PromptRole, PromptTemplate};
pub use secret::{SECRET_BYTES_MIN, is_secret_name, secret_values};
pub use state::{HostStatus, IllegalMove, PluginStatus, UnknownStatus};
pub use visible::visible;
pub use webhook::{
    HostOccasion, Payload, PayloadError, UnknownOccasion, WEBHOOK_HEADER, WEBHOOK_SECRET, WEBHOOK_URL, Webhook,
};
