//! What a caller does with plugins that do not run: install, review, approve, permissions, and the refusals.

use serde_json::{Value, json};

use super::Api;

#[tokio::test]
async fn a_plugin_is_installed_looked_at_and_removed() {
    let api = Api::new().await;
    assert_eq!(api.get("/api/plugins").await.json(), json!({ "items": [] }));
    let installed = api.install("notes", r#"["notes.read"]"#).await;
    assert_eq!(installed.status, 202, "{}", installed.text);
    let body = installed.json();
    // The seed's `Plugin`, whatever else is there.
    assert_eq!(body["status"], "permission_required");
    assert_eq!((&body["enabled"], &body["granted_permissions"]), (&json!(false), &json!([])));
    assert!(body.get("error_message").is_some_and(Value::is_null), "{body}");
    let manifest = &body["manifest"];
    assert_eq!((&manifest["id"], &manifest["version"]), (&json!("notes"), &json!("1.2.3")));
    assert_eq!(manifest["contributes"]["tools"], json!(["notes.echo"]));
    assert_eq!(manifest["backend"]["command"], "./server");
    assert_eq!(api.get("/api/plugins/notes").await.json()["id"], "notes");
    let again = api.install("notes", "[]").await;
    assert_eq!((again.status.as_u16(), again.code().as_str()), (409, "PLUGIN_ALREADY_INSTALLED"));
    assert_eq!(api.get("/api/plugins").await.json()["items"].as_array().unwrap().len(), 1);
    assert_eq!(api.send("DELETE", "/api/plugins/notes", "").await.status, 204);
    assert_eq!(api.send("DELETE", "/api/plugins/notes", "").await.code(), "PLUGIN_NOT_FOUND");
    assert_eq!(api.get("/api/plugins").await.json(), json!({ "items": [] }));
}

#[tokio::test]
async fn what_is_no_package_is_refused_with_its_reason() {
    let api = Api::new().await;
    let write = |id: &str, manifest: &str| {
        let path = api.package(id, "[]");
        std::fs::write(path.join("plugin.yaml"), manifest).unwrap();
        path
    };
    let other = "id: a\nname: A\nversion: 1.0.0\nbackend: {type: mcp, transport: none, command: x}\n";
    let unknown = "id: a\nname: A\nversion: 1.0.0\npermissions: [moon.read]\n\
                   backend: {type: mcp, transport: stdio, command: ./server}\n";
    let table = [
        ("/no/such/folder".into(), 422, "PLUGIN_PACKAGE_INVALID"),
        ("/dev/zero".into(), 422, "PLUGIN_PACKAGE_INVALID"),
        ("/etc/hostname".into(), 422, ""),
        (write("a", "name: [\n"), 422, "PLUGIN_MANIFEST_INVALID"),
        (write("b", other), 501, "MCP_CAPABILITY_UNSUPPORTED"),
        (write("c", unknown), 422, "PLUGIN_PERMISSION_UNKNOWN"),
    ];
    for (path, status, code) in table {
        let body = json!({ "package_path": path }).to_string();
        let reply = api.post("/api/plugins/install", &body).await;
        assert_eq!(reply.status, status, "{}: {}", path.display(), reply.text);
        assert!(code.is_empty() || reply.code() == code, "{}: {}", path.display(), reply.text);
    }
    let path = api.package("named", "[]");
    let body = json!({ "package_path": path, "id": "other" }).to_string();
    assert_eq!(api.post("/api/plugins/install", &body).await.code(), "PLUGIN_MANIFEST_INVALID");
    let body = json!({ "package_path": path, "id": "named" }).to_string();
    assert_eq!(api.post("/api/plugins/install", &body).await.status, 202);
}

/// Requirements 36, 94 and invariant 1: nothing is agreed to but by the digest of what was shown.
#[tokio::test]
async fn an_approval_takes_the_digest_of_the_review_and_no_other() {
    let api = Api::new().await;
    api.install("notes", r#"["notes.read"]"#).await;
    let enable = api.post("/api/plugins/notes/enable", "").await;
    assert_eq!((enable.status.as_u16(), enable.code().as_str()), (409, "PLUGIN_PERMISSION_REQUIRED"));
    let review = api.get("/api/plugins/notes/review").await.json();
    assert_eq!((&review["approved"], &review["permissions"][0]["name"]), (&json!(false), &json!("notes.read")));
    assert_eq!(review["argv"].as_array().unwrap().len(), 2);
    let wrong = json!({ "digest": format!("sha256:{}", "0".repeat(64)) }).to_string();
    let refused = api.post("/api/plugins/notes/approve", &wrong).await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (409, "MCP_TRUST_DIGEST_STALE"));
    assert_eq!(api.get("/api/plugins/notes").await.json()["approved"], false);
    let right = json!({ "digest": review["digest"] }).to_string();
    let approved = api.post("/api/plugins/notes/approve", &right).await;
    assert_eq!((approved.status.as_u16(), &approved.json()["approved"]), (200, &json!(true)));
    assert_eq!(approved.json()["granted_permissions"], json!(["notes.read"]));
    assert_eq!(api.get("/api/plugins/notes/review").await.json()["approved"], true);
}

#[tokio::test]
async fn permissions_are_replaced_as_a_whole_and_only_by_known_names() {
    let api = Api::new().await;
    api.install("notes", r#"["notes.read", "notes.search"]"#).await;
    let put = async |names: Value| {
        api.send("PUT", "/api/plugins/notes/permissions", json!({ "permissions": names }).to_string()).await
    };
    let some = put(json!(["notes.read"])).await;
    assert_eq!((some.status.as_u16(), &some.json()["status"]), (200, &json!("permission_required")));
    let all = put(json!(["notes.read", "notes.search"])).await;
    assert_eq!((&all.json()["status"], all.status.as_u16()), (&json!("installed"), 200));
    for unknown in [json!(["tasks.read"]), json!(["notes.read", "Nötes"]), json!(["a\u{1b}[31m"])] {
        let reply = put(unknown).await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (422, "PLUGIN_PERMISSION_UNKNOWN"));
    }
    // Grants are no approval: somebody has to agree to what would run, too.
    let enable = api.post("/api/plugins/notes/enable", "").await;
    assert_eq!((enable.status.as_u16(), enable.code().as_str()), (403, "MCP_TRUST_APPROVAL_REQUIRED"));
    let none = put(json!([])).await;
    assert_eq!(none.json()["status"], "permission_required");
}

/// Requirements 104, 105: in production nothing runs outside of a sandbox.
#[tokio::test]
async fn an_approved_plugin_without_a_sandbox_does_not_start_in_production() {
    let api = Api::new().await;
    api.install_approved("notes", "[]").await;
    let reply = api.post("/api/plugins/notes/enable", "").await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (403, "MCP_SANDBOX_REQUIRED"), "{}", reply.text);
    assert_eq!(api.get("/api/tools").await.json(), json!({ "items": [] }));
    assert_eq!(api.get("/api/plugins/notes/host").await.json()["pid"], Value::Null);
}

/// Requirements 107, 109, 110.
#[tokio::test]
async fn the_host_of_a_stopped_plugin_has_every_field_of_the_seed() {
    let api = Api::new().await;
    api.install("notes", "[]").await;
    let reply = api.get("/api/plugins/notes/host").await;
    assert_eq!(reply.status, 200);
    let body = reply.json();
    for field in [
        "plugin_id",
        "backend_type",
        "transport",
        "status",
        "tools_count",
        "started_at",
        "last_seen_at",
        "protocol_version",
        "server_name",
        "server_version",
        "error",
    ] {
        assert!(body.get(field).is_some(), "{field} is missing: {body}");
    }
    assert_eq!((&body["status"], &body["tools_count"]), (&json!("stopped"), &json!(0)));
    let unknown = api.get("/api/plugins/none/host").await;
    assert_eq!((unknown.status.as_u16(), unknown.code().as_str()), (404, "PLUGIN_NOT_FOUND"));
}

/// Requirement 117: a restart is no way around Enable.
#[tokio::test]
async fn a_plugin_that_is_not_switched_on_is_not_restarted() {
    let api = Api::new().await;
    api.install("waiting", r#"["notes.read"]"#).await;
    api.install_approved("never", "[]").await;
    api.install_approved("disabled", "[]").await;
    assert_eq!(api.post("/api/plugins/disabled/disable", "").await.json()["status"], "disabled");
    for id in ["waiting", "never", "disabled"] {
        let reply = api.post(&format!("/api/plugins/{id}/host/restart"), "").await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (409, "PLUGIN_HOST_UNAVAILABLE"), "{id}");
        assert_eq!(api.get(&format!("/api/plugins/{id}/host")).await.json()["status"], "stopped", "{id}");
    }
    assert_eq!(api.post("/api/plugins/none/host/restart", "").await.status, 404);
}

#[tokio::test]
async fn calls_of_unknown_tools_fail_in_the_envelope_and_leave_a_trace() {
    let api = Api::new().await;
    for tool in ["notes.echo", "x", "\u{1b}[31mred", "a\nb"] {
        let body = json!({ "tool": tool, "arguments": { "text": "hunter2" } }).to_string();
        let reply = api.post("/api/tools/call", &body).await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (404, "TOOL_NOT_FOUND"), "{}", reply.text);
        assert!(!reply.json()["error"]["message"].as_str().unwrap().chars().any(char::is_control));
        assert_eq!(reply.json()["error"]["cause"], "tool_not_found");
        let trace_id = reply.json()["error"]["details"]["trace_id"].as_str().unwrap().to_owned();
        let trace = api.get(&format!("/api/traces/{trace_id}")).await;
        assert_eq!(trace.status, 200, "{}", trace.text);
        assert_eq!(trace.json()["items"][0]["outcome"], "tool_not_found");
        assert!(!trace.text.contains("hunter2"), "a trace holds no arguments");
    }
    let page = api.get("/api/traces?limit=3").await.json();
    assert_eq!((page["items"].as_array().unwrap().len(), &page["has_more"]), (3, &json!(true)));
    let rest = api.get(&format!("/api/traces?limit=3&before={}", page["next_before"])).await.json();
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["has_more"]), (1, &json!(false)));
    for id in ["0", "../..", "%00", &"f".repeat(32), &"f".repeat(5000)] {
        let reply = api.get(&format!("/api/traces/{}", id.replace('/', "%2f"))).await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (404, "RESOURCE_NOT_FOUND"), "{id}");
    }
}

#[tokio::test]
async fn permission_requests_that_are_not_open_take_no_answer() {
    let api = Api::new().await;
    assert_eq!(api.get("/api/permission-requests").await.json(), json!({ "items": [] }));
    for id in ["permission_0123456789abcdef", "%2e%2e%2f", "%1b"] {
        let reply = api.post(&format!("/api/permission-requests/{id}"), r#"{"answer":"allow_once"}"#).await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (404, "RESOURCE_NOT_FOUND"), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_at_the_same_time_get_their_own_answers() {
    let api = std::sync::Arc::new(Api::new().await);
    let ids: Vec<String> = (0..8).map(|index| format!("plugin{index}")).collect();
    let mut installs = tokio::task::JoinSet::new();
    let install = |id: &String| {
        let body = json!({ "package_path": api.package(id, "[]") }).to_string();
        (id.clone(), body)
    };
    let requests: Vec<(String, String)> = ids.iter().map(install).collect();
    // Twice each: one of the two must lose.
    for (id, body) in requests.iter().chain(&requests).cloned() {
        let api = std::sync::Arc::clone(&api);
        installs.spawn(async move { (id, api.post("/api/plugins/install", &body).await) });
    }
    let mut statuses = std::collections::BTreeMap::<String, Vec<u16>>::new();
    while let Some(done) = installs.join_next().await {
        let (id, reply) = done.unwrap();
        if reply.status == 202 {
            assert_eq!(reply.json()["id"], id.as_str());
        }
        statuses.entry(id).or_default().push(reply.status.as_u16());
    }
    for (id, mut statuses) in statuses {
        statuses.sort_unstable();
        assert_eq!(statuses, [202, 409], "{id}");
    }
    assert_eq!(api.get("/api/plugins").await.json()["items"].as_array().unwrap().len(), 8);
}

#[tokio::test]
async fn a_host_that_is_shutting_down_says_so() {
    let api = Api::new().await;
    api.install("notes", "[]").await;
    api.host.shutdown().await;
    let reply = api.post("/api/plugins/notes/enable", "").await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (503, "HOST_STOPPING"));
    let call = api.post("/api/tools/call", r#"{"tool":"notes.echo"}"#).await;
    assert_eq!((call.status.as_u16(), call.code().as_str()), (503, "HOST_STOPPING"));
}
