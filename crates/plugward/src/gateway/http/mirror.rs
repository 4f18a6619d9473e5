//! Arguments of tools that clients repeat in headers (`x-mcp-header` in an input schema).
//!
//! Owns finding them in a definition. Refuses to judge whether the annotation is a good one: clients leave out tools
//! whose annotations break a rule, and what such a tool's headers say is not looked at.

use serde_json::Value;
use serde_json::value::RawValue;

/// The annotation.
const ANNOTATION: &str = "x-mcp-header";

/// Deepest argument that is looked at. Real ones are at the first level; schemas may nest far deeper.
const MAX_DEPTH: usize = 8;

/// An argument that is repeated in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mirrored {
    /// End of the header's name.
    pub(super) name: String,
    /// Where the argument is.
    pub(super) path: Vec<String>,
}

/// The repeated arguments in a tool's definition.
pub(super) fn of_definition(tool: &RawValue) -> Vec<Mirrored> {
    // Hardly any tool has them.
    if !tool.get().contains(ANNOTATION) {
        return Vec::new();
    }
    let Ok(tool) = serde_json::from_str::<Value>(tool.get()) else { return Vec::new() };
    let mut found = Vec::new();
    collect(&tool["inputSchema"], &mut Vec::new(), &mut found);
    found
}

fn collect(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Mirrored>) {
    if path.len() > MAX_DEPTH {
        return;
    }
    let Some(properties) = schema["properties"].as_object() else { return };
    for (key, property) in properties {
        path.push(key.clone());
        if let Some(name) = property[ANNOTATION].as_str() {
            found.push(Mirrored { name: name.to_owned(), path: path.clone() });
        }
        collect(property, path, found);
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn annotations_are_found_where_they_may_stand() {
        let tool = json!({"name": "b", "inputSchema": {"properties": {
            "r": {"type": "string", "x-mcp-header": "Region"},
            "o": {"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
            "l": {"items": {"properties": {"i": {"x-mcp-header": "NotReachable"}}}},
        }}});
        let tool = serde_json::value::to_raw_value(&tool).unwrap();
        let found: Vec<(String, String)> =
            of_definition(&tool).into_iter().map(|one| (one.name, one.path.join("."))).collect();
        assert_eq!(found, [("Region".to_owned(), "r".to_owned()), ("N".to_owned(), "o.n".to_owned())]);
    }
}
