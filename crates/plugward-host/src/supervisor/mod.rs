//! One plugin's life: its states, and the one place they are kept.
//!
//! ```text
//!  installed / permission_required --enable--> starting --all eleven steps--> ready
//!                                                 |  ^                          |
//!                       a step fails: rolled back |  | backoff, if it was       | crash, fault, contract broken
//!                                                 v  | enabled before           v
//!                                               error <------------------ unhealthy (tools withdrawn first)
//!  disable, remove, shutdown, from anywhere: tools withdrawn, stdin closed, TERM, KILL -> disabled / gone / stopped
//! ```
//!
//! | transition | function |
//! |---|---|
//! | to starting, ready, error | [`start::start`] |
//! | to unhealthy, back to starting | [`watch`] |
//! | to disabled, stopped, gone | [`stop::stop`] |
//! | ready to asleep and back | [`sleep`] |
//! | ready to ready with another process | [`replace`] |
//!
//! Owns [`Plugin`]: manifest, grants, running process, contract, log, all behind one lock, so that status, list and
//! routing never disagree (B088). Operations of one plugin run one at a time; plugins never wait for each other.
//! Refuses to know faces and wire formats.

mod attend;
pub(crate) mod backoff;
pub(crate) mod command;
mod confine;
pub(crate) mod containers;
mod egress;
mod era;
mod health;
mod hold;
mod in_host;
mod listen;
pub(crate) mod per_client;
mod remote;
pub(crate) mod replace;
pub(crate) mod sleep;
pub(crate) mod start;
pub(crate) mod stop;
pub(crate) mod trial;
pub(crate) mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Instant, SystemTime};

use plugward_policy::{BackendKind, GrantSet, HostStatus, Manifest, PluginId, PluginStatus};
use plugward_store::{PluginRow, Redactor};
use tokio_util::sync::CancellationToken;

pub use backoff::MAX_BACKOFF;
pub(crate) use egress::attempts_key;
pub(crate) use era::era_key;

use crate::call::Route;
use crate::call::breaker::Breaker;
use crate::config::SupervisionSettings;
use crate::contract::Contract;
use crate::egress::Attempts;
use crate::error::HostError;
use crate::offers::Offers;
use crate::registry::PluginRank;
use crate::session::Session;
use crate::session::log::PluginLog;
use crate::session::process::RunningProcess;
use crate::views::HeldTool;
use crate::webhook::Deliveries;
use backoff::Backoff;
use containers::ContainerStart;
use hold::Hold;
use sleep::Sleep;

/// An installed plugin.
pub(crate) struct Plugin {
    pub(crate) id: PluginId,
    pub(crate) rank: PluginRank,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) manifest_warnings: Vec<String>,
    pub(crate) log: Arc<PluginLog>,
    /// Hosts it tried to reach.
    pub(crate) attempts: Arc<Attempts>,
    /// What became of the events it sends, if it is a webhook.
    pub(crate) deliveries: Arc<Deliveries>,
    /// Knows the secrets of all plugins.
    pub(crate) redactor: Redactor,
    /// Knows the secrets of this one only.
    pub(crate) own_redactor: Redactor,
    pub(crate) grants: Arc<RwLock<GrantSet>>,
    /// Held for the length of an enable, disable, restart or remove.
    pub(crate) operation: tokio::sync::Mutex<()>,
    /// Survives automatic restarts, so that a plugin that dies at each call is still noticed; a person's start
    /// resets it.
    pub(crate) breaker: Arc<Breaker>,
    /// How it is looked after: its manifest's word, else the deployment's.
    pub(crate) supervision: SupervisionSettings,
    state: Mutex<State>,
}

/// What changes. Never held across an await.
pub(crate) struct State {
    pub(crate) row: PluginRow,
    pub(crate) status: PluginStatus,
    pub(crate) host_status: HostStatus,
    /// In plain words, what it is doing now.
    pub(crate) detail: String,
    pub(crate) error: Option<String>,
    pub(crate) running: Option<Arc<Running>>,
    /// It is on and offers its tools, without a process.
    pub(crate) asleep: Option<Arc<Sleep>>,
    /// A process that fell over and was not ended yet.
    pub(crate) fallen: Option<Launched>,
    pub(crate) generation: u64,
    /// What the plugin offered last; kept after it stopped, for the review.
    pub(crate) contract: Option<Arc<Contract>>,
    pub(crate) held: Vec<HeldTool>,
    pub(crate) backoff: Backoff,
    pub(crate) restarts: u32,
    /// Breaks off the start that is under way.
    pub(crate) starting: Option<CancellationToken>,
    /// Operations that wait to end what a start begins: none begins meanwhile.
    interruptions: u32,
    /// Cancels an automatic start that is due.
    pub(crate) pending_restart: Option<CancellationToken>,
    /// When that start is due.
    pub(crate) next_start_at: Option<Instant>,
    /// A person switched it off, which is not the same as never on.
    pub(crate) switched_off: bool,
    pub(crate) removed: bool,
    /// The version that took its place, where that is why it was removed.
    pub(crate) replaced_by: Option<Weak<Plugin>>,
    /// What it said it offers beside tools when it ran last.
    pub(crate) offers: Offers,
    /// What would run differs from what was approved, as of the last look.
    pub(crate) hold: Hold,
}

/// A process that was started and the conversation with it; not trusted with calls yet.
#[derive(Clone)]
pub(crate) struct Launched {
    pub(crate) generation: u64,
    pub(crate) session: Arc<Session>,
    /// A server elsewhere has none here.
    pub(crate) process: Option<Arc<RunningProcess>>,
    pub(crate) started_at: SystemTime,
    pub(crate) container: Option<ContainerStart>,
    /// Why it runs without a sandbox, when it does.
    pub(crate) unconfined: Option<String>,
    /// Cancelled at the end of its stop ladder: what still holds its pipes is not waited for.
    pub(crate) over: CancellationToken,
}

/// A plugin that is ready.
pub(crate) struct Running {
    /// Its process; a command has none between calls.
    pub(crate) launched: Option<Launched>,
    pub(crate) route: Arc<Route>,
    pub(crate) protocol_version: Option<String>,
    /// What it offers beside tools.
    pub(crate) offers: Offers,
    pub(crate) server_name: Option<String>,
    pub(crate) server_version: Option<String>,
    /// Cancelled by whoever stops it on purpose, before anything else: its end is then no accident.
    pub(crate) stopping: CancellationToken,
}

impl Plugin {
    pub(crate) fn new(
        row: PluginRow,
        manifest: Manifest,
        manifest_warnings: Vec<String>,
        grants: GrantSet,
        redactor: Redactor,
        backoff_base: std::time::Duration,
        supervision: &SupervisionSettings,
    ) -> Self {
        let supervision = supervision.of(&manifest.supervision);
        let rank = u64::try_from(row.installed_at_us).unwrap_or(0);
        let state = State {
            status: PluginStatus::Installed,
            host_status: HostStatus::Stopped,
            detail: String::new(),
            error: row.last_error.clone(),
            running: None,
            asleep: None,
            fallen: None,
            generation: 0,
            contract: None,
            held: Vec::new(),
            backoff: Backoff::new(backoff_base, &supervision),
            restarts: 0,
            starting: None,
            interruptions: 0,
            pending_restart: None,
            next_start_at: None,
            switched_off: false,
            removed: false,
            replaced_by: None,
            offers: Offers::default(),
            hold: Hold::default(),
            row,
        };
        Self {
            id: manifest.id.clone(),
            rank,
            manifest: Arc::new(manifest),
            manifest_warnings,
            log: Arc::new(PluginLog::new(redactor.clone())),
            attempts: Arc::new(Attempts::new(redactor.clone())),
            deliveries: Arc::default(),
            redactor,
            own_redactor: Redactor::new(),
            grants: Arc::new(RwLock::new(grants)),
            operation: tokio::sync::Mutex::new(()),
            breaker: Arc::new(Breaker::new(&supervision)),
            supervision,
            state: Mutex::new(state),
        }
    }

    /// Takes the turn of an operation that ends what runs: a start under way is broken off, and none that waits before it
    /// in the queue begins, so that the turn comes within the time of a stop ladder.
    pub(crate) async fn interrupt(&self) -> tokio::sync::MutexGuard<'_, ()> {
        let waiting = Interruption::begin(self);
        let turn = self.operation.lock().await;
        drop(waiting);
        turn
    }

    /// The state; hold it for a few lines only.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Permissions the manifest asks for and nobody granted.
    pub(crate) fn missing_grants(&self) -> Vec<String> {
        let grants = self.grants.read().unwrap_or_else(PoisonError::into_inner);
        let named = grants.missing(&self.manifest.permissions).into_iter().map(ToString::to_string);
        named.chain(grants.missing_access(&self.manifest.access).iter().map(ToString::to_string)).collect()
    }

    /// The running process, if its generation is still the current one.
    pub(crate) fn running(&self) -> Option<Arc<Running>> {
        self.state().running.clone()
    }

    /// Whether a start that nobody asked for just now is still wanted. Ask under the operation lock: the person may
    /// have switched it off, or removed it, while the start waited for its turn.
    pub(crate) fn wants_start(&self) -> bool {
        let state = self.state();
        state.row.enabled && !state.removed && state.running.is_none()
    }

    /// An error once it is removed: an operation that waited for its turn meanwhile must not touch a successor that
    /// was installed under the same id.
    pub(crate) fn still_installed(&self) -> Result<(), HostError> {
        if self.state().removed { Err(HostError::plugin_not_found(self.id.as_str(), &[])) } else { Ok(()) }
    }
}

/// What a plugin without a process of its own is ready for.
fn without_process(kind: &BackendKind) -> &'static str {
    match kind {
        BackendKind::Prompt(_) => "ready: its prompt is offered",
        BackendKind::Webhook(_) => "ready: events are sent as they happen",
        BackendKind::McpStdio | BackendKind::McpHttp(_) | BackendKind::Command(_) => {
            "ready: its command runs once for each call"
        }
    }
}

/// An operation that waits for its turn to end what runs.
struct Interruption<'a>(&'a Plugin);

impl<'a> Interruption<'a> {
    fn begin(plugin: &'a Plugin) -> Self {
        let mut state = plugin.state();
        state.interruptions += 1;
        if let Some(starting) = &state.starting {
            starting.cancel();
        }
        Self(plugin)
    }
}

impl Drop for Interruption<'_> {
    fn drop(&mut self) {
        self.0.state().interruptions -= 1;
    }
}

impl State {
    /// Marks it starting; the token tells when somebody wants it to end.
    pub(crate) fn set_starting(&mut self) -> CancellationToken {
        let token = self.begin_interruptible();
        self.status = PluginStatus::Starting;
        self.host_status = HostStatus::Starting;
        "starting".clone_into(&mut self.detail);
        token
    }

    /// A token for what runs in this plugin's turn and can be broken off; whoever waits to end things cancels it.
    pub(crate) fn begin_interruptible(&mut self) -> CancellationToken {
        let token = CancellationToken::new();
        if self.interruptions > 0 {
            token.cancel();
        }
        self.starting = Some(token.clone());
        token
    }

    /// Takes back an automatic start that is due.
    pub(crate) fn cancel_restart(&mut self) {
        self.next_start_at = None;
        if let Some(token) = self.pending_restart.take() {
            token.cancel();
        }
    }

    /// Marks it ready.
    pub(crate) fn set_ready(&mut self, running: Arc<Running>, contract: Arc<Contract>, held: Vec<HeldTool>) {
        self.status = PluginStatus::Ready;
        self.host_status = HostStatus::Ready;
        self.detail = match running.launched.as_ref().map(|launched| (&launched.unconfined, &launched.process)) {
            Some((Some(reason), _)) => format!("running without a sandbox, with all your rights: {reason}"),
            Some((None, Some(_))) => "running".to_owned(),
            Some((None, None)) => "connected: it runs elsewhere, where nothing here can hold it".to_owned(),
            None => without_process(&running.route.manifest.backend.kind).to_owned(),
        };
        if !held.is_empty() {
            let waiting = format!("; {} tools wait for a review", held.len());
            self.detail.push_str(&waiting);
        }
        self.running = Some(running);
        self.next_start_at = None;
        self.error = None;
        self.contract = Some(contract);
        self.held = held;
        self.backoff.ready(Instant::now());
    }

    /// Marks it not running, for a reason that is an error.
    pub(crate) fn set_error(&mut self, host_status: HostStatus, error: String) {
        self.running = None;
        self.status = PluginStatus::Error;
        self.host_status = host_status;
        self.detail.clone_from(&error);
        self.error = Some(error);
    }

    /// The state of a plugin that is not running and not in trouble.
    pub(crate) fn settle(&mut self, missing_grants: bool) {
        self.running = None;
        self.host_status = HostStatus::Stopped;
        self.error = None;
        (self.status, self.detail) = if missing_grants {
            (PluginStatus::PermissionRequired, "waits for a person: review and approve it".to_owned())
        } else if self.row.enabled {
            (PluginStatus::Installed, "switched on, not running".to_owned())
        } else if self.switched_off {
            (PluginStatus::Disabled, "switched off".to_owned())
        } else {
            (PluginStatus::Installed, "installed, not switched on".to_owned())
        };
    }
}
