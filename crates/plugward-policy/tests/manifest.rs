//! Manifests that load: what they mean, their defaults, and what a person is warned about.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail the test")]

use std::time::Duration;

use plugward_policy::{
    Isolation, ManifestErrorKind, ParsedManifest, ProtocolMode, RestartMode, SandboxLevel, Severity, StdoutMode,
    parse_manifest,
};

/// The example of the format's description, word for word.
const SEED: &str = "\
id: example-mcp
name: Example MCP
version: 1.0.0
permissions:
  - notes.read
contributes:
  tools:
    - example-mcp.search
backend:
  type: mcp
  transport: stdio
  command: uvx
  args: [--isolated, --from, example-mcp==1.2.3, example-mcp]
  startup_timeout_seconds: 60
  tool_timeout_seconds: 30
";

/// The least a manifest needs, ready for more lines of the backend section.
const LEAST: &str = "\
id: demo
name: Demo
version: 1.0.0
backend:
  type: mcp
  transport: stdio
  command: server
";

fn parse(text: &str) -> ParsedManifest {
    parse_manifest(text, "plugin.yaml").unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn with_backend(lines: &str) -> String {
    format!("{LEAST}{lines}")
}

fn errors(text: &str) -> Vec<String> {
    let error = parse_manifest(text, "plugin.yaml").expect_err(text);
    error.to_string().lines().map(str::to_owned).collect()
}

fn warnings(text: &str) -> Vec<String> {
    let found = parse(text).warnings;
    assert!(found.iter().all(|finding| finding.severity == Severity::Warning));
    found.iter().map(|finding| format!("{}: {}", finding.path, finding.message)).collect()
}

// Requirements 27, 30, 34, 37: the format's own example loads, with every field where it belongs.
#[test]
fn the_seeds_example_parses_verbatim() {
    let parsed = parse(SEED);
    let manifest = &parsed.manifest;
    assert_eq!(manifest.id.as_str(), "example-mcp");
    assert_eq!(manifest.name, "Example MCP");
    assert_eq!(manifest.version, "1.0.0");
    assert_eq!(manifest.description, "");
    assert_eq!(manifest.permissions[0].as_str(), "notes.read");
    let tools = manifest.declared_tools.as_ref().unwrap();
    assert_eq!(tools.len(), 1);
    assert_eq!(tools[0].to_string(), "example-mcp.search");
    let backend = &manifest.backend;
    assert_eq!(backend.command, "uvx");
    assert_eq!(backend.args, ["--isolated", "--from", "example-mcp==1.2.3", "example-mcp"]);
    assert_eq!(backend.startup_timeout, Duration::from_secs(60));
    assert_eq!(backend.tool_timeout, Duration::from_secs(30));
    assert_eq!((backend.stdout, backend.protocol), (StdoutMode::Strict, ProtocolMode::Legacy));
    // Pinned, so the only warning is that it fetches at start.
    assert_eq!(parsed.warnings.len(), 1);
    let shown = parsed.warnings[0].to_string();
    assert!(shown.starts_with("plugin.yaml:12:12: warning: backend.command: `uvx` may fetch"));
}

// Requirement 27: a manifest that says little gets the documented defaults.
#[test]
fn defaults_are_the_documented_ones() {
    let manifest = parse(LEAST).manifest;
    let backend = &manifest.backend;
    assert!(manifest.permissions.is_empty() && manifest.declared_tools.is_none());
    assert!(backend.args.is_empty() && backend.env.is_empty() && backend.cwd.is_none());
    assert_eq!(backend.startup_timeout, Duration::from_secs(10));
    assert_eq!(backend.list_timeout, Duration::from_secs(10));
    assert_eq!(backend.tool_timeout, Duration::from_secs(30));
    assert_eq!((backend.stdout, backend.protocol), (StdoutMode::Tolerant, ProtocolMode::Auto));
    assert_eq!(backend.restart, RestartMode::OnFailure);
    assert_eq!(backend.max_message_bytes, 2 * 1024 * 1024);
    assert_eq!(backend.max_result_bytes, 256 * 1024);
    assert_eq!((backend.max_concurrent_calls, backend.max_queued_calls), (32, 128));
    assert_eq!(manifest.min_sandbox_level, SandboxLevel::Full);
    assert!(manifest.tools.permits("anything"));
    assert!(parse(LEAST).warnings.is_empty());
}

#[test]
fn every_key_reaches_its_field() {
    let text = "\
plugin_id: demo
name: Demo
version: 2
description: |
  Two lines
  of text
permissions: [notes.read, notes.write, notes.read]
contributes: {tools: [demo.a, demo.b.c], commands: [], panels: []}
backend:
  type: mcp
  transport: stdio
  command: bin/server
  args:
    - --flag
  env: {ZETA: z, ALPHA: a, MODE: '${MODE:-fast}'}
  secret_env: [ALPHA]
  cwd: work
  startup_timeout_seconds: 5
  tool_timeout_seconds: 600
  list_timeout_seconds: 7
  stdout: tolerant
  restart: never
  protocol: modern
  max_message_bytes: 65536
  max_result_bytes: 1024
  max_concurrent_calls: 1
  max_queued_calls: 0
tools: {allow: ['a', 'b*'], deny: ['b.c']}
sandbox: {minimum_level: partial}
";
    let ParsedManifest { manifest, warnings } = parse(text);
    let backend = &manifest.backend;
    assert_eq!(manifest.version, "2");
    assert_eq!(manifest.description, "Two lines\nof text\n");
    assert_eq!(manifest.permissions.len(), 2);
    assert_eq!(warnings[0].message, "permission `notes.read` is listed twice");
    assert_eq!(manifest.declared_tools.as_ref().unwrap()[1].name().as_str(), "b.c");
    let names: Vec<&str> = backend.env.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["ZETA", "ALPHA", "MODE"]);
    assert_eq!(backend.env[2].1, "${MODE:-fast}");
    assert_eq!(backend.secret_env, ["ALPHA"]);
    assert_eq!(backend.cwd.as_deref(), Some("work"));
    assert_eq!(backend.startup_timeout, Duration::from_secs(5));
    assert_eq!(backend.tool_timeout, Duration::from_secs(600));
    assert_eq!(backend.list_timeout, Duration::from_secs(7));
    assert_eq!((backend.stdout, backend.restart), (StdoutMode::Tolerant, RestartMode::Never));
    assert_eq!(backend.protocol, ProtocolMode::Modern);
    assert_eq!((backend.max_message_bytes, backend.max_result_bytes), (65536, 1024));
    assert_eq!((backend.max_concurrent_calls, backend.max_queued_calls), (1, 0));
    assert!(manifest.tools.permits("a") && !manifest.tools.permits("b.c"));
    assert_eq!(manifest.min_sandbox_level, SandboxLevel::Partial);
}

// B077: what is written is what the program gets. `1.10` as `1.1` installs another version, `no`
// as `false` asks for another country, `0755` as `493` sets another mode.
#[test]
fn scalars_are_passed_as_written() {
    let text = with_backend(
        "  args: [8080, true, 1.10, 0755, no, 1e3, 0x1F, 1_000, .inf, 2001-01-01, '', -0, ~x]
  env:
    PORT: 8080
    FLAG: true
    QUOTED: \"1.10\"
    VERSION: 1.10
    COUNTRY: no
    MODE: 0755
    BIG: 12345678901234567890123
",
    );
    let backend = parse(&text).manifest.backend;
    let args = ["8080", "true", "1.10", "0755", "no", "1e3", "0x1F", "1_000", ".inf", "2001-01-01", "", "-0", "~x"];
    assert_eq!(backend.args, args);
    let values: Vec<&str> = backend.env.iter().map(|(_, value)| value.as_str()).collect();
    let written = ["8080", "true", "1.10", "1.10", "no", "0755", "12345678901234567890123"];
    assert_eq!(values, written);
}

// B077: YAML's nothing is neither an empty text nor the word "null"; the author has to say which.
#[test]
fn an_unquoted_null_is_not_guessed_at() {
    let text = with_backend("  args: [~, null, '', 'null']\n  env:\n    EMPTY:\n");
    let found = errors(&text);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("plugin.yaml:8:10: backend.args[0]: expected text, found nothing"));
    assert!(found[1].contains("backend.args[1]") && found[1].contains("quote it"));
    assert!(found[2].contains("backend.env.EMPTY"));
}

// Requirement 29: nothing in an argument is special.
#[test]
fn shell_characters_in_arguments_are_just_characters() {
    let text = with_backend("  args: ['; touch x', '$(id)', '`id`', '| sh', '$HOME', \"a b\"]\n");
    let args = parse(&text).manifest.backend.args;
    assert_eq!(args, ["; touch x", "$(id)", "`id`", "| sh", "$HOME", "a b"]);
}

// Requirement 28: asking for what this version does not run is not a mistake in the file.
#[test]
fn other_backends_are_unsupported_rather_than_invalid() {
    for (from, to, path) in [
        ("type: mcp", "type: none", "backend.type"),
        ("type: mcp", "type: internal_rpc", "backend.type"),
        ("transport: stdio", "transport: none", "backend.transport"),
        ("  transport: stdio\n", "", "backend.transport"),
    ] {
        let error = parse_manifest(&LEAST.replace(from, to), "plugin.yaml").unwrap_err();
        assert_eq!(error.kind(), ManifestErrorKind::Unsupported, "{to}: {error}");
        assert_eq!(error.diagnostics()[0].path, path);
    }
    let none = "id: a\nname: A\nversion: 1\nbackend: {type: mcp, transport: none}\n";
    let error = parse_manifest(none, "plugin.yaml").unwrap_err();
    assert_eq!(error.kind(), ManifestErrorKind::Unsupported, "{error}");
    let no_backend = parse_manifest("id: a\nname: A\nversion: 1\n", "plugin.yaml").unwrap_err();
    assert_eq!(no_backend.kind(), ManifestErrorKind::Unsupported);
    let commands = format!("{LEAST}contributes: {{commands: [x]}}\n");
    let error = parse_manifest(&commands, "plugin.yaml").unwrap_err();
    assert_eq!(error.kind(), ManifestErrorKind::Unsupported);
    assert!(error.to_string().contains("contributes.commands: not supported by this version"));
    // With anything else wrong, the author has something to fix first.
    let both = LEAST.replace("stdio", "none").replace("1.0.0", "''");
    let error = parse_manifest(&both, "plugin.yaml").unwrap_err();
    assert_eq!(error.kind(), ManifestErrorKind::Invalid);
    let typo = parse_manifest(&LEAST.replace("stdio", "sdtio"), "plugin.yaml").unwrap_err();
    assert_eq!(typo.kind(), ManifestErrorKind::Invalid);
    assert!(typo.to_string().ends_with("unknown value `sdtio`, did you mean `stdio`?"));
}

// B062: files written on Windows or by an editor that adds a byte-order mark load the same.
#[test]
fn bom_and_crlf_change_nothing() {
    let windows = format!("\u{feff}{}", SEED.replace('\n', "\r\n"));
    assert_eq!(parse(&windows).manifest, parse(SEED).manifest);
}

#[test]
fn json_is_accepted_and_means_the_same() {
    let json = r#"{
        "id": "demo", "name": "Demo", "version": "1.0.0",
        "backend": {"type": "mcp", "transport": "stdio", "command": "server",
                    "args": ["\u0061", 8080], "max_queued_calls": 7}
    }"#;
    let manifest = parse(json).manifest;
    assert_eq!(manifest.backend.args, ["a", "8080"]);
    assert_eq!(manifest.backend.max_queued_calls, 7);
}

#[test]
fn anchors_within_the_budget_are_replaced() {
    let text = with_backend("  args: &list [a, b]\n  secret_env: []\n")
        .replace("name: Demo", "name: &n Demo\ndescription: *n");
    assert_eq!(parse(&text).manifest.description, "Demo");
}

// Without this, a first start over a slow line is cut off at ten seconds, every time.
#[test]
fn launchers_get_more_time_unless_the_manifest_says_otherwise() {
    let seconds = |command: &str, rest: &str| {
        let text = LEAST.replace("command: server", &format!("command: {command}")) + rest;
        let parsed = parse(&text);
        (parsed.manifest.backend.startup_timeout.as_secs(), parsed.warnings.len())
    };
    assert_eq!(seconds("npx", "  args: [-y, pkg@1.2.3]\n"), (60, 1));
    assert_eq!(seconds("/usr/bin/uvx", "  args: [pkg@1.2]\n"), (60, 1));
    assert_eq!(seconds("npx.cmd", "  args: ['@scope/pkg@1.2.3']\n"), (60, 1));
    assert_eq!(seconds("uv", "  args: [tool, run, pkg==1.0]\n"), (60, 1));
    assert_eq!(seconds("docker", "  args: [run, --rm, -i, img]\n"), (60, 1));
    assert_eq!(seconds("npx", "  args: [pkg@1.2.3]\n  startup_timeout_seconds: 3\n"), (3, 1));
    assert_eq!(seconds("uv", "  args: [pip, install]\n"), (10, 0));
    assert_eq!(seconds("node", "  args: [npx]\n"), (10, 0));
}

// Requirement 30: an unpinned package is another program tomorrow.
#[test]
fn unpinned_packages_are_pointed_out() {
    let flagged = |command: &str, args: &str| {
        let text = LEAST.replace("command: server", &format!("command: {command}"));
        let found = warnings(&format!("{text}  args: {args}\n"));
        found.into_iter().find(|warning| warning.contains("no fixed version"))
    };
    for args in [
        "[pkg]",
        "[-y, pkg]",
        "[-y, '@scope/pkg']",
        "[-y, '@scope/pkg@latest']",
        "[pkg@^1.2.3]",
        "[pkg@1]",
        "[pkg@1.x]",
        "[-p, pkg, bin]",
        "[--package=pkg@next, bin]",
    ] {
        assert!(flagged("npx", args).is_some(), "{args}");
    }
    for args in ["[-y, '@scope/pkg@1.2.3']", "[-p, pkg@1.2.3, bin]", "[./local]", "[]", "[-y]"] {
        assert_eq!(flagged("npx", args), None, "{args}");
    }
    for args in ["[pkg]", "[--from, pkg, bin]", "['pkg>=1.0']", "[pkg@latest]", "['pkg==1.*']"] {
        assert!(flagged("uvx", args).is_some(), "{args}");
    }
    for args in
        ["[pkg==1.2.3]", "[pkg@1.2]", "[--python, '3.12', --from=pkg==2.0, bin]", "['git+https://git.example/x@abc']"]
    {
        assert_eq!(flagged("uvx", args), None, "{args}");
    }
    assert_eq!(
        flagged("npx", "[-y, pkg]").unwrap(),
        "backend.args[1]: package `pkg` has no fixed version, so another may run tomorrow"
    );
}

#[test]
fn dangerous_commands_are_pointed_out_and_ordinary_ones_are_not() {
    let found = |command: &str, rest: &str| {
        warnings(&(LEAST.replace("command: server", &format!("command: {command}")) + rest))
    };
    for (command, rest, part) in [
        ("sh", "  args: [-c, 'x | y']\n", "shell command line"),
        ("/bin/bash", "  args: [-lc, x]\n", "shell command line"),
        ("cmd.exe", "  args: [/C, x]\n", "shell command line"),
        ("sudo", "  args: [x]\n", "as another user"),
        ("docker", "  args: [run, -i, img]\n", "leaves a container behind"),
        ("docker", "  args: [run, --rm, -v, '/:/host', img]\n", "whole machine"),
        ("docker", "  args: [run, --rm, --privileged, img]\n", "whole machine"),
        ("node server.js", "", "looks like a command line"),
        ("server", "  args: [--api-key, abcdef123]\n", "looks like a secret"),
        ("server", "  args: ['--token=abcdef123']\n", "looks like a secret"),
        ("server", "  env: {API_KEY: abcdef123}\n", "looks like a secret"),
        ("server", "  env: {X: ghp_abcdefghijklmnopqrst}\n", "looks like a secret"),
        ("server", "  env: {X: abcdef123}\n  secret_env: [X]\n", "looks like a secret"),
    ] {
        let warnings = found(command, rest);
        assert!(warnings.iter().any(|w| w.contains(part)), "{command} {rest}: {warnings:?}");
    }
    for (command, rest) in [
        ("bash", "  args: [server.sh]\n"),
        ("python", "  args: [-c, 'print(1)']\n"),
        ("server", "  args: [--api-key, '${API_KEY}', --verbose, yes]\n"),
        ("server", "  env: {API_KEY: '${API_KEY}', MODE: fast, KEYBOARD: german-de}\n"),
    ] {
        assert_eq!(found(command, rest), Vec::<String>::new(), "{command} {rest}");
    }
    // A warning about a secret must not repeat it.
    let secret = found("server", "  args: ['--token=s3cr3t-value']\n");
    assert!(!secret[0].contains("s3cr3t-value"));
}

// Requirement 34: a manifest cannot declare a tool in another plugin's name.
#[test]
fn declared_tools_belong_to_the_plugin_and_are_listed_once() {
    let text = format!("{LEAST}contributes: {{tools: [demo.a, other.b, demo.a, demo.x..y]}}\n");
    let found = errors(&text);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].contains("contributes.tools[1]: tool id `other.b` does not start with `demo.`"));
    assert!(found[1].contains("contributes.tools[2]: tool `demo.a` is listed twice"));
    assert!(found[2].contains("contributes.tools[3]: tool name `x..y` is not valid"));
    let empty = parse(&format!("{LEAST}contributes: {{tools: []}}\n")).manifest;
    assert_eq!(empty.declared_tools, Some(Vec::new()));
    assert_eq!(empty.backend.stdout, StdoutMode::Strict);
}

// Debug output lands in logs; a manifest may hold a secret it should not hold.
#[test]
fn debug_output_has_no_values_of_variables() {
    let text = with_backend("  env: {API_KEY: s3cr3t-value}\n  args: [--token, s3cr3t-value]\n");
    let shown = format!("{:?}", parse(&text).manifest);
    assert!(shown.contains("API_KEY") && !shown.contains("s3cr3t-value"), "{shown}");
}

#[test]
fn supervision_is_read_and_a_zero_that_means_nothing_is_refused_by_name() {
    // C2: a zero is not turned into a default in silence.
    let with = |lines: &str| {
        let text = format!(
            "id: demo\nname: Demo\nversion: 1.0.0\nbackend: {{type: mcp, transport: stdio, command: x}}\n{lines}"
        );
        parse_manifest(&text, "plugin.yaml")
    };
    assert_eq!(with("").unwrap().manifest.supervision, plugward_policy::Supervision::default());
    let all = "supervision:\n  lazy: true\n  idle_stop_seconds: 300\n  exclusive: false\n  ping_seconds: 0\n  \
               breaker_failures: 1\n  breaker_open_seconds: 2\n  start_limit: 3\n  healthy_after_seconds: 4\n";
    let read = with(all).unwrap().manifest.supervision;
    assert!(read.lazy && !read.exclusive && read.sleeps());
    assert_eq!((read.breaker_failures, read.start_limit), (Some(1), Some(3)));
    let seconds =
        [read.idle_stop, read.ping_every, read.breaker_open, read.healthy_after].map(|time| time.unwrap().as_secs());
    assert_eq!(seconds, [300, 0, 2, 4]);
    for key in ["idle_stop_seconds", "breaker_failures", "breaker_open_seconds", "start_limit", "healthy_after_seconds"]
    {
        let error = with(&format!("supervision:\n  {key}: 0\n")).unwrap_err().to_string();
        assert!(error.contains(&format!("supervision.{key}")) && error.contains("found `0`"), "{error}");
    }
    let error = with("supervision:\n  lasy: true\n").unwrap_err().to_string();
    assert!(error.contains("did you mean `lazy`?"), "{error}");
}

#[test]
fn processes_for_each_client_are_asked_for_by_servers_that_can_run_more_than_once() {
    // Two words that contradict each other would leave a client without a process, or a plugin with one too many.
    let server = "id: fx\nname: Fx\nversion: '1'\nbackend: {type: mcp, transport: stdio, command: x}\n";
    let read = |more: &str| parse_manifest(&format!("{server}{more}"), "plugin.yaml");
    let isolation = |more: &str| read(more).unwrap().manifest.supervision.isolation;
    assert_eq!(isolation(""), Isolation::Shared);
    assert_eq!(isolation("isolation: shared\n"), Isolation::Shared);
    assert_eq!(isolation("isolation: per-client\n"), Isolation::PerClient);
    for bad in ["isolation: per_client\n", "isolation: per-client\nsupervision: {exclusive: true}\n"] {
        assert!(read(bad).is_err(), "{bad}");
    }
}
