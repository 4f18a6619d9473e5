//! Owns what the machine has to offer: where the workspace, its build output and the programs of others are, and
//! installing the missing ones where that is possible. Refuses to guess: a missing program is named with its remedy.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::Job;

/// A version question is answered at once; the margin is for a cold disk.
const QUESTION_LIMIT: Duration = Duration::from_secs(60);
/// Package lists and a handful of system packages over a slow line.
const SYSTEM_INSTALL_LIMIT: Duration = Duration::from_secs(900);
/// `cargo metadata` may have to fetch every dependency first.
const METADATA_LIMIT: Duration = Duration::from_secs(600);
/// Oldest Node.js that the pinned servers and clients run on.
const OLDEST_NODE_MAJOR: u32 = 20;
/// Oldest Python that the pinned packages run on, as (major, minor).
const OLDEST_PYTHON: (u32, u32) = (3, 10);

/// A program that the test command needs and the system package that brings it.
struct Prerequisite {
    program: &'static str,
    system_package: &'static str,
    needed_for: &'static str,
}

const PREREQUISITES: &[Prerequisite] = &[
    Prerequisite { program: "git", system_package: "git", needed_for: "tidy and the git server" },
    Prerequisite { program: "node", system_package: "nodejs", needed_for: "real servers and clients" },
    Prerequisite { program: "npm", system_package: "npm", needed_for: "installing real servers and clients" },
    Prerequisite { program: "python3", system_package: "python3", needed_for: "real servers and clients" },
    Prerequisite { program: "jq", system_package: "jq", needed_for: "the examples of commands as tools" },
    Prerequisite { program: "sqlite3", system_package: "sqlite3", needed_for: "the examples of commands as tools" },
];

/// The folder of the workspace.
pub(crate) fn workspace_root() -> Result<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().context("xtask has no parent folder")?;
    if !root.join("Cargo.toml").is_file() {
        bail!("workspace `{}` has moved since xtask was built; run `cargo xtask` from inside it", root.display());
    }
    Ok(root.to_owned())
}

/// The `cargo` that runs us.
pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// `cargo metadata` of the workspace, dependencies included. Asks the disk first and the network only if it must.
pub(crate) fn cargo_metadata(root: &Path) -> Result<Value> {
    let ask = |extra: &[&str]| {
        Job::new(cargo(), "cargo metadata", METADATA_LIMIT)
            .args(["metadata", "--format-version", "1", "--locked"])
            .args(extra)
            .dir(root)
            .run()
    };
    let offline = ask(&["--offline"])?;
    let answer = if offline.code == Some(0) { offline } else { ask(&[])?.success()? };
    serde_json::from_str(&answer.stdout).context("cargo metadata: output is no JSON")
}

/// The folder with the debug binaries of the workspace.
pub(crate) fn debug_binaries(root: &Path) -> Result<PathBuf> {
    let metadata = Job::new(cargo(), "cargo metadata", METADATA_LIMIT)
        .args(["metadata", "--format-version", "1", "--locked", "--no-deps"])
        .dir(root)
        .run()?
        .success()?;
    let metadata: Value = serde_json::from_str(&metadata.stdout).context("cargo metadata: output is no JSON")?;
    let target = metadata["target_directory"].as_str().context("cargo metadata names no target directory")?;
    Ok(Path::new(target).join("debug"))
}

/// The absolute path of a program on `PATH`, if it is there.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|candidate| candidate.is_file())
}

/// Whether every user may enter a folder and all above it.
pub(crate) fn is_open_to_all(folder: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let Ok(folder) = folder.canonicalize() else { return false };
    folder.ancestors().all(|part| std::fs::metadata(part).is_ok_and(|found| found.permissions().mode() & 0o001 != 0))
}

/// As [`find`], with an error that says what the program is for.
pub(crate) fn require(program: &str) -> Result<PathBuf> {
    let purpose = PREREQUISITES.iter().find(|entry| entry.program == program).map_or("this step", |p| p.needed_for);
    find(program).with_context(|| format!("`{program}` is not on PATH; it is needed for {purpose}"))
}

/// Checks every prerequisite of the test command; missing ones are installed as system packages when we may.
pub(crate) fn prepare() -> Result<()> {
    let missing: Vec<&Prerequisite> = PREREQUISITES.iter().filter(|entry| find(entry.program).is_none()).collect();
    let mut packages: Vec<&str> = missing.iter().map(|entry| entry.system_package).collect();
    if find("python3").is_none() || !python_has_pip()? {
        packages.push("python3-pip");
    }
    if !packages.is_empty() {
        install_system_packages(&packages)?;
    }
    for entry in PREREQUISITES {
        require(entry.program)?;
    }
    prepare_attacks()?;
    prepare_packaging();
    check_node()?;
    check_python()
}

/// Programs that the attack suite uses: a missing one is installed when we may, and named when not.
pub(crate) fn prepare_attacks() -> Result<()> {
    if Path::new("/usr/bin/bwrap").is_file() { Ok(()) } else { install_system_packages(&["bubblewrap"]) }
}

/// As above, if they are there, for the step that checks `packaging/`.
pub(crate) fn prepare_packaging() {
    install_if_allowed("/usr/sbin/apparmor_parser", "apparmor", "the AppArmor profile is not checked");
}

fn install_if_allowed(program: &str, system_package: &str, without: &str) {
    if !Path::new(program).is_file()
        && let Err(error) = install_system_packages(&[system_package])
    {
        println!("    {program} is not here: {without} ({error:#})");
    }
}

fn install_system_packages(packages: &[&str]) -> Result<()> {
    let wanted = packages.join(" ");
    if !rustix::process::geteuid().is_root() || find("apt-get").is_none() {
        bail!("missing: {wanted}; install them with the package tool of this system, then run this again");
    }
    println!("    missing: {wanted}; installing with apt-get");
    let apt = |arguments: &[&str]| {
        Job::new("apt-get", "apt-get", SYSTEM_INSTALL_LIMIT)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(arguments)
            .run()?
            .success()
    };
    apt(&["update", "-q"])?;
    let mut arguments = vec!["install", "-q", "-y", "--no-install-recommends"];
    arguments.extend(packages);
    apt(&arguments)?;
    Ok(())
}

fn python_has_pip() -> Result<bool> {
    let done = Job::new("python3", "pip", QUESTION_LIMIT).args(["-m", "pip", "--version"]).run()?;
    Ok(done.code == Some(0))
}

fn check_node() -> Result<()> {
    let text = Job::new("node", "node --version", QUESTION_LIMIT).arg("--version").run()?.success()?.stdout;
    let major = text.trim().trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(major) if major >= OLDEST_NODE_MAJOR => Ok(()),
        _ => bail!("node `{}` is too old; {OLDEST_NODE_MAJOR} or newer is needed", text.trim()),
    }
}

fn check_python() -> Result<()> {
    let code = "import sys; print(*sys.version_info[:2])";
    let text = Job::new("python3", "python3 version", QUESTION_LIMIT).args(["-c", code]).run()?.success()?.stdout;
    let numbers: Vec<u32> = text.split_whitespace().filter_map(|part| part.parse().ok()).collect();
    match numbers[..] {
        [major, minor] if (major, minor) >= OLDEST_PYTHON => Ok(()),
        _ => bail!("python3 `{}` is too old; {}.{} or newer is needed", text.trim(), OLDEST_PYTHON.0, OLDEST_PYTHON.1),
    }
}

/// Folders to put first on `PATH` so that `python3` is the interpreter itself and not a version switcher's script,
/// which would need an environment that plugins do not get.
pub(crate) fn python_folder() -> Result<PathBuf> {
    let code = "import os, sys; print(os.path.dirname(os.path.realpath(sys.executable)))";
    let text = Job::new("python3", "python3 location", QUESTION_LIMIT).args(["-c", code]).run()?.success()?.stdout;
    Ok(PathBuf::from(text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(find("sh").unwrap().is_absolute());
        assert!(find("no-such-program-at-all").is_none());
        assert!(require("npm-that-is-not-there").unwrap_err().to_string().contains("not on PATH"));
    }

    #[test]
    fn the_workspace_is_above_us() {
        assert!(workspace_root().unwrap().join("xtask/Cargo.toml").is_file());
    }
}
