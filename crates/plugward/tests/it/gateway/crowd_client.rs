//! A connection over HTTP that is kept for many requests, for tests with hundreds of clients.
//!
//! Owns the reading of answers: one JSON text or a stream of events, of known length or in chunks. Every wait is bounded.
//! Refuses what no such test needs: redirects, compression, pipelining.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::support::PATIENCE;

/// One connection.
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
}

/// An answer.
pub(super) struct Reply {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    /// The messages of its body; none, where the body was left to come.
    pub(super) messages: Vec<Value>,
}

impl Reply {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> Self {
        let stream = tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await.expect("no connection").unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream), address }
    }

    /// Sends a request and reads its whole answer.
    pub(super) async fn ask(&mut self, method: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Reply {
        let whole = async {
            let mut reply = self.send(method, headers, body).await;
            let text = self.body(&reply).await;
            reply.messages = messages(reply.header("content-type"), &text);
            reply
        };
        tokio::time::timeout(PATIENCE, whole).await.expect("no answer in time")
    }

    /// Sends a request whose answer is a stream, and reads its head.
    pub(super) async fn listen(&mut self, method: &str, headers: &[(&str, &str)]) -> Reply {
        tokio::time::timeout(PATIENCE, self.send(method, headers, None)).await.expect("no answer in time")
    }

    async fn send(&mut self, method: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Reply {
        let mut text = format!("{method} /mcp HTTP/1.1\r\nHost: {}\r\n", self.address);
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        if !body.is_empty() {
            text.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
        }
        self.stream.get_mut().write_all(format!("{text}\r\n{body}").as_bytes()).await.unwrap();
        let first = self.line().await;
        let status = first.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{first:?}"));
        let mut headers = Vec::new();
        while let Some((name, value)) = self.line().await.split_once(": ") {
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        Reply { status, headers, messages: Vec::new() }
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }

    async fn body(&mut self, reply: &Reply) -> String {
        let mut body = Vec::new();
        if reply.header("transfer-encoding") == "chunked" {
            loop {
                let size = usize::from_str_radix(&self.line().await, 16).expect("a chunk has its size");
                let mut chunk = vec![0; size + 2];
                self.stream.read_exact(&mut chunk).await.unwrap();
                if size == 0 {
                    break;
                }
                body.extend_from_slice(&chunk[..size]);
            }
        } else {
            body.resize(reply.header("content-length").parse().unwrap_or(0), 0);
            self.stream.read_exact(&mut body).await.unwrap();
        }
        String::from_utf8(body).unwrap()
    }

    /// What has arrived on a stream so far; `None` if the other side ended it.
    pub(super) async fn received(&mut self) -> Option<String> {
        let mut text = self.stream.buffer().to_vec();
        self.stream.consume(text.len());
        let mut piece = [0_u8; 4096];
        loop {
            match self.stream.get_mut().try_read(&mut piece) {
                Ok(0) => return None,
                Ok(bytes) => text.extend_from_slice(&piece[..bytes]),
                Err(_) => return Some(String::from_utf8(text).unwrap()),
            }
        }
    }
}

fn messages(kind: &str, text: &str) -> Vec<Value> {
    let read = |text: &str| serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    if kind == "text/event-stream" {
        let data = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
        return data.filter(|data| !data.is_empty()).map(read).collect();
    }
    Some(text).filter(|text| !text.is_empty()).map(read).into_iter().collect()
}
