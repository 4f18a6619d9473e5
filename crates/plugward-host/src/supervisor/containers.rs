//! Containers of plugins whose command is `docker run` or `podman run`.
//!
//! Owns ending a container with its plugin and sweeping what a killed host left behind (B047): the container is a
//! child of the engine's daemon, so ending the client alone leaves it running. The engine is run through the launcher,
//! with the plugin's own environment, each time within [`ENGINE_LIMIT`]. Refuses containers it did not name or label.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use plugward_sandbox::LaunchSpec;

use super::{Launched, Plugin};
use crate::host::Inner;
use crate::package::ContainerRun;
use crate::views::LogOrigin;

/// Time an engine has for one command.
const ENGINE_LIMIT: Duration = Duration::from_secs(10);

/// Bytes read of the engine's list of containers.
const MAX_LIST_BYTES: u64 = 64 * 1024;

/// Ends the container of a plugin that is stopping.
pub(crate) async fn end(inner: &Arc<Inner>, launched: &Launched, grace: Duration) {
    let Some(container) = &launched.container else { return };
    let ContainerStart { run, name, spec } = container;
    for arguments in [run.stop_arguments(name, grace), run.remove_arguments(&[name])] {
        // An engine that knows no such container says so by its exit code; that is the state we want.
        engine(inner, spec, arguments).await;
    }
}

/// The container of one run of a command. Whoever waits for the run may go away; the container goes all the same.
pub(crate) struct RunContainer {
    inner: Arc<Inner>,
    start: Option<ContainerStart>,
}

impl RunContainer {
    pub(crate) fn new(inner: &Arc<Inner>, start: ContainerStart) -> Self {
        Self { inner: Arc::clone(inner), start: Some(start) }
    }

    /// Ends it, if its run has not. The client was asked to end before and has passed that on, so it is not asked again.
    pub(crate) async fn end(mut self) {
        if let Some(start) = self.start.clone() {
            remove(&self.inner, &start).await;
            self.start = None;
        }
    }
}

impl Drop for RunContainer {
    fn drop(&mut self) {
        let Some(start) = self.start.take() else { return };
        let inner = Arc::clone(&self.inner);
        self.inner.tasks.spawn(async move { remove(&inner, &start).await });
    }
}

async fn remove(inner: &Arc<Inner>, start: &ContainerStart) {
    engine(inner, &start.spec, start.run.remove_arguments(&[&start.name])).await;
}

/// Removes containers of this plugin that an earlier host could not end.
pub(crate) async fn sweep(inner: &Arc<Inner>, plugin: &Plugin, run: &ContainerRun, spec: &LaunchSpec) {
    let Some(listed) = engine(inner, spec, run.list_arguments()).await else { return };
    let left: Vec<&str> = listed.lines().map(str::trim).filter(|name| run.is_ours(name)).collect();
    if left.is_empty() {
        return;
    }
    plugin.log.push(LogOrigin::Host, &format!("removing what an earlier start left: container {}", left.join(", ")));
    // In one go: each command has its own time limit, and a start must not wait for the sum of them.
    engine(inner, spec, run.remove_arguments(&left)).await;
}

/// What is needed to end a container.
#[derive(Clone)]
pub(crate) struct ContainerStart {
    pub(crate) run: ContainerRun,
    /// Name of the container of this start.
    pub(crate) name: String,
    /// How the engine was launched, to launch it again.
    pub(crate) spec: LaunchSpec,
}

/// Runs the engine with `arguments`; what it printed, or none if it could not be run to its end.
async fn engine(inner: &Arc<Inner>, like: &LaunchSpec, arguments: Vec<String>) -> Option<String> {
    let program = like.argv.first()?.clone();
    let argv = std::iter::once(program).chain(arguments.into_iter().map(Into::into)).collect();
    let spec = LaunchSpec { argv, ..like.clone() };
    let inner = Arc::clone(inner);
    let ended = tokio::task::spawn_blocking(move || {
        let spawned = inner.config.launcher.spawn(&spec).ok()?;
        drop((spawned.stdin, spawned.stderr));
        let output = std::thread::spawn(move || read_bounded(spawned.stdout));
        // Dropping the process afterwards ends whatever did not end in time, and with it the reader.
        let report = spawned.process.wait_blocking(ENGINE_LIMIT);
        drop(spawned.process);
        report?;
        output.join().ok()
    });
    let printed = ended.await.ok().flatten();
    if printed.is_none() {
        tracing::warn!("the container engine could not be run to its end");
    }
    printed
}

fn read_bounded(stdout: OwnedFd) -> String {
    let mut text = Vec::new();
    // What was read before an error is still a list.
    let _ = std::fs::File::from(stdout).take(MAX_LIST_BYTES).read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}
