//! Collecting children that have ended, with what they used.
//!
//! Owns the wait that also tells processor time and memory, and what follows from them about a limit. Refuses guessing: a
//! signal alone says nothing about a limit, since anybody may send it.

use std::{io, mem::MaybeUninit, time::Duration};

use rustix::{io::Errno, process::Pid};

use super::confine::{CPU_GRACE_S, MEMORY_MARGIN_BYTES};
use crate::{Exceeded, Limits, MainExit};

/// The kernel keeps a limit on processor time by counting ticks, and tells exact times. On a virtual machine with other work,
/// what is all of it by ticks was seen to be 0.8 of it.
const TICKS_TOLERANCE: f64 = 0.6;

/// A child that was collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Collected {
    pub(super) pid: Pid,
    pub(super) end: MainExit,
    /// Processor time, its own and that of the children it collected.
    cpu: Duration,
    /// The most it had in memory, it or one of those.
    peak_bytes: u64,
}

impl Collected {
    /// The limit that it ended at, if what it used says so.
    pub(super) fn exceeded(&self, limits: &Limits) -> Option<Exceeded> {
        let is_used_up = |limit_s: &u64| match self.end {
            MainExit::Signal(libc::SIGXCPU) => self.has_used(*limit_s),
            MainExit::Signal(libc::SIGKILL) => self.has_used(limit_s.saturating_add(CPU_GRACE_S)),
            _ => false,
        };
        if let Some(limit_s) = limits.cpu_s.filter(is_used_up) {
            return Some(Exceeded::CpuTime { limit_s });
        }
        let is_failed = !matches!(self.end, MainExit::Code(0));
        // Some of what it had in memory are files that count for nobody, so a little more than the limit says nothing yet.
        let is_beyond = |limit: &u64| self.peak_bytes >= limit.saturating_add(MEMORY_MARGIN_BYTES / 2);
        let limit_bytes = limits.memory_bytes.filter(|limit| is_failed && is_beyond(limit))?;
        Some(Exceeded::Memory { used_bytes: self.peak_bytes, limit_bytes })
    }

    /// Whether it can have used so much processor time by the kernel's ticks.
    fn has_used(&self, seconds: u64) -> bool {
        self.cpu >= Duration::from_secs(seconds).mul_f64(TICKS_TOLERANCE)
    }
}

/// Whether to wait for the next end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Until a child has ended.
    Wait,
    /// Only what has ended already.
    Now,
}

/// The next child that has ended; `None` if there is none now.
///
/// # Errors
/// `CHILD` without any child, `INTR` when a signal came first.
pub(super) fn next(patience: Patience) -> Result<Option<Collected>, Errno> {
    let flags = if patience == Patience::Now { libc::WNOHANG } else { 0 };
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    #[allow(unsafe_code, reason = "the wait that tells what was used has no safe wrapper")]
    // SAFETY: both pointers are to values of the types the call fills in.
    let pid = unsafe { libc::wait4(-1, &raw mut status, flags, usage.as_mut_ptr()) };
    if pid < 0 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::CHILD));
    }
    let Some(pid) = Pid::from_raw(pid) else { return Ok(None) };
    #[allow(unsafe_code, reason = "filled in by the system")]
    // SAFETY: zeroed above, which is a value of this type, and filled in by the call.
    let usage = unsafe { usage.assume_init() };
    let time = |it: libc::timeval| {
        let seconds = Duration::from_secs(u64::try_from(it.tv_sec).unwrap_or_default());
        seconds + Duration::from_micros(u64::try_from(it.tv_usec).unwrap_or_default())
    };
    let end = if libc::WIFEXITED(status) {
        MainExit::Code(libc::WEXITSTATUS(status))
    } else if libc::WIFSIGNALED(status) {
        MainExit::Signal(libc::WTERMSIG(status))
    } else {
        MainExit::Unknown
    };
    let peak_bytes = u64::try_from(usage.ru_maxrss).unwrap_or_default().saturating_mul(1024);
    Ok(Some(Collected { pid, end, cpu: time(usage.ru_utime) + time(usage.ru_stime), peak_bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn ended(end: MainExit, cpu_ms: u64, peak_mib: u64) -> Collected {
        Collected { pid: Pid::INIT, end, cpu: Duration::from_millis(cpu_ms), peak_bytes: peak_mib * MIB }
    }

    // Requirement 93: the limit is named when it was one, and only then: KILL comes from people and from the kernel for other
    // reasons too.
    #[test]
    fn a_limit_is_named_only_by_what_was_used() {
        let limits = Limits { cpu_s: Some(3), memory_bytes: Some(64 * MIB), ..Limits::default() };
        let cpu = |end, cpu_ms| ended(end, cpu_ms, 1).exceeded(&limits);
        let named = Some(Exceeded::CpuTime { limit_s: 3 });
        assert_eq!(cpu(MainExit::Signal(libc::SIGXCPU), 3000), named);
        assert_eq!(cpu(MainExit::Signal(libc::SIGXCPU), 2400), named, "by ticks it was all");
        assert_eq!(cpu(MainExit::Signal(libc::SIGKILL), 3400), named, "it ignored the signal");
        assert_eq!(cpu(MainExit::Signal(libc::SIGKILL), 1500), None, "killed by somebody else");
        assert_eq!(cpu(MainExit::Signal(libc::SIGXCPU), 10), None, "sent by somebody else");
        assert_eq!(cpu(MainExit::Code(1), 3999), None, "it ended by itself");
        let memory = |end, peak_mib| ended(end, 1, peak_mib).exceeded(&limits);
        let beyond = 64 + MEMORY_MARGIN_BYTES / 2 / MIB;
        let named = Some(Exceeded::Memory { used_bytes: beyond * MIB, limit_bytes: 64 * MIB });
        assert_eq!(memory(MainExit::Signal(libc::SIGABRT), beyond), named);
        assert_eq!(memory(MainExit::Code(134), beyond), named);
        assert_eq!(memory(MainExit::Code(0), beyond), None, "it ended well");
        assert_eq!(memory(MainExit::Signal(libc::SIGABRT), 66), None);
        let unlimited = Limits { cpu_s: None, memory_bytes: None, ..limits };
        assert_eq!(ended(MainExit::Signal(libc::SIGKILL), 9000, 9000).exceeded(&unlimited), None);
    }
}
