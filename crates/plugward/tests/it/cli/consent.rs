//! Nothing but a person at a terminal, or the exact digest, approves anything.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;
use std::time::Instant;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::{Cli, Done, finish};
use crate::support::{Fixture, PATIENCE};

/// A pseudo terminal: our side and the program's.
fn terminal() -> (File, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(ours.as_fd(), Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
    let theirs = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty()).unwrap();
    (File::from(ours), theirs)
}

/// Runs a command at a terminal, and types `answer` once `question` is asked.
fn at_terminal(cli: &Cli, arguments: &[&str], question: &str, answer: &str) -> (Done, String) {
    let (mut ours, theirs) = terminal();
    let mut command = cli.command(arguments);
    command.stdin(Stdio::from(theirs.try_clone().unwrap())).stderr(Stdio::from(theirs));
    let child = command.spawn().unwrap();
    // The command holds further copies of the terminal's other side.
    drop(command);
    let (question, answer) = (question.to_owned(), answer.to_owned());
    let screen = std::thread::spawn(move || {
        let (mut seen, mut buffer, mut typed) = (String::new(), [0_u8; 4096], false);
        let deadline = Instant::now() + PATIENCE;
        // The end of the other side reads as an error.
        while let Ok(read @ 1..) = ours.read(&mut buffer) {
            seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
            if !typed && seen.contains(&question) {
                typed = true;
                ours.write_all(answer.as_bytes()).unwrap();
            }
            assert!(Instant::now() < deadline, "{seen}");
        }
        seen
    });
    let done = finish(child, b"");
    (done, screen.join().unwrap())
}

/// Enter, a slip or a closed terminal must never run somebody's program.
#[test]
fn only_the_id_or_the_word_approves_at_a_terminal() {
    let cli = Cli::new();
    cli.ok(&["install", Fixture::normal("fix").package().path().to_str().unwrap()]);
    for answer in ["\n", "y\n", "yes\n", "Approve\n", "fi\n", "\u{4}"] {
        let (done, seen) = at_terminal(&cli, &["approve", "fix"], "Enter cancels", answer);
        assert_eq!(done.code, 4, "{answer:?}: {seen}");
        assert!(seen.contains("Digest of all this") && seen.contains("nothing was approved"), "{answer:?}: {seen}");
        cli.ends(4, &["enable", "fix"]);
    }
    for word in ["fix\n", "approve\n"] {
        let (done, seen) = at_terminal(&cli, &["approve", "fix"], "Enter cancels", word);
        assert_eq!(done.code, 0, "{word:?}: {seen}");
    }
    cli.ok(&["enable", "fix"]);
}

/// A script is told what to pass, and the digest is not handed to it without a look.
#[test]
fn without_a_terminal_only_the_exact_digest_approves() {
    let cli = Cli::new();
    cli.ok(&["install", Fixture::normal("fix").package().path().to_str().unwrap()]);
    let digest = cli.json(&["review", "fix"])["digest"].as_str().unwrap().to_owned();
    let refused = cli.run_with_input(&["approve", "fix"], b"fix\n");
    assert_eq!(refused.code, 4, "docs/errors.md: what needs consent");
    assert!(refused.stderr.contains("plugward approve fix --digest sha256:"), "{}", refused.stderr);
    assert!(!refused.stderr.contains(&digest));
    let other = format!("sha256:{}", "0".repeat(64));
    let stale = cli.ends(4, &["approve", "fix", "--digest", &other]);
    assert!(stale.stderr.contains("MCP_TRUST_DIGEST_STALE"), "{}", stale.stderr);
    for malformed in ["", "0", "sha256:", "sha256:xyz", &digest.to_uppercase(), &digest[7..], &format!("{digest}0")] {
        cli.ends(2, &["approve", "fix", "--digest", malformed]);
    }
    cli.ends(4, &["enable", "fix"]);
    cli.ok(&["approve", "fix", "--digest", &digest]);
    cli.ok(&["enable", "fix"]);
}

/// The permission of a tool that is to be asked for reaches the person who runs the call.
#[test]
fn a_call_that_needs_permission_asks_at_the_terminal() {
    let cli = Cli::new().config("[permissions]\n\"notes.read\" = \"ask\"\n");
    cli.enable(&Fixture::normal("fix").backend("tool_timeout_seconds: 30"));
    let call = ["call", "fix.echo", r#"{"text":"asked"}"#];
    let (done, seen) = at_terminal(&cli, &call, "Enter refuses", "yes\n");
    assert_eq!((done.code, done.stdout.contains("asked")), (0, true), "{seen}");
    let (done, seen) = at_terminal(&cli, &call, "Enter refuses", "\n");
    assert_eq!((done.code, seen.contains("PERMISSION_DENIED")), (4, true), "{seen}");
    let nobody = cli.ends(4, &call);
    assert!(nobody.stderr.contains("nobody can be asked here"), "{}", nobody.stderr);
}

/// Requirement 104: without the development environment nothing of a plugin runs outside of a sandbox, approved or not.
#[test]
fn production_starts_nothing_unconfined() {
    for word in ["production", "", "Development"] {
        let cli = Cli::new().variable("PLUGWARD_ENVIRONMENT", word);
        let id = cli.approve(&Fixture::normal("fix").unconfined().package());
        let refused = cli.ends(4, &["enable", &id]);
        assert!(refused.stderr.contains("MCP_SANDBOX_REQUIRED"), "{word:?}: {}", refused.stderr);
        // Positive control: what asks for its sandbox starts in it.
        let kept = cli.approve(&Fixture::normal("kept").package());
        cli.ends(0, &["enable", &kept]);
    }
}

/// Requirement 94: what a plugin may touch, and what it does not get, stands in the review and in `permissions`.
#[test]
fn access_is_told_in_sentences() {
    let cli = Cli::new();
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    let id = cli.approve(&Fixture::normal("fix").permission(&format!("fs.write:{place}")).package());
    for arguments in [["review", id.as_str()], ["permissions", id.as_str()]] {
        let shown = cli.ends(0, &arguments).stdout;
        assert!(shown.contains(&format!("may read, change and delete {place}")), "{shown}");
        assert!(shown.contains("gets no network, not even services of this machine"), "{shown}");
        assert!(shown.contains("2 GiB of memory") && shown.contains("full"), "{shown}");
    }
    assert!(cli.ends(0, &["review", id.as_str()]).stdout.contains("shared read-only: /"));
}
