//! The examples of commands as tools, as a person meets them: installed from their files, approved, and called through
//! the command line and through MCP, in the sandbox, with the real programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::Cli;

/// A project with something for each example, and the command line that works in it.
struct Bench {
    cli: Cli,
    project: TempDir,
}

impl Bench {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let project = tempfile::tempdir().unwrap();
        fs::set_permissions(project.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(project.path().join("src")).unwrap();
        fs::create_dir(project.path().join("dist")).unwrap();
        fs::write(project.path().join("src/main.rs"), "fn main() {\n    // TODO: say hello\n}\n").unwrap();
        fs::write(project.path().join("notes.md"), "todo: nothing\n").unwrap();
        let database = project.path().join("shop.db");
        let made = Command::new("sqlite3")
            .arg(&database)
            .arg("create table item(name text, price real); insert into item values ('tea', 1.5), ('cup', 7);")
            .status()
            .unwrap();
        assert!(made.success());
        let folder = project.path().display().to_string();
        let cli = Cli::new().variable("PLUGWARD_ENVIRONMENT", "production").variable("PLUGWARD_PROJECT_DIR", &folder);
        Self { cli, project }
    }

    fn install(&self, name: &str) {
        let file = examples().join(format!("{name}.yaml"));
        self.cli.ok(&["install", file.to_str().unwrap()]);
        let review = self.cli.json(&["review", name]);
        self.own_what_it_writes(&review);
        let review = self.cli.json(&["review", name]);
        self.cli.ok(&["approve", name, "--digest", review["digest"].as_str().unwrap()]);
        self.cli.ok(&["enable", name]);
    }

    /// Where plugward is root, a plugin runs as a user of its own, and the review says which folder it needs to own.
    fn own_what_it_writes(&self, review: &Value) {
        let text = review.to_string();
        let Some((_, rest)) = text.split_once("give the folder to user ") else { return };
        let uid: String = rest.chars().take_while(char::is_ascii_digit).collect();
        std::os::unix::fs::chown(self.project.path().join("dist"), uid.parse().ok(), None).unwrap();
    }

    fn call(&self, name: &str, arguments: &Value) -> Value {
        let done = self.cli.ok(&["call", &format!("{name}.{name}"), &arguments.to_string()]);
        serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {}", done.stdout))
    }
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/commands")
}

// Requirement 157: a scanner, a formatter, a query and a deploy helper, through the command line and in the sandbox.
#[test]
fn the_examples_run_through_the_command_line() {
    let bench = Bench::new();
    bench.install("find_text");
    let found = bench.call("find_text", &json!({ "pattern": "TODO" }));
    let main = json!({ "file": "./src/main.rs", "line": "2", "text": "    // TODO: say hello" });
    assert_eq!(found["structuredContent"], json!({ "matches": [main] }), "{found}");
    let both = bench.call("find_text", &json!({ "pattern": "todo", "ignore_case": true, "files": "*.md" }));
    assert_eq!(both["structuredContent"]["matches"][0]["file"], "./notes.md");
    let none = bench.call("find_text", &json!({ "pattern": "--file=/etc/shells", "folders": ["src"] }));
    assert_eq!(none["content"][0]["text"], "no match");

    bench.install("format_json");
    let text = r#"{"b": [1, 2], "a": "x'; $(id) \u0000"}"#;
    let formatted = bench.call("format_json", &json!({ "text": text, "filter": ".b", "indent": 0 }));
    assert_eq!(formatted["content"][0]["text"], "[1,2]");
    let sorted = bench.call("format_json", &json!({ "text": text, "sorted": true, "filter": "keys_unsorted" }));
    assert!(sorted["content"][0]["text"].as_str().unwrap().contains("\"b\""), "{sorted}");

    bench.install("query_database");
    let query = json!({ "database": "shop.db", "sql": "select name, price from item where price > 2" });
    assert_eq!(
        bench.call("query_database", &query)["structuredContent"],
        json!({ "value": [{ "name": "cup", "price": 7.0 }] })
    );
    let empty = json!({ "database": "shop.db", "sql": "select * from item where name = 'none'" });
    assert_eq!(bench.call("query_database", &empty)["structuredContent"], json!({ "value": null }));
    let shell = json!({ "database": "shop.db", "sql": ".shell id" }).to_string();
    bench.cli.ends(2, &["call", "query_database.query_database", &shell]);

    bench.install("pack_release");
    let packed = bench.call("pack_release", &json!({ "name": "v1", "without": ["*.db"] }));
    let lines = packed["structuredContent"]["lines"].as_array().unwrap();
    assert!(lines.contains(&json!("./src/main.rs")) && !lines.contains(&json!("./shop.db")), "{packed}");
    let listed = Command::new("tar").arg("-tzf").arg(bench.project.path().join("dist/v1.tar.gz")).output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("./src/main.rs"));
    let escape = json!({ "name": "../../x" }).to_string();
    bench.cli.ends(2, &["call", "pack_release.pack_release", &escape]);
}

// Requirement 157: the same four through MCP, in the sandbox at level full: an agent finds each tool with its schema, calls
// it and gets both forms of its result.
#[test]
fn the_examples_are_tools_of_an_mcp_client() {
    let bench = Bench::new();
    let calls = [
        ("find_text", json!({ "pattern": "TODO", "folders": ["src"] })),
        ("format_json", json!({ "text": r#"{"b": [1, 2]}"#, "filter": ".b", "indent": 0 })),
        ("query_database", json!({ "database": "shop.db", "sql": "select name from item where price > 2" })),
        ("pack_release", json!({ "name": "v2", "without": ["*.db"] })),
    ];
    calls.iter().for_each(|(name, _)| bench.install(name));
    let mut lines = vec![
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": "2025-11-25",
            "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 100, "method": "tools/list" }),
    ];
    lines.extend(calls.iter().zip(1..).map(|((name, arguments), id)| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": format!("{name}_{name}"), "arguments": arguments } })
    }));
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let done = bench.cli.run_with_input(&["serve", "--stdio", "--in-process"], input.as_bytes());
    let answers: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let answer =
        |id: u64| &answers.iter().find(|answer| answer["id"] == id).unwrap_or_else(|| panic!("{done:?}"))["result"];
    let tools = answer(100)["tools"].as_array().unwrap();
    let tool = |name: &str| tools.iter().find(|tool| tool["name"] == format!("{name}_{name}")).unwrap();
    assert_eq!(tool("find_text")["inputSchema"]["required"], json!(["pattern"]));
    assert_eq!(tool("find_text")["outputSchema"]["required"], json!(["matches"]));
    for (name, _) in &calls {
        assert_eq!(tool(name)["inputSchema"]["type"], "object", "{name}");
    }
    let (found, formatted, queried, packed) = (answer(1), answer(2), answer(3), answer(4));
    assert_eq!(found["content"][0]["text"], "src/main.rs:2:    // TODO: say hello");
    assert_eq!(found["structuredContent"]["matches"][0]["line"], "2");
    assert_eq!(formatted["content"][0]["text"], "[1,2]", "{formatted}");
    assert_eq!(queried["structuredContent"], json!({ "value": [{ "name": "cup" }] }), "{queried}");
    let packed = packed["structuredContent"]["lines"].as_array().unwrap();
    assert!(packed.contains(&json!("./src/main.rs")) && !packed.contains(&json!("./shop.db")), "{packed:?}");
    assert!(bench.project.path().join("dist/v2.tar.gz").exists());
    // In production each ran at the level that its file asks for, or not at all.
    for (name, _) in &calls {
        let review = bench.cli.json(&["review", name]);
        assert_eq!(review["minimum_sandbox_level"], "full", "{review}");
    }
}

// Requirement 94: what is a shell script is not called anything else.
#[test]
fn a_script_is_reviewed_as_one() {
    let bench = Bench::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("counts.yaml");
    let text = "type: mcp_tool\nname: counts\ndescription: d\nshell: true\ncommand: 'wc -l < {{params.file}} | \
                cat'\nparameters: [{name: file, type: string, required: true}]\n";
    fs::write(&file, text).unwrap();
    bench.cli.ok(&["install", file.to_str().unwrap()]);
    let review = bench.cli.ok(&["review", "counts"]).stdout;
    assert!(review.contains("a SHELL runs this script") && !review.contains("never through a shell"), "{review}");
    assert!(review.contains("wc -l < \"${1}\" | cat") && review.contains("runs a shell script"), "{review}");
    assert_eq!(bench.cli.json(&["review", "counts"])["runs"], "script");
}

// Issue 4, item 6: every gate of a phase runs, a blocking one that fails is the exit code, and one that cannot run has not
// passed.
#[test]
fn the_gates_of_a_phase_judge_it() {
    let bench = Bench::new();
    let folder = tempfile::tempdir().unwrap();
    let gate = |name: &str, lines: &str| {
        let file = folder.path().join(format!("{name}.yaml"));
        fs::write(&file, format!("type: quality_gate\nname: {name}\ndescription: A gate\n{lines}")).unwrap();
        bench.cli.ok(&["install", file.to_str().unwrap()]);
        let review = bench.cli.json(&["review", name]);
        bench.cli.ok(&["approve", name, "--digest", review["digest"].as_str().unwrap()]);
        bench.cli.ok(&["enable", name]);
    };
    let empty = bench.cli.json(&["gate", "run", "pre-commit"]);
    assert_eq!((&empty["passed"], &empty["gates"]), (&Value::Null, &json!([])), "no gate at all is no verdict");
    gate("has_notes", "command: [grep, -q, nothing, notes.md]\n");
    gate(
        "no_todo",
        "command: [grep, -rn, TODO, src]\nexit_codes: {0: failure, 1: success}\nblocking: false\nseverity: low\n",
    );
    gate("later", "command: [\"false\"]\nphase: pre-deploy\n");
    let report = bench.cli.json(&["gate", "run", "pre-commit"]);
    assert_eq!(report["passed"], true, "{report}");
    let verdicts: Vec<(&Value, &Value)> =
        report["gates"].as_array().unwrap().iter().map(|gate| (&gate["id"], &gate["passed"])).collect();
    assert_eq!(verdicts, [(&json!("has_notes"), &json!(true)), (&json!("no_todo"), &json!(false))]);
    assert!(report["gates"][1]["output"].as_str().unwrap().contains("src/main.rs:2"), "{report}");
    let shown = bench.cli.ok(&["gate", "run", "pre-commit"]).stdout;
    assert!(shown.contains("✓ passed has_notes") && shown.contains("pre-commit may go on"), "{shown}");
    let failed = bench.cli.ends(1, &["gate", "run", "pre-deploy"]);
    assert!(failed.stdout.contains("✗ failed later") && failed.stdout.contains("must not go on"), "{}", failed.stdout);
    bench.cli.ok(&["disable", "later"]);
    let off = bench.cli.json(&["gate", "run", "pre-deploy"]);
    assert_eq!((&off["passed"], &off["switched_off"]), (&Value::Null, &json!(["later"])));
    bench.cli.ends(2, &["gate", "run", "pre-commmit"]);
    // A gate whose file changed was not approved, so it cannot run, so it has not passed.
    fs::write(bench.cli.home().join("plugins/has_notes/has_notes.yaml"), "changed").unwrap();
    let held = bench.cli.run(&["gate", "run", "pre-commit", "--json"]);
    assert_eq!(held.code, 1, "{held:?}");
    let held: Value = serde_json::from_str(&held.stdout).unwrap();
    assert_eq!(held["gates"][0]["error_code"], "MCP_TRUST_APPROVAL_REQUIRED");
    let info = bench.cli.json(&["info", "later"]);
    assert_eq!(info["host"]["backend_type"], "command");
}

// Issue 4, item 6: a gate that nobody approved, or whose file has a mistake, does not let a phase pass; a person who switches
// one off does.
#[test]
fn a_gate_that_is_not_considered_fails_its_phase() {
    let cli = Cli::new().config("plugins_dir = \"files\"\n");
    let files = cli.home().join("files");
    fs::create_dir(&files).unwrap();
    let text = "type: quality_gate\nname: tidy\ndescription: A gate\ncommand: [\"true\"]\n";
    fs::write(files.join("tidy.yaml"), text).unwrap();
    let judged = |code: i32| -> Value {
        let report = cli.run(&["gate", "run", "pre-commit", "--json"]);
        assert_eq!(report.code, code, "{report:?}");
        serde_json::from_str(&report.stdout).unwrap()
    };
    let unapproved = judged(1);
    assert_eq!((&unapproved["passed"], &unapproved["gates"][0]["passed"]), (&json!(false), &json!(false)));
    cli.ok(&["disable", "tidy"]);
    let off = judged(0);
    assert_eq!((&off["passed"], &off["switched_off"]), (&Value::Null, &json!(["tidy"])));
    fs::write(files.join("typo.yaml"), "type: quality_gate\nnaem: typo\n").unwrap();
    fs::write(files.join("tool.yaml"), "type: cli_tool\nnaem: typo\n").unwrap();
    let typo = judged(1);
    assert_eq!(typo["passed"], false);
    let named: Vec<&str> =
        typo["not_loaded"].as_array().unwrap().iter().filter_map(|file| file["path"].as_str()).collect();
    assert!(named.len() == 1 && named[0].ends_with("typo.yaml"), "{typo}");
    let shown = cli.ends(1, &["gate", "run", "pre-commit"]).stdout;
    assert!(shown.contains("typo.yaml") && shown.contains("must not go on"), "{shown}");
}
