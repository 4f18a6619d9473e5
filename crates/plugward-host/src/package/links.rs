//! Which links of a package lead out of it, found from the listing alone.
//!
//! Nothing on disk is touched: the targets are resolved over the names of the listing, so looking at a hostile link
//! can neither hang on a dead mount nor tell its author anything.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::shown;
use super::tree::{Entry, EntryKind};

/// Links followed one after the other before a chain counts as leading nowhere, as in the Linux kernel.
const MAX_LINK_HOPS: usize = 40;

/// Names walked for one link. Links that multiply each other's paths stop here; such a link counts as escaping.
const MAX_LINK_NAMES: usize = 4096;

/// Every link that leads, or may lead, out of the package, as `path -> target` with hostile characters escaped.
/// A loop and a dangling link inside the package do not count: they lead nowhere.
pub(super) fn escaping_links(entries: &[Entry]) -> Vec<String> {
    let links: HashMap<&[u8], &[u8]> = entries
        .iter()
        .filter_map(|entry| match &entry.kind {
            EntryKind::Link { target } => Some((entry.path.as_slice(), target.as_slice())),
            EntryKind::File | EntryKind::Folder => None,
        })
        .collect();
    entries
        .iter()
        .filter(|entry| links.contains_key(entry.path.as_slice()) && escapes(&entry.path, &links))
        .map(|entry| {
            let target = links.get(entry.path.as_slice()).copied().unwrap_or_default();
            format!("{} -> {}", shown(OsStr::from_bytes(&entry.path)), shown(OsStr::from_bytes(target)))
        })
        .collect()
}

/// Walks `path` name by name, replacing each link on the way by its target.
fn escapes(path: &[u8], links: &HashMap<&[u8], &[u8]>) -> bool {
    let mut ahead: Vec<&[u8]> = path.split(|&b| b == b'/').rev().collect();
    let mut walked: Vec<&[u8]> = Vec::new();
    let mut joined: Vec<u8> = Vec::new();
    let (mut hops, mut names) = (0, 0);
    while let Some(name) = ahead.pop() {
        names += 1;
        if names > MAX_LINK_NAMES {
            return true;
        }
        match name {
            b"" | b"." => continue,
            b".." => {
                if walked.pop().is_none() {
                    return true;
                }
                continue;
            }
            name => walked.push(name),
        }
        joined.clear();
        joined.extend_from_slice(&walked.join(&b'/'));
        let Some(target) = links.get(joined.as_slice()) else { continue };
        // An absolute target is out even if it names the package's own folder: a copy lies somewhere else.
        if target.starts_with(b"/") {
            return true;
        }
        hops += 1;
        if hops > MAX_LINK_HOPS {
            return false;
        }
        walked.pop();
        ahead.extend(target.split(|&b| b == b'/').rev());
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(path: &str, target: &str) -> Entry {
        Entry { path: path.into(), kind: EntryKind::Link { target: target.into() }, mode: 0o777 }
    }

    fn found(links: &[(&str, &str)]) -> Vec<String> {
        let entries: Vec<Entry> = links.iter().map(|(path, target)| link(path, target)).collect();
        escaping_links(&entries)
    }

    #[test]
    fn links_inside_the_package_are_fine() {
        assert!(
            found(&[("a", "b"), ("bin/x", "../lib/x.js"), ("deep/er/y", "../.././a"), ("gone", "no/where")]).is_empty()
        );
    }

    #[test]
    fn links_out_of_the_package_are_listed_with_their_target() {
        assert_eq!(found(&[("py", "/usr/bin/python3")]), ["py -> /usr/bin/python3"]);
        assert_eq!(found(&[("a/b", "../../x")]), ["a/b -> ../../x"]);
        assert_eq!(found(&[("up", "..")]), ["up -> .."]);
    }

    #[test]
    fn a_chain_that_leaves_at_its_end_is_found_at_every_link() {
        // `hop/x` looks like a path inside, but `hop` is the way out.
        let all = found(&[("first", "second/file"), ("second", "third"), ("third", "../outside")]);
        assert_eq!(all.len(), 3, "{all:?}");
    }

    #[test]
    fn loops_end_and_lead_nowhere() {
        assert!(found(&[("a", "b"), ("b", "a"), ("self", "self/x")]).is_empty());
    }

    #[test]
    fn links_that_double_each_other_cost_bounded_time() {
        // l30 -> l29/l29 -> …: two to the thirtieth names if walked to the end.
        let names: Vec<(String, String)> = (1..31).map(|i| (format!("l{i}"), format!("l{0}/../l{0}", i - 1))).collect();
        let pairs: Vec<(&str, &str)> = names.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let _ = found(&pairs);
    }

    #[test]
    fn a_name_with_a_newline_stays_on_one_line() {
        assert_eq!(found(&[("a\nb", "/etc")]), ["a\\u{a}b -> /etc"]);
    }
}
