//! The one place that writes to the terminal: results to standard output, everything else to standard error.
//!
//! Owns JSON or text, colour or none, and what a closed pipe means: the reader has enough, which is no failure. Refuses
//! to know what is written.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::builder::styling::{AnsiColor, Style};
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::{Value, json};

use crate::control::Failure;
use crate::wire::{SCHEMA_VERSION, USAGE_CODE};

/// Width of tables on a terminal: the narrowest that people still use.
const TABLE_WIDTH: u16 = 80;

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

    /// Writes a result as JSON; `body` must be an object.
    pub(super) fn object(&self, body: &impl Serialize) {
        match serde_json::to_string_pretty(&Versioned { version: SCHEMA_VERSION, body }) {
            Ok(text) => self.text(&text),
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
                self.to_stderr(&text);
            }
            return;
        }
        let mut text = format!("{} {}", paint(Tone::Bad, "error:"), safe(&error.message));
        for line in failure.body.lines().iter().filter(|line| !error.message.contains(**line)) {
            text.push_str(&format!("\n  {}", safe(line)));
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

/// Text from elsewhere without tricks; line ends stay.
pub(super) fn safe(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(plugward_policy::visible).collect();
    lines.join("\n")
}

/// Columns without borders; wrapped for a terminal, one line per row for a pipe.
pub(super) fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().copied());
    if io::IsTerminal::is_terminal(&io::stdout()) {
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
