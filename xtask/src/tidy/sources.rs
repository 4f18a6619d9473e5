//! Owns the rules about what source code may say: `unsafe` and starting processes in one crate only, nothing
//! unfinished, no lint switched off without a reason, nothing unbounded.

use super::tokens::Code;
use super::{Finding, SourceFile, Tree};

/// The one crate that talks to the kernel.
const SANDBOX: &str = "crates/plugward-sandbox/";

/// Places outside the sandbox crate and outside tests that start processes, each with the reason.
const MAY_SPAWN: &[(&str, &str)] = &[
    ("xtask/", "it runs the build, the tests and other people's clients"),
    ("fixtures/mcp-fixture/", "it misbehaves on purpose, which includes starting children"),
];

/// `unsafe` outside the sandbox crate, tests included.
pub(crate) fn unsafe_outside_sandbox(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust().filter(|file| !file.path.starts_with(SANDBOX)) {
        let code = Code::of(&file.text);
        for (at, _) in code.words().filter(|(_, word)| *word == "unsafe") {
            let fix = "move it into plugward-sandbox behind a safe function";
            found.push(Finding::new(&file.path, code.line(at), "`unsafe` outside plugward-sandbox", fix));
        }
    }
    found
}

/// Starting processes outside the sandbox crate, tests and the list above.
pub(crate) fn spawning_outside_sandbox(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust() {
        let excused = MAY_SPAWN.iter().any(|(path, _)| file.path.starts_with(path));
        if excused || file.path.starts_with(SANDBOX) || is_test_file(file) {
            continue;
        }
        let code = Code::of(&file.text);
        let tests = code.test_ranges();
        for at in spawning(&code).into_iter().filter(|at| !tests.iter().any(|range| range.contains(at))) {
            let message = "a process is started outside plugward-sandbox";
            let fix = "let plugward-sandbox start it, or add the place with its reason to MAY_SPAWN in xtask";
            found.push(Finding::new(&file.path, code.line(at), message, fix));
        }
    }
    found
}

/// Offsets where `process::Command`, `tokio::process` or a system call that starts a program is named, also inside a
/// group of a `use` declaration.
fn spawning(code: &Code) -> Vec<usize> {
    let words: Vec<(usize, &str)> = code.words().collect();
    let mut found = Vec::new();
    for (index, &(at, word)) in words.iter().enumerate() {
        let names_it = match word {
            "process" => follows(code, at + word.len(), "Command") || previous_is(code, &words, index, "tokio"),
            "tokio" => follows(code, at + word.len(), "process"),
            "posix_spawn" | "posix_spawnp" | "execve" | "execvp" | "execveat" => true,
            _ => false,
        };
        if names_it {
            found.push(at);
        }
    }
    found
}

/// Whether `::name`, or `::{..}` with `name` in the group, follows at `from`.
fn follows(code: &Code, from: usize, name: &str) -> bool {
    let colons = code.after_blanks(from);
    let Some(rest) = code.text.get(colons..).and_then(|rest| rest.strip_prefix("::")) else {
        return false;
    };
    let next = code.after_blanks(colons + 2);
    if code.text.as_bytes().get(next) == Some(&b'{') {
        let end = code.closing(next);
        return code.words().any(|(at, word)| (next..end).contains(&at) && word == name);
    }
    rest.trim_start()
        .strip_prefix(name)
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Whether the word before is `name`, joined by `::`. Catches `tokio::process` when only the second half matched.
fn previous_is(code: &Code, words: &[(usize, &str)], index: usize, name: &str) -> bool {
    let Some(&(at, word)) = index.checked_sub(1).and_then(|index| words.get(index)) else {
        return false;
    };
    // The pair itself is reported once, at its first word.
    word == name && !follows(code, at + word.len(), "process")
}

fn is_test_file(file: &SourceFile) -> bool {
    file.path.split('/').any(|part| matches!(part, "tests" | "tests.rs" | "benches"))
}

/// Unfinished code, tests that are switched off, lints switched off without reason, unbounded channels.
pub(crate) fn unfinished(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust() {
        let code = Code::of(&file.text);
        let mut report =
            |at: usize, message: String, fix: &str| found.push(Finding::new(&file.path, code.line(at), message, fix));
        for (at, word) in code.words() {
            let after = code.text[at + word.len()..].trim_start();
            match word {
                "todo" | "unimplemented" if after.starts_with('!') => {
                    report(at, format!("`{word}!` is unfinished code"), "finish it, or leave the feature out");
                }
                "unbounded_channel" | "UnboundedSender" | "UnboundedReceiver" => {
                    report(
                        at,
                        format!("`{word}` has no bound"),
                        "use a bounded channel and decide what happens when it is full",
                    );
                }
                "channel" if is_std_unbounded(&code, at) => {
                    report(at, "`mpsc::channel` has no bound".into(), "use `sync_channel` with a bound");
                }
                _ => {}
            }
        }
        for (at, attribute) in code.attributes() {
            if let Some((message, fix)) = bad_attribute(attribute) {
                report(at, message, fix);
            }
        }
    }
    found
}

/// `mpsc::channel()`: the standard library's unbounded one takes no argument, tokio's bounded one takes its bound.
fn is_std_unbounded(code: &Code, at: usize) -> bool {
    let Some(mut rest) = code.text[..at].trim_end().strip_suffix("mpsc::").map(|_| code.text[at..].trim_start()) else {
        return false;
    };
    rest = rest.strip_prefix("channel").unwrap_or(rest).trim_start();
    if let Some(generics) = rest.strip_prefix("::<") {
        rest = generics.split_once(">(").map_or("", |(_, _rest)| "(").trim_start();
        return rest.starts_with('(')
            && generics.split_once(">(").is_some_and(|(_, rest)| rest.trim_start().starts_with(')'));
    }
    rest.strip_prefix('(').is_some_and(|rest| rest.trim_start().starts_with(')'))
}

fn bad_attribute(attribute: &str) -> Option<(String, &'static str)> {
    let words: Vec<&str> =
        attribute.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()).collect();
    let has = |name: &str| words.contains(&name);
    if has("should_panic") {
        return Some(("`should_panic` hides which line panics".into(), "test the error that is returned"));
    }
    if words.first() == Some(&"ignore") || (has("cfg_attr") && has("ignore")) {
        return Some(("`ignore` switches a test off".into(), "make the test run everywhere, or take it out"));
    }
    let switch = words.iter().find(|word| matches!(**word, "allow" | "expect"))?;
    let is_switch = words.first() == Some(switch) || has("cfg_attr");
    (is_switch && !has("reason"))
        .then(|| (format!("`{switch}` without a reason"), "add `reason = \"...\"`, or follow the lint"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[Finding]) -> Vec<(&str, usize)> {
        findings.iter().map(|finding| (finding.path.as_str(), finding.line)).collect()
    }

    #[test]
    fn unsafe_is_found_outside_the_sandbox_only() {
        let tree = Tree::of(&[
            (
                "crates/plugward-host/src/a.rs",
                "// unsafe\nfn a() { unsafe { x() } }\nlet s = \"unsafe\"; #![forbid(unsafe_code)]",
            ),
            ("crates/plugward-sandbox/src/a.rs", "unsafe fn a() {}"),
        ]);
        assert_eq!(lines(&unsafe_outside_sandbox(&tree)), [("crates/plugward-host/src/a.rs", 2)]);
    }

    #[test]
    fn each_way_to_start_a_process_is_found() {
        for bad in [
            "use std::process::Command;",
            "use std::process::{self, Command};",
            "use std::process::{Child, Command as Program};",
            "let c = std::process::Command::new(x);",
            "use tokio::process::Child;",
            "use tokio::{io, process};",
            "use std::{fs, process::Command};",
            "libc::execve(a, b, c);",
        ] {
            let tree = Tree::of(&[("crates/plugward-host/src/a.rs", bad)]);
            assert_eq!(spawning_outside_sandbox(&tree).len(), 1, "{bad}");
        }
        for good in [
            "use clap::Command;",
            "std::process::exit(1); let id = std::process::id();",
            "use std::process::ExitCode; use crate::Command;",
            "// std::process::Command\nlet s = \"tokio::process\";",
            "use tokio::{io, sync}; use std::process::{ExitCode, Stdio};",
            "fn a() {}\n#[cfg(test)]\nmod tests { use std::process::Command; }",
        ] {
            let tree = Tree::of(&[("crates/plugward-host/src/a.rs", good)]);
            assert_eq!(spawning_outside_sandbox(&tree), [], "{good}");
        }
    }

    #[test]
    fn sandbox_tests_and_named_places_may_start_processes() {
        let text = "use std::process::Command;";
        for path in ["crates/plugward-sandbox/src/a.rs", "crates/plugward/tests/cli.rs", "xtask/src/process.rs"] {
            assert_eq!(spawning_outside_sandbox(&Tree::of(&[(path, text)])), [], "{path}");
        }
    }

    #[test]
    fn unfinished_code_is_found() {
        for bad in [
            "fn a() { todo!() }",
            "fn a() { unimplemented!(\"x\") }",
            "#[should_panic(expected = \"x\")] fn a() {}",
            "#[ignore] fn a() {}",
            "#[ignore = \"slow\"] fn a() {}",
            "#[cfg_attr(windows, ignore)] fn a() {}",
            "#[allow(dead_code)] fn a() {}",
            "#![allow(clippy::all)]",
            "#[expect(unused)] fn a() {}",
            "#[cfg_attr(test, allow(unused))] fn a() {}",
            "let x = tokio::sync::mpsc::unbounded_channel();",
            "let x = std::sync::mpsc::channel();",
            "let x = mpsc::channel::<u8>();",
        ] {
            assert_eq!(unfinished(&Tree::of(&[("a.rs", bad)])).len(), 1, "{bad}");
        }
        for good in [
            "// todo!()\nlet s = \"#[ignore]\";",
            "#[allow(dead_code, reason = \"read by the test only\")] fn a() {}",
            "let x = mpsc::channel(8); let y = mpsc::sync_channel(1); let z = mpsc::channel::<u8>(4);",
            "#[serde(rename = \"allow\")] struct A; let todo = 1;",
            "#[error(\"x\")] struct B; fn allow() {}",
        ] {
            assert_eq!(unfinished(&Tree::of(&[("a.rs", good)])), [], "{good}");
        }
    }
}
