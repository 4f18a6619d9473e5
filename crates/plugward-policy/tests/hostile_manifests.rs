//! Manifests that must not load, and what their author is told. Every one is refused in bounded
//! time with a position, whatever it tries.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail the test")]

use plugward_policy::{MANIFEST_BYTES_MAX, ManifestError, parse_manifest};

const LEAST: &str = "\
id: demo
name: Demo
version: 1.0.0
backend:
  type: mcp
  transport: stdio
  command: server
";

fn refused(text: &str) -> ManifestError {
    let error = parse_manifest(text, "plugin.yaml").expect_err("the manifest must be refused");
    for finding in error.diagnostics() {
        let shown = finding.to_string();
        assert!(!shown.contains(char::is_control), "{shown:?}");
        assert!(shown.len() < 1_000, "{} bytes: {shown:.200}", shown.len());
        assert!(!finding.message.ends_with('.'), "{shown}");
        // Only findings about the file as a whole have no position.
        assert!(finding.line.is_some() || finding.path.is_empty(), "{shown}");
    }
    error
}

fn first(text: &str) -> String {
    let error = refused(text);
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

// B078: one mistake never hides another.
#[test]
fn every_problem_of_a_file_is_reported_at_once_in_order() {
    let text = "\
id: Demo!
name: ''
versoin: 1
permissions: [notes, notes.read, Notes.Read]
backend:
  type: mcp
  transport: stdio
  comand: server
  args: [a, {b: c}, [d]]
  env: {1BAD: x, GOOD: y, ALSO: [z]}
  secret_env: [GOD]
  startup_timeout_seconds: 0
  tool_timeout_seconds: 601
  stdout: srtict
  max_message_bytes: 1
tools: {allow: ['a b']}
sandbox: {minimum_level: fulll}
extra: 1
";
    let shown = refused(text).to_string();
    let lines: Vec<&str> = shown.lines().collect();
    let starts = [
        "plugin.yaml:1:5: id: plugin id `Demo!` is not valid",
        "plugin.yaml:2:7: name: expected text, found only blanks",
        "plugin.yaml:3:1: versoin: unknown key, did you mean `version`?",
        "plugin.yaml:4:15: permissions[0]: permission `notes` is not valid",
        "plugin.yaml:4:34: permissions[2]: permission `Notes.Read` is not valid",
        "plugin.yaml:8:3: backend.comand: unknown key, did you mean `command`?",
        "plugin.yaml:9:13: backend.args[1]: expected text, found a map",
        "plugin.yaml:9:21: backend.args[2]: expected text, found a list",
        "plugin.yaml:10:9: backend.env.1BAD: variable name `1BAD` is not valid",
        "plugin.yaml:10:33: backend.env.ALSO: expected text, found a list",
        "plugin.yaml:11:16: backend.secret_env[0]: variable `GOD` is not set in `backend.env`, did you mean `GOOD`?",
        "plugin.yaml:12:28: backend.startup_timeout_seconds: expected a whole number from 1 to 60, found `0`",
        "plugin.yaml:13:25: backend.tool_timeout_seconds: expected a whole number from 1 to 600, found `601`",
        "plugin.yaml:14:11: backend.stdout: unknown value `srtict`, did you mean `strict`?",
        "plugin.yaml:15:22: backend.max_message_bytes: expected a whole number from 65536 to 67108864",
        "plugin.yaml:16:17: tools.allow[0]: tool pattern `a b` is not valid",
        "plugin.yaml:17:26: sandbox.minimum_level: unknown value `fulll`, did you mean `full`?",
        "plugin.yaml:18:1: extra: unknown key",
    ];
    assert_eq!(lines.len(), starts.len(), "{shown}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}\nexpected {start}");
    }
}

// B078: a broken file is never read as an empty one, and the line is named.
#[test]
fn broken_syntax_is_named_with_its_line() {
    for (text, line) in [
        ("id: demo\nname: Demo\nversion: 1\nbackend: {\n", 4),
        ("id: demo\nname: [a\nversion: 1\n", 3),
        ("id: demo\n\tname: x\n", 1),
        ("id: demo\nname: \"open\n", 2),
        ("id: demo\nname: a: b\n", 2),
        ("- a\nb: c\n", 2),
        ("id: @demo\n", 1),
        ("id: demo\nname: *nothing\n", 2),
        ("%YAML 1.1\n---\nid: demo\n", 1),
        ("{\"id\": \"demo\",, }", 1),
        ("\u{0}\u{1}\u{2}", 1),
    ] {
        let error = refused(text);
        let finding = &error.diagnostics()[0];
        assert!(finding.message.starts_with("not valid yaml: "), "{text:?}: {finding}");
        assert!(finding.line == Some(line), "{text:?}: {finding}");
    }
}

#[test]
fn files_without_a_map_are_refused() {
    for (text, wanted) in [
        ("", "plugin.yaml: file is empty"),
        ("# only a comment\n", "plugin.yaml: file is empty"),
        ("\u{feff}", "plugin.yaml: file is empty"),
        ("- id: demo\n", "plugin.yaml:1:1: expected a map of keys, found a list"),
        ("just words", "plugin.yaml:1:1: expected a map of keys, found text"),
        ("~", "plugin.yaml:1:1: expected a map of keys, found nothing"),
        ("[]", "plugin.yaml:1:1: expected a map of keys, found a list"),
    ] {
        assert_eq!(first(text), wanted, "{text:?}");
    }
}

// B078: a key given twice is a mistake, not a choice of the parser's.
#[test]
fn duplicate_keys_are_named_wherever_they_are() {
    let text = format!("{LEAST}  command: other\n  env: {{A: x, A: y}}\nid: again\n");
    let shown = refused(&text).to_string();
    let lines: Vec<&str> = shown.lines().collect();
    let wanted = [
        "plugin.yaml:8:3: backend.command: duplicate key, first given in line 7",
        "plugin.yaml:9:15: backend.env.A: duplicate key, first given in line 9",
        "plugin.yaml:10:1: id: duplicate key, first given in line 1",
    ];
    assert_eq!(lines, wanted);
    let both = format!("plugin_id: demo\n{LEAST}");
    assert!(first(&both).contains("plugin_id: means the same as `id`"));
}

#[test]
fn tags_documents_merges_and_odd_keys_are_refused() {
    let tag = LEAST.replace("name: Demo", "name: !env HOME");
    assert!(first(&tag).contains(":2:12: name: tag `!env` is not allowed"), "{}", first(&tag));
    let binary = LEAST.replace("name: Demo", "name: !!binary SGk=");
    assert!(first(&binary).contains("name: tag"));
    let two = format!("{LEAST}---\n{LEAST}");
    assert_eq!(first(&two), "plugin.yaml:8:1: file holds more than one yaml document");
    let merge = format!("{LEAST}  <<: {{args: [x]}}\n");
    assert!(first(&merge).contains("backend.<<: merge keys are not allowed"));
    assert!(first("? [a, b]\n: c\n").contains("key is a list or a map, expected text"));
    assert!(first("{{a: b}: c}").contains("key is a list or a map"));
}

/// Texts built to cost much more to read than to write.
fn bombs() -> Vec<(&'static str, String)> {
    let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let below = format!("*a{}, ", level - 1).repeat(9);
        laughs.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    let many = "x, ".repeat(2_000);
    let mut nested = String::from("a0: &a0 [[[[[[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]]]]]]\n");
    for level in 1..60 {
        nested.push_str(&format!("a{level}: &a{level} [[[[[[[[[[*a{}]]]]]]]]]]\n", level - 1));
    }
    vec![
        ("billion laughs", laughs),
        ("quadratic", format!("a: &a [{many}]\nb: [{}]\n", "*a, ".repeat(60))),
        ("many aliases", format!("a: &a x\nb: [{}]\n", "*a, ".repeat(1_000))),
        ("alias of itself", "a: &a [*a]\n".to_owned()),
        ("depth through aliases", nested),
        ("flow depth", "[".repeat(20_000)),
        ("flow map depth", "{a: ".repeat(20_000)),
        ("block depth", (0..300).map(|depth| " ".repeat(depth) + "a:\n").collect()),
        ("dash depth", "- ".repeat(20_000)),
        ("many keys", (0..20_000).map(|key| format!("k{key}: v\n")).collect()),
        ("many errors", (0..4_000).map(|key| format!("k{key}: v\n")).collect()),
        ("huge key", format!("{}: v\n", "k".repeat(200_000))),
        ("huge scalar", format!("{LEAST}  cwd: {}\n", "x".repeat(200_000))),
        ("huge number", format!("{LEAST}  max_queued_calls: {}\n", "9".repeat(100_000))),
        ("huge list", format!("{LEAST}  args: [{}]\n", "a, ".repeat(5_000))),
        ("comments", format!("{}- a\n", "# c\n".repeat(50_000))),
    ]
}

// A file somebody downloads must not hang or exhaust the program that only looks at it.
#[test]
fn bombs_are_refused_in_bounded_time() {
    for (name, text) in bombs() {
        let begun = std::time::Instant::now();
        let error = refused(&text);
        assert!(error.diagnostics().len() <= 201, "{name}");
        // Generous: the slowest takes a few hundredths of a second even unoptimised.
        assert!(begun.elapsed().as_secs() < 20, "{name} took {:?}", begun.elapsed());
    }
}

#[test]
fn a_file_past_the_size_limit_is_not_read_at_all() {
    let large = format!("{LEAST}#{}", "x".repeat(MANIFEST_BYTES_MAX));
    assert!(first(&large).starts_with("plugin.yaml: file has "));
    let filler = MANIFEST_BYTES_MAX - LEAST.len() - 2;
    let largest = format!("{LEAST}#{}\n", "x".repeat(filler));
    assert_eq!(largest.len(), MANIFEST_BYTES_MAX);
    assert!(parse_manifest(&largest, "plugin.yaml").is_ok());
}

#[test]
fn wrong_types_and_numbers_are_refused() {
    for (line, wanted) in [
        ("args: --flag", "backend.args: expected a list, found text"),
        ("args: {a: b}", "backend.args: expected a list, found a map"),
        ("args:", "backend.args: expected a list, found nothing"),
        ("env: [A=b]", "backend.env: expected a map of names and values, found a list"),
        ("env: {A: {b: c}}", "backend.env.A: expected text, found a map"),
        ("env: {A=B: c}", "backend.env.A=B: variable name `A=B` is not valid"),
        ("env: {'': c}", "backend.env.: variable name `` is not valid"),
        ("cwd: [a]", "backend.cwd: expected text, found a list"),
        ("args: [\"a\\0b\"]", "backend.args[0]: text holds a NUL character"),
        ("args: ['${unclosed']", "backend.args[0]: reference `${unclosed` is not valid"),
        ("env: {A: '${input:key}'}", "backend.env.A: reference `${input:key}` is not valid"),
        ("startup_timeout_seconds: '5'", "found `5` in quotes"),
        ("startup_timeout_seconds: 5.5", "found `5.5`"),
        ("startup_timeout_seconds: -1", "found `-1`"),
        ("startup_timeout_seconds: 1e1", "found `1e1`"),
        ("startup_timeout_seconds: 010", "found `010`"),
        ("startup_timeout_seconds: 0x10", "found `0x10`"),
        ("startup_timeout_seconds: 61", "expected a whole number from 1 to 60, found `61`"),
        ("startup_timeout_seconds: 99999999999999999999999", "found `99999999999999999999999`"),
        ("startup_timeout_seconds: ten", "found `ten`"),
        ("startup_timeout_seconds:", "expected a whole number from 1 to 60, found nothing"),
        ("startup_timeout_seconds: [1]", "expected a whole number from 1 to 60, found a list"),
        ("list_timeout_seconds: 61", "found `61`"),
        ("max_result_bytes: 1023", "expected a whole number from 1024 to 16777216"),
        ("max_concurrent_calls: 0", "expected a whole number from 1 to 256"),
        ("max_queued_calls: 4097", "expected a whole number from 0 to 4096"),
        ("restart: always", "unknown value `always`, use one of on-failure, never"),
        ("stdout: [strict]", "backend.stdout: expected text, found a list"),
    ] {
        let text = format!("{LEAST}  {line}\n");
        let shown = first(&text);
        assert!(shown.starts_with("plugin.yaml:8:"), "{line}: {shown}");
        assert!(shown.contains(wanted), "{line}: {shown}");
    }
}

#[test]
fn hostile_identity_is_refused() {
    for (from, to, wanted) in [
        ("id: demo", "id: ../up", "id: plugin id `../up` is not valid"),
        ("id: demo", "id: démo", "id: plugin id `démo` is not valid"),
        ("id: demo", "id: dеmo", "id: plugin id"),
        ("id: demo", "id: ａｂｃ", "id: plugin id"),
        ("id: demo", "id: 'a/b'", "id: plugin id"),
        ("id: demo", "id: [demo]", "id: expected text, found a list"),
        ("id: demo\n", "", "id: missing key"),
        ("name: Demo\n", "", "name: missing key"),
        ("version: 1.0.0\n", "", "version: missing key"),
        ("  command: server\n", "", "backend.command: missing key"),
        ("command: server", "command: '  '", "backend.command: expected an executable"),
        ("command: server", "command: [a]", "backend.command: expected text, found a list"),
        ("name: Demo", "name: \"a\\e[2Jb\"", "name: text holds control or invisible characters"),
        ("name: Demo", "name: \"a\\u202Eb\"", "name: text holds control or invisible characters"),
        ("name: Demo", "name: \"a\\u200Bb\"", "name: text holds control or invisible characters"),
        ("version: 1.0.0", "version: \"1\\n2\"", "version: text holds control"),
        ("backend:\n", "backend: x\nold:\n", "backend: expected a map of keys, found text"),
    ] {
        let shown = refused(&LEAST.replace(from, to)).to_string();
        assert!(shown.contains(wanted), "{to}: {shown}");
    }
    let long = refused(&LEAST.replace("Demo", &"x".repeat(81))).to_string();
    assert!(long.contains("name: text has 81 characters, at most 80 are allowed"));
}

// A flood of warnings must not push the one error that matters out of sight.
#[test]
fn warnings_do_not_crowd_out_errors() {
    let secrets = "--token=abcdef123, ".repeat(200);
    let text = format!("{LEAST}  args: [{secrets}]\nsandbox: {{minimum_level: fulll}}\n");
    let shown = refused(&text).to_string();
    assert!(shown.contains("unknown value `fulll`"), "{shown}");
}
