//! The README's first command.

use super::{Cli, finish};
use crate::support::processes_with;

/// It has to work on a machine with nothing but the program, from a folder that cannot be written, and leave nothing.
#[test]
fn the_demo_shows_everything_and_leaves_nothing() {
    let outer = tempfile::tempdir().unwrap();
    // No home, no PATH, no environment word: the demo needs none of them.
    let cli = Cli::new().variable("PLUGWARD_HOME", "").variable("PLUGWARD_ENVIRONMENT", "").variable("PATH", "");
    let cli = cli.variable("TMPDIR", outer.path().to_str().unwrap());
    let done = finish(cli.command(&["demo"]).current_dir("/").spawn().unwrap(), b"");
    assert_eq!(done.code, 0, "{}\n{}", done.stdout, done.stderr);
    let told = [
        "environment = development",
        "plugward install",
        "NOT approved",
        "plugward approve mcp-fixture --digest sha256:",
        "\"echo\":\"hello\"",
        "exit code 1",
        "did not answer within",
        "exit code 124",
        "✓ ok",
        "! tool_error",
        "✗ timed_out",
        "plugward disable",
    ];
    for piece in told {
        assert!(done.stdout.contains(piece), "`{piece}` is missing in\n{}", done.stdout);
    }
    assert!(done.stderr.contains("next: "), "{}", done.stderr);
    assert_eq!(std::fs::read_dir(outer.path()).unwrap().count(), 0, "the temporary home is gone");
    assert_eq!(processes_with(outer.path().to_str().unwrap()), Vec::<u32>::new());
    let json = finish(cli.command(&["demo", "--json"]).spawn().unwrap(), b"");
    assert_eq!(json.code, 0, "{}", json.stderr);
    assert!(serde_json::from_str::<serde_json::Value>(&json.stdout).is_ok(), "{}", json.stdout);
}
