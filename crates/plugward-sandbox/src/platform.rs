//! What this machine offers for confining plugins, as far as it can be read without trying anything.
//!
//! Owns the facts `plugward doctor` shows. Refuses conclusions: a feature that is switched on here may still be denied
//! to a process, so nothing in this report raises a [`Level`](crate::Level).

use serde::{Deserialize, Serialize};

/// State of one kernel feature as configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Availability {
    /// Switched on.
    Available,
    /// Switched on, but a security module limits what unprivileged processes may do with it.
    Restricted,
    /// Switched off or not built in.
    Unavailable,
    /// This system gives no answer.
    Unknown,
}

/// Facts about this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformReport {
    /// Name of the operating system.
    pub system: String,
    /// Kernel release, where there is one to read.
    pub kernel_release: Option<String>,
    /// Whether plugins can be started at all on this system.
    pub launcher: Availability,
    /// Whether a process can adopt the orphans of its descendants.
    pub subreaper: Availability,
    /// User namespaces for unprivileged processes.
    pub user_namespaces: Availability,
    /// Landlock ABI version; `None` if Landlock is absent or not active.
    pub landlock_abi: Option<u32>,
    /// System call filters.
    pub seccomp: Availability,
    /// Where the cgroup v2 hierarchy is mounted.
    pub cgroup_v2_mount: Option<String>,
    /// Whether this process runs as root, and plugins with it.
    pub running_as_root: bool,
}

/// Reads the facts. Changes nothing and starts nothing.
#[must_use]
pub fn probe() -> PlatformReport {
    imp::probe()
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use super::{Availability, PlatformReport};

    pub(super) fn probe() -> PlatformReport {
        PlatformReport {
            system: std::env::consts::OS.to_owned(),
            kernel_release: None,
            launcher: Availability::Unavailable,
            subreaper: Availability::Unavailable,
            user_namespaces: Availability::Unavailable,
            landlock_abi: None,
            seccomp: Availability::Unavailable,
            cgroup_v2_mount: None,
            running_as_root: false,
        }
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use std::{fs, path::Path};

    use super::{Availability, PlatformReport};
    use crate::linux::landlock_version;

    pub(super) fn probe() -> PlatformReport {
        PlatformReport {
            system: std::env::consts::OS.to_owned(),
            kernel_release: read("/proc/sys/kernel/osrelease"),
            launcher: available_if(Path::new("/proc/self/exe").exists()),
            subreaper: available_if(rustix::process::child_subreaper().is_ok()),
            user_namespaces: user_namespaces(
                read("/proc/sys/user/max_user_namespaces").as_deref(),
                read("/proc/sys/kernel/unprivileged_userns_clone").as_deref(),
                read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref(),
            ),
            landlock_abi: Some(landlock_version()).filter(|version| *version > 0),
            seccomp: match read("/proc/self/status") {
                Some(status) => available_if(status.lines().any(|line| line.starts_with("Seccomp:"))),
                None => Availability::Unknown,
            },
            cgroup_v2_mount: read("/proc/self/mountinfo").as_deref().and_then(cgroup_v2_mount),
            running_as_root: rustix::process::geteuid().is_root(),
        }
    }

    fn available_if(condition: bool) -> Availability {
        if condition { Availability::Available } else { Availability::Unavailable }
    }

    fn read(path: &str) -> Option<String> {
        Some(fs::read_to_string(path).ok()?.trim_end().to_owned())
    }

    /// From the kernel's limit, Debian's switch and AppArmor's switch, of which the last two exist on few systems.
    fn user_namespaces(limit: Option<&str>, debian: Option<&str>, apparmor: Option<&str>) -> Availability {
        match (limit, debian, apparmor) {
            (Some("0") | None, _, _) | (_, Some("0"), _) => Availability::Unavailable,
            (_, _, Some("1")) => Availability::Restricted,
            _ => Availability::Available,
        }
    }

    /// Mount point of the first cgroup2 file system. In each line the type follows a lone `-`.
    fn cgroup_v2_mount(mountinfo: &str) -> Option<String> {
        mountinfo.lines().find_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            (kind.split(' ').next() == Some("cgroup2")).then(|| mount.split(' ').nth(4).map(str::to_owned))?
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// A doctor that calls a restricted feature available sends people the wrong way.
        #[test]
        fn user_namespaces_follow_all_three_switches() {
            assert_eq!(user_namespaces(Some("7000"), None, None), Availability::Available);
            assert_eq!(user_namespaces(Some("7000"), Some("1"), Some("0")), Availability::Available);
            assert_eq!(user_namespaces(Some("7000"), Some("1"), Some("1")), Availability::Restricted);
            assert_eq!(user_namespaces(Some("7000"), Some("0"), Some("1")), Availability::Unavailable);
            assert_eq!(user_namespaces(Some("0"), Some("1"), None), Availability::Unavailable);
            assert_eq!(user_namespaces(None, None, None), Availability::Unavailable);
        }

        #[test]
        fn finds_the_unified_hierarchy() {
            let text = "30 24 0:26 / /sys rw - sysfs sysfs rw\n\
                        31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup rw";
            assert_eq!(cgroup_v2_mount(text).as_deref(), Some("/sys/fs/cgroup"));
            assert_eq!(cgroup_v2_mount("31 24 0:27 / /x rw - cgroup cgroup rw"), None);
        }

        #[test]
        fn this_machine_is_described() {
            let report = probe();
            assert_eq!(report.system, "linux");
            assert!(report.kernel_release.is_some_and(|release| !release.is_empty()));
            assert_eq!(report.launcher, Availability::Available);
            assert_eq!(report.subreaper, Availability::Available);
        }
    }
}
