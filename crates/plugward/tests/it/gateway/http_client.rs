//! The program with its MCP path, and a client that speaks HTTP by hand: it sees heads, chunks and events as they come.
//!
//! Owns the process. Every wait is bounded. Refuses to understand more of the protocol than a test asks for.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{HOST_SECRET, PATIENCE, fixture, plugward};

/// A running `plugward serve --http`.
pub(super) struct Face {
    child: Child,
    address: SocketAddr,
    token: String,
    home: TempDir,
    /// It was asked to end; being asked twice, it ends at once.
    is_stopping: AtomicBool,
}

/// An event of a stream.
#[derive(Debug)]
pub(super) struct ServerEvent {
    pub(super) id: Option<String>,
    pub(super) data: String,
}

/// An answer whose body may still be coming.
pub(super) struct Reply {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    stream: BufReader<TcpStream>,
    /// What was read of the body and not yet used.
    body: Vec<u8>,
    is_over: bool,
}

/// A request of the stateless revision.
pub(super) fn modern(id: u64, method: &str, params: &Value) -> Value {
    let mut params = params.clone();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "demo-client", "version": "0"},
    });
    match params["_meta"].as_object_mut() {
        Some(own) => own.extend(meta.as_object().unwrap().clone()),
        None => params["_meta"] = meta,
    }
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

impl Face {
    pub(super) fn start(home: TempDir) -> Self {
        Self::start_with(home, &["--http", "127.0.0.1:0"])
    }

    pub(super) fn start_with(home: TempDir, arguments: &[&str]) -> Self {
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = fixture().parent().unwrap().display().to_string();
        let mut child = Command::new(plugward())
            .arg("serve")
            .args(arguments)
            .current_dir(home.path())
            .env_clear()
            .env("PATH", format!("{bin}:{path}"))
            .env(HOST_SECRET, "planted")
            .env("PLUGWARD_HOME", home.path())
            .env("PLUGWARD_ENVIRONMENT", "development")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (told, address) = sync_channel(1);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let address = line.split_once("MCP on http://").and_then(|(_, rest)| rest.split('/').next());
                if let Some(address) = address.and_then(|address| address.parse::<SocketAddr>().ok()) {
                    let _ = told.try_send(address);
                }
            }
        });
        let address = address.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            let _ = child.kill();
            panic!("no address was told")
        });
        let token = read_token(home.path(), "mcp-token").expect("there is a token");
        Self { child, address, token, home, is_stopping: AtomicBool::new(false) }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    pub(super) fn api_token(&self) -> String {
        read_token(self.home.path(), "api-token").expect("there is a token")
    }

    pub(super) fn has_api_token(&self) -> bool {
        read_token(self.home.path(), "api-token").is_some()
    }

    /// Sends a request with exactly these headers beside its length.
    pub(super) fn raw(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        Reply::read(self.connect(method, path, headers, body))
    }

    fn connect(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
        }
        let port = self.address.port();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        stream
    }

    /// Sends a message of an honest client and leaves the answer to the caller.
    pub(super) fn open(&self, method: &str, headers: &[(&str, &str)], body: Option<&Value>) -> TcpStream {
        let (host, bearer) = (self.address.to_string(), format!("Bearer {}", self.token));
        let mut all = vec![
            ("Host", host.as_str()),
            ("Authorization", bearer.as_str()),
            ("Accept", "application/json, text/event-stream"),
        ];
        // A caller with another token shows that one alone.
        all.retain(|(name, _)| !headers.iter().any(|(other, _)| other == name));
        all.extend(headers);
        let text = body.map(Value::to_string).unwrap_or_default();
        let name = body.and_then(|body| body["params"]["name"].as_str()).unwrap_or_default();
        let about = body.and_then(|body| body["method"].as_str()).unwrap_or_default();
        if body.is_some_and(|body| body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].is_string()) {
            all.extend([("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", about), ("Mcp-Name", name)]);
        }
        self.connect(method, "/mcp", &all, &text)
    }

    /// Sends a message of an honest client, and reads the head of its answer.
    pub(super) fn reply(&self, method: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Reply {
        Reply::read(self.open(method, headers, body))
    }

    /// Begins a session and gives its id.
    pub(super) fn session(&self, version: &str) -> String {
        let client = json!({"name": "demo-client", "version": "0"});
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let reply = Reply::read(self.open("POST", &[], Some(&hello)));
        assert_eq!(reply.status, 200);
        let session = reply.header("mcp-session-id").to_owned();
        self.tell(&session, "notifications/initialized", &json!({}));
        session
    }

    /// A notification within a session.
    pub(super) fn tell(&self, session: &str, method: &str, params: &Value) {
        let note = json!({"jsonrpc": "2.0", "method": method, "params": params});
        let reply = Reply::read(self.open("POST", &[("Mcp-Session-Id", session)], Some(&note)));
        assert_eq!(reply.status, 202);
    }

    /// A request within a session.
    pub(super) fn ask(&self, session: &str, id: u64, method: &str, params: &Value) -> Reply {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        Reply::read(self.open("POST", &[("Mcp-Session-Id", session)], Some(&request)))
    }

    /// A request of the stateless revision.
    pub(super) fn modern(&self, id: u64, method: &str, params: &Value) -> Reply {
        Reply::read(self.open("POST", &[], Some(&modern(id, method, params))))
    }

    /// What is said unasked, or the rest of a stream.
    pub(super) fn get(&self, session: &str, last_id: Option<&str>) -> Reply {
        let mut headers = vec![("Mcp-Session-Id", session)];
        headers.extend(last_id.map(|id| ("Last-Event-ID", id)));
        Reply::read(self.open("GET", &headers, None))
    }

    /// Asks the program to end.
    pub(super) fn stop(&self) {
        if self.is_stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }

    /// Has it end, and gives its status.
    pub(super) fn close(mut self) -> ExitStatus {
        self.stop();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the program does not end");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

impl Drop for Face {
    fn drop(&mut self) {
        // A test that did not close has either failed or does not care how the program ends.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn read_token(home: &Path, file: &str) -> Option<String> {
    Some(std::fs::read_to_string(home.join("run").join(file)).ok()?.trim().to_owned())
}

impl Reply {
    /// Reads the head of an answer.
    pub(super) fn read(stream: TcpStream) -> Self {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{line:?}"));
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        Self { status, headers, stream, body: Vec::new(), is_over: false }
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }

    /// Reads one more piece of the body.
    fn more(&mut self) {
        if self.header("transfer-encoding") != "chunked" {
            self.stream.read_to_end(&mut self.body).unwrap();
            self.is_over = true;
            return;
        }
        let mut size = String::new();
        self.stream.read_line(&mut size).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let mut chunk = vec![0; size + 2];
        self.is_over = size == 0 || self.stream.read_exact(&mut chunk).is_err();
        if !self.is_over {
            self.body.extend_from_slice(&chunk[..size]);
        }
    }

    /// The next event; comments are passed over.
    pub(super) fn event(&mut self) -> Option<ServerEvent> {
        loop {
            while let Some(end) = self.body.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.body.drain(..end + 2).collect();
                let block = String::from_utf8(block).unwrap();
                let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
                if let Some(data) = field("data: ") {
                    return Some(ServerEvent { id: field("id: "), data });
                }
            }
            if self.is_over {
                return None;
            }
            self.more();
        }
    }

    /// Every message to the end of the stream.
    pub(super) fn messages(mut self) -> Vec<Value> {
        let events = std::iter::from_fn(|| self.event());
        events.filter(|event| !event.data.is_empty()).map(|event| serde_json::from_str(&event.data).unwrap()).collect()
    }

    /// A body of one message.
    pub(super) fn json(mut self) -> Value {
        while !self.is_over {
            self.more();
        }
        let text = String::from_utf8(std::mem::take(&mut self.body)).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{} {error}: {text}", self.status))
    }
}
