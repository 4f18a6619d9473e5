//! What runs on while things change or go away: updates under load, clients that vanish, hidden tools.
//!
//! If these fail, an update costs somebody's call, a client lists again and again for nothing, or works on for nobody.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use super::client::Client;
use super::home_with;
use super::http_client::{Face, modern};
use crate::support::{Fixture, PATIENCE};

const CHANGED: &str = "notifications/tools/list_changed";

fn has_tool(face: &Face, name: &str) -> bool {
    let listed = face.modern(1, "tools/list", &json!({})).json();
    listed["result"]["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == name)
}

/// Calls until told to stop; every answer is the caller's own.
fn load(face: &Face, caller: usize, stop: &AtomicBool, answered: &AtomicU64) {
    let session = face.session("2025-11-25");
    for round in 0_u64.. {
        if stop.load(Ordering::Acquire) {
            return;
        }
        let word = format!("{caller}-{round}");
        let params = json!({"name": "fx_echo", "arguments": {"text": word}});
        let answer = match caller % 2 {
            0 => face.ask(&session, round, "tools/call", &params).json(),
            _ => face.modern(round, "tools/call", &params).json(),
        };
        assert_eq!(answer["result"]["structuredContent"]["echo"], word, "a call was lost: {answer}");
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_under_load_loses_no_call_and_every_client_is_told_once() {
    let face = Face::start(home_with(&[Fixture::normal("fx"), Fixture::imported("mail", &["rug-pull"])]).await);
    assert!(has_tool(&face, "mail_send") && has_tool(&face, "fx_echo"));
    // Everybody who can be told, in both eras over both transports: two sessions, one client without, two agents' pipes.
    let sessions = [face.session("2025-11-25"), face.session("2025-06-18")];
    let mut streams: Vec<_> = sessions
        .iter()
        .map(|session| {
            face.ask(session, 2, "tools/list", &json!({})).json();
            face.get(session, None)
        })
        .collect();
    let mut listening = face.modern(5, "subscriptions/listen", &json!({"notifications": {"toolsListChanged": true}}));
    assert!(listening.event().unwrap().data.contains("acknowledged"));
    streams.push(listening);
    let mut agent = Client::join_at(face.home());
    agent.handshake();
    agent.list();
    let mut stateless = Client::join_at(face.home());
    let listen = modern(1, "subscriptions/listen", &json!({"notifications": {"toolsListChanged": true}}));
    stateless.send_raw(&listen.to_string());
    stateless.await_message(|message| message["method"] == "notifications/subscriptions/acknowledged");

    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let (face, stop, answered) = (&face, &stop, &answered);
            scope.spawn(move || load(face, caller, stop, answered));
        }
        // One plugin is replaced by a new process of the same; of the other a tool changes, and is taken out.
        agent.run(&["restart", "fx"]);
        let deadline = Instant::now() + PATIENCE;
        while has_tool(&face, "mail_send") {
            assert!(Instant::now() < deadline, "the changed tool stays");
            face.ask(&sessions[0], 3, "tools/call", &json!({"name": "mail_send"})).json();
        }
        agent.run(&["restart", "fx"]);
        agent.await_message(|message| message["method"] == CHANGED);
        stateless.await_message(|message| message["method"] == CHANGED);
        stop.store(true, Ordering::Release);
    });
    assert!(answered.load(Ordering::Relaxed) > 20, "there was no load");
    for agent in [agent, stateless] {
        let told = agent.close().messages.iter().filter(|message| message["method"] == CHANGED).count();
        assert_eq!(told, 0, "an agent was told again");
    }
    face.stop();
    for mut stream in streams {
        let events: Vec<String> = std::iter::from_fn(|| stream.event()).map(|event| event.data).collect();
        let told = events.iter().filter(|data| data.contains(CHANGED)).count();
        assert_eq!(told, 1, "{events:?}");
    }
    assert!(face.close().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_vanishes_leaves_no_call_running() {
    let face = Face::start(home_with(&[Fixture::imported("fx", &["wait"])]).await);
    let report = || -> Value {
        let answer = face.modern(9, "tools/call", &json!({"name": "fx_report"})).json();
        serde_json::from_str(answer["result"]["content"][0]["text"].as_str().unwrap()).unwrap()
    };
    let until = |what: &str, count: u64| {
        let deadline = Instant::now() + PATIENCE;
        while report()[what] != count {
            assert!(Instant::now() < deadline, "{what} is not {count}: {}", report());
        }
    };
    // Over pipes: its process is killed. With a session: it ends it. Without: its connection breaks.
    let mut agent = Client::join_at(face.home());
    agent.handshake();
    agent.send("tools/call", &json!({"name": "fx_wait"}));
    until("opened", 1);
    drop(agent);
    until("cancelled", 1);
    let mut agent = Client::join_at(face.home());
    agent.send("tools/call", &modern(0, "tools/call", &json!({"name": "fx_wait"}))["params"]);
    until("opened", 2);
    drop(agent);
    until("cancelled", 2);
    let session = face.session("2025-11-25");
    let call = json!({"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "fx_wait"}});
    let own = [("Mcp-Session-Id", session.as_str())];
    let waiting = face.open("POST", &own, Some(&call));
    until("opened", 3);
    assert_eq!(face.reply("DELETE", &own, None).status, 204);
    until("cancelled", 3);
    drop(waiting);
    let waiting = face.open("POST", &[], Some(&modern(5, "tools/call", &json!({"name": "fx_wait"}))));
    until("opened", 4);
    drop(waiting);
    until("cancelled", 4);
    face.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_headers_of_a_hidden_tool_are_checked_no_more_than_those_of_one_that_is_not_there() {
    // B064: an error about its headers would show that it is there.
    let home = home_with(&[Fixture::normal("fx"), Fixture::normal("hidden")]).await;
    std::fs::write(home.path().join("config.toml"), "[profiles.default]\nplugins = [\"fx\"]\n").unwrap();
    let face = Face::start(home);
    let call = |name: &str| {
        let params = json!({"name": name, "arguments": {"text": "x"}});
        // A header that no argument of any of them asks for.
        let headers = [("Mcp-Param-text", "something else")];
        let reply = face.reply("POST", &headers, Some(&modern(2, "tools/call", &params)));
        (reply.status, reply.json())
    };
    assert_eq!(call("hidden_echo"), call("never_was"));
    assert_eq!(call("hidden_echo").1["error"]["code"], -32602);
    assert!(call("fx_echo").1["result"].is_object(), "the control");
    face.close();
}
