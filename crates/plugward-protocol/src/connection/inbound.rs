//! Requests the peer sent and what we still owe.
//!
//! Owns the table of unanswered requests of the peer, the memory of cancelled ones and the collecting of answers to a
//! batch. An id leaves the table exactly once. Refuses to know methods or messages.

use std::collections::{HashMap, VecDeque};

use crate::id::RequestId;
use crate::wire;

/// Cancelled requests remembered until their owner answers. While remembered their id cannot be used again, so that
/// the late answer of a cancelled call never reaches a newer call with the same id.
const MAX_CANCELLED: usize = 256;

/// Names a batch whose answers are being collected.
pub(super) type BatchKey = u64;

/// Whether a request may enter the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Admitted,
    /// Its id is in use.
    Duplicate,
    /// As many as allowed are open.
    Full,
}

#[derive(Debug)]
struct Batch {
    /// Requests of it without an answer yet; one more while the batch is still being read.
    open: usize,
    answers: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Inbound {
    limit: usize,
    open: HashMap<RequestId, Option<BatchKey>>,
    cancelled: VecDeque<RequestId>,
    batches: HashMap<BatchKey, Batch>,
    next_batch: BatchKey,
    collected_bytes: usize,
}

impl Inbound {
    pub(super) fn new(limit: usize) -> Self {
        Inbound {
            limit,
            open: HashMap::new(),
            cancelled: VecDeque::new(),
            batches: HashMap::new(),
            next_batch: 0,
            collected_bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Bytes of answers that wait for the rest of their batch.
    pub(super) fn collected_bytes(&self) -> usize {
        self.collected_bytes
    }

    pub(super) fn admit(&mut self, id: &RequestId, batch: Option<BatchKey>) -> Admission {
        if self.open.contains_key(id) || self.cancelled.contains(id) {
            return Admission::Duplicate;
        }
        if self.open.len() >= self.limit {
            return Admission::Full;
        }
        self.open.insert(id.clone(), batch);
        if let Some(batch) = batch.and_then(|key| self.batches.get_mut(&key)) {
            batch.open += 1;
        }
        Admission::Admitted
    }

    /// Takes the request out to answer it; `None` when unknown, answered or cancelled.
    pub(super) fn take(&mut self, id: &RequestId) -> Option<Option<BatchKey>> {
        let batch = self.open.remove(id);
        if batch.is_none() {
            self.cancelled.retain(|cancelled| cancelled != id);
        }
        batch
    }

    /// Takes the request out because the peer gave it up. Returns its batch when it was open.
    pub(super) fn cancel(&mut self, id: &RequestId) -> Option<Option<BatchKey>> {
        let batch = self.open.remove(id)?;
        if self.cancelled.len() == MAX_CANCELLED {
            self.cancelled.pop_front();
        }
        self.cancelled.push_back(id.clone());
        Some(batch)
    }

    pub(super) fn open_batch(&mut self) -> BatchKey {
        let key = self.next_batch;
        self.next_batch += 1;
        self.batches.insert(key, Batch { open: 1, answers: Vec::new() });
        key
    }

    /// Adds an answer to a batch.
    pub(super) fn collect(&mut self, key: BatchKey, answer: String) {
        if let Some(batch) = self.batches.get_mut(&key) {
            self.collected_bytes += answer.len();
            batch.answers.push(answer);
        }
    }

    /// Counts one part of a batch (a request, or its reading) as done; returns the whole answer when it was the last.
    pub(super) fn settle(&mut self, key: BatchKey) -> Option<String> {
        let batch = self.batches.get_mut(&key)?;
        batch.open -= 1;
        if batch.open > 0 {
            return None;
        }
        let batch = self.batches.remove(&key)?;
        self.collected_bytes -= batch.answers.iter().map(String::len).sum::<usize>();
        (!batch.answers.is_empty()).then(|| wire::batch(&batch.answers))
    }

    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.cancelled.clear();
        self.batches.clear();
        self.collected_bytes = 0;
    }
}
