//! Owns the list of things that must not be written down in the repository: paths of one machine and host names of
//! package registries. Both make a clone behave differently from where it was written.

use super::{Finding, Tree};

/// Files that name registries by design of the tool that writes them.
const WRITTEN_BY_TOOLS: &[&str] = &["Cargo.lock"];

/// The words with the advice. They are put together here so that this file does not contain what it forbids.
fn list() -> Vec<(String, &'static str)> {
    let path = "write a relative path";
    let registry = "name the tool's command and let the machine's configuration choose the registry";
    vec![
        (["/wo", "rk/"].concat(), path),
        // The dot: tool folders of a home directory, not a JSON pointer into a property `root`.
        (["/ro", "ot/."].concat(), path),
        (["sha", "red/"].concat(), path),
        (["registry.npm", "js.org"].concat(), registry),
        (["npm", "js.com"].concat(), registry),
        (["pypi", ".org"].concat(), registry),
        (["pythonhosted", ".org"].concat(), registry),
        (["index.crates", ".io"].concat(), registry),
        (["static.crates", ".io"].concat(), registry),
    ]
}

/// In lock files of npm: the key under which it writes the address of a package.
const ADDRESS_KEY: &str = "\"resolved\":";

/// Every forbidden word in every file.
pub(crate) fn forbidden(tree: &Tree) -> Vec<Finding> {
    let list = list();
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| !WRITTEN_BY_TOOLS.contains(&file.path.as_str())) {
        for (number, line) in file.text.lines().enumerate() {
            if file.path.ends_with("package-lock.json") && line.trim_start().starts_with(ADDRESS_KEY) {
                let fix = "write it with `npm install --omit-lockfile-registry-resolved`";
                found.push(Finding::new(&file.path, number + 1, "lock file holds addresses of a registry", fix));
            }
            for (word, fix) in &list {
                if contains_word(line, word) {
                    found.push(Finding::new(
                        &file.path,
                        number + 1,
                        format!("`{word}` must not be written here"),
                        *fix,
                    ));
                }
            }
        }
    }
    found
}

/// Whether the line has the word, not merely as the end of a longer one (`/network/`, `a_shared/`).
fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_found_and_its_lookalikes_are_not() {
        for (word, _) in list() {
            let tree = Tree::of(&[("docs/a.md", &format!("fine\nsee {word} there"))]);
            let found = forbidden(&tree);
            assert_eq!(found.len(), 1, "{word}");
            assert_eq!((found[0].path.as_str(), found[0].line), ("docs/a.md", 2));
        }
        let tree =
            Tree::of(&[("docs/a.md", "the net/work/flow, un-shared/ and workshop"), ("Cargo.lock", &list()[7].0)]);
        assert_eq!(forbidden(&tree), []);
    }

    #[test]
    fn addresses_in_lock_files_are_found() {
        let line = "  \"resolved\": \"x\",";
        let tree = Tree::of(&[("a/package-lock.json", line), ("a/schema.json", line)]);
        let found = forbidden(&tree);
        assert_eq!(found.iter().map(|f| f.path.as_str()).collect::<Vec<_>>(), ["a/package-lock.json"]);
    }
}
