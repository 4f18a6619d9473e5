//! The ways a secret value is spelled when a program prints it. Owns the list of spellings; refuses transformations
//! that nobody prints by accident (encryption, reversal): hiding from a plugin that wants to leak is the sandbox's job.

use std::collections::BTreeSet;

use super::SECRET_MIN_BYTES;

/// A single line of a value of several lines counts as secret from this length on. The shorter lines of a key file are
/// its frame, or its last few characters, and would match ordinary text.
const SECRET_LINE_MIN_BYTES: usize = 16;

/// Every spelling of every value that is long enough to be searched for.
pub(super) fn of_all<'v>(values: impl Iterator<Item = &'v String>) -> Vec<String> {
    let mut spellings = BTreeSet::new();
    for value in values {
        add(value, &mut spellings);
        // What is read from a file ends in a line break that programs take off before use.
        add(value.trim(), &mut spellings);
        if value.trim().contains('\n') {
            for line in value.lines().map(str::trim) {
                let frame = line.starts_with("-----");
                if line.len() >= SECRET_LINE_MIN_BYTES && !frame {
                    add(line, &mut spellings);
                }
            }
        }
    }
    spellings.into_iter().collect()
}

fn add(value: &str, spellings: &mut BTreeSet<String>) {
    if value.len() < SECRET_MIN_BYTES {
        return;
    }
    spellings.insert(value.to_owned());
    let json = json_escaped(value);
    // JSON carried as text inside JSON is what a tool result most often is.
    spellings.insert(json_escaped(&json));
    spellings.insert(json.replace('/', "\\/"));
    spellings.insert(json);
    for upper in [false, true] {
        let ascii = ascii_escaped(value, upper);
        spellings.insert(json_escaped(&ascii));
        spellings.insert(ascii);
        spellings.insert(percent_encoded(value, upper));
        spellings.insert(percent_encoded(value, upper).replace("%20", "+"));
    }
    spellings.insert(base64(value.as_bytes()));
}

/// As the inside of a JSON string, other characters than ASCII kept.
fn json_escaped(value: &str) -> String {
    let quoted = serde_json::Value::String(value.to_owned()).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// As the inside of a JSON string by an encoder that writes ASCII only.
fn ascii_escaped(value: &str, upper: bool) -> String {
    let mut out = String::new();
    for unit in json_escaped(value).encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii() => out.push(char::from(byte)),
            _ if upper => out.push_str(&format!("\\u{unit:04X}")),
            _ => out.push_str(&format!("\\u{unit:04x}")),
        }
    }
    out
}

fn percent_encoded(value: &str, upper: bool) -> String {
    let mut out = String::new();
    for &byte in value.as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ if upper => out.push_str(&format!("%{byte:02X}")),
            _ => out.push_str(&format!("%{byte:02x}")),
        }
    }
    out
}

/// Standard alphabet without padding, so that padded and unpadded text both match.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            let index = word >> (18 - 6 * place) & 0x3f;
            out.push(char::from(ALPHABET[index as usize]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_matches_the_examples_of_its_definition() {
        let cases = [("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (plain, encoded) in cases {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn short_values_are_not_searched_for() {
        assert!(of_all([String::from("12345"), String::new()].iter()).is_empty());
        assert!(of_all([String::from("123456")].iter()).contains(&String::from("123456")));
    }

    #[test]
    fn lines_of_a_key_count_but_not_its_frame() {
        let key = "-----BEGIN KEY-----\nAAAABBBBCCCCDDDDEEEE\nshort\n-----END KEY-----\n";
        let spellings = of_all([key.to_owned()].iter());
        assert!(spellings.contains(&String::from("AAAABBBBCCCCDDDDEEEE")));
        assert!(!spellings.iter().any(|s| s == "short" || s == "-----BEGIN KEY-----"));
    }
}
