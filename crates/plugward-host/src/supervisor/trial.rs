//! One run of a plugin without grants, watched.
//!
//! Owns its course: started at level `full` with nothing but its package, its run time and an empty home; greeted and asked
//! for its tools, so that it does what it does at a start; left alone for the rest of the time; ended. Refuses calling a
//! tool, offering one, and changing the state of a plugin: a trial is no start.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use plugward_policy::{ProtocolMode, SandboxLevel};
use plugward_sandbox::{Listeners, Observations};
use tokio_util::sync::CancellationToken;

use super::confine;
use super::era::Greeting;
use super::stop::{self, Ladder};
use super::{Launched, Plugin, start};
use crate::egress::{Attempts, Egress, EgressPlan, Machine};
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
    /// Names it asked for, with how often, and the addresses it was told.
    pub(crate) names: BTreeMap<String, (u32, Option<IpAddr>)>,
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
    let (mut confined, notebook) = spawned.await.map_err(|_| HostError::internal("starting a trial"))??;
    let egress = confined.egress.take();
    let launched = start::take_over(inner, plugin, &plan, confined, generation, None)?;
    let names = watch_names(inner, plugin, egress, &launched)?;
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
    Ok(Tried { seen, tools, lasted, names: names.counted() })
}

/// Names a plugin asked for.
struct Names {
    attempts: Arc<Attempts>,
    watched: Arc<Mutex<BTreeMap<String, Ipv4Addr>>>,
}

impl Names {
    /// Each with how often it was asked for, and the address it was told.
    fn counted(&self) -> BTreeMap<String, (u32, Option<IpAddr>)> {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = self.attempts.view();
        let count = |name: &str| {
            let asked = asked.iter().filter(|attempt| attempt.port.is_none() && attempt.host == name);
            u32::try_from(asked.map(|attempt| attempt.count).sum::<u64>()).unwrap_or(u32::MAX).max(1)
        };
        watched.iter().map(|(name, address)| (name.clone(), (count(name), Some((*address).into())))).collect()
    }
}

/// Answers every question for a name with an address where nothing is, until the plugin has ended.
fn watch_names(
    inner: &Inner,
    plugin: &Plugin,
    egress: Option<(EgressPlan, Listeners)>,
    launched: &Launched,
) -> Result<Names, HostError> {
    // Of its own: what it wants in a trial is no part of what it did in use.
    let attempts = Arc::new(Attempts::new(plugin.redactor.clone()));
    let Some((plan, listeners)) = egress else {
        return Err(HostError::internal("watching the network of a trial"));
    };
    let egress = Egress::new(plan, listeners, Arc::clone(&attempts), Machine::default())
        .map_err(|error| HostError::internal(format_args!("watching the network of a trial: {error}")))?;
    let watched = egress.watched();
    inner.tasks.spawn(egress.run(launched.over.clone()));
    Ok(Names { attempts, watched })
}

/// Greets it, asks for its tools, and waits out the time or its end.
async fn watch(inner: &Arc<Inner>, plugin: &Plugin, launched: &Launched, limit: Duration) -> Result<usize, HostError> {
    let began = Instant::now();
    let greeting = match plugin.manifest.backend.protocol {
        ProtocolMode::Auto => Greeting::Either,
        ProtocolMode::Legacy => Greeting::Handshake { else_asked: false },
        ProtocolMode::Modern => Greeting::Discovery { else_greeted: false },
    };
    let tools = match tokio::time::timeout(limit, start::converse(inner, plugin, launched, greeting)).await {
        Ok(Ok((_, contract))) => Ok(contract.tools.len()),
        Ok(Err(ungreeted)) => Err(ungreeted.error),
        Err(_) => {
            let message = format!("plugin `{}` had not listed its tools when the trial was over", plugin.id);
            Err(HostError::new(ErrorCode::McpToolListFailed, message).with_hint("give it more `--seconds`"))
        }
    };
    if let Some(process) = &launched.process {
        let _ended = process.gone_within(limit.saturating_sub(began.elapsed())).await;
    }
    tools
}
