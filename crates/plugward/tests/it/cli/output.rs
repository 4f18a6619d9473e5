//! Streams, colours and help: results on standard output, everything else on standard error.

use std::process::Stdio;

use super::{Cli, wait};
use crate::support::Fixture;

/// Set to write the snapshot anew.
const REWRITE: &str = "PLUGWARD_REWRITE_SNAPSHOTS";

const ESC: char = '\u{1b}';

/// What a newcomer reads first. Read the difference before rewriting it.
#[test]
fn the_help_is_as_published() {
    let help = Cli::new().ok(&["--help"]).stdout;
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cli/help.txt");
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(&file, &help).unwrap();
    }
    let published = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(help, published, "set {REWRITE}=1 to accept the new help");
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
}

#[test]
fn no_command_is_a_usage_failure_that_teaches() {
    let done = Cli::new().ends(2, &[] as &[&str]);
    assert_eq!(done.stdout, "");
    assert!(done.stderr.contains("First steps:"), "{}", done.stderr);
}

#[test]
fn every_command_explains_itself_with_an_example() {
    let cli = Cli::new();
    let commands = "install review approve enable disable restart remove list info tools call status logs trace permissions \
                    asks answer serve demo doctor completion";
    for command in commands.split_whitespace() {
        let done = cli.ok(&[command, "--help"]);
        assert!(done.stdout.contains("Example") && done.stdout.contains(&format!("plugward {command}")), "{command}");
    }
    assert_eq!(cli.ok(&["--version"]).stdout, format!("plugward {}\n", env!("CARGO_PKG_VERSION")));
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(cli.ok(&["completion", shell]).stdout.contains("plugward"), "{shell}");
    }
    cli.ends(2, &["completion", "tcsh"]);
}

/// Colour goes where it is wanted: not into files, not where the user said no.
#[test]
fn colour_follows_the_conventions() {
    let plain = |cli: &Cli, flags: &[&str]| {
        for arguments in [&["doctor"][..], &["info", "fix"], &["info", "nope"], &["list"], &["--help"], &["nope"]] {
            let done = cli.run(&[flags, arguments].concat());
            assert!(!done.stdout.contains(ESC) && !done.stderr.contains(ESC), "{flags:?} {arguments:?}");
        }
    };
    let cli = Cli::new();
    cli.enable(&Fixture::normal("fix"));
    plain(&cli, &[]);
    let forced = cli.variable("CLICOLOR_FORCE", "1");
    assert!(forced.ok(&["doctor"]).stdout.contains(ESC));
    plain(&forced, &["--no-color"]);
    plain(&forced.variable("NO_COLOR", "1").variable("CLICOLOR_FORCE", ""), &[]);
}

#[test]
fn results_and_hints_are_on_different_streams_and_hints_can_be_left_out() {
    let cli = Cli::new();
    cli.enable(&Fixture::normal("fix"));
    let call = cli.ok(&["call", "fix.echo", r#"{"text":"x"}"#]);
    assert!(serde_json::from_str::<serde_json::Value>(&call.stdout).is_ok(), "{}", call.stdout);
    assert_eq!(call.stdout.lines().count(), 1);
    assert_eq!(cli.ok(&["call", "fix.echo", r#"{"text":"x"}"#, "-q"]).stderr, "");
    assert_ne!(cli.ends(3, &["info", "nope", "-q"]).stderr, "", "failures are told all the same");
}

/// `plugward ... | head` is no failure.
#[test]
fn a_closed_pipe_is_no_failure() {
    let cli = Cli::new();
    for arguments in [&["completion", "bash"][..], &["--help"], &["doctor"], &["list", "--json"]] {
        let mut child = cli.command(arguments).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let done = super::finish(child, b"");
        assert_eq!((done.code, done.stderr.contains("panicked")), (0, false), "{arguments:?}: {}", done.stderr);
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child = cli.command(&["completion", "bash"]).stdout(full).spawn().unwrap();
    assert_eq!(wait(&mut child).code(), Some(1), "a full disk is one");
}
