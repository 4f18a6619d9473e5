//! Limits that the kernel keeps by refusing more, as the host learns that a plugin is at one.
//!
//! Owns which they are and what people read. Refuses saying that something was refused: what the plugin asked for is between
//! it and the kernel.

use serde::{Deserialize, Serialize};

/// A limit that a plugin has come to. It goes on, and gets an error where it asks for more. Looked for up to ten times a
/// second, so that one which is left at once is not noticed, and told once for each start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum Reached {
    /// Processes and threads at a time.
    Processes {
        /// The limit.
        limit: u64,
    },
    /// Open descriptors of one process.
    OpenFiles {
        /// The limit.
        limit: u64,
    },
    /// Its folder for temporary files is full.
    TemporaryFiles {
        /// The size of the folder in bytes.
        limit_bytes: u64,
    },
}

impl std::fmt::Display for Reached {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Processes { limit } => {
                write!(formatter, "it has {limit} processes and threads, its limit (`processes`)")
            }
            Self::OpenFiles { limit } => {
                write!(formatter, "a process of it has {limit} open files, its limit (`open_files`)")
            }
            Self::TemporaryFiles { limit_bytes } => {
                let mib = limit_bytes.div_ceil(1024 * 1024);
                write!(formatter, "its folder for temporary files is full: {mib} MiB, which no manifest can raise")
            }
        }
    }
}
