//! Limits that the kernel does not keep for a plugin: the memory of all its processes together, the size of its home, the
//! time it may run.
//!
//! Owns when to look and what is too much. Refuses killing: it says which limit was passed, and the supervision acts. A
//! limit is kept as well as a look ten times a second can: a process that writes as fast as it can gets some way beyond.

use std::time::{Duration, Instant};

use super::{
    bounds::Bounds,
    descriptors::{self, Held},
    disk::{Measured, Piece},
    tree, usage,
};
use crate::{Exceeded, Level, Reached, SandboxSpec};

/// Time between two looks at a plugin that works. In it, one core fills about 100 MiB of memory.
const BUSY_INTERVAL: Duration = Duration::from_millis(100);
/// The same for one that has used no processor time since: it cannot have filled anything.
const IDLE_INTERVAL: Duration = Duration::from_millis(400);
/// Time from the end of one measurement of the home to the next, while the plugin works.
const DISK_INTERVAL: Duration = Duration::from_secs(1);

/// The watch over one plugin.
#[derive(Debug)]
pub(super) struct Watch {
    memory_bytes: Option<u64>,
    /// What a socket counts as.
    socket_bytes: u64,
    /// Whether a process that cannot be looked at ends the plugin.
    must_see: bool,
    /// Limits that the kernel keeps, once it is known which of them are in force.
    bounds: Option<Bounds>,
    /// Those of them that the plugin has come to since they were last taken.
    reached: Vec<Reached>,
    /// Processes of ours above the plugin, which hide what the launcher told them.
    spared: Vec<i32>,
    disk: Option<(Measured, u64)>,
    /// When its time is over, and how much it had, in seconds.
    ends: Option<(Instant, u64)>,
    next: Instant,
    disk_due: Instant,
    walking: bool,
    cpu_ticks: u64,
    /// Whether anything has run since the home was measured.
    worked: bool,
}

impl Watch {
    /// Begins now. `home` is the folder whose size is limited.
    pub(super) fn new(sandbox: &SandboxSpec, home: Option<Measured>) -> Self {
        let now = Instant::now();
        let limits = &sandbox.limits;
        Self {
            memory_bytes: limits.memory_bytes,
            socket_bytes: descriptors::socket_bytes(),
            // Level `limited` is kept open for a plugward inside, which hides its own.
            must_see: sandbox.level > Level::Limited && (limits.memory_bytes.is_some() || home.is_some()),
            bounds: None,
            reached: Vec::new(),
            spared: Vec::new(),
            disk: home.zip(limits.disk_bytes),
            ends: limits.wall_s.and_then(|wall_s| Some((now.checked_add(Duration::from_secs(wall_s))?, wall_s))),
            next: now + BUSY_INTERVAL,
            disk_due: now,
            walking: false,
            cpu_ticks: 0,
            worked: true,
        }
    }

    /// The watch over a witness, which is a part of the launcher and hidden like it.
    pub(super) fn of_witness(self) -> Self {
        Self { must_see: false, ..self }
    }

    /// Leaves out the processes through which the launcher has started the plugin.
    pub(super) fn spare_above(mut self, launcher: i32, plugin: i32) -> Self {
        self.spared = tree::between(launcher, plugin);
        self
    }

    /// Tells of limits that the kernel keeps, too.
    pub(super) fn with_bounds(self, bounds: Bounds) -> Self {
        Self { bounds: Some(bounds), ..self }
    }

    /// Limits of the kernel that the plugin was seen at, each once.
    pub(super) fn take_reached(&mut self) -> Vec<Reached> {
        std::mem::take(&mut self.reached)
    }

    /// When [`look`](Self::look) wants to be called.
    pub(super) fn due(&self) -> Instant {
        self.ends.map_or(self.next, |(ends, _)| ends.min(self.next))
    }

    /// Looks, if it is time, at everything below `launcher`.
    pub(super) fn look(&mut self, launcher: i32) -> Option<Exceeded> {
        let now = Instant::now();
        if let Some((ends, limit_s)) = self.ends
            && ends <= now
        {
            return Some(Exceeded::WallTime { limit_s });
        }
        if self.next > now {
            return None;
        }
        let tree = self.tree(launcher);
        let quick = tree.iter().map(|pid| usage::quick(*pid));
        let (resident, ticks, threads) = quick.fold((0_u64, 0_u64, 0_u64), |(resident, ticks, threads), it| {
            let resident = resident.saturating_add(it.resident_bytes);
            (resident, ticks.saturating_add(it.cpu_ticks), threads.saturating_add(it.threads))
        });
        let is_busy = ticks != self.cpu_ticks;
        self.cpu_ticks = ticks;
        self.worked |= is_busy;
        let held = descriptors::held(&tree, self.disk.as_ref().map(|(home, _)| home.device()));
        if let Some(bounds) = &mut self.bounds {
            self.reached.extend(bounds.reached(threads, held.most_entries));
        }
        let exceeded = self
            .look_for_hidden(launcher, &held)
            .or_else(|| self.look_at_memory(launcher, &tree, resident, &held))
            .or_else(|| self.look_at_disk(&held, now));
        self.next = Instant::now() + if is_busy || self.walking { BUSY_INTERVAL } else { IDLE_INTERVAL };
        exceeded
    }

    /// The plugin's processes.
    fn tree(&self, launcher: i32) -> Vec<i32> {
        let mut tree = tree::descendants(launcher).unwrap_or_default();
        tree.retain(|pid| !self.spared.contains(pid));
        tree
    }

    /// What cannot be counted counts as too much. A second look tells it from a program that was just beginning.
    fn look_for_hidden(&self, launcher: i32, held: &Held) -> Option<Exceeded> {
        let is_hidden = self.must_see && held.is_hidden && descriptors::held(&self.tree(launcher), None).is_hidden;
        is_hidden.then_some(Exceeded::Hidden)
    }

    fn look_at_memory(&self, launcher: i32, tree: &[i32], resident: u64, held: &Held) -> Option<Exceeded> {
        let limit_bytes = self.memory_bytes?;
        // Counting pages that are shared is a thousand times as much work as this, and seldom needed. Files of memory that
        // nobody has mapped are in no process's pages.
        let buffers = |held: &Held| held.buffers_bytes(self.socket_bytes);
        let used =
            |tree: &[i32], held: &Held| usage::memory_bytes(tree, held.in_memory_bytes).saturating_add(buffers(held));
        if resident.saturating_add(held.in_memory_bytes).saturating_add(buffers(held)) <= limit_bytes
            || used(tree, held) <= limit_bytes
        {
            return None;
        }
        // Processes that began or ended in the meantime may have been counted twice. What is there stays there.
        let tree = self.tree(launcher);
        let used_bytes = used(&tree, &descriptors::held(&tree, None));
        (used_bytes > limit_bytes).then_some(Exceeded::Memory { used_bytes, limit_bytes })
    }

    fn look_at_disk(&mut self, held: &Held, now: Instant) -> Option<Exceeded> {
        let (home, limit_bytes) = self.disk.as_mut()?;
        let limit_bytes = *limit_bytes;
        if !self.walking && (self.disk_due > now || !self.worked) {
            return None;
        }
        if !self.walking {
            self.worked = false;
        }
        let piece = home.piece();
        self.walking = matches!(piece, Piece::More(_));
        let named = match piece {
            Piece::More(bytes) => bytes,
            Piece::Whole(bytes) => {
                self.disk_due = now + DISK_INTERVAL;
                bytes
            }
            Piece::TooDeep => return Some(Exceeded::Disk { used_bytes: None, limit_bytes }),
        };
        let used_bytes = named.saturating_add(held.on_device_bytes);
        (used_bytes > limit_bytes).then_some(Exceeded::Disk { used_bytes: Some(used_bytes), limit_bytes })
    }
}
