//! Owns what may be linked: the licences of all dependencies and the packages that are banned. `deny.toml` repeats both
//! lists for `cargo deny`; a check keeps the two the same, so that the tool is optional and the rule is not.

use std::collections::BTreeSet;

use serde_json::Value;

use super::spdx::Expression;
use super::{Finding, Tree};

/// Licences that add no duty beyond naming the author.
pub(crate) const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Packages that must not come in, each with the reason.
pub(crate) const BANNED: &[(&str, &str)] = &[
    ("native-tls", "would bring the system's TLS; rustls is the one TLS stack"),
    ("openssl", "would need a C library on the machine; rustls is the one TLS stack"),
    ("openssl-sys", "would need a C library on the machine; rustls is the one TLS stack"),
    ("reqwest", "doubles the dependency count for what hyper-util does"),
    ("serde_yaml", "unmaintained, keeps the last of two equal keys and built on unsafe code"),
    ("serde_yml", "unsound by advisory"),
    ("unsafe-libyaml", "manifests are hostile input and are parsed without unsafe code"),
];

/// Dependencies whose licence expression the list above does not satisfy.
pub(crate) fn not_allowed(metadata: &Value) -> Vec<Finding> {
    let mut found = Vec::new();
    for package in packages(metadata) {
        let problem = match package["license"].as_str() {
            None => Some("states no licence".to_owned()),
            Some(text) => match Expression::parse(text) {
                Err(problem) => Some(problem),
                Ok(expression) if expression.satisfied_by(&is_allowed) => None,
                Ok(_) => Some(format!("has licence `{text}`, which is not on the list")),
            },
        };
        if let Some(problem) = problem {
            let fix = "take another package, or add the licence to xtask/src/tidy/licences.rs and deny.toml";
            found.push(Finding::new("Cargo.lock", 0, format!("package `{}` {problem}", name(package)), fix));
        }
    }
    found
}

/// Dependencies that are banned by name.
pub(crate) fn banned(metadata: &Value) -> Vec<Finding> {
    packages(metadata)
        .iter()
        .filter_map(|package| BANNED.iter().find(|(banned, _)| *banned == name(package)))
        .map(|(banned, reason)| {
            let fix = format!("`cargo tree -i {banned}` shows who asks for it");
            Finding::new("Cargo.lock", 0, format!("package `{banned}` is banned: {reason}"), fix)
        })
        .collect()
}

/// Differences between the lists here and those of `deny.toml`.
pub(crate) fn lists_differ(tree: &Tree) -> Vec<Finding> {
    let path = "deny.toml";
    let Some(text) = tree.text(path) else {
        return vec![Finding::new(path, 0, "file is missing", "write the lists of xtask/src/tidy/licences.rs into it")];
    };
    let mut found = Vec::new();
    // An exception is part of the entry in cargo deny's list as it is in ours.
    let ours: BTreeSet<String> = ALLOWED.iter().map(|&licence| licence.to_owned()).collect();
    found.extend(difference(path, "licence", &ours, &list_in(text, "[licenses]", "allow")));
    let ours: BTreeSet<String> = BANNED.iter().map(|&(name, _)| name.to_owned()).collect();
    found.extend(difference(path, "banned package", &ours, &list_in(text, "[bans]", "deny")));
    found
}

fn difference(path: &str, what: &str, ours: &BTreeSet<String>, theirs: &BTreeSet<String>) -> Vec<Finding> {
    let one_sided = |left: &BTreeSet<String>, right: &BTreeSet<String>, place: &str| -> Vec<Finding> {
        left.difference(right)
            .map(|entry| {
                let fix = "make both lists say the same";
                Finding::new(path, 0, format!("{what} `{entry}` is in {place} only"), fix)
            })
            .collect()
    };
    let mut found = one_sided(ours, theirs, "xtask/src/tidy/licences.rs");
    found.extend(one_sided(theirs, ours, "deny.toml"));
    found
}

/// The strings of the array `key` in one section of a TOML file of the plain shape that deny.toml has: either bare
/// strings or tables of which `name` counts.
fn list_in(text: &str, section: &str, key: &str) -> BTreeSet<String> {
    let body = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .skip_while(|line| *line != section)
        .skip(1)
        .take_while(|line| !line.starts_with('[') || line.starts_with("[\""))
        .skip_while(|line| !line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('=')))
        .collect::<Vec<_>>()
        .join("\n");
    let inner = body.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(inner, _)| inner);
    inner
        .lines()
        .filter_map(|line| {
            let value = line.split_once("name").map_or(line, |(_, value)| value);
            let quoted = value.split_once('"').and_then(|(_, rest)| rest.split_once('"'));
            quoted.map(|(value, _)| value.to_owned())
        })
        .collect()
}

fn is_allowed(id: &str, exception: Option<&str>) -> bool {
    let entry = exception.map_or_else(|| id.to_owned(), |exception| format!("{id} WITH {exception}"));
    ALLOWED.contains(&entry.as_str())
}

fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(name: &str, licence: Option<&str>) -> Value {
        serde_json::json!({"packages": [{"name": name, "license": licence}]})
    }

    #[test]
    fn allowed_licences_pass_and_others_do_not() {
        assert_eq!(not_allowed(&metadata("a", Some("MIT OR Apache-2.0"))), []);
        assert_eq!(not_allowed(&metadata("a", Some("(MIT OR Apache-2.0) AND Unicode-3.0"))), []);
        for bad in [Some("GPL-3.0-only"), Some("MIT AND LGPL-2.1-only"), Some("ask the author"), None] {
            let found = not_allowed(&metadata("a", bad));
            assert_eq!(found.len(), 1, "{bad:?}");
            assert!(found[0].message.starts_with("package `a` "), "{}", found[0]);
        }
    }

    #[test]
    fn banned_packages_are_found() {
        assert_eq!(banned(&metadata("serde", Some("MIT"))), []);
        assert_eq!(banned(&metadata("openssl", Some("MIT"))).len(), 1);
    }

    #[test]
    fn deny_toml_says_the_same() {
        let ours = include_str!("../../../deny.toml");
        assert_eq!(lists_differ(&Tree::of(&[("deny.toml", ours)])), []);
    }

    #[test]
    fn a_deny_toml_that_says_something_else_is_found() {
        let ours = include_str!("../../../deny.toml");
        let more = ours.replace("\"ISC\",", "\"ISC\",\n    \"GPL-3.0-only\",");
        let less = ours.replace("name = \"openssl\"", "name = \"other\"");
        for (text, count) in [(more.as_str(), 1), (less.as_str(), 2), ("", ALLOWED.len() + BANNED.len())] {
            assert_eq!(lists_differ(&Tree::of(&[("deny.toml", text)])).len(), count);
        }
        assert_eq!(lists_differ(&Tree::default()).len(), 1);
    }
}
