//! Finding id and kind of a message that is never held in memory.
//!
//! Owns a byte-at-a-time reader of the outermost object only: it remembers the name it is at and the value of `id`,
//! nothing else, so a line of any length is understood in constant memory. Used for lines over the cap and for lines
//! that cannot be parsed strictly. Refuses to guess: a line that is not exactly one closed object, or has two ids,
//! yields no id.

use crate::id::{MAX_ID_BYTES, RequestId};
use crate::message::Shape;

/// Longest member name that matters (`jsonrpc` has 7); longer names are only recognised as "another name".
const LONGEST_NAME_BYTES: usize = 8;

/// What the scan is collecting bytes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Collecting {
    Nothing,
    Name,
    Id,
}

/// State of a scan over one line.
#[derive(Debug)]
pub(crate) struct EnvelopeScan {
    depth: u64,
    opened: bool,
    malformed: bool,
    in_string: bool,
    escaped: bool,
    expects_name: bool,
    collecting: Collecting,
    collected: Vec<u8>,
    overflowed: bool,
    id_text: Option<Vec<u8>>,
    ids_seen: u32,
    has_method: bool,
    has_answer: bool,
}

/// What a scan learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScannedEnvelope {
    /// The id of the outermost object, when there is exactly one and it is valid.
    pub(crate) id: Option<RequestId>,
    /// What kind of message it would have been.
    pub(crate) shape: Shape,
}

impl EnvelopeScan {
    pub(crate) fn new() -> Self {
        EnvelopeScan {
            depth: 0,
            opened: false,
            malformed: false,
            in_string: false,
            escaped: false,
            expects_name: false,
            collecting: Collecting::Nothing,
            collected: Vec::new(),
            overflowed: false,
            id_text: None,
            ids_seen: 0,
            has_method: false,
            has_answer: false,
        }
    }

    /// Scans a whole line at once.
    pub(crate) fn scan(line: &[u8]) -> ScannedEnvelope {
        let mut scan = EnvelopeScan::new();
        scan.feed(line);
        scan.finish()
    }

    /// Takes the next bytes of the line, cut anywhere.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.malformed {
            if self.in_string {
                let used = self.feed_string(bytes);
                bytes = &bytes[used..];
            } else {
                self.feed_structure(bytes[0]);
                bytes = &bytes[1..];
            }
        }
    }

    /// Ends the line.
    pub(crate) fn finish(self) -> ScannedEnvelope {
        if self.malformed || !self.opened || self.depth != 0 {
            return ScannedEnvelope { id: None, shape: Shape::Unknown };
        }
        let id = self
            .id_text
            .filter(|_| self.ids_seen == 1)
            .and_then(|text| String::from_utf8(text).ok())
            .and_then(|text| RequestId::from_json(&text).ok());
        let shape = Shape::of(self.has_method, self.ids_seen > 0, self.has_answer);
        ScannedEnvelope { id, shape }
    }

    /// Runs to the end of the current string or of the bytes; returns how many were used.
    fn feed_string(&mut self, bytes: &[u8]) -> usize {
        for (at, &byte) in bytes.iter().enumerate() {
            if self.escaped {
                self.escaped = false;
            } else if byte == b'\\' {
                self.escaped = true;
            } else if byte == b'"' {
                self.in_string = false;
                if self.collecting == Collecting::Id {
                    self.collect(byte);
                }
                return at + 1;
            }
            if self.collecting != Collecting::Nothing {
                self.collect(byte);
            }
        }
        bytes.len()
    }

    fn feed_structure(&mut self, byte: u8) {
        let outermost = self.depth == 1;
        match byte {
            b' ' | b'\t' | b'\r' => {}
            _ if self.opened && self.depth == 0 => self.malformed = true,
            b'{' if self.depth == 0 => {
                self.opened = true;
                self.depth = 1;
                self.expects_name = true;
            }
            _ if self.depth == 0 => self.malformed = true,
            b'"' => self.open_string(outermost),
            b'{' | b'[' => {
                self.depth += 1;
                self.collect_if_id(byte);
            }
            b'}' | b']' => {
                if outermost {
                    self.end_value();
                    self.malformed |= byte == b']';
                }
                self.depth -= 1;
            }
            b',' if outermost => {
                self.end_value();
                self.expects_name = true;
            }
            b':' if outermost && self.collecting == Collecting::Name => self.end_name(),
            other => self.collect_if_id(other),
        }
    }

    fn open_string(&mut self, outermost: bool) {
        self.in_string = true;
        if outermost && self.expects_name {
            self.expects_name = false;
            self.start(Collecting::Name);
        } else {
            self.collect_if_id(b'"');
        }
    }

    fn end_name(&mut self) {
        let name = if self.overflowed { &[][..] } else { &self.collected[..] };
        let is_id = name == b"id";
        self.has_method |= name == b"method";
        self.has_answer |= name == b"result" || name == b"error";
        if is_id {
            self.ids_seen = self.ids_seen.saturating_add(1);
            self.start(Collecting::Id);
        } else {
            self.collecting = Collecting::Nothing;
        }
    }

    fn end_value(&mut self) {
        if self.collecting == Collecting::Id {
            let text = std::mem::take(&mut self.collected);
            self.id_text = (!self.overflowed).then_some(text);
        }
        self.collecting = Collecting::Nothing;
    }

    fn start(&mut self, collecting: Collecting) {
        self.collecting = collecting;
        self.collected.clear();
        self.overflowed = false;
    }

    fn collect_if_id(&mut self, byte: u8) {
        if self.collecting == Collecting::Id {
            self.collect(byte);
        }
    }

    fn collect(&mut self, byte: u8) {
        let limit = match self.collecting {
            Collecting::Name => LONGEST_NAME_BYTES,
            Collecting::Id | Collecting::Nothing => MAX_ID_BYTES,
        };
        if self.collected.len() < limit {
            self.collected.push(byte);
        } else {
            self.overflowed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Option<RequestId> {
        EnvelopeScan::scan(text.as_bytes()).id
    }

    #[test]
    fn finds_the_outer_id_wherever_it_stands() {
        // Case B075: the id of the envelope, not a nested one.
        let line = r#"{"jsonrpc":"2.0","result":{"id":77,"x":[{"id":78}],"t":"\",\"id\":5,{"} , "id" : "s-9" }"#;
        let scanned = EnvelopeScan::scan(line.as_bytes());
        assert_eq!(scanned.id, Some(RequestId::from("s-9")));
        assert_eq!(scanned.shape, Shape::Response);
        assert_eq!(id(r#"{"id":12345678901234567890,"result":1}"#).unwrap().to_string(), "12345678901234567890");
    }

    #[test]
    fn does_not_guess() {
        for line in [
            r#"{"id":1,"id":2,"result":{}}"#,
            r#"{"id":1,"result":{}"#,
            r#"{"id":1,"result":{}} {"id":2}"#,
            r#"[{"id":1,"result":{}}]"#,
            r#"{"id":true,"result":{}}"#,
            r#"{"id":{"a":1},"result":{}}"#,
            r#"{"id":1.5,"result":{}}"#,
            r#"{"result":{"id":1}}"#,
            "17",
            "",
        ] {
            assert_eq!(id(line), None, "{line}");
        }
        let long = format!("{{\"id\":\"{}\",\"result\":1}}", "x".repeat(MAX_ID_BYTES));
        assert_eq!(id(&long), None);
    }

    #[test]
    fn tells_the_kind_of_message() {
        let shape = |line: &str| EnvelopeScan::scan(line.as_bytes()).shape;
        assert_eq!(shape(r#"{"id":1,"method":"a"}"#), Shape::Request);
        assert_eq!(shape(r#"{"method":"a"}"#), Shape::Notification);
        assert_eq!(shape(r#"{"id":1,"error":"x"}"#), Shape::Response);
        assert_eq!(shape(r#"{"level":"info","id":1}"#), Shape::Unknown);
        assert_eq!(shape("no json at all"), Shape::Unknown);
    }

    #[test]
    fn any_cutting_gives_the_same_result() {
        let line = br#"{"jsonrpc":"2.0","res\"ult":{"k":"\\"},"result":[1,{"a":"}"}],"id":"a\"b"}"#;
        let whole = EnvelopeScan::scan(line);
        assert_eq!(whole.id, Some(RequestId::from("a\"b")));
        for cut in 0..line.len() {
            let mut scan = EnvelopeScan::new();
            scan.feed(&line[..cut]);
            scan.feed(&line[cut..]);
            assert_eq!(scan.finish(), whole, "cut at {cut}");
        }
    }
}
