//! Arguments that are repeated in headers, for servers of the stateless revisions (`x-mcp-header` in an input schema).
//!
//! Owns the rules for such annotations, what of a call goes into which header, and the form of header values. Refuses a
//! tool whose annotations break a rule: what its headers would say, two readers could understand differently.

use std::collections::{HashMap, HashSet};

use hyper::header::{HeaderName, HeaderValue};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::raw_object::RawObject;

/// The annotation.
const ANNOTATION: &str = "x-mcp-header";

/// Beginning of the headers' names.
const PREFIX: &str = "mcp-param-";

/// Deepest argument that is looked at.
const MAX_DEPTH: usize = 16;

/// Tools whose annotations are remembered. A server may list more; few have any.
const MAX_TOOLS: usize = 4096;

/// Largest whole number that every reader of JSON reads alike.
const MAX_EXACT_INTEGER: i64 = (1 << 53) - 1;

/// Where a header's value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mirrored {
    header: HeaderName,
    path: Vec<String>,
}

/// What is known of the tools of one server.
#[derive(Debug, Default)]
pub(super) struct Mirror(HashMap<String, Vec<Mirrored>>);

impl Mirror {
    /// Remembers the tools of a page of `tools/list`, and takes those out whose annotations break a rule; `refused` is told
    /// their names and why.
    pub(super) fn learn(&mut self, result: Box<RawValue>, mut refused: impl FnMut(&str, String)) -> Box<RawValue> {
        // Hardly any server has them.
        if !result.get().contains(ANNOTATION) {
            return result;
        }
        let Some(mut page) = RawObject::parse(&result) else { return result };
        let Some(tools) = page.get("tools").and_then(|raw| serde_json::from_str::<Vec<Box<RawValue>>>(raw.get()).ok())
        else {
            return result;
        };
        let mut keeps = |raw: &RawValue| {
            let Ok(tool) = serde_json::from_str::<Value>(raw.get()) else { return true };
            let name = tool["name"].as_str().unwrap_or_default().to_owned();
            match annotations(&tool["inputSchema"]) {
                Ok(found) => {
                    if self.0.len() < MAX_TOOLS || self.0.contains_key(&name) {
                        self.0.insert(name, found);
                    }
                    true
                }
                Err(reason) => {
                    refused(&name, reason);
                    false
                }
            }
        };
        let kept: Vec<Box<RawValue>> = tools.into_iter().filter(|raw| keeps(raw)).collect();
        if let Ok(kept) = serde_json::value::to_raw_value(&kept) {
            page.set("tools", kept);
        }
        page.to_raw()
    }

    /// The headers of a call.
    pub(super) fn headers(&self, tool: &str, arguments: Option<&RawValue>) -> Vec<(HeaderName, HeaderValue)> {
        let Some(mirrored) = self.0.get(tool).filter(|mirrored| !mirrored.is_empty()) else { return Vec::new() };
        let arguments = arguments.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok()).unwrap_or_default();
        let header = |one: &Mirrored| {
            let value = one.path.iter().try_fold(&arguments, |value, key| value.get(key))?;
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Bool(_) | Value::Number(_) => value.to_string(),
                // Nothing, or what the schema does not allow: the server says so better than we do.
                Value::Null | Value::Array(_) | Value::Object(_) => return None,
            };
            Some((one.header.clone(), encoded(&text)?))
        };
        mirrored.iter().filter_map(header).collect()
    }
}

/// The annotations of a schema, if each keeps the rules.
fn annotations(schema: &Value) -> Result<Vec<Mirrored>, String> {
    let mut found = Vec::new();
    collect(schema, &mut Vec::new(), &mut found)?;
    let reached = found.len();
    if count(schema, 0) != reached {
        return Err(format!("`{ANNOTATION}` stands where no argument is reached by properties alone"));
    }
    let names: HashSet<&HeaderName> = found.iter().map(|one| &one.header).collect();
    if names.len() != found.len() {
        return Err(format!("`{ANNOTATION}` names one header twice"));
    }
    Ok(found)
}

fn collect(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Mirrored>) -> Result<(), String> {
    if path.len() > MAX_DEPTH {
        return Ok(());
    }
    let Some(properties) = schema["properties"].as_object() else { return Ok(()) };
    for (key, property) in properties {
        path.push(key.clone());
        if let Some(annotation) = property.get(ANNOTATION) {
            found.push(Mirrored { header: header_name(annotation, property)?, path: path.clone() });
        }
        collect(property, path, found)?;
        path.pop();
    }
    Ok(())
}

fn header_name(annotation: &Value, property: &Value) -> Result<HeaderName, String> {
    let name = annotation.as_str().unwrap_or_default();
    let is_token = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c));
    if !is_token {
        return Err(format!("`{ANNOTATION}` is not the end of a header's name"));
    }
    if !matches!(property["type"].as_str(), Some("string" | "integer" | "boolean")) {
        return Err(format!("`{ANNOTATION}` is for strings, whole numbers and booleans"));
    }
    for bound in ["minimum", "maximum"] {
        if property[bound].as_i64().is_some_and(|bound| bound.abs() > MAX_EXACT_INTEGER) {
            return Err(format!("`{ANNOTATION}` is on a number that not every reader reads alike"));
        }
    }
    HeaderName::from_bytes(format!("{PREFIX}{}", name.to_ascii_lowercase()).as_bytes())
        .map_err(|_| format!("`{ANNOTATION}` is not the end of a header's name"))
}

/// Annotations anywhere in a schema. Below `properties` a key of that name is an argument.
fn count(schema: &Value, depth: usize) -> usize {
    if depth > MAX_DEPTH * 4 {
        return 0;
    }
    match schema {
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| match key.as_str() {
                ANNOTATION => 1,
                "properties" | "$defs" | "definitions" | "patternProperties" => {
                    let each = value.as_object().into_iter().flat_map(|named| named.values());
                    each.map(|value| count(value, depth + 1)).sum()
                }
                // Data, not schemas.
                "const" | "enum" | "default" | "examples" => 0,
                _ => count(value, depth + 1),
            })
            .sum(),
        Value::Array(items) => items.iter().map(|item| count(item, depth + 1)).sum(),
        _ => 0,
    }
}

/// `text` as the value of a header: as it is where that is safe, else in base64 with a mark around it.
pub(super) fn encoded(text: &str) -> Option<HeaderValue> {
    let is_plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        && text.trim() == text
        && !text.is_empty()
        && !(text.starts_with("=?base64?") && text.ends_with("?="));
    let value = if is_plain { text.to_owned() } else { format!("=?base64?{}?=", base64(text.as_bytes())) };
    HeaderValue::from_str(&value).ok()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0u32, |group, byte| (group << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let letter = LETTERS[(group >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn raw(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    fn learned(tools: &Value) -> (Mirror, Vec<String>, Vec<String>) {
        let mut mirror = Mirror::default();
        let mut refused = Vec::new();
        let page = mirror.learn(raw(&json!({"tools": tools, "x": 1})), |name, _| refused.push(name.to_owned()));
        let page: Value = serde_json::from_str(page.get()).unwrap();
        assert_eq!(page["x"], 1);
        let kept = page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        (mirror, kept.collect(), refused)
    }

    fn tool(name: &str, properties: &Value) -> Value {
        json!({"name": name, "inputSchema": {"type": "object", "properties": properties}})
    }

    #[test]
    fn annotated_arguments_are_repeated_in_headers() {
        // HT-10, HT-12: what has no safe form as it is gets one; what is null or absent has no header.
        let (mirror, ..) = learned(&json!([tool(
            "a",
            &json!({
                "region": {"type": "string", "x-mcp-header": "Region"},
                "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
                "flag": {"type": "boolean", "x-mcp-header": "Flag"},
                "absent": {"type": "string", "x-mcp-header": "Absent"},
            })
        )]));
        let headers = |arguments: Value| -> Vec<(String, String)> {
            let found = mirror.headers("a", Some(&raw(&arguments)));
            let text = |(name, value): (HeaderName, HeaderValue)| {
                (name.as_str().to_owned(), value.to_str().unwrap().to_owned())
            };
            let mut found: Vec<_> = found.into_iter().map(text).collect();
            found.sort();
            found
        };
        let pair = |name: &str, value: &str| (format!("mcp-param-{name}"), value.to_owned());
        assert_eq!(
            headers(json!({"region": "eu", "deep": {"n": 7}, "flag": false, "absent": null})),
            [pair("flag", "false"), pair("n", "7"), pair("region", "eu")]
        );
        assert_eq!(headers(json!({"region": "Zürich"})), [pair("region", "=?base64?WsO8cmljaA==?=")]);
        assert_eq!(headers(json!({"region": " a"})), [pair("region", "=?base64?IGE=?=")]);
        assert_eq!(headers(json!({"region": "=?base64?x?="})), [pair("region", "=?base64?PT9iYXNlNjQ/eD89?=")]);
        assert_eq!(headers(json!({"region": ["eu"]})), []);
        assert_eq!(mirror.headers("other", None), []);
    }

    #[test]
    fn a_tool_whose_annotations_break_a_rule_is_left_out() {
        // HT-11
        let bad = [
            json!({"a": {"type": "string", "x-mcp-header": ""}}),
            json!({"a": {"type": "string", "x-mcp-header": "a b"}}),
            json!({"a": {"type": "string", "x-mcp-header": 7}}),
            json!({"a": {"type": "object", "x-mcp-header": "A"}}),
            json!({"a": {"type": "number", "x-mcp-header": "A"}}),
            json!({"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}),
            json!({"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}),
            json!({"a": {"anyOf": [{"type": "string", "x-mcp-header": "A"}]}}),
        ];
        for properties in bad {
            let (_, kept, refused) = learned(&json!([tool("bad", &properties), tool("good", &json!({}))]));
            assert_eq!((kept, refused), (vec!["good".to_owned()], vec!["bad".to_owned()]), "{properties}");
        }
        // An argument may be called like the annotation.
        let (_, kept, _) = learned(&json!([tool("odd", &json!({"x-mcp-header": {"type": "string"}}))]));
        assert_eq!(kept, ["odd"]);
    }
}
