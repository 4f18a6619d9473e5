//! One output stream of a running command, read as it is written. Owns the limit on what is kept and the file for what
//! is not. Refuses to keep more than the limit in memory, whatever the command writes (invariant 7).

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plugward_policy::Overflow;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::clean::clean;
use crate::ids::random_hex;

/// Bytes read at once: what a pipe holds.
const CHUNK_BYTES: usize = 64 * 1024;

/// Most bytes of one file of output: enough for any log, not for filling a disk.
const SPILL_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Files of output kept for one tool; the oldest go first.
const SPILL_FILES_MAX: usize = 32;

/// Shortest pause between two progress notes: what a person can read, and a bound on what a client is sent.
const NOTE_GAP: Duration = Duration::from_millis(200);

/// Bytes of a line that a progress note repeats.
const NOTE_BYTES: usize = 256;

/// Room behind that for a secret that begins before the cut.
const SECRET_ROOM_BYTES: usize = 8 * 1024;

/// Why reading ended early.
#[derive(Debug)]
pub(super) enum CaptureError {
    /// More than is handed on, and the tool wants that to fail.
    TooLarge,
    /// The file for the rest cannot be written.
    Spill(io::Error),
}

/// What was read of a stream.
pub(super) struct Capture {
    name: &'static str,
    limit_bytes: usize,
    overflow: Overflow,
    kept: Vec<u8>,
    total_bytes: u64,
    spill_dir: Option<PathBuf>,
    file: Option<(File, PathBuf)>,
}

impl Capture {
    pub(super) fn new(name: &'static str, limit_bytes: u64, overflow: Overflow, spill_dir: Option<&Path>) -> Self {
        Self {
            name,
            limit_bytes: usize::try_from(limit_bytes).unwrap_or(usize::MAX),
            overflow,
            kept: Vec::new(),
            total_bytes: 0,
            spill_dir: spill_dir.map(Path::to_owned),
            file: None,
        }
    }

    /// Reads to the end.
    pub(super) async fn read(
        &mut self,
        mut pipe: pipe::Receiver,
        mut notes: Option<&mut Notes>,
    ) -> Result<(), CaptureError> {
        let mut chunk = vec![0; CHUNK_BYTES];
        // An error of a pipe is its end: what was read until then stays.
        while let Ok(read @ 1..) = pipe.read(&mut chunk).await {
            self.take(&chunk[..read])?;
            if let Some(notes) = notes.as_deref_mut() {
                notes.take(&chunk[..read]);
            }
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), CaptureError> {
        self.total_bytes += bytes.len() as u64;
        let room = self.limit_bytes.saturating_sub(self.kept.len());
        let fits = bytes.len().min(room);
        self.kept.extend_from_slice(&bytes[..fits]);
        if fits == bytes.len() {
            return Ok(());
        }
        match self.overflow {
            Overflow::Error => Err(CaptureError::TooLarge),
            Overflow::Truncate => Ok(()),
            // The few thousand bytes of a write go to the page cache; they do not hold up other calls.
            Overflow::Spill => self.spill(&bytes[fits..]).map_err(CaptureError::Spill),
        }
    }

    fn spill(&mut self, rest: &[u8]) -> io::Result<()> {
        if self.total_bytes > SPILL_BYTES_MAX {
            return Err(io::Error::other(format!("output has more than {SPILL_BYTES_MAX} bytes")));
        }
        if self.file.is_none() {
            let dir = self.spill_dir.as_deref().ok_or_else(|| io::Error::other("there is no place for it"))?;
            let (mut file, path) = create(dir, self.name)?;
            file.write_all(&self.kept)?;
            self.file = Some((file, path));
        }
        match &mut self.file {
            Some((file, _)) => file.write_all(rest),
            None => Ok(()),
        }
    }

    /// What came of it.
    pub(super) fn finish(self) -> Captured {
        let kept_bytes = self.kept.len() as u64;
        let is_cut = self.total_bytes > kept_bytes;
        let file = self.file.map(|(_, path)| path);
        Captured { text: clean(&self.kept), kept_bytes, total_bytes: self.total_bytes, is_cut, file }
    }
}

/// A stream that was read.
#[derive(Debug, Default)]
pub(super) struct Captured {
    /// The beginning, up to the limit, as text.
    pub(super) text: String,
    /// Bytes of it before it was cleaned.
    pub(super) kept_bytes: u64,
    /// Bytes the command wrote.
    pub(super) total_bytes: u64,
    /// Whether `text` is not all of it.
    pub(super) is_cut: bool,
    /// Where all of it is, when it did not fit.
    pub(super) file: Option<PathBuf>,
}

/// A new file in a folder that only the host writes to, with room made among the older ones.
fn create(dir: &Path, stream: &str) -> io::Result<(File, PathBuf)> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut old: Vec<(std::time::SystemTime, PathBuf)> = fs::read_dir(dir)?
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    old.sort();
    let surplus = (old.len() + 1).saturating_sub(SPILL_FILES_MAX);
    // A file that cannot be removed now is tried again next time.
    old.into_iter().take(surplus).for_each(|(_, path)| drop(fs::remove_file(path)));
    let path = dir.join(format!("{}.{stream}.txt", random_hex::<8>()));
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    Ok((file, path))
}

/// Progress of a command, told by the lines it writes.
pub(crate) struct Notes {
    sender: mpsc::Sender<Box<RawValue>>,
    line: Vec<u8>,
    lines: u64,
    last: Option<Instant>,
    mask: Box<dyn Fn(&str) -> String + Send + Sync>,
}

impl Notes {
    /// Notes to `sender`, each text through `mask` first.
    pub(super) fn new(
        sender: mpsc::Sender<Box<RawValue>>,
        mask: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        Self { sender, line: Vec::new(), lines: 0, last: None, mask: Box::new(mask) }
    }

    fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = (NOTE_BYTES + SECRET_ROOM_BYTES).saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.lines += 1;
                let is_due = self.last.is_none_or(|last| last.elapsed() >= NOTE_GAP);
                if is_due && !self.line.is_empty() {
                    self.last = Some(Instant::now());
                    self.send();
                }
                self.line.clear();
            }
        }
    }

    fn send(&self) {
        // Masked before it is cut: half a secret would not be known for one.
        let mut message = (self.mask)(clean(&self.line).trim_end());
        let end = (0..=NOTE_BYTES.min(message.len())).rev().find(|at| message.is_char_boundary(*at));
        message.truncate(end.unwrap_or_default());
        if let Ok(params) = to_raw_value(&json!({ "progress": self.lines, "message": message })) {
            // A client that does not keep up misses a note, not the result.
            let _ = self.sender.try_send(params);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(overflow: Overflow, dir: Option<&Path>) -> Capture {
        Capture::new("stdout", 10, overflow, dir)
    }

    // Requirement 175: the limit is exact.
    #[test]
    fn the_limit_is_exact_and_what_is_over_it_is_as_the_tool_says() {
        let mut exact = capture(Overflow::Error, None);
        assert!(exact.take(b"01234").is_ok() && exact.take(b"56789").is_ok());
        assert!(matches!(exact.take(b"x"), Err(CaptureError::TooLarge)));
        let mut cut = capture(Overflow::Truncate, None);
        assert!(cut.take(b"0123456789abc").is_ok() && cut.take(b"def").is_ok());
        let cut = cut.finish();
        assert_eq!((cut.text.as_str(), cut.total_bytes, cut.is_cut, cut.file), ("0123456789", 16, true, None));
        let mut none = capture(Overflow::Spill, None);
        assert!(matches!(none.take(b"0123456789a"), Err(CaptureError::Spill(_))));
    }

    #[test]
    fn a_file_has_all_of_it_and_old_files_go() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..SPILL_FILES_MAX + 3 {
            let mut spilled = capture(Overflow::Spill, Some(&dir.path().join("out")));
            assert!(
                spilled.take(b"0123456").is_ok() && spilled.take(b"789abc").is_ok() && spilled.take(b"def").is_ok()
            );
            let spilled = spilled.finish();
            assert_eq!(fs::read(spilled.file.unwrap()).unwrap(), b"0123456789abcdef");
            assert_eq!((spilled.text.as_str(), spilled.is_cut), ("0123456789", true));
        }
        assert_eq!(fs::read_dir(dir.path().join("out")).unwrap().count(), SPILL_FILES_MAX);
    }

    #[test]
    fn notes_are_lines_and_bounded() {
        let (sender, mut notes) = mpsc::channel(4);
        let mut writer = Notes::new(sender, |text| text.replace("secret", "***"));
        writer.take(b"\x1b[1mfirst secret\x1b[0m");
        assert!(notes.try_recv().is_err());
        writer.take(b"\nsecond\nthird\n");
        let note = notes.try_recv().unwrap();
        assert_eq!(note.get(), r#"{"progress":1,"message":"first ***"}"#);
        // The next ones came at once, and are counted in a later note.
        assert!(notes.try_recv().is_err());
    }
}
