//! From the text of a schema to something that can check values.
//!
//! Owns the order of the steps: every step that bounds cost comes before the first one that spends it. Refuses
//! whatever an earlier step refused.

use std::sync::Arc;

use jsonschema::{Draft, PatternCache};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::graph::Graph;
use super::violation::{bounded, expected, quoted};
use super::{
    Compiled, Inner, SchemaFault, SchemaWarning, ToolSchema, Use, dialect, parse, pattern, references, repair,
};

/// Bytes of one schema. The largest of a thousand real ones has 37 KiB.
pub(super) const MAX_SCHEMA_BYTES: usize = 256 * 1024;

/// Nesting of one schema's text. The deepest of a thousand real ones has 21 levels.
pub(super) const MAX_SCHEMA_DEPTH: u64 = 64;

/// Warnings kept for one schema; a schema can have thousands of properties with the same mistake.
const MAX_WARNINGS: usize = 20;

/// Bytes of a reason; it may quote the schema.
const MAX_REASON_BYTES: usize = 400;

/// Compiles `raw` without looking into the cache.
pub(super) fn compile(raw: &RawValue, usage: Use) -> Result<Compiled, SchemaFault> {
    let text = raw.get();
    if text.len() > MAX_SCHEMA_BYTES {
        return Err(SchemaFault::new("", format!("the schema is larger than {MAX_SCHEMA_BYTES} bytes")));
    }
    let (mut value, size) = parse::parse(text).map_err(|reason| SchemaFault::new("", reason))?;
    if size.depth > MAX_SCHEMA_DEPTH {
        return Err(SchemaFault::new("", format!("the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")));
    }
    let mut warnings = Vec::new();
    if usage == Use::Input && value.is_null() {
        return no_arguments();
    }
    let mut repaired = root(&mut value, usage, &mut warnings)?;
    let (draft, guess) = dialect::of(&value);
    if let Some(guess) = guess {
        warnings.push(SchemaWarning::new("/$schema", guess));
    }
    repaired |= repair::repair(&mut value, draft, &mut warnings);
    let exposed = if repaired { to_raw_value(&value).ok() } else { None };
    let schema = build(value, draft, &mut warnings)?;
    warnings.truncate(MAX_WARNINGS);
    Ok(Compiled { schema, warnings, exposed })
}

/// Arguments are an object, and clients refuse a whole list for one schema that does not say so.
fn root(value: &mut Value, usage: Use, warnings: &mut Vec<SchemaWarning>) -> Result<bool, SchemaFault> {
    let not_object = || SchemaFault::new("/type", "the root of an input schema must be an object".to_owned());
    match (value, usage) {
        (Value::Bool(_), Use::Output) => Ok(false),
        (Value::Object(_), Use::Output) => Ok(false),
        (Value::Object(map), Use::Input) => match map.get("type") {
            Some(Value::String(name)) if name == "object" => Ok(false),
            Some(Value::Array(names)) if !names.iter().any(|name| name == "object") => Err(not_object()),
            Some(Value::String(_)) => Err(not_object()),
            // Neither text nor a list: the meta-schema check says what is wrong.
            Some(other) if !other.is_array() => Ok(false),
            found => {
                let message = match found {
                    None => "missing; arguments are always an object",
                    Some(_) => "must be `object` alone; arguments are always an object",
                };
                warnings.push(SchemaWarning::new("/type", message));
                map.insert("type".to_owned(), "object".into());
                Ok(true)
            }
        },
        _ => Err(SchemaFault::new("", "the schema must be a JSON object".to_owned())),
    }
}

fn build(mut value: Value, draft: Draft, warnings: &mut Vec<SchemaWarning>) -> Result<ToolSchema, SchemaFault> {
    let places = references::localize(&mut value, draft)?;
    let cache = PatternCache::new();
    let matchers = pattern::prepare(&mut value, &places, &cache, warnings)?;
    let graph = Graph::build(&value, draft, &places, &matchers)?;
    let options = jsonschema::options()
        .with_draft(draft)
        .offline()
        .should_validate_formats(false)
        .with_pattern_options(pattern::backtracking())
        .with_pattern_cache(cache);
    let validator = options.build(&value).map_err(|error| {
        let pointer = error.instance_path().as_str().to_owned();
        let reason = match references::last_step(&pointer).as_str() {
            "type" => type_fault(value.pointer(&pointer)),
            _ => format!("is not valid in the {} edition: {}", dialect::name(draft), expected(&error)),
        };
        SchemaFault::new(&pointer, bounded(&reason, MAX_REASON_BYTES))
    })?;
    Ok(ToolSchema { inner: Arc::new(Inner { validator, graph }) })
}

fn type_fault(found: Option<&Value>) -> String {
    match found {
        Some(Value::String(name)) => format!("{} is not a type of JSON Schema", quoted(name)),
        _ => "`type` must be a type of JSON Schema or a list of different ones".to_owned(),
    }
}

/// What a tool without an input schema gets (requirement 59 as far as imported plugins go).
fn no_arguments() -> Result<Compiled, SchemaFault> {
    let value = serde_json::json!({"type": "object", "properties": {}});
    let exposed = to_raw_value(&value).ok();
    let mut warnings = vec![SchemaWarning::new("", "there is no input schema; the tool is taken to have no arguments")];
    let schema = build(value, dialect::DEFAULT, &mut warnings)?;
    Ok(Compiled { schema, warnings, exposed })
}
