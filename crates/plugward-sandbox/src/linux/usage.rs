//! How much of the machine a plugin's processes use, read from `/proc`.
//!
//! Owns counting memory over a whole tree, so that what processes share is counted once. What is behind descriptors is for
//! [`super::descriptors`]. Refuses exactness: processes come and go while they are counted.

use std::{fs, io::Read};

use super::{spaces, tree};

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
    /// Threads, the first one included.
    pub(super) threads: u64,
}

/// The cheap look at one process; nothing if it is gone.
pub(super) fn quick(pid: i32) -> Quick {
    let pages = resident_pages(pid).or_else(|| resident_pages(with_memory(pid)?));
    let (cpu_ticks, threads) =
        read(&format!("/proc/{pid}/stat")).and_then(|text| ticks_and_threads(&text)).unwrap_or_default();
    Quick { resident_bytes: pages.unwrap_or_default().saturating_mul(page_size()), cpu_ticks, threads }
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

/// User and system time together, and the number of threads, of a status line; the name in parentheses may hold anything, so
/// fields count from its end.
fn ticks_and_threads(stat: &str) -> Option<(u64, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    // Behind those of children, the priority and the niceness.
    let threads = fields.nth(4)?.parse().ok()?;
    Some((user.checked_add(system)?, threads))
}

/// Memory that processes took and that would not be there without them, in bytes: their own pages, and shared memory with
/// each page divided among those that share it. `in_files` is what they have open of files of memory.
pub(super) fn memory_bytes(tree: &[i32], in_files: u64) -> u64 {
    let (mut own, mut shared) = (0_u64, 0_u64);
    // Each is read after it was compared: one that has begun its own program since is read as what it is by now.
    for pid in spaces::distinct(tree) {
        let reader = with_memory(pid).unwrap_or(pid);
        match read(&format!("/proc/{reader}/smaps_rollup")).as_deref().and_then(proportional) {
            Some((anonymous, mapped)) => {
                own = own.saturating_add(anonymous);
                shared = shared.saturating_add(mapped);
            }
            // It hides from its own user, or the kernel has no such file: what it shares then counts in full.
            None => own = own.saturating_add(quick(pid).resident_bytes),
        }
    }
    // Files in memory that are open may be mapped as well, and would count twice.
    own.saturating_add(shared.max(in_files))
}

/// The two figures of a rollup, in bytes.
fn proportional(rollup: &str) -> Option<(u64, u64)> {
    let kib = |key: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    Some((kib("Pss_Anon:")?.saturating_mul(1024), kib("Pss_Shmem:")?.saturating_mul(1024)))
}

fn read(path: &str) -> Option<String> {
    let mut content = Vec::new();
    fs::File::open(path).ok()?.take(MAX_PROC_BYTES).read_to_end(&mut content).ok()?;
    // A process chooses its own name, which may not be UTF-8.
    Some(String::from_utf8_lossy(&content).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_behind_a_hostile_name() {
        let line = "12 (a) R 1 (b) c) S 7 12 5 0 -1 4194304 100 0 0 0 31 11 0 0 20 0 1 0 100";
        assert_eq!(ticks_and_threads(line), Some((42, 1)));
        assert_eq!(ticks_and_threads("12 (a"), None);
        let rollup = "5 ---p [rollup]\nRss: 9 kB\nPss: 8 kB\nPss_Anon:   3 kB\nPss_File: 1 kB\nPss_Shmem:   2 kB\n";
        assert_eq!(proportional(rollup), Some((3 * 1024, 2 * 1024)));
        assert_eq!(proportional("Rss: 9 kB\n"), None);
    }

    /// A process that is compared with itself has its memory once.
    #[test]
    fn memory_of_one_space_counts_once() {
        let own = i32::try_from(std::process::id()).unwrap();
        let (once, twice) = (memory_bytes(&[own], 0), memory_bytes(&[own, own], 0));
        assert!(once > 0 && twice < once + once / 2, "{once} and {twice}");
        assert!(memory_bytes(&[own], 1 << 40) >= 1 << 40);
        assert!(quick(own).resident_bytes > 0);
        assert_eq!(quick(-1), Quick::default());
    }
}
