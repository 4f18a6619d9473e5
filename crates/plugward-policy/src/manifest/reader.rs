//! Typed reading of one map of the tree. Owns the rule that every key is known, present when it
//! must be and of the right type, with a finding for each that is not. Refuses to stop at the first
//! problem: a bad entry never hides another.

use super::diagnostic::Report;
use super::path_of;
use super::tree::{Entry, Mark, Node, Value};
use crate::visible::quoted;

/// How alike an unknown and a known key must be (0 to 1) before one is offered for the other.
/// Jaro-Winkler puts a swapped, missing or doubled letter above 0.9 and unrelated words below 0.7.
const SUGGESTION_SIMILARITY_MIN: f64 = 0.8;

/// Most characters of a key repeated in a path; known keys have at most 26.
pub(crate) const PATH_KEY_CHARS_MAX: usize = 64;

/// The known word most like `word`, as a hint.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    most_like(word, known).map(|candidate| format!("did you mean `{candidate}`?"))
}

fn most_like<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // No known word is longer, and comparing costs the product of the lengths.
    let lower = word.get(..word.len().min(PATH_KEY_CHARS_MAX))?.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(similarity, _)| *similarity >= SUGGESTION_SIMILARITY_MIN)
        .max_by(|(left, _), (right, _)| left.total_cmp(right))
        .map(|(_, candidate)| candidate)
}

/// A map whose keys are taken one by one.
pub(crate) struct MapReader {
    path: String,
    at: Mark,
    entries: Vec<Entry>,
    /// Keys that an unknown one was probably meant to be. They are not reported missing as well:
    /// one mistake, one finding.
    misspelled: Vec<String>,
}

impl MapReader {
    /// The map at `path`, or a finding and an empty map when the value is something else.
    pub(crate) fn new(node: Node, path: &str, known: &[&str], report: &mut Report) -> Self {
        let kind = node.kind();
        let at = node.at;
        let Value::Map(mut entries) = node.value else {
            let message = format!("expected a map of keys, found {kind}");
            report.error(Some(at), path, message);
            // The one finding is enough: nothing in here is reported missing on top of it.
            let misspelled = known.iter().map(|key| (*key).to_owned()).collect();
            return Self { path: path.to_owned(), at, entries: Vec::new(), misspelled };
        };
        let mut misspelled = Vec::new();
        entries.retain(|entry| {
            if known.contains(&entry.key.as_str()) {
                return true;
            }
            let path = path_of(path, &entry.key);
            let meant = most_like(&entry.key, known.iter().copied());
            let (message, hint) = match meant {
                Some(meant) => ("unknown key", format!("did you mean `{meant}`?")),
                None if entry.key == "<<" => ("merge keys are not allowed", "repeat the keys instead".to_owned()),
                None => ("unknown key", format!("known keys here are {}", known.join(", "))),
            };
            report.error_hint(Some(entry.at), &path, message, hint);
            misspelled.extend(meant.map(str::to_owned));
            false
        });
        Self { path: path.to_owned(), at, entries, misspelled }
    }

    /// Whether `key` is missing without a misspelled one in its place.
    pub(crate) fn lacks(&self, key: &str) -> bool {
        !self.entries.iter().any(|entry| entry.key == key) && !self.misspelled.iter().any(|meant| meant == key)
    }

    /// Where the map begins.
    pub(crate) fn at(&self) -> Mark {
        self.at
    }

    /// The path of `key` in this map.
    pub(crate) fn path_of(&self, key: &str) -> String {
        path_of(&self.path, key)
    }

    /// Takes the entry `key` out of the map.
    pub(crate) fn take(&mut self, key: &str) -> Option<Entry> {
        let index = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(index))
    }

    /// The text of `key`, which stays where it is.
    pub(crate) fn peek(&self, key: &str) -> Option<&str> {
        match &self.entries.iter().find(|entry| entry.key == key)?.node.value {
            Value::Scalar { text, .. } => Some(text),
            Value::List(_) | Value::Map(_) => None,
        }
    }

    /// Takes text that may be absent, with the position of the value.
    pub(crate) fn text(&mut self, key: &str, report: &mut Report) -> Option<(String, Mark)> {
        let path = self.path_of(key);
        let node = self.take(key)?.node;
        let at = node.at;
        text_of(node, &path, report).map(|text| (text, at))
    }

    /// Takes text that must be there.
    pub(crate) fn required_text(&mut self, key: &str, report: &mut Report) -> Option<(String, Mark)> {
        if self.lacks(key) {
            report.error(Some(self.at), &self.path_of(key), "missing key");
        }
        self.text(key, report)
    }

    /// Takes one of the words of `choices`.
    pub(crate) fn choice<T: Copy>(&mut self, key: &str, choices: &[(&str, T)], report: &mut Report) -> Option<T> {
        let path = self.path_of(key);
        let (text, at) = self.text(key, report)?;
        let found = choices.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            let hint = did_you_mean(&text, words.iter().copied())
                .unwrap_or_else(|| format!("use one of {}", words.join(", ")));
            report.error_hint(Some(at), &path, format!("unknown value {}", quoted(&text)), hint);
        }
        found.map(|(_, value)| *value)
    }

    /// Takes a whole number within `range`.
    pub(crate) fn number(
        &mut self,
        key: &str,
        range: std::ops::RangeInclusive<u64>,
        report: &mut Report,
    ) -> Option<u64> {
        let path = self.path_of(key);
        let node = self.take(key)?.node;
        let at = node.at;
        let bounds = format!("a whole number from {} to {}", range.start(), range.end());
        let kind = node.kind();
        let null = node.is_null();
        let (text, plain) = match node.value {
            Value::Scalar { text, plain } if !null => (text, plain),
            _ => {
                report.error(Some(at), &path, format!("expected {bounds}, found {kind}"));
                return None;
            }
        };
        let digits = plain && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A leading zero is octal to some readers and decimal to others.
        let clear = digits && (text == "0" || !text.starts_with('0'));
        match text.parse::<u64>() {
            Ok(number) if clear && range.contains(&number) => Some(number),
            _ => {
                let quotes = if plain { "" } else { " in quotes" };
                let message = format!("expected {bounds}, found {}{quotes}", quoted(&text));
                report.error(Some(at), &path, message);
                None
            }
        }
    }

    /// Takes a list of at most `limit` entries; an absent list is `None`, another type a finding.
    pub(crate) fn list(&mut self, key: &str, limit: usize, report: &mut Report) -> Option<Vec<(String, Node)>> {
        let path = self.path_of(key);
        let node = self.take(key)?.node;
        let (at, kind) = (node.at, node.kind());
        let Value::List(items) = node.value else {
            let hint = "write `[...]` or one `- ` line for each";
            report.error_hint(Some(at), &path, format!("expected a list, found {kind}"), hint);
            return None;
        };
        if items.len() > limit {
            let message = format!("list has {} entries, at most {limit} are allowed", items.len());
            report.error(Some(at), &path, message);
            return None;
        }
        let numbered = items.into_iter().enumerate();
        Some(numbered.map(|(index, item)| (format!("{path}[{index}]"), item)).collect())
    }
}

/// The text of a scalar exactly as written; a list, a map or an unquoted null is a finding.
pub(crate) fn text_of(node: Node, path: &str, report: &mut Report) -> Option<String> {
    let kind = node.kind();
    if node.is_null() {
        let hint = "quote it, as in `\"\"`, if an empty or literal text is meant";
        report.error_hint(Some(node.at), path, "expected text, found nothing", hint);
        return None;
    }
    match node.value {
        Value::Scalar { text, .. } => Some(text),
        Value::List(_) | Value::Map(_) => {
            report.error(Some(node.at), path, format!("expected text, found {kind}"));
            None
        }
    }
}
