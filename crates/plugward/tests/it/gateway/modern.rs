//! Clients of the stateless revision over stdio, with legacy plugins behind: nobody notices the other era.

use serde_json::{Value, json};

use super::client::Client;
use super::home_with;
use crate::support::Fixture;

/// Parameters with the metadata of a client of the stateless revision.
fn modern(mut params: Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        "io.modelcontextprotocol/clientInfo": {"name": "demo-client", "version": "0"},
    });
    match params["_meta"].as_object_mut() {
        Some(own) => own.extend(meta.as_object().unwrap().clone()),
        None => params["_meta"] = meta,
    }
    params
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_listed_and_called_without_a_handshake() {
    let mut client = Client::start(home_with(&[Fixture::normal("fx")]).await);
    let listed = client.request("tools/list", &modern(json!({})))["result"].clone();
    let names: Vec<&str> = listed["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"fx_echo"), "{names:?}");
    assert_eq!(listed["resultType"], "complete");
    let again = client.request("tools/list", &modern(json!({})))["result"].clone();
    assert_eq!(listed.to_string(), again.to_string(), "TL-01: the same list for the same question");

    let called = client.request("tools/call", &modern(json!({"name": "fx_echo", "arguments": {"text": "grüße"}})));
    let result = &called["result"];
    assert_eq!((&result["resultType"], &result["structuredContent"]["echo"]), (&json!("complete"), &json!("grüße")));
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "plugward");
    let unknown = client.request("tools/call", &modern(json!({"name": "nope"})));
    assert_eq!(unknown["error"]["code"], json!(-32602), "{unknown}");
    let failed = client.request("tools/call", &modern(json!({"name": "fx_echo", "arguments": {"text": 1}})));
    assert_eq!((&failed["result"]["isError"], &failed["result"]["resultType"]), (&json!(true), &json!("complete")));
    assert!(client.close().status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_and_cancellation_reach_the_other_era() {
    let mut client = Client::start(home_with(&[Fixture::normal("fx")]).await);
    let params = json!({"name": "fx_sleep", "arguments": {"seconds": 30}, "_meta": {"progressToken": "own-token"}});
    let slow = client.send("tools/call", &modern(params));
    let note = client.await_message(|message| message["method"] == "notifications/progress");
    assert_eq!(note["params"]["progressToken"], "own-token");
    client.notify("notifications/cancelled", &json!({"requestId": slow}));
    // The plugin sleeps in a thread per call: the next one is answered in any case, the cancelled one never.
    let quick = client.send("tools/call", &modern(json!({"name": "fx_echo", "arguments": {"text": "x"}})));
    client.answer(&quick);
    let end = client.close();
    assert!(end.status.success(), "{}", end.stderr);
    assert!(end.messages.iter().all(|message| message["id"] != slow), "{:?}", end.messages);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_real_changes_once_each_and_others_not_at_all() {
    // SU-01, case B039: what was not asked for is not told, and a storm about nothing is nothing.
    let crash = Fixture::imported("fx", &["crash-after", "--calls", "0"]);
    let mut client = Client::start(home_with(&[crash]).await);
    let tools = client.request("tools/list", &modern(json!({})))["result"]["tools"].clone();
    let tool = tools[0]["name"].as_str().unwrap().to_owned();
    let wanted = client.send("subscriptions/listen", &modern(json!({"notifications": {"toolsListChanged": true}})));
    let acknowledged = |id: &Value, message: &Value| {
        message["method"] == "notifications/subscriptions/acknowledged"
            && message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == *id
    };
    let first = client.await_message(|message| acknowledged(&wanted, message));
    assert_eq!(first["params"]["notifications"], json!({"toolsListChanged": true}));
    let other = client.send("subscriptions/listen", &modern(json!({"notifications": {"promptsListChanged": true}})));
    let second = client.await_message(|message| acknowledged(&other, message));
    assert_eq!(second["params"]["notifications"], json!({}));

    client.request("tools/call", &modern(json!({"name": tool})));
    let changed = client.await_message(|message| message["method"] == "notifications/tools/list_changed");
    assert_eq!(changed["params"], json!({"_meta": {"io.modelcontextprotocol/subscriptionId": wanted}}));
    let end = client.close();
    let notices: Vec<&Value> =
        end.messages.iter().filter(|message| message["method"] == "notifications/tools/list_changed").collect();
    assert!(
        notices.iter().all(|m| m["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == wanted),
        "{notices:?}"
    );
    for stream in [wanted, other] {
        let closed = end.messages.iter().find(|message| message["id"] == stream);
        assert_eq!(closed.unwrap()["result"]["resultType"], "complete", "SU-02: both end well");
    }
}
