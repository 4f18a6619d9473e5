//! Which system calls a plugin cannot make.
//!
//! Owns the lists with their reasons, and loading the filter. Refuses killing for a forbidden call: run times probe for
//! features and fall back when they read an error, so only calls of another architecture kill.

use std::{
    io,
    os::fd::{FromRawFd, OwnedFd},
};

use super::bpf::{Program, Rule, Unless};
use crate::{Level, Network, linux::layers::Layers};

/// Highest call number this list was written against (Linux 6.17). Newer ones do not exist for a plugin, as on an
/// older kernel; run times fall back.
const LAST_KNOWN: u32 = 469;

// Numbers newer than the C library's list; from 424 on they are the same on every architecture.
const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const OPEN_TREE_ATTR: i64 = 467;
const FILE_SETATTR: i64 = 469;
const STATMOUNT: i64 = 457;
const LISTMOUNT: i64 = 458;

/// Calls that no server needs and that have been the way out of sandboxes, or that concern the whole machine.
const FORBIDDEN: &[i64] = &[
    // Mounts and namespaces: a nested namespace gives back capabilities and with them most of the kernel's surface.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    STATMOUNT,
    LISTMOUNT,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // Other processes: their memory, registers and descriptors.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Large and rarely used parts of the kernel with a history of holes. `io_uring` would also make calls that no filter
    // sees.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    // Keys of the user's session, which no namespace separates.
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    // Memory that belongs to no process, so that nobody who counts sees it.
    libc::SYS_shmget,
    libc::SYS_msgget,
    // Pages given away to a pipe are in no process's memory any more, and a large one counts as little as a small one.
    libc::SYS_vmsplice,
    // The machine itself.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_nfsservctl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
];

/// Not in the C library's list any more; the kernel answers that it does not exist.
#[cfg(target_arch = "x86_64")]
const CREATE_MODULE: i64 = 174;

/// As above, calls that only this architecture has.
#[cfg(target_arch = "x86_64")]
const FORBIDDEN_HERE: &[i64] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
    libc::SYS__sysctl,
    CREATE_MODULE,
    libc::SYS_lookup_dcookie,
];
#[cfg(target_arch = "aarch64")]
const FORBIDDEN_HERE: &[i64] = &[libc::SYS_lookup_dcookie];

/// Without a file tree of its own, a plugin could use these on every file of its user: Landlock mediates neither
/// metadata nor watching. Descriptors are included, because reading is enough to open one.
const METADATA: &[i64] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    REMOVEXATTRAT,
    FILE_SETATTR,
    libc::SYS_inotify_add_watch,
    // Semaphores and queues of the user, which no file permission protects.
    libc::SYS_shmat,
    libc::SYS_semget,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

#[cfg(target_arch = "x86_64")]
const METADATA_HERE: &[i64] =
    &[libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat];
#[cfg(target_arch = "aarch64")]
const METADATA_HERE: &[i64] = &[];

/// Every flag of `clone` that makes a namespace.
const NAMESPACE_FLAGS: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// The present mode, and asking for it.
const HARMLESS_PERSONALITIES: &[&[(u32, u32)]] = &[&[(0, 0)], &[(0, u32::MAX)]];

/// Terminal commands that type for the user: `TIOCSTI` and `TIOCLINUX`.
const TYPING_COMMANDS: &[u32] = &[0x5412, 0x541c];

/// A filter for calls that are allowed for the calling process itself.
const fn only_own(number: i64, argument: u32) -> Rule {
    Rule { number, unless: Unless::NoBit { argument, bits: u32::MAX }, errno: libc::EPERM }
}

/// Bits of a file's mode that let it run as its owner or group, whoever starts it.
const SET_ID_BITS: u32 = libc::S_ISUID | libc::S_ISGID;

/// Flags of an opening that makes a file and therefore reads a mode; a caller without them may leave anything in its place.
const MAKING_FLAGS: u32 = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u32;

const fn no_set_id(number: i64, argument: u32) -> Rule {
    Rule { number, unless: Unless::NoBit { argument, bits: SET_ID_BITS }, errno: libc::EPERM }
}

const fn no_set_id_made(number: i64, flags: u32, mode: u32) -> Rule {
    let unless = Unless::NotBoth { first: (flags, MAKING_FLAGS), second: (mode, SET_ID_BITS) };
    Rule { number, unless, errno: libc::EPERM }
}

/// A program that runs as its owner could be left where another user of the machine finds it; inside, nothing gains by one.
/// Below level `full` modes cannot be changed at all.
const SET_ID_CHANGE: &[Rule] =
    &[no_set_id(libc::SYS_fchmod, 1), no_set_id(libc::SYS_fchmodat, 2), no_set_id(FCHMODAT2, 2)];

#[cfg(target_arch = "x86_64")]
const SET_ID_CHANGE_HERE: &[Rule] = &[no_set_id(libc::SYS_chmod, 1)];
#[cfg(target_arch = "aarch64")]
const SET_ID_CHANGE_HERE: &[Rule] = &[];

/// The same for making files, at every level.
const SET_ID_MADE: &[Rule] = &[no_set_id_made(libc::SYS_openat, 2, 3), no_set_id(libc::SYS_mknodat, 2)];

/// Its mode is behind a pointer, where no filter can look. Programs fall back to `openat` when it does not exist. Level
/// `limited`, which makes no claim about files, leaves it: a plugward inside would need it.
const NO_OPENAT2: Rule = Rule { number: libc::SYS_openat2, unless: Unless::Never, errno: libc::ENOSYS };

#[cfg(target_arch = "x86_64")]
const SET_ID_MADE_HERE: &[Rule] =
    &[no_set_id_made(libc::SYS_open, 1, 2), no_set_id(libc::SYS_creat, 1), no_set_id(libc::SYS_mknod, 1)];
#[cfg(target_arch = "aarch64")]
const SET_ID_MADE_HERE: &[Rule] = &[];

/// Its flags are behind a pointer, where no filter can look. C libraries fall back to `clone` when it does not exist.
const NO_CLONE3: Rule = Rule { number: libc::SYS_clone3, unless: Unless::Never, errno: libc::ENOSYS };

/// Rules that look at arguments, at every level.
const CONDITIONAL: &[Rule] = &[
    Rule { number: libc::SYS_clone, unless: Unless::NoBit { argument: 0, bits: NAMESPACE_FLAGS }, errno: libc::EPERM },
    Rule {
        number: libc::SYS_ioctl,
        unless: Unless::NoneOf { argument: 1, values: TYPING_COMMANDS },
        errno: libc::EPERM,
    },
    Rule { number: libc::SYS_personality, unless: Unless::AnyOf(HARMLESS_PERSONALITIES), errno: libc::EPERM },
    only_own(libc::SYS_prlimit64, 0),
    only_own(libc::SYS_sched_setaffinity, 0),
    only_own(libc::SYS_sched_setscheduler, 0),
    only_own(libc::SYS_sched_setparam, 0),
    only_own(libc::SYS_sched_setattr, 0),
    // `PRIO_PROCESS` (0) of itself (0), and the same for input and output (1).
    Rule { number: libc::SYS_setpriority, unless: Unless::AnyOf(&[&[(0, 0), (1, 0)]]), errno: libc::EPERM },
    Rule { number: libc::SYS_ioprio_set, unless: Unless::AnyOf(&[&[(0, 1), (1, 0)]]), errno: libc::EPERM },
];

/// Run times connect themselves to their children by pairs; a pair of any other family is a way to odd kernel code.
const SOCKET_PAIR: Rule =
    Rule { number: libc::SYS_socketpair, unless: Unless::AnyOf(&[&[(0, libc::AF_UNIX as u32)]]), errno: libc::EPERM };

/// The size of a pipe. What stays is the one it is made with, which is counted. Programs ask for more to be faster, and go on.
const F_SETPIPE_SZ: u32 = 1031;
/// Sizes of a socket's buffers, in the family of options that all sockets have, on both architectures.
const BUFFER_SIZES: &[u32] =
    &[libc::SO_SNDBUF as u32, libc::SO_RCVBUF as u32, libc::SO_SNDBUFFORCE as u32, libc::SO_RCVBUFFORCE as u32];

/// Buffers that no process's limit sees stay as they are made, so that counting them is enough. To ask for another size of a
/// socket's is answered as done and changes nothing: the kernel itself takes such a size as a wish, tells nobody that it has
/// cut it, and shows to whoever asks what there is; run times treat an error here as the failure of the socket.
const BUFFERS: &[Rule] = &[
    Rule {
        number: libc::SYS_setsockopt,
        unless: Unless::NotThese { first: (1, libc::SOL_SOCKET as u32), argument: 2, values: BUFFER_SIZES },
        errno: 0,
    },
    Rule {
        number: libc::SYS_fcntl,
        unless: Unless::NoneOf { argument: 1, values: &[F_SETPIPE_SZ] },
        errno: libc::EPERM,
    },
];

/// A process that hides from its own user cannot be measured: its descriptors then belong to root, whom the launcher of an
/// ordinary user is not, in a user namespace or out of one. Level `limited` is kept open for a plugward inside, which hides
/// its own.
const NO_HIDING: Rule = Rule {
    number: libc::SYS_prctl,
    unless: Unless::NoneOf { argument: 0, values: &[libc::PR_SET_DUMPABLE as u32] },
    errno: libc::EPERM,
};

/// No family at all: this closes TCP, UDP, multipath TCP, virtual machine, netlink, packet, and Unix sockets by name.
const NO_SOCKET: Rule = Rule { number: libc::SYS_socket, unless: Unless::Never, errno: libc::EPERM };

/// Families of a plugin that may use the network: Unix, IPv4, IPv6, and the routing part of netlink, which the C library
/// asks for addresses.
const NETWORK_SOCKET: Rule = Rule {
    number: libc::SYS_socket,
    unless: Unless::AnyOf(&[
        &[(0, libc::AF_UNIX as u32)],
        &[(0, libc::AF_INET as u32)],
        &[(0, libc::AF_INET6 as u32)],
        &[(0, libc::AF_NETLINK as u32), (2, libc::NETLINK_ROUTE as u32)],
    ]),
    errno: libc::EPERM,
};

/// As above without Unix sockets, see [`UnixSockets`].
const NETWORK_SOCKET_WITHOUT_UNIX: Rule = Rule {
    number: libc::SYS_socket,
    unless: Unless::AnyOf(&[
        &[(0, libc::AF_INET as u32)],
        &[(0, libc::AF_INET6 as u32)],
        &[(0, libc::AF_NETLINK as u32), (2, libc::NETLINK_ROUTE as u32)],
    ]),
    errno: libc::EPERM,
};

/// Bits of a socket's kind that are not the kind but flags (non-blocking, close on execution).
const KIND_MASK: u32 = 0xf;
/// Every bit counts.
const WHOLE: u32 = u32::MAX;
const TCP: u32 = libc::IPPROTO_TCP as u32;
const UDP: u32 = libc::IPPROTO_UDP as u32;
const STREAM: u32 = libc::SOCK_STREAM as u32;
const DATAGRAM: u32 = libc::SOCK_DGRAM as u32;
const IPV4: u32 = libc::AF_INET as u32;
const IPV6: u32 = libc::AF_INET6 as u32;

/// Sockets of a plugin with listed hosts: plain TCP, and UDP to ask for names. Multipath TCP is left out because Landlock
/// does not see it.
const LISTED_SOCKET: Rule = Rule {
    number: libc::SYS_socket,
    unless: Unless::AnyMasked(&[
        &[(0, WHOLE, IPV4), (1, KIND_MASK, STREAM), (2, WHOLE, 0)],
        &[(0, WHOLE, IPV4), (1, KIND_MASK, STREAM), (2, WHOLE, TCP)],
        &[(0, WHOLE, IPV6), (1, KIND_MASK, STREAM), (2, WHOLE, 0)],
        &[(0, WHOLE, IPV6), (1, KIND_MASK, STREAM), (2, WHOLE, TCP)],
        &[(0, WHOLE, IPV4), (1, KIND_MASK, DATAGRAM), (2, WHOLE, 0)],
        &[(0, WHOLE, IPV4), (1, KIND_MASK, DATAGRAM), (2, WHOLE, UDP)],
    ]),
    errno: libc::EPERM,
};

/// Sending that connects as well, which Landlock does not see either.
const fn no_fast_open(number: i64, argument: u32) -> Rule {
    Rule { number, unless: Unless::NoBit { argument, bits: libc::MSG_FASTOPEN as u32 }, errno: libc::EPERM }
}
const NO_FAST_OPEN: [Rule; 3] =
    [no_fast_open(libc::SYS_sendto, 3), no_fast_open(libc::SYS_sendmsg, 2), no_fast_open(libc::SYS_sendmmsg, 3)];
/// Whether a plugin with an open network may make Unix sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnixSockets {
    /// They reach nothing but what the plugin was given, or the level makes no claim about them.
    Allowed,
    /// They would reach services that act for their user: the message bus, or plugward's own control socket.
    Forbidden,
}

impl UnixSockets {
    /// Those with a path need a file tree of the plugin's own, because older versions of Landlock do not see a connection
    /// by path. Those without one are in the network, which is the machine's own where it is open, so they need Landlock's
    /// scope; `scoped` tells whether it is in force.
    pub(super) fn of(level: Level, scoped: bool) -> Self {
        match level {
            Level::Full if scoped => Self::Allowed,
            Level::Full | Level::Partial => Self::Forbidden,
            _ => Self::Allowed,
        }
    }
}

/// The filter of a plugin. Only level `full` has a file tree of its own.
pub(super) fn program(network: &Network, level: Level, unix: UnixSockets, layers: Layers) -> Program {
    let never = |numbers: &[i64]| -> Vec<Rule> {
        numbers.iter().map(|number| Rule { number: *number, unless: Unless::Never, errno: libc::EPERM }).collect()
    };
    let calls = [never(FORBIDDEN), never(FORBIDDEN_HERE)].concat();
    let mut set_id = [SET_ID_MADE, SET_ID_MADE_HERE].concat();
    let mut sockets = vec![match (network, unix) {
        (Network::Open, UnixSockets::Forbidden) => NETWORK_SOCKET_WITHOUT_UNIX,
        (Network::Open, UnixSockets::Allowed) => NETWORK_SOCKET,
        (Network::Hosts(_), _) => LISTED_SOCKET,
        (Network::Off, _) => NO_SOCKET,
    }];
    sockets.push(SOCKET_PAIR);
    let fast_open = if matches!(network, Network::Hosts(_)) { NO_FAST_OPEN.to_vec() } else { Vec::new() };
    let mut hiding = Vec::new();
    if level != Level::Limited {
        set_id.push(NO_OPENAT2);
        hiding.push(NO_HIDING);
    }
    let mut metadata = Vec::new();
    if level == Level::Full {
        set_id.extend([SET_ID_CHANGE, SET_ID_CHANGE_HERE].concat());
    } else {
        metadata = [never(METADATA), never(METADATA_HERE)].concat();
        // Times of an open file may be set, which its owner's own programs do after writing it.
        metadata.push(Rule { number: libc::SYS_utimensat, unless: Unless::Null { argument: 1 }, errno: libc::EPERM });
    }
    let groups = [
        (Layers::FILTER_CALLS, calls),
        (Layers::FILTER_ARGUMENTS, CONDITIONAL.to_vec()),
        (Layers::FILTER_CLONE3, vec![NO_CLONE3]),
        (Layers::FILTER_BUFFERS, BUFFERS.to_vec()),
        (Layers::FILTER_SET_ID, set_id),
        (Layers::FILTER_SOCKETS, sockets),
        (Layers::FILTER_FAST_OPEN, fast_open),
        (Layers::FILTER_HIDING, hiding),
        (Layers::FILTER_METADATA, metadata),
    ];
    let rules: Vec<Rule> =
        groups.into_iter().filter(|(layer, _)| layers.has(*layer)).flat_map(|(_, rules)| rules).collect();
    Program::new(&rules, LAST_KNOWN, layers)
}

/// Puts the filter in force for this process and all it starts. Allocates nothing.
pub(super) fn load(program: &Program) -> io::Result<()> {
    set_filter(program, 0).map(|_| ())
}

/// As [`load`] for a filter that asks; returns where the questions come. Allocates nothing.
pub(super) fn load_asking(program: &Program) -> io::Result<OwnedFd> {
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // A signal would otherwise make the plugin's call start again and be counted twice. Kernels before 5.19 cannot.
    let raw = match set_filter(program, listener | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => set_filter(program, listener)?,
        other => other?,
    };
    let raw = i32::try_from(raw).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    #[allow(unsafe_code, reason = "taking ownership of a raw descriptor")]
    // SAFETY: the kernel has just made this descriptor for the call above and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn set_filter(program: &Program, flags: libc::c_ulong) -> io::Result<libc::c_long> {
    let instructions = program.instructions();
    let filter = libc::sock_fprog {
        len: libc::c_ushort::try_from(instructions.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?,
        filter: instructions.as_ptr().cast_mut(),
    };
    #[allow(unsafe_code, reason = "seccomp has no safe wrapper")]
    // SAFETY: `filter` points to `len` instructions that live across the call; the kernel copies and checks them.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter) };
    if result >= 0 { Ok(result) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::ListedHosts;

    use super::{
        super::bpf::{
            Action,
            simulation::{Call, run},
        },
        *,
    };

    const DENIED: Action = Action::Errno(libc::EPERM as u16);

    fn off() -> Program {
        program(&Network::Off, Level::Full, UnixSockets::Allowed, Layers::ALL)
    }

    fn shared_tree(network: &Network) -> Program {
        program(network, Level::Partial, UnixSockets::of(Level::Partial, true), Layers::ALL)
    }

    fn made() -> impl Iterator<Item = &'static Rule> {
        SET_ID_MADE.iter().chain(SET_ID_MADE_HERE)
    }

    /// Two rules for one call would make the second one dead without anybody noticing.
    #[test]
    fn every_call_has_one_rule() {
        let all = [FORBIDDEN, FORBIDDEN_HERE, METADATA, METADATA_HERE].concat();
        let numbers: Vec<i64> =
            all.into_iter().chain(CONDITIONAL.iter().chain(BUFFERS).chain(made()).map(|rule| rule.number)).collect();
        let distinct: BTreeSet<&i64> = numbers.iter().collect();
        assert_eq!(distinct.len(), numbers.len());
        assert!(numbers.iter().all(|number| *number <= i64::from(LAST_KNOWN)));
        assert!(shared_tree(&Network::Off).instructions().len() < 4096, "the kernel's limit");
    }

    // Requirement 87: a forbidden call is refused, wherever it stands in the list.
    #[test]
    fn forbidden_calls_are_refused_and_others_are_not() {
        let refused: BTreeSet<i64> = FORBIDDEN.iter().chain(FORBIDDEN_HERE).copied().collect();
        let conditional: BTreeSet<i64> = CONDITIONAL.iter().map(|rule| rule.number).collect();
        for number in 0..=i64::from(LAST_KNOWN) {
            let sockets = matches!(number, libc::SYS_socket | libc::SYS_socketpair);
            let expected = if refused.contains(&number) || sockets {
                DENIED
            } else if matches!(number, libc::SYS_clone3 | libc::SYS_openat2) {
                Action::Errno(libc::ENOSYS as u16)
            } else if conditional.contains(&number) {
                continue;
            } else {
                Action::Allow
            };
            assert_eq!(run(&off(), Call::new(number, &[0; 6])), expected, "call {number}");
        }
    }

    // Threat 36: a buffer of the kernel stays at the size that is counted for it; other options and commands work.
    #[test]
    fn buffers_keep_their_size() {
        const DONE: Action = Action::Errno(0);
        let (all_sockets, of_tcp) = (libc::SOL_SOCKET as u64, libc::IPPROTO_TCP as u64);
        for option in 0..64 {
            let expected = if matches!(option, 7 | 8 | 32 | 33) { DONE } else { Action::Allow };
            assert_eq!(run(&off(), Call::new(libc::SYS_setsockopt, &[3, all_sockets, option])), expected, "{option}");
            assert_eq!(run(&off(), Call::new(libc::SYS_setsockopt, &[3, of_tcp, option])), Action::Allow);
        }
        for command in [0, 1, 2, 3, 4, 1030, 1032, 1033] {
            assert_eq!(run(&off(), Call::new(libc::SYS_fcntl, &[3, command])), Action::Allow, "{command}");
        }
        assert_eq!(run(&off(), Call::new(libc::SYS_fcntl, &[3, 1031, 1 << 20])), DENIED);
    }

    /// Threads and children must work, new namespaces must not.
    #[test]
    fn clone_makes_threads_but_no_namespaces() {
        let threads = 0x3d_0f00;
        assert_eq!(run(&off(), Call::new(libc::SYS_clone, &[threads])), Action::Allow);
        assert_eq!(run(&off(), Call::new(libc::SYS_clone, &[17])), Action::Allow);
        for bit in 0..32 {
            let flag = 1 << bit;
            let expected = if NAMESPACE_FLAGS & flag == 0 { Action::Allow } else { DENIED };
            assert_eq!(run(&off(), Call::new(libc::SYS_clone, &[u64::from(flag)])), expected, "flag {flag:#x}");
        }
    }

    // Requirement 91: off means no family; open means the families of the network and nothing else.
    #[test]
    fn socket_families() {
        let open = program(&Network::Open, Level::Full, UnixSockets::of(Level::Full, true), Layers::ALL);
        // A kernel that does not know scopes leaves a plugin without Unix sockets.
        let older = program(&Network::Open, Level::Full, UnixSockets::of(Level::Full, false), Layers::ALL);
        let shared = shared_tree(&Network::Open);
        for family in 0..64 {
            assert_eq!(run(&off(), Call::new(libc::SYS_socket, &[family, 1, 0])), DENIED);
            let expected = if matches!(family, 1 | 2 | 10 | 16) { Action::Allow } else { DENIED };
            assert_eq!(run(&open, Call::new(libc::SYS_socket, &[family, 1, 0])), expected, "family {family}");
            let expected = if family == 1 { DENIED } else { expected };
            assert_eq!(run(&shared, Call::new(libc::SYS_socket, &[family, 1, 0])), expected, "family {family}");
            assert_eq!(run(&older, Call::new(libc::SYS_socket, &[family, 1, 0])), expected, "family {family}");
            let pair = run(&off(), Call::new(libc::SYS_socketpair, &[family, 1, 0]));
            assert_eq!(pair, if family == 1 { Action::Allow } else { DENIED });
        }
        assert_eq!(run(&open, Call::new(libc::SYS_socket, &[16, 3, 9])), DENIED, "audit messages");
    }

    // Requirement 91: with listed hosts, plain TCP and the means to ask for a name, and no way to connect beside them.
    #[test]
    fn listed_hosts_take_plain_tcp_and_names() {
        let listed = program(&Network::Hosts(ListedHosts::default()), Level::Full, UnixSockets::Allowed, Layers::ALL);
        let flags = (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as u64;
        for family in 0..64 {
            for kind in 0..8 {
                for protocol in [0, 1, 6, 17, 132, 255, 262] {
                    let tcp = matches!(family, 2 | 10) && kind == 1 && matches!(protocol, 0 | 6);
                    let udp = family == 2 && kind == 2 && matches!(protocol, 0 | 17);
                    let expected = if tcp || udp { Action::Allow } else { DENIED };
                    for kind in [kind, kind | flags] {
                        let call = Call::new(libc::SYS_socket, &[family, kind, protocol]);
                        assert_eq!(run(&listed, call), expected, "socket {family} {kind} {protocol}");
                    }
                }
            }
        }
        let fast_open = libc::MSG_FASTOPEN as u64;
        for (number, plain, opening) in [
            (libc::SYS_sendto, [0, 0, 0, 0], [0, 0, 0, fast_open]),
            (libc::SYS_sendmsg, [0, 0, 0, 0], [0, 0, fast_open | 0x4000, 0]),
            (libc::SYS_sendmmsg, [0, 0, 0, 0], [0, 0, 0, fast_open]),
        ] {
            assert_eq!(run(&listed, Call::new(number, &plain)), Action::Allow);
            assert_eq!(run(&listed, Call::new(number, &opening)), DENIED);
        }
    }

    /// What Landlock does not see has to be closed where there is no file tree of its own, and only there.
    #[test]
    fn metadata_is_closed_without_a_file_tree_of_its_own() {
        let shared = shared_tree(&Network::Off);
        for number in METADATA.iter().chain(METADATA_HERE) {
            assert_eq!(run(&shared, Call::new(*number, &[])), DENIED, "call {number}");
            assert_eq!(run(&off(), Call::new(*number, &[])), Action::Allow, "call {number}");
        }
        assert_eq!(run(&shared, Call::new(libc::SYS_utimensat, &[3, 0])), Action::Allow);
        assert_eq!(run(&shared, Call::new(libc::SYS_utimensat, &[3, 0x7000])), DENIED);
    }

    // Threat 28: no way of making a file or changing its mode sets a bit that lets it run as its owner.
    #[test]
    fn programs_that_run_as_their_owner_cannot_be_made() {
        const CREATE: u64 = libc::O_CREAT as u64;
        for mode in [0o4755, 0o2755, 0o6000] {
            for (number, arguments) in [
                (libc::SYS_fchmod, [3, mode, 0, 0]),
                (libc::SYS_fchmodat, [3, 0, mode, 0]),
                (FCHMODAT2, [3, 0, mode, 0]),
                (libc::SYS_mknodat, [3, 0, mode, 0]),
                (libc::SYS_openat, [3, 0, CREATE, mode]),
                (libc::SYS_openat, [3, 0, libc::O_TMPFILE as u64, mode]),
            ] {
                assert_eq!(run(&off(), Call::new(number, &arguments)), DENIED, "call {number} {mode:o}");
                let usual = arguments.map(|value| if value == mode { 0o1755 } else { value });
                assert_eq!(run(&off(), Call::new(number, &usual)), Action::Allow, "call {number}");
            }
            // Without a file to make there is no mode, and its place may hold anything.
            assert_eq!(run(&off(), Call::new(libc::SYS_openat, &[3, 0, 0, mode])), Action::Allow);
            let folder = libc::O_DIRECTORY as u64;
            assert_eq!(run(&off(), Call::new(libc::SYS_openat, &[3, 0, folder, mode])), Action::Allow);
        }
        #[cfg(target_arch = "x86_64")]
        for (number, arguments) in [
            (libc::SYS_chmod, [0, 0o4755, 0]),
            (libc::SYS_creat, [0, 0o4755, 0]),
            (libc::SYS_mknod, [0, 0o4755, 0]),
            (libc::SYS_open, [0, CREATE, 0o4755]),
        ] {
            assert_eq!(run(&off(), Call::new(number, &arguments)), DENIED, "call {number}");
        }
    }

    #[test]
    fn other_processes_are_out_of_reach_and_the_own_one_is_not() {
        for (number, own, other) in [
            (libc::SYS_prlimit64, [0, 0], [1, 0]),
            (libc::SYS_sched_setaffinity, [0, 0], [7, 0]),
            (libc::SYS_setpriority, [0, 0], [0, 7]),
            (libc::SYS_setpriority, [0, 0], [2, 0]),
            (libc::SYS_ioprio_set, [1, 0], [3, 0]),
            (libc::SYS_personality, [0, 0], [0x8, 0]),
            (libc::SYS_personality, [0xffff_ffff, 0], [0x0040_0000, 0]),
            (libc::SYS_ioctl, [0, 0x5401], [0, 0x5412]),
            (libc::SYS_ioctl, [0, 0x5413], [0, 0x1_0000_541c]),
        ] {
            assert_eq!(run(&off(), Call::new(number, &own)), Action::Allow, "call {number}");
            assert_eq!(run(&off(), Call::new(number, &other)), DENIED, "call {number}");
        }
    }
}
