//! JSON as editors write it: with comments and trailing commas.
//!
//! Owns where an entry goes in and what goes with it when it leaves (its comma, its line). Refuses every other leniency
//! of the parser: what a client itself would not read is not for us to add to.

use jsonc_parser::ast::{self, Object, ObjectProp};
use jsonc_parser::tokens::{Token, TokenAndRange};
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions, parse_to_ast};
use serde_json::{Map, Number, Value, json};

use super::{EditError, Splice, Spot, exact, indent_at, line_end, line_start};

/// Indentation of a file that has none to copy.
const INDENT: &str = "  ";

struct Document<'a> {
    text: &'a str,
    root: Option<ast::Value<'a>>,
    tokens: Vec<TokenAndRange<'a>>,
}

fn parse(text: &str) -> Result<Document<'_>, EditError> {
    let collect = CollectOptions { comments: CommentCollectionStrategy::Off, tokens: true };
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed = parse_to_ast(text, &collect, &options).map_err(|error| EditError::Syntax {
        line: error.line_display(),
        column: error.column_display(),
        message: format!("not valid JSON: {}", plugward_policy::visible(&error.kind().to_string().to_lowercase())),
    })?;
    Ok(Document { text, root: parsed.value, tokens: parsed.tokens.unwrap_or_default() })
}

/// The document as values. An empty file is an empty object.
pub(super) fn read(text: &str) -> Result<Value, EditError> {
    Ok(parse(text)?.root.as_ref().map_or_else(|| json!({}), value))
}

fn value(node: &ast::Value<'_>) -> Value {
    match node {
        ast::Value::StringLit(text) => exact::text(&text.value),
        // A number that would not be written as it stands is kept as it stands.
        ast::Value::NumberLit(number) => match number.value.parse::<Number>() {
            Ok(parsed) if parsed.to_string() == number.value => Value::Number(parsed),
            _ => exact::of(number.value),
        },
        ast::Value::BooleanLit(boolean) => Value::Bool(boolean.value),
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::Array(array) => Value::Array(array.elements.iter().map(value).collect()),
        ast::Value::Object(object) => {
            let member = |property: &ObjectProp<'_>| (property.name.as_str().to_owned(), value(&property.value));
            Value::Object(object.properties.iter().map(member).collect::<Map<_, _>>())
        }
    }
}

pub(super) fn insert(text: &str, spot: Spot<'_>, entry: &Value) -> Result<Vec<Splice>, EditError> {
    let document = parse(text)?;
    let Some(root) = &document.root else {
        if !text.trim().is_empty() {
            return Err(EditError::form("the file holds comments and nothing else"));
        }
        let whole = json!({ spot.container: { spot.name: entry } });
        return Ok(vec![Splice { at: 0..text.len(), text: render(&whole, INDENT, "", "\n") + "\n" }]);
    };
    let root = root.as_object().ok_or_else(|| EditError::form("the file holds no JSON object"))?;
    match document.only(root, spot.container)? {
        Some(container) => {
            let object = container.value.as_object();
            let object = object.ok_or_else(|| EditError::form(format!("`{}` is no object", spot.container)))?;
            Ok(document.add(root, object, spot.name, entry))
        }
        None => Ok(document.add(root, root, spot.container, &json!({ spot.name: entry }))),
    }
}

pub(super) fn remove(text: &str, spot: Spot<'_>, with_container: bool) -> Result<Vec<Splice>, EditError> {
    let document = parse(text)?;
    let gone = || EditError::form(format!("entry `{}` is not where it was", spot.name));
    let root = document.root.as_ref().and_then(ast::Value::as_object).ok_or_else(gone)?;
    let container = document.only(root, spot.container)?.ok_or_else(gone)?;
    if with_container {
        return Ok(document.take(root, container));
    }
    let object = container.value.as_object().ok_or_else(gone)?;
    let property = document.only(object, spot.name)?.ok_or_else(gone)?;
    Ok(document.take(object, property))
}

impl Document<'_> {
    /// The one property with this name.
    fn only<'o, 'a>(&self, object: &'o Object<'a>, name: &str) -> Result<Option<&'o ObjectProp<'a>>, EditError> {
        let mut found = object.properties.iter().filter(|property| property.name.as_str() == name);
        let first = found.next();
        if let Some(second) = found.next() {
            let (line, column) = super::place(self.text, second.range.start);
            return Err(EditError::Syntax { line, column, message: format!("key `{name}` is there twice") });
        }
        Ok(first)
    }

    /// The comma that follows a value, if one does before `limit`.
    fn comma_after(&self, at: usize, limit: usize) -> Option<usize> {
        let next = self.tokens.iter().find(|token| token.range.start >= at && token.range.start < limit)?;
        matches!(next.token, Token::Comma).then_some(next.range.start)
    }

    /// One step of indentation, as the file has it.
    fn unit(&self, root: &Object<'_>) -> &str {
        let first = root.properties.first().map(|property| property.range.start);
        let indent = first.filter(|at| line_start(self.text, *at) > root.range.start);
        indent.map(|at| indent_at(self.text, at)).filter(|indent| !indent.is_empty()).unwrap_or(INDENT)
    }

    /// Adds a property at the end of an object.
    fn add(&self, root: &Object<'_>, object: &Object<'_>, name: &str, new: &Value) -> Vec<Splice> {
        let (text, end) = (self.text, line_end(self.text));
        let (open, close) = (object.range.start, object.range.end - 1);
        let unit = self.unit(root);
        let property = |indent: &str| format!("{}: {}", quoted(name), render(new, unit, indent, end));
        let Some(last) = object.properties.last() else {
            let outer = indent_at(text, open);
            let indent = format!("{outer}{unit}");
            let inner = text.get(open + 1..close).unwrap_or_default();
            let at = inner.rfind('\n').map_or(close, |line| open + 1 + line);
            let at = if text.get(..at).is_some_and(|before| before.ends_with('\r')) { at - 1 } else { at };
            // What closes the object is on a line of its own already, or has to be put there.
            let tail = if inner.contains('\n') { String::new() } else { format!("{end}{outer}") };
            return vec![Splice::put(at, format!("{end}{indent}{}{tail}", property(&indent)))];
        };
        let comma = self.comma_after(last.range.end, close);
        let after = comma.map_or(last.range.end, |comma| comma + 1);
        let first = object.properties.first().map_or(open, |first| first.range.start);
        let is_in_lines = text.get(open..first).is_some_and(|head| head.contains('\n'));
        let lead = if comma.is_some() { None } else { Some(Splice::put(last.range.end, ",")) };
        let trail = if comma.is_some() { "," } else { "" };
        let put = if is_in_lines {
            let indent = indent_at(text, first).to_owned();
            Splice::put(self.end_of_line(after, close), format!("{end}{indent}{}{trail}", property(&indent)))
        } else {
            Splice::put(after, format!(" {}: {}{trail}", quoted(name), exact::json(new)))
        };
        lead.into_iter().chain([put]).collect()
    }

    /// Where the line ends, so that a comment behind a value stays with it.
    fn end_of_line(&self, after: usize, close: usize) -> usize {
        let rest = self.text.get(after..close).unwrap_or_default();
        let line = rest.lines().next().unwrap_or_default();
        if line.len() == rest.len() || line.contains("/*") { after } else { after + line.trim_end_matches('\r').len() }
    }

    /// Takes a property out, with the comma that goes with it and the line if it has one of its own.
    fn take(&self, object: &Object<'_>, property: &ObjectProp<'_>) -> Vec<Splice> {
        let text = self.text;
        let close = object.range.end - 1;
        let (start, mut end) = (property.range.start, property.range.end);
        let mut splices = Vec::new();
        let before = object.properties.iter().rev().find(|other| other.range.end <= start);
        if let Some(comma) = self.comma_after(end, close) {
            end = comma + 1;
        } else if let Some(comma) = before.and_then(|before| self.comma_after(before.range.end, start)) {
            splices.push(Splice::cut(comma..comma + 1));
        }
        let line = line_start(text, start);
        let rest = text.get(end..close).unwrap_or_default();
        let blank = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        let is_alone = text.get(line..start).is_some_and(|head| head.trim().is_empty())
            && (rest.trim().is_empty() || rest[blank..].starts_with(['\n', '\r']));
        let begin = if is_alone && line > object.range.start {
            // The line end before goes too: it came with the line.
            let head = text.get(..line).unwrap_or_default();
            head.strip_suffix('\n').map_or(line, |head| head.strip_suffix('\r').unwrap_or(head).len())
        } else if before.is_none() {
            start
        } else {
            text.get(..start).unwrap_or_default().trim_end_matches([' ', '\t']).len()
        };
        // Of a first property on a shared line, the gap behind it goes instead of the one before.
        let gap = if is_alone || before.is_none() { blank } else { 0 };
        splices.push(Splice::cut(begin..end + gap));
        splices
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// JSON in lines, with lists of plain values on one.
fn render(value: &Value, unit: &str, indent: &str, end: &str) -> String {
    let deeper = format!("{indent}{unit}");
    match value {
        Value::Object(map) if !map.is_empty() => {
            let member = |(name, value): (&String, &Value)| {
                format!("{deeper}{}: {}", quoted(name), render(value, unit, &deeper, end))
            };
            let members: Vec<String> = map.iter().map(member).collect();
            format!("{{{end}{}{end}{indent}}}", members.join(&format!(",{end}")))
        }
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            let items: Vec<String> = items.iter().map(exact::json).collect();
            format!("[{}]", items.join(", "))
        }
        other => exact::json(other),
    }
}
