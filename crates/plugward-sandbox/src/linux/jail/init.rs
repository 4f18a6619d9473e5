//! The first process of a plugin's namespaces.
//!
//! Owns the order of steps from the new namespaces to the running plugin, and afterwards collecting every process that
//! ends there. Refuses returning into the launcher's code, and outliving the launcher or the last process of the plugin.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    process::exit,
    time::{Duration, Instant},
};

use rustix::{
    event::PollFlags,
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    process::{
        DumpableBehavior, Gid, Pid, Signal, Uid, getegid, geteuid, set_dumpable_behavior,
        set_parent_process_death_signal, umask,
    },
    system::sethostname,
    thread::set_name,
};

use super::{
    GO,
    etc::{HOST_NAME, Identity},
    files::{self, OWN_PLACES, Prepared},
    loopback,
};
use crate::{
    LaunchSpec, Limits, ListedHosts, Network, SandboxSpec,
    enforcement::Applied,
    linux::{
        channel,
        child::{self, Task},
        collect::{self, Patience},
        confine::{self, Access, Confinement, ProcessCount},
        failure::{Failure, Step},
        launch::Launch,
        layers::Layers,
        sources::Sources,
        wire::Record,
    },
};

/// First descriptor that is not standard input, output or error.
const FIRST_OTHER_DESCRIPTOR: i32 = 3;
/// Name in process lists; the kernel keeps 15 bytes.
const PROCESS_NAME: &std::ffi::CStr = c"plugward-init";
/// Longest wait for room in the channel to the launcher, which is empty at that time.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(5);
/// Files a plugin makes are its user's alone.
pub(super) const PLUGIN_UMASK: u32 = 0o077;

/// Everything the first process is given.
pub(super) struct Start<'a> {
    pub(super) launch: Launch<'a>,
    pub(super) stdio: [OwnedFd; channel::PASSED_DESCRIPTORS],
    pub(super) task: Task,
    pub(super) reports: OwnedFd,
    /// The user to become, if it is not the launcher's.
    pub(super) target: Option<(Uid, Gid)>,
    /// Where the plugin's observer waits for it, in a trial.
    pub(super) observed: Option<OwnedFd>,
}

/// Runs to the end of the plugin and ends this process.
pub(super) fn run(start: Start<'_>) -> ! {
    let others = [&start.reports].into_iter().chain(&start.observed);
    let kept: Vec<i32> = start.stdio.iter().chain(others).map(AsRawFd::as_raw_fd).collect();
    // The launcher's control socket is among what is closed: a copy of it here would hide the launcher's end.
    let closed = if start.launch.layers.has(Layers::INNER_DESCRIPTORS) { close_all_but(kept) } else { Ok(()) };
    let closed = closed.map_err(Failure::at(Step::Descriptors));
    // This copy keeps the channel open for the report whatever happens to the values below.
    let Ok(reports) = start.reports.try_clone() else { exit(1) };
    let limits = start.launch.sandbox.limits;
    match closed.and_then(|()| prepare_and_start(start)) {
        Ok((main, applied)) => {
            let _launcher_left = channel::send_short(reports.as_fd(), &Record::Started { pid: 0, applied }.encode());
            collect_until_all_ended(main, &limits, reports.as_fd());
            exit(0)
        }
        Err(failure) => {
            let _launcher_left = channel::send_short(reports.as_fd(), &Record::Failed(failure).encode());
            exit(1)
        }
    }
}

fn prepare_and_start(start: Start<'_>) -> Result<(Pid, Applied), Failure> {
    let Start { launch, stdio, task, reports, target, observed } = start;
    let Launch { spec, sandbox, errand, layers } = launch;
    end_with_launcher()?;
    wait_for_go(&reports)?;
    let _unnamed = set_name(PROCESS_NAME);
    confine::put_first_out_of_memory("self")?;
    // Opened by the launcher's user, whose files they are.
    let prepared = Prepared::open(Sources::open(spec, sandbox)?, &sandbox.network)?;
    if let Some((uid, gid)) = target {
        confine::become_user(uid, gid)?;
    }
    if let Network::Hosts(listed) = &sandbox.network {
        hand_over_listeners(listed, &reports)?;
    }
    // The specification is in memory here, and the plugin must not read more of it than it was given.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Failure::at(Step::Privileges))?;

    let identity = Identity { uid: geteuid().as_raw(), gid: getegid().as_raw(), home: home(spec) };
    umask(Mode::from_raw_mode(0o022));
    let has_files = layers.has(Layers::FILES);
    let has_proc = has_files && files::enter(&prepared, sandbox, &identity, layers)?.has_proc;
    umask(Mode::from_raw_mode(PLUGIN_UMASK));
    if layers.has(Layers::NAMES_SPACE) {
        sethostname(HOST_NAME.as_bytes()).map_err(Failure::at(Step::HostName))?;
    }
    std::env::set_current_dir(&spec.cwd).map_err(Failure::at(Step::Cwd))?;

    let confinement = confinement(&prepared, sandbox, layers)?.observed_by(observed);
    let applied = confinement
        .applied()
        .with_if(has_files, Applied::MOUNTS)
        .with_if(has_proc, Applied::PROC)
        .with_if(layers.has(Layers::PROCESSES), Applied::PROCESSES)
        .with_if(layers.has(Layers::NETWORK) && sandbox.network != Network::Open, Applied::NETWORK)
        .with_if(target.is_some(), Applied::OWN_USER);
    drop(prepared);
    // A change of user takes back what was asked for above.
    end_with_launcher()?;
    launcher_is_there(&reports)?;
    errand.refuse_fewer_layers(applied, Applied::FROM_INSIDE)?;
    let main = child::start(spec, stdio, confinement, task)?;
    if layers.has(Layers::CAPABILITIES) {
        confine::drop_capabilities()?;
        end_with_launcher()?;
    }
    Ok((main, applied))
}

/// What the plugin puts on itself, with rules for the new tree.
pub(super) fn confinement(prepared: &Prepared, sandbox: &SandboxSpec, layers: Layers) -> Result<Confinement, Failure> {
    // This process counts in the namespace too.
    let confinement = Confinement::prepare(sandbox, ProcessCount::Own { overhead: 1 }, layers);
    if !layers.has(Layers::LANDLOCK) {
        return Ok(confinement);
    }
    let mut own = Vec::new();
    let devices = files::DEVICES.iter().map(|(name, ..)| (Path::new("/dev").join(name), Access::Device));
    for (path, access) in OWN_PLACES.iter().map(|(path, access)| (path.into(), *access)).chain(devices) {
        match openat(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(opened) => own.push((opened, access)),
            // `/proc` may not be there.
            Err(Errno::NOENT) => {}
            Err(error) => return Err(Failure::at(Step::Landlock)(error)),
        }
    }
    // A rule is about a file, by whatever mount it is reached, so what was opened outside serves inside.
    let declared = prepared.sources.opened.iter().map(|source| (source.position, &source.opened, source.access));
    let rules = declared.chain(own.iter().map(|(opened, access)| (0, opened, *access)));
    // The tree is closed by itself; a kernel without Landlock loses a second layer, and the report says so.
    confinement.with_landlock(&sandbox.network, rules, 0, layers)
}

/// Opens the sockets of a plugin with listed hosts and gives them away. No copy stays here: what the host closes is closed.
fn hand_over_listeners(listed: &ListedHosts, reports: &OwnedFd) -> Result<(), Failure> {
    let sockets = loopback::open(listed).map_err(Failure::at(Step::OwnNetwork))?;
    let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    let record = Record::Listening { count: u32::try_from(sockets.len()).unwrap_or(u32::MAX) };
    if descriptors.is_empty() {
        return channel::send_short(reports.as_fd(), &record.encode()).map_err(Failure::at(Step::OwnNetwork));
    }
    channel::send_with_descriptors(reports.as_fd(), &record.encode(), &descriptors, Instant::now() + HAND_OVER_LIMIT)
        .map_err(Failure::at(Step::OwnNetwork))
}

/// The user's folder as the plugin will see it in its environment.
pub(super) fn home(spec: &LaunchSpec) -> &std::ffi::OsStr {
    spec.env.iter().find(|(name, _)| name == "HOME").map_or("/tmp".as_ref(), |(_, value)| value.as_os_str())
}

/// The kernel ends this process, and with it the namespace, when the launcher ends.
pub(super) fn end_with_launcher() -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(Failure::at(Step::Session))
}

fn wait_for_go(reports: &OwnedFd) -> Result<(), Failure> {
    let mut go = [0];
    let received = channel::receive_exact(reports.as_fd(), &mut go, &mut Vec::new());
    match received.map_err(Failure::at(Step::IdMap))? {
        true if go == [GO] => Ok(()),
        _ => Err(Failure::at(Step::IdMap)(Errno::CONNRESET)),
    }
}

/// The launcher may have ended before the kernel was told to watch it.
pub(super) fn launcher_is_there(reports: &OwnedFd) -> Result<(), Failure> {
    let now = Some(Instant::now());
    match channel::wait_until(reports.as_fd(), PollFlags::IN, now) {
        // It sends nothing at this time, so anything to read is its end.
        Ok(()) => Err(Failure::at(Step::Session)(Errno::CONNRESET)),
        Err(_) => Ok(()),
    }
}

/// Collects processes until none is left, and reports the end of the main one. Requests to terminate reach the plugin
/// from the launcher, which sees all of its processes; here they are blocked.
pub(super) fn collect_until_all_ended(main: Pid, limits: &Limits, reports: BorrowedFd<'_>) {
    let tell = |record: Record| {
        let _launcher_left = channel::send_short(reports, &record.encode());
    };
    loop {
        match collect::next(Patience::Wait) {
            Ok(Some(ended)) if ended.pid == main => {
                ended.exceeded(limits).map(Record::from).into_iter().for_each(tell);
                tell(Record::MainExit(ended.end));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Closes every descriptor from the first one that is not standard, except those kept.
fn close_all_but(mut kept: Vec<i32>) -> std::io::Result<()> {
    kept.sort_unstable();
    let mut from = FIRST_OTHER_DESCRIPTOR;
    for next in kept.into_iter().map(Some).chain([None]) {
        let to = next.map_or(libc::c_uint::MAX, |next| u32::try_from(next - 1).unwrap_or(0));
        if u32::try_from(from).is_ok_and(|from| from <= to) {
            #[allow(unsafe_code, reason = "close_range has no safe wrapper")]
            // SAFETY: this process has just been made and never returns into the code whose values own the closed
            // descriptors; it ends without dropping them.
            let result = unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
            if result != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        from = next.map_or(from, |next| next + 1);
    }
    Ok(())
}
