//! The definition of a command as clients see it. Owns its form (requirement 182). Refuses anything of the command
//! itself: what is run is shown to the person who approves, not to models.

use serde_json::{Map, Value, json};

use super::{CommandTool, OutputForm};

impl CommandTool {
    /// The tool as an MCP definition: name, description, `inputSchema`, and `outputSchema` where its result has one.
    #[must_use]
    pub fn definition(&self) -> Value {
        let mut definition = Map::new();
        definition.insert("name".to_owned(), json!(self.name));
        definition.insert("description".to_owned(), json!(self.description));
        definition.insert("inputSchema".to_owned(), parsed(&self.input_schema));
        if let Some(schema) = self.result_schema() {
            definition.insert("outputSchema".to_owned(), schema);
        }
        Value::Object(definition)
    }

    /// The schema of the structured result: the tool's own, or the one that follows from how its output is read.
    #[must_use]
    pub fn result_schema(&self) -> Option<Value> {
        if let Some(schema) = &self.output_schema {
            return Some(parsed(schema));
        }
        let object = |properties: Value, required: Value| {
            Some(json!({ "type": "object", "properties": properties, "required": required }))
        };
        match &self.output {
            OutputForm::Text | OutputForm::Json => None,
            OutputForm::Lines => {
                object(json!({ "lines": { "type": "array", "items": { "type": "string" } } }), json!(["lines"]))
            }
            OutputForm::Regex { every: true, .. } => {
                let group = json!({ "type": "object", "additionalProperties": { "type": "string" } });
                object(json!({ "matches": { "type": "array", "items": group } }), json!(["matches"]))
            }
            OutputForm::Regex { every: false, .. } => {
                Some(json!({ "type": "object", "additionalProperties": { "type": "string" } }))
            }
        }
    }
}

/// The text was made by us from a tree, so it is JSON; nothing is promised if it were not.
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}
