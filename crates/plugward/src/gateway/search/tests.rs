//! How well search mode finds: on the tools of published servers, by words a model would use.

use std::collections::HashSet;

use plugward_protocol::mcp::CallParamsIn;
use serde_json::json;

use super::*;

const CATALOGUE: &str = include_str!("catalogue.txt");
const QUERIES: &str = include_str!("queries.txt");

/// Questions with the right tool among the first five, and with it as the first.
const MEASURED_PERCENT: (usize, usize) = (88, 57);

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

fn definition(name: &str, arguments: &[&str]) -> Box<RawValue> {
    let properties: Value =
        arguments.iter().map(|name| ((*name).to_owned(), json!({}))).collect::<serde_json::Map<_, _>>().into();
    to_raw_value(&json!({ "name": name, "inputSchema": { "type": "object", "properties": properties } })).unwrap()
}

fn catalogue() -> Catalogue {
    let tool = |line: &str| {
        let mut words = line.split(' ');
        let name = format!("{}_{}", words.next().unwrap(), words.next().unwrap());
        let arguments: Vec<&str> = words.collect();
        let definition = definition(&name, &arguments);
        (name, definition)
    };
    Catalogue::new(1, lines(CATALOGUE).map(tool).collect())
}

fn found(catalogue: &Catalogue, query: &str, limit: usize) -> Vec<String> {
    let result: Value = serde_json::from_str(catalogue.search(query, limit).get()).unwrap();
    let tools = result["structuredContent"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// An agent that does not find a tool has not got it. Measured over about a thousand tools without their descriptions;
/// with them there is more to find by.
#[test]
fn the_right_tool_is_among_the_first_five() {
    let catalogue = catalogue();
    let all: HashSet<String> = catalogue.tools.iter().map(|tool| tool.name.clone()).collect();
    assert!(all.len() > 1000, "{}", all.len());
    let (mut hits, mut first, mut missed, mut count) = (0_usize, 0_usize, Vec::new(), 0_usize);
    for line in lines(QUERIES) {
        let (query, expected) = line.split_once(" | ").unwrap();
        let expected: Vec<String> =
            expected.split(' ').map(|id| id.replacen('.', "_", 1)).filter(|name| all.contains(name)).collect();
        assert!(!expected.is_empty(), "no such tool: {line}");
        let got = found(&catalogue, query, 5);
        count += 1;
        first += usize::from(got.first().is_some_and(|name| expected.contains(name)));
        if got.iter().any(|name| expected.contains(name)) {
            hits += 1;
        } else {
            missed.push(format!("{query}: {got:?}"));
        }
    }
    let percent = |number: usize| number * 100 / count;
    let summary =
        format!("recall@5 {} %, first {} % of {count}; missed:\n{}", percent(hits), percent(first), missed.join("\n"));
    // Everything here is deterministic; whoever makes it better says so in docs/settings.md.
    assert_eq!((percent(hits), percent(first)), MEASURED_PERCENT, "{summary}");
}

#[test]
fn the_same_words_give_the_same_answer() {
    let (one, other) = (catalogue(), catalogue());
    for line in lines(QUERIES) {
        let query = line.split_once(" | ").unwrap().0;
        assert_eq!(one.search(query, 25).get(), other.search(query, 25).get(), "{query}");
    }
}

fn call(name: &str, arguments: &str) -> CallParamsIn {
    CallParamsIn {
        name: name.to_owned(),
        arguments: RawValue::from_string(arguments.to_owned()).unwrap(),
        meta: Some(RawValue::from_string(r#"{"k":1}"#.to_owned()).unwrap()),
        progress_token: None,
    }
}

#[test]
fn a_call_goes_on_as_it_was_meant() {
    // Case B059: 64-bit numbers and key order are the caller's.
    let text = r#"{"arguments": {"b": 12345678901234567890, "a": 1.50}, "name": "x_y"}"#;
    let Some(Request::Call(params)) = Request::of(&call(CALL, text)) else { panic!("no call") };
    assert_eq!((params.name.as_str(), params.arguments.get()), ("x_y", r#"{"b": 12345678901234567890, "a": 1.50}"#));
    assert_eq!(params.meta.unwrap().get(), r#"{"k":1}"#);
    for text in [r#"{"name": "x_y"}"#, r#"{"name": "x_y", "arguments": null}"#] {
        let Some(Request::Call(params)) = Request::of(&call(CALL, text)) else { panic!("no call") };
        assert_eq!(params.arguments.get(), "{}");
    }
}

#[test]
fn arguments_that_do_not_fit_are_told_and_other_names_are_not_ours() {
    for (name, text) in [(SEARCH, "{}"), (SEARCH, r#"{"query": 1}"#), (DESCRIBE, "[]"), (CALL, r#"{"arguments": {}}"#)]
    {
        assert!(matches!(Request::of(&call(name, text)), Some(Request::Invalid(message)) if message.contains(name)));
    }
    assert!(Request::of(&call("x_y", "{}")).is_none());
    let limit = |text: &str| match Request::of(&call(SEARCH, text)) {
        Some(Request::Search { limit, .. }) => limit,
        other => panic!("{other:?}"),
    };
    assert_eq!(limit(r#"{"query": "x"}"#), 5);
    assert_eq!((limit(r#"{"query": "x", "limit": 0}"#), limit(r#"{"query": "x", "limit": 9999}"#)), (1, 25));
}

#[test]
fn descriptions_are_cut_and_definitions_are_whole() {
    let long = format!("First {}\n\nSecond paragraph", "é".repeat(400));
    let raw = format!(r#"{{"name":"a_b","description":{},"inputSchema":{{"x":1.50}}}}"#, json!(long));
    let catalogue = Catalogue::new(1, vec![("a_b".to_owned(), RawValue::from_string(raw.clone()).unwrap())]);
    let result: Value = serde_json::from_str(catalogue.search("first", 5).get()).unwrap();
    let summary = result["structuredContent"]["tools"][0]["description"].as_str().unwrap();
    assert!(summary.chars().count() <= DESCRIPTION_CHARS + 1 && summary.ends_with('…'), "{summary}");
    let described: Value = serde_json::from_str(catalogue.describe("a_b").get()).unwrap();
    assert_eq!(described["content"][0]["text"], raw, "to the digit");
    let unknown: Value = serde_json::from_str(catalogue.describe("a_c").get()).unwrap();
    assert_eq!(unknown["isError"], true);
    let nothing: Value = serde_json::from_str(catalogue.search("zebra", 5).get()).unwrap();
    assert!(nothing["structuredContent"]["hint"].as_str().unwrap().contains("other words"));
}

#[test]
fn the_three_tools_are_small() {
    let tokens: u64 = definitions().iter().map(|definition| crate::cost::of_definition(definition.get())).sum();
    assert_eq!(definitions().len(), 3);
    assert!(tokens < 300, "{tokens}");
}
