//! Wrong, missing, huge and hostile input: a documented code and a text that shows it, never a crash or a trick on the
//! terminal.

use super::{Cli, Done};
use crate::support::{Fixture, Package};

/// Longest answer to a mistake that a person can be expected to read.
const ERROR_BYTES_MAX: usize = 4096;

#[track_caller]
fn is_tame(done: &Done, what: &str) {
    let text = format!("{}{}", done.stdout, done.stderr);
    assert!(!text.contains("panicked"), "{what}: {text}");
    let trick = text.chars().find(|c| (c.is_control() && *c != '\n') || ('\u{202a}'..='\u{202e}').contains(c));
    assert_eq!(trick, None, "{what}: {text:?}");
    assert!(text.len() <= ERROR_BYTES_MAX, "{what}: {} bytes", text.len());
    assert!(!text.trim().is_empty(), "{what}: a failure says why");
}

#[test]
fn no_name_hurts_any_command() {
    let cli = Cli::new();
    let long = "a".repeat(100_000);
    let names = [
        "",
        " ",
        "../../etc/passwd",
        "/",
        ".",
        "a/b",
        "\u{1b}[31mred",
        "a\nb",
        "\u{202e}cba",
        "A",
        "ä",
        "x;rm -rf",
        "%00",
        &long,
    ];
    for name in names {
        let commands: [&[&str]; 13] = [
            &["review", name],
            &["approve", name],
            &["approve", name, "--digest", name],
            &["enable", name],
            &["disable", name],
            &["restart", name],
            &["remove", name],
            &["info", name],
            &["tools", name],
            &["call", name],
            &["logs", name],
            &["permissions", name, "--grant", name],
            &["trace", "show", name],
        ];
        for arguments in commands {
            let done = cli.run(arguments);
            let what = format!("{} {name:.20?}", arguments[0]);
            assert!([2, 3].contains(&done.code), "{what}: {} {:.300}", done.code, done.stderr);
            is_tame(&done, &what);
        }
        let others: [&[&str]; 5] = [
            &["answer", name, "allow"],
            &["answer", "permission_0", name],
            &[name, "x"],
            &["serve", "--http", name],
            &["call", "a.b", "--timeout", name],
        ];
        for arguments in others {
            let done = cli.run(arguments);
            assert!([2, 3].contains(&done.code), "{arguments:.20?}: {} {:.300}", done.code, done.stderr);
            if name != long {
                is_tame(&done, arguments[0]);
            }
        }
    }
    assert!(cli.json(&["list"])["plugins"].as_array().unwrap().is_empty(), "nothing of all this did anything");
}

#[test]
fn no_package_hurts_an_install() {
    let cli = Cli::new();
    let good = Fixture::normal("fix").manifest();
    let huge = format!("{good}description: {}\n", "x".repeat(3_000_000));
    let manifests = [
        ("empty", String::new()),
        ("no map", "- a\n- b\n".to_owned()),
        ("no YAML", "id: [unclosed\n".to_owned()),
        ("tab", "id:\tfix\n\tname: x\n".to_owned()),
        ("unknown key", format!("{good}colour: red\n")),
        ("no program", good.replace("command: mcp-fixture", "command: ''")),
        ("bad id", good.replace("id: fix", "id: '../../etc'")),
        ("escape in the name", good.replace("name: Fixture fix", "name: \"\\e[2J\\u202e\"")),
        ("unknown permission", good.replace("notes.read", "notes.raed")),
        ("huge", huge),
        ("alias bomb", format!("{good}x: &a [1]\ny: [{}]\n", "*a,".repeat(50_000))),
    ];
    for (what, manifest) in manifests {
        let package = Package::with_manifest(&manifest);
        let done = cli.run(&["install", package.path().to_str().unwrap()]);
        assert_eq!(done.code, 1, "{what}: {}", done.stderr);
        is_tame(&done, what);
    }
    let empty = tempfile::tempdir().unwrap();
    for source in [empty.path().to_str().unwrap(), "/dev/null", "/proc/self/mem", "\u{1b}[2J", "", &"x".repeat(5000)] {
        let done = cli.run(&["install", source]);
        assert!([1, 2].contains(&done.code), "{source:.40}: {}", done.stderr);
        assert!(!done.stderr.contains('\u{1b}') && !done.stderr.contains("panicked"), "{:?}", done.stderr);
    }
    let other = Fixture::normal("fix").package();
    let wrong = cli.ends(1, &["install", other.path().to_str().unwrap(), "--id", "else"]);
    assert!(wrong.stderr.contains("package is plugin `fix`, not `else`"), "{}", wrong.stderr);
    assert!(cli.json(&["list"])["plugins"].as_array().unwrap().is_empty());
}

#[test]
fn no_arguments_hurt_a_call() {
    let cli = Cli::new();
    cli.enable(&Fixture::normal("fix"));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let wide = format!(r#"{{"text":"{}"}}"#, "x".repeat(3_000_000));
    let inputs: [(i32, &str); 8] = [
        (2, ""),
        (2, "null null"),
        (2, "[]"),
        (2, "7"),
        (2, r#"{"text":"a","text":"b"}"#),
        (2, r#"{"text":NaN}"#),
        (2, &deep),
        (1, &wide),
    ];
    for (code, input) in inputs {
        let done = cli.run_with_input(&["call", "fix.echo", "-"], input.as_bytes());
        assert_eq!(done.code, code, "{input:.40}: {:.400}", done.stderr);
        is_tame(&done, input.get(..10).unwrap_or(input));
    }
    let secret = cli.ends(2, &["call", "fix.echo", r#"{"text": hunter2-secret"#]);
    assert!(!secret.stderr.contains("hunter2"), "arguments may be secret: {}", secret.stderr);
}

/// A name that is no text in any encoding still gets an answer.
#[test]
fn bytes_that_are_no_text_are_refused() {
    use std::os::unix::ffi::OsStringExt as _;
    let cli = Cli::new();
    let bytes = std::ffi::OsString::from_vec(b"\xff\xfe".to_vec());
    for command in ["info", "call", "install"] {
        let done = cli.run(&[std::ffi::OsString::from(command), bytes.clone()]);
        assert!([1, 2].contains(&done.code), "{command}: {}", done.stderr);
        is_tame(&done, command);
    }
}

/// Settings that cannot be read stop every command, with the place of the mistake; the doctor still works.
#[test]
fn broken_settings_are_told_with_their_place() {
    let cli = Cli::new().config("environment = \"development\"\nnamig = \"prefixed\"\n");
    for arguments in [&["list"][..], &["serve"], &["call", "a.b"]] {
        let done = cli.ends(2, arguments);
        assert!(
            done.stderr.contains("config.toml:2:1: unknown setting `namig`; did you mean `naming`?"),
            "{}",
            done.stderr
        );
    }
    let doctor = cli.ends(1, &["doctor"]);
    assert!(doctor.stdout.contains("[XX] settings") && doctor.stdout.contains("fix:"), "{}", doctor.stdout);
    cli.ok(&["demo"]);
    cli.ok(&["completion", "bash"]);
}

/// A home that cannot be used is said to be, not fallen over.
#[test]
fn an_unusable_home_is_told() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for home in [file.path().to_str().unwrap(), "/dev/null/x"] {
        let cli = Cli::new().variable("PLUGWARD_HOME", home);
        for arguments in [&["list"][..], &["serve"], &["doctor"]] {
            let done = cli.run(arguments);
            assert!([1, 2].contains(&done.code), "{home} {arguments:?}: {} {}", done.code, done.stderr);
            assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
        }
    }
    let cli = Cli::new();
    cli.ok(&["list"]);
    // Without the write-ahead log, which would mend it.
    let _ = std::fs::remove_file(cli.home().join("plugward.db-wal"));
    std::fs::write(cli.home().join("plugward.db"), "this is no database ".repeat(500)).unwrap();
    let done = cli.ends(1, &["list"]);
    assert!(done.stderr.contains("HOME_UNUSABLE"), "{}", done.stderr);
    assert!(cli.ends(1, &["doctor"]).stdout.contains("[XX] home"));
}
