//! One tool as it was when a person agreed. Owns which parts of a definition a model can see and so
//! count as the tool. Refuses to judge a change: same digest or not.

use crate::canonical::{CanonicalError, canonical_members, join_members};
use crate::id::{Digest, IdError, RemoteToolName};

/// The members of a tool's definition that are pinned: everything that reaches a model or decides
/// how a call is treated. Others, like icons, may change freely.
const PINNED_MEMBERS: [&str; 7] =
    ["_meta", "annotations", "description", "inputSchema", "name", "outputSchema", "title"];

/// A definition that cannot be pinned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// The definition has no canonical form.
    #[error("tool definition cannot be pinned: {0}")]
    Definition(#[from] CanonicalError),
    /// The definition has no usable name.
    #[error("tool definition has no usable name")]
    Name(#[source] Option<IdError>),
}

/// A tool's name and the digest of its definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolPin {
    /// The name the server knows.
    pub name: RemoteToolName,
    /// Digest over everything pinned.
    pub digest: Digest,
    /// Digest of each pinned member that is present, by name: they tell which part has changed.
    pub(crate) parts: Vec<(String, Digest)>,
}

impl ToolPin {
    /// Pins the tool whose definition, as the server sent it, is the JSON object `raw`. The order
    /// of keys and white space do not matter; numbers are compared as written.
    ///
    /// # Errors
    /// [`PinError`] for a text that is no object, holds a key twice, or has no usable name.
    pub fn from_raw(raw: &str) -> Result<Self, PinError> {
        let members = canonical_members(raw)?;
        let named = members.get("name").and_then(|name| serde_json::from_str::<String>(name).ok());
        let name = named.ok_or(PinError::Name(None))?;
        let name = RemoteToolName::new(name).map_err(|error| PinError::Name(Some(error)))?;
        let pinned: Vec<(&str, &str)> =
            PINNED_MEMBERS.into_iter().filter_map(|key| members.get(key).map(|value| (key, value.as_str()))).collect();
        let parts = pinned.iter().map(|(key, value)| ((*key).to_owned(), Digest::of(value.as_bytes()))).collect();
        let digest = Digest::of(join_members(pinned)?.as_bytes());
        Ok(Self { name, digest, parts })
    }

    /// The members that differ in `other`, for people.
    #[must_use]
    pub fn changed_parts(&self, other: &Self) -> Vec<&'static str> {
        let part = |pin: &Self, key: &str| pin.parts.iter().find(|(name, _)| name == key).map(|(_, digest)| *digest);
        PINNED_MEMBERS.into_iter().filter(|key| part(self, key) != part(other, key)).collect()
    }
}
