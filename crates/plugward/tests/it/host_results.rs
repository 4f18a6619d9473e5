//! What comes back from a call and what is kept of it: results, errors, sizes, secrets, traces (requirements 10, 11, 21,
//! 22, 65-68, 74-81, 98-101, 119, 121, 122, 128, 132; B020).

use std::fs;
use std::path::Path;
use std::time::Duration;

use plugward_host::{CallFailure, ErrorCode, LogOrigin, SpanFilter};
use plugward_protocol::RpcError;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::support::marks::Marks;
use crate::support::{Fixture, NORMAL_TOOLS, Settings, TestHost, eventually, request};

const SECRET: &str = "swordfish-4711-planted";

#[tokio::test(flavor = "multi_thread")]
async fn requirements_10_67_119_a_business_error_keeps_the_plugin_ready() {
    let test = TestHost::new().await;
    test.run(&Fixture::normal("fx")).await;
    let reply = test.call("fx.fail", json!({})).await.outcome.unwrap();
    assert!(reply.is_error);
    assert_eq!(reply.error_text(), "this tool always fails");
    assert_eq!(test.states("fx").await, ("ready", "ready"));
    assert_eq!(test.output("fx.echo", json!({"text": "x"})).await, json!({"echo": "x"}));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_11_a_json_rpc_error_keeps_its_code_message_and_data() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("fx", &["errors"])).await;
    let failure = test.call("fx.hard", json!({})).await.outcome.unwrap_err();
    assert_eq!((failure.code(), failure.cause()), (ErrorCode::McpToolCallFailed, "rejected"));
    let CallFailure::Rejected(RpcError { code, message, data }) = failure else { panic!("{failure:?}") };
    assert_eq!((code, message.as_str(), data.unwrap().get()), (-32050, "quota", r#"{"retryAfter":7}"#));
    assert_eq!(test.text("fx.fine", json!({})).await, "fine");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_68_101_121_the_result_limit_is_exact_and_costs_one_call() {
    let test = TestHost::new().await;
    test.run(&Fixture::normal("fx")).await;
    let frame = json!({"content": [{"type": "text", "text": ""}]}).to_string().len();
    let most = 262_144 - frame;
    let text = test.text("fx.large", json!({"chars": most})).await;
    assert_eq!(text.len(), most);
    let failure = test.call("fx.large", json!({"chars": most + 1})).await.outcome.unwrap_err();
    assert_eq!(failure.code(), ErrorCode::McpToolResultTooLarge);
    assert!(matches!(failure, CallFailure::ResultTooLarge { bytes: 262_145, limit: 262_144 }), "{failure:?}");
    let failure = test.call("fx.large", json!({})).await.outcome.unwrap_err();
    assert_eq!(failure.code(), ErrorCode::McpToolResultTooLarge);
    assert_eq!(test.states("fx").await, ("ready", "ready"));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_52_98_99_an_oversized_message_costs_a_native_plugin_its_host_and_an_imported_one_a_call() {
    let test = TestHost::new().await;
    // Native: stdout carries the protocol and nothing else.
    test.run(&Fixture::normal("fx").backend("restart: never")).await;
    let host = test.host.clone();
    let waiting = tokio::spawn(async move { host.call(request("fx.sleep", json!({"seconds": 20}))).await });
    eventually("the sleep is under way", || (test.host.host_status("fx").unwrap().calls_running == 1).then_some(()))
        .await;
    let report = test.call("fx.large", json!({"chars": 3_000_000})).await;
    let failure = report.outcome.unwrap_err();
    let expected = [ErrorCode::McpToolResultTooLarge, ErrorCode::PluginHostUnavailable];
    assert!(expected.contains(&failure.code()), "{failure:?}");
    assert_eq!(waiting.await.unwrap().outcome.unwrap_err().code(), ErrorCode::PluginHostUnavailable);
    test.status_soon("fx", "unhealthy").await;
    assert_eq!(test.tool_names("fx"), [""; 0]);
    eventually("its process is gone", || test.processes_of("fx").is_empty().then_some(())).await;
    // Imported: the answer is refused, the conversation goes on.
    test.run(&Fixture::imported("im", &["huge"])).await;
    let failure = test.call("im.zeros", json!({"n": 3_000_000})).await.outcome.unwrap_err();
    assert_eq!(failure.code(), ErrorCode::McpToolResultTooLarge, "{failure:?}");
    assert_eq!(test.text("im.zeros", json!({"n": 3})).await, "zzz");
    assert_eq!(test.states("im").await, ("ready", "ready"));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_81_a_print_on_stdout_ends_a_native_plugin_and_is_skipped_for_an_imported_one() {
    let test = TestHost::new().await;
    let script = "echo hello from print; exec mcp-fixture normal";
    let native =
        Fixture::imported("fx", &["-c", script]).command("sh").permission("notes.read").declares(&NORMAL_TOOLS);
    let error = test.try_run(&native).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::PluginHostUnavailable, "{error}");
    test.assert_nothing_left("fx");
    let view = test.run(&Fixture::imported("im", &["-c", script]).command("sh")).await;
    assert_eq!((view.tools_count, view.noise_lines), (5, 1));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_over_the_message_limit_is_refused_and_the_plugin_stays() {
    // Requirement 99 the other way; the seed counts it as a failed call.
    let test = TestHost::new().await;
    test.run(&Fixture::normal("fx")).await;
    let failure = test.call("fx.echo", json!({"text": "x".repeat(2 * 1024 * 1024)})).await.outcome.unwrap_err();
    assert_eq!((failure.code(), failure.cause()), (ErrorCode::McpToolCallFailed, "request_too_large"));
    assert_eq!(test.output("fx.echo", json!({"text": "x"})).await, json!({"echo": "x"}));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn big_integers_pass_digit_for_digit() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("fx", &["big-numbers"])).await;
    let mut call = request("fx.digits", json!({}));
    let arguments = r#"{"id":123456789012345678901234567890,"x":-9007199254740993}"#;
    call.arguments = Some(RawValue::from_string(arguments.to_owned()).unwrap());
    let reply = test.host.call(call).await.outcome.unwrap();
    let result = reply.result.get();
    for digits in ["123456789012345678901234567890,-9007199254740993", r#""i":9007199254740993"#, r#""f":1.0,"e":1e3"#]
    {
        assert!(result.contains(digits), "{digits} is not in {result}");
    }
    test.close().await;
}

/// A host with a secret in its own environment, and a plugin that is given it and tells it everywhere it can.
async fn with_secret() -> TestHost {
    let mut settings = Settings::default();
    settings.host_environment.push(("DEMO_SOURCE".to_owned(), SECRET.to_owned()));
    let test = TestHost::with(settings).await;
    let fixture = Fixture::imported("fx", &["secrets"]).backend("env: {DEMO_KEY: \"${DEMO_SOURCE}\"}");
    test.run(&fixture).await;
    test
}

fn assert_no_secret(what: &str, text: &str) {
    assert!(!text.contains(SECRET), "the secret is in {what}: {text}");
}

fn files_below(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => files_below(&entry.path(), found),
            false => found.push(entry.path()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b020_a_secret_comes_back_in_no_result_error_log_trace_or_file() {
    let test = with_secret().await;
    let reply = test.call("fx.leak", json!({})).await.outcome.unwrap();
    // Positive control: the plugin was given it and did answer with it.
    assert!(reply.result.get().contains("the key is ***"), "{}", reply.result);
    assert_no_secret("a result", reply.result.get());
    let report = test.call("fx.boom", json!({})).await;
    let failure = report.outcome.unwrap_err();
    assert!(failure.message("fx.boom").contains("bad key ***"), "{failure:?}");
    assert_no_secret("an error", &format!("{failure:?} {}", failure.message("fx.boom")));
    let logs = eventually("stderr arrives in the log", || {
        let lines = test.host.logs("fx").unwrap();
        lines.iter().any(|line| line.text.contains("refused key ***")).then_some(lines)
    })
    .await;
    let spans = test.host.spans(SpanFilter::default()).await.unwrap().spans;
    let review = test.host.review("fx").await.unwrap();
    let view = test.host.plugin("fx").await.unwrap();
    for (what, text) in [
        ("logs", format!("{logs:?}")),
        ("spans", format!("{spans:?}")),
        ("the review", format!("{review:?}")),
        ("the view", format!("{view:?}")),
    ] {
        assert_no_secret(what, &text);
    }
    let home = test.close().await;
    let mut files = Vec::new();
    files_below(home.path(), &mut files);
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let bytes = fs::read(&file).unwrap();
        let found = bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
        assert!(!found, "the secret is in {}", file.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_a_tool_definition_is_neither_shown_nor_kept() {
    // Invariant 4: a description goes to every client and into the record of what was approved.
    let mut settings = Settings::default();
    settings.host_environment.push(("DEMO_SOURCE".to_owned(), SECRET.to_owned()));
    let test = TestHost::with(settings).await;
    let marks = Marks::new();
    let tools = json!([{"name": "say", "description": format!("signed in as {SECRET}"), "inputSchema": {
        "type": "object", "properties": {"key": {"type": "string", "default": SECRET}}}}]);
    test.run(&marks.with_tools("fx", &tools).backend("env: {DEMO_KEY: \"${DEMO_SOURCE}\"}")).await;
    let definitions = format!("{:?} {:?}", test.host.tools(), test.host.exposed_definitions());
    assert!(definitions.contains("signed in as ***"), "{definitions}");
    assert_no_secret("the definitions", &definitions);
    assert_no_secret("the review", &format!("{:?}", test.host.review("fx").await.unwrap()));
    assert_no_secret("what is kept", &format!("{:?}", test.host.approved_tools().await.unwrap()));
    // What was pinned is what is offered again.
    test.host.restart("fx").await.unwrap();
    assert_eq!(test.tool_names("fx"), ["say"]);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b020_a_secret_printed_where_the_protocol_belongs_is_not_quoted() {
    // The error of a start quotes what was no message; that must not publish what the plugin was given.
    let mut settings = Settings::default();
    settings.host_environment.push(("DEMO_SOURCE".to_owned(), SECRET.to_owned()));
    let test = TestHost::with(settings).await;
    let fixture = Fixture::imported("fx", &["-c", "echo key $DEMO_KEY; exec mcp-fixture normal"])
        .command("sh")
        .backend("env: {DEMO_KEY: \"${DEMO_SOURCE}\"}")
        .backend("stdout: strict");
    let error = test.try_run(&fixture).await.unwrap_err();
    assert!(error.message.contains("key ***"), "the line is quoted without its secret: {error}");
    let view = test.host.plugin("fx").await.unwrap();
    let logs = test.host.logs("fx").unwrap();
    assert_no_secret("the failed start", &format!("{error:?} {view:?} {logs:?}"));
    let home = test.close().await;
    let again = TestHost::at(home, Settings::default()).await;
    assert_no_secret("the kept error", &format!("{:?}", again.host.plugin("fx").await.unwrap()));
    again.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_21_79_80_stderr_is_in_the_log_and_nowhere_else() {
    let test = TestHost::new().await;
    let script = "echo PLANTED-STDERR >&2; exec mcp-fixture normal";
    test.run(&Fixture::imported("fx", &["-c", script]).command("sh")).await;
    let lines = eventually("stderr arrives", || {
        let lines = test.host.logs("fx").unwrap();
        lines.iter().any(|line| line.origin == LogOrigin::Stderr).then_some(lines)
    })
    .await;
    assert!(lines.iter().any(|line| line.text == "PLANTED-STDERR"), "{lines:?}");
    let report = test.call("fx.exit", json!({})).await;
    let failure = report.outcome.unwrap_err();
    let spans = test.host.spans(SpanFilter::default()).await.unwrap().spans;
    let told = format!(
        "{failure:?} {spans:?} {:?} {:?} {:?}",
        test.host.plugin("fx").await.unwrap(),
        test.host.host_status("fx").unwrap(),
        test.host.tools()
    );
    assert!(!told.replace(script, "").contains("PLANTED-STDERR"), "{told}");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_100_a_flood_on_stderr_neither_blocks_nor_grows() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("fx", &["stderr-flood"])).await;
    for _ in 0..5 {
        assert_eq!(test.text("fx.say", json!({})).await, "pong");
    }
    let bytes: usize = test.host.logs("fx").unwrap().iter().map(|line| line.text.len()).sum();
    assert!(bytes < 600_000, "{bytes} bytes of log are kept");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_22_74_76_77_78_122_the_plugin_sees_exactly_what_it_may() {
    let mut settings = Settings::default();
    let planted = [
        ("OPENAI_API_KEY", "planted-1"),
        ("APP_DB_PATH", "/planted/2"),
        ("VAULT_PATH", "/planted/3"),
        ("HOME", "/planted/4"),
        ("HTTPS_PROXY", "http://user:planted@proxy.test"),
        ("LD_PRELOAD", "/planted/5.so"),
        ("PLUGWARD_HOME", "/planted/6"),
        ("LANG", "C.UTF-8"),
        ("TZ", "UTC"),
    ];
    settings.host_environment.extend(planted.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let path = settings.host_environment[0].1.clone();
    let test = TestHost::with(settings).await;
    test.run(&Fixture::normal("fx").backend("env: {DEMO_FLAG: \"1\"}")).await;
    let seen = test.output("fx.environment", json!({})).await;
    let home = test.home().canonicalize().unwrap();
    let private = home.join("homes/fx").display().to_string();
    let mut expected = json!({
        "PATH": path, "HOME": private, "LANG": "C.UTF-8", "TZ": "UTC", "DEMO_FLAG": "1",
        // Its own, inside its sandbox.
        "TMPDIR": "/tmp",
        "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", "PYTHONUTF8": "1",
        "PYTHONPYCACHEPREFIX": format!("{private}/.cache/python"),
    });
    expected.sort_all_objects();
    assert_eq!(seen["environment"], expected);
    assert!(!seen.to_string().contains("planted"), "{seen}");
    // Requirement 74.
    assert_eq!(seen["cwd"], json!(home.join("plugins/fx").display().to_string()));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_132_a_trace_tells_how_each_call_went_and_never_with_what() {
    let test = TestHost::new().await;
    test.run(&Fixture::normal("fx").backend("tool_timeout_seconds: 1")).await;
    let mut call = request("fx.echo", json!({"text": "argument-value"}));
    let meta = r#"{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}"#;
    call.meta = Some(RawValue::from_string(meta.to_owned()).unwrap());
    let report = test.host.call(call).await;
    assert_eq!(report.trace_id, "0af7651916cd43dd8448eb211c80319c");
    test.call("fx.fail", json!({})).await;
    test.call("fx.echo", json!({"text": 1})).await;
    test.call("fx.sleep", json!({"seconds": 9})).await;
    test.call("fx.nope", json!({})).await;
    test.call("fx.large", json!({})).await;
    let spans = test.host.spans(SpanFilter::default()).await.unwrap().spans;
    let outcomes: Vec<&str> = spans.iter().rev().map(|span| span.outcome.as_str()).collect();
    let wanted = ["ok", "tool_error", "argument_invalid", "timed_out", "tool_not_found", "result_too_large"];
    assert_eq!(outcomes, wanted);
    let first = test.host.trace(&report.trace_id).await.unwrap().remove(0);
    assert_eq!(first.parent_span_id.as_deref(), Some("b7ad6b7169203331"));
    assert_eq!((first.plugin_id.as_deref(), first.tool.as_deref()), (Some("fx"), Some("fx.echo")));
    assert_eq!(first.caller.as_deref(), Some("test"));
    let events: Vec<Value> = serde_json::from_str(&first.events_json).unwrap();
    let stages: Vec<&str> = events.iter().map(|event| event["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["resolve", "validate", "decide", "admit", "plugin"]);
    let attributes: Value = serde_json::from_str(&first.attributes_json).unwrap();
    assert_eq!(attributes["plugward.decision"], "allow");
    assert!(attributes["plugward.result.bytes"].as_u64().unwrap() > 0);
    assert!(first.duration_us > 0);
    assert!(!format!("{spans:?}").contains("argument-value"));
    // B020: what was kept is on disk for the next process too.
    let again = TestHost::at(test.close().await, Settings::default()).await;
    assert_eq!(again.host.spans(SpanFilter::default()).await.unwrap().spans.len(), 6);
    again.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_58_59_the_mapping_of_a_tool() {
    let test = TestHost::new().await;
    let marks = Marks::new();
    let tools = json!([
        {"name": "Read-Note.v2", "title": "T", "inputSchema": {"type": "object"}, "x-own": [1], "_meta": {"k": 1, "notesagent/permission": "notes.read"}},
        {"name": "plain", "description": "", "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}}},
        {"name": "é", "inputSchema": {"type": "object"}},
        {"name": "no-schema"},
    ]);
    let view = test.run(&marks.with_tools("fx", &tools).permission("notes.read")).await;
    assert_eq!(view.quarantined_tools.len(), 1, "{:?}", view.quarantined_tools);
    let shown = test.host.tools();
    assert_eq!(shown[0].id.to_string(), "fx.Read-Note.v2");
    assert_eq!((shown[0].description.as_str(), shown[0].permission.as_deref()), ("Read-Note.v2", Some("notes.read")));
    assert_eq!(shown[0].definition.get(), tools[0].to_string(), "the plugin's own definition is kept untouched");
    assert_eq!(shown[1].parameters.get(), tools[1]["inputSchema"].to_string());
    assert!(shown.iter().any(|tool| tool.remote_name == "no-schema"));
    test.host.settled(Duration::from_secs(1)).await;
    test.close().await;
}
