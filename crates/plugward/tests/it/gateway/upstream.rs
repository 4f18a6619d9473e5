//! Tokens on both sides of the gateway (B046): what a client without one is told, what a server elsewhere is sent of a
//! client's, and what a client is told of a server that wants another.
//!
//! If these fail, clients look for a place to sign in that is not there, or a stranger's server collects their tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::http_client::Face;
use crate::support::http_server::{Heard, HttpServer, Reply};
use crate::support::{Package, TestHost};

fn hello() -> String {
    let client = json!({"name": "demo-client", "version": "0"});
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string()
}

#[test]
fn a_client_without_a_token_is_told_what_is_missing_and_is_sent_nowhere() {
    let face = Face::start(tempfile::tempdir().unwrap());
    let host = face.address().to_string();
    let greet = |authorization: Option<&str>| {
        let mut headers = vec![("Host", host.as_str()), ("Accept", "application/json, text/event-stream")];
        headers.extend(authorization.map(|value| ("Authorization", value)));
        let reply = face.raw("POST", "/mcp", &headers, &hello());
        (reply.status, reply.header("www-authenticate").to_owned(), reply.json())
    };
    let (status, challenge, body) = greet(None);
    assert_eq!((status, challenge.as_str()), (401, "Bearer realm=\"plugward\""));
    assert_eq!(body["error"]["message"], "request has no token");
    let (status, challenge, body) = greet(Some("Bearer expired-demo"));
    assert_eq!((status, challenge.as_str()), (401, "Bearer realm=\"plugward\", error=\"invalid_token\""));
    assert!(!body.to_string().contains("expired-demo"), "{body}");
    assert_eq!(greet(Some(&format!("Bearer {}", face.token()))).0, 200, "the control");
    assert_eq!(face.raw("GET", "/api/plugins", &[("Host", &host)], "").status, 401, "the control");
    // No server gives out tokens for this one, and nothing says that one does: 404 ends a client's search.
    for path in [
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/../api/plugins",
    ] {
        let reply = face.raw("GET", path, &[("Host", &host), ("Accept", "application/json")], "");
        assert_eq!((reply.status, reply.header("content-type")), (404, "application/json"), "{path}");
    }
    assert!(face.close().success());
}

/// A server elsewhere that forgets who we are once it is told to.
fn far(heard: &Heard, is_over: &AtomicBool) -> Reply {
    let result =
        |value: Value| Reply::json(200, &json!({"jsonrpc": "2.0", "id": heard.message["id"], "result": value}));
    match (heard.method.as_str(), heard.asks()) {
        (_, "initialize") => result(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "far", "version": "1"},
        })),
        (_, "tools/list") => result(json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]})),
        (_, "tools/call") if is_over.load(Ordering::Acquire) => {
            let metadata = "https://far.example.test/.well-known/oauth-protected-resource";
            let challenge = format!("Bearer error=\"invalid_token\", resource_metadata=\"{metadata}\"");
            Reply::status(401).with("WWW-Authenticate", challenge)
        }
        (_, "tools/call") => result(json!({"content": [{"type": "text", "text": "hi"}]})),
        ("GET", _) => Reply::status(405).with("Allow", "POST"),
        (_, "server/discover") => Reply::status(404),
        _ => Reply::status(202),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_elsewhere_never_sees_the_clients_token_and_its_refusal_is_told() {
    let is_over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_over);
    let server = HttpServer::start(move |heard| far(heard, &told));
    let manifest = format!(
        "id: far\nname: Far\nversion: 1.0.0\nbackend:\n  type: mcp\n  transport: streamable_http\n  url: {}\n",
        server.url()
    );
    let test = TestHost::new().await;
    test.install_package(&Package::with_manifest(&manifest)).await;
    test.host.enable("far").await.unwrap();
    let face = Face::start(test.close().await);
    let session = face.session("2025-11-25");
    face.ask(&session, 2, "tools/list", &json!({})).json();
    let call = json!({"name": "far_echo", "_meta": {"kept": "yes"}});
    let good = face.ask(&session, 3, "tools/call", &call).json();
    assert_eq!(good["result"]["content"][0]["text"], "hi", "{good}");
    // Its own sign-in has run out: the answer says whose, and the client is not asked for its own again.
    is_over.store(true, Ordering::Release);
    let reply = face.ask(&session, 4, "tools/call", &call);
    assert_eq!(reply.status, 200);
    let refused = reply.json()["result"].clone();
    let text = refused["content"][0]["text"].as_str().unwrap();
    assert!(refused["isError"] == true && text.contains("far"), "{refused}");
    assert!(text.contains("needs authorization (status 401)"), "{text}");
    assert!(text.contains("https://far.example.test/.well-known/oauth-protected-resource"), "{text}");
    let calls = server.asked("tools/call");
    assert_eq!((calls.len(), &calls[0].message["params"]["_meta"]["kept"]), (2, &json!("yes")), "asked again unasked");
    for heard in server.heard() {
        assert_eq!(heard.header("authorization"), "");
        assert!(!format!("{heard:?}").contains(face.token()), "{heard:?}");
    }
    assert!(face.close().success());
}
