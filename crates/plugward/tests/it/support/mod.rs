//! Shared by all test modules: hosts with a home of their own, fixture plugins and bounded waits.
#![allow(clippy::needless_pass_by_value, reason = "a test reads better with `json!` as the argument")]

pub(crate) mod http_server;
pub(crate) mod marks;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plugward_host::{
    ApprovalOrigin, CallReport, CallRequest, Environment, Host, HostConfig, HostError, Naming, PluginView,
    SupervisionSettings, ToolSelector,
};
use plugward_policy::Catalogue;
use plugward_sandbox::{LAUNCH_ARGUMENT, Launcher};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tempfile::TempDir;

/// Longest wait for anything in a test. Generous: machines that run tests are slow and busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A variable of every host that no plugin may see.
pub(crate) const HOST_SECRET: &str = "HOST_ONLY_SECRET";

/// The program under test.
pub(crate) fn plugward() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_plugward"))
}

/// The fixture server, built beside the program under test.
pub(crate) fn fixture() -> PathBuf {
    let path = plugward().with_file_name("mcp-fixture");
    assert!(
        path.exists(),
        "{} is missing: build it with `cargo build -p mcp-fixture --features misbehaviours`",
        path.display()
    );
    path
}

/// A package folder made for one test.
pub(crate) struct Package {
    dir: TempDir,
}

impl Package {
    /// A package with this manifest and nothing else.
    pub(crate) fn with_manifest(manifest: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("plugin.yaml"), manifest).unwrap();
        Self { dir }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Writes manifests of fixture plugins.
#[derive(Clone)]
pub(crate) struct Fixture {
    id: String,
    args: Vec<String>,
    declared: Option<Vec<String>>,
    permissions: Vec<String>,
    backend: Vec<String>,
    extra: String,
    command: String,
}

/// Tools of the well-behaved fixture.
pub(crate) const NORMAL_TOOLS: [&str; 6] = ["echo", "fail", "sleep", "large", "environment", "exit"];

impl Fixture {
    /// An imported server: no declared tools, tolerant stdout.
    pub(crate) fn imported(id: &str, args: &[&str]) -> Self {
        Self {
            id: id.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            declared: None,
            permissions: Vec::new(),
            // Found out only where a test is about that: it costs a process.
            backend: vec!["startup_timeout_seconds: 20".to_owned(), "protocol: legacy".to_owned()],
            extra: String::new(),
            command: "mcp-fixture".to_owned(),
        }
    }

    /// The well-behaved server with its declared tools, as in the seed.
    pub(crate) fn normal(id: &str) -> Self {
        Self::imported(id, &["normal"]).permission("notes.read").declares(&NORMAL_TOOLS)
    }

    pub(crate) fn declares(mut self, tools: &[&str]) -> Self {
        self.declared = Some(tools.iter().map(|tool| (*tool).to_owned()).collect());
        self
    }

    pub(crate) fn permission(mut self, name: &str) -> Self {
        self.permissions.push(name.to_owned());
        self
    }

    /// A further line of the `backend` section; one of the same key replaces it.
    pub(crate) fn backend(mut self, line: &str) -> Self {
        let key = line.split(':').next().unwrap().to_owned();
        self.backend.retain(|old| old.split(':').next() != Some(&key));
        self.backend.push(line.to_owned());
        self
    }

    /// Further top-level YAML.
    pub(crate) fn extra(mut self, yaml: &str) -> Self {
        self.extra.push_str(yaml);
        self
    }

    pub(crate) fn command(mut self, command: &str) -> Self {
        command.clone_into(&mut self.command);
        self
    }

    pub(crate) fn manifest(&self) -> String {
        let id = &self.id;
        let mut yaml = format!("id: {id}\nname: Fixture {id}\nversion: 1.0.0\n");
        let list = |items: &[String]| serde_json::to_string(items).unwrap();
        writeln!(yaml, "permissions: {}", list(&self.permissions)).unwrap();
        if let Some(declared) = &self.declared {
            let ids: Vec<String> = declared.iter().map(|tool| format!("{id}.{tool}")).collect();
            writeln!(yaml, "contributes:\n  tools: {}", list(&ids)).unwrap();
        }
        writeln!(yaml, "backend:\n  type: mcp\n  transport: stdio").unwrap();
        writeln!(yaml, "  command: {}\n  args: {}", self.command, list(&self.args)).unwrap();
        for line in &self.backend {
            writeln!(yaml, "  {line}").unwrap();
        }
        if self.leaves_sandbox() && !self.extra.contains("sandbox:") {
            writeln!(yaml, "sandbox:\n  minimum_level: none").unwrap();
        }
        yaml + &self.extra
    }

    /// A plugin that asks for no sandbox.
    pub(crate) fn unconfined(self) -> Self {
        self.extra("sandbox:\n  minimum_level: none\n")
    }

    /// Whether it touches what lies outside of a sandbox: files where the test looks, or the fixture behind a script.
    fn leaves_sandbox(&self) -> bool {
        let outside = std::env::temp_dir().display().to_string();
        self.command != "mcp-fixture" || self.args.iter().chain(&self.backend).any(|text| text.contains(&outside))
    }

    pub(crate) fn package(&self) -> Package {
        Package::with_manifest(&self.manifest())
    }
}

/// A host with a home of its own. Ends its plugins when a test ends it; a test that fails leaves that to the launcher.
pub(crate) struct TestHost {
    pub(crate) host: Host,
    home: TempDir,
}

/// Settings of a test host.
pub(crate) struct Settings {
    pub(crate) environment: Environment,
    pub(crate) catalogue: Catalogue,
    pub(crate) naming: Naming,
    pub(crate) restart_base_delay: Duration,
    pub(crate) supervision: SupervisionSettings,
    pub(crate) host_environment: Vec<(String, String)>,
    pub(crate) trust: plugward_host::Trust,
}

impl Default for Settings {
    fn default() -> Self {
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = fixture().parent().unwrap().display().to_string();
        Self {
            environment: Environment::Development,
            catalogue: Catalogue::seed(),
            naming: Naming::Prefixed,
            restart_base_delay: Duration::from_millis(50),
            supervision: SupervisionSettings::default(),
            host_environment: vec![("PATH".to_owned(), format!("{bin}:{path}"))],
            trust: plugward_host::Trust::default(),
        }
    }
}

impl TestHost {
    pub(crate) async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        Self::at(tempfile::tempdir().unwrap(), settings).await
    }

    /// A host on a home that an earlier one left.
    pub(crate) async fn at(home: TempDir, settings: Settings) -> Self {
        let config = config(home.path(), settings);
        Self { host: Host::open(config).await.unwrap(), home }
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Installs and approves a fixture plugin.
    pub(crate) async fn install(&self, fixture: &Fixture) {
        self.install_package(&fixture.package()).await;
    }

    pub(crate) async fn install_package(&self, package: &Package) {
        let view = self.host.install(package.path(), None).await.unwrap();
        self.approve(view.id.as_str()).await;
    }

    pub(crate) async fn approve(&self, id: &str) {
        let review = self.host.review(id).await.unwrap();
        self.host.approve(id, &review.digest, ApprovalOrigin::Test).await.unwrap();
    }

    /// Installs, approves and enables.
    pub(crate) async fn run(&self, fixture: &Fixture) -> PluginView {
        self.try_run(fixture).await.unwrap()
    }

    pub(crate) async fn try_run(&self, fixture: &Fixture) -> Result<PluginView, HostError> {
        self.install(fixture).await;
        self.host.enable(&fixture.id).await
    }

    /// Calls a tool by its internal id.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> CallReport {
        self.host.call(request(tool, arguments)).await
    }

    /// Calls a tool that must succeed, and gives its output in the seed's form.
    pub(crate) async fn output(&self, tool: &str, arguments: Value) -> Value {
        let report = self.call(tool, arguments).await;
        match report.outcome {
            Ok(reply) if !reply.is_error => reply.output(),
            Ok(reply) => panic!("{tool} failed: {}", reply.error_text()),
            Err(failure) => panic!("{tool} failed: {}", failure.message(tool)),
        }
    }

    /// The first text of a tool that must succeed.
    pub(crate) async fn text(&self, tool: &str, arguments: Value) -> String {
        let output = self.output(tool, arguments).await;
        output["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {output}")).to_owned()
    }

    /// The remote names of the callable tools of a plugin.
    pub(crate) fn tool_names(&self, plugin: &str) -> Vec<String> {
        let tools = self.host.tools();
        tools.into_iter().filter(|tool| tool.id.plugin().as_str() == plugin).map(|tool| tool.remote_name).collect()
    }

    /// Ends the host and hands the home on.
    pub(crate) async fn close(self) -> TempDir {
        self.host.shutdown().await;
        self.home
    }
}

pub(crate) fn config(home: &Path, settings: Settings) -> HostConfig {
    HostConfig {
        home: home.to_owned(),
        environment: settings.environment,
        catalogue: settings.catalogue,
        launcher: Launcher::at(plugward(), [LAUNCH_ARGUMENT]),
        host_environment: settings.host_environment,
        naming: settings.naming,
        restart_base_delay: settings.restart_base_delay,
        supervision: settings.supervision,
        trust: settings.trust,
        operator: "test".to_owned(),
    }
}

pub(crate) fn request(tool: &str, arguments: Value) -> CallRequest {
    CallRequest::new(ToolSelector::Id(tool.to_owned()), Some(raw(&arguments)), "test")
}

pub(crate) fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

/// Waits until `condition` gives something, within [`PATIENCE`].
pub(crate) async fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "did not happen within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a process exists (a zombie counts as gone).
pub(crate) fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()) != Some("Z")
}

/// Processes whose command line or environment mentions `mark`; a test's temporary folder is a mark of its own.
pub(crate) fn processes_with(mark: &str) -> Vec<u32> {
    let contains = |pid: u32, file: &str| {
        fs::read(format!("/proc/{pid}/{file}"))
            .is_ok_and(|bytes| bytes.windows(mark.len().max(1)).any(|window| window == mark.as_bytes()))
    };
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        *pid != std::process::id() && is_alive(*pid) && (contains(*pid, "cmdline") || contains(*pid, "environ"))
    })
    .collect()
}
