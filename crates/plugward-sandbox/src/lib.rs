//! Starts a plugin through a launcher process and ends its whole process tree.
//!
//! Owns: what a plugin process is given (executable, argv, working directory, environment, descriptors 0, 1 and 2,
//! and nothing else), the launcher that stands between host and plugin, the end of the tree in every case including
//! the death of the host, the honest report of what the kernel enforces, and reading what this machine could enforce.
//! All `unsafe` of the workspace is in this crate.
//!
//! Refuses: async, MCP, policy words, deciding when to stop. The host drives the stop ladder (close stdin, wait,
//! [`PluginProcess::terminate`], wait, [`PluginProcess::kill`]); this crate offers the steps.
//!
//! # Processes
//!
//! ```text
//! host  --spawn-->  launcher (single thread, own session, subreaper)  --fork, exec-->  plugin (own process group)
//!   |                  |                                                                  |
//!   +--control socket--+              host <------- stdin, stdout, stderr pipes ----------+
//! ```
//!
//! The launcher is the host's own executable, started again with [`LAUNCH_ARGUMENT`]. It is where the isolation
//! layers are applied before the plugin's first instruction, which a multi-threaded host could not do safely after a
//! fork. Orphans of the plugin become children of the launcher, so a daemon that forks twice and starts its own session
//! is still found. When the control socket reports the end of the host's side, however the host died, the launcher
//! kills the tree and ends.
//!
//! A program that uses [`Launcher::current_exe`] calls [`launcher_main_if_requested`] first thing in `main`.
//!
//! # What the launcher cannot do yet
//!
//! The level reported is [`Level::None`]: nothing keeps the plugin from the user's files or network. Without a
//! process namespace a plugin of the same user may also kill its launcher; the kernel then ends the plugin's main
//! process and the host ends what is left of the launcher's session, but a process that left that session escapes.
//! The report then says that the tree is not known to be gone. A plugin that keeps stopping its launcher can delay
//! the end of its tree as long as it runs.

mod enforcement;
mod error;
mod exit;
mod platform;
mod sandbox;
mod spec;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod unsupported;

pub use enforcement::{
    DiskControl, Enforcement, FileControl, Level, MemoryControl, NetworkControl, ProcessControl, TreeControl,
    UserControl,
};
pub use error::{OsCause, SpawnError, SpawnStep};
pub use exit::{ExitReport, MainExit};
pub use platform::{Availability, PlatformReport, probe};
pub use sandbox::{
    DEFAULT_SHM_BYTES, DEFAULT_TMP_BYTES, Limits, MAX_PATHS, Network, SandboxSpec, UserPolicy, system_paths,
};
pub use spec::{LaunchSpec, StopGrace};

#[cfg(all(target_os = "linux", feature = "mutation"))]
pub use linux::launcher_main_without;
#[cfg(target_os = "linux")]
pub use linux::{Launcher, PluginProcess, Spawned, launcher_main, launcher_main_if_requested};
#[cfg(not(target_os = "linux"))]
pub use unsupported::{Launcher, PluginProcess, Spawned, launcher_main, launcher_main_if_requested};

/// First argument that turns the host's executable into the launcher (see [`launcher_main_if_requested`]).
pub const LAUNCH_ARGUMENT: &str = "__plugward-launch";
