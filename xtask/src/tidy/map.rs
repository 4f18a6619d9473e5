//! Owns the agreement between ARCHITECTURE.md and the workspace: a map that shows streets that are gone, or misses new
//! ones, is worse than none.

use std::collections::BTreeSet;

use super::dependencies::Graph;
use super::{Finding, Tree};

const MAP: &str = "ARCHITECTURE.md";
/// What every crate of the product is called.
const PREFIX: &str = "plugward-";

/// Crates that the map does not name, and names on the map that are no crate.
pub(crate) fn crates_and_map_differ(tree: &Tree, graph: &Graph) -> Vec<Finding> {
    let Some(text) = tree.text(MAP) else {
        return vec![Finding::new(MAP, 0, "file is missing", "draw the crates and their dependencies")];
    };
    let mut found = Vec::new();
    let named: BTreeSet<&str> = text.split(|c: char| !continues_name(c)).collect();
    for member in &graph.members {
        if !named.contains(member.name.as_str()) {
            let message = format!("crate `{}` is not on the map", member.name);
            found.push(Finding::new(MAP, 0, message, "name it: what it owns and what it refuses"));
        }
    }
    for (number, line) in text.lines().enumerate() {
        for name in line.split(|c: char| !continues_name(c)).filter(|word| is_crate_name(word)) {
            if !graph.members.iter().any(|member| member.name == name) {
                let message = format!("`{name}` is on the map but no crate of the workspace");
                found.push(Finding::new(MAP, number + 1, message, "take it off the map, or say it in other words"));
            }
        }
    }
    found
}

fn continues_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

fn is_crate_name(word: &str) -> bool {
    word.strip_prefix(PREFIX).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::super::dependencies::Member;
    use super::*;

    fn graph(names: &[&str]) -> Graph {
        let members =
            names.iter().map(|name| Member { name: (*name).into(), manifest: String::new(), edges: Vec::new() });
        Graph { members: members.collect() }
    }

    #[test]
    fn a_true_map_passes() {
        let tree =
            Tree::of(&[("ARCHITECTURE.md", "| `plugward` | x |\n| `plugward-host` | y |\nxtask/ and PLUGWARD_HOME")]);
        assert_eq!(crates_and_map_differ(&tree, &graph(&["plugward", "plugward-host", "xtask"])), []);
    }

    #[test]
    fn missing_and_imaginary_crates_are_found() {
        let tree = Tree::of(&[("ARCHITECTURE.md", "plugward-host\nplugward-ghost")]);
        let found = crates_and_map_differ(&tree, &graph(&["plugward", "plugward-host"]));
        let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "ARCHITECTURE.md: crate `plugward` is not on the map; name it: what it owns and what it refuses",
                "ARCHITECTURE.md:2: `plugward-ghost` is on the map but no crate of the workspace; \
                 take it off the map, or say it in other words",
            ]
        );
        assert_eq!(crates_and_map_differ(&Tree::default(), &graph(&[])).len(), 1);
    }
}
