//! Two habits of old schema editions, put right.
//!
//! Owns the only changes that are made to what a plugin shows to others: bounds with a boolean beside them, and
//! `required` on a property instead of on its object. Both are common, have one meaning, and would otherwise lose the
//! tool. Refuses to guess at anything else.

use jsonschema::Draft;
use serde_json::{Map, Value};

use super::{SchemaWarning, keywords};

/// Repairs `schema` in place; says whether anything changed, with a warning for each change.
pub(super) fn repair(schema: &mut Value, draft: Draft, warnings: &mut Vec<SchemaWarning>) -> bool {
    let before = warnings.len();
    keywords::walk_mut(schema, "", &mut |pointer, map| {
        if draft != Draft::Draft4 {
            bound(map, pointer, "minimum", "exclusiveMinimum", warnings);
            bound(map, pointer, "maximum", "exclusiveMaximum", warnings);
        }
        required(map, pointer, warnings);
    });
    warnings.len() > before
}

/// Draft-04 and OpenAPI 3.0: `minimum: 0, exclusiveMinimum: true` means `exclusiveMinimum: 0` since.
fn bound(map: &mut Map<String, Value>, pointer: &str, limit: &str, exclusive: &str, warnings: &mut Vec<SchemaWarning>) {
    let Some(Value::Bool(excluded)) = map.get(exclusive) else { return };
    let limit_value = if *excluded { map.get(limit).filter(|value| value.is_number()).cloned() } else { None };
    match limit_value {
        Some(value) => {
            map.insert(exclusive.to_owned(), value);
            map.shift_remove(limit);
        }
        None => {
            map.shift_remove(exclusive);
        }
    }
    let message = "a boolean here belongs to draft-04; repaired to what it means";
    warnings.push(SchemaWarning::new(&format!("{pointer}/{exclusive}"), message));
}

/// Draft-03: `required: true` on a property means the name in the `required` list of its object.
fn required(map: &mut Map<String, Value>, pointer: &str, warnings: &mut Vec<SchemaWarning>) {
    let Some(Value::Object(properties)) = map.get_mut("properties") else { return };
    let mut names = Vec::new();
    for (name, property) in properties.iter_mut() {
        let Value::Object(property) = property else { continue };
        if let Some(Value::Bool(required)) = property.get("required") {
            if *required {
                names.push(Value::String(name.clone()));
            }
            property.shift_remove("required");
            let place = format!("{pointer}/properties/{}/required", keywords::escape(name));
            warnings.push(SchemaWarning::new(&place, "`required` belongs to the object, not the property; repaired"));
        }
    }
    if names.is_empty() {
        return;
    }
    // Where it is no list, the meta-schema check names the place.
    if let Value::Array(list) = map.entry("required").or_insert_with(|| Value::Array(Vec::new())) {
        let missing = names.into_iter().filter(|name| !list.contains(name)).collect::<Vec<_>>();
        list.extend(missing);
    }
}
