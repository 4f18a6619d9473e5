//! Tests over real processes: the host with fixture plugins, and each face of the binary.
//!
//! One test binary, so that it links once. `support` holds what modules share; a module's name says which part of the
//! program would break for a user if its tests failed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has to stop")]

mod api;
mod cases_changes;
mod cases_processes;
mod cases_results;
mod cases_start;
mod cases_support;
mod cases_tools;
mod cases_wire;
mod chaos;
mod cli;
mod command_host;
mod command_library;
mod eras;
mod gateway;
mod host_asks;
mod host_calls;
mod host_results;
mod host_start;
mod host_stop;
mod host_trust;
mod loader;
mod plugin_types;
mod remote;
mod rows;
mod rows_commands;
mod rows_servers;
mod sandbox_access;
mod sandbox_bombs;
mod sandbox_egress;
mod sandbox_gate;
mod sandbox_limits;
mod sandbox_trial;
mod stress;
mod supervision;
mod support;
