//! `plugward serve --http` as MCP clients meet it: the real program, real connections, fixture plugins behind it.

use serde_json::{Value, json};

use super::home_with;
use super::http_client::{Face, modern};
use crate::support::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn both_eras_call_tools_on_one_path_at_once() {
    let face = Face::start(home_with(&[Fixture::normal("fx")]).await);
    let session = face.session("2025-11-25");
    let echo = |text: &str| json!({"name": "fx_echo", "arguments": {"text": text}});
    let answer = face.ask(&session, 2, "tools/call", &echo("grüße")).json();
    assert_eq!(answer["result"]["structuredContent"]["echo"], "grüße");
    assert!(answer["result"].get("resultType").is_none(), "a legacy result stays as it was");
    let answer = face.modern(3, "tools/call", &echo("世界")).json();
    assert_eq!(answer["result"]["structuredContent"]["echo"], "世界");
    assert_eq!(answer["result"]["resultType"], "complete");
    let listed = face.modern(4, "tools/list", &json!({})).json();
    let legacy = face.ask(&session, 5, "tools/list", &json!({})).json();
    assert_eq!(listed["result"]["tools"], legacy["result"]["tools"]);
    assert!(face.close().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_comes_before_the_answer_as_events() {
    let face = Face::start(home_with(&[Fixture::imported("fx", &["progress", "--steps", "3"])]).await);
    let session = face.session("2025-06-18");
    let params = json!({"name": "fx_count", "_meta": {"progressToken": "own"}});
    for legacy in [true, false] {
        let tools = face.modern(1, "tools/list", &json!({})).json();
        let mut params = params.clone();
        params["name"] = tools["result"]["tools"][0]["name"].clone();
        let reply =
            if legacy { face.ask(&session, 2, "tools/call", &params) } else { face.modern(2, "tools/call", &params) };
        assert_eq!((reply.status, reply.header("content-type")), (200, "text/event-stream"));
        let messages = reply.messages();
        let (last, notes) = messages.split_last().unwrap();
        assert_eq!(last["id"], 2, "the answer ends the stream");
        assert!(notes.len() >= 3 && notes.iter().all(|note| note["params"]["progressToken"] == "own"), "{notes:?}");
    }
    face.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_the_connection_cancels_a_request_of_the_stateless_revision() {
    // HT-06: nobody waits for it, so the plugin must not work on it.
    let face = Face::start(home_with(&[Fixture::imported("fx", &["wait"])]).await);
    let report = || face.modern(9, "tools/call", &json!({"name": "fx_report"})).json().to_string();
    let until = |what: &str| {
        let deadline = std::time::Instant::now() + crate::support::PATIENCE;
        while !report().contains(what) {
            assert!(std::time::Instant::now() < deadline, "{what} is not reported: {}", report());
        }
    };
    let waiting = face.open("POST", &[], Some(&modern(1, "tools/call", &json!({"name": "fx_wait"}))));
    until("\\\"opened\\\":1");
    drop(waiting);
    until("\\\"cancelled\\\":1");
    face.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_when_its_connection_breaks_and_its_stream_is_resumed() {
    // LG-06: a laptop that changes its network must not lose the answer to a long call.
    let face = Face::start(home_with(&[Fixture::normal("fx").backend("tool_timeout_seconds: 20")]).await);
    let session = face.session("2025-11-25");
    let params = json!({"name": "fx_sleep", "arguments": {"seconds": 1}, "_meta": {"progressToken": 1}});
    let mut first = face.ask(&session, 7, "tools/call", &params);
    let opening = first.event().unwrap();
    assert!(opening.data.is_empty() && opening.id.is_some(), "an id to resume from comes at once");
    let note = first.event().unwrap();
    assert!(note.data.contains("notifications/progress"), "{note:?}");
    drop(first);
    let resumed = face.get(&session, note.id.as_deref());
    assert_eq!(resumed.status, 200);
    let messages = resumed.messages();
    let last = messages.last().unwrap();
    assert_eq!((&last["id"], &last["result"]["content"][0]["text"]), (&json!(7), &json!("slept 1 s")));
    let reached: Vec<f64> = messages.iter().filter_map(|m| m["params"]["progress"].as_f64()).collect();
    assert!(reached.is_sorted() && !reached.contains(&0.0), "nothing twice: {reached:?}");
    // A cancelled request is not answered, and its connection is not left hanging.
    let slow = json!({"name": "fx_sleep", "arguments": {"seconds": 15}, "_meta": {"progressToken": 2}});
    let mut slow = face.ask(&session, 8, "tools/call", &slow);
    while !slow.event().unwrap().data.contains("progress") {}
    face.tell(&session, "notifications/cancelled", &json!({"requestId": 8}));
    assert!(slow.messages().iter().all(|message| message["id"] != 8));
    face.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_the_tools_reach_every_client_that_asked() {
    let face = Face::start(home_with(&[Fixture::imported("fx", &["crash-after", "--calls", "0"])]).await);
    let session = face.session("2025-11-25");
    let tools = face.ask(&session, 2, "tools/list", &json!({})).json()["result"]["tools"].clone();
    let mut unasked = face.get(&session, None);
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let mut stream = face.modern(5, "subscriptions/listen", &filter);
    assert!(stream.event().unwrap().data.contains("subscriptions/acknowledged"));
    face.ask(&session, 3, "tools/call", &json!({"name": tools[0]["name"]}));
    for reply in [&mut unasked, &mut stream] {
        let changed = loop {
            let event = reply.event().expect("the stream ended");
            if !event.data.is_empty() {
                break event;
            }
        };
        let changed: Value = serde_json::from_str(&changed.data).unwrap();
        assert_eq!(changed["method"], "notifications/tools/list_changed");
    }
    // The end of the program ends both, the second with a result (SU-02).
    face.stop();
    while unasked.event().is_some() {}
    let last = std::iter::from_fn(|| stream.event()).last().unwrap();
    assert!(last.data.contains("\"resultType\":\"complete\""), "{last:?}");
    assert!(face.close().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_goes_to_another_client() {
    // Sixteen clients of both eras use the same ids at the same time.
    const CLIENTS: usize = 16;
    const CALLS: u64 = 20;
    let face = Face::start(home_with(&[Fixture::normal("fx")]).await);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let face = &face;
            scope.spawn(move || {
                let session = (client % 2 == 0).then(|| face.session("2025-11-25"));
                for call in 0..CALLS {
                    let text = format!("{client}/{call}");
                    let params = json!({"name": "fx_echo", "arguments": {"text": text}});
                    let answer = match &session {
                        Some(session) => face.ask(session, call, "tools/call", &params).json(),
                        None => face.modern(call, "tools/call", &params).json(),
                    };
                    assert_eq!(
                        (&answer["id"], &answer["result"]["structuredContent"]["echo"]),
                        (&json!(call), &json!(text))
                    );
                }
            });
        }
    });
    assert!(face.close().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_under_way_gets_its_answer_when_the_program_is_asked_to_end() {
    let face = Face::start(home_with(&[Fixture::normal("fx").backend("tool_timeout_seconds: 20")]).await);
    let params = json!({"name": "fx_sleep", "arguments": {"seconds": 1}, "_meta": {"progressToken": 1}});
    let mut reply = face.modern(1, "tools/call", &params);
    assert!(reply.event().unwrap().data.contains("notifications/progress"));
    face.stop();
    let messages = reply.messages();
    assert_eq!(messages.last().unwrap()["result"]["content"][0]["text"], "slept 1 s", "{messages:?}");
    assert!(face.close().success());
}

#[test]
fn whoever_may_call_tools_may_not_approve_plugins() {
    let home = tempfile::tempdir().unwrap();
    let face = Face::start(home);
    let (mcp, api) = (face.token().to_owned(), face.api_token());
    assert_ne!(mcp, api);
    let host = face.address().to_string();
    let status = |path: &str, token: &str| {
        let bearer = format!("Bearer {token}");
        face.raw("GET", path, &[("Host", &host), ("Authorization", &bearer), ("Accept", "text/event-stream")], "")
            .status
    };
    assert_eq!((status("/api/plugins", &api), status("/api/plugins", &mcp)), (200, 401));
    // Admitted, and without a session to read.
    assert_eq!((status("/mcp", &mcp), status("/mcp", &api)), (400, 401));
}

#[test]
fn an_address_for_other_machines_needs_its_names_and_never_has_the_host_api() {
    let face =
        Face::start_with(tempfile::tempdir().unwrap(), &["--http", "0.0.0.0:0", "--allow-host", "tools.example"]);
    let bearer = format!("Bearer {}", face.token());
    let status = |path: &str, host: &str| {
        face.raw("GET", path, &[("Host", host), ("Authorization", &bearer), ("Accept", "text/event-stream")], "").status
    };
    assert_eq!(status("/mcp", "tools.example"), 400, "admitted, and without a session to read");
    assert_eq!(status("/mcp", "tools.example:8420"), 400);
    for foreign in ["evil.example", "192.0.2.7", "tools.example.evil.example"] {
        assert_eq!(status("/mcp", foreign), 403, "{foreign}");
    }
    for path in ["/api/plugins", "/healthz", "/openapi.json"] {
        assert_eq!(status(path, "tools.example"), 404, "{path}");
    }
    assert!(!face.has_api_token(), "a token was made for nothing");
}
