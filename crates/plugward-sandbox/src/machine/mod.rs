//! What a Linux machine says about the parts that confine plugins: in files, one fact each.
//!
//! Owns where these facts are and how they are read, below any root, so that a test can stand in for a machine. Refuses
//! conclusions and trying: what is switched on may still be denied, which only a start can tell.

mod control_groups;

use std::{fs::File, io::Read, path::Path};

use serde::{Deserialize, Serialize};

pub use control_groups::ControlGroupFacts;

/// Most of a file that is read. The largest, the list of mounts, is a few hundred lines even on a machine full of
/// containers.
const MAX_FILE_BYTES: u64 = 256 * 1024;
/// Names under which distributions and our own package keep a profile for plugward.
const PLUGWARD_PROFILES: [&str; 2] = ["plugward", "usr.bin.plugward"];
/// Names under which distributions keep one for bubblewrap.
const BWRAP_PROFILES: [&str; 2] = ["bwrap-userns-restrict", "bwrap"];
/// Files that container engines leave, and the engine.
const CONTAINER_FILES: [(&str, &str); 2] = [(".dockerenv", "docker"), ("run/.containerenv", "podman")];
/// Words in the control group of the first process, and the engine.
const CONTAINER_GROUPS: [(&str, &str); 4] =
    [("kubepods", "kubernetes"), ("/docker", "docker"), ("/lxc", "lxc"), ("libpod", "podman")];
/// Bit of a file's mode that lends its owner's rights.
#[cfg(unix)]
const SETUID: u32 = 0o4000;

/// What can be asked of the running kernel only, not of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelAnswers {
    /// Landlock ABI version, 0 if it is not active.
    pub landlock_abi: u32,
    /// The user of this process.
    pub uid: u32,
}

/// Facts about a machine and this process on it. `None` means that the machine gives no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// Release of the kernel.
    pub kernel_release: Option<String>,
    /// Name of the distribution.
    pub distribution: Option<String>,
    /// Active security modules of the kernel, in their order.
    pub security_modules: Option<Vec<String>>,
    /// Landlock ABI version, 0 if it is not active.
    pub landlock_abi: u32,
    /// Most user namespaces a user may make (`user.max_user_namespaces`).
    pub user_namespaces_max: Option<u64>,
    /// Debian's switch for users without rights (`kernel.unprivileged_userns_clone`).
    pub user_namespaces_switch: Option<bool>,
    /// Whether AppArmor keeps user namespaces from programs without a profile
    /// (`kernel.apparmor_restrict_unprivileged_userns`).
    pub apparmor_restricts: Option<bool>,
    /// AppArmor's label of this process.
    pub apparmor_label: Option<String>,
    /// Whether a profile for plugward is installed.
    pub plugward_profile: bool,
    /// Whether a profile for bubblewrap is installed.
    pub bwrap_profile: bool,
    /// The container engine this process seems to be in.
    pub container: Option<String>,
    /// Whether `/proc` is there, which most of these facts are in.
    pub proc_mounted: bool,
    /// Parts of `/proc` that something is mounted over.
    pub covered_proc: Vec<String>,
    /// Mode of system call filters for this process: 0 none, 2 filtered.
    pub seccomp_mode: Option<u8>,
    /// Control groups.
    pub control_groups: ControlGroupFacts,
    /// Whether bubblewrap is installed where profiles expect it.
    pub bwrap: bool,
    /// Whether bubblewrap runs with root's rights, as it did before user namespaces.
    pub bwrap_is_setuid: bool,
    /// Whether this process runs as root.
    pub is_root: bool,
}

impl MachineFacts {
    /// Facts about this machine.
    #[must_use]
    pub fn here() -> Self {
        Self::read(Path::new("/"), kernel_answers())
    }

    /// Facts found below `root`, which stands for `/`. Changes nothing.
    #[must_use]
    pub fn read(root: &Path, kernel: KernelAnswers) -> Self {
        let mounts = read(root, "proc/self/mountinfo").unwrap_or_default();
        let profiles = root.join("etc/apparmor.d");
        let has_profile = |names: &[&str]| names.iter().any(|name| profiles.join(name).is_file());
        let bwrap = root.join("usr/bin/bwrap");
        let status = read(root, "proc/self/status");
        Self {
            kernel_release: read(root, "proc/sys/kernel/osrelease"),
            distribution: read(root, "etc/os-release").and_then(|text| pretty_name(&text)),
            security_modules: read(root, "sys/kernel/security/lsm")
                .map(|list| list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()),
            landlock_abi: kernel.landlock_abi,
            user_namespaces_max: number(root, "proc/sys/user/max_user_namespaces"),
            user_namespaces_switch: switch(root, "proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restricts: switch(root, "proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            apparmor_label: read(root, "proc/self/attr/apparmor/current"),
            plugward_profile: has_profile(&PLUGWARD_PROFILES),
            bwrap_profile: has_profile(&BWRAP_PROFILES),
            container: container(root),
            proc_mounted: status.is_some(),
            covered_proc: covered_proc(&mounts),
            seccomp_mode: status
                .and_then(|status| status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?.trim().parse().ok()),
            control_groups: ControlGroupFacts::read(root, &mounts, kernel.uid),
            bwrap: bwrap.is_file(),
            bwrap_is_setuid: is_setuid(&bwrap),
            is_root: kernel.uid == 0,
        }
    }
}

#[cfg(target_os = "linux")]
fn kernel_answers() -> KernelAnswers {
    KernelAnswers { landlock_abi: crate::linux::landlock_version(), uid: rustix::process::geteuid().as_raw() }
}

/// Other kernels have neither Landlock nor a root that these facts are about.
#[cfg(not(target_os = "linux"))]
fn kernel_answers() -> KernelAnswers {
    KernelAnswers { landlock_abi: 0, uid: u32::MAX }
}

/// The text of a file without the white space at its end.
fn read(root: &Path, path: &str) -> Option<String> {
    let mut text = String::new();
    File::open(root.join(path)).ok()?.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
    Some(text.trim_end_matches(['\n', '\0', ' ']).to_owned())
}

fn number(root: &Path, path: &str) -> Option<u64> {
    read(root, path)?.trim().parse().ok()
}

fn switch(root: &Path, path: &str) -> Option<bool> {
    number(root, path).map(|value| value != 0)
}

fn pretty_name(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches(['"', '\'']).to_owned()).filter(|name| !name.is_empty())
}

fn container(root: &Path) -> Option<String> {
    let file = CONTAINER_FILES.iter().find(|(path, _)| root.join(path).exists());
    if let Some((_, engine)) = file {
        return Some((*engine).to_owned());
    }
    // systemd notes what it was told about its surroundings.
    if let Some(engine) = read(root, "run/systemd/container").filter(|engine| !engine.is_empty()) {
        return Some(engine);
    }
    let group = read(root, "proc/1/cgroup")?;
    CONTAINER_GROUPS.iter().find(|(word, _)| group.contains(word)).map(|(_, engine)| (*engine).to_owned())
}

/// Mount points beneath `/proc`. The kernel refuses a new `/proc` to users without rights where there are any, except for
/// the one it makes itself.
fn covered_proc(mounts: &str) -> Vec<String> {
    const HARMLESS: &str = "/proc/sys/fs/binfmt_misc";
    let mut covered: Vec<String> = Vec::new();
    for point in mounts.lines().filter_map(|line| line.split(' ').nth(4)) {
        if point.starts_with("/proc/") && point != HARMLESS && !covered.iter().any(|known| known == point) {
            covered.push(point.to_owned());
        }
    }
    covered
}

#[cfg(unix)]
fn is_setuid(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|found| found.permissions().mode() & SETUID != 0)
}

#[cfg(not(unix))]
fn is_setuid(_path: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fact read wrongly sends people to the wrong switch.
    #[test]
    fn facts_come_from_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let files = [
            ("proc/sys/kernel/osrelease", "6.8.0-49-generic\n"),
            ("etc/os-release", "NAME=\"Ubuntu\"\nPRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\n"),
            ("sys/kernel/security/lsm", "lockdown,capability,landlock,yama,apparmor"),
            ("proc/sys/user/max_user_namespaces", "62000\n"),
            ("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n"),
            ("proc/self/attr/apparmor/current", "unconfined\n"),
            ("proc/self/status", "Name:\tx\nSeccomp:\t2\n"),
            (
                "proc/self/mountinfo",
                "1 2 0:5 / /proc rw - proc proc rw\n2 1 0:9 / /proc/acpi ro - tmpfs tmpfs ro\n\
                                     3 1 0:9 / /proc/sys/fs/binfmt_misc rw - autofs x rw\n",
            ),
            ("proc/1/cgroup", "0::/kubepods/besteffort/pod1"),
            ("etc/apparmor.d/bwrap-userns-restrict", ""),
            ("usr/bin/bwrap", ""),
        ];
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let facts = MachineFacts::read(folder.path(), KernelAnswers { landlock_abi: 4, uid: 1000 });
        assert_eq!(facts.kernel_release.as_deref(), Some("6.8.0-49-generic"));
        assert_eq!(facts.distribution.as_deref(), Some("Ubuntu 24.04.1 LTS"));
        assert_eq!(facts.security_modules.as_ref().map(Vec::len), Some(5));
        assert_eq!((facts.user_namespaces_max, facts.user_namespaces_switch), (Some(62_000), None));
        assert_eq!((facts.apparmor_restricts, facts.apparmor_label.as_deref()), (Some(true), Some("unconfined")));
        assert_eq!((facts.plugward_profile, facts.bwrap_profile, facts.bwrap), (false, true, true));
        assert_eq!(facts.container.as_deref(), Some("kubernetes"));
        assert_eq!((facts.proc_mounted, facts.covered_proc), (true, vec!["/proc/acpi".to_owned()]));
        assert_eq!((facts.seccomp_mode, facts.is_root, facts.bwrap_is_setuid), (Some(2), false, false));
        std::fs::write(folder.path().join(".dockerenv"), "").unwrap();
        let facts = MachineFacts::read(folder.path(), KernelAnswers { landlock_abi: 4, uid: 0 });
        assert_eq!((facts.container.as_deref(), facts.is_root), (Some("docker"), true));
    }

    /// A machine that says nothing is not a machine where all is well.
    #[test]
    fn an_empty_root_gives_no_answers() {
        let folder = tempfile::tempdir().unwrap();
        let facts = MachineFacts::read(folder.path(), KernelAnswers { landlock_abi: 0, uid: 1000 });
        assert_eq!((facts.kernel_release, facts.security_modules, facts.seccomp_mode), (None, None, None));
        assert_eq!((facts.user_namespaces_max, facts.container, facts.bwrap), (None, None, false));
        assert!(!facts.proc_mounted);
    }
}
