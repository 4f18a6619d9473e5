//! Settings of a host: where it lives, what it may start, and its limits.
//!
//! Owns the defaults and why each is what it is. Refuses to read files or the environment: the edge does that.

use std::path::PathBuf;
use std::time::Duration;

use plugward_policy::{Catalogue, Supervision};
use plugward_sandbox::Launcher;

use crate::outbound::Trust;

/// The gate of seed 000 §6 (requirements 104, 105): which isolation a start needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Environment {
    /// Plugins start only at the sandbox level they ask for.
    #[default]
    Production,
    /// Plugins may start unsandboxed; for the demo, fixtures and plugin authors.
    Development,
}

impl Environment {
    /// Only the exact word `development` opens the gate; everything else, empty and misspelt included, keeps it shut.
    pub fn from_setting(text: &str) -> Self {
        if text == "development" { Environment::Development } else { Environment::Production }
    }

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Environment::Production => "production",
            Environment::Development => "development",
        }
    }
}

/// Calls all plugins together may have in flight. Each costs a task and its result: 512 results of the default limit
/// of 256 KiB are 128 MiB. A manifest may raise its plugin's limit to 16 MiB, which a reviewer sees; what arrives is read
/// one message per plugin at a time, so larger messages do not multiply by calls.
pub const MAX_CONCURRENT_CALLS: usize = 512;

/// Calls one plugin may have in flight, whatever its manifest asks for: a quarter of the host's places, so that no one
/// or two plugins whose calls hang can keep the others from being called (invariant 9).
pub const MAX_CONCURRENT_CALLS_PER_PLUGIN: usize = MAX_CONCURRENT_CALLS / 4;

/// Calls that may wait for a place among [`MAX_CONCURRENT_CALLS`]. Past it the host says so instead of growing.
pub const MAX_QUEUED_CALLS: usize = 4096;

/// Plugins that start at the same time. Starts are mostly waiting, so the bound only keeps 10,000 enabled plugins
/// from forking at once.
pub const MAX_PARALLEL_STARTS: usize = 64;

/// Time a plugin has to end after its stdin closed, before TERM (mcp shutdown order; the seed waits 2 s).
pub const STOP_EOF_GRACE: Duration = Duration::from_secs(2);

/// Time a plugin has to end after TERM, before KILL.
pub const STOP_TERM_GRACE: Duration = Duration::from_secs(2);

/// Time KILL may take to empty the tree before the host reports a leftover.
pub const STOP_KILL_GRACE: Duration = Duration::from_secs(2);

/// Calls in flight at shutdown get this long to finish before their plugin is stopped.
pub const DRAIN_GRACE: Duration = Duration::from_secs(5);

/// Longest time calls in flight get to finish on what is replaced, by a restart or by another version of the plugin. Calls
/// have limits of their own, up to ten minutes; a person waits for a restart, and what is held by a change has to end.
pub(crate) const DRAIN_LIMIT_MAX: Duration = Duration::from_secs(60);

/// Time a whole shutdown may take. The longest ladder, with its drain and the two commands to a container engine that is
/// stuck, is half a minute, and a start that is rolled back at the same moment adds its own; what is not over by then is
/// stuck, and ends with the process of the host (invariant 5).
pub const SHUTDOWN_LIMIT: Duration = Duration::from_secs(60);

/// How plugins are looked after where their manifests do not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SupervisionSettings {
    /// Failures in a row that pause a plugin: more than a blip, fewer than an agent's patience. At least 1.
    pub breaker_failures: u32,
    /// Pause before one call is let through to see whether the plugin answers again.
    pub breaker_open: Duration,
    /// Pause between two pings of a plugin that says nothing by itself; zero for none. Two in a row without an answer are
    /// a plugin that hangs, so that one is noticed within a minute or so, at next to no cost.
    pub ping_every: Duration,
    /// Automatic starts in a row before a person has to act, at least 1. At the default first pause five are about half a
    /// minute of trying.
    pub start_limit: u32,
    /// A plugin that was ready this long has earned a fresh count of starts.
    pub healthy_after: Duration,
}

impl Default for SupervisionSettings {
    fn default() -> Self {
        Self {
            breaker_failures: 5,
            breaker_open: Duration::from_secs(10),
            ping_every: Duration::from_secs(30),
            start_limit: 5,
            healthy_after: Duration::from_secs(60),
        }
    }
}

impl SupervisionSettings {
    /// What holds for one plugin: its manifest's word where there is one.
    pub(crate) fn of(&self, manifest: &Supervision) -> Self {
        Self {
            breaker_failures: manifest.breaker_failures.unwrap_or(self.breaker_failures).max(1),
            breaker_open: manifest.breaker_open.unwrap_or(self.breaker_open),
            ping_every: manifest.ping_every.unwrap_or(self.ping_every),
            start_limit: manifest.start_limit.unwrap_or(self.start_limit).max(1),
            healthy_after: manifest.healthy_after.unwrap_or(self.healthy_after),
        }
    }
}

/// Settings of a host.
pub struct HostConfig {
    /// State folder (`PLUGWARD_HOME`).
    pub home: PathBuf,
    /// Which isolation a start needs.
    pub environment: Environment,
    /// Permissions known to this deployment.
    pub catalogue: Catalogue,
    /// How plugin processes are launched.
    pub launcher: Launcher,
    /// The host process's environment, of which an allow-list reaches plugins and `${NAME}` is looked up in.
    pub host_environment: Vec<(String, String)>,
    /// Name of MCP tools for clients: prefixed by plugin, or as the plugin names them.
    pub naming: Naming,
    /// First pause of an automatic restart; it doubles up to [`crate::supervisor::MAX_BACKOFF`].
    pub restart_base_delay: Duration,
    /// How plugins are looked after where their manifests do not say.
    pub supervision: SupervisionSettings,
    /// Whom to trust when the host itself makes requests over TLS.
    pub trust: Trust,
    /// Who operates this host, for the record of approvals.
    pub operator: String,
}

/// How exposed tool names are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Naming {
    /// `<plugin>_<tool>`.
    #[default]
    Prefixed,
    /// The plugin's own names, unchanged. A plugin with a tool whose name is that of a running plugin's tool is not
    /// started: it is a conflict, and nothing is renamed. For one-plugin gateways.
    PassThrough,
}
