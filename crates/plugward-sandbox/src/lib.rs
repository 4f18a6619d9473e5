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
//!
//!                      launcher  --clone-->  first process of its namespaces  --fork, exec-->  plugin at level full
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
//! # Levels
//!
//! A [`SandboxSpec`] asks for a [`Level`] and gets it or an error; there is no fallback.
//!
//! | level | means |
//! |---|---|
//! | `full` | namespaces (user, process, mount, network, ipc, host name) below a first process of ours, a file tree built from nothing, limits, no capability, Landlock, system call filter |
//! | `partial` | limits, Landlock and filter in the machine's own tree; the launcher ends the process tree as far as it can |
//! | `limited` | limits and filter |
//! | `none` | nothing |
//!
//! Where only bubblewrap may make user namespaces, it makes those of level `full`; the launcher, executed again inside, adds
//! the rest ([`Backend`]).
//!
//! Before a level is reported for the first time under the same rules in one boot, a witness runs in the plugin's place and
//! tries to get through. [`Enforcement`] says what is in force and what is missing.
//!
//! # Trials
//!
//! [`Launcher::spawn_observed`] starts a plugin at level `full` as any other, and the launcher notes what it wanted and did not
//! get: files that are on the machine and not in the sandbox, programs, addresses. It only looks; the layers decide as always.
//!
//! # What the launcher cannot do
//!
//! Without a process namespace (below level `full`) and without Landlock's scopes, a plugin of the same user may kill its
//! launcher; the kernel then ends the plugin's main process and the host ends what is left of the launcher's session, but
//! a process that left that session escapes. The report then says that the tree is not known to be gone. A plugin that
//! keeps stopping its launcher can delay the end of its tree as long as it runs.
//!
//! Where a control group was handed over, the kernel limits the memory and the number of a plugin's processes and kills them
//! as a whole. Elsewhere the memory of a whole tree, shared memory included, and the size of a plugin's home are looked at
//! ten times a second. A plugin that passes a limit is killed, and has got some way beyond it.
//!
//! # Listed hosts
//!
//! A plugin with [`Network::Hosts`] has a network in which there is nothing but a loopback device with listening sockets.
//! Those sockets are handed to the host ([`PluginProcess::take_listeners`]), which accepts and decides where each
//! connection leads. No process of ours runs inside, and no setting of the plugin has to be right for it.

mod detached;
mod enforcement;
mod error;
mod exit;
mod listed;
mod machine;
mod observation;
mod platform;
mod reached;
mod sandbox;
mod spec;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(any(target_os = "macos", test))]
mod seatbelt;
#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
mod unsupported;
#[cfg(windows)]
mod windows;
#[cfg(any(windows, test))]
mod windows_text;

pub use detached::{Detached, start_detached};
pub use enforcement::{
    Backend, DiskControl, Enforcement, FileControl, Level, MemoryControl, NetworkControl, ProcessControl, TreeControl,
    UserControl,
};
pub use error::{OsCause, SpawnError, SpawnStep};
pub use exit::{Exceeded, ExitReport, MainExit};
pub use listed::{ListedHosts, Listeners, MAX_LISTENERS};
pub use machine::{ControlGroupFacts, KernelAnswers, MachineFacts};
pub use observation::{Attempt, AttemptKind, Observations};
pub use platform::{Availability, PlatformReport, probe};
pub use reached::Reached;
pub use sandbox::{
    Alias, DEFAULT_SHM_BYTES, DEFAULT_TMP_BYTES, Limits, MAX_PATHS, Network, SandboxSpec, UserPolicy, system_paths,
};
pub use spec::{LaunchSpec, StopGrace};

#[cfg(target_os = "linux")]
pub use linux::{
    Launcher, LocalFiles, Notebook, Place, PluginProcess, Spawned, launcher_main, launcher_main_if_requested,
};
#[cfg(all(target_os = "linux", feature = "mutation"))]
pub use linux::{
    cap_landlock, launcher_main_with_landlock, launcher_main_without, launcher_main_without_after_probe, layer_names,
};
#[cfg(target_os = "macos")]
pub use macos::{Launcher, PluginProcess, Spawned, launcher_main, launcher_main_if_requested};
#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
pub use unsupported::{Launcher, PluginProcess, Spawned, launcher_main, launcher_main_if_requested};

#[cfg(windows)]
pub use windows::{Launcher, PluginProcess, Spawned, launcher_main, launcher_main_if_requested};

/// Where distributions put bubblewrap, and where their profiles expect it. Not searched for: another program of that name
/// would be let through all the same.
pub const BWRAP: &str = "/usr/bin/bwrap";
/// Why this process cannot give its plugins control groups of their own, in words; `None` if it can.
#[cfg(target_os = "linux")]
#[must_use]
pub fn control_group_missing() -> Option<String> {
    linux::control_group_missing()
}

/// First argument that turns the host's executable into the launcher (see [`launcher_main_if_requested`]).
pub const LAUNCH_ARGUMENT: &str = "__plugward-launch";
