//! The launcher as a host sees it, with real processes.
//!
//! Owns a small runner, because this binary is also the launcher (re-executed) and a stand-in for a host that dies: both
//! need the first lines of `main`, which the standard test harness keeps for itself. Tests run one after another, so
//! that counts of processes and descriptors mean something. Refuses skipping: every test runs or the binary fails.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test without the standard harness is not seen as one by the lints"
)]

mod ending;
mod leaks;
mod starting;
mod support;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
};

/// A test and its name, as shown and as filtered.
type Test = (&'static str, fn());

macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), $module::$name as fn())),*]
    };
}

const TESTS: &[Test] = tests![
    starting::runs_with_three_pipes_and_reports_its_exit,
    starting::environment_is_exactly_what_was_given,
    starting::arguments_arrive_literally,
    starting::runs_in_the_directory_given,
    starting::inherits_no_descriptor_of_the_host,
    starting::leads_its_own_group_and_gains_no_privileges,
    starting::inherits_no_signal_settings,
    starting::large_environment_arrives_whole,
    starting::launcher_shows_nothing_of_the_specification,
    starting::launcher_memory_is_closed_to_its_plugin,
    starting::failures_name_step_and_path,
    starting::lost_launchers_are_reported,
    starting::direct_use_of_the_launcher_is_refused,
    starting::parallel_starts_do_not_share_descriptors,
    ending::clean_exit_on_closed_stdin_gets_no_signal,
    ending::termination_reaches_the_whole_tree,
    ending::ladder_ends_in_kill_when_all_is_ignored,
    ending::kill_finds_daemons_that_left_session_and_group,
    ending::child_left_by_an_exited_main_is_ended,
    ending::pipe_held_by_a_grandchild_is_freed,
    ending::stopped_processes_can_still_terminate,
    ending::fork_storm_is_ended,
    ending::killed_host_takes_its_plugins_along,
    ending::killed_host_wakes_a_stopped_launcher,
    ending::main_process_does_not_outlive_its_launcher,
    ending::dropped_handle_kills_the_tree,
    ending::lost_launcher_is_not_called_a_clean_end,
    ending::terminated_launcher_passes_the_request_on,
    ending::orders_after_the_end_do_nothing,
    ending::news_can_be_waited_for,
    leaks::many_rounds_leave_no_descriptor_and_no_process,
    leaks::failed_starts_leave_no_descriptor_and_no_process,
];

fn main() -> ExitCode {
    plugward_sandbox::launcher_main_if_requested();
    if support::stand_in_if_requested() {
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let selected = TESTS.iter().filter(|(name, _)| filter.is_none_or(|filter| name.contains(filter.as_str())));
    if arguments.iter().any(|argument| argument == "--list") {
        selected.for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed) = (0, Vec::new());
    for (name, test) in selected {
        match catch_unwind(AssertUnwindSafe(test)) {
            Ok(()) => {
                passed += 1;
                println!("test {name} ... ok");
            }
            Err(_) => {
                failed.push(name);
                println!("test {name} ... FAILED");
            }
        }
    }
    println!("\ntest result: {passed} passed; {} failed {failed:?}", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
