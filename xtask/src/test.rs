//! `cargo xtask test`: the one test command. Owns the order of the steps and their time limits. Refuses to hide
//! anything: a step that is left out is named, and the first failure ends the run with its last lines.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::process::Job;
use crate::{conformance, crowd, other_systems, packaging, real_clients, real_servers, tidy, tools};

/// Formatting only parses.
const FORMAT_LIMIT: Duration = Duration::from_secs(300);
/// A cold build of all dependencies on two busy cores, several times over.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);
/// All tests of the workspace; a test that hangs shows here and not in a CI timeout without a word.
const TESTS_LIMIT: Duration = Duration::from_secs(2700);
/// The demo starts one small plugin.
const DEMO_LIMIT: Duration = Duration::from_secs(180);
/// What clippy, build and test select, the same each time so that nothing is compiled twice. The feature brings the
/// fixture's binary.
pub(crate) const SELECTION: [&str; 5] =
    ["--workspace", "--all-targets", "--locked", "--features", "mcp-fixture/misbehaviours"];

type Action = fn(&Context) -> Result<()>;

struct Context {
    root: PathBuf,
}

struct Step {
    name: &'static str,
    action: Action,
    /// Needs a network the first time and half a minute each time.
    slow: bool,
}

const STEPS: &[Step] = &[
    Step { name: "prerequisites", action: |_| tools::prepare(), slow: false },
    Step { name: "fmt", action: format, slow: false },
    Step { name: "clippy", action: clippy, slow: false },
    Step { name: "build", action: build, slow: false },
    Step { name: "test", action: test, slow: false },
    Step { name: "doc tests", action: doc_tests, slow: false },
    Step { name: "doc", action: doc, slow: false },
    Step { name: "tidy", action: |_| tidy::run(false), slow: false },
    Step { name: "other systems", action: |_| other_systems::run(), slow: false },
    Step { name: "packaging", action: |_| packaging::run(), slow: false },
    Step { name: "demo", action: demo, slow: false },
    Step { name: "crowd", action: |_| crowd::run_short(), slow: true },
    Step { name: "real-servers", action: |_| real_servers::run(), slow: true },
    Step { name: "real-clients", action: |_| real_clients::run(false), slow: true },
    Step { name: "conformance", action: |_| conformance::run(), slow: true },
];

/// Runs the steps in order and ends at the first failure. `quick` leaves the slow ones out.
pub(crate) fn run(quick: bool) -> Result<()> {
    let context = Context { root: tools::workspace_root()? };
    let names: Vec<&str> = STEPS.iter().filter(|step| !(quick && step.slow)).map(|step| step.name).collect();
    println!("This checks, in this order: {}.", names.join(", "));
    if quick {
        println!("--quick: crowd, real-servers, real-clients and conformance are left out.");
    }
    let mut table = Vec::new();
    for step in STEPS {
        if quick && step.slow {
            table.push((step.name, "left out".to_owned()));
            continue;
        }
        println!("==> {}", step.name);
        let started = Instant::now();
        let result = (step.action)(&context);
        let took = format!("{:.1} s", started.elapsed().as_secs_f64());
        println!("    {} {took}", step.name);
        if let Err(error) = result {
            table.push((step.name, format!("FAILED after {took}")));
            print_table(&table);
            return Err(error.context(format!("step `{}` failed", step.name)));
        }
        table.push((step.name, format!("ok, {took}")));
    }
    print_table(&table);
    Ok(())
}

fn print_table(table: &[(&str, String)]) {
    println!("\n{:<16}result", "step");
    for (name, result) in table {
        println!("{name:<16}{result}");
    }
}

fn cargo(root: &Path, label: &str, limit: Duration) -> Job {
    Job::new(tools::cargo(), label, limit).dir(root).env("CARGO_TERM_COLOR", "never").echo()
}

fn format(context: &Context) -> Result<()> {
    cargo(&context.root, "cargo fmt", FORMAT_LIMIT)
        .args(["fmt", "--all", "--", "--check", "--color", "never"])
        .run()?
        .success()?;
    Ok(())
}

fn clippy(context: &Context) -> Result<()> {
    let job = cargo(&context.root, "cargo clippy", BUILD_LIMIT).arg("clippy").args(SELECTION);
    job.args(["--", "-D", "warnings"]).run()?.success()?;
    Ok(())
}

fn build(context: &Context) -> Result<()> {
    cargo(&context.root, "cargo build", BUILD_LIMIT).arg("build").args(SELECTION).run()?.success()?;
    Ok(())
}

/// Benchmarks are built by the step before but not run here: `cargo test --all-targets` would run them.
fn test(context: &Context) -> Result<()> {
    let targets = ["--lib", "--bins", "--tests", "--examples"];
    let selection = SELECTION.iter().filter(|argument| **argument != "--all-targets");
    cargo(&context.root, "cargo test", TESTS_LIMIT).arg("test").args(selection).args(targets).run()?.success()?;
    Ok(())
}

fn doc_tests(context: &Context) -> Result<()> {
    let selection = SELECTION.iter().filter(|argument| **argument != "--all-targets");
    cargo(&context.root, "cargo test --doc", TESTS_LIMIT).arg("test").args(selection).arg("--doc").run()?.success()?;
    Ok(())
}

fn doc(context: &Context) -> Result<()> {
    cargo(&context.root, "cargo doc", BUILD_LIMIT)
        .env("RUSTDOCFLAGS", "-D warnings")
        .args(["doc", "--no-deps", "--workspace", "--locked", "--features", "mcp-fixture/misbehaviours"])
        .run()?
        .success()?;
    Ok(())
}

/// The first thing a newcomer runs: it must end well, leave nothing running and show a trace.
fn demo(context: &Context) -> Result<()> {
    let binary = tools::debug_binaries(&context.root)?.join("plugward");
    let done = Job::new(binary, "plugward demo", DEMO_LIMIT).arg("demo").env("NO_COLOR", "1").run()?.success()?;
    if !format!("{}{}", done.stdout, done.stderr).to_lowercase().contains("trace") {
        bail!("plugward demo: shows no trace\n{}", done.tail());
    }
    Ok(())
}
