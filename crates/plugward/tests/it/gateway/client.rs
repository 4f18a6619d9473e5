//! An MCP client for tests: writes lines, reads lines, and forgets none of them.
//!
//! Owns the process under test. Every wait is bounded; nothing here sleeps to let something happen. Refuses to
//! understand more of the protocol than ids, so that the tests see the wire as it is.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{HOST_SECRET, PATIENCE, fixture, plugward};

/// Lines that may wait to be looked at; far above what any test makes the program write.
const MAX_WAITING_LINES: usize = 100_000;

/// A running `plugward serve --stdio`.
pub(super) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
    /// Messages that were read while an answer was looked for, oldest first.
    passed: Vec<Value>,
    next_id: u64,
    home: TempDir,
    /// The home that it joined, where that is not its own.
    served: Option<PathBuf>,
}

/// What came after the input was closed.
pub(super) struct End {
    pub(super) messages: Vec<Value>,
    pub(super) status: ExitStatus,
    pub(super) stderr: String,
    pub(super) home: TempDir,
}

impl Client {
    /// Starts the program on this home.
    pub(super) fn start(home: TempDir) -> Self {
        let child = command(home.path());
        Self::over(child, home)
    }

    /// Starts the program on a home that another one serves. The home stays the other's.
    pub(super) fn join(other: &Self) -> Self {
        Self::over(command(other.home()), tempfile::tempdir().unwrap())
    }

    /// Starts the program on a home that something else serves.
    pub(super) fn join_at(home: &Path) -> Self {
        let mut client = Self::over(command(home), tempfile::tempdir().unwrap());
        client.served = Some(home.to_owned());
        client
    }

    /// As [`join_at`](Self::join_at), with the profile of that name.
    pub(super) fn join_as(home: &Path, profile: &str) -> Self {
        let mut client = Self::over_with(command(home), &["--client", profile], tempfile::tempdir().unwrap());
        client.served = Some(home.to_owned());
        client
    }

    /// Runs another command of the program on the same home, and gives its output as JSON.
    pub(super) fn run(&self, arguments: &[&str]) -> Value {
        let output = command(self.home()).args(arguments).arg("--json").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)))
    }

    fn over(command: Command, home: TempDir) -> Self {
        Self::over_with(command, &[], home)
    }

    fn over_with(mut command: Command, more: &[&str], home: TempDir) -> Self {
        let mut child = command
            .args(["serve", "--stdio"])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut errors = child.stderr.take().unwrap();
        let (sender, lines) = sync_channel(MAX_WAITING_LINES);
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = errors.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Self { child, stdin, lines, stderr: Some(stderr), passed: Vec::new(), next_id: 1, home, served: None }
    }

    pub(super) fn home(&self) -> &Path {
        self.served.as_deref().unwrap_or(self.home.path())
    }

    /// Writes one line as it is.
    pub(super) fn send_raw(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("the input was closed");
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// Sends a request and gives its id.
    pub(super) fn send(&mut self, method: &str, params: &Value) -> Value {
        let id = json!(self.next_id);
        self.next_id += 1;
        self.send_raw(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        id
    }

    pub(super) fn notify(&mut self, method: &str, params: &Value) {
        self.send_raw(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    /// The text of the next message, whatever it is.
    pub(super) fn next_line(&mut self) -> String {
        self.line_within(PATIENCE).unwrap_or_else(|| panic!("no message within {PATIENCE:?}; stderr: {}", self.kill()))
    }

    /// The next message, if one comes in time.
    pub(super) fn line_within(&mut self, limit: Duration) -> Option<String> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("the program closed its output; stderr: {}", self.kill()),
        }
    }

    /// The next message that fits; others are kept in [`passed`](Self::passed).
    pub(super) fn await_message(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message: Value = serde_json::from_str(&self.next_line()).unwrap();
            if fits(&message) {
                return message;
            }
            self.passed.push(message);
        }
    }

    /// The answer to a request.
    pub(super) fn answer(&mut self, id: &Value) -> Value {
        self.await_message(|message| message["id"] == *id && message.get("method").is_none())
    }

    /// Sends a request and waits for its answer.
    pub(super) fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        self.answer(&id)
    }

    /// The handshake; gives the result of `initialize`.
    pub(super) fn handshake(&mut self) -> Value {
        let client = json!({"name": "demo-client", "version": "0"});
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        let answer = self.request("initialize", &params);
        self.notify("notifications/initialized", &json!({}));
        answer["result"].clone()
    }

    /// The tools.
    pub(super) fn list(&mut self) -> Vec<Value> {
        let answer = self.request("tools/list", &json!({}));
        answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
    }

    /// The names of the tools.
    pub(super) fn names(&mut self) -> Vec<String> {
        self.list().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Calls a tool and gives the whole answer.
    pub(super) fn call(&mut self, name: &str, arguments: &Value) -> Value {
        self.request("tools/call", &json!({"name": name, "arguments": arguments}))
    }

    /// Calls a tool that succeeds and gives its first text.
    pub(super) fn text(&mut self, name: &str, arguments: &Value) -> String {
        let answer = self.call(name, arguments);
        let text = answer["result"]["content"][0]["text"].as_str();
        assert_ne!(answer["result"]["isError"], json!(true), "{answer}");
        text.unwrap_or_else(|| panic!("no text in {answer}")).to_owned()
    }

    /// Messages with this method that have been read so far.
    pub(super) fn passed(&self, method: &str) -> Vec<&Value> {
        self.passed.iter().filter(|message| message["method"] == method).collect()
    }

    /// Closes the input and waits for the end of the program.
    pub(super) fn close(mut self) -> End {
        drop(self.stdin.take());
        let deadline = Instant::now() + PATIENCE;
        let mut messages = std::mem::take(&mut self.passed);
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => messages.push(serde_json::from_str(&line).unwrap()),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("the program does not end; stderr: {}", self.kill()),
            }
        }
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "the program does not end; stderr: {}", self.kill());
            std::thread::sleep(Duration::from_millis(5));
        };
        let stderr = self.stderr.take().map(|stderr| stderr.join().unwrap()).unwrap_or_default();
        let home = std::mem::replace(&mut self.home, tempfile::tempdir().unwrap());
        End { messages, status, stderr, home }
    }

    /// Ends the program, for a test that has failed, and gives what it wrote to stderr.
    fn kill(&mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.stderr.take().and_then(|stderr| stderr.join().ok()).unwrap_or_default()
    }
}

fn command(home: &Path) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let bin = fixture().parent().unwrap().display().to_string();
    let mut command = Command::new(plugward());
    command
        .current_dir(home)
        .env_clear()
        .env("PATH", format!("{bin}:{path}"))
        .env(HOST_SECRET, "planted")
        .env("PLUGWARD_HOME", home)
        .env("PLUGWARD_ENVIRONMENT", "development")
        .env("PLUGWARD_DAEMON", "off");
    command
}

impl Drop for Client {
    fn drop(&mut self) {
        // A test that did not close has either failed or does not care how the program ends.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
