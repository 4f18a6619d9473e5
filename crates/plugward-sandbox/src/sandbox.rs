//! What a plugin may touch, as the kernel will be told: the level asked for, paths, network, limits and the user.
//!
//! Owns the description and its checks. Refuses policy words (no permission, no grant appears here), searching for what a
//! program needs, and weaker meanings: what cannot be enforced is an error of the start, never left out.

use std::path::{Component, Path, PathBuf};

use crate::{Level, ListedHosts, SpawnError};

/// Most paths of one kind. Each costs a mount and a rule at every start; a plugin that needs more is better served by the
/// folder above them.
pub const MAX_PATHS: usize = 256;

/// Default size of a private `/tmp` in bytes: room for unpacking an archive, small enough for twenty plugins in memory.
pub const DEFAULT_TMP_BYTES: u64 = 64 * 1024 * 1024;

/// Default size of a private `/dev/shm` in bytes; language run times use it for locks, not for data.
pub const DEFAULT_SHM_BYTES: u64 = 16 * 1024 * 1024;

/// Trees of the kernel that cannot be declared: they would show the machine and its processes, or devices.
const KERNEL_TREES: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The confinement of one plugin process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSpec {
    /// The level that has to be reached. If it cannot be, nothing starts (requirement 146).
    pub level: Level,
    /// The plugin's own package, read-only (requirement 90). A plugin cannot change its own code. No part of the path may
    /// be a symbolic link. At level `full`, a plugin with a user of its own becomes the owner of what is in it, because
    /// programs such as git refuse files of somebody else; being read-only there, it stays as it is.
    pub package_dir: Option<PathBuf>,
    /// The plugin's private home: it may read and write there, but execute nothing. A user of the plugin's own becomes the
    /// owner of everything in it. No part of the path may be a symbolic link.
    pub home_dir: Option<PathBuf>,
    /// Files and folders it needs to run at all, to read and execute: those that nobody but the owner of the machine
    /// changes. Symbolic links on the way are followed when the process starts.
    pub read_only: Vec<PathBuf>,
    /// Other files and folders it may read and execute, which were looked at before: each is opened as it is written here,
    /// and the start fails if any part of the path has become a symbolic link since.
    pub granted: Vec<PathBuf>,
    /// Names with links in them by which it reaches places of `granted` and `read_write`. Each link on the way is made
    /// again inside, and the start fails if the name leads anywhere else by then.
    pub aliases: Vec<Alias>,
    /// Other files and folders it may read and write, but execute nothing from. No part of such a path may be a symbolic
    /// link, because an earlier run may have planted it. A user of the plugin's own has to be the owner already.
    pub read_write: Vec<PathBuf>,
    /// Size of its private `/tmp` in bytes. Only level `full` has one.
    pub tmp_bytes: u64,
    /// Size of its private `/dev/shm` in bytes. Only level `full` has one.
    pub shm_bytes: u64,
    /// Whether it may read the machine's certificates for TLS (`/etc/ssl/certs` and what that leads to).
    pub certificates: bool,
    /// What it may reach (requirement 91).
    pub network: Network,
    /// Limits on resources (requirements 92 and 93).
    pub limits: Limits,
    /// The user it runs as (requirement 86).
    pub user: UserPolicy,
}

/// A name that leads to another place by symbolic links.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alias {
    /// The name the plugin uses.
    pub name: PathBuf,
    /// Where it leads, without any link.
    pub place: PathBuf,
}

/// What a plugin may reach over the network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Network {
    /// Nothing, not even services of this machine.
    #[default]
    Off,
    /// Listeners in a network of its own, and nothing else. Takes level `full`.
    Hosts(ListedHosts),
    /// Everything the machine can reach.
    Open,
}

/// Limits on resources; `None` leaves the limit the host has itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory in bytes: that of all processes together with what they share, beyond which they are killed. The kernel refuses
    /// each process more than this and a margin, for those that are faster than the look at them.
    pub memory_bytes: Option<u64>,
    /// Address space of each process in bytes. Breaks run times that reserve more than they use, such as Node.js.
    pub address_space_bytes: Option<u64>,
    /// Processor time of each process in seconds, over its whole life.
    pub cpu_s: Option<u64>,
    /// Processes and threads at a time, all together. Enforced at level `full`, or with a user of the plugin's own.
    pub processes: Option<u64>,
    /// Open descriptors of each process.
    pub open_files: Option<u64>,
    /// Size of each file written in bytes.
    pub file_bytes: Option<u64>,
    /// Size of everything in its home in bytes, beyond which it is killed.
    pub disk_bytes: Option<u64>,
    /// Time it may run in seconds, after which it is killed.
    pub wall_s: Option<u64>,
    /// Share of the processors for all of its processes together, in hundredths of one processor. Kept by a control group,
    /// and by nothing where there is none.
    pub cpu_percent: Option<u64>,
}

impl Default for Limits {
    /// Twice what the largest of the usual servers takes, measured on Node.js and Python. Processor time and the time
    /// it may run have no default, because a server that runs for weeks adds them up.
    fn default() -> Self {
        Self {
            memory_bytes: Some(2 * 1024 * 1024 * 1024),
            address_space_bytes: None,
            cpu_s: None,
            processes: Some(256),
            open_files: Some(1024),
            file_bytes: Some(1024 * 1024 * 1024),
            disk_bytes: Some(2 * 1024 * 1024 * 1024),
            wall_s: None,
            cpu_percent: None,
        }
    }
}

/// The user a plugin runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UserPolicy {
    /// The user of the host. Refused if that is root: root in a sandbox is still the owner of root's files.
    #[default]
    Same,
    /// This unprivileged user and group, of the plugin's own. Takes a host that runs as root.
    Drop {
        /// User id, not 0.
        uid: u32,
        /// Group id, not 0.
        gid: u32,
    },
}

impl SandboxSpec {
    /// The strictest sandbox of a level: no path, no network, default limits.
    #[must_use]
    pub fn new(level: Level) -> Self {
        Self {
            level,
            package_dir: None,
            home_dir: None,
            read_only: Vec::new(),
            granted: Vec::new(),
            aliases: Vec::new(),
            read_write: Vec::new(),
            tmp_bytes: DEFAULT_TMP_BYTES,
            shm_bytes: DEFAULT_SHM_BYTES,
            certificates: false,
            network: Network::Off,
            limits: Limits::default(),
            user: UserPolicy::Same,
        }
    }

    /// Every path it may read and execute that is opened as it is written, the package first. The position is the number
    /// in reports about a path.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux starts plugins"))]
    pub(crate) fn exact(&self) -> impl Iterator<Item = &Path> {
        self.package_dir.iter().chain(&self.granted).map(PathBuf::as_path)
    }

    /// Every path it may read and execute.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux starts plugins"))]
    pub(crate) fn readable(&self) -> impl Iterator<Item = &Path> {
        self.exact().chain(self.read_only.iter().map(PathBuf::as_path))
    }

    /// Every path it may write to, the home first. The position is the number in reports about a path.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux starts plugins"))]
    pub(crate) fn writable(&self) -> impl Iterator<Item = &Path> {
        self.home_dir.iter().chain(&self.read_write).map(PathBuf::as_path)
    }

    /// Refuses what could not be enforced, before anything starts.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux starts plugins"))]
    pub(crate) fn check(&self) -> Result<(), SpawnError> {
        if let Network::Hosts(listed) = &self.network {
            if self.level != Level::Full {
                let reason = format!("lists hosts, which level `{}` cannot enforce; ask for level `full`", self.level);
                return Err(invalid("network", reason));
            }
            listed.check()?;
        }
        for (field, paths) in [
            ("readable path", self.readable().collect()),
            ("writable path", self.writable().collect()),
            ("alias", self.aliases.iter().map(|alias| alias.name.as_path()).collect()),
            ("place of an alias", self.aliases.iter().map(|alias| alias.place.as_path()).collect()),
        ] {
            let paths: Vec<&Path> = paths;
            if paths.len() > MAX_PATHS {
                return Err(invalid(field, format!("list has {} entries, the limit is {MAX_PATHS}", paths.len())));
            }
            paths.into_iter().try_for_each(|path| check_path(field, path))?;
        }
        if let UserPolicy::Drop { uid, gid } = self.user {
            // The largest value is the kernel's way of saying "no change".
            if [uid, gid].iter().any(|id| matches!(*id, 0 | u32::MAX)) {
                return Err(invalid("user", format!("`{uid}:{gid}` is not an unprivileged user and group")));
            }
        }
        for (field, bytes) in [("size of /tmp", self.tmp_bytes), ("size of /dev/shm", self.shm_bytes)] {
            // Zero means "no limit" to the kernel.
            if bytes == 0 {
                return Err(invalid(field, "is 0".to_owned()));
            }
        }
        Ok(())
    }
}

fn check_path(field: &'static str, path: &Path) -> Result<(), SpawnError> {
    let shown = path.display().to_string();
    let shown = shown.escape_debug();
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !plain {
        return Err(invalid(field, format!("`{shown}` is not an absolute path without `..`")));
    }
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(invalid(field, format!("`{shown}` contains a NUL byte")));
    }
    if path.parent().is_none() {
        return Err(invalid(field, "`/` would undo the sandbox".to_owned()));
    }
    if KERNEL_TREES.iter().any(|tree| path.starts_with(tree)) {
        return Err(invalid(field, format!("`{shown}` belongs to the kernel")));
    }
    Ok(())
}

fn invalid(field: &'static str, reason: String) -> SpawnError {
    SpawnError::InvalidSandbox { field, reason }
}

/// The parts of this machine that programs of the distribution need to run: shells, interpreters, shared libraries. All
/// of them are readable by every user anyway.
///
/// For [`SandboxSpec::read_only`]; a static program needs none of them.
#[must_use]
pub fn system_paths() -> Vec<PathBuf> {
    const CANDIDATES: [&str; 9] =
        ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/ld.so.cache", "/etc/alternatives"];
    CANDIDATES.iter().map(PathBuf::from).filter(|path| path.exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement 146: a request that cannot be enforced is refused with its reason, never read as something weaker.
    #[test]
    fn refuses_what_cannot_be_enforced() {
        type Change = fn(&mut SandboxSpec);
        assert!(SandboxSpec::new(Level::Full).check().is_ok());
        let broken: [(&str, Change); 9] = [
            ("sandbox network lists hosts, which level `partial` cannot enforce; ask for level `full`", |s| {
                s.level = Level::Partial;
                s.network = Network::Hosts(ListedHosts::default());
            }),
            ("sandbox readable path `lib` is not an absolute path without `..`", |s| s.read_only.push("lib".into())),
            ("sandbox writable path `/a/../b` is not an absolute path without `..`", |s| {
                s.read_write.push("/a/../b".into());
            }),
            ("sandbox readable path `/` would undo the sandbox", |s| s.package_dir = Some("/".into())),
            ("sandbox readable path `/proc/1` belongs to the kernel", |s| s.read_only.push("/proc/1".into())),
            ("sandbox writable path `/a\\0` contains a NUL byte", |s| s.read_write.push("/a\0".into())),
            ("sandbox user `0:5` is not an unprivileged user and group", |s| {
                s.user = UserPolicy::Drop { uid: 0, gid: 5 };
            }),
            ("sandbox size of /tmp is 0", |s| s.tmp_bytes = 0),
            ("sandbox writable path list has 257 entries, the limit is 256", |s| {
                s.read_write = vec!["/a".into(); MAX_PATHS + 1];
            }),
        ];
        for (message, change) in broken {
            let mut changed = SandboxSpec::new(Level::Full);
            change(&mut changed);
            assert_eq!(changed.check().unwrap_err().to_string(), message);
        }
    }
}
