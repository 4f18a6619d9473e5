//! Regular expressions that strangers wrote.
//!
//! Owns the choice of engine: linear first, backtracking with a step limit next, else the pattern is not applied and
//! a warning says so. Refuses patterns by size before an engine sees them, because building one costs time too.

use std::collections::HashMap;

use jsonschema::{PatternCache, PatternOptions};
use serde_json::{Map, Value, json};

use super::references::Places;
use super::{SchemaFault, SchemaWarning, keywords};

/// Different patterns in one schema. The largest real one has a dozen.
const MAX_PATTERNS: usize = 200;

/// Bytes of one pattern. Real ones stay below 300.
const MAX_PATTERN_BYTES: usize = 1024;

/// Atoms of one pattern once its repeats are written out. Above it an engine only works until its own limit stops
/// it, which costs tens of milliseconds for nothing.
const MAX_ATOMS: u64 = 20_000;

/// A class of Unicode characters in atoms, when an engine is built: it becomes hundreds of states.
const CLASS_ATOMS: u64 = 100;

/// Atoms of all patterns of one schema together, so that building them stays below a second.
const MAX_TOTAL_ATOMS: u64 = 200_000;

/// Bytes an engine may use for one built pattern.
const ENGINE_BYTES: usize = 1 << 20;

/// Steps of the backtracking engine for one match; well below a millisecond. A match that needs more is undecided.
const BACKTRACK_STEPS: usize = 10_000;

/// How expensive matching one pattern is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matcher {
    /// Time grows with text length times `atoms` at worst.
    Linear {
        /// States the engine may have to follow at once.
        atoms: u64,
    },
    /// May use up all its steps for one short text.
    Backtracking,
}

/// The usable patterns of one schema.
pub(super) type Matchers = HashMap<String, Matcher>;

/// The options every schema is built with.
pub(super) fn backtracking() -> PatternOptions<jsonschema::FancyRegex> {
    PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_STEPS).size_limit(ENGINE_BYTES).dfa_size_limit(ENGINE_BYTES)
}

fn linear() -> PatternOptions<jsonschema::Regex> {
    PatternOptions::regex().size_limit(ENGINE_BYTES).dfa_size_limit(ENGINE_BYTES)
}

/// Finds the engine for each pattern of `schema` and removes the patterns no engine takes.
///
/// # Errors
///
/// More or larger patterns than the limits allow.
pub(super) fn prepare(
    schema: &mut Value,
    places: &Places,
    cache: &PatternCache,
    warnings: &mut Vec<SchemaWarning>,
) -> Result<Matchers, SchemaFault> {
    let found = collect(schema, places)?;
    let mut matchers = Matchers::new();
    let mut unusable = Vec::new();
    for (pattern, pointer) in found {
        match matcher(&pattern, cache) {
            Some(matcher) => {
                matchers.insert(pattern, matcher);
            }
            None => unusable.push((pattern, pointer)),
        }
    }
    if !unusable.is_empty() {
        remove(schema, places, &matchers, warnings);
    }
    Ok(matchers)
}

/// Every different pattern with the first place it stands at.
fn collect(schema: &Value, places: &Places) -> Result<HashMap<String, String>, SchemaFault> {
    let mut found: HashMap<String, String> = HashMap::new();
    let mut fault = None;
    let mut total_atoms = 0u64;
    let mut add = |pattern: &str, pointer: String| {
        if fault.is_some() || found.contains_key(pattern) {
            return;
        }
        total_atoms = total_atoms.saturating_add(atoms(pattern, CLASS_ATOMS).min(MAX_ATOMS));
        if pattern.len() > MAX_PATTERN_BYTES {
            fault = Some(SchemaFault::new(&pointer, format!("a pattern is larger than {MAX_PATTERN_BYTES} bytes")));
        } else if found.len() == MAX_PATTERNS {
            fault = Some(SchemaFault::new(&pointer, format!("there are more than {MAX_PATTERNS} patterns")));
        } else if total_atoms > MAX_TOTAL_ATOMS {
            fault = Some(SchemaFault::new(&pointer, "the patterns together are too large".to_owned()));
        } else {
            found.insert(pattern.to_owned(), pointer);
        }
    };
    for root in &places.roots {
        let Some(start) = schema.pointer(root) else { continue };
        keywords::walk(start, root, &mut |pointer, schema| {
            if let Some(Value::String(pattern)) = schema.get("pattern") {
                add(pattern, format!("{pointer}/pattern"));
            }
            if let Some(Value::Object(named)) = schema.get("patternProperties") {
                for pattern in named.keys() {
                    add(pattern, format!("{pointer}/patternProperties/{}", keywords::escape(pattern)));
                }
            }
        });
    }
    match fault {
        Some(fault) => Err(fault),
        None => Ok(found),
    }
}

/// The engine that takes `pattern`, if any does. Asks the validator itself, so that the same translation is used.
fn matcher(pattern: &str, cache: &PatternCache) -> Option<Matcher> {
    if atoms(pattern, CLASS_ATOMS) > MAX_ATOMS {
        return None;
    }
    let atoms = atoms(pattern, 1);
    let probe = json!({"pattern": pattern});
    let options = || jsonschema::options().offline().with_draft(super::dialect::DEFAULT);
    if options().with_pattern_options(linear()).build(&probe).is_ok() {
        // The real build uses the other options, which hand a pattern without special needs to the linear engine.
        return Some(Matcher::Linear { atoms });
    }
    let options = options().with_pattern_options(backtracking()).with_pattern_cache(cache.clone());
    options.build(&probe).is_ok().then_some(Matcher::Backtracking)
}

/// Takes the patterns without an engine out of the schema that is built; what is shown to others keeps them.
fn remove(schema: &mut Value, places: &Places, usable: &Matchers, warnings: &mut Vec<SchemaWarning>) {
    for root in &places.roots {
        let Some(start) = schema.pointer_mut(root) else { continue };
        keywords::walk_mut(start, root, &mut |pointer, map| {
            let mut warn = |keyword: &str, message: &str| {
                warnings.push(SchemaWarning::new(&format!("{pointer}/{keyword}"), message));
            };
            for keyword in TURNING {
                if map.get(keyword).is_some_and(|part| has_unusable(part, usable)) {
                    map.shift_remove(keyword);
                    warn(keyword, "a pattern inside cannot be used here; the rule is not checked");
                }
            }
            if matches!(map.get("pattern"), Some(Value::String(pattern)) if !usable.contains_key(pattern)) {
                map.shift_remove("pattern");
                warn("pattern", "the pattern cannot be used here and is not checked");
            }
            if remove_names(map, usable) {
                warn("patternProperties", "a property name pattern cannot be used here; names are not checked");
            }
        });
    }
}

/// Rules that would refuse more, not less, without a pattern inside them.
const TURNING: [&str; 3] = ["if", "not", "oneOf"];

fn has_unusable(part: &Value, usable: &Matchers) -> bool {
    let mut found = false;
    let mut look = |_: &str, schema: &Value| {
        let pattern = schema.get("pattern").and_then(Value::as_str);
        let names = schema.get("patternProperties").and_then(Value::as_object);
        let mut all = pattern.into_iter().chain(names.into_iter().flat_map(Map::keys).map(String::as_str));
        found |= all.any(|pattern| !usable.contains_key(pattern));
    };
    match part {
        Value::Array(parts) => parts.iter().for_each(|part| keywords::walk(part, "", &mut look)),
        part => keywords::walk(part, "", &mut look),
    }
    found
}

/// Without one of its name patterns an object's rule for all other names would hit the wrong ones, so it goes too.
fn remove_names(map: &mut Map<String, Value>, usable: &Matchers) -> bool {
    let Some(Value::Object(named)) = map.get_mut("patternProperties") else { return false };
    let before = named.len();
    named.retain(|pattern, _| usable.contains_key(pattern));
    let removed = named.len() < before;
    if removed {
        map.shift_remove("additionalProperties");
        map.shift_remove("unevaluatedProperties");
    }
    removed
}

/// Atoms of `pattern` with its counted repeats written out: a rough size of the machine an engine builds. A class of
/// Unicode characters counts as `class` atoms.
fn atoms(pattern: &str, class: u64) -> u64 {
    if is_one_counted_atom(pattern) {
        return 1;
    }
    let mut outer: Vec<u64> = Vec::new();
    let (mut total, mut last) = (0u64, 0u64);
    let mut rest = pattern.char_indices().peekable();
    while let Some((at, character)) = rest.next() {
        match character {
            '(' => {
                outer.push(total);
                (total, last) = (0, 0);
            }
            ')' => {
                last = total.max(1);
                total = outer.pop().unwrap_or(0).saturating_add(last);
            }
            '{' => {
                if let Some((times, bytes)) = counted(&pattern[at..]) {
                    total = (total - last).saturating_add(last.saturating_mul(times));
                    last = last.saturating_mul(times);
                    while rest.next_if(|(next, _)| *next < at + bytes).is_some() {}
                } else {
                    (total, last) = (total.saturating_add(1), 1);
                }
            }
            '[' => {
                let end = at + class_end(&pattern[at..]);
                while rest.next_if(|(next, _)| *next < end).is_some() {}
                last = if is_wide_class(&pattern[at..end]) { class } else { 1 };
                total = total.saturating_add(last);
            }
            '*' | '+' | '?' | '|' => {}
            character => {
                let escaped = if character == '\\' { rest.next().map(|(_, escaped)| escaped) } else { None };
                if matches!(escaped, Some('p' | 'P' | 'u' | 'x' | 'k')) && matches!(rest.peek(), Some((_, '{'))) {
                    // A name in braces, not a repeat.
                    while rest.next().is_some_and(|(_, inside)| inside != '}') {}
                }
                last = if matches!(escaped, Some('w' | 'W' | 'p' | 'P' | 'S' | 'D')) { class } else { 1 };
                total = total.saturating_add(last);
            }
        }
    }
    outer.into_iter().fold(total, u64::saturating_add).max(1)
}

/// Whether a class in brackets has many Unicode characters.
fn is_wide_class(class: &str) -> bool {
    ["[^", r"\w", r"\W", r"\p", r"\P", r"\S", r"\D"].iter().any(|part| class.contains(part))
}

/// `^X{m,n}$` over one class is counted by the validator without an engine, whatever the numbers are.
fn is_one_counted_atom(pattern: &str) -> bool {
    let Some(inner) = pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix("}$")) else { return false };
    let Some((atom, counts)) = inner.rsplit_once('{') else { return false };
    let one_class = atom.starts_with('[') && class_end(atom) == atom.len();
    let one_escape = atom.len() == 2 && atom.starts_with('\\');
    let counts_only = counts.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
    counts_only && (atom == "." || one_class || one_escape)
}

/// The upper count of a leading `{m}`, `{m,}` or `{m,n}` and the bytes it takes.
fn counted(text: &str) -> Option<(u64, usize)> {
    let end = text.find('}')?;
    let inner = text.get(1..end)?;
    let (low, high) = inner.split_once(',').unwrap_or((inner, inner));
    let low: u64 = low.parse().ok()?;
    let high = if high.is_empty() { low } else { high.parse().ok()? };
    Some((low.max(high).max(1), end + 1))
}

/// Bytes of a leading character class, the closing bracket included.
fn class_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atoms_multiply_through_nested_repeats() {
        for (pattern, expected) in [
            ("^abc$", 5),
            ("[a-z0-9]{8}-\\d{4}", 13),
            ("((a{1000}){1000}){100}", 100_000_000),
            ("(ab){3,}c*", 7),
            ("[^\\]{9}]{2}", 2),
            ("a{,5}", 5),
            ("^.{0,100000}$", 1),
            ("^[\\s\\S]{1,50000}$", 1),
            ("^(a{50}){50}$", 2_502),
            (r"\p{Lu}{3}", 3),
            ("", 1),
            ("(((", 1),
            (")))", 1),
        ] {
            assert_eq!(atoms(pattern, 1), expected, "{pattern}");
        }
    }

    #[test]
    fn classes_of_many_characters_weigh_more_when_built() {
        for (pattern, expected) in [(r"\w{3}", 300), (r"[\p{L}x]y", 101), (r"\d[a-z]", 2), (r"[^a]\-", 101)] {
            assert_eq!(atoms(pattern, CLASS_ATOMS), expected, "{pattern}");
        }
    }

    #[test]
    fn engines_are_chosen_by_need() {
        let cache = PatternCache::new();
        assert!(matches!(matcher("^(a+)+$", &cache), Some(Matcher::Linear { .. })));
        assert_eq!(matcher("^((?=a)a+)+$", &cache), Some(Matcher::Backtracking));
        assert_eq!(matcher(r"^(a|b)\1$", &cache), Some(Matcher::Backtracking));
        assert_eq!(matcher("([unclosed", &cache), None);
        assert_eq!(matcher("((a{1000}){1000}){100}", &cache), None);
    }
}
