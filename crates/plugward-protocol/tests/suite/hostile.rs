//! Random traffic of a peer: nothing panics, nothing is unbounded, every request of ours has one outcome.

use std::collections::HashMap;

use plugward_protocol::message::{Parsed, parse_line};
use plugward_protocol::{
    BatchRule, ClientMeta, Connection, ConnectionConfig, Event, FramedLine, Implementation, LineFramer, Message,
    NoisePolicy, OutboundId, Shape,
};
use proptest::prelude::*;

use crate::support::{Driven, LIMIT, raw};

/// Bytes that may wait in these tests; small, so that the bound is met.
const QUEUE_BYTES: usize = 4000;

/// Something a peer could write: good, almost good, or nothing at all.
fn traffic() -> impl Strategy<Value = Vec<u8>> {
    let id = prop_oneof![
        (0_u32..6).prop_map(|id| id.to_string()),
        Just("\"a\"".to_owned()),
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("1.5".to_owned()),
        Just("{\"id\":1}".to_owned()),
    ];
    let member = prop_oneof![
        Just(r#""jsonrpc":"2.0""#.to_owned()),
        Just(r#""jsonrpc":"2.0""#.to_owned()),
        id.clone().prop_map(|id| format!(r#""id":{id}"#)),
        id.prop_map(|id| format!(r#""id":{id}"#)),
        prop_oneof![
            Just("ping"),
            Just("initialize"),
            Just("tools/call"),
            Just("notifications/cancelled"),
            Just("notifications/initialized"),
            Just("notifications/progress")
        ]
        .prop_map(|method| format!(r#""method":"{method}""#)),
        Just(r#""params":{"requestId":2,"progressToken":3,"protocolVersion":"2025-03-26"}"#.to_owned()),
        Just(r#""params":7"#.to_owned()),
        Just(r#""result":{"protocolVersion":"2025-03-26","capabilities":{}}"#.to_owned()),
        Just(r#""error":{"code":-1,"message":"x"}"#.to_owned()),
        Just(r#""error":"x""#.to_owned()),
        (0_usize..300).prop_map(|length| format!(r#""filler":"{}""#, "z".repeat(length))),
    ];
    let object = prop::collection::vec(member, 0..6).prop_map(|members| format!("{{{}}}", members.join(",")));
    let line = prop_oneof![
        6 => object.clone(),
        1 => prop::collection::vec(object, 0..5).prop_map(|objects| format!("[{}]", objects.join(","))),
    ];
    prop_oneof![
        8 => line.prop_map(|line| format!("{line}\n").into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..30),
        1 => Just(b"log line\r\n".to_vec()),
    ]
}

/// Outcomes seen so far, one per request.
fn note_outcomes(connection: &mut Connection, outcomes: &mut HashMap<OutboundId, u32>) -> Vec<Event> {
    let mut others = Vec::new();
    while let Some(event) = connection.poll_event() {
        match event {
            Event::Response { id, .. } | Event::Failed { id, .. } => *outcomes.entry(id).or_default() += 1,
            other => others.push(other),
        }
    }
    others
}

proptest! {
    #[test]
    fn a_client_survives_any_server(pieces in prop::collection::vec(traffic(), 0..40), strict: bool) {
        let noise = if strict { NoisePolicy::Strict } else { NoisePolicy::Tolerant { max_lines: 10 } };
        let config = ConnectionConfig {
            noise,
            max_message_bytes: 250,
            max_queued_bytes: QUEUE_BYTES,
            ..ConnectionConfig::tolerant_client()
        };
        let mut driven = Driven::ready_client(config, r#"{"roots":{}}"#);
        let sent: Vec<OutboundId> = (0..5).map(|_| driven.request("tools/call", "{}")).collect();
        let mut outcomes = HashMap::new();
        for piece in &pieces {
            driven.bytes(piece);
            prop_assert!(driven.connection.queued_bytes() <= QUEUE_BYTES);
            let others = note_outcomes(&mut driven.connection, &mut outcomes);
            // A fatal fault is the last word.
            if let Some(at) = others.iter().position(|event| matches!(event, Event::Fatal(_))) {
                prop_assert_eq!(at + 1, others.len());
                prop_assert_eq!(outcomes.len(), sent.len());
            }
        }
        driven.pass(LIMIT);
        driven.connection.handle_input_closed(driven.now);
        note_outcomes(&mut driven.connection, &mut outcomes);
        prop_assert_eq!(driven.connection.in_flight(), 0);
        for id in sent {
            prop_assert_eq!(outcomes.get(&id), Some(&1), "request {}", id);
        }
    }

    #[test]
    fn a_client_of_a_stateless_server_writes_no_answer(pieces in prop::collection::vec(traffic(), 0..40)) {
        let config = ConnectionConfig { max_message_bytes: 250, ..ConnectionConfig::tolerant_client() };
        let mut driven = Driven::new(config);
        let says = ClientMeta::new(Implementation::default());
        driven.connection.start_probe(driven.now, says, LIMIT).unwrap();
        driven.say(r#"{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"]}}"#);
        let sent: Vec<OutboundId> = (0..5).map(|_| driven.request("tools/call", "{}")).collect();
        driven.lines();
        let mut outcomes = HashMap::new();
        for piece in &pieces {
            driven.bytes(piece);
            note_outcomes(&mut driven.connection, &mut outcomes);
        }
        prop_assert_eq!(driven.lines(), Vec::<serde_json::Value>::new());
        driven.connection.handle_input_closed(driven.now);
        note_outcomes(&mut driven.connection, &mut outcomes);
        for id in sent {
            prop_assert_eq!(outcomes.get(&id), Some(&1), "request {}", id);
        }
    }

    #[test]
    fn a_server_survives_any_client(pieces in prop::collection::vec(traffic(), 0..40), answers: bool) {
        let config = ConnectionConfig {
            max_message_bytes: 250,
            max_queued_bytes: QUEUE_BYTES,
            max_inbound_in_flight: 4,
            ..ConnectionConfig::server()
        };
        let mut driven = Driven::new(config);
        for piece in &pieces {
            driven.bytes(piece);
            prop_assert!(driven.connection.queued_bytes() <= QUEUE_BYTES);
            prop_assert!(driven.connection.inbound_in_flight() <= 4);
            for event in driven.events() {
                match event {
                    Event::Initialize { id, .. } => {
                        driven.connection.accept_handshake(driven.now, &id, &crate::support::hello_out());
                    }
                    Event::Request { id, .. } if answers => {
                        let open = driven.connection.inbound_in_flight();
                        if driven.connection.respond(&id, Ok(raw("{}"))) {
                            prop_assert_eq!(driven.connection.inbound_in_flight(), open - 1);
                        }
                    }
                    _ => {}
                }
            }
            for line in driven.lines() {
                prop_assert!(line.is_object() || line.is_array());
            }
        }
    }

    /// What is read of a line over the cap agrees with what a full parse of the same line says.
    #[test]
    fn skipping_a_line_reads_the_same_envelope(piece in traffic()) {
        let mut framer = LineFramer::new(1);
        framer.push(&piece);
        let Some(FramedLine::Oversized { id, shape, .. }) = framer.next_line() else { return Ok(()) };
        let line = piece.split(|&byte| byte == b'\n').next().unwrap_or_default();
        match parse_line(line, BatchRule::Refuse) {
            Ok(Parsed::One(Message::Request { id: full, .. })) => {
                prop_assert_eq!((id, shape), (Some(full), Shape::Request));
            }
            Ok(Parsed::One(Message::Notification { .. })) => {
                prop_assert_eq!((id, shape), (None, Shape::Notification));
            }
            Ok(Parsed::One(Message::Response { id: full, .. })) => {
                prop_assert_eq!((id, shape), (Some(full), Shape::Response));
            }
            // Whatever cannot be parsed must at least not be taken for another request's answer.
            Err(fault) if fault.id.is_some() => prop_assert_eq!(id, fault.id),
            _ => {}
        }
    }
}
