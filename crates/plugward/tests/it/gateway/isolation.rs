//! `isolation: per-client`: what one client does to its process does not reach another's.
//!
//! If these fail, an agent's state, login or crash is another agent's too, or processes are left behind.

use serde_json::{Value, json};

use super::crowd::plugin_processes;
use super::home_with;
use super::http_client::Face;
use crate::support::{Fixture, eventually, processes_with};

fn own() -> Fixture {
    Fixture::normal("own").extra("isolation: per-client\n")
}

fn echo(face: &Face, session: &str, plugin: &str) -> Value {
    let params = json!({"name": format!("{plugin}_echo"), "arguments": {"text": session}});
    let answer = face.ask(session, 90, "tools/call", &params).json();
    answer["result"]["structuredContent"]["echo"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_ends_its_process_ends_no_call_of_another() {
    let face = Face::start(home_with(&[own(), Fixture::normal("shared")]).await);
    let (first, second) = (face.session("2025-11-25"), face.session("2025-11-25"));
    // The shared plugin shows that the end of a process is felt where it is shared.
    for (plugin, survives) in [("own", true), ("shared", false)] {
        assert_eq!(echo(&face, &first, plugin), first.as_str());
        let slow =
            json!({"name": format!("{plugin}_sleep"), "arguments": {"seconds": 2}, "_meta": {"progressToken": 1}});
        let mut slow = face.ask(&second, 2, "tools/call", &slow);
        while !slow.event().expect("the call goes on").data.contains("notifications/progress") {}
        let gone = face.ask(&first, 3, "tools/call", &json!({"name": format!("{plugin}_exit")})).json();
        assert_eq!(gone["result"]["_meta"]["plugward/error"]["code"], "PLUGIN_HOST_UNAVAILABLE", "{plugin}: {gone}");
        let last = slow.messages().pop().unwrap();
        let has_slept = last["result"]["content"][0]["text"] == "slept 2 s";
        assert_eq!(has_slept, survives, "{plugin}: {last}");
    }
    // The next call has a process again.
    assert_eq!(echo(&face, &first, "own"), first.as_str());
    let mark = face.home().display().to_string();
    assert!(face.close().success());
    eventually("every process ends with the host", || processes_with(&mark).is_empty().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_has_one_process_and_their_number_is_bounded() {
    let face = Face::start(home_with(&[own()]).await);
    let sessions: Vec<String> = (0..3).map(|_| face.session("2025-06-18")).collect();
    for round in 0..2 {
        for session in &sessions {
            assert_eq!(echo(&face, session, "own"), session.as_str(), "round {round}");
        }
        assert_eq!(plugin_processes(face.pid()), 4, "one each, and the plugin's own");
    }
    // One that has no session is told by its name.
    let params = json!({"name": "own_echo", "arguments": {"text": "x"}});
    for id in 5..8 {
        face.modern(id, "tools/call", &params).json();
    }
    assert_eq!(plugin_processes(face.pid()), 5);
    // Those idle longest make place, and find a new one when they come back.
    for _ in 0..16 {
        let session = face.session("2025-06-18");
        assert_eq!(echo(&face, &session, "own"), session.as_str());
    }
    eventually("no more than 16 and the plugin's own", || (plugin_processes(face.pid()) == 17).then_some(())).await;
    assert_eq!(echo(&face, &sessions[0], "own"), sessions[0].as_str());
    let mark = face.home().display().to_string();
    assert!(face.close().success());
    eventually("every process ends with the host", || processes_with(&mark).is_empty().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clients_process_ends_when_it_is_idle() {
    let plugin = own().extra("supervision:\n  idle_stop_seconds: 1\n");
    let face = Face::start(home_with(&[plugin]).await);
    let session = face.session("2025-11-25");
    assert_eq!(echo(&face, &session, "own"), session.as_str());
    eventually("all processes end", || (plugin_processes(face.pid()) == 0).then_some(())).await;
    assert_eq!(echo(&face, &session, "own"), session.as_str(), "the next call starts what it needs");
    face.close();
}
