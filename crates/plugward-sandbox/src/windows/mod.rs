//! Windows: plugins in an AppContainer of their own, in a job object.
//!
//! Written against the documented interfaces and type-checked; **untested**, and reports say so. Owns the start at level
//! `partial` with its own witness, and at level `none`. Refuses every other level and everything Windows cannot enforce, by
//! an error that names the layer.
//!
//! There is no launcher process: container, job and the list of inherited handles are attached as the process is made, so
//! none of its instructions run without them. The job ends every process in it when its last handle is closed, which the
//! end of the host does.

mod container;
mod handles;
mod job;
mod process;
mod start;
mod witness;

use std::{
    ffi::OsString,
    io,
    os::windows::io::OwnedHandle,
    path::{Path, PathBuf},
};

pub use process::PluginProcess;

use container::Container;
use job::Job;

use crate::{
    Backend, DiskControl, Enforcement, FileControl, LAUNCH_ARGUMENT, LaunchSpec, Level, MemoryControl, Network,
    NetworkControl, OsCause, ProcessControl, SandboxSpec, SpawnError, TreeControl, UserControl, UserPolicy,
    windows_text::check_program,
};

/// The system's number for "not supported".
const NOT_SUPPORTED: i32 = 50;

/// Starts plugins.
#[derive(Debug)]
pub struct Launcher(());

/// A plugin that was started, with the host's ends of its pipes.
#[derive(Debug)]
pub struct Spawned {
    /// Write end of the plugin's standard input.
    pub stdin: OwnedHandle,
    /// Read end of the plugin's standard output.
    pub stdout: OwnedHandle,
    /// Read end of the plugin's standard error.
    pub stderr: OwnedHandle,
    /// The handle; dropping it ends the plugin's job.
    pub process: PluginProcess,
}

impl Launcher {
    /// There is no launcher process here, so nothing is opened.
    ///
    /// # Errors
    /// None on this system.
    pub fn current_exe() -> Result<Self, SpawnError> {
        Ok(Self(()))
    }

    /// As [`current_exe`](Self::current_exe).
    pub fn at<A: Into<OsString>>(_path: impl Into<PathBuf>, _arguments: impl IntoIterator<Item = A>) -> Self {
        Self(())
    }

    /// There is one backend here.
    #[must_use]
    pub fn with_backend(self, _backend: Backend) -> Self {
        self
    }

    /// Starts a plugin. Blocks for some milliseconds, because a witness runs in the same container first.
    ///
    /// # Errors
    /// Whatever fails, and every request that Windows cannot enforce; nothing is left running then.
    pub fn spawn(&self, spec: &LaunchSpec) -> Result<Spawned, SpawnError> {
        spec.check()?;
        let name = spec.executable.file_name().unwrap_or_default().to_string_lossy();
        if check_program(&name).is_err() {
            let reason = format!("`{name}` is a script of the command interpreter, which reads arguments as commands");
            return Err(SpawnError::InvalidSpec { field: "executable", reason });
        }
        let Some(sandbox) = spec.sandbox.as_ref().filter(|sandbox| sandbox.level != Level::None) else {
            let job = Job::new(None).map_err(launcher_failure("make a job object"))?;
            return start::start(spec, job, None, report(Level::None, None));
        };
        refuse_unsupported(sandbox)?;
        let layer = |error: io::Error| SpawnError::Layer {
            level: sandbox.level,
            layer: "an AppContainer",
            path: None,
            cause: error.into(),
            fix: "; it takes Windows 8 or later",
        };
        let container = Container::open(spec, sandbox).map_err(layer)?;
        container.grant(spec, sandbox)?;
        witness::confirm(spec, sandbox, &container)?;
        let job = Job::new(Some(&sandbox.limits)).map_err(launcher_failure("make a job object"))?;
        start::start(spec, job, Some(&container), report(Level::Partial, Some(sandbox)))
    }
}

/// What no setting of Windows can give, or this program does not know how to ask for.
fn refuse_unsupported(sandbox: &SandboxSpec) -> Result<(), SpawnError> {
    match sandbox.level {
        Level::Partial => {}
        Level::Full => {
            let fix = "; an AppContainer sees the names of processes and the system's files, ask for level `partial`";
            return Err(missing(sandbox, "a file tree of its own", fix));
        }
        _ => return Err(missing(sandbox, "a system call filter", "; Windows has none, ask for level `partial`")),
    }
    if !matches!(sandbox.network, Network::Off | Network::Open) {
        return Err(missing(sandbox, "a list of hosts", "; ask for no network or all of it"));
    }
    if !sandbox.aliases.is_empty() {
        return Err(missing(sandbox, "a name that leads to another place", "; give the path it leads to"));
    }
    if let Some(path) = sandbox.exact().chain(sandbox.writable()).find(|path| has_link(path)) {
        let cause = OsCause { errno: NOT_SUPPORTED };
        let fix = "; no part of it may be a link (give the path it leads to)";
        let layer = "a path without links";
        return Err(SpawnError::Layer { level: sandbox.level, layer, path: Some(path.to_owned()), cause, fix });
    }
    if sandbox.limits.wall_s.is_some() || sandbox.limits.cpu_percent.is_some() {
        let fix = "; nothing here keeps them, leave out `wall_seconds` and `cpu_percent`";
        return Err(missing(sandbox, "a limit on the time to run or the share of the processors", fix));
    }
    if sandbox.user != UserPolicy::Same {
        return Err(missing(sandbox, "the plugin's own user", "; here a plugin has a container of its own instead"));
    }
    Ok(())
}

/// Whether a part of a path is a link, which somebody may have planted.
fn has_link(path: &Path) -> bool {
    path.ancestors().any(|part| part.symlink_metadata().is_ok_and(|found| found.is_symlink()))
}

fn missing(sandbox: &SandboxSpec, layer: &'static str, fix: &'static str) -> SpawnError {
    let cause = OsCause { errno: NOT_SUPPORTED };
    SpawnError::Layer { level: sandbox.level, layer, path: None, cause, fix }
}

fn launcher_failure(action: &'static str) -> impl Fn(io::Error) -> SpawnError {
    move |error| SpawnError::Launcher { action, cause: error.into() }
}

fn report(level: Level, sandbox: Option<&SandboxSpec>) -> Enforcement {
    let has = sandbox.is_some();
    let mut absent = vec!["tests of this backend", "a request to terminate before the end"];
    if has {
        absent.extend([
            "limit on file sizes",
            "limit on open files",
            "hiding that files of the system exist",
            "process namespace",
            "system call filter",
        ]);
    }
    let is_off = sandbox.is_some_and(|sandbox| sandbox.network == Network::Off);
    let limits = sandbox.map(|sandbox| sandbox.limits);
    let has_memory = limits.is_some_and(|limits| limits.memory_bytes.is_some());
    let has_processes = limits.is_some_and(|limits| limits.processes.is_some());
    Enforcement {
        level,
        backend: Backend::AppContainer,
        tree: TreeControl::Job,
        fs: if has { FileControl::AppContainer } else { FileControl::None },
        landlock_abi: 0,
        net: if is_off { NetworkControl::NoneAppContainer } else { NetworkControl::Open },
        mem: if has_memory { MemoryControl::Job } else { MemoryControl::None },
        pids: if has_processes { ProcessControl::Job } else { ProcessControl::None },
        disk: DiskControl::None,
        uid: UserControl::Same,
        missing: absent.into_iter().map(str::to_owned).collect(),
        witness: has.then(|| "ok@this start".to_owned()),
        note: "Windows support is untested; files and network are closed by an AppContainer, if at all".to_owned(),
    }
}

/// Ends the process with a message if it was asked to be a launcher; does nothing otherwise.
pub fn launcher_main_if_requested() {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == LAUNCH_ARGUMENT) {
        launcher_main();
    }
}

/// Ends the process: there is no launcher process on this system.
pub fn launcher_main() -> ! {
    use std::io::Write as _;
    let _best_effort = writeln!(io::stderr(), "plugward: `{LAUNCH_ARGUMENT}` is not used on Windows");
    std::process::exit(2)
}
