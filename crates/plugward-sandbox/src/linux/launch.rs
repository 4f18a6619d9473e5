//! The launcher's beginning: from the first line of `main` to the running plugin.
//!
//! Owns the order of preparations, each of which is fatal when it fails: descriptors, single thread, own session,
//! privileges, signals, specification, sandbox, working directory, execution. Refuses to be more than one thread, and to run when it was not started by a host.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process::exit,
    time::{Duration, Instant},
};

use rustix::{
    fs::fchown,
    io::{Errno, fcntl_dupfd_cloexec},
    net::{SocketType, sockopt::socket_type},
    process::{
        DumpableBehavior, Pid, Signal, geteuid, getpid, set_child_subreaper, set_dumpable_behavior,
        set_parent_process_death_signal, setsid,
    },
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stderr, stdin},
    thread::{set_name, set_no_new_privs},
};

use super::{
    bounds::Bounds,
    cgroup::{self, Group},
    channel,
    child::{self, Task},
    confine::{self, Confinement},
    disk::Measured,
    failure::{Failure, Step},
    in_place, jail,
    layers::Layers,
    observe::Observer,
    ownership,
    signals::SignalEvents,
    supervise::Supervision,
    watch::Watch,
    wire::{self, Errand, Purpose, Record, Route},
    witness::Canaries,
};
use crate::{LAUNCH_ARGUMENT, LaunchSpec, Level, Limits, SandboxSpec, enforcement::Applied};

/// First descriptor that is not standard input, output or error.
const FIRST_OTHER_DESCRIPTOR: i32 = 3;
/// Longest wait for room in the control socket, which is empty at that time.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(5);
/// Name of the launcher in process lists; the kernel keeps 15 bytes.
const PROCESS_NAME: &std::ffi::CStr = c"plugward-launch";
/// Status after everything that could be done was done and reported.
const EXIT_DONE: i32 = 0;
/// Status after a failure that the host was told about.
const EXIT_FAILED: i32 = 1;
/// Status when a person started the launcher directly.
const EXIT_USAGE: i32 = 2;

/// Runs the launcher and never returns if this process was started as one; does nothing otherwise.
///
/// Call it in the first lines of `main`, before any thread, runtime or log is set up: the launcher refuses to work with
/// more than one thread.
pub fn launcher_main_if_requested() {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == LAUNCH_ARGUMENT) {
        launcher_main();
    }
}

/// Runs the launcher on the control socket that is descriptor 0. For programs that recognise by other means than
/// [`LAUNCH_ARGUMENT`] that they are the launcher.
pub fn launcher_main() -> ! {
    exit(run(Layers::ALL))
}

/// As [`launcher_main`], but without one layer of the sandbox, or without several whose names `+` joins: for tests that see
/// whether anything notices. Ends with a failure if there is no such layer.
#[cfg(feature = "mutation")]
pub fn launcher_main_without(layers: &str) -> ! {
    exit(Layers::without(layers).map_or(EXIT_USAGE, run))
}

/// As [`launcher_main_without`], but the probe has all layers: what a machine that changes after the probe would be.
#[cfg(feature = "mutation")]
pub fn launcher_main_without_after_probe(layers: &str) -> ! {
    exit(Layers::without(layers).map_or(EXIT_USAGE, |layers| run(layers.after_probe())))
}

/// What [`launcher_main_without`] can leave out.
#[cfg(feature = "mutation")]
pub fn layer_names() -> impl Iterator<Item = &'static str> {
    Layers::NAMES.iter().map(|(name, _)| *name)
}

/// As [`launcher_main`], on a kernel whose Landlock is taken to be no newer than `abi`: for tests of older machines.
#[cfg(feature = "mutation")]
pub fn launcher_main_with_landlock(abi: u8) -> ! {
    confine::cap_landlock(abi);
    exit(run(Layers::ALL))
}

fn run(layers: Layers) -> i32 {
    if socket_type(stdin()) != Ok(SocketType::STREAM) {
        let text = format!("plugward: `{LAUNCH_ARGUMENT}` is for plugward's own use; run `plugward help`\n");
        let _best_effort = rustix::io::write(stderr(), text.as_bytes());
        return EXIT_USAGE;
    }
    let control = match take_descriptors(layers) {
        Ok(control) => control,
        Err(failure) => return report_failure(stdin(), &failure),
    };
    match prepare_and_start(&control, layers) {
        Ok(Some((signals, started, kill_after))) => {
            let Started { child, main, reports, limits, watch, group, observer, _canaries, .. } = started;
            let watch = watch.map(|watch| watch.spare_above(getpid().as_raw_nonzero().get(), main));
            let supervision = Supervision::new(control, signals, child, main, reports, kill_after);
            supervision.with_limits(limits, watch, group).observed_by(observer).run();
            EXIT_DONE
        }
        // The host left before it said what to start.
        Ok(None) => EXIT_DONE,
        Err(failure) => report_failure(control.as_fd(), &failure),
    }
}

fn report_failure(control: BorrowedFd<'_>, failure: &Failure) -> i32 {
    // A host that cannot be told has left; there is nothing to clean up before the plugin runs.
    let _host_left = channel::send_short(control, &Record::Failed(*failure).encode());
    EXIT_FAILED
}

/// Leaves the control socket, out of the way of descriptors 0 to 2, as the only open descriptor.
fn take_descriptors(layers: Layers) -> Result<OwnedFd, Failure> {
    if layers.has(Layers::DESCRIPTORS) {
        close_other_descriptors().map_err(Failure::at(Step::Descriptors))?;
    }
    let control = fcntl_dupfd_cloexec(stdin(), FIRST_OTHER_DESCRIPTOR).map_err(Failure::at(Step::Descriptors))?;
    let null = File::options().read(true).write(true).open("/dev/null").map_err(Failure::at(Step::Descriptors))?;
    dup2_stdin(&null).map_err(Failure::at(Step::Descriptors))?;
    dup2_stdout(&null).map_err(Failure::at(Step::Descriptors))?;
    dup2_stderr(&null).map_err(Failure::at(Step::Descriptors))?;
    Ok(control)
}

/// Closes what the host's own starter leaked into the host, so that the plugin cannot find it.
fn close_other_descriptors() -> io::Result<()> {
    #[allow(unsafe_code, reason = "close_range has no safe wrapper")]
    // SAFETY: this is the only thread and nothing in this process has opened a descriptor yet, so none that some value
    // owns is closed under it.
    let result = unsafe { libc::syscall(libc::SYS_close_range, FIRST_OTHER_DESCRIPTOR, libc::c_uint::MAX, 0) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::ENOSYS) {
        return Err(error);
    }
    // Kernels before 5.9. The list is complete before the first descriptor is closed, and so is its own directory.
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|descriptor| *descriptor >= FIRST_OTHER_DESCRIPTOR)
        .collect();
    for descriptor in open {
        #[allow(unsafe_code, reason = "closing descriptors by number")]
        // SAFETY: as above; the descriptor of the listing itself is closed already and fails harmlessly.
        unsafe {
            libc::close(descriptor);
        }
    }
    Ok(())
}

/// A plugin that runs, as the launcher knows it.
struct Started {
    /// The launcher's child: the plugin's main process, or the first process of its namespaces.
    child: Pid,
    /// Where that first process reports, if there is one.
    reports: Option<OwnedFd>,
    /// Id of the main process for the host.
    main: i32,
    applied: Applied,
    /// Sockets for the host, if hosts are listed.
    listeners: Vec<OwnedFd>,
    /// Its limits, if it has a sandbox.
    limits: Option<Limits>,
    /// Those the launcher keeps.
    watch: Option<Watch>,
    /// The plugin's control group, if it has one.
    group: Option<Group>,
    /// Who watches it, in a trial.
    observer: Option<Observer>,
    /// What the witness tries to reach; it goes when the launcher does.
    _canaries: Option<Canaries>,
}

type Prepared = (SignalEvents, Started, Duration);

fn prepare_and_start(control: &OwnedFd, layers: Layers) -> Result<Option<Prepared>, Failure> {
    refuse_more_threads()?;
    setsid().map_err(Failure::at(Step::Session))?;
    set_child_subreaper(Some(getpid())).map_err(Failure::at(Step::Session))?;
    // A plugin of the same user can stop its launcher. The end of the host then has to wake it up, so that it sees what
    // happened. A single thread of the host ending sends the signal too, which does no harm.
    set_parent_process_death_signal(Some(Signal::CONT)).map_err(Failure::at(Step::Session))?;
    // The name is for people who look at process lists; without it the launcher works all the same.
    let _unnamed = set_name(PROCESS_NAME);
    // The specification may hold secrets: no other process of this user may read the launcher's memory.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Failure::at(Step::Privileges))?;
    if layers.has(Layers::NO_NEW_PRIVILEGES) {
        set_no_new_privs(true).map_err(Failure::at(Step::Privileges))?;
    }
    let signals = SignalEvents::take_over().map_err(Failure::at(Step::Signals))?;

    let Some(received) = receive_spec(control)? else { return Ok(None) };
    let layers = layers.of(received.errand.purpose);
    if received.errand.route == Route::InsideBwrap {
        jail::bwrap::inside(control, &received.spec, received.errand, received.stdio, layers);
    }
    let kill_after = received.spec.stop.kill_after;
    let mut started = start(received, layers)?;
    hand_over(control, &started.listeners);
    // No copy stays here: what the host closes is closed.
    started.listeners.clear();
    // The launcher must not keep a file system busy; a missing root directory is no reason to end the plugin.
    let _busy = std::env::set_current_dir("/");
    // If the host has left by now, the supervision sees it at once and ends the tree.
    let record = Record::Started { pid: started.main, applied: started.applied };
    let _host_left = channel::send_short(control.as_fd(), &record.encode());
    Ok(Some((signals, started, kill_after)))
}

/// Gives the sockets of a plugin with listed hosts to the host.
fn hand_over(control: &OwnedFd, listeners: &[OwnedFd]) {
    if listeners.is_empty() {
        return;
    }
    let descriptors: Vec<BorrowedFd<'_>> = listeners.iter().map(AsFd::as_fd).collect();
    let record = Record::Listening { count: u32::try_from(listeners.len()).unwrap_or(u32::MAX) };
    let deadline = Instant::now() + HAND_OVER_LIMIT;
    // A host that cannot be told has left or gives up on this start; the supervision sees either.
    let _host_left = channel::send_with_descriptors(control.as_fd(), &record.encode(), &descriptors, deadline);
}

/// Starts the plugin at the level asked for, or the witness in its place.
fn start(received: ReceivedSpec, layers: Layers) -> Result<Started, Failure> {
    let ReceivedSpec { spec, errand, stdio, notebook } = received;
    let Errand { purpose, route, .. } = errand;
    let Some(sandbox) = spec.sandbox.as_ref().filter(|sandbox| sandbox.level != Level::None) else {
        std::env::set_current_dir(&spec.cwd).map_err(Failure::at(Step::Cwd))?;
        let child = child::start(&spec, stdio, Confinement::default(), Task::Plugin)?;
        let main = child.as_raw_nonzero().get();
        return Ok(Started {
            child,
            reports: None,
            main,
            applied: Applied::default(),
            listeners: Vec::new(),
            limits: None,
            watch: None,
            group: None,
            observer: None,
            _canaries: None,
        });
    };
    settle_user(sandbox, &stdio)?;
    let (watch, watched) = if layers.has(Layers::LIMITS) { watch(sandbox)? } else { (None, Applied::default()) };
    errand.refuse_fewer_layers(watched, Applied::FROM_OUTSIDE)?;
    let watch = if purpose == Purpose::Witness { watch.map(Watch::of_witness) } else { watch };
    let (canaries, task) = match purpose {
        Purpose::Plugin | Purpose::Trial => (None, Task::Plugin),
        Purpose::Witness => {
            let canaries = Canaries::open(sandbox).map_err(Failure::at(Step::Canary))?;
            let attempts = canaries.attempts(sandbox);
            (Some(canaries), Task::Witness(Box::new(move || attempts.run())))
        }
    };
    // At level `limited` a plugin could leave it again.
    let group =
        (layers.has(Layers::LIMITS) && sandbox.level >= Level::Partial).then(|| group(sandbox, route)).flatten();
    let watched = watched.with_if(group.is_some(), Applied::CGROUP);
    let watched = watched.with_if(group.as_ref().is_some_and(Group::has_cpu_share), Applied::CPU_SHARE);
    let limits = Some(sandbox.limits);
    let launch = Launch { spec: &spec, sandbox, errand, layers };
    if sandbox.level == Level::Full {
        let jailed = match route {
            Route::Native => jail::start(launch, stdio, task, group.as_ref(), notebook),
            _ => jail::bwrap::start(launch, &stdio, canaries.as_ref(), group.as_ref()),
        };
        let jailed = jailed.inspect_err(|_| group.iter().for_each(Group::remove))?;
        let jail::Jailed { init, main, reports, applied, listeners, observer } = jailed;
        let (reports, applied) = (Some(reports), applied.with(watched));
        let _canaries = canaries;
        let watch = watch.map(|watch| watch.with_bounds(Bounds::new(sandbox, applied, main)));
        let child = init;
        return Ok(Started { child, reports, main, applied, listeners, limits, watch, group, observer, _canaries });
    }
    let placed = in_place::start(launch, stdio, task, group.as_ref());
    let (child, applied) = placed.inspect_err(|_| group.iter().for_each(Group::remove))?;
    let (main, applied) = (child.as_raw_nonzero().get(), applied.with(watched));
    let (listeners, _canaries) = (Vec::new(), canaries);
    let watch = watch.map(|watch| watch.with_bounds(Bounds::new(sandbox, applied, main)));
    Ok(Started { child, reports: None, main, applied, listeners, limits, watch, group, observer: None, _canaries })
}

/// A control group for the plugin, where the host has some to give. Where it has not, or the system refuses in the end, the
/// limits are kept by other means, and the report says which.
fn group(sandbox: &SandboxSpec, route: Route) -> Option<Group> {
    let overhead = match route {
        _ if sandbox.level != Level::Full => 0,
        // The first process of the namespaces.
        Route::Native => 1,
        // That one, and bubblewrap's own outside of them.
        Route::Bwrap | Route::InsideBwrap => 2,
    };
    cgroup::of_host().ok()?.make(&sandbox.limits, overhead).ok()
}

/// Prepares the limits that no layer keeps.
fn watch(sandbox: &SandboxSpec) -> Result<(Option<Watch>, Applied), Failure> {
    let limits = &sandbox.limits;
    let home = sandbox.home_dir.as_deref().filter(|_| limits.disk_bytes.is_some());
    let home = home.map(Measured::open).transpose().map_err(Failure::about(Step::Writable, 0))?;
    let applied = Applied::default()
        .with_if(limits.memory_bytes.is_some(), Applied::MEMORY_WATCH)
        .with_if(home.is_some(), Applied::DISK_WATCH);
    Ok((Some(Watch::new(sandbox, home)), applied))
}

/// Root in a sandbox is still the owner of root's files, so a host that runs as root names another user, who then gets the
/// plugin's home, its package where that is read-only to it, and its pipes. Only root can do that.
fn settle_user(sandbox: &SandboxSpec, stdio: &[OwnedFd]) -> Result<(), Failure> {
    match (confine::target(sandbox.user), geteuid().is_root()) {
        (None, false) => Ok(()),
        (Some((uid, gid)), true) => {
            let package = sandbox.package_dir.iter().filter(|_| sandbox.level == Level::Full);
            for path in package {
                ownership::hand_over(path, uid, gid).map_err(Failure::about(Step::Granted, 0))?;
            }
            if let Some(path) = &sandbox.home_dir {
                ownership::hand_over(path, uid, gid).map_err(Failure::about(Step::Writable, 0))?;
            }
            // Programs open `/dev/stdout` and the like, which asks for the owner of the pipe.
            for pipe in stdio {
                fchown(pipe, Some(uid), Some(gid)).map_err(Failure::at(Step::User))?;
            }
            Ok(())
        }
        _ => Err(Failure::at(Step::User)(Errno::PERM)),
    }
}

/// A second thread could hold a lock across the fork, or escape layers that hold for one thread only.
fn refuse_more_threads() -> Result<(), Failure> {
    let threads = std::fs::read_dir("/proc/self/task").map_err(Failure::at(Step::Threads))?.count();
    if threads == 1 { Ok(()) } else { Err(Failure::at(Step::Threads)(Errno::OPNOTSUPP)) }
}

/// What is to be started, and under which layers.
#[derive(Clone, Copy)]
pub(super) struct Launch<'a> {
    pub(super) spec: &'a LaunchSpec,
    pub(super) sandbox: &'a SandboxSpec,
    pub(super) errand: Errand,
    pub(super) layers: Layers,
}

/// What the host has sent.
struct ReceivedSpec {
    spec: LaunchSpec,
    errand: Errand,
    stdio: [OwnedFd; channel::PASSED_DESCRIPTORS],
    /// Where to write down what the plugin of a trial wanted.
    notebook: Option<OwnedFd>,
}

fn receive_spec(control: &OwnedFd) -> Result<Option<ReceivedSpec>, Failure> {
    const MALFORMED: Failure = Failure { step: Step::Spec, errno: 0, subject: 0 };
    let malformed = |_| MALFORMED;
    let mut descriptors = Vec::new();
    let mut receive = |buffer: &mut [u8]| {
        channel::receive_exact(control.as_fd(), buffer, &mut descriptors).map_err(Failure::at(Step::Spec))
    };
    let mut header = [0; wire::HEADER_BYTES];
    if !receive(&mut header)? {
        return Ok(None);
    }
    let mut body = vec![0; wire::spec_length(header).map_err(malformed)?];
    if !receive(&mut body)? {
        return Ok(None);
    }
    let (spec, errand) = wire::decode_spec(&body).map_err(malformed)?;
    let notebook = (errand.purpose == Purpose::Trial).then(|| descriptors.pop().ok_or(MALFORMED)).transpose()?;
    let stdio = descriptors.try_into().map_err(|_| MALFORMED)?;
    Ok(Some(ReceivedSpec { spec, errand, stdio, notebook }))
}
