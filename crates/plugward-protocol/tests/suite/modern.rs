//! The stateless revisions: metadata of requests, results with their hints, streams, and both eras on one connection.

use plugward_protocol::modern::{self, CacheScope, Caching, ListenFilter, LogLevel};
use plugward_protocol::{ConnectionConfig, Event, Implementation, RequestId, SendError};
use serde_json::{Value, json};

use crate::support::{Driven, hello_out, raw};

/// Metadata as a client of our newest revision sends it.
fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "sampling": null},
        "io.modelcontextprotocol/clientInfo": {"name": "demo-client", "version": "3"},
    })
}

fn request(id: u64, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

#[test]
fn what_a_client_brings_back_is_read_as_it_was_written() {
    // MR-05: what is of no use is refused before a plugin has to guess.
    let read = |params: &str| modern::inputs_of(Some(&raw(params)));
    let (responses, state) = read(r#"{"name":"t","inputResponses":{"k":{"n":1.0}},"requestState":"\u0041"}"#).unwrap();
    assert_eq!((responses.unwrap().get(), state.unwrap().get()), (r#"{"k":{"n":1.0}}"#, r#""\u0041""#));
    assert!(matches!(read("{}"), Ok((None, None))));
    for wrong in [
        r#"{"inputResponses":null}"#,
        r#"{"inputResponses":[]}"#,
        r#"{"requestState":7}"#,
        r#"{"requestState":null}"#,
        r#"{"requestState":"a","requestState":"b"}"#,
    ] {
        assert_eq!(read(wrong).unwrap_err().code, -32602, "{wrong}");
    }
    // CH-01: and a question on its way to a client has no cache hints.
    let us = Implementation { name: "us".to_owned(), version: "1".to_owned(), title: None };
    let keep = Some(Caching { ttl_ms: 5, scope: CacheScope::Private });
    let question = modern::complete(&raw(r#"{"resultType":"input_required","requestState":"s"}"#), &us, keep);
    assert!(!question.get().contains("ttlMs"), "{}", question.get());
}

fn server() -> Driven {
    Driven::new(ConnectionConfig::server())
}

/// Code of the error that answers a request with this metadata.
fn refused(meta: &Value) -> (i64, Value) {
    let mut driven = server();
    driven.say(&request(1, "tools/list", &json!({"_meta": meta})));
    assert!(driven.events().is_empty(), "it must not reach the owner");
    let mut lines = driven.lines();
    assert_eq!(lines.len(), 1);
    let answer = lines.remove(0);
    assert_eq!(answer["id"], 1);
    (answer["error"]["code"].as_i64().unwrap(), answer["error"]["data"].clone())
}

fn with(key: &str, value: Value) -> Value {
    let mut meta = meta();
    meta[format!("io.modelcontextprotocol/{key}")] = value;
    meta
}

fn without(key: &str) -> Value {
    let mut meta = meta();
    meta.as_object_mut().unwrap().remove(&format!("io.modelcontextprotocol/{key}"));
    meta
}

#[test]
fn a_request_of_the_stateless_revision_needs_no_handshake() {
    // VN-06: the opener decides. A client that never says `initialize` is served all the same.
    let mut driven = server();
    driven.say(&request(7, "tools/list", &json!({"_meta": meta()})));
    let events = driven.events();
    let [Event::ModernRequest { id, method, meta, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((id, method.as_str()), (&RequestId::from(7), "tools/list"));
    assert_eq!(meta.client.as_ref().unwrap().name, "demo-client");
    assert_eq!((meta.has_capability("elicitation"), meta.has_capability("sampling")), (true, false));
    assert_eq!(meta.log_level, None);
    // Progress of it can be told, and it is answered once.
    driven.connection.notify("notifications/progress", Some(raw(r#"{"progressToken":1}"#))).unwrap();
    assert!(driven.connection.respond(id, Ok(raw("{}"))));
    assert_eq!(driven.lines().len(), 2);
}

#[test]
fn escaped_names_count_as_what_they_say() {
    // Some writers of JSON escape every solidus.
    let mut driven = server();
    let line = request(1, "tools/list", &json!({"_meta": meta()})).replace('/', "\\/");
    driven.say(&line);
    assert!(matches!(&driven.events()[..], [Event::ModernRequest { .. }]));
}

#[test]
fn what_is_missing_or_wrong_in_the_metadata_is_refused() {
    // BP-12, BP-13: guessing what a client can do would ask it for what it cannot answer.
    for bad in [
        without("clientCapabilities"),
        with("clientCapabilities", json!([])),
        with("clientCapabilities", Value::Null),
        with("protocolVersion", json!(20260728)),
        with("protocolVersion", Value::Null),
        with("logLevel", json!("loud")),
        with("logLevel", json!(3)),
    ] {
        assert_eq!(refused(&bad).0, -32602, "{bad}");
    }
    let twice = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientCapabilities":{"sampling":{}}}}}"#;
    let mut driven = server();
    driven.say(twice);
    assert_eq!(driven.lines()[0]["error"]["code"], -32602);
    // Who a client is need not be said, and a level is a level.
    for good in [without("clientInfo"), with("clientInfo", json!("odd")), with("logLevel", json!("warning"))] {
        let mut driven = server();
        driven.say(&request(1, "tools/list", &json!({"_meta": good})));
        assert!(matches!(&driven.events()[..], [Event::ModernRequest { .. }]), "{good}");
    }
}

#[test]
fn an_unknown_revision_is_told_which_there_are() {
    // VN-01: from the answer alone a client can choose another one.
    for strange in ["1999-01-01", "2025-11-25", "", "latest"] {
        let (code, data) = refused(&with("protocolVersion", json!(strange)));
        assert_eq!(code, -32022);
        assert_eq!(data, json!({"supported": ["2026-07-28"], "requested": strange}));
    }
    let (_, data) = refused(&with("protocolVersion", json!("v".repeat(100_000))));
    assert!(data["requested"].as_str().unwrap().len() < 100, "an error does not send megabytes back");
}

#[test]
fn one_connection_serves_both_eras_at_once() {
    let mut driven = Driven::ready_server("2025-11-25");
    driven.say(&request(2, "tools/list", &json!({"_meta": meta()})));
    driven.say(&request(3, "tools/list", &json!({})));
    driven.say(r#"{"jsonrpc":"2.0","id":4,"method":"ping"}"#);
    assert!(matches!(&driven.events()[..], [Event::ModernRequest { .. }, Event::Request { .. }]));
    assert_eq!(driven.lines()[0], json!({"jsonrpc": "2.0", "id": 4, "result": {}}));

    // The other way round: the handshake is still possible after modern requests.
    let mut driven = server();
    driven.say(&request(1, "server/discover", &json!({"_meta": meta()})));
    driven.say(&request(2, "tools/list", &json!({})));
    assert_eq!(driven.lines()[0]["error"]["code"], -32600, "without metadata it is a legacy request, and too early");
    driven.say(&request(3, "initialize", &json!({"protocolVersion": "2025-11-25", "capabilities": {}})));
    let events = driven.events();
    let [_, Event::Initialize { id, .. }] = &events[..] else { panic!("{events:?}") };
    assert!(driven.connection.accept_handshake(driven.now, id, &hello_out()).is_some());
}

#[test]
fn methods_of_the_handshake_are_no_methods_of_the_stateless_revisions() {
    // The connection answers neither `ping` nor `initialize` by itself when they carry metadata: both were removed.
    let mut driven = server();
    for (id, method) in [(1, "ping"), (2, "initialize")] {
        driven.say(&request(id, method, &json!({"_meta": meta(), "protocolVersion": "2025-11-25"})));
    }
    assert!(driven.lines().is_empty());
    assert!(matches!(&driven.events()[..], [Event::ModernRequest { .. }, Event::ModernRequest { .. }]));
}

#[test]
fn a_probe_without_metadata_learns_what_is_missing() {
    let mut driven = server();
    for method in ["server/discover", "subscriptions/listen"] {
        driven.say(&request(1, method, &json!({})));
        assert_eq!(driven.lines()[0]["error"]["code"], -32602, "{method}");
    }
}

#[test]
fn cancelled_and_repeated_ids_follow_the_rules_of_the_connection() {
    let mut driven = server();
    driven.say(&request(5, "tools/call", &json!({"name": "t", "_meta": meta()})));
    driven.say(&request(5, "tools/call", &json!({"name": "t", "_meta": meta()})));
    assert_eq!(driven.lines()[0]["error"]["code"], -32600, "the id is in use");
    driven.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#);
    let events = driven.events();
    assert!(matches!(&events[..], [Event::ModernRequest { .. }, Event::CancelRequested { .. }]), "{events:?}");
    assert!(!driven.connection.respond(&5.into(), Ok(raw("{}"))), "nothing more is sent for it (ST-06)");
    assert!(driven.lines().is_empty());
}

#[test]
fn nothing_is_notified_to_a_client_that_said_nothing() {
    let mut driven = server();
    assert_eq!(driven.connection.notify("notifications/x", None), Err(SendError::NotReady));
}

#[test]
fn a_client_does_not_take_requests_of_the_stateless_revisions() {
    // ST-03: servers of these revisions send none.
    let mut driven = Driven::ready_client(ConnectionConfig::client(), "{}");
    driven.say(&request(1, "roots/list", &json!({"_meta": meta()})));
    assert_eq!(driven.lines()[0]["error"]["code"], -32601);
    assert!(driven.events().is_empty());
}

fn us() -> Implementation {
    Implementation { name: "plugward".to_owned(), version: "1".to_owned(), title: None }
}

fn completed(result: &str, caching: Option<Caching>) -> String {
    modern::complete(&raw(result), &us(), caching).get().to_owned()
}

#[test]
fn a_result_of_a_legacy_server_becomes_a_complete_one() {
    // Case B059: what we do not know passes through, digits and order included.
    let info = r#""io.modelcontextprotocol/serverInfo":{"name":"plugward","version":"1"}"#;
    assert_eq!(
        completed(r#"{"z":1.10,"content":[],"future":{"n":12345678901234567890}}"#, None),
        format!(
            r#"{{"resultType":"complete","z":1.10,"content":[],"future":{{"n":12345678901234567890}},"_meta":{{{info}}}}}"#
        )
    );
    assert_eq!(
        completed(
            r#"{"resultType":"input_required","_meta":{"a":1,"io.modelcontextprotocol/serverInfo":{"name":"x"}}}"#,
            None
        ),
        format!(r#"{{"resultType":"input_required","_meta":{{"a":1,{info}}}}}"#)
    );
    let caching = Some(Caching { ttl_ms: 5, scope: CacheScope::Private });
    assert_eq!(
        completed(r#"{"tools":[],"ttlMs":-1,"cacheScope":"public"}"#, caching),
        format!(r#"{{"resultType":"complete","tools":[],"ttlMs":5,"cacheScope":"private","_meta":{{{info}}}}}"#)
    );
    let public = Some(Caching { ttl_ms: 0, scope: CacheScope::Public });
    assert!(completed("{}", public).contains(r#""ttlMs":0,"cacheScope":"public""#));
}

#[test]
fn what_a_client_says_of_itself_goes_no_further() {
    // The next server has its own idea of what its client, which is us, can do.
    let mut said = meta();
    said["traceparent"] = json!("00-1-2-01");
    said["own.example/x"] = json!([1]);
    let left = modern::without_hop(&raw(&said.to_string())).unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(left.get()).unwrap(),
        json!({"traceparent": "00-1-2-01", "own.example/x": [1]})
    );
    assert!(modern::without_hop(&raw(&meta().to_string())).is_none());
}

#[test]
fn filters_of_streams_are_read_and_told_back() {
    let parse = |filter: Value| ListenFilter::parse(Some(&raw(&json!({"notifications": filter}).to_string())));
    let all = json!({
        "toolsListChanged": true, "promptsListChanged": false, "resourcesListChanged": null,
        "resourceSubscriptions": ["file:///a\"b"], "later": 1
    });
    let filter = parse(all).unwrap();
    assert_eq!((filter.tools, filter.prompts, filter.resources, filter.updates.len()), (true, false, false, 1));
    let text = modern::acknowledged(&RequestId::from("s"), &filter);
    assert_eq!(
        serde_json::from_str::<Value>(text.get()).unwrap(),
        json!({
            "_meta": {"io.modelcontextprotocol/subscriptionId": "s"},
            "notifications": {"toolsListChanged": true, "resourceSubscriptions": ["file:///a\"b"]}
        })
    );
    assert_eq!(
        serde_json::from_str::<Value>(modern::stream_closed(&9.into()).get()).unwrap(),
        json!({"_meta": {"io.modelcontextprotocol/subscriptionId": 9}})
    );
    assert_eq!(parse(json!({})).unwrap(), ListenFilter::default());
    let too_many: Vec<String> = (0..257).map(|n| format!("x:{n}")).collect();
    for bad in [
        json!([]),
        Value::Null,
        json!({"toolsListChanged": 1}),
        json!({"resourceSubscriptions": "x:1"}),
        json!({"resourceSubscriptions": [1]}),
        json!({"resourceSubscriptions": too_many}),
    ] {
        assert_eq!(parse(bad.clone()).unwrap_err().code, -32602, "{bad}");
    }
    assert_eq!(ListenFilter::parse(None).unwrap_err().code, -32602);
}

#[test]
fn levels_are_ordered_as_their_gravity() {
    assert!(LogLevel::ALL.is_sorted());
    for level in LogLevel::ALL {
        assert_eq!(LogLevel::parse(level.as_str()), Some(level));
    }
    assert_eq!(LogLevel::parse("Warning"), None);
}

#[test]
fn a_missing_capability_is_named_as_an_object() {
    let error = modern::missing_capability("sampling");
    assert_eq!(error.code, -32021);
    let data: Value = serde_json::from_str(error.data.unwrap().get()).unwrap();
    assert_eq!(data, json!({"requiredCapabilities": {"sampling": {}}}));
}
