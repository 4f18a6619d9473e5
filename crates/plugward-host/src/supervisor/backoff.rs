//! When a plugin that fell over is started again, and when it is given up.
//!
//! Owns the schedule (B023): 1, 2, 4 ... seconds with jitter, at most [`MAX_BACKOFF`], given up after as
//! many in a row as the settings say, forgotten after the time of health they say. Pure: time and randomness are passed in.

use std::time::{Duration, Instant};

use crate::config::SupervisionSettings;

/// Longest pause between two automatic starts.
pub const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Doublings after which any pause is at its longest; a higher start limit shifts no further.
const MAX_DOUBLINGS: u32 = 16;

/// Part of a pause that is left to chance, so that many plugins that fell together do not start together.
const JITTER: f64 = 0.2;

/// The schedule of one plugin.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    base: Duration,
    limit: u32,
    healthy_after: Duration,
    attempts: u32,
    ready_since: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new(base: Duration, settings: &SupervisionSettings) -> Self {
        let SupervisionSettings { start_limit: limit, healthy_after, .. } = *settings;
        Self { base, limit, healthy_after, attempts: 0, ready_since: None }
    }

    /// The plugin is ready. Said again while it is, it changes nothing.
    pub(crate) fn ready(&mut self, now: Instant) {
        self.ready_since.get_or_insert(now);
    }

    /// The plugin sleeps: it was well until now, and does nothing that could be held against it.
    pub(crate) fn slept(&mut self, now: Instant) {
        if self.ready_since.take().is_some_and(|since| now.saturating_duration_since(since) >= self.healthy_after) {
            self.attempts = 0;
        }
    }

    /// The plugin failed: the pause before the next start, or none to give up. `chance` is in `0.0..1.0`.
    pub(crate) fn failed(&mut self, now: Instant, chance: f64) -> Option<Duration> {
        if self.ready_since.take().is_some_and(|since| now.saturating_duration_since(since) >= self.healthy_after) {
            self.attempts = 0;
        }
        if self.attempts >= self.limit {
            return None;
        }
        let pause = self.base.saturating_mul(1 << self.attempts.min(MAX_DOUBLINGS)).min(MAX_BACKOFF);
        self.attempts += 1;
        Some(pause.mul_f64(1.0 - JITTER / 2.0 + JITTER * chance))
    }

    /// A person started it: the count begins anew.
    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
        self.ready_since = None;
    }

    /// Starts tried in a row before it is given up.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Starts tried in a row.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STABLE_AFTER: Duration = Duration::from_secs(60);

    fn backoff(base_s: u64) -> Backoff {
        let settings = SupervisionSettings { healthy_after: STABLE_AFTER, ..SupervisionSettings::default() };
        Backoff::new(Duration::from_secs(base_s), &settings)
    }

    #[test]
    fn pauses_double_with_jitter_and_end() {
        // B023: gaps grow by at least 1.5 and the storm ends.
        let (mut schedule, now) = (backoff(1), Instant::now());
        let pauses: Vec<Duration> = std::iter::from_fn(|| schedule.failed(now, 0.5)).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16].map(Duration::from_secs));
        for chance in [0.0, 0.999] {
            let first = backoff(1).failed(now, chance).unwrap();
            assert!((first.as_secs_f64() - 1.0).abs() <= 0.1);
        }
    }

    #[test]
    fn a_stable_time_starts_the_count_anew_and_a_short_one_does_not() {
        let (mut schedule, start) = (backoff(1), Instant::now());
        schedule.failed(start, 0.5);
        schedule.ready(start);
        assert_eq!(schedule.failed(start + STABLE_AFTER / 2, 0.5), Some(Duration::from_secs(2)));
        schedule.ready(start);
        assert_eq!(schedule.failed(start + STABLE_AFTER, 0.5), Some(Duration::from_secs(1)));
    }

    #[test]
    fn no_pause_is_longer_than_the_maximum() {
        let (mut schedule, now) = (backoff(40), Instant::now());
        schedule.failed(now, 0.5);
        assert_eq!(schedule.failed(now, 0.5), Some(MAX_BACKOFF));
    }

    #[test]
    fn a_start_limit_of_many_ends_too_and_never_overflows() {
        let settings = SupervisionSettings { start_limit: 100, ..SupervisionSettings::default() };
        let (mut schedule, now) = (Backoff::new(Duration::from_secs(1), &settings), Instant::now());
        let pauses: Vec<Duration> = std::iter::from_fn(|| schedule.failed(now, 0.5)).collect();
        assert_eq!((pauses.len(), pauses[99]), (100, MAX_BACKOFF));
    }
}
