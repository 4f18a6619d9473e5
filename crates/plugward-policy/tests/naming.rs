//! Exposed tool names: legal, all different, and the same whatever the order.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail the test")]

use std::collections::{BTreeMap, BTreeSet};

use plugward_policy::{EXPOSED_NAME_BYTES_MAX, ExposedName, NamingError, NamingMode, PluginTools, expose};
use proptest::prelude::*;

fn tools(plugin: &str, prefix: &str, names: &[&str]) -> PluginTools {
    PluginTools {
        plugin: plugin.parse().unwrap(),
        prefix: prefix.to_owned(),
        tools: names.iter().map(|name| name.parse().unwrap()).collect(),
    }
}

fn names(plugins: &[PluginTools]) -> Vec<String> {
    let exposed = expose(plugins, NamingMode::Prefixed).unwrap();
    exposed.into_iter().map(|name| name.exposed).collect()
}

fn by_tool(exposed: &[ExposedName]) -> BTreeMap<(String, String), String> {
    let key = |name: &ExposedName| (name.tool.plugin().to_string(), name.tool.name().to_string());
    exposed.iter().map(|name| (key(name), name.exposed.clone())).collect()
}

fn is_legal(name: &str) -> bool {
    (1..=EXPOSED_NAME_BYTES_MAX).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

#[test]
fn ordinary_tools_get_readable_names_in_the_servers_order() {
    let plugins = [
        tools("files", "", &["readFile", "list-dir"]),
        tools("org.example.mail", "mail", &["send", "drafts.list"]),
        tools("org.example", "", &["x"]),
    ];
    let wanted = ["files_readFile", "files_list-dir", "mail_send", "mail_drafts_list", "org_example_x"];
    assert_eq!(names(&plugins), wanted);
}

// B007: joins that look alike never reach the wrong server.
#[test]
fn clashing_joins_are_all_told_apart() {
    let mut plugins = vec![
        tools("alpha", "", &["send", "send_x"]),
        tools("beta", "", &["send", "send_x"]),
        tools("alpha_send", "", &["send", "x"]),
    ];
    let exposed = expose(&plugins, NamingMode::Prefixed).unwrap();
    let found = by_tool(&exposed);
    let unique: BTreeSet<&String> = found.values().collect();
    assert_eq!(unique.len(), 6);
    // `alpha` + `send_x` and `alpha_send` + `x` join to the same text: neither keeps it.
    assert!(!found.values().any(|name| name == "alpha_send_x"), "{found:?}");
    assert_eq!(found[&("alpha".to_owned(), "send".to_owned())], "alpha_send");
    assert_eq!(found[&("beta".to_owned(), "send_x".to_owned())], "beta_send_x");
    plugins.reverse();
    assert_eq!(by_tool(&expose(&plugins, NamingMode::Prefixed).unwrap()), found);
}

// B024: a name no model API would take is cut, and still reaches its tool.
#[test]
fn long_names_are_cut_and_stay_apart() {
    let long = "x".repeat(128);
    let (one, two) = (format!("{}1", "y".repeat(100)), format!("{}2", "y".repeat(100)));
    let fits = "z".repeat(59);
    let plugins = [tools("demo", "", &[&long, &one, &two, &fits])];
    let found = names(&plugins);
    assert!(found.iter().all(|name| is_legal(name)), "{found:?}");
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 4);
    assert_eq!(found[0].len(), 64);
    assert_eq!(found[3], format!("demo_{fits}"));
    assert_eq!(names(&plugins), found);
}

#[test]
fn a_name_that_imitates_another_ones_hash_takes_nothing_over() {
    let victim = [tools("a", "", &["b.c", "b_c"])];
    let hashed = names(&victim);
    assert_ne!(hashed[0], hashed[1]);
    let stolen = hashed[0].strip_prefix("a_").unwrap();
    let plugins = [tools("a", "", &["b.c", "b_c", stolen])];
    let found = names(&plugins);
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 3);
    assert_eq!(found[1], hashed[1]);
    assert!(found[2] != hashed[0], "the imitator must not get the name: {found:?}");
}

#[test]
fn names_pass_through_unchanged_or_not_at_all() {
    let one = [tools("demo", "", &["a.b", "readFile"])];
    let exposed = expose(&one, NamingMode::PassThrough).unwrap();
    assert_eq!(exposed[0].exposed, "a.b");
    let two = [tools("b", "", &["send"]), tools("a", "", &["send"])];
    let error = expose(&two, NamingMode::PassThrough).unwrap_err();
    let wanted = "tool name `send` belongs to `a.send` and `b.send`: use prefixed names";
    assert_eq!(error.to_string(), wanted);
    let twice = [tools("a", "", &["send", "send"])];
    for mode in [NamingMode::PassThrough, NamingMode::Prefixed] {
        assert!(matches!(expose(&twice, mode), Err(NamingError::DuplicateTool(_))));
    }
}

/// Sets of plugins with few letters, so that clashes happen all the time.
fn plugin_sets() -> impl Strategy<Value = Vec<PluginTools>> {
    let name = prop_oneof![
        4 => "[ab]([._-]?[ab]){0,3}",
        1 => "[ab]{60,128}",
    ];
    let tool_names = proptest::collection::btree_set(name, 0..6);
    proptest::collection::btree_map("[ab]([._-]?[ab]){0,3}", (tool_names, "(a|b_|é|)"), 0..5).prop_map(|plugins| {
        let tools = |(plugin, (names, prefix)): (String, (BTreeSet<String>, String))| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            tools(&plugin, &prefix, &names)
        };
        plugins.into_iter().map(tools).collect()
    })
}

/// The name a tool has when nothing clashes, as far as it is legal.
fn plain(plugin: &PluginTools, tool: &str) -> String {
    let prefix = if plugin.prefix.is_empty() { plugin.plugin.as_str() } else { &plugin.prefix };
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    format!("{prefix}_{tool}").chars().map(legal).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    // B007, B024: every tool has one legal name of its own.
    #[test]
    fn names_are_legal_and_injective(plugins in plugin_sets()) {
        let exposed = expose(&plugins, NamingMode::Prefixed).unwrap();
        let count: usize = plugins.iter().map(|plugin| plugin.tools.len()).sum();
        prop_assert_eq!(exposed.len(), count);
        let unique: BTreeSet<&str> = exposed.iter().map(|name| name.exposed.as_str()).collect();
        prop_assert_eq!(unique.len(), count);
        prop_assert!(unique.iter().all(|name| is_legal(name)));
    }

    // B053: plugins come up in any order; an agent's cached prompt must still be right.
    #[test]
    fn names_do_not_depend_on_order(plugins in plugin_sets(), seed in any::<u64>()) {
        let mut shuffled = plugins.clone();
        let turn = usize::try_from(seed % 7).unwrap() % shuffled.len().max(1);
        shuffled.rotate_left(turn);
        for plugin in &mut shuffled {
            plugin.tools.reverse();
        }
        let one = by_tool(&expose(&plugins, NamingMode::Prefixed).unwrap());
        let two = by_tool(&expose(&shuffled, NamingMode::Prefixed).unwrap());
        prop_assert_eq!(one, two);
    }

    // A newcomer renames nobody it does not clash with.
    #[test]
    fn a_new_plugin_leaves_other_names_alone(plugins in plugin_sets(), extra in plugin_sets()) {
        let known: BTreeSet<String> =
            plugins.iter().map(|plugin| plugin.plugin.to_string()).collect();
        let added: Vec<PluginTools> =
            extra.into_iter().filter(|p| !known.contains(p.plugin.as_str())).collect();
        let claimed: BTreeSet<String> = added
            .iter()
            .flat_map(|plugin| plugin.tools.iter().map(|tool| plain(plugin, tool.as_str())))
            .collect();
        let before = by_tool(&expose(&plugins, NamingMode::Prefixed).unwrap());
        let all: Vec<PluginTools> = plugins.iter().chain(&added).cloned().collect();
        let after = by_tool(&expose(&all, NamingMode::Prefixed).unwrap());
        for (tool, name) in &before {
            if !claimed.contains(name) {
                prop_assert_eq!(&after[tool], name);
            }
        }
    }
}
