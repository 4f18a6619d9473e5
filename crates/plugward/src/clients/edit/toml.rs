//! TOML: our entry is a table of its own at the end of the file.
//!
//! Owns the cutting of a file into tables by their headers. Refuses entries that are written within another table: they
//! share lines with what is not ours.

use serde_json::{Map, Value};

use super::{EditError, Splice, Spot, line_end, place};

/// The one key of what the parser makes of a time.
const TIME: &str = "$__toml_private_datetime";

/// The document as values.
pub(super) fn read(text: &str) -> Result<Value, EditError> {
    ::toml::from_str(text).map_err(|error| {
        let (line, column) = place(text, error.span().map_or(0, |span| span.start));
        let message = plugward_policy::visible(error.message().lines().next().unwrap_or_default());
        EditError::Syntax { line, column, message: format!("not valid TOML: {message}") }
    })
}

pub(super) fn insert(text: &str, spot: Spot<'_>, entry: &Value) -> Result<Vec<Splice>, EditError> {
    let end = line_end(text);
    let mut new = String::new();
    if !text.is_empty() {
        new.push_str(if text.ends_with('\n') { "" } else { end });
        new.push_str(if text.trim().is_empty() { "" } else { end });
    }
    let members = entry.as_object().ok_or_else(|| EditError::form("the entry is no table"))?;
    write_table(&mut new, &format!("{}.{}", spot.container, spot.name), members, end);
    Ok(vec![Splice::put(text.len(), new)])
}

/// A table under a header of its own, then the tables in it, each behind an empty line.
fn write_table(to: &mut String, path: &str, members: &Map<String, Value>, end: &str) {
    to.push_str(&format!("[{path}]{end}"));
    let (tables, plain): (Vec<_>, Vec<_>) = members.iter().partition(|(_, value)| as_table(value).is_some());
    for (name, value) in plain {
        to.push_str(&format!("{} = {}{end}", key(name), inline(value)));
    }
    for (name, value) in tables {
        if let Some(inner) = as_table(value) {
            to.push_str(end);
            write_table(to, &format!("{path}.{}", key(name)), inner, end);
        }
    }
}

/// The members of a table; none of a time, which the parser gives as one.
fn as_table(value: &Value) -> Option<&Map<String, Value>> {
    value.as_object().filter(|_| time(value).is_none())
}

fn time(value: &Value) -> Option<&str> {
    value.get(TIME)?.as_str()
}

/// A name as a key: bare where TOML allows it.
fn key(name: &str) -> String {
    let is_bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if is_bare { name.to_owned() } else { scalar(&Value::from(name)) }
}

/// A value on one line.
fn inline(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => match time(value) {
            Some(time) => time.to_owned(),
            None => {
                let member = |(name, value): (&String, &Value)| format!("{} = {}", key(name), inline(value));
                format!("{{ {} }}", map.iter().map(member).collect::<Vec<_>>().join(", "))
            }
        },
        other => scalar(other),
    }
}

/// A text, number or boolean. JSON's escapes are TOML's, save for one character.
fn scalar(value: &Value) -> String {
    value.to_string().replace('\u{7f}', "\\u007f")
}

pub(super) fn remove(text: &str, spot: Spot<'_>) -> Result<Vec<Splice>, EditError> {
    let is_ours = |path: &[String]| path.len() >= 2 && path[0] == spot.container && path[1] == spot.name;
    let tables: Vec<Table> = tables(text).into_iter().filter(|table| is_ours(&table.path)).collect();
    if tables.is_empty() {
        let message = format!("entry `{}` is written within another table", spot.name);
        return Err(EditError::Form(message));
    }
    let mut splices = Vec::new();
    for table in tables {
        // The empty line before it came with it.
        let before = text.get(..table.start).unwrap_or_default();
        let blank = ["\r\n", "\n"].into_iter().find_map(|end| {
            let head = before.strip_suffix(end)?;
            (head.is_empty() || head.ends_with('\n')).then_some(head.len())
        });
        splices.push(Splice::cut(blank.unwrap_or(table.start)..table.end));
    }
    Ok(splices)
}

/// A table with a header of its own.
struct Table {
    path: Vec<String>,
    /// Where the line of its header begins.
    start: usize,
    /// Behind its last value; comments that follow belong to what comes next.
    end: usize,
}

fn tables(text: &str) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let end = statement_end(text, at);
        let statement = text.get(at..end).unwrap_or_default().trim();
        if statement.starts_with('[') {
            tables.push(Table { path: header_path(statement), start: at, end });
        } else if !statement.is_empty()
            && !statement.starts_with('#')
            && let Some(table) = tables.last_mut()
        {
            table.end = end;
        }
        at = end;
    }
    tables
}

/// The keys in a header; none if it is none that we understand.
fn header_path(header: &str) -> Vec<String> {
    let Ok(Value::Object(mut table)) = ::toml::from_str::<Value>(header) else { return Vec::new() };
    let mut path = Vec::new();
    while let Some((name, value)) = table.into_iter().next() {
        path.push(name);
        match value {
            Value::Object(inner) => table = inner,
            _ => break,
        }
    }
    path
}

/// Behind the line end of the statement that begins at `at`: texts and lists may go over several lines.
fn statement_end(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    let mut at = at;
    while at < bytes.len() {
        match bytes[at] {
            b'\n' if depth == 0 => return at + 1,
            b'#' => {
                at = text[at..].find('\n').map_or(text.len(), |line| at + line);
                continue;
            }
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            quote @ (b'"' | b'\'') => {
                at = text_end(text, at, quote);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    text.len()
}

/// Behind the closing quote of a text.
fn text_end(text: &str, at: usize, quote: u8) -> usize {
    let bytes = text.as_bytes();
    let is_long = bytes.get(at..at + 3) == Some(&[quote; 3]);
    let width = if is_long { 3 } else { 1 };
    let mut at = at + width;
    while at < bytes.len() {
        if bytes[at] == b'\\' && quote == b'"' {
            at += 2;
        } else if bytes[at] == quote && (!is_long || bytes.get(at..at + 3) == Some(&[quote; 3])) {
            at += width;
            // A long text may end with quotes of its own.
            while is_long && bytes.get(at) == Some(&quote) {
                at += 1;
            }
            return at;
        } else {
            at += 1;
        }
    }
    text.len()
}
