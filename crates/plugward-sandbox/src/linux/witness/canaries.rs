//! Things outside a sandbox that its witness must not reach.
//!
//! Owns a file, a Unix socket by name and one without, a TCP and a UDP service, all real and shown to be reachable without
//! a sandbox. Refuses using anything of the user's: a failed sandbox must not cost a real secret.

use std::{
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::{DirBuilderExt, OpenOptionsExt, lchown},
            net::{SocketAddr, UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

use rustix::process::{getpid, getuid};

use super::Attempts;
use crate::{Level, SandboxSpec, linux::confine};

/// Folders every machine has one of, where a file can be put for a moment.
const PLACES: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];
/// Most names tried for the folder.
const MAX_TRIES: u32 = 4;

/// What the launcher holds while its witness runs.
#[derive(Debug)]
pub(in crate::linux) struct Canaries {
    folder: PathBuf,
    tcp: TcpListener,
    udp: UdpSocket,
    _named: UnixListener,
    _unnamed: UnixListener,
    unnamed_name: Vec<u8>,
}

impl Canaries {
    /// Sets everything up and reaches each thing once, as a control.
    pub(in crate::linux) fn open(sandbox: &SandboxSpec) -> io::Result<Self> {
        let folder = make_folder(sandbox)?;
        let opened = Self::open_in(&folder).and_then(|canaries| {
            // Everything belongs to the witness's user, so that file permissions cannot be what stops it, and to nobody
            // else, who could change what it finds.
            for path in [folder.join("file"), folder.join("socket"), folder.clone()] {
                if let Some((uid, gid)) = confine::target(sandbox.user) {
                    lchown(&path, Some(uid.as_raw()), Some(gid.as_raw()))?;
                }
            }
            Ok(canaries)
        });
        opened.inspect_err(|_| {
            let _left_behind = fs::remove_dir_all(&folder);
        })
    }

    fn open_in(folder: &Path) -> io::Result<Self> {
        let file = folder.join("file");
        let mut canary = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
        canary.write_all(b"canary")?;
        let named_path = folder.join("socket");
        let named = UnixListener::bind(&named_path)?;
        let unnamed_name = format!("plugward-canary-{}", getpid().as_raw_nonzero()).into_bytes();
        let address = SocketAddr::from_abstract_name(&unnamed_name)?;
        let unnamed = UnixListener::bind_addr(&address)?;
        let canaries = Self {
            folder: folder.to_owned(),
            tcp: TcpListener::bind("127.0.0.1:0")?,
            udp: UdpSocket::bind("127.0.0.1:0")?,
            _named: named,
            _unnamed: unnamed,
            unnamed_name,
        };
        fs::read(&file)?;
        UnixStream::connect(&named_path)?;
        UnixStream::connect_addr(&address)?;
        TcpStream::connect(canaries.tcp.local_addr()?)?;
        Ok(canaries)
    }

    /// What the witness of this sandbox tries.
    pub(in crate::linux) fn attempts(&self, sandbox: &SandboxSpec) -> Attempts {
        let port = |address: io::Result<std::net::SocketAddr>| address.map_or(0, |address| address.port());
        Attempts {
            level: sandbox.level,
            network: sandbox.network.clone(),
            folder: self.folder.clone(),
            tcp_port: port(self.tcp.local_addr()),
            udp_port: port(self.udp.local_addr()),
            unnamed: self.unnamed_name.clone(),
            outside: getpid(),
        }
    }
}

impl Drop for Canaries {
    fn drop(&mut self) {
        // A folder that stays costs a few bytes until the next start of the machine.
        let _left_behind = fs::remove_dir_all(&self.folder);
    }
}

/// A new folder that the sandbox does not grant.
fn make_folder(sandbox: &SandboxSpec) -> io::Result<PathBuf> {
    let granted = |place: &Path| {
        sandbox.level != Level::Limited
            && sandbox.readable().chain(sandbox.writable()).any(|path| place.starts_with(path))
    };
    let own = PathBuf::from(format!("/run/user/{}", getuid().as_raw()));
    let mut last = io::Error::from_raw_os_error(libc::ENOENT);
    for place in PLACES.iter().map(PathBuf::from).chain([own]).filter(|place| !granted(place)) {
        for _ in 0..MAX_TRIES {
            // A name that others could guess is one that they could take first.
            let number = RandomState::new().build_hasher().finish();
            let folder = place.join(format!(".plugward-canary-{}-{number:016x}", getpid().as_raw_nonzero()));
            match fs::DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => return Ok(folder),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    last = error;
                    break;
                }
            }
        }
    }
    Err(last)
}
