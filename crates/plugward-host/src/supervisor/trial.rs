//! One run of a plugin without grants, watched.
//!
//! Owns its course: started at level `full` with nothing but its package, its run time and an empty home; greeted and asked
//! for its tools, so that it does what it does at a start; left alone for the rest of the time; ended. Refuses calling a
//! tool, offering one, and changing the state of a plugin: a trial is no start.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plugward_policy::SandboxLevel;
use plugward_sandbox::Observations;
use tokio_util::sync::CancellationToken;

use super::confine::{self, Confined};
use super::stop::{self, Ladder};
use super::{Launched, Plugin, start};
use crate::error::{ErrorCode, HostError};
use crate::host::Inner;
use crate::package::LaunchPlan;
use crate::views::LogOrigin;

/// What was seen of one run.
pub(crate) struct Tried {
    pub(crate) seen: Observations,
    /// Tools it listed, or why it did not.
    pub(crate) tools: Result<usize, HostError>,
    pub(crate) lasted: Duration,
}

/// Runs the plugin for at most `limit`; the caller holds its operation lock. Nothing of it is left when this returns.
pub(crate) async fn run(
    inner: &Arc<Inner>,
    plugin: &Arc<Plugin>,
    mut plan: LaunchPlan,
    limit: Duration,
    interrupted: &CancellationToken,
) -> Result<Tried, HostError> {
    plan.confinement.level = SandboxLevel::Full;
    let generation = inner.next_generation(plugin).await?;
    plugin.log.push(LogOrigin::Host, "a trial begins: no grants, an empty home, nothing leaves this machine");
    plugin.redactor.set_secrets(plugin.id.as_str(), &plan.secrets);
    plugin.own_redactor.set_secrets(plugin.id.as_str(), &plan.secrets);
    let began = Instant::now();
    let plan = Arc::new(plan);
    let (starter, started, start_plan) = (Arc::clone(inner), Arc::clone(plugin), Arc::clone(&plan));
    let spawned =
        tokio::task::spawn_blocking(move || confine::spawn_observed(&starter, &started, &start_plan, generation));
    let (spawned, notebook) = spawned.await.map_err(|_| HostError::internal("starting a trial"))??;
    let confined = Confined { spawned, unconfined: None };
    let launched = start::take_over(inner, plugin, &plan, confined, generation, None)?;
    let course = tokio::select! {
        biased;
        error = start::broken_off(inner, plugin, interrupted) => Err(error),
        tools = watch(inner, plugin, &launched, limit) => Ok(tools),
    };
    let lasted = began.elapsed();
    stop::end_process(inner, plugin, &launched, Ladder::BROKEN).await;
    plugin.log.push(LogOrigin::Host, "the trial is over");
    let tools = course?;
    let seen = tokio::task::spawn_blocking(move || notebook.read());
    let seen = seen.await.map_err(|_| HostError::internal("reading what a trial saw"))?.map_err(|_| {
        let message = format!("the record of the trial of `{}` was lost with its launcher", plugin.id);
        HostError::new(ErrorCode::PluginHostUnavailable, message).with_hint("try it again")
    })?;
    Ok(Tried { seen, tools, lasted })
}

/// Greets it, asks for its tools, and waits out the time or its end.
async fn watch(inner: &Arc<Inner>, plugin: &Plugin, launched: &Launched, limit: Duration) -> Result<usize, HostError> {
    let began = Instant::now();
    let tools = match tokio::time::timeout(limit, start::converse(inner, plugin, launched)).await {
        Ok(reached) => reached.map(|(_, contract)| contract.tools.len()),
        Err(_) => {
            let message = format!("plugin `{}` had not listed its tools when the trial was over", plugin.id);
            Err(HostError::new(ErrorCode::McpToolListFailed, message).with_hint("give it more `--seconds`"))
        }
    };
    let _ended = launched.process.gone_within(limit.saturating_sub(began.elapsed())).await;
    tools
}
