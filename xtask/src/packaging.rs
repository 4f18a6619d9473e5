//! The step `packaging`: has the tools that will read the files of `packaging/` read them. Owns telling what was checked and
//! what could not be. Refuses installing a profile or a service.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::{Finished, Job};
use crate::tools;

/// Reading one small file takes a moment; the margin is for a cold disk.
const CHECK_LIMIT: Duration = Duration::from_secs(120);
/// First version of AppArmor's parser that knows `userns`.
const USERNS_MAJOR: u32 = 4;
const PROFILE: &str = "packaging/apparmor/plugward";
const SERVICE: &str = "packaging/systemd/plugward.service";

/// Checks the profile and the service, each as far as its tool is here.
pub(crate) fn run() -> Result<()> {
    let root = tools::workspace_root()?;
    let scratch = root.join(".xtask/packaging");
    std::fs::create_dir_all(&scratch).with_context(|| format!("`{}` cannot be made", scratch.display()))?;
    check_profile(&root, &scratch)?;
    check_service(&root, &scratch)
}

fn check_profile(root: &Path, scratch: &Path) -> Result<()> {
    let Some(parser) = find_system_program("apparmor_parser") else {
        println!("    not checked: {PROFILE} (`apparmor_parser` is not here; package `apparmor`)");
        return Ok(());
    };
    let version = Job::new(&parser, "apparmor_parser --version", CHECK_LIMIT).arg("--version").run()?.success()?.stdout;
    let major = major_version(&version).context("apparmor_parser: its version cannot be read")?;
    let text = read(root, PROFILE)?;
    let text = if major < USERNS_MAJOR {
        println!("    not checked: `userns` in {PROFILE} (apparmor_parser {major} does not know it; the rest is)");
        without_userns(&text)
    } else {
        text
    };
    let copy = write(scratch, "plugward", &text)?;
    let done = Job::new(parser, "apparmor_parser", CHECK_LIMIT)
        .args(["--skip-kernel-load", "--skip-cache"])
        .arg(&copy)
        .run()?
        .success()?;
    require_silence(&done, "apparmor_parser", |line| line.contains("Cache read/write disabled"))
}

fn check_service(root: &Path, scratch: &Path) -> Result<()> {
    let Some(analyze) = find_system_program("systemd-analyze") else {
        println!("    not checked: {SERVICE} (`systemd-analyze` is not here; package `systemd`)");
        return Ok(());
    };
    // The program need not be installed for its service to be right.
    let copy = write(scratch, "plugward.service", &with_program(&read(root, SERVICE)?, "/bin/true"))?;
    let done = Job::new(analyze, "systemd-analyze", CHECK_LIMIT)
        .args(["verify", "--user", "--man=no"])
        .arg(&copy)
        .env("XDG_RUNTIME_DIR", scratch)
        .run()?
        .success()?;
    // What it does not understand it ignores, tells, and ends well.
    require_silence(&done, "systemd-analyze", |line| !line.contains("plugward"))
}

fn find_system_program(name: &str) -> Option<PathBuf> {
    // Not on the `PATH` of ordinary users on some systems.
    tools::find(name).or_else(|| Some(Path::new("/usr/sbin").join(name)).filter(|path| path.is_file()))
}

fn read(root: &Path, path: &str) -> Result<String> {
    std::fs::read_to_string(root.join(path)).with_context(|| format!("`{path}` cannot be read"))
}

fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    std::fs::write(&path, text).with_context(|| format!("`{}` cannot be written", path.display()))?;
    Ok(path)
}

fn major_version(text: &str) -> Option<u32> {
    text.split_whitespace().find_map(|word| word.split('.').next()?.parse().ok())
}

/// The profile as an older parser can read it.
fn without_userns(profile: &str) -> String {
    let lines = profile.lines().filter(|line| line.trim() != "userns,");
    lines.map(|line| line.replace("abi/4.0", "abi/3.0") + "\n").collect()
}

fn with_program(service: &str, program: &str) -> String {
    let line = |line: &str| match line.strip_prefix("ExecStart=") {
        Some(_) => format!("ExecStart={program}\n"),
        None => format!("{line}\n"),
    };
    service.lines().map(line).collect()
}

fn require_silence(done: &Finished, tool: &str, harmless: impl Fn(&str) -> bool) -> Result<()> {
    let lines = done.stdout.lines().chain(done.stderr.lines());
    let complaints: Vec<&str> = lines.filter(|line| !line.trim().is_empty() && !harmless(line)).collect();
    if complaints.is_empty() {
        return Ok(());
    }
    bail!("{tool} complains:\n{}", complaints.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The copies that are checked must differ from the files in nothing else.
    #[test]
    fn copies_differ_where_they_have_to() {
        let profile = "abi <abi/4.0>,\nprofile x {\n  userns,\n}\n";
        assert_eq!(without_userns(profile), "abi <abi/3.0>,\nprofile x {\n}\n");
        assert_eq!(
            with_program("[Service]\nExecStart=%h/x y\nType=exec\n", "/bin/true"),
            "[Service]\nExecStart=/bin/true\nType=exec\n"
        );
        assert_eq!(major_version("AppArmor parser version 3.0.8\n"), Some(3));
    }

    /// Without `userns` the profile would be installed and change nothing.
    #[test]
    fn the_profile_allows_user_namespaces_and_the_service_asks_for_groups() {
        let root = tools::workspace_root().unwrap();
        assert!(read(&root, PROFILE).unwrap().lines().any(|line| line.trim() == "userns,"));
        assert!(read(&root, SERVICE).unwrap().lines().any(|line| line == "Delegate=cpu memory pids"));
    }
}
