//! The call path: names, arguments, limits, cancellation and progress (requirements 9-13, 61, 64, 82-84, 118-121; B009,
//! B043, B067).

use std::time::{Duration, Instant};

use plugward_host::{CallFailure, CallReport, CallRequest, ErrorCode, ToolSelector};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::support::marks::Marks;
use crate::support::{Fixture, TestHost, eventually, request};

/// What "at once" means to a caller (requirement 84).
const AT_ONCE: Duration = Duration::from_millis(500);

fn failed(report: CallReport) -> CallFailure {
    report.outcome.unwrap_err()
}

/// Opened and cancelled calls as the server of mode `wait` saw them.
async fn wait_report(test: &TestHost) -> Value {
    serde_json::from_str(&test.text("fx.report", json!({})).await).unwrap()
}

async fn opened(test: &TestHost, calls: u64) {
    let mut seen = Value::Null;
    for _ in 0..1000 {
        seen = wait_report(test).await;
        if seen["opened"] == json!(calls) {
            return;
        }
    }
    panic!("{calls} calls never reached the server: {seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_64_what_does_not_fit_never_reaches_the_plugin() {
    let test = TestHost::new().await;
    let marks = Marks::new();
    test.run(&marks.tapped("fx", "normal")).await;
    for name in ["fx.nope", "fx", "echo", "", "fx..echo", "FX.echo", "fx.echo ", "other.echo"] {
        let failure = failed(test.call(name, json!({"text": "x"})).await);
        assert_eq!((failure.code(), failure.cause()), (ErrorCode::ToolNotFound, "tool_not_found"), "{name}");
    }
    let bad = [
        (json!({"text": 7_777_777}), "/text"),
        (json!({}), "text"),
        (json!({"text": "x", "unknown": "hidden-value"}), "unknown"),
        (json!(["hidden-value"]), "object"),
        (json!("hidden-value"), "object"),
    ];
    for (arguments, named) in bad {
        let failure = failed(test.call("fx.echo", arguments.clone()).await);
        assert_eq!(failure.code(), ErrorCode::ToolArgumentInvalid, "{arguments}");
        let message = failure.message("fx.echo");
        assert!(message.contains(named), "{message}");
        assert!(!message.contains("hidden-value") && !message.contains("7777777"), "a value is repeated: {message}");
    }
    // Requirement 61: what the full schema allows is passed on.
    let dynamic = json!({"text": "x", "dynamic_key": null, "dynamic_b": 2});
    assert_eq!(test.output("fx.echo", dynamic.clone()).await["arguments"], dynamic);
    test.close().await;
    let calls = marks.wire().into_iter().filter(|message| message["method"] == "tools/call").count();
    assert_eq!(calls, 1, "a refused call was sent to the plugin");
}

#[tokio::test(flavor = "multi_thread")]
async fn b009_no_arguments_null_and_an_empty_object_are_one_call() {
    let test = TestHost::new().await;
    let marks = Marks::new();
    let tools =
        json!([{"name": "t", "inputSchema": {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}}]);
    test.run(&marks.with_tools("fx", &tools)).await;
    for arguments in [None, Some("null"), Some("{}")] {
        let arguments = arguments.map(|text| RawValue::from_string(text.to_owned()).unwrap());
        let call = CallRequest::new(ToolSelector::Id("fx.t".to_owned()), arguments, "test");
        let reply = test.host.call(call).await.outcome.unwrap();
        assert_eq!(reply.output()["content"][0]["text"], r#"{"name":"t","arguments":{}}"#);
    }
    // An explicit null inside is not dropped.
    assert_eq!(test.text("fx.t", json!({"a": null})).await, r#"{"name":"t","arguments":{"a":null}}"#);
    let twice = RawValue::from_string(r#"{"a":"1","a":"2"}"#.to_owned()).unwrap();
    let call = CallRequest::new(ToolSelector::Id("fx.t".to_owned()), Some(twice), "test");
    assert_eq!(failed(test.host.call(call).await).code(), ErrorCode::ToolArgumentInvalid);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_12_13_120_a_time_out_is_told_to_the_server_and_the_next_call_works() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("fx", &["wait"]).backend("tool_timeout_seconds: 1")).await;
    let begun = Instant::now();
    let report = test.call("fx.wait", json!({})).await;
    assert!(begun.elapsed() >= Duration::from_secs(1) && begun.elapsed() < Duration::from_secs(5));
    let failure = failed(report);
    assert_eq!((failure.code(), failure.cause()), (ErrorCode::McpToolCallFailed, "timed_out"));
    let message = failure.message("fx.wait");
    assert!(message.contains("1s") && message.contains("backend.tool_timeout_seconds"), "{message}");
    assert_eq!(wait_report(&test).await, json!({"cancelled": 1, "match": true, "opened": 1}));
    assert_eq!(test.states("fx").await, ("ready", "ready"));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_83_84_120_a_cancelled_call_is_released_at_once_and_the_server_told() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("fx", &["wait"])).await;
    let call = request("fx.wait", json!({}));
    let (cancel, host) = (call.cancel.clone(), test.host.clone());
    let waiting = tokio::spawn(async move { host.call(call).await });
    opened(&test, 1).await;
    let begun = Instant::now();
    cancel.cancel();
    let failure = failed(waiting.await.unwrap());
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    assert_eq!((failure.code(), failure.cause()), (ErrorCode::McpToolCallFailed, "cancelled"));
    assert_eq!(wait_report(&test).await, json!({"cancelled": 1, "match": true, "opened": 1}));
    // A caller that goes away without a word counts the same.
    let host = test.host.clone();
    let waiting = tokio::spawn(async move { host.call(request("fx.wait", json!({}))).await });
    opened(&test, 2).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert_eq!(wait_report(&test).await, json!({"cancelled": 2, "match": true, "opened": 2}));
    // Both are found in the trace: what was begun at the plugin must not be lost because nobody waited.
    let spans = test.host.spans(plugward_host::SpanFilter::default()).await.unwrap().spans;
    let cancelled = spans.iter().filter(|span| span.outcome == "cancelled" && span.tool.as_deref() == Some("fx.wait"));
    assert_eq!(cancelled.count(), 2);
    assert_eq!(test.host.host_status("fx").unwrap().calls_running, 0);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_84_two_hundred_cancelled_calls_leave_nothing_behind() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("fx", &["wait"]).backend("max_concurrent_calls: 256")).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    // In two rounds: one plugin gets a quarter of the host's places.
    for round in 1..=2 {
        let calls: Vec<_> = (0..100)
            .map(|number| {
                let call = request("fx.wait", json!({}));
                let (cancel, host) = (call.cancel.clone(), test.host.clone());
                (number, cancel, tokio::spawn(async move { host.call(call).await }))
            })
            .collect();
        opened(&test, round * 100).await;
        for (number, cancel, waiting) in calls {
            if number % 2 == 0 {
                cancel.cancel();
            } else {
                waiting.abort();
            }
            if let Ok(report) = waiting.await {
                assert_eq!(failed(report).cause(), "cancelled");
            }
        }
    }
    let seen = wait_report(&test).await;
    assert_eq!((&seen["cancelled"], &seen["match"].is_boolean()), (&json!(200), &true));
    assert_eq!(test.host.host_status("fx").unwrap().calls_running, 0);
    eventually("all tasks have ended", || (tasks() <= before).then_some(())).await;
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_82_the_shorter_limit_of_a_caller_wins() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("fx", &["wait"]).backend("tool_timeout_seconds: 20")).await;
    let mut call = request("fx.wait", json!({}));
    call.timeout = Some(Duration::from_millis(200));
    let begun = Instant::now();
    let failure = failed(test.host.call(call).await);
    assert!(begun.elapsed() < Duration::from_secs(5));
    let message = failure.message("fx.wait");
    assert!(message.contains("200ms") && message.contains("timeout of the caller"), "{message}");
    assert_eq!(wait_report(&test).await["cancelled"], 1);
    // A caller in a hurry says nothing about the plugin: five of them must not pause it for everybody.
    for _ in 0..6 {
        let mut call = request("fx.wait", json!({}));
        call.timeout = Some(Duration::from_millis(1));
        assert_eq!(failed(test.host.call(call).await).cause(), "timed_out");
    }
    assert!(!test.host.host_status("fx").unwrap().is_paused);
    assert_eq!(wait_report(&test).await["match"], true);
    test.close().await;
}

fn working(id: &str, steps: &str, interval_ms: &str) -> Fixture {
    Fixture::imported(id, &["progress", "--steps", steps, "--interval-ms", interval_ms])
        .backend("tool_timeout_seconds: 1")
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_reaches_the_caller_and_extends_its_call() {
    let test = TestHost::new().await;
    test.run(&working("fx", "10", "250")).await;
    let mut call = request("fx.work", json!({}));
    let (sender, mut notes) = mpsc::channel(100);
    call.progress = Some(sender);
    let reply = test.host.call(call).await.outcome.unwrap();
    assert_eq!(reply.output()["content"][0]["text"], "worked");
    let mut reached = Vec::new();
    while let Some(note) = notes.recv().await {
        let note: Value = serde_json::from_str(note.get()).unwrap();
        reached.push(note["progress"].as_u64().unwrap());
    }
    assert_eq!(reached, (1..=10).collect::<Vec<_>>());
    // Who did not ask for progress gets none, and the plain limit.
    assert_eq!(failed(test.call("fx.work", json!({})).await).cause(), "timed_out");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_does_not_extend_a_call_for_ever_nor_beyond_what_its_caller_waits() {
    let test = TestHost::new().await;
    // One plugin for each call: the fixture works on one at a time.
    for id in ["fx", "gx"] {
        test.run(&working(id, "300", "100")).await;
    }
    let (sender, _notes) = mpsc::channel(4);
    let call = |tool, timeout| {
        let mut call = request(tool, json!({}));
        call.progress = Some(sender.clone());
        call.timeout = timeout;
        let host = test.host.clone();
        async move {
            let begun = Instant::now();
            let report = host.call(call).await;
            (failed(report), begun.elapsed())
        }
    };
    let limit = Duration::from_millis(1700);
    let (by_caller, waited) = call("fx.work", Some(limit)).await;
    assert!(matches!(by_caller, CallFailure::TimedOut { limit: told, .. } if told == limit), "{by_caller:?}");
    assert!(waited >= limit && waited < Duration::from_secs(6), "{waited:?}");
    // Ten times its own limit is the most, whatever is reported.
    let (hard, waited) = call("gx.work", None).await;
    assert_eq!(hard.cause(), "timed_out");
    assert!(waited >= Duration::from_secs(9) && waited < Duration::from_secs(25), "{waited:?}");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_says_so_at_once() {
    let test = TestHost::new().await;
    let fixture = Fixture::imported("fx", &["slow-fast", "--seconds", "1"])
        .backend("max_concurrent_calls: 1")
        .backend("max_queued_calls: 1");
    test.run(&fixture).await;
    let status = || {
        let status = test.host.host_status("fx").unwrap();
        (status.calls_running, status.calls_waiting)
    };
    let spawn = || {
        let host = test.host.clone();
        tokio::spawn(async move { host.call(request("fx.slow", json!({}))).await })
    };
    let first = spawn();
    eventually("one runs", || (status() == (1, 0)).then_some(())).await;
    let second = spawn();
    eventually("one waits", || (status() == (1, 1)).then_some(())).await;
    let begun = Instant::now();
    let failure = failed(test.call("fx.fast", json!({})).await);
    assert!(begun.elapsed() < AT_ONCE);
    assert_eq!((failure.code(), failure.cause()), (ErrorCode::PluginBusy, "busy"));
    assert!(failure.message("fx.fast").contains("1 calls running and 1 waiting"));
    assert!(first.await.unwrap().outcome.is_ok() && second.await.unwrap().outcome.is_ok());
    assert_eq!(status(), (0, 0));
    assert_eq!(test.text("fx.fast", json!({"k": 1})).await, "fast1");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b067_a_silent_plugin_is_paused_and_let_back_after_one_good_answer() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("fx", &["never-answers"]).backend("tool_timeout_seconds: 1")).await;
    test.run(&Fixture::imported("other", &["never-answers"])).await;
    let mut hangs = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let host = test.host.clone();
        hangs.spawn(async move { host.call(request("fx.hang", json!({}))).await });
    }
    for report in hangs.join_all().await {
        assert_eq!(failed(report).cause(), "timed_out");
    }
    assert!(test.host.host_status("fx").unwrap().is_paused);
    let failure = failed(test.call("fx.say", json!({})).await);
    assert_eq!((failure.code(), failure.cause()), (ErrorCode::PluginCircuitOpen, "circuit_open"));
    // Invariant 9: another plugin is not concerned.
    assert_eq!(test.text("other.say", json!({})).await, "pong");
    let deadline = Instant::now() + crate::support::PATIENCE;
    while test.call("fx.say", json!({})).await.outcome.is_err() {
        assert!(Instant::now() < deadline, "the plugin was never let back");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(!test.host.host_status("fx").unwrap().is_paused);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b043_fifty_fast_calls_beside_a_slow_one() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("fx", &["slow-fast", "--seconds", "5"])).await;
    let host = test.host.clone();
    let slow = tokio::spawn(async move { host.call(request("fx.slow", json!({}))).await });
    eventually("the slow one runs", || (test.host.host_status("fx").unwrap().calls_running == 1).then_some(())).await;
    let mut fast = tokio::task::JoinSet::new();
    for number in 0..50 {
        let host = test.host.clone();
        fast.spawn(async move { (number, host.call(request("fx.fast", json!({"k": number}))).await) });
    }
    for (number, report) in fast.join_all().await {
        let output = report.outcome.unwrap().output();
        assert_eq!(output["content"][0]["text"], format!("fast{number}"), "an answer went to the wrong caller");
    }
    assert!(!slow.is_finished(), "the fast calls waited for the slow one");
    assert_eq!(slow.await.unwrap().outcome.unwrap().output()["content"][0]["text"], "slow");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_9_a_plugin_that_does_not_read_delays_no_other() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("deaf", &["stdin-never-read"]).backend("tool_timeout_seconds: 2")).await;
    test.run(&Fixture::imported("fx", &["slow-fast"])).await;
    let mut deaf = tokio::task::JoinSet::new();
    let filler = "f".repeat(200_000);
    for _ in 0..8 {
        let (host, filler) = (test.host.clone(), filler.clone());
        deaf.spawn(async move { host.call(request("deaf.say", json!({"filler": filler}))).await });
    }
    for number in 0..20 {
        let begun = Instant::now();
        assert_eq!(test.text("fx.fast", json!({"k": number})).await, format!("fast{number}"));
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
    for report in deaf.join_all().await {
        let failure = failed(report);
        assert!(matches!(failure.cause(), "timed_out" | "unavailable"), "{failure:?}");
    }
    test.close().await;
}
