//! A client of one server elsewhere: installs it in a fresh home, agrees to it, and uses all that it offers once.
//!
//! ```text
//! remote_client http://localhost:3000/mcp
//! ```
//!
//! Owns nothing but the order; `cargo xtask conformance` has the official suite judge what is sent. Environment:
//! `MCP_CONFORMANCE_CONTEXT` may name calls, as JSON `{"toolCalls": [{"name": ..., "arguments": ...}]}`; without it each
//! tool is called with the least its schema wants. Everything is approved without a look, which only a test may do.

#![allow(clippy::print_stdout, reason = "this is a program for terminals")]

use std::time::Duration;

use plugward_host::{
    ApprovalOrigin, CallRequest, Counterpart, Environment, ErrorCode, Host, HostConfig, Inputs, Naming, OfferList,
    OfferRequest, SupervisionSettings, ToolSelector, ToolView, Trust,
};
use plugward_policy::Catalogue;
use plugward_sandbox::Launcher;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

/// The id of the server here.
const PLUGIN: &str = "remote";

/// Questions in a row that are answered.
const MAX_ROUNDS: usize = 4;

type Failure = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().next_back().filter(|url| url.starts_with("http")).ok_or("usage: remote_client URL")?;
    let home = tempfile::tempdir()?;
    let package = tempfile::tempdir()?;
    std::fs::write(package.path().join("plugin.yaml"), manifest(&url))?;
    let host = Host::open(config(home.path())).await?;
    host.install(package.path(), None).await?;
    let digest = host.review(PLUGIN).await?.digest;
    host.approve(PLUGIN, &digest, ApprovalOrigin::Test).await?;
    let used = use_all(&host).await;
    host.shutdown().await;
    used
}

fn manifest(url: &str) -> String {
    format!(
        "id: {PLUGIN}\nname: Remote\nversion: 1.0.0\npermissions: [mcp.prompts, mcp.resources, mcp.elicitation, \
         mcp.sampling, mcp.roots]\nbackend:\n  type: mcp\n  transport: streamable_http\n  url: {url}\n"
    )
}

fn config(home: &std::path::Path) -> HostConfig {
    HostConfig {
        home: home.to_owned(),
        environment: Environment::Production,
        catalogue: Catalogue::seed(),
        // Nothing is launched.
        launcher: Launcher::at("/nonexistent", ["launch"]),
        host_environment: Vec::new(),
        naming: Naming::PassThrough,
        restart_base_delay: Duration::from_secs(1),
        supervision: SupervisionSettings::default(),
        trust: Trust::default(),
        operator: "example".to_owned(),
    }
}

async fn use_all(host: &Host) -> Result<(), Failure> {
    match host.enable(PLUGIN).await {
        Ok(_) => {}
        // Greeted, and of no use to a host of tools.
        Err(error) if error.code == ErrorCode::McpCapabilityUnsupported => {
            println!("{error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    }
    for (tool, arguments) in calls(host) {
        // A tool that fails is a result like any other here.
        match call(host, &tool, &arguments).await {
            Ok(result) => println!("{tool}: {result}"),
            Err(reason) => println!("{tool} failed: {reason}"),
        }
    }
    for (list, request, key) in
        [(OfferList::Prompts, OfferRequest::Prompt, "name"), (OfferList::Resources, OfferRequest::Resource, "uri")]
    {
        for (_, offered) in host.list_offers(list, |_| true).await {
            let offered: Value = serde_json::from_str(offered.get())?;
            let params = to_raw_value(&json!({key: offered[key]}))?;
            let answer = host.forward_offer(request, Some(&params), |_| true, None).await;
            println!("{}: {answer:?}", offered[key]);
        }
    }
    Ok(())
}

/// What is called with what.
fn calls(host: &Host) -> Vec<(String, Value)> {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    if let Some(named) = context["toolCalls"].as_array() {
        return named.iter().map(named_call).collect();
    }
    let schema = |tool: &ToolView| -> Value {
        let definition: Value = serde_json::from_str(tool.definition.get()).unwrap_or_default();
        definition["inputSchema"].clone()
    };
    let tools = host.tools();
    let least = |tool: &ToolView| {
        let mut arguments = least(&schema(tool));
        // One that wants to see a schema is shown that of another tool, as it arrived.
        if let (Some(shown), Some(other)) =
            (arguments.get_mut("schema"), tools.iter().find(|other| other.remote_name != tool.remote_name))
        {
            *shown = schema(other);
        }
        (tool.remote_name.clone(), arguments)
    };
    tools.iter().map(least).collect()
}

/// A call as it is named. A `null` where a schema has none never leaves the host, so it is left out here already.
fn named_call(call: &Value) -> (String, Value) {
    let mut arguments = call["arguments"].as_object().cloned().unwrap_or_default();
    arguments.retain(|_, value| !value.is_null());
    (call["name"].as_str().unwrap_or_default().to_owned(), Value::Object(arguments))
}

/// Values for the members a schema requires: their defaults, or any of their kind.
fn least(schema: &Value) -> Value {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let names = required.iter().filter_map(Value::as_str);
    Value::Object(names.map(|name| (name.to_owned(), any(&schema["properties"][name]))).collect())
}

fn any(schema: &Value) -> Value {
    match schema["type"].as_str() {
        _ if !schema["default"].is_null() => schema["default"].clone(),
        _ if schema["enum"].is_array() => schema["enum"][0].clone(),
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("text"),
    }
}

async fn call(host: &Host, tool: &str, arguments: &Value) -> Result<Box<RawValue>, Failure> {
    let mut inputs = None;
    for _ in 0..MAX_ROUNDS {
        let selector = ToolSelector::Id(format!("{PLUGIN}.{tool}"));
        let mut request = CallRequest::new(selector, Some(to_raw_value(arguments)?), "example");
        let capabilities = to_raw_value(&json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {}}))?;
        request.counterpart = Some(Counterpart::of_rounds("example", capabilities));
        request.inputs = inputs.take();
        let reply = host.call(request).await.outcome.map_err(|failure| failure.message(tool))?;
        if !reply.is_question {
            return Ok(reply.result);
        }
        inputs = Some(answered(&serde_json::from_str(reply.result.get())?)?);
    }
    Err("it asked again and again".into())
}

/// The answers to a question, and its state.
fn answered(question: &Value) -> Result<Inputs, Failure> {
    let asked = question["inputRequests"].as_object().cloned().unwrap_or_default();
    let answers: Map<String, Value> = asked.into_iter().map(|(key, asked)| (key, answer(&asked))).collect();
    let responses = if answers.is_empty() { None } else { Some(to_raw_value(&answers)?) };
    let state = question.get("requestState").map(to_raw_value).transpose()?;
    Ok(Inputs { responses, state })
}

fn answer(asked: &Value) -> Value {
    match asked["method"].as_str() {
        Some("elicitation/create") => {
            let schema = &asked["params"]["requestedSchema"];
            let properties = schema["properties"].as_object().cloned().unwrap_or_default();
            let content: Map<String, Value> =
                properties.iter().map(|(name, schema)| (name.clone(), any(schema))).collect();
            json!({"action": "accept", "content": content})
        }
        Some("sampling/createMessage") => json!({"role": "assistant", "content": {"type": "text", "text": "text"},
            "model": "none", "stopReason": "endTurn"}),
        _ => json!({"roots": []}),
    }
}
