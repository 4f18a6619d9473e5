//! What is a message and what is not.

use plugward_protocol::message::{MAX_BATCH_MESSAGES, MAX_DEPTH, Parsed, parse_line};
use plugward_protocol::{BatchRule, FaultKind, Message, MessageFault, RequestId, Shape};

fn one(line: &str) -> Message {
    match parse_line(line.as_bytes(), BatchRule::Refuse) {
        Ok(Parsed::One(message)) => message,
        other => panic!("{line}: {other:?}"),
    }
}

fn fault(line: &[u8]) -> MessageFault {
    parse_line(line, BatchRule::Refuse).expect_err("the line must be refused")
}

#[test]
fn values_pass_untouched() {
    // Case B059: integers beyond 64 bits, 1.0, 1e3, key order and unknown members survive digit for digit.
    let result =
        r#"{"z":1,"big":123456789012345678901234567890,"u":18446744073709551615,"f":1.0,"e":1e3,"a":"\u00e9"}"#;
    let line = format!(r#"{{"jsonrpc":"2.0","id":9007199254740993,"result":{result},"x-extra":[1]}}"#);
    match one(&line) {
        Message::Response { id, outcome: Ok(raw) } => {
            assert_eq!(raw.get(), result);
            assert_eq!(id.to_string(), "9007199254740993");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_four_kinds_are_read() {
    assert!(matches!(
        one(r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{}}"#),
        Message::Request { id, params: Some(_), .. } if id == RequestId::from("a")
    ));
    assert!(matches!(
        one(r#"{"jsonrpc":"2.0","method":"m","params":null}"#),
        Message::Notification { params: None, .. }
    ));
    match one(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"bad","data":{"k":1}}}"#) {
        Message::Response { outcome: Err(error), .. } => {
            assert_eq!((error.code, error.message.as_str(), error.data.unwrap().get()), (-32602, "bad", r#"{"k":1}"#));
        }
        other => panic!("{other:?}"),
    }
    for line in [
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}"#,
    ] {
        assert!(matches!(one(line), Message::UnattributedError(_)));
    }
}

#[test]
fn a_null_half_of_an_answer_counts_as_absent() {
    assert!(matches!(
        one(r#"{"jsonrpc":"2.0","id":1,"result":{},"error":null}"#),
        Message::Response { outcome: Ok(_), .. }
    ));
    assert!(matches!(
        one(r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":"x"}}"#),
        Message::Response { outcome: Err(_), .. }
    ));
    assert!(matches!(one(r#"{"jsonrpc":"2.0","id":1,"result":null}"#), Message::Response { outcome: Ok(_), .. }));
}

#[test]
fn what_is_no_json_is_told_from_what_is_no_message() {
    // Case B003: banners and log lines; N6: NaN and Infinity are not JSON.
    for line in [
        "Demo Server v1.2.3",
        "{ not json",
        "status: 200",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":NaN}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":-Infinity}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":1}}{}",
        "{\"jsonrpc\":\"2.0\",\"id\":01,\"result\":1}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"a\tb\"}",
        "{'jsonrpc':'2.0'}",
        "[1,",
    ] {
        assert!(matches!(fault(line.as_bytes()).kind, FaultKind::NotJson { .. }), "{line}");
    }
    for line in ["17", "\"a bare string\"", "true", "null"] {
        assert_eq!(fault(line.as_bytes()).kind, FaultKind::NotAnObject, "{line}");
    }
}

#[test]
fn every_broken_rule_has_its_own_fault_and_keeps_the_id() {
    let id = || Some(RequestId::from(5));
    let cases: [(&str, FaultKind, Option<RequestId>, Shape); 17] = [
        (r#"{"id":5,"method":"m"}"#, FaultKind::BadVersion, id(), Shape::Request),
        (r#"{"jsonrpc":"1.0","id":5,"result":1}"#, FaultKind::BadVersion, id(), Shape::Response),
        (r#"{"jsonrpc":2.0,"id":5,"result":1}"#, FaultKind::BadVersion, id(), Shape::Response),
        (r#"{"level":"info","id":5}"#, FaultKind::BadVersion, id(), Shape::Unknown),
        (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, FaultKind::BadId, None, Shape::Request),
        (r#"{"jsonrpc":"2.0","id":{"a":1},"method":"m"}"#, FaultKind::BadId, None, Shape::Request),
        (r#"{"jsonrpc":"2.0","id":true,"result":1}"#, FaultKind::BadId, None, Shape::Response),
        (r#"{"jsonrpc":"2.0","id":1.5,"result":1}"#, FaultKind::BadId, None, Shape::Response),
        (r#"{"jsonrpc":"2.0","result":1}"#, FaultKind::MissingId, None, Shape::Response),
        (r#"{"jsonrpc":"2.0","id":5,"method":7}"#, FaultKind::BadMethod, id(), Shape::Request),
        (r#"{"jsonrpc":"2.0","id":5,"method":"m","params":1}"#, FaultKind::BadParams, id(), Shape::Request),
        (
            r#"{"jsonrpc":"2.0","id":5,"result":1,"error":{"code":1,"message":"x"}}"#,
            FaultKind::ResultAndError,
            id(),
            Shape::Response,
        ),
        (r#"{"jsonrpc":"2.0","id":5,"method":"m","result":1}"#, FaultKind::RequestAndAnswer, id(), Shape::Request),
        (r#"{"jsonrpc":"2.0","id":5}"#, FaultKind::NeitherRequestNorAnswer, id(), Shape::Unknown),
        (
            r#"{"jsonrpc":"2.0","id":5,"result":1,"result":2}"#,
            FaultKind::DuplicateMember { name: "result" },
            id(),
            Shape::Response,
        ),
        (
            r#"{"jsonrpc":"2.0","id":5,"i\u0064":6,"result":2}"#,
            FaultKind::DuplicateMember { name: "id" },
            None,
            Shape::Response,
        ),
        (
            r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":5,"id":6,"result":2}"#,
            FaultKind::DuplicateMember { name: "jsonrpc" },
            None,
            Shape::Response,
        ),
    ];
    for (line, kind, id, shape) in cases {
        assert_eq!(fault(line.as_bytes()), MessageFault { kind, id, shape }, "{line}");
    }
}

#[test]
fn malformed_errors_keep_their_text() {
    // Case B088: the person gets to read what the server meant to say.
    for (error, text) in [
        (r#""just a string""#, "just a string"),
        (r#"{"code":"E1","message":"no disk"}"#, "no disk"),
        (r#"{"code":1}"#, r#"{"code":1}"#),
        ("[1]", "[1]"),
        ("null", "null"),
    ] {
        let found = fault(format!(r#"{{"jsonrpc":"2.0","id":5,"error":{error}}}"#).as_bytes());
        assert_eq!(found.kind, FaultKind::MalformedError { text: text.to_owned() });
        assert_eq!(found.id, Some(RequestId::from(5)));
    }
    let long = "\u{20ac}".repeat(5000);
    match fault(format!(r#"{{"jsonrpc":"2.0","id":5,"error":"{long}"}}"#).as_bytes()).kind {
        FaultKind::MalformedError { text } => assert_eq!(text.len(), 4095, "cut at a character, not inside one"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn invalid_utf8_is_refused_and_still_names_its_request() {
    // Requirement 4, case B050: never replaced in silence, never left to time out.
    let found = fault(b"{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{\"text\":\"it\x92s\"}}");
    assert_eq!(found.kind, FaultKind::InvalidUtf8 { position: 44 });
    assert_eq!((found.id, found.shape), (Some(RequestId::from(5)), Shape::Response));
    let found = fault(b"\xff\xfe\x00");
    assert_eq!((found.id, found.shape), (None, Shape::Unknown));
    let found = fault(b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"result\":1}");
    assert_eq!(found.id, None, "an id with invalid bytes is no id");
    // Overlong and surrogate forms are invalid too.
    assert!(matches!(fault(b"\"\xC0\xAF\"").kind, FaultKind::InvalidUtf8 { .. }));
    assert!(matches!(fault(b"\"\xED\xA0\x80\"").kind, FaultKind::InvalidUtf8 { .. }));
}

#[test]
fn nesting_is_bounded() {
    let nested =
        |levels: usize| format!(r#"{{"jsonrpc":"2.0","id":5,"result":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    one(&nested(MAX_DEPTH - 1));
    let found = fault(nested(MAX_DEPTH).as_bytes());
    assert_eq!((found.kind, found.id), (FaultKind::TooDeep, Some(RequestId::from(5))));
    // A megabyte of brackets must not overflow the stack.
    assert_eq!(fault("[".repeat(1_000_000).as_bytes()).kind, FaultKind::TooDeep);
}

#[test]
fn batches_follow_the_rule() {
    let two = br#"[{"jsonrpc":"2.0","id":1,"method":"ping"},17]"#;
    assert_eq!(fault(two).kind, FaultKind::BatchRefused);
    match parse_line(two, BatchRule::Accept) {
        Ok(Parsed::Batch(parts)) => {
            assert!(matches!(&parts[0], Ok(Message::Request { .. })));
            assert!(matches!(&parts[1], Err(fault) if fault.kind == FaultKind::NotAnObject));
        }
        other => panic!("{other:?}"),
    }
    let kind = |line: &str| parse_line(line.as_bytes(), BatchRule::Accept).unwrap_err().kind;
    assert_eq!(kind("[]"), FaultKind::EmptyBatch);
    assert_eq!(kind(&format!("[{}1]", "1,".repeat(MAX_BATCH_MESSAGES))), FaultKind::BatchTooLong);
    assert!(matches!(kind(&format!("[{}", "1,".repeat(MAX_BATCH_MESSAGES + 1))), FaultKind::NotJson { .. }));
}

#[test]
fn fault_messages_read_well() {
    // Style: lower case, subject first, no stop.
    let text = fault(br#"{"jsonrpc":"2.0","id":5,"method":"a","method":"b"}"#).to_string();
    assert_eq!(text, "message has the member `method` more than once");
}
