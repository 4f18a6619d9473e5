//! What a plugin writes beside the protocol: a bounded, redacted ring per plugin.
//!
//! Owns the drain of stderr (requirements 79, 100; B005: it is read from the first moment, in fixed-size chunks, and
//! never holds the plugin up) and the lines the host adds. Refuses to hand its content to results, API answers about
//! calls, or traces (requirement 80).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use plugward_store::Redactor;
use tokio::io::AsyncReadExt;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::views::{LogLine, LogOrigin};

/// Lines kept per plugin.
const MAX_LINES: usize = 500;

/// How the host's line about a start begins.
pub(crate) const STARTED: &str = "started, pid ";

/// How the host's line about a conversation with a server elsewhere begins.
pub(crate) const STARTED_REMOTE: &str = "connecting to ";

/// Lines of stderr shown with a failure: a stack trace of the usual kind and what led to it.
const LAST_WORDS: usize = 10;

/// Bytes kept of one line. With [`MAX_LINES`] a plugin's log is at most 500 KiB.
const MAX_LINE_BYTES: usize = 1024;

/// Bytes of a line looked at beyond what is kept, so that a secret that begins before the cut is known for one.
const SECRET_ROOM_BYTES: usize = 8 * 1024;

/// Bytes read at once.
const CHUNK_BYTES: usize = 8 * 1024;

/// Reads after the process has ended: what a pipe of the usual 64 KiB can still hold.
const LAST_READS: usize = 64 * 1024 / CHUNK_BYTES;

/// Lines a follower may lag behind before it loses some.
const FOLLOW_QUEUE: usize = 256;

/// The log of one plugin; outlives its processes.
pub(crate) struct PluginLog {
    lines: Mutex<VecDeque<LogLine>>,
    follow: broadcast::Sender<LogLine>,
    redactor: Redactor,
    /// The last start whose process said something on stderr.
    stderr_generation: AtomicU64,
}

impl PluginLog {
    pub(crate) fn new(redactor: Redactor) -> Self {
        Self {
            lines: Mutex::default(),
            follow: broadcast::Sender::new(FOLLOW_QUEUE),
            redactor,
            stderr_generation: AtomicU64::new(0),
        }
    }

    /// Adds a line: redacted, control characters escaped, cut.
    pub(crate) fn push(&self, origin: LogOrigin, text: &str) {
        let text = visible(&self.redactor.redact(text));
        let line = LogLine { at: SystemTime::now(), origin, text };
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == MAX_LINES {
            lines.pop_front();
        }
        lines.push_back(line.clone());
        drop(lines);
        // No follower is no error.
        let _ = self.follow.send(line);
    }

    /// Takes secrets of plugins out of text.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// The lines kept, oldest first.
    pub(crate) fn lines(&self) -> Vec<LogLine> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// What the process of the last start said on stderr, at most [`LAST_WORDS`] lines, oldest first.
    pub(crate) fn last_words(&self) -> Vec<LogLine> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let of_last_start =
            lines.iter().rev().take_while(|line| line.origin != LogOrigin::Host || !line.text.starts_with(STARTED));
        let mut words: Vec<LogLine> =
            of_last_start.filter(|line| line.origin == LogOrigin::Stderr).take(LAST_WORDS).cloned().collect();
        words.reverse();
        words
    }

    /// New lines as they come.
    pub(crate) fn follow(&self) -> broadcast::Receiver<LogLine> {
        self.follow.subscribe()
    }

    /// Whether the process of start `generation` said something on stderr: what an earlier one said explains nothing.
    pub(crate) fn has_stderr_of(&self, generation: u64) -> bool {
        self.stderr_generation.load(Ordering::Acquire) == generation
    }

    /// Reads `stderr` of start `generation` until every holder of the pipe has closed it. Once `over` is cancelled it
    /// takes what the pipe still holds and ends: a process that got away with the pipe must not keep the host from
    /// ending.
    pub(crate) async fn drain(
        self: Arc<Self>,
        mut stderr: tokio::net::unix::pipe::Receiver,
        generation: u64,
        over: CancellationToken,
    ) {
        let mut chunk = [0; CHUNK_BYTES];
        let mut line = Vec::new();
        let mut last_reads = LAST_READS;
        while last_reads > 0 {
            let read = tokio::select! {
                biased;
                read = stderr.read(&mut chunk) => read,
                () = over.cancelled() => break,
            };
            let Ok(read @ 1..) = read else { break };
            last_reads -= usize::from(over.is_cancelled());
            for piece in chunk[..read].split_inclusive(|byte| *byte == b'\n') {
                let room = (MAX_LINE_BYTES + SECRET_ROOM_BYTES).saturating_sub(line.len());
                line.extend_from_slice(&piece[..piece.len().min(room)]);
                if piece.ends_with(b"\n") {
                    self.push_bytes(&line, generation);
                    line.clear();
                }
            }
        }
        self.push_bytes(&line, generation);
    }

    fn push_bytes(&self, line: &[u8], generation: u64) {
        let text = String::from_utf8_lossy(line);
        let is_cut = line.len() >= MAX_LINE_BYTES + SECRET_ROOM_BYTES;
        // Secrets that are masked make a line shorter, by so much, perhaps, that its end would be shown.
        let text = if is_cut { self.redactor.redact_cut(&text).into() } else { text };
        let text = text.trim_end();
        if !text.is_empty() {
            self.push(LogOrigin::Stderr, text);
            // A late line of an earlier start takes nothing back.
            self.stderr_generation.fetch_max(generation, Ordering::AcqRel);
        }
    }
}

/// Escapes what could drive a terminal, and cuts.
fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len().min(MAX_LINE_BYTES));
    for character in text.chars() {
        if visible.len() >= MAX_LINE_BYTES {
            visible.push('…');
            break;
        }
        match character {
            '\t' => visible.push('\t'),
            character if character.is_control() => visible.extend(character.escape_default()),
            character => visible.push(character),
        }
    }
    visible
}
