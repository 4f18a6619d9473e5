//! Starting a program that outlives the one that starts it.
//!
//! Owns what it keeps of its starter: its variables, its log, and what somebody before the starter left open for all that
//! follow; nothing that we open is. Refuses to be a way to run plugins: nothing is isolated here, and nobody ends what was
//! started.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A program started by [`start_detached`].
#[derive(Debug)]
pub struct Detached(Child);

impl Detached {
    /// Whether it has ended, and whether with success.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn ended(&mut self) -> io::Result<Option<bool>> {
        Ok(self.0.try_wait()?.map(|status| status.success()))
    }
}

/// Starts `program` in `folder`, with an empty input, no output, and `log` as its standard error.
///
/// It begins in the starter's session; to leave it, so that a signal to the starter's terminal does not end it, is its
/// own first step.
///
/// # Errors
/// If it cannot be started.
pub fn start_detached<A: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = A>,
    folder: &Path,
    log: File,
) -> io::Result<Detached> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().map(Detached)
}
