//! The eleven steps from a stopped plugin to a ready one, and the way back from each (requirements 38-49).
//!
//! ```text
//!  1 permissions granted     4 initialize               8 every tool validated
//!    approval, sandbox gate  5 version, tools           9 set equals the declared one
//!  2 tool ids are free       6 initialized             10 whole set registered at once
//!  3 process started         7 tools/list, all pages   11 ready
//! ```
//!
//! Owns the order and the rollback: whichever step fails, no tool is left registered and no process alive when
//! [`start`] returns. Refuses to retry; [`super::watch`] does.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use plugward_policy::{BackendKind, HostStatus, StdoutMode};
use plugward_protocol::{HandshakeError, ServerHello};
use tokio::sync::SemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::confine::{self, Confined};
use super::containers::{self, ContainerStart};
use super::era::{self, Greeting, Ungreeted};
use super::listen;
use super::per_client;
use super::stop::{self, Ladder};
use super::{Launched, Plugin, Running};
use crate::call::admission::Admission;
use crate::call::{Route, Target};
use crate::config::MAX_CONCURRENT_CALLS_PER_PLUGIN;
use crate::contract::{self, Contract, PinCheck};
use crate::discovery::{self, DiscoveryError};
use crate::error::{ErrorCode, HostError};
use crate::host::{Inner, Planned};
use crate::offers::Offers;
use crate::package::LaunchPlan;
use crate::registry::ToolConflict;
use crate::session::log::STARTED;
use crate::session::process::RunningProcess;
use crate::session::quote::{self, Secrets};
use crate::session::{Session, SessionSettings, masked};
use crate::views::LogOrigin;

/// Characters kept of what a server calls itself and its version: a line on a screen, and a bound on what it can put
/// there.
const MAX_SERVER_LABEL_CHARS: usize = 128;

/// Starts a plugin; the caller holds its operation lock. On error it is rolled back and its state says why.
pub(crate) async fn start(inner: &Arc<Inner>, plugin: &Arc<Plugin>) -> Result<(), HostError> {
    start_in_turn(inner, plugin, None).await
}

/// As [`start`], with one of the places for starts at the same time. It is given back once the process is there: what
/// follows is waiting, and plugins that say nothing must not hold up the others for the length of their time limits.
pub(crate) async fn start_in_turn(
    inner: &Arc<Inner>,
    plugin: &Arc<Plugin>,
    place: Option<SemaphorePermit<'_>>,
) -> Result<(), HostError> {
    let (interrupted, asleep) = {
        let mut state = plugin.state();
        (state.set_starting(), state.asleep.take())
    };
    inner.plugin_changed(plugin);
    stop::end_fallen(inner, plugin).await;
    let outcome = steps(inner, plugin, &interrupted, place).await;
    plugin.state().starting = None;
    // Whoever broke it off starts it again, or ends the sleep with its own reason: calls that wait learn that one.
    let is_broken_off = outcome.as_ref().is_err_and(|error| error.code == ErrorCode::PluginStateConflict);
    if outcome.is_err() && asleep.is_some() && !is_broken_off {
        // Before anybody who waits is told, so that nobody tries the same again.
        inner.path.registry.withdraw(&plugin.id);
    }
    let failed = match &outcome {
        Ok(()) => None,
        // A missing decision of a person is no fault of the plugin.
        Err(error) if is_decision_missing(error.code) => {
            let mut state = plugin.state();
            state.settle(true);
            state.detail.clone_from(&error.message);
            None
        }
        // The operation that broke it off decides what follows.
        Err(error) if error.code == ErrorCode::PluginStateConflict => {
            plugin.state().set_error(HostStatus::Error, error.message.clone());
            None
        }
        Err(error) => {
            plugin.state().set_error(HostStatus::Error, error.message.clone());
            Some(error.message.as_str())
        }
    };
    if let Some(asleep) = asleep {
        if is_broken_off {
            plugin.state().asleep = Some(asleep);
            return outcome;
        }
        let answer = outcome.as_ref().copied().map_err(|error| plugin.redactor.redact(&error.message).into_owned());
        asleep.end(answer);
    }
    inner.plugin_changed(plugin);
    inner.remember_outcome(plugin, failed).await;
    outcome
}

fn is_decision_missing(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::PluginPermissionRequired | ErrorCode::McpTrustApprovalRequired | ErrorCode::McpSandboxRequired
    )
}

/// A process that said everything that is said before it is trusted with a call.
pub(super) struct Arrived {
    launched: Launched,
    hello: ServerHello,
    contract: Arc<Contract>,
}

async fn steps(
    inner: &Arc<Inner>,
    plugin: &Arc<Plugin>,
    interrupted: &CancellationToken,
    place: Option<SemaphorePermit<'_>>,
) -> Result<(), HostError> {
    let outcome = match plugin.manifest.backend.kind {
        BackendKind::Command(_) => offer_command(inner, plugin).await,
        BackendKind::Prompt(_) | BackendKind::Webhook(_) => super::in_host::offer(inner, plugin).await,
        BackendKind::McpStdio | BackendKind::McpHttp(_) => {
            let arrived = bring_up(inner, plugin, interrupted, place).await?;
            publish_or_end(inner, plugin, arrived).await
        }
    };
    if outcome.is_err() {
        inner.path.registry.withdraw(&plugin.id);
        plugin.state().running = None;
    }
    outcome
}

/// Steps 1 and 2: what would run, if it may, and the number of this start.
pub(super) async fn may_start(inner: &Arc<Inner>, plugin: &Arc<Plugin>) -> Result<(Planned, u64), HostError> {
    check_grants(plugin)?; // 1
    let planned = inner.plan(plugin).await?;
    check_approval(inner, plugin, &planned).await?;
    if planned.plan.remote.is_none() {
        confine::check_gate(inner, plugin, &planned.plan)?;
    }
    check_conflicts(inner, plugin)?; // 2
    let generation = inner.next_generation(plugin).await?;
    plugin.state().generation = generation;
    Ok((planned, generation))
}

/// All steps of a command, which has no process between calls. On error what is offered already is not touched.
pub(super) async fn offer_command(inner: &Arc<Inner>, plugin: &Arc<Plugin>) -> Result<(), HostError> {
    let (planned, generation) = may_start(inner, plugin).await?;
    super::command::publish(inner, plugin, planned, generation).await
}

/// Steps 1 to 9. On error no process is left; what runs already is not touched.
pub(super) async fn bring_up(
    inner: &Arc<Inner>,
    plugin: &Arc<Plugin>,
    interrupted: &CancellationToken,
    place: Option<SemaphorePermit<'_>>,
) -> Result<Arrived, HostError> {
    let (planned, generation) = may_start(inner, plugin).await?;
    tokio::select! {
        biased;
        error = broken_off(inner, plugin, interrupted) => return Err(error),
        () = sweep(inner, plugin, &planned.plan, generation) => {}
    }
    let digest = planned.plan.subject.digest().to_string();
    let plan = Arc::new(planned.plan);
    let mut greeting = era::first(inner, plugin, &digest).await;
    let mut launched = launch(inner, plugin, Arc::clone(&plan), generation).await?; // 3
    drop(place);
    loop {
        let reached = tokio::select! {
            error = broken_off(inner, plugin, interrupted) => Err(error.into()),
            reached = converse(inner, plugin, &launched, greeting) => reached, // 4-9
        };
        let Ungreeted { error, next } = match reached {
            Ok((hello, contract)) => {
                era::remember(inner, plugin, &digest, &hello).await;
                return Ok(Arrived { launched, hello, contract });
            }
            Err(ungreeted) => ungreeted,
        };
        stop::end_process(inner, plugin, &launched, Ladder::BROKEN).await;
        let Some(next) = next else { return Err(error) };
        greeting = next;
        launched = launch_anew(inner, plugin, &plan, &error).await?;
    }
}

/// A fresh process in the place of one that was greeted in a way it does not know.
async fn launch_anew(
    inner: &Arc<Inner>,
    plugin: &Arc<Plugin>,
    plan: &Arc<LaunchPlan>,
    reason: &HostError,
) -> Result<Launched, HostError> {
    plugin.log.push(LogOrigin::Host, &format!("started anew, to be greeted in the other way: {}", reason.message));
    let generation = inner.next_generation(plugin).await?;
    plugin.state().generation = generation;
    launch(inner, plugin, Arc::clone(plan), generation).await
}

/// Steps 10 and 11; on error the process that arrived is ended.
pub(super) async fn publish_or_end(
    inner: &Arc<Inner>,
    plugin: &Arc<Plugin>,
    arrived: Arrived,
) -> Result<(), HostError> {
    let Arrived { launched, hello, contract } = arrived;
    let outcome = publish(inner, plugin, &launched, &hello, contract).await;
    if outcome.is_err() {
        stop::end_process(inner, plugin, &launched, Ladder::BROKEN).await;
    }
    outcome
}

/// Resolves when the start is not wanted any more: the host ends, or a person wants the plugin to.
pub(super) async fn broken_off(inner: &Inner, plugin: &Plugin, interrupted: &CancellationToken) -> HostError {
    let id = &plugin.id;
    tokio::select! {
        biased;
        () = inner.path.stopping.cancelled() => {
            let message = format!("start of `{id}` ended because the host is shutting down");
            HostError::new(ErrorCode::HostStopping, message)
        }
        () = interrupted.cancelled() => {
            let message = format!("start of `{id}` was broken off by a disable, restart or remove");
            HostError::new(ErrorCode::PluginStateConflict, message)
        }
    }
}

pub(super) fn check_grants(plugin: &Plugin) -> Result<(), HostError> {
    let missing = plugin.missing_grants();
    if missing.is_empty() {
        return Ok(());
    }
    let id = &plugin.id;
    let message = format!("plugin `{id}` needs permissions that nobody granted: {}", missing.join(", "));
    Err(HostError::new(ErrorCode::PluginPermissionRequired, message).with_hint(format!("see `plugward review {id}`")))
}

/// Invariants 1 and 8: what would run now is what a person agreed to.
pub(super) async fn check_approval(inner: &Arc<Inner>, plugin: &Plugin, planned: &Planned) -> Result<(), HostError> {
    let id = &plugin.id;
    let hint = format!("look at it with `plugward review {id}`, then approve it");
    let Some(approval) = inner.current_approval(plugin).await? else {
        let message = format!("plugin `{id}` was not approved by anyone");
        return Err(HostError::new(ErrorCode::McpTrustApprovalRequired, message).with_hint(hint));
    };
    if approval.launch_digest == planned.plan.subject.digest().to_string() {
        return Ok(());
    }
    plugin.state().hold.hold();
    let message = format!("plugin `{id}` is held: what would run now is not what was approved");
    Err(HostError::new(ErrorCode::McpTrustApprovalRequired, message).with_hint(hint))
}

fn check_conflicts(inner: &Inner, plugin: &Plugin) -> Result<(), HostError> {
    let declared = plugin.manifest.declared_tools.as_deref().unwrap_or_default();
    inner.path.registry.check_conflicts(&plugin.id, declared).map_err(|conflict| conflict_error(plugin, &conflict))
}

fn conflict_error(plugin: &Plugin, conflict: &ToolConflict) -> HostError {
    let ToolConflict { id, owner, is_name } = conflict;
    let (message, other_way) = if *is_name {
        let name = id.name();
        (
            format!("tool name `{name}` of plugin `{}` is taken by plugin `{owner}`", plugin.id),
            "set naming to `prefixed`",
        )
    } else {
        let message = format!("tool `{id}` of plugin `{}` is registered by plugin `{owner}` already", plugin.id);
        (message, "give one of them another id")
    };
    HostError::new(ErrorCode::PluginToolConflict, message).with_hint(format!("disable `{owner}` first, or {other_way}"))
}

/// Containers that an earlier host could not end.
async fn sweep(inner: &Arc<Inner>, plugin: &Plugin, plan: &LaunchPlan, generation: u64) {
    if let Some(run) = &plan.container {
        containers::sweep(inner, plugin, run, &plan.launch_spec(generation)).await;
    }
}

pub(super) async fn launch(
    inner: &Arc<Inner>,
    plugin: &Arc<Plugin>,
    plan: Arc<LaunchPlan>,
    generation: u64,
) -> Result<Launched, HostError> {
    plugin.redactor.set_secrets(plugin.id.as_str(), &plan.secrets);
    plugin.own_redactor.set_secrets(plugin.id.as_str(), &plan.secrets);
    if let Some(remote) = &plan.remote {
        return Ok(super::remote::connect(inner, plugin, &plan, remote, generation));
    }
    let spec = plan.launch_spec(generation);
    let container = plan.container.clone().zip(plan.container_name(generation));
    let container = container.map(|(run, name)| ContainerStart { run, name, spec });
    let (starter, started, start_plan) = (Arc::clone(inner), Arc::clone(plugin), Arc::clone(&plan));
    let confined = tokio::task::spawn_blocking(move || confine::spawn(&starter, &started, &start_plan, generation))
        .await
        .map_err(|_| HostError::internal("starting a process"))??;
    take_over(inner, plugin, &plan, confined, generation, container)
}

/// Tells people of limits that the kernel keeps, which the plugin alone would know of otherwise.
fn follow_limits(inner: &Arc<Inner>, plugin: &Arc<Plugin>, process: &RunningProcess) {
    let (mut reached, inner_of_task, plugin) = (process.follow_reached(), Arc::clone(inner), Arc::clone(plugin));
    inner.tasks.spawn(async move {
        let mut told = 0;
        // It closes with the end of the process.
        while reached.changed().await.is_ok() {
            let lines: Vec<String> = reached.borrow_and_update().iter().skip(told).map(ToString::to_string).collect();
            told += lines.len();
            lines.iter().for_each(|line| plugin.log.push(LogOrigin::Host, &format!("at a limit: {line}")));
            inner_of_task.plugin_changed(&plugin);
        }
    });
}

/// Makes a conversation out of a process that was just started.
pub(super) fn take_over(
    inner: &Arc<Inner>,
    plugin: &Arc<Plugin>,
    plan: &LaunchPlan,
    confined: Confined,
    generation: u64,
    container: Option<ContainerStart>,
) -> Result<Launched, HostError> {
    let Confined { spawned, unconfined, egress } = confined;
    let io_error = |error: std::io::Error| HostError::internal(format_args!("taking over the pipes: {error}"));
    let process = Arc::new(RunningProcess::watch(spawned.process).map_err(io_error)?);
    let stderr = tokio::net::unix::pipe::Receiver::from_owned_fd(spawned.stderr).map_err(io_error)?;
    let over = CancellationToken::new();
    inner.tasks.spawn(Arc::clone(&plugin.log).drain(stderr, generation, over.clone()));
    let backend = &plugin.manifest.backend;
    let settings = SessionSettings {
        max_message_bytes: usize::try_from(backend.max_message_bytes).unwrap_or(usize::MAX),
        strict: backend.stdout == StdoutMode::Strict,
        secrets: Secrets { redactor: plugin.redactor.clone(), own: plan.secrets.as_slice().into() },
    };
    let session = Session::open(spawned.stdin, spawned.stdout, Arc::clone(&plugin.log), settings).map_err(io_error)?;
    // Last: it ends with the stop ladder, which only a start that got this far has. Connections wait meanwhile.
    if let Some(egress) = egress {
        super::egress::open(inner, plugin, egress, &over).map_err(io_error)?;
    }
    let level = process.enforcement().level;
    let line = format!("{STARTED}{}, generation {generation}, sandbox level {level}", process.pid());
    plugin.log.push(LogOrigin::Host, &line);
    follow_limits(inner, plugin, &process);
    let started_at = SystemTime::now();
    let process = Some(process);
    Ok(Launched { generation, session: Arc::new(session), process, started_at, container, unconfined, over })
}

/// Steps 4 to 9: everything that is said before the plugin is trusted with a call.
pub(super) async fn converse(
    inner: &Arc<Inner>,
    plugin: &Plugin,
    launched: &Launched,
    greeting: Greeting,
) -> Result<(ServerHello, Arc<Contract>), Ungreeted> {
    let session = &launched.session;
    let id = &plugin.id;
    let hello = match greeting {
        Greeting::Handshake { else_asked } => era::handshake(plugin, launched, else_asked).await?,
        Greeting::Discovery { else_greeted } => era::discover(plugin, launched, else_greeted).await?,
        Greeting::Either => match era::discover(plugin, launched, true).await {
            Ok(hello) => hello,
            Err(Ungreeted { next: Some(_), .. }) => era::handshake(plugin, launched, false).await?,
            Err(ungreeted) => return Err(ungreeted),
        },
    };
    if !hello.has_capability("tools") {
        let message = format!("plugin `{id}` does not offer tools");
        return Err(HostError::new(ErrorCode::McpCapabilityUnsupported, message).into());
    }
    if !hello.version.is_legacy() {
        // Before the list is read, so that no change of it goes unseen.
        listen::follow(inner, launched, &hello);
    } else if session.confirm().await.is_err() {
        return Err(era::handshake_error(plugin, launched, &HandshakeError::Closed).await.into());
    }
    let contract = read_contract(inner, plugin, session).await?;
    Ok((hello, Arc::new(contract)))
}

/// Steps 7 to 9; also used when a running plugin says that its tools changed.
pub(crate) async fn read_contract(
    inner: &Arc<Inner>,
    plugin: &Plugin,
    session: &Session,
) -> Result<Contract, HostError> {
    let id = &plugin.id;
    let listed = discovery::list_tools(session, plugin.manifest.backend.list_timeout).await.map_err(|error| {
        let code = match error {
            DiscoveryError::Unavailable(_) => ErrorCode::PluginHostUnavailable,
            _ => ErrorCode::McpToolListFailed,
        };
        let text = plugin.redactor.redact(&error.to_string()).into_owned();
        HostError::new(code, format!("plugin `{id}`: {text}"))
    })?;
    // Before anything is kept, compared or shown: a definition is no place for a secret (invariant 4). Only its own ones,
    // so that its pins do not depend on what other plugins were given.
    let listed: Vec<_> = listed.into_iter().map(|tool| masked(&plugin.own_redactor, tool)).collect();
    judge_definitions(inner, plugin, listed).await
}

/// Holds what is offered to the manifest.
pub(super) async fn judge_definitions(
    inner: &Arc<Inner>,
    plugin: &Plugin,
    listed: Vec<Box<serde_json::value::RawValue>>,
) -> Result<Contract, HostError> {
    let id = &plugin.id;
    let manifest = Arc::clone(&plugin.manifest);
    let judge = Arc::clone(inner);
    // Compiling hundreds of schemas takes a while; it must not hold up other plugins' calls.
    tokio::task::spawn_blocking(move || contract::check(&manifest, &judge.path.catalogue, &listed))
        .await
        .map_err(|_| HostError::internal("checking tool definitions"))?
        .map_err(|broken| {
            HostError::new(ErrorCode::McpToolSchemaInvalid, format!("plugin `{id}`: {broken}"))
                .with_details(broken.differences)
        })
}

/// Steps 10 and 11: the whole set at once, then ready.
async fn publish(
    inner: &Arc<Inner>,
    plugin: &Arc<Plugin>,
    launched: &Launched,
    hello: &ServerHello,
    contract: Arc<Contract>,
) -> Result<(), HostError> {
    let check = inner.hold_to_pins(plugin, &contract).await?;
    let shown = |text: &str| quote::label(&plugin.redactor, text, MAX_SERVER_LABEL_CHARS);
    let clients = per_client::of(inner, plugin, &launched.session);
    let target = clients.clone().map_or_else(|| Target::Session(Arc::clone(&launched.session)), Target::PerClient);
    let running = Arc::new(Running {
        launched: Some(launched.clone()),
        route: Arc::new(route(plugin, target)),
        protocol_version: Some(hello.version.as_str().to_owned()),
        offers: Offers::declared(hello),
        server_name: hello.server.as_ref().map(|server| shown(&server.name)),
        server_version: hello.server.as_ref().map(|server| shown(&server.version)),
        stopping: CancellationToken::new(),
    });
    if let Some(ending) = launched.session.ending() {
        let reason = plugin.redactor.redact(&ending.reason).into_owned();
        let message = format!("plugin `{}` ended during its start: {reason}", plugin.id);
        let error = HostError::new(ErrorCode::PluginHostUnavailable, message);
        return Err(failure_with_stderr(plugin, launched, error));
    }
    inner.remember_offers(plugin, running.offers).await;
    go_live(inner, plugin, &running, contract, check).await?;
    if let Some(clients) = clients {
        inner.tasks.spawn(per_client::tend(Arc::clone(inner), Arc::clone(plugin), Arc::clone(&running), clients));
    }
    inner.tasks.spawn(super::watch::watch(Arc::clone(inner), Arc::clone(plugin), running));
    Ok(())
}

/// Makes the tools that are as approved callable and the plugin ready, as one change. Changes nothing if `running` was
/// stopped or fell over meanwhile: its tools must not come back.
pub(crate) async fn go_live(
    inner: &Arc<Inner>,
    plugin: &Plugin,
    running: &Arc<Running>,
    contract: Arc<Contract>,
    check: PinCheck,
) -> Result<(), HostError> {
    let disabled = inner.disabled_tools(plugin).await?;
    let tools = check
        .unchanged
        .iter()
        .filter(|tool| !disabled.contains(tool.name.as_str()))
        .map(|tool| (Arc::clone(tool), Arc::clone(&running.route)))
        .collect();
    let mut state = plugin.state();
    if running.stopping.is_cancelled() {
        return Ok(());
    }
    let published = inner.path.registry.publish(&plugin.id, plugin.rank, tools);
    published.map_err(|conflict| conflict_error(plugin, &conflict))?;
    state.set_ready(Arc::clone(running), contract, check.held);
    Ok(())
}

/// A way for calls, with a door of its own.
pub(super) fn route(plugin: &Plugin, target: Target) -> Route {
    let backend = &plugin.manifest.backend;
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    Route {
        plugin: plugin.id.clone(),
        manifest: Arc::clone(&plugin.manifest),
        target,
        admission: Admission::new(
            count(backend.max_concurrent_calls).min(MAX_CONCURRENT_CALLS_PER_PLUGIN),
            count(backend.max_queued_calls),
        ),
        breaker: Arc::clone(&plugin.breaker),
        is_end_counted: AtomicBool::new(false),
        grants: Arc::clone(&plugin.grants),
        secrets: plugin.redactor.clone(),
    }
}

/// A plugin that dies early usually said why on stderr, which stays out of answers (requirement 80): the hint leads
/// there.
pub(super) fn failure_with_stderr(plugin: &Plugin, launched: &Launched, error: HostError) -> HostError {
    if !plugin.log.has_stderr_of(launched.generation) {
        return error;
    }
    error.with_hint(format!("its last words are in `plugward logs {}`", plugin.id))
}
