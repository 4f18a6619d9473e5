//! What the host tells about its plugins and tools: plain records for the faces to render.
//!
//! Owns the shapes; the faces own their wire formats. Refuses secrets (values are masked before they get here) and
//! stderr text outside [`LogLine`].

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use plugward_policy::{AccessLine, Change, Digest, HostStatus, PluginId, PluginStatus, SandboxLevel, ToolId};
use plugward_sandbox::Enforcement;
use serde_json::value::RawValue;

use crate::call::breaker::{BreakerState, BreakerView};

/// One plugin as people see it.
#[derive(Debug, Clone)]
pub struct PluginView {
    /// Id.
    pub id: PluginId,
    /// Display name from the manifest.
    pub name: String,
    /// Version from the manifest.
    pub version: String,
    /// Description from the manifest.
    pub description: String,
    /// State in the seed's words (requirement 154).
    pub status: PluginStatus,
    /// State of its process in the seed's words (requirements 109-114).
    pub host_status: HostStatus,
    /// One line in plain words: what it does now, and what to do about it.
    pub detail: String,
    /// Whether a person switched it on.
    pub enabled: bool,
    /// Whether somebody approved it and no start since found something else than was approved. The package is not
    /// hashed for this; a start and a review do that. In an overview: whether it runs.
    pub approved: bool,
    /// Permissions the manifest asks for.
    pub requested_permissions: Vec<String>,
    /// Permissions granted.
    pub granted_permissions: Vec<String>,
    /// The sandbox level below which it does not start.
    pub minimum_level: SandboxLevel,
    /// What it asks of the machine and what it does not get, most dangerous first. Holds at level `full`.
    pub access: Vec<AccessLine>,
    /// Where it was installed from, as given.
    pub source: String,
    /// When.
    pub installed_at: SystemTime,
    /// Tools that can be called now.
    pub tools_count: usize,
    /// Tools that wait for a review.
    pub held_tools: Vec<HeldTool>,
    /// Tools that cannot be used at all.
    pub quarantined_tools: Vec<QuarantinedTool>,
    /// Things worth knowing: lints of the manifest, warnings about schemas, filters that match nothing.
    pub warnings: Vec<String>,
    /// Automatic restarts since the host started.
    pub restarts: u32,
    /// What its process and its breaker do, in one line.
    pub activity: String,
    /// Non-protocol lines skipped on its stdout.
    pub noise_lines: u64,
    /// Last failure, if it has not been overcome.
    pub error: Option<String>,
    /// Limits of its sandbox at which its process was seen, and is refused more, in words.
    pub limits_reached: Vec<String>,
    /// Hosts it tried to reach since somebody last approved it, refused ones first. Only with a list of hosts: without
    /// any, and with all, nobody sees what it tries.
    pub network_attempts: Vec<NetworkAttempt>,
    /// Attempts beyond those, which are only counted.
    pub network_attempts_unlisted: u64,
    /// Sandbox in force while it runs.
    pub enforcement: Option<Enforcement>,
    /// The manifest's text as installed.
    pub manifest_text: String,
}

/// A tool that is not offered until a person reviewed the change.
#[derive(Debug, Clone)]
pub struct HeldTool {
    /// The plugin's own name of it.
    pub remote_name: String,
    /// Digest that was approved; none for a new tool.
    pub approved_digest: Option<Digest>,
    /// Digest of what the plugin offers now; none if it no longer offers the tool.
    pub offered_digest: Option<Digest>,
}

/// A tool whose definition cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantinedTool {
    /// Its name, or its place in the list when it has none.
    pub name: String,
    /// Why, with a JSON pointer into its schema where there is one.
    pub reason: String,
}

/// The process side of one plugin (requirement 109).
#[derive(Debug, Clone)]
pub struct HostView {
    /// Id.
    pub plugin_id: PluginId,
    /// Which way it runs: `mcp`, `command` (no process between calls), `prompt` or `webhook` (no process ever).
    pub backend: &'static str,
    /// How messages travel to it, when it is a server elsewhere: `streamable_http` or `sse`.
    pub remote_transport: Option<&'static str>,
    /// State.
    pub status: HostStatus,
    /// Tools registered now.
    pub tools_count: usize,
    /// When the running process was started.
    pub started_at: Option<SystemTime>,
    /// When the plugin last sent a message.
    pub last_seen_at: Option<SystemTime>,
    /// Negotiated revision.
    pub protocol_version: Option<String>,
    /// As the server calls itself.
    pub server_name: Option<String>,
    /// As the server calls itself.
    pub server_version: Option<String>,
    /// Process id of the plugin's main process.
    pub pid: Option<u32>,
    /// Number of this start; rises with each start.
    pub generation: u64,
    /// Calls under way.
    pub calls_running: usize,
    /// Calls that wait for a place.
    pub calls_waiting: usize,
    /// Whether calls are refused because it failed repeatedly.
    pub is_paused: bool,
    /// The circuit breaker.
    pub breaker: BreakerView,
    /// Automatic restarts since the host started.
    pub restarts: u32,
    /// Time until the next automatic start, if one is due.
    pub next_start_in: Option<Duration>,
    /// It is on and offers its tools without a process; the next call starts it.
    pub is_asleep: bool,
    /// Last failure.
    pub error: Option<String>,
    /// What became of its events, if it is a webhook.
    pub deliveries: Option<DeliveriesView>,
}

/// What became of the events of a webhook since the host began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveriesView {
    /// Events that a receiver took.
    pub delivered: u64,
    /// Events that were tried and not taken.
    pub failed: u64,
    /// Events that were not tried: too many waited, or it was stopped.
    pub dropped: u64,
    /// Events that wait.
    pub waiting: usize,
    /// Whether one is being sent.
    pub is_sending: bool,
    /// Why the last one failed; none once one was taken.
    pub failing: Option<String>,
}

impl HostView {
    /// All of it that moves, in one line.
    pub fn activity(&self) -> String {
        let state = if self.is_asleep { "asleep" } else { self.status.as_str() };
        if let Some(DeliveriesView { delivered, failed, dropped, waiting, failing, .. }) = &self.deliveries {
            let mut line = format!("{state}, {delivered} events delivered, {failed} failed, {waiting} waiting");
            if *dropped > 0 {
                line.push_str(&format!(", {dropped} dropped"));
            }
            if let Some(reason) = failing {
                line.push_str(&format!("; FAILING: {reason}"));
            }
            return line;
        }
        if self.backend == "prompt" {
            return state.to_owned();
        }
        let BreakerView { state: breaker, failures, threshold, retry_after, .. } = self.breaker;
        let mut line = format!("{state}, {} calls running, {} waiting", self.calls_running, self.calls_waiting);
        line.push_str(&format!(", breaker {}", breaker.as_str()));
        match (breaker, retry_after) {
            (BreakerState::Closed, _) if failures > 0 => {
                line.push_str(&format!(" ({failures} of {threshold} failures)"));
            }
            (_, Some(pause)) => line.push_str(&format!(" (for {:.1} s)", pause.as_secs_f32())),
            _ => {}
        }
        line.push_str(&format!(", {} restarts", self.restarts));
        if let Some(pause) = self.next_start_in {
            line.push_str(&format!(", next start in {:.1} s", pause.as_secs_f32()));
        }
        line
    }
}

/// One tool.
#[derive(Debug, Clone)]
pub struct ToolView {
    /// Internal id, `<plugin_id>.<remote_name>`.
    pub id: ToolId,
    /// Name MCP clients see.
    pub exposed_name: String,
    /// The plugin's own name of it.
    pub remote_name: String,
    /// Description (the seed falls back to the name).
    pub description: String,
    /// The tool as the plugin described it, untouched but for secrets it was given, which are masked.
    pub definition: Box<RawValue>,
    /// The argument schema in force (repaired where a case allows it).
    pub parameters: Box<RawValue>,
    /// Permission it needs.
    pub permission: Option<String>,
    /// Whether it can be called at this moment (its plugin runs).
    pub available: bool,
}

/// The folders of plugin files, as of the last look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoldersView {
    /// Plugins that come from files.
    pub plugins: usize,
    /// What is wrong, one entry per file or folder, in the order of their paths.
    pub problems: Vec<FileProblem>,
}

/// A file that is not what runs, or a folder that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileProblem {
    /// The file or folder.
    pub path: PathBuf,
    /// What is wrong, one line each, with positions.
    pub reasons: Vec<String>,
    /// The plugin that goes on running as it was before, if there is one.
    pub keeps: Option<PluginId>,
}

/// What a person is shown before agreeing: everything that would run and be touched (requirement 94).
#[derive(Debug, Clone)]
pub struct ReviewView {
    /// Id.
    pub id: PluginId,
    /// Display name.
    pub name: String,
    /// Version.
    pub version: String,
    /// Description.
    pub description: String,
    /// Where it came from.
    pub source: String,
    /// Digest over all files of the package.
    pub package_digest: Digest,
    /// Number of files and bytes in the package.
    pub package_files: u64,
    /// Bytes in the package.
    pub package_bytes: u64,
    /// `server`, `remote` for a server elsewhere, `command` for a program that runs once for each call, `script` for a
    /// command that is a shell script, or `prompt` or `webhook`, for which no program runs.
    pub runs: &'static str,
    /// The program that would be executed; empty if none is.
    pub executable: String,
    /// Digest of that program.
    pub executable_digest: Digest,
    /// The exact argument vector, values of secrets masked; for a plugin without a program what it says or sends.
    pub argv: Vec<String>,
    /// Working directory.
    pub cwd: String,
    /// Environment the manifest sets: name and value, values of secrets masked.
    pub environment: Vec<(String, String)>,
    /// Names passed on from the host's environment.
    pub inherited_environment: Vec<String>,
    /// Permissions asked for, each with its effect in this deployment.
    pub permissions: Vec<(String, String)>,
    /// What it gets of the machine and what it does not, most dangerous first, with the places here.
    pub access: Vec<AccessLine>,
    /// Programs and libraries of this machine it needs to run at all; it can read them and nothing can be changed.
    pub shared: Vec<String>,
    /// Minimum sandbox level the manifest asks for.
    pub minimum_level: String,
    /// What the sandbox of this host really does at this moment, in plain words (requirement 69).
    pub isolation: String,
    /// Tools: declared by the manifest or seen at the last start.
    pub tools: Vec<ReviewTool>,
    /// Red flags and lints.
    pub warnings: Vec<String>,
    /// What differs from the last approval.
    pub changes: Vec<Change>,
    /// Whether exactly this was approved already.
    pub approved: bool,
    /// The digest an approval must name.
    pub digest: Digest,
    /// The canonical text the digest is taken over.
    pub canonical: String,
}

/// One tool in a review.
#[derive(Debug, Clone)]
pub struct ReviewTool {
    /// The plugin's own name of it.
    pub remote_name: String,
    /// What the model will read; none before the first start.
    pub description: Option<String>,
    /// Claims of the plugin about the tool (`read-only`, `destructive`, ...).
    pub claims: Vec<String>,
    /// `declared`, `new`, `changed`, `approved` or `gone`.
    pub state: &'static str,
}

/// One line a plugin wrote to stderr, or the host wrote about it.
#[derive(Debug, Clone)]
pub struct LogLine {
    /// When it arrived.
    pub at: SystemTime,
    /// Who wrote it.
    pub origin: LogOrigin,
    /// The text: redacted, control characters escaped, cut to a limit.
    pub text: String,
}

/// Who wrote a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogOrigin {
    /// The plugin, on stderr.
    Stderr,
    /// The plugin, on stdout, outside the protocol.
    StdoutNoise,
    /// The plugin, as a log message of the protocol.
    Plugin,
    /// The host.
    Host,
}

impl LogOrigin {
    /// The word in outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            LogOrigin::Stderr => "stderr",
            LogOrigin::StdoutNoise => "stdout",
            LogOrigin::Plugin => "plugin",
            LogOrigin::Host => "host",
        }
    }
}

/// A permission request that waits for a person.
#[derive(Debug, Clone)]
pub struct PendingAsk {
    /// Id, `permission_<hex>` as in the seed.
    pub request_id: String,
    /// The tool.
    pub tool: ToolId,
    /// The permission.
    pub permission: String,
    /// Who calls.
    pub caller: String,
    /// When it was asked.
    pub asked_at: SystemTime,
    /// How long it waits at most.
    pub expires_in: Duration,
    /// Why it is asked, in sentences.
    pub reason: String,
}

/// A person's answer to a permission request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// This call only.
    AllowOnce,
    /// This tool until the host stops.
    AllowSession,
    /// No.
    Deny,
}

/// A host a plugin tried to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkAttempt {
    /// Its name or address, as the plugin gave it; escaped for people.
    pub host: String,
    /// The port; none when only the name was asked for.
    pub port: Option<u16>,
    /// How it went.
    pub outcome: AttemptOutcome,
    /// Why it was not allowed or did not come about; empty if it did.
    pub reason: String,
    /// How often.
    pub count: u64,
    /// The last time.
    pub last_at: SystemTime,
    /// Bytes sent over connections that have ended.
    pub sent_bytes: u64,
    /// Bytes received over connections that have ended.
    pub received_bytes: u64,
}

impl NetworkAttempt {
    /// Host and port as they are usually written.
    pub fn place(&self) -> String {
        match self.port {
            Some(port) if self.host.contains(':') => format!("[{}]:{port}", self.host),
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.clone(),
        }
    }
}

/// How an attempt to reach a host went, what a person should see first first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// Nobody granted it.
    Refused,
    /// It was granted, and the host could not be reached.
    Failed,
    /// It was granted, and connected.
    Allowed,
}

impl AttemptOutcome {
    /// The word for it in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Allowed => "allowed",
        }
    }
}
