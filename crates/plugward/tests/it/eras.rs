//! Plugins with and without a handshake behind one host: how each is found out, remembered and talked to, and what comes
//! of one that breaks the rules of its revision (ST-03, ST-05, ST-09, BP-04, B032).

use std::time::{Duration, Instant};

use plugward_host::{CallFailure, ErrorCode, SupervisionSettings};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::support::marks::Marks;
use crate::support::{Fixture, PATIENCE, Settings, TestHost, eventually, request};

/// A plugin without a handshake, of which nothing is known before it is asked.
fn modern(id: &str, arguments: &[&str]) -> Fixture {
    let arguments: Vec<&str> = std::iter::once("modern").chain(arguments.iter().copied()).collect();
    Fixture::imported(id, &arguments).backend("protocol: auto").permission("notes.read")
}

/// Processes that were started so far.
fn starts(marks: &Marks) -> usize {
    marks.read("starts").lines().count()
}

fn version(test: &TestHost, id: &str) -> Option<String> {
    test.host.host_status(id).unwrap().protocol_version
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_without_a_handshake_works_from_its_first_start_on() {
    // Requirement 5, in the revision that has no handshake: without this its tools would be out of reach.
    let marks = Marks::new();
    let test = TestHost::new().await;
    test.run(&modern("fx", &["--starts", &marks.arg("starts")])).await;
    let status = test.host.host_status("fx").unwrap();
    assert_eq!((status.protocol_version.as_deref(), starts(&marks)), (Some("2026-07-28"), 1));
    assert_eq!(status.server_name.as_deref(), Some("mcp-fixture"), "it says who it is in the metadata of its answer");
    assert_eq!(test.output("fx.echo", json!({"text": "hi"})).await, json!({"echo": "hi"}));
    assert!(test.tool_names("fx").contains(&"exit".to_owned()), "both pages of its list were read");
    // After a crash, as after any start, it is asked again and needs no second process.
    assert!(test.call("fx.exit", json!({})).await.outcome.is_err());
    eventually("it is back", || (starts(&marks) == 2 && version(&test, "fx").is_some()).then_some(())).await;
    assert_eq!(test.output("fx.echo", json!({"text": "again"})).await, json!({"echo": "again"}));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_plugin_that_is_confused_by_the_question_gets_a_fresh_process_once() {
    // ST-09: servers that answer nonsense, say nothing or end would otherwise be lost; asking every time would cost each
    // start a process.
    for kind in ["garbage", "hang", "exit"] {
        let marks = Marks::new();
        let fixture = Fixture::imported("fx", &["odd-discover", "--kind", kind, "--starts", &marks.arg("starts")])
            .backend("protocol: auto")
            .backend("startup_timeout_seconds: 4")
            .permission("notes.read");
        let test = TestHost::new().await;
        test.run(&fixture).await;
        assert_eq!((version(&test, "fx").as_deref(), starts(&marks)), (Some("2025-11-25"), 2), "{kind}");
        assert_eq!(test.output("fx.echo", json!({"text": "hi"})).await, json!({"echo": "hi"}));
        let told = test.host.logs("fx").unwrap().iter().any(|line| line.text.contains("greeted in the other way"));
        assert!(told, "a person who wonders about two processes finds out why");
        test.host.restart("fx").await.unwrap();
        assert_eq!(starts(&marks), 3, "{kind}: it is remembered");
        // Another host on the same home remembers as well.
        let home = test.close().await;
        let test = TestHost::at(home, Settings::default()).await;
        test.host.start_enabled();
        eventually("it runs", || version(&test, "fx")).await;
        assert_eq!(starts(&marks), 4, "{kind}");
        test.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_remembered_and_is_wrong_is_found_out_anew() {
    // A server that is updated behind its command (`npx`) changes without a word.
    let marks = Marks::new();
    let script = "if [ -e \"$0/good\" ]; then exec mcp-fixture modern; fi; exec mcp-fixture normal";
    let dir = marks.path("").display().to_string();
    let fixture = Fixture::imported("fx", &["-c", script, &dir]).command("sh").backend("protocol: auto");
    let test = TestHost::new().await;
    test.run(&fixture.permission("notes.read")).await;
    assert_eq!(version(&test, "fx").as_deref(), Some("2025-11-25"));
    marks.mend();
    test.host.restart("fx").await.unwrap();
    assert_eq!(version(&test, "fx").as_deref(), Some("2026-07-28"));
    std::fs::remove_file(marks.path("good")).unwrap();
    test.host.restart("fx").await.unwrap();
    assert_eq!(version(&test, "fx").as_deref(), Some("2025-11-25"), "and back");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_says_how_it_begins_is_taken_at_its_word() {
    let marks = Marks::new();
    let log = marks.arg("starts");
    let test = TestHost::new().await;
    let wrong = Fixture::imported("one", &["normal", "--starts", &log]).permission("notes.read");
    let error = test.try_run(&wrong.backend("protocol: modern")).await.unwrap_err();
    assert_eq!((error.code, starts(&marks)), (ErrorCode::McpInitializeFailed, 1), "{error}");
    let wrong = Fixture::imported("two", &["modern", "--starts", &log]).backend("protocol: legacy");
    let error = test.try_run(&wrong).await.unwrap_err();
    assert_eq!((error.code, starts(&marks)), (ErrorCode::McpInitializeFailed, 2), "{error}");
    test.run(&Fixture::imported("three", &["modern", "--starts", &log]).backend("protocol: modern")).await;
    assert_eq!(starts(&marks), 3);
    // Declared tools are the strict contract of old: greeted by the handshake, without a question before.
    let native = modern("four", &["--starts", &log]).backend("protocol: legacy").declares(&["echo"]);
    assert!(test.try_run(&native).await.is_err());
    assert_eq!(starts(&marks), 4);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_that_nobody_here_speaks_is_named() {
    // B032: greeting such a server by a handshake it does not have would only hide what is wrong.
    let test = TestHost::new().await;
    let error = test.try_run(&modern("fx", &["--fault", "later"])).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::McpInitializeFailed);
    assert!(error.message.contains("2031-01-01"), "{error}");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_list_is_told_on_a_stream_and_looked_at() {
    // ST-05, B039: what came after the approval waits for a person, in this revision as well.
    let test = TestHost::new().await;
    test.run(&modern("fx", &[])).await;
    assert_eq!(test.text("fx.toggle", json!({})).await, "toggled");
    let deadline = Instant::now() + PATIENCE;
    while !test.host.plugin("fx").await.unwrap().held_tools.iter().any(|tool| tool.remote_name == "toggled") {
        assert!(Instant::now() < deadline, "the new tool is not held");
        tokio::task::yield_now().await;
    }
    // A plugin that ends its streams at once is not asked in a circle, and works.
    test.run(&modern("short", &["--fault", "ends-streams"])).await;
    assert_eq!(test.output("short.echo", json!({"text": "hi"})).await, json!({"echo": "hi"}));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_and_cancel_reach_it() {
    // CA-01, PG-01
    let test = TestHost::new().await;
    test.run(&modern("fx", &[])).await;
    let mut call = request("fx.sleep", json!({"seconds": 30}));
    let (sender, mut notes) = mpsc::channel(100);
    call.progress = Some(sender);
    let cancel = call.cancel.clone();
    let (host, seen) = (test.host.clone(), async {
        let note = notes.recv().await.unwrap();
        cancel.cancel();
        serde_json::from_str::<Value>(note.get()).unwrap()
    });
    let (report, note) = tokio::join!(host.call(call), seen);
    assert!(note["progress"].as_f64().unwrap() > 0.0);
    assert!(matches!(report.outcome, Err(CallFailure::Cancelled)), "{:?}", report.outcome);
    assert_eq!(test.output("fx.echo", json!({"text": "hi"})).await, json!({"echo": "hi"}));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_asks_where_nothing_may_be_asked_gets_no_word() {
    // ST-03: an answer would be a line that such a server does not expect on its stdin.
    let test = TestHost::new().await;
    test.run(&modern("fx", &["--fault", "asks"])).await;
    assert_eq!(test.output("fx.echo", json!({"text": "hi"})).await, json!({"echo": "hi"}));
    assert_eq!(test.text("fx.answers", json!({})).await, "0", "it counted what came back");
    assert!(test.host.plugin("fx").await.unwrap().noise_lines >= 2, "it is counted as what it is");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn results_of_no_known_kind_are_failures_and_results_of_none_are_complete() {
    // BP-04
    let test = TestHost::new().await;
    test.run(&modern("odd", &["--fault", "unknown-type"])).await;
    let failed = test.call("odd.echo", json!({"text": "hi"})).await.outcome.unwrap_err();
    assert!(matches!(&failed, CallFailure::ResultInvalid { reason } if reason.contains("later")), "{failed:?}");
    // MR-02: a question nobody offered to answer is no result either.
    let asked = test.call("odd.test_input_required_result_request_state", json!({})).await.outcome.unwrap_err();
    assert!(matches!(asked, CallFailure::ResultInvalid { .. }), "{asked:?}");
    test.run(&modern("plain", &["--fault", "no-type"])).await;
    assert_eq!(test.output("plain.echo", json!({"text": "hi"})).await, json!({"echo": "hi"}));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_without_pings_is_asked_what_it_is_instead() {
    // Health: what a plugin of this revision does not know must not be taken for its death.
    let supervision = SupervisionSettings { ping_every: Duration::from_millis(50), ..SupervisionSettings::default() };
    let test = TestHost::with(Settings { supervision, ..Settings::default() }).await;
    test.run(&modern("fx", &[])).await;
    let before = test.host.host_status("fx").unwrap();
    let heard = |times: Duration| {
        let seen = test.host.host_status("fx").unwrap().last_seen_at?;
        (seen >= before.last_seen_at? + times).then_some(())
    };
    eventually("it was asked several times", || heard(Duration::from_millis(300))).await;
    let after = test.host.host_status("fx").unwrap();
    assert_eq!((after.pid, after.generation), (before.pid, before.generation));
    test.close().await;
}
