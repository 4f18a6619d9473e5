//! A plugin that is one command: no process between calls, one for each call.
//!
//! Owns making its tool callable from the manifest alone, and the way of one call: the plan is made anew and compared
//! with what was approved (invariant 8), values become arguments, the process starts in the plugin's sandbox, and its
//! whole tree has ended before the answer is given. A command that crashes is a failed call, not a dead plugin. Refuses
//! to restart, watch and ping: there is nothing to do it to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use plugward_policy::Overflow;
use plugward_sandbox::Enforcement;
use serde_json::value::{RawValue, to_raw_value};
use tokio_util::sync::CancellationToken;

use super::confine::{self, Confined};
use super::containers::{self, ContainerStart, RunContainer};
use super::{Plugin, Running, start};
use crate::command::{self, CommandErrorCode, CommandResult, Notes, Run, SPILL_BYTES_MAX, SpillDir};
use crate::contract::Contract;
use crate::error::HostError;
use crate::host::{Inner, Planned};
use crate::ids::random_hex;
use crate::package::LaunchPlan;
use crate::session::{RequestError, ToolCall};
use crate::views::LogOrigin;

/// Folder of output that did not fit into results, beside the plugins' homes: no plugin can write to it, so that none
/// can lead the host astray with a link.
pub(crate) const OUTPUTS_DIR: &str = "outputs";

/// Where calls of a command go.
pub(crate) struct CommandTarget {
    /// Weak: the registry, which the host owns, owns this.
    inner: Weak<Inner>,
    plugin: Weak<Plugin>,
    outputs: SpillDir,
    /// Cancelled when the plugin is stopped.
    over: CancellationToken,
    /// Runs that wrote something: the sign of life a breaker looks for.
    heard: AtomicU64,
    enforcement: Mutex<Option<Enforcement>>,
}

impl CommandTarget {
    /// What isolated the last run; none before the first.
    pub(crate) fn enforcement(&self) -> Option<Enforcement> {
        self.enforcement.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs that wrote something so far.
    pub(crate) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Ends the runs under way; no further one begins.
    pub(crate) fn stop(&self) {
        self.over.cancel();
    }

    /// One call.
    pub(crate) async fn call(&self, call: ToolCall, cancel: &CancellationToken) -> Result<Box<RawValue>, RequestError> {
        let (Some(inner), Some(plugin)) = (self.inner.upgrade(), self.plugin.upgrade()) else {
            return Err(RequestError::Unavailable("its host has ended".to_owned()));
        };
        // One limit over all of it: looking at a package on a slow disk takes of the same time as the run.
        let (begun, limit) = (Instant::now(), call.timing.idle);
        let prepared = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(RequestError::Cancelled),
            () = self.over.cancelled() => return Err(stopping()),
            () = tokio::time::sleep(limit) => return Err(RequestError::TimedOut { limit }),
            prepared = self.prepare(&inner, &plugin, call.arguments) => prepared?,
        };
        let (plan, prepared, tool) = prepared;
        let number = run_number();
        let container = plan.container.clone().map(|run| {
            let start = ContainerStart { name: run.name(number), spec: plan.launch_spec(number), run };
            RunContainer::new(&inner, start)
        });
        // Not broken off: what is half started could only be left to end by itself, and this call promises that nothing of
        // it is left once it is answered.
        let confined = self.start(&inner, &plugin, plan, number).await?;
        let level = confined.spawned.process.enforcement().clone();
        *self.enforcement.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
        // The way out lasts as long as this run, however that ends.
        let way_out = CancellationToken::new();
        let _closed = way_out.clone().drop_guard();
        if let Some(egress) = confined.egress {
            super::egress::open(&inner, &plugin, egress, &way_out).map_err(|error| {
                RequestError::Unavailable(format!("the network of its sandbox cannot be served: {error}"))
            })?;
        }
        let run = Run {
            tool: &tool,
            prepared,
            timeout: limit,
            used: begun.elapsed(),
            spill_dir: Some(self.outputs.clone()),
            redactor: plugin.redactor.clone(),
            cancel,
            over: &self.over,
            notes: call.progress.map(|sender| Notes::new(sender, plugin.redactor.clone())),
        };
        let result = command::run(confined.spawned, run).await;
        if let Some(container) = container {
            container.end().await;
        }
        let result = result.map_err(|error| RequestError::Unavailable(format!("its pipes cannot be used: {error}")))?;
        self.judge(&plugin, &result, limit)
    }

    /// What would run now, if it is what was approved, with the arguments of this call.
    ///
    /// A package is read and hashed each time. Sizes and times of its files would be quicker to compare and show less: the
    /// clock of a file system stands still for milliseconds, and what was written within them would run unseen.
    async fn prepare(
        &self,
        inner: &Arc<Inner>,
        plugin: &Arc<Plugin>,
        arguments: Option<Box<RawValue>>,
    ) -> Result<(LaunchPlan, plugward_policy::Prepared, plugward_policy::CommandTool), RequestError> {
        let unavailable = |error: HostError| RequestError::Unavailable(error.message);
        let seen = plugin.state().hold.seen();
        let planned = inner.plan(plugin).await.map_err(unavailable)?;
        if let Err(error) = start::check_approval(inner, plugin, &planned).await {
            inner.plugin_changed(plugin);
            return Err(unavailable(error));
        }
        let Planned { mut plan, .. } = planned;
        // It differed for a while, and is what was approved again.
        let is_released = plugin.state().hold.release_after(seen);
        if is_released {
            inner.plugin_changed(plugin);
        }
        let Some(tool) = plan.command.take() else {
            return Err(RequestError::Unavailable("it has no command".to_owned()));
        };
        let values: BTreeMap<String, Box<RawValue>> = match &arguments {
            Some(raw) => serde_json::from_str(raw.get())
                .map_err(|_| RequestError::Refused("arguments are not an object".to_owned()))?,
            None => BTreeMap::new(),
        };
        let prepared = tool.prepare(&values).map_err(|error| RequestError::Refused(error.to_string()))?;
        plan.set_arguments(&prepared.arguments);
        Ok((plan, prepared, *tool))
    }

    async fn start(
        &self,
        inner: &Arc<Inner>,
        plugin: &Arc<Plugin>,
        plan: LaunchPlan,
        number: u64,
    ) -> Result<Confined, RequestError> {
        let (inner, plugin) = (Arc::clone(inner), Arc::clone(plugin));
        let started = tokio::task::spawn_blocking(move || confine::spawn(&inner, &plugin, &plan, number));
        match started.await {
            Ok(Ok(confined)) => Ok(confined),
            Ok(Err(error)) => Err(RequestError::Unavailable(error.message)),
            Err(_) => Err(RequestError::Unavailable("its start was broken off".to_owned())),
        }
    }

    fn judge(&self, plugin: &Plugin, result: &CommandResult, limit: Duration) -> Result<Box<RawValue>, RequestError> {
        if !(result.stdout.is_empty() && result.stderr.is_empty()) {
            self.heard.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(error) = &result.error {
            // Never values: neither errors nor facts hold any (W11).
            let line = format!("run failed: {} ({} ms)", error.message, result.duration_ms);
            plugin.log.push(LogOrigin::Host, &line);
        }
        match result.error.as_ref().map(|error| error.code) {
            // A caller in a hurry gets the failure it would get of any tool; the tool's own limit is a result, with what
            // the command said until then.
            Some(CommandErrorCode::TimedOut) if limit < plugin.manifest.backend.tool_timeout => {
                Err(RequestError::TimedOut { limit })
            }
            Some(CommandErrorCode::Cancelled) => Err(RequestError::Cancelled),
            Some(CommandErrorCode::Stopping) => Err(stopping()),
            Some(CommandErrorCode::OutputTooLarge) => {
                let limit = match plugin.manifest.backend.command_tool() {
                    Some(tool) if tool.overflow == Overflow::Spill => SPILL_BYTES_MAX,
                    tool => tool.map_or(0, |tool| tool.max_output_bytes),
                };
                Err(RequestError::TooLarge { bytes: limit + 1, limit })
            }
            _ => Ok(result.to_mcp()),
        }
    }
}

/// Tells the containers of runs at the same time, and of earlier hosts, apart.
fn run_number() -> u64 {
    u64::from_str_radix(&random_hex::<8>(), 16).unwrap_or_default()
}

fn outputs(inner: &Inner, plugin: &Plugin) -> SpillDir {
    let runs = usize::try_from(plugin.manifest.backend.max_concurrent_calls).unwrap_or(1);
    SpillDir::new(inner.config.home.join(OUTPUTS_DIR).join(plugin.id.as_str()), runs)
}

fn stopping() -> RequestError {
    RequestError::Unavailable("it is stopping".to_owned())
}

/// What a command offers, which needs no process to know.
pub(crate) async fn contract(inner: &Arc<Inner>, plugin: &Plugin) -> Result<Arc<Contract>, HostError> {
    let definition = plugin.manifest.backend.command_tool().map(plugward_policy::CommandTool::definition);
    let listed = definition.and_then(|definition| to_raw_value(&definition).ok()).into_iter().collect();
    Ok(Arc::new(start::judge_definitions(inner, plugin, listed).await?))
}

/// Steps 7 to 11 without a process: the tool is what the manifest says.
pub(super) async fn publish(
    inner: &Arc<Inner>,
    plugin: &Arc<Plugin>,
    planned: Planned,
    generation: u64,
) -> Result<(), HostError> {
    let plan = planned.plan;
    plugin.redactor.set_secrets(plugin.id.as_str(), &plan.secrets);
    plugin.own_redactor.set_secrets(plugin.id.as_str(), &plan.secrets);
    if let Some(run) = plan.container.as_ref().filter(|_| plugin.running().is_none()) {
        // Runs of a version that is being replaced still have theirs.
        containers::sweep(inner, plugin, run, &plan.launch_spec(generation)).await;
    }
    let contract = contract(inner, plugin).await?;
    let check = inner.hold_to_pins(plugin, &contract).await?;
    let target = CommandTarget {
        inner: Arc::downgrade(inner),
        plugin: Arc::downgrade(plugin),
        outputs: outputs(inner, plugin),
        over: CancellationToken::new(),
        heard: AtomicU64::new(0),
        enforcement: Mutex::default(),
    };
    let running = Arc::new(Running {
        launched: None,
        route: Arc::new(start::route(plugin, crate::call::Target::Command(target))),
        protocol_version: None,
        offers: crate::offers::Offers::default(),
        server_name: None,
        server_version: None,
        stopping: CancellationToken::new(),
    });
    start::go_live(inner, plugin, &running, contract, check).await
}
