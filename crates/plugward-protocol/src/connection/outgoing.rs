//! Lines waiting to be written.
//!
//! Owns the queue towards the transport and its bound in bytes: a peer that never reads must cost a fixed amount of
//! memory (N13). Refuses to drop lines: whoever queues is told when there is no room.

use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Outgoing {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    max_bytes: usize,
}

impl Outgoing {
    pub(super) fn new(max_bytes: usize) -> Self {
        Outgoing { lines: VecDeque::new(), bytes: 0, max_bytes }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether `bytes` more fit. An empty queue takes a line of any size, or nothing long could ever be sent.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.bytes == 0 || self.bytes.saturating_add(bytes) <= self.max_bytes
    }

    pub(super) fn push(&mut self, line: Vec<u8>) {
        self.bytes += line.len();
        self.lines.push_back(line);
    }

    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        let line = self.lines.pop_front()?;
        self.bytes -= line.len();
        Some(line)
    }

    pub(super) fn clear(&mut self) {
        self.lines.clear();
        self.bytes = 0;
    }
}
