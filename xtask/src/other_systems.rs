//! The step `other systems`: type-checks the sandbox for systems this machine is not. Owns which targets and what is said
//! when one cannot be checked. Refuses calling this a test: nothing of it runs here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::process::Job;
use crate::tools;

/// The crate's own dependencies for a target that nothing was built for yet, on two busy cores.
const CHECK_LIMIT: Duration = Duration::from_secs(1800);
/// A question to the compiler.
const QUESTION_LIMIT: Duration = Duration::from_secs(60);
/// Targets with a sandbox of their own, one for each system.
const TARGETS: [&str; 2] = ["aarch64-apple-darwin", "x86_64-pc-windows-gnu"];

/// Checks the sandbox crate for each target whose standard library is installed. The other crates need C compilers for it.
pub(crate) fn run() -> Result<()> {
    let root = tools::workspace_root()?;
    for target in TARGETS {
        if library_folder(&root, target)?.is_none() {
            println!("    not checked: {target} (its standard library is missing; `rustup target add {target}`)");
            continue;
        }
        Job::new(tools::cargo(), format!("cargo clippy for {target}"), CHECK_LIMIT)
            .args(["clippy", "--locked", "-p", "plugward-sandbox", "--target", target, "--", "-D", "warnings"])
            .env("CARGO_TERM_COLOR", "never")
            .dir(&root)
            .run()?
            .success()?;
        println!("    type-checked: {target}");
    }
    Ok(())
}

/// Where the standard library of a target is, if it is installed.
fn library_folder(root: &Path, target: &str) -> Result<Option<PathBuf>> {
    let done = Job::new("rustc", "rustc --print target-libdir", QUESTION_LIMIT)
        .args(["--print", "target-libdir", "--target", target])
        .dir(root)
        .run()?
        .success()?;
    let folder = PathBuf::from(done.stdout.trim());
    let has_files = std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some());
    Ok(Some(folder).filter(|_| has_files))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target that is not there must be told apart from one that is, or a check would be claimed that was not made.
    #[test]
    fn a_missing_library_is_noticed() {
        let root = tools::workspace_root().unwrap();
        let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        assert!(library_folder(&root, &host).unwrap().is_some());
        assert_eq!(library_folder(&root, "x86_64-unknown-haiku").unwrap(), None);
    }
}
