//! What the kernel holds a running plugin to, as reported to people and programs.
//!
//! Owns the words of the report. Refuses optimism: a level is stated only for layers this crate has applied and seen
//! work, never derived from configuration.

use serde::{Deserialize, Serialize};

/// How strongly a plugin is confined, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Level {
    /// No confinement: the plugin can do what its user can do.
    None,
    /// Resource limits or a system call filter alone; no confinement worth trusting.
    Limited,
    /// File content and network are confined, existence of files and the end of the tree are not guaranteed.
    Partial,
    /// Files, network, processes and the end of the tree are confined, and a probe under the same rules confirmed it.
    Full,
}

impl Level {
    /// The word used in reports and configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Limited => "limited",
            Self::Partial => "partial",
            Self::Full => "full",
        }
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The means by which the whole process tree of a plugin is found and ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TreeControl {
    /// The launcher adopts orphans and walks its descendants; a plugin that keeps forking can delay the end.
    Subreaper,
    /// A control group: the kernel kills everything in it at once.
    Cgroup,
    /// A process namespace: the end of its first process ends all others.
    PidNamespace,
    /// On macOS: its process group, and descendants that still have their parents.
    ProcessGroup,
    /// On Windows: a job object, whose end is the end of every process in it.
    Job,
}

/// What keeps a plugin from the user's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FileControl {
    /// Nothing.
    None,
    /// Landlock: content is closed, but that a file exists can be seen.
    Landlock,
    /// A file tree of its own in which nothing else exists.
    MountNamespace,
    /// On macOS: a Seatbelt profile.
    Seatbelt,
    /// On Windows: an AppContainer, which has rights to what was granted to it and to all of them.
    AppContainer,
}

/// What keeps a plugin from the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NetworkControl {
    /// Nothing.
    Open,
    /// Its network has no way out but listeners for the hosts it was given.
    Hosts,
    /// It can make no socket.
    NoneSeccomp,
    /// It can make no socket, and its network has no way out.
    NoneNamespace,
    /// On macOS: a Seatbelt profile without network rules.
    NoneSeatbelt,
    /// On Windows: an AppContainer without network capabilities.
    NoneAppContainer,
}

/// What limits the memory of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MemoryControl {
    /// Nothing.
    None,
    /// Private memory of each process; shared memory does not count.
    Rlimit,
    /// On Windows: the committed memory of each process in its job object.
    Job,
    /// As above by the kernel, and all processes together with what they share by a look ten times a second.
    RlimitAndWatch,
    /// A control group: everything its processes use, shared memory included.
    Cgroup,
}

/// What limits the number of processes of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProcessControl {
    /// Nothing.
    None,
    /// The count of its own user on the whole machine.
    User,
    /// The count of its user namespace.
    UserNamespace,
    /// On Windows: the count of its job object.
    Job,
    /// The count of its control group.
    Cgroup,
}

/// What limits the disk a plugin may fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DiskControl {
    /// Nothing.
    None,
    /// The size of each file, but not their number.
    FileSize,
    /// Private temporary files of a fixed size, and the size of each file elsewhere.
    TmpfsAndFileSize,
    /// The size of each file, and that of its home by measuring.
    FileSizeAndWatch,
    /// Private temporary files of a fixed size, the size of each file elsewhere, and that of its home by measuring.
    TmpfsFileSizeAndWatch,
}

/// The user a plugin runs as, seen from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UserControl {
    /// The host's own.
    Same,
    /// One of its own.
    Separate,
}

/// What puts the level in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Backend {
    /// The launcher itself, on Linux.
    Native,
    /// On Linux, bubblewrap for namespaces and mounts and the launcher for the rest: where only bubblewrap may make user
    /// namespaces.
    Bwrap,
    /// Seatbelt on macOS. Written and type-checked; untested.
    Seatbelt,
    /// AppContainer and job object on Windows. Written and type-checked; untested.
    AppContainer,
}

impl Backend {
    /// The word used in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Bwrap => "bwrap",
            Self::Seatbelt => "seatbelt",
            Self::AppContainer => "app_container",
        }
    }

    /// Whether the attack suite is run against it.
    #[must_use]
    pub const fn is_tested(self) -> bool {
        matches!(self, Self::Native | Self::Bwrap)
    }
}

/// Report of what is enforced for one plugin process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    /// Overall level; the only value a policy may compare with a required minimum.
    pub level: Level,
    /// What puts it in force.
    pub backend: Backend,
    /// How the process tree is ended.
    pub tree: TreeControl,
    /// What closes the file system.
    pub fs: FileControl,
    /// ABI version of Landlock in force, 0 if it is not.
    pub landlock_abi: u8,
    /// What closes the network.
    pub net: NetworkControl,
    /// What limits memory.
    pub mem: MemoryControl,
    /// What limits the number of processes.
    pub pids: ProcessControl,
    /// What limits the disk.
    pub disk: DiskControl,
    /// Whose rights it has.
    pub uid: UserControl,
    /// Layers that are not in force, in words for people.
    pub missing: Vec<String>,
    /// The probe that confirmed this under the same rules, as `ok@BOOT_ID/POLICY_HASH`. Always there above level `none`.
    pub witness: Option<String>,
    /// One sentence on what the level means here.
    pub note: String,
}

/// What the launcher has put in force, as it reports it: one bit for each fact, and the Landlock version.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux starts plugins"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Applied(u32);

#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux starts plugins"))]
impl Applied {
    pub(crate) const MOUNTS: Self = Self(1 << 8);
    pub(crate) const PROCESSES: Self = Self(1 << 9);
    pub(crate) const NETWORK: Self = Self(1 << 10);
    pub(crate) const SECCOMP: Self = Self(1 << 11);
    pub(crate) const NO_SOCKETS: Self = Self(1 << 12);
    pub(crate) const PROC: Self = Self(1 << 13);
    pub(crate) const MEMORY_LIMIT: Self = Self(1 << 14);
    pub(crate) const PROCESS_LIMIT: Self = Self(1 << 15);
    pub(crate) const FILE_LIMIT: Self = Self(1 << 16);
    pub(crate) const OWN_USER: Self = Self(1 << 17);
    /// Bubblewrap made the namespaces.
    pub(crate) const BWRAP: Self = Self(1 << 30);
    pub(crate) const MEMORY_WATCH: Self = Self(1 << 18);
    pub(crate) const DISK_WATCH: Self = Self(1 << 19);
    pub(crate) const CGROUP: Self = Self(1 << 20);
    pub(crate) const CPU_SHARE: Self = Self(1 << 21);
    /// What depends on others that start at the same time and is reported for each start by itself.
    pub(crate) const OF_ONE_START: Self = Self::CGROUP.with(Self::CPU_SHARE);

    /// What the launcher keeps from outside.
    pub(crate) const FROM_OUTSIDE: Self = Self::MEMORY_WATCH.with(Self::DISK_WATCH);

    /// What is put in force where the plugin starts.
    pub(crate) const FROM_INSIDE: Self = Self(u32::MAX).without(Self::FROM_OUTSIDE).without(Self::OF_ONE_START);

    pub(crate) const fn landlock(abi: u8) -> Self {
        Self(abi as u32)
    }

    pub(crate) const fn landlock_abi(self) -> u8 {
        self.0.to_le_bytes()[0]
    }

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    #[must_use]
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    #[must_use]
    pub(crate) const fn only(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[must_use]
    pub(crate) const fn with_if(self, condition: bool, other: Self) -> Self {
        if condition { self.with(other) } else { self }
    }

    pub(crate) const fn to_bits(self) -> u32 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

/// Landlock version from which signals and Unix sockets without a path are known to it.
const LANDLOCK_SCOPES_ABI: u8 = 6;

#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux starts plugins"))]
impl Enforcement {
    /// The report for a plugin started by the launcher without isolation layers.
    pub(crate) fn launcher_only() -> Self {
        const MISSING: [&str; 5] = [
            "file system isolation",
            "network isolation",
            "system call filter",
            "memory and process limits",
            "process namespace",
        ];
        Self {
            missing: MISSING.iter().map(ToString::to_string).collect(),
            ..Self::of(Level::None, Applied::default(), None)
        }
    }

    /// The report for layers that are in force. The level is what the launcher reached and a probe confirmed.
    pub(crate) fn of(level: Level, applied: Applied, witness: Option<String>) -> Self {
        let has = |fact| applied.has(fact);
        let landlock_abi = applied.landlock_abi();
        Self {
            level,
            backend: if has(Applied::BWRAP) { Backend::Bwrap } else { Backend::Native },
            tree: match (has(Applied::PROCESSES), has(Applied::CGROUP)) {
                (true, _) => TreeControl::PidNamespace,
                (false, true) => TreeControl::Cgroup,
                (false, false) => TreeControl::Subreaper,
            },
            fs: match landlock_abi {
                _ if has(Applied::MOUNTS) => FileControl::MountNamespace,
                0 => FileControl::None,
                _ => FileControl::Landlock,
            },
            landlock_abi,
            net: match (has(Applied::NO_SOCKETS), has(Applied::NETWORK)) {
                (true, true) => NetworkControl::NoneNamespace,
                (true, false) => NetworkControl::NoneSeccomp,
                (false, true) => NetworkControl::Hosts,
                (false, false) => NetworkControl::Open,
            },
            mem: match (has(Applied::MEMORY_LIMIT), has(Applied::MEMORY_WATCH)) {
                (true, _) if has(Applied::CGROUP) => MemoryControl::Cgroup,
                (true, true) => MemoryControl::RlimitAndWatch,
                (true, false) => MemoryControl::Rlimit,
                (false, _) => MemoryControl::None,
            },
            pids: match (has(Applied::PROCESS_LIMIT), has(Applied::PROCESSES)) {
                _ if has(Applied::CGROUP) => ProcessControl::Cgroup,
                (true, true) => ProcessControl::UserNamespace,
                (true, false) => ProcessControl::User,
                (false, _) => ProcessControl::None,
            },
            disk: match (has(Applied::FILE_LIMIT), has(Applied::MOUNTS), has(Applied::DISK_WATCH)) {
                (true, true, true) => DiskControl::TmpfsFileSizeAndWatch,
                (true, false, true) => DiskControl::FileSizeAndWatch,
                (true, true, false) => DiskControl::TmpfsAndFileSize,
                (true, false, false) => DiskControl::FileSize,
                (false, ..) => DiskControl::None,
            },
            uid: if has(Applied::OWN_USER) { UserControl::Separate } else { UserControl::Same },
            missing: missing(level, applied),
            witness,
            note: note(level).to_owned(),
        }
    }
}

/// What a reader may take for granted at this level and must not.
fn missing(level: Level, applied: Applied) -> Vec<String> {
    if level == Level::None {
        return Vec::new();
    }
    let abi = applied.landlock_abi();
    let spaces = applied.has(Applied::MOUNTS);
    let open = !applied.has(Applied::NO_SOCKETS) && !applied.has(Applied::NETWORK);
    let facts: [(bool, &str); 13] = [
        (open, "network isolation"),
        (!spaces && abi == 0, "file system isolation"),
        (!spaces && abi > 0, "hiding that files exist"),
        (!applied.has(Applied::PROCESSES), "process namespace"),
        (!spaces && abi < LANDLOCK_SCOPES_ABI, "signals to the user's other processes"),
        (!applied.has(Applied::NO_SOCKETS) && level == Level::Limited, "the user's Unix sockets"),
        (spaces && abi == 0, "Landlock as a second layer"),
        (spaces && !applied.has(Applied::PROC), "/proc inside the sandbox"),
        (
            applied.has(Applied::BWRAP),
            "keeping written files from being loaded as libraries (needs namespaces of our own)",
        ),
        (applied.has(Applied::BWRAP), "hiding what /proc tells about the machine (needs namespaces of our own)"),
        (applied.has(Applied::BWRAP), "limit on the number of temporary files (needs namespaces of our own)"),
        (!applied.has(Applied::PROCESS_LIMIT) && !applied.has(Applied::CGROUP), "limit on processes"),
        (!applied.has(Applied::MEMORY_WATCH), "limit on shared memory"),
    ];
    facts.iter().filter(|(missing, _)| *missing).map(|(_, what)| (*what).to_owned()).collect()
}

const fn note(level: Level) -> &'static str {
    match level {
        Level::None => {
            "the plugin runs with all rights of its user; environment and descriptors are its own, setuid programs gain \
             nothing, and its process tree ends with the host"
        }
        Level::Limited => {
            "the plugin can read and write what its user can; only system calls and resources are limited"
        }
        Level::Partial => {
            "the plugin reads and writes only what it was given; it can see that other files exist, and the end of its \
             process tree is not guaranteed"
        }
        Level::Full => "the plugin sees only what it was given, and its process tree ends as a whole",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A console that shows more than `none` would tell the user that files are safe when they are not.
    #[test]
    fn launcher_alone_claims_no_level() {
        let report = Enforcement::launcher_only();
        assert_eq!(report.level, Level::None);
        assert!(report.missing.iter().any(|layer| layer == "file system isolation"));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["level"], "none");
        assert_eq!(json["tree"], "subreaper");
        assert_eq!(serde_json::from_value::<Enforcement>(json).unwrap(), report);
    }

    /// A console that shows a layer which is not there would be believed.
    #[test]
    fn fields_follow_what_was_applied() {
        let nothing = Enforcement::of(Level::Limited, Applied::SECCOMP, None);
        assert_eq!((nothing.fs, nothing.net), (FileControl::None, NetworkControl::Open));
        assert!(nothing.missing.iter().any(|layer| layer == "network isolation"));
        let partial = Enforcement::of(Level::Partial, Applied::landlock(5).with(Applied::NO_SOCKETS), None);
        assert_eq!((partial.fs, partial.net), (FileControl::Landlock, NetworkControl::NoneSeccomp));
        assert_eq!((partial.tree, partial.landlock_abi), (TreeControl::Subreaper, 5));
        assert!(partial.missing.iter().any(|layer| layer == "signals to the user's other processes"));
        let listed = Enforcement::of(Level::Full, Applied::MOUNTS.with(Applied::NETWORK), None);
        assert_eq!(listed.net, NetworkControl::Hosts);
        assert!(!listed.missing.iter().any(|layer| layer == "network isolation"));
        let all = Applied::from_bits(!0xff & !Applied::BWRAP.to_bits()).with(Applied::landlock(7));
        let full = Enforcement::of(Level::Full, all, Some("ok@boot/hash".into()));
        assert_eq!((full.fs, full.net), (FileControl::MountNamespace, NetworkControl::NoneNamespace));
        assert_eq!((full.tree, full.pids), (TreeControl::PidNamespace, ProcessControl::Cgroup));
        assert_eq!((full.mem, full.disk), (MemoryControl::Cgroup, DiskControl::TmpfsFileSizeAndWatch));
        assert!(full.missing.is_empty(), "{:?}", full.missing);
        let bwrap = Enforcement::of(Level::Full, all.with(Applied::BWRAP), None);
        assert_eq!((full.backend, bwrap.backend), (Backend::Native, Backend::Bwrap));
        assert_eq!(bwrap.missing.len(), 3, "{:?}", bwrap.missing);
    }

    /// A minimum level is a comparison; a wrong order would let a weak sandbox pass for a strong one.
    #[test]
    fn levels_are_ordered_weakest_first() {
        assert!(Level::None < Level::Limited && Level::Limited < Level::Partial && Level::Partial < Level::Full);
    }
}
