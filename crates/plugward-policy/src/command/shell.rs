//! Scripts of `shell: true`. Owns turning each placeholder into a reference to a positional parameter, quoted as its
//! place in the script demands, so that a value is never part of the text a shell reads. Refuses placeholders in places
//! where even a reference would be split, evaluated or lost.

use super::Fault;
use super::template::read_placeholder;
use crate::visible::quoted;

/// A script for the shell and the parameters it takes, in the order of `$1`, `$2` and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellScript {
    /// The script as the shell gets it.
    pub script: String,
    /// The parameters, each once.
    pub parameters: Vec<String>,
    /// Those whose value begins a word of the script somewhere, where it could be taken for an option.
    pub leading: Vec<String>,
}

/// Where in a script a character stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Plain,
    Single,
    Double,
    /// In `$( )`, which begins anew.
    Inner,
    /// In `( )` of a subshell.
    Paren,
}

/// Reads a script.
pub(crate) fn read_script(text: &str) -> Result<ShellScript, Fault> {
    let mut reader = Reader {
        out: String::new(),
        places: vec![Place::Plain],
        parameters: Vec::new(),
        leading: Vec::new(),
        word_begins: true,
    };
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            '{' if rest.starts_with("{{") => reader.value(text, rest)?,
            '\\' if rest.starts_with("\\{{") => reader.copy("{{", &rest[3..]),
            _ => reader.character(first, rest)?,
        };
    }
    if reader.places.len() > 1 {
        return Err(Fault::new("script has a quote or a parenthesis that is not closed", "close it"));
    }
    if reader.out.trim().is_empty() {
        return Err(Fault::new("command is empty", "write a script"));
    }
    Ok(ShellScript { script: reader.out, parameters: reader.parameters, leading: reader.leading })
}

struct Reader {
    out: String,
    places: Vec<Place>,
    parameters: Vec<String>,
    leading: Vec<String>,
    word_begins: bool,
}

impl Reader {
    fn place(&self) -> Place {
        self.places.last().copied().unwrap_or(Place::Plain)
    }

    fn copy<'t>(&mut self, text: &str, rest: &'t str) -> &'t str {
        self.out.push_str(text);
        self.word_begins = false;
        rest
    }

    fn value<'t>(&mut self, whole: &str, rest: &'t str) -> Result<&'t str, Fault> {
        let (name, length) = read_placeholder(rest)?;
        let refuse = |place: &str| {
            let message = format!("placeholder {} stands {place}", quoted(&rest[..length]));
            Err(Fault::new(message, "put the value into a variable first, as in `v={{params.NAME}}`, and use that"))
        };
        if whole.contains("<<") {
            return refuse("in a script with a here-document");
        }
        if whole.contains("$'") {
            return refuse("in a script with `$'` quotes");
        }
        if whole.contains('`') {
            return refuse("in a script with backquotes; write `$(…)` for them");
        }
        if ["((", "$[", "[["].iter().any(|sign| whole.contains(sign)) {
            return refuse("in a script with arithmetic or `[[`, which would evaluate it");
        }
        if has_word(whole, "eval") {
            return refuse("in a script with `eval`, which would read it as commands");
        }
        if whole.contains("$(") && has_word(whole, "case") {
            return refuse("in a script with both `$(…)` and `case`, whose brackets cannot be told apart");
        }
        if self.out.ends_with('$') {
            return refuse("right after `$`");
        }
        if let Some(open) = self.out.rfind("${")
            && !self.out[open..].contains('}')
        {
            return refuse("inside `${…}`");
        }
        if !self.parameters.contains(&name) {
            self.parameters.push(name.clone());
        }
        let number = self.parameters.iter().position(|known| *known == name).unwrap_or_default() + 1;
        if self.word_begins && !self.leading.contains(&name) {
            self.leading.push(name);
        }
        match self.place() {
            Place::Double => self.out.push_str(&format!("${{{number}}}")),
            Place::Single => self.out.push_str(&format!("'\"${{{number}}}\"'")),
            Place::Plain | Place::Inner | Place::Paren => self.out.push_str(&format!("\"${{{number}}}\"")),
        }
        // A word still begins after it: the value may be empty.
        Ok(&rest[length..])
    }

    fn character<'t>(&mut self, first: char, rest: &'t str) -> Result<&'t str, Fault> {
        let place = self.place();
        let begins = self.word_begins;
        self.word_begins = false;
        let mut length = first.len_utf8();
        match (place, first) {
            (Place::Single, '\'') | (Place::Double, '"') => {
                self.places.pop();
                self.word_begins = begins;
            }
            (Place::Single, _) => {}
            (_, '\\') => length += rest[1..].chars().next().map_or(0, char::len_utf8),
            (_, '$') if rest.starts_with("$(") => {
                self.places.push(Place::Inner);
                self.word_begins = true;
                length = 2;
            }
            (Place::Double, _) => {}
            (_, '\'') => {
                self.places.push(Place::Single);
                self.word_begins = begins;
            }
            (_, '"') => {
                self.places.push(Place::Double);
                self.word_begins = begins;
            }
            (_, '#') if begins => {
                length = rest.find('\n').unwrap_or(rest.len());
                if rest[..length].contains("{{") {
                    return Err(Fault::new("a placeholder stands in a comment of the script", "leave it out"));
                }
            }
            (_, '(') => {
                self.places.push(Place::Paren);
                self.word_begins = true;
            }
            (Place::Inner | Place::Paren, ')') => {
                self.places.pop();
            }
            (_, ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>') => self.word_begins = true,
            _ => {}
        }
        self.out.push_str(&rest[..length]);
        Ok(&rest[length..])
    }
}

/// Whether `word` stands in the script as a word of its own.
fn has_word(script: &str, word: &str) -> bool {
    script.split(|character: char| !(character.is_alphanumeric() || character == '_')).any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_placeholder_becomes_a_quoted_reference() {
        for (text, wanted) in [
            ("echo {{params.a}}", "echo \"${1}\""),
            ("echo \"x {{params.a}} y\"", "echo \"x ${1} y\""),
            ("echo '{{params.a}}'", "echo ''\"${1}\"''"),
            ("echo {{params.a}} {{params.b}} {{params.a}}", "echo \"${1}\" \"${2}\" \"${1}\""),
            ("x=\"$(cat {{params.a}})\"; echo $x", "x=\"$(cat \"${1}\")\"; echo $x"),
            ("a | (b {{params.a}}; c) # it's", "a | (b \"${1}\"; c) # it's"),
            ("echo \\\"{{params.a}}", "echo \\\"\"${1}\""),
            ("docker ps --format '\\{{.Names}}'", "docker ps --format '{{.Names}}'"),
        ] {
            assert_eq!(read_script(text).unwrap().script, wanted, "{text}");
        }
        let script = read_script("grep -- {{params.p}} \"{{params.f}}\" x{{params.g}}").unwrap();
        assert_eq!(script.parameters, ["p", "f", "g"]);
        assert_eq!(script.leading, ["p", "f"]);
        // An empty value before it leaves the next one at the beginning of the word.
        for text in ["x {{params.a}}{{params.b}}", "x \"{{params.a}}\"'{{params.b}}'"] {
            assert_eq!(read_script(text).unwrap().leading, ["a", "b"], "{text}");
        }
        assert_eq!(read_script("x \"-{{params.a}}\"{{params.b}}").unwrap().leading, [""; 0]);
    }

    // Requirement 171: where a reference would be evaluated or split, there is no placeholder.
    #[test]
    fn places_where_a_reference_is_not_enough_are_refused() {
        for text in [
            "cat <<EOF\n{{params.a}}\nEOF",
            "echo $(( {{params.a}} ))",
            "echo $[{{params.a}}]",
            "[[ {{params.a}} -eq 1 ]] && true",
            "eval {{params.a}}",
            "echo \"$(case $x in a) echo {{params.a}};; esac)\"",
            "echo `cat {{params.a}}`",
            "echo ${x:-{{params.a}}}",
            "echo ${{params.a}}",
            "echo # {{params.a}}",
            "echo $'{{params.a}}'",
            "echo '{{params.a}}",
            "echo \"{{params.a}}",
            "(echo {{params.a}}",
            "",
            "   ",
            "echo {{a}}",
        ] {
            assert!(read_script(text).is_err(), "{text}");
        }
    }
}
