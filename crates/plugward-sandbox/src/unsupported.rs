//! Systems without a launcher: the same names, and a clear refusal instead of a plugin.
//!
//! Owns nothing. Refuses starting a plugin without the means to end its whole tree.

use std::{convert::Infallible, ffi::OsString, io, path::PathBuf, time::Duration};

#[cfg(unix)]
use std::os::fd::OwnedFd;
#[cfg(windows)]
use std::os::windows::io::OwnedHandle as OwnedFd;

use crate::{
    Backend, Enforcement, ExitReport, LAUNCH_ARGUMENT, LaunchSpec, Listeners, MainExit, Observations, SpawnError,
    StopGrace,
};

/// Starts plugins through launcher processes; not on this system.
#[derive(Debug)]
pub struct Launcher(());

/// A plugin that was started; none ever is on this system.
#[derive(Debug)]
pub struct Spawned {
    /// Write end of the plugin's standard input.
    pub stdin: OwnedFd,
    /// Read end of the plugin's standard output.
    pub stdout: OwnedFd,
    /// Read end of the plugin's standard error.
    pub stderr: OwnedFd,
    /// The handle.
    pub process: PluginProcess,
}

/// A started plugin; there is none on this system.
#[derive(Debug)]
pub struct PluginProcess(Infallible);

fn unsupported() -> SpawnError {
    SpawnError::Unsupported { system: std::env::consts::OS }
}

impl Launcher {
    /// A launcher whose every start fails, so that the rest of the host works.
    ///
    /// # Errors
    /// None on this system.
    pub fn current_exe() -> Result<Self, SpawnError> {
        Ok(Self(()))
    }

    /// See [`Launcher::current_exe`].
    pub fn at<A: Into<OsString>>(_path: impl Into<PathBuf>, _arguments: impl IntoIterator<Item = A>) -> Self {
        Self(())
    }

    /// There is no backend here.
    #[must_use]
    pub fn with_backend(self, _backend: Backend) -> Self {
        self
    }

    /// Fails.
    ///
    /// # Errors
    /// Always [`SpawnError::Unsupported`].
    pub fn spawn(&self, _spec: &LaunchSpec) -> Result<Spawned, SpawnError> {
        Err(unsupported())
    }

    /// Fails.
    ///
    /// # Errors
    /// Always [`SpawnError::Unsupported`].
    pub fn spawn_observed(&self, _spec: &LaunchSpec) -> Result<(Spawned, Notebook), SpawnError> {
        Err(unsupported())
    }
}

/// The record of a trial; there is none on this system.
#[derive(Debug)]
pub struct Notebook(Infallible);

#[allow(missing_docs, clippy::missing_errors_doc, reason = "no value of this type exists here; documented for Linux")]
impl Notebook {
    pub fn read(self) -> io::Result<Observations> {
        match self.0 {}
    }
}

#[allow(missing_docs, clippy::missing_errors_doc, reason = "no value of this type exists here; documented for Linux")]
impl PluginProcess {
    pub fn pid(&self) -> u32 {
        match self.0 {}
    }
    pub fn launcher_pid(&self) -> u32 {
        match self.0 {}
    }
    pub fn enforcement(&self) -> &Enforcement {
        match self.0 {}
    }
    pub fn take_listeners(&self) -> Option<Listeners> {
        match self.0 {}
    }
    pub fn stop_grace(&self) -> StopGrace {
        match self.0 {}
    }
    pub fn terminate(&self) -> io::Result<()> {
        match self.0 {}
    }
    pub fn kill(&self) -> io::Result<()> {
        match self.0 {}
    }
    pub fn exit_fd(&self) -> io::Result<OwnedFd> {
        match self.0 {}
    }
    pub fn poll_main_exit(&self) -> Option<MainExit> {
        match self.0 {}
    }
    pub fn poll_status(&self) -> Option<ExitReport> {
        match self.0 {}
    }
    pub fn wait_blocking(&self, _timeout: Duration) -> Option<ExitReport> {
        match self.0 {}
    }
    pub fn stop_blocking(&self, _limit: Duration) -> Option<ExitReport> {
        match self.0 {}
    }
}

/// Ends the process with a message if it was asked to be a launcher; does nothing otherwise.
pub fn launcher_main_if_requested() {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == LAUNCH_ARGUMENT) {
        launcher_main();
    }
}

/// Ends the process: there is no launcher on this system.
pub fn launcher_main() -> ! {
    use std::io::Write;
    let _best_effort = writeln!(io::stderr(), "plugward: {}", unsupported());
    std::process::exit(2)
}
