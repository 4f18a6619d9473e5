//! Log messages of a plugin, on their way to whoever may read them.
//!
//! ```text
//! one call is under way, or several of one client   -> to that client, from the level on that it wants
//! none is                                           -> to every client that sees the plugin and named a level
//! calls of several clients are                      -> to nobody: whose it is cannot be known
//! ```
//!
//! Owns this choice, the form of what is told (the plugin's id in front of the logger, secrets masked) and its bounds.
//! Refuses messages of plugins that may not log; those stay in the plugin's own log, as all do.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use plugward_policy::PluginId;
use plugward_protocol::modern::LogLevel;
use plugward_store::Redactor;
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc};

use super::masked;
use crate::raw_object::RawObject;

/// Messages of one plugin that are handed on within [`WINDOW`]. People and models read far fewer.
const MAX_IN_WINDOW: u32 = 100;

/// See [`MAX_IN_WINDOW`].
const WINDOW: Duration = Duration::from_secs(1);

/// Longest message that is handed on. Log lines are short; a dump is for the plugin's own files.
const MAX_MESSAGE_BYTES: usize = 16 * 1024;

/// Messages that may wait to be handed to the host; further ones push out the oldest.
const MAX_WAITING: usize = 64;

/// What the caller of a tool wants to read of what the plugin logs meanwhile.
#[derive(Debug, Clone)]
pub struct LogWish {
    /// From this level on.
    pub level: LogLevel,
    /// The client named the level itself, so that the plugin may be told.
    pub is_named: bool,
    /// Where it goes; what does not fit is lost.
    pub sender: mpsc::Sender<Box<RawValue>>,
}

/// A message with its level.
pub(crate) type Logged = (LogLevel, Box<RawValue>);

#[derive(Default)]
struct State {
    /// Calls under way: the client's session, 0 for one that has none, and its wish.
    calls: HashMap<u64, (u64, Option<LogWish>)>,
    last_call: u64,
    waiting: VecDeque<Logged>,
    window: Option<(Instant, u32)>,
}

/// The messages of one conversation.
#[derive(Default)]
pub(crate) struct Heard {
    /// Whose they are; unset for a plugin that may not log.
    plugin: OnceLock<PluginId>,
    state: Mutex<State>,
    news: Notify,
}

/// A call under way; dropped when it is over.
pub(super) struct During<'a>(&'a Heard, u64);

impl Drop for During<'_> {
    fn drop(&mut self) {
        self.0.state().calls.remove(&self.1);
    }
}

impl Heard {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on messages are handed on.
    pub(super) fn allow(&self, plugin: &PluginId) {
        let _ = self.plugin.set(plugin.clone());
    }

    pub(super) fn is_allowed(&self) -> bool {
        self.plugin.get().is_some()
    }

    /// A call of `client` begins.
    pub(super) fn during(&self, client: u64, wish: Option<LogWish>) -> During<'_> {
        let mut state = self.state();
        state.last_call += 1;
        let call = state.last_call;
        state.calls.insert(call, (client, wish));
        During(self, call)
    }

    /// The plugin logged something.
    pub(super) fn log(&self, now: Instant, params: Option<&RawValue>, secrets: &Redactor) {
        let (Some(plugin), Some(params)) = (self.plugin.get(), params) else { return };
        if params.get().len() > MAX_MESSAGE_BYTES {
            return;
        }
        let Some((level, told)) = told(plugin, params) else { return };
        let mut state = self.state();
        if !state.has_room(now) {
            return;
        }
        let told = masked(secrets, told);
        if state.calls.is_empty() {
            if state.waiting.len() == MAX_WAITING {
                state.waiting.pop_front();
            }
            state.waiting.push_back((level, told));
            drop(state);
            self.news.notify_one();
        } else if let Some(wish) = state.only_reader().filter(|wish| level >= wish.level) {
            let _ = wish.sender.try_send(told);
        }
    }

    /// The next message that belongs to no call.
    pub(crate) async fn next(&self) -> Logged {
        loop {
            let next = self.state().waiting.pop_front();
            match next {
                Some(logged) => return logged,
                None => self.news.notified().await,
            }
        }
    }
}

impl State {
    fn has_room(&mut self, now: Instant) -> bool {
        match &mut self.window {
            Some((since, count)) if now.saturating_duration_since(*since) < WINDOW => {
                *count = count.saturating_add(1);
                *count <= MAX_IN_WINDOW
            }
            window => {
                *window = Some((now, 1));
                true
            }
        }
    }

    /// The wish of the one client whose calls are under way, if it is one.
    fn only_reader(&self) -> Option<&LogWish> {
        let mut calls = self.calls.values();
        let (client, wish) = calls.next()?;
        // 0 says nothing about who it is.
        let is_one = self.calls.len() == 1 || (*client != 0 && calls.all(|(other, _)| other == client));
        if is_one { wish.as_ref().or_else(|| self.calls.values().find_map(|(_, wish)| wish.as_ref())) } else { None }
    }
}

/// As it is told: the logger begins with the plugin's id, so that nobody takes it for our own word or another's.
fn told(plugin: &PluginId, params: &RawValue) -> Option<(LogLevel, Box<RawValue>)> {
    let mut object = RawObject::parse(params)?;
    let level = LogLevel::parse(&object.get_str("level")?)?;
    if !object.has("data") {
        return None;
    }
    let logger = object.get_str("logger").map_or_else(|| plugin.to_string(), |logger| format!("{plugin}/{logger}"));
    object.set_str("logger", &logger);
    // What was said between the plugin and us.
    object.remove("_meta");
    Some((level, object.to_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn heard() -> Heard {
        let heard = Heard::default();
        heard.allow(&PluginId::new("fx").unwrap());
        heard
    }

    fn wish(level: LogLevel) -> (LogWish, mpsc::Receiver<Box<RawValue>>) {
        let (sender, receiver) = mpsc::channel(8);
        (LogWish { level, is_named: true, sender }, receiver)
    }

    fn say(heard: &Heard, level: &str) {
        let params = raw(&format!(r#"{{"level":"{level}","logger":"db","data":9007199254740993}}"#));
        heard.log(Instant::now(), Some(&params), &Redactor::new());
    }

    #[tokio::test]
    async fn a_message_during_a_call_is_its_callers_and_of_two_clients_nobodys() {
        // Else what one client filled in is read by another.
        let heard = heard();
        let (mine, mut my_logs) = wish(LogLevel::Info);
        let call = heard.during(1, Some(mine));
        say(&heard, "debug");
        say(&heard, "error");
        let told = my_logs.try_recv().unwrap();
        assert_eq!(told.get(), r#"{"level":"error","logger":"fx/db","data":9007199254740993}"#);
        assert!(my_logs.try_recv().is_err(), "it did not ask for details");
        let (other, mut other_logs) = wish(LogLevel::Debug);
        let second = heard.during(2, Some(other));
        say(&heard, "error");
        drop(second);
        assert!(my_logs.try_recv().is_err() && other_logs.try_recv().is_err());
        say(&heard, "error");
        assert!(my_logs.try_recv().is_ok(), "the control: the other is gone");
        let anonymous = [heard.during(0, None), heard.during(0, Some(wish(LogLevel::Debug).0))];
        drop(call);
        say(&heard, "error");
        drop(anonymous);
        say(&heard, "notice");
        assert_eq!(heard.next().await.0, LogLevel::Notice, "what belongs to no call is the host's to hand out");
    }

    #[tokio::test]
    async fn a_flood_is_cut_and_nonsense_is_left_out() {
        let now = Instant::now();
        let heard = heard();
        let (mine, mut logs) = wish(LogLevel::Debug);
        let (all, mut count) = (raw(r#"{"level":"info","data":1}"#), 0);
        let call = heard.during(1, Some(mine));
        for nonsense in ["7", r#"{"level":"loud","data":1}"#, r#"{"level":"info"}"#, r#"{"data":1}"#] {
            heard.log(now, Some(&raw(nonsense)), &Redactor::new());
        }
        heard.log(now, Some(&raw(&format!(r#"{{"level":"info","data":"{}"}}"#, "x".repeat(20_000)))), &Redactor::new());
        assert!(logs.try_recv().is_err());
        for _ in 0..10_000 {
            heard.log(now, Some(&all), &Redactor::new());
            count += u32::from(logs.try_recv().is_ok());
        }
        assert_eq!(count, MAX_IN_WINDOW);
        heard.log(now + WINDOW, Some(&all), &Redactor::new());
        assert!(logs.try_recv().is_ok(), "not for ever");
        drop(call);
        (0..10_000).for_each(|second| heard.log(now + WINDOW * second, Some(&all), &Redactor::new()));
        assert_eq!(heard.state().waiting.len(), MAX_WAITING);
        let silent = Heard::default();
        silent.log(now, Some(&all), &Redactor::new());
        assert!(silent.state().waiting.is_empty(), "nobody agreed to its logging");
    }
}
