//! Reading JSON text into a value that means one thing only.
//!
//! Owns the refusal of duplicate keys: two parsers may disagree about which of them counts, so a value checked here
//! could be another value in the plugin. Also counts what a later cost estimate needs. Refuses nothing else; nesting
//! is bounded by the parser underneath (128 levels).

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// What a parsed text consists of, for cost estimates made before any rule is applied to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Values of every kind, containers included.
    pub(super) nodes: u64,
    /// Bytes of all strings and keys.
    pub(super) text_bytes: u64,
    /// Nesting of arrays and objects; a scalar has none.
    pub(super) depth: u64,
}

/// Parses `text`, refusing duplicate keys.
///
/// # Errors
///
/// The parser's account of the first fault, with line and column. It never contains a value of the text.
pub(super) fn parse(text: &str) -> Result<(Value, Size), String> {
    let mut size = Size::default();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let seed = Strict { size: &mut size, depth: 0 };
    let value = seed.deserialize(&mut deserializer).map_err(|error| describe(&error))?;
    deserializer.end().map_err(|error| describe(&error))?;
    Ok((value, size))
}

/// Our own wording: the library's texts may quote what they met.
fn describe(error: &serde_json::Error) -> String {
    let place = format!("at line {} column {}", error.line(), error.column());
    let text = error.to_string();
    if text.starts_with(DUPLICATE) {
        format!("{DUPLICATE} {place}")
    } else if text.starts_with("recursion limit") {
        format!("nested deeper than 128 levels {place}")
    } else if text.starts_with("number out of range") {
        format!("a number is too large {place}")
    } else {
        format!("not valid JSON {place}")
    }
}

const DUPLICATE: &str = "an object has the same key twice";

struct Strict<'a> {
    size: &'a mut Size,
    depth: u64,
}

impl Strict<'_> {
    fn below(&mut self) -> Strict<'_> {
        Strict { depth: self.depth + 1, size: self.size }
    }

    fn enter(&mut self) {
        self.size.depth = self.size.depth.max(self.depth + 1);
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.size.nodes += 1;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.visit_string(value.to_owned())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        self.size.text_bytes += value.len() as u64;
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        self.enter();
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self.below())? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        self.enter();
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            self.size.text_bytes += key.len() as u64;
            let value = access.next_value_seed(self.below())?;
            if map.insert(key, value).is_some() {
                return Err(A::Error::custom(DUPLICATE));
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_key_twice_is_refused_at_every_level() {
        // A caller could otherwise show the validator one value and the plugin another.
        for text in [r#"{"a":1,"a":2}"#, r#"{"x":[{"a":1,"\u0061":2}]}"#] {
            let fault = parse(text).unwrap_err();
            assert!(fault.starts_with(DUPLICATE), "{fault}");
        }
        assert!(parse(r#"{"a":{"a":1},"b":{"a":2}}"#).is_ok());
    }

    #[test]
    fn sizes_count_values_text_and_depth() {
        let (_, size) = parse(r#"{"ab":["c",1,{"d":null}]}"#).unwrap();
        assert_eq!(size, Size { nodes: 6, text_bytes: 4, depth: 3 });
    }

    #[test]
    fn faults_never_quote_the_text() {
        for text in ["{\"k\": secret}", "[1e999]", "\"secret\" x", &"[".repeat(1_000)] {
            let fault = parse(text).unwrap_err();
            assert!(!fault.contains("secret"), "{fault}");
        }
    }
}
