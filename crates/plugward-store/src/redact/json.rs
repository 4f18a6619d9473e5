//! Redaction of JSON. Owns the limits on what is kept of a JSON value; refuses to build a tree of it: values are walked
//! as the text they are, so numbers keep every digit and nesting costs no stack.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::names::{Naming, naming};
use super::{Matcher, REDACTED_MARK, SECRET_MARK, TEXT_MAX_CHARS};

/// A list or object keeps this many entries: enough to see what it was.
const ITEMS_MAX: usize = 100;
/// Containers nested deeper than this are left out.
const DEPTH_MAX: usize = 8;
/// A key is kept up to this many characters.
const KEY_MAX_CHARS: usize = 256;
/// Text beyond this is not looked into: it is replaced whole, which bounds the time one record can cost.
const INPUT_MAX_BYTES: usize = 1024 * 1024;
/// Once this much is kept, the rest is left out, so that one record cannot fill the trace.
const OUTPUT_MAX_BYTES: usize = 64 * 1024;
/// Stands for what a limit left out.
const LEFT_OUT: &str = "[TRUNCATED]";

/// See [`Redactor::redact_json`](super::Redactor::redact_json).
pub(super) fn redact(matcher: &Matcher, json: &str) -> String {
    if json.len() > INPUT_MAX_BYTES {
        return format!("\"{LEFT_OUT} {} bytes\"", json.len());
    }
    let mut walk = Walk { matcher, out: String::new() };
    match serde_json::from_str::<&RawValue>(json) {
        Ok(value) => walk.value(value, 0),
        Err(_) => walk.string(&matcher.redact_to(json, TEXT_MAX_CHARS)),
    }
    walk.out
}

struct Walk<'m> {
    matcher: &'m Matcher,
    out: String,
}

impl Walk<'_> {
    fn value(&mut self, value: &RawValue, depth: usize) {
        let text = value.get();
        match text.as_bytes().first() {
            Some(b'{' | b'[') if depth >= DEPTH_MAX => self.string(LEFT_OUT),
            Some(b'{') => match serde_json::from_str::<Entries<'_>>(text) {
                Ok(entries) => self.object(&entries, depth),
                Err(_) => self.text(text, depth),
            },
            Some(b'[') => match serde_json::from_str::<Items<'_>>(text) {
                Ok(items) => self.array(&items, depth),
                Err(_) => self.text(text, depth),
            },
            Some(b'"') => match decoded(text) {
                Ok(string) => self.text(&string, depth),
                // A lone surrogate is legal JSON but no text; the escaped spelling is kept instead.
                Err(_) => self.text(text, depth),
            },
            // A number, `true`, `false` or `null`. A secret made of digits may be printed as a number.
            _ => match self.matcher.redact_known(text) {
                Cow::Borrowed(kept) if kept == text => self.out.push_str(kept),
                _ => self.string(SECRET_MARK),
            },
        }
    }

    fn object(&mut self, entries: &Entries<'_>, depth: usize) {
        self.out.push('{');
        let mut left_out = entries.left_out;
        for (index, (Key(key), value)) in entries.kept.iter().enumerate() {
            if self.out.len() > OUTPUT_MAX_BYTES {
                left_out += entries.kept.len() - index;
                break;
            }
            if index > 0 {
                self.out.push(',');
            }
            self.string(&self.matcher.redact_to(key, KEY_MAX_CHARS));
            self.out.push(':');
            self.named(key, value, depth + 1);
        }
        if left_out > 0 {
            self.separate('{');
            self.string(LEFT_OUT);
            self.out.push_str(&format!(":{left_out}"));
        }
        self.out.push('}');
    }

    fn named(&mut self, key: &str, value: &RawValue, depth: usize) {
        let first = value.get().as_bytes().first().copied().unwrap_or_default();
        let secret = match naming(key) {
            Naming::Plain => false,
            // Whether something is set is worth knowing and gives nothing away.
            Naming::Secret => !matches!(first, b't' | b'f' | b'n'),
            Naming::SecretText => matches!(first, b'"' | b'[' | b'{'),
        };
        if secret {
            self.string(REDACTED_MARK);
        } else {
            self.value(value, depth);
        }
    }

    fn array(&mut self, items: &Items<'_>, depth: usize) {
        self.out.push('[');
        let mut left_out = items.left_out;
        let mut flag: Option<Cow<'_, str>> = None;
        for (index, value) in items.kept.iter().enumerate() {
            if self.out.len() > OUTPUT_MAX_BYTES {
                left_out += items.kept.len() - index;
                break;
            }
            if index > 0 {
                self.out.push(',');
            }
            // In an argument list the name of a value is the flag before it: `["--api-key", "…"]`.
            match flag.take() {
                Some(name) => self.named(&name, value, depth + 1),
                None => self.value(value, depth + 1),
            }
            let text = Some(value.get()).filter(|text| text.starts_with('"'));
            flag = text.and_then(|text| decoded(text).ok()).filter(|item| item.starts_with('-'));
        }
        if left_out > 0 {
            self.separate('[');
            self.string(&format!("{LEFT_OUT} {left_out} more"));
        }
        self.out.push(']');
    }

    /// A string that itself holds JSON is redacted as such: tool results carry their data a second time this way.
    fn text(&mut self, text: &str, depth: usize) {
        let nested = text.trim_start().starts_with(['{', '[']) && depth < DEPTH_MAX;
        if nested && let Ok(value) = serde_json::from_str::<&RawValue>(text) {
            let mut inner = Walk { matcher: self.matcher, out: String::new() };
            inner.value(value, depth + 1);
            super::cut(&mut inner.out, TEXT_MAX_CHARS);
            self.string(&inner.out);
        } else {
            self.string(&self.matcher.redact_to(text, TEXT_MAX_CHARS));
        }
    }

    fn string(&mut self, text: &str) {
        if text.bytes().any(|byte| byte < b' ' || matches!(byte, b'"' | b'\\')) {
            self.out.push_str(&serde_json::Value::from(text).to_string());
        } else {
            self.out.push('"');
            self.out.push_str(text);
            self.out.push('"');
        }
    }

    fn separate(&mut self, open: char) {
        if !self.out.ends_with(open) {
            self.out.push(',');
        }
    }
}

/// The string that `json` is.
fn decoded(json: &str) -> Result<Cow<'_, str>, serde_json::Error> {
    match serde_json::from_str::<&str>(json) {
        Ok(text) => Ok(Cow::Borrowed(text)),
        // It has escapes, or is no string.
        Err(_) => serde_json::from_str(json).map(Cow::Owned),
    }
}

/// A key, copied only where it has escapes.
struct Key<'j>(Cow<'j, str>);

impl<'de: 'j, 'j> Deserialize<'de> for Key<'j> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(key)))
            }

            fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

/// The first entries of an object, in order, duplicates included.
struct Entries<'j> {
    kept: Vec<(Key<'j>, &'j RawValue)>,
    left_out: usize,
}

/// The first items of an array.
struct Items<'j> {
    kept: Vec<&'j RawValue>,
    left_out: usize,
}

impl<'de: 'j, 'j> Deserialize<'de> for Entries<'j> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Entries { kept: Vec::new(), left_out: 0 };
                while entries.kept.len() < ITEMS_MAX {
                    match map.next_entry()? {
                        Some(entry) => entries.kept.push(entry),
                        None => return Ok(entries),
                    }
                }
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    entries.left_out += 1;
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(EntriesVisitor)
    }
}

impl<'de: 'j, 'j> Deserialize<'de> for Items<'j> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ItemsVisitor;
        impl<'de> Visitor<'de> for ItemsVisitor {
            type Value = Items<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut items = Items { kept: Vec::new(), left_out: 0 };
                while items.kept.len() < ITEMS_MAX {
                    match seq.next_element()? {
                        Some(item) => items.kept.push(item),
                        None => return Ok(items),
                    }
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    items.left_out += 1;
                }
                Ok(items)
            }
        }
        deserializer.deserialize_seq(ItemsVisitor)
    }
}
