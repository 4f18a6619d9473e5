//! Switching plugins on and off, and the start and end of the host.
//!
//! Owns what a person's enable, disable and restart mean (requirements 36, 49-51, 56, 115-117) and the order of a
//! shutdown. Refuses shortcuts: everything goes through the eleven steps and the stop ladder.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use plugward_policy::PluginStatus;
use tokio::task::JoinSet;

use super::{Host, Inner, disabled_key};
use crate::config::SHUTDOWN_LIMIT;
use crate::error::{ErrorCode, HostError};
use crate::supervisor::stop::{self, Ladder};
use crate::supervisor::{Plugin, replace, sleep, start, watch};
use crate::views::{HostView, LogOrigin, PluginView};

impl Host {
    /// Switches a plugin on: all eleven steps, or nothing. A plugin that is on already stays as it is.
    pub async fn enable(&self, id: &str) -> Result<PluginView, HostError> {
        self.inner.operation_on(id, |inner, plugin| async move { inner.enable(&plugin).await }).await
    }

    /// Switches a plugin off; its tools are gone before its process is asked to end. A start under way is broken off.
    pub async fn disable(&self, id: &str) -> Result<PluginView, HostError> {
        self.inner.operation_on(id, |inner, plugin| async move { inner.disable(&plugin).await }).await
    }

    /// Restarts a plugin that is switched on, or whose switching on failed; any other is refused (requirements 116,
    /// 117).
    pub async fn restart(&self, id: &str) -> Result<HostView, HostError> {
        self.inner.operation_on(id, |inner, plugin| async move { inner.restart(&plugin).await }).await
    }

    /// Starts every plugin that is switched on, each on its own (B036). Returns at once.
    pub fn start_enabled(&self) {
        self.inner.serves.store(true, Ordering::Release);
        for plugin in self.inner.all() {
            let mut state = plugin.state();
            if state.row.enabled && state.running.is_none() {
                // Shown from now on, though it may have to wait for its turn.
                state.status = PluginStatus::Starting;
                drop(state);
                self.inner.start_soon(&plugin);
            }
        }
    }

    /// Starts one plugin that is switched on and waits for it; for callers without a running host.
    pub async fn ensure_started(&self, id: &str) -> Result<(), HostError> {
        let (inner, plugin) = (Arc::clone(&self.inner), self.inner.plugin(id)?);
        self.inner
            .operation(async move {
                let _operation = plugin.operation.lock().await;
                plugin.still_installed()?;
                // A call wakes one that sleeps, if its arguments are worth it.
                if plugin.running().is_some() || plugin.state().asleep.is_some() {
                    return Ok(());
                }
                if !plugin.state().row.enabled {
                    return Err(not_enabled(&plugin));
                }
                start::start(&inner, &plugin).await
            })
            .await
    }

    /// Ends the host: no new calls, then all plugins at once down their ladders. Nothing is left when this returns, which
    /// it does within [`SHUTDOWN_LIMIT`] and the time the store needs for the last traces.
    pub async fn shutdown(&self) {
        let inner = &self.inner;
        if tokio::time::timeout(SHUTDOWN_LIMIT, self.stop_all()).await.is_err() {
            tracing::warn!("the plugins were not stopped within {SHUTDOWN_LIMIT:?}; what is left ends with the host");
        }
        let flushed = inner.blocking(|inner| inner.path.store.flush()).await;
        if let Err(error) = flushed {
            tracing::warn!(code = %error.code, "the last traces were not written: {}", error.message);
        }
    }

    async fn stop_all(&self) {
        let inner = &self.inner;
        let mut stops = JoinSet::new();
        for plugin in inner.all() {
            let inner = Arc::clone(inner);
            stops.spawn(async move {
                stop::stop(&inner, &plugin, Ladder::ORDERLY).await;
                plugin
            });
        }
        // Starts under way see this and roll back.
        inner.path.stopping.cancel();
        while stops.join_next().await.is_some() {}
        for plugin in inner.all() {
            // A start that was past its last check when the stop came by is caught here.
            let _operation = plugin.operation.lock().await;
            stop::stop(inner, &plugin, Ladder::BROKEN).await;
        }
        inner.tasks.close();
        inner.tasks.wait().await;
    }
}

impl Inner {
    /// Runs an operation in a task of its own: a caller that goes away does not leave it half done.
    pub(super) async fn operation<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, HostError>> + Send + 'static,
    ) -> Result<T, HostError> {
        if self.path.stopping.is_cancelled() {
            return Err(HostError::new(ErrorCode::HostStopping, "the host is shutting down"));
        }
        self.tasks.spawn(work).await.unwrap_or_else(|_| Err(HostError::internal("an operation")))
    }

    /// As [`Inner::operation`] for one plugin. One whose file changed while the work waited for its turn is another version
    /// of itself then, and the work is done on that; one that was removed is gone, whoever has its id now.
    pub(super) async fn operation_on<T, F>(
        self: &Arc<Self>,
        id: &str,
        work: impl Fn(Arc<Self>, Arc<Plugin>) -> F,
    ) -> Result<T, HostError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, HostError>> + Send + 'static,
    {
        let mut plugin = self.plugin(id)?;
        loop {
            let done = self.operation(work(Arc::clone(self), Arc::clone(&plugin))).await;
            let is_gone = done.as_ref().is_err_and(|error| error.code == ErrorCode::PluginNotFound);
            let successor = plugin.state().replaced_by.as_ref().and_then(Weak::upgrade);
            match successor {
                // Each turn of this is another version, so that it ends.
                Some(successor) if is_gone => plugin = successor,
                _ => return done,
            }
        }
    }

    async fn enable(self: &Arc<Self>, plugin: &Arc<Plugin>) -> Result<PluginView, HostError> {
        let _operation = plugin.operation.lock().await;
        plugin.still_installed()?;
        let is_on = {
            let mut state = plugin.state();
            state.cancel_restart();
            state.backoff.reset();
            state.row.enabled && (state.running.is_some() || state.asleep.is_some())
        };
        if !is_on {
            plugin.breaker.reset();
            start::start(self, plugin).await?;
            self.keep_enabled(plugin).await?;
        }
        self.plugin_changed(plugin);
        Ok(self.view(plugin))
    }

    /// All or nothing: what could not be remembered is not left running.
    async fn keep_enabled(self: &Arc<Self>, plugin: &Arc<Plugin>) -> Result<(), HostError> {
        let Err(error) = self.set_enabled(plugin, true).await else { return Ok(()) };
        stop::stop(self, plugin, Ladder::BROKEN).await;
        plugin.state().set_error(plugward_policy::HostStatus::Error, error.message.clone());
        Err(error)
    }

    async fn disable(self: &Arc<Self>, plugin: &Arc<Plugin>) -> Result<PluginView, HostError> {
        let _operation = plugin.interrupt().await;
        plugin.still_installed()?;
        // The wish is kept first: a crash in between must not bring the plugin back. Whether or not it could be kept, the
        // plugin is stopped: that is what the person wants most.
        let kept = self.set_enabled(plugin, false).await;
        stop::stop(self, plugin, Ladder::ORDERLY).await;
        let missing = !plugin.missing_grants().is_empty();
        plugin.state().settle(missing);
        self.plugin_changed(plugin);
        match kept {
            Ok(()) => Ok(self.view(plugin)),
            Err(mut error) => {
                error.message = format!("plugin `{}` is stopped, but stays switched on: {}", plugin.id, error.message);
                Err(error)
            }
        }
    }

    async fn restart(self: &Arc<Self>, plugin: &Arc<Plugin>) -> Result<HostView, HostError> {
        let _operation = plugin.interrupt().await;
        plugin.still_installed()?;
        let was_enabled = {
            let mut state = plugin.state();
            if !state.row.enabled && state.status != PluginStatus::Error {
                drop(state);
                return Err(not_enabled(plugin));
            }
            state.backoff.reset();
            state.row.enabled
        };
        self.restart_process(plugin).await?;
        if !was_enabled {
            self.keep_enabled(plugin).await?;
        }
        Ok(self.host_view(plugin))
    }

    /// A new process in place of the old one: beside it, so that no call is lost, where that can be done.
    async fn restart_process(self: &Arc<Self>, plugin: &Arc<Plugin>) -> Result<(), HostError> {
        if let Some(old) = plugin.running().filter(|old| replace::is_possible(plugin, old)) {
            match replace::replace(self, plugin, &old).await {
                Ok(()) => {
                    plugin.breaker.reset();
                    return Ok(());
                }
                Err(error) if matches!(error.code, ErrorCode::PluginStateConflict | ErrorCode::HostStopping) => {
                    return Err(error);
                }
                // It may be the old one that is in the way, and a person wants it gone.
                Err(error) => {
                    let line = format!("no second process beside the running one: {error}; it is stopped first");
                    plugin.log.push(LogOrigin::Host, &line);
                }
            }
        }
        if plugin.state().asleep.is_some() {
            // No process to end, and calls that wait for one: they get the one that is started now.
            plugin.state().cancel_restart();
        } else {
            stop::stop(self, plugin, Ladder::ORDERLY).await;
        }
        plugin.breaker.reset();
        start::start(self, plugin).await
    }

    /// Starts it in a task of its own, or lays it down to sleep if that is how it is meant.
    pub(super) fn start_soon(self: &Arc<Self>, plugin: &Arc<Plugin>) {
        let (inner, plugin) = (Arc::clone(self), Arc::clone(plugin));
        self.tasks.spawn(async move {
            let has_process = !plugin.manifest.backend.is_lone_file();
            if has_process && plugin.manifest.supervision.lazy && inner.lay_down(&plugin).await {
                return;
            }
            inner.start_unattended(&plugin).await;
        });
    }

    /// Starts a plugin that was switched on and waited for a decision, in a host that serves.
    pub(super) fn start_if_wanted(self: &Arc<Self>, plugin: &Arc<Plugin>) {
        if self.serves.load(Ordering::Acquire) && plugin.wants_start() {
            self.start_soon(plugin);
        }
    }

    async fn lay_down(self: &Arc<Self>, plugin: &Arc<Plugin>) -> bool {
        let _operation = plugin.operation.lock().await;
        if !plugin.wants_start() || plugin.state().asleep.is_some() {
            return true;
        }
        match sleep::lay_down(self, plugin).await {
            Ok(is_asleep) => is_asleep,
            Err(error) => {
                plugin.log.push(LogOrigin::Host, &format!("its approved tools cannot be read: {error}"));
                false
            }
        }
    }

    async fn start_unattended(self: &Arc<Self>, plugin: &Arc<Plugin>) {
        let Ok(place) = self.starts.acquire().await else { return };
        let _operation = plugin.operation.lock().await;
        if !plugin.wants_start() || self.path.stopping.is_cancelled() {
            return;
        }
        let started = start::start_in_turn(self, plugin, Some(place)).await;
        watch::after_start(self, plugin, started);
    }

    /// Keeps a person's wish, and on success clears what went wrong before.
    pub(super) async fn set_enabled(self: &Arc<Self>, plugin: &Plugin, enabled: bool) -> Result<(), HostError> {
        let id = plugin.id.to_string();
        self.blocking(move |inner| {
            inner.path.store.write(move |tx| {
                tx.set_setting(&disabled_key(&id), (!enabled).then_some("1"))?;
                tx.set_enabled(&id, enabled)?;
                tx.set_last_error(&id, None)
            })
        })
        .await?;
        let mut state = plugin.state();
        state.row.enabled = enabled;
        state.switched_off = !enabled;
        state.row.last_error = None;
        Ok(())
    }
}

fn not_enabled(plugin: &Plugin) -> HostError {
    let id = &plugin.id;
    HostError::new(ErrorCode::PluginHostUnavailable, format!("plugin `{id}` is not switched on"))
        .with_hint(format!("switch it on with `plugward enable {id}`"))
}
