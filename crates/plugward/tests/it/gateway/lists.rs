//! The tool list as clients see it: complete, untouched, in one order, and no news without a change.

use serde_json::{Value, json};

use super::client::Client;
use super::starting::Switchable;
use super::{connected, home_with};
use crate::support::{Fixture, TestHost};

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_arrives_as_the_plugin_wrote_it_but_for_its_name() {
    // B034: clients decide by annotations and show titles and icons.
    let mut client = connected(&[Fixture::imported("fx", &["metadata"])]).await;
    let id = client.send("tools/list", &json!({}));
    let line = client.next_line();
    assert!(line.contains("\"keep\":1.50"), "digits were rewritten: {line}");
    let answer: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(answer["id"], id);
    assert_eq!(
        answer["result"],
        json!({"tools": [{
            "name": "fx_rich",
            "description": "Fixture tool rich.",
            "inputSchema": {"type": "object", "properties": {}},
            "title": "Rich tool",
            "annotations": {"readOnlyHint": true, "destructiveHint": false, "openWorldHint": true, "title": "R"},
            "_meta": {"vendor.test/route": {"n": [1, 2]}},
            "icons": [{"src": "https://icons.test/i.png", "sizes": ["48x48"]}],
            "outputSchema": {"type": "object"},
            "execution": {"taskSupport": "optional"},
            "x-future": {"keep": 1.50},
        }]})
    );
    client.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_is_the_same_byte_for_byte_however_plugins_start() {
    // B053: a list that changes its order costs every client its prompt cache.
    let (first, second) = (Switchable::new("one"), Switchable::new("two"));
    let test = TestHost::new().await;
    for plugin in [&first, &second] {
        plugin.behave(&["order"]);
        test.install_package(&plugin.package()).await;
        test.host.enable(plugin.id()).await.unwrap();
    }
    let mut home = test.close().await;
    let mut seen: Option<String> = None;
    for start in 0..10 {
        let (early, late) = if start % 2 == 0 { (&first, &second) } else { (&second, &first) };
        early.behave(&["order"]);
        late.behave(&["order", "--seconds", "0.2"]);
        let mut client = Client::start(home);
        client.handshake();
        client.send("tools/list", &json!({}));
        let line = client.next_line();
        let tools = line.split_once("\"tools\":").unwrap().1.to_owned();
        match &seen {
            None => seen = Some(tools),
            Some(seen) => assert_eq!(*seen, tools, "start {start}"),
        }
        home = client.close().home;
    }
    let seen = seen.unwrap();
    let places: Vec<usize> = ["one_zz", "one_aa", "one_mm", "two_zz", "two_aa", "two_mm"]
        .iter()
        .map(|name| seen.find(&format!("\"{name}\"")).unwrap_or_else(|| panic!("{name} is not in {seen}")))
        .collect();
    assert!(places.is_sorted(), "{seen}");
    assert!(seen.contains(r#""properties":{"zeta":{"type":"string"},"alpha":"#), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_changes_that_are_none_is_not_handed_on() {
    // B039: clients flooded with notices list again and again.
    let storm = Fixture::imported("fx", &["list-changed", "--storm", "200", "--after-call"]);
    let mut client = connected(&[storm]).await;
    for _ in 0..20 {
        client.text("fx_count", &json!({}));
    }
    assert_eq!(client.names(), ["fx_count"]);
    let end = client.close();
    assert!(
        end.messages.iter().all(|message| message["method"] != "notifications/tools/list_changed"),
        "{:?}",
        end.messages
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_dies_is_news_and_its_return_is_news_again() {
    // The positive control of the storm: what really changes is told.
    let mut client = connected(&[Fixture::imported("fx", &["crash-after", "--calls", "0"])]).await;
    let names = client.names();
    assert!(!names.is_empty());
    client.call(&names[0], &json!({}));
    client.await_message(|message| message["method"] == "notifications/tools/list_changed");
    while client.names() != names {
        client.await_message(|message| message["method"] == "notifications/tools/list_changed");
    }
    client.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_longer_than_a_message_comes_in_pages() {
    // No client has to take a line longer than those we take ourselves.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tools.json");
    let description = "x".repeat(10_000);
    let tools: Vec<Value> = (0..150)
        .map(|n| json!({"name": format!("t{n}"), "description": description, "inputSchema": {"type": "object"}}))
        .collect();
    std::fs::write(&file, Value::Array(tools).to_string()).unwrap();
    let many = |id: &str| Fixture::imported(id, &["schema", "--file", &file.display().to_string()]);
    let mut client = Client::start(home_with(&[many("a"), many("b")]).await);
    client.handshake();
    let mut names = Vec::new();
    let mut params = json!({});
    let mut pages = 0;
    loop {
        let answer = client.request("tools/list", &params);
        assert!(answer.to_string().len() <= 2 * 1024 * 1024, "a page is longer than a message may be");
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
        names.extend(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
        pages += 1;
        let Some(cursor) = answer["result"].get("nextCursor") else { break };
        params = json!({"cursor": cursor});
    }
    let expected: Vec<String> = ["a", "b"].iter().flat_map(|id| (0..150).map(move |n| format!("{id}_t{n}"))).collect();
    assert_eq!((pages, names), (2, expected));
    let stale = client.request("tools/list", &json!({"cursor": "0123456789abcdef-1"}));
    assert_eq!(stale["error"]["code"], json!(-32602), "{stale}");
    client.close();
}
