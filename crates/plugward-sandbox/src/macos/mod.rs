//! macOS: plugins behind Seatbelt, through `/usr/bin/sandbox-exec`.
//!
//! Written against the documented interfaces and type-checked; **untested**, and reports say so. Owns the start at level
//! `partial` with its own witness, and at level `none`. Refuses every other level and everything Seatbelt cannot enforce,
//! by an error that names the layer.
//!
//! There is no launcher process: the plugin is a child of the host and leads a process group. macOS ends no process with its
//! parent, so a plugin outlives a killed host until it sees the end of its input; the report says so.

mod process;
mod profile_paths;
mod witness;

pub(crate) use profile_paths::resolved;

use std::{
    ffi::OsString,
    io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::PathBuf,
    process::{Command, Stdio},
};

pub use process::PluginProcess;

use crate::{
    Backend, DiskControl, Enforcement, FileControl, LAUNCH_ARGUMENT, LaunchSpec, Level, MemoryControl, Network,
    NetworkControl, OsCause, ProcessControl, SandboxSpec, SpawnError, TreeControl, UserControl, UserPolicy,
    seatbelt::{NoProfile, profile},
};

/// Where the system keeps the program that puts a profile in force. Not searched for.
const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

/// Starts plugins.
#[derive(Debug)]
pub struct Launcher(());

/// A plugin that was started, with the host's ends of its pipes. All are close-on-exec and in blocking mode.
#[derive(Debug)]
pub struct Spawned {
    /// Write end of the plugin's standard input.
    pub stdin: OwnedFd,
    /// Read end of the plugin's standard output.
    pub stdout: OwnedFd,
    /// Read end of the plugin's standard error.
    pub stderr: OwnedFd,
    /// The handle; dropping it kills the plugin's group.
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

    /// Starts a plugin. Blocks for some milliseconds, because a witness runs under the same profile first.
    ///
    /// # Errors
    /// Whatever fails, and every request that Seatbelt cannot enforce; nothing is left running then.
    pub fn spawn(&self, spec: &LaunchSpec) -> Result<Spawned, SpawnError> {
        spec.check()?;
        let Some(sandbox) = spec.sandbox.as_ref().filter(|sandbox| sandbox.level != Level::None) else {
            let mut command = Command::new(&spec.executable);
            command.args(spec.argv.iter().skip(1));
            if let Some(name) = spec.argv.first() {
                command.arg0(name);
            }
            return start(command, spec, None, report(Level::None, None));
        };
        refuse_unsupported(sandbox)?;
        let paths = resolved(spec, sandbox)?;
        let text = profile(sandbox, &paths).map_err(|reason| match reason {
            NoProfile::HostList => missing(sandbox, "a list of hosts", "; ask for no network or all of it"),
            NoProfile::PathIsNoText => missing(sandbox, "a path that is not UTF-8", "; rename it"),
        })?;
        witness::confirm(sandbox, &paths)?;
        let mut command = Command::new(SANDBOX_EXEC);
        // The program's own name is its path here: `sandbox-exec` passes on no other.
        command.arg("-p").arg(text).arg(&paths.executable).args(spec.argv.iter().skip(1));
        start(command, spec, Some(sandbox), report(Level::Partial, Some(sandbox)))
    }
}

/// What no setting of macOS can give.
fn refuse_unsupported(sandbox: &SandboxSpec) -> Result<(), SpawnError> {
    match sandbox.level {
        Level::Partial => {}
        Level::Full => {
            return Err(missing(sandbox, "a process namespace", "; macOS has none, ask for level `partial`"));
        }
        _ => return Err(missing(sandbox, "a system call filter", "; macOS has none, ask for level `partial`")),
    }
    if sandbox.limits.wall_s.is_some() || sandbox.limits.cpu_percent.is_some() {
        let fix = "; nothing here keeps them, leave out `wall_seconds` and `cpu_percent`";
        return Err(missing(sandbox, "a limit on the time to run or the share of the processors", fix));
    }
    #[allow(unsafe_code, reason = "the user of this process has no safe call in the standard library")]
    // SAFETY: the call has no arguments and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    if is_root != matches!(sandbox.user, UserPolicy::Drop { .. }) {
        let fix = "; a host that runs as root gives the plugin an unprivileged user, and only such a host can";
        return Err(missing(sandbox, "the plugin's own user", fix));
    }
    Ok(())
}

fn missing(sandbox: &SandboxSpec, layer: &'static str, fix: &'static str) -> SpawnError {
    let cause = OsCause { errno: libc::ENOTSUP };
    SpawnError::Layer { level: sandbox.level, layer, path: None, cause, fix }
}

fn start(
    mut command: Command,
    spec: &LaunchSpec,
    sandbox: Option<&SandboxSpec>,
    enforcement: Enforcement,
) -> Result<Spawned, SpawnError> {
    command.env_clear().envs(spec.env.iter().map(|(name, value)| (name, value))).current_dir(&spec.cwd);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    if let Some(UserPolicy::Drop { uid, gid }) = sandbox.map(|sandbox| sandbox.user) {
        // The standard library gives up the other groups with them.
        command.uid(uid).gid(gid);
    }
    let limits = sandbox.map(|sandbox| sandbox.limits);
    #[allow(unsafe_code, reason = "limits are set between fork and exec")]
    // SAFETY: the closure makes system calls only and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            let Some(limits) = limits else { return Ok(()) };
            set_limit(libc::RLIMIT_CORE, Some(0))?;
            set_limit(libc::RLIMIT_CPU, limits.cpu_s)?;
            set_limit(libc::RLIMIT_FSIZE, limits.file_bytes)?;
            set_limit(libc::RLIMIT_NOFILE, limits.open_files)
        });
    }
    let mut child = command.spawn().map_err(|error| match error.raw_os_error() {
        Some(libc::ENOTDIR) => SpawnError::Cwd { path: spec.cwd.clone(), cause: error.into() },
        _ => SpawnError::Exec { path: spec.executable.clone(), cause: error.into(), hint: "" },
    })?;
    let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        let _ended = child.kill();
        let _collected = child.wait();
        return Err(SpawnError::Launcher { action: "open a pipe", cause: OsCause { errno: libc::EBADF } });
    };
    let process = PluginProcess::new(child, enforcement, spec.stop)
        .map_err(|error| SpawnError::Launcher { action: "watch the plugin", cause: error.into() })?;
    Ok(Spawned { stdin: stdin.into(), stdout: stdout.into(), stderr: stderr.into(), process })
}

/// Lowers one limit; `None` leaves it.
fn set_limit(resource: libc::c_int, limit: Option<u64>) -> io::Result<()> {
    let Some(limit) = limit else { return Ok(()) };
    let value = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    #[allow(unsafe_code, reason = "setrlimit has no safe wrapper here")]
    // SAFETY: `value` is initialised and lives across the call, which reads it.
    let result = unsafe { libc::setrlimit(resource, &raw const value) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn report(level: Level, sandbox: Option<&SandboxSpec>) -> Enforcement {
    let has = sandbox.is_some();
    let mut absent =
        vec!["tests of this backend", "its end with a killed host", "daemons that leave its process group"];
    if has {
        absent.extend(["limit on memory", "limit on processes", "process namespace", "system call filter"]);
    }
    let is_off = sandbox.is_some_and(|sandbox| sandbox.network == Network::Off);
    let has_file_limit = sandbox.is_some_and(|sandbox| sandbox.limits.file_bytes.is_some());
    let has_user = sandbox.is_some_and(|sandbox| sandbox.user != UserPolicy::Same);
    Enforcement {
        level,
        backend: Backend::Seatbelt,
        tree: TreeControl::ProcessGroup,
        fs: if has { FileControl::Seatbelt } else { FileControl::None },
        landlock_abi: 0,
        net: if is_off { NetworkControl::NoneSeatbelt } else { NetworkControl::Open },
        mem: MemoryControl::None,
        pids: ProcessControl::None,
        disk: if has_file_limit { DiskControl::FileSize } else { DiskControl::None },
        uid: if has_user { UserControl::Separate } else { UserControl::Same },
        missing: absent.into_iter().map(str::to_owned).collect(),
        witness: has.then(|| "ok@this start".to_owned()),
        note: "macOS support is untested; files and network are closed by a Seatbelt profile, if at all".to_owned(),
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
    let _best_effort = writeln!(io::stderr(), "plugward: `{LAUNCH_ARGUMENT}` is not used on macOS");
    std::process::exit(2)
}
