//! A running plugin on macOS: its process group, and the news of its end.
//!
//! Owns the child, a kernel queue that tells its end, and ending the group with every descendant that can be found. Refuses
//! claiming more than that: a daemon that has left group and parent is not found.

use std::{
    collections::BTreeSet,
    io, mem,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    process::Child,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{Enforcement, ExitReport, MainExit, StopGrace};

/// Most descendants looked for; a plugin with more is ended in several rounds.
const MAX_DESCENDANTS: usize = 4096;
/// Most children asked for at a time.
const MAX_CHILDREN: usize = 1024;

/// Handle of a started plugin. Dropping it kills the plugin's group.
#[derive(Debug)]
pub struct PluginProcess {
    pid: u32,
    group: libc::pid_t,
    queue: OwnedFd,
    enforcement: Enforcement,
    stop: StopGrace,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    child: Child,
    report: Option<ExitReport>,
    killed: BTreeSet<libc::pid_t>,
}

impl PluginProcess {
    pub(super) fn new(mut child: Child, enforcement: Enforcement, stop: StopGrace) -> io::Result<Self> {
        let pid = child.id();
        let group = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        let queue = match watch(group) {
            Ok(queue) => queue,
            Err(error) => {
                let _ended = child.kill();
                let _collected = child.wait();
                return Err(error);
            }
        };
        let state = State { child, report: None, killed: BTreeSet::new() };
        Ok(Self { pid, group, queue, enforcement, stop, state: Mutex::new(state) })
    }

    /// Process id of the plugin's main process; for display, not for signals.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// There is no launcher process; the plugin's own id.
    #[must_use]
    pub fn launcher_pid(&self) -> u32 {
        self.pid
    }

    /// What the kernel holds this plugin to.
    #[must_use]
    pub fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    /// The times of the stop ladder the plugin was started with.
    #[must_use]
    pub fn stop_grace(&self) -> StopGrace {
        self.stop
    }

    /// The listening sockets of a network of its own, which no plugin has on this system.
    #[must_use]
    pub fn take_listeners(&self) -> Option<crate::Listeners> {
        None
    }

    /// Asks every process that can be found to terminate.
    ///
    /// # Errors
    /// None; what is gone needs no signal.
    pub fn terminate(&self) -> io::Result<()> {
        self.signal_all(&mut self.lock(), libc::SIGTERM);
        Ok(())
    }

    /// Kills every process that can be found.
    ///
    /// # Errors
    /// None; what is gone needs no signal.
    pub fn kill(&self) -> io::Result<()> {
        self.signal_all(&mut self.lock(), libc::SIGKILL);
        Ok(())
    }

    /// A descriptor that becomes readable when the main process has ended; only wait on it.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn exit_fd(&self) -> io::Result<OwnedFd> {
        // A copy of a queue's descriptor is the same queue.
        self.queue.try_clone()
    }

    /// How the main process ended, as soon as that is known. Never waits.
    #[must_use]
    pub fn poll_main_exit(&self) -> Option<MainExit> {
        self.poll_status().map(|report| report.main)
    }

    /// The final report, once the main process has ended and its group has been killed. Never waits.
    #[must_use]
    pub fn poll_status(&self) -> Option<ExitReport> {
        let mut state = self.lock();
        if state.report.is_none() {
            let before = descendants(self.group);
            let status = state.child.try_wait().ok().flatten()?;
            let main = match (status.code(), status.signal()) {
                (Some(code), _) => MainExit::Code(code),
                (None, Some(signal)) => MainExit::Signal(signal),
                (None, None) => MainExit::Unknown,
            };
            let left = before.into_iter().filter(|pid| signal(*pid, libc::SIGKILL)).count() + state.killed.len();
            let group_had_members = signal(-self.group, libc::SIGKILL);
            let leftovers_killed = u32::try_from(left).unwrap_or(u32::MAX).max(u32::from(group_had_members));
            state.report =
                Some(ExitReport { main, tree_gone: !signal(-self.group, 0), leftovers_killed, exceeded: None });
        }
        state.report
    }

    /// Waits for the final report, at most `timeout`.
    #[must_use]
    pub fn wait_blocking(&self, timeout: Duration) -> Option<ExitReport> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(report) = self.poll_status() {
                return Some(report);
            }
            let left = deadline.map_or(timeout, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return self.poll_status();
            }
            let milliseconds = libc::c_int::try_from(left.as_millis()).unwrap_or(libc::c_int::MAX).max(1);
            let mut polled = libc::pollfd { fd: self.queue.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            #[allow(unsafe_code, reason = "poll has no safe wrapper here")]
            // SAFETY: one initialised structure is given, and lives across the call.
            let _woken = unsafe { libc::poll(&raw mut polled, 1, milliseconds) };
        }
    }

    /// Runs the signal part of the stop ladder: wait, terminate, wait, kill. The caller has closed the plugin's stdin.
    #[must_use]
    pub fn stop_blocking(&self, limit: Duration) -> Option<ExitReport> {
        if let Some(report) = self.wait_blocking(self.stop.term_after) {
            return Some(report);
        }
        let _infallible = self.terminate();
        if let Some(report) = self.wait_blocking(self.stop.kill_after) {
            return Some(report);
        }
        let _infallible = self.kill();
        self.wait_blocking(limit)
    }

    fn signal_all(&self, state: &mut State, number: libc::c_int) {
        // While the child is not collected, its id cannot belong to another process.
        if state.report.is_some() {
            return;
        }
        for pid in descendants(self.group) {
            if signal(pid, number) && number == libc::SIGKILL {
                state.killed.insert(pid);
            }
        }
        signal(-self.group, number);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state stays consistent at every step, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PluginProcess {
    fn drop(&mut self) {
        let mut state = self.lock();
        self.signal_all(&mut state, libc::SIGKILL);
        if state.report.is_none() {
            // It has been killed, so this is short.
            let _collected = state.child.wait();
        }
    }
}

/// Whether the signal reached a process (or group, for negative numbers).
fn signal(pid: libc::pid_t, number: libc::c_int) -> bool {
    #[allow(unsafe_code, reason = "kill has no safe wrapper here")]
    // SAFETY: the call takes numbers.
    let result = unsafe { libc::kill(pid, number) };
    result == 0
}

/// Descendants that still have their parents.
fn descendants(of: libc::pid_t) -> Vec<libc::pid_t> {
    let mut found = Vec::new();
    let mut next = vec![of];
    while let Some(parent) = next.pop() {
        let mut children: [libc::pid_t; MAX_CHILDREN] = [0; MAX_CHILDREN];
        let bytes = libc::c_int::try_from(size_of_val(&children)).unwrap_or(0);
        #[allow(unsafe_code, reason = "listing processes has no safe wrapper")]
        // SAFETY: the buffer has the size given.
        let count = unsafe { libc::proc_listchildpids(parent, children.as_mut_ptr().cast(), bytes) };
        for child in children.iter().take(usize::try_from(count).unwrap_or(0)).filter(|child| **child > 0) {
            if found.len() < MAX_DESCENDANTS && !found.contains(child) {
                found.push(*child);
                next.push(*child);
            }
        }
    }
    found
}

/// A queue that becomes readable at the end of a process, and stays so because nobody reads it.
fn watch(pid: libc::pid_t) -> io::Result<OwnedFd> {
    #[allow(unsafe_code, reason = "kernel queues have no safe wrapper")]
    // SAFETY: the first call takes nothing and its result is owned here alone; the change list is one initialised
    // structure that lives across the call, and no events are asked for.
    unsafe {
        let raw = libc::kqueue();
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        let queue = OwnedFd::from_raw_fd(raw);
        if libc::fcntl(raw, libc::F_SETFD, libc::FD_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut change: libc::kevent = mem::zeroed();
        change.ident = usize::try_from(pid).unwrap_or(0);
        change.filter = libc::EVFILT_PROC;
        change.flags = libc::EV_ADD;
        change.fflags = libc::NOTE_EXIT;
        let result = libc::kevent(raw, &raw const change, 1, std::ptr::null_mut(), 0, std::ptr::null());
        // A process that has ended already cannot be watched; its status is there for whoever looks.
        let error = io::Error::last_os_error();
        if result < 0 && error.raw_os_error() != Some(libc::ESRCH) {
            return Err(error);
        }
        Ok(queue)
    }
}
