//! A bounded, sorted listing of an untrusted folder, and safe access to its entries.
//!
//! Every step goes through a descriptor of the folder above (`openat` with `O_NOFOLLOW`), so a folder that is swapped
//! for a link while it is read gives an error instead of leading outside. Special files are refused where they are
//! met; the listing holds only files, folders and links. Refuses to read contents: that is copying and hashing.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::error::{PackageError, PackageLimit};

/// Most entries (files, folders, links) of a package. A large `node_modules` has some 60,000.
pub(crate) const MAX_PACKAGE_FILES: u64 = 200_000;

/// Most bytes of a package, all regular files together: bundled models and browsers fit, a home folder given by
/// mistake mostly does not.
pub(crate) const MAX_PACKAGE_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// Deepest nesting of folders. Each level holds one descriptor and one stack frame while the tree is listed.
pub(crate) const MAX_PACKAGE_DEPTH: usize = 64;

/// How large a package may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackageLimits {
    /// Most files, folders and links together.
    pub(crate) files: u64,
    /// Most bytes of all regular files.
    pub(crate) bytes: u64,
    /// Most folders inside each other.
    pub(crate) depth: usize,
}

impl Default for PackageLimits {
    fn default() -> Self {
        Self { files: MAX_PACKAGE_FILES, bytes: MAX_PACKAGE_BYTES, depth: MAX_PACKAGE_DEPTH }
    }
}

/// What an entry is. Nothing else gets into a [`Tree`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EntryKind {
    Folder,
    File,
    Link { target: Vec<u8> },
}

/// One file, folder or link.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Path below the root, `/` between names, in the bytes the file system has.
    pub(super) path: Vec<u8>,
    pub(super) kind: EntryKind,
    /// Permission bits only.
    pub(super) mode: u32,
}

/// All entries of a folder, parents before children, sorted by the bytes of their paths.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) dir: PathBuf,
    pub(super) root: OwnedFd,
    pub(super) entries: Vec<Entry>,
}

/// Which entries a listing leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Skip {
    Nothing,
    /// `.git` at any depth: history is no part of what would run, is often larger than all the rest, and changes
    /// without any change to the files.
    GitFolders,
}

impl Tree {
    /// Lists `dir` within `limits`.
    pub(super) fn read(dir: &Path, limits: &PackageLimits, skip: Skip) -> Result<Self, PackageError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(dir, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT => PackageError::NotFound { path: dir.to_owned() },
            Errno::NOTDIR => PackageError::NotAFolder { path: dir.to_owned() },
            other => PackageError::os(dir, "listed", other),
        })?;
        let mut listing = Listing { dir, limits, skip, entries: Vec::new(), bytes: 0 };
        listing.folder(root.as_fd(), &[], 0)?;
        let mut entries = listing.entries;
        entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { dir: dir.to_owned(), root, entries })
    }
}

/// The absolute path of an entry, for messages.
pub(super) fn full_path(dir: &Path, relative: &[u8]) -> PathBuf {
    dir.join(OsStr::from_bytes(relative))
}

struct Listing<'a> {
    dir: &'a Path,
    limits: &'a PackageLimits,
    skip: Skip,
    entries: Vec<Entry>,
    bytes: u64,
}

impl Listing<'_> {
    fn folder(&mut self, folder: BorrowedFd<'_>, path: &[u8], depth: usize) -> Result<(), PackageError> {
        if depth > self.limits.depth {
            return Err(self.too_large(PackageLimit::Depth(self.limits.depth)));
        }
        for name in self.names(folder, path)? {
            let mut child = path.to_vec();
            if !child.is_empty() {
                child.push(b'/');
            }
            child.extend_from_slice(&name);
            let found = rustix::fs::statat(folder, OsStr::from_bytes(&name), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|errno| self.os(&child, "read", errno))?;
            let mode = Mode::from_raw_mode(found.st_mode).bits() & 0o7777;
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory => {
                    let opened = open_folder(folder, &name).map_err(|errno| self.os(&child, "listed", errno))?;
                    self.push(Entry { path: child.clone(), kind: EntryKind::Folder, mode })?;
                    self.folder(opened.as_fd(), &child, depth + 1)?;
                }
                FileType::RegularFile => {
                    self.bytes = self.bytes.saturating_add(u64::try_from(found.st_size).unwrap_or(0));
                    if self.bytes > self.limits.bytes {
                        return Err(self.too_large(PackageLimit::Bytes(self.limits.bytes)));
                    }
                    self.push(Entry { path: child, kind: EntryKind::File, mode })?;
                }
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(folder, OsStr::from_bytes(&name), Vec::new())
                        .map_err(|errno| self.os(&child, "read", errno))?
                        .into_bytes();
                    self.push(Entry { path: child, kind: EntryKind::Link { target }, mode })?;
                }
                special => {
                    let path = full_path(self.dir, &child);
                    return Err(PackageError::SpecialFile { path, found: special_name(special) });
                }
            }
        }
        Ok(())
    }

    /// The names in one folder. They are collected first, so that a folder that grows while it is read cannot keep
    /// the walk going for ever.
    fn names(&self, folder: BorrowedFd<'_>, path: &[u8]) -> Result<Vec<Vec<u8>>, PackageError> {
        let mut names = Vec::new();
        let mut entries = Dir::read_from(folder).map_err(|errno| self.os(path, "listed", errno))?;
        while let Some(entry) = entries.read() {
            let entry = entry.map_err(|errno| self.os(path, "listed", errno))?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." || (self.skip == Skip::GitFolders && name == b".git") {
                continue;
            }
            if (self.entries.len() + names.len()) as u64 >= self.limits.files {
                return Err(self.too_large(PackageLimit::Files(self.limits.files)));
            }
            names.push(name.to_vec());
        }
        Ok(names)
    }

    fn push(&mut self, entry: Entry) -> Result<(), PackageError> {
        if self.entries.len() as u64 >= self.limits.files {
            return Err(self.too_large(PackageLimit::Files(self.limits.files)));
        }
        self.entries.push(entry);
        Ok(())
    }

    fn os(&self, path: &[u8], step: &'static str, errno: Errno) -> PackageError {
        entry_error(self.dir, path, step, errno)
    }

    fn too_large(&self, limit: PackageLimit) -> PackageError {
        PackageError::TooLarge { path: self.dir.to_owned(), limit }
    }
}

/// Opens the folders above entries, keeping the last one: entries are sorted, so neighbours mostly share it.
pub(super) struct ParentFolders<'a> {
    dir: &'a Path,
    root: BorrowedFd<'a>,
    last: Option<(Vec<u8>, OwnedFd)>,
}

impl<'a> ParentFolders<'a> {
    /// Access below `root`, which lies at `dir` (used in messages only).
    pub(super) fn new(dir: &'a Path, root: BorrowedFd<'a>) -> Self {
        Self { dir, root, last: None }
    }

    /// The open folder above `path` and the last name of `path`.
    pub(super) fn of<'p>(&mut self, path: &'p [u8]) -> Result<(BorrowedFd<'_>, &'p OsStr), PackageError> {
        let Some(slash) = path.iter().rposition(|&b| b == b'/') else {
            return Ok((self.root, OsStr::from_bytes(path)));
        };
        let (parent, name) = (&path[..slash], OsStr::from_bytes(&path[slash + 1..]));
        let kept = self.last.take().filter(|(kept, _)| kept == parent);
        let opened = match kept {
            Some(kept) => kept,
            None => (parent.to_vec(), self.open(parent)?),
        };
        Ok((self.last.insert(opened).1.as_fd(), name))
    }

    fn open(&self, parent: &[u8]) -> Result<OwnedFd, PackageError> {
        let mut opened: Option<OwnedFd> = None;
        for name in parent.split(|&b| b == b'/') {
            let above = opened.as_ref().map_or(self.root, AsFd::as_fd);
            let next = open_folder(above, name).map_err(|errno| entry_error(self.dir, parent, "listed", errno))?;
            opened = Some(next);
        }
        opened.ok_or_else(|| PackageError::Changed { path: full_path(self.dir, parent) })
    }
}

/// Opens a regular file for reading without following a link and without waiting for the writer of a pipe.
pub(super) fn open_file(dir: &Path, above: BorrowedFd<'_>, name: &OsStr, path: &[u8]) -> Result<OwnedFd, PackageError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened =
        rustix::fs::openat(above, name, flags, Mode::empty()).map_err(|errno| entry_error(dir, path, "read", errno))?;
    let found = rustix::fs::fstat(&opened).map_err(|errno| entry_error(dir, path, "read", errno))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(PackageError::Changed { path: full_path(dir, path) });
    }
    Ok(opened)
}

fn open_folder(above: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(above, OsStr::from_bytes(name), flags, Mode::empty())
}

/// An error about one entry. A link, a missing name or a non-folder where the listing saw something else means that
/// somebody writes to the package right now.
fn entry_error(dir: &Path, path: &[u8], step: &'static str, errno: Errno) -> PackageError {
    let path = full_path(dir, path);
    match errno {
        Errno::LOOP | Errno::NOTDIR | Errno::NOENT => PackageError::Changed { path },
        other => PackageError::os(path, step, other),
    }
}

fn special_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "a special file",
    }
}
