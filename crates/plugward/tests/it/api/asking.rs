//! Permission requests: a call waits for a person, who answers through the API.

use std::net::TcpStream;

use serde_json::{Value, json};

use super::client::{Serving, receive, wait_until};
use crate::support::Fixture;

const ASK: &str = "[permissions]\n\"notes.read\" = \"ask\"\n";

fn asking() -> Serving {
    let serving = Serving::start(ASK);
    serving.run("fx", &Fixture::normal("fx").backend("tool_timeout_seconds: 20"));
    serving
}

/// A call that waits, and the request it opened.
fn waiting(serving: &Serving) -> (TcpStream, Value) {
    let host = serving.address().to_string();
    let body = r#"{"tool":"fx.echo","arguments":{"text":"hunter2"}}"#;
    let stream = serving.open("POST", "/api/tools/call", &[("Host", &host)], body);
    let mut found = Value::Null;
    wait_until("a permission request is open", || {
        let reply = serving.get("/api/permission-requests");
        assert!(!reply.text.contains("hunter2"), "a request holds no arguments: {}", reply.text);
        found = reply.json()["items"][0].clone();
        found.is_object()
    });
    (stream, found)
}

fn answer(serving: &Serving, request: &Value, word: &str) -> super::client::Reply {
    let path = format!("/api/permission-requests/{}", request["request_id"].as_str().unwrap());
    serving.post(&path, Some(&json!({ "answer": word })))
}

/// Requirement 82.
#[test]
fn a_call_waits_for_the_answer_and_each_request_takes_one() {
    let serving = asking();
    let (call, request) = waiting(&serving);
    assert_eq!(
        (&request["tool"], &request["permission"], &request["caller"]),
        (&json!("fx.echo"), &json!("notes.read"), &json!("api"))
    );
    assert!(request["request_id"].as_str().unwrap().starts_with("permission_"));
    let taken = answer(&serving, &request, "allow_once");
    assert_eq!((taken.status, &taken.json()["resource_id"]), (200, &request["request_id"]));
    assert_eq!(receive(call).json()["output"], json!({ "echo": "hunter2" }));
    assert_eq!(answer(&serving, &request, "allow_once").failure(), (404, "RESOURCE_NOT_FOUND".to_owned()));
    let (call, request) = waiting(&serving);
    answer(&serving, &request, "deny");
    assert_eq!(receive(call).failure(), (403, "PERMISSION_DENIED".to_owned()));
    let (call, request) = waiting(&serving);
    answer(&serving, &request, "allow_session");
    assert_eq!(receive(call).status, 200);
    assert_eq!(serving.call("fx.echo", &json!({ "text": "again" })).status, 200);
}

#[test]
fn a_request_ends_with_its_call() {
    let serving = asking();
    let body = json!({ "tool": "fx.echo", "arguments": { "text": "x" }, "timeout_ms": 50 });
    assert_eq!(serving.post("/api/tools/call", Some(&body)).failure(), (504, "PERMISSION_TIMEOUT".to_owned()));
    assert_eq!(serving.get("/api/permission-requests").json(), json!({ "items": [] }));
    // A caller that hangs up leaves no question behind.
    let (call, _) = waiting(&serving);
    drop(call);
    wait_until("the request is gone", || serving.get("/api/permission-requests").json() == json!({ "items": [] }));
}
