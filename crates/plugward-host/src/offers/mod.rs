//! What plugins offer beside tools: prompts, resources, completion. Passed through, unambiguous, within limits.
//!
//! ```text
//! list     every running plugin that offers it is asked at once; one that is slow or wrong is left out
//! forward  exact map -> its plugin, under its own name -> a place in its queue -> session -> size, secrets
//! ```
//!
//! Owns which plugin may offer what: one whose manifest asks for the permission of that name, in a deployment that allows
//! it. Refuses to split names: a name stands for what the last list said it does, and a resource keeps its owner.

mod forward;
mod list;
mod prompt;
mod record;
mod wake;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plugward_policy::{Effect, PermissionName, PluginId};
use plugward_protocol::{RpcError, ServerHello};

pub use forward::OfferRequest;

use crate::host::{Host, Inner};
use crate::raw_object::RawObject;
use crate::supervisor::Plugin;

/// Names and resources whose owner is remembered. Far more than any client shows; past it the plugin that has most of
/// them begins anew, and its next list fills it.
const MAX_REMEMBERED: usize = 20_000;

/// What a host, or one plugin, offers beside tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offers {
    /// `prompts/list`, `prompts/get`.
    pub prompts: bool,
    /// `resources/list`, `resources/templates/list`, `resources/read`.
    pub resources: bool,
    /// `completion/complete`.
    pub completions: bool,
    /// Log messages.
    pub logging: bool,
}

impl Offers {
    /// What a server says it offers.
    pub(crate) fn declared(hello: &ServerHello) -> Self {
        Self {
            prompts: hello.has_capability("prompts"),
            resources: hello.has_capability("resources"),
            completions: hello.has_capability("completions"),
            logging: hello.has_capability("logging"),
        }
    }

    /// What a plugin may offer: only what a person has seen it ask for.
    pub(crate) fn allowed(inner: &Inner, plugin: &Plugin) -> Self {
        let is_allowed = |name: &str| {
            let catalogue = &inner.config.catalogue;
            PermissionName::new(name).is_ok_and(|name| {
                plugin.manifest.permissions.contains(&name) && catalogue.effect(&name) == Effect::Allow
            })
        };
        Self {
            prompts: is_allowed("mcp.prompts"),
            resources: is_allowed("mcp.resources"),
            completions: is_allowed("mcp.completions"),
            logging: is_allowed("mcp.logging"),
        }
    }

    /// As it is kept.
    pub(crate) fn to_setting(self) -> String {
        let words = [
            (self.prompts, "prompts"),
            (self.resources, "resources"),
            (self.completions, "completions"),
            (self.logging, "logging"),
        ];
        words.iter().filter(|(is_there, _)| *is_there).map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
    }

    /// What was kept.
    pub(crate) fn from_setting(text: &str) -> Self {
        let has = |wanted: &str| text.split(' ').any(|word| word == wanted);
        Self {
            prompts: has("prompts"),
            resources: has("resources"),
            completions: has("completions"),
            logging: has("logging"),
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            prompts: self.prompts && other.prompts,
            resources: self.resources && other.resources,
            completions: self.completions && other.completions,
            logging: self.logging && other.logging,
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            prompts: self.prompts || other.prompts,
            resources: self.resources || other.resources,
            completions: self.completions || other.completions,
            logging: self.logging || other.logging,
        }
    }
}

/// Lists of offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OfferList {
    /// `prompts/list`.
    Prompts,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    ResourceTemplates,
}

impl OfferList {
    fn method(self) -> &'static str {
        match self {
            OfferList::Prompts => "prompts/list",
            OfferList::Resources => "resources/list",
            OfferList::ResourceTemplates => "resources/templates/list",
        }
    }

    /// Member of the result that holds the items.
    #[must_use]
    pub fn member(self) -> &'static str {
        match self {
            OfferList::Prompts => "prompts",
            OfferList::Resources => "resources",
            OfferList::ResourceTemplates => "resourceTemplates",
        }
    }

    /// Member of an item that names it.
    fn key(self) -> &'static str {
        match self {
            OfferList::Prompts => "name",
            OfferList::Resources => "uri",
            OfferList::ResourceTemplates => "uriTemplate",
        }
    }

    fn is_in(self, offers: Offers) -> bool {
        match self {
            OfferList::Prompts => offers.prompts,
            OfferList::Resources | OfferList::ResourceTemplates => offers.resources,
        }
    }
}

/// Why something that was offered cannot be had.
#[derive(Debug, Clone)]
pub enum OfferError {
    /// Nobody offers it.
    NotFound,
    /// The parameters do not say what is asked for.
    Invalid(&'static str),
    /// The plugin answered with an error.
    Rejected(RpcError),
    /// It did not come, for a reason of ours or of the plugin's process.
    Failed(String),
}

/// What the last lists said.
#[derive(Default)]
pub(crate) struct Directory {
    known: Mutex<Known>,
    /// What plugins that may sleep listed last: told while they do.
    lists: Mutex<HashMap<(PluginId, OfferList), Items>>,
}

/// What one plugin lists, each item with its own name for it.
type Items = Vec<(String, RawObject)>;

#[derive(Default)]
struct Known {
    /// Exposed name of a prompt to its plugin and its own name.
    prompts: HashMap<String, (PluginId, String)>,
    /// Resource to its plugins, in the order in which they first listed it, for as long as this process runs. To a client
    /// it is of the first one that the client sees.
    resources: Owners,
    /// Beginnings of resources that templates make, each with its plugins.
    templates: Owners,
}

/// What belongs to whom.
type Owners = HashMap<String, Vec<PluginId>>;

fn forget_owner(owners: &mut Owners, plugin: &str) {
    owners.retain(|_, plugins| {
        plugins.retain(|owner| owner.as_str() != plugin);
        !plugins.is_empty()
    });
}

impl Directory {
    /// Forgets what a removed plugin owned: a successor, or another plugin, may have it.
    pub(crate) fn forget(&self, plugin: &str) {
        let mut known = self.known();
        known.prompts.retain(|_, (owner, _)| owner.as_str() != plugin);
        forget_owner(&mut known.resources, plugin);
        forget_owner(&mut known.templates, plugin);
        drop(known);
        self.lists().retain(|(owner, _), _| owner.as_str() != plugin);
    }

    fn lists(&self) -> MutexGuard<'_, HashMap<(PluginId, OfferList), Items>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    /// What all plugins that are switched on and that the asker sees offer, running or not: a client asks once, often
    /// before they run.
    pub fn offers(&self, sees: impl Fn(&PluginId) -> bool) -> Offers {
        let on = |plugin: &Arc<Plugin>| {
            let state = plugin.state();
            if state.row.enabled { state.offers } else { Offers::default() }
        };
        let all = self.inner.all();
        all.iter()
            .filter(|plugin| sees(&plugin.id))
            .map(|plugin| on(plugin).and(self.allowed(plugin)))
            .fold(Offers::default(), Offers::or)
    }

    fn allowed(&self, plugin: &Plugin) -> Offers {
        Offers::allowed(&self.inner, plugin)
    }

    /// Plugins that run or sleep with what they offer, in their order.
    fn offering(&self, wants: impl Fn(Offers) -> bool) -> Vec<Arc<Plugin>> {
        let offers = |plugin: &Arc<Plugin>| {
            let state = plugin.state();
            match (&state.running, &state.asleep) {
                (Some(running), _) => running.offers,
                (None, Some(_)) => state.offers,
                (None, None) => Offers::default(),
            }
        };
        let is_wanted = |plugin: &Arc<Plugin>| wants(offers(plugin).and(self.allowed(plugin)));
        self.inner.all().into_iter().filter(is_wanted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_what_was_offered() {
        for (prompts, resources, completions) in [(false, false, false), (true, false, true), (true, true, true)] {
            let offers = Offers { prompts, resources, completions, logging: !prompts };
            assert_eq!(Offers::from_setting(&offers.to_setting()), offers);
        }
        assert_eq!(Offers::from_setting("tools later"), Offers::default(), "words of a newer version are no offers");
    }

    #[test]
    fn a_removed_plugin_owns_nothing() {
        let directory = Directory::default();
        let (gone, stays) = (PluginId::new("gone").unwrap(), PluginId::new("stays").unwrap());
        for (index, owner) in [gone, stays].into_iter().enumerate() {
            let mut known = directory.known();
            known.prompts.insert(index.to_string(), (owner.clone(), "p".to_owned()));
            known.resources.insert(index.to_string(), vec![owner.clone()]);
            known.templates.insert(index.to_string(), vec![owner]);
        }
        directory.forget("gone");
        let known = directory.known();
        assert_eq!((known.prompts.len(), known.resources.len(), known.templates.len()), (1, 1, 1));
        assert_eq!(known.resources["1"][0].as_str(), "stays");
    }
}
