//! Public fault reports about results: what a tool said has to reach the caller whole, and what it failed at has to
//! look like what it was.

use plugward_host::CallFailure;
use serde_json::{Value, json};

use crate::cases_support::{alone, call_raw};
use crate::support::{Fixture, TestHost};

async fn result(test: &TestHost, tool: &str, arguments: &str) -> Value {
    let reply = call_raw(test, tool, Some(arguments)).await.outcome.unwrap_or_else(|f| panic!("{}", f.message(tool)));
    serde_json::from_str(reply.result.get()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn b011_structured_results_are_kept_filled_in_or_left_alone() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("o", &["output-schema"])).await;
    let exposed = test.host.exposed_definitions();
    assert_eq!(exposed.iter().filter(|tool| tool.get().contains("outputSchema")).count(), 5);
    let both = result(&test, "o.both", "{}").await;
    assert_eq!(both["structuredContent"], json!({"t": 21.5}));
    assert_eq!(both["content"][0]["text"], r#"{"t":21.5}"#);
    assert_eq!(result(&test, "o.undeclared", "{}").await["structuredContent"], json!({"extra": [1]}));
    assert_eq!(result(&test, "o.text_only", "{}").await["structuredContent"], json!({"t": 21.5}));
    let struct_only = result(&test, "o.struct_only", "{}").await;
    assert_eq!(struct_only["structuredContent"], json!({"t": 21.5}));
    assert_eq!(struct_only["content"], json!([{"type": "text", "text": r#"{"t":21.5}"#}]));
    // A result that misses its own schema is delivered; the trace holds the warning.
    let wrong = call_raw(&test, "o.wrong_type", None).await.outcome.unwrap();
    assert!(!wrong.is_error && wrong.warnings.len() == 1, "{:?}", wrong.warnings);
    let failed = call_raw(&test, "o.failed", None).await.outcome.unwrap();
    assert!(failed.is_error && failed.warnings.is_empty(), "{:?}", failed.warnings);
    assert_eq!(failed.error_text(), "sensor offline");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b025_a_failed_tool_and_a_protocol_error_stay_two_things() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("e", &["errors"])).await;
    let soft = call_raw(&test, "e.soft", None).await.outcome.unwrap();
    assert!(soft.is_error);
    assert_eq!(soft.error_text(), "disk full");
    let whole: Value = serde_json::from_str(soft.result.get()).unwrap();
    assert_eq!(whole["_meta"], json!({"k": 1}));
    match call_raw(&test, "e.hard", None).await.outcome.unwrap_err() {
        CallFailure::Rejected(error) => {
            assert_eq!((error.code, error.message.as_str()), (-32050, "quota"));
            assert_eq!(error.data.unwrap().get(), r#"{"retryAfter":7}"#);
        }
        other => panic!("{}", other.message("e.hard")),
    }
    assert!(!call_raw(&test, "e.fine", None).await.outcome.unwrap().is_error);
    // Requirement 155: an unknown name has its own code and reaches no server.
    let nope = call_raw(&test, "e.nope", None).await.outcome.unwrap_err();
    assert_eq!(nope.code().as_str(), "TOOL_NOT_FOUND");
    test.close().await;
}

/// Longest result of the manifest below, in bytes.
const RESULT_LIMIT: u64 = 16 * 1024 * 1024;

fn resident_peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn b026_long_lines_arrive_exactly_and_one_over_the_limit_fails_alone() {
    if !alone("cases_results::b026_long_lines_arrive_exactly_and_one_over_the_limit_fails_alone") {
        return;
    }
    let test = TestHost::new().await;
    let fixture = Fixture::imported("h", &["huge"])
        .backend(&format!("max_message_bytes: {RESULT_LIMIT}"))
        .backend(&format!("max_result_bytes: {RESULT_LIMIT}"));
    test.run(&fixture).await;
    for n in [1, 65_400, 65_536, 70_000, 1_048_576, 4_194_304] {
        assert_eq!(test.text("h.zeros", json!({"n": n})).await, "z".repeat(n), "{n}");
    }
    let before = resident_peak_bytes();
    let failure = test.call("h.zeros", json!({"n": 67_108_864})).await.outcome.unwrap_err();
    match &failure {
        CallFailure::ResultTooLarge { bytes, limit } => assert!(*bytes > 67_108_864 && *limit == RESULT_LIMIT),
        other => panic!("{}", other.message("h.zeros")),
    }
    let message = failure.message("h.zeros");
    assert!(message.contains(&RESULT_LIMIT.to_string()) && message.contains("671"), "{message}");
    // Invariant 7: what is over the limit is not kept.
    let grown = resident_peak_bytes() - before;
    assert!(grown < 3 * RESULT_LIMIT, "{grown}");
    assert_eq!(test.text("h.zeros", json!({"n": 3})).await, "zzz");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b051_every_kind_of_content_passes_through_in_order() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("c", &["content-types"])).await;
    let whole = result(&test, "c.all", "{}").await;
    let expected = json!([
        {"type": "text", "text": "1"},
        {"type": "image", "data": "iVBORw==", "mimeType": "image/png"},
        {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///r.txt", "mimeType": "text/plain", "text": "body"}},
        {"type": "resource", "resource": {"uri": "file:///r.pdf", "mimeType": "application/pdf", "blob": "JVBERg=="}},
        {"type": "resource_link", "uri": "demo://report/7", "name": "report", "description": "d", "size": 12},
        {"type": "hologram", "depth": 3, "data": {"k": [1]}},
        {"type": "text", "text": ""},
    ]);
    assert_eq!(whole["content"], expected);
    // Requirement 66: callers outside MCP get the kinds they can use, and are told that one was left out.
    let output = test.output("c.all", json!({})).await;
    assert_eq!((output["content"].as_array().unwrap().len(), &output["omitted_blocks"]), (7, &json!(1)));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b059_big_numbers_keep_every_digit_both_ways() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("n", &["big-numbers"])).await;
    let report = call_raw(&test, "n.digits", Some(r#"{"id":9007199254740993,"x":1.0}"#)).await;
    let reply = report.outcome.unwrap();
    let raw = reply.result.get();
    assert!(raw.contains(r#""text":"9007199254740993,1.0""#), "{raw}");
    for digits in ["9007199254740993", "18446744073709551615", "123456789012345678901234567890", "1e3", "\"f\":1.0"] {
        assert!(raw.contains(digits), "{digits} in {raw}");
    }
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b088_status_list_and_calls_agree_through_a_malformed_error_and_a_removal() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("m", &["malformed-error"])).await;
    let pid = test.host.host_status("m").unwrap().pid.unwrap();
    for number in 1..=5 {
        let outcome = call_raw(&test, "m.say", None).await.outcome;
        if number == 2 {
            // The odd error is passed on as far as it can be read.
            let message = outcome.unwrap_err().message("m.say");
            assert!(message.contains("just a string"), "{message}");
        } else {
            assert_eq!(outcome.unwrap().output()["content"][0]["text"], format!("pong {number}"));
        }
        let (status, view) = (test.host.host_status("m").unwrap(), test.host.plugin("m").await.unwrap());
        assert_eq!((status.pid, status.tools_count), (Some(pid), 1));
        assert_eq!((view.status.as_str(), view.tools_count), ("ready", 1));
        assert_eq!(test.tool_names("m"), ["say"]);
    }
    test.host.remove("m").await.unwrap();
    assert!(!crate::support::is_alive(pid));
    assert!(test.tool_names("m").is_empty());
    assert_eq!(test.host.plugin("m").await.unwrap_err().code.as_str(), "PLUGIN_NOT_FOUND");
    assert_eq!(test.host.host_status("m").unwrap_err().code.as_str(), "PLUGIN_NOT_FOUND");
    test.close().await;
}
