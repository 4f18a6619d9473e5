//! The `parameters` of a command, as the seed's list or as a JSON Schema. Owns both forms and the one schema that comes
//! of either. Refuses kinds that have no place on a command line, and defaults that are no value of their parameter.

use serde_json::{Map, Number, Value as Json, json};

use super::diagnostic::Report;
use super::path_of;
use super::reader::{MapReader, text_of};
use super::tree::{Entry, Mark, Node, Value};
use crate::command::{Parameter, ParameterKind, is_parameter_name, number_text};
use crate::visible::quoted;

/// Most parameters of one command: a person and a model have to read them.
const PARAMETERS_MAX: usize = 64;

/// Keys of one entry of the list.
const ENTRY_KEYS: [&str; 15] = [
    "name",
    "type",
    "description",
    "required",
    "default",
    "enum",
    "minimum",
    "maximum",
    "pattern",
    "minLength",
    "maxLength",
    "items",
    "minItems",
    "maxItems",
    "allow_leading_dash",
];

/// Keys of an entry that go into its schema as they are.
const SCHEMA_KEYS: [&str; 7] = ["minimum", "maximum", "pattern", "minLength", "maxLength", "minItems", "maxItems"];

/// Our own key in a schema; clients need not see it.
const LEADING_DASH: &str = "allow_leading_dash";

/// Reads them, and the JSON Schema of the arguments.
pub(super) fn read_parameters(map: &mut MapReader, report: &mut Report) -> (Vec<Parameter>, String) {
    let mut properties = Map::new();
    let mut parameters = Vec::new();
    let mut rest = Map::new();
    if let Some(entry) = map.take("parameters") {
        let at = entry.node.at;
        match entry.node.value {
            Value::List(items) if items.len() > PARAMETERS_MAX => {
                let message = format!("list has {} entries, at most {PARAMETERS_MAX} are allowed", items.len());
                report.error(Some(at), "parameters", message);
            }
            Value::List(items) => read_list(items, &mut parameters, &mut properties, report),
            Value::Map(entries) => rest = read_schema(entries, at, &mut parameters, &mut properties, report),
            Value::Scalar { .. } if entry.node.is_null() => {}
            Value::Scalar { .. } => {
                let hint = "write one `- name: ...` for each, or a JSON Schema with `properties`";
                report.error_hint(Some(at), "parameters", "expected a list or a schema, found text", hint);
            }
        }
    }
    let required: Vec<&str> =
        parameters.iter().filter(|parameter| parameter.required).map(|parameter| parameter.name.as_str()).collect();
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Json::Object(properties));
    schema.insert("required".to_owned(), json!(required));
    schema.extend(rest);
    (parameters, Json::Object(schema).to_string())
}

fn read_list(
    items: Vec<Node>,
    parameters: &mut Vec<Parameter>,
    properties: &mut Map<String, Json>,
    report: &mut Report,
) {
    for (index, item) in items.into_iter().enumerate() {
        let path = format!("parameters[{index}]");
        let mut map = MapReader::new(item, &path, &ENTRY_KEYS, report);
        let Some((name, at)) = map.required_text("name", report) else { continue };
        if !check_name(&name, at, &map.path_of("name"), report) {
            continue;
        }
        if properties.contains_key(&name) {
            report.error(Some(at), &map.path_of("name"), format!("parameter `{name}` is listed twice"));
            continue;
        }
        if map.lacks("type") {
            report.error(Some(map.at()), &map.path_of("type"), "missing key");
        }
        let Some(kind) = map.choice("type", &ParameterKind::ALL, report) else { continue };
        let description = map.text("description", report).map(|(text, _)| text).unwrap_or_default();
        let flags = [("true", true), ("false", false)];
        let required = map.choice("required", &flags, report).unwrap_or(false);
        let allow_leading_dash = map.choice(LEADING_DASH, &flags, report).unwrap_or(false);
        let mut schema = Map::new();
        schema.insert("type".to_owned(), json!(kind.as_str()));
        schema.insert("description".to_owned(), json!(description));
        let items = map.take("items");
        let entries = read_entries(kind, items.as_ref(), at, &path, report);
        if let Some(items) = items {
            schema.insert("items".to_owned(), json_of(&items.node));
        } else if let Some(entries) = entries {
            schema.insert("items".to_owned(), json!({ "type": entries.as_str() }));
        }
        for key in SCHEMA_KEYS {
            if let Some(entry) = map.take(key) {
                schema.insert(key.to_owned(), json_of(&entry.node));
            }
        }
        let mut typed = |key: &str, report: &mut Report| {
            let entry = map.take(key)?;
            typed_value(&entry.node, kind, entries, &path_of(&path, key), report)
        };
        let default = typed("default", report);
        let allowed = map.take("enum").and_then(|entry| read_enum(&entry, kind, entries, &path, report));
        let spec = Spec { name, kind, entries, description, required, allow_leading_dash, default };
        finish(spec, allowed, schema, at, &path, parameters, properties, report);
    }
}

/// One parameter as read from either form.
struct Spec {
    name: String,
    kind: ParameterKind,
    entries: Option<ParameterKind>,
    description: String,
    required: bool,
    allow_leading_dash: bool,
    default: Option<Json>,
}

#[allow(clippy::too_many_arguments, reason = "the end of both readers, with everything they collected")]
fn finish(
    spec: Spec,
    allowed: Option<Vec<Json>>,
    mut schema: Map<String, Json>,
    at: Mark,
    path: &str,
    parameters: &mut Vec<Parameter>,
    properties: &mut Map<String, Json>,
    report: &mut Report,
) {
    if let (Some(default), Some(allowed)) = (&spec.default, &allowed)
        && !allowed.contains(default)
    {
        report.error(Some(at), &path_of(path, "default"), "is not one of the values of `enum`");
    }
    if let Some(default) = &spec.default {
        schema.insert("default".to_owned(), default.clone());
    }
    if let Some(allowed) = allowed {
        schema.insert("enum".to_owned(), Json::Array(allowed));
    }
    properties.insert(spec.name.clone(), Json::Object(schema));
    parameters.push(Parameter {
        // The default stands in, so nobody has to give it: to ask for both is to ask for the default.
        required: spec.required && spec.default.is_none(),
        name: spec.name,
        kind: spec.kind,
        entries: spec.entries,
        description: spec.description,
        default: spec.default,
        allow_leading_dash: spec.allow_leading_dash,
    });
}

fn check_name(name: &str, at: Mark, path: &str, report: &mut Report) -> bool {
    let good = is_parameter_name(name);
    if !good {
        let message = format!(
            "parameter name {} is not valid: use ASCII letters, digits, `_` and `-`, starting with a letter or `_`",
            quoted(name)
        );
        report.error(Some(at), path, message);
    }
    good
}

/// What the entries of an array are; texts, when nothing is said.
fn read_entries(
    kind: ParameterKind,
    items: Option<&Entry>,
    at: Mark,
    path: &str,
    report: &mut Report,
) -> Option<ParameterKind> {
    let path = path_of(path, "items");
    if kind != ParameterKind::Array {
        if let Some(items) = items {
            report.error(Some(items.at), &path, "only an array has items");
        }
        return None;
    }
    let Some(items) = items else { return Some(ParameterKind::String) };
    let named = json_of(&items.node).get("type").and_then(Json::as_str).map(str::to_owned);
    let found = ParameterKind::ALL.iter().find(|(name, _)| named.as_deref() == Some(name)).map(|(_, kind)| *kind);
    match found {
        Some(ParameterKind::Array) | None => {
            let hint = "write `items: {type: string}`, or number, integer or boolean";
            report.error_hint(Some(at), &path, "the type of the entries is missing or not a simple one", hint);
            None
        }
        found => found,
    }
}

fn read_enum(
    entry: &Entry,
    kind: ParameterKind,
    entries: Option<ParameterKind>,
    path: &str,
    report: &mut Report,
) -> Option<Vec<Json>> {
    let path = path_of(path, "enum");
    let Value::List(items) = &entry.node.value else {
        report.error(Some(entry.node.at), &path, "expected a list of values");
        return None;
    };
    if items.is_empty() {
        report.error(Some(entry.node.at), &path, "is empty, so that no value would do");
    }
    let read = |(index, item): (usize, &Node)| typed_value(item, kind, entries, &format!("{path}[{index}]"), report);
    Some(items.iter().enumerate().filter_map(read).collect())
}

/// A value of a parameter as written in the file. A text needs no quotes: it is known to be one.
fn typed_value(
    node: &Node,
    kind: ParameterKind,
    entries: Option<ParameterKind>,
    path: &str,
    report: &mut Report,
) -> Option<Json> {
    let wrong = |report: &mut Report| {
        report.error(Some(node.at), path, format!("is no {}", kind.as_str()));
        None
    };
    if let (ParameterKind::Array, Value::List(items)) = (kind, &node.value) {
        let entries = entries.unwrap_or(ParameterKind::String);
        let read =
            |(index, item): (usize, &Node)| typed_value(item, entries, None, &format!("{path}[{index}]"), report);
        return Some(Json::Array(items.iter().enumerate().filter_map(read).collect()));
    }
    if kind == ParameterKind::String {
        return text_of(node.clone(), path, report).map(Json::String);
    }
    match (kind, json_of(node)) {
        (ParameterKind::Boolean, value @ Json::Bool(_)) => Some(value),
        (ParameterKind::Number, Json::Number(number)) => Some(Json::Number(number)),
        (ParameterKind::Integer, Json::Number(number)) if number_text(&number.to_string()).is_some() => {
            Some(Json::Number(number))
        }
        _ => wrong(report),
    }
}

/// Reads a JSON Schema; what it says beyond its properties is returned.
fn read_schema(
    map: Vec<Entry>,
    at: Mark,
    parameters: &mut Vec<Parameter>,
    properties: &mut Map<String, Json>,
    report: &mut Report,
) -> Map<String, Json> {
    let mut rest = Map::new();
    let mut declared = Vec::new();
    let mut required = Vec::new();
    for entry in map {
        let path = path_of("parameters", &entry.key);
        match (entry.key.as_str(), entry.node.value) {
            ("type", Value::Scalar { text, .. }) if text == "object" => {}
            ("type", _) => report.error(Some(entry.at), &path, "has to be `object`"),
            ("properties", Value::Map(entries)) => declared = entries,
            ("properties", _) => report.error(Some(entry.at), &path, "expected a map of parameters"),
            ("required", Value::List(items)) => {
                let names = items.into_iter().filter_map(|item| Some((item.at, text_of(item, &path, report)?)));
                required = names.collect::<Vec<_>>();
            }
            ("required", _) => report.error(Some(entry.at), &path, "expected a list of names"),
            (_, value) => {
                rest.insert(entry.key, json_of(&Node { at: entry.node.at, value }));
            }
        }
    }
    if declared.len() > PARAMETERS_MAX {
        let message = format!("schema has {} properties, at most {PARAMETERS_MAX} are allowed", declared.len());
        report.error(Some(at), "parameters.properties", message);
        return rest;
    }
    for (at, name) in &required {
        if !declared.iter().any(|entry| entry.key == *name) {
            let message = format!("parameter {} is required and not among the properties", quoted(name));
            report.error(Some(*at), "parameters.required", message);
        }
    }
    for entry in declared {
        let is_required = required.iter().any(|(_, name)| *name == entry.key);
        read_property(entry, is_required, parameters, properties, report);
    }
    rest
}

fn read_property(
    entry: Entry,
    required: bool,
    parameters: &mut Vec<Parameter>,
    properties: &mut Map<String, Json>,
    report: &mut Report,
) {
    let path = path_of("parameters.properties", &entry.key);
    if !check_name(&entry.key, entry.at, &path, report) {
        return;
    }
    let Value::Map(keys) = &entry.node.value else {
        report.error(Some(entry.node.at), &path, "expected a schema");
        return;
    };
    let Json::Object(mut schema) = json_of(&entry.node) else { return };
    let allow_leading_dash = schema.remove(LEADING_DASH) == Some(Json::Bool(true));
    let named = schema.get("type").and_then(Json::as_str);
    let kind = ParameterKind::ALL.iter().find(|(name, _)| named == Some(*name)).map(|(_, kind)| *kind);
    let Some(kind) = kind else {
        let hint = "write `type: string`, or number, integer, boolean or array";
        report.error_hint(Some(entry.node.at), &path, "its type is missing or has no place on a command line", hint);
        return;
    };
    let key = |name: &str| keys.iter().find(|entry| entry.key == name);
    let entries = read_entries(kind, key("items"), entry.node.at, &path, report);
    if let (ParameterKind::Array, Some(entries), None) = (kind, entries, key("items")) {
        schema.insert("items".to_owned(), json!({ "type": entries.as_str() }));
    }
    let default =
        key("default").and_then(|it| typed_value(&it.node, kind, entries, &path_of(&path, "default"), report));
    let allowed = key("enum").and_then(|it| read_enum(it, kind, entries, &path, report));
    let description = schema.get("description").and_then(Json::as_str).unwrap_or_default().to_owned();
    let name = entry.key;
    let spec = Spec { name, kind, entries, description, required, allow_leading_dash, default };
    finish(spec, allowed, schema, entry.node.at, &path, parameters, properties, report);
}

/// A tree as JSON: unquoted words that YAML and JSON both know as numbers, booleans or nothing are those, the rest is
/// text.
pub(super) fn json_of(node: &Node) -> Json {
    match &node.value {
        _ if node.is_null() => Json::Null,
        Value::Scalar { text, plain: true } => match text.as_str() {
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            other => other.parse::<Number>().map_or_else(|_| Json::String(other.to_owned()), Json::Number),
        },
        Value::Scalar { text, plain: false } => Json::String(text.clone()),
        Value::List(items) => Json::Array(items.iter().map(json_of).collect()),
        Value::Map(entries) => {
            Json::Object(entries.iter().map(|entry| (entry.key.clone(), json_of(&entry.node))).collect())
        }
    }
}
