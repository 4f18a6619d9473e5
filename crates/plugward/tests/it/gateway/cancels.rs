//! Calls that are given up, that go on for long, and whose client goes away without a word, on every way to the gateway.
//!
//! If these fail, the stop button stops nothing, a long job is cut off while it reports, or a plugin works for nobody.
//! Order is made by what the plugin and the host report, never by a pause.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use super::agent::{Agent, Way, hello, run_at};
use super::client::Client;
use super::home_with;
use super::http_client::{Face, Reply};
use crate::support::{Fixture, PATIENCE};

const WAYS: [Way; 4] = [Way::Pipes, Way::PipesStateless, Way::Http, Way::HttpStateless];

/// Waits until so many calls of `fx` are under way, and so many wait for a place.
fn await_load(home: &Path, running: u32, waiting: u32) {
    let expected = format!("{running} calls running, {waiting} waiting");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let told = run_at(home, &["info", "fx"])["plugin"]["activity"].clone();
        if told.as_str().unwrap().contains(&expected) {
            return;
        }
        assert!(Instant::now() < deadline, "{told} in place of {expected}");
    }
}

/// Does the same on every way at once, with a program of its own each.
async fn on_every_way(fixture: Fixture, check: fn(&mut Agent)) {
    let mut homes = Vec::new();
    for way in WAYS {
        homes.push((way, home_with(std::slice::from_ref(&fixture)).await));
    }
    std::thread::scope(|scope| {
        for (way, home) in homes {
            scope.spawn(move || {
                let mut agent = Agent::start(way, home);
                check(&mut agent);
                agent.close();
            });
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_for_its_turn_is_given_up_before_its_plugin_hears_of_it() {
    // One place, and ten minutes for a call: nothing here ends by itself.
    let fixture =
        Fixture::imported("fx", &["quirks"]).backend("max_concurrent_calls: 1").backend("tool_timeout_seconds: 600");
    on_every_way(fixture, |agent| {
        let wait = json!({"name": "fx_wait"});
        let first = agent.begin(wait.clone());
        await_load(agent.home(), 1, 0);
        let second = agent.begin(wait);
        await_load(agent.home(), 1, 1);
        agent.cancel(second);
        await_load(agent.home(), 1, 0);
        agent.cancel(first);
        await_load(agent.home(), 0, 0);
        let seen: Value = serde_json::from_str(&agent.text("fx_report")).unwrap();
        assert_eq!((&seen["opened"], &seen["cancelled"], &seen["match"]), (&json!(1), &json!(1), &json!(true)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_reports_goes_on_beyond_its_limit_and_a_silent_one_does_not() {
    on_every_way(Fixture::normal("fx").backend("tool_timeout_seconds: 1"), |agent| {
        let mut call = json!({"name": "fx_sleep", "arguments": {"seconds": 1.5}});
        let silent = agent.ask("tools/call", call.clone()).answer;
        assert_eq!(silent["result"]["_meta"]["plugward/error"]["cause"], "timed_out", "{silent}");
        call["_meta"] = json!({"progressToken": "mine"});
        let exchange = agent.ask("tools/call", call);
        assert_eq!(exchange.answer["result"]["content"][0]["text"], "slept 1.5 s", "{}", exchange.answer);
        assert!(exchange.notes.iter().all(|note| note["params"]["progressToken"] == "mine"), "{:?}", exchange.notes);
        assert!(!exchange.notes.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_while_it_is_asked_takes_its_call_along() {
    let fixture = Fixture::imported("fx", &["quirks", "--modern"])
        .backend("protocol: modern")
        .backend("max_concurrent_calls: 1")
        .backend("tool_timeout_seconds: 600")
        .permission("mcp.elicitation");
    let face = Face::start(home_with(&[fixture]).await);
    let call = json!({"name": "fx_person"});
    // An agent's process is killed.
    let mut agent = Client::join_at(face.home());
    agent.request("initialize", &hello());
    agent.notify("notifications/initialized", &json!({}));
    agent.list();
    agent.send("tools/call", &call);
    agent.await_message(|message| message["method"] == "elicitation/create");
    await_load(face.home(), 1, 0);
    drop(agent);
    await_load(face.home(), 0, 0);
    // A session is ended.
    let greeting = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello()});
    let session = Reply::read(face.open("POST", &[], Some(&greeting))).header("mcp-session-id").to_owned();
    face.tell(&session, "notifications/initialized", &json!({}));
    let mut stream = face.ask(&session, 2, "tools/call", &call);
    while !stream.event().expect("it is asked").data.contains("elicitation/create") {}
    await_load(face.home(), 1, 0);
    assert_eq!(face.reply("DELETE", &[("Mcp-Session-Id", session.as_str())], None).status, 204);
    await_load(face.home(), 0, 0);
    assert!(stream.messages().iter().all(|message| message.get("result").is_none()), "it was answered all the same");
    assert!(face.close().success());
}
