//! The person behind the client: asked before a call, and able to find afterwards what was done.

use plugward_host::SpanFilter;
use serde_json::{Value, json};

use super::client::Client;
use super::{connected, home_with};
use crate::support::{Fixture, Settings, TestHost};

/// A client of a program that asks before `notes.read` is used, or refuses it.
async fn with_effect(effect: &str, tool_timeout_seconds: u32) -> Client {
    let fixture = Fixture::normal("fx").backend(&format!("tool_timeout_seconds: {tool_timeout_seconds}"));
    let home = home_with(&[fixture]).await;
    std::fs::write(home.path().join("config.toml"), format!("[permissions]\n\"notes.read\" = \"{effect}\"\n")).unwrap();
    let mut client = Client::start(home);
    client.handshake();
    client.list();
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_a_person_and_goes_on_with_the_answer() {
    // Requirement 82: the agent waits, the person answers in another window.
    let mut client = with_effect("ask", 60).await;
    for (word, is_allowed) in [("deny", false), ("allow", true)] {
        let call = client.send("tools/call", &json!({"name": "fx_echo", "arguments": {"text": "hi"}}));
        let ask = loop {
            let asks = client.run(&["asks"]);
            let asks = asks["requests"].as_array().unwrap_or_else(|| panic!("{asks}"));
            if let Some(ask) = asks.first() {
                break ask.clone();
            }
        };
        assert_eq!((&ask["tool"], &ask["caller"]), (&json!("fx.echo"), &json!("mcp:demo-client")), "{ask}");
        // Waiting for a person holds up nothing else.
        assert_eq!(client.request("ping", &json!({}))["result"], json!({}));
        client.run(&["answer", ask["request_id"].as_str().unwrap(), word]);
        let answer = client.answer(&call);
        assert_eq!(answer["result"]["isError"] != json!(true), is_allowed, "{answer}");
        if !is_allowed {
            assert_eq!(answer["result"]["_meta"]["plugward/error"]["code"], "PERMISSION_DENIED", "{answer}");
        }
    }
    client.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_who_answers_is_an_answer_after_the_limit() {
    let mut client = with_effect("ask", 1).await;
    let answer = client.call("fx_echo", &json!({"text": "hi"}));
    assert_eq!(answer["result"]["isError"], json!(true));
    assert_eq!(answer["result"]["_meta"]["plugward/error"]["code"], "PERMISSION_TIMEOUT", "{answer}");
    client.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_is_in_the_trace_under_its_client() {
    // Requirement 132: what an agent did can be found, and joined with the agent's own trace.
    let mut client = connected(&[Fixture::normal("fx")]).await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let meta = json!({"traceparent": format!("00-{trace}-b7ad6b7169203331-01")});
    client.request("tools/call", &json!({"name": "fx_echo", "arguments": {"text": "private"}, "_meta": meta}));
    let failed = client.call("fx_echo", &json!({}));
    let failed_trace = failed["result"]["_meta"]["plugward/error"]["trace_id"].as_str().unwrap().to_owned();
    let end = client.close();
    let test = TestHost::at(end.home, Settings::default()).await;
    let spans = test.host.trace(trace).await.unwrap();
    assert_eq!(spans.len(), 1);
    assert_eq!(spans[0].caller.as_deref(), Some("mcp:demo-client"));
    assert!(!format!("{spans:?}").contains("private"), "arguments are in the trace");
    assert_eq!(test.host.trace(&failed_trace).await.unwrap().len(), 1);
    assert_eq!(test.host.spans(SpanFilter::default()).await.unwrap().spans.len(), 2);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_clients_share_one_home_and_its_plugins() {
    // Every agent starts the command it was configured with; all of them have to work at once.
    let mut first = connected(&[Fixture::imported("fx", &["wait"])]).await;
    let mut second = Client::join(&first);
    second.handshake();
    assert_eq!(first.names(), second.names());
    // The same id in both sessions is two calls.
    let wait = json!({"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": {"name": "fx_wait"}});
    first.send_raw(&wait.to_string());
    second.send_raw(&wait.to_string());
    while !first.text("fx_report", &json!({})).contains("\"opened\":2") {}
    second.notify("notifications/cancelled", &json!({"requestId": "same"}));
    let report = loop {
        let report: Value = serde_json::from_str(&second.text("fx_report", &json!({}))).unwrap();
        if report["cancelled"] != json!(0) {
            break report;
        }
    };
    assert_eq!(report["cancelled"], json!(1), "the call of the other client was cancelled as well");
    assert!(second.close().status.success());
    assert_eq!(first.request("ping", &json!({}))["result"], json!({}), "one client took the other along");
    first.close();
}
