//! Linux implementation: the host's side ([`spawn`], [`process`]) and the launcher's side ([`launch`]).
//!
//! Owns the split between the two processes. Refuses sharing state between them other than by [`wire`].

mod channel;
mod child;
mod launch;
mod orphans;
mod process;
mod signals;
mod spawn;
mod supervise;
mod tree;
mod wire;

pub use launch::{launcher_main, launcher_main_if_requested};
pub use process::PluginProcess;
pub use spawn::{Launcher, Spawned};
