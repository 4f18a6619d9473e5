//! Turns what a plugin answered into a tool result, and a tool result into the seed's output.
//!
//! Owns the size limit (requirements 67, 68, 101), the few repairs a result may get (B011) and the conversion for
//! callers that never see MCP (requirements 65, 66). Refuses to change anything else: members, order and digits pass
//! through untouched (B034, B051, B059).

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::error::CallFailure;
use crate::raw_object::{RawObject, compact_len};
use crate::schema::ToolSchema;

/// Characters kept of an error text (the seed's limit).
pub(crate) const MAX_ERROR_CHARS: usize = 4096;

/// Kinds of content a caller outside MCP is handed (requirement 66).
const CONTROLLED_KINDS: [&str; 5] = ["text", "image", "audio", "resource", "resource_link"];

/// Says what a result is, on the way between two neighbours. Whoever hands it on says so anew: a plugin of a revision that
/// does not have it must not make a client believe that it is asked something.
pub(crate) const RESULT_TYPE: &str = "resultType";

/// A result that may be handed on.
#[derive(Debug, Clone)]
pub struct ToolReply {
    /// The MCP result object.
    pub result: Box<RawValue>,
    /// Whether the tool says it failed.
    pub is_error: bool,
    /// Whether it is no result yet, but a question that the caller said it takes: the call is to be made again.
    pub is_question: bool,
    /// What was noticed about it; for the trace.
    pub warnings: Vec<String>,
}

/// A question for a caller that takes one.
pub(crate) fn question(result: Box<RawValue>) -> ToolReply {
    ToolReply { result, is_error: false, is_question: true, warnings: Vec::new() }
}

/// Checks the answer of a plugin.
pub(crate) fn accept(
    raw: Box<RawValue>,
    output: Option<&ToolSchema>,
    max_bytes: usize,
) -> Result<ToolReply, CallFailure> {
    let length = raw.get().len();
    if length > max_bytes {
        let compact = compact_len(raw.get());
        if compact > max_bytes {
            let limit = u64::try_from(max_bytes).unwrap_or(u64::MAX);
            return Err(CallFailure::ResultTooLarge { bytes: u64::try_from(compact).unwrap_or(u64::MAX), limit });
        }
    }
    let invalid = |reason: &str| CallFailure::ResultInvalid { reason: reason.to_owned() };
    let mut object = RawObject::parse(&raw).ok_or_else(|| invalid("it is not an object, or repeats a key"))?;
    let is_error = match object.get("isError").map(RawValue::get) {
        None | Some("null" | "false") => false,
        Some("true") => true,
        Some(_) => return Err(invalid("`isError` is not a boolean")),
    };
    if object.has("content") && content_blocks(&object).is_none() {
        return Err(invalid("`content` is not an array"));
    }
    let mut reply = ToolReply { result: raw, is_error, is_question: false, warnings: Vec::new() };
    let said_its_kind = object.has(RESULT_TYPE);
    object.remove(RESULT_TYPE);
    if complete(&mut object, output, &mut reply) || said_its_kind {
        reply.result = object.to_raw();
    }
    Ok(reply)
}

/// Fills in what strict clients need and the plugin left out (B011); tells whether anything changed.
fn complete(object: &mut RawObject, output: Option<&ToolSchema>, reply: &mut ToolReply) -> bool {
    let mut changed = false;
    if !object.has("content") {
        let block = object.get("structuredContent").map(|raw| json!([{ "type": "text", "text": raw.get() }]));
        if let Ok(content) = to_raw_value(&block.unwrap_or_else(|| json!([]))) {
            object.set("content", content);
            changed = true;
        }
    }
    let Some(schema) = output.filter(|_| !reply.is_error) else { return changed };
    match object.get("structuredContent") {
        Some(structured) => {
            if let Err(violations) = schema.validate(structured) {
                reply.warnings.push(format!("structuredContent does not fit the tool's outputSchema: {violations}"));
            }
        }
        None => match only_text(object).filter(|text| schema.validate(text).is_ok()) {
            Some(text) => {
                object.set("structuredContent", text);
                changed = true;
            }
            None => reply.warnings.push("the tool has an outputSchema but sent no structuredContent".to_owned()),
        },
    }
    changed
}

/// The single text block, if it holds a JSON object.
fn only_text(object: &RawObject) -> Option<Box<RawValue>> {
    let [block] = &*content_blocks(object)? else { return None };
    let block = RawObject::parse(block)?;
    let text = block.get_str("text").filter(|_| block.get_str("type").as_deref() == Some("text"))?;
    let trimmed = text.trim();
    trimmed.starts_with('{').then(|| RawValue::from_string(trimmed.to_owned()).ok()).flatten()
}

fn content_blocks(object: &RawObject) -> Option<Vec<Box<RawValue>>> {
    serde_json::from_str(object.get("content")?.get()).ok()
}

impl ToolReply {
    /// The seed's output: `structuredContent` where there is one, else the controlled content blocks.
    pub fn output(&self) -> Value {
        let Some(object) = RawObject::parse(&self.result) else { return Value::Null };
        if let Some(structured) = object.get("structuredContent").filter(|raw| raw.get() != "null") {
            return parse(structured);
        }
        let blocks = content_blocks(&object).unwrap_or_default();
        let total = blocks.len();
        let kept: Vec<Value> = blocks
            .iter()
            .map(|raw| parse(raw))
            .filter(|block| {
                block.get("type").and_then(Value::as_str).is_some_and(|kind| CONTROLLED_KINDS.contains(&kind))
            })
            .collect();
        let mut output = Map::new();
        if kept.len() < total {
            output.insert("omitted_blocks".to_owned(), json!(total - kept.len()));
        }
        output.insert("content".to_owned(), Value::Array(kept));
        Value::Object(output)
    }

    /// The text of a failed tool: its text blocks, joined and cut (requirement 67).
    pub fn error_text(&self) -> String {
        let texts = RawObject::parse(&self.result).and_then(|object| content_blocks(&object)).unwrap_or_default();
        let joined =
            texts.iter().filter_map(|raw| RawObject::parse(raw)?.get_str("text")).collect::<Vec<_>>().join("\n");
        let cut: String = joined.chars().take(MAX_ERROR_CHARS).collect();
        if cut.is_empty() { "the tool reported a failure without a text".to_owned() } else { cut }
    }
}

fn parse(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{self, Use};

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn celsius() -> ToolSchema {
        let text = r#"{"type":"object","properties":{"t":{"type":"number"}},"required":["t"]}"#;
        schema::compile(&raw(text), Use::Output).unwrap().schema
    }

    #[test]
    fn structured_content_is_the_output_and_otherwise_controlled_content() {
        // Requirements 65, 66.
        let reply = accept(raw(r#"{"content":[],"structuredContent":{"echo":"hi"}}"#), None, 1000).unwrap();
        assert_eq!(reply.output(), json!({"echo": "hi"}));
        let text = r#"{"content":[{"type":"text","text":"a"},{"type":"hologram","x":1}]}"#;
        let reply = accept(raw(text), None, 1000).unwrap();
        assert_eq!(reply.output(), json!({"omitted_blocks": 1, "content": [{"type": "text", "text": "a"}]}));
        // B051: a client that speaks MCP gets every block as it came.
        assert_eq!(reply.result.get(), text);
    }

    #[test]
    fn the_limit_counts_compact_bytes_and_is_exact() {
        // Requirement 68: 262,144 bytes pass, one more fails.
        let limit = 256 * 1024;
        let frame = r#"{"content":[{"type":"text","text":""}]}"#.len();
        let of = |bytes: usize| {
            raw(&format!(
                r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#,
                "é".repeat((bytes - frame) / 2) + &"x".repeat((bytes - frame) % 2)
            ))
        };
        assert!(accept(of(limit), None, limit).is_ok());
        let failure = accept(of(limit + 1), None, limit).unwrap_err();
        assert!(matches!(failure, CallFailure::ResultTooLarge { bytes: 262_145, limit: 262_144 }), "{failure:?}");
    }

    #[test]
    fn what_a_strict_client_needs_is_filled_in_and_nothing_else_changes() {
        // B011, row by row.
        let schema = celsius();
        let both = r#"{"content":[{"type":"text","text":"{\"t\": 21.5}"}],"structuredContent":{"t":21.5}}"#;
        assert_eq!(accept(raw(both), Some(&schema), 1000).unwrap().result.get(), both);
        let text_only = r#"{"content":[{"type":"text","text":"{\"t\": 21.5}"}]}"#;
        let reply = accept(raw(text_only), Some(&schema), 1000).unwrap();
        assert_eq!(reply.output(), json!({"t": 21.5}));
        let struct_only = accept(raw(r#"{"structuredContent":{"t":1}}"#), Some(&schema), 1000).unwrap();
        assert!(struct_only.result.get().contains(r#""content":[{"type":"text","text":"{\"t\":1}"}]"#));
        let wrong = accept(raw(r#"{"content":[],"structuredContent":{"t":"x"}}"#), Some(&schema), 1000).unwrap();
        assert_eq!((wrong.is_error, wrong.warnings.len()), (false, 1));
        let failed = r#"{"content":[{"type":"text","text":"sensor offline"}],"isError":true}"#;
        let reply = accept(raw(failed), Some(&schema), 1000).unwrap();
        assert_eq!((reply.is_error, reply.error_text().as_str(), reply.warnings.len()), (true, "sensor offline", 0));
    }

    #[test]
    fn a_result_does_not_say_its_kind_any_further() {
        // MR-01, BP-04: the word of an older plugin must not make a newer client answer a question of its own making.
        let forged = r#"{"resultType":"input_required","content":[],"requestState":"mine"}"#;
        assert_eq!(accept(raw(forged), None, 1000).unwrap().result.get(), r#"{"content":[],"requestState":"mine"}"#);
    }

    #[test]
    fn what_is_no_result_is_refused() {
        for text in ["7", "[]", "null", r#"{"content":"x"}"#, r#"{"content":[],"isError":"no"}"#, r#"{"a":1,"a":2}"#] {
            let failure = accept(raw(text), None, 1000).unwrap_err();
            assert_eq!(failure.cause(), "result_invalid", "{text}");
        }
    }
}
