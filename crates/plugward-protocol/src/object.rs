//! Reading a few named members of a JSON object and leaving the rest alone.
//!
//! Owns the one way this crate looks into JSON: one level deep, values kept as the text that was sent, duplicate names
//! of interest noticed. Refuses to build trees: nesting below the first level is checked for syntax by an iterative
//! parser, so depth costs no stack.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// White space of JSON, which may surround any value.
pub(crate) const JSON_WHITE_SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// The members that were asked for, in the order of the names.
#[derive(Debug)]
pub(crate) struct Members<'a, const N: usize> {
    /// First value of each name; `None` when it does not occur.
    pub(crate) values: [Option<&'a RawValue>; N],
    /// Which of the names occur more than once.
    repeated: [Option<&'static str>; N],
}

impl<const N: usize> Members<'_, N> {
    /// A name that occurs more than once.
    pub(crate) fn duplicate(&self) -> Option<&'static str> {
        self.repeated.iter().find_map(|name| *name)
    }

    /// Whether the name at this place of the list occurs more than once.
    pub(crate) fn is_repeated(&self, slot: usize) -> bool {
        self.repeated[slot].is_some()
    }
}

/// Why members could not be read.
#[derive(Debug)]
pub(crate) enum ObjectFault {
    /// The text is not JSON; says where.
    NotJson { detail: String },
    /// The text is JSON, but no object.
    NotAnObject,
}

/// Reads the members called `wanted` from the object in `json`.
pub(crate) fn members<'a, const N: usize>(
    json: &'a str,
    wanted: &[&'static str; N],
) -> Result<Members<'a, N>, ObjectFault> {
    ensure_object(json)?;
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let members = deserializer.deserialize_map(MembersVisitor { wanted }).map_err(not_json)?;
    deserializer.end().map_err(not_json)?;
    Ok(members)
}

/// Reads every member of the object in `json`, in order, duplicates included.
pub(crate) fn entries(json: &str) -> Result<Vec<(String, &RawValue)>, ObjectFault> {
    ensure_object(json)?;
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let entries = deserializer.deserialize_map(EntriesVisitor).map_err(not_json)?;
    deserializer.end().map_err(not_json)?;
    Ok(entries)
}

/// Reads at most `limit` elements of the array in `json`; `None` when there are more.
pub(crate) fn elements(json: &str, limit: usize) -> Result<Option<Vec<&RawValue>>, ObjectFault> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let elements = deserializer.deserialize_seq(ElementsVisitor { limit }).map_err(not_json)?;
    deserializer.end().map_err(not_json)?;
    Ok(elements)
}

/// Whether arrays and objects in `json` nest deeper than `limit`. One pass, no memory.
pub(crate) fn nests_deeper_than(json: &str, limit: usize) -> bool {
    let mut depth = 0_usize;
    let (mut in_string, mut escaped) = (false, false);
    for byte in json.bytes() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// Whether the raw value is JSON `null`.
pub(crate) fn is_null(raw: &RawValue) -> bool {
    raw.get() == "null"
}

/// Whether the raw value is an object.
pub(crate) fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

/// The raw value as a string, if it is one.
pub(crate) fn as_string(raw: &RawValue) -> Option<String> {
    raw.get().starts_with('"').then(|| serde_json::from_str(raw.get()).ok()).flatten()
}

fn ensure_object(json: &str) -> Result<(), ObjectFault> {
    if json.trim_start_matches(JSON_WHITE_SPACE).starts_with('{') {
        return Ok(());
    }
    match serde_json::from_str::<IgnoredAny>(json) {
        Ok(_) => Err(ObjectFault::NotAnObject),
        Err(fault) => Err(not_json(fault)),
    }
}

// Taken by value so that it fits `map_err`.
#[allow(clippy::needless_pass_by_value, reason = "shape of a map_err function")]
fn not_json(fault: serde_json::Error) -> ObjectFault {
    ObjectFault::NotJson { detail: fault.to_string() }
}

struct MembersVisitor<'w, const N: usize> {
    wanted: &'w [&'static str; N],
}

impl<'de, const N: usize> Visitor<'de> for MembersVisitor<'_, N> {
    type Value = Members<'de, N>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Members { values: [None; N], repeated: [None; N] };
        while let Some(slot) = map.next_key_seed(NameSlot { wanted: self.wanted })? {
            let Some(slot) = slot else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = map.next_value::<&'de RawValue>()?;
            if members.values[slot].is_none() {
                members.values[slot] = Some(value);
            } else {
                members.repeated[slot] = Some(self.wanted[slot]);
            }
        }
        Ok(members)
    }
}

/// Turns a member name into its place in the list of wanted names, escapes resolved.
struct NameSlot<'w> {
    wanted: &'w [&'static str],
}

impl<'de> DeserializeSeed<'de> for NameSlot<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameSlot<'_> {
    type Value = Option<usize>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a member name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.wanted.iter().position(|wanted| *wanted == name))
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry::<String, &'de RawValue>()? {
            entries.push(entry);
        }
        Ok(entries)
    }
}

struct ElementsVisitor {
    limit: usize,
}

impl<'de> Visitor<'de> for ElementsVisitor {
    type Value = Option<Vec<&'de RawValue>>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while elements.len() < self.limit {
            match seq.next_element::<&'de RawValue>()? {
                Some(element) => elements.push(element),
                None => return Ok(Some(elements)),
            }
        }
        // The rest is read only to learn whether it is JSON at all.
        let mut more = false;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            more = true;
        }
        Ok((!more).then_some(elements))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_members_and_duplicates() {
        let found = members(r#" {"x":{"id":9},"\u0069d":1,"b":[2], "id":3} "#, &["id", "b", "c"]).unwrap();
        assert_eq!(found.values[0].unwrap().get(), "1");
        assert_eq!(found.values[1].unwrap().get(), "[2]");
        assert!(found.values[2].is_none());
        assert_eq!(found.duplicate(), Some("id"));
        assert!(found.is_repeated(0) && !found.is_repeated(1));
    }

    #[test]
    fn tells_no_json_from_no_object() {
        assert!(matches!(members("17", &["id"]), Err(ObjectFault::NotAnObject)));
        for text in ["{", "{}x", "{\"a\":NaN}", "nope", "{'a':1}", ""] {
            assert!(matches!(members(text, &["id"]), Err(ObjectFault::NotJson { .. })), "{text}");
        }
    }

    #[test]
    fn depth_ignores_brackets_in_strings() {
        assert!(!nests_deeper_than(r#"{"a":"[[[[\"[[[","b":[]}"#, 2));
        assert!(nests_deeper_than("[[[]]]", 2));
        assert!(!nests_deeper_than("[[]] [[]]", 2));
    }

    #[test]
    fn a_million_levels_cost_no_stack() {
        // Invariant 7: depth of what a plugin writes is bounded, and looking at it must not overflow.
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        assert!(members(&deep, &["a"]).is_ok());
    }

    #[test]
    fn elements_stop_at_the_limit() {
        assert_eq!(elements("[1,2]", 2).unwrap().unwrap().len(), 2);
        assert!(elements("[1,2,3]", 2).unwrap().is_none());
        assert!(elements("[1,2,3", 2).is_err());
    }
}
