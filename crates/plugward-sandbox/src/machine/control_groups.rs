//! Control groups as this process finds them.
//!
//! Owns which group this process is in and what it may do there. Refuses making groups.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::read;

/// Controllers that limit what a plugin uses.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// What is needed to give each plugin a group of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ControlGroupFacts {
    /// Where the hierarchy of version 2 is mounted.
    pub v2_mount: Option<String>,
    /// The group of this process in it.
    pub own_group: Option<String>,
    /// Controllers that work in that group.
    pub controllers: Vec<String>,
    /// Whether this user may make groups below it.
    pub is_delegated: bool,
    /// Controllers that work in hierarchies of version 1, and therefore not in version 2.
    pub held_by_version_1: Vec<String>,
}

impl ControlGroupFacts {
    pub(super) fn read(root: &Path, mounts: &str, uid: u32) -> Self {
        let held_by_version_1 = controllers_of_version_1(mounts);
        let Some(mount) = mount_of_version_2(mounts) else { return Self { held_by_version_1, ..Self::default() } };
        let own_group = read(root, "proc/self/cgroup")
            .and_then(|groups| groups.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned));
        let folder = own_group.as_ref().map(|group| root.join(within(&mount)).join(within(group)));
        let (controllers, is_delegated) = folder.map_or((Vec::new(), false), |folder| {
            let list = read(&folder, "cgroup.controllers").unwrap_or_default();
            let listed = list.split_whitespace().map(str::to_owned).collect();
            (listed, belongs_to(&folder, uid) && belongs_to(&folder.join("cgroup.procs"), uid))
        });
        Self { v2_mount: Some(mount), own_group, controllers, is_delegated, held_by_version_1 }
    }
}

/// A path of the machine as one below another root.
fn within(path: &str) -> &str {
    path.trim_start_matches('/')
}

/// In each line the type follows a lone `-`.
fn mount_of_version_2(mounts: &str) -> Option<String> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        (kind.split(' ').next() == Some("cgroup2")).then(|| mount.split(' ').nth(4).map(str::to_owned))?
    })
}

/// The controllers of a hierarchy of version 1 are among the options of its file system.
fn controllers_of_version_1(mounts: &str) -> Vec<String> {
    let trees = mounts.lines().filter_map(|line| line.split_once(" - cgroup ")?.1.split(' ').nth(1));
    let known = trees.flat_map(|options| options.split(',')).filter(|option| CONTROLLERS.contains(option));
    known.map(str::to_owned).collect()
}

/// Delegation is a matter of ownership; the rights of root are no delegation, but serve as well.
#[cfg(unix)]
fn belongs_to(path: &Path, uid: u32) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    path.metadata().is_ok_and(|found| uid == 0 || found.uid() == uid)
}

#[cfg(not(unix))]
fn belongs_to(_path: &Path, _uid: u32) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt};

    use super::*;

    /// A group that looks delegated and is not would have limits promised that nothing keeps.
    #[test]
    fn delegation_is_ownership_of_the_own_group() {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("sys/fs/cgroup/user.slice/plugward.service");
        fs::create_dir_all(&group).unwrap();
        fs::create_dir_all(folder.path().join("proc/self")).unwrap();
        fs::write(folder.path().join("proc/self/cgroup"), "1:name=x:/old\n0::/user.slice/plugward.service\n").unwrap();
        fs::write(group.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        fs::write(group.join("cgroup.procs"), "").unwrap();
        let mounts = "30 24 0:26 / /sys rw - sysfs sysfs rw\n\
                      31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup rw";
        let owner = group.metadata().unwrap().uid();
        let facts = ControlGroupFacts::read(folder.path(), mounts, owner);
        assert_eq!(facts.own_group.as_deref(), Some("/user.slice/plugward.service"));
        assert_eq!((facts.controllers.join(" ").as_str(), facts.is_delegated), ("cpu memory pids", true));
        assert!(!ControlGroupFacts::read(folder.path(), mounts, owner + 1).is_delegated);
        assert!(facts.held_by_version_1.is_empty());
        let both = format!(
            "{mounts}\n32 24 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                            33 24 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd"
        );
        assert_eq!(ControlGroupFacts::read(folder.path(), &both, owner).held_by_version_1, ["cpu"]);
        assert_eq!(
            ControlGroupFacts::read(folder.path(), "31 24 0:27 / /x rw - cgroup c rw", owner),
            Default::default()
        );
    }
}
