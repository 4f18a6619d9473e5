//! A reference for the breaker, written from its rules and not from its code, and a long comparison of both.
//!
//! The reference keeps the whole history of calls and works each answer out of it anew; it knows no generations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Breaker, Outcome, Pass};
use crate::config::SupervisionSettings;

/// Steps of one comparison.
const STEPS: u64 = 4000;

/// Comparisons, each with a seed and settings of its own.
const SEEDS: u64 = 25;

/// Time a call has.
const LIMIT: Duration = Duration::from_secs(30);

/// What happened to the reference, in order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    Began { call: usize, at_ms: u64 },
    Ended { call: usize, at_ms: u64, outcome: Outcome },
    Reset,
}

/// What a replay of the history comes to.
struct Replay {
    /// Calls that count for the phase that lasts now.
    counting: Vec<usize>,
    failures: u32,
    /// While open: when the next call may probe.
    open_until_ms: Option<u64>,
    probe: Option<usize>,
}

struct Reference {
    threshold: u32,
    open_ms: u64,
    history: Vec<Entry>,
}

impl Reference {
    /// Walks through what happened. Each opening and closing begins a phase in which only its own calls count.
    fn replay(&self) -> Replay {
        let mut now = Replay { counting: Vec::new(), failures: 0, open_until_ms: None, probe: None };
        for entry in &self.history {
            match *entry {
                Entry::Reset => now = Replay { counting: Vec::new(), failures: 0, open_until_ms: None, probe: None },
                Entry::Began { call, at_ms } => {
                    if now.open_until_ms.is_some_and(|until| at_ms >= until) {
                        now.open_until_ms = None;
                        now.probe = Some(call);
                    } else {
                        now.counting.push(call);
                    }
                }
                Entry::Ended { call, at_ms, outcome } if now.probe == Some(call) => {
                    now.probe = None;
                    now.failures = 0;
                    match outcome {
                        Outcome::Answered => now.counting.clear(),
                        Outcome::Failed => now.open_until_ms = Some(at_ms + self.open_ms),
                        Outcome::Unknown => now.open_until_ms = Some(at_ms),
                    }
                }
                Entry::Ended { call, at_ms, outcome } if now.counting.contains(&call) => {
                    now.counting.retain(|counting| *counting != call);
                    match outcome {
                        Outcome::Answered => now.failures = 0,
                        Outcome::Failed => now.failures += 1,
                        Outcome::Unknown => {}
                    }
                    if now.failures == self.threshold {
                        now.counting.clear();
                        now.open_until_ms = Some(at_ms + self.open_ms);
                    }
                }
                Entry::Ended { .. } => {}
            }
        }
        now
    }

    /// Whether a call would be let through.
    fn admits(&self, at_ms: u64) -> bool {
        let now = self.replay();
        now.probe.is_none() && now.open_until_ms.is_none_or(|until| at_ms >= until)
    }

    /// What lies before the last reset decides nothing any more; dropped to keep replays short.
    fn tidy(&mut self) {
        if let Some(reset) = self.history.iter().rposition(|entry| *entry == Entry::Reset) {
            self.history.drain(..reset);
        }
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[test]
fn the_breaker_answers_as_its_reference_does_whatever_happens() {
    // Rows C1, C2, C3: one probe, the numbers that were set, and no say for calls from before a change.
    let (mut opened, mut probed, mut refused) = (0, 0, 0);
    for seed in 1..=SEEDS {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let threshold = 1 + u32::try_from(dice.below(6)).unwrap();
        let open_ms = 1 + dice.below(2000);
        let settings = SupervisionSettings {
            breaker_failures: threshold,
            breaker_open: Duration::from_millis(open_ms),
            ..SupervisionSettings::default()
        };
        let breaker = Arc::new(Breaker::new(&settings));
        let mut reference = Reference { threshold, open_ms, history: Vec::new() };
        let (start, mut at_ms, mut calls): (_, _, Vec<(usize, Pass)>) = (Instant::now(), 0, Vec::new());
        for step in 0..STEPS {
            let now = start + Duration::from_millis(at_ms);
            match dice.below(100) {
                // A call comes; none more than can be told apart by hand.
                0..45 if calls.len() < 12 => {
                    let call = usize::try_from(step).unwrap();
                    let expected = reference.admits(at_ms);
                    assert_eq!(breaker.check(now).is_ok(), expected, "seed {seed}, step {step}: check");
                    match breaker.admit(now, LIMIT) {
                        Ok(pass) => {
                            assert!(expected, "seed {seed}, step {step}: a call was let through");
                            probed += u32::from(reference.replay().open_until_ms.is_some());
                            calls.push((call, pass));
                            reference.history.push(Entry::Began { call, at_ms });
                        }
                        Err(pause) => {
                            assert!(!expected && !pause.is_zero(), "seed {seed}, step {step}: a call was refused");
                            refused += 1;
                        }
                    }
                }
                // A call ends, any of them.
                0..90 if !calls.is_empty() => {
                    let index = usize::try_from(dice.below(calls.len() as u64)).unwrap();
                    let (call, pass) = calls.swap_remove(index);
                    let outcome = match dice.below(10) {
                        0..5 => Outcome::Failed,
                        5..8 => Outcome::Answered,
                        _ => Outcome::Unknown,
                    };
                    let was_open = reference.replay().open_until_ms.is_some();
                    pass.report(now, outcome);
                    reference.history.push(Entry::Ended { call, at_ms, outcome });
                    opened += u32::from(!was_open && reference.replay().open_until_ms.is_some());
                }
                90..99 => at_ms += dice.below(open_ms),
                99 => {
                    breaker.reset();
                    reference.history.push(Entry::Reset);
                    reference.tidy();
                }
                _ => at_ms += 1,
            }
        }
    }
    // A comparison that never left the closed state would show nothing.
    assert!(opened > 500 && probed > 500 && refused > 500, "{opened} opened, {probed} probed, {refused} refused");
}
