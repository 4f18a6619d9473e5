//! What the witness tries from inside, in the place of the plugin.
//!
//! Owns the attempts and which of them a level claims to stop. Refuses doing harm: each attempt stops at the first proof.

use std::{
    io::Write,
    net::{Ipv4Addr, SocketAddrV4},
    path::PathBuf,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{CWD, Mode, OFlags, openat, stat},
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, connect, recv, send, sendto, socket},
    process::{Pid, getpid, test_kill_process},
    thread::{CapabilitySet, capabilities, no_new_privs},
};

use super::DONE;
use crate::{
    Level, ListedHosts, Network,
    linux::confine::{SCOPES_ABI, kernel_abi},
};

/// Id of the witness in a process namespace, where the first process is ours.
const PID_INSIDE: i32 = 2;
/// Mode of a process under a filter, as the kernel reports it.
const SECCOMP_FILTERED: i32 = 2;
/// Families beside the usual ones that reach out of a machine or into the kernel.
const ODD_FAMILIES: [u16; 3] = [libc::AF_VSOCK as u16, libc::AF_NETLINK as u16, libc::AF_PACKET as u16];

/// The attempts of one sandbox.
#[derive(Debug)]
pub(in crate::linux) struct Attempts {
    pub(super) level: Level,
    pub(super) network: Network,
    pub(super) folder: PathBuf,
    pub(super) tcp_port: u16,
    pub(super) udp_port: u16,
    pub(super) unnamed: Vec<u8>,
    /// The launcher, which is outside.
    pub(super) outside: Pid,
}

/// Longest wait for the refusal of a datagram, which comes at once where there is one.
const REFUSAL_WAIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

type Attempt = (&'static str, Result<(), Errno>);

impl Attempts {
    /// Tries everything the level claims to stop. Writes what succeeded to standard output, one line each, and a last line
    /// when all has been tried. Returns the status to end with.
    pub(in crate::linux) fn run(&self) -> i32 {
        let mut attempts = self.kernel();
        match &self.network {
            Network::Off => attempts.extend(self.sockets()),
            Network::Hosts(listed) => attempts.extend(self.beside_listed(listed)),
            Network::Open => {}
        }
        if self.level >= Level::Partial {
            attempts.extend(self.file_content());
        }
        let scoped = self.level >= Level::Partial && kernel_abi() >= SCOPES_ABI;
        if scoped || self.level == Level::Full {
            attempts.push(("signal a process outside", test_kill_process(self.outside)));
        }
        if self.level >= Level::Partial {
            attempts.push(("reach a Unix socket without a path", self.connect_unnamed()));
        }
        if self.level >= Level::Partial && self.network != Network::Off {
            // An open network is no way to the services of this machine that act for their user.
            let named = connect_unix(SocketAddrUnix::new(self.folder.join("socket")));
            attempts.push(("reach a Unix socket by its path", named));
        }
        if self.level == Level::Full {
            attempts.extend(self.own_view());
        }
        let mut lines: Vec<&str> =
            attempts.iter().filter(|(_, outcome)| outcome.is_ok()).map(|(what, _)| *what).collect();
        lines.push(DONE);
        // A pipe that takes nothing is noticed by the last line missing on the other side.
        let written = std::io::stdout().write_all((lines.join("\n") + "\n").as_bytes());
        i32::from(written.is_err() || lines.len() > 1)
    }

    fn kernel(&self) -> Vec<Attempt> {
        let mut ring = [0_u64; 15];
        vec![
            ("make a user namespace", call(libc::SYS_unshare, &[libc::CLONE_NEWUSER as usize])),
            ("make a ring of system calls", call(libc::SYS_io_uring_setup, &[1, ring.as_mut_ptr().addr()])),
            ("gain privileges by executing", holds(no_new_privs() != Ok(true))),
            (
                "use a capability",
                holds(
                    capabilities(None)
                        .is_ok_and(|sets| sets.effective != CapabilitySet::empty() || !sets.permitted.is_empty()),
                ),
            ),
            ("make calls without a filter", holds(seccomp_mode() != SECCOMP_FILTERED)),
        ]
    }

    fn sockets(&self) -> Vec<Attempt> {
        let local = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let tcp = || connect(socket(AddressFamily::INET, SocketType::STREAM, None)?, &local(self.tcp_port));
        let udp = || {
            let sent = sendto(
                socket(AddressFamily::INET, SocketType::DGRAM, None)?,
                b"canary",
                SendFlags::NOSIGNAL,
                &local(self.udp_port),
            );
            sent.map(drop)
        };
        let mut attempts = vec![
            ("reach a TCP service of this machine", tcp()),
            ("send a datagram", udp()),
            ("reach a Unix socket by its path", connect_unix(SocketAddrUnix::new(self.folder.join("socket")))),
            ("reach a Unix socket without a path", self.connect_unnamed()),
        ];
        attempts.extend(odd_sockets());
        attempts
    }

    /// As [`Self::sockets`], where some sockets are allowed and what they reach is what counts.
    fn beside_listed(&self, listed: &ListedHosts) -> Vec<Attempt> {
        let mut attempts = vec![
            ("make the machine's service answer a datagram", self.datagram_arrives()),
            ("make a multipath socket", multipath()),
            ("reach a Unix socket by its path", connect_unix(SocketAddrUnix::new(self.folder.join("socket")))),
            ("reach a Unix socket without a path", self.connect_unnamed()),
        ];
        // A listener of its own may have the same number; it is no service of this machine then.
        if !listed.ports().contains(&self.tcp_port) {
            let service = SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.tcp_port);
            let tcp = || connect(socket(AddressFamily::INET, SocketType::STREAM, None)?, &service);
            attempts.push(("reach a TCP service of this machine", tcp()));
        }
        attempts.extend(odd_sockets());
        attempts
    }

    /// Sending into a network where nobody listens succeeds, and only what comes back tells: a refusal there, nothing
    /// where the service took it.
    fn datagram_arrives(&self) -> Result<(), Errno> {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.udp_port))?;
        send(&socket, b"canary", SendFlags::NOSIGNAL)?;
        let mut polled = [PollFd::new(&socket, PollFlags::IN)];
        poll(&mut polled, Some(&REFUSAL_WAIT))?;
        recv(&socket, &mut [0_u8; 8], RecvFlags::DONTWAIT).map(drop).or_else(|error| match error {
            Errno::AGAIN => Ok(()),
            refused => Err(refused),
        })
    }

    fn connect_unnamed(&self) -> Result<(), Errno> {
        connect_unix(SocketAddrUnix::new_abstract_name(&self.unnamed))
    }

    fn file_content(&self) -> Vec<Attempt> {
        let open =
            |name: &str, flags| openat(CWD, self.folder.join(name), flags | OFlags::CLOEXEC, Mode::RUSR).map(drop);
        vec![
            ("read a file it was not given", open("file", OFlags::RDONLY)),
            ("change a file it was not given", open("file", OFlags::WRONLY)),
            ("make a file outside of its folders", open("made", OFlags::WRONLY | OFlags::CREATE)),
            ("list a folder it was not given", open(".", OFlags::RDONLY | OFlags::DIRECTORY)),
        ]
    }

    fn own_view(&self) -> Vec<Attempt> {
        vec![
            ("see that a file exists", stat(self.folder.join("file")).map(drop)),
            ("see processes outside", holds(getpid().as_raw_nonzero().get() != PID_INSIDE)),
        ]
    }
}

fn odd_sockets() -> impl Iterator<Item = Attempt> {
    ODD_FAMILIES.iter().map(|family| {
        let made = socket(AddressFamily::from_raw(*family), SocketType::RAW, None)
            .or_else(|_| socket(AddressFamily::from_raw(*family), SocketType::STREAM, None));
        ("make a socket of an odd family", made.map(drop))
    })
}

fn multipath() -> Result<(), Errno> {
    call(libc::SYS_socket, &[libc::AF_INET as usize, libc::SOCK_STREAM as usize, libc::IPPROTO_MPTCP as usize])
}

fn connect_unix(address: Result<SocketAddrUnix, Errno>) -> Result<(), Errno> {
    connect(socket(AddressFamily::UNIX, SocketType::STREAM, None)?, &address?)
}

/// A state that must not hold, in the form of an attempt.
fn holds(condition: bool) -> Result<(), Errno> {
    if condition { Ok(()) } else { Err(Errno::PERM) }
}

fn seccomp_mode() -> i32 {
    #[allow(unsafe_code, reason = "this query has no safe wrapper")]
    // SAFETY: the command takes no argument and touches no memory.
    unsafe {
        libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0)
    }
}

/// A system call that must be refused before the kernel looks at its arguments.
fn call(number: libc::c_long, arguments: &[usize]) -> Result<(), Errno> {
    let argument = |position: usize| arguments.get(position).copied().unwrap_or(0);
    #[allow(unsafe_code, reason = "the calls tried here are the ones no wrapper should make")]
    // SAFETY: pointers among the arguments lead to zeroed memory of the size the call reads and writes; a namespace made
    // by mistake ends with this process.
    let result = unsafe { libc::syscall(number, argument(0), argument(1), argument(2)) };
    if result < 0 { Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::PERM)) } else { Ok(()) }
}
