//! Calls through the gateway: what a client sends reaches the plugin as it is, and what the plugin says comes back.

use serde_json::{Value, json};

use super::connected;
use crate::support::Fixture;

fn error_code(answer: &Value) -> &Value {
    &answer["result"]["_meta"]["plugward/error"]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_failure_arrives_as_what_it_is() {
    // B025: failures recorded as successes make agents repeat a failing call for ever.
    let mut client = connected(&[Fixture::imported("fx", &["errors"])]).await;
    let soft = client.call("fx_soft", &json!({}));
    assert_eq!(
        soft["result"],
        json!({"content": [{"type": "text", "text": "disk full"}], "isError": true, "_meta": {"k": 1}})
    );
    let hard = client.call("fx_hard", &json!({}));
    assert_eq!(hard["error"], json!({"code": -32050, "message": "quota", "data": {"retryAfter": 7}}));
    assert_eq!(client.call("fx_fine", &json!({}))["result"]["isError"], json!(false));
    let unknown = client.call("nope", &json!({}));
    assert_eq!(unknown["error"]["code"], json!(-32602), "{unknown}");
    assert!(client.close().status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_failures_tell_the_model_what_to_do_and_programs_which_it_was() {
    let fixture = Fixture::normal("fx").backend("tool_timeout_seconds: 1");
    let mut client = connected(&[fixture]).await;
    let invalid = client.call("fx_echo", &json!({"text": 7}));
    assert_eq!(invalid["result"]["isError"], json!(true));
    assert_eq!(error_code(&invalid)["code"], "TOOL_ARGUMENT_INVALID");
    let text = invalid["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("fx.echo") && text.contains("Correct the arguments"), "{text}");
    let late = client.call("fx_sleep", &json!({"seconds": 20}));
    assert_eq!(error_code(&late)["code"], "MCP_TOOL_CALL_FAILED");
    assert_eq!(error_code(&late)["cause"], "timed_out");
    let gone = client.call("fx_exit", &json!({}));
    assert_eq!(error_code(&gone)["code"], "PLUGIN_HOST_UNAVAILABLE");
    let text = gone["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("`fx.exit`") && text.contains("plugward restart fx"), "{text}");
    client.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_tool_is_as_unknown_as_one_that_never_was() {
    // B064: a filter that only hides is no filter.
    let filter = "tools: {allow: ['*'], deny: [danger, 'admin_*']}\n";
    let filtered = Fixture::imported("srv", &["filters"]).extra(filter);
    let mut client = connected(&[filtered]).await;
    assert_eq!(client.names(), ["srv_safe", "srv_Danger"]);
    let unknown = client.call("never_was", &json!({}))["error"].clone();
    assert_eq!(unknown["code"], json!(-32602));
    for name in [
        "danger",
        "srv_danger",
        "srv__danger",
        "srv/danger",
        "srv.danger",
        "mcp__srv__danger",
        " srv_danger",
        "srv_admin_wipe",
        "SRV_safe",
        "srv_safe ",
        "",
    ] {
        assert_eq!(client.call(name, &json!({}))["error"], unknown, "{name}");
    }
    assert_eq!(client.text("srv_safe", &json!({})), r#"["safe"]"#, "the plugin was reached by another call");
    client.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn results_and_meta_pass_through_untouched() {
    // B034: a client's own metadata reaches the plugin, and unknown members of the result reach the client.
    let mut client = connected(&[Fixture::imported("fx", &["metadata"])]).await;
    let params =
        json!({"name": "fx_rich", "arguments": {}, "_meta": {"trace": "abc", "vendor.test/x": {"n": [1, null]}}});
    let result = client.request("tools/call", &params)["result"].clone();
    assert_eq!(result["content"][0]["annotations"], json!({"audience": ["user"], "priority": 0.5}));
    assert_eq!(result["content"][0]["_meta"], json!({"a": 1}));
    assert_eq!(result["_meta"], json!({"vendor.test/cost": 3}));
    assert_eq!(result.get("x-result"), Some(&Value::Null));
    assert_eq!(result["structuredContent"], json!({"ok": true}));
    assert_eq!(result["seen_meta"]["trace"], "abc");
    assert_eq!(result["seen_meta"]["vendor.test/x"], json!({"n": [1, null]}));
    client.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn content_of_every_kind_arrives_in_order() {
    // B051: a kind we do not know is still the client's.
    let mut client = connected(&[Fixture::imported("fx", &["content-types"])]).await;
    let result = client.call("fx_all", &json!({}))["result"].clone();
    let kinds: Vec<&str> =
        result["content"].as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "image", "audio", "resource", "resource", "resource_link", "hologram", "text"]);
    assert_eq!(result["content"][6], json!({"type": "hologram", "depth": 3, "data": {"k": [1]}}));
    assert_eq!(result["content"][5]["uri"], "demo://report/7");
    client.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_digit_survives_both_ways() {
    // B059: ids beyond 2^53 name another object when a digit is lost.
    let mut client = connected(&[Fixture::imported("fx", &["big-numbers"])]).await;
    client.send_raw(
        r#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"tools/call","params":{"name":"fx_digits","arguments":{"id":9007199254740993,"x":1.0}}}"#,
    );
    let line = client.next_line();
    for digits in [
        "\"id\":123456789012345678901234567890",
        "\"i\":9007199254740993",
        "18446744073709551615",
        "\"big\":123456789012345678901234567890",
        "9007199254740993,1.0",
        "1e3",
    ] {
        assert!(line.contains(digits), "{digits} is not in {line}");
    }
    client.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_is_cancelled_at_the_plugin_and_never_answered() {
    // B057: people press stop; the tool has to stop, and another call must not.
    let mut client = connected(&[Fixture::imported("fx", &["wait"])]).await;
    client.send_raw(r#"{"jsonrpc":"2.0","id":"call-A","method":"tools/call","params":{"name":"fx_wait"}}"#);
    // The plugin has it once it says so; calls of one client may overtake each other.
    while !client.text("fx_report", &json!({})).contains("\"opened\":1") {}
    client.notify("notifications/cancelled", &json!({"requestId": "call-A", "reason": "user"}));
    client.notify("notifications/cancelled", &json!({"requestId": "never-existed"}));
    client.notify("notifications/cancelled", &json!({"requestId": {"odd": true}}));
    let report = loop {
        let report = client.text("fx_report", &json!({}));
        if report.contains("\"cancelled\":1") {
            break report;
        }
    };
    assert_eq!(serde_json::from_str::<Value>(&report).unwrap(), json!({"cancelled": 1, "match": true, "opened": 1}));
    // The id is free again once the call has ended, and a new call under it is a new call.
    let echo = json!({"jsonrpc": "2.0", "id": "call-A", "method": "ping"});
    client.send_raw(&echo.to_string());
    assert_eq!(client.answer(&json!("call-A"))["result"], json!({}));
    let end = client.close();
    assert!(end.messages.iter().all(|message| message["id"] != "call-A"), "a cancelled call was answered");
    assert!(end.status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_arrives_under_the_callers_token_and_before_the_result() {
    let progress = Fixture::imported("fx", &["progress", "--steps", "5", "--interval-ms", "20"]);
    let mut client = connected(&[progress]).await;
    let meta = json!({"progressToken": "mine-7"});
    let id = client.send("tools/call", &json!({"name": "fx_work", "_meta": meta}));
    let answer = client.answer(&id);
    assert_eq!(answer["result"]["content"][0]["text"], "worked");
    let notes: Vec<(Value, Value)> = client
        .passed("notifications/progress")
        .iter()
        .map(|note| (note["params"]["progressToken"].clone(), note["params"]["progress"].clone()))
        .collect();
    let expected: Vec<(Value, Value)> = (1..=5).map(|step| (json!("mine-7"), json!(step))).collect();
    assert_eq!(notes, expected);
    // Who did not ask is not told.
    client.call("fx_work", &json!({}));
    let end = client.close();
    assert_eq!(end.messages.iter().filter(|message| message["method"] == "notifications/progress").count(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_after_the_result_is_not_handed_on() {
    let late = Fixture::imported("fx", &["progress", "--steps", "3", "--interval-ms", "1", "--after-answer"]);
    let mut client = connected(&[late]).await;
    for _ in 0..3 {
        let id = client.send("tools/call", &json!({"name": "fx_work", "_meta": {"progressToken": 1}}));
        assert_eq!(client.answer(&id)["result"]["content"][0]["text"], "worked");
    }
    let end = client.close();
    assert!(end.messages.iter().all(|message| message["method"] != "notifications/progress"), "{:?}", end.messages);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_call_delays_no_other() {
    // B043: while one tool works, cheap calls, lists and pings go on.
    let mut client = connected(&[Fixture::imported("fx", &["slow-fast", "--seconds", "3"])]).await;
    let slow = client.send("tools/call", &json!({"name": "fx_slow", "arguments": {}}));
    let fast: Vec<Value> =
        (0..50).map(|k| client.send("tools/call", &json!({"name": "fx_fast", "arguments": {"k": k}}))).collect();
    let list = client.send("tools/list", &json!({}));
    let ping = client.send("ping", &json!({}));
    let mut order = Vec::new();
    while order.len() < 53 {
        let answer = client.await_message(|message| message.get("id").is_some());
        if let Some(k) = fast.iter().position(|id| *id == answer["id"]) {
            assert_eq!(answer["result"]["content"][0]["text"], format!("fast{k}"), "an answer to another call");
        }
        order.push(answer["id"].clone());
    }
    assert_eq!(order.last(), Some(&slow), "something waited for the slow call");
    assert!(order.contains(&list) && order.contains(&ping));
    client.close();
}
