//! The paths of a sandbox as Seatbelt compares them: without links.
//!
//! Owns resolving them at the start. Refuses a link in a path that was looked at before or can be written, because somebody
//! may have planted it since.

use std::path::{Path, PathBuf};

use crate::{LaunchSpec, SandboxSpec, SpawnError, seatbelt::Paths};

/// Links of the system itself, behind which its real folders are.
const SYSTEM_LINKS: [&str; 3] = ["/var", "/tmp", "/etc"];

/// Resolves every path.
pub(crate) fn resolved(spec: &LaunchSpec, sandbox: &SandboxSpec) -> Result<Paths, SpawnError> {
    let mut readable = Vec::new();
    for path in sandbox.exact() {
        readable.push(exact(sandbox, path, path, "a readable path")?);
    }
    for path in &sandbox.read_only {
        readable.push(real(sandbox, path, "a readable path")?);
    }
    let writable = sandbox.writable().map(|path| exact(sandbox, path, path, "a writable path"));
    let writable = writable.collect::<Result<_, _>>()?;
    for alias in &sandbox.aliases {
        exact(sandbox, &alias.name, &alias.place, "a name that leads to another place")?;
    }
    let names = sandbox.aliases.iter().map(|alias| alias.name.clone()).collect();
    Ok(Paths { executable: real(sandbox, &spec.executable, "its executable")?, readable, writable, names })
}

/// What a path leads to, which has to be `place` but for links of the system.
fn exact(sandbox: &SandboxSpec, path: &Path, place: &Path, layer: &'static str) -> Result<PathBuf, SpawnError> {
    let found = real(sandbox, path, layer)?;
    let behind_link = SYSTEM_LINKS.iter().any(|link| place.starts_with(link));
    let expected = match place.strip_prefix("/") {
        Ok(inside) if behind_link => Path::new("/private").join(inside),
        _ => place.to_owned(),
    };
    if found == expected {
        return Ok(found);
    }
    let cause = std::io::Error::from_raw_os_error(libc::ELOOP).into();
    let fix = "; no part of it may be a symbolic link (give the path it leads to)";
    Err(SpawnError::Layer { level: sandbox.level, layer, path: Some(path.to_owned()), cause, fix })
}

fn real(sandbox: &SandboxSpec, path: &Path, layer: &'static str) -> Result<PathBuf, SpawnError> {
    path.canonicalize().map_err(|error| {
        let path = Some(path.to_owned());
        SpawnError::Layer { level: sandbox.level, layer, path, cause: error.into(), fix: "; it has to exist" }
    })
}
