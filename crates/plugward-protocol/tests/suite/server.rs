//! The server role: requests of a client, cancellation, batches, malformed input.

use plugward_protocol::{ConnectionConfig, Event, PeerFault, RequestId, RpcError};
use serde_json::Value;

use crate::support::{Driven, hello_out, raw};

fn server() -> Driven {
    Driven::ready_server("2025-06-18")
}

/// The only line written in reply to one line.
fn reply(driven: &mut Driven, line: &str) -> Value {
    driven.say(line);
    let mut sent = driven.lines();
    assert_eq!(sent.len(), 1, "{line}: {sent:?}");
    sent.remove(0)
}

#[test]
fn malformed_input_gets_the_documented_code() {
    // Case B075: bad JSON, bad envelope, null id, in our own words.
    let mut driven = server();
    let null = Value::Null;
    let cases: [(&str, Value, i64); 14] = [
        ("{not json", null.clone(), -32700),
        ("[{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}]", null.clone(), -32600),
        ("[]", null.clone(), -32600),
        ("17", null.clone(), -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, null.clone(), -32600),
        (r#"{"id":3,"method":"ping"}"#, 3.into(), -32600),
        (r#"{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}"#, null.clone(), -32600),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, null.clone(), -32600),
        (r#"{"jsonrpc":"2.0","id":"q","method":5}"#, "q".into(), -32600),
        (r#"{"jsonrpc":"2.0","id":"q","method":"ping","method":"ping"}"#, "q".into(), -32600),
        (r#"{"jsonrpc":"2.0","id":"q"}"#, "q".into(), -32600),
        (r#"{"jsonrpc":"2.0","id":"q","method":"tools/list","params":4}"#, "q".into(), -32602),
        (r#"{"jsonrpc":"2.0","id":3,"method":"ping","params":NaN}"#, null.clone(), -32700),
        (r#"{"jsonrpc":"1.0","method":"x"}"#, null, -32600),
    ];
    for (line, id, code) in cases {
        let reply = reply(&mut driven, line);
        assert_eq!((&reply["id"], &reply["error"]["code"]), (&id, &code.into()), "{line}");
        assert!(reply["error"]["message"].as_str().is_some_and(|text| !text.is_empty()));
    }
    for line in ["", "  ", r#"{"jsonrpc":"2.0","method":"notifications/x","params":4}"#] {
        driven.say(line);
        assert!(driven.lines().is_empty(), "{line}");
    }
    let nested = r#"{"jsonrpc":"2.0","method":"ping","params":{"id":77,"x":{"id":78}},"id":"s-9"}"#;
    assert_eq!(reply(&mut driven, nested)["id"], "s-9");
    assert_eq!(reply(&mut driven, r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#)["result"], serde_json::json!({}));
    assert!(driven.events().is_empty(), "none of it reached the owner");
}

#[test]
fn invalid_utf8_gets_a_parse_error_without_id() {
    // Case B050, our server side.
    let mut driven = server();
    driven.bytes(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\xff\"}\n");
    let sent = driven.lines();
    assert_eq!((&sent[0]["id"], &sent[0]["error"]["code"]), (&Value::Null, &(-32700).into()));
    assert_eq!(reply(&mut driven, r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#)["id"], 3);
}

#[test]
fn oversized_requests_are_refused_under_their_id() {
    let config = ConnectionConfig { max_message_bytes: 200, ..ConnectionConfig::server() };
    let mut driven = Driven::new(config);
    let long = "x".repeat(500);
    let line = format!(r#"{{"jsonrpc":"2.0","method":"tools/call","params":"{long}","id":12}}"#);
    let answer = reply(&mut driven, &line);
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&12.into(), &(-32600).into()));
    assert!(answer["error"]["message"].as_str().unwrap().contains("200 bytes"));
    driven.say(&format!(r#"{{"jsonrpc":"2.0","method":"n","params":"{long}"}}"#));
    assert!(driven.lines().is_empty(), "a notification is never answered");
    assert_eq!(reply(&mut driven, &long)["id"], Value::Null);
    assert_eq!(reply(&mut driven, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)["id"], 1);
}

#[test]
fn every_request_is_answered_once_under_its_own_id() {
    // Invariant 3; ids come back as they were, 64 bits or not, number or string.
    let mut driven = server();
    for id in ["5", "\"5\"", "123456789012345678901234567890", "-1", "\"\\u00e9\""] {
        driven.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t"}}}}"#));
    }
    let events = driven.events();
    assert_eq!(driven.connection.inbound_in_flight(), 5);
    for event in events.iter().rev() {
        let Event::Request { id, .. } = event else { panic!("{event:?}") };
        let result = raw(&format!("{{\"for\":{id}}}"));
        assert!(driven.connection.respond(id, Ok(result.clone())));
        assert!(!driven.connection.respond(id, Ok(result)), "a second answer is dropped");
    }
    assert!(!driven.connection.respond(&RequestId::from("unknown"), Ok(raw("{}"))));
    let texts = driven.texts();
    assert_eq!(texts.len(), 5);
    assert_eq!(texts[4], r#"{"jsonrpc":"2.0","id":5,"result":{"for":5}}"#);
    assert!(texts[2].contains("\"id\":123456789012345678901234567890,"));
}

#[test]
fn errors_carry_code_text_and_data() {
    let mut driven = server();
    driven.say(r#"{"jsonrpc":"2.0","id":5,"method":"x"}"#);
    let error = RpcError { code: -32602, message: "no \"such\" tool".to_owned(), data: Some(raw(r#"{"n":1e3}"#)) };
    driven.connection.respond(&5.into(), Err(error));
    assert_eq!(
        driven.texts()[0],
        r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32602,"message":"no \"such\" tool","data":{"n":1e3}}}"#
    );
}

#[test]
fn a_cancelled_request_is_never_answered() {
    // Case B057: no response with its id ever reaches the client, and the table is empty.
    let mut driven = server();
    driven.say(r#"{"jsonrpc":"2.0","id":"call-A","method":"tools/call","params":{"name":"wait"}}"#);
    driven.events();
    let cancel = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"user"}}}}"#
        )
    };
    driven.say(&cancel("\"never-existed\""));
    driven.say(&cancel("{}"));
    driven.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#);
    assert!(driven.events().is_empty(), "unknown and malformed cancellations are ignored");
    driven.say(&cancel("\"call-A\""));
    driven.say(&cancel("\"call-A\""));
    assert!(matches!(
        &driven.events()[..],
        [Event::CancelRequested { id, reason: Some(reason) }] if *id == RequestId::from("call-A") && reason == "user"
    ));
    assert_eq!(driven.connection.inbound_in_flight(), 0);
    assert!(!driven.connection.respond(&"call-A".into(), Ok(raw("{}"))));
    assert!(driven.lines().is_empty());
}

#[test]
fn the_answer_of_a_cancelled_call_never_reaches_a_newer_one() {
    let mut driven = server();
    let call = r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"wait"}}"#;
    driven.say(call);
    driven.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#);
    // The old call has not noticed yet when the client uses the id again.
    let refused = reply(&mut driven, call);
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &(-32600).into()));
    assert!(!driven.connection.respond(&5.into(), Ok(raw("\"old\""))));
    driven.events();
    driven.say(call);
    assert!(matches!(driven.events()[..], [Event::Request { .. }]), "afterwards the id is free");
    assert!(driven.connection.respond(&5.into(), Ok(raw("\"new\""))));
    assert_eq!(driven.lines()[0]["result"], "new");
}

#[test]
fn an_open_id_cannot_be_used_twice() {
    let mut driven = server();
    driven.say(r#"{"jsonrpc":"2.0","id":5,"method":"a"}"#);
    let refused = reply(&mut driven, r#"{"jsonrpc":"2.0","id":5,"method":"b"}"#);
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &(-32600).into()));
    assert!(matches!(&driven.events()[..], [Event::Request { method, .. }] if method == "a"));
    // The string "5" is another id.
    driven.say(r#"{"jsonrpc":"2.0","id":"5","method":"c"}"#);
    assert_eq!(driven.events().len(), 1);
}

#[test]
fn requests_in_flight_are_bounded() {
    let config = ConnectionConfig { max_inbound_in_flight: 2, ..ConnectionConfig::server() };
    let mut driven = Driven::new(config);
    driven.say(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#);
    driven.connection.accept_handshake(driven.now, &0.into(), &hello_out()).unwrap();
    driven.lines();
    driven.say(r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#);
    driven.say(r#"{"jsonrpc":"2.0","id":2,"method":"a"}"#);
    assert_eq!(reply(&mut driven, r#"{"jsonrpc":"2.0","id":3,"method":"a"}"#)["error"]["code"], -32603);
    assert_eq!(reply(&mut driven, r#"{"jsonrpc":"2.0","id":4,"method":"ping"}"#)["id"], 4, "ping needs no place");
    driven.connection.respond(&1.into(), Ok(raw("{}")));
    driven.lines();
    driven.say(r#"{"jsonrpc":"2.0","id":5,"method":"a"}"#);
    assert!(driven.lines().is_empty(), "a finished request makes room");
}

#[test]
fn batches_are_answered_as_one_line_where_the_version_has_them() {
    let mut driven = Driven::ready_server("2025-03-26");
    driven.say(
        r#"[{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","id":3,"method":"tools/list"},{"jsonrpc":"2.0","method":"n"},4,{"jsonrpc":"2.0","id":5,"method":"tools/call"}]"#,
    );
    assert!(driven.lines().is_empty(), "answers wait for the whole batch");
    driven.say(r#"{"jsonrpc":"2.0","id":6,"method":"ping"}"#);
    assert_eq!(driven.lines()[0]["id"], 6, "other requests do not wait for the batch");
    assert!(driven.connection.respond(&5.into(), Ok(raw("{}"))));
    assert!(driven.lines().is_empty());
    assert!(driven.connection.respond(&3.into(), Ok(raw("{}"))));
    let sent = driven.lines();
    assert_eq!(sent.len(), 1);
    let ids: Vec<String> = sent[0].as_array().unwrap().iter().map(|answer| answer["id"].to_string()).collect();
    assert_eq!(ids, ["2", "null", "5", "3"]);

    // A batch of notifications has no answer; a cancelled member does not hold the others back.
    driven.say(r#"[{"jsonrpc":"2.0","method":"n"}]"#);
    assert!(driven.lines().is_empty());
    driven.say(r#"[{"jsonrpc":"2.0","id":7,"method":"a"},{"jsonrpc":"2.0","id":8,"method":"a"}]"#);
    driven.connection.respond(&7.into(), Ok(raw("{}")));
    driven.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}"#);
    assert_eq!(driven.lines()[0].as_array().unwrap().len(), 1);
    assert_eq!(reply(&mut driven, "[]")["error"]["code"], -32600);
}

#[test]
fn answers_collected_for_a_batch_count_as_waiting_bytes() {
    // Invariant 7: one request that is never answered must not let the others pile up.
    let config = ConnectionConfig { max_queued_bytes: 20_000, ..ConnectionConfig::server() };
    let mut driven = Driven::new(config);
    driven.say(r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-03-26"}}"#);
    driven.connection.accept_handshake(driven.now, &"i".into(), &hello_out()).unwrap();
    driven.lines();
    let pings = r#",{"jsonrpc":"2.0","id":"ping-ping-ping-ping-ping-ping-ping-ping","method":"ping"}"#.repeat(99);
    for open in 0..10 {
        driven.say(&format!(r#"[{{"jsonrpc":"2.0","id":{open},"method":"never"}}{pings}]"#));
    }
    assert!(matches!(driven.events().last(), Some(Event::Fatal(PeerFault::NotReading { limit: 20_000 }))));
}

#[test]
fn a_caller_that_does_not_read_is_held_back_then_cut_off() {
    let config = ConnectionConfig { max_queued_bytes: 1000, ..ConnectionConfig::server() };
    let mut driven = Driven::new(config);
    let mut held_back_at = None;
    for number in 0..100 {
        if held_back_at.is_none() && driven.connection.is_backlogged() {
            held_back_at = Some(number);
        }
        driven.say(&format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"ping"}}"#));
    }
    assert!(held_back_at.is_some_and(|number| number < 20), "{held_back_at:?}");
    assert!(matches!(driven.events()[..], [Event::Fatal(PeerFault::NotReading { .. })]));
}

#[test]
fn an_answer_over_the_limit_becomes_an_error() {
    let config = ConnectionConfig { max_transmit_bytes: 300, ..ConnectionConfig::server() };
    let mut driven = Driven::new(config);
    driven.say(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#);
    driven.connection.accept_handshake(driven.now, &0.into(), &hello_out()).unwrap();
    driven.lines();
    for outcome in
        [Ok(raw(&format!("\"{}\"", "x".repeat(400)))), Err(RpcError { code: 1, message: "m".repeat(400), data: None })]
    {
        driven.say(r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#);
        assert!(driven.connection.respond(&1.into(), outcome));
        let sent = driven.lines();
        assert_eq!((&sent[0]["id"], &sent[0]["error"]["code"]), (&1.into(), &(-32603).into()));
    }
}

#[test]
fn answers_of_a_client_are_never_answered() {
    // Two peers that answer each other's broken answers would never stop.
    let mut driven = server();
    for line in [
        r#"{"jsonrpc":"2.0","id":4,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":4,"error":"x"}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","result":{}}"#,
    ] {
        driven.say(line);
        assert!(driven.lines().is_empty(), "{line}");
    }
    assert_eq!(driven.connection.stats().foreign_answers, 4);
}
