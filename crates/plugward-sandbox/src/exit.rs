//! How a plugin's processes ended, as the host learns it.
//!
//! Owns the two facts: what the main process left behind as status, and whether anything of its tree is still alive.
//! Refuses interpretation: whether an exit was wanted is the host's knowledge.

use serde::{Deserialize, Serialize};

/// End of the plugin's main process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "value")]
pub enum MainExit {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// The launcher was lost before it could report the status.
    Unknown,
}

impl std::fmt::Display for MainExit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(formatter, "exit code {code}"),
            Self::Signal(signal) => write!(formatter, "signal {signal}"),
            Self::Unknown => formatter.write_str("unknown status"),
        }
    }
}

/// A limit that a plugin passed and was ended for. The kernel keeps other limits by refusing a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum Exceeded {
    /// The memory of all its processes together, shared memory included.
    Memory {
        /// What they used when it was noticed, in bytes.
        used_bytes: u64,
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// The size of its own data.
    Disk {
        /// What it was when it was noticed, in bytes; `None` if folders are nested too deeply to be measured.
        used_bytes: Option<u64>,
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// Processor time of its main process.
    CpuTime {
        /// The limit in seconds.
        limit_s: u64,
    },
    /// The time it may run.
    WallTime {
        /// The limit in seconds.
        limit_s: u64,
    },
    /// What it holds could not be counted, which counts as too much: one of its processes cannot be looked at.
    Hidden,
}

impl std::fmt::Display for Exceeded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Memory { used_bytes, limit_bytes } => {
                write!(formatter, "its processes used {}, the limit on memory is {}", mib(used_bytes), mib(limit_bytes))
            }
            Self::Disk { used_bytes: Some(used_bytes), limit_bytes } => {
                write!(formatter, "its own data grew to {}, the limit is {}", mib(used_bytes), mib(limit_bytes))
            }
            Self::Disk { used_bytes: None, limit_bytes } => write!(
                formatter,
                "its own data is nested too deeply to be measured, and its size is limited to {}",
                mib(limit_bytes)
            ),
            Self::CpuTime { limit_s } => {
                write!(formatter, "it used up its {limit_s} s, the limit on processor time (`cpu_seconds`)")
            }
            Self::WallTime { limit_s } => write!(formatter, "it ran for {limit_s} s, which is its limit"),
            Self::Hidden => formatter.write_str(
                "one of its processes cannot be looked at, so what it holds of memory and disk cannot be counted; a \
                 program without read permission for its own user is such a one: add the permission (`chmod +r`)",
            ),
        }
    }
}

/// Bytes in the unit that limits are given in, rounded up so that what is over a limit never reads as the limit.
fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1024 * 1024))
}

/// Final report on one plugin process and its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExitReport {
    /// How the main process ended.
    pub main: MainExit,
    /// Whether the launcher saw that no process of the tree is left (requirement 97). `false` means that a process
    /// resisted every attempt within the limit, or that the launcher itself was lost.
    pub tree_gone: bool,
    /// Processes other than the main one that had to be signalled for the tree to end. A plugin that cleans up after
    /// itself has none.
    pub leftovers_killed: u32,
    /// The limit it was ended for, if that was the reason.
    pub exceeded: Option<Exceeded>,
}
