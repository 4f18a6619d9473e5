//! Owns the rules about whole source files: their length and the module docs they begin with.

use super::{Finding, Tree};

/// Hard limit: a longer file does two things and has a seam somewhere.
const MAX_LINES: usize = 800;
/// Where a writer should begin to look for the seam.
const TARGET_LINES: usize = 500;

/// Files over the hard limit.
pub(crate) fn too_long(tree: &Tree) -> Vec<Finding> {
    longer_than(tree, MAX_LINES)
}

/// Files over the target but within the limit, for `--verbose`.
pub(crate) fn near_limit(tree: &Tree) -> Vec<Finding> {
    let over = too_long(tree);
    longer_than(tree, TARGET_LINES).into_iter().filter(|near| !over.iter().any(|f| f.path == near.path)).collect()
}

fn longer_than(tree: &Tree, limit: usize) -> Vec<Finding> {
    tree.rust()
        .map(|file| (file, file.text.lines().count()))
        .filter(|(_, lines)| *lines > limit)
        .map(|(file, lines)| {
            let message = format!("file has {lines} lines, more than {limit}");
            Finding::new(&file.path, lines, message, "split it by what its parts own")
        })
        .collect()
}

/// Files whose first line is no module doc.
pub(crate) fn without_module_docs(tree: &Tree) -> Vec<Finding> {
    tree.rust()
        .filter(|file| !file.text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("").starts_with("//!"))
        .map(|file| {
            Finding::new(&file.path, 1, "file has no module docs", "begin it with `//!`: what it owns, what it refuses")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_found() {
        let tree =
            Tree::of(&[("a.rs", &"x\n".repeat(801)), ("b.rs", &"x\n".repeat(800)), ("c.md", &"x\n".repeat(900))]);
        let found = too_long(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), "a.rs:801: file has 801 lines, more than 800; split it by what its parts own");
        assert_eq!(near_limit(&tree).iter().map(|f| f.path.as_str()).collect::<Vec<_>>(), ["b.rs"]);
    }

    #[test]
    fn files_without_docs_are_found() {
        let tree = Tree::of(&[("a.rs", "\n//! docs\nfn x() {}"), ("b.rs", "/// x\nfn x() {}"), ("c.rs", "")]);
        assert_eq!(without_module_docs(&tree).iter().map(|f| f.path.as_str()).collect::<Vec<_>>(), ["b.rs", "c.rs"]);
    }
}
