//! YAML: our entry is a few lines behind the key that holds all of them.
//!
//! Owns reading a file into values, and finding the lines of one entry by their indentation. Refuses lists and maps in
//! braces where ours would have to go in, and files of several documents.

use std::collections::VecDeque;

use granit_parser::{Event, Parser, ScalarStyle, StructureStyle};
use serde_json::{Map, Value, json};

use super::{EditError, Splice, Spot, exact, indent_at, line_end};

/// Deepest nesting read; settings are flat.
const DEPTH_MAX: usize = 64;

/// Key of the value that stands for a reference to another part of the file.
const ALIAS: &str = "\0alias";

/// The document as values. What is not quoted counts as what it looks like.
pub(super) fn read(text: &str) -> Result<Value, EditError> {
    Ok(parse(text)?.map_or_else(|| json!({}), |node| node.value))
}

/// A value, and where the entries of a map begin.
#[derive(Debug)]
struct Node {
    value: Value,
    /// Byte where it begins, for entries of a list.
    start: usize,
    is_block: bool,
    /// Of a map: key, where the key begins, value.
    entries: Vec<(String, usize, Node)>,
    /// Of a list.
    items: Vec<Node>,
}

type Events<'a> = VecDeque<(Event<'a>, usize)>;

fn parse(text: &str) -> Result<Option<Node>, EditError> {
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    let mut events = Events::new();
    let mut documents = 0;
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| {
            let message = error.to_string();
            let end = message.rfind(" at char ").unwrap_or(message.len());
            EditError::Syntax {
                line: error.marker().line(),
                column: error.marker().col() + 1,
                message: format!("not valid YAML: {}", plugward_policy::visible(message[..end].trim_end_matches('.'))),
            }
        })?;
        match event {
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            Event::DocumentStart(..) => documents += 1,
            event => events.push_back((event, span.start.byte_offset().unwrap_or(0))),
        }
    }
    if documents > 1 {
        return Err(EditError::form("the file holds several YAML documents"));
    }
    node(&mut events)
}

/// Takes one node off the events; none at their end.
fn node(events: &mut Events<'_>) -> Result<Option<Node>, EditError> {
    let Some((event, start)) = events.pop_front() else { return Ok(None) };
    let mut node = Node { value: Value::Null, start, is_block: false, entries: Vec::new(), items: Vec::new() };
    match event {
        Event::Scalar(text, style, ..) => node.value = scalar(&text, style),
        Event::Alias(anchor) => node.value = json!({ ALIAS: anchor }),
        Event::SequenceStart(style, ..) => {
            node.is_block = style == StructureStyle::Block;
            while !matches!(events.front(), None | Some((Event::SequenceEnd, _))) {
                node.items.extend(self::node(events)?);
            }
            events.pop_front();
            node.value = Value::Array(node.items.iter().map(|item| item.value.clone()).collect());
        }
        Event::MappingStart(style, ..) => {
            node.is_block = style == StructureStyle::Block;
            let mut map = Map::new();
            while !matches!(events.front(), None | Some((Event::MappingEnd, _))) {
                let (Some(key), Some(value)) = (self::node(events)?, self::node(events)?) else { break };
                let name = match &key.value {
                    Value::String(name) => name.clone(),
                    other => other.to_string(),
                };
                if map.insert(name.clone(), value.value.clone()).is_some() {
                    return Err(EditError::form(format!("key `{}` is there twice", plugward_policy::visible(&name))));
                }
                node.entries.push((name, key.start, value));
            }
            events.pop_front();
            node.value = Value::Object(map);
        }
        _ => return Err(EditError::form("the file has a form that is not understood")),
    }
    Ok(Some(node))
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return exact::text(text);
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        text => match text.parse::<serde_json::Number>() {
            Ok(number) if number.to_string() == text => Value::Number(number),
            _ if may_be_no_text(text) => exact::of(text),
            _ => exact::text(text),
        },
    }
}

/// Whether some reader of YAML takes an unquoted text for a number, a boolean or a time. Quotes would change it.
fn may_be_no_text(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned.strip_prefix('.').unwrap_or(unsigned);
    let in_number = |c: char| c.is_ascii_hexdigit() || "_:.+-xXoOtTzZ ".contains(c);
    let is_like_number = digits.starts_with(|c: char| c.is_ascii_digit()) && digits.chars().all(in_number);
    let word = unsigned.to_ascii_lowercase();
    is_like_number || matches!(word.as_str(), "yes" | "no" | "on" | "off" | "y" | "n" | ".inf" | ".nan")
}

fn has_alias(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_alias),
        Value::Object(map) => map.contains_key(ALIAS) || map.values().any(has_alias),
        _ => false,
    }
}

pub(super) fn insert(text: &str, spot: Spot<'_>, entry: &Value) -> Result<Vec<Splice>, EditError> {
    if has_alias(entry) {
        let message =
            format!("entry `{}` refers to another part of the file with `*`; write that out first", spot.name);
        return Err(EditError::Form(message));
    }
    let end = line_end(text);
    let root = parse(text)?.filter(|root| !root.value.is_null());
    let root_indent = match &root {
        None => "",
        Some(root) if root.is_block && root.value.is_object() => {
            root.entries.first().map_or("", |(_, at, _)| indent_at(text, *at))
        }
        Some(_) => return Err(EditError::form("the file is no YAML map in lines")),
    };
    let container = root.as_ref().and_then(|root| root.entries.iter().find(|(name, ..)| name == spot.container));
    let Some((_, key_at, held)) = container else {
        let lead = if text.is_empty() || text.ends_with('\n') { "" } else { end };
        let lines = lines(spot, entry, &format!("{root_indent}  "), end);
        return Ok(vec![Splice::put(text.len(), format!("{lead}{root_indent}{}:{end}{lines}", spot.container))]);
    };
    let indent = match &held.value {
        Value::Null => format!("{}  ", indent_at(text, *key_at)),
        _ if !held.is_block => {
            let message = format!("`{}` is written in braces, on one line or several", spot.container);
            return Err(EditError::Form(message));
        }
        _ => first_line_below(text, *key_at).to_owned(),
    };
    let at = line_behind(text, *key_at);
    let lead = if text.get(..at).is_some_and(|head| head.ends_with('\n')) { "" } else { end };
    Ok(vec![Splice::put(at, format!("{lead}{}", lines(spot, entry, &indent, end)))])
}

/// The lines of an entry. Every value is JSON, which YAML reads as it is meant.
fn lines(spot: Spot<'_>, entry: &Value, indent: &str, end: &str) -> String {
    let members: Vec<(String, String)> = entry.as_object().into_iter().flatten().map(member).collect();
    let mut text = String::new();
    if !spot.is_list {
        text.push_str(&format!("{indent}{}:{end}", spot.name));
    }
    for (index, (name, value)) in members.iter().enumerate() {
        let lead = if spot.is_list && index == 0 { "- " } else { "  " };
        text.push_str(&format!("{indent}{lead}{name}: {value}{end}"));
    }
    text
}

fn member((name, value): (&String, &Value)) -> (String, String) {
    let value = match value {
        Value::Array(items) => format!("[{}]", items.iter().map(exact::json).collect::<Vec<_>>().join(", ")),
        value => exact::json(value),
    };
    (name.clone(), value)
}

pub(super) fn remove(text: &str, spot: Spot<'_>, with_container: bool) -> Result<Vec<Splice>, EditError> {
    let gone = || EditError::form(format!("entry `{}` is not where it was", spot.name));
    let root = parse(text)?.ok_or_else(gone)?;
    let (_, key_at, held) = root.entries.iter().find(|(name, ..)| name == spot.container).ok_or_else(gone)?;
    let at = if with_container {
        *key_at
    } else if spot.is_list {
        let ours = |item: &&Node| item.value.get("name").and_then(Value::as_str) == Some(spot.name);
        held.items.iter().find(ours).ok_or_else(gone)?.start
    } else {
        held.entries.iter().find(|(name, ..)| name == spot.name).ok_or_else(gone)?.1
    };
    let start = super::line_start(text, at);
    let width = indent_at(text, at).len();
    let is_inside = |line: &str| {
        let content = line.trim_start_matches([' ', '\t']);
        line.len() - content.len() > width
    };
    let mut reach = line_behind(text, at);
    let mut end = reach;
    while let Some(line) = text.get(reach..).and_then(|rest| rest.split_inclusive('\n').next()) {
        reach += line.len();
        let content = line.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        // A list may stand as far left as the key that holds it.
        let is_item = with_container && spot.is_list && content.starts_with('-');
        if !is_inside(line) && !is_item {
            break;
        }
        end = reach;
    }
    Ok(vec![Splice::cut(start..end)])
}

/// Where the line behind the one of a byte begins.
fn line_behind(text: &str, at: usize) -> usize {
    text.get(at..).and_then(|rest| rest.find('\n')).map_or(text.len(), |line| at + line + 1)
}

/// Indentation of the first line with content behind the one of a byte.
fn first_line_below(text: &str, at: usize) -> &str {
    let mut reach = line_behind(text, at);
    while let Some(line) = text.get(reach..).and_then(|rest| rest.split_inclusive('\n').next()) {
        let content = line.trim();
        if !content.is_empty() && !content.starts_with('#') {
            return indent_at(text, reach);
        }
        reach += line.len();
    }
    ""
}
