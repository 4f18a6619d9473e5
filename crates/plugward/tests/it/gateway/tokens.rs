//! Clients with tokens of their own over HTTP: what each sees, under which name, and the end of a token.
//!
//! If these fail, an agent that was given a few tools has all of them, or one that was shut out goes on calling.

use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use super::home_with;
use super::http_client::Face;
use crate::support::{Fixture, PATIENCE, plugward};

/// Runs a command on the home of a running host.
fn run(face: &Face, arguments: &[&str]) -> Value {
    let output = Command::new(plugward())
        .args(arguments)
        .arg("--json")
        .env_clear()
        .env("PLUGWARD_HOME", face.home())
        .env("PLUGWARD_ENVIRONMENT", "development")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A face with two plugins and a profile that has one of them.
async fn face() -> Face {
    let home = home_with(&[Fixture::normal("one"), Fixture::normal("two")]).await;
    std::fs::write(home.path().join("config.toml"), "[profiles.narrow]\nplugins = [\"one\"]\n").unwrap();
    Face::start(home)
}

fn bearer(face: &Face, arguments: &[&str]) -> String {
    format!("Bearer {}", run(face, arguments)["token"].as_str().expect("the token is told once"))
}

fn post(face: &Face, token: &str, session: Option<&str>, body: &Value) -> (u16, Value) {
    let mut headers = vec![("Authorization", token)];
    headers.extend(session.map(|session| ("Mcp-Session-Id", session)));
    let reply = face.reply("POST", &headers, Some(body));
    (reply.status, reply.json())
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// Begins a session under a name that is not the token's.
fn session(face: &Face, token: &str) -> String {
    let client = json!({"name": "somebody-else", "version": "0"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let reply = face.reply("POST", &[("Authorization", token)], Some(&request(1, "initialize", &params)));
    assert_eq!(reply.status, 200);
    reply.header("mcp-session-id").to_owned()
}

fn names(listed: &Value) -> Vec<&str> {
    listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_opens_the_tools_of_its_profile_under_its_own_name() {
    let face = face().await;
    let own = bearer(&face, &["token", "add", "build-agent", "--profile", "narrow"]);
    let id = session(&face, &own);
    let (_, listed) = post(&face, &own, Some(&id), &request(2, "tools/list", &json!({})));
    assert!(names(&listed).iter().all(|name| name.starts_with("one_")) && !names(&listed).is_empty(), "{listed}");
    let echo = |name: &str| json!({"name": name, "arguments": {"text": "hi"}});
    let (_, refused) = post(&face, &own, Some(&id), &request(3, "tools/call", &echo("two_echo")));
    assert_eq!(refused["error"]["code"], -32602, "a tool outside of the profile was run: {refused}");
    let (_, answer) = post(&face, &own, Some(&id), &request(4, "tools/call", &echo("one_echo")));
    assert_eq!(answer["result"]["structuredContent"]["echo"], "hi");
    // The shared token goes on as before, and sees all.
    let all = face.modern(5, "tools/list", &json!({})).json();
    assert!(names(&all).contains(&"two_echo") && names(&all).contains(&"one_echo"));
    // A session is its beginner's: to others it is not there.
    let other = bearer(&face, &["token", "add", "other"]);
    for token in [format!("Bearer {}", face.token()), other] {
        assert_eq!(post(&face, &token, Some(&id), &request(6, "ping", &json!({}))).0, 404);
    }
    assert_eq!(post(&face, &own, Some(&id), &request(7, "ping", &json!({}))).0, 200);
    let traces = run(&face, &["trace", "list"]).to_string();
    assert!(traces.contains("token:build-agent") && !traces.contains("somebody-else"), "{traces}");
    let listed = run(&face, &["token", "list"]).to_string();
    assert!(listed.contains("build-agent") && !listed.contains(&own["Bearer ".len()..]), "{listed}");
    face.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_replaced_or_taken_back_ends_at_once() {
    let face = face().await;
    let first = bearer(&face, &["token", "add", "agent"]);
    let id = session(&face, &first);
    let shared = face.session("2025-11-25");
    let mut stream = face.reply("GET", &[("Authorization", &first), ("Mcp-Session-Id", &id)], None);
    assert_eq!(stream.status, 200);
    let second = bearer(&face, &["token", "rotate", "agent"]);
    let ping = request(2, "ping", &json!({}));
    assert_eq!(post(&face, &first, Some(&id), &ping).0, 401);
    assert_eq!(post(&face, &second, Some(&id), &ping).0, 404, "a session of the old token was taken over");
    // The stream that the old token opened tells nothing any more.
    let until = Instant::now() + PATIENCE;
    while stream.event().is_some() {
        assert!(Instant::now() < until, "a stream outlives its token");
    }
    let id = session(&face, &second);
    assert_eq!(post(&face, &second, Some(&id), &ping).0, 200);
    run(&face, &["token", "revoke", "agent"]);
    assert_eq!(post(&face, &second, Some(&id), &ping).0, 401);
    // Nobody else notices.
    assert_eq!(face.ask(&shared, 3, "ping", &json!({})).status, 200);
    // The shared one can be replaced, too, without a new start.
    let renewed = bearer(&face, &["token", "rotate", "default"]);
    assert_eq!(face.modern(4, "tools/list", &json!({})).status, 401);
    session(&face, &renewed);
    face.close();
}
