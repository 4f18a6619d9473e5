//! Compiled schemas by their text.
//!
//! Owns the one cache every plugin shares, so that a restart, or ten thousand tools from one generator, compile each
//! text once. Refuses to grow: the oldest entries go first.

use std::collections::{HashMap, VecDeque};
use std::sync::{LazyLock, Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::{Compiled, SchemaFault, Use};

/// Entries kept. More than the tools of all plugins of a well-filled host.
const MAX_ENTRIES: usize = 16_384;

/// Bytes of schema text behind the entries: ten thousand tools of the usual size. Compiled they take several times
/// as much, most of which the registry holds anyway.
const MAX_TEXT_BYTES: usize = 8 * 1024 * 1024;

type Key = [u8; 32];
type Outcome = Result<Compiled, SchemaFault>;

static CACHE: LazyLock<Mutex<Cache>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Cache {
    entries: HashMap<Key, (Outcome, usize)>,
    oldest_first: VecDeque<Key>,
    text_bytes: usize,
}

impl Cache {
    fn insert(&mut self, key: Key, outcome: Outcome, text_bytes: usize) {
        if self.entries.insert(key, (outcome, text_bytes)).is_some() {
            // Two callers compiled the same text at once; the first one's place in the queue stays.
            return;
        }
        self.oldest_first.push_back(key);
        self.text_bytes += text_bytes;
        while self.entries.len() > MAX_ENTRIES || self.text_bytes > MAX_TEXT_BYTES {
            let Some(oldest) = self.oldest_first.pop_front() else { return };
            if let Some((_, freed)) = self.entries.remove(&oldest) {
                self.text_bytes -= freed;
            }
        }
    }
}

/// The outcome for `text`, from the cache or by `compile`, which runs without any lock.
pub(super) fn get_or(text: &str, usage: Use, compile: impl FnOnce() -> Outcome) -> Outcome {
    let key = key(text, usage);
    let known = lock().entries.get(&key).map(|(outcome, _)| outcome.clone());
    match known {
        Some(outcome) => outcome,
        None => {
            let outcome = compile();
            lock().insert(key, outcome.clone(), text.len());
            outcome
        }
    }
}

fn lock() -> std::sync::MutexGuard<'static, Cache> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(text: &str, usage: Use) -> Key {
    let mut hash = Sha256::new();
    hash.update([u8::from(usage == Use::Input)]);
    hash.update(text.as_bytes());
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault() -> Outcome {
        Err(SchemaFault::new("", "x".to_owned()))
    }

    #[test]
    fn stays_within_entries_and_bytes() {
        let mut cache = Cache::default();
        for index in 0..(MAX_ENTRIES as u64 + 10) {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&index.to_be_bytes());
            cache.insert(key, fault(), 1);
        }
        assert_eq!(cache.entries.len(), MAX_ENTRIES);
        assert_eq!(cache.oldest_first.len(), MAX_ENTRIES);
        cache.insert([9; 32], fault(), MAX_TEXT_BYTES);
        assert_eq!((cache.entries.len(), cache.text_bytes), (1, MAX_TEXT_BYTES));
    }

    #[test]
    fn the_use_is_part_of_the_key() {
        // A schema that is fine for a result may be none for arguments.
        assert_ne!(key("{}", Use::Input), key("{}", Use::Output));
    }
}
