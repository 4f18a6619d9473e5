//! The client role in the stateless revisions: the probe, what goes with requests, results that ask, streams, and that
//! nothing but requests and notifications is ever written to such a server.

use plugward_protocol::modern::client::{self, ResultKind};
use plugward_protocol::modern::{ListenFilter, LogLevel};
use plugward_protocol::{
    ClientMeta, Connection, ConnectionConfig, Event, Implementation, InputRequired, PeerFault, ProbeFailure,
    ProtocolVersion, RequestFailure, RequestTiming, SendError,
};
use serde_json::{Value, json};

use crate::support::{Driven, LIMIT, hello, raw, seconds};

fn says() -> ClientMeta {
    ClientMeta::new(Implementation { name: "plugward".to_owned(), version: "0.1.0".to_owned(), title: None })
}

fn probing(config: ConnectionConfig) -> Driven {
    let mut driven = Driven::new(config);
    driven.connection.start_probe(driven.now, says(), LIMIT).unwrap();
    driven
}

const DISCOVERED: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2027-01-01","2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"instructions":"ask nicely","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fx","version":"2"}},"ttlMs":0,"cacheScope":"public"}}"#;

/// A client that found a server of these revisions.
fn stateless(config: ConnectionConfig) -> Driven {
    let mut driven = probing(config);
    driven.say(DISCOVERED);
    assert!(matches!(driven.events()[..], [Event::Discovered(_)]));
    driven.lines();
    driven
}

fn tolerant() -> Driven {
    stateless(ConnectionConfig::tolerant_client())
}

fn answer(id: &impl ToString, result: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.to_string())
}

#[test]
fn a_server_that_can_be_discovered_needs_no_handshake() {
    // Requirement 5 for these revisions, ST-09, BP-12: what is agreed on is in each request.
    let mut driven = probing(ConnectionConfig::client());
    let lines = driven.lines();
    let meta = &lines[0]["params"]["_meta"];
    assert_eq!((&lines[0]["method"], lines.len()), (&json!("server/discover"), 1));
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "plugward");
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
    assert!(!driven.connection.is_ready());

    driven.say(DISCOVERED);
    let events = driven.events();
    let [Event::Discovered(hello)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(hello.version, ProtocolVersion::V2026_07_28);
    assert_eq!(hello.server.as_ref().unwrap().name, "fx");
    assert_eq!((hello.has_capability("tools"), hello.instructions.as_deref()), (true, Some("ask nicely")));
    assert!(driven.connection.is_ready() && driven.lines().is_empty(), "nothing confirms it");

    let theirs = r#"{"name":"x","arguments":{"n":1.50},"_meta":{"progressToken":9,"io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"com.demo/trace":"t"}}"#;
    driven.request("tools/call", theirs);
    let text = driven.texts().remove(0);
    assert!(text.contains(r#""arguments":{"n":1.50}"#), "digits stay: {text}");
    let meta = serde_json::from_str::<Value>(&text).unwrap()["params"]["_meta"].clone();
    assert_eq!((&meta["progressToken"], &meta["com.demo/trace"]), (&json!(9), &json!("t")));
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}), "another client's word is not ours");
}

#[test]
fn metadata_of_one_request_may_differ() {
    let mut driven = tolerant();
    let id = driven.connection.reserve_id();
    let meta = ClientMeta { capabilities: raw(r#"{"elicitation":{}}"#), log_level: Some(LogLevel::Warning), ..says() };
    let (now, timing) = (driven.now, RequestTiming::within(LIMIT));
    driven.connection.send_request_as(now, id, "tools/call", Some(&raw("{}")), timing, &meta).unwrap();
    let meta = driven.lines().remove(0)["params"]["_meta"].clone();
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({"elicitation": {}}));
    assert_eq!(meta["io.modelcontextprotocol/logLevel"], "warning");
    let bad = driven.connection.reserve_id();
    assert_eq!(driven.connection.send_request(now, bad, "x", Some(raw("[]")), timing), Err(SendError::BadParams));
}

#[test]
fn whatever_is_no_word_of_these_revisions_means_an_older_server() {
    // ST-09: no single error code decides, and neither does silence.
    let older = [
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"not initialized"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"bad"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":[]}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"later","supportedVersions":["2026-07-28"]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2025-06-18"]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"v","data":{"supported":["2025-11-25"]}}}"#,
    ];
    for line in older {
        let mut driven = probing(ConnectionConfig::tolerant_client());
        driven.say(line);
        let events = driven.events();
        assert!(matches!(events[..], [Event::ProbeFailed(ProbeFailure::Legacy(_))]), "{line}: {events:?}");
        driven.connection.start_handshake(driven.now, hello("{}"), LIMIT).unwrap();
    }
    let mut silent = probing(ConnectionConfig::client());
    silent.lines();
    silent.pass(LIMIT);
    assert!(matches!(silent.events()[..], [Event::ProbeFailed(ProbeFailure::Legacy(_))]));
    assert!(silent.lines().is_empty(), "a server that may not know the request is told nothing about it");
    // Its late answer is nobody's, and the handshake that began meanwhile is not taken for it.
    silent.connection.start_handshake(silent.now, hello("{}"), LIMIT).unwrap();
    silent.say(DISCOVERED);
    assert!(matches!(silent.events()[..], [Event::LateAnswer { .. }]));
}

#[test]
fn a_server_of_these_revisions_is_not_taken_for_an_older_one() {
    // ST-09: falling back would greet a server that has no greeting.
    let mut unknown = probing(ConnectionConfig::client());
    unknown
        .say(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"v","data":{"supported":["2031-01-01"]}}}"#);
    let events = unknown.events();
    let [Event::ProbeFailed(failure @ ProbeFailure::NoCommonVersion { .. })] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(failure.to_string().contains("2031-01-01"));
    let mut refused = probing(ConnectionConfig::client());
    refused.say(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"needs more"}}"#);
    assert!(matches!(refused.events()[..], [Event::ProbeFailed(ProbeFailure::Refused(_))]));
    let mut newer = probing(ConnectionConfig::client());
    newer.say(&answer(&1, &json!({"resultType": "complete", "supportedVersions": ["2031-01-01"]})));
    assert!(matches!(newer.events()[..], [Event::ProbeFailed(ProbeFailure::NoCommonVersion { .. })]));
}

#[test]
fn nothing_is_written_in_answer_to_such_a_server() {
    // ST-03: a server that asks all the same, by any kind of line, gets nothing to read.
    let lines = [
        r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":6,"method":"roots/list"}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":8,"method":"ping","params":7}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
        r#"[{"jsonrpc":"2.0","id":9,"method":"ping"}]"#,
        "not a message",
    ];
    let mut driven = tolerant();
    for line in lines {
        driven.say(line);
        assert!(driven.lines().is_empty(), "{line}");
    }
    let events = driven.events();
    assert!(events.iter().all(|event| matches!(event, Event::Noise { .. })), "{events:?}");
    assert_eq!(driven.connection.noise_count(), 7);
    let mut early = probing(ConnectionConfig::tolerant_client());
    early.lines();
    early.say(lines[0]);
    assert!(early.lines().is_empty(), "while it is not known what it is, too");
    let mut strict = stateless(ConnectionConfig::client());
    strict.say(lines[1]);
    let events = strict.events();
    let [Event::Fatal(PeerFault::ForbiddenRequest { method })] = &events[..] else { panic!("{events:?}") };
    assert_eq!(method, "roots/list");
    // The control: a server with a handshake gets its answer.
    let mut legacy = Driven::ready_client(ConnectionConfig::tolerant_client(), "{}");
    legacy.say(lines[0]);
    assert_eq!(legacy.lines()[0]["result"], json!({}));
}

#[test]
fn results_say_what_they_are() {
    // BP-04: absent means complete, unknown is invalid.
    let mut driven = tolerant();
    for (result, ends) in [
        (json!({"content": []}), "complete"),
        (json!({"resultType": "complete"}), "complete"),
        (json!({"resultType": "input_required", "requestState": "s"}), "asks"),
        (json!({"resultType": "task", "taskId": "1"}), "fails"),
        (json!({"resultType": 7}), "fails"),
        (json!("text"), "fails"),
    ] {
        let id = driven.request("tools/call", "{}");
        driven.say(&answer(&id, &result));
        let events = driven.events();
        let ended = match &events[..] {
            [Event::Response { outcome: Ok(_), .. }] => "complete",
            [Event::InputRequired { .. }] => "asks",
            [Event::Failed { cause: RequestFailure::UnknownResult { .. }, .. }] => "fails",
            other => panic!("{other:?}"),
        };
        assert_eq!(ended, ends, "{result}");
    }
    assert_eq!(client::result_kind(&raw(r#"{"resultType":"complete","resultType":"x"}"#)).ok(), None);
    assert_eq!(client::result_kind(&raw("{}")).unwrap(), ResultKind::Complete);
}

#[test]
fn a_request_for_input_is_read_and_answered_byte_for_byte() {
    // MR-02, MR-04: the state is the server's; one escaped otherwise would be another text to a careless reader.
    let text = r#"{"resultType":"input_required","inputRequests":{"b":{"method":"elicitation/create","params":{"message":"m"}},"a":{"method":"roots/list"}},"requestState":"\u0041=="}"#;
    let asked = InputRequired::parse(&raw(text)).unwrap();
    let keys: Vec<&str> = asked.requests.iter().map(|request| request.key.as_str()).collect();
    assert_eq!((keys, asked.requests[1].params.is_none()), (vec!["b", "a"], true));
    let answers = [("b".to_owned(), raw(r#"{"action":"accept"}"#))];
    let before = raw(r#"{"name":"t","requestState":"old","inputResponses":{"x":{}}}"#);
    let answers = client::responses(&answers);
    let again = client::with_inputs(Some(&before), Some(&answers), asked.state.as_deref()).unwrap();
    assert_eq!(again.get(), r#"{"name":"t","requestState":"\u0041==","inputResponses":{"b":{"action":"accept"}}}"#);
    let without = client::with_inputs(Some(&before), None, None).unwrap();
    assert_eq!(without.get(), r#"{"name":"t"}"#, "a state is never invented");
    for wrong in [
        r#"{"resultType":"input_required"}"#,
        r#"{"requestState":7}"#,
        r#"{"inputRequests":[]}"#,
        r#"{"inputRequests":{"a":{"method":7}}}"#,
        r#"{"inputRequests":{"a":{"method":"x"},"a":{"method":"y"}}}"#,
        r#"{"inputRequests":{"a":{"method":"x","params":[]}}}"#,
    ] {
        assert!(InputRequired::parse(&raw(wrong)).is_err(), "{wrong}");
    }
    let many: serde_json::Map<String, Value> =
        (0..=client::MAX_INPUT_REQUESTS).map(|key| (key.to_string(), json!({"method": "roots/list"}))).collect();
    assert!(InputRequired::parse(&raw(&json!({"inputRequests": many}).to_string())).is_err());
}

#[test]
fn notices_go_to_the_stream_they_name() {
    // ST-05, SU-01: two streams on one connection do not mix, and one that ended is quiet.
    let mut driven = tolerant();
    let both = ListenFilter { tools: true, updates: vec!["x:1".to_owned()], ..ListenFilter::default() };
    let (first, second) = (
        driven.request("subscriptions/listen", both.to_params().get()),
        driven.request("subscriptions/listen", ListenFilter::default().to_params().get()),
    );
    assert_eq!(
        driven.lines()[0]["params"]["notifications"],
        json!({"toolsListChanged": true, "resourceSubscriptions": ["x:1"]})
    );
    let note = |stream: &Value| {
        let meta = json!({"io.modelcontextprotocol/subscriptionId": stream});
        json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"_meta": meta}}).to_string()
    };
    let number = |id: &dyn ToString| json!(id.to_string().parse::<u64>().unwrap());
    driven.say(&note(&number(&second)));
    let events = driven.events();
    let [Event::Notice { stream, method, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((stream, method.as_str()), (&second, "notifications/tools/list_changed"));
    // The server ends one by a cancellation, the other by a result.
    driven.say(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{second}}}}}"#));
    assert!(matches!(driven.events()[..], [Event::Failed { cause: RequestFailure::Withdrawn, .. }]));
    driven.say(&answer(&first, &json!({"resultType": "complete"})));
    assert!(matches!(driven.events()[..], [Event::Response { .. }]));
    for stream in [number(&first), number(&second), json!(99), json!("1")] {
        driven.say(&note(&stream));
        assert!(driven.events().is_empty(), "{stream}");
    }
    assert!(driven.lines().is_empty());
}

#[test]
fn requests_end_by_time_and_by_cancel_as_in_any_revision() {
    // ST-06, CA-01, PG-01
    let mut driven = tolerant();
    let slow = driven.request_within("tools/call", "{}", RequestTiming { idle: seconds(2), hard: seconds(9) });
    let other = driven.request("tools/call", "{}");
    driven.lines();
    driven.pass(seconds(1));
    driven.say(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{slow},"progress":1}}}}"#
    ));
    assert!(matches!(driven.events()[..], [Event::Progress { .. }]));
    assert!(driven.connection.cancel(driven.now, other, "enough"));
    driven.pass(seconds(2));
    let cancelled: Vec<Value> = driven.lines().into_iter().map(|line| line["params"]["requestId"].clone()).collect();
    assert_eq!(cancelled, [&other, &slow].map(|id| json!(id.to_string().parse::<u64>().unwrap())));
}

/// Moves every line between two connections until both are quiet.
fn settle(client: &mut Connection, server: &mut Connection, now: std::time::Instant) {
    loop {
        let mut moved = false;
        while let Some(line) = client.poll_transmit() {
            server.handle_input(now, &line);
            moved = true;
        }
        while let Some(line) = server.poll_transmit() {
            client.handle_input(now, &line);
            moved = true;
        }
        if !moved {
            return;
        }
    }
}

#[test]
fn our_two_halves_understand_each_other() {
    // The server role was checked by the suite of others; this holds the client role to it.
    let now = std::time::Instant::now();
    let mut client = Connection::new(ConnectionConfig::client());
    let mut server = Connection::new(ConnectionConfig::server());
    client.start_probe(now, says(), LIMIT).unwrap();
    settle(&mut client, &mut server, now);
    let Some(Event::ModernRequest { id, method, meta, .. }) = server.poll_event() else { panic!("no request") };
    assert_eq!((method.as_str(), meta.client.unwrap().name.as_str()), ("server/discover", "plugward"));
    let result = raw(r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#);
    assert!(server.respond(&id, Ok(result)));
    settle(&mut client, &mut server, now);
    assert!(matches!(client.poll_event(), Some(Event::Discovered(_))));
    for round in 0..50 {
        let id = client.reserve_id();
        client.send_request(now, id, "tools/list", None, RequestTiming::within(LIMIT)).unwrap();
        settle(&mut client, &mut server, now);
        let Some(Event::ModernRequest { id: theirs, .. }) = server.poll_event() else { panic!("no request") };
        if round % 2 == 0 {
            assert!(server.respond(&theirs, Ok(raw(r#"{"resultType":"complete","tools":[]}"#))));
            settle(&mut client, &mut server, now);
            assert!(matches!(client.poll_event(), Some(Event::Response { id: ours, .. }) if ours == id));
        } else {
            assert!(client.cancel(now, id, "enough"));
            settle(&mut client, &mut server, now);
            assert!(matches!(server.poll_event(), Some(Event::CancelRequested { .. })));
            assert!(!server.respond(&theirs, Ok(raw("{}"))), "nothing more is said about it");
            assert!(matches!(client.poll_event(), Some(Event::Failed { cause: RequestFailure::Cancelled, .. })));
        }
    }
    assert_eq!((client.in_flight(), server.inbound_in_flight()), (0, 0));
}
