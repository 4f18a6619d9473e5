//! Where a path leads on this machine, found out without asking anything but the machine itself.
//!
//! Owns following a path step by step, and stopping in front of every mount that another machine or another program
//! answers for: entering an automount, a network file system or a file system of a program makes that other one act, and may
//! never return. Refuses opening what it finds for more than a look.
//!
//! The path comes from a plugin that nobody approved yet, so nothing it names may have an effect.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fs::File,
    io::{Read, Seek},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Access, FileType, Mode, OFlags, access, fstat, open, openat, readlinkat},
    io::Errno,
};

/// Links followed on one way, as the kernel counts.
const MAX_LINKS: usize = 40;

/// Steps of one way, links included: what they lead to can be long, and each of them may.
const MAX_STEPS: usize = 4096;

/// Largest list of mounts that is read. Machines with thousands of containers have a few hundred KiB.
const MAX_MOUNTS_BYTES: u64 = 8 * 1024 * 1024;

/// File systems that the kernel serves from memory or from a device of this machine. All others are left alone, those not
/// known yet among them.
const LOCAL: [&str; 26] = [
    "bcachefs",
    "btrfs",
    "devtmpfs",
    "erofs",
    "exfat",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "hugetlbfs",
    "iso9660",
    "jfs",
    "mqueue",
    "msdos",
    "nilfs2",
    "ntfs3",
    "overlay",
    "ramfs",
    "reiserfs",
    "rootfs",
    "squashfs",
    "tmpfs",
    "udf",
    "vfat",
    "xfs",
    "zfs",
];

/// What is at the end of a path.
#[derive(Debug)]
pub enum Place {
    /// A file, a folder or something else.
    Here {
        /// Its path without links.
        real: PathBuf,
        /// The thing itself, for asking what may be done with it.
        object: OwnedFd,
    },
    /// Nothing. The folder it would be in, where there is one.
    Missing {
        /// The folder.
        folder: Option<OwnedFd>,
    },
    /// Behind a mount that is not entered.
    Elsewhere {
        /// Type of its file system, such as `autofs` or `nfs4`.
        kind: String,
    },
}

impl Place {
    /// Whether the user of this process may do this to what is there, or make it where nothing is yet.
    #[must_use]
    pub fn permits(&self, rights: Access) -> bool {
        let may = |object: &OwnedFd| access(format!("/proc/self/fd/{}", object.as_raw_fd()), rights).is_ok();
        match self {
            Self::Here { object, .. } => may(object),
            Self::Missing { folder } => rights == Access::WRITE_OK && folder.as_ref().is_some_and(may),
            Self::Elsewhere { .. } => false,
        }
    }

    /// Whether it is a folder.
    #[must_use]
    pub fn is_folder(&self) -> bool {
        let Self::Here { object, .. } = self else { return false };
        fstat(object).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    }
}

/// The mounts that are not entered, as this process sees them.
#[derive(Debug)]
pub struct LocalFiles {
    /// The kernel's list; it tells when it changed.
    list: Option<File>,
    /// By mount point, in no order.
    others: Vec<(PathBuf, String)>,
}

impl Default for LocalFiles {
    fn default() -> Self {
        Self::new()
    }
}

impl LocalFiles {
    /// Reads the mounts. Where they cannot be read, every path is elsewhere.
    #[must_use]
    pub fn new() -> Self {
        let mut files = Self { list: File::open("/proc/self/mountinfo").ok(), others: Vec::new() };
        files.read();
        files
    }

    #[cfg(test)]
    fn of(mounts: &[u8]) -> Self {
        Self { list: File::open("/proc/self/mountinfo").ok(), others: others(mounts) }
    }

    /// Where `path` leads. Relative paths lead nowhere.
    #[must_use]
    pub fn find(&mut self, path: &Path) -> Place {
        if self.has_changed() {
            self.read();
        }
        if self.list.is_none() {
            return Place::Elsewhere { kind: "unknown".to_owned() };
        }
        self.walk(path).unwrap_or(Place::Missing { folder: None })
    }

    fn walk(&self, path: &Path) -> Result<Place, Errno> {
        if !path.is_absolute() {
            return Err(Errno::NOENT);
        }
        let mut way: VecDeque<OsString> = parts(path).collect();
        let root = || open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        // Each folder on the way down, so that `..` leads where the way came from.
        let mut folders: Vec<OwnedFd> = vec![root()?];
        let mut real = PathBuf::from("/");
        let (mut links, mut steps) = (0, 0);
        while let Some(part) = way.pop_front() {
            steps += 1;
            if steps > MAX_STEPS {
                return Err(Errno::LOOP);
            }
            if part == ".." {
                if folders.len() > 1 {
                    folders.pop();
                    real.pop();
                }
                continue;
            }
            let next = real.join(&part);
            if let Some(kind) = self.other(&next) {
                return Ok(Place::Elsewhere { kind: kind.to_owned() });
            }
            let folder = folders.last().ok_or(Errno::NOENT)?;
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let found = match openat(folder, &part, flags, Mode::empty()) {
                Ok(found) => found,
                Err(Errno::NOENT) if way.is_empty() => return Ok(Place::Missing { folder: folders.pop() }),
                Err(error) => return Err(error),
            };
            if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::Symlink {
                real = next;
                folders.push(found);
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::LOOP);
            }
            let target = readlinkat(&found, "", Vec::new())?.into_bytes();
            let target = PathBuf::from(OsString::from_vec(target));
            if target.is_absolute() {
                folders.truncate(1);
                real = PathBuf::from("/");
            }
            for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                way.push_front(part);
            }
        }
        let object = folders.pop().ok_or(Errno::NOENT)?;
        Ok(Place::Here { real, object })
    }

    /// The type of what is mounted at exactly this place, if it is not entered.
    fn other(&self, place: &Path) -> Option<&str> {
        self.others.iter().find(|(mount, _)| mount == place).map(|(_, kind)| kind.as_str())
    }

    fn has_changed(&self) -> bool {
        let Some(list) = &self.list else { return false };
        let mut polled = [PollFd::from_borrowed_fd(list.as_fd(), PollFlags::PRI)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    fn read(&mut self) {
        let Some(list) = &self.list else { return };
        let mut text = Vec::new();
        let start = list.try_clone().and_then(|mut file| {
            file.rewind()?;
            file.take(MAX_MOUNTS_BYTES).read_to_end(&mut text)
        });
        match start {
            Ok(length) if length as u64 != MAX_MOUNTS_BYTES => self.others = others(&text),
            // Half a list is none.
            _ => self.list = None,
        }
    }
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// Mount points of file systems that are not local. The root is entered whatever it is: this process runs from it.
fn others(mountinfo: &[u8]) -> Vec<(PathBuf, String)> {
    let lines = mountinfo.split(|byte| *byte == b'\n');
    let mounts = lines.filter_map(|line| {
        let mark = line.windows(3).position(|bytes| bytes == b" - ")?;
        let mount = line[..mark].split(|byte| *byte == b' ').nth(4)?;
        let kind = line[mark + 3..].split(|byte| *byte == b' ').next()?;
        let kind = String::from_utf8_lossy(kind).into_owned();
        Some((PathBuf::from(OsString::from_vec(unescaped(mount))), kind))
    });
    mounts.filter(|(mount, kind)| mount != Path::new("/") && !LOCAL.contains(&kind.as_str())).collect()
}

/// Spaces, tabs, newlines and backslashes are written as three octal digits after a backslash.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, others)) = rest.split_first() {
        let code = others.first_chunk::<3>().filter(|_| *first == b'\\');
        let code = code.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match code {
            Some(byte) => {
                out.push(byte);
                rest = &others[3..];
            }
            None => {
                out.push(*first);
                rest = others;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounts(at: &Path, kind: &str) -> Vec<u8> {
        format!("1 0 8:1 / / rw - ext4 /dev/x rw\n2 1 0:9 / {} rw shared:1 - {kind} x rw\n", at.display()).into_bytes()
    }

    /// Requirement 137's kind of care for a trial: a name that a plugin makes up must not wake an automount or wait for a
    /// server, whichever way it gets there.
    #[test]
    fn a_mount_that_others_answer_for_is_not_entered() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(folder.join("far/below")).unwrap();
        std::fs::write(folder.join("far/below/file"), "x").unwrap();
        std::fs::create_dir(folder.join("near")).unwrap();
        std::os::unix::fs::symlink("../far/below", folder.join("near/link")).unwrap();
        std::os::unix::fs::symlink(folder.join("near/link"), folder.join("near/twice")).unwrap();
        let ways = ["far", "far/below/file", "near/link/file", "near/twice/file", "near/../far/none"];
        for kind in ["autofs", "nfs4", "fuse.sshfs", "cifs", "9p", "made-up"] {
            let mut files = LocalFiles::of(&mounts(&folder.join("far"), kind));
            for way in ways {
                let place = files.find(&folder.join(way));
                assert!(matches!(&place, Place::Elsewhere { kind: told } if told == kind), "{way}: {place:?}");
            }
            assert!(matches!(files.find(&folder.join("near")), Place::Here { .. }));
        }
        // The control: the same ways on a local file system are followed to their end.
        let mut files = LocalFiles::of(&mounts(&folder.join("far"), "ext4"));
        for way in &ways[1..4] {
            let place = files.find(&folder.join(way));
            let Place::Here { real, .. } = &place else { panic!("{way}: {place:?}") };
            assert_eq!(*real, folder.join("far/below/file"));
            assert!(place.permits(Access::READ_OK) && !place.is_folder());
        }
    }

    #[test]
    fn what_is_missing_has_a_folder_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = LocalFiles::new();
        let missing = files.find(&folder.path().join("none"));
        assert!(matches!(missing, Place::Missing { folder: Some(_) }) && missing.permits(Access::WRITE_OK));
        assert!(!missing.permits(Access::READ_OK));
        assert!(matches!(files.find(&folder.path().join("none/deeper")), Place::Missing { folder: None }));
        std::os::unix::fs::symlink("round", folder.path().join("round")).unwrap();
        assert!(matches!(files.find(&folder.path().join("round")), Place::Missing { folder: None }));
        assert!(matches!(files.find(Path::new("relative")), Place::Missing { folder: None }));
        assert!(files.find(folder.path()).is_folder());
    }

    #[test]
    fn mount_points_are_read_as_they_are_written() {
        let list = b"5 1 0:5 / /net\\040and\\134more rw - autofs auto rw\n6 1 0:6 / / rw - 9p x rw\nnonsense\n";
        assert_eq!(others(list), [(PathBuf::from("/net and\\more"), "autofs".to_owned())]);
        // The kernel's own trees are no places of files.
        assert!(others(b"7 1 0:7 / /proc rw - proc proc rw\n")[0].1 == "proc");
    }
}
