//! What the host tells: views of plugins, processes and tools, logs and traces.
//!
//! Owns the reading side only; everything here is a copy of the one state (B088). Refuses to change anything.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use plugward_policy::{BackendKind, PluginStatus, RemoteToolName, ToolId};
use plugward_store::{Span, SpanFilter, SpanPage};
use serde_json::value::RawValue;
use tokio::sync::broadcast;

use super::{Host, Inner};
use crate::call::ToolSelector;
use crate::call::breaker::BreakerState;
use crate::error::HostError;
use crate::raw_object::RawObject;
use crate::registry::Snapshot;
use crate::supervisor::Plugin;
use crate::views::{HostView, LogLine, PluginView, ToolView};

impl Host {
    /// All plugins in the order they were installed.
    pub async fn plugins(&self) -> Result<Vec<PluginView>, HostError> {
        let mut views = Vec::new();
        for plugin in self.inner.all() {
            views.push(self.inner.view_with_approval(&plugin).await?);
        }
        Ok(views)
    }

    /// All plugins in the order they were installed, at once: without a look at their packages, so `approved` only says
    /// whether a plugin runs.
    pub fn overview(&self) -> Vec<PluginView> {
        self.inner.all().iter().map(|plugin| self.inner.view(plugin)).collect()
    }

    /// One plugin.
    pub async fn plugin(&self, id: &str) -> Result<PluginView, HostError> {
        let plugin = self.inner.plugin(id)?;
        self.inner.view_with_approval(&plugin).await
    }

    /// The process side of one plugin (requirement 107).
    pub fn host_status(&self, id: &str) -> Result<HostView, HostError> {
        let plugin = self.inner.plugin(id)?;
        Ok(self.inner.host_view(&plugin))
    }

    /// The tools that can be called now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.inner.path.registry.snapshot()
    }

    /// The tools that can be called now, as records.
    pub fn tools(&self) -> Vec<ToolView> {
        let snapshot = self.inner.path.registry.snapshot();
        let view = |tool: &crate::registry::RegisteredTool| ToolView {
            id: tool.id.clone(),
            exposed_name: tool.exposed_name.clone(),
            remote_name: tool.definition.name.to_string(),
            description: tool.definition.description.clone(),
            definition: tool.definition.raw.clone(),
            parameters: tool.definition.parameters.clone(),
            permission: tool.definition.permission.as_ref().map(ToString::to_string),
            available: true,
        };
        snapshot.tools().iter().map(view).collect()
    }

    /// The tools of switched-on plugins as they were approved, whether or not they run now: what a caller without a
    /// running host can expect.
    pub async fn approved_tools(&self) -> Result<Vec<ToolView>, HostError> {
        let names = self.inner.path.registry.exposed_names();
        let mut tools = Vec::new();
        for plugin in self.inner.all().into_iter().filter(|plugin| plugin.state().row.enabled) {
            let id = plugin.id.to_string();
            let pins = self.inner.blocking(move |inner| inner.path.store.pins(&id)).await?;
            for pin in pins {
                let (Ok(name), Ok(definition)) =
                    (RemoteToolName::new(pin.tool.as_str()), RawValue::from_string(pin.definition_json))
                else {
                    continue;
                };
                let tool_id = ToolId::new(plugin.id.clone(), name.clone());
                let exposed_name = names.exposed(&tool_id).unwrap_or(name.as_str()).to_owned();
                tools.push(self.inner.approved_view(tool_id, exposed_name, &definition));
            }
        }
        Ok(tools)
    }

    /// The log of a plugin, oldest line first.
    pub fn logs(&self, id: &str) -> Result<Vec<LogLine>, HostError> {
        Ok(self.inner.plugin(id)?.log.lines())
    }

    /// What the plugin said on stderr in its last run, the last lines of it: for a person who looks at the plugin, and
    /// for no answer about a call (requirement 80).
    pub fn last_words(&self, id: &str) -> Result<Vec<LogLine>, HostError> {
        Ok(self.inner.plugin(id)?.log.last_words())
    }

    /// New log lines of a plugin as they come.
    pub fn follow_logs(&self, id: &str) -> Result<broadcast::Receiver<LogLine>, HostError> {
        Ok(self.inner.plugin(id)?.log.follow())
    }

    /// Spans, newest first.
    pub async fn spans(&self, filter: SpanFilter) -> Result<SpanPage, HostError> {
        self.inner
            .blocking(move |inner| {
                // A reader expects to find the call that just ended.
                inner.path.store.flush()?;
                inner.path.store.spans(&filter)
            })
            .await
    }

    /// Ids of recorded traces that begin with these hexadecimal digits, at most `limit`.
    pub async fn traces_with(&self, digits: &str, limit: usize) -> Result<Vec<String>, HostError> {
        let digits = digits.to_ascii_lowercase();
        self.inner
            .blocking(move |inner| {
                inner.path.store.flush()?;
                inner.path.store.traces_with(&digits, limit)
            })
            .await
    }

    /// All spans of one trace.
    pub async fn trace(&self, trace_id: &str) -> Result<Vec<Span>, HostError> {
        let trace_id = trace_id.to_owned();
        self.inner
            .blocking(move |inner| {
                inner.path.store.flush()?;
                inner.path.store.trace(&trace_id)
            })
            .await
    }

    /// Spans lost to a full queue since the host opened.
    pub fn dropped_spans(&self) -> u64 {
        self.inner.path.store.dropped_spans()
    }

    /// Tools as MCP clients get them: the plugin's own definition under the exposed name (B034).
    pub fn exposed_definitions(&self) -> Vec<Box<RawValue>> {
        let snapshot = self.inner.path.registry.snapshot();
        let definition = |tool: &crate::registry::RegisteredTool| {
            let mut object: RawObject = tool.definition.exposed.clone();
            object.set_str("name", &tool.exposed_name);
            object.to_raw()
        };
        snapshot.tools().iter().map(definition).collect()
    }

    /// The definition of one callable tool as MCP clients see it.
    pub fn exposed_definition(&self, exposed_name: &str) -> Option<Box<RawValue>> {
        let snapshot = self.inner.path.registry.snapshot();
        let tool = snapshot.by_exposed(exposed_name)?;
        let mut object: RawObject = tool.definition.exposed.clone();
        object.set_str("name", &tool.exposed_name);
        Some(object.to_raw())
    }

    /// Waits until no switched-on plugin is starting, or `limit` has passed (B036: a first list waits a little).
    pub async fn settled(&self, limit: Duration) {
        let mut events = self.events();
        let starting = || self.inner.all().iter().any(|plugin| plugin.state().status == PluginStatus::Starting);
        let wait = async {
            while starting() {
                if let Err(broadcast::error::RecvError::Closed) = events.recv().await {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(limit, wait).await;
    }

    /// Waits until a tool can be called or its plugin is not starting (any more), at most `limit`: for callers that
    /// know the tool from an earlier list. Whether it can be called then is for the call to find out.
    pub async fn tool_settled(&self, tool: &ToolSelector, limit: Duration) {
        let is_starting = || {
            let registry = &self.inner.path.registry;
            let (snapshot, names) = (registry.snapshot(), registry.exposed_names());
            let (found, known) = match tool {
                ToolSelector::Id(name) => (snapshot.by_id(name), names.by_id(name)),
                ToolSelector::Exposed(name) => (snapshot.by_exposed(name), names.by_exposed(name)),
            };
            let plugin = known.filter(|_| found.is_none()).map(|id| self.inner.plugin(id.plugin().as_str()));
            matches!(plugin, Some(Ok(plugin)) if plugin.state().status == PluginStatus::Starting)
        };
        // The way of nearly every call: nothing to wait for.
        if !is_starting() {
            return;
        }
        let mut events = self.events();
        let wait = async {
            while is_starting() {
                if let Err(broadcast::error::RecvError::Closed) = events.recv().await {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(limit, wait).await;
    }
}

impl Inner {
    fn approved_view(&self, id: ToolId, exposed_name: String, definition: &RawValue) -> ToolView {
        let snapshot = self.path.registry.snapshot();
        let object = RawObject::parse(definition).unwrap_or_default();
        let no_arguments = || RawValue::from_string(r#"{"type":"object"}"#.to_owned());
        let parameters = object.get("inputSchema").map(ToOwned::to_owned);
        ToolView {
            remote_name: id.name().to_string(),
            description: object.get_str("description").unwrap_or_else(|| id.name().to_string()),
            parameters: parameters.or_else(|| no_arguments().ok()).unwrap_or_else(|| definition.to_owned()),
            permission: None,
            available: snapshot.by_id(&id.to_string()).is_some(),
            definition: definition.to_owned(),
            exposed_name,
            id,
        }
    }

    pub(super) async fn view_with_approval(self: &Arc<Self>, plugin: &Arc<Plugin>) -> Result<PluginView, HostError> {
        let approved = self.is_approved(plugin).await?;
        let mut view = self.view(plugin);
        view.approved = approved;
        Ok(view)
    }

    /// The view without a look at the package on disk; `approved` tells whether it was when it started.
    pub(crate) fn view(&self, plugin: &Plugin) -> PluginView {
        let host = self.host_view(plugin);
        let grants = plugin.grants.read().unwrap_or_else(PoisonError::into_inner);
        let named = grants.iter().map(ToString::to_string);
        let granted = named.chain(grants.iter_access().map(ToString::to_string)).collect();
        drop(grants);
        let state = plugin.state();
        let manifest = &plugin.manifest;
        let contract = state.contract.as_deref();
        let running = state.running.as_ref();
        let launched = running.and_then(|running| running.launched.as_ref());
        let mut warnings = plugin.manifest_warnings.clone();
        warnings.extend(self.folders().into_iter().flat_map(|folders| folders.problems).filter_map(|problem| {
            let is_kept = problem.keeps.as_ref() == Some(&plugin.id);
            let (path, reasons) = (problem.path.display(), problem.reasons.join("; "));
            is_kept.then(|| format!("the version before stays, because of its file `{path}`: {reasons}"))
        }));
        warnings.extend(
            host.deliveries
                .iter()
                .filter_map(|counts| counts.failing.as_ref())
                .map(|reason| format!("the last event could not be delivered: {reason}")),
        );
        warnings.extend(contract.iter().flat_map(|contract| contract.warnings.iter().cloned()));
        PluginView {
            id: plugin.id.clone(),
            name: manifest.name.clone(),
            version: manifest.version.clone(),
            description: manifest.description.clone(),
            status: state.status,
            host_status: state.host_status,
            detail: state.detail.clone(),
            enabled: state.row.enabled,
            approved: running.is_some(),
            requested_permissions: manifest.all_permissions().iter().map(ToString::to_string).collect(),
            minimum_level: manifest.min_sandbox_level,
            access: super::review::access_lines(&manifest.backend, manifest.access.describe()),
            granted_permissions: granted,
            source: state.row.source.clone(),
            installed_at: epoch(state.row.installed_at_us),
            tools_count: host.tools_count,
            held_tools: state.held.clone(),
            quarantined_tools: contract.map(|contract| contract.quarantined.clone()).unwrap_or_default(),
            warnings,
            restarts: state.restarts,
            activity: host.activity(),
            noise_lines: launched.map_or(0, |launched| launched.session.noise_lines()),
            error: state.error.clone(),
            limits_reached: launched
                .and_then(|launched| launched.process.as_ref())
                .map(|process| process.reached().iter().map(ToString::to_string).collect())
                .unwrap_or_default(),
            network_attempts: plugin.attempts.view(),
            network_attempts_unlisted: plugin.attempts.others(),
            enforcement: launched
                .and_then(|launched| Some(launched.process.as_ref()?.enforcement().clone()))
                .or_else(|| running?.route.target.last_enforcement()),
            manifest_text: state.row.manifest_text.clone(),
        }
    }

    pub(crate) fn host_view(&self, plugin: &Plugin) -> HostView {
        let snapshot = self.path.registry.snapshot();
        let breaker = plugin.breaker.view(Instant::now());
        let state = plugin.state();
        let running = state.running.as_ref();
        let launched = running.and_then(|running| running.launched.as_ref());
        HostView {
            plugin_id: plugin.id.clone(),
            backend: backend_word(&plugin.manifest.backend.kind),
            remote_transport: plugin.manifest.backend.remote().map(|remote| remote.transport.as_str()),
            status: state.host_status,
            tools_count: snapshot.tools().iter().filter(|tool| tool.route.plugin == plugin.id).count(),
            started_at: launched.map(|launched| launched.started_at),
            last_seen_at: launched.and_then(|launched| launched.session.last_seen()),
            protocol_version: running.and_then(|running| running.protocol_version.clone()),
            server_name: running.and_then(|running| running.server_name.clone()),
            server_version: running.and_then(|running| running.server_version.clone()),
            pid: launched.and_then(|launched| Some(launched.process.as_ref()?.pid())),
            generation: state.generation,
            calls_running: running.map_or(0, |running| running.route.admission.running()),
            calls_waiting: running.map_or(0, |running| running.route.admission.waiting()),
            is_paused: breaker.state != BreakerState::Closed,
            breaker,
            restarts: state.restarts,
            next_start_in: state.next_start_at.map(|at| at.saturating_duration_since(Instant::now())),
            is_asleep: state.asleep.is_some(),
            error: state.error.clone(),
            deliveries: plugin.manifest.backend.webhook().map(|_| plugin.deliveries.view()),
        }
    }
}

/// The word for a way of running in answers.
fn backend_word(kind: &BackendKind) -> &'static str {
    match kind {
        BackendKind::McpStdio | BackendKind::McpHttp(_) => "mcp",
        BackendKind::Command(_) => "command",
        BackendKind::Prompt(_) => "prompt",
        BackendKind::Webhook(_) => "webhook",
    }
}

fn epoch(us: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(us).unwrap_or(0))
}
