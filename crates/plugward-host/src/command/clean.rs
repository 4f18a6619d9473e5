//! Output of programs made fit to be read: no terminal sequences, no control characters, no bytes that are no text.
//! Owns only that. Refuses to change anything else; every visible character stays.

/// `bytes` as text: what is not UTF-8 shows as a replacement character, sequences that drive a terminal are gone, and a
/// carriage return ends a line.
pub(crate) fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut clean = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\u{1b}' => skip_escape(&mut chars),
            '\u{9b}' => skip_control_sequence(&mut chars),
            '\r' => {
                if chars.peek() != Some(&'\n') {
                    clean.push('\n');
                }
            }
            '\n' | '\t' => clean.push(char),
            char if char.is_control() => {}
            char => clean.push(char),
        }
    }
    clean
}

/// What follows an ESC.
fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            skip_control_sequence(chars);
        }
        // Texts for the terminal itself, such as its title, up to BEL or ESC \.
        Some(']' | 'P' | '^' | '_' | 'X') => {
            chars.next();
            while let Some(char) = chars.next() {
                if char == '\u{7}' || char == '\u{9c}' {
                    return;
                }
                if char == '\u{1b}' {
                    chars.next_if_eq(&'\\');
                    return;
                }
            }
        }
        // Two- and three-character sequences, such as a choice of character set.
        Some('(' | ')' | '*' | '+' | '#' | '%' | ' ') => {
            chars.next();
            chars.next();
        }
        Some('\n') | None => {}
        Some(_) => {
            chars.next();
        }
    }
}

/// Parameters up to the character that ends the sequence.
fn skip_control_sequence(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while let Some(char) = chars.next_if(|char| !matches!(char, '\n' | '\u{1b}')) {
        if ('@'..='~').contains(&char) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn only_what_can_be_read_is_left() {
        for (bytes, wanted) in [
            (&b"plain\ttext\n"[..], "plain\ttext\n"),
            (b"\x1b[1;31mred\x1b[0m", "red"),
            (b"\x1b]0;title\x07x\x1b]8;;http://a.test\x1b\\link", "xlink"),
            (b"\x1b(Bx\x1b=y\x1bM", "xy"),
            (b"50%\r100%\r\ndone", "50%\n100%\ndone"),
            (b"a\x00b\x08c\x7fd", "abcd"),
            (b"\xff\xfe ok \xc3\xa9", "\u{fffd}\u{fffd} ok \u{e9}"),
            (b"cut \x1b[31", "cut "),
            (b"\x1b", ""),
            (b"\x1b[3\nnext", "\nnext"),
        ] {
            assert_eq!(clean(bytes), wanted, "{bytes:?}");
        }
    }
}
