//! A restart that loses no call: the new process is started beside the old one, takes over its tools as one change, and
//! the old one finishes what it works on before it is ended.
//!
//! Owns the order of this and its bound. Refuses plugins that cannot run twice, and containers, whose start ends the one
//! before: these are stopped first. What fails here has not touched the old process.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio_util::sync::CancellationToken;

use super::stop::{self, Ladder};
use super::{Launched, Plugin, Running, start};
use crate::config::DRAIN_LIMIT_MAX;
use crate::error::HostError;
use crate::host::Inner;
use crate::views::LogOrigin;

/// Whether a second process may run beside `old`.
pub(crate) fn is_possible(plugin: &Plugin, old: &Running) -> bool {
    let runs_beside = |launched: &Launched| launched.container.is_none() && launched.session.ending().is_none();
    // One that sends would tell of the same thing twice, beside another of itself.
    let backend = &plugin.manifest.backend;
    backend.has_program() && !plugin.manifest.supervision.exclusive && old.launched.as_ref().is_none_or(runs_beside)
}

/// Replaces the process `old`; the caller holds the operation lock. On error the old one is as it was.
pub(crate) async fn replace(inner: &Arc<Inner>, plugin: &Arc<Plugin>, old: &Arc<Running>) -> Result<(), HostError> {
    let interrupted = plugin.state().begin_interruptible();
    let generation_before = plugin.state().generation;
    let outcome = start_beside(inner, plugin, &interrupted).await;
    if outcome.is_err() {
        let mut state = plugin.state();
        state.generation = generation_before;
        state.starting = None;
        return outcome;
    }
    // Its tools lead to the new process already. Who waits at its door follows them there.
    old.stopping.cancel();
    old.route.is_end_counted.store(true, Ordering::Release);
    old.route.admission.close();
    inner.plugin_changed(plugin);
    let limit = plugin.manifest.backend.tool_timeout.min(DRAIN_LIMIT_MAX);
    tokio::select! {
        () = stop::drain_in_host(inner, old, limit) => {}
        () = interrupted.cancelled() => {}
    }
    plugin.state().starting = None;
    match &old.launched {
        Some(launched) => {
            let before = match &launched.process {
                Some(process) => format!("the process before, pid {},", process.pid()),
                None => "the conversation before".to_owned(),
            };
            plugin.log.push(LogOrigin::Host, &format!("replaced; {before} is asked to end"));
            stop::end_process(inner, plugin, launched, Ladder::ORDERLY).await;
        }
        None => stop::end_runs(old).await,
    }
    old.route.target.ended().await;
    Ok(())
}

async fn start_beside(
    inner: &Arc<Inner>,
    plugin: &Arc<Plugin>,
    interrupted: &CancellationToken,
) -> Result<(), HostError> {
    if plugin.manifest.backend.command_tool().is_some() {
        return start::offer_command(inner, plugin).await;
    }
    let arrived = start::bring_up(inner, plugin, interrupted, None).await?;
    start::publish_or_end(inner, plugin, arrived).await
}
