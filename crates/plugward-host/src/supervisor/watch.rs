//! Keeps an eye on a ready plugin: its end, its changed tools, and its automatic restarts.
//!
//! Owns what happens unasked (requirements 52-57, 148; B023, B039, B044). Each watcher belongs to one generation and
//! does nothing once another one is current (N3). Refuses to touch a plugin that is being stopped on purpose.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plugward_policy::{HostStatus, RestartMode};
use plugward_sandbox::{ExitReport, MainExit};
use tokio_util::sync::CancellationToken;

use super::{Launched, Plugin, Running, State, start};
use super::{health, sleep, stop};
use crate::call::breaker::BreakerState;
use crate::error::{ErrorCode, HostError};
use crate::host::Inner;
use crate::session::Ending;
use crate::views::LogOrigin;

/// Shortest pause between two reads of a list that keeps changing.
const MIN_REFRESH_GAP: Duration = Duration::from_secs(1);

/// Longest pause, reached by a plugin that announces changes that are none.
const MAX_REFRESH_GAP: Duration = Duration::from_secs(30);

/// Watches `running` until it ends or is stopped.
pub(crate) async fn watch(inner: Arc<Inner>, plugin: Arc<Plugin>, running: Arc<Running>) {
    // A command has no process that could end unasked.
    let Some(launched) = running.launched.clone() else { return };
    let mut gap = MIN_REFRESH_GAP;
    let mut last_refresh: Option<Instant> = None;
    let mut breaker = plugin.breaker.changes();
    let unresponsive = health::unresponsive(&running, &launched, plugin.supervision.ping_every);
    tokio::pin!(unresponsive);
    loop {
        tokio::select! {
            biased;
            () = running.stopping.cancelled() => return,
            ending = launched.session.ended() => {
                return fell_over(&inner, &plugin, &running, &launched, ending, Restart::Automatic).await;
            }
            reason = &mut unresponsive => {
                let ending = Ending { reason, is_fault: true };
                return fell_over(&inner, &plugin, &running, &launched, ending, Restart::Automatic).await;
            }
            came = sleep::idle(&running, plugin.manifest.supervision.idle_stop) => {
                if sleep::put_to_sleep(&inner, &plugin, &running, &launched, came).await {
                    return;
                }
                continue;
            }
            Ok(()) = breaker.changed() => {
                tell_breaker(&inner, &plugin, *breaker.borrow_and_update());
                continue;
            }
            () = changed(&launched, last_refresh, gap) => {}
        }
        last_refresh = Some(Instant::now());
        match refresh(&inner, &plugin, &running, &launched).await {
            Refresh::Same => gap = (gap * 2).min(MAX_REFRESH_GAP),
            Refresh::Changed => gap = MIN_REFRESH_GAP,
            Refresh::Broken(reason) => {
                let ending = Ending { reason, is_fault: true };
                return fell_over(&inner, &plugin, &running, &launched, ending, Restart::ByPerson).await;
            }
        }
    }
}

/// Resolves when the list should be read again: after a notice, and not before the gap has passed.
async fn changed(launched: &Launched, last: Option<Instant>, gap: Duration) {
    launched.session.tools_changed().await;
    if let Some(last) = last {
        tokio::time::sleep_until((last + gap).into()).await;
    }
}

/// Requirement 190: what the breaker does is told where people look.
fn tell_breaker(inner: &Inner, plugin: &Plugin, state: BreakerState) {
    let settings = &plugin.supervision;
    let line = match state {
        BreakerState::Open => format!(
            "calls are refused for {:.1} s: it failed {} times in a row, or failed again when it was tried",
            settings.breaker_open.as_secs_f32(),
            settings.breaker_failures
        ),
        BreakerState::HalfOpen => "one call is let through to see whether it answers again".to_owned(),
        BreakerState::Closed => "calls are let through again".to_owned(),
    };
    plugin.log.push(LogOrigin::Host, &format!("breaker {}: {line}", state.as_str()));
    inner.plugin_changed(plugin);
}

enum Refresh {
    Same,
    Changed,
    Broken(String),
}

/// Reads the list beside the old set, which keeps serving (architecture: `tools/list_changed`).
async fn refresh(inner: &Arc<Inner>, plugin: &Arc<Plugin>, running: &Arc<Running>, launched: &Launched) -> Refresh {
    let contract = match start::read_contract(inner, plugin, &launched.session).await {
        Ok(contract) => Arc::new(contract),
        Err(error) if error.code == ErrorCode::McpToolSchemaInvalid => return Refresh::Broken(error.message),
        // The list failed this once: the last good one stays (B084).
        Err(error) => {
            plugin.log.push(LogOrigin::Host, &format!("the changed tool list could not be read: {error}"));
            return Refresh::Same;
        }
    };
    // The operation lock keeps a stop, or an approval of other pins, from running in between.
    let _operation = plugin.operation.lock().await;
    if running.stopping.is_cancelled() {
        return Refresh::Same;
    }
    let same = plugin.state().contract.as_ref().is_some_and(|old| {
        old.tools.iter().map(|tool| &tool.digest).eq(contract.tools.iter().map(|tool| &tool.digest))
            && old.tools.iter().map(|tool| &tool.name).eq(contract.tools.iter().map(|tool| &tool.name))
    });
    if same {
        return Refresh::Same;
    }
    let check = match inner.hold_to_pins(plugin, &contract).await {
        Ok(check) => check,
        Err(error) => {
            plugin.log.push(LogOrigin::Host, &format!("the changed tool list could not be compared: {error}"));
            return Refresh::Same;
        }
    };
    let held: Vec<String> = check.held.iter().map(|tool| tool.remote_name.clone()).collect();
    if let Err(error) = start::go_live(inner, plugin, running, contract, check).await {
        return Refresh::Broken(error.message);
    }
    for name in held {
        plugin.log.push(LogOrigin::Host, &format!("tool `{name}` is held: its definition changed"));
    }
    inner.plugin_changed(plugin);
    Refresh::Changed
}

/// Says how the process ended, beyond "it closed its stdout".
pub(crate) async fn describe_end(launched: &Launched, reason: String) -> String {
    /// The process usually follows its pipe at once.
    const EXIT_WAIT: Duration = Duration::from_millis(500);
    let Some(process) = &launched.process else {
        // The conversation ended for a reason of its own.
        return launched.session.ending().map_or(reason, |ending| ending.reason);
    };
    match process.gone_within(EXIT_WAIT).await {
        Some(report) => describe_exit(&reason, &report),
        None => reason,
    }
}

/// A limit that it was ended for says more than the signal that did it.
fn describe_exit(reason: &str, report: &ExitReport) -> String {
    /// What the kernel sends a process at its limit on the size of a file.
    const SIGXFSZ: i32 = 25;
    match (report.exceeded, report.main) {
        (Some(exceeded), _) => format!("it was ended at a limit: {exceeded}"),
        (None, MainExit::Signal(SIGXFSZ)) => {
            format!("{reason} (ended at its limit on the size of a file, `file_bytes`)")
        }
        (None, main) => format!("{reason} ({main})"),
    }
}

enum Restart {
    Automatic,
    ByPerson,
}

/// The plugin is not usable any more: tools go first, then whatever is left of its process.
async fn fell_over(
    inner: &Arc<Inner>,
    plugin: &Arc<Plugin>,
    running: &Arc<Running>,
    launched: &Launched,
    ending: Ending,
    restart: Restart,
) {
    let mut reason = plugin.redactor.redact(&ending.reason).into_owned();
    {
        let mut state = plugin.state();
        if running.stopping.is_cancelled() || state.generation != launched.generation {
            return;
        }
        running.stopping.cancel();
        // Under the state's lock: status, list and routing change together (requirement 55).
        inner.path.registry.withdraw(&plugin.id);
        state.set_error(HostStatus::Unhealthy, reason.clone());
        state.fallen = Some(launched.clone());
    }
    inner.plugin_changed(plugin);
    // A plugin that broke a rule still runs; one that went away has a status worth knowing, which may take a moment.
    if !ending.is_fault {
        let described = describe_end(launched, reason.clone()).await;
        if still_fallen(plugin, launched, &reason, |state| state.set_error(HostStatus::Unhealthy, described.clone())) {
            inner.plugin_changed(plugin);
        }
        reason = described;
    }
    plugin.log.push(LogOrigin::Host, &format!("fell over: {reason}"));
    let _operation = plugin.operation.lock().await;
    // An operation that came first has decided what follows.
    if !still_fallen(plugin, launched, &reason, |_| {}) {
        return;
    }
    inner.remember_outcome(plugin, Some(&reason)).await;
    if stop::end_fallen(inner, plugin).await && matches!(restart, Restart::Automatic) {
        schedule(inner, plugin);
    }
}

/// Whether nothing happened since `launched` fell over for `reason`; `change` is made under the same lock.
fn still_fallen(plugin: &Plugin, launched: &Launched, reason: &str, change: impl FnOnce(&mut State)) -> bool {
    let mut state = plugin.state();
    let is_same = state.generation == launched.generation && state.fallen.is_some();
    let is_same = is_same && state.error.as_deref() == Some(reason);
    if is_same {
        change(&mut state);
    }
    is_same
}

/// Plans the next automatic start, or gives the plugin up.
pub(crate) fn schedule(inner: &Arc<Inner>, plugin: &Arc<Plugin>) {
    if plugin.manifest.backend.restart == RestartMode::Never || inner.path.stopping.is_cancelled() {
        return;
    }
    let token = CancellationToken::new();
    let pause = {
        let mut state = plugin.state();
        if !state.row.enabled || state.removed || state.running.is_some() {
            return;
        }
        let error = state.error.clone().unwrap_or_default();
        match state.backoff.failed(Instant::now(), chance()) {
            Some(pause) => {
                let attempt = state.backoff.attempts();
                state.detail = format!(
                    "{error}; starting again in {:.1} s (attempt {attempt} of {})",
                    pause.as_secs_f32(),
                    state.backoff.limit()
                );
                state.cancel_restart();
                state.next_start_at = Some(Instant::now() + pause);
                state.pending_restart = Some(token.clone());
                pause
            }
            None => {
                state.detail = format!(
                    "{error}; given up after {} attempts: see `plugward logs {id}`, then `plugward restart {id}`",
                    state.backoff.limit(),
                    id = plugin.id
                );
                state.host_status = HostStatus::Error;
                drop(state);
                plugin.log.push(LogOrigin::Host, "given up: no further automatic start");
                inner.plugin_changed(plugin);
                return;
            }
        }
    };
    inner.plugin_changed(plugin);
    let (owner, inner, plugin) = (Arc::clone(inner), Arc::clone(inner), Arc::clone(plugin));
    owner.tasks.spawn(async move {
        tokio::select! {
            () = token.cancelled() => return,
            () = inner.path.stopping.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let _operation = plugin.operation.lock().await;
        if token.is_cancelled() || !plugin.wants_start() {
            return;
        }
        {
            let mut state = plugin.state();
            state.restarts += 1;
            state.next_start_at = None;
        }
        let started = start::start(&inner, &plugin).await;
        after_start(&inner, &plugin, started);
    });
}

/// What follows an unattended start.
pub(crate) fn after_start(inner: &Arc<Inner>, plugin: &Arc<Plugin>, started: Result<(), HostError>) {
    let Err(error) = started else { return };
    plugin.log.push(LogOrigin::Host, &format!("start failed: {error}"));
    let retry = matches!(
        error.code,
        ErrorCode::PluginHostUnavailable
            | ErrorCode::PluginHostStartFailed
            | ErrorCode::McpInitializeFailed
            | ErrorCode::McpToolListFailed
    );
    // A version nobody speaks, a broken contract, a missing decision: trying again changes nothing (B032).
    if retry && !error.is_permanent {
        schedule(inner, plugin);
    }
}

/// A number in `0.0..1.0` for the jitter.
fn chance() -> f64 {
    let mut byte = [0u8; 1];
    // Without randomness the pause is the exact one.
    let known = getrandom::fill(&mut byte).map_or(128, |()| byte[0]);
    f64::from(known) / 256.0
}
