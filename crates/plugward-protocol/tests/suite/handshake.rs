//! The legacy handshake, both halves.

use plugward_protocol::{
    ConnectionConfig, Event, HandshakeError, Implementation, ProtocolVersion, RequestTiming, RpcError, SendError,
};

use crate::support::{Driven, LIMIT, hello, hello_out, raw, seconds};

fn asking() -> Driven {
    let mut driven = Driven::new(ConnectionConfig::client());
    driven.connection.start_handshake(driven.now, hello("{}"), LIMIT).unwrap();
    driven
}

/// What becomes of a handshake whose answer has this `result`.
fn answered(result: &str) -> Event {
    let mut driven = asking();
    driven.say(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));
    let mut events = driven.events();
    assert_eq!(events.len(), 1, "{events:?}");
    events.remove(0)
}

#[test]
fn a_client_speaks_in_the_required_order() {
    // Requirements 5, 7, 42, 43: initialize, answer, checks of the host, initialized, only then anything else.
    let mut driven = asking();
    let sent = driven.lines();
    assert_eq!(sent[0]["method"], "initialize");
    assert_eq!(sent[0]["params"]["protocolVersion"], "2025-11-25");
    assert_eq!(sent[0]["params"]["clientInfo"]["name"], "plugward");
    let id = driven.connection.reserve_id();
    let timing = RequestTiming::within(LIMIT);
    let early = driven.connection.send_request(driven.now, id, "tools/list", None, timing);
    assert_eq!(early, Err(SendError::NotReady));

    driven.say(
        r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"x":null},"serverInfo":{"name":"s","version":"1","title":"S"},"instructions":"be kind","_meta":{"k":1}}}"#,
    );
    let events = driven.events();
    let [Event::Handshaken(answer)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(answer.version, ProtocolVersion::V2025_06_18);
    assert!(answer.has_capability("tools") && !answer.has_capability("prompts") && !answer.has_capability("x"));
    assert_eq!(answer.instructions.as_deref(), Some("be kind"));
    assert_eq!(answer.server.as_ref().unwrap().title.as_deref(), Some("S"));
    assert!(answer.raw.get().contains(r#""_meta":{"k":1}"#));

    let early = driven.connection.send_request(driven.now, id, "tools/list", None, timing);
    assert_eq!(early, Err(SendError::NotReady), "not before the host confirmed");
    assert!(driven.lines().is_empty(), "nothing is sent before the host confirmed");
    driven.connection.confirm_handshake(driven.now).unwrap();
    driven.connection.send_request(driven.now, id, "tools/list", None, timing).unwrap();
    let sent = driven.lines();
    assert_eq!(sent[0]["method"], "notifications/initialized");
    assert_eq!(sent[1]["method"], "tools/list");
    assert_eq!(driven.connection.confirm_handshake(driven.now), Err(SendError::NotReady), "confirmed only once");
}

#[test]
fn a_handshake_starts_once() {
    let mut driven = asking();
    let again = driven.connection.start_handshake(driven.now, hello("{}"), LIMIT);
    assert_eq!(again, Err(SendError::HandshakeNotPossible));
    let mut server = Driven::new(ConnectionConfig::server());
    let wrong = server.connection.start_handshake(server.now, hello("{}"), LIMIT);
    assert_eq!(wrong, Err(SendError::HandshakeNotPossible));
}

#[test]
fn every_supported_version_is_accepted_and_no_other() {
    // Requirement 5, case B032.
    for version in ProtocolVersion::SUPPORTED {
        let event = answered(&format!(r#"{{"protocolVersion":"{}","capabilities":{{}}}}"#, version.as_str()));
        assert!(matches!(event, Event::Handshaken(hello) if hello.version == version));
    }
    for version in ["2099-01-01", "2026-07-28", "2025-11-2", "", "1.0"] {
        let event = answered(&format!(r#"{{"protocolVersion":"{version}","capabilities":{{}}}}"#));
        let Event::HandshakeFailed(error) = event else { panic!("{version}: {event:?}") };
        let text = error.to_string();
        assert!(text.contains(&format!("`{version}`")), "{text}");
        assert!(text.contains("2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05"), "{text}");
    }
    let hostile = answered("{\"protocolVersion\":\"\\u001b[2J\",\"capabilities\":{}}");
    assert!(matches!(hostile, Event::HandshakeFailed(error) if !error.to_string().contains('\u{1b}')));
}

#[test]
fn invalid_answers_fail_the_handshake_with_a_reason() {
    for (result, reason) in [
        ("{}", "`protocolVersion` is missing"),
        ("[]", "result is not an object"),
        ("null", "result is not an object"),
        (r#"{"protocolVersion":1}"#, "`protocolVersion` is not a string"),
        (r#"{"protocolVersion":"2025-11-25","capabilities":[]}"#, "`capabilities` is not an object"),
        (r#"{"protocolVersion":"2025-11-25","protocolVersion":"x"}"#, "`protocolVersion` stands more than once"),
    ] {
        let event = answered(result);
        assert!(
            matches!(&event, Event::HandshakeFailed(HandshakeError::InvalidResult { reason: found }) if found == reason),
            "{result}: {event:?}"
        );
    }
    // What is only shown to people may be odd.
    let event = answered(r#"{"protocolVersion":"2025-11-25","serverInfo":"me","instructions":7}"#);
    let Event::Handshaken(answer) = event else { panic!("{event:?}") };
    assert_eq!((answer.server, answer.instructions, answer.capabilities.get()), (None, None, "{}"));
}

#[test]
fn errors_silence_and_closing_end_the_handshake() {
    let mut driven = asking();
    driven.say(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}"#);
    assert!(matches!(
        &driven.events()[..],
        [Event::HandshakeFailed(HandshakeError::Rejected(RpcError { code: -32602, .. }))]
    ));

    // LG-05: a timed-out initialize is not cancelled.
    let mut driven = asking();
    driven.lines();
    assert_eq!(driven.connection.poll_timeout(), Some(driven.now + LIMIT));
    driven.pass(LIMIT);
    assert!(matches!(driven.events()[..], [Event::HandshakeFailed(HandshakeError::TimedOut { limit: LIMIT })]));
    assert!(driven.lines().is_empty());
    driven.say(r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}"#);
    assert!(matches!(driven.events()[..], [Event::LateAnswer { .. }]), "a late answer revives nothing");

    let mut driven = asking();
    driven.connection.handle_input_closed(driven.now);
    assert!(matches!(driven.events()[..], [Event::HandshakeFailed(HandshakeError::Closed)]));

    // Requirement 81: a banner before the answer; the reason is in both events.
    let mut driven = asking();
    driven.say("Demo Server v1.2.3");
    let events = driven.events();
    let [Event::HandshakeFailed(error @ HandshakeError::Broken(_)), Event::Fatal(_)] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(error.to_string().contains("`Demo Server v1.2.3`"), "{error}");

    let mut driven = asking();
    driven.say(r#"{"jsonrpc":"2.0","id":1,"error":"just a string"}"#);
    let events = driven.events();
    let [Event::HandshakeFailed(error)] = &events[..] else { panic!("{events:?}") };
    assert!(error.to_string().contains("just a string"));
}

#[test]
fn a_server_announces_the_version_asked_for_or_its_newest() {
    // Case B032, our server side.
    for (asked, expected) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-06-18", "2025-06-18"),
        ("1999-01-01", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
    ] {
        let mut driven = Driven::new(ConnectionConfig::server());
        driven.say(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{asked}","capabilities":{{"roots":{{}}}}}}}}"#
        ));
        let events = driven.events();
        let [Event::Initialize { id, requested_version, client, params, .. }] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(requested_version, asked);
        assert_eq!(*client, None::<Implementation>, "a client that hides its name is served");
        assert!(params.get().contains("roots"));
        driven.connection.accept_handshake(driven.now, id, &hello_out()).unwrap();
        let sent = driven.lines();
        assert_eq!(sent[0]["result"]["protocolVersion"], expected);
        assert_eq!(sent[0]["result"]["serverInfo"]["name"], "plugward");
        assert!(driven.connection.accept_handshake(driven.now, &1.into(), &hello_out()).is_none());
        assert!(driven.lines().is_empty(), "answered once");
    }
}

#[test]
fn before_the_handshake_a_server_serves_ping_alone() {
    // LG-01, case B082: a probe that names no version gets an error and the client can go on with initialize.
    let mut driven = Driven::new(ConnectionConfig::server());
    driven.say(r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}"#);
    driven.say(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#);
    driven.say(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#);
    driven.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    driven.say(r#"{"jsonrpc":"2.0","method":"notifications/anything"}"#);
    let sent = driven.lines();
    assert_eq!(sent.len(), 3);
    assert_eq!((&sent[0]["id"], &sent[0]["error"]["code"]), (&1.into(), &(-32602).into()));
    assert_eq!((&sent[1]["id"], &sent[1]["error"]["code"]), (&2.into(), &(-32600).into()));
    assert_eq!((&sent[2]["id"], sent[2]["result"].as_object().unwrap().len()), (&3.into(), 0));
    assert!(driven.events().is_empty());
    driven.say(r#"{"jsonrpc":"2.0","id":4,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#);
    assert!(matches!(driven.events()[..], [Event::Initialize { .. }]));
}

#[test]
fn initialize_with_bad_params_can_be_repeated_and_a_second_one_is_refused() {
    let mut driven = Driven::new(ConnectionConfig::server());
    for params in ["", ",\"params\":[1]", ",\"params\":{}", ",\"params\":{\"protocolVersion\":1}"] {
        driven.say(&format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"{params}}}"));
        assert_eq!(driven.lines()[0]["error"]["code"], -32602, "{params}");
    }
    let good = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
    driven.say(good);
    driven.events();
    // The owner may turn a client away; then it may try again.
    assert!(driven.connection.respond(&1.into(), Err(RpcError::new(-32603, "not now"))));
    assert_eq!(driven.lines()[0]["error"]["message"], "not now");
    driven.say(good);
    assert!(matches!(driven.events()[..], [Event::Initialize { .. }]));
    driven.connection.accept_handshake(driven.now, &1.into(), &hello_out()).unwrap();
    driven.lines();
    driven.say(&good.replace("\"id\":1", "\"id\":9"));
    assert_eq!(driven.lines()[0]["error"]["code"], -32600);
    assert!(driven.events().is_empty());
}

#[test]
fn a_client_that_sends_everything_at_once_is_served_in_order() {
    // Case B086: `printf '...' | plugward serve --stdio` writes all lines before it reads one, and closes its end.
    let mut driven = Driven::new(ConnectionConfig::server());
    driven.bytes(
        concat!(
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#,
            "\n",
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            "\n",
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#, // no newline at the end
        )
        .as_bytes(),
    );
    driven.connection.handle_input_closed(driven.now);
    let events = driven.events();
    assert!(
        matches!(&events[..], [Event::Initialize { .. }, Event::Initialized, Event::Request { method, .. }] if method == "tools/list"),
        "{events:?}"
    );
    driven.connection.accept_handshake(driven.now, &1.into(), &hello_out()).unwrap();
    assert!(driven.connection.respond(&2.into(), Ok(raw(r#"{"tools":[]}"#))), "answers go out after the input closed");
    let sent = driven.lines();
    assert_eq!((&sent[0]["id"], &sent[1]["id"]), (&1.into(), &2.into()));
}

#[test]
fn a_server_asks_its_client_only_after_initialized() {
    let mut driven = Driven::new(ConnectionConfig::server());
    driven.say(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#);
    driven.connection.accept_handshake(driven.now, &1.into(), &hello_out()).unwrap();
    let id = driven.connection.reserve_id();
    let timing = RequestTiming::within(seconds(1));
    let early = driven.connection.send_request(driven.now, id, "roots/list", None, timing);
    assert_eq!(early, Err(SendError::NotReady));
    driven.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    driven.connection.send_request(driven.now, id, "roots/list", None, timing).unwrap();
}
