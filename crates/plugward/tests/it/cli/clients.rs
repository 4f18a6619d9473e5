//! `connect`, `disconnect` and `clients` through the real binary, in a user folder of the test's own.

use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::Cli;
use crate::support::plugward;

/// Settings of somebody who uses Cursor, with a comment and a server of their own.
const CURSOR: &str = "{\n  // mine\n  \"mcpServers\": {\n    \"files\": {\n      \"command\": \"files\",\n      \"env\": \
                      { \"FILES_TOKEN\": \"hunter22hunter22\" }\n    }\n  }\n}\n";

fn user() -> (Cli, TempDir, PathBuf) {
    let user = tempfile::tempdir().unwrap();
    let cursor = user.path().join(".cursor/mcp.json");
    std::fs::create_dir(user.path().join(".cursor")).unwrap();
    std::fs::write(&cursor, CURSOR).unwrap();
    let cli = Cli::new().variable("HOME", user.path().to_str().unwrap());
    (cli, user, cursor)
}

/// The way of a person, or of an install script, from nothing to connected and back.
#[test]
fn an_agent_is_connected_and_disconnected() {
    let (cli, _user, cursor) = user();
    let looked = cli.ok(&["connect", "cursor", "--dry-run"]);
    assert!(looked.stdout.contains("+    \"plugward\": {") && looked.stderr.contains("nothing was written"));
    let refused = cli.ends(4, &["connect", "cursor"]);
    assert!(refused.stderr.contains("CONFIRMATION_REQUIRED") && refused.stderr.contains("--yes"), "{}", refused.stderr);
    assert_eq!(std::fs::read_to_string(&cursor).unwrap(), CURSOR, "neither has written anything");
    let done = cli.ok(&["connect", "cursor", "--yes"]);
    assert!(done.stdout.contains("connected cursor") && done.stderr.contains("undo: plugward disconnect cursor"));
    assert!(!format!("{}{}{}", looked.stdout, done.stdout, done.stderr).contains("hunter22"), "{}", done.stdout);
    let text = std::fs::read_to_string(&cursor).unwrap();
    let bare: String = text.lines().filter(|line| !line.contains("// mine")).collect();
    let entry = &serde_json::from_str::<Value>(&bare).unwrap()["mcpServers"]["plugward"];
    let home = cli.home().to_str().unwrap();
    assert_eq!(entry["args"], json!(["serve", "--stdio", "--client", "cursor", "--home", home]));
    assert_eq!(
        PathBuf::from(entry["command"].as_str().unwrap()).canonicalize().unwrap(),
        plugward().canonicalize().unwrap()
    );
    let clients = cli.json(&["clients"]);
    let found = clients["clients"].as_array().unwrap().iter().find(|client| client["name"] == "cursor").unwrap();
    assert_eq!((&found["state"], &found["other_servers"]), (&json!("connected"), &json!(["files"])));
    assert!(cli.ok(&["connect", "cursor", "--yes"]).stderr.contains("nothing to do"));
    cli.ok(&["disconnect", "--all", "--yes"]);
    assert_eq!(std::fs::read_to_string(&cursor).unwrap(), CURSOR);
}

/// All that are found, and no other: a person does not want settings of agents that are not there.
#[test]
fn all_means_all_that_are_here() {
    let (cli, user, _) = user();
    std::fs::create_dir_all(user.path().join(".config/zed")).unwrap();
    let changes = cli.json(&["connect", "--all", "--yes"]);
    let names: Vec<&str> =
        changes["changes"].as_array().unwrap().iter().map(|change| change["client"].as_str().unwrap()).collect();
    assert_eq!(names, ["cursor", "zed"]);
    assert!(user.path().join(".config/zed/settings.json").exists());
    cli.ok(&["disconnect", "--all", "--yes"]);
    assert!(!user.path().join(".config/zed/settings.json").exists());
    // One whose file is broken is told, and the others are served all the same.
    std::fs::write(user.path().join(".config/zed/settings.json"), "{ broken").unwrap();
    let done = cli.ends(1, &["connect", "--all", "--yes"]);
    assert!(done.stderr.contains("zed/settings.json") && done.stdout.contains("connected cursor"), "{}", done.stderr);
}

/// One that cannot be written, first in order, costs the others nothing, and a script can tell that not all was done.
#[test]
fn one_that_cannot_be_written_does_not_stop_the_others() {
    let (cli, user, cursor) = user();
    std::fs::create_dir_all(user.path().join(".config/zed")).unwrap();
    let zed = user.path().join(".config/zed/settings.json");
    // A link into a folder that is not there reads as no file, and cannot be written, whoever asks.
    let claude = user.path().join(".claude.json");
    std::os::unix::fs::symlink(user.path().join("nowhere/settings.json"), &claude).unwrap();
    std::fs::create_dir_all(user.path().join(".claude")).unwrap();
    let done = cli.ends(1, &["connect", "--all", "--yes", "--json"]);
    let changes: Value = serde_json::from_str(&done.stdout).unwrap();
    let of = |name: &str| {
        let found = changes["changes"].as_array().unwrap().iter().find(|change| change["client"] == name);
        found.unwrap_or_else(|| panic!("{name}: {changes}")).clone()
    };
    assert_eq!(of("claude-code")["changed"], false);
    assert!(of("claude-code")["error"].as_str().unwrap().contains(".claude.json"), "{changes}");
    assert_eq!((&of("cursor")["changed"], &of("zed")["changed"]), (&json!(true), &json!(true)));
    assert!(std::fs::read_to_string(&cursor).unwrap().contains("plugward") && zed.exists());
    assert!(done.stderr.contains("CLIENT_SETTINGS_UNUSABLE"), "{}", done.stderr);
}

#[test]
fn mistakes_are_told_with_what_to_do() {
    let (cli, user, cursor) = user();
    let unknown = cli.ends(3, &["connect", "cursr"]);
    assert!(unknown.stderr.contains("did you mean `cursor`?"), "{}", unknown.stderr);
    cli.ends(2, &["connect"]);
    cli.ends(2, &["connect", "lm-studio", "--project", user.path().to_str().unwrap()]);
    std::fs::write(&cursor, "{\n  \"a\": 1\n  \"b\": 2\n}").unwrap();
    let broken = cli.ends(1, &["connect", "cursor", "--yes"]);
    assert!(
        broken.stderr.contains("line 2, column 9") && broken.stderr.contains("\"mcpServers\""),
        "{}",
        broken.stderr
    );
    assert_eq!(std::fs::read_to_string(&cursor).unwrap(), "{\n  \"a\": 1\n  \"b\": 2\n}");
}

#[test]
fn a_project_has_settings_of_its_own() {
    let (cli, user, cursor) = user();
    let project = user.path().join("project");
    std::fs::create_dir(&project).unwrap();
    let folder = project.to_str().unwrap();
    cli.ok(&["connect", "vscode", "--project", folder, "--yes"]);
    let text = std::fs::read_to_string(project.join(".vscode/mcp.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["servers"]["plugward"]["type"], "stdio");
    cli.ok(&["disconnect", "vscode", "--project", folder, "--yes"]);
    assert_eq!(std::fs::read_dir(&project).unwrap().count(), 0, "the folder made for it is gone");
    assert_eq!(std::fs::read_to_string(&cursor).unwrap(), CURSOR);
}

/// An upgrade that moves the program leaves agents with an entry that starts nothing, which no agent tells well.
#[test]
fn doctor_names_what_has_drifted_and_what_is_not_ours() {
    let (cli, _user, cursor) = user();
    cli.ok(&["connect", "cursor", "--yes"]);
    let row = |cli: &Cli| {
        let done = cli.run(&["doctor", "--json"]);
        let report: Value = serde_json::from_str(&done.stdout).unwrap();
        report["checks"].as_array().unwrap().iter().find(|row| row["check"] == "client cursor").unwrap().clone()
    };
    let well = row(&cli);
    assert_eq!(well["state"], "ok");
    assert!(well["found"].as_str().unwrap().contains("1 other: files"), "{well}");
    let text = std::fs::read_to_string(&cursor).unwrap();
    let entry = text.lines().find(|line| line.contains("plugward\",")).unwrap();
    std::fs::write(&cursor, text.replace(entry, "      \"command\": \"/gone/plugward\",")).unwrap();
    let drifted = row(&cli);
    assert_eq!(drifted["state"], "warning");
    assert!(drifted["found"].as_str().unwrap().contains("`/gone/plugward` is not there"), "{drifted}");
    assert!(drifted["fix"].as_str().unwrap().contains("plugward connect cursor"), "{drifted}");
}
