//! An HTTP server that answers as a test says, and keeps what it heard. Plain sockets: it shares nothing with what is tested.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use serde_json::Value;

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    /// The message in it; null without one.
    pub(crate) message: Value,
}

impl Heard {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// The method of the message.
    pub(crate) fn asks(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }
}

/// What is sent back.
pub(crate) enum Reply {
    Whole {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: String,
    },
    /// Events as they come, until the sender is dropped.
    Events(Vec<(&'static str, String)>, mpsc::Receiver<String>),
    /// The connection is closed without a word.
    Nothing,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Reply::Whole { status, headers: Vec::new(), body: String::new() }
    }

    pub(crate) fn json(status: u16, value: &Value) -> Self {
        let headers = vec![("Content-Type", "application/json".to_owned())];
        Reply::Whole { status, headers, body: value.to_string() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        match &mut self {
            Reply::Whole { headers, .. } | Reply::Events(headers, _) => headers.push((name, value.into())),
            Reply::Nothing => {}
        }
        self
    }

    /// These events, and then the end of the stream.
    pub(crate) fn events(events: &[String]) -> Self {
        let (sender, receiver) = mpsc::sync_channel(events.len().max(1));
        for event in events {
            sender.send(event.clone()).unwrap();
        }
        Reply::Events(Vec::new(), receiver)
    }
}

/// The text of an event with this message.
pub(crate) fn event(message: &Value) -> String {
    format!("data: {message}\n\n")
}

/// The server; its threads end with the test's process.
pub(crate) struct HttpServer {
    pub(crate) address: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
    is_over: Arc<AtomicBool>,
}

impl HttpServer {
    pub(crate) fn start(answer: impl Fn(&Heard) -> Reply + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), answer)
    }

    pub(crate) fn on(listener: TcpListener, answer: impl Fn(&Heard) -> Reply + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&heard);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let answer = move |heard: &Heard| if over.load(Ordering::Acquire) { Reply::Nothing } else { answer(heard) };
        let (answer, over) = (Arc::new(answer), Arc::clone(&is_over));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if over.load(Ordering::Acquire) {
                    return;
                }
                let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
                thread::spawn(move || serve(stream, &kept, &*answer));
            }
        });
        Self { address, heard, is_over }
    }

    /// Takes no further connection and answers on none.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::Release);
        drop(TcpStream::connect(self.address));
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    /// Requests whose message has this method.
    pub(crate) fn asked(&self, method: &str) -> Vec<Heard> {
        self.heard().into_iter().filter(|heard| heard.asks() == method).collect()
    }

    /// Requests of this HTTP method.
    pub(crate) fn of(&self, method: &str) -> Vec<Heard> {
        self.heard().into_iter().filter(|heard| heard.method == method).collect()
    }
}

fn serve(mut stream: TcpStream, kept: &Mutex<Vec<Heard>>, answer: &(dyn Fn(&Heard) -> Reply + Send + Sync)) {
    let mut bytes = Vec::new();
    loop {
        let Some(heard) = read_request(&mut stream, &mut bytes) else { return };
        kept.lock().unwrap().push(heard.clone());
        match answer(&heard) {
            Reply::Nothing => return,
            Reply::Whole { status, headers, body } => {
                let mut head = format!("HTTP/1.1 {status} Status\r\nContent-Length: {}\r\n", body.len());
                for (name, value) in headers {
                    write!(head, "{name}: {value}\r\n").unwrap();
                }
                if stream.write_all(format!("{head}\r\n{body}").as_bytes()).is_err() {
                    return;
                }
            }
            Reply::Events(headers, events) => {
                let mut head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n".to_owned();
                for (name, value) in headers {
                    write!(head, "{name}: {value}\r\n").unwrap();
                }
                let _ = stream.write_all(format!("{head}\r\n").as_bytes());
                for event in events {
                    if stream.write_all(event.as_bytes()).is_err() {
                        return;
                    }
                }
                return;
            }
        }
    }
}

fn read_request(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Heard> {
    let mut chunk = [0; 16 * 1024];
    loop {
        if let Some(head_end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
            let mut lines = head.lines();
            let mut first = lines.next()?.split(' ');
            let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
            let headers: BTreeMap<String, String> = lines
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                .collect();
            let length = headers.get("content-length").map_or(0, |text| text.parse().unwrap());
            let end = head_end + 4 + length;
            if bytes.len() >= end {
                let message = serde_json::from_slice(&bytes[head_end + 4..end]).unwrap_or(Value::Null);
                bytes.drain(..end);
                return Some(Heard { method, path, headers, message });
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}
