//! The process side of a session: waiting for its end without blocking, and the steps of the stop ladder.
//!
//! Owns turning the launcher's report into something many can wait for. Refuses to decide when to stop.

use std::sync::Arc;
use std::time::Duration;

use plugward_sandbox::{Enforcement, ExitReport, PluginProcess, Reached};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::watch;

/// A plugin's process tree. Dropping it kills the tree: whoever loses a process on the way, by an error or because it
/// is cancelled itself, leaves none behind.
pub(crate) struct RunningProcess {
    process: Arc<PluginProcess>,
    exited: watch::Receiver<Option<ExitReport>>,
    /// Limits of the kernel that it was seen at, in that order.
    reached: watch::Receiver<Vec<Reached>>,
}

impl RunningProcess {
    /// Watches `process` until its tree is gone.
    pub(crate) fn watch(process: PluginProcess) -> std::io::Result<Self> {
        let process = Arc::new(process);
        // The control socket; nothing is ever read from it here, only its readiness is used.
        let news = UnixStream::from_std(process.exit_fd()?.into())?;
        let (report, exited) = watch::channel(None);
        let (limits, reached) = watch::channel(Vec::new());
        let watched = Arc::clone(&process);
        tokio::spawn(async move {
            loop {
                let status = watched.poll_status();
                limits.send_if_modified(|told| {
                    let reached = watched.reached();
                    let is_news = reached != *told;
                    *told = reached;
                    is_news
                });
                if let Some(exit) = status {
                    report.send_replace(Some(exit));
                    return;
                }
                if news.readable().await.is_err() {
                    // Without readiness the launcher's word cannot be awaited; the session still ends with its pipes.
                    return;
                }
                // Forgets the readiness before the next look uses it up: what comes in between is seen by that look.
                let _ = news.try_io(Interest::READABLE, || -> std::io::Result<()> {
                    Err(std::io::ErrorKind::WouldBlock.into())
                });
            }
        });
        Ok(Self { process, exited, reached })
    }

    /// Id of the plugin's main process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What isolates it.
    pub(crate) fn enforcement(&self) -> &Enforcement {
        self.process.enforcement()
    }

    /// Waits at most `limit` for the tree to be gone.
    pub(crate) async fn gone_within(&self, limit: Duration) -> Option<ExitReport> {
        let mut exited = self.exited.clone();
        let waited = tokio::time::timeout(limit, exited.wait_for(Option::is_some)).await;
        waited.ok().and_then(|report| report.ok().and_then(|report| *report))
    }

    /// Waits for the tree to be gone; none if nobody saw its end.
    pub(crate) async fn gone(&self) -> Option<ExitReport> {
        let mut exited = self.exited.clone();
        let report = exited.wait_for(Option::is_some).await;
        report.ok().and_then(|report| *report)
    }

    /// Limits of the kernel that it was seen at so far.
    pub(crate) fn reached(&self) -> Vec<Reached> {
        self.reached.borrow().clone()
    }

    /// The same, to be told of more. It closes with the end of the process.
    pub(crate) fn follow_reached(&self) -> watch::Receiver<Vec<Reached>> {
        self.reached.clone()
    }

    /// TERM to the whole tree.
    pub(crate) fn terminate(&self) {
        // A tree that is gone already needs no signal; the exit report tells.
        let _ = self.process.terminate();
    }

    /// KILL to the whole tree.
    pub(crate) fn kill(&self) {
        let _ = self.process.kill();
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        // The task that waits for the end holds the launcher's handle as well, so its own drop comes too late.
        self.kill();
    }
}
