//! What of the machine a manifest asks for, on this machine.
//!
//! Owns finding the real place behind each path, so that an approval is bound to what will be opened and a link that is
//! bent later holds the plugin. Refuses places that would show or change plugward's own state: a plugin could read the
//! answers other plugins got, or approve itself.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use plugward_policy::{
    AccessPermission, ExpandAccessError, ExpandedAccess, Manifest, SECRET_BYTES_MIN, is_secret_name,
};

use super::environment::HostEnvironment;
use super::shown;

/// A permission that cannot be kept to on this machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccessError {
    /// No place, or no place here.
    #[error("permission {0}")]
    Expand(#[from] ExpandAccessError),
    /// It would reach plugward's own folder.
    #[error("permission `{permission}` reaches plugward's own folder `{}`; ask for a folder beside it", shown(own_dir))]
    OwnFolder {
        /// The permission.
        permission: AccessPermission,
        /// The folder.
        own_dir: PathBuf,
    },
    /// It would be seen without any permission.
    #[error(
        "plugward's own folder `{}` lies inside `{}`, which every plugin can read; set PLUGWARD_HOME to a folder elsewhere",
        shown(own_dir),
        shown(shared)
    )]
    OwnFolderShown {
        /// The folder.
        own_dir: PathBuf,
        /// What is shared with plugins.
        shared: PathBuf,
    },
    /// The package is read-only: what a plugin writes is no part of what was approved.
    #[error("permission `{permission}` would change the package itself; a plugin can write to its HOME")]
    OwnPackage {
        /// The permission.
        permission: AccessPermission,
    },
    /// A place whose name is no text.
    #[error("permission `{permission}` leads to `{}`, which is not UTF-8", shown(path))]
    NotText {
        /// The permission.
        permission: AccessPermission,
        /// Where it leads.
        path: PathBuf,
    },
}

/// Access with the real places, and the names they were reached by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LocalAccess {
    /// Each path with its real place; one that is not there keeps the place as written.
    pub(crate) expanded: ExpandedAccess,
    /// Names with a link in them, to be there inside as well, each with its real place.
    pub(crate) aliases: Vec<(PathBuf, String)>,
}

/// Where the places are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) host: &'a HostEnvironment,
    /// Canonical.
    pub(super) package_dir: &'a Path,
    /// The folder of plugward's state, canonical.
    pub(super) own_dir: &'a Path,
}

/// Works out `manifest.access` here. `lookup` is what references in the manifest are replaced by.
pub(super) fn local_access(
    manifest: &Manifest,
    around: Surroundings<'_>,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<LocalAccess, AccessError> {
    let home = around.host.get("HOME").and_then(OsStr::to_str);
    let expanded = manifest.access.expand(home, lookup)?;
    let mut local = LocalAccess { expanded, aliases: Vec::new() };
    let mut writes = std::mem::take(&mut local.expanded.files_write);
    let mut reads = std::mem::take(&mut local.expanded.files_read);
    for (path, place) in &mut writes {
        local.settle(AccessPermission::FilesWrite(path.clone()), place, around)?;
    }
    for (path, place) in &mut reads {
        local.settle(AccessPermission::FilesRead(path.clone()), place, around)?;
    }
    local.expanded.files_write = writes;
    local.expanded.files_read = reads;
    Ok(local)
}

impl LocalAccess {
    /// Replaces `place` by the real one.
    fn settle(
        &mut self,
        permission: AccessPermission,
        place: &mut String,
        around: Surroundings<'_>,
    ) -> Result<(), AccessError> {
        let named = PathBuf::from(&*place);
        let real = named.canonicalize().unwrap_or_else(|_| named.clone());
        let is_write = matches!(permission, AccessPermission::FilesWrite(_));
        let in_package = real.starts_with(around.package_dir);
        if in_package && is_write {
            return Err(AccessError::OwnPackage { permission });
        }
        let reaches_own = [&named, &real]
            .into_iter()
            .any(|path| path.starts_with(around.own_dir) || around.own_dir.starts_with(path));
        if reaches_own && !in_package {
            return Err(AccessError::OwnFolder { permission, own_dir: around.own_dir.to_owned() });
        }
        let Some(text) = real.to_str() else { return Err(AccessError::NotText { permission, path: real }) };
        if real != named {
            self.aliases.push((named, text.to_owned()));
        }
        text.clone_into(place);
        Ok(())
    }
}

/// Refuses a state folder inside of what a plugin is shown anyway: it could read the answers other plugins got.
pub(super) fn refuse_shown<'a>(own_dir: &Path, mut shared: impl Iterator<Item = &'a Path>) -> Result<(), AccessError> {
    let shows = |place: &&Path| place.canonicalize().is_ok_and(|real| own_dir.starts_with(real));
    match shared.find(shows) {
        Some(shared) => Err(AccessError::OwnFolderShown { own_dir: own_dir.to_owned(), shared: shared.to_owned() }),
        None => Ok(()),
    }
}

/// The host's variables that `access` asks for, as far as they are set.
pub(super) fn given_variables(access: &ExpandedAccess, host: &HostEnvironment) -> Vec<(String, String)> {
    let value = |name: &str| host.get(name).and_then(OsStr::to_str).map(str::to_owned);
    access.host_variables.iter().filter_map(|name| Some((name.as_str().to_owned(), value(name.as_str())?))).collect()
}

/// Values among `variables` that look like secrets and must never be shown.
pub(super) fn secret_variables(variables: &[(String, String)]) -> impl Iterator<Item = String> {
    let is_secret = |(name, value): &&(String, String)| is_secret_name(name) && value.len() >= SECRET_BYTES_MIN;
    variables.iter().filter(is_secret).map(|(_, value)| value.clone())
}
