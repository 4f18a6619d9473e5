//! Clients that want to be told what plugins say unasked.
//!
//! Owns who they are, which plugins each of them sees, and what waits to be told to each. Refuses to wait for any of them:
//! one that does not keep up loses the oldest log messages. Refuses to tell a client of a plugin that it does not see.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plugward_policy::PluginId;
use plugward_protocol::modern::LogLevel;
use serde_json::value::RawValue;
use tokio::sync::{Notify, watch};

use crate::host::Host;
use crate::session::heard::Logged;

/// Log messages that may wait for one client.
const MAX_WAITING_LOGS: usize = 64;

type Sees = dyn Fn(&PluginId) -> bool + Send + Sync;

/// What a client is told.
#[derive(Debug, Clone)]
pub enum Told {
    /// Parameters of `notifications/message`.
    Log(Box<RawValue>),
}

struct Entry {
    sees: Box<Sees>,
    /// Log messages from this level on; none before it is named.
    level: Option<LogLevel>,
    logs: VecDeque<Box<RawValue>>,
    news: Arc<Notify>,
}

/// All of them.
pub(crate) struct Audience {
    clients: Mutex<Clients>,
    /// Told when what they want changed.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Clients {
    last: u64,
    entries: BTreeMap<u64, Entry>,
}

impl Default for Audience {
    fn default() -> Self {
        Self { clients: Mutex::default(), changed: watch::Sender::new(()) }
    }
}

impl Audience {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when what clients want may have changed.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The most detailed level that a client named who sees the plugin.
    pub(crate) fn level(&self, plugin: &PluginId) -> Option<LogLevel> {
        let clients = self.clients();
        clients.entries.values().filter(|entry| (entry.sees)(plugin)).filter_map(|entry| entry.level).min()
    }

    /// Tells those who see the plugin and want messages of this level.
    pub(crate) fn log(&self, plugin: &PluginId, (level, params): &Logged) {
        for entry in self.clients().entries.values_mut() {
            if entry.level.is_none_or(|from| *level < from) || !(entry.sees)(plugin) {
                continue;
            }
            if entry.logs.len() == MAX_WAITING_LOGS {
                entry.logs.pop_front();
            }
            entry.logs.push_back(params.clone());
            entry.news.notify_one();
        }
    }
}

/// One client, for as long as this is kept.
pub struct Listener {
    audience: Arc<Audience>,
    id: u64,
    news: Arc<Notify>,
}

impl Host {
    /// A client that sees these plugins. It is told nothing before it says what it wants.
    pub fn listener(&self, sees: impl Fn(&PluginId) -> bool + Send + Sync + 'static) -> Listener {
        Listener::new(&self.inner.audience, Box::new(sees))
    }
}

impl Listener {
    fn new(audience: &Arc<Audience>, sees: Box<Sees>) -> Self {
        let news = Arc::new(Notify::new());
        let mut clients = audience.clients();
        clients.last += 1;
        let id = clients.last;
        let entry = Entry { sees, level: None, logs: VecDeque::new(), news: Arc::clone(&news) };
        clients.entries.insert(id, entry);
        drop(clients);
        Self { audience: Arc::clone(audience), id, news }
    }

    /// Wants log messages from this level on.
    pub fn set_log_level(&self, level: LogLevel) {
        if let Some(entry) = self.audience.clients().entries.get_mut(&self.id) {
            entry.level = Some(level);
        }
        self.audience.changed.send_replace(());
    }

    /// The level it named.
    pub fn log_level(&self) -> Option<LogLevel> {
        self.audience.clients().entries.get(&self.id).and_then(|entry| entry.level)
    }

    /// What it is told next. One asker at a time.
    pub async fn next(&self) -> Told {
        loop {
            if let Some(told) = self.take() {
                return told;
            }
            self.news.notified().await;
        }
    }

    fn take(&self) -> Option<Told> {
        self.audience.clients().entries.get_mut(&self.id)?.logs.pop_front().map(Told::Log)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let entry = self.audience.clients().entries.remove(&self.id);
        drop(entry);
        self.audience.changed.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Box<RawValue> {
        RawValue::from_string(r#"{"level":"warning","data":1}"#.to_owned()).unwrap()
    }

    #[tokio::test]
    async fn each_is_told_of_what_it_sees_from_its_own_level_on() {
        // Case B064: a log message would show that a hidden plugin is there, and what it does.
        let audience = Arc::new(Audience::default());
        let fx = PluginId::new("fx").unwrap();
        let all = Listener::new(&audience, Box::new(|_| true));
        let blind = Listener::new(&audience, Box::new(|_| false));
        let quiet = Listener::new(&audience, Box::new(|_| true));
        assert_eq!(audience.level(&fx), None, "a plugin is told no level that nobody named");
        all.set_log_level(LogLevel::Info);
        quiet.set_log_level(LogLevel::Error);
        blind.set_log_level(LogLevel::Debug);
        assert_eq!(audience.level(&fx), Some(LogLevel::Info), "the most detailed of those who see it");
        audience.log(&fx, &(LogLevel::Warning, message()));
        let Told::Log(told) = all.next().await;
        assert_eq!(told.get(), message().get());
        assert!(blind.take().is_none() && quiet.take().is_none());
        drop(all);
        assert_eq!(audience.level(&fx), Some(LogLevel::Error), "who is gone wants nothing");
        for _ in 0..1000 {
            audience.log(&fx, &(LogLevel::Emergency, message()));
        }
        assert_eq!(audience.clients().entries[&quiet.id].logs.len(), MAX_WAITING_LOGS);
    }
}
