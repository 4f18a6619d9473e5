//! The id of a JSON-RPC request, exactly as the other side wrote it.
//!
//! Owns the comparison of ids: an integer is kept as its digits and a string as its text, so that an id of any size
//! goes back as it came and `1`, `"1"`, `true` and `1.0` are four different things. Refuses every other JSON value
//! (null, booleans, fractions, exponents, arrays, objects) and ids longer than [`MAX_ID_BYTES`].

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::value::RawValue;
use thiserror::Error;

/// Longest id accepted, in bytes of its JSON text. Real ids are counters or UUIDs; ids are kept in tables for as long
/// as a request runs, so a peer must not be able to park megabytes in them.
pub const MAX_ID_BYTES: usize = 1024;

/// Id of a request: an integer (its digits as sent) or a string.
///
/// Two ids are equal when kind and text are equal; nothing is converted on the way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestId {
    /// An integer of any size, as its decimal digits with an optional minus sign.
    Integer(Box<str>),
    /// A string, unescaped.
    String(Box<str>),
}

/// Why a JSON value cannot be a request id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadId {
    /// The value is neither an integer nor a string.
    #[error("id is neither an integer nor a string")]
    WrongKind,
    /// The JSON text of the id is longer than [`MAX_ID_BYTES`].
    #[error("id is longer than {MAX_ID_BYTES} bytes")]
    TooLong,
}

impl RequestId {
    /// Reads an id from the JSON text of one value.
    ///
    /// # Errors
    /// [`BadId`] when the value is not an integer or string within the length limit.
    pub fn from_json(text: &str) -> Result<Self, BadId> {
        if text.len() > MAX_ID_BYTES {
            return Err(BadId::TooLong);
        }
        if text.starts_with('"') {
            return serde_json::from_str::<Box<str>>(text).map(RequestId::String).map_err(|_| BadId::WrongKind);
        }
        let digits = text.strip_prefix('-').unwrap_or(text);
        let leading_zero = digits.len() > 1 && digits.starts_with('0');
        if digits.is_empty() || leading_zero || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(BadId::WrongKind);
        }
        Ok(RequestId::Integer(text.into()))
    }

    /// The id as a number of our own outgoing sequence, if it could be one.
    #[must_use]
    pub fn as_sequence(&self) -> Option<u64> {
        match self {
            // `u64::from_str` takes a leading plus sign, which JSON digits never have.
            RequestId::Integer(digits) => digits.parse().ok(),
            RequestId::String(_) => None,
        }
    }
}

/// The JSON text of the id: digits, or a quoted and escaped string. Safe to put into a message for people.
impl fmt::Display for RequestId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestId::Integer(digits) => out.write_str(digits),
            RequestId::String(text) => out.write_str(&crate::wire::json_string(text)),
        }
    }
}

impl From<u64> for RequestId {
    fn from(number: u64) -> Self {
        RequestId::Integer(number.to_string().into())
    }
}

impl From<&str> for RequestId {
    fn from(text: &str) -> Self {
        RequestId::String(text.into())
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            RequestId::Integer(digits) => {
                RawValue::from_string(digits.to_string()).map_err(S::Error::custom)?.serialize(serializer)
            }
            RequestId::String(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        RequestId::from_json(raw.get()).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_integers_and_strings_as_sent() {
        // Case B059, N6: digits beyond 64 bits come back unchanged, and kinds are never mixed up.
        for text in ["0", "-7", "123456789012345678901234567890", "\"1\"", "\"s-9\""] {
            let id = RequestId::from_json(text).unwrap();
            assert_eq!(id.to_string(), text);
            assert_eq!(serde_json::to_string(&id).unwrap(), text);
            assert_eq!(serde_json::from_str::<RequestId>(text).unwrap(), id);
        }
        assert_ne!(RequestId::from_json("1"), RequestId::from_json("\"1\""));
    }

    #[test]
    fn refuses_everything_else() {
        // N6: `true` must never answer request 1.
        for text in ["true", "false", "null", "1.5", "1.0", "1e3", "{}", "[1]", "", "-", "01", "+1", "\"\\ud800\""] {
            assert_eq!(RequestId::from_json(text), Err(BadId::WrongKind), "{text}");
        }
        assert_eq!(RequestId::from_json(&"9".repeat(MAX_ID_BYTES + 1)), Err(BadId::TooLong));
    }

    #[test]
    fn only_plain_integers_belong_to_our_sequence() {
        assert_eq!(RequestId::from(3).as_sequence(), Some(3));
        assert_eq!(RequestId::from("3").as_sequence(), None);
        assert_eq!(RequestId::Integer("-0".into()).as_sequence(), None);
        assert_eq!(RequestId::Integer("99999999999999999999".into()).as_sequence(), None);
    }
}
