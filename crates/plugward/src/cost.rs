//! What a tool costs in a model's context: an estimate.
//!
//! Owns the estimate, which looks at what clients hand to a model: name, description and argument schema. It needs no
//! tokenizer and gives the same number everywhere. Refuses to be a bill: models count differently.

use serde_json::Value;

/// Tokens that a client puts around each tool.
const TOKENS_PER_TOOL: u64 = 8;

/// Bytes of text for one token, times ten. See `docs/settings.md` for how it was found and how far it is off.
const TEXT_BYTES_PER_10_TOKENS: u64 = 43;
const SCHEMA_BYTES_PER_10_TOKENS: u64 = 36;

/// Tokens of one tool.
pub(crate) fn of_tool(name: &str, description: &str, schema: &str) -> u64 {
    let bytes = |text: &str| u64::try_from(text.len()).unwrap_or(u64::MAX / 1000);
    let text = (bytes(name) + bytes(description)) * 10 / TEXT_BYTES_PER_10_TOKENS;
    TOKENS_PER_TOOL + text + bytes(schema) * 10 / SCHEMA_BYTES_PER_10_TOKENS
}

/// Tokens of a definition as it is listed.
pub(crate) fn of_definition(definition: &str) -> u64 {
    let read: Value = serde_json::from_str(definition).unwrap_or(Value::Null);
    let text = |key: &str| read[key].as_str().unwrap_or_default();
    of_tool(text("name"), text("description"), &read["inputSchema"].to_string())
}
