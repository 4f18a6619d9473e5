//! Commands as tools: files that load and what they mean, files that are refused and why, and the one promise that
//! matters: a value is part of exactly one argument, whatever is in it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail the test")]
#![allow(clippy::needless_pass_by_value, reason = "a test reads better with `json!` as the argument")]

use std::collections::BTreeMap;
use std::time::Duration;

use plugward_policy::{
    ArgumentError, CommandTool, Invocation, Manifest, OutputForm, Overflow, Prepared, WorkingDirectory, parse_manifest,
};
use proptest::prelude::*;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// The format's first example, as the JSON it stands for.
const SEED_JSON: &str = r#"{
  "type": "mcp_tool",
  "name": "grep_todo",
  "description": "Search TODO comments",
  "command": "grep -R {{params.keyword}} src",
  "parameters": [
    { "name": "keyword", "type": "string", "required": true, "description": "keyword to search" }
  ],
  "timeout_ms": 5000,
  "working_directory": "project"
}"#;

/// Its second example, word for word.
const SEED_YAML: &str = r#"type: mcp_tool
name: run_eslint
description: Run eslint on target path
command: "npx eslint {{params.target}}"
timeout_ms: 20000
working_directory: project
parameters:
  - name: target
    type: string
    required: true
    description: file or directory path
    default: src
"#;

fn manifest(text: &str) -> Manifest {
    parse_manifest(text, "tool.yaml").unwrap_or_else(|error| panic!("{error}\n{text}")).manifest
}

fn tool(text: &str) -> CommandTool {
    manifest(text).backend.command_tool().unwrap().clone()
}

/// A tool with this command and these further lines.
fn with(command: &str, lines: &str) -> String {
    format!("type: mcp_tool\nname: demo\ndescription: A demo\ncommand: {command}\n{lines}")
}

fn errors(text: &str) -> Vec<String> {
    let error = parse_manifest(text, "tool.yaml").expect_err(text);
    error.to_string().lines().map(str::to_owned).collect()
}

fn values(values: Value) -> BTreeMap<String, Box<RawValue>> {
    let object = values.as_object().unwrap();
    object.iter().map(|(name, value)| (name.clone(), to_raw_value(value).unwrap())).collect()
}

fn prepare(tool: &CommandTool, given: Value) -> Result<Prepared, ArgumentError> {
    tool.prepare(&values(given))
}

fn arguments(text: &str, given: Value) -> Vec<String> {
    prepare(&tool(text), given).unwrap_or_else(|error| panic!("{error}\n{text}")).arguments
}

// Requirements 156, 162, 184, 185 and V1, V2: both examples load with every field where it belongs.
#[test]
fn the_seeds_examples_load_verbatim() {
    let loaded = manifest(SEED_JSON);
    assert_eq!((loaded.id.as_str(), loaded.name.as_str()), ("grep_todo", "grep_todo"));
    assert_eq!(loaded.declared_tools.unwrap()[0].to_string(), "grep_todo.grep_todo");
    assert_eq!(loaded.backend.command, "grep");
    assert_eq!(loaded.backend.args, ["-R", "{{params.keyword}}", "src"]);
    assert_eq!(loaded.backend.env, [("LOKI_MCP_TOOL".to_owned(), "grep_todo".to_owned())]);
    assert_eq!(loaded.backend.tool_timeout, Duration::from_millis(5000));
    let grep = tool(SEED_JSON);
    assert_eq!(grep.working_directory, WorkingDirectory::Project);
    // Requirement 182: the definition the format describes.
    let wanted = json!({
        "name": "grep_todo",
        "description": "Search TODO comments",
        "inputSchema": {
            "type": "object",
            "properties": { "keyword": { "type": "string", "description": "keyword to search" } },
            "required": ["keyword"]
        }
    });
    assert_eq!(grep.definition(), wanted);
    let eslint = tool(SEED_YAML);
    assert_eq!((eslint.program(), eslint.timeout), ("npx", Duration::from_secs(20)));
    let target = &eslint.parameters[0];
    assert_eq!((target.name.as_str(), target.default.clone()), ("target", Some(json!("src"))));
    // Nobody has to give what has a default (W12/13: neither was applied).
    assert_eq!(prepare(&eslint, json!({})).unwrap().arguments, ["eslint", "src"]);
    assert_eq!(eslint.definition()["inputSchema"]["properties"]["target"]["default"], "src");
}

// Requirement 165.
#[test]
fn defaults_are_the_documented_ones() {
    let loaded = manifest(&with("ls", ""));
    let demo = loaded.backend.command_tool().unwrap();
    assert_eq!(demo.timeout, Duration::from_millis(30_000));
    assert_eq!(demo.working_directory, WorkingDirectory::Project);
    assert!(demo.parameters.is_empty() && demo.stdin.is_none() && demo.exit_codes.is_empty());
    assert_eq!(
        (demo.output.clone(), demo.overflow, demo.max_output_bytes),
        (OutputForm::Text, Overflow::Error, 1 << 20)
    );
    // A command that runs in the project can read it and nothing else.
    assert_eq!(
        loaded.all_permissions().iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["fs.read:${PROJECT_DIR}"]
    );
    let asked = manifest(&with("ls", "permissions: ['fs.write:${PROJECT_DIR}']\n"));
    assert_eq!(asked.all_permissions().len(), 1);
    assert!(manifest(&with("ls", "working_directory: plugin\n")).all_permissions().is_empty());
}

// W1-W4: a value is text, once, whatever quotes stand around its placeholder.
#[test]
fn values_are_never_read_again() {
    let params = "parameters: [{name: a, type: string, required: true}, {name: b, type: string, default: x}]\n";
    let given = |a: &str| json!({ "a": a, "b": "; echo PWNED #" });
    let line = |command: &str| with(&format!("{command:?}"), params);
    for (command, a, wanted) in [
        ("echo {{params.a}} {{params.b}}", "{{params.b}}", "{{params.b}}"),
        ("echo {{params.a}} {{params.b}}", "price $$5 [$&] $'", "price $$5 [$&] $'"),
        ("echo '{{params.a}}' {{params.b}}", ";echo PWNED;", ";echo PWNED;"),
        ("echo \"{{params.a}}\" {{params.b}}", "$(echo PWNED)", "$(echo PWNED)"),
        ("echo \"{{params.a}}\" {{params.b}}", "hello", "hello"),
        ("echo {{params.a}} {{params.b}}", "it's\n`x` | & > ../../etc/passwd", "it's\n`x` | & > ../../etc/passwd"),
        ("echo {{params.a}} {{params.b}}", "${HOME}", "${HOME}"),
        ("echo {{params.a}} {{params.b}}", "", ""),
    ] {
        let made = arguments(&line(command), given(a));
        assert_eq!(made, [wanted, "; echo PWNED #"], "{command}");
    }
}

// W5: names of parameters are names, in files and in calls.
#[test]
fn names_that_are_patterns_are_refused() {
    for name in ["(", ".*", "(a+)+"] {
        let text = with("[echo]", &format!("parameters: [{{name: '{name}', type: string}}]\n"));
        assert!(errors(&text)[0].contains("is not valid"), "{name}");
        let error = prepare(&tool(&with("ls", "")), json!({ name: "x" })).unwrap_err();
        assert!(matches!(error, ArgumentError::Unknown { .. }), "{name}");
    }
}

// W6, W11: a NUL is refused by name, and no error repeats a value.
#[test]
fn bad_values_are_refused_by_name() {
    let text = with(
        "[echo, '{{params.token}}', '{{params.n}}', '{{params.many}}']",
        "parameters:\n  - {name: token, type: string, required: true}\n  - {name: n, type: integer, default: 1}\n  - {name: \
         many, type: array, default: []}\n",
    );
    let demo = tool(&text);
    for (given, wanted) in [
        (json!({ "token": "SECRET\u{0}x" }), "parameter `token` holds a NUL character, which no command can be given"),
        (json!({}), "parameter `token` is required"),
        (json!({ "token": 5 }), "parameter `token` is not of type `string`"),
        (json!({ "token": null }), "parameter `token` is not of type `string`"),
        (json!({ "token": {} }), "parameter `token` is not of type `string`"),
        (json!({ "token": "SECRET", "n": 1.5 }), "parameter `n` is not of type `integer`"),
        (json!({ "token": "SECRET", "many": ["a", 5] }), "parameter `many` is not of type `array of string`"),
        (json!({ "token": "SECRET", "many": "a" }), "parameter `many` is not of type `array`"),
        (
            json!({ "token": "SECRET", "many": ["\u{0}"] }),
            "parameter `many` holds a NUL character, which no command can be given",
        ),
        (json!({ "token": "SECRET", "tokens": 1 }), "parameter `tokens` is not known to this tool"),
        (json!({ "token": "S".repeat(128 * 1024) }), "parameter `token` makes an argument of 131072 bytes"),
    ] {
        let message = prepare(&demo, given).unwrap_err().to_string();
        assert!(message.starts_with(wanted), "{message}");
        assert!(!message.contains("SECRET"), "{message}");
    }
    let much = json!({ "token": "x", "many": vec!["y".repeat(128 * 1024 - 2); 9] });
    assert!(matches!(prepare(&demo, much).unwrap_err(), ArgumentError::TooMuch { .. }));
    assert!(!format!("{:?}", prepare(&demo, json!({ "token": "SECRET" })).unwrap()).contains("SECRET"));
}

// W12/13, requirements 192, 197, 204: what would be left over is a load error, so that nothing ever is.
#[test]
fn no_placeholder_is_ever_left_over() {
    for (command, params, wanted) in [
        ("echo {{params.a}}", "", "placeholder names parameter `a`, which is not declared"),
        ("echo {{params.kez}}", "[{name: key, type: string}]", "which is not declared, did you mean `key`?"),
        ("echo {{params.a}}", "[{name: a, type: string}]", "parameter `a` may be without a value"),
        ("[echo, [-x, '{{params.a}}'], '{{params.a}}']", "[{name: a, type: string}]", "may be without a value"),
        (
            "[echo, {when: a, args: ['{{params.b}}']}]",
            "[{name: a, type: string}, {name: b, type: string}]",
            "`b` may be",
        ),
        ("echo {{event.a}}", "", "placeholder `{{event.a}}` is not known"),
        ("echo {{params.a", "", "has no end"),
        ("'{{params.a}} x'", "[{name: a, type: string, required: true}]", "the program depends on a value"),
        ("['{{params.a}}']", "[{name: a, type: string, required: true}]", "the program depends on a value"),
        ("[[-x, '{{params.a}}']]", "[{name: a, type: string}]", "the program depends on a value"),
        ("[echo, [-x]]", "", "group has no placeholder"),
        (
            "[echo, '{{params.a}}{{params.b}}']",
            "[{name: a, type: array, default: []}, {name: b, type: array, default: []}]",
            "two arrays",
        ),
        ("[]", "", "is empty"),
        ("''", "", "command is empty"),
    ] {
        let command = if command.starts_with(['[', '\'']) { command.to_owned() } else { format!("{command:?}") };
        let params = if params.is_empty() { String::new() } else { format!("parameters: {params}\n") };
        let found = errors(&with(&command, &params));
        assert!(found.iter().any(|line| line.contains(wanted)), "{command}: {found:?}");
    }
}

// V7 and the shell row of the design: text that only a shell could run is refused unless the file asks for a shell.
#[test]
fn shell_syntax_needs_a_shell_and_says_so() {
    for command in
        ["(id)", "echo $HOME $DEMO", "rm -rf ~/x", "a | b", "a; b", "a && b", "a > f", "a `b`", "ls *.c", "X=1 a"]
    {
        let found = errors(&with(&format!("{command:?}"), ""));
        assert!(found[0].contains("needs a shell"), "{command}: {found:?}");
    }
    assert_eq!(arguments(&with("\"grep 'a|b' f\"", ""), json!({})), ["a|b", "f"]);
    let found =
        errors(&with("\"bash -c 'echo {{params.a}}'\"", "parameters: [{name: a, type: string, required: true}]\n"));
    assert!(found[0].contains("where it would be run"), "{found:?}");
    let parsed = parse_manifest(&with("bash -c id", ""), "t").unwrap();
    assert!(parsed.warnings.iter().any(|it| it.message == "runs a shell command line"));
}

// W3, W4 with a shell: values are positional parameters, and the script that runs has none of their text.
#[test]
fn with_a_shell_values_are_positional_parameters() {
    let text = with(
        "|\n  grep -c {{params.p}} \"{{params.f}}\" | sort; echo '{{params.p}}' done ${HOME}",
        "shell: true\nparameters: [{name: p, type: string, required: true}, {name: f, type: string, default: x}]\n",
    );
    let demo = tool(&text);
    let script = "grep -c \"${1}\" \"${2}\" | sort; echo ''\"${1}\"'' done ${HOME}\n";
    let made = prepare(&demo, json!({ "p": "$(id)'\"", "f": "a b" })).unwrap().arguments;
    assert_eq!(made, ["-c", script, "demo", "$(id)'\"", "a b"]);
    assert!(matches!(prepare(&demo, json!({ "p": "--file=/etc/shells" })), Err(ArgumentError::LeadingDash { .. })));
    // What a person approves is the script that runs; `${` is kept from being read as a reference of ours.
    let backend = manifest(&text).backend;
    assert_eq!(backend.args[1], script.replace("${", "$${"));
    let warnings = parse_manifest(&text, "t").unwrap().warnings;
    assert!(warnings.iter().any(|it| it.path == "shell" && it.message.starts_with("runs a shell script")));
    for (command, wanted) in [
        ("'cat <<E\n\n  {{params.p}}'", "here-document"),
        ("'echo $(( {{params.p}} ))'", "arithmetic"),
        ("'echo ${x:-{{params.p}}}'", "inside `${…}`"),
        ("[echo]", "is a list and `shell` is true"),
        ("'echo {{params.l}}'", "is an array, which a script cannot be given"),
    ] {
        let params = "[{name: p, type: string, required: true}, {name: l, type: array, default: []}]";
        let found = errors(&with(command, &format!("shell: true\nparameters: {params}\n")));
        assert!(found.iter().any(|line| line.contains(wanted)), "{command}: {found:?}");
    }
}

// W19: a value is no option, unless the author says so or `--` stands before it.
#[test]
fn a_value_does_not_become_an_option() {
    let refused = |command: &str, extra: &str| {
        let params = format!("parameters: [{{name: k, type: string, required: true{extra}}}]\n");
        let result = prepare(&tool(&with(command, &params)), json!({ "k": "--file=/etc/shells" }));
        matches!(result, Err(ArgumentError::LeadingDash { .. }))
    };
    assert!(refused("[grep, -c, '{{params.k}}', /etc/passwd]", ""));
    assert!(refused("[grep, '{{params.k}}x', --]", ""));
    assert!(!refused("[grep, -c, --, '{{params.k}}', /etc/passwd]", ""));
    assert!(!refused("[grep, '--regexp={{params.k}}']", ""));
    assert!(!refused("[grep, -c, '{{params.k}}', /etc/passwd]", ", allow_leading_dash: true"));
    let array = with("[cat, '{{params.f}}']", "parameters: [{name: f, type: array, required: true}]\n");
    assert!(matches!(prepare(&tool(&array), json!({ "f": ["a", "-n"] })), Err(ArgumentError::LeadingDash { .. })));
    let number = with("[head, '{{params.n}}', f]", "parameters: [{name: n, type: integer, required: true}]\n");
    assert!(matches!(prepare(&tool(&number), json!({ "n": -5 })), Err(ArgumentError::LeadingDash { .. })));
}

#[test]
fn groups_vanish_and_arrays_expand() {
    let text = with(
        "\n  - rg\n  - {when: ignore_case, args: [-i]}\n  - [--glob, '{{params.glob}}']\n  - '--type={{params.types}}'\n  - \
         --\n  - '{{params.pattern}}'\n  - '{{params.paths}}'",
        "parameters:\n  type: object\n  properties:\n    pattern: {type: string, minLength: 1}\n    ignore_case: {type: \
         boolean, default: false}\n    glob: {type: string}\n    types: {type: array, items: {type: string}, default: \
         []}\n    paths: {type: array, default: [src, 'a b']}\n  required: [pattern]\n",
    );
    assert_eq!(arguments(&text, json!({ "pattern": "-x" })), ["--", "-x", "src", "a b"]);
    let full = json!({ "pattern": "p", "ignore_case": true, "glob": "*.rs", "types": ["c", "py"], "paths": [] });
    assert_eq!(arguments(&text, full), ["-i", "--glob", "*.rs", "--type=c", "--type=py", "--", "p"]);
    let shown = manifest(&text).backend.args;
    assert_eq!(shown[0], "[when ignore_case: -i]");
    assert_eq!(shown[1], "[--glob {{params.glob}}]");
    let schema = tool(&text).definition()["inputSchema"].clone();
    assert_eq!(schema["properties"]["pattern"], json!({ "type": "string", "minLength": 1 }));
    assert_eq!(schema["properties"]["paths"]["items"], json!({ "type": "string" }));
    assert_eq!(schema["required"], json!(["pattern"]));
}

#[test]
fn stdin_is_closed_or_one_value() {
    let text = |stdin: &str| {
        with("[jq, .]", &format!("stdin: {stdin}\nparameters: [{{name: t, type: string}}, {{name: l, type: array}}]\n"))
    };
    assert_eq!(prepare(&tool(&text("closed")), json!({ "t": "x" })).unwrap().stdin, None);
    let read = |stdin: &str, given: Value| prepare(&tool(&text(stdin)), given).unwrap().stdin;
    assert_eq!(read("'{{params.t}}'", json!({ "t": "-\u{0}\n" })), Some(b"-\0\n".to_vec()));
    assert_eq!(read("'{{params.t}}'", json!({})), None);
    assert_eq!(read("'{{params.l}}'", json!({ "l": ["a", "b"] })), Some(b"a\nb\n".to_vec()));
    assert!(errors(&text("open"))[0].contains("use `closed` or"));
    assert!(errors(&text("'{{params.no}}'"))[0].contains("not declared"));
}

// W14, W15, requirements 199, 200: 0 is refused by name, a folder is one of four, and an absolute one was asked for.
#[test]
fn limits_and_folders_are_checked() {
    for (lines, wanted) in [
        ("timeout_ms: 0\n", "timeout_ms: expected a whole number from 1 to 600000, found `0`"),
        ("timeout_ms: 5000 # five\n", ""),
        ("timeout_ms: '5000'\n", "found `5000` in quotes"),
        ("max_output_bytes: 0\n", "max_output_bytes: expected a whole number from 1"),
        ("working_directory: ../x\n", "use project, plugin, repo or an absolute path"),
        ("working_directory: /srv/x\n", "add `fs.read:/srv/x`"),
        ("working_directory: /srv/x\npermissions: ['fs.read:/srv']\n", ""),
        ("working_directory: /srvx\npermissions: ['fs.read:/srv']\n", "lies in no place"),
        ("working_directory: /srv/../etc\npermissions: ['fs.read:/srv']\n", "`..`"),
        ("exit_codes: {1: success, 2: {result: failure, message: no}}\n", ""),
        ("exit_codes: {256: success}\n", "expected an exit code from 0 to 255"),
        ("exit_codes: {1: maybe}\n", "use success or failure"),
        ("output: xml\n", "use text, json, lines"),
        ("output: {pattern: '('}\n", "pattern is not valid"),
        ("output: {pattern: 'a'}\n", "no named group"),
        ("output: {pattern: '(?P<a>.)', matches: first}\n", ""),
        ("output_limit: spil\n", "did you mean `spill`?"),
        ("timeout: 5\n", "timeout: unknown key, did you mean `timeout_ms`?"),
    ] {
        let text = with("ls", lines);
        match parse_manifest(&text, "tool.yaml") {
            Ok(_) => assert_eq!(wanted, "", "{lines}"),
            Err(error) => {
                let error = error.to_string();
                assert!(!wanted.is_empty() && error.contains(wanted), "{lines}: {error}");
            }
        }
    }
    assert_eq!(tool(&with("ls", "timeout_ms: 5000 # five\n")).timeout, Duration::from_secs(5));
}

// W16, W18, V3-V5 and requirements 164, 203: what is no tool is refused with its place; odd names are harmless.
#[test]
fn bad_files_are_refused_with_positions_and_all_at_once() {
    let text = "type: mcp_tool\nname: X\ncommand: ls\nparameters: [1, null, {nam: a}, {name: b, type: object}]\n";
    let found = errors(text);
    for wanted in [
        "tool.yaml:2:7: name: name `X` is not valid",
        "description: missing key",
        "tool.yaml:4:14: parameters[0]: expected a map of keys, found text",
        "parameters[1]: expected a map of keys, found nothing",
        "parameters[2].nam: unknown key, did you mean `name`?",
        "parameters[3].type: unknown value `object`",
    ] {
        assert!(found.iter().any(|line| line.contains(wanted)), "{wanted}: {found:#?}");
    }
    assert!(errors("type: mcp_tool\n").iter().any(|line| line.contains("name: missing key")));
    for name in ["ab", "9ab", "Abc", "a b", &"a".repeat(51)] {
        assert!(!errors(&with("ls", "").replace("name: demo", &format!("name: {name}"))).is_empty(), "{name}");
    }
    assert!(errors("type: mcp-tool\n")[0].contains("did you mean `mcp_tool`?"));
    // W18.
    let proto = tool(&with(
        "[echo, '{{params.__proto__}}']",
        "parameters: [{name: __proto__, type: string, required: true}]\n",
    ));
    assert_eq!(proto.definition()["inputSchema"]["properties"]["__proto__"]["type"], "string");
    assert_eq!(prepare(&proto, json!({ "__proto__": "x" })).unwrap().arguments, ["x"]);
}

// V4: YAML as everybody writes it.
#[test]
fn yaml_is_read_as_yaml() {
    let text = "# a tool\r\ntype: mcp_tool\r\nname: demo\r\ndescription: |\r\n  one\r\n\r\n  # two\r\ncommand: [echo, \"x\\ny\", \
                'it''s', yes, 1.10, 0755] # c\r\n";
    assert_eq!(arguments(text, json!({})), ["x\ny", "it's", "yes", "1.10", "0755"]);
    assert_eq!(tool(text).description, "one\n\n# two\n");
    let twice = "type: mcp_tool\nname: demo\ndescription: d\ncommand: ls\ncommand: rm\n";
    assert!(errors(twice)[0].contains("duplicate key"));
}

// Requirement 159: a gate is a command with a phase and a weight, and without values.
#[test]
fn a_gate_is_a_command_that_judges() {
    let text = "type: quality_gate\nname: lint\ndescription: d\ncommand: make lint\n";
    let gate = tool(text).gate.unwrap();
    assert_eq!((gate.phase.as_str(), gate.blocking, gate.severity.as_str()), ("pre-commit", true, "high"));
    assert_eq!(manifest(text).backend.env, [("LOKI_GATE".to_owned(), "lint".to_owned())]);
    let full = format!("{text}phase: review\nblocking: false\nseverity: low\ntimeout_ms: 300000\n");
    let gate = tool(&full).gate.unwrap();
    assert_eq!((gate.phase.as_str(), gate.blocking, gate.severity.as_str()), ("review", false, "low"));
    for (lines, wanted) in [
        ("phase: precommit\n", "did you mean `pre-commit`?"),
        ("severity: huge\n", "use one of critical, high, medium, low"),
        ("parameters: []\n", "parameters: unknown key"),
        ("blocking: maybe\n", "use one of true, false"),
    ] {
        assert!(errors(&format!("{text}{lines}"))[0].contains(wanted), "{lines}");
    }
    assert!(errors(&text.replace("make lint", "make {{params.x}}"))[0].contains("not declared"));
    assert!(tool(&with("ls", "")).gate.is_none());
}

#[test]
fn defaults_and_enums_are_values_of_their_parameter() {
    for (parameter, wanted) in [
        ("{name: a, type: integer, default: x}", "parameters[0].default: is no integer"),
        ("{name: a, type: boolean, default: 'true'}", "is no boolean"),
        ("{name: a, type: string, enum: [b], default: c}", "is not one of the values of `enum`"),
        ("{name: a, type: string, enum: []}", "no value would do"),
        ("{name: a, type: array, items: {type: object}}", "not a simple one"),
        ("{name: a, type: string, items: {type: string}}", "only an array has items"),
        ("{name: a, type: array, default: [1, x], items: {type: integer}}", "default[1]: is no integer"),
    ] {
        let found = errors(&with("[ls, [-x, '{{params.a}}']]", &format!("parameters: [{parameter}]\n")));
        assert!(found.iter().any(|line| line.contains(wanted)), "{parameter}: {found:?}");
    }
    let text =
        with("[ls, '{{params.a}}']", "parameters: [{name: a, type: string, default: 1.10, enum: [1.10, yes]}]\n");
    assert_eq!(arguments(&text, json!({})), ["1.10"]);
    assert_eq!(tool(&text).definition()["inputSchema"]["properties"]["a"]["enum"], json!(["1.10", "yes"]));
}

#[test]
fn references_are_replaced_in_the_command_and_never_in_values() {
    let text =
        with("[tool, '${PLUGIN_DIR}/x', '{{params.a}}']", "parameters: [{name: a, type: string, required: true}]\n");
    let lookup = |name: &str| (name == "PLUGIN_DIR").then(|| "/p/{{params.a}}".to_owned());
    let expanded = tool(&text).expanded(lookup).unwrap();
    let made = prepare(&expanded, json!({ "a": "${PLUGIN_DIR}" })).unwrap().arguments;
    assert_eq!(made, ["/p/{{params.a}}/x", "${PLUGIN_DIR}"]);
    assert!(tool(&text).expanded(|_| None).is_err());
}

/// Anything a caller can send as text.
fn any_text() -> impl Strategy<Value = String> {
    let special = prop::sample::select(vec![
        "",
        "-",
        "--",
        "'",
        "\"",
        "\\",
        "\n",
        "\r\n",
        "$",
        "`",
        "{{params.b}}",
        "{{",
        "}}",
        "${HOME}",
        "$1",
        "$(id)",
        "*",
        "\u{7f}",
        "\u{feff}",
        "\u{202e}",
        "é",
        "🦀",
        " ",
        ";",
        "|",
        "\u{1b}[2J",
    ]);
    prop::collection::vec(prop_oneof![special.prop_map(str::to_owned), any::<String>()], 0..6)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // Requirement 171: whatever the values are, each arrives as exactly the argument it was built into.
    #[test]
    fn every_value_arrives_as_exactly_one_argument(
        a in any_text(), b in any_text(), many in prop::collection::vec(any_text(), 0..4)
    ) {
        let text = with(
            "[prog, --, '{{params.a}}', 'x={{params.b}}', '{{params.many}}', end]",
            "parameters: [{name: a, type: string, required: true}, {name: b, type: string, required: true}, {name: many, \
             type: array, required: true}]\n",
        );
        let result = prepare(&tool(&text), json!({ "a": a, "b": b, "many": many }));
        if [&a, &b].into_iter().chain(&many).any(|value| value.contains('\0')) {
            let is_nul = matches!(result, Err(ArgumentError::Nul { .. }));
            prop_assert!(is_nul);
        } else {
            let mut wanted = vec!["--".to_owned(), a, format!("x={b}")];
            wanted.extend(many);
            wanted.push("end".to_owned());
            prop_assert_eq!(result.unwrap().arguments, wanted);
        }
    }

    // A stranger's file is refused or read, whatever is in its command.
    #[test]
    fn any_text_is_read_or_refused(command in any_text(), shell in any::<bool>()) {
        let file = json!({
            "type": "mcp_tool", "name": "demo", "description": "d", "command": command, "shell": shell.to_string(),
            "parameters": [{ "name": "b", "type": "string", "default": "x" }],
        });
        if let Ok(parsed) = parse_manifest(&file.to_string(), "t") {
            let demo = parsed.manifest.backend.command_tool().unwrap();
            let made = demo.prepare(&BTreeMap::new()).unwrap().arguments;
            prop_assert!(shell || made.iter().all(|argument| !argument.contains("{{params.")));
        }
        let list = json!({ "type": "mcp_tool", "name": "demo", "description": "d", "command": ["p", command] });
        if let Ok(parsed) = parse_manifest(&list.to_string(), "t") {
            let demo = parsed.manifest.backend.command_tool().unwrap();
            let wanted = command.replace("\\{{", "{{");
            prop_assert_eq!(demo.prepare(&BTreeMap::new()).unwrap().arguments, vec![wanted]);
        }
    }

    // The script a shell reads is the same for all values.
    #[test]
    fn a_script_never_depends_on_a_value(a in any_text()) {
        let text = with("'echo x{{params.a}} \"x{{params.a}}\"'", "shell: true\nparameters: [{name: a, type: string, required: true}]\n");
        let demo = tool(&text);
        if let Ok(prepared) = prepare(&demo, json!({ "a": a })) {
            let Invocation::Shell(script) = &demo.invocation else { panic!("no script") };
            prop_assert_eq!(&prepared.arguments[1], &script.script);
            prop_assert_eq!(&prepared.arguments[3], &a);
        } else {
            prop_assert!(a.contains('\0'));
        }
    }
}
