//! Linux implementation: the host's side ([`spawn`], [`process`]) and the launcher's side ([`launch`]).
//!
//! Owns the split between the two processes. Refuses sharing state between them other than by [`wire`].

mod backend;
mod bounds;
mod cgroup;
mod channel;
mod child;
mod collect;
mod confine;
mod descriptors;
mod disk;
mod failure;
mod in_place;
mod jail;
mod launch;
mod layers;
mod local_files;
mod observe;
mod orphans;
mod ownership;
mod process;
mod signals;
mod sources;
mod spaces;
mod spawn;
mod supervise;
mod tree;
mod usage;
mod watch;
mod wire;
mod witness;

pub(crate) use cgroup::reason as control_group_missing;
#[cfg(feature = "mutation")]
pub use confine::cap_landlock;
pub(crate) use confine::landlock_version;
pub use launch::{launcher_main, launcher_main_if_requested};
#[cfg(feature = "mutation")]
pub use launch::{launcher_main_with_landlock, launcher_main_without, launcher_main_without_after_probe, layer_names};
pub use local_files::{LocalFiles, Place};
pub use observe::Notebook;
pub use process::PluginProcess;
pub use spawn::{Launcher, Spawned};
