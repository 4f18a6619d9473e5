//! The program with its Host API, and a caller that speaks HTTP by hand.
//!
//! Owns the process: whoever drops a [`Serving`] has it asked to end, waited for, and its children looked for.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Fixture, PATIENCE, Package, fixture, plugward, processes_with};

/// A running `plugward serve --http`.
pub(super) struct Serving {
    child: Child,
    address: SocketAddr,
    token: String,
    stderr: Arc<Mutex<String>>,
    home: TempDir,
}

/// What came back.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) text: String,
}

impl Reply {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Status and code of a failure.
    pub(super) fn failure(&self) -> (u16, String) {
        let body = self.json();
        let code = body["error"]["code"].as_str().unwrap_or_else(|| panic!("{} without code: {body}", self.status));
        (self.status, code.to_owned())
    }
}

/// Program start with a home of its own; `environment` is the value of the gate, absent if `None`.
pub(super) fn serve_command(home: &Path, environment: Option<&str>, http: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let bin = fixture().parent().unwrap().display().to_string();
    let mut command = Command::new(plugward());
    command
        .args(["serve", "--http", http])
        .env_clear()
        .env("PATH", format!("{bin}:{path}"))
        .env("PLUGWARD_HOME", home)
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if let Some(environment) = environment {
        command.env("PLUGWARD_ENVIRONMENT", environment);
    }
    command
}

impl Serving {
    /// A host in development with these settings in its `config.toml`.
    pub(super) fn start(settings: &str) -> Self {
        Self::start_in(Some("development"), settings)
    }

    pub(super) fn start_in(environment: Option<&str>, settings: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("config.toml"), settings).unwrap();
        let mut child = serve_command(home.path(), environment, "127.0.0.1:0").spawn().unwrap();
        let stderr = Arc::new(Mutex::new(String::new()));
        let (lines, kept) = (BufReader::new(child.stderr.take().unwrap()).lines(), Arc::clone(&stderr));
        let (told, address) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let address = told_address(&line);
                let mut text = kept.lock().unwrap();
                text.push_str(&line);
                text.push('\n');
                drop(text);
                if let Some(address) = address {
                    let _ = told.try_send(address);
                }
            }
        });
        let address = address.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            let _ = child.kill();
            panic!("no address was told: {}", stderr.lock().unwrap())
        });
        let token = std::fs::read_to_string(home.path().join("run/api-token")).unwrap().trim().to_owned();
        Self { child, address, token, stderr, home }
    }

    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// What the program wrote to stderr so far.
    pub(super) fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    pub(super) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, None)
    }

    pub(super) fn post(&self, path: &str, body: Option<&Value>) -> Reply {
        self.send("POST", path, body)
    }

    pub(super) fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        let body = body.map(Value::to_string).unwrap_or_default();
        self.send_raw(method, path, &[("Host", &self.address.to_string())], &body)
    }

    /// A request with exactly these headers beside the token and the length.
    pub(super) fn send_raw(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        receive(self.open(method, path, headers, body))
    }

    /// Sends a request and leaves the answer to the caller.
    pub(super) fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nAuthorization: Bearer {}\r\n", self.token);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
        }
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        stream
    }

    pub(super) fn install(&self, package: &Package) -> Reply {
        self.post("/api/plugins/install", Some(&json!({ "package_path": package.path() })))
    }

    /// Installs, and approves what the review shows.
    pub(super) fn install_approved(&self, id: &str, fixture: &Fixture) {
        let installed = self.install(&fixture.package());
        assert_eq!(installed.status, 202, "{}", installed.text);
        let digest = self.get(&format!("/api/plugins/{id}/review")).json()["digest"].clone();
        let approved = self.post(&format!("/api/plugins/{id}/approve"), Some(&json!({ "digest": digest })));
        assert_eq!(approved.status, 200, "{}", approved.text);
    }

    /// Installs, approves and enables.
    pub(super) fn run(&self, id: &str, fixture: &Fixture) {
        self.install_approved(id, fixture);
        let enabled = self.enable(id);
        assert_eq!((enabled.status, &enabled.json()["status"]), (200, &json!("ready")), "{}", enabled.text);
    }

    pub(super) fn enable(&self, id: &str) -> Reply {
        self.post(&format!("/api/plugins/{id}/enable"), None)
    }

    pub(super) fn restart(&self, id: &str) -> Reply {
        self.post(&format!("/api/plugins/{id}/host/restart"), None)
    }

    pub(super) fn call(&self, tool: &str, arguments: &Value) -> Reply {
        self.post("/api/tools/call", Some(&json!({ "tool": tool, "arguments": arguments })))
    }

    /// State of a plugin's process.
    pub(super) fn host_state(&self, id: &str) -> String {
        self.get(&format!("/api/plugins/{id}/host")).json()["status"].as_str().unwrap().to_owned()
    }

    pub(super) fn wait_for_state(&self, id: &str, state: &str) {
        wait_until(&format!("{id} is {state}"), || self.host_state(id) == state);
    }

    /// Internal ids of the tools.
    pub(super) fn tools(&self) -> Vec<String> {
        let items = self.get("/api/tools").json()["items"].as_array().unwrap().clone();
        items.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// The address in the start line.
fn told_address(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("http://")?;
    let end = rest.find(|c: char| c != '.' && c != ':' && !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

impl Drop for Serving {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if Instant::now() > deadline => break None,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        if status.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            // The failure that is under way says enough.
            return;
        }
        assert_eq!(status.and_then(|status| status.code()), Some(0), "{}", self.stderr());
        let mark = self.home.path().display().to_string();
        wait_until("every process is gone", || processes_with(&mark).is_empty());
    }
}

pub(super) fn receive(mut stream: TcpStream) -> Reply {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let answer = String::from_utf8(bytes).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{head}"));
    // Requirement 2: no message of the protocol behind it ever shows.
    assert!(!text.contains("\"jsonrpc\""), "{text}");
    Reply { status, text: text.to_owned() }
}

pub(super) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "did not happen within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Path of the token in a home.
pub(super) fn token_file(home: &Path) -> PathBuf {
    home.join("run/api-token")
}
