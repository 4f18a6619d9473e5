//! The `plugward` binary: command line, MCP server face and Host API over one host.
//!
//! Owns the order in which a process finds out what it is: the launcher of a plugin, the demo's own MCP server, or the
//! command line. Refuses everything else: see the modules.

mod api;
mod cli;
mod client_tokens;
mod clients;
mod control;
mod cost;
mod exit;
mod gateway;
mod profile;
mod settings;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    // First of all: a launcher must have a single thread and no state.
    plugward_sandbox::launcher_main_if_requested();
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|first| first == cli::FIXTURE_ARGUMENT).is_some() {
        return mcp_fixture::run_arguments(arguments.map(|argument| argument.to_string_lossy().into_owned()));
    }
    cli::main()
}
