//! The host's handle on one plugin process and its launcher.
//!
//! Owns the control socket on the host's side and the launcher's exit status. Refuses waiting except where the name says
//! so; the host waits on [`PluginProcess::exit_fd`] in its own way.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process::Child,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    event::PollFlags,
    io::Errno,
    net::{Shutdown, shutdown},
    process::{Pid, Signal, kill_process},
};

use super::{
    channel::{self, Received},
    orphans, tree,
    wire::{self, ORDER_KILL, ORDER_TERMINATE, RECORD_BYTES, Record},
};
use crate::{Enforcement, Exceeded, ExitReport, LaunchSpec, Limits, Listeners, MainExit, Reached, StopGrace};

/// A started plugin.
///
/// Dropping the handle kills the plugin's whole tree; so does the end of the host in any way, because the kernel closes
/// the host's end of the control socket.
#[derive(Debug)]
pub struct PluginProcess {
    control: OwnedFd,
    pid: u32,
    launcher_pid: u32,
    enforcement: Enforcement,
    stop: StopGrace,
    limits: Option<Limits>,
    /// Size of its folder for temporary files.
    tmp_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The launcher until its status has been collected.
    launcher: Option<Child>,
    reader: RecordReader,
    main: Option<MainExit>,
    gone: Option<(bool, u32)>,
    exceeded: Option<Exceeded>,
    /// Each once.
    reached: Vec<Reached>,
    report: Option<ExitReport>,
    listeners: Option<Listeners>,
}

impl PluginProcess {
    pub(super) fn new(control: OwnedFd, launcher: Child, reader: RecordReader, pid: u32, spec: &LaunchSpec) -> Self {
        let stop = spec.stop;
        let limits = spec.sandbox.as_ref().map(|sandbox| sandbox.limits);
        let tmp_bytes = spec.sandbox.as_ref().map_or(0, |sandbox| sandbox.tmp_bytes);
        let launcher_pid = launcher.id();
        let (launcher, enforcement) = (Some(launcher), Enforcement::launcher_only());
        let state = State {
            launcher,
            reader,
            main: None,
            gone: None,
            exceeded: None,
            reached: Vec::new(),
            report: None,
            listeners: None,
        };
        Self { control, pid, launcher_pid, enforcement, stop, limits, tmp_bytes, state: Mutex::new(state) }
    }

    /// Process id of the plugin's main process. Meaningful until the main exit is reported; for display, not for signals.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Process id of the launcher, which is also the id of the plugin's session.
    #[must_use]
    pub fn launcher_pid(&self) -> u32 {
        self.launcher_pid
    }

    /// What the kernel holds this plugin to.
    #[must_use]
    pub fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    pub(super) fn set_enforcement(&mut self, enforcement: Enforcement) {
        self.enforcement = enforcement;
    }

    /// Takes over the sockets of a plugin with listed hosts; `None` for any other, and the second time.
    #[must_use]
    pub fn take_listeners(&self) -> Option<Listeners> {
        self.lock().listeners.take()
    }

    pub(super) fn set_listeners(&self, listeners: Listeners) {
        self.lock().listeners = Some(listeners);
    }

    /// The times of the stop ladder the plugin was started with.
    #[must_use]
    pub fn stop_grace(&self) -> StopGrace {
        self.stop
    }

    /// Asks every process of the tree to terminate (SIGTERM). Does nothing if the tree is gone.
    ///
    /// # Errors
    /// The order could not be sent; [`kill`](Self::kill) is still worth a try.
    pub fn terminate(&self) -> io::Result<()> {
        self.order(ORDER_TERMINATE)
    }

    /// Kills every process of the tree (SIGKILL) and ends the launcher. Does nothing if the tree is gone.
    ///
    /// # Errors
    /// The order could not be sent. Dropping the handle has the same effect by other means.
    pub fn kill(&self) -> io::Result<()> {
        self.order(ORDER_KILL)
    }

    fn order(&self, order: u8) -> io::Result<()> {
        let sent = channel::send_short(self.control.as_fd(), &[order]);
        self.continue_launcher();
        match sent {
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::PIPE | Errno::CONNRESET)) => Ok(()),
            other => other,
        }
    }

    /// A plugin of the same user can stop its launcher; an order must reach it all the same.
    fn continue_launcher(&self) {
        // While the status is not collected, the id cannot belong to another process.
        if let (Some(launcher), Some(pid)) =
            (&self.lock().launcher, i32::try_from(self.launcher_pid).ok().and_then(Pid::from_raw))
        {
            debug_assert_eq!(launcher.id(), self.launcher_pid);
            let _gone = kill_process(pid, Signal::CONT);
        }
    }

    /// A descriptor that becomes readable when there is news; then call [`poll_status`](Self::poll_status) until it is
    /// clear that there is no more. It is a duplicate of the control socket in non-blocking mode: only wait on it,
    /// never read it.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn exit_fd(&self) -> io::Result<OwnedFd> {
        self.control.try_clone()
    }

    /// How the main process ended, as soon as that is known; its tree may still be ending. Never waits.
    #[must_use]
    pub fn poll_main_exit(&self) -> Option<MainExit> {
        let mut state = self.lock();
        self.advance(&mut state);
        state.report.map(|report| report.main).or(state.main)
    }

    /// The final report, once the tree has ended and the launcher is collected. Never waits.
    #[must_use]
    pub fn poll_status(&self) -> Option<ExitReport> {
        let mut state = self.lock();
        self.advance(&mut state);
        state.report
    }

    /// Limits of the kernel that the plugin was seen at so far, each once. Never waits.
    #[must_use]
    pub fn reached(&self) -> Vec<Reached> {
        let mut state = self.lock();
        self.advance(&mut state);
        state.reached.clone()
    }

    /// Waits for the final report, at most `timeout`. For tests and callers without a runtime.
    #[must_use]
    pub fn wait_blocking(&self, timeout: Duration) -> Option<ExitReport> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(report) = self.poll_status() {
                return Some(report);
            }
            // At the end of the time one more look decides.
            if channel::wait_until(self.control.as_fd(), PollFlags::IN, deadline).is_err() {
                return self.poll_status();
            }
        }
    }

    /// Runs the signal part of the stop ladder with the times of [`stop_grace`](Self::stop_grace): wait, terminate,
    /// wait, kill. The caller has closed the plugin's stdin (requirements 50 and 51).
    ///
    /// `None` if the launcher gave no report within `limit` after the kill.
    #[must_use]
    pub fn stop_blocking(&self, limit: Duration) -> Option<ExitReport> {
        if let Some(report) = self.wait_blocking(self.stop.term_after) {
            return Some(report);
        }
        // If the order cannot be sent, the next step of the ladder follows all the same.
        let _unsent = self.terminate();
        if let Some(report) = self.wait_blocking(self.stop.kill_after) {
            return Some(report);
        }
        let _unsent = self.kill();
        self.wait_blocking(limit)
    }

    /// Takes in what the launcher has sent.
    fn advance(&self, state: &mut State) {
        if state.report.is_some() {
            return;
        }
        loop {
            match state.reader.next(self.control.as_fd()) {
                Ok(Some(Record::MainExit(exit))) => state.main = Some(exit),
                Ok(Some(Record::Gone { survivors, leftovers_killed })) => {
                    state.gone = Some((survivors == 0, leftovers_killed));
                }
                Ok(Some(Record::Exceeded { limit, used_mib })) => {
                    let exceeded = self.limits.as_ref().map(|limits| wire::exceeded(limit, used_mib, limits));
                    // The first is what it was ended for; others can follow from that.
                    state.exceeded = state.exceeded.or(exceeded);
                }
                Ok(Some(Record::Reached(bound))) => {
                    let reached = self.limits.as_ref().map(|limits| bound.reached(limits, self.tmp_bytes));
                    state.reached.extend(reached.filter(|reached| !state.reached.contains(reached)));
                }
                // These belong to the start and have been taken in by it.
                Ok(Some(Record::Started { .. } | Record::Failed { .. } | Record::Listening { .. })) => {}
                Ok(None) => return,
                Err(Ended) => {
                    state.report = Some(self.conclude(state));
                    return;
                }
            }
        }
    }

    /// The launcher's end of the socket is closed: collect it and put the report together.
    fn conclude(&self, state: &mut State) -> ExitReport {
        let main = state.main.unwrap_or(MainExit::Unknown);
        let mut launcher = state.launcher.take();
        let (tree_gone, leftovers_killed) = state.gone.unwrap_or_else(|| {
            // The launcher was lost or talks nonsense: end it, and with it the main process. What has stayed in its
            // session can still be found; what has not is unknown.
            if let Some(launcher) = &mut launcher {
                let _ended = launcher.kill();
            }
            (false, i32::try_from(self.launcher_pid).map_or(0, tree::kill_session))
        });
        if let Some(mut launcher) = launcher {
            // It has closed its descriptors, which is one of the last things an ending process does: the status is
            // there within microseconds, and waiting for it leaves no zombie behind the report.
            let _collected = launcher.wait();
        }
        ExitReport { main, tree_gone, leftovers_killed, exceeded: state.exceeded }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state stays consistent at every step, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PluginProcess {
    fn drop(&mut self) {
        // Duplicates from `exit_fd` may keep the socket open; the shutdown reaches the launcher in spite of them.
        let _closed = shutdown(&self.control, Shutdown::Both);
        self.continue_launcher();
        if let Some(launcher) = self.lock().launcher.take() {
            orphans::collect(launcher);
        }
    }
}

/// The launcher is gone or talks nonsense; either way there is nothing more to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended;

/// Puts records together from whatever pieces arrive.
#[derive(Debug, Default)]
pub(super) struct RecordReader {
    buffer: [u8; RECORD_BYTES],
    filled: usize,
    /// What came along and nobody has taken.
    descriptors: Vec<OwnedFd>,
}

impl RecordReader {
    /// The next record, or `None` if it is not complete yet. Never waits.
    pub(super) fn next(&mut self, socket: BorrowedFd<'_>) -> Result<Option<Record>, Ended> {
        while self.filled < RECORD_BYTES {
            match channel::receive_now_with(socket, &mut self.buffer[self.filled..], &mut self.descriptors) {
                Ok(Received::Bytes(count)) => self.filled += count,
                Ok(Received::Nothing) => return Ok(None),
                Ok(Received::End) | Err(_) => return Err(Ended),
            }
            if self.descriptors.len() > channel::MAX_DESCRIPTORS {
                return Err(Ended);
            }
        }
        self.filled = 0;
        Record::decode(self.buffer).map(Some).map_err(|_| Ended)
    }

    /// Descriptors that came with the records so far.
    pub(super) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }
}
