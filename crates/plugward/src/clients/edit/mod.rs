//! Adds one entry to a settings file of somebody else's, or takes it out, and touches nothing besides.
//!
//! ```text
//! text --parse--> where to cut and what to put in --splice--> new text --parse--> proof: only the entry differs
//! ```
//!
//! Owns the proof: each edit is parsed before and after, and whatever else would have changed refuses it. Comments,
//! order, unknown keys, indentation, line ends and a byte order mark stay, because the text is cut and not printed
//! anew. Refuses files that do not parse, with the place, and files whose form leaves no room for a safe edit.

mod exact;
mod jsonc;
mod toml;
mod yaml;

use std::ops::Range;

use serde_json::{Map, Value};

use super::table::Format;
pub(super) use exact::shown;

/// Why a file is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EditError {
    /// It cannot be read as what it should be.
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
        /// What is wrong.
        message: String,
    },
    /// It can be read, and has a form that cannot be edited without touching more than our entry.
    #[error("{0}")]
    Form(String),
}

impl EditError {
    fn form(message: impl Into<String>) -> Self {
        Self::Form(message.into())
    }
}

/// Where an entry is: the key that holds all servers, and whether that is a list of items with a `name`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot<'a> {
    /// The key at the top of the file.
    pub(crate) container: &'a str,
    /// Whether it holds a list.
    pub(crate) is_list: bool,
    /// Name of the entry.
    pub(crate) name: &'a str,
}

/// The entries under a spot's container, in the order of the file.
pub(crate) fn entries(format: Format, text: &str, spot: Spot<'_>) -> Result<Vec<(String, Value)>, EditError> {
    entries_of(&read(format, body(text))?, spot)
}

/// Whether the file has the container.
pub(crate) fn has_container(format: Format, text: &str, spot: Spot<'_>) -> Result<bool, EditError> {
    Ok(read(format, body(text))?.get(spot.container).is_some())
}

/// The text with our entry in it; one that was there before is replaced.
pub(crate) fn insert(format: Format, text: &str, spot: Spot<'_>, entry: &Value) -> Result<String, EditError> {
    let cleared = match find(&entries(format, text, spot)?, spot.name) {
        Some(_) => remove(format, text, spot, false)?,
        None => text.to_owned(),
    };
    let (mark, body) = split_mark(&cleared);
    let splices = match format {
        Format::Jsonc => jsonc::insert(body, spot, entry)?,
        Format::Toml => toml::insert(body, spot, entry)?,
        Format::Yaml => yaml::insert(body, spot, entry)?,
    };
    let edited = splice(body, splices);
    let (before, after) = (read(format, body)?, read(format, &edited).map_err(|_| no_room(spot))?);
    let is_there = find(&entries_of(&after, spot)?, spot.name) == Some(entry);
    if !is_there || without(after, spot) != without(before, spot) {
        return Err(no_room(spot));
    }
    Ok(format!("{mark}{edited}"))
}

/// The text without our entry; the same text if it is not there. `with_container` takes the key that held it along if
/// nothing else is in it.
pub(crate) fn remove(format: Format, text: &str, spot: Spot<'_>, with_container: bool) -> Result<String, EditError> {
    let (mark, body) = split_mark(text);
    let before = read(format, body)?;
    let entries = entries_of(&before, spot)?;
    if find(&entries, spot.name).is_none() {
        return Ok(text.to_owned());
    }
    let with_container = with_container && entries.len() == 1;
    let splices = match format {
        Format::Jsonc => jsonc::remove(body, spot, with_container)?,
        Format::Toml => toml::remove(body, spot)?,
        Format::Yaml => yaml::remove(body, spot, with_container)?,
    };
    let edited = splice(body, splices);
    let after = read(format, &edited).map_err(|_| no_way_out(spot))?;
    let is_gone = find(&entries_of(&after, spot)?, spot.name).is_none();
    if !is_gone || without(after, spot) != without(before, spot) {
        return Err(no_way_out(spot));
    }
    Ok(format!("{mark}{edited}"))
}

/// What a person would paste.
pub(crate) fn snippet(format: Format, spot: Spot<'_>, entry: &Value) -> String {
    let empty = "";
    let splices = match format {
        Format::Jsonc => jsonc::insert(empty, spot, entry),
        Format::Toml => toml::insert(empty, spot, entry),
        Format::Yaml => yaml::insert(empty, spot, entry),
    };
    splices.map(|splices| splice(empty, splices)).unwrap_or_else(|_| entry.to_string())
}

fn no_room(spot: Spot<'_>) -> EditError {
    EditError::form(format!("entry `{}` cannot be added under `{}` without touching more", spot.name, spot.container))
}

fn no_way_out(spot: Spot<'_>) -> EditError {
    let message = format!("entry `{}` cannot be taken out of `{}` without touching more", spot.name, spot.container);
    EditError::Form(message)
}

/// A piece of text that goes, and what comes in its place.
#[derive(Debug)]
struct Splice {
    at: Range<usize>,
    text: String,
}

impl Splice {
    fn put(at: usize, text: impl Into<String>) -> Self {
        Self { at: at..at, text: text.into() }
    }

    fn cut(at: Range<usize>) -> Self {
        Self { at, text: String::new() }
    }
}

/// Applies splices, which are in order and do not overlap.
fn splice(text: &str, splices: Vec<Splice>) -> String {
    let mut edited = String::with_capacity(text.len());
    let mut done = 0;
    for Splice { at, text: new } in splices {
        edited.push_str(text.get(done..at.start).unwrap_or_default());
        edited.push_str(&new);
        done = at.end.max(done);
    }
    edited.push_str(text.get(done..).unwrap_or_default());
    edited
}

fn read(format: Format, body: &str) -> Result<Value, EditError> {
    let value = match format {
        Format::Jsonc => jsonc::read(body)?,
        Format::Toml => toml::read(body)?,
        Format::Yaml => yaml::read(body)?,
    };
    if value.is_object() { Ok(value) } else { Err(EditError::form("the file holds no table of settings")) }
}

fn entries_of(document: &Value, spot: Spot<'_>) -> Result<Vec<(String, Value)>, EditError> {
    let named = |item: &Value| Some((shown(item.get("name")?.as_str()?), item.clone()));
    match document.get(spot.container) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) if spot.is_list => Ok(items.iter().filter_map(named).collect()),
        Some(Value::Object(map)) if !spot.is_list => {
            Ok(map.iter().map(|(name, entry)| (name.clone(), entry.clone())).collect())
        }
        Some(_) => Err(EditError::form(format!("`{}` has an unexpected form", spot.container))),
    }
}

/// The one entry with a name; none of several.
fn find<'e>(entries: &'e [(String, Value)], name: &str) -> Option<&'e Value> {
    let mut found = entries.iter().filter(|(known, _)| known == name);
    found.next().map(|(_, entry)| entry)
}

/// All but our entry. A container that holds nothing else counts as absent.
fn without(document: Value, spot: Spot<'_>) -> Map<String, Value> {
    let Value::Object(mut document) = document else { return Map::new() };
    let is_empty = match document.get_mut(spot.container) {
        Some(Value::Object(map)) => {
            map.shift_remove(spot.name);
            map.is_empty()
        }
        Some(Value::Array(items)) => {
            items.retain(|item| item.get("name").and_then(Value::as_str) != Some(spot.name));
            items.is_empty()
        }
        Some(value) => value.is_null(),
        None => false,
    };
    if is_empty {
        document.shift_remove(spot.container);
    }
    document
}

/// A byte order mark and what follows it.
fn split_mark(text: &str) -> (&str, &str) {
    text.split_at(if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 })
}

fn body(text: &str) -> &str {
    split_mark(text).1
}

/// How lines of a text end; a text of one line gets what most have.
fn line_end(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Where the line of a byte begins.
fn line_start(text: &str, at: usize) -> usize {
    text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1)
}

/// White space at the beginning of the line of a byte.
fn indent_at(text: &str, at: usize) -> &str {
    let line = text.get(line_start(text, at)..).unwrap_or_default();
    let width = line.len() - line.trim_start_matches([' ', '\t']).len();
    line.get(..width).unwrap_or_default()
}

/// Line and column, from 1, of a byte.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at.min(text.len())).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    (line, before.rsplit('\n').next().unwrap_or_default().chars().count() + 1)
}

#[cfg(test)]
mod tests;
