//! Public fault reports about the line between host and server: noise, bad bytes, silence, questions of the server.

use std::time::{Duration, Instant};

use plugward_host::{CallFailure, ErrorCode, LogOrigin};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::cases_support::call_raw;
use crate::support::{Fixture, PATIENCE, Package, TestHost, eventually, request};

#[tokio::test(flavor = "multi_thread")]
async fn b003_noise_on_stdout_is_skipped_counted_and_shown() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("n", &["noise"])).await;
    assert_eq!(test.tool_names("n"), ["say"]);
    assert_eq!(test.text("n.say", json!({})).await, "pong");
    let view = test.host.plugin("n").await.unwrap();
    assert_eq!((view.status.as_str(), view.noise_lines), ("ready", 6));
    let shown = test.host.logs("n").unwrap();
    let shown: Vec<_> = shown.iter().filter(|line| line.origin == LogOrigin::StdoutNoise).collect();
    assert!(shown.len() == 6 && shown[1].text.contains("[store] opened demo.db"), "{shown:?}");
    // Requirement 81: a manifest that declares its tools made a promise about stdout as well.
    let declared = Fixture::imported("strict", &["noise"]).declares(&["say"]);
    let error = test.try_run(&declared).await.unwrap_err();
    assert!(!error.is_permanent && test.tool_names("strict").is_empty(), "{error}");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b005_a_flood_on_stderr_never_blocks_the_server_and_is_kept_in_bounds() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("f", &["stderr-flood"])).await;
    test.run(&Fixture::imported("l", &["stderr-flood", "--lines"])).await;
    for _ in 0..3 {
        assert_eq!(test.text("f.say", json!({})).await, "pong");
        assert_eq!(test.text("l.say", json!({})).await, "pong");
    }
    for id in ["f", "l"] {
        let kept: usize = test.host.logs(id).unwrap().iter().map(|line| line.text.len()).sum();
        assert!(kept < 1024 * 1024, "{id} keeps {kept} bytes");
    }
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b013_what_a_server_did_not_offer_is_not_asked_for() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("a", &["asked"])).await;
    test.run(&Fixture::imported("lies", &["asked", "--lie"])).await;
    assert_eq!(test.text("a.unexpected", json!({})).await, "[]");
    let asked = test.text("lies.unexpected", json!({})).await;
    assert!(asked == "[]" || asked == r#"["resources/list"]"#, "{asked}");
    for id in ["a", "lies"] {
        assert_eq!(test.host.plugin(id).await.unwrap().status.as_str(), "ready");
    }
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b038_questions_of_a_server_are_answered_and_resolve_none_of_ours() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("q", &["server-requests"])).await;
    let deadline = Instant::now() + PATIENCE;
    let answers = loop {
        let answers: Value = serde_json::from_str(&test.text("q.answers", json!({})).await).unwrap();
        if answers.as_object().unwrap().len() == 5 {
            break answers;
        }
        assert!(Instant::now() < deadline, "{answers}");
    };
    let refused = "error -32601";
    assert_eq!(answers, json!({"p0": "result", "1": refused, "2": refused, "e": refused, "x": refused}));
    assert_eq!(test.host.plugin("q").await.unwrap().noise_lines, 0);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b043_a_slow_call_blocks_no_other() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("s", &["slow-fast", "--seconds", "3"])).await;
    let host = test.host.clone();
    let slow = tokio::spawn(async move { host.call(request("s.slow", json!({}))).await });
    eventually("the slow call runs", || (test.host.host_status("s").unwrap().calls_running > 0).then_some(())).await;
    let mut fast = JoinSet::new();
    for k in 0..50 {
        let host = test.host.clone();
        fast.spawn(async move { (k, host.call(request("s.fast", json!({"k": k}))).await) });
    }
    while let Some(answered) = fast.join_next().await {
        let (k, report) = answered.unwrap();
        assert_eq!(report.outcome.unwrap().output()["content"][0]["text"], format!("fast{k}"));
    }
    assert!(!slow.is_finished() && test.tool_names("s").len() == 2);
    assert_eq!(slow.await.unwrap().outcome.unwrap().output()["content"][0]["text"], "slow");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b050_bad_bytes_fail_one_call_at_most_and_split_characters_arrive_whole() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("u", &["bad-utf8"])).await;
    let failure = test.call("u.bad", json!({})).await.outcome.unwrap_err();
    assert_eq!(failure.cause(), "result_invalid");
    assert!(failure.message("u.bad").contains("UTF-8"), "{}", failure.message("u.bad"));
    assert_eq!(test.text("u.junk", json!({})).await, "after junk");
    assert_eq!(test.text("u.split", json!({})).await, "h\u{e9}llo \u{20ac} \u{1f680}");
    assert_eq!(test.host.plugin("u").await.unwrap().status.as_str(), "ready");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b057_a_cancel_reaches_the_server_under_the_servers_own_id() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("w", &["wait"])).await;
    let call = request("w.wait", json!({}));
    let (cancel, host) = (call.cancel.clone(), test.host.clone());
    let waiting = tokio::spawn(async move { host.call(call).await });
    let report = async || serde_json::from_str::<Value>(&test.text("w.report", json!({})).await).unwrap();
    while report().await["opened"] != 1 {
        tokio::task::yield_now().await;
    }
    cancel.cancel();
    assert_eq!(waiting.await.unwrap().outcome.unwrap_err().cause(), "cancelled");
    let deadline = Instant::now() + PATIENCE;
    while report().await["cancelled"] != 1 {
        assert!(Instant::now() < deadline, "the server was never told");
    }
    assert_eq!(report().await, json!({"cancelled": 1, "match": true, "opened": 1}));
    let status = test.host.host_status("w").unwrap();
    assert_eq!((status.calls_running, status.calls_waiting), (0, 0));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b062_byte_order_marks_crlf_and_blank_lines_are_no_errors() {
    let test = TestHost::new().await;
    let manifest = format!("\u{feff}{}", Fixture::imported("b", &["bom-crlf"]).manifest().replace('\n', "\r\n"));
    test.install_package(&Package::with_manifest(&manifest)).await;
    let view = test.host.enable("b").await.unwrap();
    assert_eq!(view.status.as_str(), "ready");
    assert_eq!(test.text("b.say", json!({})).await, "pong");
    assert_eq!(test.host.plugin("b").await.unwrap().noise_lines, 0);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b067_a_call_that_is_never_answered_ends_at_its_limit_and_takes_no_other_along() {
    let test = TestHost::new().await;
    let fixture = Fixture::imported("h", &["never-answers"])
        .backend("tool_timeout_seconds: 1")
        .backend("max_concurrent_calls: 256");
    test.run(&fixture).await;
    let report = test.call("h.hang", json!({})).await;
    let failure = report.outcome.unwrap_err();
    assert!(matches!(&failure, CallFailure::TimedOut { limit, .. } if *limit == Duration::from_secs(1)));
    assert!(report.duration >= Duration::from_secs(1) && report.duration < Duration::from_secs(10));
    let message = failure.message("h.hang");
    assert!(["h.hang", "1s", "tool_timeout_seconds"].iter().all(|part| message.contains(part)), "{message}");

    let mut hanging = JoinSet::new();
    for _ in 0..100 {
        let host = test.host.clone();
        hanging.spawn(async move { host.call(request("h.hang", json!({}))).await.outcome.unwrap_err().cause() });
    }
    eventually("all hang", || (test.host.host_status("h").unwrap().calls_running == 100).then_some(())).await;
    assert_eq!(test.text("h.say", json!({})).await, "pong");
    assert_eq!(hanging.len(), 100);
    while let Some(cause) = hanging.join_next().await {
        assert_eq!(cause.unwrap(), "timed_out");
    }
    // A tool that hangs says nothing about the others: no pause for the plugin.
    assert!(!test.host.host_status("h").unwrap().is_paused);
    assert_eq!(call_raw(&test, "h.say", None).await.outcome.unwrap().output()["content"][0]["text"], "pong");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b067_a_list_that_is_never_answered_fails_the_start_at_the_lists_own_limit() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("fine", &["never-answers"])).await;
    test.install(&Fixture::imported("mute", &["mute-list"]).backend("list_timeout_seconds: 1")).await;
    let host = test.host.clone();
    let enabling = tokio::spawn(async move { host.enable("mute").await });
    eventually("it starts", || (test.host.host_status("mute").unwrap().generation > 0).then_some(())).await;
    assert_eq!(test.text("fine.say", json!({})).await, "pong");
    let error = enabling.await.unwrap().unwrap_err();
    assert_eq!(error.code, ErrorCode::McpToolListFailed);
    assert!(error.message.contains("1s") && error.message.contains("list_timeout_seconds"), "{error}");
    assert_eq!(test.host.plugin("mute").await.unwrap().status.as_str(), "error");
    test.close().await;
}
