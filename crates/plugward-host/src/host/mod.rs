//! The host: what is installed, what runs, and the operations of its faces.
//!
//! Owns [`Host`], the one entry point. Operations run in tasks of their own, so that a face that goes away never leaves
//! one half done; operations on one plugin run one after the other, on different plugins at the same time. Refuses
//! HTTP, terminals and configuration files.

mod exposed;
mod gates;
mod inspect;
mod install;
mod kept;
mod lifecycle;
mod load;
mod review;
mod trial;
mod trust;
pub(crate) mod users;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use plugward_policy::{GrantSet, Permission, PluginId, ToolId, parse_manifest};
use plugward_store::{PluginRow, Store, StoreError};
use tokio::sync::{Semaphore, broadcast, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audience::Audience;
use crate::call::admission::Admission;
use crate::call::asks::Asks;
use crate::call::{CallPath, CallReport, CallRequest};
use crate::config::{HostConfig, MAX_CONCURRENT_CALLS, MAX_PARALLEL_STARTS, MAX_QUEUED_CALLS};
use crate::error::{ErrorCode, HostError};
use crate::events::{Events, HostEvent};
use crate::offers::{Directory, Offers};
use crate::package::HostEnvironment;
use crate::registry::Registry;
use crate::rounds::{KEY_SETTING, Seal};
use crate::supervisor::{Plugin, attempts_key};
use crate::views::{Answer, FoldersView, PendingAsk};

pub use exposed::ExposedTool;
pub use gates::GateView;
pub(crate) use load::PluginFile;
pub use review::ApprovalOrigin;
pub(crate) use trust::Planned;
pub(crate) use users::user_for_checks;

/// Folder of installed packages under the home.
const PACKAGES_DIR: &str = "plugins";

/// Folder of packages that are being copied; swept at start.
const INCOMING_DIR: &str = "incoming";

/// Folder of the plugins' private homes.
const HOMES_DIR: &str = "homes";

/// Characters of an unknown id that an error repeats; every id there can be fits.
const SHOWN_ID_CHARS: usize = 128;

/// A running host. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    pub(crate) inner: Arc<Inner>,
}

/// What all parts of a host share.
pub(crate) struct Inner {
    pub(crate) config: HostConfig,
    pub(crate) environment: HostEnvironment,
    pub(crate) path: CallPath,
    pub(crate) events: Events,
    pub(crate) tasks: TaskTracker,
    pub(crate) starts: Semaphore,
    /// Plugins that are on are to be running: set once [`Host::start_enabled`] was asked.
    serves: AtomicBool,
    /// What the folders of plugin files hold, as of the last look.
    folders: Mutex<Option<FoldersView>>,
    pub(crate) offers: Directory,
    pub(crate) audience: Arc<Audience>,
    plugins: RwLock<BTreeMap<PluginId, Arc<Plugin>>>,
    /// Serialises the changes of the set of plugins and its records, by install and remove.
    roster: tokio::sync::Mutex<()>,
    /// Ids of plugins that are being removed, from the first step to the last file.
    leaving: Mutex<BTreeSet<PluginId>>,
    /// Held while a plugin is given a user, so that no other gets the same.
    users_turn: Mutex<()>,
}

impl Host {
    /// Opens the home and reads what is installed. Starts nothing (requirement 35).
    pub async fn open(config: HostConfig) -> Result<Host, HostError> {
        let home = config.home.clone();
        let store = tokio::task::spawn_blocking(move || Store::open(&home))
            .await
            .map_err(|_| HostError::internal("opening the home"))?
            .map_err(|error| store_error(&error))?;
        let environment = HostEnvironment::from_pairs(config.host_environment.iter().cloned());
        let path = CallPath {
            registry: Registry::new(config.naming),
            asks: Asks::default(),
            catalogue: config.catalogue.clone(),
            admission: Admission::new(MAX_CONCURRENT_CALLS, MAX_QUEUED_CALLS),
            seal: load_seal(&store).await?,
            store,
            stopping: CancellationToken::new(),
        };
        let inner = Arc::new(Inner {
            config,
            environment,
            path,
            events: Events::default(),
            tasks: TaskTracker::new(),
            starts: Semaphore::new(MAX_PARALLEL_STARTS),
            serves: AtomicBool::new(false),
            folders: Mutex::default(),
            offers: Directory::default(),
            audience: Arc::default(),
            plugins: RwLock::default(),
            roster: tokio::sync::Mutex::new(()),
            leaving: Mutex::default(),
            users_turn: Mutex::default(),
        });
        inner.load().await?;
        inner.forward_changes();
        Ok(Host { inner })
    }

    /// Runs a tool; the only way there is.
    pub async fn call(&self, request: CallRequest) -> CallReport {
        self.inner.path.call(request, |tool| self.inner.why_absent(tool)).await
    }

    /// What happens, as it happens.
    pub fn events(&self) -> broadcast::Receiver<HostEvent> {
        self.inner.events.subscribe()
    }

    /// Version of the tool set, told after each change.
    pub fn tools_version(&self) -> watch::Receiver<u64> {
        self.inner.path.registry.changes()
    }

    /// Permission requests that wait for a person.
    pub fn pending_asks(&self) -> Vec<PendingAsk> {
        self.inner.path.asks.pending()
    }

    /// Answers a permission request; an error if there is none with this id any more.
    pub fn answer(&self, request_id: &str, answer: Answer) -> Result<(), HostError> {
        if self.inner.path.asks.answer(request_id, answer) {
            return Ok(());
        }
        let message = format!("permission request `{}` is not open", plugward_policy::visible(request_id));
        Err(HostError::new(ErrorCode::PluginStateConflict, message).with_hint("it was answered, or its call has ended"))
    }

    /// Settings this host runs with.
    pub fn config(&self) -> &HostConfig {
        &self.inner.config
    }
}

impl Inner {
    async fn load(self: &Arc<Self>) -> Result<(), HostError> {
        let rows = self.blocking(|inner| inner.path.store.plugins()).await?;
        for row in rows {
            match self.adopt(row).await {
                Ok(_) => {}
                // One unreadable record must not take the others along.
                Err(error) => tracing::error!(code = %error.code, "{}", error.message),
            }
        }
        self.sweep().await
    }

    /// Makes a plugin out of its record.
    async fn adopt(self: &Arc<Self>, row: PluginRow) -> Result<Arc<Plugin>, HostError> {
        self.adopt_after(row, None).await
    }

    /// As [`Inner::adopt`], for another version of `before`, whose log it goes on writing.
    async fn adopt_after(self: &Arc<Self>, row: PluginRow, before: Option<&Plugin>) -> Result<Arc<Plugin>, HostError> {
        let id = row.id.clone();
        let parsed = parse_manifest(&row.manifest_text, "plugin.yaml").map_err(|error| {
            HostError::new(
                ErrorCode::PluginManifestInvalid,
                format!("manifest of plugin `{id}` is not readable: {error}"),
            )
        })?;
        let (grants, pins, was_disabled, attempts, offers) = self
            .blocking(move |inner| {
                let store = &inner.path.store;
                let attempts = store.setting(&attempts_key(&id))?;
                let offers = store.setting(&beside_tools_key(&id))?;
                let was_disabled = store.setting(&disabled_key(&id))?.is_some();
                Ok((store.grants(&id)?, store.pins(&id)?, was_disabled, attempts, offers))
            })
            .await?;
        let warnings = parsed.warnings.iter().map(ToString::to_string).collect();
        let mut plugin = Plugin::new(
            row,
            parsed.manifest,
            warnings,
            grant_set(&grants),
            self.path.store.redactor().clone(),
            self.config.restart_base_delay,
            &self.config.supervision,
        );
        if let Some(before) = before {
            plugin.log = Arc::clone(&before.log);
        }
        plugin.attempts.restore(attempts.as_deref().unwrap_or_default());
        let plugin = Arc::new(plugin);
        let missing = !plugin.missing_grants().is_empty();
        {
            let mut state = plugin.state();
            let error = state.error.clone();
            state.switched_off = was_disabled;
            state.offers = offers.map_or(Offers::default(), |text| Offers::from_setting(&text));
            state.settle(missing);
            state.error = error;
        }
        let known =
            pins.iter().filter_map(|pin| plugward_policy::RemoteToolName::new(pin.tool.as_str()).ok()).collect();
        self.path.registry.announce(&plugin.id, plugin.rank, known);
        self.plugins.write().unwrap_or_else(PoisonError::into_inner).insert(plugin.id.clone(), Arc::clone(&plugin));
        Ok(plugin)
    }

    /// Runs store work off the async threads.
    pub(crate) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, HostError> {
        let inner = Arc::clone(self);
        tokio::task::spawn_blocking(move || work(&inner))
            .await
            .map_err(|_| HostError::internal("using the store"))?
            .map_err(|error| store_error(&error))
    }

    pub(crate) fn plugin(&self, id: &str) -> Result<Arc<Plugin>, HostError> {
        let plugins = self.plugins.read().unwrap_or_else(PoisonError::into_inner);
        let known = || plugins.keys().map(ToString::to_string).collect::<Vec<_>>();
        // Cut: what is no id may be of any length, and goes into an error text.
        let shown = plugward_policy::visible(&id.chars().take(SHOWN_ID_CHARS).collect::<String>());
        let parsed = PluginId::new(id).map_err(|_| HostError::plugin_not_found(&shown, &known()))?;
        plugins.get(&parsed).cloned().ok_or_else(|| HostError::plugin_not_found(&shown, &known()))
    }

    /// All plugins in the order they were installed.
    pub(crate) fn all(&self) -> Vec<Arc<Plugin>> {
        let plugins = self.plugins.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Arc<Plugin>> = plugins.values().cloned().collect();
        all.sort_by(|a, b| a.rank.cmp(&b.rank).then_with(|| a.id.cmp(&b.id)));
        all
    }

    pub(crate) fn plugin_changed(&self, plugin: &Plugin) {
        self.events.plugin_changed(plugin);
    }

    /// Why a known tool cannot be called at this moment; none for tools that are not to be known of.
    fn why_absent(&self, tool: &ToolId) -> Option<String> {
        let plugin = self.plugin(tool.plugin().as_str()).ok()?;
        let state = plugin.state();
        if !state.row.enabled {
            return None;
        }
        if state.running.is_none() {
            return Some(state.detail.clone());
        }
        let is_held = state.held.iter().any(|held| held.remote_name == tool.name().as_str());
        if !is_held {
            // It came or went between the look at the tools and this one.
            return Some("its plugin is starting or stopping at this moment".to_owned());
        }
        let id = &plugin.id;
        Some(format!(
            "its definition changed since it was approved; a person has to look at it: `plugward review {id}`"
        ))
    }

    /// Keeps how the last start or run ended, for whoever asks after this process; `None` when all is well again.
    pub(crate) async fn remember_outcome(self: &Arc<Self>, plugin: &Plugin, error: Option<&str>) {
        let error = error.map(str::to_owned);
        {
            let mut state = plugin.state();
            if state.removed || state.row.last_error == error {
                return;
            }
            state.row.last_error.clone_from(&error);
        }
        let id = plugin.id.to_string();
        let kept = self.blocking(move |inner| inner.path.store.set_last_error(&id, error.as_deref())).await;
        if let Err(error) = kept {
            tracing::warn!(code = %error.code, "the last error of a plugin was not kept: {}", error.message);
        }
    }

    /// Keeps what a plugin offers, for clients that ask before it runs the next time.
    pub(crate) async fn remember_offers(self: &Arc<Self>, plugin: &Plugin, offers: Offers) {
        {
            let mut state = plugin.state();
            if state.offers == offers {
                return;
            }
            state.offers = offers;
        }
        let id = plugin.id.to_string();
        let kept = self
            .blocking(move |inner| inner.path.store.set_setting(&beside_tools_key(&id), Some(&offers.to_setting())))
            .await;
        if let Err(error) = kept {
            tracing::warn!(code = %error.code, "what a plugin offers was not kept: {}", error.message);
        }
    }

    pub(crate) async fn next_generation(self: &Arc<Self>, plugin: &Plugin) -> Result<u64, HostError> {
        let id = plugin.id.to_string();
        self.blocking(move |inner| inner.path.store.next_generation(&id)).await
    }

    fn package_dir(&self, row: &PluginRow) -> PathBuf {
        self.config.home.join(&row.package_dir)
    }

    /// Turns changes of the registry and of the permission requests into events.
    fn forward_changes(self: &Arc<Self>) {
        let mut tools = self.path.registry.changes();
        let mut asks = self.path.asks.changes();
        let inner = Arc::downgrade(self);
        let stopping = self.path.stopping.clone();
        self.tasks.spawn(async move {
            loop {
                let event = tokio::select! {
                    () = stopping.cancelled() => return,
                    Ok(()) = tools.changed() => HostEvent::ToolsChanged(*tools.borrow_and_update()),
                    Ok(()) = asks.changed() => { asks.mark_unchanged(); HostEvent::AsksChanged }
                    else => return,
                };
                let Some(inner) = inner.upgrade() else { return };
                inner.events.send(event);
            }
        });
    }
}

/// The key of texts that pass through clients; one is made where there is none, or none that can be read.
async fn load_seal(store: &Store) -> Result<Seal, HostError> {
    let store = store.clone();
    let load = move || -> Result<Seal, HostError> {
        let kept = store.setting(KEY_SETTING).map_err(|error| store_error(&error))?;
        if let Some(seal) = kept.as_deref().and_then(Seal::from_setting) {
            return Ok(seal);
        }
        let fresh = Seal::fresh().map_err(|_| HostError::internal("making a key: the system gave no random bytes"))?;
        store.set_setting(KEY_SETTING, Some(&fresh.to_setting())).map_err(|error| store_error(&error))?;
        Ok(fresh)
    };
    tokio::task::spawn_blocking(load).await.map_err(|_| HostError::internal("reading a key"))?
}

/// Setting that tells a plugin somebody switched off from one nobody switched on yet.
fn disabled_key(id: &str) -> String {
    format!("disabled.{id}")
}

/// Setting that tells what a plugin said it offers beside tools when it ran last.
fn beside_tools_key(id: &str) -> String {
    format!("beside-tools.{id}")
}

fn grant_set(permissions: &[String]) -> GrantSet {
    permissions.iter().filter_map(|text| text.parse::<Permission>().ok()).collect()
}

/// The one place where failures of the store get a code.
pub(crate) fn store_error(error: &StoreError) -> HostError {
    let message = error.to_string();
    match error {
        StoreError::HomeInUse { .. } => HostError::new(ErrorCode::HomeInUse, message)
            .with_hint("wait for that process, stop it, or set PLUGWARD_HOME to another folder"),
        StoreError::TooNew { .. } => HostError::new(ErrorCode::HomeUnusable, message)
            .with_hint("use the newer plugward that wrote it, or another PLUGWARD_HOME"),
        StoreError::Corrupt { .. } => HostError::new(ErrorCode::HomeUnusable, message)
            .with_hint("nothing was changed; restore the file from a backup, or move it away to start anew"),
        StoreError::HomeForeign { .. } => HostError::new(ErrorCode::HomeUnusable, message)
            .with_hint("run plugward as that user, or set PLUGWARD_HOME to another folder"),
        StoreError::Io { .. } => HostError::new(ErrorCode::HomeUnusable, message)
            .with_hint("check that the folder exists, is yours and is writable"),
        _ => HostError::internal(message),
    }
}
