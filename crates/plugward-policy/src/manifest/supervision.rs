//! The `supervision` section of a manifest. Owns its keys and ranges: when a plugin sleeps, how its health is looked
//! after and when it is left alone. Refuses defaults: what is absent is the deployment's to say.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::diagnostic::Report;
use super::reader::MapReader;
use super::{Backend, BackendKind};

/// Idle times a manifest may set, in seconds: from a moment to a day. Zero would end the process after each call.
const IDLE_STOP_SECONDS: RangeInclusive<u64> = 1..=86_400;

/// Pauses between two pings, in seconds; zero means never.
const PING_SECONDS: RangeInclusive<u64> = 0..=3600;

/// Failures in a row that pause a plugin. Zero would pause it before its first call.
const BREAKER_FAILURES: RangeInclusive<u64> = 1..=1000;

/// Lengths of such a pause, in seconds. Zero would be no pause.
const BREAKER_OPEN_SECONDS: RangeInclusive<u64> = 1..=3600;

/// Automatic starts in a row; none at all is `backend.restart: never`.
const START_LIMIT: RangeInclusive<u64> = 1..=1000;

/// Times of health that earn a fresh count, in seconds.
const HEALTHY_AFTER_SECONDS: RangeInclusive<u64> = 1..=86_400;

const KEYS: [&str; 8] = [
    "lazy",
    "idle_stop_seconds",
    "exclusive",
    "ping_seconds",
    "breaker_failures",
    "breaker_open_seconds",
    "start_limit",
    "healthy_after_seconds",
];

/// Whether clients share a process of a plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// All clients call one process.
    #[default]
    Shared,
    /// Each client's calls go to a process of its own.
    PerClient,
}

/// How a plugin wants to be looked after; what is none is as the deployment says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Supervision {
    /// Whether clients share its process: the top-level key `isolation`.
    pub isolation: Isolation,
    /// Started by its first call and not with the host; its tools are listed from what was approved.
    pub lazy: bool,
    /// Its process is ended after this long without a call, and started by the next one.
    pub idle_stop: Option<Duration>,
    /// Two of its processes cannot run side by side: a restart ends the old one first.
    pub exclusive: bool,
    /// Pause between two pings; zero for none.
    pub ping_every: Option<Duration>,
    /// Failures in a row that pause it.
    pub breaker_failures: Option<u32>,
    /// Length of such a pause.
    pub breaker_open: Option<Duration>,
    /// Automatic starts in a row before it is given up.
    pub start_limit: Option<u32>,
    /// Time of health that makes the count begin anew.
    pub healthy_after: Option<Duration>,
}

impl Supervision {
    /// Whether its tools may be offered while no process of it runs.
    #[must_use]
    pub fn sleeps(&self) -> bool {
        self.lazy || self.idle_stop.is_some()
    }
}

/// Reads `isolation`; absent, clients share.
pub(crate) fn read_isolation(
    map: &mut MapReader,
    backend: Option<&Backend>,
    exclusive: bool,
    report: &mut Report,
) -> Isolation {
    if map.lacks("isolation") {
        return Isolation::Shared;
    }
    let words = [("shared", Isolation::Shared), ("per-client", Isolation::PerClient)];
    let isolation = map.choice("isolation", &words, report).unwrap_or_default();
    let is_server = backend.is_none_or(|backend| backend.kind == BackendKind::McpStdio);
    if isolation == Isolation::PerClient && !is_server {
        report.error(None, "isolation", "only a server has processes that clients could share: leave it out");
    }
    if isolation == Isolation::PerClient && exclusive {
        let message = "`per-client` runs several processes, and `supervision.exclusive` says that no two may run";
        report.error(None, "isolation", message);
    }
    isolation
}

/// Reads the section; absent, it is empty.
pub(crate) fn read_supervision(map: &mut MapReader, report: &mut Report) -> Supervision {
    let Some(entry) = map.take("supervision") else {
        return Supervision::default();
    };
    let mut section = MapReader::new(entry.node, "supervision", &KEYS, report);
    let words = [("true", true), ("false", false)];
    let lazy = section.choice("lazy", &words, report).unwrap_or(false);
    let exclusive = section.choice("exclusive", &words, report).unwrap_or(false);
    let mut number = |key, range| section.number(key, range, report);
    // Every range of a count ends far below `u32::MAX`.
    let narrow = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
    let seconds = |number: Option<u64>| number.map(Duration::from_secs);
    Supervision {
        isolation: Isolation::Shared,
        lazy,
        exclusive,
        idle_stop: seconds(number("idle_stop_seconds", IDLE_STOP_SECONDS)),
        ping_every: seconds(number("ping_seconds", PING_SECONDS)),
        breaker_failures: narrow(number("breaker_failures", BREAKER_FAILURES)),
        breaker_open: seconds(number("breaker_open_seconds", BREAKER_OPEN_SECONDS)),
        start_limit: narrow(number("start_limit", START_LIMIT)),
        healthy_after: seconds(number("healthy_after_seconds", HEALTHY_AFTER_SECONDS)),
    }
}
