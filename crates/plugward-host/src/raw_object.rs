//! A JSON object whose member values stay raw text: key order, unknown members and every digit survive a change.
//!
//! Owns shallow edits of tool definitions and results. Refuses duplicate keys, and never looks into values.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};

/// An object with raw member values, in the order they were sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct RawObject(Vec<(String, Box<RawValue>)>);

impl RawObject {
    /// Reads `raw` as an object; none if it is anything else or repeats a key.
    pub(crate) fn parse(raw: &RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    /// The raw value of a member.
    pub(crate) fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| &**value)
    }

    /// A member that is a string.
    pub(crate) fn get_str(&self, key: &str) -> Option<String> {
        self.get(key).and_then(|value| serde_json::from_str(value.get()).ok())
    }

    /// Whether a member is there and not `null`.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value.get() != "null")
    }

    /// Sets a member, in its old place if it was there.
    pub(crate) fn set(&mut self, key: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    /// Sets a member to a string.
    pub(crate) fn set_str(&mut self, key: &str, value: &str) {
        if let Ok(raw) = to_raw_value(value) {
            self.set(key, raw);
        }
    }

    /// Takes a member out.
    pub(crate) fn remove(&mut self, key: &str) {
        self.0.retain(|(name, _)| name != key);
    }

    /// The object as text.
    pub(crate) fn to_raw(&self) -> Box<RawValue> {
        let mut text = String::from("{");
        for (index, (key, value)) in self.0.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push_str(&serde_json::Value::from(key.as_str()).to_string());
            text.push(':');
            text.push_str(value.get());
        }
        text.push('}');
        // The text is put together from valid parts; the fallback keeps this function total.
        RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = RawObject;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawObject, A::Error> {
                let mut members: Vec<(String, Box<RawValue>)> = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    if members.iter().any(|(name, _)| *name == key) {
                        return Err(A::Error::custom(format_args!("key `{key}` stands twice")));
                    }
                    members.push((key, map.next_value()?));
                }
                Ok(RawObject(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Length of `text` as JSON without the white space between its tokens, in bytes.
pub(crate) fn compact_len(text: &str) -> usize {
    let mut in_string = false;
    let mut escaped = false;
    let mut length = 0;
    for byte in text.bytes() {
        if in_string {
            length += 1;
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
        } else if !byte.is_ascii_whitespace() {
            length += 1;
            in_string = byte == b'"';
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn an_edit_keeps_order_digits_and_unknown_members() {
        // B034, B059: nothing but the named member changes.
        let mut object =
            RawObject::parse(&raw(r#"{"z":123456789012345678901234567890,"name":"a","x-vendor":{"b": 1.50}}"#))
                .unwrap();
        object.set_str("name", "p_a");
        assert_eq!(
            object.to_raw().get(),
            r#"{"z":123456789012345678901234567890,"name":"p_a","x-vendor":{"b": 1.50}}"#
        );
    }

    #[test]
    fn repeated_keys_are_refused() {
        assert!(RawObject::parse(&raw(r#"{"name":"a","name":"b"}"#)).is_none());
    }

    #[test]
    fn compact_length_ignores_white_space_between_tokens_only() {
        assert_eq!(compact_len("{ \"a b\" : [ 1, \"\\\" \" ] }"), "{\"a b\":[1,\"\\\" \"]}".len());
    }
}
