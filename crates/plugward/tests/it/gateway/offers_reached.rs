//! Prompts and resources that could be out of reach: of plugins that sleep, of plugins a profile leaves out, and on pages
//! that are not there; and what the trace says of those that were had.
//!
//! If these fail, an agent misses what a person approved, or nobody can find out that it had it.

use serde_json::json;

use super::client::Client;
use super::home_with;
use super::offers::{names, offering};
use crate::support::eventually;

fn is_asleep(client: &Client) -> bool {
    client.run(&["info", "one"]).to_string().contains("asleep: the next call starts it")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_sleeping_plugin_offers_is_listed_and_wakes_it_when_asked_for() {
    let lazy = offering("one").extra("supervision:\n  lazy: true\n  idle_stop_seconds: 1\n");
    let home = home_with(&[lazy]).await;
    let mut client = Client::start(home);
    client.handshake();
    assert!(!client.list().is_empty());
    // Nobody has asked it in this run, so it is woken to say what it has.
    let read = client.request("resources/read", &json!({"uri": "test://static-text"}));
    assert!(read["result"]["contents"][0]["text"].is_string(), "{read}");
    let listed = client.request("prompts/list", &json!({}))["result"].clone();
    eventually("it falls asleep", || is_asleep(&client).then_some(())).await;
    // What it said before is told without waking it.
    let again = client.request("prompts/list", &json!({}))["result"].clone();
    assert_eq!(again, listed);
    assert!(names(&again, "prompts", "name").contains(&"one_test_simple_prompt".to_owned()));
    assert!(is_asleep(&client), "a list started a process");
    let got = client.request("prompts/get", &json!({"name": "one_test_simple_prompt"}));
    assert!(got["result"]["messages"].is_array(), "{got}");
    assert!(client.close().status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_of_two_plugins_is_had_from_the_one_that_the_client_sees() {
    // Both have the same URIs, and the first one that listed them is not in the profile.
    let home = home_with(&[offering("one"), offering("two")]).await;
    std::fs::write(home.path().join("config.toml"), "[profiles.default]\nplugins = [\"two\"]\n").unwrap();
    let mut client = Client::start(home);
    client.handshake();
    client.list();
    let listed = client.request("resources/list", &json!({}))["result"].clone();
    assert_eq!(names(&listed, "resources", "uri").len(), 3, "{listed}");
    for uri in ["test://static-text", "test://template/7/data"] {
        let read = client.request("resources/read", &json!({"uri": uri}));
        assert!(read["result"]["contents"][0]["text"].is_string(), "{uri}: {read}");
    }
    client.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_that_nobody_gave_is_refused() {
    // An empty page for it would tell a client that it has seen everything.
    let mut client = Client::start(home_with(&[offering("one")]).await);
    client.handshake();
    for list in ["prompts/list", "resources/list", "resources/templates/list"] {
        let answer = client.request(list, &json!({"cursor": "x"}));
        assert_eq!(answer["error"]["code"], json!(-32602), "{list}: {answer}");
        assert!(client.request(list, &json!({}))["result"].is_object(), "{list}");
    }
    client.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_leaves_a_trace_without_what_was_filled_in() {
    let mut client = Client::start(home_with(&[offering("one")]).await);
    client.handshake();
    client.list();
    let secret = "what nobody else is to read";
    let arguments = json!({"arg1": secret, "arg2": "b"});
    client.request("prompts/get", &json!({"name": "one_test_prompt_with_arguments", "arguments": arguments}));
    client.request("resources/read", &json!({"uri": "test://static-text"}));
    client.request("resources/read", &json!({"uri": "test://not-there"}));
    let listed = client.run(&["trace", "list"]);
    let found = |name: &str, outcome: &str| {
        let spans = listed["spans"].as_array().unwrap();
        let span = spans.iter().find(|span| span["name"] == name && span["outcome"] == outcome);
        span.unwrap_or_else(|| panic!("{name} {outcome} is not in {listed}")).clone()
    };
    let span = found("prompts/get one_test_prompt_with_arguments", "ok");
    assert_eq!(span["caller"], "mcp:demo-client");
    found("resources/read test://static-text", "ok");
    found("resources/read test://not-there", "rejected");
    assert!(!listed.to_string().contains(secret), "{listed}");
    // By the beginning of its id, however many came after it.
    let trace = span["trace_id"].as_str().unwrap();
    let shown = client.run(&["trace", "show", &trace[..16]]);
    assert_eq!(shown["trace_id"], *trace, "{shown}");
    client.close();
}
