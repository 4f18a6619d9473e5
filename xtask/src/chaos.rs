//! `cargo xtask chaos`: many calls over plugins that crash at random. Owns the numbers of a long run and its time limit;
//! what is called and what must hold is in the test of the same name, which runs short with every test run.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::lone_test;

/// The test.
const TEST: &str = "chaos::ten_plugins_die_at_random_and_every_call_ends_once";

/// Calls of a run when none are asked for.
const CALLS_DEFAULT: u64 = 100_000;

/// Most calls of a run: each is kept to be compared with the trace.
const CALLS_MAX: u64 = 10_000_000;

/// The seed of a run when none is given.
const SEED_DEFAULT: u64 = 0x5eed;

/// Calls per second that any machine reaches, crashes included; with the time to build it bounds a run that hangs.
const CALLS_PER_SECOND_MIN: u64 = 50;

/// Builds the fixture and the test, and runs it.
pub(crate) fn run(options: &[&str]) -> Result<()> {
    let (mut calls, mut seed) = (CALLS_DEFAULT, SEED_DEFAULT);
    let mut words = options.iter();
    while let Some(word) = words.next() {
        let number = || {
            let text = words.clone().next().with_context(|| format!("`{word}` needs a number"))?;
            text.parse::<u64>().with_context(|| format!("`{word} {text}`: not a whole number"))
        };
        match *word {
            "--calls" => calls = number()?,
            "--seed" => seed = number()?,
            _ => bail!("`{word}` is no option of chaos: there are --calls and --seed"),
        }
        words.next();
    }
    if calls == 0 || calls > CALLS_MAX {
        bail!("`--calls {calls}`: expected a number from 1 to {CALLS_MAX}");
    }
    let settings = [("PLUGWARD_CHAOS_CALLS", calls.to_string()), ("PLUGWARD_CHAOS_SEED", seed.to_string())];
    let began = Instant::now();
    lone_test::run("chaos", TEST, Duration::from_secs(calls / CALLS_PER_SECOND_MIN), &settings)?;
    println!("chaos: {calls} calls with seed {seed}, {:.0} s with building", began.elapsed().as_secs_f64());
    Ok(())
}
