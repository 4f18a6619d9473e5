//! What happens in the host, as a webhook tells it.
//!
//! Owns what is news: each state of a plugin is compared with the one before, so that many changes of one kind are one event.
//! Never waits for a receiver: what does not fit into the queue is counted. Refuses payloads of calls and secrets: facts
//! are names, states and errors in our own, masked words.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use plugward_policy::{HostOccasion, HostStatus, PluginId, PluginStatus, Webhook, visible};
use serde_json::{Value as Json, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Happening;
use crate::events::{HostEvent, Notice, PluginNotice};
use crate::host::Inner;
use crate::ids::new_trace;
use crate::supervisor::Plugin;

/// Characters of an error that are told: a line or two, not a log.
const ERROR_CHARS_MAX: usize = 2000;

/// A plugin's state, as far as events are made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    status: PluginStatus,
    host_status: HostStatus,
    is_held: bool,
}

impl Seen {
    fn of(plugin: &PluginNotice) -> Self {
        Self { status: plugin.status, host_status: plugin.host_status, is_held: plugin.is_held }
    }

    /// Whether it takes calls.
    fn is_up(self) -> bool {
        self.status == PluginStatus::Ready
    }
}

/// What a change of state is told as, most important first; none if it is no news.
fn occasion_of(before: Option<Seen>, now: Seen) -> Option<HostOccasion> {
    let was = |check: fn(Seen) -> bool| before.is_some_and(check);
    if now.is_held && !was(|seen| seen.is_held) {
        Some(HostOccasion::PluginHeld)
    } else if now.is_up() && !was(Seen::is_up) {
        Some(HostOccasion::PluginReady)
    } else if before.is_some_and(|before| before.status == now.status && before.host_status == now.host_status) {
        None
    } else if now.host_status == HostStatus::Unhealthy {
        Some(HostOccasion::PluginUnhealthy)
    } else if now.status == PluginStatus::Error {
        Some(HostOccasion::PluginError)
    } else if now.host_status == HostStatus::Stopped && was(|seen| seen.host_status != HostStatus::Stopped) {
        Some(HostOccasion::PluginStopped)
    } else {
        None
    }
}

/// Watches for one webhook.
pub(super) struct Watch {
    inner: Weak<Inner>,
    own: Arc<Plugin>,
    wanted: Vec<HostOccasion>,
    notices: Receiver<Notice>,
    queue: mpsc::Sender<Happening>,
    seen: HashMap<PluginId, Seen>,
    waiting_requests: usize,
}

impl Watch {
    /// What is so already is no news.
    pub(super) fn new(inner: &Arc<Inner>, own: &Arc<Plugin>, hook: &Webhook, queue: mpsc::Sender<Happening>) -> Self {
        let notices = inner.events.notices();
        let plugins = inner.all();
        let seen = plugins.iter().map(|plugin| (plugin.id.clone(), Seen::of(&PluginNotice::of(plugin)))).collect();
        Self {
            inner: Arc::downgrade(inner),
            own: Arc::clone(own),
            wanted: hook.occasions.clone(),
            notices,
            queue,
            seen,
            waiting_requests: inner.path.asks.pending().len(),
        }
    }

    pub(super) async fn run(mut self, stopping: CancellationToken) {
        loop {
            let event = tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                event = self.notices.recv() => event,
            };
            let Some(inner) = self.inner.upgrade() else { return };
            match event {
                Ok(Notice::Plugin(plugin)) => self.look_at(&plugin),
                Ok(Notice::Other(HostEvent::PluginChanged(_))) => {}
                Ok(Notice::Other(HostEvent::PluginRemoved(id))) => {
                    self.seen.remove(&id);
                    let facts = json!({ "plugin": { "id": id.as_str() } });
                    self.tell(HostOccasion::PluginRemoved, &format!("plugin {id} was removed"), facts);
                }
                Ok(Notice::Other(HostEvent::ToolsChanged(version))) => {
                    let count = inner.path.registry.snapshot().tools().len();
                    let facts = json!({ "tools": { "version": version, "count": count } });
                    self.tell(HostOccasion::ToolsChanged, &format!("{count} tools can be called now"), facts);
                }
                Ok(Notice::Other(HostEvent::AsksChanged)) => {
                    let waiting = inner.path.asks.pending().len();
                    if waiting > self.waiting_requests {
                        let facts = json!({ "requests": { "waiting": waiting } });
                        let message = format!("{waiting} calls wait for a person's permission");
                        self.tell(HostOccasion::RequestWaiting, &message, facts);
                    }
                    self.waiting_requests = waiting;
                }
                // What was missed shows in the states.
                Err(RecvError::Lagged(_)) => {
                    for plugin in inner.all() {
                        self.look_at(&PluginNotice::of(&plugin));
                    }
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn look_at(&mut self, plugin: &PluginNotice) {
        let id = &plugin.id;
        // A webhook that tells of itself would tell of its own failures, to the receiver that fails.
        if *id == self.own.id {
            return;
        }
        let now = Seen::of(plugin);
        let before = self.seen.insert(id.clone(), now);
        let Some(occasion) = occasion_of(before, now) else { return };
        let error = plugin.error.as_deref().filter(|_| !now.is_up()).map(|error| {
            let masked = self.own.redactor.redact(error);
            visible(&masked.chars().take(ERROR_CHARS_MAX).collect::<String>())
        });
        let message = match occasion {
            HostOccasion::PluginReady => format!("plugin {id} is ready"),
            HostOccasion::PluginHeld => format!("plugin {id} is held: it is not what was approved"),
            HostOccasion::PluginStopped => format!("plugin {id} was stopped"),
            HostOccasion::PluginUnhealthy => format!("plugin {id} fell over and is started again"),
            _ => format!("plugin {id} failed: {}", error.as_deref().unwrap_or("no reason is known")),
        };
        let facts = json!({ "plugin": {
            "id": id.as_str(),
            "name": plugin.name,
            "version": plugin.version,
            "status": plugin.status.as_str(),
            "error": error,
        } });
        self.tell(occasion, &message, facts);
    }

    fn tell(&self, occasion: HostOccasion, message: &str, facts: Json) {
        if !self.wanted.contains(&occasion) {
            return;
        }
        let now = SystemTime::now();
        let (id, span_id) = new_trace(now);
        let mut event = json!({
            "id": id,
            "type": occasion.as_str(),
            "time": humantime::format_rfc3339_millis(now).to_string(),
            "message": message,
        });
        if let (Json::Object(event), Json::Object(facts)) = (&mut event, facts) {
            event.extend(facts);
        }
        let happening = Happening { id, span_id, name: occasion.as_str(), facts: event };
        let is_full = self.queue.try_send(happening).is_err();
        let waiting = self.queue.max_capacity() - self.queue.capacity();
        self.own.deliveries.change(|counts| {
            counts.waiting = waiting;
            counts.dropped += u64::from(is_full);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // What a change is told as: one event for what a person would call one.
    #[test]
    fn states_become_events_once() {
        let seen = |status, host_status, is_held| Seen { status, host_status, is_held };
        let stopped = seen(PluginStatus::Installed, HostStatus::Stopped, false);
        let starting = seen(PluginStatus::Starting, HostStatus::Starting, false);
        let ready = seen(PluginStatus::Ready, HostStatus::Ready, false);
        let asleep = seen(PluginStatus::Ready, HostStatus::Stopped, false);
        let unhealthy = seen(PluginStatus::Error, HostStatus::Unhealthy, false);
        let error = seen(PluginStatus::Error, HostStatus::Error, false);
        let held = seen(PluginStatus::PermissionRequired, HostStatus::Stopped, true);
        let disabled = seen(PluginStatus::Disabled, HostStatus::Stopped, false);
        for (before, now, expected) in [
            (None, stopped, None),
            (Some(stopped), starting, None),
            (Some(starting), ready, Some(HostOccasion::PluginReady)),
            (Some(ready), ready, None),
            (Some(ready), unhealthy, Some(HostOccasion::PluginUnhealthy)),
            (Some(unhealthy), unhealthy, None),
            (Some(unhealthy), ready, Some(HostOccasion::PluginReady)),
            (Some(starting), error, Some(HostOccasion::PluginError)),
            (Some(ready), disabled, Some(HostOccasion::PluginStopped)),
            (Some(disabled), disabled, None),
            (Some(starting), held, Some(HostOccasion::PluginHeld)),
            (Some(held), held, None),
            (Some(asleep), ready, None),
        ] {
            assert_eq!(occasion_of(before, now), expected, "{before:?} -> {now:?}");
        }
    }
}
