//! How much of the machine a plugin may use. Owns the limits a manifest may set, their ranges,
//! their defaults and how they are said. Refuses unlimited values: every resource has a bound, and
//! where none can be sensible by default (processor time) that is said.

use std::ops::RangeInclusive;

/// Memory when a manifest gives none, in bytes: twice what the largest of the usual servers takes,
/// measured on Node.js and Python.
pub const MEMORY_BYTES_DEFAULT: u64 = 2 * GIB;

/// Processes and threads when a manifest gives none: Node.js has a dozen threads, and a server that
/// starts a few tools at once stays far below.
pub const PROCESSES_DEFAULT: u32 = 256;

/// Open descriptors of each process when a manifest gives none: the usual limit of a login.
pub const OPEN_FILES_DEFAULT: u32 = 1024;

/// Size of each file when a manifest gives none, in bytes.
pub const FILE_BYTES_DEFAULT: u64 = GIB;

/// Room for its own data when a manifest gives none, in bytes: caches and small databases fit, and
/// a plugin gone wrong does not fill the disk.
pub const DISK_BYTES_DEFAULT: u64 = 2 * GIB;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
const TIB: u64 = 1024 * GIB;

/// A small static server starts in 16 MiB; nothing that answers tool calls needs more than 64 GiB.
pub(crate) const MEMORY_BYTES: RangeInclusive<u64> = 16 * MIB..=64 * GIB;

/// Up to a year: the time counts over a whole life.
pub(crate) const CPU_SECONDS: RangeInclusive<u64> = 1..=365 * 24 * 60 * 60;

/// Up to a year, as above: a server is meant to run on, a program that answers once is not.
pub(crate) const WALL_SECONDS: RangeInclusive<u64> = 1..=365 * 24 * 60 * 60;

/// One is a single thread; above 4096 the host itself runs out of process numbers.
pub(crate) const PROCESSES: RangeInclusive<u64> = 1..=4096;

/// From one hundredth of a processor, with which a program still starts, to more processors than a machine has.
pub(crate) const CPU_PERCENT: RangeInclusive<u64> = 1..=100_000;

/// Below 16 no run time opens its libraries; above 65,536 the host's own table suffers.
pub(crate) const OPEN_FILES: RangeInclusive<u64> = 16..=65_536;

/// From one page to a terabyte.
pub(crate) const FILE_BYTES: RangeInclusive<u64> = 4 * KIB..=TIB;

/// From room for a few settings to a terabyte.
pub(crate) const DISK_BYTES: RangeInclusive<u64> = MIB..=TIB;

/// How much of the machine a plugin may use (requirements 92 and 93). How exactly each bound is
/// kept depends on the sandbox; these are the figures it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceLimits {
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Processor time over a process's whole life, in seconds. `None` sets no bound: a server that
    /// runs for weeks adds it up.
    pub cpu_seconds: Option<u64>,
    /// Processes and threads at a time.
    pub processes: u32,
    /// Open descriptors of each process.
    pub open_files: u32,
    /// Size of each file it writes, in bytes.
    pub file_bytes: u64,
    /// Everything in its own data folder together, in bytes.
    pub disk_bytes: u64,
    /// Time it may run, in seconds. `None` sets no bound.
    pub wall_seconds: Option<u64>,
    /// Share of the processors that all of its processes may use together, in hundredths of one processor. `None` sets no
    /// bound. Kept where the host has control groups to give.
    pub cpu_percent: Option<u32>,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self {
            memory_bytes: MEMORY_BYTES_DEFAULT,
            cpu_seconds: None,
            processes: PROCESSES_DEFAULT,
            open_files: OPEN_FILES_DEFAULT,
            file_bytes: FILE_BYTES_DEFAULT,
            disk_bytes: DISK_BYTES_DEFAULT,
            wall_seconds: None,
            cpu_percent: None,
        }
    }
}

impl ResourceLimits {
    /// What is bounded and how far, in words, always in the same order.
    #[must_use]
    pub fn in_words(&self) -> [(&'static str, String); 8] {
        [
            ("memory", bytes_in_words(self.memory_bytes)),
            ("processor time", self.cpu_seconds.map_or_else(|| "no bound".to_owned(), seconds_in_words)),
            ("processes and threads", self.processes.to_string()),
            ("open files", self.open_files.to_string()),
            ("size of each file", bytes_in_words(self.file_bytes)),
            ("own data", bytes_in_words(self.disk_bytes)),
            ("time to run", self.wall_seconds.map_or_else(|| "no bound".to_owned(), seconds_in_words)),
            ("share of processors", self.cpu_percent.map_or_else(|| "no bound".to_owned(), share_in_words)),
        ]
    }

    /// The same as one sentence.
    pub(crate) fn sentence(&self) -> String {
        let time = match self.cpu_seconds {
            Some(seconds) => format!("{} of processor time in each process", seconds_in_words(seconds)),
            None => "processor time without a bound".to_owned(),
        };
        let share =
            self.cpu_percent.map(|percent| format!(" and {} of a processor at a time", share_in_words(percent)));
        let ends =
            self.wall_seconds.map(|seconds| format!("; it is ended {} after its start", seconds_in_words(seconds)));
        format!(
            "may use {} of memory, {time}{}, {} processes and threads, {} open files in each process, files of {} each, \
             and {} for all of its own data{}",
            bytes_in_words(self.memory_bytes),
            share.unwrap_or_default(),
            self.processes,
            self.open_files,
            bytes_in_words(self.file_bytes),
            bytes_in_words(self.disk_bytes),
            ends.unwrap_or_default(),
        )
    }

    /// Whether any bound is wider than the default.
    pub(crate) fn exceeds_default(&self) -> bool {
        let usual = Self::default();
        self.memory_bytes > usual.memory_bytes
            || self.processes > usual.processes
            || self.open_files > usual.open_files
            || self.file_bytes > usual.file_bytes
            || self.disk_bytes > usual.disk_bytes
    }
}

/// `bytes` in the largest unit that shows it exactly: what is agreed to is not rounded.
fn bytes_in_words(bytes: u64) -> String {
    let units = [(TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];
    let unit = units.into_iter().find(|(size, _)| bytes >= *size && bytes.is_multiple_of(*size));
    match unit {
        Some((size, name)) => format!("{} {name}", bytes / size),
        None => format!("{bytes} bytes"),
    }
}

fn seconds_in_words(seconds: u64) -> String {
    if seconds == 1 { "1 second".to_owned() } else { format!("{seconds} seconds") }
}

/// As in `50 %`.
fn share_in_words(percent: u32) -> String {
    format!("{percent} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement 93: a manifest without limits is bounded, and every default could be written.
    #[test]
    fn defaults_lie_within_their_ranges() {
        let usual = ResourceLimits::default();
        assert!(MEMORY_BYTES.contains(&usual.memory_bytes));
        assert!(PROCESSES.contains(&usual.processes.into()));
        assert!(OPEN_FILES.contains(&usual.open_files.into()));
        assert!(FILE_BYTES.contains(&usual.file_bytes));
        assert!(DISK_BYTES.contains(&usual.disk_bytes));
        assert_eq!(usual.cpu_seconds, None);
        assert!(!usual.exceeds_default());
        assert!(ResourceLimits { memory_bytes: usual.memory_bytes + 1, ..usual }.exceeds_default());
    }

    // A rounded figure would let two different limits read the same.
    #[test]
    fn amounts_are_said_exactly() {
        for (bytes, words) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (4096, "4 KiB"),
            (GIB, "1 GiB"),
            (GIB + MIB, "1025 MiB"),
            (GIB + 1, "1073741825 bytes"),
            (TIB, "1 TiB"),
        ] {
            assert_eq!(bytes_in_words(bytes), words);
        }
        let limits = ResourceLimits { cpu_seconds: Some(60), ..ResourceLimits::default() };
        assert_eq!(
            limits.sentence(),
            "may use 2 GiB of memory, 60 seconds of processor time in each process, 256 processes and threads, 1024 \
             open files in each process, files of 1 GiB each, and 2 GiB for all of its own data"
        );
        let share = ResourceLimits { cpu_percent: Some(50), ..limits }.sentence();
        assert!(share.contains("in each process and 50 % of a processor at a time, 256"), "{share}");
        let ends = ResourceLimits { wall_seconds: Some(1), ..limits };
        assert_eq!(ends.sentence(), limits.sentence() + "; it is ended 1 second after its start");
    }
}
