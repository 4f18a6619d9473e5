//! From the values of one call to the arguments of one process. Owns the one rule that matters: a value is part of
//! exactly one argument, whatever is in it. Refuses values that no process can be given, and values a program would
//! take for an option.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::parameter::scalar_text;
use super::template::{Group, Item, Piece, Word};
use super::{CommandTool, Invocation, Parameter, ParameterKind, is_parameter_name};

/// Longest argument, in bytes: what Linux takes, its closing NUL aside.
pub const ARGUMENT_BYTES_MAX: usize = 128 * 1024 - 1;

/// Most arguments of one process, in bytes, each with its closing NUL. Linux takes 2 MiB by default, environment
/// included.
pub const ARGUMENTS_BYTES_MAX: usize = 1024 * 1024;

/// Characters of an unknown name that an error repeats.
const SHOWN_NAME_CHARS: usize = 64;

/// Values that make no call. Names only: a value is never repeated (W11).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// The tool has no such parameter.
    #[error("parameter `{name}` is not known to this tool")]
    Unknown {
        /// The name, cut.
        name: String,
    },
    /// A required one is missing.
    #[error("parameter `{name}` is required")]
    Missing {
        /// The parameter.
        name: String,
    },
    /// Not a value of its kind.
    #[error("parameter `{name}` is not of type `{expected}`")]
    Type {
        /// The parameter.
        name: String,
        /// The kind it has to be of.
        expected: String,
    },
    /// A NUL byte, which ends an argument (W6).
    #[error("parameter `{name}` holds a NUL character, which no command can be given")]
    Nul {
        /// The parameter.
        name: String,
    },
    /// The program would take it for an option (W19).
    #[error(
        "parameter `{name}` begins with `-` and would be taken for an option; put `--` before it in the command, or set \
         `allow_leading_dash` for it"
    )]
    LeadingDash {
        /// The parameter.
        name: String,
    },
    /// Longer than [`ARGUMENT_BYTES_MAX`].
    #[error(
        "parameter `{name}` makes an argument of {bytes} bytes, at most {ARGUMENT_BYTES_MAX} fit; large values belong in \
         `stdin`"
    )]
    TooLong {
        /// The parameter.
        name: String,
        /// Bytes of the argument.
        bytes: usize,
    },
    /// More than [`ARGUMENTS_BYTES_MAX`] together.
    #[error("arguments have {bytes} bytes together, at most {ARGUMENTS_BYTES_MAX} fit; large values belong in `stdin`")]
    TooMuch {
        /// Bytes of all arguments.
        bytes: usize,
    },
}

/// What one call gives to its process.
#[derive(Clone, PartialEq, Eq)]
pub struct Prepared {
    /// The arguments after the program's own name.
    pub arguments: Vec<String>,
    /// What it reads from stdin; nothing when `None`.
    pub stdin: Option<Vec<u8>>,
}

impl std::fmt::Debug for Prepared {
    /// Counts only: values do not belong in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("arguments", &self.arguments.len())
            .field("stdin_bytes", &self.stdin.as_ref().map(Vec::len))
            .finish()
    }
}

/// A value as texts.
enum Texts {
    One(String),
    Flag(bool),
    Many(Vec<String>),
}

impl Texts {
    /// Whether a group that asks for it is there.
    fn is_set(&self) -> bool {
        match self {
            Self::One(_) => true,
            Self::Flag(flag) => *flag,
            Self::Many(texts) => !texts.is_empty(),
        }
    }

    /// One text for each argument it makes.
    fn each(&self) -> Vec<&str> {
        match self {
            Self::One(text) => vec![text],
            Self::Flag(true) => vec!["true"],
            Self::Flag(false) => vec!["false"],
            Self::Many(texts) => texts.iter().map(String::as_str).collect(),
        }
    }
}

impl CommandTool {
    /// The arguments and stdin of a call with `values`, which hold the value of each given parameter as JSON. Defaults
    /// stand in for what is not given.
    ///
    /// # Errors
    /// [`ArgumentError`] naming the parameter, never its value.
    pub fn prepare(&self, values: &BTreeMap<String, Box<RawValue>>) -> Result<Prepared, ArgumentError> {
        if let Some(name) = values.keys().find(|name| self.parameter(name).is_none()) {
            return Err(ArgumentError::Unknown { name: shown_name(name) });
        }
        let mut known = BTreeMap::new();
        for parameter in &self.parameters {
            match values.get(&parameter.name) {
                Some(raw) => {
                    known.insert(parameter.name.as_str(), texts(parameter, raw.get())?);
                }
                None => match &parameter.default {
                    Some(default) => {
                        known.insert(parameter.name.as_str(), texts(parameter, &default.to_string())?);
                    }
                    None if parameter.required => {
                        return Err(ArgumentError::Missing { name: parameter.name.clone() });
                    }
                    None => {}
                },
            }
        }
        let call = Call { tool: self, values: known };
        let arguments = match &self.invocation {
            Invocation::Argv(template) => call.argv(&template.items)?,
            Invocation::Shell(script) => call.positional(&script.script, &script.parameters, &script.leading)?,
        };
        let bytes = arguments.iter().map(|argument| argument.len() + 1).sum();
        if bytes > ARGUMENTS_BYTES_MAX {
            return Err(ArgumentError::TooMuch { bytes });
        }
        let stdin = self.stdin.as_ref().and_then(|name| call.values.get(name.as_str())).map(stdin_bytes);
        Ok(Prepared { arguments, stdin })
    }
}

fn shown_name(name: &str) -> String {
    if is_parameter_name(name) {
        return name.to_owned();
    }
    crate::visible(&name.chars().take(SHOWN_NAME_CHARS).collect::<String>())
}

fn texts(parameter: &Parameter, raw: &str) -> Result<Texts, ArgumentError> {
    let wrong = |expected: String| ArgumentError::Type { name: parameter.name.clone(), expected };
    match parameter.kind {
        ParameterKind::Array => {
            let entries: Vec<Box<RawValue>> = serde_json::from_str(raw).map_err(|_| wrong("array".to_owned()))?;
            let kind = parameter.entries.unwrap_or(ParameterKind::String);
            let entry = |raw: Box<RawValue>| {
                scalar_text(kind, raw.get()).ok_or_else(|| wrong(format!("array of {}", kind.as_str())))
            };
            entries.into_iter().map(entry).collect::<Result<_, _>>().map(Texts::Many)
        }
        kind => {
            let text = scalar_text(kind, raw).ok_or_else(|| wrong(kind.as_str().to_owned()))?;
            Ok(if kind == ParameterKind::Boolean { Texts::Flag(text == "true") } else { Texts::One(text) })
        }
    }
}

/// A list is read one entry a line, which is what programs that take lists from stdin expect.
fn stdin_bytes(texts: &Texts) -> Vec<u8> {
    match texts {
        Texts::Many(texts) => texts.iter().flat_map(|text| [text.as_bytes(), b"\n"].concat()).collect(),
        one => one.each().concat().into_bytes(),
    }
}

/// One call while its arguments are made.
struct Call<'t> {
    tool: &'t CommandTool,
    values: BTreeMap<&'t str, Texts>,
}

impl Call<'_> {
    fn argv(&self, items: &[Item]) -> Result<Vec<String>, ArgumentError> {
        let mut arguments = Vec::new();
        // After `--` nothing is an option, to every program that knows it.
        let mut guarded = false;
        for item in items {
            let words = match item {
                Item::Word(word) => std::slice::from_ref(word),
                Item::Group(group) if self.is_there(group) => group.words.as_slice(),
                Item::Group(_) => &[],
            };
            for word in words {
                guarded |= word.fixed().is_some_and(|text| text == "--");
                self.word(word, guarded, &mut arguments)?;
            }
        }
        Ok(arguments)
    }

    fn is_there(&self, group: &Group) -> bool {
        match &group.when {
            Some(name) => self.values.get(name.as_str()).is_some_and(Texts::is_set),
            None => group.words.iter().flat_map(Word::parameters).all(|name| match self.values.get(name) {
                Some(Texts::Many(texts)) => !texts.is_empty(),
                Some(_) => true,
                None => false,
            }),
        }
    }

    /// Adds the argument of a word, or one for each entry of the array in it.
    fn word(&self, word: &Word, guarded: bool, arguments: &mut Vec<String>) -> Result<(), ArgumentError> {
        let mut made = vec![String::new()];
        for piece in &word.pieces {
            let texts = match piece {
                Piece::Text(text) => vec![text.as_str()],
                Piece::Value(name) => self.value(name)?.each(),
            };
            // At most one array stands in a word, so this grows once.
            made = texts.iter().flat_map(|text| made.iter().map(move |begin| format!("{begin}{text}"))).collect();
        }
        let leading = match word.pieces.iter().find(|piece| !matches!(piece, Piece::Text(text) if text.is_empty())) {
            Some(Piece::Value(name)) if !guarded => Some(name.as_str()),
            _ => None,
        };
        for argument in &made {
            self.check(word.parameters(), argument)?;
            if let Some(name) = leading {
                self.refuse_option(name, argument)?;
            }
        }
        arguments.extend(made);
        Ok(())
    }

    fn value(&self, name: &str) -> Result<&Texts, ArgumentError> {
        self.values.get(name).ok_or_else(|| ArgumentError::Missing { name: name.to_owned() })
    }

    /// What follows the program's name for a script: `-c`, the script, a name for `$0`, and the values.
    fn positional(
        &self,
        script: &str,
        parameters: &[String],
        leading: &[String],
    ) -> Result<Vec<String>, ArgumentError> {
        let mut arguments = vec!["-c".to_owned(), script.to_owned(), self.tool.name.clone()];
        for name in parameters {
            let text = self.value(name)?.each().concat();
            self.check(std::iter::once(name.as_str()), &text)?;
            if leading.contains(name) {
                self.refuse_option(name, &text)?;
            }
            arguments.push(text);
        }
        Ok(arguments)
    }

    fn check<'n>(&self, mut names: impl Iterator<Item = &'n str>, argument: &str) -> Result<(), ArgumentError> {
        // Without a value in it, it was checked when the tool was loaded.
        let Some(name) = names.next() else { return Ok(()) };
        if argument.contains('\0') {
            let holds = |name: &&str| self.values.get(*name).is_some_and(|it| it.each().concat().contains('\0'));
            let name = std::iter::once(name).chain(names).find(holds).unwrap_or(name);
            return Err(ArgumentError::Nul { name: name.to_owned() });
        }
        if argument.len() > ARGUMENT_BYTES_MAX {
            return Err(ArgumentError::TooLong { name: name.to_owned(), bytes: argument.len() });
        }
        Ok(())
    }

    fn refuse_option(&self, name: &str, argument: &str) -> Result<(), ArgumentError> {
        let allowed = self.tool.parameter(name).is_some_and(|parameter| parameter.allow_leading_dash);
        if argument.starts_with('-') && !allowed {
            return Err(ArgumentError::LeadingDash { name: name.to_owned() });
        }
        Ok(())
    }
}
