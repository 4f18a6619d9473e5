//! The MCP path without a process: what it lets in, how it answers each era, what it forgets. What needs plugins is
//! tested over the real binary.
#![allow(clippy::needless_pass_by_value, reason = "a test reads better with `json!` as the argument")]

mod guarding;
mod sessions;
mod stateless;

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use hyper::body::Body as _;
use plugward_host::{Environment, Host, HostConfig, Naming, SupervisionSettings};
use plugward_policy::Catalogue;
use plugward_sandbox::Launcher;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{Admission, Endpoint, Limits};
use crate::api::Token;
use crate::gateway::{Options, Server};

/// Longest wait for anything in a test. Generous: machines that run tests are slow and busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// A face over a host that has no plugins.
struct Face {
    endpoint: Endpoint,
    router: Router,
    token: Token,
    closing: CancellationToken,
    _home: TempDir,
}

/// What came back, with its body still coming.
struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Body,
}

impl Reply {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn is_stream(&self) -> bool {
        self.header("content-type") == "text/event-stream"
    }

    /// The next piece of the body.
    async fn piece(&mut self) -> Option<Bytes> {
        let frame = std::future::poll_fn(|context| std::pin::Pin::new(&mut self.body).poll_frame(context));
        let frame = tokio::time::timeout(PATIENCE, frame).await.expect("nothing came")?;
        frame.unwrap().into_data().ok()
    }

    async fn text(mut self) -> String {
        let mut text = Vec::new();
        while let Some(piece) = self.piece().await {
            text.extend_from_slice(&piece);
        }
        String::from_utf8(text).unwrap()
    }

    /// A body of one message.
    async fn json(self) -> Value {
        assert_eq!(self.header("content-type"), "application/json");
        let text = self.text().await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Status and code of a refusal.
    async fn refused(self) -> (u16, i64) {
        let status = self.status.as_u16();
        let body = self.json().await;
        (status, body["error"]["code"].as_i64().unwrap_or_else(|| panic!("{status}: {body}")))
    }
}

impl Face {
    async fn new() -> Self {
        Self::with(Limits::default()).await
    }

    async fn with(limits: Limits) -> Self {
        let home = tempfile::tempdir().unwrap();
        let config = HostConfig {
            home: home.path().to_owned(),
            environment: Environment::Production,
            catalogue: Catalogue::seed(),
            launcher: Launcher::at("/nonexistent", [""; 0]),
            host_environment: Vec::new(),
            naming: Naming::Prefixed,
            restart_base_delay: Duration::from_millis(50),
            supervision: SupervisionSettings::default(),
            trust: plugward_host::Trust::default(),
            operator: "test".to_owned(),
        };
        let host = Host::open(config).await.unwrap();
        let token = Token::open_mcp(home.path()).unwrap();
        let closing = CancellationToken::new();
        let endpoint = Endpoint::new(Server::new(host, Options::default()), limits, closing.clone());
        let admission = Admission { token: token.clone(), hosts: vec!["tools.example".to_owned()] };
        let router = endpoint.router(admission);
        Self { endpoint, router, token, closing, _home: home }
    }

    async fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut request = Request::builder().method(method).uri("/mcp");
        let bearer = format!("Bearer {}", self.token.reveal());
        let usual = [("host", "127.0.0.1:7000"), ("authorization", bearer.as_str())];
        let usual =
            usual.into_iter().filter(|(name, _)| !headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)));
        // An empty value stands for: without this header.
        for (name, value) in usual.chain(headers.iter().copied()).filter(|(_, value)| !value.is_empty()) {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = tokio::time::timeout(PATIENCE, self.router.clone().oneshot(request)).await.unwrap().unwrap();
        let (parts, body) = response.into_parts();
        Reply { status: parts.status, headers: parts.headers, body }
    }

    /// A message of an honest client.
    async fn post(&self, headers: &[(&str, &str)], body: &Value) -> Reply {
        let mut all = vec![("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        all.retain(|(name, _)| !headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)));
        all.extend(headers);
        self.send("POST", &all, &body.to_string()).await
    }

    /// Begins a session and gives its id.
    async fn session(&self, version: &str) -> String {
        let reply = self.post(&[], &hello(version)).await;
        assert_eq!(reply.status, StatusCode::OK);
        let id = reply.header("mcp-session-id").to_owned();
        let told = self.post(&[("mcp-session-id", &id)], &note("notifications/initialized")).await;
        assert_eq!((told.status.as_u16(), told.text().await.as_str()), (202, ""));
        id
    }
}

fn hello(version: &str) -> Value {
    let client = json!({"name": "demo-client", "version": "0"});
    request(1, "initialize", json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client}))
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn note(method: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": method})
}
