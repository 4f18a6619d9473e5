//! What of the machine a plugin may touch: files, hosts, variables, other programs, resources. Owns
//! these permissions as values, their expansion on a machine, their sentences for people, and which
//! of them deserve a second thought. Refuses to enforce anything: a sandbox is told, and reports.

mod address;
mod danger;
mod describe;
mod dial;
mod limits;
mod net;
mod path;
mod permission;
mod url;
mod variable;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub use address::special_address;
pub use describe::{AccessLine, Risk};
pub use limits::{
    DISK_BYTES_DEFAULT, FILE_BYTES_DEFAULT, MEMORY_BYTES_DEFAULT, OPEN_FILES_DEFAULT, PROCESSES_DEFAULT, ResourceLimits,
};
pub use net::{NET_PORT_DEFAULT, NetError, NetRule, NetTarget};
pub use path::{ExpandPathError, GRANT_PATH_BYTES_MAX, PathError, PathGrant};
pub use permission::{AccessError, AccessPermission, Permission, PermissionError};
pub use url::{URL_BYTES_MAX, UrlError, WebUrl};
pub use variable::{VARIABLE_NAME_BYTES_MAX, VariableError, VariableName};

pub(crate) use describe::in_few_words;
pub(crate) use limits::{
    CPU_PERCENT, CPU_SECONDS, DISK_BYTES, FILE_BYTES, MEMORY_BYTES, OPEN_FILES, PROCESSES, WALL_SECONDS,
};

use crate::permission::GrantSet;

/// What of the machine a plugin asks for (requirements 90 to 93). Empty is the default, and means
/// its own package read-only, a private data folder, and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Files and folders it wants to read.
    pub files_read: BTreeSet<PathGrant>,
    /// Files and folders it wants to read and change.
    pub files_write: BTreeSet<PathGrant>,
    /// Hosts it wants to connect to. Empty is no network at all.
    pub network: BTreeSet<NetRule>,
    /// Variables of the host's environment it wants to be given.
    pub host_variables: BTreeSet<VariableName>,
    /// Whether it wants to start other programs.
    pub may_spawn: bool,
    /// How much of the machine it wants to use at most.
    pub limits: ResourceLimits,
}

/// [`Access`] on one machine: each path with the place it stands for. What an approval covers and
/// what a sandbox is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpandedAccess {
    /// Files and folders to read, with their absolute paths.
    pub files_read: BTreeMap<PathGrant, String>,
    /// Files and folders to read and change, with their absolute paths.
    pub files_write: BTreeMap<PathGrant, String>,
    /// Hosts to connect to.
    pub network: BTreeSet<NetRule>,
    /// Variables of the host's environment to pass on.
    pub host_variables: BTreeSet<VariableName>,
    /// Whether other programs may be started.
    pub may_spawn: bool,
    /// How much of the machine may be used.
    pub limits: ResourceLimits,
}

/// One permission that cannot be expanded on this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{permission}`: {error}")]
pub struct AccessFieldError {
    /// The permission.
    pub permission: AccessPermission,
    /// What is wrong with it here.
    pub error: ExpandPathError,
}

/// Every permission that cannot be expanded on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpandAccessError {
    /// The permissions, writes first; at least one.
    pub permissions: Vec<AccessFieldError>,
}

impl fmt::Display for ExpandAccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, permission) in self.permissions.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{permission}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ExpandAccessError {}

impl Access {
    /// Adds `permission`; `false` when it was there already.
    pub fn insert(&mut self, permission: AccessPermission) -> bool {
        match permission {
            AccessPermission::Spawn => !std::mem::replace(&mut self.may_spawn, true),
            AccessPermission::FilesWrite(path) => self.files_write.insert(path),
            AccessPermission::FilesRead(path) => self.files_read.insert(path),
            AccessPermission::Network(rule) => self.network.insert(rule),
            AccessPermission::HostVariable(name) => self.host_variables.insert(name),
        }
    }

    /// Everything asked for, one permission each, most dangerous kind first.
    #[must_use]
    pub fn permissions(&self) -> Vec<AccessPermission> {
        let spawn = self.may_spawn.then_some(AccessPermission::Spawn);
        let writes = self.files_write.iter().cloned().map(AccessPermission::FilesWrite);
        let reads = self.files_read.iter().cloned().map(AccessPermission::FilesRead);
        let network = self.network.iter().cloned().map(AccessPermission::Network);
        let variables = self.host_variables.iter().cloned().map(AccessPermission::HostVariable);
        spawn.into_iter().chain(writes).chain(reads).chain(network).chain(variables).collect()
    }

    /// The places its paths stand for on a machine where the user's home is `home` and `lookup`
    /// tells what variables hold (`PLUGIN_DIR`, the package's folder, among them).
    ///
    /// # Errors
    /// [`ExpandAccessError`] with every path that has no value here, or leads somewhere else.
    pub fn expand(
        &self,
        home: Option<&str>,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<ExpandedAccess, ExpandAccessError> {
        let mut failed = Vec::new();
        let mut places = |paths: &BTreeSet<PathGrant>, kind: fn(PathGrant) -> AccessPermission| {
            let mut places = BTreeMap::new();
            for path in paths {
                match path.expand(home, &lookup) {
                    Ok(place) => {
                        places.insert(path.clone(), place);
                    }
                    Err(error) => failed.push(AccessFieldError { permission: kind(path.clone()), error }),
                }
            }
            places
        };
        let files_write = places(&self.files_write, AccessPermission::FilesWrite);
        let files_read = places(&self.files_read, AccessPermission::FilesRead);
        if !failed.is_empty() {
            return Err(ExpandAccessError { permissions: failed });
        }
        Ok(ExpandedAccess {
            files_read,
            files_write,
            network: self.network.clone(),
            host_variables: self.host_variables.clone(),
            may_spawn: self.may_spawn,
            limits: self.limits,
        })
    }
}

impl ExpandedAccess {
    /// The same without the places, as the manifest asks for it.
    #[must_use]
    pub fn as_written(&self) -> Access {
        Access {
            files_read: self.files_read.keys().cloned().collect(),
            files_write: self.files_write.keys().cloned().collect(),
            network: self.network.clone(),
            host_variables: self.host_variables.clone(),
            may_spawn: self.may_spawn,
            limits: self.limits,
        }
    }

    /// Only what `grants` covers, text by text: what a start may give the plugin. The limits stay,
    /// because they take away and do not give.
    #[must_use]
    pub fn granted(&self, grants: &GrantSet) -> Self {
        let places = |places: &BTreeMap<PathGrant, String>, kind: fn(PathGrant) -> AccessPermission| {
            let covered = places.iter().filter(|(path, _)| grants.contains_access(&kind((*path).clone())));
            covered.map(|(path, place)| (path.clone(), place.clone())).collect()
        };
        let network =
            self.network.iter().filter(|rule| grants.contains_access(&AccessPermission::Network((*rule).clone())));
        let variables = self
            .host_variables
            .iter()
            .filter(|name| grants.contains_access(&AccessPermission::HostVariable((*name).clone())));
        Self {
            files_read: places(&self.files_read, AccessPermission::FilesRead),
            files_write: places(&self.files_write, AccessPermission::FilesWrite),
            network: network.cloned().collect(),
            host_variables: variables.cloned().collect(),
            may_spawn: self.may_spawn && grants.contains_access(&AccessPermission::Spawn),
            limits: self.limits,
        }
    }

    /// The place a permission's path stands for; `None` for one without a path, or not in here.
    #[must_use]
    pub fn place(&self, permission: &AccessPermission) -> Option<&str> {
        match permission {
            AccessPermission::FilesWrite(path) => self.files_write.get(path).map(String::as_str),
            AccessPermission::FilesRead(path) => self.files_read.get(path).map(String::as_str),
            _ => None,
        }
    }
}
