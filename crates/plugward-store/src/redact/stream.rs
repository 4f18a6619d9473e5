//! Masking of bytes as they pass, for output that is cut or written to a file before its end is known. Owns how much has
//! to be held back for that: less than the longest spelling of a secret twice over. Refuses shapes: like
//! [`Redactor::redact_values`](super::Redactor::redact_values) it takes known values out and leaves the rest alone.

use std::sync::Arc;

use super::{Known, Matcher, SECRET_MARK};

/// Bytes of a beginning of a secret that may stand at a cut: fewer are shared by too many words, and tell nothing.
const PART_MIN_BYTES: usize = 3;

/// Bytes on their way, without the secret values that were known when they set out.
pub struct MaskedStream {
    matcher: Arc<Matcher>,
    held: Vec<u8>,
    /// Nothing more is let through, because nothing can be shown to be free of secrets.
    is_closed: bool,
}

impl MaskedStream {
    pub(super) fn new(matcher: Arc<Matcher>) -> Self {
        Self { matcher, held: Vec::new(), is_closed: false }
    }

    /// Takes the next bytes and appends to `out` what is certain by now. A value that is split over several calls is
    /// found all the same.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let longest = match &self.matcher.known {
            Known::Nothing => return out.extend_from_slice(bytes),
            Known::Everything => return self.close(out),
            Known::Values { longest_bytes, .. } => *longest_bytes,
        };
        self.held.extend_from_slice(bytes);
        // Looked through once per spelling's length, so that a program that writes byte by byte costs no more time.
        if self.held.len() >= longest.saturating_mul(2) {
            // Whatever begins before this was seen whole.
            let certain = self.held.len() + 1 - longest;
            self.pass_on(certain, out);
        }
    }

    /// Appends what was held back. Where the bytes are not all there were, because reading ended early, the beginning of a
    /// value at their end goes as well.
    pub fn end(&mut self, is_whole: bool, out: &mut Vec<u8>) {
        if !is_whole {
            // Whole values go first: one of them may be the beginning of another.
            let mut tail = Vec::new();
            self.pass_on(self.held.len(), &mut tail);
            return out.extend_from_slice(self.matcher.without_part(&tail));
        }
        self.pass_on(self.held.len(), out);
    }

    /// Masks values that begin before `certain`, and passes on everything up to there or to the end of the last of them.
    fn pass_on(&mut self, certain: usize, out: &mut Vec<u8>) {
        let Known::Values { search, .. } = &self.matcher.known else { return };
        let mut passed = 0;
        for found in search.find_iter(&self.held).take_while(|found| found.start() < certain) {
            out.extend_from_slice(&self.held[passed..found.start()]);
            out.extend_from_slice(SECRET_MARK.as_bytes());
            passed = found.end();
        }
        if passed < certain {
            out.extend_from_slice(&self.held[passed..certain]);
            passed = certain;
        }
        self.held.drain(..passed);
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.is_closed, true) {
            out.extend_from_slice(SECRET_MARK.as_bytes());
        }
    }
}

impl Matcher {
    /// `bytes` without the longest beginning of a known value that they end in: half a value is not known for one.
    pub(super) fn without_part<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let Known::Values { spellings, .. } = &self.known else { return bytes };
        let part_of = |spelling: &String| {
            let longest = spelling.len().saturating_sub(1).min(bytes.len());
            (PART_MIN_BYTES..=longest).rev().find(|length| bytes.ends_with(&spelling.as_bytes()[..*length]))
        };
        let part = spellings.iter().filter_map(part_of).max().unwrap_or(0);
        &bytes[..bytes.len() - part]
    }
}

#[cfg(test)]
mod tests {
    use super::super::Redactor;

    const SECRET: &str = "s3cr3t-DEMO-7f3a";

    fn redactor() -> Redactor {
        let redactor = Redactor::new();
        redactor
            .set_secrets("demo", &[SECRET.to_owned(), "s3cr3t-DEMO-7f3a-and-more".to_owned(), "ünïcode".to_owned()]);
        redactor
    }

    fn masked(pieces: &[&[u8]], is_whole: bool) -> String {
        let (mut stream, mut out) = (redactor().stream(), Vec::new());
        pieces.iter().for_each(|piece| stream.take(piece, &mut out));
        stream.end(is_whole, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Invariant 4: however the bytes come, the same comes out as of the whole text.
    #[test]
    fn pieces_are_masked_as_the_whole_is() {
        let filler = "plain text, long enough that a part of it is let go before the end is there. ".repeat(20);
        let text =
            format!("{SECRET}{filler}s3cr3t-DEMO-7f3a-and-more {filler}{SECRET}{SECRET} s3cr3t-DEMO-7f3 ünïcode.");
        let whole = redactor().redact_values(&text).into_owned();
        assert!(!whole.contains(SECRET) && whole.contains("s3cr3t-DEMO-7f3 "), "{whole}");
        for size in [1, 2, 3, 7, 16, 17, 100, 1000, text.len()] {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            assert_eq!(masked(&pieces, true), whole, "in pieces of {size}");
        }
        // Bytes that are no text stay what they are.
        let (mut stream, mut out) = (redactor().stream(), Vec::new());
        stream.take(&[0xff, 0, 0xfe], &mut out);
        stream.end(true, &mut out);
        assert_eq!(out, [0xff, 0, 0xfe]);
    }

    #[test]
    fn an_early_end_leaves_no_beginning_of_a_secret() {
        for read in 3..SECRET.len() {
            let text = format!("key {}", &SECRET[..read]);
            assert_eq!(masked(&[text.as_bytes()], false), "key ");
            // Control: it is all that was written, so it is no part of anything.
            assert_eq!(masked(&[text.as_bytes()], true), text);
        }
        assert_eq!(masked(&[b"key ", SECRET.as_bytes()], false), "key ***");
        assert_eq!(masked(&[b"nothing of that kind"], false), "nothing of that kind");
    }

    #[test]
    fn nothing_is_held_back_where_nothing_is_known() {
        let (mut stream, mut out) = (Redactor::new().stream(), Vec::new());
        stream.take(b"at once", &mut out);
        assert_eq!(out, b"at once");
    }
}
