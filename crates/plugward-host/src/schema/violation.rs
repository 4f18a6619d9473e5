//! What is wrong with a value, in words that never repeat it.
//!
//! Owns the texts a caller (often a model) gets for arguments that do not fit: where, and what was expected there.
//! Refuses to say what was there instead: values may be secrets, and these texts reach logs and traces.

use std::fmt;

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use serde_json::Value;

/// Violations listed for one value. Enough to repair a call in one go, few enough to read.
pub(crate) const MAX_VIOLATIONS: usize = 20;

/// Characters of a name or of a schema's own value inside a text.
const MAX_QUOTED_CHARS: usize = 64;

/// Bytes of a path in a violation; keys of a value can be megabytes.
const MAX_PATH_BYTES: usize = 512;

/// Names or allowed values listed in one text.
const MAX_LISTED: usize = 12;

/// One place where a value does not fit its schema (requirement 61).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// JSON pointer into the value; empty for the value itself.
    pub(crate) path: String,
    /// JSON pointer into the schema, to the keyword that was not met.
    pub(crate) schema_pointer: String,
    /// What was expected. Never contains a part of the value except the names of its properties.
    pub(crate) message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "/" } else { &self.path };
        write!(formatter, "`{path}`: {}", self.message)
    }
}

/// All that is wrong with a value, at most [`MAX_VIOLATIONS`] places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violations {
    /// In the order the schema names them; never empty.
    pub(crate) list: Vec<Violation>,
    /// Whether there were more than are listed.
    pub(crate) more: bool,
}

impl Violations {
    pub(super) fn whole(message: impl Into<String>) -> Self {
        let violation = Violation { path: String::new(), schema_pointer: String::new(), message: message.into() };
        Self { list: vec![violation], more: false }
    }

    /// `errors` must not be empty.
    pub(super) fn of(errors: &[ValidationError<'_>]) -> Self {
        let list = errors.iter().take(MAX_VIOLATIONS).map(violation).collect();
        Self { list, more: errors.len() > MAX_VIOLATIONS }
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, violation) in self.list.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(formatter, "{separator}{violation}")?;
        }
        if self.more { formatter.write_str("; and more") } else { Ok(()) }
    }
}

impl std::error::Error for Violations {}

/// Whether the engine gave up on a pattern, so that nothing is known about the value.
pub(super) fn is_undecided(error: &ValidationError<'_>) -> bool {
    matches!(error.kind(), Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. })
}

fn violation(error: &ValidationError<'_>) -> Violation {
    Violation {
        path: bounded(error.instance_path().as_str(), MAX_PATH_BYTES),
        schema_pointer: bounded(error.schema_path().as_str(), MAX_PATH_BYTES),
        message: expected(error),
    }
}

/// What `error` says was expected.
pub(super) fn expected(error: &ValidationError<'_>) -> String {
    match error.kind() {
        Kind::Type { kind } => format!("expected {}", types(kind)),
        Kind::Required { property } => format!("missing property {}", shown(property)),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            format!("unexpected property {}", listed(unexpected.iter().map(|name| quoted(name)), unexpected.len()))
        }
        Kind::Enum { options } => match options.as_ref() {
            Value::Array(options) => format!("expected one of {}", listed(options.iter().map(shown), options.len())),
            option => format!("expected {}", shown(option)),
        },
        Kind::Constant { expected_value } => format!("expected {}", shown(expected_value)),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => alternatives(context),
        Kind::OneOfMultipleValid { .. } => {
            "fits more than one of the alternatives of which exactly one is allowed".into()
        }
        Kind::PropertyNames { error } => format!("a property name does not fit: {}", expected(error)),
        Kind::Pattern { pattern } => format!("expected text that matches {}", quoted(pattern)),
        Kind::Not { .. } => "fits a form that is excluded".into(),
        kind => by_limit(kind),
    }
}

fn by_limit(kind: &Kind) -> String {
    match kind {
        Kind::Minimum { limit } => format!("expected at least {}", shown(limit)),
        Kind::Maximum { limit } => format!("expected at most {}", shown(limit)),
        Kind::ExclusiveMinimum { limit } => format!("expected more than {}", shown(limit)),
        Kind::ExclusiveMaximum { limit } => format!("expected less than {}", shown(limit)),
        Kind::MultipleOf { multiple_of } => format!("expected a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("expected at least {limit} characters"),
        Kind::MaxLength { limit } => format!("expected at most {limit} characters"),
        Kind::MinItems { limit } => format!("expected at least {limit} items"),
        Kind::MaxItems { limit } => format!("expected at most {limit} items"),
        Kind::AdditionalItems { limit } => format!("expected no more than {limit} items"),
        Kind::UnevaluatedItems { .. } => "an item is not described by the schema".into(),
        Kind::MinProperties { limit } => format!("expected at least {limit} properties"),
        Kind::MaxProperties { limit } => format!("expected at most {limit} properties"),
        Kind::UniqueItems => "expected items that differ from each other".into(),
        Kind::Contains => "no item, or not the right number of items, fits what the array must contain".into(),
        Kind::FalseSchema => "nothing is allowed here".into(),
        Kind::Format { format } => format!("expected the format {}", quoted(format)),
        _ => "does not fit the schema".into(),
    }
}

/// Points at the alternative that was nearly met: the one with the fewest complaints, and those deepest inside.
fn alternatives(context: &[Vec<ValidationError<'static>>]) -> String {
    let text = format!("fits none of the {} alternatives", context.len());
    let depth = |errors: &[ValidationError<'static>]| {
        errors.iter().map(|error| error.instance_path().as_str().matches('/').count()).max().unwrap_or(0)
    };
    let nearest = context.iter().filter(|errors| !errors.is_empty());
    let nearest = nearest.min_by_key(|errors| (errors.len(), std::cmp::Reverse(depth(errors))));
    match nearest.and_then(|errors| errors.first()) {
        Some(error) if !matches!(error.kind(), Kind::AnyOf { .. } | Kind::OneOfNotValid { .. }) => {
            let path = bounded(error.instance_path().as_str(), MAX_PATH_BYTES);
            let place = if path.is_empty() { String::new() } else { format!("`{path}`: ") };
            format!("{text}; nearest: {place}{}", expected(error))
        }
        _ => text,
    }
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => one.to_string(),
        TypeKind::Multiple(many) => many.iter().map(|one| one.to_string()).collect::<Vec<_>>().join(" or "),
    }
}

/// A value of the schema (never of the instance), short.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        scalar => quoted(&scalar.to_string()),
    }
}

fn listed(texts: impl Iterator<Item = String>, total: usize) -> String {
    let mut text = texts.take(MAX_LISTED).collect::<Vec<_>>().join(", ");
    if total > MAX_LISTED {
        text.push_str(&format!(" and {} more", total - MAX_LISTED));
    }
    text
}

/// `text` between backticks: short, on one line, without anything a terminal would act on.
pub(super) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_QUOTED_CHARS).map(printable).collect();
    if text.chars().nth(MAX_QUOTED_CHARS).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

/// At most `limit` bytes of `text`, printable.
pub(super) fn bounded(text: &str, limit: usize) -> String {
    let end = (0..=limit.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let mut shown: String = text[..end].chars().map(printable).collect();
    if end < text.len() {
        shown.push('…');
    }
    shown
}

/// Control characters and the marks that turn text around become a replacement sign.
fn printable(character: char) -> char {
    let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if character.is_control() || turns { '\u{fffd}' } else { character }
}

/// One step of a JSON pointer as the name it stands for.
pub(super) fn unescape_step(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}
