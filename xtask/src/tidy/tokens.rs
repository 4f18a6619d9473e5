//! Owns just enough of Rust's lexical grammar to tell code from comments and strings. Refuses to parse: callers look
//! for words in [`Code::text`], where everything that is not code has become blanks of the same length.

/// Rust source with comments and literals blanked out, byte for byte at the same place as in the original.
#[derive(Debug)]
pub(crate) struct Code {
    /// The code alone.
    pub(crate) text: String,
    /// Text literals with the line (from 1) they begin on, without quotes and with escapes as written.
    pub(crate) strings: Vec<(usize, String)>,
    line_starts: Vec<usize>,
}

impl Code {
    /// Separates code from the rest.
    pub(crate) fn of(source: &str) -> Self {
        let line_starts =
            std::iter::once(0).chain(source.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1));
        let mut code = Self { text: String::new(), strings: Vec::new(), line_starts: line_starts.collect() };
        let bytes = source.as_bytes();
        let mut kept = bytes.to_vec();
        let mut at = 0;
        while at < bytes.len() {
            let (end, kind) = piece(bytes, at);
            match kind {
                Piece::Code => {}
                Piece::Comment => blank(&mut kept, at, end),
                Piece::Literal { open, close } => {
                    // `get`: an unterminated literal at the end of the file ends before its closing quote would.
                    let inner = source.get(at + open..end.saturating_sub(close)).unwrap_or_default();
                    code.strings.push((code.line(at), inner.to_owned()));
                    blank(&mut kept, at, end);
                }
                Piece::Character => blank(&mut kept, at, end),
            }
            at = end;
        }
        // Only whole pieces were blanked, and pieces begin and end at ASCII characters, so this is UTF-8 still.
        code.text = String::from_utf8(kept).unwrap_or_default();
        code
    }

    /// The line, from 1, that byte `offset` is on.
    pub(crate) fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|&start| start <= offset)
    }

    /// Every identifier or keyword with its offset.
    pub(crate) fn words(&self) -> impl Iterator<Item = (usize, &str)> {
        let bytes = self.text.as_bytes();
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < bytes.len() && !starts_word(bytes[at]) {
                // A number's suffix is no word: `0x1f` and `1u8` are skipped whole.
                if bytes[at].is_ascii_digit() {
                    while at < bytes.len() && continues_word(bytes[at]) {
                        at += 1;
                    }
                } else {
                    at += 1;
                }
            }
            let start = at;
            while at < bytes.len() && continues_word(bytes[at]) {
                at += 1;
            }
            (at > start).then(|| (start, &self.text[start..at]))
        })
    }

    /// Offset just past the bracket that closes the one at `open`, or the end of the text.
    pub(crate) fn closing(&self, open: usize) -> usize {
        let bytes = self.text.as_bytes();
        let (opens, closes) = match bytes.get(open) {
            Some(b'{') => (b'{', b'}'),
            Some(b'[') => (b'[', b']'),
            _ => (b'(', b')'),
        };
        let mut depth = 0_usize;
        for (at, &byte) in bytes.iter().enumerate().skip(open) {
            if byte == opens {
                depth += 1;
            } else if byte == closes {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
        }
        bytes.len()
    }

    /// Offset of the first character from `from` on that is not blank.
    pub(crate) fn after_blanks(&self, from: usize) -> usize {
        let rest = &self.text[from.min(self.text.len())..];
        from + (rest.len() - rest.trim_start().len())
    }

    /// Attributes as (offset of `#`, text between the brackets).
    pub(crate) fn attributes(&self) -> Vec<(usize, &str)> {
        let bytes = self.text.as_bytes();
        let mut found = Vec::new();
        for (at, _) in self.text.match_indices('#') {
            let mut open = self.after_blanks(at + 1);
            if bytes.get(open) == Some(&b'!') {
                open = self.after_blanks(open + 1);
            }
            if bytes.get(open) == Some(&b'[') {
                let end = self.closing(open);
                found.push((at, &self.text[open + 1..end.saturating_sub(1).max(open + 1)]));
            }
        }
        found
    }

    /// Byte ranges of items that exist in tests only (`#[cfg(test)]` and the item behind it).
    pub(crate) fn test_ranges(&self) -> Vec<std::ops::Range<usize>> {
        let mut found = Vec::new();
        for (at, attribute) in self.attributes() {
            let condensed: String = attribute.split_whitespace().collect();
            if condensed != "cfg(test)" {
                continue;
            }
            let rest = &self.text[at..];
            let brace = rest.find('{');
            let stop = rest.find(';');
            let end = match (brace, stop) {
                (Some(brace), Some(stop)) if stop < brace => at + stop,
                (Some(brace), _) => self.closing(at + brace),
                (None, Some(stop)) => at + stop,
                (None, None) => self.text.len(),
            };
            found.push(at..end);
        }
        found
    }
}

enum Piece {
    Code,
    Comment,
    Literal { open: usize, close: usize },
    Character,
}

/// The piece that begins at `at`: where it ends and what it is.
fn piece(bytes: &[u8], at: usize) -> (usize, Piece) {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        let end = rest.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |length| at + length);
        return (end, Piece::Comment);
    }
    if rest.starts_with(b"/*") {
        return (at + block_comment(rest), Piece::Comment);
    }
    if starts_word(bytes[at]) {
        return word_or_prefixed_literal(bytes, at);
    }
    if bytes[at].is_ascii_digit() {
        let length = rest.iter().take_while(|&&byte| continues_word(byte)).count();
        return (at + length, Piece::Code);
    }
    match bytes[at] {
        b'"' => (at + quoted(rest, b'"'), Piece::Literal { open: 1, close: 1 }),
        b'\'' => character_or_lifetime(bytes, at),
        _ => (at + 1, Piece::Code),
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// A word, or a literal with a prefix: `r""`, `r#""#`, `b""`, `br""`, `c""`, `cr""`, `b''`.
fn word_or_prefixed_literal(bytes: &[u8], at: usize) -> (usize, Piece) {
    let length = bytes[at..].iter().take_while(|&&byte| continues_word(byte)).count();
    let after = at + length;
    let raw = matches!(&bytes[at..after], b"r" | b"br" | b"cr");
    let plain = matches!(&bytes[at..after], b"b" | b"c");
    if raw {
        let hashes = bytes[after..].iter().take_while(|&&byte| byte == b'#').count();
        if bytes.get(after + hashes) == Some(&b'"') {
            let open = length + hashes + 1;
            let mut end_mark = vec![b'"'];
            end_mark.extend(std::iter::repeat_n(b'#', hashes));
            let body = &bytes[at + open..];
            let inner = body.windows(end_mark.len()).position(|window| window == end_mark).unwrap_or(body.len());
            let end = (at + open + inner + end_mark.len()).min(bytes.len());
            return (end, Piece::Literal { open, close: end_mark.len() });
        }
    }
    if plain && bytes.get(after) == Some(&b'"') {
        return (after + quoted(&bytes[after..], b'"'), Piece::Literal { open: length + 1, close: 1 });
    }
    if plain && bytes.get(after) == Some(&b'\'') {
        return (after + quoted(&bytes[after..], b'\''), Piece::Character);
    }
    (after, Piece::Code)
}

/// Length of a quoted piece, both quotes included, minding backslashes.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        if rest[at] == b'\\' {
            at += 2;
        } else if rest[at] == quote {
            return at + 1;
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// `'x'` and `'\n'` are characters; `'a` without a closing quote right behind one character is a lifetime.
fn character_or_lifetime(bytes: &[u8], at: usize) -> (usize, Piece) {
    let rest = &bytes[at..];
    if rest.get(1) == Some(&b'\\') {
        return (at + quoted(rest, b'\''), Piece::Character);
    }
    let width = match rest.get(1) {
        Some(byte) if *byte >= 0xF0 => 4,
        Some(byte) if *byte >= 0xE0 => 3,
        Some(byte) if *byte >= 0xC0 => 2,
        _ => 1,
    };
    if rest.get(1 + width) == Some(&b'\'') { (at + width + 2, Piece::Character) } else { (at + 1, Piece::Code) }
}

fn blank(kept: &mut [u8], from: usize, to: usize) {
    for byte in &mut kept[from..to] {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

fn starts_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn continues_word(byte: u8) -> bool {
    starts_word(byte) || byte.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<String> {
        Code::of(source).words().map(|(_, word)| word.to_owned()).collect()
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        let source = r##"
            let a = "fn unsafe"; // unsafe
            /* unsafe /* nested */ unsafe */
            let b = r#"unsafe " still"#; let c = b"unsafe"; let d = br"unsafe";
            let e = '"'; let f = '\''; let g: &'static str = "x";
        "##;
        let words = words(source);
        assert!(!words.contains(&"unsafe".to_owned()), "{words:?}");
        assert!(words.contains(&"static".to_owned()), "{words:?}");
        assert_eq!(words.iter().filter(|word| *word == "let").count(), 7);
    }

    #[test]
    fn literals_keep_their_line_and_text() {
        let code = Code::of("x\n\"one\"\nr#\"tw\"o\"#\nb'x' 'é' \"three\"");
        assert_eq!(code.strings, [(2, "one".into()), (3, "tw\"o".into()), (4, "three".into())]);
    }

    #[test]
    fn blanking_keeps_every_offset() {
        let source = "a /* é */ b \"é\" c\n// z\nd";
        let code = Code::of(source);
        assert_eq!(code.text.len(), source.len());
        assert_eq!(code.line(source.rfind('d').unwrap()), 3);
        assert_eq!(code.words().map(|(at, _)| &source[at..=at]).collect::<String>(), "abcd");
    }

    #[test]
    fn broken_source_ends_instead_of_failing() {
        for source in ["\"open", "r#\"open", "/* open", "'", "b'", "'\\", "#[", "r", "é'"] {
            let code = Code::of(source);
            assert_eq!(code.text.len(), source.len(), "{source}");
            code.attributes();
            code.test_ranges();
        }
    }

    #[test]
    fn test_items_are_found() {
        let code = Code::of("fn a() {}\n#[cfg(test)]\nmod tests { fn b() { {} } }\nfn c() {}");
        let [range] = &code.test_ranges()[..] else { panic!("one range") };
        assert!(code.text[range.clone()].contains("fn b"));
        assert!(!code.text[range.clone()].contains("fn c"));
    }
}
