//! `review --trial`: runs only what a person confirmed, and says what it wanted in words and in JSON.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::Cli;
use crate::support::Fixture;

/// Nothing of a package may run because somebody pressed Enter, or because a script left the digest out.
#[test]
fn a_trial_needs_the_digest_or_a_person() {
    let cli = Cli::new();
    cli.ok(&["install", Fixture::imported("fix", &["normal"]).package().path().to_str().unwrap()]);
    let refused = cli.ends(4, &["review", "fix", "--trial"]);
    assert!(refused.stderr.contains("plugward review fix --trial --digest sha256:"), "{}", refused.stderr);
    let other = format!("sha256:{}", "0".repeat(64));
    let stale = cli.ends(4, &["review", "fix", "--trial", "--digest", &other]);
    assert!(stale.stderr.contains("MCP_TRUST_DIGEST_STALE"), "{}", stale.stderr);
    cli.ends(2, &["review", "fix", "--digest", &other]);
    cli.ends(2, &["review", "fix", "--trial", "--seconds", "0"]);
    cli.ends(2, &["review", "fix", "--trial", "--seconds", "301"]);
    cli.ends(3, &["review", "nobody", "--trial", "--digest", &other]);
    let logs = cli.ok(&["logs", "fix"]);
    assert!(!logs.stdout.contains("trial"), "something was run: {}", logs.stdout);
}

/// The report has to be read by people and by programs, and the same in both.
#[test]
fn a_trial_tells_what_was_wanted() {
    let folder = tempfile::Builder::new().prefix("plugward-trial-").tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = folder.path().join("wanted.txt");
    fs::write(&file, "planted").unwrap();
    let package = Fixture::imported("fix", &["wants"]).package();
    fs::write(package.path().join("wants.txt"), format!("read {}\nread /etc/shadow\n", file.display())).unwrap();
    let cli = Cli::new();
    cli.ok(&["install", package.path().to_str().unwrap()]);
    let digest = cli.json(&["review", "fix"])["digest"].as_str().unwrap().to_owned();
    let arguments = ["review", "fix", "--trial", "--seconds", "4", "--digest", &digest];
    let trial = cli.json(&arguments);
    let permission = format!("fs.read:{}", file.display());
    assert_eq!(trial["permissions"], serde_json::json!([permission]));
    assert_eq!((&trial["tools"], &trial["fault"]), (&serde_json::json!(1), &serde_json::Value::Null));
    let wanted = trial["attempts"].as_array().unwrap();
    let wanted = wanted.iter().find(|attempt| attempt["target"] == file.to_str().unwrap()).unwrap();
    assert_eq!((&wanted["what"], &wanted["permission"]), (&serde_json::json!("read"), &serde_json::json!(permission)));

    let told = cli.ok(&arguments);
    for words in
        ["it listed 1 tools", &format!("given by {permission}"), "permissions:\n  - fs.read:", "was not approved"]
    {
        assert!(told.stdout.contains(words), "`{words}` in {}", told.stdout);
    }
    cli.ends(4, &["enable", "fix"]);
}
