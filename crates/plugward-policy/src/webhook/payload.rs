//! The payload of a webhook: JSON with places for facts of an event. Owns reading it, with every place checked, and
//! filling it in. A template is parsed before it has values and printed after: no value can end a string, add a member
//! or become a place (rows V8 of the seed's faults). Refuses names of fields that no event has.

use std::fmt;

use serde_json::{Map, Value as Json};

use crate::visible::quoted;

/// Longest template, in bytes (the seed's bound).
pub(crate) const PAYLOAD_BYTES_MAX: usize = 5000;

/// Facts of events. Those of another kind of event than the one that is told stand as `null`, and in a text as nothing.
pub(crate) const FIELDS: [&str; 16] = [
    "event",
    "event.id",
    "event.type",
    "event.time",
    "event.message",
    "event.plugin",
    "event.plugin.id",
    "event.plugin.name",
    "event.plugin.version",
    "event.plugin.status",
    "event.plugin.error",
    "event.tools",
    "event.tools.version",
    "event.tools.count",
    "event.requests",
    "event.requests.waiting",
];

/// Marks a place that stood outside of quotes while the template is parsed. No key of a template can hold the character
/// by accident, and one that does on purpose means the same.
const PLACE_KEY: &str = "\u{0}place";

/// A template that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// Not JSON.
    #[error("payload is no JSON: {0}; write numbers, texts and places alike as JSON has them")]
    Json(String),
    /// A place without an end.
    #[error("placeholder {} has no end", quoted(.0))]
    Endless(String),
    /// A place for a fact that no event has.
    #[error("placeholder {} names no fact of an event", quoted(.0))]
    Unknown(String),
    /// A place in the name of a member.
    #[error("placeholder stands in the name of a member, {}: only values are filled in", quoted(.0))]
    InKey(String),
    /// Too long.
    #[error("payload has {0} bytes, at most {PAYLOAD_BYTES_MAX} are allowed")]
    TooLong(usize),
}

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    node: Node,
    /// As it is written, for people.
    shown: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    /// As it is.
    Fixed(Json),
    /// The fact itself, of whatever type.
    Fact(&'static str),
    /// A text with facts in it.
    Text(Vec<Part>),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Fact(&'static str),
}

impl Default for Payload {
    /// All facts of the event.
    fn default() -> Self {
        Self { node: Node::Fact("event"), shown: "all facts of the event".to_owned() }
    }
}

impl Payload {
    /// Reads a template that is JSON text. A place in quotes is part of that text; one outside of quotes is the fact with
    /// its type.
    ///
    /// # Errors
    /// [`PayloadError`], with what is wrong.
    pub fn from_text(text: &str) -> Result<Self, PayloadError> {
        if text.len() > PAYLOAD_BYTES_MAX {
            return Err(PayloadError::TooLong(text.len()));
        }
        let marked = mark_places(text)?;
        let json: Json = serde_json::from_str(&marked).map_err(|error| PayloadError::Json(error.to_string()))?;
        Ok(Self { node: read(&json, false)?, shown: text.to_owned() })
    }

    /// Reads a template that is a tree already. A text that is one place and nothing else is the fact with its type.
    ///
    /// # Errors
    /// [`PayloadError`], with what is wrong.
    pub fn from_json(json: &Json) -> Result<Self, PayloadError> {
        let shown = json.to_string();
        if shown.len() > PAYLOAD_BYTES_MAX {
            return Err(PayloadError::TooLong(shown.len()));
        }
        Ok(Self { node: read(json, true)?, shown })
    }

    /// The payload of `event`, an object; JSON whatever is in it.
    #[must_use]
    pub fn fill(&self, event: &Json) -> String {
        fill(&self.node, event).to_string()
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// The text with each place outside of quotes in the form of an object that stands for it.
fn mark_places(text: &str) -> Result<String, PayloadError> {
    let mut marked = String::with_capacity(text.len());
    let (mut in_text, mut is_escaped) = (false, false);
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        if !in_text && rest.starts_with("{{") {
            let (field, length) = read_place(rest)?;
            marked.push_str(&serde_json::json!({ PLACE_KEY: field }).to_string());
            rest = &rest[length..];
            continue;
        }
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if in_text => is_escaped = true,
            '"' => in_text = !in_text,
            _ => {}
        }
        marked.push(character);
        rest = &rest[character.len_utf8()..];
    }
    Ok(marked)
}

/// The place `text` begins with, and its length.
fn read_place(text: &str) -> Result<(&'static str, usize), PayloadError> {
    let end = text.find("}}").ok_or_else(|| PayloadError::Endless(text.chars().take(40).collect()))?;
    let name = text.get(2..end).unwrap_or_default().trim();
    let field = FIELDS.iter().find(|field| **field == name);
    field.map(|field| (*field, end + 2)).ok_or_else(|| PayloadError::Unknown(text[..end + 2].to_owned()))
}

fn read(json: &Json, whole_is_fact: bool) -> Result<Node, PayloadError> {
    match json {
        Json::Null | Json::Bool(_) | Json::Number(_) => Ok(Node::Fixed(json.clone())),
        Json::String(text) => {
            let parts = read_parts(text)?;
            Ok(match parts.as_slice() {
                [Part::Fact(field)] if whole_is_fact => Node::Fact(field),
                _ => Node::Text(parts),
            })
        }
        Json::Array(items) => {
            let items: Result<Vec<Node>, PayloadError> = items.iter().map(|item| read(item, whole_is_fact)).collect();
            items.map(Node::List)
        }
        Json::Object(members) => {
            if let (1, Some(Json::String(field))) = (members.len(), members.get(PLACE_KEY))
                && let Some(field) = FIELDS.iter().find(|known| *known == field)
            {
                return Ok(Node::Fact(field));
            }
            let member = |(key, value): (&String, &Json)| {
                if key.contains("{{") {
                    return Err(PayloadError::InKey(key.clone()));
                }
                Ok((key.clone(), read(value, whole_is_fact)?))
            };
            let members: Result<Vec<(String, Node)>, PayloadError> = members.iter().map(member).collect();
            members.map(Node::Map)
        }
    }
}

fn read_parts(text: &str) -> Result<Vec<Part>, PayloadError> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        if start > 0 {
            parts.push(Part::Text(rest[..start].to_owned()));
        }
        let (field, length) = read_place(&rest[start..])?;
        parts.push(Part::Fact(field));
        rest = &rest[start + length..];
    }
    if !rest.is_empty() || parts.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    Ok(parts)
}

fn fill(node: &Node, event: &Json) -> Json {
    match node {
        Node::Fixed(json) => json.clone(),
        Node::Fact(field) => fact(field, event).clone(),
        Node::Text(parts) => {
            let text = parts.iter().map(|part| match part {
                Part::Text(text) => text.clone(),
                Part::Fact(field) => match fact(field, event) {
                    Json::String(text) => text.clone(),
                    Json::Null => String::new(),
                    other => other.to_string(),
                },
            });
            Json::String(text.collect())
        }
        Node::List(items) => items.iter().map(|item| fill(item, event)).collect(),
        Node::Map(members) => {
            let filled: Map<String, Json> =
                members.iter().map(|(key, node)| (key.clone(), fill(node, event))).collect();
            Json::Object(filled)
        }
    }
}

/// The fact, `null` if the event has none of that name.
fn fact<'a>(field: &str, event: &'a Json) -> &'a Json {
    let mut found = event;
    for name in field.split('.').skip(1) {
        found = found.get(name).unwrap_or(&Json::Null);
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn event(message: &str) -> Json {
        json!({"type": "plugin.error", "message": message, "plugin": {"id": "p", "error": null}})
    }

    fn filled(template: &str, event: &Json) -> Json {
        let payload = Payload::from_text(template).unwrap_or_else(|error| panic!("{template}: {error}"));
        serde_json::from_str(&payload.fill(event)).unwrap()
    }

    // Row V8: what rendered to function text, invalid JSON and another structure is refused or stays a value.
    #[test]
    fn a_value_is_a_value_wherever_it_stands() {
        let hostile = event("1, \"admin\": true");
        assert_eq!(
            filled(r#"{"text": "{{event.message}}", "n": {{event.message}}}"#, &hostile),
            json!({"text": "1, \"admin\": true", "n": "1, \"admin\": true"})
        );
        assert_eq!(
            filled(r#"{"in": "a {{event.plugin}} b", "as": {{ event.plugin }}}"#, &hostile),
            json!({"in": "a {\"id\":\"p\",\"error\":null} b", "as": {"id": "p", "error": null}})
        );
        assert_eq!(filled(r#"["{{event.tools.count}}", {{event.tools.count}}]"#, &hostile), json!(["", null]));
        assert_eq!(filled("{{event.type}}", &hostile), json!("plugin.error"));
        for (template, wrong) in [
            (r#"{"a": {{event.constructor.constructor}}}"#, "names no fact"),
            (r#"{"a": "{{event.__proto__}}"}"#, "names no fact"),
            (r#"{"a": "{{params.x}}"}"#, "names no fact"),
            (r#"{"a": "{{event.type"}"#, "has no end"),
            (r#"{"{{event.type}}": 1}"#, "name of a member"),
            (r#"{"a": 1"#, "is no JSON"),
            ("hello", "is no JSON"),
            ("", "is no JSON"),
        ] {
            let error = Payload::from_text(template).unwrap_err().to_string();
            assert!(error.contains(wrong), "{template}: {error}");
        }
        assert_eq!(Payload::from_text(&" ".repeat(5001)), Err(PayloadError::TooLong(5001)));
    }

    #[test]
    fn a_quote_that_is_escaped_ends_no_text() {
        assert_eq!(filled(r#"{"a": "\"{{event.type}}\\", "b": {{event.type}}}"#, &event("")), {
            json!({"a": "\"plugin.error\\", "b": "plugin.error"})
        });
    }

    #[test]
    fn a_tree_has_facts_with_their_types() {
        let payload = Payload::from_json(&json!({"a": "{{event.plugin}}", "b": ["x {{event.type}}"], "c": 5})).unwrap();
        let sent: Json = serde_json::from_str(&payload.fill(&event(""))).unwrap();
        assert_eq!(sent, json!({"a": {"id": "p", "error": null}, "b": ["x plugin.error"], "c": 5}));
    }

    proptest! {
        // V8 for every value there is: the structure is the template's, the text the value's.
        #[test]
        fn no_value_changes_the_structure(message in ".*") {
            let event = event(&message);
            let sent = filled(r#"{"a": "<{{event.message}}>", "b": {{event.message}}, "c": ["{{event.message}}"]}"#, &event);
            prop_assert_eq!(sent, json!({"a": format!("<{message}>"), "b": message, "c": [message]}));
        }
    }
}
