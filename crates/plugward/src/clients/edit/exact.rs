//! Values that are their source text: `1.50` in a file is written again as `1.50`.
//!
//! Owns the marked form of such a value among parsed ones, and writing it. Refuses to read files: what needs the form is
//! known where the file's own language is.

use serde_json::Value;

/// What a marked text begins with. No settings file has a use for a text with this beginning, and one that has it all
/// the same is marked itself.
const MARK: &str = "\0=";

/// A value that is written as `source`.
pub(super) fn of(source: &str) -> Value {
    Value::String(format!("{MARK}{source}"))
}

/// A text as a value. One that looks marked is kept by its JSON, so that it cannot be taken for something else.
pub(super) fn text(text: &str) -> Value {
    let plain = Value::String(text.to_owned());
    if text.starts_with(MARK) { of(&plain.to_string()) } else { plain }
}

/// The source text of a marked value.
pub(super) fn source(value: &Value) -> Option<&str> {
    value.as_str()?.strip_prefix(MARK)
}

/// A text for people, without marks.
pub(in crate::clients) fn shown(text: &str) -> String {
    text.replace(MARK, "")
}

/// A value as JSON on one line, with marked ones as they were.
pub(super) fn json(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(json).collect::<Vec<_>>().join(",")),
        Value::Object(map) => {
            let member = |(name, value): (&String, &Value)| format!("{}:{}", Value::from(name.as_str()), json(value));
            format!("{{{}}}", map.iter().map(member).collect::<Vec<_>>().join(","))
        }
        other => source(other).map_or_else(|| other.to_string(), ToOwned::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json as value_of;

    use super::*;

    #[test]
    fn a_marked_value_is_its_source_and_a_text_never_is() {
        let value = value_of!({ "a": [of("1.50"), 1, "x"], "b": text("\0=1"), "c": { "d": null } });
        assert_eq!(json(&value), r#"{"a":[1.50,1,"x"],"b":"\u0000=1","c":{"d":null}}"#);
        assert_eq!(text("1.50"), value_of!("1.50"));
    }
}
