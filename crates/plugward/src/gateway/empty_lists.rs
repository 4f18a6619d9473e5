//! `prompts/list`, `resources/list`, `resources/templates/list`: always empty.
//!
//! Plugins offer tools only so far, and the capabilities of `initialize` say so. Clients ask all the same, and some
//! drop a server that answers with an error (cases B013, B089). Refuses cursors by ignoring them: there is one page.

use serde_json::value::RawValue;

/// The empty list of a method, if it is one of these.
pub(super) fn answer(method: &str) -> Option<Box<RawValue>> {
    let text = match method {
        "prompts/list" => r#"{"prompts":[]}"#,
        "resources/list" => r#"{"resources":[]}"#,
        "resources/templates/list" => r#"{"resourceTemplates":[]}"#,
        _ => return None,
    };
    RawValue::from_string(text.to_owned()).ok()
}
