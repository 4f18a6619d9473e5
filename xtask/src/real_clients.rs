//! `cargo xtask real-clients`: published MCP clients that use everything there is through plugward, over both transports,
//! in both eras, with plugins of either era behind. Owns which clients run before which plugins, and the table of
//! docs/matrix.md that says what came of it; the scripts beside it only use and report.

mod features;
mod table;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::driver::Plugward;
use crate::packages::{self, Package};
use crate::process::Job;
use crate::{real_servers, tools};

/// Starting a client, our server and its plugins, and a few dozen calls for each combination, on a busy machine.
const CLIENT_LIMIT: Duration = Duration::from_secs(180);

/// Where the table is kept.
const TABLE: &str = "docs/matrix.md";

/// The plugins behind: the era they are of, and the modes of the fixture for `calls` and `offers`.
const BEHIND: [(&str, [&str; 2]); 2] =
    [("handshake", ["normal", "conformance"]), ("stateless", ["modern", "conformance-modern"])];

/// What a client saw, in one transport and one era.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Report {
    client: String,
    transport: String,
    era: String,
    /// The revision that was agreed on, where the client tells it.
    revision: Option<String>,
    /// What our server says about itself, where the client tells it.
    instructions: Option<String>,
    /// What each feature brought to light.
    found: Map<String, Value>,
}

/// A published client: the reports of one run of it.
type Run = fn(&Plugward, &Folders, behind: &str) -> Result<Vec<Report>>;

/// Each with the number of combinations that it has to report.
const CLIENTS: [(&str, usize, Run); 4] = [
    ("TypeScript SDKs", 8, |plugward, folders, behind| node(plugward, folders, behind, "typescript.mjs")),
    ("Python SDK 1", 2, |plugward, folders, behind| python(plugward, folders, behind, &folders.python_1)),
    ("Python SDK 2", 4, |plugward, folders, behind| python(plugward, folders, behind, &folders.python_2)),
    ("Inspector", 4, |plugward, folders, behind| node(plugward, folders, behind, "inspector.mjs")),
];

struct Folders {
    root: PathBuf,
    node: PathBuf,
    python_1: PathBuf,
    python_2: PathBuf,
}

/// Runs every client before every plugin; fails if one of them sees something wrong, or if the table says otherwise.
/// With `write` the table is written instead of compared.
pub(crate) fn run(write: bool) -> Result<()> {
    let root = tools::workspace_root()?;
    let package = |folder: &str| {
        let source = root.join("xtask/real-clients").join(folder);
        Package::prepare(&root, &source, &format!("clients/{folder}"), |_| Ok(())).map(|package| package.dir)
    };
    let folders = Folders {
        node: package("node")?,
        python_1: package("python-1")?,
        python_2: package("python-2")?,
        root: root.clone(),
    };
    let mut wrong = Vec::new();
    let mut rows = Vec::new();
    for (behind, modes) in BEHIND {
        let plugward = host_with(&root, behind, modes)?;
        for (name, combinations, run) in CLIENTS {
            let started = Instant::now();
            let faults = match run(&plugward, &folders, behind) {
                Ok(reports) => judge(behind, combinations, reports, &mut rows),
                Err(error) => vec![format!("{error:#}")],
            };
            let outcome = if faults.is_empty() { "ok" } else { "FAILED" };
            println!("{name:<16} before plugins with {behind:<10} {outcome}, {:.1} s", started.elapsed().as_secs_f64());
            wrong.extend(faults.into_iter().map(|fault| format!("{name}, plugins with {behind}: {fault}")));
        }
        wrong.extend(cancelled_calls(&plugward, behind, &rows).unwrap_or_else(|error| Some(format!("{error:#}"))));
    }
    if !wrong.is_empty() {
        bail!("real clients:\n{}", wrong.join("\n"));
    }
    table::keep(&root.join(TABLE), &table::render(&rows), write)
}

/// What is wrong with the reports, which become rows of the table.
fn judge(behind: &'static str, combinations: usize, reports: Vec<Report>, rows: &mut Vec<table::Row>) -> Vec<String> {
    let mut faults = Vec::new();
    if reports.len() != combinations {
        faults.push(format!("{} combinations reported, expected {combinations}", reports.len()));
    }
    for report in reports {
        faults.extend(features::faults(behind, &report));
        rows.push(table::Row { behind, report });
    }
    faults
}

/// Each client that gave a call up, and told so, must have left a trace of a cancelled call and no plugin that goes on.
fn cancelled_calls(plugward: &Plugward, behind: &str, rows: &[table::Row]) -> Result<Option<String>> {
    let expected = rows.iter().filter(|row| row.behind == behind && row.report.found.contains_key("cancel")).count();
    let traces = plugward.json(&["trace", "list", "--plugin", "calls", "--limit", "1000", "--json"])?;
    let long = |trace: &&Value| trace["tool"].as_str().is_some_and(|tool| tool.ends_with("sleep"));
    let traces: Vec<&Value> = traces["spans"].as_array().context("there are no spans")?.iter().filter(long).collect();
    let cancelled = traces.iter().filter(|trace| trace["outcome"] == "cancelled").count();
    Ok((cancelled != expected || traces.len() != expected).then(|| {
        format!(
            "plugins with {behind}: {cancelled} of {} long calls left `cancelled`, expected {expected}",
            traces.len()
        )
    }))
}

/// A home with the fixture twice, for calls and for everything else, and a published server.
fn host_with(root: &Path, behind: &str, [calls, offers]: [&str; 2]) -> Result<Plugward> {
    let plugward = Plugward::fresh(root, &format!("clients-{behind}"))?;
    let everything = real_servers::package(root, "server-everything")?;
    let permissions = "[mcp.prompts, mcp.resources, mcp.completions, mcp.elicitation]";
    let packages = [
        ("calls", packages::fixture(root, &format!("calls-{behind}"), "calls", calls, "[notes.read]")?),
        ("offers", packages::fixture(root, &format!("offers-{behind}"), "offers", offers, permissions)?),
        ("server-everything", everything.dir),
    ];
    for (id, package) in packages {
        plugward.install(&package)?;
        let digest = plugward.review(id)?;
        plugward.approve(id, &digest)?;
        plugward.succeed(&["enable", id])?;
    }
    Ok(plugward)
}

fn node(plugward: &Plugward, folders: &Folders, behind: &str, script: &str) -> Result<Vec<Report>> {
    let job = Job::new(tools::require("node")?, script, CLIENT_LIMIT)
        .arg(script)
        .arg(plugward.binary())
        .arg(plugward.home())
        .arg(behind)
        .dir(&folders.node);
    reports(plugward.equip(job))
}

fn python(plugward: &Plugward, folders: &Folders, behind: &str, packages: &Path) -> Result<Vec<Report>> {
    let job = Job::new(tools::python_folder()?.join("python3"), "Python SDK client", CLIENT_LIMIT)
        .arg(folders.root.join("xtask/real-clients/python.py"))
        .arg(plugward.binary())
        .arg(plugward.home())
        .arg(behind)
        .env("PYTHONPATH", packages.join("lib"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .dir(packages);
    reports(plugward.equip(job))
}

/// Runs a script to its end and reads what it reports.
fn reports(job: Job) -> Result<Vec<Report>> {
    let done = job.run()?.success()?;
    serde_json::from_str(done.stdout.trim())
        .with_context(|| format!("{}: reports are not as expected\n{}", done.label, done.tail()))
}
