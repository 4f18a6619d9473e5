//! Identifiers as types of their own. Owns the form of plugin ids, tool names, tool ids, permission
//! names and digests; whoever holds one knows it was checked. Refuses anything outside ASCII and
//! never repairs a value: what does not fit is an error that names it.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::visible::quoted;

/// Longest plugin id, in bytes: it becomes a folder name and a prefix of tool names.
pub const PLUGIN_ID_BYTES_MAX: usize = 64;

/// Longest tool name as a server spells it, in bytes (the figure the protocol recommends).
pub const REMOTE_TOOL_NAME_BYTES_MAX: usize = 128;

/// Longest permission name, in bytes.
pub const PERMISSION_NAME_BYTES_MAX: usize = 64;

/// What every digest text starts with.
const DIGEST_PREFIX: &str = "sha256:";

/// Bytes of a SHA-256 value.
const DIGEST_BYTES: usize = 32;

/// A text that is not the identifier it was taken for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not a plugin id.
    #[error(
        "plugin id {} is not valid: use lower-case ASCII letters, digits, `.`, `_`, `-`, starting with a letter or digit, at most {PLUGIN_ID_BYTES_MAX} characters",
        quoted(.0)
    )]
    Plugin(String),
    /// Not a tool name.
    #[error(
        "tool name {} is not valid: use 1 to {REMOTE_TOOL_NAME_BYTES_MAX} ASCII letters, digits, `_`, `-` and single dots inside",
        quoted(.0)
    )]
    RemoteTool(String),
    /// Not a tool of the plugin it was read for.
    #[error("tool id {} does not start with `{plugin}.`", quoted(.text))]
    ToolOfOtherPlugin {
        /// The text that was read.
        text: String,
        /// The plugin it had to belong to.
        plugin: PluginId,
    },
    /// Not a permission name.
    #[error(
        "permission {} is not valid: use lower-case words joined by dots, like `notes.read`",
        quoted(.0)
    )]
    Permission(String),
    /// Not a digest.
    #[error("digest {} is not `sha256:` and 64 lower-case hex digits", quoted(.0))]
    Digest(String),
}

/// Implements what every checked text has in common.
macro_rules! checked_text {
    ($name:ident) => {
        impl $name {
            /// The identifier as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

/// The id of a plugin: `^[a-z0-9][a-z0-9._-]*$`, at most [`PLUGIN_ID_BYTES_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PluginId(String);

impl PluginId {
    /// Checks `text`.
    ///
    /// # Errors
    /// [`IdError::Plugin`] when it does not have the form.
    pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
        let text = text.into();
        let starts_well = text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
        if starts_well && text.len() <= PLUGIN_ID_BYTES_MAX && text.chars().all(legal) {
            Ok(Self(text))
        } else {
            Err(IdError::Plugin(text))
        }
    }
}

checked_text!(PluginId);

/// A tool's name exactly as its server spells it: 1 to [`REMOTE_TOOL_NAME_BYTES_MAX`] ASCII
/// letters, digits, `_`, `.`, `-`; case is kept, dots only one at a time between other characters
/// (requirement 59).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RemoteToolName(String);

impl RemoteToolName {
    /// Checks `text`.
    ///
    /// # Errors
    /// [`IdError::RemoteTool`] when it does not have the form.
    pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
        let text = text.into();
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let sized = (1..=REMOTE_TOOL_NAME_BYTES_MAX).contains(&text.len());
        let dotted = text.starts_with('.') || text.ends_with('.') || text.contains("..");
        if sized && text.chars().all(legal) && !dotted { Ok(Self(text)) } else { Err(IdError::RemoteTool(text)) }
    }
}

checked_text!(RemoteToolName);

/// A tool of a plugin, written `<plugin_id>.<remote_name>` (requirement 34).
///
/// Plugin ids may contain dots, so the text alone does not say where the id ends: it is only read
/// with [`ToolId::parse`], which is told the plugin, and never by splitting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolId {
    plugin: PluginId,
    name: RemoteToolName,
}

impl ToolId {
    /// The tool `name` of `plugin`.
    #[must_use]
    pub fn new(plugin: PluginId, name: RemoteToolName) -> Self {
        Self { plugin, name }
    }

    /// Reads `text` as a tool of `plugin`.
    ///
    /// # Errors
    /// [`IdError::ToolOfOtherPlugin`] without that plugin's prefix, [`IdError::RemoteTool`] when the
    /// rest is no tool name.
    pub fn parse(text: &str, plugin: &PluginId) -> Result<Self, IdError> {
        let rest = text.strip_prefix(plugin.as_str()).and_then(|rest| rest.strip_prefix('.'));
        match rest {
            Some(name) => Ok(Self::new(plugin.clone(), RemoteToolName::new(name)?)),
            None => Err(IdError::ToolOfOtherPlugin { text: text.to_owned(), plugin: plugin.clone() }),
        }
    }

    /// The plugin the tool belongs to.
    #[must_use]
    pub fn plugin(&self) -> &PluginId {
        &self.plugin
    }

    /// The name the server knows.
    #[must_use]
    pub fn name(&self) -> &RemoteToolName {
        &self.name
    }
}

impl fmt::Display for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.plugin, self.name)
    }
}

/// A permission's name: lower-case words joined by dots, at least two, like `notes.read`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PermissionName(String);

impl PermissionName {
    /// Checks `text`.
    ///
    /// # Errors
    /// [`IdError::Permission`] when it does not have the form.
    pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
        let text = text.into();
        let word = |word: &str| {
            word.starts_with(|c: char| c.is_ascii_lowercase())
                && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-'))
        };
        let sized = text.len() <= PERMISSION_NAME_BYTES_MAX;
        if sized && text.contains('.') && text.split('.').all(word) {
            Ok(Self(text))
        } else {
            Err(IdError::Permission(text))
        }
    }
}

checked_text!(PermissionName);

/// A SHA-256 digest, written `sha256:` and 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; DIGEST_BYTES]);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// A digest that was computed elsewhere, for instance over a stream.
    #[must_use]
    pub fn from_bytes(bytes: [u8; DIGEST_BYTES]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; DIGEST_BYTES] {
        &self.0
    }

    /// The 64 hex digits without the prefix.
    #[must_use]
    pub fn hex(&self) -> String {
        let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
        self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{DIGEST_PREFIX}{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let refused = || IdError::Digest(text.to_owned());
        let hex = text.strip_prefix(DIGEST_PREFIX).ok_or_else(refused)?;
        let nibble = |digit: u8| match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            _ => Err(refused()),
        };
        if hex.len() != 2 * DIGEST_BYTES {
            return Err(refused());
        }
        let mut bytes = [0; DIGEST_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            *byte = (nibble(pair[0])? << 4) | nibble(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(id: &str) -> PluginId {
        id.parse().unwrap()
    }

    // Requirements 34, 59: ids are ASCII, so nothing that only looks like an id passes for it.
    #[test]
    fn plugin_ids_follow_the_ascii_rule() {
        for good in ["a", "0", "example-mcp", "a.b_c-9", &"x".repeat(64)] {
            assert!(PluginId::new(good).is_ok(), "{good}");
        }
        let long = "x".repeat(65);
        for bad in ["", "-a", ".a", "_a", "A", "é", "٣x", "ａ", "a b", "a/b", "a\0", &long] {
            assert_eq!(PluginId::new(bad), Err(IdError::Plugin(bad.to_owned())));
        }
    }

    // Requirement 59: real servers use camelCase, so case is kept; look-alikes are refused.
    #[test]
    fn remote_tool_names_keep_case_and_refuse_unicode_and_double_dots() {
        for good in ["search", "readFile", "a.b", "_x", "A-1", &"x".repeat(128)] {
            assert_eq!(RemoteToolName::new(good).unwrap().as_str(), good);
        }
        let long = "x".repeat(129);
        for bad in ["", "é", "²", "٣x", "ａ", "x..y", ".a", "a.", "a b", "a\n", "a/b", &long] {
            assert!(RemoteToolName::new(bad).is_err(), "{bad}");
        }
    }

    // Requirement 34: a manifest cannot claim a tool of another plugin.
    #[test]
    fn a_tool_id_is_read_only_for_its_own_plugin() {
        let tool = ToolId::parse("a.b.c", &plugin("a")).unwrap();
        assert_eq!((tool.plugin().as_str(), tool.name().as_str()), ("a", "b.c"));
        let other = ToolId::parse("a.b.c", &plugin("a.b")).unwrap();
        assert_eq!(other.name().as_str(), "c");
        // Same text, different tools: what tells them apart is the type, not the text.
        assert_eq!(tool.to_string(), other.to_string());
        assert_ne!(tool, other);
        let refused = ToolId::parse("other.search", &plugin("a")).unwrap_err();
        assert_eq!(refused.to_string(), "tool id `other.search` does not start with `a.`");
        for bad in ["a", "a.", "ab.c", "a..c", ""] {
            assert!(ToolId::parse(bad, &plugin("a")).is_err(), "{bad}");
        }
    }

    #[test]
    fn permission_names_are_dotted_words() {
        for good in ["notes.read", "ui.side-bar", "a.b.c9"] {
            assert!(PermissionName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "notes", "notes.", ".read", "Notes.read", "notes..read", "notes.réad"] {
            assert!(PermissionName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn digests_survive_text_and_serde_and_refuse_near_misses() {
        let digest = Digest::of(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse(), Ok(digest));
        let json = serde_json::to_string(&digest).unwrap();
        assert_eq!(serde_json::from_str::<Digest>(&json).unwrap(), digest);
        let upper = text.to_uppercase();
        for bad in ["", "sha256:", &text[7..], &text[..70], &upper, "md5:00"] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }

    // A name with an escape sequence must not reach the terminal through the error about it.
    #[test]
    fn errors_show_hostile_values_escaped() {
        let error = PluginId::new("a\u{1b}[31m").unwrap_err().to_string();
        assert!(error.contains("\\u{1b}") && !error.contains('\u{1b}'));
    }
}
