//! Calls through the Host API: results, failures, limits, callers that hang up, many at once.

use serde_json::{Value, json};

use super::client::{Serving, receive, wait_until};
use crate::support::Fixture;

fn running(settings: &str) -> Serving {
    let serving = Serving::start(settings);
    let fixture = Fixture::normal("fx").backend("tool_timeout_seconds: 20");
    serving.run("fx", &fixture);
    serving
}

/// Requirements 118, 119: structured content is the output, a tool that says it failed is no failure of the request.
#[test]
fn a_result_has_the_shape_of_the_seed() {
    let serving = running("");
    let body = json!({ "tool": "fx.echo", "arguments": { "text": "héllo" }, "tool_call_id": "call_7" });
    let reply = serving.post("/api/tools/call", Some(&body));
    assert_eq!(reply.status, 200, "{}", reply.text);
    let result = reply.json();
    assert_eq!(
        (&result["tool_call_id"], &result["name"], &result["success"], &result["output"]),
        (&json!("call_7"), &json!("fx.echo"), &json!(true), &json!({ "echo": "héllo" }))
    );
    assert_eq!((&result["error_code"], &result["error_message"]), (&Value::Null, &Value::Null));
    assert!(result["duration_ms"].is_u64(), "{result}");
    let failed = serving.call("fx.fail", &json!({})).json();
    assert_eq!((&failed["success"], &failed["output"]), (&json!(false), &Value::Null));
    assert_eq!(failed["error_code"], "MCP_TOOL_CALL_FAILED");
    assert!(failed["error_message"].as_str().is_some_and(|text| !text.is_empty()), "{failed}");
    let trace = serving.get(&format!("/api/traces/{}", result["trace_id"].as_str().unwrap())).json();
    assert_eq!((&trace["items"][0]["tool"], &trace["items"][0]["outcome"]), (&json!("fx.echo"), &json!("ok")));
    assert_eq!(trace["items"][0]["caller"], "api");
}

/// Each failure has a code and a status of its own, and the plugin serves on (requirements 64, 70, 74).
#[test]
fn failed_calls_are_told_apart() {
    let serving = running("");
    let large = serving.call("fx.large", &json!({}));
    assert_eq!(large.failure(), (502, "MCP_TOOL_RESULT_TOO_LARGE".to_owned()));
    let unfit = serving.call("fx.echo", &json!({ "text": { "hunter2": 1 } }));
    assert_eq!(unfit.failure(), (422, "TOOL_ARGUMENT_INVALID".to_owned()));
    assert!(!unfit.text.contains("hunter2"), "{}", unfit.text);
    let body = json!({ "tool": "fx.sleep", "arguments": { "seconds": 10 }, "timeout_ms": 100 });
    let late = serving.post("/api/tools/call", Some(&body));
    assert_eq!(late.failure(), (504, "MCP_TOOL_CALL_FAILED".to_owned()));
    assert_eq!(late.json()["error"]["cause"], "timed_out");
    assert_eq!(serving.call("fx.nothing", &json!({})).failure(), (404, "TOOL_NOT_FOUND".to_owned()));
    assert_eq!(serving.call("fx_echo", &json!({})).failure(), (404, "TOOL_NOT_FOUND".to_owned()));
    assert_eq!(serving.host_state("fx"), "ready");
    assert_eq!(serving.call("fx.echo", &json!({ "text": "still here" })).status, 200);
}

/// What is large, deep or odd but allowed reaches the tool; what is not is refused, and the host lives on.
#[test]
fn odd_arguments_do_no_harm() {
    let serving = running("");
    let text = "ä".repeat(50_000);
    let reply = serving.call("fx.echo", &json!({ "text": text }));
    assert_eq!((reply.status, &reply.json()["output"]["echo"]), (200, &json!(text)));
    let host = serving.address().to_string();
    let send = |arguments: &str| {
        let body = format!(r#"{{"tool":"fx.echo","arguments":{arguments}}}"#);
        serving.send_raw("POST", "/api/tools/call", &[("Host", &host)], &body)
    };
    let deep = format!(r#"{{"text":{}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(send(&deep).status, 422);
    assert_eq!(send(r#"{"text":"a","text":"b"}"#).failure(), (422, "TOOL_ARGUMENT_INVALID".to_owned()));
    assert_eq!(send(r#"{"text":"\ud800"}"#).status, 422);
    assert_eq!(send(r#"{"text":"\u0000\u001b[31m"}"#).json()["output"]["echo"], "\0\u{1b}[31m");
    assert_eq!(send(&format!(r#"{{"text":"{}"}}"#, "x".repeat(2 * 1024 * 1024))).status, 413);
    assert_eq!(serving.call("fx.echo", &json!({ "text": "x" })).status, 200);
}

#[test]
fn a_caller_that_hangs_up_cancels_its_call() {
    let serving = Serving::start("");
    serving.run("w", &Fixture::imported("w", &["wait"]));
    let host = serving.address().to_string();
    let body = r#"{"tool":"w.wait"}"#;
    let caller = serving.open("POST", "/api/tools/call", &[("Host", &host)], body);
    let opened = || serving.call("w.report", &json!({})).text.contains("opened\\\":1");
    wait_until("the call has reached the tool", opened);
    drop(caller);
    wait_until("the call is in the trace as cancelled", || {
        let spans = serving.get("/api/traces?tool=w.wait").json();
        spans["items"][0]["outcome"] == "cancelled"
    });
    assert_eq!(serving.host_state("w"), "ready");
}

#[test]
fn calls_at_the_same_time_get_their_own_answers() {
    let serving = running("");
    let host = serving.address().to_string();
    let streams: Vec<_> = (0..64)
        .map(|index| {
            let body = json!({ "tool": "fx.echo", "arguments": { "text": index.to_string() } }).to_string();
            (index, serving.open("POST", "/api/tools/call", &[("Host", &host)], &body))
        })
        .collect();
    for (index, stream) in streams {
        let reply = receive(stream);
        assert_eq!((reply.status, &reply.json()["output"]["echo"]), (200, &json!(index.to_string())), "{}", reply.text);
    }
}

/// Invariant 4: a secret that a plugin was given comes back through no path of the API.
#[test]
fn secrets_and_stderr_are_in_no_answer() {
    const SECRET: &str = "hunter2-very-secret-value";
    let serving = Serving::start("");
    let fixture = Fixture::imported("s", &["secrets"]).backend(&format!("env: {{DEMO_KEY: {SECRET}}}"));
    serving.run("s", &fixture);
    let calls = ["boom", "leak"].map(|tool| serving.call(&format!("s.{tool}"), &json!({})).text);
    let reads =
        ["/api/plugins", "/api/plugins/s", "/api/plugins/s/host", "/api/plugins/s/review", "/api/tools", "/api/traces"]
            .map(|path| serving.get(path));
    assert!(reads.iter().all(|reply| reply.status == 200));
    for text in calls.iter().chain(reads.iter().map(|reply| &reply.text)) {
        assert!(!text.contains(SECRET), "{text}");
    }
    // Positive control: the tools did have something to tell.
    assert!(calls.iter().any(|text| text.contains("***")), "{calls:?}");
    assert!(!serving.stderr().contains(SECRET), "{}", serving.stderr());
}
