//! Level `full` where this program may make no user namespace and bubblewrap may.
//!
//! Owns the launcher's part: what bubblewrap is told to mount, starting it, and handing the specification to the second
//! stage inside, which is this program again (in [`inside`](mod@inside)). Refuses names for what is mounted: bubblewrap gets open
//! descriptors; and refuses writable paths around or inside others, where it would follow links that a plugin has planted.
//!
//! ```text
//! launcher  --exec-->  bwrap  --clone, mounts, exec-->  second stage (process 1)  --fork, exec-->  plugin
//!    |                                                      |
//!    +------------ specification; started or failed, exit --+
//! ```

mod inside;
mod program;

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{Read, Seek, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::{Errno, FdFlags, fcntl_setfd},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, getegid, geteuid},
    thread::set_thread_groups,
};

pub(in crate::linux) use inside::run as inside;
use program::OwnProgram;

use super::{
    Jailed, await_start,
    etc::{self, HOST_NAME, Identity},
    files::{DEVICE_LINKS, DEVICES, Prepared},
    init, main_from_outside,
};
use crate::{
    BWRAP, LaunchSpec, Network, SandboxSpec,
    enforcement::Applied,
    linux::{
        cgroup::Group,
        channel,
        confine::{self, Access, MINIMUM_ABI, kernel_abi},
        failure::{Failure, Step},
        launch::Launch,
        signals,
        sources::Sources,
        wire::{self, Errand, Route},
        witness::Canaries,
    },
};

/// Longest wait for the second stage to take its specification; it takes milliseconds, and the host's own limit on a start
/// is longer.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(10);
/// Most of bubblewrap's complaint that is read; it writes one line.
const MAX_COMPLAINT_BYTES: u64 = 4096;

/// Starts the plugin, or the witness in its place, through bubblewrap.
pub(in crate::linux) fn start(
    launch: Launch<'_>,
    stdio: &[OwnedFd; channel::PASSED_DESCRIPTORS],
    canaries: Option<&Canaries>,
    group: Option<&Group>,
) -> Result<Jailed, Failure> {
    let Launch { spec, sandbox, .. } = launch;
    let failed = Failure::at::<Errno>(Step::Bwrap);
    // Bubblewrap mounts nothing `noexec`, so Landlock is what keeps data from being executed.
    if kernel_abi() < MINIMUM_ABI {
        return Err(Failure::at(Step::LandlockVersion)(Errno::OPNOTSUPP));
    }
    if !matches!(sandbox.network, Network::Off | Network::Open) {
        // What listens for the hosts is made with capabilities that nothing has in the second stage.
        return Err(Failure::at(Step::BwrapHosts)(Errno::OPNOTSUPP));
    }
    let prepared = Prepared::open(Sources::open(spec, sandbox)?, &sandbox.network)?;
    refuse_nested(&prepared.sources)?;
    let own = OwnProgram::open().map_err(Failure::at(Step::Bwrap))?;
    let target = confine::target(sandbox.user);
    let (uid, gid) = target.unwrap_or_else(|| (geteuid(), getegid()));
    let identity = Identity { uid: uid.as_raw(), gid: gid.as_raw(), home: init::home(spec) };
    let files = system_files(&prepared, &identity).map_err(Failure::at(Step::SystemFiles))?;
    let mut passed: Vec<i32> = own.descriptors().collect();
    passed.extend(files.iter().map(|(_, file)| file.as_raw_fd()));
    passed.extend(prepared.sources.opened.iter().map(|source| source.opened.as_raw_fd()));

    let mut arguments = namespaces(&sandbox.network);
    arguments.extend(mounts(&prepared, sandbox, &files));
    arguments.push("--".into());
    arguments.extend(own.command());

    let (reports, inner) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(failed)?;
    let (complaint, complaints) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(failed)?;
    let entrance = group.map(Group::entrance).transpose().map_err(Failure::at(Step::Limits))?;
    let mut command = Command::new(BWRAP);
    command.args(arguments).env_clear().current_dir("/").stdout(Stdio::null());
    command.stdin(Stdio::from(inner)).stderr(Stdio::from(complaints));
    #[allow(unsafe_code, reason = "the last preparations happen between fork and exec")]
    // SAFETY: this process has a single thread; the closure makes system calls only and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            // A request to terminate is for the plugin; it would end bubblewrap, and all inside with it, at once.
            signals::block_all()?;
            // Before there is a second process, so that all of them are in the group.
            if let Some(entrance) = &entrance {
                rustix::io::write(entrance, b"0")?;
            }
            for descriptor in &passed {
                fcntl_setfd(rustix::fd::BorrowedFd::borrow_raw(*descriptor), FdFlags::empty())?;
            }
            if let Some((uid, gid)) = target {
                set_thread_groups(&[])?;
                rustix::thread::set_thread_res_gid(gid, gid, gid)?;
                rustix::thread::set_thread_res_uid(uid, uid, uid)?;
            }
            Ok(())
        });
    }
    let mut child = command.spawn().map_err(Failure::at(Step::Bwrap))?;
    // What bubblewrap holds of these would keep the channels open here.
    drop(command);
    let started = hand_over(&reports, launch, stdio, canaries).and_then(|()| await_start(&reports, None));
    match started {
        Ok((applied, listeners)) => {
            let init = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(failed(Errno::SRCH))?;
            let applied = applied.with(Applied::BWRAP).with_if(target.is_some(), Applied::OWN_USER);
            Ok(Jailed { init, main: main_from_outside(init), reports, applied, listeners, observer: None })
        }
        Err(failure) => Err(explained(&mut child, complaint, failure)),
    }
}

/// Sends the second stage what a launcher gets from its host.
fn hand_over(
    reports: &OwnedFd,
    launch: Launch<'_>,
    stdio: &[OwnedFd; channel::PASSED_DESCRIPTORS],
    canaries: Option<&Canaries>,
) -> Result<(), Failure> {
    let Launch { spec, sandbox, errand, .. } = launch;
    let errand = Errand { route: Route::InsideBwrap, ..errand };
    let bytes = match canaries {
        Some(canaries) => {
            let argv = canaries.attempts(sandbox).to_arguments();
            wire::encode_spec(&LaunchSpec { argv, ..spec.clone() }, errand)
        }
        None => wire::encode_spec(spec, errand),
    };
    let deadline = Instant::now() + HAND_OVER_LIMIT;
    let [stdin, stdout, stderr] = stdio;
    let descriptors = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    channel::send_with_descriptors(reports.as_fd(), &bytes, &descriptors, deadline).map_err(Failure::at(Step::Bwrap))
}

/// Ends bubblewrap. If it was what failed, its complaint says more than the end of a channel.
fn explained(child: &mut Child, complaint: OwnedFd, failure: Failure) -> Failure {
    let _ended = child.kill();
    let _collected = child.wait();
    if !matches!(failure.errno, libc::ECONNRESET | libc::EPIPE) {
        return failure;
    }
    let mut text = String::new();
    let _as_far_as_it_goes = File::from(complaint).take(MAX_COMPLAINT_BYTES).read_to_string(&mut text);
    Failure { step: Step::Bwrap, errno: number_of(&text).unwrap_or(failure.errno), subject: 0 }
}

/// The system's number for what bubblewrap tells in words.
fn number_of(complaint: &str) -> Option<i32> {
    const WORDS: [(&str, i32); 5] = [
        ("Permission denied", libc::EACCES),
        ("Operation not permitted", libc::EPERM),
        ("Unknown option", libc::EOPNOTSUPP),
        ("No space left", libc::ENOSPC),
        ("No such file", libc::ENOENT),
    ];
    WORDS.iter().find(|(words, _)| complaint.contains(words)).map(|(_, number)| *number)
}

/// A path inside a writable one is reached through folders in which a plugin may have planted a link by now. And a writable
/// one inside a readable one could be executed from, because Landlock's rights only add up.
fn refuse_nested(sources: &Sources) -> Result<(), Failure> {
    for writable in sources.opened.iter().filter(|source| source.access == Access::Write) {
        let mut others = sources.opened.iter().filter(|other| other.path != writable.path);
        if others.any(|other| other.path.starts_with(&writable.path) || writable.path.starts_with(&other.path)) {
            return Err(Failure::about(Step::BwrapNested, writable.position)(Errno::OPNOTSUPP));
        }
    }
    Ok(())
}

fn namespaces(network: &Network) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--hostname",
        HOST_NAME,
        "--as-pid-1",
        "--die-with-parent",
        "--cap-drop",
        "ALL",
    ]
    .map(Into::into)
    .to_vec();
    if *network != Network::Open {
        arguments.push("--unshare-net".into());
    }
    arguments
}

/// The tree of [`files`](super::files), in bubblewrap's words and in the same order.
fn mounts(prepared: &Prepared, sandbox: &SandboxSpec, files: &[(&'static str, File)]) -> Vec<OsString> {
    let mut arguments = Vec::new();
    let mut push = |words: &[&OsStr]| arguments.extend(words.iter().map(OsString::from));
    for (name, ..) in DEVICES {
        let path = Path::new("/dev").join(name);
        push(&["--dev-bind".as_ref(), path.as_os_str(), path.as_os_str()]);
    }
    for (name, target) in DEVICE_LINKS {
        push(&["--symlink".as_ref(), target.as_ref(), Path::new("/dev").join(name).as_os_str()]);
    }
    for (name, file) in files {
        let path = Path::new("/etc").join(name);
        let descriptor = file.as_raw_fd().to_string();
        push(&["--perms".as_ref(), "0644".as_ref(), "--file".as_ref(), descriptor.as_ref(), path.as_os_str()]);
    }
    for (path, bytes) in [("/dev/shm", sandbox.shm_bytes), ("/tmp", sandbox.tmp_bytes)] {
        let bytes = bytes.to_string();
        let words = ["--perms", "1777", "--size", &bytes, "--tmpfs", path];
        push(&words.map(OsStr::new));
    }
    push(&["--proc", "/proc"].map(OsStr::new));
    for source in &prepared.sources.opened {
        let option = if source.access == Access::Write { "--bind-fd" } else { "--ro-bind-fd" };
        let descriptor = source.opened.as_raw_fd().to_string();
        push(&[option.as_ref(), descriptor.as_ref(), source.path.as_os_str()]);
    }
    for link in &prepared.sources.links {
        // Inside a mounted folder it is there already, and a made-up file stays what it is.
        let is_there = prepared.sources.opened.iter().any(|source| link.path.starts_with(&source.path))
            || files.iter().any(|(name, _)| link.path == Path::new("/etc").join(name));
        if !is_there {
            push(&["--symlink".as_ref(), link.target.as_os_str(), link.path.as_os_str()]);
        }
    }
    push(&["--remount-ro", "/"].map(OsStr::new));
    arguments
}

/// The made-up files of `/etc`, in memory.
fn system_files(prepared: &Prepared, identity: &Identity<'_>) -> std::io::Result<Vec<(&'static str, File)>> {
    let in_memory = |(name, content): (&'static str, Vec<u8>)| {
        let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
        file.write_all(&content)?;
        file.rewind()?;
        Ok((name, file))
    };
    etc::files(identity, prepared.copied.clone()).into_iter().map(in_memory).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Level, StopGrace};

    fn prepared(writable: &[&Path], readable: &[&Path]) -> (Prepared, SandboxSpec) {
        let sandbox = SandboxSpec {
            read_only: readable.iter().map(|path| path.into()).collect(),
            read_write: writable.iter().map(|path| path.into()).collect(),
            ..SandboxSpec::new(Level::Full)
        };
        let spec = LaunchSpec {
            executable: "/bin/true".into(),
            argv: vec!["true".into()],
            cwd: "/".into(),
            env: Vec::new(),
            stop: StopGrace::default(),
            sandbox: None,
        };
        (Prepared::open(Sources::open(&spec, &sandbox).unwrap(), &sandbox.network).unwrap(), sandbox)
    }

    // Requirement 91: a namespace that is not asked for is not made.
    #[test]
    fn the_network_is_shared_only_if_it_is_open() {
        let unshared = |network| namespaces(&network).contains(&OsString::from("--unshare-net"));
        assert!(unshared(Network::Off) && !unshared(Network::Open));
        for option in ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent"] {
            assert!(namespaces(&Network::Open).contains(&option.into()), "{option}");
        }
    }

    /// A name could lead elsewhere by the time bubblewrap follows it.
    #[test]
    fn declared_paths_are_given_as_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().canonicalize().unwrap();
        let (prepared, sandbox) = prepared(&[&data], &[Path::new("/usr")]);
        let words = mounts(&prepared, &sandbox, &[]);
        let option_for = |path: &Path| {
            let at = words.iter().position(|word| word == path).unwrap();
            assert!(words[at - 1].to_str().unwrap().parse::<i32>().is_ok());
            words[at - 2].to_str().unwrap().to_owned()
        };
        assert_eq!((option_for(&data).as_str(), option_for(Path::new("/usr")).as_str()), ("--bind-fd", "--ro-bind-fd"));
        assert_eq!(words[words.len() - 2..], ["--remount-ro", "/"], "the tree itself is closed last");
        assert!(refuse_nested(&prepared.sources).is_ok());
    }

    /// The reader needs the cause, not that a channel ended.
    #[test]
    fn complaints_become_numbers() {
        assert_eq!(number_of("bwrap: setting up uid map: Permission denied\n"), Some(libc::EACCES));
        assert_eq!(number_of("bwrap: Unknown option --bind-fd\n"), Some(libc::EOPNOTSUPP));
        assert_eq!(number_of("bwrap: something new\n"), None);
    }
}
