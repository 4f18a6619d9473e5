//! Which processes have an address space in common.
//!
//! Owns counting such a space once: a process that was started by `vfork` or `posix_spawn` lives in its parent's until its
//! own program begins. Refuses guessing: processes of which the kernel does not say it count as having one each.

use std::cmp::Ordering;

/// Whether two processes have something in common, or two threads.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shared {
    /// Their address space.
    Memory = 1,
    /// Their table of descriptors.
    Descriptors = 2,
}

/// One process for each address space. What the kernel keeps in order is looked for by halves, so a tree of many processes
/// costs little more than it does to read it.
pub(super) fn distinct(tree: &[i32]) -> Vec<i32> {
    // One that may not be looked at says nothing about itself either, and must not stand in the way of others.
    let (known, mut unknown): (Vec<i32>, Vec<i32>) =
        tree.iter().partition(|pid| compare(**pid, **pid, Shared::Memory).is_some());
    let mut ordered: Vec<i32> = Vec::new();
    for pid in known {
        let mut has_ended = false;
        let place = ordered.binary_search_by(|other| {
            compare(*other, pid, Shared::Memory).unwrap_or_else(|| {
                has_ended = true;
                Ordering::Less
            })
        });
        match place {
            _ if has_ended => unknown.push(pid),
            Ok(_) => {}
            Err(place) => ordered.insert(place, pid),
        }
    }
    ordered.append(&mut unknown);
    ordered
}

/// The kernel's own order of what two threads have; nothing where it does not say.
pub(super) fn compare(one: i32, other: i32, what: Shared) -> Option<Ordering> {
    let (one, other) = (libc::c_long::from(one), libc::c_long::from(other));
    #[allow(unsafe_code, reason = "the call has no safe wrapper")]
    // SAFETY: the call takes numbers and touches no memory.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one, other, what as libc::c_long, 0, 0) };
    match order {
        0 => Some(Ordering::Equal),
        1 => Some(Ordering::Less),
        2 => Some(Ordering::Greater),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// A process that counts twice is ended for memory that it does not have.
    #[test]
    fn each_space_is_found_once_and_what_is_gone_is_not_lost() {
        let own = i32::try_from(std::process::id()).unwrap();
        let mut children: Vec<_> = (0..5)
            .map(|_| Command::new("/bin/cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
            .collect();
        let pids: Vec<i32> = children.iter().map(|child| i32::try_from(child.id()).unwrap()).collect();
        let mut found = distinct(&[&[own, own], pids.as_slice(), &[own], pids.as_slice(), &[i32::MAX]].concat());
        found.sort_unstable();
        let mut expected = [&[own, i32::MAX], pids.as_slice()].concat();
        expected.sort_unstable();
        assert_eq!(found, expected);
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
