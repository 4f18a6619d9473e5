//! Owns the agreement between documents and code: the table of error codes, the tests that the page of threats names,
//! every page reachable, no dead links.

use std::collections::BTreeMap;
use std::path::Path;

use super::tokens::Code;
use super::{Finding, Tree};

/// Where the codes are explained to users.
const CODE_PAGE: &str = "docs/errors.md";
/// Where the codes are spelled: a file, or a folder of that name.
const CODE_SOURCES: &[&str] = &["crates/plugward-host/src/error.rs", "crates/plugward-host/src/error/"];

/// Where threats and the tests that show them are listed.
const THREAT_PAGE: &str = "docs/threats.md";

/// Codes that only the page or only the code has.
pub(crate) fn error_codes_differ(tree: &Tree) -> Vec<Finding> {
    let mut in_code = BTreeMap::new();
    for file in tree.rust().filter(|file| CODE_SOURCES.iter().any(|source| file.path.starts_with(source))) {
        let code = Code::of(&file.text);
        for (line, text) in code.strings.iter().filter(|(_, text)| is_code(text)) {
            in_code.entry(text.clone()).or_insert_with(|| (file.path.clone(), *line));
        }
    }
    if in_code.is_empty() {
        let fix = "spell the codes there, or correct CODE_SOURCES in xtask";
        return vec![Finding::new(CODE_SOURCES[0], 0, "no error code is spelled here", fix)];
    }
    let Some(page) = tree.text(CODE_PAGE) else {
        return vec![Finding::new(CODE_PAGE, 0, "file is missing", "write the table of error codes")];
    };
    let in_page = codes_in_table(page);
    let mut found = Vec::new();
    for (code, (path, line)) in &in_code {
        if !in_page.contains_key(code) {
            let message = format!("code `{code}` is not in the table of {CODE_PAGE}");
            found.push(Finding::new(path, *line, message, "explain it there"));
        }
    }
    for (code, line) in &in_page {
        if !in_code.contains_key(code) {
            let message = format!("code `{code}` is in no source file");
            found.push(Finding::new(CODE_PAGE, *line, message, "take it out of the table"));
        }
    }
    found
}

/// Codes in the first column of the page's tables, with their lines.
fn codes_in_table(page: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for (number, line) in page.lines().enumerate() {
        let Some(cell) = line.trim().strip_prefix('|').and_then(|rest| rest.split('|').next()) else {
            continue;
        };
        for word in cell.split('`').filter(|word| is_code(word)) {
            found.entry(word.to_owned()).or_insert(number + 1);
        }
    }
    found
}

/// `WORD_WORD` in capitals.
fn is_code(text: &str) -> bool {
    let parts: Vec<&str> = text.split('_').collect();
    parts.len() > 1 && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_uppercase()))
}

/// Tests that the page of threats names and that are nowhere: a threat would look tested when it is not.
pub(crate) fn cited_tests_missing(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.text(THREAT_PAGE) else {
        return vec![Finding::new(THREAT_PAGE, 0, "file is missing", "write the table of threats")];
    };
    let mut found = Vec::new();
    for (number, line) in page.lines().enumerate().filter(|(_, line)| line.starts_with("| ")) {
        let evidence = line.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        if !evidence.starts_with("tests: ") && !evidence.starts_with("elsewhere: ") {
            continue;
        }
        for name in evidence.split('`').skip(1).step_by(2) {
            let function = format!("fn {}(", name.rsplit("::").next().unwrap_or(name));
            if !tree.rust().any(|file| file.text.contains(&function)) {
                let message = format!("test `{name}` is in no source file");
                found.push(Finding::new(THREAT_PAGE, number + 1, message, "name the test that shows it"));
            }
        }
    }
    found
}

/// Pages under docs/ that neither README.md nor docs/README.md links.
pub(crate) fn unlinked(tree: &Tree) -> Vec<Finding> {
    let indexes = ["README.md", "docs/README.md"];
    let linked: Vec<String> = indexes
        .iter()
        .filter_map(|index| tree.text(index).map(|text| (index, text)))
        .flat_map(|(index, text)| {
            links(text).into_iter().map(|(_, target)| resolve(index, &target)).collect::<Vec<_>>()
        })
        .collect();
    tree.files
        .iter()
        .filter(|file| file.path.starts_with("docs/") && !indexes.contains(&file.path.as_str()))
        .filter(|file| !linked.contains(&file.path))
        .map(|file| Finding::new(&file.path, 0, "no index links this page", "link it from README.md or docs/README.md"))
        .collect()
}

/// Relative links of Markdown pages that lead to nothing.
pub(crate) fn dead_links(tree: &Tree, root: &Path) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, target) in links(&file.text) {
            let resolved = resolve(&file.path, &target);
            let known = tree
                .files
                .iter()
                .any(|other| other.path == resolved || other.path.starts_with(&format!("{resolved}/")));
            if !known && !root.join(&resolved).exists() {
                let message = format!("link to `{target}` leads to nothing");
                found.push(Finding::new(&file.path, line, message, "correct the link"));
            }
        }
    }
    found
}

/// Relative link targets `[text](target)` outside of code, with their line and without `#anchor`.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        // Every second piece between backticks is code.
        let prose = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        for piece in prose.split("](").skip(1) {
            let target = piece.split(')').next().unwrap_or_default();
            let target = target.split(['#', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push((number + 1, target.to_owned()));
            }
        }
    }
    found
}

/// The path, relative to the workspace, that `target` means in the file `from`.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str =
        "//! x\nfn code() { match x { A => \"MCP_TIMEOUT\", B => \"MCP_CANCELLED\" }; \"NOT a code\"; \"ALONE\"; }";

    #[test]
    fn equal_lists_of_codes_pass() {
        let page = "| code | meaning |\n|---|---|\n| `MCP_TIMEOUT` | see `OTHER_CODE` |\n| `MCP_CANCELLED` | x |";
        let tree = Tree::of(&[(CODE_SOURCES[0], SOURCE), (CODE_PAGE, page)]);
        assert_eq!(error_codes_differ(&tree), []);
    }

    #[test]
    fn codes_on_one_side_only_are_found() {
        let tree = Tree::of(&[(CODE_SOURCES[0], SOURCE), (CODE_PAGE, "| `MCP_TIMEOUT` | x |\n| `MCP_GONE` | x |")]);
        let texts: Vec<_> =
            error_codes_differ(&tree).iter().map(|f| format!("{}:{} {}", f.path, f.line, f.message)).collect();
        assert_eq!(
            texts,
            [
                "crates/plugward-host/src/error.rs:2 code `MCP_CANCELLED` is not in the table of docs/errors.md",
                "docs/errors.md:2 code `MCP_GONE` is in no source file",
            ]
        );
        assert_eq!(error_codes_differ(&Tree::of(&[(CODE_SOURCES[0], SOURCE)])).len(), 1);
        assert_eq!(error_codes_differ(&Tree::default()).len(), 1);
    }

    #[test]
    fn cited_tests_that_are_nowhere_are_found() {
        let page = "| 1 | a | b | tests: `limits::ends` |\n| 2 | a | b | elsewhere: `gone`, `ends` |\n| 3 | a | b | rows: x `y` |";
        let source = "pub(crate) fn ends() {}";
        let found = cited_tests_missing(&Tree::of(&[(THREAT_PAGE, page), ("crates/a/tests/b.rs", source)]));
        let texts: Vec<_> = found.iter().map(|f| format!("{}:{} {}", f.path, f.line, f.message)).collect();
        assert_eq!(texts, ["docs/threats.md:2 test `gone` is in no source file"]);
        assert_eq!(cited_tests_missing(&Tree::default()).len(), 1);
    }

    #[test]
    fn pages_without_a_link_are_found() {
        let files = [
            ("README.md", "[a](docs/a.md) and `[c](docs/c.md)`"),
            ("docs/README.md", "[b](b.md#part)"),
            ("docs/a.md", ""),
            ("docs/b.md", ""),
            ("docs/c.md", ""),
        ];
        let found = unlinked(&Tree::of(&files));
        assert_eq!(found.iter().map(|f| f.path.as_str()).collect::<Vec<_>>(), ["docs/c.md"]);
    }

    #[test]
    fn dead_links_are_found() {
        let files = [
            (
                "docs/a.md",
                "[x](../README.md) [y](gone.md) [z](https://plugward.example/x) [w](#here)\n```\n[v](no.md)\n```",
            ),
            ("README.md", "[docs](docs/) ![p](missing.png)"),
        ];
        let found = dead_links(&Tree::of(&files), Path::new("/nonexistent"));
        let texts: Vec<_> = found.iter().map(|f| format!("{}:{}", f.path, f.line)).collect();
        assert_eq!(texts, ["docs/a.md:1", "README.md:1"]);
    }
}
