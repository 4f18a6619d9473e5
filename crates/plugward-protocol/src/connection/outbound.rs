//! Requests we sent and what is still owed to us.
//!
//! Owns the sequence of our ids, the table of requests in flight and their deadlines. An id leaves the table exactly
//! once, which is what makes "exactly one outcome" true. Refuses to know methods or messages.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::event::{OutboundId, RequestTiming, SendError, TimeoutKind};
use crate::id::RequestId;

/// Ids handed out and not yet sent. Owners reserve right before they send; the bound only keeps an owner that forgets
/// from growing the set, at the price of its oldest reservation.
const MAX_RESERVED: usize = 4096;

/// Longest limit a request can have. Keeps `Instant` arithmetic far from overflow.
const LONGEST_LIMIT: Duration = Duration::from_secs(30 * 24 * 3600);

/// What an id in an answer refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Referent {
    /// A request in flight.
    InFlight(u64),
    /// A request that has ended.
    Ended(u64),
    /// Nothing we ever sent.
    Foreign,
}

/// A request whose time ran out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expired {
    pub(super) id: u64,
    pub(super) limit: Duration,
    pub(super) kind: TimeoutKind,
}

#[derive(Debug)]
struct Waiting {
    idle: Duration,
    hard: Duration,
    hard_at: Instant,
    due_at: Instant,
}

#[derive(Debug)]
pub(super) struct Outbound {
    next: u64,
    limit: usize,
    reserved: BTreeSet<u64>,
    waiting: HashMap<u64, Waiting>,
    due: BTreeSet<(Instant, u64)>,
}

impl Outbound {
    pub(super) fn new(limit: usize) -> Self {
        Outbound { next: 1, limit, reserved: BTreeSet::new(), waiting: HashMap::new(), due: BTreeSet::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn reserve(&mut self) -> OutboundId {
        let id = self.next;
        self.next += 1;
        self.reserved.insert(id);
        if self.reserved.len() > MAX_RESERVED {
            self.reserved.pop_first();
        }
        OutboundId(id)
    }

    /// Whether a request with this id may be sent now.
    pub(super) fn admits(&self, id: OutboundId) -> Result<(), SendError> {
        if !self.reserved.contains(&id.0) {
            return Err(SendError::IdNotReserved);
        }
        if self.waiting.len() >= self.limit {
            return Err(SendError::TooManyInFlight { limit: self.limit });
        }
        Ok(())
    }

    /// Puts a request in flight; call [`admits`](Self::admits) before.
    pub(super) fn insert(&mut self, now: Instant, id: OutboundId, timing: RequestTiming) {
        let hard = timing.hard.min(LONGEST_LIMIT);
        let idle = timing.idle.min(LONGEST_LIMIT);
        let hard_at = now + hard;
        let due_at = hard_at.min(now + idle);
        self.reserved.remove(&id.0);
        self.due.insert((due_at, id.0));
        self.waiting.insert(id.0, Waiting { idle, hard, hard_at, due_at });
    }

    /// Takes a request out of the table; `false` when it is not in flight.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        match self.waiting.remove(&id) {
            Some(waiting) => {
                self.due.remove(&(waiting.due_at, id));
                true
            }
            None => false,
        }
    }

    /// Notes a sign of life: the idle limit starts anew, within the hard one.
    pub(super) fn extend(&mut self, now: Instant, id: u64) {
        if let Some(waiting) = self.waiting.get_mut(&id) {
            self.due.remove(&(waiting.due_at, id));
            waiting.due_at = waiting.hard_at.min(now + waiting.idle);
            self.due.insert((waiting.due_at, id));
        }
    }

    pub(super) fn refer(&self, id: &RequestId) -> Referent {
        match id.as_sequence() {
            Some(id) if self.waiting.contains_key(&id) => Referent::InFlight(id),
            Some(id) if id > 0 && id < self.next && !self.reserved.contains(&id) => Referent::Ended(id),
            _ => Referent::Foreign,
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|&(due_at, _)| due_at)
    }

    /// Takes out one request whose time has run out.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<Expired> {
        let &(due_at, id) = self.due.first().filter(|&&(due_at, _)| due_at <= now)?;
        self.due.remove(&(due_at, id));
        let waiting = self.waiting.remove(&id)?;
        let (limit, kind) = if due_at == waiting.hard_at {
            (waiting.hard, TimeoutKind::Hard)
        } else {
            (waiting.idle, TimeoutKind::Idle)
        };
        Some(Expired { id, limit, kind })
    }

    /// Takes out everything, oldest first.
    pub(super) fn drain(&mut self) -> Vec<u64> {
        self.due.clear();
        let mut ids: Vec<u64> = self.waiting.drain().map(|(id, _)| id).collect();
        ids.sort_unstable();
        ids
    }
}
