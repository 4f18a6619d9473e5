//! The command of a tool as a list: words with placeholders, and groups that vanish. Owns the syntax of
//! placeholders. Refuses a program that depends on a value, and values that an interpreter would run as code.

use std::collections::BTreeSet;

use super::{Fault, is_parameter_name};
use crate::visible::quoted;

/// What every placeholder names first.
const PARAMETERS: &str = "params.";

/// Programs that run code given as an argument. The list is a guard against mistakes, not a wall: what a tool runs is
/// shown to the person who approves it.
const INTERPRETERS: [&str; 18] = [
    "sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "ash", "python", "python3", "perl", "ruby", "node", "deno",
    "bun", "php", "lua", "tclsh",
];

/// The options after which code follows. Short ones may stand together, as in `-lc`.
const CODE_OPTIONS: [&str; 6] = ["-c", "-e", "-E", "-p", "--eval", "--print"];

/// A piece of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Fixed text.
    Text(String),
    /// The value of this parameter.
    Value(String),
}

/// One argument as written. It becomes exactly one argument, or with an array as its value one for each entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// What it is made of, in order.
    pub pieces: Vec<Piece>,
}

impl Word {
    /// The parameters in it.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Value(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    /// The whole text, if it has no placeholder.
    #[must_use]
    pub fn fixed(&self) -> Option<String> {
        self.parameters().next().is_none().then(|| self.shown())
    }

    /// The word as a person reads it.
    #[must_use]
    pub fn shown(&self) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Value(name) => placeholder(name),
        };
        self.pieces.iter().map(piece).collect()
    }

    pub(super) fn push_char(&mut self, char: char) {
        match self.pieces.last_mut() {
            Some(Piece::Text(text)) => text.push(char),
            _ => self.pieces.push(Piece::Text(char.to_string())),
        }
    }

    pub(super) fn push_str(&mut self, text: &str) {
        text.chars().for_each(|char| self.push_char(char));
    }
}

/// Words that vanish together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The parameter that decides: the words are there when it has a value other than `false` and the empty list.
    /// Without it, they are there when every placeholder in them has a value.
    pub when: Option<String>,
    /// The words.
    pub words: Vec<Word>,
}

/// A word or a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Always there.
    Word(Word),
    /// There or not, by the values.
    Group(Group),
}

impl Item {
    /// As a person reads it; a group stands in square brackets.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Word(word) => word.shown(),
            Self::Group(group) => {
                let words: Vec<String> = group.words.iter().map(Word::shown).collect();
                let when = group.when.as_ref().map(|name| format!("when {name}: ")).unwrap_or_default();
                format!("[{when}{}]", words.join(" "))
            }
        }
    }

    /// The words of it.
    #[must_use]
    pub fn words(&self) -> &[Word] {
        match self {
            Self::Word(word) => std::slice::from_ref(word),
            Self::Group(group) => &group.words,
        }
    }
}

/// A program with arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The program; never made of values.
    pub program: String,
    /// What follows.
    pub items: Vec<Item>,
}

impl Template {
    /// Every word, whether or not it can vanish.
    pub fn words(&self) -> impl Iterator<Item = &Word> {
        self.items.iter().flat_map(Item::words)
    }

    pub(super) fn words_mut(&mut self) -> impl Iterator<Item = &mut Word> {
        self.items.iter_mut().flat_map(|item| match item {
            Item::Word(word) => std::slice::from_mut(word).iter_mut(),
            Item::Group(group) => group.words.iter_mut(),
        })
    }

    /// Every parameter that is used, those that only decide about a group included.
    #[must_use]
    pub fn parameters(&self) -> BTreeSet<&str> {
        let deciding = self.items.iter().filter_map(|item| match item {
            Item::Group(Group { when: Some(name), .. }) => Some(name.as_str()),
            _ => None,
        });
        self.words().flat_map(Word::parameters).chain(deciding).collect()
    }
}

/// The placeholder of a parameter.
pub(super) fn placeholder(name: &str) -> String {
    format!("{{{{{PARAMETERS}{name}}}}}")
}

/// `text` so that no reference is seen in it.
pub(crate) fn literal(text: &str) -> String {
    text.replace("${", "$${")
}

/// The placeholder that `text` begins with, and its length in bytes.
pub(super) fn read_placeholder(text: &str) -> Result<(String, usize), Fault> {
    const HINT: &str = "write `{{params.NAME}}` with the name of a parameter, or `\\{{` for two braces";
    let inner = text.strip_prefix("{{").unwrap_or(text);
    let Some(end) = inner.find("}}") else {
        return Err(Fault::new(format!("placeholder {} has no end", quoted(text)), HINT));
    };
    let name = inner[..end].trim().strip_prefix(PARAMETERS).unwrap_or_default();
    if !is_parameter_name(name) {
        return Err(Fault::new(format!("placeholder {} is not known", quoted(&text[..end + 4])), HINT));
    }
    Ok((name.to_owned(), end + 4))
}

/// Reads one element of a command that is a list: nothing but placeholders is special.
pub(crate) fn read_word(text: &str) -> Result<Word, Fault> {
    let mut word = Word::default();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("\\{{") {
            word.push_str("{{");
            rest = &rest[3..];
        } else if rest.starts_with("{{") {
            let (name, length) = read_placeholder(rest)?;
            word.pieces.push(Piece::Value(name));
            rest = &rest[length..];
        } else {
            word.push_char(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    Ok(word)
}

/// Refuses a value where an interpreter expects code (V7's kind): it would be run, not read.
pub(crate) fn check_interpreter(program: &str, words: &[&Word]) -> Result<(), Fault> {
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let texts: Vec<Option<String>> = words.iter().map(|word| word.fixed()).collect();
    // `env sh -c …` and `nice sh -c …` are found as well.
    let fixed = texts.iter().flatten().map(|text| base(text));
    let runs_code = std::iter::once(base(program)).chain(fixed).any(|name| INTERPRETERS.contains(&name.as_str()));
    if !runs_code {
        return Ok(());
    }
    let is_code_option = |text: &String| {
        let together = text.len() > 2 && text.starts_with('-') && !text.starts_with("--");
        CODE_OPTIONS.contains(&text.as_str()) || (together && text.ends_with(['c', 'e']))
    };
    for (option, code) in texts.iter().zip(words.iter().skip(1)) {
        if let Some(option) = option.as_ref().filter(|text| is_code_option(text))
            && code.parameters().next().is_some()
        {
            let message = format!("a value stands in the code after `{option}`, where it would be run");
            let hint = "hand it to the code as an argument after it, or use `shell: true`";
            return Err(Fault::new(message, hint));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_text_and_placeholders() {
        let word = read_word("--x={{params.a}}/{{ params.b }}.\\{{z}}").unwrap();
        assert_eq!(word.parameters().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(word.shown(), "--x={{params.a}}/{{params.b}}.{{z}}");
        assert_eq!(read_word("").unwrap().fixed().as_deref(), Some(""));
        for bad in ["{{a}}", "{{params.}}", "{{params.(}}", "{{params.a", "{{event.a}}", "{{}}", "{{params.a b}}"] {
            assert!(read_word(bad).is_err(), "{bad}");
        }
    }

    // V7: `bash -c` with a value in its code is the injection that argv was to prevent.
    #[test]
    fn no_value_becomes_code_of_an_interpreter() {
        let words = |texts: &[&str]| texts.iter().map(|text| read_word(text).unwrap()).collect::<Vec<_>>();
        let check = |program: &str, texts: &[&str]| {
            let words = words(texts);
            check_interpreter(program, &words.iter().collect::<Vec<_>>()).is_ok()
        };
        assert!(!check("bash", &["-c", "echo {{params.a}}"]));
        assert!(!check("/bin/sh", &["-lc", "{{params.a}}"]));
        assert!(!check("env", &["X=1", "python3", "-c", "print('{{params.a}}')"]));
        assert!(!check("node", &["--eval", "{{params.a}}"]));
        assert!(check("bash", &["-c", "echo \"$1\"", "bash", "{{params.a}}"]));
        assert!(check("python3", &["script.py", "{{params.a}}"]));
        assert!(check("grep", &["-e", "{{params.a}}"]));
    }
}
