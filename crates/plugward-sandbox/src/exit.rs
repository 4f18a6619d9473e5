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
}
