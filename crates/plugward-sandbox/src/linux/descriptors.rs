//! What a plugin's processes hold behind descriptors, where no process's own figures show it, read from `/proc`.
//!
//! Owns finding files that have no name any more, sockets and pipes, each counted once, by every table of descriptors there
//! is, and noticing that a table cannot be looked at. Refuses opening anything it finds: a link is followed to the file's own
//! figures, and nothing else. What a socket or a pipe really holds is not among those, so each counts as full.

use std::{collections::BTreeSet, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, openat, statat},
    io::Errno,
    process::{Pid, test_kill_process},
};

use super::{
    spaces::{Shared, compare},
    tree,
};

/// Most entries of one table of descriptors that are looked at: the most open files a manifest may ask for, and the two
/// entries of every folder.
const MAX_DESCRIPTORS: usize = 65_536 + 2;
/// Tables of descriptors a thread's is compared with, the latest first. A process with many tables has made them so that they
/// are not found; then each thread is looked at, and some tables twice.
const TABLES_COMPARED: usize = 4;
/// Size of the units that the kernel counts a file's blocks in, whatever the file system uses, in bytes.
pub(super) const BLOCK_BYTES: u64 = 512;

/// The most that a pipe holds: 16 pages, unless it is made larger, which the filter refuses.
const PIPE_BYTES: u64 = 64 * 1024;
/// What a socket may keep for its way out or in, where the system does not say: its own usual choice.
const SOCKET_BUFFER_BYTES: u64 = 212_992;

/// The most that the kernel keeps for a socket in bytes, at the size it is made with, which the filter leaves it: what is on
/// its way out and in, or twice as much on its way out, since the last message may go beyond.
pub(super) fn socket_bytes() -> u64 {
    let default = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}_default")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let (out, into) = (default("wmem"), default("rmem"));
    let out = out.unwrap_or(SOCKET_BUFFER_BYTES);
    out.saturating_add(out.max(into.unwrap_or(SOCKET_BUFFER_BYTES)))
}

/// What is held behind descriptors, each thing counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Files without a name on the device asked about, in bytes.
    pub(super) on_device_bytes: u64,
    /// Files without a name in memory, in bytes.
    pub(super) in_memory_bytes: u64,
    /// Sockets.
    pub(super) sockets: u64,
    /// Pipes, with a name and without.
    pub(super) pipes: u64,
    /// Entries of the fullest table of descriptors.
    pub(super) most_entries: u64,
    /// Whether a process that lives cannot be looked at, so that what it holds is not among this.
    pub(super) is_hidden: bool,
}

impl Held {
    fn add(&mut self, file: &Stat, device: Option<u64>) {
        match FileType::from_raw_mode(file.st_mode) {
            FileType::Socket => self.sockets += 1,
            FileType::Fifo => self.pipes += 1,
            FileType::RegularFile if file.st_nlink == 0 => {
                let bytes = u64::try_from(file.st_blocks).unwrap_or_default().saturating_mul(BLOCK_BYTES);
                if Some(file.st_dev) == device {
                    self.on_device_bytes = self.on_device_bytes.saturating_add(bytes);
                }
                // File systems without a device have numbers with a major part of 0; a disk's file elsewhere is not ours.
                if file.st_dev >> 8 == 0 {
                    self.in_memory_bytes = self.in_memory_bytes.saturating_add(bytes);
                }
            }
            _ => {}
        }
    }

    /// The most that the kernel keeps for the sockets and pipes, in bytes, with so much for each socket.
    pub(super) fn buffers_bytes(&self, socket_bytes: u64) -> u64 {
        self.sockets.saturating_mul(socket_bytes).saturating_add(self.pipes.saturating_mul(PIPE_BYTES))
    }
}

/// Looks through everything that the processes have open.
pub(super) fn held(tree: &[i32], device: Option<u64>) -> Held {
    let mut found = Held::default();
    let mut seen = BTreeSet::new();
    for pid in tree {
        let tables = with_descriptors(*pid);
        found.is_hidden |= tables.is_empty() && is_out_of_sight(*pid);
        for thread in tables {
            let opened = open_folder(Path::new(&format!("/proc/{thread}/fd")));
            let Ok((entries, folder)) = opened.and_then(|folder| Ok((Dir::read_from(&folder)?, folder))) else {
                found.is_hidden |= lives(thread);
                continue;
            };
            let mut entries_seen = 0_u64;
            for entry in entries.flatten().take(MAX_DESCRIPTORS) {
                entries_seen += 1;
                // Through the link, to the file itself, without opening it.
                match statat(&folder, entry.file_name(), AtFlags::empty()) {
                    Ok(file) if seen.insert((file.st_dev, file.st_ino)) => found.add(&file, device),
                    Err(Errno::ACCESS | Errno::PERM) => found.is_hidden |= lives(thread),
                    // It was met before, or is closed by now.
                    Ok(_) | Err(_) => {}
                }
            }
            // Those for the folder itself and the one above it are none.
            found.most_entries = found.most_entries.max(entries_seen.saturating_sub(2));
        }
    }
    found
}

/// Whether a thread has a table of descriptors for more than the next moment. One that has ended cannot be looked at either,
/// and neither can one that is just ending; both never come back.
fn lives(thread: i32) -> bool {
    tree::stat(thread).is_some_and(|stat| !stat.is_ending())
}

/// Whether a process is there and yet not in `/proc`, which may be mounted so that it shows only what may be looked at.
fn is_out_of_sight(pid: i32) -> bool {
    let is_there = Pid::from_raw(pid).is_some_and(|pid| !matches!(test_kill_process(pid), Err(Errno::SRCH)));
    is_there && tree::stat(pid).is_none()
}

/// One thread for each table of descriptors of a process: usually there is one table, but a thread may have its own.
fn with_descriptors(pid: i32) -> Vec<i32> {
    let mut tables: Vec<i32> = Vec::new();
    for thread in tree::threads(pid) {
        if !tables.iter().rev().take(TABLES_COMPARED).any(|other| is_same_table(*other, thread)) {
            tables.push(thread);
        }
    }
    tables
}

/// Whether two threads have one table of descriptors. Where the kernel does not say, they count as having two, which costs
/// time and hides nothing.
fn is_same_table(one: i32, other: i32) -> bool {
    compare(one, other, Shared::Descriptors).is_some_and(std::cmp::Ordering::is_eq)
}

fn open_folder(path: &Path) -> Result<OwnedFd, Errno> {
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Write,
        os::{fd::AsRawFd, unix::net::UnixStream},
        process::{Child, Command, Stdio},
    };

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    // Threat 36: memory written through a descriptor is in no process's map, and has to be counted all the same.
    #[test]
    fn memory_behind_a_descriptor_counts() {
        const WRITTEN: usize = 8 << 20;
        let own = i32::try_from(std::process::id()).unwrap();
        let before = held(&[own], None).in_memory_bytes;
        let mut file = fs::File::from(memfd_create("hidden", MemfdFlags::CLOEXEC).unwrap());
        file.write_all(&vec![1; WRITTEN]).unwrap();
        let after = held(&[own, own], None).in_memory_bytes;
        assert!(after >= before + WRITTEN as u64, "{before} to {after}, with descriptor {}", file.as_raw_fd());
    }

    // Threat 36: what the kernel keeps between two ends is in no process's memory either.
    #[test]
    fn both_ends_of_a_connection_count_and_each_once() {
        // Processes of their own, because the tests beside this one make sockets and pipes too. What whoever runs the tests
        // has left open is in both.
        let start = |input: OwnedFd, error: OwnedFd| {
            Command::new("/bin/cat").stdin(input).stderr(error).stdout(Stdio::piped()).spawn().unwrap()
        };
        let found = |child: &Child| held(&[i32::try_from(child.id()).unwrap()], None);
        let nothing = || OwnedFd::from(fs::File::open("/dev/zero").unwrap());
        let (one, other) = UnixStream::pair().unwrap();
        let mut plain = start(nothing(), nothing());
        let mut connected = start(one.try_clone().unwrap().into(), one.into());
        let (before, after) = (found(&plain), found(&connected));
        assert_eq!((after.sockets, after.pipes), (before.sockets + 1, before.pipes));
        assert!(before.pipes > 0);
        assert_eq!(after.buffers_bytes(1 << 20) - before.buffers_bytes(1 << 20), 1 << 20);
        assert!(socket_bytes() >= 2 * 4096);
        drop(other);
        for child in [&mut plain, &mut connected] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// A process that has ended cannot be looked at; a plugin is not ended for one it has not collected yet.
    #[test]
    fn what_has_ended_hides_nothing() {
        let mut child = Command::new("/bin/true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        while lives(pid) {
            std::thread::yield_now();
        }
        assert!(tree::stat(pid).unwrap().is_ending(), "control: it has not been collected");
        assert!(!held(&[pid], None).is_hidden);
        child.wait().unwrap();
        assert!(!held(&[pid], None).is_hidden);
    }
}
