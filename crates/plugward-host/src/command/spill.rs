//! Files with all of an output that did not fit into a result.
//!
//! Owns one folder of them for a tool, and how many are kept. Each is written under another name until it is whole, so
//! that room is never made at the cost of a run that still writes. All of it happens on threads that may wait for a
//! disk. Refuses to know what is in them.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::SystemTime;

use tokio::task::{JoinHandle, spawn_blocking};

use crate::ids::random_hex;

/// Most bytes of one file of output: enough for any log, not for filling a disk.
pub(crate) const SPILL_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Files of output kept for one tool; the oldest go first.
const SPILL_FILES_MAX: usize = 32;

/// Streams of one run that may each have a file.
const STREAMS: usize = 2;

/// Ends the name of a file that is written by this process; the same with another mark is left over from one that died.
static PART: LazyLock<String> = LazyLock::new(|| format!("{}.part", random_hex::<8>()));

/// Making room is one at a time: two at once would each leave room for the other.
static MAKING_ROOM: Mutex<()> = Mutex::new(());

/// A folder that only the host writes to.
#[derive(Debug, Clone)]
pub(crate) struct SpillDir {
    path: PathBuf,
    files_max: usize,
}

impl SpillDir {
    /// The folder `path`, which is made when it is needed, of a tool that runs `runs_at_once` times at a time: results
    /// of all of these may link to their files at the same moment.
    pub(crate) fn new(path: impl Into<PathBuf>, runs_at_once: usize) -> Self {
        Self { path: path.into(), files_max: SPILL_FILES_MAX.max(runs_at_once.saturating_mul(STREAMS)) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A new file for `stream`, which is made by the first write.
    pub(super) fn file(&self, stream: &str) -> SpillFile {
        SpillFile {
            dir: self.clone(),
            path: self.path.join(format!("{}.{stream}.txt", random_hex::<8>())),
            writing: None,
            file: None,
            has_failed: false,
        }
    }

    /// Removes what is left of runs that died, and the oldest files that are too many. Blocks.
    fn make_room(&self) {
        let _turn = MAKING_ROOM.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        let mut whole: Vec<(SystemTime, PathBuf)> = Vec::new();
        let mut surplus = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.ends_with(PART.as_str()) {
                continue;
            }
            if name.ends_with(".part") {
                surplus.push(entry.path());
            } else if let Ok(at) = entry.metadata().and_then(|found| found.modified()) {
                whole.push((at, entry.path()));
            }
        }
        whole.sort();
        let too_many = whole.len().saturating_sub(self.files_max);
        surplus.extend(whole.into_iter().take(too_many).map(|(_, path)| path));
        // A file that cannot be removed now is tried again next time.
        surplus.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

/// One file. Dropping it unfinished removes what there is of it.
pub(super) struct SpillFile {
    dir: SpillDir,
    /// Where it is once it is whole.
    path: PathBuf,
    /// A write under way; it goes on if whoever asked for it does not wait.
    writing: Option<JoinHandle<io::Result<File>>>,
    file: Option<File>,
    has_failed: bool,
}

impl SpillFile {
    /// Appends `bytes`. Returns while they are written, at most one write behind.
    pub(super) async fn write(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        self.settle().await?;
        let (file, dir, part) = (self.file.take(), self.dir.path.clone(), self.part());
        self.writing = Some(spawn_blocking(move || {
            let mut file = match file {
                Some(file) => file,
                None => {
                    fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
                    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?
                }
            };
            file.write_all(&bytes)?;
            Ok(file)
        }));
        Ok(())
    }

    /// Waits for the write under way.
    async fn settle(&mut self) -> io::Result<()> {
        let Some(writing) = &mut self.writing else { return Ok(()) };
        let written = writing.await;
        self.writing = None;
        match written.map_err(io::Error::other).and_then(|written| written) {
            Ok(file) => {
                self.file = Some(file);
                Ok(())
            }
            Err(error) => {
                self.has_failed = true;
                Err(error)
            }
        }
    }

    /// Waits until everything is written.
    pub(super) async fn written(&mut self) -> io::Result<()> {
        self.settle().await
    }

    /// Puts it in its place and makes room among the older ones; its path and length in bytes, or none where it could not
    /// be written.
    pub(super) async fn finish(mut self) -> Option<(PathBuf, u64)> {
        self.settle().await.ok()?;
        if self.has_failed {
            return None;
        }
        let (file, part, path, dir) = (self.file.take()?, self.part(), self.path.clone(), self.dir.clone());
        spawn_blocking(move || {
            let bytes = file.metadata().ok()?.len();
            // The age that counts is how long somebody has had it, and not when its command wrote last.
            let _ = file.set_modified(SystemTime::now());
            fs::rename(&part, &path).ok()?;
            dir.make_room();
            Some((path, bytes))
        })
        .await
        .ok()?
    }

    fn part(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(PART.as_str());
        PathBuf::from(name)
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        let part = self.part();
        let remove = move || drop(fs::remove_file(part));
        // Behind a write under way, so that it does not make the file again; without a runtime there is nobody to hold up.
        let writing = self.writing.take();
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                if let Some(writing) = writing {
                    let _ = writing.await;
                }
                let _ = spawn_blocking(remove).await;
            })),
            Err(_) => remove(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn whole(dir: &SpillDir) -> PathBuf {
        let mut file = dir.file("stdout");
        file.write(b"0123".to_vec()).await.unwrap();
        file.write(b"456".to_vec()).await.unwrap();
        let (path, bytes) = file.finish().await.unwrap();
        assert_eq!((fs::read(&path).unwrap(), bytes), (b"0123456".to_vec(), 7));
        path
    }

    fn names(dir: &SpillDir) -> Vec<String> {
        let entries = fs::read_dir(dir.path()).unwrap().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    // Requirement 201; invariant 7: what is kept is bounded, and what is handed out now is not what goes.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_newest_files_stay_and_those_being_written_do() {
        let folder = tempfile::tempdir().unwrap();
        let dir = SpillDir::new(folder.path().join("out"), 1);
        let mut slow = dir.file("stderr");
        slow.write(b"slow".to_vec()).await.unwrap();
        slow.written().await.unwrap();
        fs::write(dir.path().join("0.stdout.txt.ffff.part"), "left by one that died").unwrap();
        for _ in 0..SPILL_FILES_MAX + 3 {
            whole(&dir).await;
        }
        let left = names(&dir);
        assert_eq!(left.len(), SPILL_FILES_MAX + 1, "{left:?}");
        assert_eq!(left.iter().filter(|name| name.ends_with(".part")).count(), 1, "{left:?}");
        assert_eq!(fs::read(slow.finish().await.unwrap().0).unwrap(), b"slow");
        // As many as may be handed out at the same moment are there at that moment.
        let wide = SpillDir::new(folder.path().join("wide"), 40);
        let all: Vec<_> = (0..80)
            .map(|_| {
                tokio::spawn({
                    let wide = wide.clone();
                    async move { whole(&wide).await }
                })
            })
            .collect();
        for path in all {
            assert!(path.await.unwrap().exists());
        }
    }

    #[tokio::test]
    async fn what_is_not_finished_is_not_left_and_what_cannot_be_written_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let dir = SpillDir::new(folder.path().join("out"), 1);
        let mut file = dir.file("stdout");
        file.write(b"half".to_vec()).await.unwrap();
        file.written().await.unwrap();
        assert_eq!(names(&dir).len(), 1);
        drop(file);
        while !names(&dir).is_empty() {
            tokio::task::yield_now().await;
        }
        fs::write(folder.path().join("file"), "").unwrap();
        let mut nowhere = SpillDir::new(folder.path().join("file"), 1).file("stdout");
        nowhere.write(b"x".to_vec()).await.unwrap();
        assert!(nowhere.written().await.is_err());
        assert_eq!(nowhere.finish().await, None);
    }
}
