//! Folders of plugin files as a person meets them: with and without a host that stays.

use std::fs;
use std::time::Instant;

use serde_json::Value;

use super::{Cli, POLL};
use crate::support::{Fixture, PATIENCE};

/// Asks until the answer is as wanted.
fn until(cli: &Cli, arguments: &[&str], what: &str, is_so: impl Fn(&Value) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = cli.json(arguments);
        if is_so(&answer) {
            return;
        }
        assert!(Instant::now() < deadline, "did not happen: {what}\n{answer:#}");
        std::thread::sleep(POLL);
    }
}

fn approve(cli: &Cli, id: &str) {
    let review = cli.json(&["review", id]);
    cli.ok(&["approve", id, "--digest", review["digest"].as_str().unwrap()]);
}

// Issue 4: a file in a folder is a plugin, a changed one is held, one that is gone is gone; and mistakes have a place.
#[test]
fn plugin_files_are_there_without_a_host_and_followed_by_one() {
    let cli = Cli::new().config("plugins_dir = \"files\"\n");
    let files = cli.home().join("files");
    fs::create_dir(&files).unwrap();
    let manifest = Fixture::imported("fx", &["never-answers"]).manifest();
    fs::write(files.join("fx.yaml"), &manifest).unwrap();
    fs::write(files.join("bad.yaml"), "id: bad\nnaem: x\n").unwrap();
    let listed = cli.json(&["list"]);
    assert_eq!(listed["plugins"].as_array().unwrap().len(), 1);
    assert_eq!((&listed["plugins"][0]["id"], &listed["plugins"][0]["approved"]), (&"fx".into(), &false.into()));
    let status = cli.ok(&["status"]).stdout;
    assert!(status.contains("1 plugins come from files") && status.contains("bad.yaml:2:1"), "{status}");
    approve(&cli, "fx");
    cli.ok(&["enable", "fx"]);

    let serving = cli.serve(&[]);
    assert!(cli.ok(&["call", "fx.say", "{}"]).stdout.contains("pong"));
    let status = cli.ok(&["status"]).stdout;
    assert!(status.contains("fx: ready, 0 calls running, 0 waiting, breaker closed, 0 restarts"), "{status}");
    fs::write(files.join("fx.yaml"), format!("{manifest}description: another\n")).unwrap();
    until(&cli, &["info", "fx"], "it is held", |info| info["plugin"]["status"] == "permission_required");
    let refused = cli.run(&["call", "fx.say", "{}"]);
    assert!(refused.code != 0 && refused.stderr.contains("not what was approved"), "{refused:?}");
    approve(&cli, "fx");
    until(&cli, &["info", "fx"], "it runs again", |info| info["plugin"]["status"] == "ready");
    fs::remove_file(files.join("fx.yaml")).unwrap();
    until(&cli, &["list"], "it is gone", |list| list["plugins"].as_array().unwrap().is_empty());
    assert!(serving.terminate().success());
}
