//! The circuit breaker of one plugin: a plugin that keeps failing is left alone for a while.
//!
//! ```text
//!            so many failures in a row                the pause passed, a call comes
//!   closed ------------------------------> open -------------------------> half-open
//!     ^                                      ^                               |   |
//!     |   the probe succeeds                 |   the probe fails             |   |
//!     +--------------------------------------+-------------------------------+---+
//! ```
//!
//! Owns the state; time is passed in. In half-open exactly one probe is let through, and each state change starts a
//! new generation, so that a call begun earlier changes nothing (C1, C3). Refuses to classify failures: the call path
//! reports only those that speak against the plugin (C4).

#[cfg(test)]
mod model;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::config::SupervisionSettings;

/// Longest and shortest pause a refused caller is told while a probe is under way: nobody should ask again at once, and
/// nobody should be sent away for the length of a slow tool.
const PROBE_RETRY: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(10);

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

/// A state as others see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// Calls go through.
    Closed,
    /// Calls are refused.
    Open,
    /// One call is let through to see whether the plugin answers again; others are refused.
    HalfOpen,
}

impl BreakerState {
    /// The word in outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            BreakerState::Closed => "closed",
            BreakerState::Open => "open",
            BreakerState::HalfOpen => "half-open",
        }
    }
}

impl From<State> for BreakerState {
    fn from(state: State) -> Self {
        match state {
            State::Closed { .. } => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }
}

/// What can be told of a breaker at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerView {
    /// Its state.
    pub state: BreakerState,
    /// Failures in a row while it is closed.
    pub failures: u32,
    /// Failures in a row that open it.
    pub threshold: u32,
    /// How long calls are refused for now.
    pub retry_after: Option<Duration>,
    /// Changes of state so far.
    pub changes: u64,
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
    threshold: u32,
    open_for: Duration,
    inner: Mutex<(State, u64)>,
    changed: watch::Sender<BreakerState>,
}

impl Breaker {
    pub(crate) fn new(settings: &SupervisionSettings) -> Self {
        Self {
            threshold: settings.breaker_failures,
            open_for: settings.breaker_open,
            inner: Mutex::new((State::Closed { failures: 0 }, 0)),
            changed: watch::Sender::new(BreakerState::Closed),
        }
    }

    fn locked(&self) -> MutexGuard<'_, (State, u64)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a call would get leave now, without taking it: for whoever would have to bother a person, or to queue,
    /// for a call that is refused in the end. The error is that of [`Breaker::admit`].
    pub(crate) fn check(&self, now: Instant) -> Result<(), Duration> {
        refused_for(self.locked().0, now).map_or(Ok(()), Err)
    }

    /// Asks for leave for a call of at most `limit`; the error is the time after which it is worth asking again.
    pub(crate) fn admit(self: &Arc<Self>, now: Instant, limit: Duration) -> Result<Pass, Duration> {
        let mut inner = self.locked();
        if let Some(pause) = refused_for(inner.0, now) {
            return Err(pause);
        }
        if let State::Open { .. } = inner.0 {
            self.become_state(&mut inner, State::HalfOpen { until: now + limit });
        }
        Ok(Pass { breaker: Arc::clone(self), generation: inner.1, is_open: true })
    }

    fn settle(&self, now: Instant, generation: u64, outcome: Outcome) {
        let mut inner = self.locked();
        if generation != inner.1 {
            return;
        }
        let next = match (inner.0, outcome) {
            (State::Closed { .. } | State::HalfOpen { .. }, Outcome::Answered) => State::Closed { failures: 0 },
            (State::Closed { failures }, Outcome::Failed) if failures + 1 >= self.threshold => {
                State::Open { until: now + self.open_for }
            }
            (State::Closed { failures }, Outcome::Failed) => State::Closed { failures: failures + 1 },
            (State::HalfOpen { .. }, Outcome::Failed) => State::Open { until: now + self.open_for },
            // The probe told nothing: the next call probes again at once.
            (State::HalfOpen { .. }, Outcome::Unknown) => State::Open { until: now },
            (state, _) => state,
        };
        self.become_state(&mut inner, next);
    }

    /// A new state is a new generation, and is told.
    fn become_state(&self, inner: &mut (State, u64), next: State) {
        if std::mem::discriminant(&next) != std::mem::discriminant(&inner.0) {
            inner.1 += 1;
            self.changed.send_replace(next.into());
        }
        inner.0 = next;
    }

    /// A person started the plugin: what it did before no longer counts.
    pub(crate) fn reset(&self) {
        let mut inner = self.locked();
        self.become_state(&mut inner, State::Closed { failures: 0 });
        // Calls that began before count neither for nor against it.
        inner.1 += 1;
    }

    /// Its state from now on, as it changes.
    pub(crate) fn changes(&self) -> watch::Receiver<BreakerState> {
        self.changed.subscribe()
    }

    /// What can be told of it now.
    pub(crate) fn view(&self, now: Instant) -> BreakerView {
        let (state, changes) = *self.locked();
        let failures = match state {
            State::Closed { failures } => failures,
            State::Open { .. } | State::HalfOpen { .. } => self.threshold,
        };
        BreakerView {
            state: state.into(),
            failures,
            threshold: self.threshold,
            retry_after: refused_for(state, now),
            changes,
        }
    }
}

/// For how long a call is refused in `state`; none if it is let through.
fn refused_for(state: State, now: Instant) -> Option<Duration> {
    match state {
        State::Closed { .. } => None,
        State::Open { until } => Some(until.saturating_duration_since(now)).filter(|left| !left.is_zero()),
        // The outcome of the probe decides, and is known at the end of its time at the latest.
        State::HalfOpen { until } => {
            Some(until.saturating_duration_since(now).clamp(*PROBE_RETRY.start(), *PROBE_RETRY.end()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time the calls of these tests have.
    const LIMIT: Duration = Duration::from_secs(3);

    const FAILURE_THRESHOLD: u32 = 5;

    const OPEN_FOR: Duration = Duration::from_secs(10);

    fn fresh() -> Arc<Breaker> {
        let (breaker_failures, breaker_open) = (FAILURE_THRESHOLD, OPEN_FOR);
        Arc::new(Breaker::new(&SupervisionSettings {
            breaker_failures,
            breaker_open,
            ..SupervisionSettings::default()
        }))
    }

    fn is_open(breaker: &Breaker) -> bool {
        breaker.view(Instant::now()).state != BreakerState::Closed
    }

    fn open(breaker: &Arc<Breaker>, now: Instant) {
        for _ in 0..FAILURE_THRESHOLD {
            let pass = breaker.admit(now, LIMIT).unwrap();
            pass.report(now, Outcome::Failed);
        }
    }

    #[test]
    fn it_opens_after_the_threshold_and_lets_a_single_probe_through() {
        // C1: three calls in half-open must not all run.
        let (breaker, start) = (fresh(), Instant::now());
        open(&breaker, start);
        assert_eq!(breaker.admit(start, LIMIT).unwrap_err(), OPEN_FOR);
        let later = start + OPEN_FOR;
        let probe = breaker.admit(later, LIMIT).unwrap();
        assert!(breaker.admit(later, LIMIT).is_err() && breaker.admit(later, LIMIT).is_err());
        probe.report(later, Outcome::Answered);
        assert!(breaker.admit(later, LIMIT).is_ok() && !is_open(&breaker));
    }

    #[test]
    fn a_check_takes_no_place_and_a_probe_under_way_tells_how_long_it_may_take() {
        // Asked before a person is bothered: the check itself must not use up the one probe there is.
        let (breaker, start) = (fresh(), Instant::now());
        assert_eq!(breaker.check(start), Ok(()));
        open(&breaker, start);
        assert_eq!(breaker.check(start), Err(OPEN_FOR));
        let later = start + OPEN_FOR;
        assert_eq!((breaker.check(later), breaker.check(later)), (Ok(()), Ok(())));
        let probe = breaker.admit(later, LIMIT).unwrap();
        assert_eq!(breaker.check(later), Err(LIMIT));
        assert_eq!(breaker.check(later + LIMIT - Duration::from_millis(1)), Err(*PROBE_RETRY.start()));
        probe.report(later, Outcome::Unknown);
        let probe = breaker.admit(later, 100 * LIMIT).unwrap();
        assert_eq!(breaker.check(later), Err(OPEN_FOR), "a caller was sent away for minutes");
        drop(probe);
    }

    #[test]
    fn a_failed_probe_opens_again_and_an_unknown_one_lets_the_next_call_probe() {
        let (breaker, start) = (fresh(), Instant::now());
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
        let (breaker, start) = (fresh(), Instant::now());
        open(&breaker, start);
        let later = start + OPEN_FOR;
        drop(breaker.admit(later, LIMIT).unwrap());
        assert!(breaker.admit(later, LIMIT).is_ok());
    }

    #[test]
    fn a_call_from_before_a_change_of_state_changes_nothing() {
        // C3: stale results.
        let (breaker, start) = (fresh(), Instant::now());
        let (stale_success, stale_failure) =
            (breaker.admit(start, LIMIT).unwrap(), breaker.admit(start, LIMIT).unwrap());
        open(&breaker, start);
        let later = start + OPEN_FOR;
        let probe = breaker.admit(later, LIMIT).unwrap();
        stale_success.report(later, Outcome::Answered);
        assert!(is_open(&breaker));
        stale_failure.report(later, Outcome::Failed);
        probe.report(later, Outcome::Answered);
        assert!(!is_open(&breaker));
    }

    #[test]
    fn a_reset_closes_it_and_outlives_what_was_under_way() {
        let (breaker, start) = (fresh(), Instant::now());
        open(&breaker, start);
        let probe = breaker.admit(start + OPEN_FOR, LIMIT).unwrap();
        breaker.reset();
        probe.report(start + OPEN_FOR, Outcome::Failed);
        assert!(!is_open(&breaker));
    }

    #[test]
    fn an_answer_in_between_starts_the_count_anew() {
        let (breaker, now) = (fresh(), Instant::now());
        for round in 0..3 * FAILURE_THRESHOLD {
            let outcome = if round % FAILURE_THRESHOLD == 0 { Outcome::Answered } else { Outcome::Failed };
            let pass = breaker.admit(now, LIMIT).unwrap();
            pass.report(now, outcome);
        }
        assert!(!is_open(&breaker));
    }

    #[test]
    fn a_threshold_of_one_opens_at_the_first_failure() {
        // C2: the number that was set is the number that counts.
        let settings = SupervisionSettings { breaker_failures: 1, ..SupervisionSettings::default() };
        let (breaker, now) = (Arc::new(Breaker::new(&settings)), Instant::now());
        breaker.admit(now, LIMIT).unwrap().report(now, Outcome::Failed);
        assert!(breaker.admit(now, LIMIT).is_err());
    }

    #[test]
    fn changes_are_told_in_order() {
        // Requirement 190: open, half-open, closed; and what a person does is a change as well.
        let (breaker, start) = (fresh(), Instant::now());
        let mut changes = breaker.changes();
        let mut told = || changes.has_changed().unwrap().then(|| changes.borrow_and_update().as_str());
        breaker.admit(start, LIMIT).unwrap().report(start, Outcome::Failed);
        assert_eq!((told(), breaker.view(start).failures), (None, 1));
        breaker.admit(start, LIMIT).unwrap().report(start, Outcome::Answered);
        assert_eq!(breaker.view(start).failures, 0);
        open(&breaker, start);
        assert_eq!((told(), breaker.view(start).retry_after), (Some("open"), Some(OPEN_FOR)));
        let later = start + OPEN_FOR;
        let probe = breaker.admit(later, LIMIT).unwrap();
        assert_eq!(told(), Some("half-open"));
        probe.report(later, Outcome::Answered);
        assert_eq!((told(), told()), (Some("closed"), None));
        open(&breaker, later);
        breaker.reset();
        assert_eq!((told(), breaker.view(later).state), (Some("closed"), BreakerState::Closed));
    }
}
