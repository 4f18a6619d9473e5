//! Public fault reports about tool lists and their schemas: one bad tool, odd dialects and hostile patterns must not
//! cost a user the rest of a server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plugward_host::{CallRequest, ToolSelector};
use serde_json::{Value, json};

use crate::cases_support::{Schemas, Switchable, call_raw, exposed_text, quarantine_reason};
use crate::support::{Fixture, Settings, TestHost};

#[tokio::test(flavor = "multi_thread")]
async fn b006_recursive_references_work_and_dangling_ones_cost_one_tool() {
    let test = TestHost::new().await;
    let view = test.run(&Fixture::imported("r", &["refs"])).await;
    assert_eq!(view.status.as_str(), "ready");
    assert_eq!(test.tool_names("r"), ["tree", "dangling_out", "plain"]);
    let reason = quarantine_reason(&test, "r", "dangling_in").await.unwrap();
    assert!(reason.contains("#/$defs/Gone"), "{reason}");
    // The bad result schema costs the schema, not the tool.
    let exposed = test.host.exposed_definitions();
    let out = exposed.iter().find(|tool| tool.get().contains("dangling_out")).unwrap();
    assert!(!out.get().contains("outputSchema"), "{}", out.get());
    let fits = json!({"root": {"v": 1, "kids": [{"v": 2, "kids": [{"v": 3}]}]}});
    assert_eq!(test.text("r.tree", fits).await, "tree");
    let failure = test.call("r.tree", json!({"root": {"v": 1, "kids": [{"v": "x"}]}})).await.outcome.unwrap_err();
    assert_eq!(failure.cause(), "argument_invalid");
    assert!(failure.message("r.tree").contains("/root/kids/0/v"), "{}", failure.message("r.tree"));
    test.close().await;
}

/// Names by tool id, as clients see them.
fn exposed(test: &TestHost) -> BTreeMap<String, String> {
    test.host.tools().into_iter().map(|tool| (tool.id.to_string(), tool.exposed_name)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn b007_equal_tool_names_stay_apart_and_stable_in_any_start_order() {
    // `al.pha` and `al_pha` become the same prefix once characters that model APIs refuse are replaced.
    let servers = [("alpha", "alpha"), ("beta", "beta"), ("alpha_send", "gamma"), ("al.pha", "dot"), ("al_pha", "bar")];
    let test = TestHost::new().await;
    for (id, me) in servers {
        test.run(&Fixture::imported(id, &["collision", "--me", me])).await;
    }
    let names = exposed(&test);
    assert_eq!(names.len(), 10);
    assert_eq!(names.values().collect::<BTreeSet<_>>().len(), 10, "{names:?}");
    for (id, me) in servers {
        for tool in ["send", "send_x"] {
            let name = &names[&format!("{id}.{tool}")];
            assert_eq!(exposed_text(&test, name).await, format!("{me}:{tool}"), "{name}");
        }
    }
    for round in 0..10 {
        for (id, _) in servers {
            test.host.disable(id).await.unwrap();
        }
        for index in 0..servers.len() {
            let (id, _) = servers[(index * 2 + round) % servers.len()];
            test.host.enable(id).await.unwrap();
        }
        assert_eq!(exposed(&test), names, "round {round}");
    }
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b009_a_schema_without_properties_is_kept_and_no_arguments_are_an_empty_object() {
    let s = Schemas::of(&[("bare", r#"{"type":"object"}"#)]).await;
    assert_eq!(s.exposed_schema("bare"), r#"{"type":"object"}"#);
    for arguments in [Some("{}"), None, Some("null")] {
        let reply = call_raw(&s.test, "s.bare", arguments).await.outcome.unwrap();
        let text = reply.output()["content"][0]["text"].as_str().unwrap().to_owned();
        let seen: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(seen["arguments"], json!({}), "{arguments:?}");
    }
    s.expect("bare", &[(r#"{"extra":1}"#, None)]).await;
    s.test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b010_malformed_tools_are_left_out_with_a_reason_and_the_others_work() {
    let test = TestHost::new().await;
    let view = test.run(&Fixture::imported("b", &["bad-tools"])).await;
    assert_eq!(view.status.as_str(), "ready");
    assert_eq!(test.tool_names("b"), ["good", "no_schema", "null_schema", "bool_prop", "good2"]);
    let reason = async |tool: &str| quarantine_reason(&test, "b", tool).await.unwrap_or_default();
    assert!(reason("bad_int").await.contains("/properties/n/type"));
    assert!(reason("bad_root").await.contains("object"));
    assert!(reason("req_in_props").await.contains("/properties/required"));
    // The nameless, the empty-named and the entry that is no object.
    assert_eq!(view.quarantined_tools.len(), 6, "{:?}", view.quarantined_tools);
    for tool in ["good2", "no_schema", "null_schema"] {
        assert_eq!(test.text(&format!("b.{tool}"), json!({})).await, tool);
    }
    // Requirement 55: what is not registered cannot be called.
    let failure = test.call("b.bad_int", json!({})).await.outcome.unwrap_err();
    assert_eq!(failure.cause(), "tool_not_found");
    test.close().await;
}

const DRAFT_07: &str = r##"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object",
"definitions":{"nr":{"type":"integer","minimum":1}},"properties":{"nr":{"$ref":"#/definitions/nr"},
"pair":{"type":"array","items":[{"type":"string"},{"type":"number"}],"additionalItems":false}},"required":["nr"]}"##;

const DRAFT_2020: &str = r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":
{"pair":{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}],"items":false}}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn b014_each_dialect_means_what_it_says() {
    let unknown = r#"{"$schema":"https://schemas.test/v9","type":"object","properties":{"n":{"type":"integer"}}}"#;
    let s = Schemas::of(&[("d07", DRAFT_07), ("d2020", DRAFT_2020), ("unknown", unknown)]).await;
    assert_eq!(s.test.tool_names("s"), ["d07", "d2020", "unknown"]);
    let d07 = [
        (r#"{"nr":1,"pair":["a",2]}"#, None),
        (r#"{"nr":1,"pair":["a","b"]}"#, Some("/pair/1")),
        (r#"{"nr":1,"pair":["a",2,3]}"#, Some("/pair")),
        (r#"{"nr":0}"#, Some("/nr")),
    ];
    s.expect("d07", &d07).await;
    s.expect("d2020", &[(r#"{"pair":["a",2]}"#, None), (r#"{"pair":["a",2,3]}"#, Some("/pair"))]).await;
    s.expect("unknown", &[(r#"{"n":1}"#, None), (r#"{"n":"1"}"#, Some("/n"))]).await;
    let about_schemas = s.test.host.plugin("s").await.unwrap().warnings;
    let about_schemas: Vec<_> = about_schemas.iter().filter(|warning| warning.contains("inputSchema")).collect();
    assert!(about_schemas.len() == 1 && about_schemas[0].contains("unknown"), "{about_schemas:?}");
    s.test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b017_types_as_arrays_pass_unchanged_and_hold() {
    let schema = concat!(
        r#"{"type":"object","properties":{"owner":{"type":["integer","null"]},"#,
        r#""tags":{"type":["array","null"],"items":{"type":["object","null"]}}},"required":["owner"]}"#
    );
    let s = Schemas::of(&[("t", schema)]).await;
    assert_eq!(s.exposed_schema("t"), schema);
    let cases = [
        (r#"{"owner":null}"#, None),
        (r#"{"owner":3,"tags":[null,{"v":1}]}"#, None),
        (r#"{"owner":"3"}"#, Some("/owner")),
        (r#"{"owner":1,"tags":["x"]}"#, Some("/tags/0")),
    ];
    s.expect("t", &cases).await;
    s.test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b024_long_names_fit_every_model_api_and_survive_a_restart_of_the_host() {
    let id = "enterprise-database-management-server";
    let test = TestHost::new().await;
    test.run(&Fixture::imported(id, &["names"])).await;
    let names = exposed(&test);
    assert_eq!(names.values().collect::<BTreeSet<_>>().len(), 4);
    for (tool, name) in &names {
        let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        assert!((1..=64).contains(&name.len()) && name.chars().all(is_legal), "{name}");
        assert_eq!(exposed_text(&test, name).await, tool.strip_prefix(&format!("{id}.")).unwrap());
    }
    let home = test.close().await;
    let test = TestHost::at(home, Settings::default()).await;
    test.host.ensure_started(id).await.unwrap();
    assert_eq!(exposed(&test), names);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b053_ten_starts_in_changing_order_give_the_same_bytes() {
    // Clients cache their prompt by these bytes; a changed order costs a user money at each start.
    let folder = tempfile::tempdir().unwrap();
    let ids = ["north", "south", "west"];
    let test = TestHost::new().await;
    let mut plugins = Vec::new();
    for id in ids {
        let plugin = Switchable::new(folder.path(), id, &Fixture::imported(id, &[]), "order");
        plugin.run(&test, id).await;
        plugins.push(plugin);
    }
    let bytes = |test: &TestHost| {
        test.host.exposed_definitions().iter().map(|tool| tool.get().to_owned()).collect::<Vec<_>>().join("\n")
    };
    let first = bytes(&test);
    assert!(first.find("zeta").unwrap() < first.find("alpha").unwrap());
    assert!(first.contains(
        r#""properties":{"zeta":{"type":"string"},"alpha":{"type":"string"},"mu":{"type":"string"},"beta":{"type":"string"},"omega":{"type":"string"}}"#
    ));
    let mut home = test.close().await;
    for start in 0..10 {
        for (index, plugin) in plugins.iter().enumerate() {
            plugin.set(&format!("order --seconds 0.{}", (index + start) % 3));
        }
        let test = TestHost::at(home, Settings::default()).await;
        test.host.start_enabled();
        test.host.settled(Duration::from_secs(30)).await;
        assert_eq!(bytes(&test), first, "start {start}");
        home = test.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b054_patterns_of_every_kind_are_decided_in_bounded_time() {
    let look = r#"{"type":"object","properties":{"path":{"type":"string","pattern":"^(?!.*\\.\\.)[a-z./]+$"},
        "pw":{"type":"string","pattern":"^(?=.*\\d)(?=.*[A-Z]).{8,}$"}}}"#;
    let slow = r#"{"type":"object","properties":{"s":{"type":"string","pattern":"^(a+)+$"},
        "t":{"type":"string","pattern":"^((?=a)a+)+$"}}}"#;
    let letters = r#"{"type":"object","properties":{"u":{"type":"string","pattern":"^\\p{Lu}\\d+$"}}}"#;
    let bad = r#"{"type":"object","properties":{"s":{"type":"string","pattern":"([unclosed"}}}"#;
    let s = Schemas::of(&[("look", look), ("slow", slow), ("letters", letters), ("bad", bad)]).await;
    assert_eq!(s.test.tool_names("s"), ["look", "slow", "letters", "bad"]);
    let cases = [
        (r#"{"path":"a/b.txt"}"#, None),
        (r#"{"path":"a/../b"}"#, Some("/path")),
        (r#"{"pw":"Passw0rdX"}"#, None),
        (r#"{"pw":"password"}"#, Some("/pw")),
    ];
    s.expect("look", &cases).await;
    s.expect("letters", &[(r#"{"u":"Ä1"}"#, None), (r#"{"u":"ä1"}"#, Some("/u"))]).await;
    s.expect("bad", &[(r#"{"s":"x"}"#, None)]).await;
    let warnings = s.test.host.plugin("s").await.unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("/properties/s/pattern")), "{warnings:?}");
    let almost = format!("{}!", "a".repeat(40));
    let began = std::time::Instant::now();
    // Decided either way: what counts is that a caller is not held up.
    let _ = s.check("slow", &json!({"s": almost, "t": almost}).to_string()).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    s.test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b064_a_filtered_tool_cannot_be_called_under_any_spelling() {
    let test = TestHost::new().await;
    let deny = "tools:\n  deny: [danger, \"admin_*\"]\n";
    test.run(&Fixture::imported("srv", &["filters"]).extra(deny)).await;
    let allow = "tools:\n  allow: [safe, no_such_tool]\n";
    let view = test.run(&Fixture::imported("srv2", &["filters"]).extra(allow)).await;
    assert_eq!(test.tool_names("srv"), ["safe", "Danger"]);
    assert_eq!(test.tool_names("srv2"), ["safe"]);
    let warned: Vec<_> = view.warnings.iter().filter(|warning| warning.contains("no_such_tool")).collect();
    assert_eq!(warned.len(), 1, "{:?}", view.warnings);
    let spellings = [
        "danger",
        "srv__danger",
        "srv/danger",
        "srv.danger",
        "srv_danger",
        "mcp__srv__danger",
        " danger",
        "admin_wipe",
        "srv.admin_wipe",
        "srv2__Danger",
        "srv2.Danger",
        "srv2_Danger",
        "SRV.safe",
        "srv.safe ",
        "",
    ];
    for name in spellings {
        for tool in [ToolSelector::Id(name.to_owned()), ToolSelector::Exposed(name.to_owned())] {
            let failure = test.host.call(CallRequest::new(tool, None, "test")).await.outcome.unwrap_err();
            assert_eq!(failure.cause(), "tool_not_found", "`{name}`");
        }
    }
    // The server tells all calls it ever saw.
    assert_eq!(test.text("srv.safe", json!({})).await, r#"["safe"]"#);
    assert_eq!(test.text("srv2.safe", json!({})).await, r#"["safe"]"#);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b068_an_empty_cursor_is_followed_once_and_never_loops() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("now", &["empty-cursor"])).await;
    test.run(&Fixture::imported("old", &["empty-cursor", "--legacy"])).await;
    assert_eq!(test.tool_names("now"), ["first", "lists", "second"]);
    assert_eq!(test.text("now.lists", json!({})).await, "2");
    assert_eq!(test.tool_names("old"), ["first", "lists"]);
    let lists = test.text("old.lists", json!({})).await;
    assert!(lists == "1" || lists == "2", "{lists}");
    // A server that means the end by it has no tool twice: nothing to complain about.
    assert!(test.host.plugin("old").await.unwrap().quarantined_tools.is_empty());
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b073_boolean_bounds_of_draft_04_work_in_both_dialects() {
    let odd = r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"ttl":
        {"type":"integer","minimum":0,"exclusiveMinimum":true,"maximum":9,"exclusiveMaximum":false}}}"#;
    let draft_04 = r#"{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","properties":{"ttl":
        {"type":"integer","minimum":0,"exclusiveMinimum":true}}}"#;
    let s = Schemas::of(&[("odd", odd), ("d04", draft_04)]).await;
    let exposed: Value = serde_json::from_str(&s.exposed_schema("odd")).unwrap();
    let ttl = json!({"type": "integer", "exclusiveMinimum": 0, "maximum": 9});
    assert_eq!(exposed["properties"]["ttl"], ttl);
    let cases = [(r#"{"ttl":1}"#, None), (r#"{"ttl":0}"#, Some("/ttl")), (r#"{"ttl":9}"#, None)];
    s.expect("odd", &cases).await;
    s.expect("d04", &cases[..2]).await;
    s.test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b076_misplaced_required_is_repaired_and_wrong_keywords_cost_one_tool() {
    let misplaced = r#"{"type":"object","properties":{"a":{"type":"string","required":true},
        "b":{"type":"string","format":"x-phone"}}}"#;
    let tools = [
        ("misplaced", misplaced),
        ("w1", r#"{"type":"object","properties":{"x":{"type":"string"},"required":["x"]}}"#),
        ("w2", r#"{"type":"object","required":"x"}"#),
        ("w3", r#"{"type":"object","properties":{"x":{"type":"int"}}}"#),
        ("w4", r#"{"type":"object","properties":{"x":{"minLength":-1}}}"#),
        ("fine", r#"{"type":"object"}"#),
    ];
    let s = Schemas::of(&tools).await;
    assert_eq!(s.test.tool_names("s"), ["misplaced", "fine"]);
    let exposed: Value = serde_json::from_str(&s.exposed_schema("misplaced")).unwrap();
    assert_eq!(exposed["required"], json!(["a"]));
    assert_eq!(exposed["properties"]["a"], json!({"type": "string"}));
    s.expect("misplaced", &[(r#"{"a":"1","b":"no phone"}"#, None), (r#"{"b":"2"}"#, Some("a"))]).await;
    let places = ["/properties/required", "/required", "/properties/x/type", "/properties/x/minLength"];
    for (tool, place) in ["w1", "w2", "w3", "w4"].into_iter().zip(places) {
        let reason = quarantine_reason(&s.test, "s", tool).await.unwrap_or_default();
        assert!(reason.contains(place), "{tool}: {reason}");
    }
    s.test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b080_schemas_never_make_the_host_fetch_anything() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("f", &["remote-refs"])).await;
    assert_eq!(test.tool_names("f"), ["meta", "hits"]);
    for tool in ["http_ref", "file_ref", "base"] {
        assert!(quarantine_reason(&test, "f", tool).await.is_some(), "{tool}");
        let failure = test.call(&format!("f.{tool}"), json!({"x": "v"})).await.outcome.unwrap_err();
        assert_eq!(failure.cause(), "tool_not_found");
    }
    assert_eq!(test.text("f.meta", json!({"x": "v"})).await, "[]");
    assert_eq!(test.text("f.hits", json!({"x": "v"})).await, "[]");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b081_a_name_listed_twice_keeps_its_first_tool() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("one", &["duplicates"])).await;
    test.run(&Fixture::imported("two", &["duplicates", "--across-pages"])).await;
    for id in ["one", "two"] {
        assert_eq!(test.tool_names(id), ["dup", "other"]);
        assert!(quarantine_reason(&test, id, "dup").await.unwrap().contains("twice"));
        assert_eq!(test.text(&format!("{id}.dup"), json!({})).await, "dup");
    }
    let tools = test.host.tools();
    assert!(tools.iter().filter(|tool| tool.remote_name == "dup").all(|tool| tool.description == "first"));
    test.close().await;
}
