//! The eleven start steps: each in its order, and nothing left when one fails (requirements 38-57, 118-128).

use plugward_host::{Environment, ErrorCode, Naming};
use serde_json::{Value, json};

use crate::support::marks::Marks;
use crate::support::{Fixture, NORMAL_TOOLS, Package, Settings, TestHost, eventually};

/// A plugin whose start fails at one step: what the caller is told, that nothing is left, and that the same plugin
/// starts once its fault is mended.
async fn fails(fixture: Fixture, marks: &Marks, code: ErrorCode) -> Vec<String> {
    let test = TestHost::new().await;
    test.install(&fixture).await;
    let error = test.host.enable("fx").await.unwrap_err();
    assert_eq!(error.code, code, "{error}");
    assert!(marks.pid("pid").is_some(), "the faulty process never ran: {error}");
    test.assert_nothing_left("fx");
    let view = test.host.plugin("fx").await.unwrap();
    assert_eq!((view.status.as_str(), view.host_status.as_str()), ("error", "error"));
    assert_eq!((view.enabled, view.error.as_deref()), (false, Some(error.message.as_str())));
    marks.mend();
    let view = test.host.enable("fx").await.unwrap();
    assert_eq!((view.status.as_str(), view.tools_count, view.error), ("ready", 6, None));
    // Positive control: a process that is there is found.
    assert_eq!(test.processes_of("fx").len(), 1);
    test.close().await;
    error.details
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_way_from_install_to_call() {
    // Requirements 1, 4, 8, 9, 35, 36, 48, 118, 124.
    let test = TestHost::new().await;
    test.install(&Fixture::normal("fx")).await;
    test.assert_nothing_left("fx");
    let view = test.host.enable("fx").await.unwrap();
    assert_eq!((view.status.as_str(), view.host_status.as_str()), ("ready", "ready"));
    assert_eq!(test.tool_names("fx"), NORMAL_TOOLS);
    assert_eq!(test.output("fx.echo", json!({"text": "héllo 世界"})).await, json!({"echo": "héllo 世界"}));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_38_step_1_ungranted_permissions_start_no_process() {
    let test = TestHost::new().await;
    let marks = Marks::new();
    let fixture = marks.mending("fx", &["normal"]).declares(&NORMAL_TOOLS);
    test.host.install(fixture.package().path(), None).await.unwrap();
    let error = test.host.enable("fx").await.unwrap_err();
    assert_eq!(error.code, ErrorCode::PluginPermissionRequired, "{error}");
    assert!(!marks.exists("pid"));
    test.assert_nothing_left("fx");
    assert_eq!(test.states("fx").await, ("permission_required", "stopped"));
    test.approve("fx").await;
    assert_eq!(test.host.enable("fx").await.unwrap().status.as_str(), "ready");
    assert!(marks.exists("pid"));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn step_1_without_an_approval_nothing_starts() {
    // Invariant 1; requirement 36: a plugin that asks for no permission still needs a yes.
    let test = TestHost::new().await;
    let marks = Marks::new();
    let fixture = Fixture::imported("fx", &["filters", "--pid-file", &marks.arg("pid")]);
    test.host.install(fixture.package().path(), None).await.unwrap();
    let error = test.host.enable("fx").await.unwrap_err();
    assert_eq!(error.code, ErrorCode::McpTrustApprovalRequired, "{error}");
    assert!(!marks.exists("pid"));
    test.assert_nothing_left("fx");
    test.approve("fx").await;
    assert_eq!(test.host.enable("fx").await.unwrap().tools_count, 4);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_104_105_only_the_exact_word_opens_the_gate() {
    for word in ["production", "", "Development", "development ", "dev", "DEVELOPMENT"] {
        let environment = Environment::from_setting(word);
        let test = TestHost::with(Settings { environment, ..Settings::default() }).await;
        let marks = Marks::new();
        let fixture = Fixture::imported("fx", &["filters", "--pid-file", &marks.arg("pid")]);
        test.host.install(fixture.package().path(), None).await.unwrap();
        // Unapproved and unsandboxed: the approval is what a person can do something about.
        let error = test.host.enable("fx").await.unwrap_err();
        assert_eq!(error.code, ErrorCode::McpTrustApprovalRequired, "{word:?}: {error}");
        test.approve("fx").await;
        let error = test.host.enable("fx").await.unwrap_err();
        assert_eq!(error.code, ErrorCode::McpSandboxRequired, "{word:?}: {error}");
        assert!(!marks.exists("pid"), "{word:?}");
        test.assert_nothing_left("fx");
        let home = test.close().await;
        // The same home with the gate open: nothing was broken by the refusals.
        let open = TestHost::at(home, Settings::default()).await;
        assert_eq!(open.host.enable("fx").await.unwrap().tools_count, 4, "{word:?}");
        open.close().await;
    }
    assert_eq!(Environment::from_setting("development"), Environment::Development);
}

fn tool(name: &str) -> Value {
    json!([{"name": name, "inputSchema": {"type": "object"}}])
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_39_step_2_a_declared_conflict_is_found_before_any_process() {
    // Plugin `a.b` with tool `c` and plugin `a` with tool `b.c` have one tool id.
    let test = TestHost::new().await;
    let marks = Marks::new();
    test.run(&marks.with_tools("a.b", &tool("c")).declares(&["c"])).await;
    let pid_file = marks.arg("pid");
    marks.put("a.json", &tool("b.c").to_string());
    let args = ["schema", "--file", &marks.arg("a.json"), "--pid-file", &pid_file];
    let error = test.try_run(&Fixture::imported("a", &args).declares(&["b.c"])).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::PluginToolConflict, "{error}");
    assert!(error.message.contains("`a.b.c`") && error.message.contains("`a.b`"), "{error}");
    assert!(!marks.exists("pid"));
    test.assert_nothing_left("a");
    assert_eq!(test.text("a.b.c", json!({})).await, r#"{"name":"c","arguments":{}}"#);
    test.host.disable("a.b").await.unwrap();
    assert_eq!(test.host.enable("a").await.unwrap().tools_count, 1);
    assert_eq!(test.text("a.b.c", json!({})).await, r#"{"name":"b.c","arguments":{}}"#);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn step_10_a_conflict_that_shows_only_in_the_list_ends_the_process() {
    // Requirements 39, 47, 49: an imported server names its tools when it runs.
    let test = TestHost::new().await;
    let marks = Marks::new();
    test.run(&marks.with_tools("a.b", &tool("c"))).await;
    let tools = json!([{"name": "free", "inputSchema": {"type": "object"}}, tool("b.c")[0]]);
    let error = test.try_run(&marks.with_tools("a", &tools)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::PluginToolConflict, "{error}");
    test.assert_nothing_left("a");
    assert_eq!(test.states("a").await, ("error", "error"));
    test.host.disable("a.b").await.unwrap();
    assert_eq!(test.host.enable("a").await.unwrap().tools_count, 2);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_40_step_3_a_program_that_cannot_be_executed() {
    let test = TestHost::new().await;
    let package = Fixture::imported("fx", &[]).command("./server").package();
    let program = package.path().join("server");
    std::fs::write(&program, "#!/nonexistent/interpreter\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    test.install_package(&package).await;
    let error = test.host.enable("fx").await.unwrap_err();
    assert_eq!(error.code, ErrorCode::PluginHostStartFailed, "{error}");
    test.assert_nothing_left("fx");
    assert_eq!(test.states("fx").await, ("error", "error"));
    test.host.remove("fx").await.unwrap();
    assert_eq!(test.run(&Fixture::normal("fx")).await.tools_count, 6);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn step_4_initialize_is_refused() {
    let marks = Marks::new();
    fails(marks.mending("fx", &["initialize-error"]), &marks, ErrorCode::McpInitializeFailed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_37_step_4_initialize_is_never_answered() {
    let marks = Marks::new();
    let fixture = marks.mending("fx", &["mute-initialize"]).backend("startup_timeout_seconds: 1");
    fails(fixture, &marks, ErrorCode::McpInitializeFailed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_127_step_4_initialize_has_an_invalid_result() {
    for kind in ["no-version", "version-type", "capabilities-type", "text", "null"] {
        let marks = Marks::new();
        let fixture = marks.mending("fx", &["invalid-result", "--kind", kind]);
        fails(fixture, &marks, ErrorCode::McpInitializeFailed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_128_step_4_a_line_without_end() {
    let marks = Marks::new();
    let fixture = marks.mending("fx", &["oversized-stdout"]).declares(&NORMAL_TOOLS);
    fails(fixture, &marks, ErrorCode::PluginHostUnavailable).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_52_steps_4_6_7_the_process_ends_in_the_handshake() {
    for step in ["initialize", "initialized", "list"] {
        let marks = Marks::new();
        fails(marks.mending("fx", &["exit-in-handshake", "--step", step]), &marks, ErrorCode::PluginHostUnavailable)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_5_step_5_a_version_nobody_speaks() {
    let marks = Marks::new();
    fails(marks.mending("fx", &["version"]), &marks, ErrorCode::McpInitializeFailed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_6_125_step_5_no_tools_capability() {
    let marks = Marks::new();
    fails(marks.mending("fx", &["no-tools"]), &marks, ErrorCode::McpCapabilityUnsupported).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_44_step_7_the_list_fails() {
    let marks = Marks::new();
    fails(marks.mending("fx", &["list-fails"]), &marks, ErrorCode::McpToolListFailed).await;
    let marks = Marks::new();
    let mute = marks.mending("fx", &["mute-list"]).backend("list_timeout_seconds: 1");
    fails(mute, &marks, ErrorCode::McpToolListFailed).await;
    for args in [&["pages", "--loop"][..], &["pages", "--endless"], &["list-shape", "--kind", "object"]] {
        let marks = Marks::new();
        fails(marks.mending("fx", args), &marks, ErrorCode::McpToolListFailed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_45_126_step_8_one_bad_tool_of_six_refuses_all() {
    let marks = Marks::new();
    let fixture = marks.mending("fx", &["invalid-schema"]).declares(&NORMAL_TOOLS);
    let details = fails(fixture, &marks, ErrorCode::McpToolSchemaInvalid).await;
    assert!(details.iter().any(|line| line.starts_with("`large`")), "{details:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_17_46_step_9_the_set_is_not_the_declared_one() {
    let marks = Marks::new();
    let fixture = marks.mending("fx", &["crash-after"]).declares(&NORMAL_TOOLS);
    let details = fails(fixture, &marks, ErrorCode::McpToolSchemaInvalid).await;
    assert!(details.contains(&"`say` is offered but not declared".to_owned()), "{details:?}");
    assert!(details.contains(&"`echo` is declared but not offered".to_owned()), "{details:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_62_63_step_8_permissions_of_tools_are_known_and_declared() {
    for (permission, named) in [("notes.reed", "not known"), ("tasks.read", "not among")] {
        let test = TestHost::new().await;
        let marks = Marks::new();
        let mut tools = tool("read");
        tools[0]["_meta"] = json!({"notesagent/permission": permission});
        let fixture = marks.with_tools("fx", &tools).permission("notes.read").declares(&["read"]);
        let error = test.try_run(&fixture).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::McpToolSchemaInvalid);
        assert!(error.details[0].contains(named) && error.details[0].contains(permission), "{:?}", error.details);
        test.assert_nothing_left("fx");
        test.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_taken_refuses_its_plugin_and_renames_nothing() {
    // Pass-through naming: a second plugin must not change the names that clients of the first one know.
    let test = TestHost::with(Settings { naming: Naming::PassThrough, ..Settings::default() }).await;
    let exposed = || -> Vec<String> { test.host.tools().into_iter().map(|tool| tool.exposed_name).collect() };
    test.run(&Fixture::normal("first")).await;
    assert_eq!(exposed(), NORMAL_TOOLS);
    // Declared tools are compared before any process exists, others once they are listed.
    for second in [Fixture::normal("second"), Fixture::imported("third", &["normal"]).permission("notes.read")] {
        let error = test.try_run(&second).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::PluginToolConflict, "{error}");
        assert!(error.message.contains("tool name `echo`") && error.message.contains("`first`"), "{error}");
        assert_eq!(exposed(), NORMAL_TOOLS);
    }
    test.assert_nothing_left("second");
    test.assert_nothing_left("third");
    // With its names free again it starts, though it was installed later, and the other one is refused in turn.
    test.host.disable("first").await.unwrap();
    test.host.enable("second").await.unwrap();
    assert_eq!(exposed(), NORMAL_TOOLS);
    assert_eq!(test.host.enable("first").await.unwrap_err().code, ErrorCode::PluginToolConflict);
    assert_eq!(test.output("second.echo", json!({"text": "x"})).await, json!({"echo": "x"}));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn step_11_a_process_that_ends_right_after_its_list_leaves_nothing() {
    // N2: its end may be noticed before or after it became ready; either way it must not stay ready.
    let test = TestHost::new().await;
    let started = test.try_run(&Fixture::imported("fx", &["exit-after-list"]).backend("restart: never")).await;
    if let Err(error) = started {
        assert_eq!(error.code, ErrorCode::PluginHostUnavailable, "{error}");
    }
    eventually("the end is noticed", || {
        let status = test.host.host_status("fx").unwrap();
        matches!(status.status.as_str(), "error" | "unhealthy").then_some(())
    })
    .await;
    eventually("its process is gone", || test.processes_of("fx").is_empty().then_some(())).await;
    test.assert_nothing_left("fx");
    assert_eq!(test.states("fx").await.0, "error");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_7_41_43_44_the_order_of_messages_on_the_wire() {
    let test = TestHost::new().await;
    let marks = Marks::new();
    test.run(&marks.tapped("fx", "normal")).await;
    test.output("fx.echo", json!({"text": "x"})).await;
    test.close().await;
    let wire = marks.wire();
    let methods: Vec<&str> = wire.iter().map(|message| message["method"].as_str().unwrap()).collect();
    let wanted = ["initialize", "notifications/initialized", "tools/list", "tools/list", "tools/call"];
    assert_eq!(methods, wanted);
    // Requirement 5: the newest legacy revision is offered.
    assert_eq!(wire[0]["params"]["protocolVersion"], "2025-11-25");
    assert_eq!(wire[0]["params"]["capabilities"], json!({}));
    assert_eq!(wire[3]["params"]["cursor"], "page-2");
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_5_older_revisions_are_accepted() {
    for version in ["2025-06-18", "2025-03-26", "2024-11-05"] {
        let test = TestHost::new().await;
        test.run(&Fixture::imported("fx", &["version", "--answer", version])).await;
        assert_eq!(test.host.host_status("fx").unwrap().protocol_version.as_deref(), Some(version));
        assert_eq!(test.text("fx.say", json!({})).await, "pong");
        test.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_109_112_status_tells_all_fields_and_each_state() {
    let test = TestHost::new().await;
    test.install(&Fixture::imported("fx", &["slow-start", "--seconds", "1"])).await;
    assert_eq!(test.states("fx").await, ("installed", "stopped"));
    let host = test.host.clone();
    let enable = tokio::spawn(async move { host.enable("fx").await });
    test.status_soon("fx", "starting").await;
    assert_eq!(test.states("fx").await, ("starting", "starting"));
    assert_eq!(test.tool_names("fx"), [""; 0]);
    enable.await.unwrap().unwrap();
    let status = test.host.host_status("fx").unwrap();
    assert_eq!((status.status.as_str(), status.tools_count, status.error), ("ready", 1, None));
    assert_eq!(status.protocol_version.as_deref(), Some("2025-11-25"));
    assert_eq!((status.server_name.as_deref(), status.server_version.as_deref()), (Some("mcp-fixture"), Some("1.0.0")));
    assert!(status.started_at.is_some() && status.last_seen_at >= status.started_at && status.pid.is_some());
    test.host.disable("fx").await.unwrap();
    assert_eq!(test.states("fx").await, ("disabled", "stopped"));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_29_75_arguments_reach_the_plugin_literally() {
    let test = TestHost::new().await;
    let hostile = ["; touch made-by-shell", "$(touch made-by-shell)", "`touch made-by-shell`", "a b\"c'd\\", "-x", ""];
    let mut args = vec!["show", "--"];
    args.extend(hostile);
    test.run(&Fixture::imported("fx", &args)).await;
    let seen: Value = serde_json::from_str(&test.text("fx.show", json!({})).await).unwrap();
    assert_eq!(seen[0], json!(hostile));
    assert!(!test.home().join("plugins/fx/made-by-shell").exists());
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_33_an_executable_outside_the_package_is_refused() {
    for command in ["../mcp-fixture", "sub/../../x", "./link"] {
        let test = TestHost::new().await;
        let package = Fixture::imported("fx", &["normal"]).command(command).package();
        std::os::unix::fs::symlink("/bin/sh", package.path().join("link")).unwrap();
        let installed = test.host.install(package.path(), None).await;
        let refused = match installed {
            Err(error) => error,
            Ok(_) => test.host.review("fx").await.unwrap_err(),
        };
        assert!(
            matches!(refused.code, ErrorCode::PluginHostStartFailed | ErrorCode::PluginPackageInvalid),
            "{command}: {refused}"
        );
        test.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_28_other_backends_are_unsupported_and_unknown_keys_invalid() {
    let test = TestHost::new().await;
    let head = "id: fx\nname: F\nversion: 1.0.0\npermissions: []\nbackend:\n  type: mcp\n";
    for (rest, code) in [
        ("  transport: none\n  command: x\n", ErrorCode::McpCapabilityUnsupported),
        ("  transport: stdio\n  command: x\n  tool_timeout: 3\n", ErrorCode::PluginManifestInvalid),
    ] {
        let package = Package::with_manifest(&format!("{head}{rest}"));
        let error = test.host.install(package.path(), None).await.unwrap_err();
        assert_eq!(error.code, code, "{error}");
    }
    assert!(test.host.plugins().await.unwrap().is_empty());
    test.close().await;
}
