//! References stay inside the schema, or the schema is refused.
//!
//! Owns the only step that looks at addresses: it removes what would give the schema a base outside itself, rewrites
//! references to the schema's own address into local ones, and finds every place a reference leads to. Refuses
//! anything that would have to be fetched; nothing in this crate can fetch.

use std::collections::{HashMap, HashSet};

use jsonschema::Draft;
use serde_json::Value;

use super::violation::{quoted, unescape_step};
use super::{SchemaFault, dialect, keywords};

/// Schemas inside a schema that carry an address of their own. Tools have none; a few may come from a bundler.
const MAX_INNER_ADDRESSES: usize = 100;

/// The keywords that lead elsewhere.
pub(super) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Where the schemas of one document are, once its references are local.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Pointers from which a walk reaches every schema that may be used: the root, and the targets of references
    /// that stand under keywords no edition knows.
    pub(super) roots: Vec<String>,
    /// Anchor names with the pointers they stand at. Several schemas may share a dynamic anchor.
    pub(super) anchors: HashMap<String, Vec<String>>,
}

/// Makes every reference of `schema` local, in place.
///
/// # Errors
///
/// The first reference that leads outside, leads nowhere, or whose meaning depends on an inner address.
pub(super) fn localize(schema: &mut Value, draft: Draft) -> Result<Places, SchemaFault> {
    let own_address = take_own_address(schema, draft);
    let mut places = Places { roots: vec![String::new()], anchors: HashMap::new() };
    let mut seen = HashSet::new();
    let mut references = Vec::new();
    let mut next = 0;
    while let Some(root) = places.roots.get(next).cloned() {
        next += 1;
        let Some(start) = schema.pointer_mut(&root) else { continue };
        let found = rewrite(start, &root, draft, &own_address)?;
        seen.extend(found.seen);
        for (name, pointer) in found.anchors {
            places.anchors.entry(name).or_default().push(pointer);
        }
        for (pointer, target) in found.references {
            if let Some(place) = local_pointer(&target) {
                if schema.pointer(&place).is_none() {
                    return Err(dangling(&pointer, &target));
                }
                if seen.insert(place.clone()) {
                    places.roots.push(place);
                }
            }
            references.push((pointer, target));
        }
    }
    for (pointer, target) in references {
        let Some(name) = target.strip_prefix('#') else { continue };
        if !name.is_empty() && !name.starts_with('/') && !places.anchors.contains_key(name) {
            return Err(dangling(&pointer, &target));
        }
    }
    Ok(places)
}

/// The pointer a local reference means, or `None` for an anchor or a known meta-schema.
pub(super) fn local_pointer(target: &str) -> Option<String> {
    let fragment = target.strip_prefix('#')?;
    (fragment.is_empty() || fragment.starts_with('/')).then(|| percent_decoded(fragment))
}

/// Removes the address of the whole schema: references are resolved against the schema itself, never against it.
fn take_own_address(schema: &mut Value, draft: Draft) -> String {
    let Value::Object(map) = schema else { return String::new() };
    let keyword = dialect::id_keyword(draft);
    match map.get(keyword) {
        Some(Value::String(address)) => {
            let address = address.strip_suffix('#').unwrap_or(address).to_owned();
            map.shift_remove(keyword);
            address
        }
        _ => String::new(),
    }
}

#[derive(Default)]
struct Found {
    seen: Vec<String>,
    anchors: Vec<(String, String)>,
    /// Pointer of the keyword, target as rewritten.
    references: Vec<(String, String)>,
    inner_addresses: Vec<String>,
}

fn rewrite(start: &mut Value, root: &str, draft: Draft, own_address: &str) -> Result<Found, SchemaFault> {
    let mut found = Found::default();
    let mut fault = None;
    keywords::walk_mut(start, root, &mut |pointer, map| {
        found.seen.push(pointer.to_owned());
        map.shift_remove("$schema");
        let keyword = dialect::id_keyword(draft);
        if let Some(Value::String(address)) = map.get(keyword) {
            match address.strip_prefix('#') {
                Some(name) => found.anchors.push((name.to_owned(), pointer.to_owned())),
                None => {
                    found.inner_addresses.push(pointer.to_owned());
                    map.shift_remove(keyword);
                }
            }
        }
        for keyword in ["$anchor", "$dynamicAnchor"] {
            if let Some(Value::String(name)) = map.get(keyword) {
                found.anchors.push((name.clone(), pointer.to_owned()));
            }
        }
        for keyword in REFERENCES {
            let Some(Value::String(target)) = map.get_mut(keyword) else { continue };
            if let Some(local) = without_own_address(target, own_address) {
                *target = local;
            }
            let place = format!("{pointer}/{keyword}");
            if !target.starts_with('#') && dialect::by_address(target).is_none() {
                fault.get_or_insert_with(|| outside(&place, target));
            }
            found.references.push((place, target.clone()));
        }
    });
    match fault {
        Some(fault) => Err(fault),
        None => check_inner_addresses(&found).map(|()| found),
    }
}

/// An inner address changes what the references below it mean. Without such references it means nothing here.
fn check_inner_addresses(found: &Found) -> Result<(), SchemaFault> {
    if found.inner_addresses.len() > MAX_INNER_ADDRESSES {
        return Err(SchemaFault::new(
            "",
            format!("more than {MAX_INNER_ADDRESSES} schemas inside the schema have an address of their own"),
        ));
    }
    for inner in &found.inner_addresses {
        let below = |(place, _): &&(String, String)| {
            place.strip_prefix(inner.as_str()).is_some_and(|rest| rest.starts_with('/'))
        };
        if let Some((place, target)) = found.references.iter().find(below) {
            return Err(SchemaFault::new(
                place,
                format!("the reference {} depends on an inner address; nothing outside is ever read", quoted(target)),
            ));
        }
    }
    Ok(())
}

fn without_own_address(target: &str, own_address: &str) -> Option<String> {
    if own_address.is_empty() {
        return None;
    }
    match target.strip_prefix(own_address)? {
        "" => Some("#".to_owned()),
        rest if rest.starts_with('#') => Some(rest.to_owned()),
        _ => None,
    }
}

fn outside(pointer: &str, target: &str) -> SchemaFault {
    SchemaFault::new(
        pointer,
        format!("the reference {} leads outside the schema; nothing outside is ever read", quoted(target)),
    )
}

fn dangling(pointer: &str, target: &str) -> SchemaFault {
    SchemaFault::new(pointer, format!("the reference {} leads nowhere", quoted(target)))
}

/// A fragment with its `%41` forms replaced; a broken form stays as it is and then leads nowhere.
fn percent_decoded(fragment: &str) -> String {
    if !fragment.contains('%') {
        return fragment.to_owned();
    }
    let bytes = fragment.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = fragment.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (bytes[at], code) {
            (b'%', Some(code)) => {
                decoded.push(code);
                at += 3;
            }
            (byte, _) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(decoded).unwrap_or_else(|_| fragment.to_owned())
}

/// The last step of a pointer, as it is written in the schema.
pub(super) fn last_step(pointer: &str) -> String {
    unescape_step(pointer.rsplit('/').next().unwrap_or_default())
}
