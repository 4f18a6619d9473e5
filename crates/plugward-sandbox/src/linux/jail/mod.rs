//! Level `full`: the plugin in namespaces of its own, below a first process that is ours.
//!
//! Owns the launcher's part: making the first process, mapping its user, handing over what it needs and learning whether it
//! succeeded. The first process's own part is in [`init`], its file tree in [`files`]. Refuses ending with a first process
//! that has not reported a running plugin.
//!
//! ```text
//! launcher  --clone(user, process, mount, network, ipc, host name)-->  first process  --fork, exec-->  plugin
//!    |                                                                     |
//!    +----------------- go, records: started or failed, exit --------------+
//! ```

pub(super) mod bwrap;
mod etc;
mod files;
mod init;
mod loopback;

use std::{
    fs,
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::{
        DumpableBehavior, Pid, Signal, WaitOptions, getegid, geteuid, kill_process, set_dumpable_behavior, waitpid,
    },
    thread::set_thread_groups,
};

use super::{
    cgroup::Group,
    channel,
    child::Task,
    confine,
    failure::{Failure, Step},
    launch::Launch,
    layers::Layers,
    observe::{self, Observer},
    tree,
    wire::{RECORD_BYTES, Record},
};
use crate::{SandboxSpec, enforcement::Applied};

/// The byte that lets the first process begin once its user is mapped.
const GO: u8 = b'G';
/// Id of the plugin's main process inside: the second one there.
const MAIN_INSIDE: &str = "2";

/// A plugin that runs in namespaces.
pub(super) struct Jailed {
    /// The first process, a child of the launcher.
    pub(super) init: Pid,
    /// The plugin's main process as seen from the host.
    pub(super) main: i32,
    /// Where the first process reports.
    pub(super) reports: OwnedFd,
    pub(super) applied: Applied,
    /// Sockets for the host, if hosts are listed.
    pub(super) listeners: Vec<OwnedFd>,
    pub(super) observer: Option<Observer>,
}

/// Starts the plugin (or what stands in for it) in namespaces of its own; with a notebook, under observation.
pub(super) fn start(
    launch: Launch<'_>,
    stdio: [OwnedFd; channel::PASSED_DESCRIPTORS],
    task: Task,
    group: Option<&Group>,
    notebook: Option<OwnedFd>,
) -> Result<Jailed, Failure> {
    let Launch { sandbox, layers, .. } = launch;
    if !layers.has(Layers::PERMISSION) {
        return Err(Failure::at(Step::Namespaces)(Errno::PERM));
    }
    let (reports, inner) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(Failure::at(Step::Namespaces))?;
    let observed = notebook.map(Observer::new).transpose().map_err(Failure::at(Step::Observer))?;
    let (mut observer, observed) = observed.unzip();
    let target = confine::target(sandbox.user).filter(|_| layers.has(Layers::USER));
    let (uid, gid) = target.unwrap_or_else(|| (geteuid(), getegid()));
    if target.is_some() {
        // Groups cannot be changed any more once they are mapped, and root's are worth something.
        set_thread_groups(&[]).map_err(Failure::at(Step::User))?;
    }
    // The kernel gives the files that take the map to the user only while the process can be inspected by that user.
    set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(Failure::at(Step::Privileges))?;
    let cloned = clone_into_namespaces(namespaces(sandbox, layers));
    if matches!(cloned, Ok(None)) {
        drop(reports);
        init::run(init::Start { launch, stdio, task, reports: inner, target, observed });
    }
    let undumpable = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let Some(init) = cloned.map_err(Failure::at(Step::Namespaces))? else {
        return Err(Failure::at(Step::Namespaces)(Errno::CHILD));
    };
    drop((inner, stdio, task, observed));
    let result = undumpable
        .map_err(Failure::at(Step::Privileges))
        .and_then(|()| map_user(init, uid.as_raw(), gid.as_raw()).map_err(Failure::at(Step::IdMap)))
        // Before it does anything, so that all it starts is in the group too.
        .and_then(|()| {
            group.map_or(Ok(()), |group| group.add(init.as_raw_nonzero().get())).map_err(Failure::at(Step::Limits))
        })
        .and_then(|()| channel::send_short(reports.as_fd(), &[GO]).map_err(Failure::at(Step::IdMap)))
        .and_then(|()| await_start(&reports, observer.as_mut()));
    match result {
        Ok((applied, listeners)) => {
            Ok(Jailed { init, main: main_from_outside(init), reports, applied, listeners, observer })
        }
        Err(failure) => {
            // Whatever it was doing, the kernel ends all of its namespace with it.
            let _ended = kill_process(init, Signal::KILL);
            let _collected = waitpid(Some(init), WaitOptions::empty());
            Err(failure)
        }
    }
}

fn namespaces(sandbox: &SandboxSpec, layers: Layers) -> libc::c_int {
    let mut flags = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
    let optional = [
        (layers.has(Layers::PROCESSES), libc::CLONE_NEWPID),
        (layers.has(Layers::IPC), libc::CLONE_NEWIPC),
        (layers.has(Layers::NAMES_SPACE), libc::CLONE_NEWUTS),
        (layers.has(Layers::NETWORK) && sandbox.network != crate::Network::Open, libc::CLONE_NEWNET),
    ];
    flags |= optional.iter().filter(|(wanted, _)| *wanted).fold(0, |all, (_, flag)| all | flag);
    flags
}

/// Like `fork`, into new namespaces: `None` in the new process.
fn clone_into_namespaces(flags: libc::c_int) -> io::Result<Option<Pid>> {
    #[allow(unsafe_code, reason = "clone into namespaces has no safe wrapper")]
    // SAFETY: without a stack and without shared memory this is a fork. The launcher has a single thread, so no lock is
    // held by a thread that does not exist in the new process.
    let result = unsafe { libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD, 0_usize, 0_usize, 0_usize, 0_usize) };
    match i32::try_from(result) {
        Ok(0) => Ok(None),
        Ok(pid) if pid > 0 => Ok(Pid::from_raw(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the first process one user and one group, by the numbers they have outside.
fn map_user(init: Pid, uid: u32, gid: u32) -> io::Result<()> {
    let folder = format!("/proc/{}", init.as_raw_nonzero());
    // An unprivileged map of groups takes this; and groups have been settled before in every case.
    fs::write(format!("{folder}/setgroups"), "deny")?;
    fs::write(format!("{folder}/gid_map"), format!("{gid} {gid} 1"))?;
    fs::write(format!("{folder}/uid_map"), format!("{uid} {uid} 1"))
}

/// Waits for the first process's word. The host's own limit on a start bounds this. The execution of the plugin is a call
/// that waits for its observer.
fn await_start(reports: &OwnedFd, mut observer: Option<&mut Observer>) -> Result<(Applied, Vec<OwnedFd>), Failure> {
    let mut listeners = Vec::new();
    loop {
        if let Some(observer) = observer.as_deref_mut() {
            observe::wait_serving(reports.as_fd(), observer).map_err(Failure::at(Step::Observer))?;
        }
        let mut record = [0; RECORD_BYTES];
        let received = channel::receive_exact(reports.as_fd(), &mut record, &mut listeners);
        if !received.map_err(Failure::at(Step::Namespaces))? {
            return Err(Failure::at(Step::Namespaces)(Errno::CONNRESET));
        }
        match Record::decode(record) {
            Ok(Record::Listening { count }) if usize::try_from(count) == Ok(listeners.len()) => {}
            Ok(Record::Started { applied, .. }) => return Ok((applied, listeners)),
            Ok(Record::Failed(failure)) => return Err(failure),
            _ => return Err(Failure::at(Step::Namespaces)(Errno::BADMSG)),
        }
    }
}

/// The main process's id on the host, where it has another number than inside.
fn main_from_outside(init: Pid) -> i32 {
    let init = init.as_raw_nonzero().get();
    let is_main = |pid: &i32| {
        let mut status = String::new();
        let read =
            fs::File::open(format!("/proc/{pid}/status")).and_then(|file| file.take(8192).read_to_string(&mut status));
        let inside = || status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().last();
        read.is_ok() && inside() == Some(MAIN_INSIDE)
    };
    // It may have ended by now; the first process then stands for it in displays.
    tree::descendants(init).unwrap_or_default().iter().find(|pid| is_main(pid)).copied().unwrap_or(init)
}
