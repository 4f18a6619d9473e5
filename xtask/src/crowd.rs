//! `cargo xtask crowd`: five hundred clients of both eras on one host. Owns the length of a long run and its time limit;
//! what is called and what must hold is in the test of the same name, which runs short with every test run.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::lone_test;

/// The test.
const TEST: &str = "gateway::crowd::many_clients_of_both_eras_share_ten_plugins_and_nothing_is_mixed_up";

/// Minutes of a run when none are asked for: what grows by a little with each call has grown by then.
const MINUTES_DEFAULT: u64 = 5;

/// Most minutes of a run.
const MINUTES_MAX: u64 = 24 * 60;

/// Length of the run of the test command.
const TEST_RUN: Duration = Duration::from_secs(45);

/// Time to bring hundreds of clients up and down on a busy machine.
const UP_AND_DOWN: Duration = Duration::from_secs(5 * 60);

/// A run by hand.
pub(crate) fn run(options: &[&str]) -> Result<()> {
    let minutes = match options {
        [] => MINUTES_DEFAULT,
        ["--minutes", text] => {
            text.parse::<u64>().with_context(|| format!("`--minutes {text}`: not a whole number"))?
        }
        _ => bail!("`{}`: crowd has the one option --minutes N", options.join(" ")),
    };
    if minutes == 0 || minutes > MINUTES_MAX {
        bail!("`--minutes {minutes}`: expected a number from 1 to {MINUTES_MAX}");
    }
    run_for(Duration::from_secs(minutes * 60))
}

/// The run of the test command.
pub(crate) fn run_short() -> Result<()> {
    run_for(TEST_RUN)
}

fn run_for(length: Duration) -> Result<()> {
    let settings = [("PLUGWARD_CROWD_SECONDS", length.as_secs().to_string())];
    lone_test::run("crowd", TEST, length + UP_AND_DOWN, &settings)
}
