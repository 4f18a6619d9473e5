//! What the case tests share: servers with given tool schemas, servers whose mode a test changes, tests that need a
//! process of their own.
//!
//! Owns nothing but test set-up. Refuses to assert anything a case is about.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use plugward_host::{CallFailure, CallReport, CallRequest, ToolSelector};
use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::TempDir;

use crate::support::{Fixture, Package, Settings, TestHost};

/// Names the test that runs in this process alone.
const ALONE: &str = "PLUGWARD_TEST_ALONE";

/// Whether this process is the one in which the test `name` (with its module) runs alone; if not, starts that process
/// and waits for it. For tests about memory, descriptors and tasks, which tests beside them would disturb.
pub(crate) fn alone(name: &str) -> bool {
    if is_alone(name) {
        return true;
    }
    let output = child(name).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "in a process of its own:\n{said}");
    false
}

/// Whether this process was started by [`child`] for the test `name`.
pub(crate) fn is_alone(name: &str) -> bool {
    std::env::var(ALONE).is_ok_and(|wanted| wanted == name)
}

/// This program, to run the test `name` and no other.
pub(crate) fn child(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(ALONE, name);
    command
}

/// Makes `path` a program with this text.
pub(crate) fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A fixture plugin whose mode is read from a file outside its package at each start, so that it can change its ways
/// without what was approved changing.
pub(crate) struct Switchable {
    mode_file: PathBuf,
    package: Package,
}

impl Switchable {
    /// `fixture` gives the manifest; its own arguments are ignored. `folder` holds the mode file.
    pub(crate) fn new(folder: &Path, id: &str, fixture: &Fixture, mode: &str) -> Self {
        let mode_file = folder.join(format!("{id}.mode"));
        let package = fixture.clone().command("./run.sh").package();
        let text = format!("#!/bin/sh\nset -f\nexec mcp-fixture $(cat '{}')\n", mode_file.display());
        script(&package.path().join("run.sh"), &text);
        let switchable = Self { mode_file, package };
        switchable.set(mode);
        switchable
    }

    /// Mode and switches of the next start, separated by blanks.
    pub(crate) fn set(&self, mode: &str) {
        fs::write(&self.mode_file, mode).unwrap();
    }

    pub(crate) async fn run(&self, test: &TestHost, id: &str) {
        test.install_package(&self.package).await;
        test.host.enable(id).await.unwrap();
    }
}

/// A running plugin `s` with tools of given argument schemas.
pub(crate) struct Schemas {
    pub(crate) test: TestHost,
    _folder: TempDir,
}

impl Schemas {
    /// Pairs of name and JSON text of the `inputSchema`.
    pub(crate) async fn of(tools: &[(&str, &str)]) -> Self {
        let listed: Vec<String> = tools
            .iter()
            .map(|(name, schema)| format!(r#"{{"name":"{name}","description":"d","inputSchema":{schema}}}"#))
            .collect();
        Self::listed(&format!("[{}]", listed.join(","))).await
    }

    /// The array of tools as text.
    pub(crate) async fn listed(tools: &str) -> Self {
        let (test, folder) = (TestHost::new().await, tempfile::tempdir().unwrap());
        let file = folder.path().join("tools.json");
        fs::write(&file, tools).unwrap();
        test.run(&Fixture::imported("s", &["schema", "--file", file.to_str().unwrap()])).await;
        Self { test, _folder: folder }
    }

    /// Whether the tool takes these arguments; the violations if not.
    pub(crate) async fn check(&self, tool: &str, arguments: &str) -> Result<(), String> {
        let report = call_raw(&self.test, &format!("s.{tool}"), Some(arguments)).await;
        match report.outcome {
            Ok(_) => Ok(()),
            Err(CallFailure::ArgumentInvalid { violations }) => Err(violations.join("; ")),
            Err(other) => panic!("{}", other.message(tool)),
        }
    }

    /// Asserts that the tool takes or refuses each of these arguments; a refusal has to name the place.
    pub(crate) async fn expect(&self, tool: &str, cases: &[(&str, Option<&str>)]) {
        for (arguments, refused_at) in cases {
            let checked = self.check(tool, arguments).await;
            match (refused_at, checked) {
                (None, Ok(())) => {}
                (Some(place), Err(violations)) if violations.contains(place) => {}
                (expected, checked) => panic!("{tool} {arguments}: expected {expected:?}, found {checked:?}"),
            }
        }
    }

    /// The argument schema as clients see it.
    pub(crate) fn exposed_schema(&self, tool: &str) -> String {
        let name = format!("s_{tool}");
        let definitions = self.test.host.exposed_definitions();
        let parsed = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).unwrap();
        let found = definitions.iter().map(|raw| parsed(raw)).find(|tool| tool["name"] == name.as_str());
        found.unwrap_or_else(|| panic!("{name} is not listed"))["inputSchema"].to_string()
    }
}

/// A call with arguments as text, so that digits and spelling reach the host as they stand.
pub(crate) async fn call_raw(test: &TestHost, tool: &str, arguments: Option<&str>) -> CallReport {
    let arguments = arguments.map(|text| RawValue::from_string(text.to_owned()).unwrap());
    test.host.call(CallRequest::new(ToolSelector::Id(tool.to_owned()), arguments, "test")).await
}

/// A call by the name MCP clients see; the text of a tool that must succeed.
pub(crate) async fn exposed_text(test: &TestHost, name: &str) -> String {
    let report = test.host.call(CallRequest::new(ToolSelector::Exposed(name.to_owned()), None, "test")).await;
    let reply = report.outcome.unwrap_or_else(|failure| panic!("{}", failure.message(name)));
    reply.output()["content"][0]["text"].as_str().unwrap().to_owned()
}

/// The reason why a tool of a plugin was left out, or nothing.
pub(crate) async fn quarantine_reason(test: &TestHost, plugin: &str, tool: &str) -> Option<String> {
    let view = test.host.plugin(plugin).await.unwrap();
    view.quarantined_tools.into_iter().find(|entry| entry.name == tool).map(|entry| entry.reason)
}

/// Default settings with further variables in the host's own environment.
pub(crate) fn settings_with(variables: &[(&str, &str)]) -> Settings {
    let mut settings = Settings::default();
    settings.host_environment.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    settings
}

/// The pid in a file that a fixture wrote.
pub(crate) fn pid_in(file: &Path) -> u32 {
    fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

/// Lines of a file; none if it is not there.
pub(crate) fn lines_of(file: &Path) -> Vec<String> {
    fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}
