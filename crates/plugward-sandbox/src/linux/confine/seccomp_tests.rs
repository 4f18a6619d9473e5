//! Every rule of the filter, tried in the simulation of the kernel's interpreter.
//!
//! Owns which call is answered how, at which level and with which network. Refuses processes: those are for the attack suite.

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
