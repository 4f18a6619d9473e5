//! The folder a plugin starts in. Refuses a relative one outside the package, and one that is not there: that has to be
//! known before a process exists, whose own message would only be "no such file" (case B035).

use std::io;
use std::path::{Path, PathBuf};

use super::environment::HostEnvironment;
use super::plan::PlanError;
use super::resolve::lexical;

/// The folder the plugin starts in (requirement 74, case B035): the package's by default; a relative one lies inside
/// the package; an absolute one and one below `~` are the machine's and only have to exist.
pub(super) fn working_folder(
    cwd: Option<&str>,
    package_dir: &Path,
    host: &HostEnvironment,
) -> Result<PathBuf, PlanError> {
    let Some(cwd) = cwd else { return Ok(package_dir.to_owned()) };
    let below_home = cwd.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
    if let Some(rest) = below_home {
        let home = host.get("HOME").map(Path::new).filter(|home| home.is_absolute());
        let home = home.ok_or_else(|| PlanError::NoUserHome { cwd: cwd.to_owned() })?;
        return folder(&home.join(rest.trim_start_matches('/')), cwd);
    }
    if Path::new(cwd).is_absolute() {
        // Absolute paths into the package come from `${PLUGIN_DIR}`; nothing else to check for them.
        return folder(Path::new(cwd), cwd);
    }
    let named = lexical(&package_dir.join(cwd));
    if !named.starts_with(package_dir) {
        return Err(PlanError::FolderOutside { cwd: cwd.to_owned(), path: named });
    }
    let found = folder(&named, cwd)?;
    if !found.starts_with(package_dir) {
        return Err(PlanError::FolderOutside { cwd: cwd.to_owned(), path: found });
    }
    Ok(found)
}

/// `path` without links, if it is a folder.
pub(super) fn folder(path: &Path, named: &str) -> Result<PathBuf, PlanError> {
    let found = path.canonicalize().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            PlanError::FolderMissing { cwd: named.to_owned(), path: path.to_owned() }
        }
        _ => PlanError::FolderUnusable { path: path.to_owned(), source },
    })?;
    if found.is_dir() { Ok(found) } else { Err(PlanError::FolderNotAFolder { path: found }) }
}
