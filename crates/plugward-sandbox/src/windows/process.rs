//! A running plugin on Windows: its main process and its job.
//!
//! Owns waiting for the one and ending the other. Refuses a polite request to terminate, which Windows has for programs with
//! windows or consoles only: the plugin has seen the end of its input, and the next step of the ladder ends its job.

use std::{
    io,
    os::windows::io::{AsRawHandle, OwnedHandle},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use windows_sys::Win32::{
    Foundation::WAIT_OBJECT_0,
    System::Threading::{GetExitCodeProcess, WaitForSingleObject},
};

use super::{handles::check, job::Job};
use crate::{Enforcement, ExitReport, MainExit, StopGrace};

/// Longest time that the processes of an ended job take to be gone.
const JOB_END_LIMIT: Duration = Duration::from_secs(5);
/// Time between two looks at a job that is ending, for which there is nothing to wait on.
const JOB_LOOK: Duration = Duration::from_millis(2);

/// Handle of a started plugin. Dropping it ends its job.
#[derive(Debug)]
pub struct PluginProcess {
    process: OwnedHandle,
    pid: u32,
    job: Job,
    enforcement: Enforcement,
    stop: StopGrace,
    report: Mutex<Option<ExitReport>>,
}

impl PluginProcess {
    pub(super) fn new(process: OwnedHandle, pid: u32, job: Job, enforcement: Enforcement, stop: StopGrace) -> Self {
        Self { process, pid, job, enforcement, stop, report: Mutex::new(None) }
    }

    /// Process id of the plugin's main process; for display.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// There is no launcher process; the plugin's own id.
    #[must_use]
    pub fn launcher_pid(&self) -> u32 {
        self.pid
    }

    /// What the system holds this plugin to.
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

    /// Does nothing: there is no such request here.
    ///
    /// # Errors
    /// None.
    pub fn terminate(&self) -> io::Result<()> {
        Ok(())
    }

    /// Ends every process of the job.
    ///
    /// # Errors
    /// The system refused; dropping the handle has the same effect by other means.
    pub fn kill(&self) -> io::Result<()> {
        self.job.end()
    }

    /// A handle that is signalled when the main process has ended; only wait on it.
    ///
    /// # Errors
    /// No handle is left.
    pub fn exit_fd(&self) -> io::Result<OwnedHandle> {
        self.process.try_clone()
    }

    /// How the main process ended, as soon as that is known. Never waits.
    #[must_use]
    pub fn poll_main_exit(&self) -> Option<MainExit> {
        self.main_exit(0)
    }

    /// The final report, once the main process has ended; its job is ended then. Waits for that only.
    #[must_use]
    pub fn poll_status(&self) -> Option<ExitReport> {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        if report.is_none() {
            let main = self.main_exit(0)?;
            let leftovers_killed = self.job.living().unwrap_or(0);
            // What cannot be ended is seen by the count below.
            let _refused = self.job.end();
            *report = Some(ExitReport { main, tree_gone: self.job_is_empty(), leftovers_killed, exceeded: None });
        }
        *report
    }

    fn job_is_empty(&self) -> bool {
        let give_up = Instant::now() + JOB_END_LIMIT;
        loop {
            match self.job.living() {
                Ok(0) => return true,
                Ok(_) if Instant::now() < give_up => thread::sleep(JOB_LOOK),
                _ => return false,
            }
        }
    }

    /// Waits for the final report, at most `timeout`.
    #[must_use]
    pub fn wait_blocking(&self, timeout: Duration) -> Option<ExitReport> {
        // The largest number means "for ever" to the system.
        let milliseconds = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).min(u32::MAX - 1);
        self.main_exit(milliseconds).and_then(|_| self.poll_status())
    }

    /// Runs the rest of the stop ladder: wait, wait, kill. The caller has closed the plugin's stdin.
    #[must_use]
    pub fn stop_blocking(&self, limit: Duration) -> Option<ExitReport> {
        if let Some(report) = self.wait_blocking(self.stop.term_after.saturating_add(self.stop.kill_after)) {
            return Some(report);
        }
        // What could not be ended is not there after the limit either.
        let _refused = self.kill();
        self.wait_blocking(limit)
    }

    fn main_exit(&self, milliseconds: u32) -> Option<MainExit> {
        let process = self.process.as_raw_handle().cast();
        let mut code = 0;
        #[allow(unsafe_code, reason = "waiting for a process handle has no safe wrapper")]
        // SAFETY: the handle is open as long as `self` lives; the place for the code lives across the call.
        let result = unsafe {
            if WaitForSingleObject(process, milliseconds) != WAIT_OBJECT_0 {
                return None;
            }
            check(GetExitCodeProcess(process, &raw mut code))
        };
        Some(result.map_or(MainExit::Unknown, |()| MainExit::Code(code.cast_signed())))
    }
}

impl Drop for PluginProcess {
    fn drop(&mut self) {
        // Closing the job's only handle, which comes next, ends it in any case.
        let _refused = self.job.end();
    }
}
