//! The process tree below the launcher, read from `/proc`.
//!
//! Owns finding descendants and signalling them without hitting a process that merely got a recycled id. Refuses
//! deciding when the tree is gone: only the kernel's answer to `wait` proves that, because the launcher adopts every
//! orphan of its tree.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

/// Most processes looked at in one walk. A larger tree (a fork storm) is ended in several walks, so that the memory of
/// the launcher stays bounded; 32,768 is the default limit of process ids.
const MAX_PROCESSES: usize = 32_768;

/// Most processes of ours between the launcher and a plugin: bubblewrap and the first one of the namespaces, and room for
/// two more.
const MAX_BETWEEN: usize = 4;

/// One line of `/proc/PID/stat`, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) parent: i32,
    pub(super) session: i32,
    pub(super) state: u8,
    /// What the kernel notes about it.
    flags: u64,
}

/// The kernel's note that a process is on its way out: its memory and descriptors are given back before it is dead.
const EXITING: u64 = 0x4;

impl Stat {
    /// Whether the process only waits to be collected.
    pub(super) fn is_dead(self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// Whether it holds nothing any more, or will not in a moment.
    pub(super) fn is_ending(self) -> bool {
        self.is_dead() || self.flags & EXITING != 0
    }
}

/// Reads the status line of a process; `None` if it is gone.
pub(super) fn stat(pid: i32) -> Option<Stat> {
    // A process name may be any bytes, so the file may not be UTF-8.
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The name in parentheses may itself contain parentheses and spaces, so fields count from the last closing one.
fn parse_stat(line: &[u8]) -> Option<Stat> {
    let end = line.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(line.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    let flags = fields.nth(2)?.parse().ok()?;
    Some(Stat { parent, session, state, flags })
}

/// All processes below `root`, parents before their children.
pub(super) fn descendants(root: i32) -> io::Result<Vec<i32>> {
    // Kernels may be built without the list of children; then the whole table is read.
    if fs::exists(format!("/proc/{root}/task/{root}/children"))? {
        Ok(walk(root, children_from_tasks))
    } else {
        let mut table: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for pid in all_processes()? {
            if let Some(stat) = stat(pid) {
                table.entry(stat.parent).or_default().push(pid);
            }
        }
        Ok(walk(root, |pid| table.get(&pid).cloned().unwrap_or_default()))
    }
}

fn walk(root: i32, children: impl Fn(i32) -> Vec<i32>) -> Vec<i32> {
    let mut seen = BTreeSet::from([root]);
    let mut found = Vec::new();
    let mut next = children(root);
    let mut position = 0;
    loop {
        for pid in next {
            if found.len() < MAX_PROCESSES && seen.insert(pid) {
                found.push(pid);
            }
        }
        let Some(pid) = found.get(position) else { return found };
        next = children(*pid);
        position += 1;
    }
}

/// The threads of a process, the first one included where it is listed; none if the process is gone.
pub(super) fn threads(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

/// The processes between `root` and one below it, the lower end left out: those through which it was started.
pub(super) fn between(root: i32, below: i32) -> Vec<i32> {
    let parents = std::iter::successors(stat(below), |found| stat(found.parent)).map(|found| found.parent);
    parents.take_while(|pid| *pid != root && *pid > 1).take(MAX_BETWEEN).collect()
}

/// Each thread has children of its own.
fn children_from_tasks(pid: i32) -> Vec<i32> {
    let mut children = Vec::new();
    for thread in threads(pid) {
        if let Ok(list) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")) {
            children.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
    }
    children
}

fn all_processes() -> io::Result<Vec<i32>> {
    let entries = fs::read_dir("/proc")?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Sends `signal` to every process of `tree` (as found below `root`), parents first so that a parent cannot replace a
/// child it sees dying. Reports each process that was alive and could be signalled.
pub(super) fn signal_tree(root: i32, tree: &[i32], signal: Signal, mut signalled: impl FnMut(i32)) {
    let mut members: BTreeSet<i32> = tree.iter().copied().collect();
    members.insert(root);
    for pid in tree {
        if signal_member(*pid, signal, |stat| members.contains(&stat.parent)) {
            signalled(*pid);
        }
    }
}

/// Kills every process of a session, for the case that its launcher is gone and cannot. Returns how many there were.
///
/// The caller has not collected the launcher yet, so its process id, which names the session, is not reused.
pub(super) fn kill_session(session: i32) -> u32 {
    let mut killed = 0;
    for pid in all_processes().unwrap_or_default() {
        let belongs = |stat: &Stat| stat.session == session && pid != session;
        let Some(stat) = stat(pid).filter(belongs) else { continue };
        // The first thread may have ended before the others, which go on.
        let lives = !stat.is_dead() || threads(pid).len() > 1;
        let sent = lives && signal_member(pid, Signal::KILL, |stat| belongs(&stat));
        killed += u32::from(sent || stat.is_dead() && lives);
    }
    killed
}

/// Signals a process if it still is the one meant: the descriptor pins the process, then the check is made, then the
/// signal goes through the descriptor. Returns whether a living process was signalled.
fn signal_member(pid: i32, signal: Signal, is_meant: impl Fn(Stat) -> bool) -> bool {
    let Some(raw) = Pid::from_raw(pid) else { return false };
    let pinned = pidfd_open(raw, PidfdFlags::empty());
    let Some(stat) = stat(pid).filter(|stat| is_meant(*stat)) else { return false };
    let sent = match pinned {
        Ok(descriptor) => pidfd_send_signal(descriptor, signal),
        // Kernels before 5.3: no way to pin, the check just made is as good as it gets.
        Err(rustix::io::Errno::NOSYS) => kill_process(raw, signal),
        Err(error) => Err(error),
    };
    sent.is_ok() && !stat.is_dead()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process can choose its name; a name like a status line must not hide it from the end of its tree.
    #[test]
    fn status_line_with_hostile_name() {
        let line = b"12 (a) S 1 (x) \xff) R 7 12 5 0 -1 4194304";
        assert_eq!(parse_stat(line), Some(Stat { parent: 7, session: 5, state: b'R', flags: 4_194_304 }));
        assert_eq!(parse_stat(b"12 (a"), None);
        assert_eq!(parse_stat(b"12 (a) S"), None);
    }

    /// Parents must come first, and a table that changes under the reader must not loop.
    #[test]
    fn walk_is_top_down_and_ends_on_cycles() {
        let children = |pid| match pid {
            1 => vec![2, 3],
            2 => vec![4],
            4 => vec![1, 2],
            _ => Vec::new(),
        };
        assert_eq!(walk(1, children), [2, 3, 4]);
    }

    /// The walk must be bounded even if a fork storm makes more processes than it can hold.
    #[test]
    fn walk_is_bounded() {
        assert_eq!(walk(1, |pid| vec![pid + 1, pid + 2]).len(), MAX_PROCESSES);
    }

    #[test]
    fn reads_own_status() {
        let own = i32::try_from(std::process::id()).unwrap();
        let stat = stat(own).unwrap();
        assert!(stat.parent > 0 && !stat.is_ending());
        assert!(between(stat.parent, own).is_empty());
    }
}
