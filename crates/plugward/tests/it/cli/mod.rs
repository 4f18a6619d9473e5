//! The command line as scripts and people use it: the real binary, a home of its own per test, no shell.

mod clients;
mod commands;
mod consent;
mod daemon;
mod demo;
mod folders;
mod hostile;
mod on_demand;
mod output;
mod secrets;
mod trial;
mod types;
mod walk;

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Fixture, PATIENCE, Package, fixture, plugward};

/// Pause between two looks at a process.
const POLL: Duration = Duration::from_millis(5);

/// A home with the binary in front of it.
pub(super) struct Cli {
    /// Short, as socket addresses are short.
    home: TempDir,
    variables: Vec<(String, String)>,
}

/// A command that has ended.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) code: i32,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Cli {
    pub(super) fn new() -> Self {
        let bin = fixture().parent().unwrap().display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        let home = tempfile::Builder::new().prefix("pw").tempdir().unwrap();
        let variables = vec![
            ("PATH".to_owned(), format!("{bin}:{path}")),
            ("PLUGWARD_HOME".to_owned(), home.path().display().to_string()),
            ("PLUGWARD_ENVIRONMENT".to_owned(), "development".to_owned()),
            // Tests of the host in the background switch it on, and end it.
            ("PLUGWARD_DAEMON".to_owned(), "off".to_owned()),
        ];
        Self { home, variables }
    }

    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Sets a variable; an empty value takes it away.
    pub(super) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.retain(|(known, _)| known != name);
        if !value.is_empty() {
            self.variables.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Writes the settings file.
    pub(super) fn config(self, text: &str) -> Self {
        std::fs::write(self.home.path().join("config.toml"), text).unwrap();
        self
    }

    pub(super) fn command<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(plugward());
        command.args(arguments).env_clear().envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(super) fn run<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Done {
        finish(self.command(arguments).spawn().unwrap(), b"")
    }

    pub(super) fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Done {
        finish(self.command(arguments).stdin(Stdio::piped()).spawn().unwrap(), input)
    }

    /// Runs a command that must end with `code`.
    #[track_caller]
    pub(super) fn ends(&self, code: i32, arguments: &[&str]) -> Done {
        let done = self.run(arguments);
        assert_eq!(done.code, code, "plugward {}\n{}\n{}", arguments.join(" "), done.stdout, done.stderr);
        done
    }

    #[track_caller]
    pub(super) fn ok(&self, arguments: &[&str]) -> Done {
        self.ends(0, arguments)
    }

    /// Runs a command that must succeed with an object of the published version.
    #[track_caller]
    pub(super) fn json(&self, arguments: &[&str]) -> Value {
        let done = self.ok(&[arguments, &["--json"]].concat());
        let value: Value = serde_json::from_str(&done.stdout)
            .unwrap_or_else(|error| panic!("{}: {error}\n{}", arguments.join(" "), done.stdout));
        assert_eq!(value["schemaVersion"], 1, "{}", arguments.join(" "));
        value
    }

    /// Installs a package and approves it.
    #[track_caller]
    pub(super) fn approve(&self, package: &Package) -> String {
        let installed = self.json(&["install", package.path().to_str().unwrap()]);
        let id = installed["plugin"]["id"].as_str().unwrap().to_owned();
        let review = self.json(&["review", &id]);
        self.ok(&["approve", &id, "--digest", review["digest"].as_str().unwrap()]);
        id
    }

    /// Installs, approves and enables a fixture.
    #[track_caller]
    pub(super) fn enable(&self, fixture: &Fixture) -> String {
        let id = self.approve(&fixture.package());
        self.ok(&["enable", &id]);
        id
    }

    /// Starts a host that stays, and waits until its socket answers.
    #[track_caller]
    pub(super) fn serve(&self, arguments: &[&str]) -> Serving {
        let child = self.command(&[&["serve"], arguments].concat()).stdin(Stdio::piped()).spawn().unwrap();
        let mut serving = Serving { child };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.run(&["status", "--json"]);
            if let Ok(value) = serde_json::from_str::<Value>(&status.stdout)
                && value["host"]["serving_pid"] == serving.child.id()
            {
                return serving;
            }
            let ended = serving.child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < deadline, "serve did not start: {ended:?}");
            std::thread::sleep(POLL);
        }
    }
}

/// A host that stays until it is told to end, or the test ends.
pub(super) struct Serving {
    pub(super) child: Child,
}

impl Serving {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end, as an init system does, and waits.
    #[track_caller]
    pub(super) fn terminate(mut self) -> ExitStatus {
        signal(self.pid(), rustix::process::Signal::TERM);
        wait(&mut self.child)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Only where a test failed: its plugins end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Waits for a child within the bound of all tests.
#[track_caller]
pub(super) fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("a command did not end within {PATIENCE:?}");
        }
        std::thread::sleep(POLL);
    }
}

/// Feeds a child, reads all it writes and waits for it.
#[track_caller]
pub(super) fn finish(mut child: Child, input: &[u8]) -> Done {
    let reader = |stream: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut stream) = stream {
                stream.read_to_end(&mut bytes).unwrap();
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let stdout = reader(child.stdout.take().map(|stream| Box::new(stream) as _));
    let stderr = reader(child.stderr.take().map(|stream| Box::new(stream) as _));
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.to_owned();
        // A program that has enough closes its side.
        std::thread::spawn(move || drop(stdin.write_all(&input)));
    }
    let status = wait(&mut child);
    Done { code: status.code().unwrap_or(-1), stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

/// A manifest path of a package, as a person may also give it.
fn manifest_of(package: &Package) -> PathBuf {
    package.path().join("plugin.yaml")
}
