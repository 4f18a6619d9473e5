//! Who is let in, and what a message must look like from outside.

use serde_json::json;

use super::{Face, hello, note, request};

#[tokio::test]
async fn pages_of_other_origins_are_refused_before_their_token_matters() {
    // B029: any page a person opens can send requests to this machine; only its `Host` and `Origin` give it away.
    let face = Face::new().await;
    let table: [(&str, &str, u16); 12] = [
        ("localhost:7000", "", 200),
        ("127.0.0.1:7000", "http://localhost:5173", 200),
        ("[::1]:7000", "", 200),
        ("tools.example", "https://tools.example", 200),
        ("127.0.0.1:7000", "https://evil.example", 403),
        ("evil.example", "", 403),
        ("127.0.0.1:7000", "http://localhost.evil.example", 403),
        ("127.0.0.1.evil.example:7000", "", 403),
        ("127.0.0.1:7000", "null", 403),
        ("tools.example.evil.example", "", 403),
        ("xtools.example", "", 403),
        ("192.168.0.1:7000", "", 403),
    ];
    for (host, origin, status) in table {
        let reply = face.post(&[("host", host), ("origin", origin)], &hello("2025-11-25")).await;
        assert_eq!(reply.status.as_u16(), status, "{host} {origin}");
        assert_eq!(reply.header("mcp-session-id").is_empty(), status != 200, "a refused client has no session");
        if status != 200 {
            assert_eq!(reply.json().await.get("id"), None);
        }
        let reply = face.send("GET", &[("host", host), ("origin", origin), ("accept", "text/event-stream")], "").await;
        assert_eq!(reply.status.as_u16(), if status == 200 { 400 } else { 403 }, "GET {host} {origin}");
    }
}

#[tokio::test]
async fn nothing_is_served_without_the_token_of_this_path() {
    let face = Face::new().await;
    let digits = face.token.reveal().to_owned();
    // The token of the Host API opens more than tools, and is another.
    let api = crate::api::Token::open(face._home.path()).unwrap().reveal().to_owned();
    assert_ne!(api, digits);
    for wrong in [
        "Bearer",
        "Bearer x",
        &format!("Basic {digits}"),
        &digits,
        &format!("Bearer {digits}0"),
        &format!("Bearer {api}"),
    ] {
        let reply = face.post(&[("authorization", wrong)], &hello("2025-11-25")).await;
        assert_eq!(reply.status.as_u16(), 401, "{wrong}");
        assert!(reply.header("www-authenticate").starts_with("Bearer"), "{wrong}");
    }
    for method in ["POST", "GET", "DELETE", "PUT", "OPTIONS"] {
        // None at all; the empty value leaves the header out.
        assert_eq!(face.send(method, &[("authorization", "")], "").await.status.as_u16(), 401, "{method}");
    }
    let good = face.post(&[("authorization", &format!("bearer {digits}"))], &hello("2025-11-25")).await;
    assert_eq!(good.status.as_u16(), 200);
}

#[tokio::test]
async fn clients_are_served_whatever_their_accept_header_says() {
    // B030.
    let face = Face::new().await;
    for (accept, is_stream) in [
        ("application/json, text/event-stream", false),
        ("*/*", false),
        ("", false),
        ("application/json", false),
        ("text/html, application/json;q=0.9, text/event-stream;q=0.1", false),
        ("text/event-stream", true),
    ] {
        let id = face.session("2025-11-25").await;
        let headers = [("accept", accept), ("mcp-session-id", id.as_str())];
        let reply = face.post(&headers, &request(2, "tools/list", json!({}))).await;
        assert_eq!((reply.status.as_u16(), reply.is_stream()), (200, is_stream), "{accept}");
        assert!(reply.text().await.contains(r#""result":{"tools":[]}"#), "{accept}");
        let reply = face.post(&[("accept", accept)], &hello("2025-06-18")).await;
        // Case B030: whoever takes nothing but streams gets one, for `initialize` as for everything else.
        let wants_stream = accept == "text/event-stream";
        assert_eq!((reply.status.as_u16(), reply.is_stream()), (200, wants_stream), "{accept}");
        let text = reply.text().await;
        assert!(text.contains("protocolVersion") && text.starts_with("data: ") == wants_stream, "{accept}: {text}");
    }
    assert_eq!(face.post(&[("accept", "text/html")], &hello("2025-06-18")).await.refused().await, (406, -32600));
    for kind in ["text/plain", ""] {
        let reply = face.post(&[("content-type", kind)], &hello("2025-06-18")).await;
        assert_eq!(reply.refused().await.0, 415, "{kind}");
    }
}

#[tokio::test]
async fn other_methods_and_broken_messages_are_refused_in_the_words_of_the_protocol() {
    // B028, B075.
    let face = Face::new().await;
    for method in ["PUT", "OPTIONS", "PATCH", "HEAD"] {
        let reply = face.send(method, &[], "").await;
        assert_eq!((reply.status.as_u16(), reply.header("allow")), (405, "GET, POST, DELETE"), "{method}");
    }
    let id = face.session("2025-11-25").await;
    for (body, code) in [("", -32700), ("{not json", -32700), ("17", -32600), ("[]", -32600), (r#"{"id":3}"#, -32600)] {
        let headers = [("content-type", "application/json"), ("mcp-session-id", id.as_str())];
        let reply = face.send("POST", &headers, body).await;
        assert_eq!(reply.refused().await, (400, code), "{body}");
    }
    let two = json!([note("notifications/x"), note("notifications/y")]);
    assert_eq!(face.post(&[("mcp-session-id", &id)], &two).await.refused().await, (400, -32600), "no batches here");
    let long = json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "x".repeat(2 * 1024 * 1024)}});
    assert_eq!(face.post(&[("mcp-session-id", &id)], &long).await.refused().await.0, 413);
    // All of its memory was given back.
    assert_eq!(face.post(&[("mcp-session-id", &id)], &request(1, "ping", json!({}))).await.status.as_u16(), 200);
}
