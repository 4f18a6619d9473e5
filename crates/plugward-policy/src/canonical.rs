//! JSON in one spelling. Owns the canonical form that digests are taken over: members sorted by
//! key, no white space, strings escaped one way, numbers exactly as written. Refuses duplicate
//! keys, whose meaning depends on the reader, and nesting past a limit.
//!
//! Numbers are compared as text on purpose: `1` and `1.0` may be the same to one reader and not to
//! another, and a person who approved one spelling did not approve the other.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;

use crate::visible::quoted;

/// Deepest nesting accepted; real tool schemas stay below 20.
const DEPTH_MAX: usize = 100;

/// A text that has no canonical form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// Not JSON.
    #[error("text is not valid json: {0}")]
    Syntax(String),
    /// The same key twice in one object.
    #[error("key {} is given twice", quoted(.0))]
    DuplicateKey(String),
    /// Nested too deeply.
    #[error("nesting is deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// JSON, but not an object where one is needed.
    #[error("text is not a json object")]
    NotAnObject,
}

/// The canonical form of the JSON value in `text`.
pub(crate) fn canonical_value(text: &str) -> Result<String, CanonicalError> {
    let mut scanner = Scanner::new(text)?;
    scanner.value(0)
}

/// The members of the JSON object in `text`, each value in canonical form.
pub(crate) fn canonical_members(text: &str) -> Result<BTreeMap<String, String>, CanonicalError> {
    let mut scanner = Scanner::new(text)?;
    match scanner.peek() {
        Some(b'{') => scanner.members(0),
        _ => Err(CanonicalError::NotAnObject),
    }
}

/// One object of members whose values are canonical already.
pub(crate) fn join_members<'a>(
    members: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<String, CanonicalError> {
    let mut text = String::from("{");
    for (key, value) in members {
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&quote(key)?);
        text.push(':');
        text.push_str(value);
    }
    text.push('}');
    Ok(text)
}

fn quote(text: &str) -> Result<String, CanonicalError> {
    serde_json::to_string(text).map_err(|error| CanonicalError::Syntax(error.to_string()))
}

/// Walks over text that is known to be valid JSON, so it only has to find where things end.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Result<Self, CanonicalError> {
        serde_json::from_str::<IgnoredAny>(text).map_err(|error| CanonicalError::Syntax(error.to_string()))?;
        Ok(Self { text, at: 0 })
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    /// Skips `byte` when it comes next.
    fn skip(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> Result<String, CanonicalError> {
        match self.peek() {
            Some(b'{') => {
                let members = self.members(depth)?;
                join_members(members.iter().map(|(key, value)| (key.as_str(), value.as_str())))
            }
            Some(b'[') => self.items(depth),
            Some(b'"') => quote(&self.string()?),
            _ => {
                // A number or a word: as written.
                let rest = &self.text[self.at..];
                let end = rest.find([',', '}', ']', ' ', '\t', '\r', '\n']).unwrap_or(rest.len());
                self.at += end;
                Ok(rest[..end].to_owned())
            }
        }
    }

    fn members(&mut self, depth: usize) -> Result<BTreeMap<String, String>, CanonicalError> {
        if depth >= DEPTH_MAX {
            return Err(CanonicalError::TooDeep);
        }
        let mut members = BTreeMap::new();
        self.skip(b'{');
        while !self.skip(b'}') && self.peek().is_some() {
            let key = self.string()?;
            self.skip(b':');
            let value = self.value(depth + 1)?;
            if members.contains_key(&key) {
                return Err(CanonicalError::DuplicateKey(key));
            }
            members.insert(key, value);
            self.skip(b',');
        }
        Ok(members)
    }

    fn items(&mut self, depth: usize) -> Result<String, CanonicalError> {
        if depth >= DEPTH_MAX {
            return Err(CanonicalError::TooDeep);
        }
        let mut text = String::from("[");
        self.skip(b'[');
        while !self.skip(b']') && self.peek().is_some() {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&self.value(depth + 1)?);
            self.skip(b',');
        }
        text.push(']');
        Ok(text)
    }

    /// The string that comes next, without its escapes.
    fn string(&mut self) -> Result<String, CanonicalError> {
        self.peek();
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut end = start + 1;
        while let Some(byte) = bytes.get(end) {
            match byte {
                b'"' => break,
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        self.at = (end + 1).min(bytes.len());
        let literal = self.text.get(start..self.at).unwrap_or_default();
        // Also refuses half a surrogate pair, which skipping over the text lets through.
        serde_json::from_str(literal).map_err(|error| CanonicalError::Syntax(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // B044: key order and white space are not a change, so they must not hold a tool.
    #[test]
    fn order_white_space_and_escapes_do_not_matter() {
        let one = canonical_value(r#"{"b": [1, 2.50, {}], "a": "\u0041\/é"}"#).unwrap();
        let two = canonical_value("{\"a\":\"A/\\u00e9\",\n\t\"b\":[1,2.50,{ }]}").unwrap();
        assert_eq!(one, two);
        assert_eq!(one, r#"{"a":"A/é","b":[1,2.50,{}]}"#);
    }

    // B044: everything else is a change and must show.
    #[test]
    fn array_order_number_spelling_and_null_matter() {
        let differ = [
            "[1,2]",
            "[2,1]",
            "1",
            "1.0",
            "1e0",
            "-0",
            "0",
            "null",
            "{}",
            r#"{"a":null}"#,
            "12345678901234567890123",
            "12345678901234567890124",
            r#""1""#,
            "true",
            "[]",
            "[[]]",
        ];
        for (index, one) in differ.iter().enumerate() {
            for two in &differ[index + 1..] {
                assert_ne!(canonical_value(one), canonical_value(two), "{one} {two}");
            }
        }
    }

    #[test]
    fn ambiguous_and_broken_texts_have_no_canonical_form() {
        let twice = canonical_value(r#"{"x":{"a":1,"\u0061":2}}"#);
        assert_eq!(twice, Err(CanonicalError::DuplicateKey("a".to_owned())));
        for bad in ["", "{", "[1,]", "{\"a\" 1}", "NaN", "01", "\"\\ud800\"", "1 2", "{\"\\ud800\":1}"] {
            let refused = canonical_value(bad);
            assert!(matches!(refused, Err(CanonicalError::Syntax(_))), "{bad}: {refused:?}");
        }
        let deep = format!("{}{}", "[".repeat(101), "]".repeat(101));
        assert_eq!(canonical_value(&deep), Err(CanonicalError::TooDeep));
        let deeper = "[".repeat(100_000);
        assert!(canonical_value(&deeper).is_err());
        assert_eq!(canonical_members("[]"), Err(CanonicalError::NotAnObject));
    }
}
