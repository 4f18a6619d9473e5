//! Limits that the kernel keeps by refusing more, and whether a plugin is at one of them.
//!
//! Owns what is in force for a plugin and what was told of it already. Refuses telling the same twice: a plugin at its limit
//! usually stays there.

use std::path::PathBuf;

use rustix::fs::{CWD, Mode, OFlags, fstatfs, openat};

use crate::{Level, Reached, SandboxSpec, enforcement::Applied};

/// The limits of one plugin, each until it was told.
#[derive(Debug)]
pub(super) struct Bounds {
    processes: Option<u64>,
    open_files: Option<u64>,
    /// Where the plugin's own folder for temporary files is seen from outside, and its size.
    temporary: Option<(PathBuf, u64)>,
}

impl Bounds {
    /// Those that are in force for a plugin whose main process is `main`.
    pub(super) fn new(sandbox: &SandboxSpec, applied: Applied, main: i32) -> Self {
        let limits = &sandbox.limits;
        let counts = applied.has(Applied::PROCESS_LIMIT) || applied.has(Applied::CGROUP);
        let has_own_folder = sandbox.level == Level::Full && applied.has(Applied::MOUNTS);
        Self {
            processes: limits.processes.filter(|_| counts),
            open_files: limits.open_files,
            temporary: has_own_folder.then(|| (PathBuf::from(format!("/proc/{main}/root/tmp")), sandbox.tmp_bytes)),
        }
    }

    /// What the plugin is at with so many threads in all, and so many descriptors in one process, and was not before.
    pub(super) fn reached(&mut self, threads: u64, most_descriptors: u64) -> Vec<Reached> {
        let processes = self.processes.take_if(|limit| threads >= *limit).map(|limit| Reached::Processes { limit });
        let descriptors = self.open_files.take_if(|limit| most_descriptors >= *limit);
        let descriptors = descriptors.map(|limit| Reached::OpenFiles { limit });
        let temporary = self.temporary.take_if(|(folder, _)| is_full(folder));
        let temporary = temporary.map(|(_, limit_bytes)| Reached::TemporaryFiles { limit_bytes });
        processes.into_iter().chain(descriptors).chain(temporary).collect()
    }
}

/// Whether a folder that is a file system of its own has no room. One that is gone, with its plugin, has.
fn is_full(folder: &PathBuf) -> bool {
    let opened = openat(CWD, folder, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    opened.and_then(fstatfs).is_ok_and(|found| found.f_blocks > 0 && (found.f_bavail == 0 || found.f_ffree == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_told_once_and_only_where_it_is_in_force() {
        let mut sandbox = SandboxSpec::new(Level::Full);
        (sandbox.limits.processes, sandbox.limits.open_files) = (Some(8), Some(64));
        let mut bounds = Bounds::new(&sandbox, Applied::PROCESS_LIMIT, -1);
        assert_eq!(bounds.reached(7, 63), []);
        assert_eq!(bounds.reached(8, 63), [Reached::Processes { limit: 8 }]);
        assert_eq!(bounds.reached(9, 64), [Reached::OpenFiles { limit: 64 }]);
        assert_eq!(bounds.reached(9, 64), []);
        let mut shared = Bounds::new(&sandbox, Applied::default(), -1);
        assert_eq!(shared.reached(100, 1), [], "they are counted together with the user's other processes");
    }

    #[test]
    fn people_read_the_key_that_raises_it() {
        assert!(
            Reached::Processes { limit: 24 }.to_string().contains("24 processes and threads, its limit (`processes`)")
        );
        assert!(Reached::OpenFiles { limit: 64 }.to_string().contains("`open_files`"));
        assert!(Reached::TemporaryFiles { limit_bytes: 1 << 26 }.to_string().contains("64 MiB"));
    }
}
