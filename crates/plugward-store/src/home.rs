//! The directory everything is kept in. Owns its creation, the permissions of our files in it and the lock that lets
//! one process at a time write; refuses to loosen or tighten a directory somebody else made.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::StoreError;

/// Name of the database file in the home.
pub(crate) const DATABASE_FILE: &str = "plugward.db";
/// Name of the lock file in the home.
pub(crate) const LOCK_FILE: &str = "plugward.lock";

/// Nobody but the owner reads what is kept here.
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// A process id has at most ten digits; more than this in the lock file is not ours.
const PID_TEXT_MAX_BYTES: u64 = 16;

/// The held lock of a home. The kernel releases it when the process ends, however it ends, so a crash leaves nothing
/// to clean up. The file itself stays: removing it would let two processes lock two different files of one name.
#[derive(Debug)]
pub(crate) struct HomeLock {
    file: File,
}

impl HomeLock {
    /// Takes the lock or says who has it.
    pub(crate) fn acquire(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(LOCK_FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(&path)
            .map_err(|e| StoreError::io(&path, e))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(StoreError::HomeInUse { pid: read_pid(&mut file) });
            }
            Err(errno) => return Err(StoreError::io(&path, errno.into())),
        }
        write_pid(&mut file).map_err(|e| StoreError::io(&path, e))?;
        Ok(Self { file })
    }
}

impl Drop for HomeLock {
    fn drop(&mut self) {
        // An empty file tells a person looking at it that nobody is there. Unlocking instead of just closing frees the
        // home even while a child that is about to be executed still has a copy of the descriptor.
        let _ = self.file.set_len(0);
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(PID_TEXT_MAX_BYTES).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

/// Makes the home where it is missing, readable by its owner alone.
pub(crate) fn create_dir(dir: &Path) -> Result<(), StoreError> {
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir).map_err(|e| StoreError::io(dir, e))
}

/// Refuses a home that another user of the machine works with. Root can write anywhere, and its files would then keep the
/// home's owner out.
pub(crate) fn refuse_foreign(dir: &Path) -> Result<(), StoreError> {
    let user = rustix::process::geteuid().as_raw();
    let owner_of = |path: &Path| std::fs::metadata(path).map(|found| (found.uid(), found.mode()));
    let foreign = |owner| StoreError::HomeForeign { path: dir.to_owned(), owner, user };
    match (owner_of(&dir.join(DATABASE_FILE)), owner_of(dir)) {
        (Ok((owner, _)), _) if owner != user => Err(foreign(owner)),
        // The folder is closed: without this look the answer would be "permission denied" at some file in it.
        (Err(_), Ok((owner, mode))) if owner != user && mode & 0o077 == 0 => Err(foreign(owner)),
        _ => Ok(()),
    }
}

/// Makes the database file where it is missing and returns its path. SQLite gives its companion files the mode of the
/// database, so this one call keeps all of them private.
pub(crate) fn create_database_file(dir: &Path) -> Result<PathBuf, StoreError> {
    let path = dir.join(DATABASE_FILE);
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .open(&path)
        .map_err(|e| StoreError::io(&path, e))?;
    Ok(path)
}
