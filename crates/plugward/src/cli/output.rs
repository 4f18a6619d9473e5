//! The one place that writes to the terminal: results to standard output, everything else to standard error.
//!
//! Owns JSON or text, colour or none, and what a closed pipe means: the reader has enough, which is no failure. Refuses
//! to know what is written.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::builder::styling::{AnsiColor, Style};
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::{Value, json};

use crate::control::Failure;
use crate::wire::{SCHEMA_VERSION, USAGE_CODE};

/// Width of tables on a terminal: the narrowest that people still use.
const TABLE_WIDTH: u16 = 80;

/// Before each further sentence of a failure.
const DETAIL_INDENT: &str = "  ";

/// How a state reads: always a word and a sign, colour on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// As it should be.
    Good,
    /// Somebody should look.
    Warn,
    /// Broken.
    Bad,
}

/// Writes results and everything else.
#[derive(Debug)]
pub(super) struct Output {
    /// For programs.
    pub(super) json: bool,
    quiet: bool,
    is_broken: AtomicBool,
}

/// An object with its schema version first.
#[derive(Serialize)]
struct Versioned<'a, T: Serialize> {
    #[serde(rename = "schemaVersion")]
    version: u32,
    #[serde(flatten)]
    body: &'a T,
}

impl Output {
    pub(super) fn new(json: bool, quiet: bool) -> Self {
        Self { json, quiet, is_broken: AtomicBool::new(false) }
    }

    /// Writes a result as text; a line end is added where it has none.
    pub(super) fn text(&self, text: &str) {
        let mut out = anstream::stdout().lock();
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        self.note_result(write!(out, "{text}{end}").and_then(|()| out.flush()));
    }

    /// Writes JSON text: to a program byte for byte, to a terminal without the tricks that it may hold.
    pub(super) fn json_text(&self, text: &str) {
        let text = if io::stdout().is_terminal() { harmless_json(text) } else { Cow::Borrowed(text) };
        // Not through the streams that drop colours: they would drop bytes of the text as well.
        let mut out = io::stdout().lock();
        self.note_result(writeln!(out, "{text}").and_then(|()| out.flush()));
    }

    /// Writes a result as JSON; `body` must be an object.
    pub(super) fn object(&self, body: &impl Serialize) {
        match serde_json::to_string_pretty(&Versioned { version: SCHEMA_VERSION, body }) {
            Ok(text) => self.json_text(&text),
            Err(error) => self.note(&format!("result cannot be written as JSON: {error}")),
        }
    }

    /// Writes one of several results as JSON on a line of its own.
    pub(super) fn object_line(&self, body: &impl Serialize) {
        match serde_json::to_string(&Versioned { version: SCHEMA_VERSION, body }) {
            Ok(text) => self.json_text(&text),
            Err(error) => self.note(&format!("result cannot be written as JSON: {error}")),
        }
    }

    /// Writes a result as JSON under one key.
    pub(super) fn keyed(&self, key: &str, value: &impl Serialize) {
        let body = std::collections::BTreeMap::from([(key, value)]);
        self.object(&body);
    }

    /// Tells something beside the result.
    pub(super) fn note(&self, text: &str) {
        if !self.quiet {
            self.to_stderr(text);
        }
    }

    /// Tells the command that comes next.
    pub(super) fn next(&self, command: &str) {
        self.note(&format!("next: {command}"));
    }

    /// Tells the command that takes it back.
    pub(super) fn undo(&self, command: &str) {
        self.note(&format!("undo: {command}"));
    }

    /// Tells what somebody must see even with `--quiet`: questions and warnings.
    pub(super) fn to_stderr(&self, text: &str) {
        let mut out = anstream::stderr().lock();
        // Nobody is left to tell that standard error is closed.
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    }

    /// Asks; the answer is typed on the same line.
    pub(super) fn prompt(&self, text: &str) {
        let mut out = anstream::stderr().lock();
        let _ = write!(out, "{text}").and_then(|()| out.flush());
    }

    /// Tells a failure: an object on standard error in JSON mode, else sentences.
    pub(super) fn failure(&self, failure: &Failure) {
        let error = &failure.body.error;
        if self.json {
            if let Ok(text) = serde_json::to_string(&Versioned { version: SCHEMA_VERSION, body: &failure.body }) {
                self.to_stderr(&harmless_json(&text));
            }
            return;
        }
        let mut text = format!("{} {}", paint(Tone::Bad, "error:"), safe_lines(&error.message, DETAIL_INDENT));
        for line in failure.body.lines().iter().filter(|line| !error.message.contains(**line)) {
            text.push_str(&format!("\n{DETAIL_INDENT}{}", safe_lines(line, DETAIL_INDENT)));
        }
        if let Some(hint) = &error.hint {
            text.push_str(&format!("\nhint: {}", safe(hint)));
        }
        text.push_str(&format!("\n({})", error.code));
        self.to_stderr(&text);
    }

    /// Whether standard output failed for another reason than a reader that has enough.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    fn note_result(&self, result: io::Result<()>) {
        let Err(error) = result else { return };
        if error.kind() != io::ErrorKind::BrokenPipe && !self.is_broken.swap(true, Ordering::Relaxed) {
            self.to_stderr(&format!("error: standard output cannot be written: {error}"));
        }
    }
}

/// A word or sign in the colour of its tone; the streams drop the colour where it is not wanted.
pub(super) fn paint(tone: Tone, text: &str) -> String {
    let colour = match tone {
        Tone::Good => AnsiColor::Green,
        Tone::Warn => AnsiColor::Yellow,
        Tone::Bad => AnsiColor::Red,
    };
    let style = Style::new().fg_color(Some(colour.into())).bold();
    format!("{style}{text}{style:#}")
}

/// A heading.
pub(super) fn strong(text: &str) -> String {
    let style = Style::new().bold();
    format!("{style}{text}{style:#}")
}

/// Text from elsewhere without tricks and on one line: a line end in it could forge the lines that follow.
pub(super) fn safe(text: &str) -> String {
    plugward_policy::visible(text)
}

/// The same for text of several lines; each further one begins with `indent`, where none of our own does.
pub(super) fn safe_lines(text: &str, indent: &str) -> String {
    let lines: Vec<String> = text.trim_end().split('\n').map(safe).collect();
    lines.join(&format!("\n{indent}"))
}

/// The same JSON with every character escaped that a terminal would act on or not show.
fn harmless_json(text: &str) -> Cow<'_, str> {
    let is_harmless = |c: char| c == '\n' || (' '..='~').contains(&c);
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_harmless(character) {
            shown.push(character);
        } else if character.is_ascii_whitespace() {
            // Such characters stand between the values only.
            shown.push(' ');
        } else if safe(character.encode_utf8(&mut [0; 4])).starts_with('\\') {
            for unit in character.encode_utf16(&mut [0; 2]) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// Columns without borders; wrapped for a terminal, one line per row for a pipe.
pub(super) fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().copied());
    if io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(TABLE_WIDTH);
    }
    for row in rows {
        table.add_row(row.into_iter().map(|cell| plugward_policy::visible(&cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// A failure of the command line itself in JSON, before there is an [`Output`].
pub(super) fn usage_object(message: &str) -> Value {
    json!({ "schemaVersion": SCHEMA_VERSION, "error": { "code": USAGE_CODE, "message": message, "details": {} } })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirement 94: what a plugin wrote can neither drive the terminal nor pose as a line of ours.
    #[test]
    fn text_of_others_stays_within_its_place() {
        assert_eq!(safe("a\nhint: run this\u{1b}[2J"), "a\\u{a}hint: run this\\u{1b}[2J");
        assert_eq!(safe_lines("one\nhint: two\r\n\n", "  "), "one\n  hint: two");
    }

    /// A result holds what a tool wrote; JSON escapes neither C1 controls nor marks that turn the reading direction.
    #[test]
    fn json_for_a_terminal_is_the_same_json_without_tricks() {
        let json = "{\"a\":\t\"x\u{9b}2J\u{7f}\u{202e}\u{e0041} é 日本\"}\r\n";
        let shown = harmless_json(json);
        assert_eq!(shown, "{\"a\": \"x\\u009b2J\\u007f\\u202e\\udb40\\udc41 é 日本\"} \n");
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(read(&shown), read(json));
        assert!(matches!(harmless_json("{\"a\": 1}"), Cow::Borrowed(_)));
    }
}
