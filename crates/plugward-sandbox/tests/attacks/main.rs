//! Attacks on the sandbox, made for real from inside it, each with a control that shows that it works without one.
//!
//! Owns a small runner: this binary is also the launcher, a launcher without one layer, and the attacking program, which
//! all need the first lines of `main`. When it runs as root it runs everything a second time as an ordinary user. Refuses
//! counting an attack that could not be made: without a working control a row is shown as not tried.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    reason = "a test without the standard harness is not seen as one by the lints"
)]

mod ends;
mod hosts;
mod layers;
mod levels;
mod limits;
mod machines;
mod observing;
mod probe;
mod runtimes;
mod table;
mod threat_list;
mod threats;
mod world;

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    panic::{AssertUnwindSafe, catch_unwind},
    process::{Command, ExitCode},
};

/// A test and its name, as shown and as filtered.
type Test = (&'static str, fn());

macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), $module::$name as fn())),*]
    };
}

const TESTS: &[Test] = tests![
    table::every_attack_is_stopped_where_the_level_claims_it,
    hosts::listed_hosts_are_found,
    hosts::names_are_asked_for_at_the_host,
    hosts::beside_listed_hosts_there_is_nothing,
    hosts::listed_hosts_take_every_layer,
    hosts::every_address_can_lead_to_one_listener,
    hosts::connections_hold_little,
    hosts::bubblewrap_makes_no_such_network,
    layers::every_layer_is_left_out_somewhere,
    layers::leaving_out_any_layer_is_noticed,
    layers::witness_refuses_a_level_that_lacks_a_layer,
    layers::a_layer_that_goes_after_the_probe_starts_nothing,
    layers::leaving_out_any_part_is_noticed,
    layers::leaving_out_fast_open_is_noticed,
    layers::leaving_out_the_architecture_is_noticed,
    layers::leaving_out_the_environment_is_noticed,
    layers::leaving_out_the_user_is_noticed,
    layers::leaving_out_the_descriptors_is_noticed,
    layers::leaving_out_no_new_privileges_starts_nothing,
    levels::report_says_what_is_in_force,
    levels::what_cannot_be_enforced_does_not_start,
    levels::errors_name_the_path_and_the_fix,
    levels::what_was_looked_at_is_what_is_opened,
    levels::only_the_home_changes_its_owner,
    levels::older_landlock_leaves_no_unix_sockets_with_an_open_network,
    levels::partial_refuses_folders_within_each_other,
    levels::root_needs_a_user_for_the_plugin,
    levels::bubblewrap_is_asked_where_only_it_is_allowed,
    levels::bubblewrap_refuses_what_it_cannot_keep,
    machines::older_landlock_is_reported_or_refused,
    machines::launcher_with_less_landlock_than_the_kernel_is_refused,
    machines::without_namespaces_full_is_refused_and_partial_works,
    machines::covered_proc_is_reported_or_refused,
    ends::two_hundred_ends_leave_nothing,
    limits::daemons_end_with_their_namespace,
    limits::first_process_and_launcher_cannot_be_killed,
    limits::processor_time_ends,
    limits::shared_memory_ends_at_the_limit,
    limits::memory_in_common_counts_once,
    limits::memory_of_unreadable_programs_ends_the_plugin,
    limits::kernel_buffers_end_at_the_limit,
    limits::own_data_ends_at_the_limit,
    limits::time_to_run_ends,
    limits::killed_host_side_leaves_nothing,
    limits::many_at_once_leave_nothing,
    observing::trial_notes_what_was_wanted_and_not_there,
    observing::trial_notes_writes_to_what_is_read_only,
    observing::trial_of_a_busy_plugin_ends_like_any_other,
    observing::lost_record_is_no_empty_record,
    observing::trial_takes_level_full,
    runtimes::shells_and_interpreters_start,
    runtimes::static_program_needs_nothing,
    runtimes::links_are_followed_and_made_again,
    runtimes::plugin_sees_only_what_it_was_given,
    runtimes::open_network_is_open,
    runtimes::cost_of_a_start,
    threats::every_row_belongs_to_one_threat,
    threats::page_and_suite_tell_the_same,
];

/// Tests of what does not depend on who makes the namespaces, or of the native way alone.
const NATIVE_ONLY: &[&str] = &[
    "hosts::listed_hosts_are_found",
    "hosts::names_are_asked_for_at_the_host",
    "hosts::beside_listed_hosts_there_is_nothing",
    "hosts::listed_hosts_take_every_layer",
    "hosts::every_address_can_lead_to_one_listener",
    "hosts::connections_hold_little",
    "hosts::bubblewrap_makes_no_such_network",
    "layers::leaving_out_fast_open_is_noticed",
    "layers::leaving_out_the_user_is_noticed",
    "layers::leaving_out_no_new_privileges_starts_nothing",
    "levels::bubblewrap_is_asked_where_only_it_is_allowed",
    "levels::bubblewrap_refuses_what_it_cannot_keep",
    "machines::without_namespaces_full_is_refused_and_partial_works",
    "threats::every_row_belongs_to_one_threat",
    "threats::page_and_suite_tell_the_same",
];
/// Argument that prints the table of `docs/threats.md` as it has to be.
const PRINT_PAGE: &str = "--threats-page";

/// The ordinary user of the second run. Not `nobody`, who may own things on a machine.
const ORDINARY_UID: u32 = 61_500;

fn main() -> ExitCode {
    plugward_sandbox::launcher_main_if_requested();
    world::launch_without_if_requested();
    if probe::run_if_requested() || machines::host_if_requested() || ends::host_if_requested() {
        return ExitCode::SUCCESS;
    }
    // What is not tried is not shown: a way that is missing is no way that holds.
    if !fs::exists("/usr/bin/bwrap").unwrap() {
        println!("/usr/bin/bwrap is not here: install the package `bubblewrap`, the suite goes through it as well");
        return ExitCode::FAILURE;
    }
    // Many systems switch core images off for everybody, and then there would be no control.
    let cores = rustix::process::getrlimit(rustix::process::Resource::Core);
    let switched_on = rustix::process::Rlimit { current: cores.maximum, ..cores };
    let _stays_off = rustix::process::setrlimit(rustix::process::Resource::Core, switched_on);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let selected: Vec<&Test> = TESTS
        .iter()
        .filter(|(name, _)| filter.is_none_or(|filter| name.contains(filter.as_str())))
        .filter(|(name, _)| !world::through_bwrap() || !NATIVE_ONLY.contains(name))
        .collect();
    if arguments.iter().any(|argument| argument == PRINT_PAGE) {
        threats::print_page_rows();
        return ExitCode::SUCCESS;
    }
    if arguments.iter().any(|argument| argument == "--list") {
        selected.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let user = match (world::is_root(), world::through_bwrap()) {
        (true, false) => "root",
        (false, false) => "ordinary user",
        (true, true) => "root, through bwrap",
        (false, true) => "ordinary user, through bwrap",
    };
    let (mut passed, mut failed) = (0, Vec::new());
    for (name, test) in selected {
        match catch_unwind(AssertUnwindSafe(test)) {
            Ok(()) => {
                passed += 1;
                threats::note_passed(name);
                println!("test {name} (as {user}) ... ok");
            }
            Err(_) => {
                failed.push(name);
                println!("test {name} (as {user}) ... FAILED");
            }
        }
    }
    println!("\ntest result (as {user}): {passed} passed; {} failed {failed:?}", failed.len());
    if filter.is_none() {
        threats::print_lines(user);
    }
    let again = run_again(&arguments);
    if failed.is_empty() && again { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The other ways of running everything: each user through bubblewrap, and root as an ordinary
/// user, who does the same.
fn run_again(arguments: &[String]) -> bool {
    if world::through_bwrap() {
        return true;
    }
    let through_bwrap = run_through_bwrap(arguments);
    through_bwrap && (!world::is_root() || run_as_ordinary_user(arguments))
}

fn run_through_bwrap(arguments: &[String]) -> bool {
    let program = std::env::current_exe().unwrap();
    Command::new(program).args(arguments).arg(world::THROUGH_BWRAP).status().unwrap().success()
}

/// Everything once more without the rights of root, from a copy that an ordinary user can execute.
fn run_as_ordinary_user(arguments: &[String]) -> bool {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("attacks");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).uid(ORDINARY_UID).gid(ORDINARY_UID).current_dir("/").env_remove("TMPDIR").env("HOME", "/");
    command.status().unwrap().success()
}
