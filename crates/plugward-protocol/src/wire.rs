//! Writing JSON-RPC lines.
//!
//! Owns the exact text that goes out: one object (or one array of answers) per line, values of others spliced in as
//! they were received. Refuses line breaks inside a line: between tokens they become spaces, inside strings JSON does
//! not allow them (Requirement 4).

use serde_json::value::RawValue;

use crate::message::RpcError;

/// A JSON string literal for `text`.
pub(crate) fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Text of a request.
pub(crate) fn request(id: u64, method: &str, params: Option<&RawValue>) -> String {
    let mut text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{}", json_string(method));
    push_params(&mut text, params);
    text
}

/// Text of a notification.
pub(crate) fn notification(method: &str, params: Option<&RawValue>) -> String {
    let mut text = format!("{{\"jsonrpc\":\"2.0\",\"method\":{}", json_string(method));
    push_params(&mut text, params);
    text
}

/// Text of a successful answer; `id` and `result` are JSON text.
pub(crate) fn result(id: &str, result: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")
}

/// Text of an error answer; `id` is JSON text, `null` when the request's id could not be read.
pub(crate) fn error(id: &str, error: &RpcError) -> String {
    let mut text = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":{},\"message\":{}",
        error.code,
        json_string(&error.message)
    );
    if let Some(data) = &error.data {
        text.push_str(",\"data\":");
        text.push_str(data.get());
    }
    text.push_str("}}");
    text
}

/// Text of several answers in one array.
pub(crate) fn batch(answers: &[String]) -> String {
    format!("[{}]", answers.join(","))
}

/// Ends the text as one line. Raw values may carry line breaks between tokens, which would cut the line in two.
pub(crate) fn line(text: String) -> Vec<u8> {
    let mut bytes = text.into_bytes();
    for byte in &mut bytes {
        if matches!(*byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    bytes.push(b'\n');
    bytes
}

fn push_params(text: &mut String, params: Option<&RawValue>) {
    if let Some(params) = params {
        text.push_str(",\"params\":");
        text.push_str(params.get());
    }
    text.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_never_contains_a_line_break() {
        // Requirement 4: a frame with an embedded newline is never emitted.
        let pretty = RawValue::from_string("{\n\r\"a\": \"x\\ny\"\n}".to_owned()).unwrap();
        let bytes = line(request(1, "odd\nmethod", Some(&pretty)));
        assert_eq!(bytes.iter().filter(|&&b| b == b'\n').count(), 1);
        assert_eq!(bytes.last(), Some(&b'\n'));
        let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(value["method"], "odd\nmethod");
        assert_eq!(value["params"]["a"], "x\ny");
    }
}
