//! The start of the Host API: where it listens, what it tells, whom it lets in.

use std::os::unix::fs::MetadataExt as _;
use std::process::Stdio;

use super::client::{Serving, serve_command, token_file};

#[test]
fn the_start_line_tells_the_address_and_the_place_of_the_token_but_not_the_token() {
    let serving = Serving::start("");
    let told = serving.stderr();
    assert!(told.contains(&token_file(serving.home()).display().to_string()), "{told}");
    assert!(!told.contains(serving.token()), "the token is in the log");
    assert!(serving.address().ip().is_loopback());
    let facts = std::fs::metadata(token_file(serving.home())).unwrap();
    assert_eq!((facts.mode() & 0o777, serving.token().len()), (0o600, 64));
    // B029: what the system says about the listener counts, not what we say.
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{:04X}", serving.address().port());
    let listening: Vec<&str> = sockets
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (local, _, state) = (words.next()?, words.next()?, words.next()?);
            (state == "0A" && local.ends_with(&port)).then_some(local)
        })
        .collect();
    assert_eq!(listening, [format!("0100007F{port}")]);
}

#[test]
fn an_address_that_others_can_reach_is_refused() {
    for address in ["0.0.0.0:0", "[::]:0", "nonsense", "127.0.0.1", "127.0.0.1:99999"] {
        let home = tempfile::tempdir().unwrap();
        let ended = serve_command(home.path(), Some("development"), address).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{address}: {}", String::from_utf8_lossy(&ended.stderr));
        assert!(!token_file(home.path()).exists(), "{address}: a token was made for nothing");
    }
}

/// B029, byte for byte over the wire.
#[test]
fn pages_of_other_origins_are_refused() {
    let serving = Serving::start("");
    let port = serving.address().port();
    let own = format!("127.0.0.1:{port}");
    let table: [(String, Option<&str>, u16); 9] = [
        (format!("localhost:{port}"), None, 200),
        (own.clone(), Some("http://localhost:5173"), 200),
        (format!("[::1]:{port}"), None, 200),
        (own.clone(), Some("https://evil.example"), 403),
        ("evil.example".to_owned(), None, 403),
        (own.clone(), Some("http://localhost.evil.example"), 403),
        (format!("127.0.0.1.evil.example:{port}"), None, 403),
        (own.clone(), Some("null"), 403),
        (own, Some("https://evil.example:443"), 403),
    ];
    for (host, origin, status) in &table {
        let mut headers = vec![("Host", host.as_str())];
        headers.extend(origin.map(|origin| ("Origin", origin)));
        let reply = serving.send_raw("GET", "/api/plugins", &headers, "");
        assert_eq!(reply.status, *status, "{host} {origin:?}: {}", reply.text);
        let body = r#"{"package_path":"/nothing/here"}"#;
        let reply = serving.send_raw("POST", "/api/plugins/install", &headers, body);
        let expected = if *status == 200 { 422 } else { 403 };
        assert_eq!(reply.status, expected, "{host} {origin:?}: {}", reply.text);
    }
}

/// Requirement 105: only the exact word opens the gate; everything else runs nothing.
#[test]
fn no_unconfined_plugin_starts_unless_the_environment_is_exactly_development() {
    use crate::support::Fixture;
    for environment in [None, Some(""), Some("production"), Some("Development"), Some("development ")] {
        let serving = Serving::start_in(environment, "");
        let fixture = Fixture::normal("fx").unconfined();
        assert_eq!(serving.install(&fixture.package()).status, 202);
        let granted = serde_json::json!({ "permissions": ["notes.read"] });
        assert_eq!(serving.send("PUT", "/api/plugins/fx/permissions", Some(&granted)).status, 200);
        assert_eq!(serving.enable("fx").failure(), (403, "MCP_TRUST_APPROVAL_REQUIRED".to_owned()), "{environment:?}");
        assert_eq!(serving.send("DELETE", "/api/plugins/fx", None).status, 204);
        serving.install_approved("fx", &fixture);
        assert_eq!(serving.enable("fx").failure(), (403, "MCP_SANDBOX_REQUIRED".to_owned()), "{environment:?}");
        assert_eq!((serving.tools().len(), serving.host_state("fx").as_str()), (0, "stopped"), "{environment:?}");
        assert!(serving.get("/api/plugins/fx/host").json()["pid"].is_null());
    }
    // Positive control.
    let serving = Serving::start_in(Some("development"), "");
    serving.run("fx", &Fixture::normal("fx").unconfined());
}
