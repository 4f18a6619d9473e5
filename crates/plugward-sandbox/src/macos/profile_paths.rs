//! The paths of a sandbox as Seatbelt compares them: without links.
//!
//! Owns resolving them at the start. Refuses a writable path that has a link in it, which an earlier run may have planted.

use std::path::{Path, PathBuf};

use crate::{LaunchSpec, SandboxSpec, SpawnError, seatbelt::Paths};

/// Links of the system itself, behind which its real folders are.
const SYSTEM_LINKS: [&str; 3] = ["/var", "/tmp", "/etc"];

/// Resolves every path.
pub(crate) fn resolved(spec: &LaunchSpec, sandbox: &SandboxSpec) -> Result<Paths, SpawnError> {
    let readable = sandbox.readable().map(|path| real(sandbox, path, "a readable path")).collect::<Result<_, _>>()?;
    let mut writable = Vec::with_capacity(sandbox.read_write.len());
    for path in &sandbox.read_write {
        let found = real(sandbox, path, "a writable path")?;
        let expected = SYSTEM_LINKS
            .iter()
            .find(|link| path.starts_with(link))
            .map_or_else(|| path.clone(), |_| Path::new("/private").join(path.strip_prefix("/").unwrap_or(path)));
        if found != expected {
            let cause = std::io::Error::from_raw_os_error(libc::ELOOP).into();
            let fix = "; no part of it may be a symbolic link (give the path it leads to)";
            let path = Some(path.clone());
            return Err(SpawnError::Layer { level: sandbox.level, layer: "a writable path", path, cause, fix });
        }
        writable.push(found);
    }
    Ok(Paths { executable: real(sandbox, &spec.executable, "its executable")?, readable, writable })
}

fn real(sandbox: &SandboxSpec, path: &Path, layer: &'static str) -> Result<PathBuf, SpawnError> {
    path.canonicalize().map_err(|error| {
        let path = Some(path.to_owned());
        SpawnError::Layer { level: sandbox.level, layer, path, cause: error.into(), fix: "; it has to exist" }
    })
}
