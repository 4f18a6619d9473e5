//! One output stream of a running command, read as it is written. Owns masking what it says and the limit on what is
//! kept; what is over that goes to a file (`spill`). Secrets go before anything is cut, so that no cut leaves half of
//! one. Refuses to keep more than the limit in memory, whatever the command writes (invariant 7).

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use plugward_policy::Overflow;
use plugward_store::{MaskedStream, Redactor};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::clean::clean;
use super::spill::{SPILL_BYTES_MAX, SpillDir, SpillFile};

/// Bytes read at once: what a pipe holds.
const CHUNK_BYTES: usize = 64 * 1024;

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
    /// More than a file of output may have.
    SpillTooLarge,
    /// The file for the rest cannot be written.
    Spill {
        /// Where it should have been.
        dir: PathBuf,
        error: io::Error,
    },
}

/// What was read of a stream.
pub(super) struct Capture {
    name: &'static str,
    limit_bytes: usize,
    overflow: Overflow,
    masked: MaskedStream,
    /// What came out of `masked` last; kept for its room.
    passed: Vec<u8>,
    kept: Vec<u8>,
    total_bytes: u64,
    is_read_to_end: bool,
    spill_dir: Option<SpillDir>,
    file: Option<SpillFile>,
}

impl Capture {
    pub(super) fn new(
        name: &'static str,
        limit_bytes: u64,
        overflow: Overflow,
        spill_dir: Option<SpillDir>,
        redactor: &Redactor,
    ) -> Self {
        Self {
            name,
            limit_bytes: usize::try_from(limit_bytes).unwrap_or(usize::MAX),
            overflow,
            masked: redactor.stream(),
            passed: Vec::new(),
            kept: Vec::new(),
            total_bytes: 0,
            is_read_to_end: false,
            spill_dir,
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
            self.take(&chunk[..read]).await?;
            if let Some(notes) = notes.as_deref_mut() {
                notes.take(&chunk[..read]);
            }
        }
        self.read_to_end().await
    }

    async fn take(&mut self, bytes: &[u8]) -> Result<(), CaptureError> {
        self.passed.clear();
        self.masked.take(bytes, &mut self.passed);
        self.keep().await
    }

    /// What was held back follows: there is no more.
    async fn read_to_end(&mut self) -> Result<(), CaptureError> {
        self.passed.clear();
        self.masked.end(true, &mut self.passed);
        self.is_read_to_end = true;
        self.keep().await?;
        match &mut self.file {
            // The last write may be the one that finds the disk full.
            Some(file) => file.written().await.map_err(|error| self.not_kept(error)),
            None => Ok(()),
        }
    }

    fn not_kept(&self, error: io::Error) -> CaptureError {
        let dir = self.spill_dir.as_ref().map(|dir| dir.path().to_owned()).unwrap_or_default();
        CaptureError::Spill { dir, error }
    }

    async fn keep(&mut self) -> Result<(), CaptureError> {
        let fits = self.keep_what_fits();
        if fits == self.passed.len() {
            return Ok(());
        }
        match self.overflow {
            Overflow::Error => Err(CaptureError::TooLarge),
            Overflow::Truncate => Ok(()),
            Overflow::Spill if self.total_bytes > SPILL_BYTES_MAX => Err(CaptureError::SpillTooLarge),
            Overflow::Spill => self.spill(fits).await.map_err(|error| self.not_kept(error)),
        }
    }

    fn keep_what_fits(&mut self) -> usize {
        self.total_bytes += self.passed.len() as u64;
        let room = self.limit_bytes.saturating_sub(self.kept.len());
        let fits = self.passed.len().min(room);
        self.kept.extend_from_slice(&self.passed[..fits]);
        fits
    }

    async fn spill(&mut self, fits: usize) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            return file.write(self.passed[fits..].to_vec()).await;
        }
        let dir = self.spill_dir.as_ref().ok_or_else(|| io::Error::other("there is no place for it"))?;
        let mut whole = self.kept.clone();
        whole.extend_from_slice(&self.passed[fits..]);
        // In its place before anything is awaited: whoever breaks this off still knows of the file.
        self.file.insert(dir.file(self.name)).write(whole).await
    }

    /// What came of it. Of a stream that was not read to its end, nothing that could be the beginning of a secret.
    pub(super) async fn finish(mut self) -> Captured {
        if !self.is_read_to_end {
            self.passed.clear();
            self.masked.end(false, &mut self.passed);
            let fits = self.keep_what_fits();
            if let Some(file) = &mut self.file {
                // What cannot be written any more is told by the length of the file.
                let _ = file.write(self.passed[fits..].to_vec()).await;
            }
        }
        let kept_bytes = self.kept.len() as u64;
        let is_cut = self.total_bytes > kept_bytes;
        let file = match self.file {
            Some(file) => file.finish().await,
            None => None,
        };
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
    /// Bytes the command wrote, with secrets masked.
    pub(super) total_bytes: u64,
    /// Whether `text` is not all of it.
    pub(super) is_cut: bool,
    /// Where all of it is, when it did not fit, and how long that is.
    pub(super) file: Option<(PathBuf, u64)>,
}

/// Progress of a command, told by the lines it writes.
pub(crate) struct Notes {
    sender: mpsc::Sender<Box<RawValue>>,
    line: Vec<u8>,
    lines: u64,
    last: Option<Instant>,
    redactor: Redactor,
}

impl Notes {
    /// Notes to `sender`, without secrets.
    pub(crate) fn new(sender: mpsc::Sender<Box<RawValue>>, redactor: Redactor) -> Self {
        Self { sender, line: Vec::new(), lines: 0, last: None, redactor }
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
        let text = clean(&self.line);
        let mut message = match self.line.len() < NOTE_BYTES + SECRET_ROOM_BYTES {
            true => self.redactor.redact(text.trim_end()).into_owned(),
            false => self.redactor.redact_cut(&text),
        };
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
    use std::path::Path;

    use super::*;

    const SECRET: &str = "planted-secret-value";

    fn redactor() -> Redactor {
        let redactor = Redactor::new();
        redactor.set_secrets("demo", &[SECRET.to_owned()]);
        redactor
    }

    fn capture(limit: u64, overflow: Overflow, dir: Option<&Path>) -> Capture {
        Capture::new("stdout", limit, overflow, dir.map(|dir| SpillDir::new(dir, 2)), &redactor())
    }

    async fn taken(capture: &mut Capture, pieces: &[&str]) -> Result<(), CaptureError> {
        for piece in pieces {
            capture.take(piece.as_bytes()).await?;
        }
        capture.read_to_end().await
    }

    // Requirement 175: the limit is exact.
    #[tokio::test]
    async fn the_limit_is_exact_and_what_is_over_it_is_as_the_tool_says() {
        assert!(taken(&mut capture(10, Overflow::Error, None), &["01234", "56789"]).await.is_ok());
        let over = taken(&mut capture(10, Overflow::Error, None), &["01234", "56789", "x"]).await;
        assert!(matches!(over, Err(CaptureError::TooLarge)));
        let mut cut = capture(10, Overflow::Truncate, None);
        assert!(taken(&mut cut, &["0123456789abc", "def"]).await.is_ok());
        let cut = cut.finish().await;
        assert_eq!((cut.text.as_str(), cut.total_bytes, cut.is_cut, cut.file), ("0123456789", 16, true, None));
        let nowhere = taken(&mut capture(10, Overflow::Spill, None), &["0123456789a"]).await;
        assert!(matches!(nowhere, Err(CaptureError::Spill { .. })));
    }

    // Invariant 4: wherever the limit falls, no part of a secret is handed on or lies in a file.
    #[tokio::test]
    async fn no_cut_goes_through_a_secret() {
        let dir = tempfile::tempdir().unwrap();
        for limit in 1..=30 {
            for overflow in [Overflow::Truncate, Overflow::Spill] {
                let mut capture = capture(limit, overflow, Some(dir.path()));
                taken(&mut capture, &["key=planted-sec", "ret-value;", SECRET, " and more of it"]).await.unwrap();
                let captured = capture.finish().await;
                let whole = "key=***;*** and more of it";
                assert_eq!(captured.text, whole[..whole.len().min(usize::try_from(limit).unwrap())]);
                if let Some((file, bytes)) = captured.file {
                    assert_eq!(std::fs::read_to_string(file).unwrap(), whole);
                    assert_eq!(bytes, whole.len() as u64);
                }
            }
        }
        // A run that was ended early may have been in the middle of one.
        let mut early = capture(100, Overflow::Error, None);
        early.take(b"key=planted-sec").await.unwrap();
        assert_eq!(early.finish().await.text, "key=");
    }

    #[tokio::test]
    async fn notes_are_lines_and_bounded() {
        let (sender, mut notes) = mpsc::channel(4);
        let mut writer = Notes::new(sender, redactor());
        writer.take(format!("\x1b[1mfirst {SECRET}\x1b[0m").as_bytes());
        assert!(notes.try_recv().is_err());
        writer.take(b"\nsecond\nthird\n");
        let note = notes.try_recv().unwrap();
        assert_eq!(note.get(), r#"{"progress":1,"message":"first ***"}"#);
        // The next ones came at once, and are counted in a later note.
        assert!(notes.try_recv().is_err());
    }

    // Invariant 4: a line of nothing but secrets is so much shorter once they are masked that its cut end would show.
    #[tokio::test]
    async fn a_long_line_shows_no_part_of_a_secret() {
        let (sender, mut notes) = mpsc::channel(4);
        let long = "another-planted-secret-of-some-length-".repeat(30);
        let redactor = Redactor::new();
        redactor.set_secrets("demo", std::slice::from_ref(&long));
        let mut writer = Notes::new(sender, redactor);
        writer.take(format!("{}\n", long.repeat(20)).as_bytes());
        let note = notes.try_recv().unwrap();
        assert!(note.get().contains("***") && !note.get().contains("planted"), "{note}");
    }
}
