//! When a plugin that fell over is started again, and when it is given up.
//!
//! Owns the schedule (B023): 1, 2, 4 ... seconds with jitter, at most [`MAX_BACKOFF`], given up after
//! [`MAX_ATTEMPTS`] in a row, forgotten after [`STABLE_AFTER`] of health. Pure: time and randomness are passed in.

use std::time::{Duration, Instant};

/// Longest pause between two automatic starts.
pub const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Automatic starts in a row before a person has to act. At the default base this is about half a minute of trying.
pub(crate) const MAX_ATTEMPTS: u32 = 5;

/// A plugin that was ready this long has earned a fresh count.
pub(crate) const STABLE_AFTER: Duration = Duration::from_secs(60);

/// Part of a pause that is left to chance, so that many plugins that fell together do not start together.
const JITTER: f64 = 0.2;

/// The schedule of one plugin.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    base: Duration,
    attempts: u32,
    ready_since: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new(base: Duration) -> Self {
        Self { base, attempts: 0, ready_since: None }
    }

    /// The plugin is ready. Said again while it is, it changes nothing.
    pub(crate) fn ready(&mut self, now: Instant) {
        self.ready_since.get_or_insert(now);
    }

    /// The plugin failed: the pause before the next start, or none to give up. `chance` is in `0.0..1.0`.
    pub(crate) fn failed(&mut self, now: Instant, chance: f64) -> Option<Duration> {
        if self.ready_since.take().is_some_and(|since| now.saturating_duration_since(since) >= STABLE_AFTER) {
            self.attempts = 0;
        }
        if self.attempts >= MAX_ATTEMPTS {
            return None;
        }
        let pause = self.base.saturating_mul(1 << self.attempts).min(MAX_BACKOFF);
        self.attempts += 1;
        Some(pause.mul_f64(1.0 - JITTER / 2.0 + JITTER * chance))
    }

    /// A person started it: the count begins anew.
    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
        self.ready_since = None;
    }

    /// Starts tried in a row.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_with_jitter_and_end() {
        // B023: gaps grow by at least 1.5 and the storm ends.
        let (mut backoff, now) = (Backoff::new(Duration::from_secs(1)), Instant::now());
        let pauses: Vec<Duration> = std::iter::from_fn(|| backoff.failed(now, 0.5)).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16].map(Duration::from_secs));
        for chance in [0.0, 0.999] {
            let first = Backoff::new(Duration::from_secs(1)).failed(now, chance).unwrap();
            assert!((first.as_secs_f64() - 1.0).abs() <= 0.1);
        }
    }

    #[test]
    fn a_stable_time_starts_the_count_anew_and_a_short_one_does_not() {
        let (mut backoff, start) = (Backoff::new(Duration::from_secs(1)), Instant::now());
        backoff.failed(start, 0.5);
        backoff.ready(start);
        assert_eq!(backoff.failed(start + STABLE_AFTER / 2, 0.5), Some(Duration::from_secs(2)));
        backoff.ready(start);
        assert_eq!(backoff.failed(start + STABLE_AFTER, 0.5), Some(Duration::from_secs(1)));
    }

    #[test]
    fn no_pause_is_longer_than_the_maximum() {
        let (mut backoff, now) = (Backoff::new(Duration::from_secs(40)), Instant::now());
        backoff.failed(now, 0.5);
        assert_eq!(backoff.failed(now, 0.5), Some(MAX_BACKOFF));
    }
}
