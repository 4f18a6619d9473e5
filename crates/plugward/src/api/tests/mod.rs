//! Tests of the Host API without a process: what it lets in, how it reads, what it answers.
//!
//! Owns a host in a home of its own behind the real application. Nothing can start here (production, and a launcher
//! that does not exist); plugins that run are tested over the real binary.

mod flows;
mod guarding;
mod listener;
mod reading;

use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use plugward_host::{Environment, Host, HostConfig, Naming, SupervisionSettings};
use plugward_policy::Catalogue;
use plugward_sandbox::Launcher;
use serde_json::Value;
use tempfile::TempDir;
use tower::ServiceExt as _;

use super::{Options, Token};

/// A host behind the application.
pub(super) struct Api {
    app: Router,
    host: Host,
    token: Token,
    home: TempDir,
}

/// What came back.
#[derive(Debug)]
pub(super) struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The code of an error envelope, with the envelope's shape checked on the way.
    fn code(&self) -> String {
        let body = self.json();
        let error = body["error"].as_object().unwrap_or_else(|| panic!("no envelope: {body}"));
        assert_eq!(body.as_object().map(serde_json::Map::len), Some(1), "{body}");
        assert!(error["message"].is_string() && error["details"].is_object(), "{body}");
        error["code"].as_str().unwrap().to_owned()
    }
}

impl Api {
    async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let config = HostConfig {
            home: home.path().to_owned(),
            environment: Environment::Production,
            catalogue: Catalogue::seed(),
            launcher: Launcher::at("/nonexistent/launcher", ["launch"]),
            host_environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            naming: Naming::Prefixed,
            restart_base_delay: Duration::from_millis(10),
            supervision: SupervisionSettings::default(),
            trust: plugward_host::Trust::default(),
            operator: "test".to_owned(),
        };
        let host = Host::open(config).await.unwrap();
        let token = Token::open(home.path()).unwrap();
        Self { app: super::app(host.clone(), Options::new(token.clone())), host, token, home }
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.token.reveal())
    }

    async fn send_request(&self, request: Request<Body>) -> Reply {
        let response = self.app.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, 16 * 1024 * 1024).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        // Requirement 2: whoever uses the Host API never sees a message of the protocol behind it.
        assert!(!text.contains("jsonrpc"), "{text}");
        Reply { status: parts.status, headers: parts.headers, text }
    }

    /// A request of an honest caller.
    async fn send(&self, method: &str, path: &str, body: impl Into<Vec<u8>>) -> Reply {
        let body = body.into();
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "127.0.0.1:7000")
            .header("authorization", self.bearer());
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        self.send_request(request.body(Body::from(body)).unwrap()).await
    }

    async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, "").await
    }

    async fn post(&self, path: &str, body: &str) -> Reply {
        self.send("POST", path, body).await
    }

    /// A package folder in the home's neighbourhood; its program is never run here.
    fn package(&self, id: &str, permissions: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = self.home.path().join("packages").join(id);
        std::fs::create_dir_all(&dir).unwrap();
        let manifest = format!(
            "id: {id}\nname: Notes\nversion: 1.2.3\ndescription: For tests\npermissions: {permissions}\n\
             contributes:\n  tools: [{id}.echo]\nbackend:\n  type: mcp\n  transport: stdio\n  command: ./server\n  \
             args: [normal]\nsandbox:\n  minimum_level: none\n"
        );
        std::fs::write(dir.join("plugin.yaml"), manifest).unwrap();
        std::fs::write(dir.join("server"), "#!/bin/sh\nexit 1\n").unwrap();
        std::fs::set_permissions(dir.join("server"), std::fs::Permissions::from_mode(0o755)).unwrap();
        dir
    }

    async fn install(&self, id: &str, permissions: &str) -> Reply {
        let path = self.package(id, permissions);
        self.post("/api/plugins/install", &serde_json::json!({ "package_path": path }).to_string()).await
    }

    async fn install_approved(&self, id: &str, permissions: &str) {
        assert_eq!(self.install(id, permissions).await.status, 202);
        let digest = self.get(&format!("/api/plugins/{id}/review")).await.json()["digest"].clone();
        let body = serde_json::json!({ "digest": digest }).to_string();
        assert_eq!(self.post(&format!("/api/plugins/{id}/approve"), &body).await.status, 200);
    }
}
