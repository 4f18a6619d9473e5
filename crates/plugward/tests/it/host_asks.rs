//! Calls that need the yes of a person (requirements 16, 63, 82, 96).

use std::time::{Duration, Instant};

use plugward_host::{Answer, CallReport, ErrorCode, PendingAsk, SpanFilter};
use plugward_policy::{Catalogue, Effect};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::marks::Marks;
use crate::support::{Settings, TestHost, eventually, request};

/// A plugin with a tool that needs `notes.write`, whose effect in the catalogue of the seed is to ask.
async fn asking(settings: Settings, marks: &Marks) -> TestHost {
    let test = TestHost::with(settings).await;
    let meta = json!({"notesagent/permission": "notes.write"});
    let tools = json!([
        {"name": "write", "inputSchema": {"type": "object"}, "_meta": meta},
        {"name": "other", "inputSchema": {"type": "object"}, "_meta": meta},
        {"name": "free", "inputSchema": {"type": "object"}},
    ]);
    let fixture = marks.with_tools("fx", &tools).permission("notes.write").backend("tool_timeout_seconds: 2");
    test.run(&fixture).await;
    test
}

fn spawn(test: &TestHost, tool: &str) -> JoinHandle<CallReport> {
    let (host, tool) = (test.host.clone(), tool.to_owned());
    tokio::spawn(async move { host.call(request(&tool, json!({}))).await })
}

async fn asked(test: &TestHost) -> PendingAsk {
    eventually("a person is asked", || test.host.pending_asks().pop()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_82_a_call_waits_for_a_person_and_each_answer_counts_once() {
    let marks = Marks::new();
    let test = asking(Settings::default(), &marks).await;
    let call = spawn(&test, "fx.write");
    let ask = asked(&test).await;
    assert_eq!((ask.tool.to_string().as_str(), ask.permission.as_str()), ("fx.write", "notes.write"));
    assert!(ask.request_id.starts_with("permission_") && ask.caller == "test" && !ask.reason.is_empty(), "{ask:?}");
    assert!(!call.is_finished());
    test.host.answer(&ask.request_id, Answer::AllowOnce).unwrap();
    assert!(call.await.unwrap().outcome.is_ok());
    let late = test.host.answer(&ask.request_id, Answer::AllowOnce).unwrap_err();
    assert_eq!(late.code, ErrorCode::PluginStateConflict);
    // Once is once.
    let call = spawn(&test, "fx.write");
    let ask = asked(&test).await;
    test.host.answer(&ask.request_id, Answer::Deny).unwrap();
    let failure = call.await.unwrap().outcome.unwrap_err();
    assert_eq!((failure.code(), failure.cause()), (ErrorCode::PermissionDenied, "denied"));
    assert!(test.host.pending_asks().is_empty());
    let spans = test.host.spans(SpanFilter::default()).await.unwrap().spans;
    let attributes: Value = serde_json::from_str(&spans[0].attributes_json).unwrap();
    assert_eq!((spans[0].outcome.as_str(), &attributes["plugward.decision"]), ("denied", &json!("ask")));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yes_for_the_session_covers_this_tool_until_the_host_ends() {
    let marks = Marks::new();
    let test = asking(Settings::default(), &marks).await;
    let call = spawn(&test, "fx.write");
    let ask = asked(&test).await;
    test.host.answer(&ask.request_id, Answer::AllowSession).unwrap();
    assert!(call.await.unwrap().outcome.is_ok());
    assert!(spawn(&test, "fx.write").await.unwrap().outcome.is_ok());
    // A restart of the plugin is the same session; another tool of the same permission is another question.
    test.host.restart("fx").await.unwrap();
    assert!(spawn(&test, "fx.write").await.unwrap().outcome.is_ok());
    let call = spawn(&test, "fx.other");
    let ask = asked(&test).await;
    test.host.answer(&ask.request_id, Answer::Deny).unwrap();
    assert!(call.await.unwrap().outcome.is_err());
    let test = TestHost::at(test.close().await, Settings::default()).await;
    test.host.ensure_started("fx").await.unwrap();
    let call = spawn(&test, "fx.write");
    let ask = asked(&test).await;
    test.host.answer(&ask.request_id, Answer::Deny).unwrap();
    assert!(call.await.unwrap().outcome.is_err(), "the yes outlived its session");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yes_for_the_session_does_not_outlive_the_plugin() {
    // A stranger that is installed under the same id later must not inherit it.
    let marks = Marks::new();
    let test = asking(Settings::default(), &marks).await;
    let call = spawn(&test, "fx.write");
    let ask = asked(&test).await;
    test.host.answer(&ask.request_id, Answer::AllowSession).unwrap();
    assert!(call.await.unwrap().outcome.is_ok());
    test.host.remove("fx").await.unwrap();
    let tools = json!([{"name": "write", "inputSchema": {"type": "object"}, "_meta": {"notesagent/permission": "notes.write"}}]);
    test.run(&marks.with_tools("fx", &tools).permission("notes.write")).await;
    let call = spawn(&test, "fx.write");
    let ask = asked(&test).await;
    test.host.answer(&ask.request_id, Answer::Deny).unwrap();
    assert!(call.await.unwrap().outcome.is_err());
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_answers() {
    let marks = Marks::new();
    let test = asking(Settings::default(), &marks).await;
    let begun = Instant::now();
    let failure = spawn(&test, "fx.write").await.unwrap().outcome.unwrap_err();
    assert_eq!((failure.code(), failure.cause()), (ErrorCode::PermissionTimeout, "ask_timed_out"));
    assert!(begun.elapsed() >= Duration::from_secs(2) && begun.elapsed() < Duration::from_secs(15));
    assert!(test.host.pending_asks().is_empty());
    // A call that needs no question is not held up by one that does, and a caller that hangs up takes its question along.
    let waiting = spawn(&test, "fx.write");
    asked(&test).await;
    assert!(spawn(&test, "fx.free").await.unwrap().outcome.is_ok());
    waiting.abort();
    eventually("the question is taken back", || test.host.pending_asks().is_empty().then_some(())).await;
    let call = request("fx.write", json!({}));
    let (cancel, host) = (call.cancel.clone(), test.host.clone());
    let waiting = tokio::spawn(async move { host.call(call).await });
    asked(&test).await;
    cancel.cancel();
    assert_eq!(waiting.await.unwrap().outcome.unwrap_err().cause(), "cancelled");
    assert!(test.host.pending_asks().is_empty());
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_plugin_does_not_use_up_the_questions_of_all() {
    // Invariant 9: an agent that calls one tool over and over would keep every other plugin from asking.
    let marks = Marks::new();
    let test = asking(Settings::default(), &marks).await;
    let meta = json!({"notesagent/permission": "notes.write"});
    let tools = json!([{"name": "write", "inputSchema": {"type": "object"}, "_meta": meta}]);
    test.run(&marks.with_tools("other", &tools).permission("notes.write")).await;
    let waiting: Vec<_> = (0..8).map(|_| spawn(&test, "fx.write")).collect();
    eventually("all are asked", || (test.host.pending_asks().len() == 8).then_some(())).await;
    let failure = spawn(&test, "fx.write").await.unwrap().outcome.unwrap_err();
    assert_eq!(failure.code(), ErrorCode::PluginBusy);
    assert!(failure.message("fx.write").contains("8 permission requests of its plugin"), "{failure:?}");
    let other = spawn(&test, "other.write");
    let ask = eventually("the other one is asked", || {
        test.host.pending_asks().into_iter().find(|ask| ask.tool.to_string() == "other.write")
    })
    .await;
    test.host.answer(&ask.request_id, Answer::AllowOnce).unwrap();
    assert!(other.await.unwrap().outcome.is_ok());
    for call in waiting {
        call.abort();
    }
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_16_a_deployment_decides_what_a_permission_means() {
    let marks = Marks::new();
    for (effect, runs) in [(Effect::Allow, true), (Effect::Deny, false)] {
        let catalogue = Catalogue::seed().with("notes.write".parse().unwrap(), effect);
        let test = asking(Settings { catalogue, ..Settings::default() }, &marks).await;
        let outcome = spawn(&test, "fx.write").await.unwrap().outcome;
        assert_eq!(outcome.is_ok(), runs, "{outcome:?}");
        if let Err(failure) = outcome {
            assert_eq!(failure.code(), ErrorCode::PermissionDenied);
            assert!(failure.message("fx.write").contains("`notes.write` is denied here"), "{failure:?}");
        }
        test.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_does_not_wait_for_a_person() {
    let marks = Marks::new();
    let test = asking(Settings::default(), &marks).await;
    let call = spawn(&test, "fx.write");
    asked(&test).await;
    test.host.shutdown().await;
    let failure = call.await.unwrap().outcome.unwrap_err();
    assert!(matches!(failure.code(), ErrorCode::HostStopping | ErrorCode::PermissionTimeout), "{failure:?}");
}
