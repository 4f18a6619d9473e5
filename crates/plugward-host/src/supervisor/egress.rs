//! The egress of a running plugin, and what becomes known by it.
//!
//! Owns starting it with the plugin and telling of attempts where people look: the plugin's log, the record of events, its
//! view, and the list that outlives the host. Refuses to decide what may be reached.

use std::sync::Arc;
use std::time::Duration;

use plugward_sandbox::Listeners;
use plugward_store::EventRow;
use tokio_util::sync::CancellationToken;

use super::Plugin;
use crate::call::epoch_us;
use crate::egress::{Egress, EgressPlan, Machine};
use crate::host::Inner;
use crate::views::{AttemptOutcome, LogOrigin, NetworkAttempt};

/// Pause between two writes of the list: each waits for the disk, and a busy plugin changes it all the time.
const KEEP_PAUSE: Duration = Duration::from_secs(2);

/// Setting with the list of a plugin's attempts.
pub(crate) fn attempts_key(id: &str) -> String {
    format!("network.{id}")
}

/// Serves a plugin that was started with the network of `plan` until `over`.
pub(super) fn open(
    inner: &Arc<Inner>,
    plugin: &Arc<Plugin>,
    (plan, listeners): (EgressPlan, Listeners),
    over: &CancellationToken,
) -> std::io::Result<()> {
    let egress = Egress::new(plan, listeners, Arc::clone(&plugin.attempts), Machine::default())?;
    let (teller, told) = (Arc::clone(inner), Arc::clone(plugin));
    let (until, over) = (over.clone(), over.clone());
    inner.tasks.spawn(async move {
        // Together, so that the last attempts are told after the last connection has ended.
        let ended = CancellationToken::new();
        tokio::join!(
            async {
                egress.run(until).await;
                ended.cancel();
            },
            tell(&teller, &told, &ended),
        );
        drop(over);
    });
    Ok(())
}

/// Tells what is seen for the first time at once, and keeps the list now and then.
async fn tell(inner: &Arc<Inner>, plugin: &Arc<Plugin>, ended: &CancellationToken) {
    while !ended.is_cancelled() {
        tokio::select! {
            () = plugin.attempts.changed() => {}
            () = ended.cancelled() => {}
        }
        tell_fresh(inner, plugin).await;
        keep(inner, plugin).await;
        tokio::select! {
            () = tokio::time::sleep(KEEP_PAUSE) => {}
            () = ended.cancelled() => {}
        }
    }
    tell_fresh(inner, plugin).await;
    keep(inner, plugin).await;
}

async fn tell_fresh(inner: &Arc<Inner>, plugin: &Arc<Plugin>) {
    let fresh = plugin.attempts.take_fresh();
    if fresh.is_empty() {
        return;
    }
    let mut events = Vec::with_capacity(fresh.len());
    for attempt in &fresh {
        let line = sentence(attempt);
        plugin.log.push(LogOrigin::Host, &line);
        let detail = serde_json::json!({ "host": attempt.host, "port": attempt.port, "reason": attempt.reason });
        events.push(EventRow {
            at_us: epoch_us(attempt.last_at),
            plugin_id: Some(plugin.id.to_string()),
            kind: format!("network_{}", attempt.outcome.as_str()),
            message: line,
            detail_json: detail.to_string(),
        });
    }
    inner.plugin_changed(plugin);
    let recorded = inner
        .blocking(move |inner| {
            inner.path.store.write(move |tx| events.iter().try_for_each(|event| tx.record_event(event)))
        })
        .await;
    if let Err(error) = recorded {
        tracing::warn!(plugin = %plugin.id, "attempts to reach hosts were not recorded: {}", error.message);
    }
}

async fn keep(inner: &Arc<Inner>, plugin: &Arc<Plugin>) {
    // The next plugin under this id must not inherit it.
    if plugin.state().removed {
        return;
    }
    let Some(list) = plugin.attempts.take_changed() else { return };
    let key = attempts_key(plugin.id.as_str());
    let kept = inner.blocking(move |inner| inner.path.store.set_setting(&key, Some(&list))).await;
    if let Err(error) = kept {
        tracing::warn!(plugin = %plugin.id, "the list of hosts it tried was not kept: {}", error.message);
    }
}

/// One attempt in words.
fn sentence(attempt: &NetworkAttempt) -> String {
    let place = attempt.place();
    match attempt.outcome {
        AttemptOutcome::Allowed => format!("connected to {place}"),
        AttemptOutcome::Refused => format!("wanted {place}, and was refused: {}", attempt.reason),
        AttemptOutcome::Failed => format!("wanted {place}, which could not be reached: {}", attempt.reason),
    }
}
