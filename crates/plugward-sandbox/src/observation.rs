//! What a plugin tried to reach outside its sandbox, as far as it was watched.
//!
//! Owns the record of a trial. Refuses judging it: what may be proposed, and what a person should be warned of, is for the
//! caller to say.

use std::ffi::OsString;

/// What an attempt was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttemptKind {
    /// Asking whether a file or folder is there, or what a link leads to.
    Look,
    /// Opening a file or folder for reading, or entering a folder.
    Read,
    /// Changing, creating or removing something.
    Write,
    /// Executing a program.
    Execute,
    /// Talking to an address.
    Connect,
}

/// One thing that exists on this machine, or beyond it, and was not there for the plugin; or a program it started.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt {
    /// What it tried.
    pub kind: AttemptKind,
    /// An absolute path without `.` and `..`; for [`AttemptKind::Connect`] `ADDRESS:PORT`, or the path of a Unix socket.
    pub target: OsString,
    /// How often.
    pub count: u32,
    /// Whether its sandbox has it. Of what is there, only programs that it started beside itself are noted.
    pub reached: bool,
}

/// Everything that was seen of one run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observations {
    /// What it wanted and did not get, and the programs it started, sorted, each pair of kind and target once.
    pub attempts: Vec<Attempt>,
    /// Attempts at what its sandbox has.
    pub reached: u64,
    /// Attempts at what does not exist, or is closed to the host's own user too.
    pub missing: u64,
    /// Attempts whose target could not be read from the process.
    pub unread: u64,
    /// Attempts beyond what one record holds.
    pub dropped: u64,
}
