//! The command line.

use std::process::ExitCode;

/// Hidden first argument that turns the binary into the demo's MCP server.
pub(crate) const FIXTURE_ARGUMENT: &str = "__fixture";

/// Runs the command line.
pub(crate) fn main() -> ExitCode {
    ExitCode::from(crate::exit::Exit::Usage)
}
