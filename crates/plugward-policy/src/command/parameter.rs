//! One parameter of a command. Owns its kinds and how a JSON value of each becomes text. Refuses objects: a command
//! line has no place for them.

use serde_json::Value;

/// Longest name of a parameter, in bytes: what model interfaces take as the name of a property.
const NAME_BYTES_MAX: usize = 64;

/// What values a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// Text.
    String,
    /// Any number.
    Number,
    /// A whole number.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// A list of texts, numbers or booleans.
    Array,
}

impl ParameterKind {
    /// The kinds by name.
    pub const ALL: [(&'static str, Self); 5] = [
        ("string", Self::String),
        ("number", Self::Number),
        ("integer", Self::Integer),
        ("boolean", Self::Boolean),
        ("array", Self::Array),
    ];

    /// The kind's name in JSON Schema.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::Array => "array",
        }
    }
}

/// One parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// What values it takes.
    pub kind: ParameterKind,
    /// What the entries of an array are.
    pub entries: Option<ParameterKind>,
    /// What it is for.
    pub description: String,
    /// Whether a caller has to give it. One with a default never has to be given.
    pub required: bool,
    /// The value when a caller gives none.
    pub default: Option<Value>,
    /// Whether a value that begins with `-` may stand where a program could take it for an option.
    pub allow_leading_dash: bool,
}

impl Parameter {
    /// Whether it may be without a value.
    #[must_use]
    pub fn may_be_absent(&self) -> bool {
        !self.required && self.default.is_none()
    }
}

/// Whether `name` can be the name of a parameter: ASCII letters, digits, `_` and `-`, beginning with a letter or `_`.
#[must_use]
pub fn is_parameter_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// The text of one value of `kind`, `None` when it is none. `raw` is the value as the caller wrote it: every digit of a
/// number reaches the command.
pub(super) fn scalar_text(kind: ParameterKind, raw: &str) -> Option<String> {
    let raw = raw.trim();
    match kind {
        ParameterKind::String => serde_json::from_str::<String>(raw).ok(),
        ParameterKind::Boolean => matches!(raw, "true" | "false").then(|| raw.to_owned()),
        ParameterKind::Number => is_number(raw).then(|| raw.to_owned()),
        ParameterKind::Integer => is_number(raw).then(|| number_text(raw)).flatten(),
        ParameterKind::Array => None,
    }
}

fn is_number(raw: &str) -> bool {
    raw.starts_with(|c: char| c == '-' || c.is_ascii_digit()) && serde_json::from_str::<serde_json::Number>(raw).is_ok()
}

/// A whole number in plain digits: `5.0` and `5e0` are whole to JSON Schema and text to a program.
pub(crate) fn number_text(raw: &str) -> Option<String> {
    if !raw.contains(['.', 'e', 'E']) {
        return Some(raw.to_owned());
    }
    /// Above this, not every whole number is one to a float.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let number: f64 = raw.parse().ok()?;
    (number.fract() == 0.0 && number.abs() <= EXACT_MAX).then(|| format!("{number:.0}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_reach_a_command_with_every_digit() {
        use ParameterKind::{Boolean, Integer, Number, String};
        for (kind, raw, wanted) in [
            (String, r#""a\"b\n""#, Some("a\"b\n")),
            (String, "5", None),
            (String, r#""\ud800""#, None),
            (Number, "1.10", Some("1.10")),
            (Number, "12345678901234567890123", Some("12345678901234567890123")),
            (Number, r#""5""#, None),
            (Integer, "5", Some("5")),
            (Integer, "5.0", Some("5")),
            (Integer, "5e2", Some("500")),
            (Integer, "5.5", None),
            (Boolean, "true", Some("true")),
            (Boolean, "1", None),
            (Boolean, "null", None),
            (ParameterKind::Array, "[]", None),
        ] {
            assert_eq!(scalar_text(kind, raw).as_deref(), wanted, "{kind:?} {raw}");
        }
    }

    #[test]
    fn names_are_words_and_proto_is_one() {
        assert!(is_parameter_name("__proto__") && is_parameter_name("a-b_C9"));
        for bad in ["", "(", ".*", "a b", "9a", "é", "a.b", &"a".repeat(65)] {
            assert!(!is_parameter_name(bad), "{bad}");
        }
    }
}
