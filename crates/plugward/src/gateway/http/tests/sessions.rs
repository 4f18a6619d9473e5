//! Clients with a handshake: sessions begin, are found, are resumed and end.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Face, hello, note, request};
use crate::gateway::http::Limits;

#[tokio::test]
async fn a_lost_session_is_told_as_such_and_begins_anew() {
    // B008: with any other status clients send the dead id for ever.
    let face = Face::new().await;
    let list = request(2, "tools/list", json!({}));
    assert_eq!(face.post(&[], &list).await.refused().await, (400, -32600));
    assert_eq!(face.post(&[("mcp-session-id", "stale")], &list).await.refused().await, (404, -32600));
    let id = face.session("2025-06-18").await;
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    let headers = [("mcp-session-id", id.as_str())];
    assert_eq!(
        face.post(&headers, &list).await.json().await,
        json!({"jsonrpc": "2.0", "id": 2, "result": {"tools": []}})
    );
    assert_eq!(face.send("DELETE", &headers, "").await.status.as_u16(), 204);
    assert_eq!(face.post(&headers, &list).await.refused().await, (404, -32600));
    assert_eq!(face.send("DELETE", &headers, "").await.refused().await.0, 404);
    assert_eq!(face.post(&headers, &note("notifications/initialized")).await.refused().await.0, 404);
    assert_ne!(face.session("2025-06-18").await, id);
    // One that still shows the dead id, as some do, begins anew all the same.
    let again = face.post(&headers, &hello("2025-06-18")).await;
    assert_eq!(again.status.as_u16(), 200);
    assert!(!["", id.as_str()].contains(&again.header("mcp-session-id")), "the dead id came back");
}

#[tokio::test]
async fn behind_a_balancer_a_session_of_another_host_begins_anew() {
    // B092: with any other status a client that lands elsewhere is lost at random. Stateless ones notice nothing.
    let (one, other) = (Face::new().await, Face::new().await);
    let id = one.session("2025-11-25").await;
    let headers = [("mcp-session-id", id.as_str())];
    let list = request(2, "tools/list", json!({}));
    assert_eq!(one.post(&headers, &list).await.status.as_u16(), 200, "the control");
    assert_eq!(other.post(&headers, &list).await.refused().await, (404, -32600));
    let stream = [headers[0], ("accept", "text/event-stream")];
    assert_eq!(other.send("GET", &stream, "").await.refused().await.0, 404);
    assert_eq!(other.post(&headers, &hello("2025-11-25")).await.status.as_u16(), 200);
    assert_eq!(one.post(&headers, &list).await.status.as_u16(), 200, "where it was, it goes on");
}

#[tokio::test]
async fn a_session_speaks_its_revision() {
    // B032, LG-06.
    let face = Face::new().await;
    for (asked, spoken) in [
        ("2025-03-26", "2025-03-26"),
        ("2025-11-25", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
    ] {
        let reply = face.post(&[], &hello(asked)).await.json().await;
        assert_eq!(reply["result"]["protocolVersion"], spoken);
        assert_eq!(reply["result"]["capabilities"], json!({"tools": {"listChanged": true}}));
    }
    let id = face.session("2025-11-25").await;
    let ping = request(2, "ping", json!({}));
    for (version, status) in [("2025-11-25", 200), ("2025-06-18", 200), ("", 200), ("2026-07-28", 400), ("x", 400)] {
        let headers = [("mcp-session-id", id.as_str()), ("mcp-protocol-version", version)];
        assert_eq!(face.post(&headers, &ping).await.status.as_u16(), status, "{version}");
    }
    let again = face.post(&[("mcp-session-id", &id)], &hello("2025-11-25")).await;
    assert_eq!(again.status.as_u16(), 200, "a client that begins anew gets a new session");
    for (method, code) in [("no/such", -32601), ("tools/call", -32602), ("logging/setLevel", -32602)] {
        let reply = face.post(&[("mcp-session-id", &id)], &request(9, method, json!({}))).await;
        let body = reply.json().await;
        assert_eq!((&body["id"], &body["error"]["code"]), (&json!(9), &json!(code)), "{method}");
    }
    let empty = face.post(&[("mcp-session-id", &id)], &request(9, "prompts/list", json!({}))).await.json().await;
    assert_eq!(empty["result"], json!({"prompts": []}), "B013");
    assert_eq!(face.post(&[], &request(1, "initialize", json!({}))).await.refused().await, (400, -32602));
}

#[tokio::test]
async fn batches_are_taken_where_the_revision_has_them() {
    let face = Face::new().await;
    let id = face.session("2025-03-26").await;
    let batch =
        json!([request(2, "ping", json!({})), note("notifications/x"), request(3, "tools/list", json!({})), 17]);
    let answers = face.post(&[("mcp-session-id", &id)], &batch).await.json().await;
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), 3, "{answers:?}");
    let notes = json!([note("notifications/x")]);
    assert_eq!(face.post(&[("mcp-session-id", &id)], &notes).await.status.as_u16(), 202);
    assert_eq!(face.post(&[], &batch).await.refused().await.0, 400);
}

#[tokio::test]
async fn the_stream_of_what_is_said_unasked_opens_once_and_ends_with_the_session() {
    // B028: either a stream or a refusal, and nothing in between.
    let face = Face::new().await;
    let id = face.session("2025-11-25").await;
    let headers = [("mcp-session-id", id.as_str()), ("accept", "text/event-stream")];
    let mut first = face.send("GET", &headers, "").await;
    assert!(first.status.is_success() && first.is_stream());
    assert_eq!((first.header("x-accel-buffering"), first.header("cache-control")), ("no", "no-store"));
    assert!(first.piece().await.unwrap().starts_with(b"id: 0-"), "an id to resume from comes at once");
    let mut second = face.send("GET", &headers, "").await;
    second.piece().await;
    assert!(first.piece().await.is_none(), "a client that connects again has lost its first connection");
    for (header, status) in [("application/json", 406), ("text/html", 406)] {
        let headers = [("mcp-session-id", id.as_str()), ("accept", header)];
        assert_eq!(face.send("GET", &headers, "").await.refused().await.0, status);
    }
    let stale = [("mcp-session-id", "nope"), ("accept", "text/event-stream")];
    assert_eq!(face.send("GET", &stale, "").await.refused().await.0, 404);
    let unknown = [headers[0], headers[1], ("last-event-id", "7-7")];
    assert_eq!(face.send("GET", &unknown, "").await.refused().await.0, 400);
    face.send("DELETE", &headers, "").await;
    assert!(second.piece().await.is_none());
}

#[tokio::test]
async fn older_clients_get_no_event_that_is_no_message() {
    // They parse the data of every event as JSON.
    let face = Face::new().await;
    let id = face.session("2025-06-18").await;
    let headers = [("mcp-session-id", id.as_str()), ("accept", "text/event-stream")];
    let reply = face.post(&headers, &request(2, "ping", json!({}))).await;
    let text = reply.text().await;
    let data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data.len(), 1, "{text}");
    assert_eq!(serde_json::from_str::<Value>(data[0]).unwrap()["result"], json!({}));
}

#[tokio::test]
async fn a_silent_stream_shows_that_it_is_alive() {
    // Proxies cut what says nothing.
    let face = Face::with(Limits { keep_alive: Duration::from_millis(5), ..Limits::default() }).await;
    let id = face.session("2025-06-18").await;
    let headers = [("mcp-session-id", id.as_str()), ("accept", "text/event-stream")];
    let mut stream = face.send("GET", &headers, "").await;
    for _ in 0..3 {
        assert_eq!(stream.piece().await.unwrap(), ":\n\n");
    }
}

#[tokio::test]
async fn sessions_are_bounded_and_the_one_idle_longest_makes_place() {
    let face = Face::with(Limits { sessions: 2, ..Limits::default() }).await;
    let (first, second) = (face.session("2025-11-25").await, face.session("2025-11-25").await);
    let ping = request(2, "ping", json!({}));
    // The first is used again, so the second is idle longer.
    assert_eq!(face.post(&[("mcp-session-id", &first)], &ping).await.status.as_u16(), 200);
    let third = face.session("2025-11-25").await;
    assert_eq!(face.post(&[("mcp-session-id", &second)], &ping).await.status.as_u16(), 404);
    // Sessions with an open stream are in use.
    let mut streams = Vec::new();
    for id in [&first, &third] {
        let reply = face.send("GET", &[("mcp-session-id", id), ("accept", "text/event-stream")], "").await;
        assert_eq!(reply.status.as_u16(), 200);
        streams.push(reply);
    }
    let full = face.post(&[], &hello("2025-11-25")).await;
    assert!(!full.header("retry-after").is_empty());
    assert_eq!(full.refused().await.0, 503);
}

#[tokio::test]
async fn what_nobody_uses_ends_and_the_end_of_the_server_ends_all() {
    let face = Face::with(Limits { idle: Duration::from_millis(100), ..Limits::default() }).await;
    let endpoint = face.endpoint.clone();
    let tending = tokio::spawn(async move { endpoint.tend().await });
    let (used, unused) = (face.session("2025-11-25").await, face.session("2025-11-25").await);
    let mut stream = face.send("GET", &[("mcp-session-id", &used), ("accept", "text/event-stream")], "").await;
    stream.piece().await;
    let ping = request(2, "ping", json!({}));
    let deadline = std::time::Instant::now() + super::PATIENCE;
    // Asking would keep it alive: the table is looked at.
    while face.endpoint.shared.sessions.find(&unused).is_some() {
        assert!(std::time::Instant::now() < deadline, "an idle session does not end");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(face.post(&[("mcp-session-id", &used)], &ping).await.status.as_u16(), 200, "an open stream is use");
    face.closing.cancel();
    assert!(stream.piece().await.is_none());
    tokio::time::timeout(super::PATIENCE, tending).await.unwrap().unwrap();
    assert_eq!(face.post(&[], &hello("2025-11-25")).await.status.as_u16(), 503);
}

#[tokio::test]
async fn a_session_with_too_many_requests_is_told_to_wait() {
    // 503 and not 400: the request is right, and may be sent again.
    let face = Face::with(Limits { requests: 0, ..Limits::default() }).await;
    let id = face.session("2025-11-25").await;
    let reply = face.post(&[("mcp-session-id", &id)], &request(2, "ping", json!({}))).await;
    assert_eq!(reply.refused().await, (503, -32603));
}
