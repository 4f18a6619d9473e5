//! Lists of what plugins offer, merged.
//!
//! Owns asking all plugins at once, the limits of each list and the names under which items are told. An item without
//! the member that names it, and a prompt whose name cannot be made one of ours, is left out. Refuses to keep lists of
//! what runs: what is told is what the plugins say now.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plugward_policy::{NamingMode, PluginId, PluginTools, RemoteToolName, expose};
use plugward_protocol::mcp;
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use super::forward::reason;
use super::wake::awake;
use super::{Directory, Items, Known, MAX_REMEMBERED, OfferList, Owners, forget_owner};
use crate::call::admission::Share;
use crate::config::Naming;
use crate::host::Host;
use crate::raw_object::RawObject;
use crate::session::masked;
use crate::supervisor::{Plugin, Running};

/// Time a plugin has for its whole list; the others are not held up longer by one that hangs.
const LIST_LIMIT: Duration = Duration::from_secs(5);

/// Pages of one plugin's list.
const MAX_PAGES: usize = 100;

/// Items of one plugin's list. Servers over file trees list thousands; nobody chooses from more.
const MAX_ITEMS: usize = 2000;

/// Bytes of one plugin's items, so that the lists of several fit into memory and a message.
const MAX_BYTES: usize = 1024 * 1024;

/// An item as it is told, and whose it is.
type Offered = (PluginId, Box<RawValue>);

impl Host {
    /// All items of a list that the asker sees with the plugins they are of, under names by which they can be asked for.
    /// Every plugin is asked, whoever wants to know: the names are the same for all clients. One that sleeps is not woken
    /// for what it listed before.
    pub async fn list_offers(&self, list: OfferList, sees: impl Fn(&PluginId) -> bool) -> Vec<Offered> {
        let plugins = self.offering(|offers| list.is_in(offers));
        let mut asking = JoinSet::new();
        for (index, plugin) in plugins.iter().enumerate() {
            let (inner, plugin) = (Arc::clone(&self.inner), Arc::clone(plugin));
            asking.spawn(async move { (index, kept_items(&inner.offers, &plugin, list).await) });
        }
        let mut found: Vec<(PluginId, Items)> =
            plugins.iter().map(|plugin| (plugin.id.clone(), Items::new())).collect();
        while let Some(asked) = asking.join_next().await {
            if let Ok((index, items)) = asked {
                found[index].1 = items;
            }
        }
        let mut known = self.inner.offers.known();
        match list {
            OfferList::Prompts => {
                let told = name_prompts(&mut known, found, self.inner.config.naming);
                told.into_iter().filter(|(plugin, _)| sees(plugin)).collect()
            }
            OfferList::Resources => own_resources(&mut known, found, &sees),
            OfferList::ResourceTemplates => own_templates(&mut known, found, &sees),
        }
    }
}

/// What one plugin lists, or listed before it fell asleep.
async fn kept_items(directory: &Directory, plugin: &Arc<Plugin>, list: OfferList) -> Items {
    let sleeps = plugin.manifest.supervision.sleeps();
    let key = (plugin.id.clone(), list);
    if sleeps && plugin.running().is_none() {
        let kept = directory.lists().get(&key).cloned();
        if let Some(kept) = kept {
            return kept;
        }
    }
    let Some(running) = awake(plugin, LIST_LIMIT).await else { return Items::new() };
    let items = items(plugin, &running, list).await;
    if sleeps {
        directory.lists().insert(key, items.clone());
    }
    items
}

/// What one plugin lists; as much as came in time and within limits.
async fn items(plugin: &Plugin, running: &Running, list: OfferList) -> Items {
    let deadline = Instant::now() + LIST_LIMIT;
    if let Some(prompt) = plugin.manifest.backend.prompt() {
        return super::prompt::item(prompt).into_iter().collect();
    }
    let (mut items, mut bytes, mut seen) = (Items::new(), 0, HashSet::new());
    let mut cursor: Option<String> = None;
    let Some(launched) = &running.launched else { return items };
    // With its calls, however many clients ask for lists at once.
    let share = Share::new("offers", 0);
    let Ok(Ok(_place)) = tokio::time::timeout(LIST_LIMIT, running.route.admission.enter(&share)).await else {
        tracing::warn!(plugin = %plugin.id, "`{}` of a plugin is left out: it is too busy", list.method());
        return items;
    };
    for _ in 0..MAX_PAGES {
        let left = deadline.saturating_duration_since(Instant::now());
        let params = mcp::list_params(cursor.as_deref());
        let answer = match launched.session.request(list.method(), params, left).await {
            Ok(answer) => masked(&running.route.secrets, answer),
            Err(error) => {
                let reason = reason(&error, LIST_LIMIT);
                tracing::warn!(plugin = %plugin.id, "`{}` of a plugin failed: {reason}", list.method());
                break;
            }
        };
        let Some(page) = RawObject::parse(&answer) else { break };
        let entries = page.get(list.member()).map(|raw| serde_json::from_str::<Vec<Box<RawValue>>>(raw.get()));
        for entry in entries.and_then(Result::ok).unwrap_or_default() {
            let Some(item) = RawObject::parse(&entry) else { continue };
            let Some(name) = item.get_str(list.key()) else { continue };
            bytes += entry.get().len();
            if items.len() == MAX_ITEMS || bytes > MAX_BYTES {
                tracing::warn!(plugin = %plugin.id, "`{}` of a plugin is cut: it is too long", list.method());
                return items;
            }
            items.push((name, item));
        }
        match page.get_str("nextCursor") {
            Some(next) if !next.is_empty() && seen.insert(next.clone()) => cursor = Some(next),
            _ => break,
        }
    }
    items
}

/// Prompts are named as tools are.
fn name_prompts(known: &mut Known, found: Vec<(PluginId, Items)>, naming: Naming) -> Vec<Offered> {
    let mode = match naming {
        Naming::Prefixed => NamingMode::Prefixed,
        Naming::PassThrough => NamingMode::PassThrough,
    };
    let mut taken = HashSet::new();
    let mut sets = Vec::new();
    let mut items = Vec::new();
    for (plugin, prompts) in found {
        let mut names = Vec::new();
        for (name, item) in prompts {
            let Ok(remote) = RemoteToolName::new(name.clone()) else { continue };
            // One plugin's name twice, and in pass-through naming one of another plugin, is told once.
            let owner = if mode == NamingMode::PassThrough { None } else { Some(plugin.clone()) };
            if taken.insert((owner, name.clone())) {
                names.push(remote);
                items.push((name, item));
            }
        }
        sets.push(PluginTools { plugin, prefix: String::new(), tools: names });
    }
    let Ok(names) = expose(&sets, mode) else { return Vec::new() };
    known.prompts.clear();
    let mut told = Vec::new();
    for (exposed, (name, mut item)) in names.into_iter().zip(items) {
        item.set_str("name", &exposed.exposed);
        let plugin = exposed.tool.plugin().clone();
        told.push((plugin.clone(), item.to_raw()));
        known.prompts.insert(exposed.exposed, (plugin, name));
    }
    told
}

/// A resource belongs to the first plugin that listed it, also while that one is away: the same URI must not mean another
/// thing a moment later.
fn own_resources(known: &mut Known, found: Vec<(PluginId, Items)>, sees: &impl Fn(&PluginId) -> bool) -> Vec<Offered> {
    let mut told = Vec::new();
    for (plugin, items) in found {
        for (uri, item) in items {
            if own(&mut known.resources, uri, &plugin, sees) {
                told.push((plugin.clone(), item.to_raw()));
            } else if sees(&plugin) {
                tracing::debug!(plugin = %plugin, "a resource is left out: another plugin has the same URI");
            }
        }
    }
    told
}

/// Remembers that a plugin has something; whether that is what it means to a client that sees these plugins.
fn own(owners: &mut Owners, what: String, plugin: &PluginId, sees: &impl Fn(&PluginId) -> bool) -> bool {
    if owners.len() >= MAX_REMEMBERED && !owners.contains_key(&what) {
        make_room(owners);
    }
    let plugins = owners.entry(what).or_default();
    if !plugins.contains(plugin) {
        plugins.push(plugin.clone());
    }
    plugins.iter().find(|owner| sees(owner)) == Some(plugin)
}

/// Forgets what the plugin with most has: one that lists ever new things loses its own, and nothing of others.
fn make_room(owners: &mut Owners) {
    let mut counts: HashMap<&PluginId, usize> = HashMap::new();
    for plugin in owners.values().flatten() {
        *counts.entry(plugin).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(plugin, _)| plugin.to_string());
    if let Some(most) = most {
        forget_owner(owners, &most);
    }
}

fn own_templates(known: &mut Known, found: Vec<(PluginId, Items)>, sees: &impl Fn(&PluginId) -> bool) -> Vec<Offered> {
    let mut told = Vec::new();
    for (plugin, items) in found {
        for (template, item) in items {
            let beginning = template.split('{').next().unwrap_or_default().to_owned();
            // Without a scheme it fits resources of any plugin, and would take them over.
            if !beginning.contains(':') {
                if sees(&plugin) {
                    told.push((plugin.clone(), item.to_raw()));
                }
                continue;
            }
            if own(&mut known.templates, beginning, &plugin, sees) {
                told.push((plugin.clone(), item.to_raw()));
            }
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(id: &str) -> PluginId {
        PluginId::new(id).unwrap()
    }

    fn items(key: &str, names: &[&str]) -> Items {
        let item = |name: &&str| {
            let raw = RawValue::from_string(serde_json::json!({key: name, "x": 1}).to_string()).unwrap();
            ((*name).to_owned(), RawObject::parse(&raw).unwrap())
        };
        names.iter().map(item).collect()
    }

    fn texts(told: &[Offered]) -> Vec<&str> {
        told.iter().map(|(_, raw)| raw.get()).collect()
    }

    #[test]
    fn prompts_of_two_plugins_are_told_apart_and_found_again() {
        // B007 for prompts: `a` of one plugin must never answer for `a` of the other.
        let mut known = Known::default();
        let found =
            vec![(plugin("one"), items("name", &["a", "a", "bad name"])), (plugin("two"), items("name", &["a"]))];
        let told = name_prompts(&mut known, found.clone(), Naming::Prefixed);
        assert_eq!(texts(&told), [r#"{"name":"one_a","x":1}"#, r#"{"name":"two_a","x":1}"#]);
        assert_eq!(known.prompts["two_a"], (plugin("two"), "a".to_owned()));
        let told = name_prompts(&mut known, found, Naming::PassThrough);
        assert_eq!(texts(&told), [r#"{"name":"a","x":1}"#]);
        assert_eq!((known.prompts.len(), &known.prompts["a"].0), (1, &plugin("one")));
    }

    fn all(_: &PluginId) -> bool {
        true
    }

    #[test]
    fn a_plugin_that_lists_ever_new_things_takes_nothing_from_others() {
        // Else a flood would make a URI of one plugin mean another's a moment later.
        let mut known = Known::default();
        own_resources(&mut known, vec![(plugin("two"), items("uri", &["x:1"]))], &all);
        for round in 0..=MAX_REMEMBERED {
            own(&mut known.resources, format!("flood:{round}"), &plugin("one"), &all);
        }
        assert!(known.resources.len() <= MAX_REMEMBERED);
        assert_eq!(known.resources["x:1"], [plugin("two")]);
    }

    #[test]
    fn a_resource_keeps_its_owner() {
        let mut known = Known::default();
        let first = own_resources(&mut known, vec![(plugin("two"), items("uri", &["x:1"]))], &all);
        assert_eq!(first.len(), 1);
        let both = vec![(plugin("one"), items("uri", &["x:1", "x:2"])), (plugin("two"), items("uri", &["x:1"]))];
        let told = own_resources(&mut known, both.clone(), &all);
        assert_eq!(texts(&told), [r#"{"uri":"x:2","x":1}"#, r#"{"uri":"x:1","x":1}"#]);
        assert_eq!(known.resources["x:1"][0], plugin("two"), "whoever comes first in the order came second in time");
        // A client that does not see the first has it from the next.
        let only_one = |id: &PluginId| id.as_str() == "one";
        let told = own_resources(&mut known, both, &only_one);
        assert_eq!(texts(&told), [r#"{"uri":"x:1","x":1}"#, r#"{"uri":"x:2","x":1}"#]);
        let templates = vec![
            (plugin("one"), items("uriTemplate", &["t:{a}/b", "t:{b}"])),
            (plugin("two"), items("uriTemplate", &["t:{c}"])),
        ];
        assert_eq!(own_templates(&mut known, templates, &all).len(), 2);
        assert_eq!(known.templates["t:"][0], plugin("one"));
        let greedy = vec![(plugin("two"), items("uriTemplate", &["{+uri}", "te{x}"]))];
        assert_eq!(own_templates(&mut known, greedy, &all).len(), 2, "they are told");
        assert_eq!(known.templates.len(), 1, "what fits every resource owns none");
    }
}
