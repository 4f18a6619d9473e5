//! The host that the first agent starts in the background, and that no agent's end takes away.

#![allow(clippy::needless_pass_by_value, reason = "a test reads better with `json!` as the argument")]

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use super::{Cli, POLL, signal, wait};
use crate::support::{Fixture, PATIENCE, processes_with};

/// An agent that has said hello.
struct Agent {
    child: Child,
    input: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
    id: u64,
}

impl Agent {
    fn start(cli: &Cli, arguments: &[&str]) -> Self {
        Self::over(cli.command(&[&["serve", "--stdio"], arguments].concat()))
    }

    fn over(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let input = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut agent = Self { child, input, answers, id: 0 };
        let hello = agent.ask(
            "initialize",
            json!({"protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "agent", "version": "1"}}),
        );
        assert!(hello["result"]["serverInfo"].is_object(), "{hello}");
        agent.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        agent
    }

    fn write(&mut self, message: &Value) {
        self.input.as_mut().unwrap().write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    #[track_caller]
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.id += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}));
        loop {
            let line = self.answers.next().unwrap_or_else(|| panic!("no answer to {method}: it ended")).unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == self.id {
                return message;
            }
        }
    }

    #[track_caller]
    fn echo(&mut self, text: &str) {
        let result = self.ask("tools/call", json!({"name": "fix_echo", "arguments": {"text": text}}));
        assert_eq!(result["result"]["content"][0]["text"], text, "{result}");
    }

    fn tools(&mut self) -> Vec<String> {
        let list = self.ask("tools/list", json!({}));
        let tools = list["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// A home whose agents start a host on demand. Ends that host with the test, also with one that fails.
struct OnDemand {
    cli: Cli,
}

impl OnDemand {
    fn new(config: &str) -> Self {
        let cli = Cli::new().config(config).variable("PLUGWARD_DAEMON", "on-demand");
        cli.enable(&Fixture::normal("fix"));
        Self { cli }
    }

    fn host(&self) -> Option<u32> {
        self.cli.json(&["status"])["host"]["serving_pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
    }

    /// Waits until no process of this home is left.
    fn gone(&self) {
        let mark = self.cli.home().display().to_string();
        let deadline = Instant::now() + PATIENCE;
        while !processes_with(&mark).is_empty() {
            assert!(Instant::now() < deadline, "left: {:?}", processes_with(&mark));
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for OnDemand {
    fn drop(&mut self) {
        self.cli.run(&["stop"]);
    }
}

/// What stands in an agent's settings is what it starts, with next to no environment: it has to work as it stands.
#[test]
fn the_entry_in_an_agents_settings_works() {
    let home = OnDemand::new("[profiles.cursor]\ntools = [\"fix.echo\"]\n");
    let user = tempfile::tempdir().unwrap();
    std::fs::create_dir(user.path().join(".cursor")).unwrap();
    let connected = home.cli.command(&["connect", "cursor", "--yes"]).env("HOME", user.path()).status().unwrap();
    assert!(connected.success());
    let text = std::fs::read_to_string(user.path().join(".cursor/mcp.json")).unwrap();
    let settings: Value = serde_json::from_str(&text).unwrap();
    let entry = &settings["mcpServers"]["plugward"];
    let mut command = Command::new(entry["command"].as_str().unwrap());
    command.args(entry["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap()));
    command.env_clear().env("HOME", user.path()).current_dir("/");
    let mut agent = Agent::over(command);
    // Without our variables the environment is `production`, and what needs a sandbox runs where there is one.
    assert!(agent.ask("tools/list", json!({}))["result"]["tools"].is_array());
    drop(agent.input.take());
    assert!(wait(&mut agent.child).success());
}

/// Closing one agent, even by force, must not break the others, whichever came first.
#[test]
fn no_agents_end_takes_the_host_along() {
    let home = OnDemand::new("");
    let mut first = Agent::start(&home.cli, &[]);
    first.echo("one");
    let host = home.host().expect("a host runs");
    assert_ne!(host, first.child.id(), "the agent's process is only a pipe");
    let mut second = Agent::start(&home.cli, &[]);
    second.echo("two");
    assert_eq!(home.host(), Some(host), "they share it");
    signal(first.child.id(), rustix::process::Signal::KILL);
    wait(&mut first.child);
    second.echo("three");
    signal(second.child.id(), rustix::process::Signal::TERM);
    assert!(wait(&mut second.child).success());
    assert_eq!(home.host(), Some(host), "it waits for the next one");
    let session = rustix::process::getsid(rustix::process::Pid::from_raw(i32::try_from(host).unwrap())).unwrap();
    assert_eq!(
        u32::try_from(session.as_raw_nonzero().get()).unwrap(),
        host,
        "a signal to our terminal does not reach it"
    );
    let stopped = home.cli.ok(&["stop"]);
    assert!(stopped.stdout.contains(&host.to_string()), "{}", stopped.stdout);
    home.gone();
    assert!(home.cli.ok(&["stop"]).stderr.contains("no host runs"));
}

/// A machine whose agents are closed gets its memory back.
#[test]
fn it_ends_once_nobody_has_been_there_for_a_while() {
    let home = OnDemand::new("daemon_idle_seconds = 1\n");
    let mut agent = Agent::start(&home.cli, &[]);
    agent.echo("here");
    drop(agent.input.take());
    assert!(wait(&mut agent.child).success());
    home.gone();
    // And it comes back as it went.
    let mut agent = Agent::start(&home.cli, &[]);
    agent.echo("again");
    let log = std::fs::read_to_string(home.cli.home().join("run/serve.log")).unwrap();
    assert!(log.contains("nobody has been connected"), "{log}");
}

/// Agents that start together, as at a login, make one host and not several.
#[test]
fn agents_that_start_together_share_one_host() {
    let home = OnDemand::new("");
    std::thread::scope(|scope| {
        let agents: Vec<_> = (0..4)
            .map(|number| {
                let cli = &home.cli;
                scope.spawn(move || {
                    let mut agent = Agent::start(cli, &[]);
                    agent.echo(&number.to_string());
                    agent
                })
            })
            .collect();
        let agents: Vec<Agent> = agents.into_iter().map(|agent| agent.join().unwrap()).collect();
        let host = home.host().unwrap();
        assert!(agents.iter().all(|agent| agent.child.id() != host));
        for mut agent in agents {
            drop(agent.input.take());
            assert!(wait(&mut agent.child).success());
        }
    });
}

#[test]
fn a_host_that_cannot_start_is_told_with_its_reason() {
    let cli = Cli::new().variable("PLUGWARD_DAEMON", "on-demand");
    cli.ok(&["list"]);
    std::fs::write(cli.home().join("run"), "in the way").unwrap();
    let done = cli.ends(1, &["serve", "--stdio"]);
    assert!(done.stderr.contains("HOME_UNUSABLE") && done.stderr.contains("--in-process"), "{}", done.stderr);
    let done = cli.run(&["serve", "--stdio", "--in-process"]);
    assert!(done.stderr.contains("control socket"), "it goes its own way: {}", done.stderr);
}

/// Requirement of an agent with a small context: it sees, and can call, what its profile names and nothing else.
#[test]
fn an_agent_gets_its_profile_and_no_more() {
    let home = OnDemand::new(
        "[profiles.cursor]\ntools = [\"fix.echo\", \"fix.fail\"]\n[profiles.zed]\nplugins = [\"other\"]\n",
    );
    let mut cursor = Agent::start(&home.cli, &["--client", "cursor"]);
    assert_eq!(cursor.tools(), ["fix_echo", "fix_fail"]);
    cursor.echo("in");
    let outside = cursor.ask("tools/call", json!({"name": "fix_environment", "arguments": {}}));
    let nobody = cursor.ask("tools/call", json!({"name": "fix_nobody", "arguments": {}}));
    assert_eq!(outside["error"], nobody["error"], "one that is outside cannot be told from one that is not there");
    let mut zed = Agent::start(&home.cli, &["--client", "zed"]);
    assert_eq!(zed.tools(), Vec::<String>::new());
    let refused = zed.ask("tools/call", json!({"name": "fix_echo", "arguments": {"text": "x"}}));
    assert_eq!(refused["error"], nobody["error"]);
    let mut unnamed = Agent::start(&home.cli, &[]);
    assert_eq!(unnamed.tools().len(), crate::support::NORMAL_TOOLS.len(), "the positive control");
}

/// Search mode: three tools, and the same call path behind them.
#[test]
fn an_agent_in_search_mode_finds_describes_and_calls() {
    let home = OnDemand::new("[profiles.default]\nmode = \"search\"\ntools = [\"fix.echo\", \"fix.fail\"]\n");
    let mut agent = Agent::start(&home.cli, &[]);
    assert_eq!(agent.tools(), ["search_tools", "describe_tool", "call_tool"]);
    let mut use_tool =
        |name: &str, arguments: Value| agent.ask("tools/call", json!({"name": name, "arguments": arguments}));
    let found = use_tool("search_tools", json!({"query": "echo a text"}));
    assert_eq!(found["result"]["structuredContent"]["tools"][0]["name"], "fix_echo", "{found}");
    let described = use_tool("describe_tool", json!({"name": "fix_echo"}));
    assert!(described["result"]["content"][0]["text"].as_str().unwrap().contains("inputSchema"), "{described}");
    let called = use_tool("call_tool", json!({"name": "fix_echo", "arguments": {"text": "found"}}));
    assert_eq!(called["result"]["content"][0]["text"], "found", "{called}");
    let invalid = use_tool("call_tool", json!({"name": "fix_echo", "arguments": {"text": 7}}));
    assert_eq!(invalid["result"]["_meta"]["plugward/error"]["code"], "TOOL_ARGUMENT_INVALID", "the tool's own schema");
    let direct = use_tool("fix_echo", json!({"text": "x"}));
    let outside = use_tool("call_tool", json!({"name": "fix_environment", "arguments": {}}));
    let nobody = use_tool("call_tool", json!({"name": "fix_nobody", "arguments": {}}));
    assert!(nobody["error"].is_object(), "{nobody}");
    assert_eq!((&direct["error"], &outside["error"]), (&nobody["error"], &nobody["error"]));
    let hidden = use_tool("describe_tool", json!({"name": "fix_environment"}));
    assert_eq!(hidden["result"]["isError"], true);
    let spans = home.cli.json(&["trace", "list", "--outcome", "ok"]);
    assert!(
        spans["spans"].as_array().unwrap().iter().any(|span| span["tool"] == "fix.echo"),
        "recorded as itself: {spans}"
    );
}

/// A person who wonders where the context went sees it, and is warned where they said too much is.
#[test]
fn tools_have_a_cost_and_profiles_a_budget() {
    let cli = Cli::new()
        .config("[profiles.small]\ntools = [\"fix.echo\"]\nbudget_tokens = 10\n[profiles.found]\nmode = \"search\"\n");
    cli.enable(&Fixture::normal("fix"));
    let all = cli.json(&["tools", "--cost"]);
    assert_eq!((all["plugins"][0]["tools"].as_u64(), all["over_budget"].as_bool()), (Some(6), Some(false)));
    let sum: u64 = all["tools"].as_array().unwrap().iter().map(|tool| tool["tokens"].as_u64().unwrap()).sum();
    assert_eq!(all["total_tokens"], sum);
    let small = cli.ok(&["tools", "--cost", "--profile", "small"]);
    assert!(small.stderr.contains("over its budget of 10 tokens"), "{}", small.stderr);
    assert!(small.stdout.contains("fix.echo") && !small.stdout.contains("fix.fail"), "{}", small.stdout);
    let found = cli.json(&["tools", "--cost", "--profile", "found"]);
    assert_eq!(found["search"], true);
    let unknown = cli.ends(3, &["tools", "--cost", "--profile", "nobody"]);
    assert!(unknown.stderr.contains("there are: small, found") || unknown.stderr.contains("there are: found, small"));
    let doctor: Value = serde_json::from_str(&cli.run(&["doctor", "--json"]).stdout).unwrap();
    let row = doctor["checks"].as_array().unwrap().iter().find(|row| row["check"] == "profile small").unwrap();
    assert_eq!(row["state"], "warning", "{row}");
}
