//! What a person agreed to is what runs: approvals, changes since, installs and removals (requirements 35, 36, 57, 94,
//! 106, 144, 148; B044).

use std::fs;

use plugward_host::{ApprovalOrigin, ErrorCode};
use plugward_policy::Digest;
use serde_json::{Value, json};

use crate::support::marks::Marks;
use crate::support::{Fixture, NORMAL_TOOLS, Settings, TestHost, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn requirement_106_an_approval_names_the_digest_of_exactly_what_would_run() {
    let test = TestHost::new().await;
    test.host.install(Fixture::normal("fx").package().path(), None).await.unwrap();
    let review = test.host.review("fx").await.unwrap();
    assert!(!review.approved && review.changes.is_empty());
    let wrong: Digest = format!("sha256:{}", "0".repeat(64)).parse().unwrap();
    let error = test.host.approve("fx", &wrong, ApprovalOrigin::Test).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::McpTrustDigestStale, "{error}");
    assert_eq!(test.states("fx").await.0, "permission_required");
    // A byte of the package changes between the look and the yes.
    fs::write(test.home().join("plugins/fx/added.txt"), "x").unwrap();
    let error = test.host.approve("fx", &review.digest, ApprovalOrigin::Test).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::McpTrustDigestStale, "{error}");
    assert!(!test.host.plugin("fx").await.unwrap().approved);
    test.approve("fx").await;
    assert!(test.host.plugin("fx").await.unwrap().approved);
    assert_eq!(test.host.enable("fx").await.unwrap().tools_count, 6);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_package_is_held_until_a_person_has_seen_the_change() {
    // Invariant 8. The file is changed after the approval, where a review cannot have seen it.
    let test = TestHost::new().await;
    let package = Fixture::normal("fx").package();
    fs::write(package.path().join("data.txt"), "agreed").unwrap();
    test.install_package(&package).await;
    test.host.enable("fx").await.unwrap();
    fs::write(test.home().join("plugins/fx/data.txt"), "altered").unwrap();
    let error = test.host.restart("fx").await.unwrap_err();
    assert_eq!(error.code, ErrorCode::McpTrustApprovalRequired, "{error}");
    test.assert_nothing_left("fx");
    let view = test.host.plugin("fx").await.unwrap();
    assert_eq!((view.status.as_str(), view.approved, view.enabled), ("permission_required", false, true));
    let review = test.host.review("fx").await.unwrap();
    let changed: Vec<&str> = review.changes.iter().map(|change| change.what.as_str()).collect();
    assert_eq!((review.approved, changed), (false, vec!["package contents"]));
    // Nobody's start gets past it, the one at the next start of the host included.
    let test = TestHost::at(test.close().await, Settings::default()).await;
    test.host.start_enabled();
    test.host.settled(std::time::Duration::from_secs(10)).await;
    test.assert_nothing_left("fx");
    test.approve("fx").await;
    assert!(test.host.review("fx").await.unwrap().approved);
    assert_eq!(test.host.restart("fx").await.unwrap().status.as_str(), "ready");
    assert_eq!(test.tool_names("fx"), NORMAL_TOOLS);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_executable_is_held_too() {
    // Requirement 106: the program outside the package is part of what was agreed to.
    let marks = Marks::new();
    let program = marks.path("my-server");
    let write = |text: &str| {
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    write("#!/bin/sh\nexec mcp-fixture normal\n");
    let mut settings = Settings::default();
    settings.host_environment[0].1.insert_str(0, &format!("{}:", marks.arg("")));
    let test = TestHost::with(settings).await;
    let fixture = Fixture::imported("fx", &[]).command("my-server");
    test.run(&fixture).await;
    test.host.disable("fx").await.unwrap();
    write("#!/bin/sh\nexec mcp-fixture filters\n");
    let error = test.host.enable("fx").await.unwrap_err();
    assert_eq!(error.code, ErrorCode::McpTrustApprovalRequired, "{error}");
    test.assert_nothing_left("fx");
    let review = test.host.review("fx").await.unwrap();
    assert!(review.changes.iter().any(|change| change.what == "executable contents"), "{:?}", review.changes);
    write("#!/bin/sh\nexec mcp-fixture normal\n");
    assert_eq!(test.host.enable("fx").await.unwrap().tools_count, 5);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_148_a_changed_tool_is_held_and_comes_back_with_an_approval() {
    // B044: the second list only reorders a schema, the third changes what the model is told to do.
    let test = TestHost::new().await;
    test.run(&Fixture::imported("fx", &["rug-pull"])).await;
    for _ in 0..2 {
        assert_eq!(test.text("fx.send", json!({"to": "a", "body": "b"})).await, "sent");
    }
    let held = eventually("the tool is held", || {
        let report = test.tool_names("fx");
        if !report.is_empty() {
            // Each call announces a change; lists are read at most once a second.
            let (host, call) = (test.host.clone(), crate::support::request("fx.send", json!({})));
            tokio::spawn(async move { host.call(call).await });
            return None;
        }
        Some(())
    });
    held.await;
    let view = test.host.plugin("fx").await.unwrap();
    assert_eq!((view.status.as_str(), view.tools_count, view.held_tools.len()), ("ready", 0, 1));
    assert_ne!(view.held_tools[0].approved_digest, view.held_tools[0].offered_digest);
    let failure = test.call("fx.send", json!({})).await.outcome.unwrap_err();
    assert_eq!(failure.code(), ErrorCode::PluginHostUnavailable);
    assert!(failure.message("fx.send").contains("plugward review fx"), "{}", failure.message("fx.send"));
    let review = test.host.review("fx").await.unwrap();
    assert_eq!((review.tools[0].state, review.approved), ("changed", false));
    assert!(review.tools[0].description.as_deref().unwrap().contains("BCC"), "the new text is what is reviewed");
    assert!(review.changes.iter().any(|change| change.what.contains("send")), "{:?}", review.changes);
    test.approve("fx").await;
    assert_eq!(test.tool_names("fx"), ["send"]);
    assert_eq!(test.text("fx.send", json!({"to": "a", "body": "b"})).await, "sent");
    let review = test.host.review("fx").await.unwrap();
    assert_eq!((review.tools[0].state, review.approved), ("approved", true));
    test.close().await;
}

fn tools(names: &[&str]) -> Value {
    let tool = |name: &&str| json!({"name": name, "description": "d", "inputSchema": {"type": "object"}});
    names.iter().map(tool).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pins_survive_the_host_and_only_what_changed_is_held() {
    // B044 across restarts: new, changed and gone tools wait, the others serve.
    let test = TestHost::new().await;
    let marks = Marks::new();
    test.run(&marks.with_tools("fx", &tools(&["same", "changes", "goes"]))).await;
    let home = test.close().await;
    let mut offer = tools(&["same", "changes", "new"]);
    offer[1]["description"] = json!("something else");
    marks.put("fx.json", &offer.to_string());
    let test = TestHost::at(home, Settings::default()).await;
    test.host.ensure_started("fx").await.unwrap();
    assert_eq!(test.tool_names("fx"), ["same"]);
    let review = test.host.review("fx").await.unwrap();
    let states: Vec<(&str, &str)> = review.tools.iter().map(|tool| (tool.remote_name.as_str(), tool.state)).collect();
    assert_eq!(states, [("same", "approved"), ("changes", "changed"), ("new", "new"), ("goes", "gone")]);
    // The offer is remembered while the plugin does not run, and approving it then counts for the next start.
    let test = TestHost::at(test.close().await, Settings::default()).await;
    let offline = test.host.review("fx").await.unwrap();
    assert_eq!(offline.digest, review.digest);
    test.approve("fx").await;
    test.host.ensure_started("fx").await.unwrap();
    assert_eq!(test.tool_names("fx"), ["same", "changes", "new"]);
    assert!(test.host.plugin("fx").await.unwrap().held_tools.is_empty());
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_57_113_a_declared_set_that_no_longer_holds_ends_the_plugin() {
    // N10: the process must not keep running either. The plugin changes its list when told to by a file.
    let test = TestHost::new().await;
    let marks = Marks::new();
    let script = r#"
        while read -r line; do
            id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
            case "$line" in
            *'"initialize"'*) result='{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}}}' ;;
            *tools/list*) result="{\"tools\":[$(cat "$0")]}" ;;
            *tools/call*) printf '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'
                result='{"content":[]}' ;;
            *) continue ;;
            esac
            printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
        done"#;
    let one = r#"{"name":"one","inputSchema":{"type":"object"}}"#;
    marks.put("tools", one);
    let args = ["-c", script, &marks.arg("tools")];
    test.run(&Fixture::imported("fx", &args).command("sh").declares(&["one"])).await;
    // A notice without a change changes nothing.
    test.output("fx.one", json!({})).await;
    assert_eq!(test.states("fx").await, ("ready", "ready"));
    marks.put("tools", &format!("{one},{}", one.replace("one", "two")));
    test.output("fx.one", json!({})).await;
    test.status_soon("fx", "unhealthy").await;
    let view = test.host.plugin("fx").await.unwrap();
    assert_eq!(view.status.as_str(), "error");
    assert!(view.error.as_deref().unwrap().contains("`two` is offered but not declared"), "{:?}", view.error);
    assert_eq!(test.tool_names("fx"), [""; 0]);
    eventually("its process is gone", || test.processes_of("fx").is_empty().then_some(())).await;
    // Nothing starts it again but a person, and only once the contract holds.
    assert_eq!(test.host.restart("fx").await.unwrap_err().code, ErrorCode::McpToolSchemaInvalid);
    marks.put("tools", one);
    assert_eq!(test.host.restart("fx").await.unwrap().tools_count, 1);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_82_taking_a_permission_away_stops_the_plugin() {
    let test = TestHost::new().await;
    test.run(&Fixture::normal("fx")).await;
    let unknown = test.host.set_permissions("fx", &["notes.write".to_owned()]).await.unwrap_err();
    assert_eq!(unknown.code, ErrorCode::PluginPermissionUnknown);
    assert_eq!(test.tool_names("fx").len(), 6);
    let view = test.host.set_permissions("fx", &[]).await.unwrap();
    assert_eq!((view.status.as_str(), view.enabled), ("permission_required", false));
    test.assert_nothing_left("fx");
    assert_eq!(test.host.enable("fx").await.unwrap_err().code, ErrorCode::PluginPermissionRequired);
    test.host.set_permissions("fx", &["notes.read".to_owned()]).await.unwrap();
    assert_eq!(test.host.enable("fx").await.unwrap().tools_count, 6);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_35_an_install_runs_nothing_and_does_not_replace() {
    let test = TestHost::new().await;
    let package = Fixture::normal("fx").package();
    test.host.install(package.path(), Some("fx")).await.unwrap();
    test.assert_nothing_left("fx");
    let error = test.host.install(package.path(), None).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::PluginAlreadyInstalled, "{error}");
    let error = test.host.install(Fixture::normal("gx").package().path(), Some("hx")).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::PluginManifestInvalid, "{error}");
    let unknown = Fixture::imported("kx", &[]).permission("notes.reed").package();
    let error = test.host.install(unknown.path(), None).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::PluginPermissionUnknown);
    assert!(error.hint.unwrap().contains("notes.read"));
    let ids: Vec<String> = test.host.plugins().await.unwrap().iter().map(|plugin| plugin.id.to_string()).collect();
    assert_eq!(ids, ["fx"]);
    let folders = fs::read_dir(test.home().join("plugins")).unwrap().count();
    assert_eq!(folders, 1, "a refused install left its files");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_plugin_leaves_nothing_and_comes_back_as_a_stranger() {
    let test = TestHost::new().await;
    test.run(&Fixture::normal("fx")).await;
    let (package, private) = (test.home().join("plugins/fx"), test.home().join("homes/fx"));
    fs::write(private.join("kept.txt"), "private").unwrap();
    test.host.remove("fx").await.unwrap();
    assert!(!package.exists() && !private.exists());
    assert_eq!(test.host.plugin("fx").await.unwrap_err().code, ErrorCode::PluginNotFound);
    assert_eq!(test.host.remove("fx").await.unwrap_err().code, ErrorCode::PluginNotFound);
    test.host.install(Fixture::normal("fx").package().path(), None).await.unwrap();
    let view = test.host.plugin("fx").await.unwrap();
    assert_eq!((view.status.as_str(), view.approved, view.enabled), ("permission_required", false, false));
    assert!(view.granted_permissions.is_empty());
    // Its old pins are forgotten too: other tools under the old id are a first sight again.
    test.host.remove("fx").await.unwrap();
    assert_eq!(test.run(&Fixture::imported("fx", &["filters"])).await.tools_count, 4);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_left_of_an_install_or_a_remove_is_swept() {
    // Invariant 10 and its reverse: an install that was not acknowledged leaves nothing, nor does half a remove.
    let test = TestHost::new().await;
    test.run(&Fixture::normal("fx")).await;
    fs::write(test.home().join("homes/fx/kept.txt"), "private").unwrap();
    let home = test.close().await;
    for folder in ["incoming/half", "plugins/unrecorded", "homes/removed"] {
        fs::create_dir_all(home.path().join(folder)).unwrap();
        fs::write(home.path().join(folder).join("file"), "x").unwrap();
    }
    let test = TestHost::at(home, Settings::default()).await;
    for folder in ["incoming", "plugins/unrecorded", "homes/removed"] {
        assert!(!test.home().join(folder).exists(), "{folder}");
    }
    assert_eq!(fs::read_to_string(test.home().join("homes/fx/kept.txt")).unwrap(), "private");
    test.host.ensure_started("fx").await.unwrap();
    // A folder of the same name that an interrupted install left does not spoil the next one.
    fs::create_dir_all(test.home().join("plugins/gx/old")).unwrap();
    assert_eq!(test.run(&Fixture::normal("gx")).await.tools_count, 6);
    assert!(!test.home().join("plugins/gx/old").exists());
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_94_the_review_shows_the_program_and_every_argument() {
    let test = TestHost::new().await;
    let fixture = Fixture::imported("fx", &["show", "--", "; rm -rf ~", "--api-key", "swordfish-12345"])
        .backend("env: {DEMO_FLAG: \"1\", DEMO_TOKEN: \"opensesame-999\"}");
    test.host.install(fixture.package().path(), None).await.unwrap();
    let review = test.host.review("fx").await.unwrap();
    assert!(review.executable.ends_with("mcp-fixture"), "{}", review.executable);
    assert_eq!(review.argv[1..4], ["show", "--", "; rm -rf ~"]);
    assert_eq!(review.argv[4], "--api-key");
    let shown = format!("{:?} {:?} {}", review.argv, review.environment, review.canonical);
    for secret in ["swordfish-12345", "opensesame-999"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert!(review.environment.contains(&("DEMO_FLAG".to_owned(), "1".to_owned())), "{:?}", review.environment);
    // Requirement 69: what isolates it is told as it is.
    assert!(review.isolation.contains("rights"), "{}", review.isolation);
    test.assert_nothing_left("fx");
    test.close().await;
}
