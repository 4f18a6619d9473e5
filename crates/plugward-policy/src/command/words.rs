//! The command of a tool as one line, split into words once, when it is loaded. Owns the quoting a person knows from a
//! shell. Refuses everything that would have needed one: operators, variables, globs and the like are an error with the
//! way out, never passed on as if they were text.

use super::template::{Item, Template, Word, literal, read_placeholder};
use super::{Fault, check_interpreter};
use crate::visible::quoted;

const NEEDS_SHELL: &str = "quote it if it is meant as it stands, write the command as a list, or set `shell: true`";

/// Reads `line`.
pub(crate) fn read_line(line: &str) -> Result<Template, Fault> {
    let mut words = Vec::new();
    let mut rest = line.trim_end_matches('\n').trim_start_matches([' ', '\t']);
    while !rest.is_empty() {
        let (word, after) = read_one(rest)?;
        words.push(word);
        rest = after.trim_start_matches([' ', '\t']);
    }
    let mut words = words.into_iter();
    let program = words.next().ok_or_else(|| Fault::new("command is empty", "name a program"))?;
    let Some(program) = program.fixed() else {
        return Err(program_of_values());
    };
    if is_assignment(&program) {
        let message = format!("{} sets a variable, which needs a shell", quoted(&program));
        return Err(Fault::new(message, "set it under `env`"));
    }
    let words: Vec<Word> = words.collect();
    check_interpreter(&program, &words.iter().collect::<Vec<_>>())?;
    Ok(Template { program, items: words.into_iter().map(Item::Word).collect() })
}

/// The fault of a program that is made of values.
pub(crate) fn program_of_values() -> Fault {
    Fault::new("the program depends on a value", "name one program: which one runs is what a person agrees to")
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| crate::expand::is_variable_name(name))
}

/// Reads the word that `text` begins with; the rest begins with a blank or is empty.
fn read_one(text: &str) -> Result<(Word, &str), Fault> {
    let mut word = Word::default();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match first {
            ' ' | '\t' => break,
            '\'' => rest = single_quoted(&mut word, rest)?,
            '"' => rest = double_quoted(&mut word, rest)?,
            '\\' => rest = escaped(&mut word, rest)?,
            '{' if rest.starts_with("{{") => rest = value(&mut word, rest)?,
            '$' => rest = dollar(&mut word, rest)?,
            '#' | '~' if rest.len() == text.len() => return Err(needs_shell(first)),
            '|' | '&' | ';' | '<' | '>' | '(' | ')' | '`' | '*' | '?' | '[' | ']' | '\n' | '\r' => {
                return Err(needs_shell(first));
            }
            other => {
                word.push_char(other);
                rest = &rest[other.len_utf8()..];
            }
        }
    }
    if word.pieces.is_empty() {
        // `''` is an argument without characters.
        word.push_str("");
    }
    Ok((word, rest))
}

fn needs_shell(char: char) -> Fault {
    let what = match char {
        '|' => "a pipe",
        '&' | ';' | '\n' | '\r' => "a second command",
        '<' | '>' => "a redirection",
        '(' | ')' => "a subshell",
        '`' => "a command in a command",
        '*' | '?' | '[' | ']' => "a pattern of file names",
        '#' => "a comment",
        '~' => "a home folder",
        _ => "a variable",
    };
    Fault::new(format!("{} in the command is {what}, which needs a shell", quoted(&char.to_string())), NEEDS_SHELL)
}

fn value<'t>(word: &mut Word, text: &'t str) -> Result<&'t str, Fault> {
    let (name, length) = read_placeholder(text)?;
    word.pieces.push(super::Piece::Value(name));
    Ok(&text[length..])
}

/// `${NAME}` is our own reference; anything else that begins with `$` is a shell's.
fn dollar<'t>(word: &mut Word, text: &'t str) -> Result<&'t str, Fault> {
    let after = &text[1..];
    if let Some(inner) = after.strip_prefix('{')
        && let Some(end) = inner.find('}')
        && !after.starts_with("{{")
    {
        word.push_str(&text[..end + 3]);
        return Ok(&inner[end + 1..]);
    }
    let is_shells = after.starts_with(|c: char| c.is_ascii_alphanumeric() || "_({'\"@*#?$!-".contains(c));
    if is_shells {
        let hint = "write `${NAME}` for a variable of the host, `'$'` for the character, or set `shell: true`";
        return Err(Fault::new("`$` in the command is a variable, which needs a shell", hint));
    }
    word.push_char('$');
    Ok(after)
}

fn single_quoted<'t>(word: &mut Word, text: &'t str) -> Result<&'t str, Fault> {
    let mut rest = &text[1..];
    loop {
        match rest.chars().next() {
            None => return Err(unclosed('\'')),
            Some('\'') => break,
            Some('{') if rest.starts_with("{{") => rest = value(word, rest)?,
            Some('\\') if rest.starts_with("\\{{") => {
                word.push_str("{{");
                rest = &rest[3..];
            }
            Some('$') if rest.starts_with("${") => {
                // No reference: the quotes say so.
                word.push_str(&literal("${"));
                rest = &rest[2..];
            }
            Some(other) => {
                word.push_char(other);
                rest = &rest[other.len_utf8()..];
            }
        }
    }
    word.push_str("");
    Ok(&rest[1..])
}

fn double_quoted<'t>(word: &mut Word, text: &'t str) -> Result<&'t str, Fault> {
    let mut rest = &text[1..];
    loop {
        match rest.chars().next() {
            None => return Err(unclosed('"')),
            Some('"') => break,
            Some('`') => return Err(needs_shell('`')),
            Some('{') if rest.starts_with("{{") => rest = value(word, rest)?,
            Some('$') => rest = dollar(word, rest)?,
            Some('\\') => rest = escaped_in_quotes(word, rest),
            Some(other) => {
                word.push_char(other);
                rest = &rest[other.len_utf8()..];
            }
        }
    }
    Ok(&rest[1..])
}

/// A backslash in double quotes takes the meaning of these four only.
fn escaped_in_quotes<'t>(word: &mut Word, text: &'t str) -> &'t str {
    let after = &text[1..];
    if let Some(rest) = after.strip_prefix("{{") {
        word.push_str("{{");
        return rest;
    }
    match after.chars().next() {
        Some('$') if after.starts_with("${") => {
            word.push_str(&literal("${"));
            &after[2..]
        }
        Some(special @ ('"' | '\\' | '$' | '`')) => {
            word.push_char(special);
            &after[1..]
        }
        _ => {
            word.push_char('\\');
            after
        }
    }
}

fn escaped<'t>(word: &mut Word, text: &'t str) -> Result<&'t str, Fault> {
    let after = &text[1..];
    if let Some(rest) = after.strip_prefix("{{") {
        word.push_str("{{");
        return Ok(rest);
    }
    if let Some(rest) = after.strip_prefix("${") {
        word.push_str(&literal("${"));
        return Ok(rest);
    }
    match after.chars().next() {
        None => Err(Fault::new("command ends in `\\`", "leave it out, or quote it")),
        Some('\n' | '\r') => Err(needs_shell('\n')),
        Some(other) => {
            word.push_char(other);
            Ok(&after[other.len_utf8()..])
        }
    }
}

fn unclosed(quote: char) -> Fault {
    Fault::new(format!("command has a {} that is not closed", quoted(&quote.to_string())), "close it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        let template = read_line(line).unwrap_or_else(|fault| panic!("{line}: {}", fault.message));
        std::iter::once(template.program.clone()).chain(template.items.iter().map(Item::shown)).collect()
    }

    #[test]
    fn a_line_is_split_as_a_shell_would() {
        for (line, wanted) in [
            ("grep -R {{params.keyword}} src", vec!["grep", "-R", "{{params.keyword}}", "src"]),
            ("grep 'a|b' f", vec!["grep", "a|b", "f"]),
            ("a \"b  c\" d\\ e ''", vec!["a", "b  c", "d e", ""]),
            ("a \"x\\\"y\\n\" '\\'", vec!["a", "x\"y\\n", "\\"]),
            ("a --x='{{params.v}}'z", vec!["a", "--x={{params.v}}z"]),
            ("a \"{{params.v}}\"", vec!["a", "{{params.v}}"]),
            ("find . -exec {} +", vec!["find", ".", "-exec", "{}", "+"]),
            ("a ${PLUGIN_DIR}/x '${HOME}' \\${A}", vec!["a", "${PLUGIN_DIR}/x", "$${HOME}", "$${A}"]),
            ("a x#y a~b 5$ \\{{x}}", vec!["a", "x#y", "a~b", "5$", "{{x}}"]),
            ("  a\tb  \n", vec!["a", "b"]),
        ] {
            assert_eq!(words(line), wanted, "{line}");
        }
    }

    // V7: what needs a shell is refused, and says what it is.
    #[test]
    fn what_would_have_needed_a_shell_is_refused() {
        for line in [
            "(id)",
            "echo $HOME $DEMO",
            "rm -rf ~/x",
            "a | b",
            "a; b",
            "a && b",
            "a > f",
            "a < f",
            "a `b`",
            "a $(b)",
            "a \"$(b)\"",
            "a \"`b`\"",
            "ls *.c",
            "ls a?",
            "ls [ab]",
            "a # b",
            "a\nb",
            "a\r",
            "X=1 a",
            "a 'b",
            "a \"b",
            "a \\",
            "",
            "  ",
            "{{params.x}} a",
            "a$(b)",
            "a $$",
        ] {
            assert!(read_line(line).is_err(), "{line}");
        }
        let fault = read_line("a | b").unwrap_err();
        assert_eq!(fault.message, "`|` in the command is a pipe, which needs a shell");
        assert!(fault.hint.contains("shell: true"));
    }
}
