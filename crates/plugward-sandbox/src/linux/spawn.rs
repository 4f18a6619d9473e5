//! The host's side of a start: pipes, launcher, specification, answer.
//!
//! Owns the order of these steps and their failures, after each of which nothing of the start is left. Refuses forking
//! the host itself: the launcher starts by `posix_spawn`, whose cost does not grow with the host's memory.

use std::{
    ffi::OsString,
    io,
    net::{TcpListener, UdpSocket},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::PollFlags,
    fs::{Mode, OFlags, open},
    io::{Errno, fcntl_dupfd_cloexec},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    pipe::{PipeFlags, pipe_with},
};

use super::{
    backend::Choice,
    cgroup, channel,
    confine::kernel_abi,
    failure::{Failure, Step},
    observe::Notebook,
    process::{Ended, PluginProcess, RecordReader},
    wire::{self, Errand, Purpose, Record, Route},
    witness::{self, Witnesses},
};
use crate::{
    Backend, Enforcement, LAUNCH_ARGUMENT, LaunchSpec, Level, Listeners, Network, OsCause, SandboxSpec, SpawnError,
    enforcement::Applied,
};

/// Longest time from starting the launcher to its answer. It takes 2 ms on an idle machine; the limit is there for
/// one that is swapping, and for executables on a file system that hangs.
const START_LIMIT: Duration = Duration::from_secs(15);
/// Lowest number of the descriptor through which the launcher is executed. Descriptors 0 to 2 are replaced before the
/// execution and would no longer lead to the program.
const FIRST_SAFE_DESCRIPTOR: i32 = 3;

/// What to do where the kernel has no room for a namespace. Its own words for that are about a disk.
const NAMESPACES_SPENT: &str = "; the space that is meant is for namespaces, on no disk: raise `user.max_user_namespaces` \
                                (0 forbids them), make fewer within each other, or ask for level `partial`";

/// Starts plugins through launcher processes.
#[derive(Debug)]
pub struct Launcher {
    program: Program,
    arguments: Vec<OsString>,
    witnesses: Witnesses,
    choice: Choice,
}

#[derive(Debug)]
enum Program {
    /// Kept open, so that an upgrade on disk cannot replace the launcher under a running host.
    Open(OwnedFd),
    At(PathBuf),
}

/// A plugin that was started, with the host's ends of its pipes. All are close-on-exec and in blocking mode.
#[derive(Debug)]
pub struct Spawned {
    /// Write end of the plugin's standard input.
    pub stdin: OwnedFd,
    /// Read end of the plugin's standard output.
    pub stdout: OwnedFd,
    /// Read end of the plugin's standard error (requirement 79).
    pub stderr: OwnedFd,
    /// The handle; dropping it kills the plugin's tree.
    pub process: PluginProcess,
}

/// The plugin's ends and the host's ends of the three pipes.
struct Pipes {
    plugin: [OwnedFd; channel::PASSED_DESCRIPTORS],
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Launcher {
    /// Uses the running executable, whose `main` calls
    /// [`launcher_main_if_requested`](crate::launcher_main_if_requested) first.
    ///
    /// # Errors
    /// [`SpawnError::Launcher`] if `/proc` is not mounted or no descriptor is left.
    pub fn current_exe() -> Result<Self, SpawnError> {
        let cannot = launcher_failure("open its own executable through `/proc`");
        let opened = open("/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(&cannot)?;
        let program = if opened.as_raw_fd() < FIRST_SAFE_DESCRIPTOR {
            fcntl_dupfd_cloexec(&opened, FIRST_SAFE_DESCRIPTOR).map_err(&cannot)?
        } else {
            opened
        };
        Ok(Self {
            program: Program::Open(program),
            arguments: vec![LAUNCH_ARGUMENT.into()],
            witnesses: Witnesses::default(),
            choice: Choice::default(),
        })
    }

    /// Uses another executable, started with `arguments` (after its own name), which make it call
    /// [`launcher_main`](crate::launcher_main).
    pub fn at<A: Into<OsString>>(path: impl Into<PathBuf>, arguments: impl IntoIterator<Item = A>) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Self {
            program: Program::At(path.into()),
            arguments,
            witnesses: Witnesses::default(),
            choice: Choice::default(),
        }
    }

    /// Leaves no choice about who makes the namespaces of level `full`. Without this, the launcher makes them itself, and
    /// asks bubblewrap only where it is denied and bubblewrap is not.
    #[must_use]
    pub fn with_backend(self, backend: Backend) -> Self {
        Self { choice: Choice::only(backend), ..self }
    }

    /// Starts a plugin and returns once its program executes. Blocks for a few milliseconds, 15 seconds at most; twice that
    /// the first time rules are used in a boot, because a witness runs under them first.
    ///
    /// # Errors
    /// Whatever fails, up to and including the execution of the program, is reported here with its step and path, and
    /// no process is left. A level that cannot be reached, or that the witness got through, is such a failure
    /// (requirement 146).
    pub fn spawn(&self, spec: &LaunchSpec) -> Result<Spawned, SpawnError> {
        spec.check()?;
        let Some(sandbox) = spec.sandbox.as_ref().filter(|sandbox| sandbox.level != Level::None) else {
            return Ok(self.start_and_report(spec, Errand::unwitnessed(Purpose::Plugin, Route::Native), None)?.0);
        };
        self.choice.start(sandbox.level, |route| self.spawn_by(spec, sandbox, route, None))
    }

    /// As [`spawn`](Self::spawn), and notes what the plugin wants and does not get, for a trial. Takes level `full`, made
    /// without bubblewrap: nothing but the launcher stands between it and the plugin. The notebook is complete once the
    /// plugin has ended.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn); also if another program watches the system calls of this process already.
    pub fn spawn_observed(&self, spec: &LaunchSpec) -> Result<(Spawned, Notebook), SpawnError> {
        spec.check()?;
        let Some(sandbox) = spec.sandbox.as_ref().filter(|sandbox| sandbox.level == Level::Full) else {
            let reason = "is not `full`, and only at that level can a plugin be observed".to_owned();
            return Err(SpawnError::InvalidSandbox { field: "level", reason });
        };
        let notebook = Notebook::new().map_err(launcher_failure("make room for what it sees"))?;
        let spawned = self.spawn_by(spec, sandbox, Route::Native, Some(&notebook))?;
        Ok((spawned, notebook))
    }

    fn spawn_by(
        &self,
        spec: &LaunchSpec,
        sandbox: &SandboxSpec,
        route: Route,
        notebook: Option<&Notebook>,
    ) -> Result<Spawned, SpawnError> {
        let mut name = Witnesses::name(spec, sandbox);
        if route == Route::Bwrap {
            name.push_str("/bwrap");
        }
        let witnessed = match self.witnesses.remembered(&name) {
            Some(applied) => applied,
            None => {
                let applied = self.witness(spec, sandbox, route)?;
                self.witnesses.remember(name.clone(), applied);
                applied
            }
        };
        let purpose = if notebook.is_some() { Purpose::Trial } else { Purpose::Plugin };
        let errand = Errand { purpose, route, witnessed };
        let started = self.start_and_report(spec, errand, notebook);
        if matches!(started, Err(SpawnError::NotHeld { .. })) {
            self.witnesses.forget(&name);
        }
        let (mut spawned, applied) = started?;
        if applied.without(Applied::OF_ONE_START) != witnessed.without(Applied::OF_ONE_START) {
            // More than the probe had, or what only the launcher could see: the next start asks again.
            self.witnesses.forget(&name);
            // The handle goes with the error, and the plugin with the handle.
            let escapes = "run without a layer that was there for its probe".to_owned();
            return Err(SpawnError::NotHeld { level: sandbox.level, escapes });
        }
        let mut enforcement = Enforcement::of(sandbox.level, applied, Some(format!("ok@{name}")));
        // A program without a home cannot fill one.
        if sandbox.home_dir.is_some() && !applied.has(Applied::DISK_WATCH) {
            enforcement.missing.push("limit on the size of its home".to_owned());
        }
        if !applied.has(Applied::CGROUP) {
            let reason = cgroup::reason().unwrap_or_else(|| "making one failed".to_owned());
            enforcement.missing.push(format!("limits by a control group ({reason})"));
        }
        if sandbox.limits.cpu_percent.is_some() && !applied.has(Applied::CPU_SHARE) {
            enforcement.missing.push("limit on its share of the processors (needs a control group)".to_owned());
        }
        spawned.process.set_enforcement(enforcement);
        Ok(spawned)
    }

    /// As [`spawn`](Self::spawn), without asking a witness and with level `none` in the report: for tests that leave out a
    /// layer and look at what gets through.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    #[cfg(feature = "mutation")]
    pub fn spawn_unwitnessed(&self, spec: &LaunchSpec) -> Result<Spawned, SpawnError> {
        spec.check()?;
        let level = spec.sandbox.as_ref().map_or(Level::None, |sandbox| sandbox.level);
        Ok(self.start_and_report(spec, Errand::unwitnessed(Purpose::Plugin, self.choice.first(level)), None)?.0)
    }

    /// Runs the probe under the rules of `spec`; returns the layers that were in force and held.
    fn witness(&self, spec: &LaunchSpec, sandbox: &SandboxSpec, route: Route) -> Result<Applied, SpawnError> {
        // What a plugin is told is none of the probe's business.
        let probe = LaunchSpec { argv: vec!["witness".into()], env: Vec::new(), ..spec.clone() };
        let (started, applied) = self.start_and_report(&probe, Errand::unwitnessed(Purpose::Witness, route), None)?;
        let deadline = Instant::now() + START_LIMIT;
        let answer =
            read_answer(&started.stdout, deadline).map_err(|error| silent_or("read its probe's answer", error))?;
        witness::judge(sandbox, &answer)?;
        if !complete(sandbox, applied) {
            let escapes = "run without a layer of its level".to_owned();
            return Err(SpawnError::NotHeld { level: sandbox.level, escapes });
        }
        Ok(applied)
    }

    fn start_and_report(
        &self,
        spec: &LaunchSpec,
        errand: Errand,
        notebook: Option<&Notebook>,
    ) -> Result<(Spawned, Applied), SpawnError> {
        let deadline = Instant::now() + START_LIMIT;
        let pipes = Pipes::open().map_err(launcher_failure("open a pipe"))?;
        let (control, launcher_end) = control_pair().map_err(launcher_failure("open its control socket"))?;
        let mut launcher = Unconfirmed(Some(self.start(launcher_end)?));

        let Pipes { plugin, stdin, stdout, stderr } = pipes;
        let passed: Vec<_> = plugin.iter().map(AsFd::as_fd).chain(notebook.map(AsFd::as_fd)).collect();
        let encoded = wire::encode_spec(spec, errand);
        let sent = channel::send_with_descriptors(control.as_fd(), &encoded, &passed, deadline);
        drop(passed);
        // The host's copies would keep the plugin's pipes open after its end.
        drop(plugin);
        // A launcher that failed early has closed the socket; its record, if any, says more than the failed sending.
        if let Err(error) = sent
            && !matches!(Errno::from_io_error(&error), Some(Errno::PIPE | Errno::CONNRESET))
        {
            return Err(silent_or("send the specification", error));
        }

        let mut reader = RecordReader::default();
        let mut listening = 0;
        let first = loop {
            match wait_for_record(&control, &mut reader, deadline)? {
                Some(Record::Listening { count }) => listening = count,
                other => break other,
            }
        };
        match first {
            Some(Record::Started { pid, applied }) => {
                let pid = u32::try_from(pid).unwrap_or_default();
                let listeners = listeners(spec, listening, reader.take_descriptors()).ok_or_else(|| launcher.lost())?;
                let launcher = launcher.confirm()?;
                let process = PluginProcess::new(control, launcher, reader, pid, spec);
                if listening > 0 {
                    process.set_listeners(listeners);
                }
                Ok((Spawned { stdin, stdout, stderr, process }, applied))
            }
            Some(Record::Failed(failure)) => Err(refused(spec, failure)),
            Some(
                Record::MainExit(_)
                | Record::Exceeded { .. }
                | Record::Reached(_)
                | Record::Gone { .. }
                | Record::Listening { .. },
            )
            | None => Err(launcher.lost()),
        }
    }

    fn start(&self, launcher_end: OwnedFd) -> Result<Child, SpawnError> {
        let path = match &self.program {
            // The new process has the same descriptors until its execution closes them, so the number is valid there.
            Program::Open(descriptor) => PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd())),
            Program::At(path) => path.clone(),
        };
        let mut command = Command::new(path);
        // No setting that would make the standard library fork instead of `posix_spawn`.
        command
            .args(&self.arguments)
            .env_clear()
            .current_dir(Path::new("/"))
            .stdin(Stdio::from(launcher_end))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().map_err(launcher_failure("be started"))
    }
}

impl Pipes {
    fn open() -> Result<Self, Errno> {
        let (plugin_stdin, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout, plugin_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, plugin_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Self { plugin: [plugin_stdin, plugin_stdout, plugin_stderr], stdin, stdout, stderr })
    }
}

/// The host's end does not block: the host must never wait for a launcher.
fn control_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (host, launcher) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&host, true)?;
    Ok((host, launcher))
}

/// The sockets that came with the answer, if they are those of `spec`. In a launcher of this build they always are.
fn listeners(spec: &LaunchSpec, announced: u32, mut descriptors: Vec<OwnedFd>) -> Option<Listeners> {
    let listed = spec.sandbox.as_ref().and_then(|sandbox| match &sandbox.network {
        Network::Hosts(listed) => Some(listed),
        _ => None,
    });
    let (tcp, names) = listed.map_or((0, false), |it| (it.listeners.len(), it.name_server.is_some()));
    let wanted = tcp + usize::from(names);
    if descriptors.len() != wanted || usize::try_from(announced) != Ok(wanted) {
        return None;
    }
    let names = if names { descriptors.pop().map(UdpSocket::from) } else { None };
    Some(Listeners { tcp: descriptors.into_iter().map(TcpListener::from).collect(), names })
}

/// The first record, or `None` if the launcher ended without one.
fn wait_for_record(
    control: &OwnedFd,
    reader: &mut RecordReader,
    deadline: Instant,
) -> Result<Option<Record>, SpawnError> {
    loop {
        match reader.next(control.as_fd()) {
            Ok(Some(record)) => return Ok(Some(record)),
            Err(Ended) => return Ok(None),
            Ok(None) => channel::wait_until(control.as_fd(), PollFlags::IN, Some(deadline))
                .map_err(|error| silent_or("wait for the plugin", error))?,
        }
    }
}

fn silent_or(action: &'static str, error: io::Error) -> SpawnError {
    if error.kind() == io::ErrorKind::TimedOut {
        let limit_ms = u64::try_from(START_LIMIT.as_millis()).unwrap_or(u64::MAX);
        SpawnError::LauncherSilent { limit_ms }
    } else {
        launcher_failure(action)(error)
    }
}

fn launcher_failure<E: Into<io::Error>>(action: &'static str) -> impl Fn(E) -> SpawnError {
    move |error| SpawnError::Launcher { action, cause: OsCause::from(error.into()) }
}

fn refused(spec: &LaunchSpec, failure: Failure) -> SpawnError {
    let cause = OsCause { errno: failure.errno };
    match failure.step {
        Step::Layers => {
            let level = spec.sandbox.as_ref().map_or(Level::None, |sandbox| sandbox.level);
            SpawnError::NotHeld { level, escapes: "run without a layer that was there for its probe".to_owned() }
        }
        Step::Cwd => SpawnError::Cwd { path: spec.cwd.clone(), cause },
        Step::Exec => {
            let hint = match Errno::from_raw_os_error(cause.errno) {
                // The file is there, so what is missing is what it needs to run.
                Errno::NOENT if spec.executable.exists() => " (the interpreter or loader it names is missing)",
                Errno::NOEXEC => " (neither a program of this machine nor a script that begins with `#!`)",
                Errno::ACCESS if spec.executable.is_dir() => " (it is a directory)",
                Errno::ACCESS => " (it is not marked executable, or a directory above it is closed)",
                _ => "",
            };
            SpawnError::Exec { path: spec.executable.clone(), cause, hint }
        }
        step => match (step.layer(), &spec.sandbox) {
            (Some((layer, fix)), Some(sandbox)) => {
                let path = subject(spec, sandbox, failure);
                let is_spent =
                    matches!(step, Step::Namespaces | Step::Bwrap) && cause.errno == Errno::NOSPC.raw_os_error();
                let fix = if is_spent { NAMESPACES_SPENT } else { fix };
                SpawnError::Layer { level: sandbox.level, layer, path, cause, fix }
            }
            _ => SpawnError::Launcher { action: step.action(), cause },
        },
    }
}

/// The path a failure is about.
fn subject(spec: &LaunchSpec, sandbox: &SandboxSpec, failure: Failure) -> Option<PathBuf> {
    let position = usize::from(failure.subject);
    match failure.step {
        Step::Alias => sandbox.aliases.get(position).map(|alias| alias.name.clone()),
        Step::Granted => sandbox.exact().nth(position).map(Path::to_owned),
        Step::Readable => sandbox.read_only.get(position).cloned(),
        Step::Writable | Step::Ownership | Step::Nested | Step::BwrapNested => {
            sandbox.writable().nth(position).map(Path::to_owned)
        }
        Step::Executable => Some(spec.executable.clone()),
        _ => None,
    }
}

/// Whether every layer of the level is in force.
fn complete(sandbox: &SandboxSpec, applied: Applied) -> bool {
    let network = sandbox.network != Network::Off || applied.has(Applied::NO_SOCKETS);
    let namespaces =
        Applied::MOUNTS.with(Applied::PROCESSES).with_if(sandbox.network != Network::Open, Applied::NETWORK);
    network
        && applied.has(Applied::SECCOMP)
        && match sandbox.level {
            Level::Full => applied.has(namespaces) && applied.landlock_abi() == kernel_abi(),
            Level::Partial => applied.landlock_abi() > 0 && applied.landlock_abi() == kernel_abi(),
            _ => true,
        }
}

/// Reads what the probe writes, to its end.
fn read_answer(pipe: &OwnedFd, deadline: Instant) -> io::Result<String> {
    let mut answer = Vec::new();
    loop {
        channel::wait_until(pipe.as_fd(), PollFlags::IN, Some(deadline))?;
        let mut buffer = [0; 1024];
        match rustix::io::read(pipe, &mut buffer) {
            Ok(0) => return Ok(String::from_utf8_lossy(&answer).into_owned()),
            Ok(count) if answer.len() + count <= witness::MAX_ANSWER_BYTES => {
                answer.extend_from_slice(&buffer[..count]);
            }
            Ok(_) => return Err(Errno::MSGSIZE.into()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A launcher that has not reported a running plugin. Dropping it ends it; the kernel then ends the plugin if there is
/// one already.
struct Unconfirmed(Option<Child>);

impl Unconfirmed {
    fn confirm(&mut self) -> Result<Child, SpawnError> {
        self.0.take().ok_or(SpawnError::LauncherLost { status: "taken twice".to_owned() })
    }

    /// The launcher has closed its socket without an answer.
    fn lost(&mut self) -> SpawnError {
        let status = self.0.take().and_then(|mut launcher| {
            // It may have closed the socket and live on, and nobody could control it then.
            let _ended = launcher.kill();
            launcher.wait().ok()
        });
        SpawnError::LauncherLost { status: status.map_or_else(|| "status unknown".to_owned(), |it| it.to_string()) }
    }
}

impl Drop for Unconfirmed {
    fn drop(&mut self) {
        if let Some(mut launcher) = self.0.take() {
            let _ended = launcher.kill();
            let _collected = launcher.wait();
        }
    }
}
