//! The way over Streamable HTTP: `plugward serve --http`, with a session and without.
//!
//! Owns the process and connections that are kept, one for each caller at a time. Reads answers of known length alone: one
//! call has one, and nothing to tell before it.

use std::io::{BufRead as _, BufReader as StdBufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use plugward_sandbox::{LaunchSpec, Launcher, PluginProcess, StopGrace};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::{ANSWER_LIMIT, ARGUMENTS, Fallible};

/// What is said before every call of a client without a session.
const META: &str =
    r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

/// A running `plugward serve --http`.
pub(super) struct Server {
    address: SocketAddr,
    token: String,
    process: PluginProcess,
}

impl Server {
    /// Starts the program on a home that has the plugin.
    pub(super) async fn start(mut spec: LaunchSpec, home: &Path) -> Fallible<Arc<Self>> {
        spec.argv.truncate(1);
        spec.argv.extend(["serve", "--http", "127.0.0.1:0"].map(Into::into));
        spec.stop = StopGrace::default();
        let spawned = tokio::task::spawn_blocking(move || Launcher::current_exe()?.spawn(&spec)).await??;
        let mut lines = StdBufReader::new(std::fs::File::from(spawned.stderr)).lines().map_while(Result::ok);
        let told = tokio::task::spawn_blocking(move || {
            let address = lines.find_map(|line| {
                let (_, rest) = line.split_once("MCP on http://")?;
                rest.split('/').next()?.parse::<SocketAddr>().ok()
            });
            // A pipe that nobody empties would hold the program up.
            std::thread::spawn(move || lines.for_each(drop));
            address
        });
        let address = tokio::time::timeout(ANSWER_LIMIT, told).await??.ok_or("it told no address")?;
        let token = std::fs::read_to_string(home.join("run/mcp-token"))?.trim().to_owned();
        Ok(Arc::new(Self { address, token, process: spawned.process }))
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }
}

/// A client of it.
pub(super) struct Client {
    pub(super) server: Arc<Server>,
    /// None for one whose requests stand alone.
    session: Option<String>,
    /// Connections nobody uses now.
    idle: Mutex<Vec<BufReader<TcpStream>>>,
}

impl Client {
    pub(super) async fn new(server: &Arc<Server>, with_session: bool) -> Fallible<Arc<Self>> {
        let mut client = Self { server: Arc::clone(server), session: None, idle: Mutex::default() };
        if with_session {
            let hello =
                r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}"#;
            let hello = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{hello}}}"#);
            let (head, _) = client.post("", &hello).await?;
            let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
            client.session = Some(session.ok_or("there is no session")?.to_owned());
        }
        // The first list waits until the plugin is there.
        client.request("tools/list", "", "").await?;
        Ok(Arc::new(client))
    }

    pub(super) async fn call(&self) -> Fallible<String> {
        self.request("tools/call", "fx_echo", &format!(r#""name":"fx_echo","arguments":{ARGUMENTS}"#)).await
    }

    async fn request(&self, method: &str, name: &str, params: &str) -> Fallible<String> {
        let (headers, params) = match &self.session {
            Some(session) => (format!("Mcp-Session-Id: {session}\r\n"), format!("{{{params}}}")),
            None => {
                let named = if name.is_empty() { String::new() } else { format!("Mcp-Name: {name}\r\n") };
                let separator = if params.is_empty() { "" } else { "," };
                let headers = format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{named}");
                (headers, format!(r#"{{"_meta":{META}{separator}{params}}}"#))
            }
        };
        // An id may be in use only once in a session, so each connection's calls have another.
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(2);
        let id = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        let sent = tokio::time::timeout(ANSWER_LIMIT, self.post(&headers, &body)).await;
        Ok(sent.map_err(|_| format!("no answer to {method}"))??.1)
    }

    async fn post(&self, headers: &str, body: &str) -> Fallible<(String, String)> {
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut stream = match kept {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.server.address).await?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            self.server.address,
            self.server.token,
            body.len()
        );
        stream.get_mut().write_all(request.as_bytes()).await?;
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let begin = head.len();
            if stream.read_line(&mut head).await? == 0 {
                return Err("the connection ended".into());
            }
            let line = head[begin..].trim_end();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse()?;
            }
        }
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer).await?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        Ok((head, String::from_utf8(answer)?))
    }
}
