//! Servers under a host that runs as an ordinary user: the case of a person's own machine. Owns where their packages are
//! when that user cannot enter the workspace. When this check itself is run by an ordinary user, it has shown
//! that already.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{Server, walk};
use crate::driver::Plugward;
use crate::packages::Package;
use crate::tools;

/// A user of nobody's. Not `nobody`, who may own things on a machine.
const ORDINARY_UID: u32 = 61_500;

/// What the servers are written for. Run times that are root's alone (one in root's home, say) are of no use to others.
const RUN_TIMES: [&str; 2] = ["node", "python3"];

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
    for program in RUN_TIMES {
        if !plugward.has(program) {
            bail!("no `{program}` on PATH is open to other users: install one for all users, for example with apt-get");
        }
    }
    for (server, package) in servers {
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
