//! The manifest of a plugin (`plugin.yaml`). Owns its domain types, their limits and the one way in,
//! [`parse_manifest`]; `tree` reads YAML, `reader` reads typed keys, `plugin` and `backend` know the
//! keys, `command` those of a file that is one command, `lint` knows what deserves a warning. Refuses files, environments and anything a manifest
//! does not say: unknown keys are errors, because a misspelled limit must not become no limit.

mod access;
mod agent;
mod backend;
mod command;
mod command_parameters;
mod diagnostic;
mod integration;
mod lint;
mod pattern;
mod plugin;
mod reader;
mod remote;
mod supervision;
mod tree;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use diagnostic::{Diagnostic, ManifestError, ManifestErrorKind, Severity};
pub use pattern::{NamePattern, PatternError, ToolFilter};
pub use remote::{RemoteServer, RemoteTransport};
pub use supervision::{Isolation, Supervision};
pub use tree::MANIFEST_BYTES_MAX;

use crate::access::{Access, Permission};
use crate::command::CommandTool;
use crate::id::{PermissionName, PluginId, ToolId};
use crate::prompt::PromptTemplate;
use crate::webhook::Webhook;

pub(crate) use reader::did_you_mean;

/// Start-up bound when a manifest gives none: the seed's value, ample for a local program.
pub const STARTUP_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// Start-up bound when a manifest gives none and its command fetches a package first. A first
/// download takes longer than ten seconds on most lines, and a start that is cut short throws the
/// download away, so that no later attempt is faster.
pub const STARTUP_TIMEOUT_LAUNCHER: Duration = Duration::from_secs(60);

/// Start-up bound when a manifest of a server elsewhere gives none: it is up already, and two questions to it, each with a
/// look-up and a TLS handshake over a slow line, take no longer.
pub(crate) const STARTUP_TIMEOUT_REMOTE: Duration = Duration::from_secs(20);

/// Bound on one call when a manifest gives none (the seed's value).
pub const TOOL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Longest protocol message when a manifest gives none (the seed's value), in bytes.
pub const MESSAGE_BYTES_DEFAULT: u64 = 2 * 1024 * 1024;

/// Largest result of one call when a manifest gives none (the seed's value), in bytes.
pub const RESULT_BYTES_DEFAULT: u64 = 256 * 1024;

/// Calls a plugin works on at once when a manifest gives none.
pub const CONCURRENT_CALLS_DEFAULT: u32 = 32;

/// Calls that wait for a free place when a manifest gives none.
pub const QUEUED_CALLS_DEFAULT: u32 = 128;

/// A manifest that was read, with what a person should know about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedManifest {
    /// The manifest.
    pub manifest: Manifest,
    /// Findings that do not refuse it.
    pub warnings: Vec<Diagnostic>,
}

/// What a plugin is, asks for and would run (requirements 27-34).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The plugin's id.
    pub id: PluginId,
    /// Its name for people.
    pub name: String,
    /// Its version as written.
    pub version: String,
    /// What it is for; may be empty.
    pub description: String,
    /// The named permissions it asks for, in the order of the file, each once.
    pub permissions: Vec<PermissionName>,
    /// What of the machine it asks for: the rest of the list, and the limits of its sandbox.
    pub access: Access,
    /// `contributes.tools`: exactly these tools, or nothing is registered. `None` when the manifest
    /// names no set, as imported servers do.
    pub declared_tools: Option<Vec<ToolId>>,
    /// What is run.
    pub backend: Backend,
    /// Which of the server's tools are offered at all.
    pub tools: ToolFilter,
    /// Without at least this level of isolation the plugin does not start.
    pub min_sandbox_level: SandboxLevel,
    /// How it wants to be looked after.
    pub supervision: Supervision,
}

impl Manifest {
    /// Every permission of the manifest, the named ones first: what a person can grant.
    #[must_use]
    pub fn all_permissions(&self) -> Vec<Permission> {
        let named = self.permissions.iter().cloned().map(Permission::Named);
        named.chain(self.access.permissions().into_iter().map(Permission::Access)).collect()
    }
}

/// The server a plugin is made of. All texts are as written: `${NAME}` is not replaced yet.
#[derive(Clone, PartialEq, Eq)]
pub struct Backend {
    /// The executable: a bare name looked up in `PATH`, or a path. The URL of a server elsewhere.
    pub command: String,
    /// Its arguments, passed as they are, never through a shell (requirement 29).
    pub args: Vec<String>,
    /// Variables set for it, in the order of the file. Of a server elsewhere, the headers sent to it.
    pub env: Vec<(String, String)>,
    /// Names in `env` whose values are secret whatever the name looks like.
    pub secret_env: Vec<String>,
    /// Working directory; the package's folder when absent.
    pub cwd: Option<String>,
    /// Bound on the whole start.
    pub startup_timeout: Duration,
    /// Bound on one call.
    pub tool_timeout: Duration,
    /// Bound on listing the tools.
    pub list_timeout: Duration,
    /// What happens to lines on stdout that are not protocol messages.
    pub stdout: StdoutMode,
    /// What happens when it ends unasked.
    pub restart: RestartMode,
    /// How the conversation begins.
    pub protocol: ProtocolMode,
    /// Longest protocol message, in bytes, both ways.
    pub max_message_bytes: u64,
    /// Largest result of one call, in bytes.
    pub max_result_bytes: u64,
    /// Calls worked on at once.
    pub max_concurrent_calls: u32,
    /// Calls that may wait for a free place.
    pub max_queued_calls: u32,
    /// Which way it runs.
    pub kind: BackendKind,
}

/// Which way a backend runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendKind {
    /// As an MCP server that is spoken to over stdio.
    McpStdio,
    /// As a command that runs once for each call.
    Command(Box<CommandTool>),
    /// As an MCP server elsewhere that is spoken to over HTTP.
    McpHttp(Box<RemoteServer>),
    /// Not at all: it is a prompt the host tells.
    Prompt(Box<PromptTemplate>),
    /// Not at all: it is a webhook the host sends.
    Webhook(Box<Webhook>),
}

impl Backend {
    /// The command, when it is one.
    #[must_use]
    pub fn command_tool(&self) -> Option<&CommandTool> {
        match &self.kind {
            BackendKind::Command(tool) => Some(tool),
            _ => None,
        }
    }

    /// The prompt, when it is one.
    #[must_use]
    pub fn prompt(&self) -> Option<&PromptTemplate> {
        match &self.kind {
            BackendKind::Prompt(prompt) => Some(prompt),
            _ => None,
        }
    }

    /// The webhook, when it is one.
    #[must_use]
    pub fn webhook(&self) -> Option<&Webhook> {
        match &self.kind {
            BackendKind::Webhook(webhook) => Some(webhook),
            _ => None,
        }
    }

    /// Whether a program of the plugin's ever runs; the host itself does all the others do.
    #[must_use]
    pub fn has_program(&self) -> bool {
        !matches!(self.kind, BackendKind::Prompt(_) | BackendKind::Webhook(_))
    }

    /// Whether the plugin is all in the file of its manifest, as `type: ...` files are.
    #[must_use]
    pub fn is_lone_file(&self) -> bool {
        !matches!(self.kind, BackendKind::McpStdio | BackendKind::McpHttp(_))
    }

    /// A backend that never runs.
    fn without_program(
        env: Vec<(String, String)>,
        secret_env: Vec<String>,
        tool_timeout: Duration,
        kind: BackendKind,
    ) -> Self {
        Self {
            command: String::new(),
            args: Vec::new(),
            env,
            secret_env,
            cwd: None,
            startup_timeout: STARTUP_TIMEOUT_DEFAULT,
            tool_timeout,
            list_timeout: STARTUP_TIMEOUT_DEFAULT,
            stdout: StdoutMode::Strict,
            restart: RestartMode::Never,
            protocol: ProtocolMode::Auto,
            max_message_bytes: MESSAGE_BYTES_DEFAULT,
            max_result_bytes: RESULT_BYTES_DEFAULT,
            max_concurrent_calls: CONCURRENT_CALLS_DEFAULT,
            max_queued_calls: QUEUED_CALLS_DEFAULT,
            kind,
        }
    }

    /// The server elsewhere, when it is one.
    #[must_use]
    pub fn remote(&self) -> Option<&RemoteServer> {
        match &self.kind {
            BackendKind::McpHttp(remote) => Some(remote),
            _ => None,
        }
    }
}

impl fmt::Debug for Backend {
    /// Leaves out the values of variables: a manifest may hold a secret it should not hold, and
    /// debug output ends up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Backend")
            .field("command", &self.command)
            .field("args", &self.args.len())
            .field("env", &names)
            .field("cwd", &self.cwd)
            .field("startup_timeout", &self.startup_timeout)
            .field("tool_timeout", &self.tool_timeout)
            .field("list_timeout", &self.list_timeout)
            .field("stdout", &self.stdout)
            .field("restart", &self.restart)
            .finish_non_exhaustive()
    }
}

/// How the conversation with a server begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProtocolMode {
    /// Found out at the first start and remembered: default without a declared tool set.
    Auto,
    /// With `initialize`, as up to 2025-11-25: the seed's rule, default with a declared tool set.
    Legacy,
    /// Without a handshake, as from 2026-07-28 on.
    Modern,
}

/// Lines on stdout that are not protocol messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StdoutMode {
    /// The first one ends the process: the seed's rule, default with a declared tool set.
    Strict,
    /// A bounded number is skipped, counted and shown: default for imported servers.
    Tolerant,
}

/// What follows when the process ends unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RestartMode {
    /// It is started again, with growing pauses.
    OnFailure,
    /// A person has to start it.
    Never,
}

/// How much isolation is in force, from nothing to everything the design asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxLevel {
    /// A process like any other.
    None,
    /// Some resources are bounded.
    Limited,
    /// Some of the file system or the network is out of reach.
    Partial,
    /// Everything not granted is out of reach.
    Full,
}

/// The levels by name, weakest first.
const SANDBOX_LEVELS: [(&str, SandboxLevel); 4] = [
    ("none", SandboxLevel::None),
    ("limited", SandboxLevel::Limited),
    ("partial", SandboxLevel::Partial),
    ("full", SandboxLevel::Full),
];

/// A word that is no sandbox level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sandbox level {} is unknown: use none, limited, partial or full", crate::visible::quoted(.0))]
pub struct UnknownSandboxLevel(pub String);

impl SandboxLevel {
    /// The level's name in manifests and answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Limited => "limited",
            Self::Partial => "partial",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for SandboxLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SandboxLevel {
    type Err = UnknownSandboxLevel;

    fn from_str(text: &str) -> Result<Self, UnknownSandboxLevel> {
        let level = SANDBOX_LEVELS.iter().find(|(name, _)| *name == text);
        level.map(|(_, level)| *level).ok_or_else(|| UnknownSandboxLevel(text.to_owned()))
    }
}

/// Reads the manifest in `text` (YAML, or JSON as the part of YAML it is); `file` is the name that
/// findings carry.
///
/// # Errors
/// [`ManifestError`] with every problem of the file, not just the first.
pub fn parse_manifest(text: &str, file: &str) -> Result<ParsedManifest, ManifestError> {
    let mut report = diagnostic::Report::new(file);
    let manifest = tree::read(text, &mut report).and_then(|root| {
        if command::has_type(&root) {
            match command::check_type(&root, &mut report)? {
                "agent" => agent::read_agent(root, &mut report),
                "integration" => integration::read_integration(root, &mut report),
                word => command::read_command_plugin(root, word == "quality_gate", &mut report),
            }
        } else {
            plugin::read_manifest(root, &mut report)
        }
    });
    let (manifest, warnings) = report.finish(manifest)?;
    Ok(ParsedManifest { manifest, warnings })
}

/// `key` below `path`, in the form findings use.
fn path_of(path: &str, key: &str) -> String {
    let key = crate::visible(&key.chars().take(reader::PATH_KEY_CHARS_MAX).collect::<String>());
    if path.is_empty() { key } else { format!("{path}.{key}") }
}
