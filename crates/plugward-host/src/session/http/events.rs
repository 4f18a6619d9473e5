//! Server-sent events, read as they come.
//!
//! Owns the form: lines ended in any of three ways, fields, comments, what a reader has to remember to go on later.
//! Refuses an event longer than a message may be, and to know what an event means.

use std::time::Duration;

/// Bytes of a name or an id that are kept; both are short words in practice.
const MAX_WORD_BYTES: usize = 1024;

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Its type; `message` when it names none.
    pub(super) name: String,
    /// What it carries.
    pub(super) data: String,
}

/// An event is longer than this.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong {
    pub(super) limit: usize,
}

/// The state of one stream.
pub(super) struct EventReader {
    max_bytes: usize,
    line: Vec<u8>,
    /// The byte before was a carriage return, which ended its line: a line feed that follows belongs to it.
    after_return: bool,
    is_first_line: bool,
    name: String,
    data: String,
    has_data: bool,
    id: Option<String>,
    last_id: Option<String>,
    retry: Option<Duration>,
}

impl EventReader {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            line: Vec::new(),
            after_return: false,
            is_first_line: true,
            name: String::new(),
            data: String::new(),
            has_data: false,
            id: None,
            last_id: None,
            retry: None,
        }
    }

    /// The id of the last event that had one: from where to go on.
    pub(super) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref().filter(|id| !id.is_empty())
    }

    /// The pause before a stream is opened again, if the server named one.
    pub(super) fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Forgets an event that was cut off, and keeps what is remembered between streams.
    pub(super) fn reopen(&mut self) {
        let (last_id, retry) = (self.last_id.take(), self.retry);
        *self = Self { last_id, retry, ..Self::new(self.max_bytes) };
    }

    /// Takes the next bytes of the stream; `events` gets what is complete.
    pub(super) fn push(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), TooLong> {
        for &byte in bytes {
            let follows_return = std::mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                b'\n' if follows_return => {}
                b'\n' | b'\r' => self.end_line(events),
                _ if self.line.len() + self.data.len() >= self.max_bytes => {
                    return Err(TooLong { limit: self.max_bytes });
                }
                byte => self.line.push(byte),
            }
        }
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<Event>) {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        let text = match std::mem::replace(&mut self.is_first_line, false) {
            true => text.trim_start_matches('\u{feff}'),
            false => &text,
        };
        if text.is_empty() {
            return self.dispatch(events);
        }
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.data.push_str(value);
                self.has_data = true;
            }
            "event" if value.len() <= MAX_WORD_BYTES => value.clone_into(&mut self.name),
            "id" if value.len() <= MAX_WORD_BYTES && !value.contains('\0') => self.id = Some(value.to_owned()),
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok().map(Duration::from_millis).or(self.retry);
            }
            // A comment, which keeps the line open, or a field nobody knows.
            _ => {}
        }
    }

    fn dispatch(&mut self, events: &mut Vec<Event>) {
        if let Some(id) = self.id.take() {
            self.last_id = Some(id);
        }
        let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        // Without data it only says an id: where to begin after an interruption.
        if std::mem::replace(&mut self.has_data, false) && !data.is_empty() {
            let name = if name.is_empty() { "message".to_owned() } else { name };
            events.push(Event { name, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&str]) -> (Vec<(String, String)>, EventReader) {
        let mut reader = EventReader::new(1024);
        let mut events = Vec::new();
        for piece in pieces {
            reader.push(piece.as_bytes(), &mut events).unwrap();
        }
        (events.into_iter().map(|event| (event.name, event.data)).collect(), reader)
    }

    fn message(data: &str) -> (String, String) {
        ("message".to_owned(), data.to_owned())
    }

    #[test]
    fn events_are_the_same_however_the_bytes_come() {
        let text = "\u{feff}data: {\"a\":1}\r\n\r\n: keep-alive\n\nevent: endpoint\ndata:/messages\r\rdata: one\ndata: two\n\n";
        let wanted =
            [message("{\"a\":1}"), ("endpoint".to_owned(), "/messages".to_owned()), message("one\ntwo")].to_vec();
        assert_eq!(read(&[text]).0, wanted);
        let bytes: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(read(&bytes.iter().map(String::as_str).collect::<Vec<_>>()).0, wanted);
    }

    #[test]
    fn what_is_needed_to_go_on_is_remembered_and_a_cut_event_is_not() {
        // LG-06: an event without data only tells where to begin again.
        let (events, mut reader) = read(&["id: 7\nretry: 500\ndata:\n\nid: 8\ndata: cut"]);
        assert_eq!(events, []);
        assert_eq!((reader.last_id(), reader.retry()), (Some("7"), Some(Duration::from_millis(500))));
        reader.reopen();
        let mut events = Vec::new();
        reader.push(b"data: whole\n\n", &mut events).unwrap();
        assert_eq!(events, [Event { name: "message".to_owned(), data: "whole".to_owned() }]);
        assert_eq!(reader.last_id(), Some("7"));
        reader.push(b"retry: soon\nretry: -1\nid: \0\n\n", &mut events).unwrap();
        assert_eq!((reader.last_id(), reader.retry()), (Some("7"), Some(Duration::from_millis(500))));
    }

    #[test]
    fn an_event_without_end_is_refused() {
        // Invariant 7: memory is bounded whatever a server writes.
        let mut reader = EventReader::new(64);
        let mut events = Vec::new();
        assert_eq!(reader.push("x".repeat(65).as_bytes(), &mut events), Err(TooLong { limit: 64 }));
        let mut reader = EventReader::new(64);
        let lines = "data: 0123456789\n".repeat(10);
        assert_eq!(reader.push(lines.as_bytes(), &mut events), Err(TooLong { limit: 64 }));
        let mut reader = EventReader::new(64);
        assert_eq!(reader.push("data: 0123456789\n\n".repeat(100).as_bytes(), &mut events), Ok(()));
        assert_eq!(events.len(), 100);
    }
}
