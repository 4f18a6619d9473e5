//! The end of a plugin's process, in order.
//!
//! Owns the ladder (requirements 50, 51, 97; B041): tools leave the registry, calls in flight may finish, stdin
//! closes, then TERM, then KILL of the whole tree, each step only if the one before did not end it. The ladder is
//! bounded and runs for all plugins at once. Refuses to judge why a plugin stops.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Launched, Plugin, Running, containers};
use crate::config::{DRAIN_GRACE, STOP_EOF_GRACE, STOP_KILL_GRACE, STOP_TERM_GRACE};
use crate::host::Inner;
use crate::views::LogOrigin;

/// Pauses between the steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ladder {
    /// For calls in flight to finish.
    pub(crate) drain: Duration,
    /// From closing stdin to TERM.
    pub(crate) eof: Duration,
    /// From TERM to KILL.
    pub(crate) term: Duration,
}

impl Ladder {
    /// A person or the host's end asks for it: work in flight is finished first.
    pub(crate) const ORDERLY: Ladder = Ladder { drain: DRAIN_GRACE, eof: STOP_EOF_GRACE, term: STOP_TERM_GRACE };

    /// A start that failed or a conversation that broke: there is nothing left to finish.
    pub(crate) const BROKEN: Ladder =
        Ladder { drain: Duration::ZERO, eof: Duration::from_millis(300), term: Duration::from_millis(300) };
}

/// How often a drain looks whether calls are still running.
const DRAIN_POLL: Duration = Duration::from_millis(10);

/// Takes the plugin's tools out of the registry and ends its process. Returns when its tree is gone.
pub(crate) async fn stop(inner: &Arc<Inner>, plugin: &Plugin, ladder: Ladder) {
    let missing = !plugin.missing_grants().is_empty();
    let running = {
        let mut state = plugin.state();
        state.cancel_restart();
        let running = state.running.take();
        // Under the state's lock: status, list and routing change together (B088).
        inner.path.registry.withdraw(&plugin.id);
        if let Some(asleep) = state.asleep.take() {
            asleep.end(Err("it was stopped".to_owned()));
            state.settle(missing);
        }
        if let Some(running) = &running {
            running.stopping.cancel();
            // Calls in flight may finish; those in the queue would keep coming for the length of the drain.
            running.route.admission.close();
            running.route.is_end_counted.store(true, Ordering::Release);
            state.settle(missing);
            "stopping".clone_into(&mut state.detail);
        }
        running
    };
    if let Some(running) = running {
        inner.plugin_changed(plugin);
        drain_in_host(inner, &running, ladder.drain).await;
        match &running.launched {
            Some(launched) => end_process(inner, plugin, launched, ladder).await,
            None => end_runs(&running).await,
        }
        running.route.target.ended().await;
    }
    end_fallen(inner, plugin).await;
}

/// Ends the process of a plugin that fell over, if nobody has yet: whoever comes first, its watcher or a person's stop
/// or start, so that none of them leaves it behind. The caller holds the operation lock.
///
/// False if there was nothing to end.
pub(crate) async fn end_fallen(inner: &Arc<Inner>, plugin: &Plugin) -> bool {
    let fallen = plugin.state().fallen.take();
    let Some(launched) = fallen else { return false };
    end_process(inner, plugin, &launched, Ladder::BROKEN).await;
    true
}

/// The ladder for one process.
pub(crate) async fn end_process(inner: &Arc<Inner>, plugin: &Plugin, launched: &Launched, ladder: Ladder) {
    launched.session.close_input().await;
    let Some(process) = &launched.process else {
        // A server elsewhere is told, and goes on without us.
        let _ = tokio::time::timeout(ladder.eof, launched.session.ended()).await;
        launched.over.cancel();
        return;
    };
    let mut gone = process.gone_within(ladder.eof).await;
    if gone.is_none() {
        plugin.log.push(LogOrigin::Host, "did not end when its stdin closed; sending TERM");
        process.terminate();
        gone = process.gone_within(ladder.term).await;
    }
    if gone.is_none() {
        plugin.log.push(LogOrigin::Host, "did not end after TERM; sending KILL to its whole tree");
        process.kill();
        gone = process.gone_within(STOP_KILL_GRACE).await;
    }
    launched.over.cancel();
    if gone.is_none_or(|report| !report.tree_gone) {
        plugin.log.push(LogOrigin::Host, "some of its processes could not be ended; see `plugward doctor`");
        tracing::warn!(plugin = %plugin.id, "a process of the plugin's tree could not be ended");
    }
    containers::end(inner, launched, ladder.eof).await;
}

/// Ends the runs of a command that a drain has left over; each ends its own tree before it counts as over.
pub(super) async fn end_runs(running: &Running) {
    running.route.target.stop();
    drain(running, STOP_TERM_GRACE + STOP_KILL_GRACE).await;
}

/// As [`drain`], and no longer than [`DRAIN_GRACE`] once the host ends: a long drain must not hold up its end.
pub(super) async fn drain_in_host(inner: &Inner, running: &Running, limit: Duration) {
    let host_ends = async {
        inner.path.stopping.cancelled().await;
        tokio::time::sleep(DRAIN_GRACE).await;
    };
    tokio::select! {
        () = drain(running, limit) => {}
        () = host_ends => {}
    }
}

/// Waits until no call is under way, or `limit` has passed.
async fn drain(running: &Running, limit: Duration) {
    let deadline = tokio::time::Instant::now() + limit;
    // The count falls by itself: each call has a deadline of its own.
    while running.route.admission.running() > 0
        && running.launched.as_ref().is_none_or(|launched| launched.session.ending().is_none())
        && tokio::time::Instant::now() < deadline
    {
        tokio::time::sleep(DRAIN_POLL).await;
    }
}
