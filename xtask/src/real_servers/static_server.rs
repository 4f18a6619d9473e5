//! A server that is one static file, built from this workspace's fixture. Owns its build; refuses one that still asks for a
//! loader, because then it would show nothing that the other servers do not.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::Job;
use crate::tools;

/// The fixture and its few dependencies, on a busy machine.
const BUILD_LIMIT: Duration = Duration::from_secs(900);

/// Builds the server into a package.
pub(super) fn build_into(dir: &Path) -> Result<()> {
    let root = tools::workspace_root()?;
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    // Apart from the usual output: other flags would make the next build start from nothing.
    let output = root.join(".xtask/static-build");
    let profile = ["--config", "profile.dev.debug=0"];
    Job::new(tools::cargo(), "cargo build of the static server", BUILD_LIMIT)
        .args(["build", "--locked", "--package", "mcp-fixture", "--target", &target])
        .args(profile)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env("CARGO_TARGET_DIR", &output)
        .dir(&root)
        .run()?
        .success()?;
    let built = output.join(&target).join("debug/mcp-fixture");
    let program = fs::read(&built).with_context(|| format!("`{}` was not built", built.display()))?;
    if asks_for_a_loader(&program) {
        bail!("`{}` is not static: it asks for a loader", built.display());
    }
    fs::copy(&built, dir.join("server")).context("the server cannot be copied into its package")?;
    Ok(())
}

/// Whether an ELF program of 64 bits names an interpreter in its program headers.
fn asks_for_a_loader(program: &[u8]) -> bool {
    const INTERPRETER: u32 = 3;
    let number = |at: usize, bytes: usize| {
        let field = program.get(at..at + bytes)?;
        Some(field.iter().rev().fold(0_usize, |number, byte| number << 8 | usize::from(*byte)))
    };
    // Offset, entry size and count of the program headers.
    let (Some(start), Some(size), Some(count)) = (number(32, 8), number(54, 2), number(56, 2)) else { return true };
    let kinds = (0..count).map(|position| number(start + position * size, 4));
    kinds.into_iter().any(|kind| kind.is_none_or(|kind| kind == INTERPRETER as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test program is linked as usual; a check that never fires would let a dynamic server pass for a static one.
    #[test]
    fn a_usual_program_asks_for_a_loader() {
        assert!(asks_for_a_loader(&fs::read("/bin/sh").unwrap()));
        assert!(asks_for_a_loader(b"\x7fELF"));
    }
}
