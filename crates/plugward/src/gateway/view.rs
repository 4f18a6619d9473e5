//! What the clients of one server see: the tools of their profile, or the three tools of search mode.
//!
//! Owns the one question both listing and calling ask, so that a tool outside the profile is neither seen nor run, and
//! cannot be told from one that does not exist (case B064). Refuses to run anything: a call goes on with the real
//! tool's name, through the one call path.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use plugward_host::{Host, Offers, PluginView};
use plugward_policy::PluginId;
use plugward_protocol::RpcError;
use plugward_protocol::mcp::{CallParamsIn, codes};
use serde_json::value::RawValue;

use super::search::{self, Catalogue};
use super::tools_call::UNKNOWN_TOOL;
use crate::cost;
use crate::profile::{Mode, Profile};

/// Where a `tools/call` goes.
#[derive(Debug)]
pub(super) enum Routed {
    /// Nowhere: it is answered.
    Answered(Box<RawValue>),
    /// To the plugin, with these parameters.
    Call(CallParamsIn),
}

/// The view of one profile.
#[derive(Debug)]
pub(super) struct View {
    profile: Profile,
    /// The budget was found to be overrun; once told, it is not told with each change.
    has_warned: AtomicBool,
    /// What search mode searches, made anew when the tools change.
    catalogue: Mutex<Option<Arc<Catalogue>>>,
}

impl View {
    pub(super) fn new(profile: Profile) -> Self {
        Self { profile, has_warned: AtomicBool::new(false), catalogue: Mutex::default() }
    }

    pub(super) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Whether the client gets what a plugin offers beside tools.
    pub(super) fn has_plugin(&self, plugin: &PluginId) -> bool {
        self.profile.has_plugin(plugin)
    }

    /// What the client is offered beside tools.
    pub(super) fn offers(&self, host: &Host) -> Offers {
        host.offers(|plugin| self.has_plugin(plugin))
    }

    /// The definitions as they are listed.
    pub(super) fn definitions(&self, host: &Host) -> Vec<Box<RawValue>> {
        let definitions = match self.profile.mode {
            Mode::Search => search::definitions(),
            Mode::List => {
                let tools = host.exposed_tools().into_iter().filter(|tool| self.profile.has_tool(&tool.id));
                tools.map(|tool| tool.definition).collect()
            }
        };
        if let Some(budget) = self.profile.budget_tokens {
            let tokens: u64 = definitions.iter().map(|definition| cost::of_definition(definition.get())).sum();
            if tokens > budget && !self.has_warned.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "profile `{}` costs about {tokens} tokens, its budget is {budget}: see `plugward tools --cost`",
                    self.profile.shown_name()
                );
            }
        }
        definitions
    }

    /// Plugins that matter to the client, with the number of tools it gets of each.
    pub(super) fn overview(&self, host: &Host) -> Vec<PluginView> {
        let mut plugins = host.overview();
        if self.profile.only.is_none() {
            return plugins;
        }
        plugins.retain(|plugin| self.profile.has_some_of(&plugin.id));
        let tools = host.exposed_tools();
        for plugin in &mut plugins {
            let is_seen =
                |tool: &&plugward_host::ExposedTool| *tool.id.plugin() == plugin.id && self.profile.has_tool(&tool.id);
            plugin.tools_count = tools.iter().filter(is_seen).count();
            let id = plugin.id.clone();
            plugin.held_tools.retain(|held| self.profile.has(id.as_str(), &format!("{id}.{}", held.remote_name)));
        }
        plugins
    }

    /// Whether a tool is listed to the client under its own name.
    pub(super) fn lists(&self, host: &Host, name: &str) -> bool {
        self.profile.mode == Mode::List && host.exposed_id(name).is_some_and(|id| self.profile.has_tool(&id))
    }

    /// Where a call goes.
    ///
    /// # Errors
    /// -32602 for a tool that the client cannot know.
    pub(super) fn route(&self, host: &Host, params: CallParamsIn) -> Result<Routed, RpcError> {
        let unknown = || RpcError::new(codes::INVALID_PARAMS, UNKNOWN_TOOL);
        let params = match self.profile.mode {
            Mode::List => params,
            Mode::Search => match search::Request::of(&params) {
                None => return Err(unknown()),
                Some(search::Request::Invalid(message)) => return Ok(Routed::Answered(search::failed(&message))),
                Some(search::Request::Search { query, limit }) => {
                    return Ok(Routed::Answered(self.catalogue(host).search(&query, limit)));
                }
                Some(search::Request::Describe { name }) => {
                    return Ok(Routed::Answered(self.catalogue(host).describe(&name)));
                }
                Some(search::Request::Call(params)) => params,
            },
        };
        // A name that nobody has is for the call path to refuse, and to record.
        match host.exposed_id(&params.name) {
            Some(id) if !self.profile.has_tool(&id) => Err(unknown()),
            _ => Ok(Routed::Call(params)),
        }
    }

    fn catalogue(&self, host: &Host) -> Arc<Catalogue> {
        let version = *host.tools_version().borrow();
        let mut kept = self.catalogue.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(catalogue) = kept.as_ref().filter(|catalogue| catalogue.version() == version) {
            return Arc::clone(catalogue);
        }
        let tools = host.exposed_tools().into_iter().filter(|tool| self.profile.has_tool(&tool.id));
        let catalogue = Arc::new(Catalogue::new(version, tools.map(|tool| (tool.name, tool.definition)).collect()));
        *kept = Some(Arc::clone(&catalogue));
        catalogue
    }
}
