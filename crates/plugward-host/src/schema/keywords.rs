//! Where schemas stand inside a schema.
//!
//! Owns the list of keywords whose values are schemas, so that `enum`, `const`, `default` and properties that happen
//! to be called `$ref` are never mistaken for rules. Refuses to judge: it only finds.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// Keywords whose value is one schema (`items` and `dependencies` are looked at by shape below).
const ONE: &[&str] = &[
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords whose value is a list of schemas.
const MANY: &[&str] = &["allOf", "anyOf", "oneOf", "prefixItems"];

/// Keywords whose value maps names to schemas.
const NAMED: &[&str] = &["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];

/// How a keyword holds its schemas.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    One,
    Many,
    Named,
}

fn shape(keyword: &str, value: &Value) -> Option<Shape> {
    match (keyword, value) {
        ("items", Value::Array(_)) => Some(Shape::Many),
        ("items", _) => Some(Shape::One),
        _ if ONE.contains(&keyword) => Some(Shape::One),
        (_, Value::Array(_)) if MANY.contains(&keyword) => Some(Shape::Many),
        (_, Value::Object(_)) if NAMED.contains(&keyword) => Some(Shape::Named),
        _ => None,
    }
}

/// Calls `visit` with the pointer and the schema, for `schema` and every schema inside it, outermost first.
///
/// Recursion is bounded by the nesting limit that was checked before.
pub(super) fn walk<'a>(schema: &'a Value, pointer: &str, visit: &mut dyn FnMut(&str, &'a Value)) {
    visit(pointer, schema);
    let Value::Object(map) = schema else { return };
    for (keyword, value) in map {
        let Some(shape) = shape(keyword, value) else { continue };
        let below = format!("{pointer}/{}", escape(keyword));
        match (shape, value) {
            (Shape::Many, Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    walk(item, &format!("{below}/{index}"), visit);
                }
            }
            (Shape::Named, Value::Object(named)) => {
                for (name, item) in named {
                    walk(item, &format!("{below}/{}", escape(name)), visit);
                }
            }
            _ => walk(value, &below, visit),
        }
    }
}

/// Like [`walk`], for changing the schema; `visit` sees an object before its parts are looked for.
pub(super) fn walk_mut(schema: &mut Value, pointer: &str, visit: &mut dyn FnMut(&str, &mut Map<String, Value>)) {
    let Value::Object(map) = schema else { return };
    visit(pointer, map);
    for (keyword, value) in map.iter_mut() {
        let Some(shape) = shape(keyword, value) else { continue };
        let below = format!("{pointer}/{}", escape(keyword));
        match (shape, value) {
            (Shape::Many, Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    walk_mut(item, &format!("{below}/{index}"), visit);
                }
            }
            (Shape::Named, Value::Object(named)) => {
                for (name, item) in named.iter_mut() {
                    walk_mut(item, &format!("{below}/{}", escape(name)), visit);
                }
            }
            (_, value) => walk_mut(value, &below, visit),
        }
    }
}

/// A name as one step of a JSON pointer.
pub(super) fn escape(name: &str) -> Cow<'_, str> {
    if name.contains(['~', '/']) { Cow::Owned(name.replace('~', "~0").replace('/', "~1")) } else { Cow::Borrowed(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_schema_positions_are_found() {
        // A property called `$ref`, or an example value that looks like a rule, is data and must not be judged.
        let schema = json!({
            "properties": {"$ref": {"type": "string"}, "a/b": {"items": [{"x": 1}, true]}},
            "enum": [{"$ref": "http://x.test"}], "default": {"pattern": "("},
            "dependencies": {"q": ["r"]}, "not": {"const": {"not": {}}}
        });
        let mut found = Vec::new();
        walk(&schema, "", &mut |pointer, _| found.push(pointer.to_owned()));
        assert_eq!(
            found,
            [
                "",
                "/properties/$ref",
                "/properties/a~1b",
                "/properties/a~1b/items/0",
                "/properties/a~1b/items/1",
                "/dependencies/q",
                "/not"
            ]
        );
    }
}
