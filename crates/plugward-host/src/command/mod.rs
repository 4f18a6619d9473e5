//! Backend `command`: programs that run once for each call.
//!
//! Owns one run from its process to its result (`run`, `capture`, `spill`, `clean`, `outcome`), and the small library for
//! programs that want such tools without a host ([`CommandTools`]). Refuses to read files of tools and to build
//! arguments: `plugward-policy` does both, without a process in sight. The supervisor runs the same as plugins.

mod capture;
mod clean;
mod error;
mod library;
mod outcome;
mod run;
mod schemas;
mod spill;

pub(crate) use capture::Notes;
pub use error::{CommandError, CommandErrorCode, CommandStage};
pub use library::{CommandTools, CommandToolsConfig, RegisteredCommand, Registration};
pub use outcome::{CommandResult, SpilledOutput};
pub(crate) use run::{Run, run};
pub(crate) use schemas::check_schemas;
pub(crate) use spill::{SPILL_BYTES_MAX, SpillDir};
