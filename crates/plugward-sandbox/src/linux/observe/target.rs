//! What a waiting call names, and whether the plugin could have it.
//!
//! Owns reading names from the memory of the waiting process, within bounds, making them absolute as the plugin sees them,
//! and comparing the plugin's tree with the machine's. Refuses following a name of the plugin anywhere but in its own tree,
//! or on this machine to where others would have to answer (`local_files.rs`).

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStringExt, fs::FileExt},
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{Access, Mode, OFlags, ResolveFlags, StatVfsMountFlags, fstatvfs, open, openat2},
    io::Errno,
};

use super::{
    calls::{About, How},
    listener::Notification,
    notebook::Fate,
};
use crate::{
    AttemptKind,
    linux::local_files::{LocalFiles, Place},
};

/// Longest path of the kernel, its end included.
const MAX_PATH_BYTES: usize = 4096;
/// Longest address looked at: a Unix socket's path with its family in front.
const MAX_ADDRESS_BYTES: usize = 110;
/// Trees every plugin has one of its own of, so that nothing in them is the machine's.
const OWN_TREES: [&str; 2] = ["/proc", "/dev"];

/// A name that was read, and what the call does with it. The path is absolute.
pub(super) type Wanted = (AttemptKind, OsString);

/// The plugin's surroundings, as far as they have been looked at.
#[derive(Default)]
pub(super) struct Surroundings {
    /// The root of the plugin's tree, the same for all of its processes.
    root: Option<OwnedFd>,
    /// The plugin's main process: the first one that asked.
    main: Option<u32>,
    /// Of the machine.
    files: LocalFiles,
}

impl Surroundings {
    /// Remembers who asked first.
    pub(super) fn meet(&mut self, call: &Notification) {
        self.main.get_or_insert(call.pid);
    }

    /// What the call is about; `None` if it is about nothing that could be outside.
    pub(super) fn read(&self, call: &Notification, about: &About) -> io::Result<Option<Wanted>> {
        let memory = File::open(format!("/proc/{}/mem", call.pid))?;
        let address = call.arguments[about.name];
        if let How::Address(length) = about.how {
            return Ok(read_address(&memory, address, call.arguments[length])?.map(|it| (AttemptKind::Connect, it)));
        }
        // Without a name, a call is about something that is open already.
        if address == 0 {
            return Ok(None);
        }
        let name = read_string(&memory, address)?;
        if name.is_empty() {
            return Ok(None);
        }
        let kind = match about.how {
            How::Always(kind) => kind,
            How::Flags(argument) => opening(call.arguments[argument]),
            How::Structure(argument) => {
                let mut flags = [0; 8];
                memory.read_exact_at(&mut flags, call.arguments[argument])?;
                opening(u64::from_ne_bytes(flags))
            }
            How::Access(argument) => {
                if call.arguments[argument] & libc::W_OK as u64 == 0 {
                    AttemptKind::Look
                } else {
                    AttemptKind::Write
                }
            }
            How::Address(_) => AttemptKind::Connect,
        };
        let path = absolute(call, about, Path::new(&name))?;
        Ok(path.map(|path| (kind, path.into_os_string())))
    }

    /// Whether the plugin has what it wants, and whether the machine does.
    pub(super) fn fate(&mut self, call: &Notification, kind: AttemptKind, target: &Path) -> Fate {
        if kind == AttemptKind::Connect {
            return Fate::Wanted;
        }
        if OWN_TREES.iter().any(|tree| target.starts_with(tree)) || self.is_inside(call, kind, target) {
            // The main process may become another program, as a script does, without there being two.
            let is_other = kind == AttemptKind::Execute && self.main != Some(call.pid);
            return if is_other { Fate::Used } else { Fate::Reached };
        }
        if is_outside(kind, &self.files.find(target)) { Fate::Wanted } else { Fate::Missing }
    }

    fn is_inside(&mut self, call: &Notification, kind: AttemptKind, target: &Path) -> bool {
        if self.root.is_none() {
            let path = format!("/proc/{}/root", call.pid);
            self.root = open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok();
        }
        let Some(root) = &self.root else { return false };
        let find =
            |path: &Path| openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT);
        if kind != AttemptKind::Write {
            return find(target).is_ok();
        }
        let found = find(target).or_else(|_| find(target.parent().unwrap_or(target)));
        found.and_then(fstatvfs).is_ok_and(|mount| !mount.f_flag.contains(StatVfsMountFlags::RDONLY))
    }
}

/// Whether the user of the host could do it. What others answer for is not asked, and told rather than left out.
fn is_outside(kind: AttemptKind, place: &Place) -> bool {
    let is_there = matches!(place, Place::Here { .. });
    match kind {
        _ if matches!(place, Place::Elsewhere { .. }) => true,
        AttemptKind::Look | AttemptKind::Connect => is_there,
        AttemptKind::Read => place.permits(Access::READ_OK),
        AttemptKind::Execute => place.permits(Access::EXEC_OK) && !place.is_folder(),
        AttemptKind::Write => place.permits(Access::WRITE_OK),
    }
}

/// What opening with these flags does.
fn opening(flags: u64) -> AttemptKind {
    // The kernel reads the flags as a number of 32 bits.
    let flags = OFlags::from_bits_retain(flags as u32);
    if flags.contains(OFlags::PATH) {
        return AttemptKind::Look;
    }
    let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC);
    if writes { AttemptKind::Write } else { AttemptKind::Read }
}

fn read_string(memory: &File, address: u64) -> io::Result<OsString> {
    let mut buffer = [0; MAX_PATH_BYTES];
    // Ends early where the next page is not there.
    let count = memory.read_at(&mut buffer, address)?;
    let end = buffer[..count].iter().position(|byte| *byte == 0);
    let end = end.ok_or_else(|| io::Error::from(Errno::NAMETOOLONG))?;
    Ok(OsString::from_vec(buffer[..end].to_vec()))
}

/// An address in words; `None` for a family that leads nowhere.
fn read_address(memory: &File, address: u64, length: u64) -> io::Result<Option<OsString>> {
    if address == 0 {
        return Ok(None);
    }
    let length = usize::try_from(length).unwrap_or(MAX_ADDRESS_BYTES).min(MAX_ADDRESS_BYTES);
    let mut buffer = [0; MAX_ADDRESS_BYTES];
    let buffer = &mut buffer[..length];
    memory.read_exact_at(buffer, address)?;
    Ok(parse_address(buffer))
}

fn parse_address(bytes: &[u8]) -> Option<OsString> {
    let (family, rest) = bytes.split_first_chunk::<2>()?;
    let family = i32::from(u16::from_ne_bytes(*family));
    if family == libc::AF_UNIX {
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        // An abstract one begins with a zero byte and is a name of this network namespace.
        return (end > 0).then(|| OsString::from_vec(rest[..end].to_vec()));
    }
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let ip = match family {
        libc::AF_INET => IpAddr::from(Ipv4Addr::from(*rest.first_chunk::<4>()?)),
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(*rest.get(4..)?.first_chunk::<16>()?);
            ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4)
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes(*port)).to_string().into())
}

/// The path as the plugin means it: from its working directory or an open folder, without `.` and `..`. `None` if that
/// folder is no place.
fn absolute(call: &Notification, about: &About, name: &Path) -> io::Result<Option<PathBuf>> {
    if name.is_absolute() {
        return Ok(Some(plain(name)));
    }
    let folder = about.folder.map_or(libc::AT_FDCWD, |argument| call.arguments[argument] as i32);
    let link = match folder {
        libc::AT_FDCWD => format!("/proc/{}/cwd", call.pid),
        open => format!("/proc/{}/fd/{open}", call.pid),
    };
    let folder = fs::read_link(link)?;
    Ok(folder.is_absolute().then(|| plain(&folder.join(name))))
}

/// Without `.` and `..`, taken by name: a link on the way is followed in the plugin's tree when it is looked for there.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                plain.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(family: i32, rest: &[u8]) -> Option<String> {
        let family = u16::try_from(family).unwrap().to_ne_bytes();
        parse_address(&[&family, rest].concat()).map(|text| text.into_string().unwrap())
    }

    /// The address in a record is what a person will be asked about.
    #[test]
    fn addresses_read_as_people_write_them() {
        assert_eq!(address(libc::AF_INET, &[0x01, 0xbb, 192, 0, 2, 7]), Some("192.0.2.7:443".into()));
        let v6 = [&[0, 80, 0, 0, 0, 0][..], &Ipv6Addr::LOCALHOST.octets(), &[0; 4]].concat();
        assert_eq!(address(libc::AF_INET6, &v6), Some("[::1]:80".into()));
        let mapped = Ipv4Addr::new(192, 0, 2, 7).to_ipv6_mapped().octets();
        let mapped = [&[0, 80, 0, 0, 0, 0][..], &mapped, &[0; 4]].concat();
        assert_eq!(address(libc::AF_INET6, &mapped), Some("192.0.2.7:80".into()));
        assert_eq!(address(libc::AF_UNIX, b"/run/x.sock\0junk"), Some("/run/x.sock".into()));
        assert_eq!(address(libc::AF_UNIX, b"\0abstract"), None);
        assert_eq!(address(libc::AF_NETLINK, &[0; 10]), None);
        for short in 0..8 {
            assert_eq!(parse_address(&[2, 0, 0, 80, 1, 2, 3][..short.min(7)]), None);
        }
    }

    #[test]
    fn flags_tell_reading_from_changing() {
        let kind = |flags: i32| opening(u64::from(flags.unsigned_abs()));
        assert_eq!(kind(libc::O_RDONLY | libc::O_CLOEXEC), AttemptKind::Read);
        assert_eq!(kind(libc::O_PATH), AttemptKind::Look);
        for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC] {
            assert_eq!(kind(flags), AttemptKind::Write);
        }
    }

    /// A path with tricks must be noted as the place it leads to.
    #[test]
    fn paths_are_made_plain() {
        assert_eq!(plain(Path::new("/a/./b//../../../etc/x")), Path::new("/etc/x"));
        assert_eq!(plain(Path::new("/..")), Path::new("/"));
    }
}
