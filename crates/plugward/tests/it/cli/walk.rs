//! Every command on its ordinary way, as text and as JSON, and the exit code of each kind of failure.

use serde_json::json;

use super::{Cli, manifest_of};
use crate::support::Fixture;

/// A person following the hints gets from nothing to a result and back.
#[test]
fn each_success_names_the_next_command_and_the_way_back() {
    let cli = Cli::new();
    let package = Fixture::normal("fix").package();
    let empty = cli.ok(&["list"]);
    assert!(empty.stderr.contains("next: plugward install"), "an empty list says how to begin: {}", empty.stderr);
    let installed = cli.ok(&["install", manifest_of(&package).to_str().unwrap()]);
    assert!(
        installed.stderr.contains("next: plugward review fix")
            && installed.stderr.contains("undo: plugward remove fix")
    );
    let review = cli.ok(&["review", "fix"]);
    let digest = cli.json(&["review", "fix"])["digest"].as_str().unwrap().to_owned();
    assert!(review.stdout.contains(&format!("plugward approve fix --digest {digest}")), "{}", review.stdout);
    assert!(review.stdout.contains("\n  normal\n"), "one argument per line: {}", review.stdout);
    let approved = cli.ok(&["approve", "fix", "--digest", &digest]);
    assert!(approved.stderr.contains("next: plugward enable fix"));
    let enabled = cli.ok(&["enable", "fix"]);
    assert!(enabled.stderr.contains("undo: plugward disable fix"), "{}", enabled.stderr);
    assert!(cli.ok(&["tools"]).stdout.contains("fix.echo"));
    let called = cli.ok(&["call", "fix.echo", r#"{"text":"hé 12345678901234567890"}"#]);
    assert!(called.stdout.contains("hé 12345678901234567890") && called.stderr.contains("next: plugward trace show"));
    assert!(cli.ok(&["trace", "list"]).stdout.contains("✓ ok"));
    assert!(cli.ok(&["trace", "show", "last"]).stdout.contains("fix.echo"));
    assert!(cli.ok(&["disable", "fix"]).stderr.contains("undo: plugward enable fix"));
    let removed = cli.ok(&["remove", "fix"]);
    assert!(
        removed.stderr.contains(&format!("undo: plugward install {}", package.path().display()))
            || removed.stderr.contains("plugin.yaml")
    );
    assert!(cli.json(&["list"])["plugins"].as_array().unwrap().is_empty());
}

/// Scripts read these fields; a rename breaks them.
#[test]
fn json_has_a_version_and_the_published_fields() {
    let cli = Cli::new();
    cli.enable(&Fixture::normal("fix"));
    let list = cli.json(&["list"]);
    assert_eq!(list, cli.json(&["ls"]), "`ls` is `list`");
    let plugin = &list["plugins"][0];
    assert_eq!((&plugin["id"], &plugin["enabled"], &plugin["approved"]), (&json!("fix"), &json!(true), &json!(true)));
    assert_eq!(plugin["manifest"]["backend"]["type"], "mcp");
    assert_eq!(plugin["granted_permissions"], json!(["notes.read"]));
    let info = cli.json(&["info", "fix"]);
    // Requirement 109: the seed's fields of a host.
    for field in [
        "plugin_id",
        "backend_type",
        "transport",
        "status",
        "tools_count",
        "started_at",
        "last_seen_at",
        "protocol_version",
        "server_name",
        "server_version",
        "error",
    ] {
        assert!(info["host"].get(field).is_some(), "{field}");
    }
    let tools = cli.json(&["tools", "fix"]);
    assert_eq!(tools["tools"].as_array().unwrap().len(), 6);
    assert!(
        tools["tools"]
            .as_array()
            .unwrap()
            .iter()
            .any(|tool| tool["name"] == "fix.echo" && tool["parameters"]["type"] == "object")
    );
    let call = cli.json(&["call", "fix.echo", "--arg", "text=\"7\""]);
    assert_eq!((&call["is_error"], &call["result"]["structuredContent"]["echo"]), (&json!(false), &json!("7")));
    assert_eq!(cli.json(&["status"])["host"]["environment"], "development");
    assert_eq!(cli.json(&["status"])["plugins"][0]["id"], "fix");
    assert!(cli.json(&["logs", "fix"])["lines"].is_array());
    let spans = cli.json(&["trace", "list", "--plugin", "fix", "--outcome", "ok", "-n", "1"]);
    assert_eq!(spans["spans"].as_array().unwrap().len(), 1);
    let id = spans["spans"][0]["trace_id"].as_str().unwrap().to_owned();
    assert_eq!(cli.json(&["trace", "show", &id[..10]])["trace_id"], json!(id));
    assert_eq!(cli.json(&["trace", "show", &id])["spans"][0]["tool"], "fix.echo");
    assert_eq!(cli.json(&["permissions", "fix"])["granted_permissions"], json!(["notes.read"]));
    assert_eq!(cli.json(&["asks"])["requests"], json!([]));
    assert_eq!(cli.json(&["restart", "fix"])["host"]["plugin_id"], "fix");
    assert_eq!(cli.json(&["disable", "fix"])["plugin"]["status"], "disabled");
    assert_eq!(cli.json(&["enable", "fix"])["plugin"]["tools_count"], 6);
    assert!(cli.json(&["doctor"])["checks"].as_array().unwrap().len() > 5);
    assert_eq!(cli.json(&["remove", "fix"])["removed"], "fix");
}

/// The exit code is all that a script sees.
#[test]
fn exit_codes_tell_the_kind_of_failure() {
    let cli = Cli::new();
    let bare = Fixture::normal("bare").package();
    cli.ok(&["install", bare.path().to_str().unwrap()]);
    cli.enable(&Fixture::normal("fix").backend("tool_timeout_seconds: 1"));
    let broken = Fixture::imported("broken", &["normal"]).command("no-such-program-anywhere");
    cli.ok(&["install", broken.package().path().to_str().unwrap()]);
    let table: [(i32, &[&str], &str); 21] = [
        (0, &["call", "fix.echo", r#"{"text":"x"}"#], ""),
        (1, &["call", "fix.fail"], "isError"),
        (1, &["install", bare.path().to_str().unwrap()], "PLUGIN_ALREADY_INSTALLED"),
        (1, &["install", "./not-there"], "PLUGIN_PACKAGE_INVALID"),
        (1, &["call", "fix.large"], "MCP_TOOL_RESULT_TOO_LARGE"),
        (2, &["call", "fix.echo", r#"{"text":1}"#], "TOOL_ARGUMENT_INVALID"),
        (2, &["call", "fix.echo", "{"], "no JSON"),
        (2, &["call"], "Usage"),
        (2, &["list", "surplus"], "surplus"),
        (2, &["approve", "bare", "--yes"], "--yes"),
        (2, &["serve", "--http", "0.0.0.0:0"], "127.0.0.1"),
        (3, &["info", "fxi"], "PLUGIN_NOT_FOUND"),
        (3, &["call", "fix.ecko"], "did you mean `fix.echo`?"),
        (3, &["call", "bare.echo"], "plugward enable bare"),
        (3, &["trace", "show", "00000000000000000000000000000000"], "RESOURCE_NOT_FOUND"),
        (3, &["answer", "permission_0", "allow"], "plugward asks"),
        (4, &["enable", "bare"], "plugward review bare"),
        (5, &["call", "fix.exit"], "PLUGIN_HOST_UNAVAILABLE"),
        (5, &["review", "broken"], "PLUGIN_HOST_START_FAILED"),
        (124, &["call", "fix.sleep", r#"{"seconds":20}"#], "tool_timeout_seconds"),
        (124, &["call", "fix.sleep", r#"{"seconds":20}"#, "--timeout", "50ms"], "50ms"),
    ];
    for (code, arguments, told) in table {
        let done = cli.ends(code, arguments);
        assert!(done.stderr.contains(told), "{arguments:?}: {}", done.stderr);
        assert_eq!(done.stderr.matches("panicked").count(), 0, "{}", done.stderr);
    }
}

/// With `--json` a failure is an object too, and standard output stays empty.
#[test]
fn failures_are_objects_in_json_mode() {
    let cli = Cli::new();
    let cases: [(i32, &[&str], &str); 4] = [
        (3, &["info", "nope", "--json"], "PLUGIN_NOT_FOUND"),
        (3, &["call", "a.b", "--json"], "TOOL_NOT_FOUND"),
        (2, &["no-such-command", "--json"], "USAGE"),
        (2, &["--json"], "USAGE"),
    ];
    for (code, arguments, expected) in cases {
        let done = cli.ends(code, arguments);
        let error: serde_json::Value = serde_json::from_str(done.stderr.trim()).expect(&done.stderr);
        assert_eq!((&error["schemaVersion"], &error["error"]["code"]), (&json!(1), &json!(expected)));
        assert!(error["error"]["message"].as_str().is_some_and(|text| !text.is_empty()));
        assert_eq!(done.stdout, "");
    }
}

/// Arguments come from a file or another program without quoting.
#[test]
fn arguments_are_read_from_standard_input() {
    let cli = Cli::new();
    cli.enable(&Fixture::normal("fix"));
    let done = cli.run_with_input(&["call", "fix.echo", "-"], "\u{feff}{\"text\": \"from a pipe\"}\n".as_bytes());
    assert_eq!((done.code, done.stdout.contains("from a pipe")), (0, true), "{}", done.stderr);
    let invalid = cli.run_with_input(&["call", "fix.echo", "-"], b"\xff\xfe");
    assert_eq!(invalid.code, 2, "{}", invalid.stderr);
}

/// A permission taken back stops the plugin until it is granted again, and both ways are told.
#[test]
fn permissions_are_taken_back_and_granted_again() {
    let cli = Cli::new();
    cli.enable(&Fixture::normal("fix"));
    let revoked = cli.ok(&["permissions", "fix", "--revoke", "notes.read"]);
    assert!(revoked.stderr.contains("undo: plugward permissions fix --grant notes.read"), "{}", revoked.stderr);
    assert_eq!(cli.json(&["info", "fix"])["plugin"]["status"], "permission_required");
    cli.ends(4, &["enable", "fix"]);
    cli.ok(&["permissions", "fix", "--grant", "notes.read"]);
    cli.ok(&["enable", "fix"]);
    for flag in ["--grant", "--revoke"] {
        let unknown = cli.ends(1, &["permissions", "fix", flag, "notes.delete"]);
        assert!(unknown.stderr.contains("it asks for: notes.read"), "{}", unknown.stderr);
    }
    cli.ends(2, &["permissions", "fix", "--grant", "notes.read", "--revoke", "notes.read"]);
}
