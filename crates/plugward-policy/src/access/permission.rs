//! One thing of the machine a plugin asks for, as the text that stands in a manifest and in a
//! grant. Owns the kinds and their spelling. Refuses a second spelling: two permissions are the same
//! exactly when their texts are.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::danger::{Use, place_flag};
use super::net::{NetError, NetRule};
use super::path::{PathError, PathGrant};
use super::variable::{VariableError, VariableName};
use crate::id::{IdError, PermissionName};
use crate::visible::quoted;

/// The permission to start other programs; it has no value.
const SPAWN: &str = "process.spawn";

/// The kinds that take a value, as written before the colon.
const FILES_READ: &str = "fs.read";
const FILES_WRITE: &str = "fs.write";
const NETWORK: &str = "net";
const HOST_VARIABLE: &str = "env";
const SECRET: &str = "secret";
const VALUED: [&str; 5] = [FILES_READ, FILES_WRITE, NETWORK, HOST_VARIABLE, SECRET];

/// A text that is no permission of the machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// Not one of the kinds.
    #[error(
        "permission {} is not known: use `fs.read:PATH`, `fs.write:PATH`, `net:HOST[:PORT]`, `env:NAME` or `process.spawn`",
        quoted(.0)
    )]
    Kind(String),
    /// A kind without what it is about.
    #[error("permission `{0}` says not what for: write `{0}:…`")]
    NoValue(&'static str),
    /// Not a place in the file system.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Not a host.
    #[error(transparent)]
    Net(#[from] NetError),
    /// Not a variable.
    #[error(transparent)]
    Variable(#[from] VariableError),
    /// Known to the format and not offered by this version.
    #[error("permission {} is not supported by this version", quoted(.0))]
    Unsupported(String),
}

/// One thing of the machine a plugin asks for, beside the [names](PermissionName) its tools use.
///
/// ```
/// use plugward_policy::AccessPermission;
/// let permission: AccessPermission = "net:api.example.test".parse().unwrap();
/// assert_eq!(permission.to_string(), "net:api.example.test:443");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AccessPermission {
    /// `process.spawn`: to start other programs.
    Spawn,
    /// `fs.write:PATH`: to read, change, create and delete a file, or a folder with all in it.
    FilesWrite(PathGrant),
    /// `fs.read:PATH`: to read a file, or a folder with all in it.
    FilesRead(PathGrant),
    /// `net:HOST[:PORT]`: to connect to a host.
    Network(NetRule),
    /// `env:NAME`: to be given a variable of the host's environment.
    HostVariable(VariableName),
}

impl AccessPermission {
    /// Whether `text` is meant as one of these and not as a [`PermissionName`]: it has a value, or
    /// is one of the words kept for them.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.contains(':') || text == SPAWN || VALUED.contains(&text)
    }

    /// Why a person should think twice, if so: a phrase to follow the permission.
    #[must_use]
    pub fn red_flag(&self) -> Option<&'static str> {
        self.red_flag_at(None, None)
    }

    /// As [`AccessPermission::red_flag`], knowing where the user's home is, for a permission that is about an absolute path.
    #[must_use]
    pub fn red_flag_for(&self, home: Option<&str>) -> Option<&'static str> {
        self.red_flag_at(None, home)
    }

    /// As [`AccessPermission::red_flag`], knowing what the path became and where the home is.
    pub(crate) fn red_flag_at(&self, expanded: Option<&str>, home: Option<&str>) -> Option<&'static str> {
        let place = |path: &PathGrant, wanted| {
            let written = place_flag(path.as_str(), home, wanted);
            written.or_else(|| expanded.and_then(|expanded| place_flag(expanded, home, wanted)))
        };
        match self {
            Self::Spawn => None,
            Self::FilesWrite(path) => place(path, Use::Write),
            Self::FilesRead(path) => place(path, Use::Read),
            Self::Network(rule) => rule.red_flag(),
            Self::HostVariable(name) => name.red_flag(),
        }
    }
}

impl fmt::Display for AccessPermission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spawn => f.write_str(SPAWN),
            Self::FilesWrite(path) => write!(f, "{FILES_WRITE}:{path}"),
            Self::FilesRead(path) => write!(f, "{FILES_READ}:{path}"),
            Self::Network(rule) => write!(f, "{NETWORK}:{rule}"),
            Self::HostVariable(name) => write!(f, "{HOST_VARIABLE}:{name}"),
        }
    }
}

impl FromStr for AccessPermission {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        if text == SPAWN {
            return Ok(Self::Spawn);
        }
        let Some((kind, value)) = text.split_once(':') else {
            let kind = VALUED.into_iter().find(|kind| *kind == text);
            return Err(kind.map_or_else(|| AccessError::Kind(text.to_owned()), AccessError::NoValue));
        };
        match kind {
            FILES_READ => Ok(Self::FilesRead(PathGrant::new(value)?)),
            FILES_WRITE => Ok(Self::FilesWrite(PathGrant::new(value)?)),
            NETWORK => Ok(Self::Network(NetRule::new(value)?)),
            HOST_VARIABLE => Ok(Self::HostVariable(VariableName::new(value)?)),
            SECRET => Err(AccessError::Unsupported(text.to_owned())),
            _ => Err(AccessError::Kind(text.to_owned())),
        }
    }
}

impl TryFrom<String> for AccessPermission {
    type Error = AccessError;

    fn try_from(text: String) -> Result<Self, AccessError> {
        text.parse()
    }
}

impl From<AccessPermission> for String {
    fn from(permission: AccessPermission) -> String {
        permission.to_string()
    }
}

/// Anything that can stand in a manifest's `permissions` and be granted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permission {
    /// A name the plugin's tools use, like `notes.read`.
    Named(PermissionName),
    /// A thing of the machine, like `fs.read:/data`.
    Access(AccessPermission),
}

/// A text that is no permission of either sort.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PermissionError {
    /// Meant as a name.
    #[error(transparent)]
    Named(#[from] IdError),
    /// Meant as a thing of the machine.
    #[error(transparent)]
    Access(#[from] AccessError),
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => name.fmt(f),
            Self::Access(access) => access.fmt(f),
        }
    }
}

impl FromStr for Permission {
    type Err = PermissionError;

    fn from_str(text: &str) -> Result<Self, PermissionError> {
        if AccessPermission::is_meant(text) {
            Ok(Self::Access(text.parse()?))
        } else {
            Ok(Self::Named(PermissionName::new(text)?))
        }
    }
}
