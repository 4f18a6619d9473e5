//! Plugins that are on while no process of theirs runs: asleep until the first call, and again after a time without any.
//!
//! ```text
//!  host starts, `lazy`          a call comes                    idle for `idle_stop_seconds`
//!  ------------------> asleep --------------> starting, ready -----------------------------> asleep
//! ```
//!
//! Owns the wait of callers for a start that their call began: they share one, and a start that fails answers all of
//! them with its reason. The tools of a plugin that sleeps are those of its approved contract; whether its package still
//! is what was approved, the start finds out. Refuses to start anything by itself: [`super::start`] does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use plugward_policy::{HostStatus, PluginStatus};
use tokio::sync::{Notify, watch};

use super::stop::{self, Ladder};
use super::{Launched, Plugin, Running, start, watch as watcher};
use crate::call::Target;
use crate::contract::{self, Contract};
use crate::error::HostError;
use crate::host::Inner;
use crate::views::LogOrigin;

/// What a plugin that sleeps says of itself.
const ASLEEP: &str = "asleep: the next call starts it";

/// A sleep and its end.
pub(crate) struct Sleep {
    called: Notify,
    outcome: watch::Sender<Option<Result<(), String>>>,
}

impl Sleep {
    fn new() -> Arc<Self> {
        Arc::new(Self { called: Notify::new(), outcome: watch::Sender::new(None) })
    }

    /// Wakes the plugin and waits until it is there; the error is why it is not.
    pub(crate) async fn wake(&self) -> Result<(), String> {
        let mut outcome = self.outcome.subscribe();
        self.called.notify_one();
        match outcome.wait_for(Option::is_some).await.map(|outcome| outcome.clone()) {
            Ok(Some(outcome)) => outcome,
            _ => Err("it was stopped".to_owned()),
        }
    }

    /// Ends it; only the first end counts.
    pub(super) fn end(&self, outcome: Result<(), String>) {
        self.outcome.send_if_modified(|ended| {
            let is_first = ended.is_none();
            ended.get_or_insert(outcome);
            is_first
        });
    }

    fn is_over(&self) -> bool {
        self.outcome.borrow().is_some()
    }

    async fn over(&self) {
        let mut outcome = self.outcome.subscribe();
        // Its sender is this sleep itself.
        let _ = outcome.wait_for(Option::is_some).await;
    }
}

/// Offers the tools of a plugin that is on and not running, as they were approved. The caller holds its operation lock.
///
/// False if it has to be started to know: nobody has seen its tools yet, or nothing was approved.
pub(crate) async fn lay_down(inner: &Arc<Inner>, plugin: &Arc<Plugin>) -> Result<bool, HostError> {
    if !plugin.missing_grants().is_empty() || inner.current_approval(plugin).await?.is_none() {
        return Ok(false);
    }
    let Some(contract) = approved_contract(inner, plugin).await? else { return Ok(false) };
    let disabled = inner.disabled_tools(plugin).await?;
    let sleep = Sleep::new();
    let route = Arc::new(start::route(plugin, Target::Asleep(Arc::clone(&sleep))));
    let offered = contract.tools.iter().filter(|tool| !disabled.contains(tool.name.as_str()));
    let tools = offered.map(|tool| (Arc::clone(tool), Arc::clone(&route))).collect();
    {
        let mut state = plugin.state();
        if state.removed
            || state.running.is_some()
            || inner.path.registry.publish(&plugin.id, plugin.rank, tools).is_err()
        {
            return Ok(false);
        }
        state.contract = Some(contract);
        state.held = Vec::new();
        state.fall_asleep(Arc::clone(&sleep));
    }
    inner.plugin_changed(plugin);
    watch_over(inner, plugin, sleep);
    Ok(true)
}

/// The tools that were approved, compiled; none if they were never seen or cannot be read any more.
async fn approved_contract(inner: &Arc<Inner>, plugin: &Plugin) -> Result<Option<Arc<Contract>>, HostError> {
    let Some(listed) = inner.pinned_definitions(plugin).await? else { return Ok(None) };
    let (manifest, judge) = (Arc::clone(&plugin.manifest), Arc::clone(inner));
    let checked = tokio::task::spawn_blocking(move || contract::check(&manifest, &judge.path.catalogue, &listed));
    let checked = checked.await.map_err(|_| HostError::internal("checking approved tools"))?;
    Ok(checked.ok().map(Arc::new))
}

/// Gives a sleep the task that ends it.
fn watch_over(inner: &Arc<Inner>, plugin: &Arc<Plugin>, sleep: Arc<Sleep>) {
    inner.tasks.spawn(wait_for_call(Arc::clone(inner), Arc::clone(plugin), sleep));
}

/// Starts the plugin at the first call, unless something else ends its sleep.
async fn wait_for_call(inner: Arc<Inner>, plugin: Arc<Plugin>, sleep: Arc<Sleep>) {
    tokio::select! {
        () = sleep.over() => return,
        () = inner.path.stopping.cancelled() => return sleep.end(Err("the host is shutting down".to_owned())),
        () = sleep.called.notified() => {}
    }
    let _operation = plugin.operation.lock().await;
    if sleep.is_over() {
        return;
    }
    if !plugin.wants_start() {
        return sleep.end(Err("it was switched off".to_owned()));
    }
    plugin.log.push(LogOrigin::Host, "woken by a call");
    // It ends the sleep, whatever comes of it.
    let started = start::start(&inner, &plugin).await;
    watcher::after_start(&inner, &plugin, started);
}

/// Resolves once no call was under way for `limit`, with the number of calls that came until then.
pub(super) async fn idle(running: &Running, limit: Option<Duration>) -> u64 {
    let Some(limit) = limit else { return std::future::pending().await };
    loop {
        let pause = match running.route.admission.idle_since() {
            Some((since, came)) => match limit.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) {
                Some(left) => left,
                None => return came,
            },
            None => limit,
        };
        tokio::time::sleep(pause).await;
    }
}

/// Ends the process of a plugin nobody has called for a while; its tools stay. False if somebody called meanwhile, or
/// something else is done with it.
pub(super) async fn put_to_sleep(
    inner: &Arc<Inner>,
    plugin: &Arc<Plugin>,
    running: &Arc<Running>,
    launched: &Launched,
    came: u64,
) -> bool {
    let _operation = plugin.operation.lock().await;
    let sleep = Sleep::new();
    {
        let mut state = plugin.state();
        let is_current = state.running.as_ref().is_some_and(|current| Arc::ptr_eq(current, running));
        if !is_current || running.stopping.is_cancelled() || launched.session.ending().is_some() {
            return false;
        }
        let route = Arc::new(start::route(plugin, Target::Asleep(Arc::clone(&sleep))));
        // First the way of new calls, then the door: a call that still came through it takes the change back.
        inner.path.registry.reroute(&plugin.id, &route);
        if !running.route.admission.close_if_idle(came) {
            inner.path.registry.reroute(&plugin.id, &running.route);
            sleep.end(Ok(()));
            return false;
        }
        running.stopping.cancel();
        running.route.is_end_counted.store(true, Ordering::Release);
        state.running = None;
        state.fall_asleep(Arc::clone(&sleep));
    }
    plugin.log.push(LogOrigin::Host, "asleep: no call for a while");
    inner.plugin_changed(plugin);
    watch_over(inner, plugin, sleep);
    stop::end_process(inner, plugin, launched, Ladder::ORDERLY).await;
    true
}

impl super::State {
    /// Marks it asleep: on, with its tools, without a process.
    fn fall_asleep(&mut self, sleep: Arc<Sleep>) {
        self.status = PluginStatus::Ready;
        self.host_status = HostStatus::Stopped;
        ASLEEP.clone_into(&mut self.detail);
        self.error = None;
        // Whoever waits for the one before finds this one.
        if let Some(before) = self.asleep.replace(sleep) {
            before.end(Ok(()));
        }
        self.backoff.slept(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_who_wake_it_learn_the_same_outcome_and_only_the_first_end_counts() {
        let sleep = Sleep::new();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let sleep = Arc::clone(&sleep);
                tokio::spawn(async move { sleep.wake().await })
            })
            .collect();
        sleep.called.notified().await;
        sleep.end(Err("no".to_owned()));
        sleep.end(Ok(()));
        for wake in waiting {
            assert_eq!(wake.await.unwrap(), Err("no".to_owned()));
        }
        assert_eq!(sleep.wake().await, Err("no".to_owned()));
    }
}
