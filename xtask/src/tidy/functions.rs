//! Owns the rule about the length of functions, counted from the line of `fn` to the line of its closing brace.

use super::tokens::Code;
use super::{Finding, Tree};

/// Hard limit: a longer function is read in pieces, so it should be written in pieces.
const MAX_LINES: usize = 100;
/// What fits on one screen.
const TARGET_LINES: usize = 70;

/// Functions over the hard limit.
pub(crate) fn too_long(tree: &Tree) -> Vec<Finding> {
    longer_than(tree, MAX_LINES)
}

/// Functions over the target but within the limit, for `--verbose`.
pub(crate) fn near_limit(tree: &Tree) -> Vec<Finding> {
    let over = too_long(tree);
    longer_than(tree, TARGET_LINES)
        .into_iter()
        .filter(|near| !over.iter().any(|f| (&f.path, f.line) == (&near.path, near.line)))
        .collect()
}

fn longer_than(tree: &Tree, limit: usize) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust() {
        for function in functions(&Code::of(&file.text)) {
            if function.lines > limit {
                let message = format!("function `{}` has {} lines, more than {limit}", function.name, function.lines);
                let fix = "move its steps into functions and keep the branching here";
                found.push(Finding::new(&file.path, function.line, message, fix));
            }
        }
    }
    found
}

struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// Every function with a body.
fn functions(code: &Code) -> Vec<Function> {
    let words: Vec<(usize, &str)> = code.words().collect();
    let mut found = Vec::new();
    for pair in words.windows(2) {
        let [(at, "fn"), (name_at, name)] = *pair else {
            continue;
        };
        // `fn(u8) -> u8` is a type: no name follows the keyword directly.
        if code.after_blanks(at + 2) != name_at {
            continue;
        }
        if let Some(open) = body(code, name_at + name.len()) {
            let (first, last) = (code.line(at), code.line(code.closing(open).saturating_sub(1)));
            found.push(Function { name: name.to_owned(), line: first, lines: last + 1 - first });
        }
    }
    found
}

/// Offset of the body's opening brace, or `None` for a declaration that ends with `;`.
fn body(code: &Code, from: usize) -> Option<usize> {
    let bytes = code.text.as_bytes();
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'(' | b'[' => at = code.closing(at),
            b'{' => return Some(at),
            b';' => return None,
            _ => at += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(source: &str) -> Vec<(String, usize, usize)> {
        functions(&Code::of(source)).into_iter().map(|f| (f.name, f.line, f.lines)).collect()
    }

    #[test]
    fn functions_are_measured_to_their_closing_brace() {
        let source = "trait T { fn declared(&self) -> [u8; 3]; }\n\
                      fn a(f: fn(u8) -> u8) {\n  let s = \"}\"; // }\n  if x { }\n}\n\
                      async fn b<'a>() where X: Y\n{ }";
        assert_eq!(lengths(source), [("a".into(), 2, 4), ("b".into(), 6, 2)]);
    }

    #[test]
    fn long_functions_are_found() {
        let long = format!("fn long() {{\n{}}}", "x;\n".repeat(99));
        let good = format!("fn good() {{\n{}}}", "x;\n".repeat(98));
        let tree = Tree::of(&[("a.rs", &long), ("b.rs", &good)]);
        let found = too_long(&tree);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].to_string().starts_with("a.rs:1: function `long` has 101 lines, more than 100"),
            "{}",
            found[0]
        );
        assert_eq!(near_limit(&tree).len(), 1);
    }
}
