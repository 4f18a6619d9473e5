//! Prompts that a file describes (`type: agent`): messages with places for values. Owns what such a prompt is, what MCP
//! tells of it, and filling it in. Refuses to look at a value twice: it becomes text of one message, whatever is in it.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::command::{Piece, Word};
use crate::visible::quoted;

/// Longest value of one argument, in bytes: a file of code fits, and a handful of them into a message.
pub const PROMPT_VALUE_BYTES_MAX: usize = 64 * 1024;

/// Who speaks a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptRole {
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// The roles by name.
pub(crate) const ROLES: [(&str, PromptRole); 2] = [("user", PromptRole::User), ("assistant", PromptRole::Assistant)];

impl PromptRole {
    /// The role's name in MCP.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// A value that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptArgument {
    /// Its name, as placeholders have it.
    pub name: String,
    /// What it is, for people; may be empty.
    pub description: String,
    /// Whether the prompt cannot be had without it.
    pub required: bool,
    /// What stands for it when it is not given.
    pub default: Option<String>,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptMessage {
    /// Who speaks.
    pub role: PromptRole,
    /// What is said.
    pub text: Word,
}

/// A prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptTemplate {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The values it asks for, in the order of the file.
    pub arguments: Vec<PromptArgument>,
    /// What it says; at least one message.
    pub messages: Vec<PromptMessage>,
    /// What the file says beside: `category`, `capabilities`, `trigger`, `quality_gate`. Handed on, used for nothing.
    pub facts: BTreeMap<String, Json>,
}

/// Values that do not fit a prompt. Says which argument; never what was given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// One that it cannot be had without.
    #[error("argument `{0}` is required")]
    Missing(String),
    /// One that it does not have.
    #[error("argument {} is unknown", quoted(.0))]
    Unknown(String),
    /// Not a text.
    #[error("argument `{0}` is not a string")]
    NotText(String),
    /// Longer than [`PROMPT_VALUE_BYTES_MAX`].
    #[error("argument `{name}` has {bytes} bytes, at most {PROMPT_VALUE_BYTES_MAX} are allowed")]
    TooLong {
        /// The argument.
        name: String,
        /// Its length.
        bytes: usize,
    },
    /// The whole of it, which is not put together then.
    #[error("prompt of {bytes} bytes exceeds the limit of {limit} bytes")]
    Whole {
        /// Bytes of all texts together.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
}

/// What stands at a piece.
fn told<'a>(piece: &'a Piece, texts: &BTreeMap<&str, &'a str>) -> &'a str {
    match piece {
        Piece::Text(text) => text,
        Piece::Value(name) => texts.get(name.as_str()).copied().unwrap_or_default(),
    }
}

impl PromptTemplate {
    /// What `prompts/list` tells of it.
    #[must_use]
    pub fn definition(&self) -> Json {
        let argument = |argument: &PromptArgument| {
            let mut told = Map::new();
            told.insert("name".to_owned(), json!(argument.name));
            if !argument.description.is_empty() {
                told.insert("description".to_owned(), json!(argument.description));
            }
            told.insert("required".to_owned(), json!(argument.required));
            Json::Object(told)
        };
        let mut told = Map::new();
        told.insert("name".to_owned(), json!(self.name));
        told.insert("description".to_owned(), json!(self.description));
        told.insert("arguments".to_owned(), self.arguments.iter().map(argument).collect());
        if !self.facts.is_empty() {
            let facts = self.facts.iter().map(|(key, value)| (format!("plugward/{key}"), value.clone())).collect();
            told.insert("_meta".to_owned(), Json::Object(facts));
        }
        Json::Object(told)
    }

    /// The result of `prompts/get` with these values, of at most `max_bytes` of text. A value that may be absent and is stands as its default, or as no
    /// text at all.
    ///
    /// # Errors
    /// [`PromptError`] when a value is missing, unknown, no text or too long.
    pub fn fill(&self, values: &Map<String, Json>, max_bytes: u64) -> Result<Json, PromptError> {
        let mut texts: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, value) in values {
            let Some(argument) = self.arguments.iter().find(|argument| argument.name == *name) else {
                return Err(PromptError::Unknown(name.clone()));
            };
            let Some(text) = value.as_str() else { return Err(PromptError::NotText(name.clone())) };
            if text.len() > PROMPT_VALUE_BYTES_MAX {
                return Err(PromptError::TooLong { name: name.clone(), bytes: text.len() });
            }
            texts.insert(&argument.name, text);
        }
        for argument in &self.arguments {
            match (&argument.default, texts.contains_key(argument.name.as_str())) {
                (_, true) => {}
                (Some(default), false) => {
                    texts.insert(&argument.name, default);
                }
                (None, false) if argument.required => return Err(PromptError::Missing(argument.name.clone())),
                (None, false) => {}
            }
        }
        // Before any of it is made: one value in many places is far more than what was sent.
        let pieces = self.messages.iter().flat_map(|message| &message.text.pieces);
        let bytes = pieces.map(|piece| told(piece, &texts).len() as u64).fold(0, u64::saturating_add);
        if bytes > max_bytes {
            return Err(PromptError::Whole { bytes, limit: max_bytes });
        }
        let message = |message: &PromptMessage| {
            let text: String = message.text.pieces.iter().map(|piece| told(piece, &texts)).collect();
            json!({"role": message.role.as_str(), "content": {"type": "text", "text": text}})
        };
        let messages: Vec<Json> = self.messages.iter().map(message).collect();
        Ok(json!({"description": self.description, "messages": messages}))
    }

    /// Every message as it is written, for whoever has to agree to it.
    #[must_use]
    pub fn in_words(&self) -> Vec<String> {
        self.messages.iter().map(|message| format!("{}: {}", message.role.as_str(), message.text.shown())).collect()
    }
}
