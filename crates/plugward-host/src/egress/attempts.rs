//! What a plugin tried to reach: each host once, with how often and how it went.
//!
//! Owns the bounded list and its form in the store. Refuses to grow with what a plugin makes up: beyond the limit further
//! hosts are only counted. Names come from the plugin, so they are cut and escaped before they are kept.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plugward_policy::visible;
use plugward_store::Redactor;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::views::{AttemptOutcome, NetworkAttempt};

/// Hosts kept of one plugin for each way it can go, so that made-up names cannot crowd out real ones. A person reads the list; and a plugin that asks for a thousand names wants to be found out,
/// not written down.
const MAX_ATTEMPTS: usize = 64;

/// Characters kept of a host: every name there can be fits.
const MAX_HOST_CHARS: usize = 253;

/// Characters kept of a reason.
const MAX_REASON_CHARS: usize = 200;

/// Attempts of one plugin; outlives its processes.
pub(crate) struct Attempts {
    state: Mutex<State>,
    redactor: Redactor,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    seen: BTreeMap<Key, Counted>,
    /// Attempts that found no place in the list.
    others: u64,
    /// What was seen for the first time and not told yet. Never more than the list has places.
    fresh: VecDeque<NetworkAttempt>,
    is_dirty: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    host: String,
    port: Option<u16>,
    outcome: AttemptOutcome,
}

#[derive(Debug, Clone, Default)]
struct Counted {
    reason: String,
    count: u64,
    last_at_us: u64,
    sent_bytes: u64,
    received_bytes: u64,
}

/// One line of the list as it is kept.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    host: String,
    port: Option<u16>,
    outcome: AttemptOutcome,
    reason: String,
    count: u64,
    last_at_us: u64,
    sent_bytes: u64,
    received_bytes: u64,
}

/// One attempt, as it is noted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Note<'a> {
    /// As the plugin named it.
    pub(crate) host: &'a str,
    pub(crate) port: Option<u16>,
    pub(crate) outcome: AttemptOutcome,
    /// Why it was not allowed or did not come about; empty if it did.
    pub(crate) reason: &'a str,
}

impl Attempts {
    pub(crate) fn new(redactor: Redactor) -> Self {
        Self { state: Mutex::default(), redactor, news: Notify::new() }
    }

    /// Counts an attempt.
    pub(crate) fn note(&self, note: Note<'_>) {
        self.note_times(note, 1);
    }

    /// As [`Self::note`], for something that comes with another question about the same host and is not counted again.
    pub(crate) fn note_beside(&self, note: Note<'_>) {
        self.note_times(note, 0);
    }

    fn note_times(&self, note: Note<'_>, times: u64) {
        let key = self.key(&note);
        let mut state = self.lock();
        state.is_dirty = true;
        let alike = state.seen.keys().filter(|seen| seen.outcome == key.outcome).count();
        if !state.seen.contains_key(&key) && alike >= MAX_ATTEMPTS {
            state.others = state.others.saturating_add(times);
            return;
        }
        let is_first = !state.seen.contains_key(&key);
        let counted = state.seen.entry(key.clone()).or_default();
        counted.count = counted.count.saturating_add(times);
        counted.last_at_us = now_us();
        counted.reason = cut(&self.redactor.redact(note.reason), MAX_REASON_CHARS);
        if is_first {
            let told = view(&key, counted);
            state.fresh.push_back(told);
        }
        drop(state);
        self.news.notify_one();
    }

    /// Adds what went over a connection that was allowed.
    pub(crate) fn moved(&self, host: &str, port: u16, sent_bytes: u64, received_bytes: u64) {
        let note = Note { host, port: Some(port), outcome: AttemptOutcome::Allowed, reason: "" };
        let key = self.key(&note);
        let mut state = self.lock();
        let Some(counted) = state.seen.get_mut(&key) else { return };
        counted.sent_bytes = counted.sent_bytes.saturating_add(sent_bytes);
        counted.received_bytes = counted.received_bytes.saturating_add(received_bytes);
        state.is_dirty = true;
        drop(state);
        self.news.notify_one();
    }

    /// Waits for something to tell or to keep.
    pub(crate) async fn changed(&self) {
        self.news.notified().await;
    }

    /// What was seen for the first time since the last call.
    pub(crate) fn take_fresh(&self) -> Vec<NetworkAttempt> {
        self.lock().fresh.drain(..).collect()
    }

    /// The whole list, refused first, each the newest first.
    pub(crate) fn view(&self) -> Vec<NetworkAttempt> {
        let state = self.lock();
        let mut attempts: Vec<NetworkAttempt> = state.seen.iter().map(|(key, counted)| view(key, counted)).collect();
        attempts.sort_by_key(|attempt| (attempt.outcome, std::cmp::Reverse(attempt.last_at)));
        attempts
    }

    /// Attempts that are only counted.
    pub(crate) fn others(&self) -> u64 {
        self.lock().others
    }

    /// Starts anew: somebody has just decided with the list before them.
    pub(crate) fn clear(&self) {
        *self.lock() = State { is_dirty: true, ..State::default() };
    }

    /// The list as it is kept, if it changed since the last call.
    pub(crate) fn take_changed(&self) -> Option<String> {
        let mut state = self.lock();
        if !std::mem::take(&mut state.is_dirty) {
            return None;
        }
        let kept = |(key, counted): (&Key, &Counted)| Kept {
            host: key.host.clone(),
            port: key.port,
            outcome: key.outcome,
            reason: counted.reason.clone(),
            count: counted.count,
            last_at_us: counted.last_at_us,
            sent_bytes: counted.sent_bytes,
            received_bytes: counted.received_bytes,
        };
        let all: Vec<Kept> = state.seen.iter().map(kept).collect();
        serde_json::to_string(&(all, state.others)).ok()
    }

    /// Takes over what was kept; what cannot be read is as good as nothing.
    pub(crate) fn restore(&self, text: &str) {
        let (all, others): (Vec<Kept>, u64) = serde_json::from_str(text).unwrap_or_default();
        let mut state = self.lock();
        state.others = others;
        for kept in all.into_iter().take(3 * MAX_ATTEMPTS) {
            let Kept { host, port, outcome, reason, count, last_at_us, sent_bytes, received_bytes } = kept;
            let counted = Counted { reason, count, last_at_us, sent_bytes, received_bytes };
            state.seen.insert(Key { host, port, outcome }, counted);
        }
    }

    fn key(&self, note: &Note<'_>) -> Key {
        let host = self.redactor.redact(note.host).to_ascii_lowercase();
        Key { host: cut(&host, MAX_HOST_CHARS), port: note.port, outcome: note.outcome }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent at every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Escaped for people and no longer than `limit_chars`.
fn cut(text: &str, limit_chars: usize) -> String {
    visible(text).chars().take(limit_chars).collect()
}

fn view(key: &Key, counted: &Counted) -> NetworkAttempt {
    NetworkAttempt {
        host: key.host.clone(),
        port: key.port,
        outcome: key.outcome,
        reason: counted.reason.clone(),
        count: counted.count.max(1),
        last_at: UNIX_EPOCH + Duration::from_micros(counted.last_at_us),
        sent_bytes: counted.sent_bytes,
        received_bytes: counted.received_bytes,
    }
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: &str) -> Note<'_> {
        Note { host, port: None, outcome: AttemptOutcome::Refused, reason: "not in its list" }
    }

    /// A plugin that makes up names must not fill memory or the disk, and must not hide what it tried first.
    #[test]
    fn made_up_names_are_counted_and_not_kept() {
        let attempts = Attempts::new(Redactor::new());
        for number in 0..1000 {
            attempts.note(refused(&format!("{number}.{}.test", "x".repeat(5000))));
        }
        assert_eq!((attempts.view().len(), attempts.others()), (MAX_ATTEMPTS, 1000 - 64));
        assert_eq!(attempts.take_fresh().len(), MAX_ATTEMPTS);
        assert!(attempts.view().iter().all(|attempt| attempt.host.chars().count() <= MAX_HOST_CHARS));
        assert!(attempts.take_changed().unwrap().len() < 64 * 1024);
    }

    /// What a person sees after a restart of the host is what there was.
    #[test]
    fn the_list_survives() {
        let attempts = Attempts::new(Redactor::new());
        attempts.note(Note { port: Some(443), outcome: AttemptOutcome::Allowed, reason: "", ..refused("API.test") });
        attempts.moved("api.test", 443, 10, 20);
        attempts.note(refused("telemetry.example"));
        attempts.note(refused("Telemetry.Example"));
        attempts.note_beside(refused("telemetry.example"));
        assert_eq!(attempts.take_fresh().len(), 2);
        let restored = Attempts::new(Redactor::new());
        restored.restore(&attempts.take_changed().unwrap());
        assert_eq!((restored.view(), attempts.take_changed()), (attempts.view(), None));
        let view = restored.view();
        assert_eq!((view[0].host.as_str(), view[0].count), ("telemetry.example", 2));
        assert_eq!((view[1].sent_bytes, view[1].received_bytes), (10, 20));
        restored.restore("nonsense");
        restored.clear();
        assert!(restored.view().is_empty());
    }

    // Invariant 4: a name made of a secret, and one that would drive a terminal.
    #[test]
    fn names_are_masked_and_escaped() {
        let redactor = Redactor::new();
        redactor.set_secrets("demo", &["planted-secret-value".to_owned()]);
        let attempts = Attempts::new(redactor);
        attempts.note(refused("planted-secret-value.evil.test"));
        attempts.note(refused("a\u{1b}[2J.test"));
        let shown: Vec<String> = attempts.view().into_iter().map(|attempt| attempt.host).collect();
        assert!(shown.iter().all(|host| !host.contains("planted-secret") && !host.contains('\u{1b}')), "{shown:?}");
    }
}
