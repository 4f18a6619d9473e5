//! The size of a plugin's own folder on the disk.
//!
//! Owns a walk in small pieces, by descriptors and without following links, so that the launcher stays able to act while a
//! large folder is measured. Refuses other file systems and names that lead out.

use std::{
    ffi::CString,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, chmod, fstat, openat, openat2, statat},
    io::Errno,
};

use super::descriptors::BLOCK_BYTES;

/// Entries looked at in one piece: some milliseconds of work.
const ENTRIES_AT_ONCE: usize = 4096;
/// Deepest nesting measured. Each level costs a descriptor; what lies deeper cannot be measured and counts as too much.
const MAX_DEPTH: usize = 200;

/// A folder whose size is being measured, again and again.
#[derive(Debug)]
pub(super) struct Measured {
    folder: OwnedFd,
    device: u64,
    /// Folders entered and not finished, the outermost first.
    walk: Vec<Dir>,
    bytes: u64,
}

/// What a piece of the walk found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    /// There is more, and this much so far.
    More(u64),
    /// Everything has been looked at.
    Whole(u64),
    /// It is nested too deeply to be measured.
    TooDeep,
}

impl Measured {
    /// Opens the folder to be measured.
    pub(super) fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)?;
        let device = fstat(&folder)?.st_dev;
        Ok(Self { folder, device, walk: Vec::new(), bytes: 0 })
    }

    /// The device it lies on.
    pub(super) fn device(&self) -> u64 {
        self.device
    }

    /// Goes on with the walk, or begins a new one.
    pub(super) fn piece(&mut self) -> Piece {
        if self.walk.is_empty() {
            self.bytes = 0;
            match Dir::read_from(&self.folder) {
                Ok(folder) => self.walk.push(folder),
                // It was removed; nothing can be written to it any more.
                Err(_) => return Piece::Whole(0),
            }
        }
        for _ in 0..ENTRIES_AT_ONCE {
            let Some(current) = self.walk.last_mut() else { return Piece::Whole(self.bytes) };
            match current.read() {
                Some(Ok(entry)) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                Some(Ok(entry)) => {
                    if self.walk.len() >= MAX_DEPTH && entry.file_type() == FileType::Directory {
                        self.walk.clear();
                        return Piece::TooDeep;
                    }
                    self.add(&entry.file_name().to_owned());
                }
                Some(Err(_)) | None => drop(self.walk.pop()),
            }
        }
        Piece::More(self.bytes)
    }

    /// Adds one entry of the innermost folder, and enters it if it is one.
    fn add(&mut self, name: &CString) {
        let Some(folder) = self.walk.last().and_then(|folder| folder.fd().ok()) else { return };
        // What is gone by now takes no room.
        let Ok(found) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        let blocks = u64::try_from(found.st_blocks).unwrap_or_default();
        // A file with several names is met several times.
        #[allow(clippy::useless_conversion, reason = "the count of names is narrower on other architectures")]
        let names = match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => 1,
            _ => u64::from(found.st_nlink).max(1),
        };
        self.bytes = self.bytes.saturating_add(blocks.saturating_mul(BLOCK_BYTES) / names);
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory
            && found.st_dev == self.device
            && let Some(inner) = enter(folder, name)
        {
            self.walk.push(inner);
        }
    }
}

/// Opens a folder in a folder. A plugin may have closed one of its own to hide what is in it; its owner may open it again.
fn enter(folder: std::os::fd::BorrowedFd<'_>, name: &CString) -> Option<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match openat(folder, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let held = openat(folder, name, flags, Mode::empty()).ok()?;
            // By descriptor: the name may lead elsewhere by now.
            let mode = fstat(&held).ok()?.st_mode | Mode::RWXU.as_raw_mode();
            chmod(format!("/proc/self/fd/{}", held.as_raw_fd()), Mode::from_raw_mode(mode)).ok()?;
            openat(&held, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?
        }
        other => other.ok()?,
    };
    Dir::new(opened).ok()
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    fn whole(measured: &mut Measured) -> Piece {
        loop {
            match measured.piece() {
                Piece::More(_) => {}
                end => return end,
            }
        }
    }

    // Threat 38: many files are as full a disk as one large one, in folders that are closed as well.
    #[test]
    fn everything_of_the_folder_counts_and_nothing_else() {
        const FILE_BYTES: usize = 64 * 1024;
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let home = root.join("home");
        fs::create_dir_all(home.join("deep/closed")).unwrap();
        fs::write(root.join("outside"), vec![1; 64 * FILE_BYTES]).unwrap();
        symlink(root.join("outside"), home.join("link")).unwrap();
        symlink(&root, home.join("way-out")).unwrap();
        for number in 0..10 {
            fs::write(home.join(format!("file-{number}")), vec![1; FILE_BYTES]).unwrap();
            fs::write(home.join(format!("deep/closed/file-{number}")), vec![1; FILE_BYTES]).unwrap();
        }
        fs::hard_link(home.join("file-0"), home.join("second-name")).unwrap();
        fs::set_permissions(home.join("deep/closed"), fs::Permissions::from_mode(0o000)).unwrap();
        let mut measured = Measured::open(&home).unwrap();
        for _ in 0..2 {
            let Piece::Whole(bytes) = whole(&mut measured) else { panic!("too deep") };
            let files = 20 * FILE_BYTES as u64;
            assert!((files..files + files / 2).contains(&bytes), "{bytes}");
        }
        assert_eq!(Measured::open(&home.join("way-out")).unwrap_err(), Errno::LOOP);
    }

    /// A walk that never ends, or one that runs out of descriptors, would leave the disk unwatched.
    #[test]
    fn deep_and_wide_trees_are_bounded() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..ENTRIES_AT_ONCE + 10 {
            fs::write(root.path().join(number.to_string()), "").unwrap();
        }
        let mut measured = Measured::open(&root.path().canonicalize().unwrap()).unwrap();
        assert!(matches!(measured.piece(), Piece::More(_)));
        assert!(matches!(measured.piece(), Piece::Whole(_)));
        let mut deep = root.path().canonicalize().unwrap();
        for _ in 0..MAX_DEPTH + 1 {
            deep.push("d");
            fs::create_dir(&deep).unwrap();
        }
        assert_eq!(whole(&mut measured), Piece::TooDeep);
    }
}
