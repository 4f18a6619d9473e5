//! Servers under a host that runs as an ordinary user: the case of a person's own machine. Owns which of them, and where their
//! packages are when that user cannot enter the workspace. When this check itself is run by an ordinary user, it has shown
//! that already.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Server, walk};
use crate::driver::Plugward;
use crate::packages::Package;
use crate::tools;

/// A user of nobody's. Not `nobody`, who may own things on a machine.
const ORDINARY_UID: u32 = 61_500;

/// One of each run time: what differs between users is the same for every server of one.
const CHOSEN: [(&str, &str); 4] = [
    ("server-everything", "node"),
    ("server-filesystem-granted", "node"),
    ("static-server", "sh"),
    ("mcp-server-time", "python3"),
];

pub(super) fn run<'a>(
    root: &Path,
    servers: impl Iterator<Item = (&'a Server, &'a Package)>,
    failures: &mut Vec<String>,
) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        println!("    as an ordinary user: all of the above was");
        return Ok(());
    }
    let plugward = Plugward::fresh(root, "ordinary")?.hand_over(ORDINARY_UID)?;
    super::share(&plugward)?;
    println!("    as an ordinary user");
    for (server, package) in servers {
        let Some((_, program)) = CHOSEN.iter().find(|(id, _)| *id == server.id) else { continue };
        if !plugward.has(program) {
            println!("{:<28}not run: no `{program}` here that other users may execute", server.id);
            continue;
        }
        let reachable = Package { dir: reachable(&plugward, server, package)? };
        walk(&plugward, server, &reachable, failures);
    }
    Ok(())
}

/// The package where the other user can read it.
fn reachable(plugward: &Plugward, server: &Server, package: &Package) -> Result<PathBuf> {
    if tools::is_open_to_all(&package.dir) {
        return Ok(package.dir.clone());
    }
    let copy = plugward.shared().join(server.id);
    super::copy_folder(&package.dir, &copy).with_context(|| format!("package of `{}` cannot be copied", server.id))?;
    Ok(copy)
}
