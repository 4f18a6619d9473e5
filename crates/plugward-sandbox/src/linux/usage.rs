//! How much of the machine a plugin's processes use, read from `/proc`.
//!
//! Owns counting memory over a whole tree, so that what processes share is counted once, and finding files that have no
//! name any more. Refuses exactness: processes come and go while they are counted.

use std::{collections::BTreeSet, fs, io::Read, os::fd::OwnedFd, path::Path};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat};

use super::tree;

/// Most entries of one table of descriptors that are looked at: the most open files a manifest may ask for, and the two
/// entries of every folder.
const MAX_DESCRIPTORS: usize = 65_536 + 2;
/// Tables of descriptors a thread's is compared with, the latest first. A process with many tables has made them so that they
/// are not found; then each thread is looked at, and some tables twice.
const TABLES_COMPARED: usize = 4;
/// Size of the units that the kernel counts a file's blocks in, whatever the file system uses, in bytes.
pub(super) const BLOCK_BYTES: u64 = 512;
/// Largest file of `/proc` read here; those that matter are below 1 KiB.
const MAX_PROC_BYTES: u64 = 8192;

/// Size of a page of memory in bytes.
fn page_size() -> u64 {
    #[allow(unsafe_code, reason = "the query has no safe wrapper in the parts of rustix used here")]
    // SAFETY: the call takes a number and touches no memory.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// What is cheap to read of one process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Quick {
    /// Pages in memory, with those shared with others, in bytes.
    pub(super) resident_bytes: u64,
    /// Processor time so far, in the kernel's ticks.
    pub(super) cpu_ticks: u64,
}

/// The cheap look at one process; nothing if it is gone.
pub(super) fn quick(pid: i32) -> Quick {
    let pages = resident_pages(pid).or_else(|| resident_pages(with_memory(pid)?));
    let ticks = read(&format!("/proc/{pid}/stat")).and_then(|text| cpu_ticks(&text));
    Quick {
        resident_bytes: pages.unwrap_or_default().saturating_mul(page_size()),
        cpu_ticks: ticks.unwrap_or_default(),
    }
}

/// Pages in memory as one thread tells them; none once it has ended, though others of its process go on.
fn resident_pages(thread: i32) -> Option<u64> {
    let text = read(&format!("/proc/{thread}/statm"))?;
    text.split(' ').nth(1)?.parse::<u64>().ok().filter(|pages| *pages > 0)
}

/// A thread by which the memory of a process can be read: all of them share it, but one that has ended, such as the first
/// of a process that goes on without it, shows none.
fn with_memory(pid: i32) -> Option<i32> {
    tree::threads(pid).into_iter().find(|thread| resident_pages(*thread).is_some())
}

/// User and system time of a status line; the name in parentheses may hold anything, so fields count from its end.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

/// Memory that processes took and that would not be there without them, in bytes: their own pages, and shared memory with
/// each page divided among those that share it.
pub(super) fn memory_bytes(tree: &[i32]) -> u64 {
    let (mut own, mut shared) = (0_u64, 0_u64);
    for pid in tree {
        let reader = with_memory(*pid).unwrap_or(*pid);
        match read(&format!("/proc/{reader}/smaps_rollup")).as_deref().and_then(proportional) {
            Some((anonymous, in_files)) => {
                own = own.saturating_add(anonymous);
                shared = shared.saturating_add(in_files);
            }
            // It hides from its own user, or the kernel has no such file: what it shares then counts in full.
            None => own = own.saturating_add(quick(*pid).resident_bytes),
        }
    }
    // Files in memory that are open may be mapped as well, and would count twice.
    own.saturating_add(shared.max(nameless(tree, None).in_memory_bytes))
}

/// The two figures of a rollup, in bytes.
fn proportional(rollup: &str) -> Option<(u64, u64)> {
    let kib = |key: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    Some((kib("Pss_Anon:")?.saturating_mul(1024), kib("Pss_Shmem:")?.saturating_mul(1024)))
}

/// Content of open files without a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Nameless {
    /// On the device asked about.
    pub(super) on_device_bytes: u64,
    /// On others: files of memory.
    pub(super) in_memory_bytes: u64,
}

/// Finds files without a name that the processes have open, each counted once.
pub(super) fn nameless(tree: &[i32], device: Option<u64>) -> Nameless {
    let mut found = Nameless::default();
    let mut seen = BTreeSet::new();
    for thread in tree.iter().flat_map(|pid| with_descriptors(*pid)) {
        let Some(folder) = open_folder(Path::new(&format!("/proc/{thread}/fd"))) else { continue };
        let Ok(entries) = Dir::read_from(&folder) else { continue };
        for entry in entries.flatten().take(MAX_DESCRIPTORS) {
            // Through the link, to the file itself, without opening it.
            let Ok(file) = statat(&folder, entry.file_name(), AtFlags::empty()) else { continue };
            let is_file = FileType::from_raw_mode(file.st_mode) == FileType::RegularFile;
            if !is_file || file.st_nlink != 0 || !seen.insert((file.st_dev, file.st_ino)) {
                continue;
            }
            let bytes = u64::try_from(file.st_blocks).unwrap_or_default().saturating_mul(BLOCK_BYTES);
            if Some(file.st_dev) == device {
                found.on_device_bytes = found.on_device_bytes.saturating_add(bytes);
            } else if file.st_dev >> 8 == 0 {
                // File systems without a device have numbers with a major part of 0; a disk's file elsewhere is not ours.
                found.in_memory_bytes = found.in_memory_bytes.saturating_add(bytes);
            }
        }
    }
    found
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
    const KCMP_FILES: libc::c_long = 2;
    #[allow(unsafe_code, reason = "the call has no safe wrapper")]
    // SAFETY: the call takes numbers and touches no memory.
    let order =
        unsafe { libc::syscall(libc::SYS_kcmp, libc::c_long::from(one), libc::c_long::from(other), KCMP_FILES, 0, 0) };
    order == 0
}

fn open_folder(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).ok()
}

fn read(path: &str) -> Option<String> {
    let mut content = Vec::new();
    fs::File::open(path).ok()?.take(MAX_PROC_BYTES).read_to_end(&mut content).ok()?;
    // A process chooses its own name, which may not be UTF-8.
    Some(String::from_utf8_lossy(&content).into_owned())
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::fd::AsRawFd};

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn figures_are_found_behind_a_hostile_name() {
        let line = "12 (a) R 1 (b) c) S 7 12 5 0 -1 4194304 100 0 0 0 31 11 0 0 20 0 1 0 100";
        assert_eq!(cpu_ticks(line), Some(42));
        assert_eq!(cpu_ticks("12 (a"), None);
        let rollup = "5 ---p [rollup]\nRss: 9 kB\nPss: 8 kB\nPss_Anon:   3 kB\nPss_File: 1 kB\nPss_Shmem:   2 kB\n";
        assert_eq!(proportional(rollup), Some((3 * 1024, 2 * 1024)));
        assert_eq!(proportional("Rss: 9 kB\n"), None);
    }

    // Threat 36: memory written through a descriptor is in no process's map, and has to be counted all the same.
    #[test]
    fn memory_behind_a_descriptor_counts() {
        const WRITTEN: usize = 8 << 20;
        let own = i32::try_from(std::process::id()).unwrap();
        let before = nameless(&[own], None).in_memory_bytes;
        let mut file = fs::File::from(memfd_create("hidden", MemfdFlags::CLOEXEC).unwrap());
        file.write_all(&vec![1; WRITTEN]).unwrap();
        let after = nameless(&[own, own], None).in_memory_bytes;
        assert!(after >= before + WRITTEN as u64, "{before} to {after}, with descriptor {}", file.as_raw_fd());
        assert!(memory_bytes(&[own]) >= WRITTEN as u64);
        assert!(quick(own).resident_bytes > 0);
        assert_eq!(quick(-1), Quick::default());
    }
}
