//! Limits on resources of the plugin's processes.
//!
//! Owns the translation to the kernel's limits and those that are never negotiable. Refuses raising any: a limit of the
//! host that is lower stays.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{Limits, enforcement::Applied};

/// A core image of one byte is never written, and unlike 0 this also keeps a collecting program from being started.
const CORE_BYTES: u64 = 1;
/// Memory that may be kept from being swapped out: what libraries use for keys, not more.
const LOCKED_BYTES: u64 = 64 * 1024;
/// Signals that may wait to be delivered; they are counted per user, so a plugin must not use up the host's.
const PENDING_SIGNALS: u64 = 1024;

/// Private memory that the kernel gives one process beyond the limit. The watch over memory ends a plugin at the limit and says
/// so, where the kernel only refuses, which says nothing to a person; this is what is left for one that fills memory faster
/// than it is looked at. In a tenth of a second one core fills about as much.
pub(in crate::linux) const MEMORY_MARGIN_BYTES: u64 = 128 * 1024 * 1024;

/// Processor time in seconds from the signal that names this limit to the end by force, for a process that ignores it. With
/// none between them the kernel goes straight to KILL, which does not say what for.
pub(in crate::linux) const CPU_GRACE_S: u64 = 1;

/// How the number of processes is counted here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::linux) enum ProcessCount {
    /// In a user namespace or for a user of the plugin's own; `overhead` processes of ours are among them.
    Own { overhead: u64 },
    /// Together with all processes of the host's user: a limit would hit those.
    Shared,
}

/// Puts the limits in force. Allocates nothing.
pub(super) fn apply(limits: &Limits, count: ProcessCount) -> io::Result<()> {
    let processes = match count {
        ProcessCount::Own { overhead } => limits.processes.map(|limit| limit.saturating_add(overhead)),
        ProcessCount::Shared => None,
    };
    let wanted = [
        (Resource::Data, limits.memory_bytes.map(|limit| limit.saturating_add(MEMORY_MARGIN_BYTES))),
        (Resource::As, limits.address_space_bytes),
        (Resource::Cpu, limits.cpu_s),
        (Resource::Nproc, processes),
        (Resource::Nofile, limits.open_files),
        (Resource::Fsize, limits.file_bytes),
        (Resource::Core, Some(CORE_BYTES)),
        (Resource::Memlock, Some(LOCKED_BYTES)),
        (Resource::Msgqueue, Some(0)),
        (Resource::Rtprio, Some(0)),
        (Resource::Sigpending, Some(PENDING_SIGNALS)),
    ];
    for (resource, limit) in wanted {
        if let Some(limit) = limit {
            let grace = if matches!(resource, Resource::Cpu) { CPU_GRACE_S } else { 0 };
            lower(resource, limit, limit.saturating_add(grace))?;
        }
    }
    Ok(())
}

fn lower(resource: Resource, soft: u64, hard: u64) -> io::Result<()> {
    // The interface has no word for "at most", and `None` is its infinity.
    let maximum = getrlimit(resource).maximum;
    let at_most = |limit: u64| Some(maximum.map_or(limit, |maximum| maximum.min(limit)));
    setrlimit(resource, Rlimit { current: at_most(soft), maximum: at_most(hard) })?;
    Ok(())
}

/// What the report says about these limits.
pub(super) fn applied(limits: &Limits, count: ProcessCount) -> Applied {
    Applied::default()
        .with_if(limits.memory_bytes.is_some(), Applied::MEMORY_LIMIT)
        .with_if(limits.file_bytes.is_some(), Applied::FILE_LIMIT)
        .with_if(limits.processes.is_some() && count != ProcessCount::Shared, Applied::PROCESS_LIMIT)
}
