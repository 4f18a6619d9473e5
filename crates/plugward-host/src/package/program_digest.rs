//! The digest of a program file, read once per state of the file.
//!
//! An interpreter of 90 MB is shared by many plugins and checked at every start. Refuses to trust a file's times while
//! they could still hide a change.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plugward_policy::Digest;

use super::hash::hash_reader;

/// Largest program that is hashed, in bytes: several times the largest runtime that is shipped as one file.
pub(super) const MAX_EXECUTABLE_BYTES: u64 = 1024 * 1024 * 1024;

/// Bytes read at once while hashing a program.
const READ_BUFFER_BYTES: usize = 256 * 1024;

/// A file that changed this recently is hashed again the next time: a second change within the resolution of the
/// file system's clock would leave no mark in its times.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Programs whose digests are kept. A host has a handful of interpreters and at most a few hundred plugins.
const MAX_KEPT_DIGESTS: usize = 512;

/// What tells one state of a file from another without reading it. The change time is part of it because, unlike the
/// modification time, the file's owner cannot set it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileState {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(self.changed.0)
            .is_ok_and(|changed| Duration::from_secs(changed).saturating_add(SETTLED_AFTER) < now)
    }
}

/// Digests of programs by file state, so that a 90 MB interpreter shared by ten plugins is read once per process.
static KEPT_DIGESTS: LazyLock<Mutex<HashMap<FileState, Digest>>> = LazyLock::new(Mutex::default);

pub(super) fn digest_of_program(mut file: File) -> io::Result<Option<Digest>> {
    let before = FileState::of(&file.metadata()?);
    if let Some(kept) = KEPT_DIGESTS.lock().unwrap_or_else(PoisonError::into_inner).get(&before) {
        return Ok(Some(*kept));
    }
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    let Some((_, hash)) = hash_reader(&mut file, &mut buffer, MAX_EXECUTABLE_BYTES)? else { return Ok(None) };
    let digest = Digest::from_bytes(hash);
    if before.is_settled() && FileState::of(&file.metadata()?) == before {
        let mut kept = KEPT_DIGESTS.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KEPT_DIGESTS {
            kept.clear();
        }
        kept.insert(before, digest);
    }
    Ok(Some(digest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn a_settled_program_is_read_once() {
        let path = Path::new("/bin/sh").canonicalize().unwrap();
        let state = FileState::of(&fs::metadata(&path).unwrap());
        assert!(state.is_settled());
        let first = digest_of_program(File::open(&path).unwrap()).unwrap().unwrap();
        assert_eq!(KEPT_DIGESTS.lock().unwrap().get(&state), Some(&first));
        assert_eq!(first, Digest::of(&fs::read(&path).unwrap()));
    }
}
