//! How sessions end: nothing that was asked is lost, nothing that was started is left.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::Client;
use super::{connected, home_with};
use crate::support::{Fixture, processes_with};

#[tokio::test(flavor = "multi_thread")]
async fn answers_under_way_are_written_after_the_end_of_input() {
    // B086: scripts pipe their requests in and close.
    let mut client = Client::start(home_with(&[Fixture::imported("fx", &["slow-answer"])]).await);
    // The plugin has to be there when the call comes, as it is for a client that listed before.
    client.handshake();
    client.list();
    let call = client.send("tools/call", &json!({"name": "fx_slow", "arguments": {}}));
    let ping = client.send("ping", &json!({}));
    let end = client.close();
    let find = |id: &Value| {
        end.messages.iter().find(|message| message["id"] == *id).unwrap_or_else(|| panic!("{:?}", end.messages))
    };
    assert_eq!(find(&ping)["result"], json!({}));
    assert_eq!(find(&call)["result"]["content"][0]["text"], "done", "{:?}", end.messages);
    assert!(end.status.success(), "{}", end.stderr);
    assert_eq!(processes_with(&end.home.path().display().to_string()), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_in_one_write_is_answered() {
    // B086, as it is typed: three lines and the end, before anything has started.
    let mut client = Client::start(home_with(&[Fixture::imported("fx", &["slow-answer"])]).await);
    client.send_raw(
        &[
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"fx_slow","arguments":{}}}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#,
        ]
        .join("\n"),
    );
    let end = client.close();
    let mut ids: Vec<u64> = end.messages.iter().filter_map(|message| message["id"].as_u64()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3], "{:?}", end.messages);
    let call = end.messages.iter().find(|message| message["id"] == json!(2)).unwrap();
    assert_eq!(call["result"]["content"][0]["text"], "done", "{call}");
    assert!(end.status.success(), "{}", end.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_end_is_given_up_and_still_answered() {
    // B086: bounded, so that closing an agent never hangs on a tool.
    let fixture = Fixture::imported("fx", &["wait"]).backend("tool_timeout_seconds: 600");
    let mut client = connected(&[fixture]).await;
    let id = client.send("tools/call", &json!({"name": "fx_wait", "arguments": {}}));
    let begun = Instant::now();
    let end = client.close();
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    let answer = end.messages.iter().find(|message| message["id"] == id).unwrap();
    assert!(answer["error"]["message"].as_str().unwrap().contains("session is ending"), "{answer}");
    assert!(end.status.success(), "{}", end.stderr);
    assert_eq!(processes_with(&end.home.path().display().to_string()), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_session_that_did_nothing() {
    let client = connected(&[Fixture::normal("fx")]).await;
    assert_ne!(processes_with(&client.home().display().to_string()), Vec::<u32>::new(), "the plugin should be running");
    let end = client.close();
    assert!(end.status.success(), "{}", end.stderr);
    assert_eq!(end.messages, Vec::<Value>::new());
    assert_eq!(processes_with(&end.home.path().display().to_string()), Vec::<u32>::new());
}
