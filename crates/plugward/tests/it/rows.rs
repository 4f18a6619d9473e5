//! The list of all weaknesses that the first implementations of these formats are known for, by row, and of faults that
//! were reported of gateways and commands, by case, with the tests that hold the right value of each. A row without a
//! test, or with one that is gone, fails here.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Rows of one letter, and how many there are.
const ROWS: [(char, usize); 6] = [('W', 21), ('V', 8), ('H', 4), ('I', 4), ('C', 4), ('G', 6)];

/// Row, file below `crates`, test. A row whose inputs are several has a test for each that another does not hold.
const TESTS: &[(&str, &str, &str)] = &[
    ("W1", POLICY, "values_are_never_read_again"),
    ("W1", LIBRARY, "values_arrive_as_they_are"),
    ("W2", POLICY, "values_are_never_read_again"),
    ("W2", LIBRARY, "values_arrive_as_they_are"),
    ("W3", POLICY, "values_are_never_read_again"),
    ("W3", POLICY, "with_a_shell_values_are_positional_parameters"),
    ("W4", POLICY, "values_are_never_read_again"),
    ("W4", LIBRARY, "a_shell_never_reads_a_value"),
    ("W5", POLICY, "names_that_are_patterns_are_refused"),
    ("W5", COMMANDS, "w05_names_that_are_patterns_match_nothing"),
    ("W6", POLICY, "bad_values_are_refused_by_name"),
    ("W6", LIBRARY, "values_arrive_as_they_are"),
    ("W7", COMMANDS, "w07_a_variable_of_the_host_is_not_printed"),
    ("W8", LIBRARY, "a_timeout_ends_the_whole_tree_and_says_so"),
    ("W9", LIBRARY, "a_timeout_ends_the_whole_tree_and_says_so"),
    ("W10", LIBRARY, "large_output_is_an_error_a_cut_or_a_file"),
    ("W10", COMMANDS, "w10_a_gate_that_writes_much_is_not_called_slow"),
    ("W11", LIBRARY, "no_failure_repeats_a_value"),
    ("W12", LIBRARY, "values_are_checked_before_anything_starts"),
    ("W12", POLICY, "no_placeholder_is_ever_left_over"),
    ("W13", COMMANDS, "w10_a_gate_that_writes_much_is_not_called_slow"),
    ("W13", POLICY, "the_seeds_examples_load_verbatim"),
    ("W14", LIBRARY, "a_command_runs_where_its_file_says"),
    ("W15", POLICY, "limits_and_folders_are_checked"),
    ("W16", COMMANDS, "w16_a_type_alone_registers_nothing"),
    ("W17", LIBRARY, "the_registry_tells_its_mistakes_and_lists_copies"),
    ("W18", POLICY, "bad_files_are_refused_with_positions_and_all_at_once"),
    ("W19", POLICY, "a_value_does_not_become_an_option"),
    ("W19", LIBRARY, "the_seeds_example_runs_in_its_sandbox"),
    ("W20", LIBRARY, "stdin_exit_code_and_signal_are_as_they_are"),
    ("W21", LIBRARY, "stdin_exit_code_and_signal_are_as_they_are"),
    ("W21", COMMANDS, "w21_a_missing_folder_an_exit_code_and_a_signal_are_three_things"),
    ("V1", POLICY, "the_seeds_examples_load_verbatim"),
    ("V2", POLICY, "the_seeds_examples_load_verbatim"),
    ("V3", POLICY, "yaml_is_read_as_yaml"),
    ("V4", POLICY, "yaml_is_read_as_yaml"),
    ("V5", POLICY, "bad_files_are_refused_with_positions_and_all_at_once"),
    ("V3", TYPES, "mistakes_in_an_integration_are_told_with_their_place"),
    ("V5", TYPES, "mistakes_in_an_integration_are_told_with_their_place"),
    ("V6", TYPES, "mistakes_in_an_integration_are_told_with_their_place"),
    ("V6", OUTBOUND, "near_services_are_not_reached_by_a_far_name"),
    ("V7", POLICY, "shell_syntax_needs_a_shell_and_says_so"),
    ("V8", PAYLOAD, "a_value_is_a_value_wherever_it_stands"),
    ("H1", PLAN, "a_deleted_file_takes_its_plugin_along_and_no_other"),
    ("H2", PLAN, "a_deleted_file_takes_its_plugin_along_and_no_other"),
    ("H3", PLAN, "another_id_in_the_same_file_is_another_plugin"),
    ("H3", LOADER, "a_folder_made_after_the_start_is_followed_through_edit_rename_delete_and_link_swap"),
    ("H4", PLAN, "two_files_with_one_id_are_an_error_at_load_and_later_and_a_newcomer_takes_nobodys_place"),
    ("H4", LOADER, "a_bad_edit_keeps_the_version_before_running_and_says_where_the_mistake_is"),
    ("I1", OUTBOUND_LIMITS, "an_answer_that_does_not_end_has_an_end"),
    ("I1", WEBHOOKS, "a_delivery_settles_whatever_the_receiver_does"),
    ("I2", OUTBOUND_LIMITS, "an_answer_that_does_not_end_has_an_end"),
    ("I2", WEBHOOKS, "a_delivery_settles_whatever_the_receiver_does"),
    ("I3", WEBHOOKS, "a_delivery_settles_whatever_the_receiver_does"),
    ("I4", TYPES, "an_integration_is_a_webhook"),
    ("I4", WEBHOOKS, "a_delivery_settles_whatever_the_receiver_does"),
    ("C1", BREAKER, "it_opens_after_the_threshold_and_lets_a_single_probe_through"),
    ("C1", SERVERS, "c1_one_of_three_calls_is_the_probe"),
    ("C2", BREAKER, "a_threshold_of_one_opens_at_the_first_failure"),
    ("C2", SUPERVISION, "a_manifest_sets_its_breaker_and_business_errors_never_trip_it"),
    ("C3", BREAKER, "a_call_from_before_a_change_of_state_changes_nothing"),
    ("C4", SUPERVISION, "a_manifest_sets_its_breaker_and_business_errors_never_trip_it"),
    ("C4", COMMANDS, "a_command_that_cannot_start_is_paused_and_one_that_fails_is_not"),
    ("G1", SERVERS, "g1_two_servers_of_one_name_leak_no_process"),
    ("G2", SERVERS, "g2_equal_tool_names_are_listed_once_each_and_lead_to_their_own_server"),
    ("G3", SERVERS, "g3_a_shell_in_place_of_a_server_keeps_no_other_from_being_found"),
    ("G4", SERVERS, "g4_a_dead_server_is_tried_again"),
    ("G5", SERVERS, "g5_mute_servers_are_started_at_the_same_time"),
    ("G6", SERVERS, "g6_files_are_read_as_they_are_written_and_links_lead_nowhere"),
];

/// The same for cases that were reported in the field: of commands, and of gateways.
const CASES: &[(&str, &str, &str)] = &[
    ("B016", COMMANDS, "b016_no_value_is_run"),
    ("B033", HOST, "a_package_may_bring_its_script"),
    ("B042", HOST, "failures_are_the_calls_own"),
    ("B042", LIBRARY, "what_a_command_leaves_behind_ends_with_it"),
    ("B047", COMMANDS, "b047_a_container_that_a_command_runs_ends_with_it"),
    ("B065", HOST, "a_package_may_bring_its_script"),
    ("B065", LIBRARY, "large_output_is_an_error_a_cut_or_a_file"),
    ("B071", COMMANDS, "b071_arguments_are_neither_split_nor_dropped"),
    ("B079", COMMANDS, "b079_no_placeholder_reaches_a_program"),
    ("B008", SESSIONS, "a_lost_session_is_told_as_such_and_begins_anew"),
    ("B008", REMOTE, "a_lost_session_is_begun_anew_once_for_all_who_lost_it"),
    ("B028", SESSIONS, "the_stream_of_what_is_said_unasked_opens_once_and_ends_with_the_session"),
    ("B028", GUARDING, "other_methods_and_broken_messages_are_refused_in_the_words_of_the_protocol"),
    ("B028", REMOTE, "a_server_with_sessions_is_reviewed_called_and_let_go"),
    ("B029", GUARDING, "pages_of_other_origins_are_refused_before_their_token_matters"),
    ("B029", OPENING, "the_start_line_tells_the_address_and_the_place_of_the_token_but_not_the_token"),
    ("B030", GUARDING, "clients_are_served_whatever_their_accept_header_says"),
    ("B046", UPSTREAM, "a_client_without_a_token_is_told_what_is_missing_and_is_sent_nowhere"),
    ("B046", UPSTREAM, "a_server_elsewhere_never_sees_the_clients_token_and_its_refusal_is_told"),
    ("B046", REMOTE, "a_server_that_wants_authorization_says_what_for"),
    ("B075", SESSION, "malformed_input_gets_the_right_error_and_the_session_goes_on"),
    ("B075", GUARDING, "other_methods_and_broken_messages_are_refused_in_the_words_of_the_protocol"),
    ("B086", ENDING, "answers_under_way_are_written_after_the_end_of_input"),
    ("B086", ENDING, "everything_in_one_write_is_answered"),
    ("B089", SESSION, "every_capability_announced_works_and_empty_lists_are_no_errors"),
    ("B089", OFFERS, "prompts_of_two_plugins_are_told_apart_and_each_is_asked_under_its_own_name"),
    ("B089", OFFERS, "what_no_person_agreed_to_is_not_offered"),
    ("B092", SESSIONS, "behind_a_balancer_a_session_of_another_host_begins_anew"),
    ("B092", STATELESS, "a_request_is_answered_by_itself_and_leaves_no_session"),
];

/// Cases of gateways, none of which may be without a test.
const GATEWAY_CASES: [&str; 9] = ["B008", "B028", "B029", "B030", "B046", "B075", "B086", "B089", "B092"];

const POLICY: &str = "plugward-policy/tests/command.rs";
const TYPES: &str = "plugward-policy/tests/plugin_types.rs";
const PAYLOAD: &str = "plugward-policy/src/webhook/payload.rs";
const OUTBOUND: &str = "plugward-host/src/outbound/tests/mod.rs";
const OUTBOUND_LIMITS: &str = "plugward-host/src/outbound/tests/limits.rs";
const WEBHOOKS: &str = "plugward/tests/it/plugin_types/webhooks.rs";
const PLAN: &str = "plugward-host/src/loader/plan/tests.rs";
const BREAKER: &str = "plugward-host/src/call/breaker.rs";
const LIBRARY: &str = "plugward/tests/it/command_library.rs";
const HOST: &str = "plugward/tests/it/command_host.rs";
const COMMANDS: &str = "plugward/tests/it/rows_commands.rs";
const SERVERS: &str = "plugward/tests/it/rows_servers.rs";
const LOADER: &str = "plugward/tests/it/loader.rs";
const SUPERVISION: &str = "plugward/tests/it/supervision.rs";
const SESSION: &str = "plugward/src/gateway/tests.rs";
const SESSIONS: &str = "plugward/src/gateway/http/tests/sessions.rs";
const STATELESS: &str = "plugward/src/gateway/http/tests/stateless.rs";
const GUARDING: &str = "plugward/src/gateway/http/tests/guarding.rs";
const OPENING: &str = "plugward/tests/it/api/opening.rs";
const REMOTE: &str = "plugward/tests/it/remote.rs";
const UPSTREAM: &str = "plugward/tests/it/gateway/upstream.rs";
const ENDING: &str = "plugward/tests/it/gateway/ending.rs";
const OFFERS: &str = "plugward/tests/it/gateway/offers.rs";

#[test]
fn every_row_has_a_test() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (row, file, name) in TESTS.iter().chain(CASES) {
        let text = fs::read_to_string(crates.join(file)).unwrap();
        let begin = text.find(&format!("fn {name}(")).unwrap_or_else(|| panic!("{row}: {file} has no test `{name}`"));
        // Its attribute is the line before.
        let line_before = text[..begin].lines().rev().find(|line| line.trim_start().starts_with("#["));
        let is_close = text[..begin].lines().rev().take(3).any(|line| Some(line) == line_before);
        let attribute = is_close && line_before.is_some_and(|line| line.contains("test"));
        assert!(attribute, "{row}: `{name}` in {file} is no test");
    }
    for case in GATEWAY_CASES {
        assert!(CASES.iter().any(|(row, ..)| *row == case), "{case} has no test");
    }
    let covered: BTreeSet<&str> = TESTS.iter().map(|(row, ..)| *row).collect();
    let all: BTreeSet<String> =
        ROWS.iter().flat_map(|(letter, count)| (1..=*count).map(move |row| format!("{letter}{row}"))).collect();
    let missing: Vec<&String> = all.iter().filter(|row| !covered.contains(row.as_str())).collect();
    assert_eq!(missing, [""; 0], "rows without a test");
    let unknown: Vec<&&str> = covered.iter().filter(|row| !all.contains(**row)).collect();
    assert_eq!(unknown, [&""; 0], "rows that do not exist");
}
