//! `cargo xtask`: the chores of this repository in Rust, so that a clone needs nothing but cargo to start. Owns tidy
//! checks, the one test command, the table of attacks, and the checks against real servers and clients. Refuses to be a build system: cargo
//! builds.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is a program for terminals and CI logs")]

mod attacks;
mod chaos;
mod conformance;
mod crowd;
mod driver;
mod guard;
mod lone_test;
mod other_systems;
mod packages;
mod packaging;
mod process;
mod real_clients;
mod real_servers;
mod test;
mod tidy;
mod tools;

use std::process::ExitCode;

use anyhow::{Result, bail};

const HELP: &str = "\
usage: cargo xtask COMMAND

  test [--quick]      everything that must pass before a commit counts; --quick leaves out real servers and clients
  attacks             attacks the sandbox for real and shows what became of each threat at each level
  other-systems       type-checks the sandbox for macOS and Windows
  packaging           lets the tools that will read the files of packaging/ check them
  tidy [--verbose]    rules about the shape of the repository; --verbose also names what is close to a limit
  chaos [--calls N] [--seed N]
                      calls ten plugins that crash at random (100000 calls), and checks that nothing is lost or left
  crowd [--minutes N] 500 clients of both eras on one host with ten plugins (5 minutes), and checks that nothing is mixed up
  real-servers        runs published MCP servers through plugward, from install to remove
  real-clients [--write]
                      lets published MCP clients use all there is, and compares what came of it with docs/matrix.md
  conformance         runs the official conformance suite against `plugward serve --http`, and against a client built on
                      the host
  help                this text
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(words: &[&str]) -> Result<()> {
    match words {
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            return Ok(());
        }
        [guard::ARGUMENT] => {
            guard::serve(std::io::stdin().lock());
            return Ok(());
        }
        _ => {
            guard::start()?;
            process::become_reaper()?;
        }
    }
    match words {
        ["test"] => test::run(false),
        ["test", "--quick"] => test::run(true),
        ["chaos", options @ ..] => chaos::run(options),
        ["crowd", options @ ..] => crowd::run(options),
        ["real-servers"] => real_servers::run(),
        ["real-clients"] => real_clients::run(false),
        ["real-clients", "--write"] => real_clients::run(true),
        ["attacks"] => attacks::run(),
        ["other-systems"] => other_systems::run(),
        ["packaging"] => packaging::run(),
        ["conformance"] => conformance::run(),
        ["tidy"] => tidy::run(false),
        ["tidy", "--verbose"] => tidy::run(true),
        _ => bail!("`{}` is no command\n\n{HELP}", words.join(" ")),
    }
}
