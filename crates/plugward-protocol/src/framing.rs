//! Cutting a byte stream into lines under a cap that holds while a line arrives.
//!
//! Owns newline framing: the cap in bytes, one byte order mark at the start of the stream, carriage returns before the
//! newline, blank lines. Past the cap the bytes of a line are looked at and dropped up to the next newline, so the
//! stream stays usable and memory stays bounded. Refuses to look at text: whether a line is UTF-8 or JSON is decided in
//! [`crate::message`].

use std::collections::VecDeque;

use crate::envelope_scan::EnvelopeScan;
use crate::id::RequestId;
use crate::message::Shape;

/// Longest line accepted unless configured otherwise, in bytes without its newline (Requirement 99). Large enough for
/// real tool results with an embedded picture, small enough that a hundred connections fit in a small machine.
pub const DEFAULT_MAX_MESSAGE_BYTES: usize = 2 * 1024 * 1024;

/// The UTF-8 encoding of the byte order mark that some runtimes write before their first line.
const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// One thing that came out of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FramedLine {
    /// A line within the cap, without newline and carriage return; never blank.
    Line(Vec<u8>),
    /// A line over the cap. Its content is gone; what the outermost object says is kept.
    Oversized {
        /// Length of the line in bytes, without its newline.
        bytes: u64,
        /// The id of the message, when it could be read.
        id: Option<RequestId>,
        /// The kind of message.
        shape: Shape,
    },
    /// The stream ended within a line.
    Unterminated {
        /// Length of what arrived, in bytes.
        bytes: u64,
        /// What arrived, empty when it was over the cap.
        line: Vec<u8>,
    },
}

/// A line over the cap, of which only the envelope is read.
#[derive(Debug)]
struct Skipping {
    bytes: u64,
    ends_in_carriage_return: bool,
    scan: EnvelopeScan,
}

/// Cuts bytes into lines. Feed with [`push`](Self::push), drain with [`next_line`](Self::next_line) after each push.
///
/// Each byte is looked at once, however the stream is cut into pushes.
#[derive(Debug)]
pub struct LineFramer {
    max_bytes: usize,
    /// How much of the byte order mark was seen; `None` once the stream is past its start.
    mark_seen: Option<usize>,
    partial: Vec<u8>,
    skipping: Option<Skipping>,
    ready: VecDeque<FramedLine>,
}

impl LineFramer {
    /// A framer whose lines may have `max_bytes` bytes without their newline.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        LineFramer { max_bytes, mark_seen: Some(0), partial: Vec::new(), skipping: None, ready: VecDeque::new() }
    }

    /// Takes the next bytes of the stream. Holds at most the cap plus what the finished lines in `bytes` need.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut rest = self.strip_mark(bytes);
        while let Some(at) = rest.iter().position(|&byte| byte == b'\n') {
            self.extend_line(&rest[..at]);
            self.end_line();
            rest = &rest[at + 1..];
        }
        self.extend_line(rest);
    }

    /// The next finished line.
    pub fn next_line(&mut self) -> Option<FramedLine> {
        self.ready.pop_front()
    }

    /// The unfinished line as oversized, if it is over the cap already. For owners that do not go on after such a line:
    /// a peer that never ends it must not keep them waiting. The rest of the line is not skipped any more.
    pub fn give_up_line(&mut self) -> Option<FramedLine> {
        let skipping = self.skipping.take()?;
        let scanned = skipping.scan.finish();
        Some(FramedLine::Oversized { bytes: skipping.bytes, id: scanned.id, shape: scanned.shape })
    }

    /// Ends the stream; returns the unterminated tail if there is one. Call after draining finished lines.
    pub fn close(&mut self) -> Option<FramedLine> {
        if let Some(seen) = self.mark_seen.take()
            && seen < BYTE_ORDER_MARK.len()
        {
            self.extend_line(&BYTE_ORDER_MARK[..seen]);
        }
        if let Some(skipping) = self.skipping.take() {
            return Some(FramedLine::Unterminated { bytes: skipping.bytes, line: Vec::new() });
        }
        let line = std::mem::take(&mut self.partial);
        if is_blank(&line) {
            return None;
        }
        Some(FramedLine::Unterminated { bytes: line.len() as u64, line })
    }

    /// Bytes of memory held for the unfinished line.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.partial.capacity()
    }

    /// Drops the byte order mark; returns what follows. Bytes that only looked like one become part of the line.
    fn strip_mark<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let Some(mut seen) = self.mark_seen else { return bytes };
        for (at, &byte) in bytes.iter().enumerate() {
            if seen == BYTE_ORDER_MARK.len() {
                self.mark_seen = None;
                return &bytes[at..];
            }
            if byte != BYTE_ORDER_MARK[seen] {
                self.mark_seen = None;
                self.extend_line(&BYTE_ORDER_MARK[..seen]);
                return &bytes[at..];
            }
            seen += 1;
        }
        self.mark_seen = Some(seen);
        &[]
    }

    fn extend_line(&mut self, bytes: &[u8]) {
        let Some(&last) = bytes.last() else { return };
        if let Some(skipping) = &mut self.skipping {
            skipping.bytes += bytes.len() as u64;
            skipping.ends_in_carriage_return = last == b'\r';
            skipping.scan.feed(bytes);
            return;
        }
        let length = self.partial.len() + bytes.len();
        // One byte more is fine as long as it may still be the carriage return of the line's end.
        let fits = length <= self.max_bytes || (length == self.max_bytes + 1 && last == b'\r');
        if fits {
            self.reserve(length);
            self.partial.extend_from_slice(bytes);
            return;
        }
        let mut scan = EnvelopeScan::new();
        scan.feed(&std::mem::take(&mut self.partial));
        scan.feed(bytes);
        self.skipping = Some(Skipping { bytes: length as u64, ends_in_carriage_return: last == b'\r', scan });
    }

    /// Grows by doubling, but never past the cap: plain `Vec` growth would hold up to twice of it (Requirement 98).
    fn reserve(&mut self, length: usize) {
        if length > self.partial.capacity() {
            let doubled = (self.partial.capacity() * 2).min(self.max_bytes + 1);
            let target = length.max(doubled);
            self.partial.reserve_exact(target - self.partial.len());
        }
    }

    fn end_line(&mut self) {
        if let Some(skipping) = self.skipping.take() {
            let bytes = skipping.bytes - u64::from(skipping.ends_in_carriage_return);
            let scanned = skipping.scan.finish();
            self.ready.push_back(FramedLine::Oversized { bytes, id: scanned.id, shape: scanned.shape });
            return;
        }
        if self.partial.last() == Some(&b'\r') {
            self.partial.pop();
        }
        if is_blank(&self.partial) {
            self.partial.clear();
        } else {
            self.ready.push_back(FramedLine::Line(std::mem::take(&mut self.partial)));
        }
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
}
