//! The schemas of a thousand published tools, texts removed.

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::{Use, compile};
use crate::schema::ToolSchema;

const REAL: &str = include_str!("../../../tests/data/real-tool-schemas.jsonl");

/// Generates no value deeper than this; recursive schemas have no end.
const MAX_DEPTH: u32 = 4;

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tool {
    tool: u32,
    input_schema: Box<RawValue>,
    output_schema: Option<Box<RawValue>>,
}

fn tools() -> Vec<Tool> {
    REAL.lines().map(|line| serde_json::from_str(line).expect("the data is well formed")).collect()
}

/// A value that follows the plainest reading of `schema`; it may or may not fit.
fn example(schema: &Value, root: &Value, depth: u32) -> Value {
    let get = |keyword: &str| schema.get(keyword);
    if let Some(target) = get("$ref").and_then(Value::as_str).and_then(|target| root.pointer(&target[1..])) {
        return if depth == 0 { Value::Null } else { example(target, root, depth - 1) };
    }
    if let Some(value) = get("const").or_else(|| get("enum").and_then(|list| list.get(0))) {
        return value.clone();
    }
    for keyword in ["anyOf", "oneOf", "allOf"] {
        if let Some(first) = get(keyword).and_then(|list| list.get(0)) {
            return example(first, root, depth);
        }
    }
    match get("type").and_then(|name| name.as_str().or_else(|| name.get(0).and_then(Value::as_str))) {
        Some("object") if depth > 0 => {
            let named = get("properties").and_then(Value::as_object).into_iter().flatten();
            let part = |(name, schema): (&String, &Value)| (name.clone(), example(schema, root, depth - 1));
            Value::Object(named.map(part).collect::<Map<_, _>>())
        }
        Some("object") => json!({}),
        Some("array") => match get("items") {
            Some(items) if depth > 0 => json!([example(items, root, depth - 1)]),
            _ => json!([]),
        },
        Some("integer" | "number") => get("minimum").cloned().unwrap_or_else(|| json!(1)),
        Some("boolean") => json!(true),
        Some("null") => Value::Null,
        _ => json!("text"),
    }
}

#[test]
fn all_published_schemas_compile() {
    // Requirement 60: a schema that works elsewhere must work here, unchanged and without complaint.
    let tools = tools();
    assert!(tools.len() > 1_000);
    let start = std::time::Instant::now();
    let mut outputs = 0;
    for tool in &tools {
        let uses = [(Some(&tool.input_schema), Use::Input), (tool.output_schema.as_ref(), Use::Output)];
        for (schema, usage) in uses {
            let Some(schema) = schema else { continue };
            outputs += u32::from(usage == Use::Output);
            let compiled = compile(schema, usage).unwrap_or_else(|fault| panic!("tool {}: {fault}", tool.tool));
            assert_eq!(compiled.warnings, [], "tool {}", tool.tool);
            assert!(compiled.exposed.is_none(), "tool {}", tool.tool);
        }
    }
    assert!(outputs > 300);
    println!("{} schemas compiled in {:?}", tools.len() + outputs as usize, start.elapsed());
}

#[test]
fn a_thousand_values_are_checked() {
    // Every tool decides about a plain value, and most plain values fit: none is refused for its cost.
    let schemas: Vec<(ToolSchema, Box<RawValue>)> = tools()
        .iter()
        .map(|tool| {
            let schema: Value = serde_json::from_str(tool.input_schema.get()).unwrap();
            let value = to_raw_value(&example(&schema, &schema, MAX_DEPTH)).unwrap();
            (compile(&tool.input_schema, Use::Input).unwrap().schema, value)
        })
        .collect();
    let start = std::time::Instant::now();
    let (mut fits, mut misfits) = (0, Vec::new());
    for (schema, value) in &schemas {
        match schema.validate(value) {
            Ok(()) => fits += 1,
            Err(violations) => misfits.push(violations.to_string()),
        }
    }
    println!("{} values checked in {:?}; {fits} fit", schemas.len(), start.elapsed());
    assert!(fits * 10 > schemas.len() * 8, "{fits} of {}: {misfits:#?}", schemas.len());
    assert!(misfits.iter().all(|text| !text.contains("to check") && !text.contains("too large")), "{misfits:#?}");
}
