//! Fourteen habits of servers that gateways were seen to lose something to, through every way to this one: over pipes and
//! over HTTP, with a session and without, in front of a plugin with a handshake and of one without.
//!
//! Owns the rows; each says what its user would lose. The server with the habits is the fixture's mode `quirks`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use serde_json::{Value, json};

use super::agent::{Agent, Way, capabilities};
use super::home_with;
use crate::support::{Fixture, HOST_SECRET, PATIENCE};

/// Plugins of both eras.
const BOTH: &[&str] = &["old", "new"];
/// Only plugins without a handshake are told what a client can do, and may ask it.
const NEW: &[&str] = &["new"];
/// Length is no matter of eras, and costs most of the time of these tests.
const ONE: &[&str] = &["old"];

struct Row {
    habit: &'static str,
    /// What a user has not got, where it does not hold.
    loss: &'static str,
    plugins: &'static [&'static str],
    check: fn(&mut Agent, &str),
}

/// In this order, since the last ones change the server.
const ROWS: [Row; 14] = [
    Row { habit: "lists in pages", loss: "all tools beyond the first page", plugins: BOTH, check: pages },
    Row { habit: "reads its environment", loss: "the secrets of the host", plugins: BOTH, check: environment },
    Row { habit: "looks at its client", loss: "what a plugin does for abler clients", plugins: NEW, check: client },
    Row { habit: "declares types", loss: "an error it can act on", plugins: BOTH, check: types },
    Row { habit: "reports progress", loss: "any sign that work goes on", plugins: BOTH, check: progress },
    Row { habit: "honours cancels", loss: "the stop button", plugins: BOTH, check: cancel },
    Row { habit: "works long", loss: "every other call meanwhile", plugins: BOTH, check: slow },
    Row { habit: "asks people and models", loss: "tools that need an answer", plugins: NEW, check: questions },
    Row { habit: "answers at length", loss: "large results", plugins: ONE, check: large },
    Row { habit: "breaks its schema", loss: "the result, or the news that it is wrong", plugins: BOTH, check: broken },
    Row { habit: "gets a new tool", loss: "tools that came later", plugins: BOTH, check: new_tool },
    Row { habit: "changes a description", loss: "what was agreed to", plugins: BOTH, check: changed_text },
    Row { habit: "crashes", loss: "the time until a limit ends the wait", plugins: BOTH, check: crash },
    Row { habit: "comes back", loss: "its session, to get the plugin back", plugins: BOTH, check: recovery },
];

async fn hold_over(way: Way) {
    let quirks = |id: &str, switches: &[&str], protocol: &str| {
        let arguments: Vec<&str> = ["quirks"].iter().chain(switches).copied().collect();
        Fixture::imported(id, &arguments)
            .backend(protocol)
            .backend("max_message_bytes: 8388608")
            .backend("max_result_bytes: 6000000")
            // Nothing here is saved by a limit.
            .backend("tool_timeout_seconds: 600")
            .permission("mcp.elicitation")
            .permission("mcp.sampling")
    };
    let plugins = [quirks("old", &[], "protocol: legacy"), quirks("new", &["--modern"], "protocol: modern")];
    let home = home_with(&plugins).await;
    std::fs::write(home.path().join("config.toml"), "restart_base_delay_ms = 50\n").unwrap();
    let mut agent = Agent::start(way, home);
    for plugin in BOTH {
        for Row { habit, loss, check, .. } in ROWS.iter().filter(|row| row.plugins.contains(plugin)) {
            let checked = catch_unwind(AssertUnwindSafe(|| check(&mut agent, plugin)));
            assert!(checked.is_ok(), "{way:?}: `{plugin}` {habit}, and a user loses {loss}");
        }
    }
    assert_eq!(agent.strays, Vec::<Value>::new(), "answers to calls that were cancelled");
    agent.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn fourteen_habits_over_pipes() {
    hold_over(Way::Pipes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fourteen_habits_over_pipes_without_a_session() {
    hold_over(Way::PipesStateless).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fourteen_habits_over_http() {
    hold_over(Way::Http).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fourteen_habits_over_http_without_a_session() {
    hold_over(Way::HttpStateless).await;
}

fn parsed(agent: &mut Agent, tool: &str) -> Value {
    serde_json::from_str(&agent.text(tool)).unwrap()
}

/// What reached the plugin, under this key.
fn seen(agent: &mut Agent, plugin: &str, key: &str) -> Value {
    parsed(agent, &format!("{plugin}_report"))[key].clone()
}

/// Asks until so many have reached the plugin.
fn await_seen(agent: &mut Agent, plugin: &str, key: &str, count: u64) {
    let deadline = Instant::now() + PATIENCE;
    while seen(agent, plugin, key) != count {
        assert!(Instant::now() < deadline, "{key} is not {count}");
    }
}

fn error_of(answer: &Value) -> &Value {
    &answer["result"]["_meta"]["plugward/error"]
}

fn own(names: &[String], plugin: &str) -> Vec<String> {
    names.iter().filter_map(|name| name.strip_prefix(&format!("{plugin}_"))).map(str::to_owned).collect()
}

fn pages(agent: &mut Agent, plugin: &str) {
    let expected = [
        "echo",
        "environment",
        "client",
        "work",
        "wait",
        "report",
        "grow",
        "person",
        "model",
        "large",
        "broken",
        "send",
        "crash",
    ];
    assert_eq!(own(&agent.names(), plugin), expected);
}

fn environment(agent: &mut Agent, plugin: &str) {
    let variables = parsed(agent, &format!("{plugin}_environment"));
    assert!(variables["PATH"].is_string(), "the control: it sees its own, {variables}");
    for name in [HOST_SECRET, "PLUGWARD_HOME", "PLUGWARD_ENVIRONMENT"] {
        assert_eq!(variables[name], Value::Null, "{name} of the host");
    }
}

fn client(agent: &mut Agent, plugin: &str) {
    assert_eq!(parsed(agent, &format!("{plugin}_client")), capabilities());
}

fn types(agent: &mut Agent, plugin: &str) {
    let echo = format!("{plugin}_echo");
    let before = seen(agent, plugin, "echoed").as_u64().unwrap();
    assert_eq!(agent.call(&echo, &json!({"n": 7}))["result"]["content"][0]["text"], "7");
    for wrong in [json!({"n": "7"}), json!({})] {
        let refused = agent.call(&echo, &wrong);
        assert_eq!(refused["result"]["isError"], true, "{wrong}: {refused}");
        assert_eq!(error_of(&refused)["code"], "TOOL_ARGUMENT_INVALID");
    }
    assert_eq!(seen(agent, plugin, "echoed"), before + 1, "a wrong one reached the plugin");
}

fn progress(agent: &mut Agent, plugin: &str) {
    let params = json!({"name": format!("{plugin}_work"), "_meta": {"progressToken": "mine"}});
    let exchange = agent.ask("tools/call", params);
    assert_eq!(exchange.answer["result"]["content"][0]["text"], "worked");
    let told = exchange.notes.iter().map(|note| (note["method"].clone(), note["params"].clone()));
    let expected = (1..=5).map(|step| {
        let params = json!({"progressToken": "mine", "progress": step, "total": 5});
        (json!("notifications/progress"), params)
    });
    assert_eq!(told.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

fn cancel(agent: &mut Agent, plugin: &str) {
    // Two are open; the one that is given up is the one that ends, and its caller is left alone.
    let wait = json!({"name": format!("{plugin}_wait")});
    let first = agent.begin(wait.clone());
    await_seen(agent, plugin, "opened", 1);
    let second = agent.begin(wait);
    await_seen(agent, plugin, "opened", 2);
    let after = agent.cancel(first);
    assert!(after.iter().all(|message| message.get("result").is_none()), "{after:?}");
    await_seen(agent, plugin, "cancelled", 1);
    assert_eq!(seen(agent, plugin, "match"), true, "another call was cancelled");
    agent.cancel(second);
    await_seen(agent, plugin, "cancelled", 2);
    assert_eq!(seen(agent, plugin, "match"), true);
}

fn slow(agent: &mut Agent, plugin: &str) {
    // The long one ends only when it is told to, after all others were answered.
    let long = agent.begin(json!({"name": format!("{plugin}_wait")}));
    await_seen(agent, plugin, "opened", 3);
    for plugin in BOTH {
        assert_eq!(agent.call(&format!("{plugin}_echo"), &json!({"n": 1}))["result"]["content"][0]["text"], "1");
    }
    assert!(!agent.names().is_empty());
    agent.cancel(long);
    await_seen(agent, plugin, "cancelled", 3);
}

fn questions(agent: &mut Agent, plugin: &str) {
    let typed = json!({"action": "accept", "content": {"name": "Ada"}});
    let said = json!({"role": "assistant", "content": {"type": "text", "text": "hm"}, "model": "m"});
    for (tool, method, reply, end) in
        [("person", "elicitation/create", typed, "Ada"), ("model", "sampling/createMessage", said, "hm")]
    {
        let exchange = agent.converse("tools/call", json!({"name": format!("{plugin}_{tool}")}), Some(&reply));
        let asked: Vec<&str> = exchange.questions.iter().map(|(method, _)| method.as_str()).collect();
        assert_eq!(asked, [method], "{}", exchange.answer);
        assert_eq!(exchange.answer["result"]["content"][0]["text"], end, "{}", exchange.answer);
    }
}

fn large(agent: &mut Agent, plugin: &str) {
    let text = agent.text(&format!("{plugin}_large"));
    assert!(text.len() == 5_000_000 && text.bytes().all(|byte| byte == b'x'), "{} bytes", text.len());
}

fn broken(agent: &mut Agent, plugin: &str) {
    let tool = format!("{plugin}_broken");
    let answer = agent.call(&tool, &json!({}));
    assert_eq!(answer["result"]["structuredContent"], json!({"n": "seven"}), "it is the caller's all the same");
    // Whoever looks is told what was wrong with it.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let listed = agent.run(&["trace", "list"]);
        let spans = listed["spans"].as_array().unwrap();
        let told = spans.iter().any(|span| {
            let text = span.to_string();
            text.contains(&format!("{plugin}.broken")) && text.contains("does not fit the tool's outputSchema")
        });
        if told {
            return;
        }
        assert!(Instant::now() < deadline, "no word of it in {listed}");
    }
}

fn approve(agent: &Agent, plugin: &str) {
    let review = agent.run(&["review", plugin]);
    agent.run(&["approve", plugin, "--digest", review["digest"].as_str().unwrap()]);
}

fn new_tool(agent: &mut Agent, plugin: &str) {
    let name = format!("{plugin}_grown");
    agent.text(&format!("{plugin}_grow"));
    // It is there once somebody has agreed to it, and everybody is told.
    let deadline = Instant::now() + PATIENCE;
    while !agent.run(&["review", plugin]).to_string().contains("\"grown\"") {
        assert!(Instant::now() < deadline, "the new tool is not up for review");
    }
    assert!(!agent.names().contains(&name));
    approve(agent, plugin);
    agent.await_change_to(|names| names.contains(&name));
    assert_eq!(agent.text(&name), "new");
}

fn changed_text(agent: &mut Agent, plugin: &str) {
    let name = format!("{plugin}_send");
    let shown = |agent: &mut Agent| {
        let found = agent.list().into_iter().find(|tool| tool["name"] == name.as_str());
        found.map(|tool| tool["description"].as_str().unwrap().to_owned())
    };
    assert_eq!(shown(agent).as_deref(), Some("Sends a mail."));
    agent.text(&name);
    agent.await_change_to(|names| !names.contains(&name));
    assert_eq!(shown(agent), None);
    let refused = agent.call(&name, &json!({}));
    assert!(refused.to_string().contains("definition changed"), "{refused}");
    assert!(agent.names().contains(&format!("{plugin}_echo")), "the others stay");
}

fn crash(agent: &mut Agent, plugin: &str) {
    // at once, and not at its limit.
    let begun = Instant::now();
    let gone = agent.call(&format!("{plugin}_crash"), &json!({}));
    assert_eq!(error_of(&gone)["code"], "PLUGIN_HOST_UNAVAILABLE", "{gone}");
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
}

fn recovery(agent: &mut Agent, plugin: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = agent.call(&format!("{plugin}_echo"), &json!({"n": 7}));
        if answer["result"]["content"][0]["text"] == "7" {
            break;
        }
        assert!(Instant::now() < deadline, "{answer}");
    }
    assert_eq!(seen(agent, plugin, "echoed"), 1, "a new process");
    let other = if plugin == "old" { "new" } else { "old" };
    assert!(seen(agent, other, "echoed").is_number(), "the other one never noticed");
}
