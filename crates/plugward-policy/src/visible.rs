//! Text from strangers made safe to show. Owns the escaping of characters that could forge or hide
//! part of a message on a terminal or a page. Refuses to shorten what a person has to agree to:
//! only [`quoted`], which is for error messages, cuts.

use std::fmt::Write;

/// Longest value repeated inside an error message, in characters: enough to recognise it, short
/// enough that a hostile file cannot flood a terminal or a log.
const QUOTED_CHARS_MAX: usize = 64;

/// `text` with every character that is invisible or moves the cursor written as `\u{…}`:
/// control characters, bidirectional overrides, zero-width characters and tag characters.
/// Nothing is cut, so the result can be shown where somebody has to agree to all of it.
///
/// ```
/// assert_eq!(plugward_policy::visible("a\u{202e}b"), "a\\u{202e}b");
/// ```
#[must_use]
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_deceptive(character) {
            // Writing into a `String` cannot fail.
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    shown
}

/// `value` between backticks for an error message: escaped by [`visible`] and cut.
pub(crate) fn quoted(value: &str) -> String {
    let cut: String = value.chars().take(QUOTED_CHARS_MAX).collect();
    let ellipsis = if cut.len() < value.len() { "…" } else { "" };
    format!("`{}{ellipsis}`", visible(&cut))
}

/// Whether `character` shows nothing of its own or changes how its neighbours are shown.
pub(crate) fn is_deceptive(character: char) -> bool {
    character.is_control()
        || matches!(
            u32::from(character),
            0x00ad | 0x034f | 0x061c | 0x115f | 0x1160 | 0x17b4 | 0x17b5 | 0x180b..=0x180f
                | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0x3164 | 0xfe00..=0xfe0f
                | 0xfeff | 0xffa0 | 0xfff9..=0xfffb | 0xe0000..=0xe0fff
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement 94: what a person is shown cannot be forged by what it shows.
    #[test]
    fn terminal_and_bidi_tricks_are_spelled_out_and_ordinary_text_is_left_alone() {
        assert_eq!(visible("\u{1b}[2Jok"), "\\u{1b}[2Jok");
        assert_eq!(visible("a\u{200b}b\u{2066}c\u{e0041}"), "a\\u{200b}b\\u{2066}c\\u{e0041}");
        assert_eq!(visible("naïve 日本語 --flag=ü"), "naïve 日本語 --flag=ü");
    }

    #[test]
    fn a_huge_value_does_not_flood_the_message() {
        assert!(quoted(&"x".repeat(1_000_000)).chars().count() < 100);
        assert_eq!(quoted("short"), "`short`");
    }
}
