//! What plugins of a test leave outside their packages: pid files, wire logs, and files that change how they start.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use super::{Fixture, TestHost, eventually, processes_with};

/// A folder that plugins of one test write to.
pub(crate) struct Marks {
    dir: TempDir,
}

impl Marks {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The path as an argument.
    pub(crate) fn arg(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(crate) fn put(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The process id in a file, if it was written.
    pub(crate) fn pid(&self, name: &str) -> Option<u32> {
        self.read(name).trim().parse().ok()
    }

    /// The process id in a file that is about to be written.
    pub(crate) async fn pid_soon(&self, name: &str) -> u32 {
        eventually(&format!("a process writes its pid to {name}"), || self.pid(name)).await
    }

    /// A fixture in mode `normal` that writes everything it is sent to the file `wire`.
    pub(crate) fn tapped(&self, id: &str, mode: &str) -> Fixture {
        let script = format!("tee \"$0\" | mcp-fixture {mode}");
        Fixture::imported(id, &["-c", &script, &self.arg("wire")]).command("sh").permission("notes.read")
    }

    /// What was written to `wire`, message by message.
    pub(crate) fn wire(&self) -> Vec<Value> {
        self.read("wire").lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// A plugin that behaves as `bad` says, its pid in the file `pid`, until the file `good` exists; then it is the
    /// normal fixture.
    pub(crate) fn mending(&self, id: &str, bad: &[&str]) -> Fixture {
        let script =
            "if [ -e \"$0/good\" ]; then exec mcp-fixture normal; fi; exec mcp-fixture \"$@\" --pid-file \"$0/pid\"";
        let dir = self.dir.path().display().to_string();
        let args: Vec<&str> = ["-c", script, &dir].into_iter().chain(bad.iter().copied()).collect();
        Fixture::imported(id, &args).command("sh").permission("notes.read")
    }

    pub(crate) fn mend(&self) {
        self.put("good", "");
    }

    /// A plugin that lists exactly these tools; a call answers with its name and arguments.
    pub(crate) fn with_tools(&self, id: &str, tools: &Value) -> Fixture {
        let file = format!("{id}.json");
        self.put(&file, &tools.to_string());
        Fixture::imported(id, &["schema", "--file", &self.arg(&file)])
    }
}

impl TestHost {
    /// Processes of one plugin, by the private home that each of them has.
    pub(crate) fn processes_of(&self, id: &str) -> Vec<u32> {
        processes_with(&format!("{}/homes/{id}\0", self.home().display()))
    }

    /// Requirement 49: of this plugin no tool is callable and no process is alive.
    pub(crate) fn assert_nothing_left(&self, id: &str) {
        assert_eq!(self.tool_names(id), [""; 0], "tools of {id}");
        assert_eq!(self.processes_of(id), [0; 0], "processes of {id}");
        let status = self.host.host_status(id).unwrap();
        assert_eq!((status.tools_count, status.pid), (0, None));
    }

    /// Waits until a plugin is ready.
    pub(crate) async fn ready_soon(&self, id: &str) {
        eventually(&format!("{id} is ready"), || {
            (self.host.host_status(id).unwrap().status.as_str() == "ready").then_some(())
        })
        .await;
    }

    /// Waits until a plugin's process has this status.
    pub(crate) async fn status_soon(&self, id: &str, status: &str) {
        eventually(&format!("{id} is {status}"), || {
            (self.host.host_status(id).unwrap().status.as_str() == status).then_some(())
        })
        .await;
    }

    /// State of a plugin and of its process.
    pub(crate) async fn states(&self, id: &str) -> (&'static str, &'static str) {
        let view = self.host.plugin(id).await.unwrap();
        (view.status.as_str(), view.host_status.as_str())
    }
}
