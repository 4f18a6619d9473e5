//! The tool registry: which tools can be called, under which names, and where each call goes.
//!
//! Owns the current [`Snapshot`]; a snapshot is immutable and is replaced whole, so that no reader ever sees half of
//! a plugin's tools (requirement 47). Names resolve by exact maps and never by splitting (B007, B064). Refuses to
//! know how a tool is run: a route is handed in and handed out.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use plugward_policy::{NamingMode, PluginId, PluginTools, RemoteToolName, ToolId, expose};
use tokio::sync::watch;

use crate::call::Route;
use crate::config::Naming;
use crate::contract::ToolDefinition;

/// One callable tool.
#[derive(Clone)]
pub(crate) struct RegisteredTool {
    /// Internal id.
    pub(crate) id: ToolId,
    /// Name MCP clients see.
    pub(crate) exposed_name: String,
    /// What the plugin said about it.
    pub(crate) definition: Arc<ToolDefinition>,
    /// Where its calls go.
    pub(crate) route: Arc<Route>,
}

/// All tools that can be called at one moment.
#[derive(Default)]
pub struct Snapshot {
    version: u64,
    tools: Vec<RegisteredTool>,
    by_id: HashMap<String, usize>,
    by_exposed: HashMap<String, usize>,
}

impl Snapshot {
    /// Rises with each change of what is offered.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Number of tools.
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Whether there is no tool.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Whether a reader of the list would find the same one.
    fn offers_the_same_as(&self, other: &Self) -> bool {
        let offer = |tool: &RegisteredTool| (tool.exposed_name.clone(), tool.definition.digest);
        self.tools.iter().map(offer).eq(other.tools.iter().map(offer))
    }

    pub(crate) fn tools(&self) -> &[RegisteredTool] {
        &self.tools
    }

    pub(crate) fn by_id(&self, id: &str) -> Option<&RegisteredTool> {
        self.by_id.get(id).map(|&index| &self.tools[index])
    }

    pub(crate) fn by_exposed(&self, name: &str) -> Option<&RegisteredTool> {
        self.by_exposed.get(name).map(|&index| &self.tools[index])
    }
}

/// A tool id, or in pass-through naming a tool name, that two plugins claim (requirement 39).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolConflict {
    /// The tool that cannot be registered.
    pub(crate) id: ToolId,
    /// The plugin that has its id or name.
    pub(crate) owner: PluginId,
    /// Whether it is the name that is taken.
    pub(crate) is_name: bool,
}

/// Place of a plugin in every list: install order, so that lists keep their order between starts (B053).
pub(crate) type PluginRank = u64;

struct Entry {
    rank: PluginRank,
    /// Tools of the approved contract, whether or not it runs: their exposed names are stable, and a call of one that is
    /// away gets the reason.
    known: Vec<RemoteToolName>,
    tools: Vec<(Arc<ToolDefinition>, Arc<Route>)>,
}

/// The registry. Cheap to read; changes are serialised.
pub(crate) struct Registry {
    naming: Naming,
    entries: Mutex<BTreeMap<PluginId, Entry>>,
    current: RwLock<Arc<Snapshot>>,
    /// Names of all known tools, callable or not.
    names: RwLock<Arc<ExposedNames>>,
    changed: watch::Sender<u64>,
}

impl Registry {
    pub(crate) fn new(naming: Naming) -> Self {
        Self {
            naming,
            entries: Mutex::default(),
            current: RwLock::default(),
            names: RwLock::default(),
            changed: watch::Sender::new(0),
        }
    }

    /// The tools that can be called now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Told the version after each change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Announces the tools a plugin is known to have, without making them callable.
    pub(crate) fn announce(&self, plugin: &PluginId, rank: PluginRank, known: Vec<RemoteToolName>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry =
            entries.entry(plugin.clone()).or_insert_with(|| Entry { rank, known: Vec::new(), tools: Vec::new() });
        entry.rank = rank;
        entry.known = known;
        self.rename(&entries);
    }

    /// Checks ids for a plugin that is about to start (requirement 39: before any process).
    pub(crate) fn check_conflicts(&self, plugin: &PluginId, ids: &[ToolId]) -> Result<(), ToolConflict> {
        conflicts(self.naming, &self.snapshot(), plugin, ids)
    }

    /// Replaces the whole set of a plugin's callable tools at once.
    pub(crate) fn publish(
        &self,
        plugin: &PluginId,
        rank: PluginRank,
        tools: Vec<(Arc<ToolDefinition>, Arc<Route>)>,
    ) -> Result<(), ToolConflict> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let ids: Vec<ToolId> = tools.iter().map(|(tool, _)| ToolId::new(plugin.clone(), tool.name.clone())).collect();
        // With the entries locked nobody replaces the snapshot, which holds the tools of all of them.
        conflicts(self.naming, &self.snapshot(), plugin, &ids)?;
        let entry =
            entries.entry(plugin.clone()).or_insert_with(|| Entry { rank, known: Vec::new(), tools: Vec::new() });
        // They stay known when the plugin stops: a tool that is away is not one nobody has heard of.
        let new = tools.iter().map(|(tool, _)| tool.name.clone()).filter(|name| !entry.known.contains(name));
        entry.known.extend(new.collect::<Vec<_>>());
        entry.tools = tools;
        self.rebuild(&entries);
        Ok(())
    }

    /// Leads the calls of a plugin's tools another way; the tools stay as they are.
    pub(crate) fn reroute(&self, plugin: &PluginId, route: &Arc<Route>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get_mut(plugin) {
            for (_, old) in &mut entry.tools {
                *old = Arc::clone(route);
            }
            self.rebuild(&entries);
        }
    }

    /// Takes a plugin's tools out; they are not callable from the moment this returns.
    pub(crate) fn withdraw(&self, plugin: &PluginId) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get_mut(plugin)
            && !entry.tools.is_empty()
        {
            entry.tools.clear();
            self.rebuild(&entries);
        }
    }

    /// Forgets a plugin.
    pub(crate) fn forget(&self, plugin: &PluginId) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        match entries.remove(plugin) {
            Some(entry) if !entry.tools.is_empty() => self.rebuild(&entries),
            _ => drop(self.rename(&entries)),
        }
    }

    /// Exposed names of all known tools, callable or not.
    pub(crate) fn exposed_names(&self) -> Arc<ExposedNames> {
        Arc::clone(&self.names.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn rename(&self, entries: &BTreeMap<PluginId, Entry>) -> Arc<ExposedNames> {
        let names = Arc::new(exposed_names(self.naming, entries));
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&names);
        names
    }

    fn rebuild(&self, entries: &BTreeMap<PluginId, Entry>) {
        let names = self.rename(entries);
        let mut order: Vec<(&PluginId, &Entry)> = entries.iter().collect();
        order.sort_by(|(a_id, a), (b_id, b)| a.rank.cmp(&b.rank).then_with(|| a_id.cmp(b_id)));
        let mut snapshot = Snapshot::default();
        for (plugin, entry) in order {
            for (definition, route) in &entry.tools {
                let id = ToolId::new(plugin.clone(), definition.name.clone());
                let Some(exposed) = names.exposed(&id) else { continue };
                let index = snapshot.tools.len();
                snapshot.by_id.insert(id.to_string(), index);
                snapshot.by_exposed.insert(exposed.to_owned(), index);
                snapshot.tools.push(RegisteredTool {
                    id,
                    exposed_name: exposed.to_owned(),
                    definition: Arc::clone(definition),
                    route: Arc::clone(route),
                });
            }
        }
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        // Where calls go is nobody's business: a client told of it would read the same list again.
        let is_same = snapshot.offers_the_same_as(&current);
        snapshot.version = current.version + u64::from(!is_same);
        let version = snapshot.version;
        *current = Arc::new(snapshot);
        drop(current);
        if !is_same {
            self.changed.send_replace(version);
        }
    }
}

fn conflicts(naming: Naming, snapshot: &Snapshot, plugin: &PluginId, ids: &[ToolId]) -> Result<(), ToolConflict> {
    let of_another = |taken: &&RegisteredTool| taken.id.plugin() != plugin;
    for id in ids {
        // `a.b` + `c` and `a` + `b.c` are different tools with one id.
        let same_id = snapshot.by_id(&id.to_string()).filter(of_another);
        let same_name = match naming {
            Naming::Prefixed => None,
            Naming::PassThrough => snapshot.by_exposed(id.name().as_str()).filter(of_another),
        };
        if let Some(taken) = same_id.or(same_name) {
            let owner = taken.id.plugin().clone();
            return Err(ToolConflict { id: id.clone(), owner, is_name: same_id.is_none() });
        }
    }
    Ok(())
}

/// The exposed name of every known tool, and the way back.
#[derive(Default)]
pub(crate) struct ExposedNames {
    exposed: HashMap<ToolId, String>,
    by_exposed: HashMap<String, ToolId>,
    by_id: HashMap<String, ToolId>,
}

impl ExposedNames {
    fn new(names: Vec<plugward_policy::ExposedName>) -> Self {
        let mut all = Self::default();
        for name in names {
            all.by_exposed.insert(name.exposed.clone(), name.tool.clone());
            all.by_id.insert(name.tool.to_string(), name.tool.clone());
            all.exposed.insert(name.tool, name.exposed);
        }
        all
    }

    /// The name MCP clients see for a tool.
    pub(crate) fn exposed(&self, id: &ToolId) -> Option<&str> {
        self.exposed.get(id).map(String::as_str)
    }

    /// The tool with this exposed name.
    pub(crate) fn by_exposed(&self, name: &str) -> Option<&ToolId> {
        self.by_exposed.get(name)
    }

    /// The tool with this id.
    pub(crate) fn by_id(&self, id: &str) -> Option<&ToolId> {
        self.by_id.get(id)
    }
}

fn exposed_names(naming: Naming, entries: &BTreeMap<PluginId, Entry>) -> ExposedNames {
    let mut order: Vec<(&PluginId, &Entry)> = entries.iter().collect();
    order.sort_by(|(a_id, a), (b_id, b)| a.rank.cmp(&b.rank).then_with(|| a_id.cmp(b_id)));
    let (mode, taken) = match naming {
        Naming::Prefixed => (NamingMode::Prefixed, None),
        Naming::PassThrough => (NamingMode::PassThrough, Some(owners(&order))),
    };
    let is_owner = |plugin: &PluginId, name: &RemoteToolName| {
        taken.as_ref().is_none_or(|taken| taken.get(name).is_some_and(|owner| *owner == plugin))
    };
    let sets: Vec<PluginTools> = order
        .iter()
        .map(|(plugin, entry)| PluginTools {
            plugin: (*plugin).clone(),
            prefix: String::new(),
            tools: entry.known.iter().filter(|name| is_owner(plugin, name)).cloned().collect(),
        })
        .collect();
    let names = expose(&sets, mode).unwrap_or_else(|clash| {
        // Every name has one owner, so this is a defect of ours; without names nothing can be called by mistake.
        tracing::error!("{clash}");
        Vec::new()
    });
    let mut names = ExposedNames::new(names);
    // A tool whose name another one has is still known by its id.
    for (plugin, entry) in order {
        for id in entry.known.iter().map(|name| ToolId::new(plugin.clone(), name.clone())) {
            names.by_id.entry(id.to_string()).or_insert(id);
        }
    }
    names
}

/// Whose each name is in pass-through naming: a tool that can be called keeps its name, the first plugin installed has
/// it otherwise.
fn owners<'e>(order: &[(&'e PluginId, &'e Entry)]) -> HashMap<&'e RemoteToolName, &'e PluginId> {
    let callable = order.iter().flat_map(|(plugin, entry)| entry.tools.iter().map(|(tool, _)| (&tool.name, *plugin)));
    let known = order.iter().flat_map(|(plugin, entry)| entry.known.iter().map(|name| (name, *plugin)));
    let mut owners = HashMap::new();
    for (name, plugin) in callable.chain(known) {
        owners.entry(name).or_insert(plugin);
    }
    owners
}
