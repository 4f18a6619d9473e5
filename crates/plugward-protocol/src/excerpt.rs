//! Showing people what a peer wrote.
//!
//! Owns the one way text of a peer gets into a message of ours: cut, invalid bytes replaced, and everything escaped
//! that could move a cursor or reorder a line. Refuses to be lossless; payloads never pass through here.

/// Longest excerpt, in characters of the original.
const EXCERPT_CHARS: usize = 200;

/// The beginning of what a peer wrote, safe to print on a terminal.
pub(crate) fn excerpt(written: &[u8]) -> String {
    // Four bytes are the longest character, so this much is enough for the excerpt.
    let head = &written[..written.len().min(EXCERPT_CHARS * 4)];
    let text = String::from_utf8_lossy(head);
    let mut excerpt = String::new();
    for character in text.chars().take(EXCERPT_CHARS) {
        if character.is_control() || is_direction_mark(character) {
            excerpt.extend(character.escape_unicode());
        } else {
            excerpt.push(character);
        }
    }
    excerpt
}

/// Characters that reorder what follows them.
fn is_direction_mark(character: char) -> bool {
    matches!(character, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_cannot_draw_on_the_terminal() {
        assert_eq!(excerpt(b"a\x1b[2Jb\x07\xff"), "a\\u{1b}[2Jb\\u{7}\u{FFFD}");
        assert_eq!(excerpt("x\u{202E}y".as_bytes()), "x\\u{202e}y");
        assert_eq!(excerpt("plain, h\u{e9}llo".as_bytes()), "plain, h\u{e9}llo");
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(excerpt("\u{20ac}".repeat(100_000).as_bytes()).chars().count(), EXCERPT_CHARS);
    }
}
