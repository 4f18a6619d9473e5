//! Owns the promise that an interrupted xtask leaves nothing running. Programs run in process groups of their own, so
//! an interrupt from the keyboard does not reach them, and nobody can react to being killed. The guard is this same
//! binary, started as a second process that listens on a pipe: it is told which group runs, and when the pipe closes
//! without notice it ends that group.

use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};

/// The argument that makes xtask a guard. Not in the help: nobody but [`start`] uses it.
pub(crate) const ARGUMENT: &str = "--guard";
/// Time for the programs to end politely once their xtask is gone.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// What the guard is told when nothing runs.
const NOTHING: u32 = 0;

struct Guard {
    pid: u32,
    pipe: Mutex<ChildStdin>,
}

static GUARD: OnceLock<Guard> = OnceLock::new();

/// Starts the guard of this process.
pub(crate) fn start() -> Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(ARGUMENT)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("the guard does not start")?;
    let pipe = child.stdin.take().context("the guard has no standard input")?;
    // A second guard is impossible: `main` starts the only one.
    let _ = GUARD.set(Guard { pid: child.id(), pipe: Mutex::new(pipe) });
    Ok(())
}

/// The guard's process id, so that it does not count as left behind.
pub(crate) fn pid() -> Option<u32> {
    GUARD.get().map(|guard| guard.pid)
}

/// Tells the guard that this group runs now.
pub(crate) fn watch(group: u32) {
    tell(group);
}

/// Tells the guard that nothing runs now.
pub(crate) fn rest() {
    tell(NOTHING);
}

fn tell(group: u32) {
    if let Some(guard) = GUARD.get() {
        let mut pipe = guard.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        // A guard that was killed protects nothing, but the work goes on.
        let _ = writeln!(pipe, "{group}");
    }
}

/// What the guard process does: listens until the pipe closes, then ends what still runs.
pub(crate) fn serve(pipe: impl BufRead) {
    let Some(group) = last_group(pipe) else { return };
    let _ = rustix::process::kill_process_group(group, Signal::TERM);
    thread::sleep(TERM_GRACE);
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
}

/// The group that was running when the pipe closed.
fn last_group(pipe: impl BufRead) -> Option<Pid> {
    let last = pipe.lines().map_while(Result::ok).last()?;
    last.parse::<i32>().ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_group_counts_unless_work_is_done() {
        assert_eq!(last_group(&b"41\n0\n42\n"[..]), Pid::from_raw(42));
        assert_eq!(last_group(&b"41\n0\n"[..]), None);
        assert_eq!(last_group(&b""[..]), None);
        assert_eq!(last_group(&b"nonsense\n"[..]), None);
    }
}
