//! Plugins of which each client has a process of its own (`isolation: per-client`).
//!
//! ```text
//! the plugin's own process   says what the tools are, and is watched, pinged and restarted as any other; runs no call
//! one process per client     started by the client's first call, ended once it is idle or when the plugin stops
//! ```
//!
//! Owns which process a client's calls go to, how many there are, and their end. A process of a client starts as the
//! plugin's own does, from a plan that is made anew and compared with the approval, in the same sandbox with the same
//! private folder, and serves only if it offers the same tools. Refuses to restart one that ended: the next call of its
//! client does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use plugward_policy::Isolation;
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::stop::{self, Ladder};
use super::{Launched, Plugin, Running, confine, era, start};
use crate::call::admission::Share;
use crate::config::DRAIN_GRACE;
use crate::error::{ErrorCode, HostError};
use crate::host::Inner;
use crate::session::{RequestError, Session, ToolCall};
use crate::views::LogOrigin;

/// Processes of one plugin for clients. A person has a few agents open; each process takes the memory of a whole server.
const PROCESSES_MAX: usize = 16;

/// Time without a call after which a client's process is ended, unless the manifest says another: a pause for coffee.
const IDLE_DEFAULT: Duration = Duration::from_secs(10 * 60);

/// Pause between two looks for idle ones.
const LOOK: Duration = Duration::from_millis(500);

/// Who a process is for: the name a client has in traces, and which of its sessions. Without a session it is the name
/// alone, which a token of its own makes certain.
type Client = (Arc<str>, u64);

/// The processes of one plugin for clients.
pub(crate) struct PerClient {
    /// Weak: the registry, which the host owns, owns this.
    inner: Weak<Inner>,
    plugin: Weak<Plugin>,
    slots: Mutex<HashMap<Client, Arc<Slot>>>,
    /// Starts and ends under way.
    tasks: TaskTracker,
    /// No further process is started.
    over: CancellationToken,
    /// The last one has ended.
    ended: CancellationToken,
    /// Messages of all of them: the sign of life a breaker looks for.
    heard: AtomicU64,
    /// The plugin is of the stateless revisions.
    asks_by_results: bool,
}

/// One client's process, or the place for it.
struct Slot {
    process: tokio::sync::Mutex<Option<Launched>>,
    usage: Mutex<Usage>,
}

struct Usage {
    calls: usize,
    idle_since: Instant,
}

/// A call that uses a slot; it is not ended meanwhile.
struct InUse(Arc<Slot>);

impl Drop for InUse {
    fn drop(&mut self) {
        let mut usage = self.0.usage();
        usage.calls -= 1;
        usage.idle_since = Instant::now();
    }
}

impl Slot {
    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long nobody has called; none while somebody does.
    fn idle_for(&self) -> Option<Duration> {
        let usage = self.usage();
        (usage.calls == 0).then(|| usage.idle_since.elapsed())
    }
}

/// The processes for clients of a plugin that wants them.
pub(super) fn of(inner: &Arc<Inner>, plugin: &Arc<Plugin>, own: &Session) -> Option<Arc<PerClient>> {
    if plugin.manifest.supervision.isolation != Isolation::PerClient {
        return None;
    }
    Some(Arc::new(PerClient {
        inner: Arc::downgrade(inner),
        plugin: Arc::downgrade(plugin),
        slots: Mutex::default(),
        tasks: TaskTracker::new(),
        over: CancellationToken::new(),
        ended: CancellationToken::new(),
        heard: AtomicU64::new(0),
        asks_by_results: own.is_stateless(),
    }))
}

/// Ends idle processes, and all of them with the plugin; calls under way then have the time of its own stop ladder.
pub(super) async fn tend(inner: Arc<Inner>, plugin: Arc<Plugin>, running: Arc<Running>, clients: Arc<PerClient>) {
    let limit = plugin.manifest.supervision.idle_stop.unwrap_or(IDLE_DEFAULT);
    loop {
        tokio::select! {
            biased;
            () = running.stopping.cancelled() => break,
            () = tokio::time::sleep(LOOK) => clients.end_idle(&inner, &plugin, limit),
        }
    }
    stop::drain_in_host(&inner, &running, DRAIN_GRACE).await;
    clients.over.cancel();
    let left: Vec<Arc<Slot>> = clients.slots().drain().map(|(_, slot)| slot).collect();
    let mut ending = JoinSet::new();
    for slot in left {
        ending.spawn(end(Arc::clone(&inner), Arc::clone(&plugin), slot));
    }
    while ending.join_next().await.is_some() {}
    clients.tasks.close();
    clients.tasks.wait().await;
    clients.ended.cancel();
}

/// Ends the process of a slot that is out of the table.
async fn end(inner: Arc<Inner>, plugin: Arc<Plugin>, slot: Arc<Slot>) {
    if let Some(launched) = slot.process.lock().await.take() {
        stop::end_process(&inner, &plugin, &launched, Ladder::ORDERLY).await;
    }
}

impl PerClient {
    fn slots(&self) -> MutexGuard<'_, HashMap<Client, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether results may be questions.
    pub(crate) fn asks_by_results(&self) -> bool {
        self.asks_by_results
    }

    /// Messages that came so far.
    pub(crate) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Resolves when the last process has ended.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Runs one call in the process of its client.
    pub(crate) async fn call_tool(
        self: &Arc<Self>,
        call: ToolCall,
        client: &Share,
        cancel: &CancellationToken,
    ) -> Result<Box<RawValue>, RequestError> {
        let (Some(inner), Some(plugin)) = (self.inner.upgrade(), self.plugin.upgrade()) else {
            return Err(RequestError::Unavailable("its host has ended".to_owned()));
        };
        let in_use = self.take(&inner, &plugin, client)?;
        // What it takes to start counts as the tool's time: a client waits for one answer.
        let limit = call.timing.idle;
        let session = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(RequestError::Cancelled),
            () = self.over.cancelled() => return Err(stopping()),
            () = tokio::time::sleep(limit) => return Err(RequestError::TimedOut { limit }),
            session = self.session(&inner, &plugin, &in_use.0, client) => session?,
        };
        let before = session.messages_in();
        let answer = session.call_tool(call, cancel).await;
        self.heard.fetch_add(session.messages_in().saturating_sub(before), Ordering::Relaxed);
        answer
    }

    /// The slot of a client; with as many as allowed, the one that was idle longest makes place.
    fn take(self: &Arc<Self>, inner: &Arc<Inner>, plugin: &Arc<Plugin>, client: &Share) -> Result<InUse, RequestError> {
        let key = (Arc::clone(&client.caller), client.session);
        let mut slots = self.slots();
        if self.over.is_cancelled() {
            return Err(stopping());
        }
        if !slots.contains_key(&key) && slots.len() >= PROCESSES_MAX {
            let idle = slots.iter().filter_map(|(key, slot)| Some((slot.idle_for()?, key)));
            let Some((_, longest)) = idle.max_by_key(|(idle, _)| *idle).map(|(idle, key)| (idle, key.clone())) else {
                let reason = format!("it has {PROCESSES_MAX} processes for as many clients, and all are in use");
                return Err(RequestError::Unavailable(reason));
            };
            if let Some(slot) = slots.remove(&longest) {
                self.tasks.spawn(end(Arc::clone(inner), Arc::clone(plugin), slot));
            }
        }
        let slot = slots.entry(key).or_insert_with(|| {
            let usage = Mutex::new(Usage { calls: 0, idle_since: Instant::now() });
            Arc::new(Slot { process: tokio::sync::Mutex::default(), usage })
        });
        slot.usage().calls += 1;
        Ok(InUse(Arc::clone(slot)))
    }

    fn end_idle(self: &Arc<Self>, inner: &Arc<Inner>, plugin: &Arc<Plugin>, limit: Duration) {
        let mut ended = Vec::new();
        self.slots().retain(|_, slot| {
            let is_idle = slot.idle_for().is_some_and(|idle| idle >= limit);
            if is_idle {
                ended.push(Arc::clone(slot));
            }
            !is_idle
        });
        for slot in ended {
            self.tasks.spawn(end(Arc::clone(inner), Arc::clone(plugin), slot));
        }
    }

    /// The conversation with a client's process, which is started if there is none.
    async fn session(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        plugin: &Arc<Plugin>,
        slot: &Arc<Slot>,
        client: &Share,
    ) -> Result<Arc<Session>, RequestError> {
        let alive = |launched: &Launched| launched.session.ending().is_none().then(|| Arc::clone(&launched.session));
        if let Ok(process) = slot.process.try_lock()
            && let Some(session) = process.as_ref().and_then(alive)
        {
            return Ok(session);
        }
        let (clients, inner, plugin, slot) =
            (Arc::clone(self), Arc::clone(inner), Arc::clone(plugin), Arc::clone(slot));
        let name = client.caller.to_string();
        // A task of its own: a caller that goes away must not leave half a start behind.
        let started = self.tasks.spawn(async move {
            let mut process = slot.process.lock().await;
            if let Some(session) = process.as_ref().and_then(alive) {
                return Ok(session);
            }
            if let Some(dead) = process.take() {
                stop::end_process(&inner, &plugin, &dead, Ladder::BROKEN).await;
            }
            let launched = clients.start(&inner, &plugin).await?;
            if let Some(process) = &launched.process {
                let line = format!("pid {} is for the client `{name}` alone", process.pid());
                plugin.log.push(LogOrigin::Host, &line);
            }
            let session = Arc::clone(&launched.session);
            *process = Some(launched);
            Ok(session)
        });
        let broken_off = |_| RequestError::Unavailable("its start was broken off".to_owned());
        started.await.map_err(broken_off)?.map_err(|error: HostError| RequestError::Unavailable(error.message))
    }

    /// A further process, held to everything the plugin's own is held to. On error none is left.
    async fn start(&self, inner: &Arc<Inner>, plugin: &Arc<Plugin>) -> Result<Launched, HostError> {
        start::check_grants(plugin)?;
        let planned = inner.plan(plugin).await?;
        start::check_approval(inner, plugin, &planned).await?;
        confine::check_gate(inner, plugin, &planned.plan)?;
        let digest = planned.plan.subject.digest().to_string();
        let greeting = era::first(inner, plugin, &digest).await;
        // Its number is one of its own; the current one stays that of the plugin's own process.
        let generation = inner.next_generation(plugin).await?;
        if self.over.is_cancelled() {
            return Err(broken_off(plugin));
        }
        let launched = start::launch(inner, plugin, Arc::new(planned.plan), generation).await?;
        let reached = tokio::select! {
            biased;
            () = self.over.cancelled() => Err(broken_off(plugin)),
            reached = start::converse(inner, plugin, &launched, greeting) => reached.map_err(|ungreeted| ungreeted.error),
        };
        let judged = reached.and_then(|(_, contract)| {
            let offer = |contract: &crate::contract::Contract| -> Vec<_> {
                contract.tools.iter().map(|tool| (tool.name.clone(), tool.digest)).collect()
            };
            let is_same = plugin.state().contract.as_ref().is_some_and(|own| offer(own) == offer(&contract));
            let message =
                || format!("plugin `{}` offers other tools to this client than those that were approved", plugin.id);
            is_same.then_some(()).ok_or_else(|| HostError::new(ErrorCode::McpToolSchemaInvalid, message()))
        });
        if let Err(error) = judged {
            stop::end_process(inner, plugin, &launched, Ladder::BROKEN).await;
            return Err(error);
        }
        Ok(launched)
    }
}

fn broken_off(plugin: &Plugin) -> HostError {
    HostError::new(ErrorCode::PluginStateConflict, format!("plugin `{}` is stopping", plugin.id))
}

fn stopping() -> RequestError {
    RequestError::Unavailable("it is stopping".to_owned())
}
