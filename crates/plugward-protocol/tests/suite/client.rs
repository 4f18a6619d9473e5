//! The client role: requests, answers, deadlines, noise, requests of a server.

use plugward_protocol::{
    ConnectionConfig, Event, FaultKind, NoisePolicy, OversizedPolicy, PeerFault, RequestFailure, RequestTiming,
    SendError, TimeoutKind,
};

use crate::support::{Driven, LIMIT, answer_text, raw, seconds};

fn strict() -> Driven {
    Driven::ready_client(ConnectionConfig::client(), "{}")
}

fn tolerant() -> Driven {
    Driven::ready_client(ConnectionConfig::tolerant_client(), "{}")
}

fn answer(id: impl std::fmt::Display, text: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{text}"}}"#)
}

#[test]
fn answers_reach_their_own_requests_in_any_order() {
    // Requirement 9, invariant 3.
    let mut driven = strict();
    let (first, second) = (driven.request("tools/call", "{}"), driven.request("tools/call", "{}"));
    assert_eq!(driven.connection.in_flight(), 2);
    driven.say(&answer(second, "two"));
    driven.say(&answer(first, "one"));
    let events = driven.events();
    assert_eq!(answer_text(&events[0], second), "\"two\"");
    assert_eq!(answer_text(&events[1], first), "\"one\"");
    assert_eq!((events.len(), driven.connection.in_flight()), (2, 0));
}

#[test]
fn a_split_multi_byte_character_arrives_whole() {
    // Case B050: one byte per read.
    let mut driven = strict();
    let id = driven.request("tools/call", "{}");
    let text = "h\u{e9}llo \u{20ac} \u{1f680}";
    for byte in format!("{}\n", answer(id, text)).bytes() {
        driven.bytes(&[byte]);
    }
    assert_eq!(answer_text(&driven.events()[0], id), format!("\"{text}\""));
}

#[test]
fn arguments_go_out_untouched() {
    // Case B059: the server sees the digits the caller wrote.
    let mut driven = strict();
    driven.request("tools/call", r#"{"arguments":{"id":9007199254740993,"x":1.0}}"#);
    assert!(driven.texts()[0].contains(r#"{"id":9007199254740993,"x":1.0}"#));
}

#[test]
fn late_duplicate_and_foreign_answers_match_nothing() {
    // N6: `true` and `"2"` are not request 2; an id we have not used yet must not answer the request that gets it.
    let mut driven = tolerant();
    let id = driven.request("tools/call", "{}");
    for foreign in ["\"2\"", "999", "0", "-2", "3", "20000000000000000000000"] {
        driven.say(&answer(foreign, "stolen"));
        assert!(matches!(driven.events()[..], [Event::ForeignAnswer { .. }]), "{foreign}");
    }
    for broken in ["true", "2.0", "null", "[2]"] {
        driven.say(&answer(broken, "stolen"));
        assert!(
            driven.events().iter().all(|event| matches!(event, Event::Noise { .. } | Event::ForeignAnswer { .. })),
            "{broken}"
        );
    }
    assert_eq!(driven.connection.in_flight(), 1, "positive control: the request still waits");
    driven.say(&answer(id, "mine"));
    driven.say(&answer(id, "again"));
    let events = driven.events();
    assert_eq!(answer_text(&events[0], id), "\"mine\"");
    assert!(matches!(events[1], Event::LateAnswer { id: late } if late == id));
    let stats = driven.connection.stats();
    assert_eq!((stats.late_answers, stats.foreign_answers >= 6), (1, true));
}

#[test]
fn a_flood_of_stray_answers_is_counted_but_not_reported_for_ever() {
    let mut driven = tolerant();
    for _ in 0..1000 {
        driven.say(&answer(999, "x"));
    }
    assert_eq!(driven.events().len(), 64);
    assert_eq!(driven.connection.stats().foreign_answers, 1000);
}

#[test]
fn a_request_that_runs_out_of_time_is_cancelled_and_the_next_one_works() {
    // Requirements 12 and 13.
    let mut driven = strict();
    let slow = driven.request_within("tools/call", "{}", RequestTiming::within(seconds(1)));
    driven.lines();
    driven.pass(seconds(1) - std::time::Duration::from_nanos(1));
    assert!(driven.events().is_empty(), "not a moment early");
    driven.pass(std::time::Duration::from_nanos(1));
    assert!(matches!(
        driven.events()[..],
        [Event::Failed { id, cause: RequestFailure::TimedOut { limit, kind: TimeoutKind::Hard } }]
            if id == slow && limit == seconds(1)
    ));
    let sent = driven.lines();
    assert_eq!(sent[0]["method"], "notifications/cancelled");
    assert_eq!(sent[0]["params"]["requestId"].to_string(), slow.to_string());
    assert!(sent[0]["params"]["reason"].is_string());
    let next = driven.request("tools/call", "{}");
    driven.say(&answer(slow, "too late"));
    driven.say(&answer(next, "fine"));
    let events = driven.events();
    assert!(matches!(events[0], Event::LateAnswer { id } if id == slow));
    assert_eq!(answer_text(&events[1], next), "\"fine\"");
}

#[test]
fn progress_extends_the_idle_limit_up_to_the_hard_one() {
    // CA-02: a working tool is not cut off, an endless one is.
    let mut driven = strict();
    let timing = RequestTiming { idle: seconds(2), hard: seconds(5) };
    let id = driven.request_within("tools/call", "{}", timing);
    driven.lines();
    for _ in 0..4 {
        driven.pass(seconds(1));
        driven.say(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":1,"extra":1.0}}}}"#
        ));
        let events = driven.events();
        assert!(
            matches!(&events[..], [Event::Progress { id: of, params }] if *of == id && params.get().contains("1.0"))
        );
    }
    assert_eq!(driven.connection.poll_timeout(), Some(driven.now + seconds(1)));
    driven.pass(seconds(1));
    assert!(matches!(
        driven.events()[..],
        [Event::Failed { cause: RequestFailure::TimedOut { kind: TimeoutKind::Hard, .. }, .. }]
    ));

    let id = driven.request_within("tools/call", "{}", timing);
    // Progress of something else, or a token of another kind, is no sign of life of this request.
    driven.say(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":999}}"#);
    driven
        .say(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"{id}"}}}}"#));
    driven.say(r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#);
    assert!(driven.events().is_empty());
    driven.pass(seconds(2));
    assert!(matches!(
        driven.events()[..],
        [Event::Failed { cause: RequestFailure::TimedOut { kind: TimeoutKind::Idle, .. }, .. }]
    ));
}

#[test]
fn cancelling_tells_the_server_its_own_id_once() {
    // Requirement 13, case B057.
    let mut driven = strict();
    let id = driven.request("tools/call", "{}");
    driven.lines();
    assert!(driven.connection.cancel(driven.now, id, "user said \"stop\"\n"));
    assert!(!driven.connection.cancel(driven.now, id, "again"));
    assert!(matches!(driven.events()[..], [Event::Failed { cause: RequestFailure::Cancelled, .. }]));
    let sent = driven.lines();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0]["params"]["requestId"].to_string(), id.to_string());
    assert_eq!(sent[0]["params"]["reason"], "user said \"stop\"\n");
    driven.pass(LIMIT);
    assert!(driven.events().is_empty(), "a cancelled request does not time out as well");
}

#[test]
fn noise_is_fatal_where_the_manifest_is_a_contract() {
    // Requirements 52 and 81: a print() ends the host, pending requests are told.
    let broken: [&[u8]; 8] = [
        b"Demo Server v1.2.3\n",
        b"17\n",
        b"{\"level\":\"info\",\"msg\":\"started\"}\n",
        b"{\"jsonrpc\":\"1.0\",\"id\":2,\"result\":{}}\n",
        b"[{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}]\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":NaN}\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":\"\xff\"}\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":2,\"id\":2,\"result\":1}\n",
    ];
    for bytes in broken {
        let mut driven = strict();
        let (first, second) = (driven.request("tools/call", "{}"), driven.request("tools/call", "{}"));
        driven.bytes(bytes);
        driven.say(&answer(second, "after the end"));
        let events = driven.events();
        let shown = String::from_utf8_lossy(bytes);
        assert_eq!(events.len(), 3, "{shown}: {events:?}");
        for (event, expected) in events.iter().zip([first, second]) {
            assert!(matches!(event, Event::Failed { id, .. } if *id == expected), "{shown}: {event:?}");
        }
        assert!(matches!(&events[2], Event::Fatal(PeerFault::NotProtocol { .. })), "{shown}");
        assert!(driven.connection.is_dead() && driven.connection.in_flight() == 0);
        assert!(driven.connection.poll_transmit().is_none(), "nothing is written to a broken peer");
        let id = driven.connection.reserve_id();
        let refused = driven.connection.send_request(driven.now, id, "m", None, RequestTiming::within(LIMIT));
        assert_eq!(refused, Err(SendError::Closed));
    }
}

#[test]
fn an_imported_server_may_be_noisy_within_a_bound() {
    // Case B003: six lines are counted and shown, the call works, nothing is written back.
    let mut driven = tolerant();
    let id = driven.request("tools/call", "{}");
    driven.lines();
    driven.bytes(b"Demo Server v1.2.3 (stdio transport)\n[db] connected\nCalling API...\nstatus: 200\n{ not json\n\"a bare string\"\n");
    driven.say(&answer(id, "pong"));
    let events = driven.events();
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Noise { .. })).count(), 6);
    assert_eq!(driven.connection.noise_count(), 6);
    assert_eq!(answer_text(&events[6], id), "\"pong\"");
    assert!(driven.lines().is_empty());

    let config =
        ConnectionConfig { noise: NoisePolicy::Tolerant { max_lines: 2 }, ..ConnectionConfig::tolerant_client() };
    let mut driven = Driven::ready_client(config, "{}");
    driven.bytes(b"one\n\n\r\ntwo\n");
    assert_eq!(driven.events().len(), 2, "blank lines are no noise");
    driven.bytes(b"three\nfour\n");
    assert!(matches!(driven.events()[..], [Event::Fatal(PeerFault::TooMuchNoise { limit: 2 })]));
}

#[test]
fn excerpts_of_noise_are_short_and_harmless() {
    let mut driven = tolerant();
    driven.bytes(&[&b"\x1b[31mred\xff"[..], &[b'x'; 5000], b"\n"].concat());
    let events = driven.events();
    let [Event::Noise { excerpt, bytes: 5009 }] = &events[..] else { panic!("{events:?}") };
    assert!(excerpt.starts_with("\\u{1b}[31mred\u{FFFD}x") && excerpt.len() < 300);
}

#[test]
fn a_broken_answer_fails_its_own_call_at_once() {
    // Cases B050 and B088: not after the time limit, and no other call.
    let broken: [(&[u8], &str); 5] = [
        (b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":\"it\x92s\"}\n", "not valid UTF-8"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":\"just a string\"}\n", "just a string"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":1,\"error\":{\"code\":1,\"message\":\"x\"}}\n", "both"),
        (b"{\"id\":2,\"result\":1}\n", "jsonrpc"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":NaN}\n", "not JSON"),
    ];
    for (bytes, text) in broken {
        let mut driven = tolerant();
        let (id, other) = (driven.request("tools/call", "{}"), driven.request("tools/call", "{}"));
        driven.bytes(bytes);
        let events = driven.events();
        let [Event::Failed { id: failed, cause }] = &events[..] else { panic!("{text}: {events:?}") };
        assert_eq!(*failed, id);
        assert!(cause.to_string().contains(text), "{cause}");
        driven.say(&answer(other, "fine"));
        assert_eq!(answer_text(&driven.events()[0], other), "\"fine\"");
        assert_eq!(driven.connection.noise_count(), 0);
    }
    // A malformed error inside a good envelope does not end a strict connection either.
    let mut driven = strict();
    driven.request("tools/call", "{}");
    driven.say(r#"{"jsonrpc":"2.0","id":2,"error":"just a string"}"#);
    assert!(matches!(
        &driven.events()[..],
        [Event::Failed { cause: RequestFailure::InvalidAnswer { fault }, .. }]
            if matches!(fault.kind, FaultKind::MalformedError { .. })
    ));
    assert!(driven.connection.is_ready());
}

#[test]
fn an_oversized_answer_fails_by_policy() {
    // Case B026 (one call) and Requirement 52 (the host).
    for policy in [OversizedPolicy::FailRequest, OversizedPolicy::Fatal] {
        let config =
            ConnectionConfig { max_message_bytes: 1000, oversized: policy, ..ConnectionConfig::tolerant_client() };
        let mut driven = Driven::ready_client(config, "{}");
        let (id, other) = (driven.request("tools/call", "{}"), driven.request("tools/call", "{}"));
        driven.say(&answer(id, &"z".repeat(5000)));
        let events = driven.events();
        let Event::Failed { id: failed, cause } = &events[0] else { panic!("{events:?}") };
        assert_eq!(*failed, id);
        let text = cause.to_string();
        assert!(text.contains("5036 bytes") && text.contains("1000 bytes"), "{text}");
        if policy == OversizedPolicy::Fatal {
            assert!(matches!(events[1], Event::Failed { id, cause: RequestFailure::Closed } if id == other));
            assert!(matches!(events[2], Event::Fatal(PeerFault::OversizedLine { bytes: 5036, limit: 1000 })));
        } else {
            driven.say(&answer(other, "zzz"));
            assert_eq!(answer_text(&driven.events()[0], other), "\"zzz\"");
            driven.say(&"x".repeat(5000));
            assert!(matches!(driven.events()[..], [Event::Noise { bytes: 5000, .. }]), "without an id it is noise");
        }
    }
}

#[test]
fn a_strict_client_does_not_wait_for_the_end_of_an_oversized_line() {
    // Requirement 128: a native server that never ends its line must not keep the host waiting.
    let mut driven =
        Driven::ready_client(ConnectionConfig { max_message_bytes: 1000, ..ConnectionConfig::client() }, "{}");
    let id = driven.request("tools/call", "{}");
    driven.bytes(&[b'x'; 1000]);
    assert!(driven.events().is_empty(), "within the cap the line may still end");
    driven.bytes(b"x");
    let events = driven.events();
    assert!(matches!(events[0], Event::Failed { id: failed, cause: RequestFailure::Closed } if failed == id));
    assert!(matches!(events[1], Event::Fatal(PeerFault::OversizedLine { bytes: 1001, limit: 1000 })), "{events:?}");
}

#[test]
fn closing_fails_everything_exactly_once() {
    // Requirement 52: server exit.
    let mut driven = strict();
    let id = driven.request("tools/call", "{}");
    driven.connection.handle_input_closed(driven.now);
    driven.connection.handle_input_closed(driven.now);
    assert!(
        matches!(driven.events()[..], [Event::Failed { id: failed, cause: RequestFailure::Closed }] if failed == id)
    );
    driven.pass(LIMIT);
    assert!(driven.events().is_empty());
    let id = driven.connection.reserve_id();
    let refused = driven.connection.send_request(driven.now, id, "m", None, RequestTiming::within(LIMIT));
    assert_eq!(refused, Err(SendError::Closed));
}

#[test]
fn a_line_cut_off_by_the_end_is_a_fault_and_a_whole_one_is_an_answer() {
    let mut driven = strict();
    driven.request("tools/call", "{}");
    driven.bytes(br#"{"jsonrpc":"2.0","id":2,"res"#);
    driven.connection.handle_input_closed(driven.now);
    assert!(matches!(
        driven.events()[..],
        [Event::Failed { .. }, Event::Fatal(PeerFault::UnterminatedLine { bytes: 28 })]
    ));
    let mut driven = tolerant();
    let (id, other) = (driven.request("tools/call", "{}"), driven.request("tools/call", "{}"));
    driven.bytes(answer(id, "last words").as_bytes());
    driven.connection.handle_input_closed(driven.now);
    let events = driven.events();
    assert_eq!(answer_text(&events[0], id), "\"last words\"");
    assert!(matches!(events[1], Event::Failed { id, .. } if id == other));
}

#[test]
fn requests_of_a_server_are_answered_in_any_phase() {
    // Case B038: ping gets `{}` even before the handshake; what was not declared gets -32601; ids do not mix.
    let mut driven = Driven::new(ConnectionConfig::client());
    driven.connection.start_handshake(driven.now, crate::support::hello("{}"), LIMIT).unwrap();
    driven.lines();
    driven.say(r#"{"jsonrpc":"2.0","id":"p0","method":"ping"}"#);
    driven.say(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"starting"}}"#);
    driven.say(r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#);
    driven.say(r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}}"#);
    let sent = driven.lines();
    assert_eq!((&sent[0]["id"], sent[0]["result"].to_string()), (&"p0".into(), "{}".to_owned()));
    assert_eq!((&sent[1]["id"], &sent[1]["error"]["code"]), (&1.into(), &(-32601).into()));
    assert!(matches!(&driven.events()[..], [Event::Notification { .. }, Event::Handshaken(_)]));
    driven.connection.confirm_handshake(driven.now).unwrap();
    driven.lines();
    let ours = driven.request("tools/call", "{}");
    driven.lines();
    for (id, method) in [("2", "sampling/createMessage"), ("\"e\"", "elicitation/create"), ("\"x\"", "demo/unknown")] {
        driven.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#));
        let sent = driven.lines();
        assert_eq!((sent[0]["id"].to_string().as_str(), &sent[0]["error"]["code"]), (id, &(-32601).into()));
    }
    assert!(driven.events().is_empty());
    assert_eq!(driven.connection.in_flight(), 1, "no request of ours is touched");
    driven.say(&answer(ours, "mine"));
    assert_eq!(answer_text(&driven.events()[0], ours), "\"mine\"");
}

#[test]
fn a_server_of_the_batching_revision_may_answer_in_one_line() {
    let mut driven = Driven::new(ConnectionConfig::client());
    driven.connection.start_handshake(driven.now, crate::support::hello("{}"), LIMIT).unwrap();
    driven.say(r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-03-26","capabilities":{"tools":{}}}}"#);
    driven.connection.confirm_handshake(driven.now).unwrap();
    let (first, second) = (driven.request("tools/call", "{}"), driven.request("tools/call", "{}"));
    driven.lines();
    driven.events();
    let ping = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    driven.say(&format!("[{},{ping},{}]", answer(second, "two"), answer(first, "one")));
    let events = driven.events();
    assert_eq!(answer_text(&events[0], second), "\"two\"");
    assert_eq!(answer_text(&events[1], first), "\"one\"");
    assert_eq!(driven.lines()[0][0]["id"], "p");
}

#[test]
fn declared_capabilities_let_the_host_answer() {
    let mut driven = Driven::ready_client(ConnectionConfig::client(), r#"{"roots":{},"sampling":null}"#);
    driven.say(r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#);
    driven.say(r#"{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage"}"#);
    assert!(matches!(&driven.events()[..], [Event::Request { method, .. }] if method == "roots/list"));
    assert_eq!(driven.lines()[0]["id"], 2);
    assert!(driven.connection.respond(&1.into(), Ok(raw(r#"{"roots":[]}"#))));
    assert!(!driven.connection.respond(&1.into(), Ok(raw("{}"))));
    let sent = driven.lines();
    assert_eq!((sent.len(), &sent[0]["id"]), (1, &1.into()));
}

#[test]
fn a_server_that_never_reads_costs_a_fixed_amount_of_memory() {
    // N13: replies to its requests must not pile up without end.
    let config = ConnectionConfig { max_queued_bytes: 1000, ..ConnectionConfig::client() };
    let mut driven = Driven::ready_client(config, "{}");
    let id = driven.request("tools/call", "{}");
    for number in 0..100 {
        driven.say(&format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"ping"}}"#));
        assert!(driven.connection.queued_bytes() <= 1000);
    }
    let events = driven.events();
    assert!(matches!(events[0], Event::Failed { id: failed, .. } if failed == id));
    assert!(matches!(events[1], Event::Fatal(PeerFault::NotReading { limit: 1000 })));
    assert_eq!(events.len(), 2);
}

#[test]
fn what_cannot_be_sent_is_handed_back() {
    let config = ConnectionConfig {
        max_in_flight: 2,
        max_queued_bytes: 400,
        max_transmit_bytes: 300,
        ..ConnectionConfig::client()
    };
    let mut driven = Driven::ready_client(config, "{}");
    let timing = RequestTiming::within(LIMIT);
    let now = driven.now;
    let id = driven.connection.reserve_id();
    let long = raw(&format!("\"{}\"", "x".repeat(400)));
    let refused = driven.connection.send_request(now, id, "m", Some(long), timing);
    assert!(matches!(refused, Err(SendError::TooLarge { limit: 300, .. })), "{refused:?}");
    let half = || Some(raw(&format!("\"{}\"", "x".repeat(200))));
    driven.connection.send_request(now, id, "m", half(), timing).unwrap();
    assert_eq!(driven.connection.send_request(now, id, "m", None, timing), Err(SendError::IdNotReserved));
    let second = driven.connection.reserve_id();
    let refused = driven.connection.send_request(now, second, "m", half(), timing);
    assert!(matches!(refused, Err(SendError::QueueFull { .. })));
    driven.lines();
    driven.connection.send_request(now, second, "m", half(), timing).unwrap();
    let third = driven.connection.reserve_id();
    let refused = driven.connection.send_request(now, third, "m", None, timing);
    assert_eq!(refused, Err(SendError::TooManyInFlight { limit: 2 }));
    assert!(driven.events().is_empty(), "what was not sent has no outcome");
    driven.say(&answer(id, "room again"));
    driven.connection.send_request(now, third, "m", None, timing).unwrap();
}

#[test]
fn an_endless_limit_does_not_overflow() {
    let mut driven = strict();
    let forever = RequestTiming { idle: std::time::Duration::MAX, hard: std::time::Duration::MAX };
    driven.request_within("tools/call", "{}", forever);
    assert!(driven.connection.poll_timeout().is_some());
}
