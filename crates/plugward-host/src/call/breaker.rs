//! The circuit breaker of one plugin: a plugin that keeps failing is left alone for a while.
//!
//! ```text
//!            FAILURE_THRESHOLD failures in a row              OPEN_FOR passed
//!   closed ------------------------------------> open -------------------------> half-open
//!     ^                                            ^                               |   |
//!     |   the probe succeeds                       |   the probe fails             |   |
//!     +--------------------------------------------+-------------------------------+---+
//! ```
//!
//! Owns the state; time is passed in. In half-open exactly one probe is let through, and each state change starts a
//! new generation, so that a call begun earlier changes nothing (C1, C3). Refuses to classify failures: the call path
//! reports only those that speak against the plugin (C4).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failures in a row that open the breaker: more than a blip, fewer than an agent's patience.
pub(crate) const FAILURE_THRESHOLD: u32 = 5;

/// Pause before one probe is let through.
pub(crate) const OPEN_FOR: Duration = Duration::from_secs(10);

/// Shortest pause a refused caller is told while a probe is under way: nobody should ask again at once.
const MIN_RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed {
        failures: u32,
    },
    /// Refuses until then.
    Open {
        until: Instant,
    },
    /// The probe is under way, and has its outcome by then unless its plugin keeps reporting progress.
    HalfOpen {
        until: Instant,
    },
}

/// Leave to call. Hand it back with the outcome; one that is dropped, because its caller went away, counts as
/// [`Outcome::Unknown`], so that a probe nobody waits for does not keep the breaker half-open for ever.
#[derive(Debug)]
#[must_use]
pub(crate) struct Pass {
    breaker: Arc<Breaker>,
    generation: u64,
    is_open: bool,
}

impl Pass {
    /// Reports the end of the call.
    pub(crate) fn report(mut self, now: Instant, outcome: Outcome) {
        self.is_open = false;
        self.breaker.settle(now, self.generation, outcome);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.is_open {
            self.breaker.settle(Instant::now(), self.generation, Outcome::Unknown);
        }
    }
}

/// What the call path knows of a finished call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The plugin answered, whatever it said.
    Answered,
    /// The plugin failed to answer.
    Failed,
    /// Nothing can be said: cancelled, or never sent.
    Unknown,
}

/// The breaker.
#[derive(Debug)]
pub(crate) struct Breaker {
    inner: Mutex<(State, u64)>,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { inner: Mutex::new((State::Closed { failures: 0 }, 0)) }
    }
}

impl Breaker {
    /// Whether a call would get leave now, without taking it: for whoever would have to bother a person, or to queue,
    /// for a call that is refused in the end. The error is that of [`Breaker::admit`].
    pub(crate) fn check(&self, now: Instant) -> Result<(), Duration> {
        refused_for(self.inner.lock().unwrap_or_else(PoisonError::into_inner).0, now).map_or(Ok(()), Err)
    }

    /// Asks for leave for a call of at most `limit`; the error is the time after which it is worth asking again.
    pub(crate) fn admit(self: &Arc<Self>, now: Instant, limit: Duration) -> Result<Pass, Duration> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pause) = refused_for(inner.0, now) {
            return Err(pause);
        }
        if let State::Open { .. } = inner.0 {
            *inner = (State::HalfOpen { until: now + limit }, inner.1 + 1);
        }
        Ok(Pass { breaker: Arc::clone(self), generation: inner.1, is_open: true })
    }

    fn settle(&self, now: Instant, generation: u64, outcome: Outcome) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if generation != inner.1 {
            return;
        }
        let next = match (inner.0, outcome) {
            (State::Closed { .. } | State::HalfOpen { .. }, Outcome::Answered) => State::Closed { failures: 0 },
            (State::Closed { failures }, Outcome::Failed) if failures + 1 >= FAILURE_THRESHOLD => {
                State::Open { until: now + OPEN_FOR }
            }
            (State::Closed { failures }, Outcome::Failed) => State::Closed { failures: failures + 1 },
            (State::HalfOpen { .. }, Outcome::Failed) => State::Open { until: now + OPEN_FOR },
            // The probe told nothing: the next call probes again at once.
            (State::HalfOpen { .. }, Outcome::Unknown) => State::Open { until: now },
            (state, _) => state,
        };
        let changed = std::mem::discriminant(&next) != std::mem::discriminant(&inner.0);
        *inner = (next, inner.1 + u64::from(changed));
    }

    /// A person started the plugin: what it did before no longer counts.
    pub(crate) fn reset(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        *inner = (State::Closed { failures: 0 }, inner.1 + 1);
    }

    /// Whether calls are refused now.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.inner.lock().unwrap_or_else(PoisonError::into_inner).0, State::Closed { .. })
    }
}

/// For how long a call is refused in `state`; none if it is let through.
fn refused_for(state: State, now: Instant) -> Option<Duration> {
    match state {
        State::Closed { .. } => None,
        State::Open { until } => Some(until.saturating_duration_since(now)).filter(|left| !left.is_zero()),
        // The outcome of the probe decides, and is known at the end of its time at the latest.
        State::HalfOpen { until } => Some(until.saturating_duration_since(now).clamp(MIN_RETRY, OPEN_FOR)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time the calls of these tests have.
    const LIMIT: Duration = Duration::from_secs(3);

    fn open(breaker: &Arc<Breaker>, now: Instant) {
        for _ in 0..FAILURE_THRESHOLD {
            let pass = breaker.admit(now, LIMIT).unwrap();
            pass.report(now, Outcome::Failed);
        }
    }

    #[test]
    fn it_opens_after_the_threshold_and_lets_a_single_probe_through() {
        // C1: three calls in half-open must not all run.
        let (breaker, start) = (Arc::<Breaker>::default(), Instant::now());
        open(&breaker, start);
        assert_eq!(breaker.admit(start, LIMIT).unwrap_err(), OPEN_FOR);
        let later = start + OPEN_FOR;
        let probe = breaker.admit(later, LIMIT).unwrap();
        assert!(breaker.admit(later, LIMIT).is_err() && breaker.admit(later, LIMIT).is_err());
        probe.report(later, Outcome::Answered);
        assert!(breaker.admit(later, LIMIT).is_ok() && !breaker.is_open());
    }

    #[test]
    fn a_check_takes_no_place_and_a_probe_under_way_tells_how_long_it_may_take() {
        // Asked before a person is bothered: the check itself must not use up the one probe there is.
        let (breaker, start) = (Arc::<Breaker>::default(), Instant::now());
        assert_eq!(breaker.check(start), Ok(()));
        open(&breaker, start);
        assert_eq!(breaker.check(start), Err(OPEN_FOR));
        let later = start + OPEN_FOR;
        assert_eq!((breaker.check(later), breaker.check(later)), (Ok(()), Ok(())));
        let probe = breaker.admit(later, LIMIT).unwrap();
        assert_eq!(breaker.check(later), Err(LIMIT));
        assert_eq!(breaker.check(later + LIMIT - Duration::from_millis(1)), Err(MIN_RETRY));
        probe.report(later, Outcome::Unknown);
        let probe = breaker.admit(later, 100 * LIMIT).unwrap();
        assert_eq!(breaker.check(later), Err(OPEN_FOR), "a caller was sent away for minutes");
        drop(probe);
    }

    #[test]
    fn a_failed_probe_opens_again_and_an_unknown_one_lets_the_next_call_probe() {
        let (breaker, start) = (Arc::<Breaker>::default(), Instant::now());
        open(&breaker, start);
        let later = start + OPEN_FOR;
        let probe = breaker.admit(later, LIMIT).unwrap();
        probe.report(later, Outcome::Failed);
        assert!(breaker.admit(later, LIMIT).is_err());
        let again = later + OPEN_FOR;
        let probe = breaker.admit(again, LIMIT).unwrap();
        probe.report(again, Outcome::Unknown);
        assert!(breaker.admit(again, LIMIT).is_ok());
    }

    #[test]
    fn a_probe_whose_caller_went_away_lets_the_next_call_probe() {
        // A caller that hangs up during the probe must not switch the plugin off for good.
        let (breaker, start) = (Arc::<Breaker>::default(), Instant::now());
        open(&breaker, start);
        let later = start + OPEN_FOR;
        drop(breaker.admit(later, LIMIT).unwrap());
        assert!(breaker.admit(later, LIMIT).is_ok());
    }

    #[test]
    fn a_call_from_before_a_change_of_state_changes_nothing() {
        // C3: stale results.
        let (breaker, start) = (Arc::<Breaker>::default(), Instant::now());
        let (stale_success, stale_failure) =
            (breaker.admit(start, LIMIT).unwrap(), breaker.admit(start, LIMIT).unwrap());
        open(&breaker, start);
        let later = start + OPEN_FOR;
        let probe = breaker.admit(later, LIMIT).unwrap();
        stale_success.report(later, Outcome::Answered);
        assert!(breaker.is_open());
        stale_failure.report(later, Outcome::Failed);
        probe.report(later, Outcome::Answered);
        assert!(!breaker.is_open());
    }

    #[test]
    fn a_reset_closes_it_and_outlives_what_was_under_way() {
        let (breaker, start) = (Arc::<Breaker>::default(), Instant::now());
        open(&breaker, start);
        let probe = breaker.admit(start + OPEN_FOR, LIMIT).unwrap();
        breaker.reset();
        probe.report(start + OPEN_FOR, Outcome::Failed);
        assert!(!breaker.is_open());
    }

    #[test]
    fn an_answer_in_between_starts_the_count_anew() {
        let (breaker, now) = (Arc::<Breaker>::default(), Instant::now());
        for round in 0..3 * FAILURE_THRESHOLD {
            let outcome = if round % FAILURE_THRESHOLD == 0 { Outcome::Answered } else { Outcome::Failed };
            let pass = breaker.admit(now, LIMIT).unwrap();
            pass.report(now, outcome);
        }
        assert!(!breaker.is_open());
    }
}
