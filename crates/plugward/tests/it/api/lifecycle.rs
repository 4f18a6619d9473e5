//! Plugins from install to removal, and the states in between (requirements 107-117).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::client::{Serving, receive, wait_until};
use crate::support::{Fixture, NORMAL_TOOLS};

/// Long enough that a plugin that fell is seen lying.
const SLOW_RESTART: &str = "restart_base_delay_ms = 60000\n";

#[test]
fn the_whole_way_from_install_to_removal() {
    let serving = Serving::start(SLOW_RESTART);
    let fixture = Fixture::normal("fx");
    // Requirement 36: nothing starts that nobody agreed to.
    assert_eq!(serving.install(&fixture.package()).json()["status"], "permission_required");
    assert_eq!(serving.enable("fx").failure(), (409, "PLUGIN_PERMISSION_REQUIRED".to_owned()));
    assert_eq!(serving.host_state("fx"), "stopped");
    assert_eq!(serving.restart("fx").failure(), (409, "PLUGIN_HOST_UNAVAILABLE".to_owned()));
    let digest = serving.get("/api/plugins/fx/review").json()["digest"].clone();
    serving.post("/api/plugins/fx/approve", Some(&json!({ "digest": digest })));
    // Requirement 112.
    let enabled = serving.enable("fx").json();
    assert_eq!((&enabled["status"], &enabled["enabled"]), (&json!("ready"), &json!(true)));
    assert_eq!(serving.enable("fx").json()["status"], "ready");
    let host = serving.get("/api/plugins/fx/host").json();
    // Requirement 109, with values.
    assert_eq!(
        (&host["plugin_id"], &host["backend_type"], &host["transport"], &host["status"]),
        (&json!("fx"), &json!("mcp"), &json!("stdio"), &json!("ready"))
    );
    assert_eq!((&host["tools_count"], &host["error"]), (&json!(6), &Value::Null));
    for field in ["started_at", "last_seen_at", "protocol_version", "server_name", "server_version"] {
        assert!(host[field].is_string(), "{field}: {host}");
    }
    let expected: BTreeSet<String> = NORMAL_TOOLS.iter().map(|tool| format!("fx.{tool}")).collect();
    assert_eq!(serving.tools().into_iter().collect::<BTreeSet<_>>(), expected);
    assert_eq!(serving.get("/api/tools?plugin_id=other").json(), json!({ "items": [] }));
    // Requirements 115, 116: answered when everything is back.
    let restarted = serving.restart("fx");
    assert_eq!(restarted.status, 202);
    assert_eq!(
        restarted.json(),
        json!({ "status": "accepted", "resource_id": "fx", "message": "Plugin Host status: ready" })
    );
    assert_eq!(serving.tools().len(), 6);
    assert!(serving.get("/api/plugins/fx/host").json()["generation"].as_u64() > host["generation"].as_u64());
    // Requirements 110, 117.
    assert_eq!(serving.post("/api/plugins/fx/disable", None).json()["status"], "disabled");
    assert_eq!((serving.host_state("fx").as_str(), serving.tools().len()), ("stopped", 0));
    assert_eq!(serving.restart("fx").failure(), (409, "PLUGIN_HOST_UNAVAILABLE".to_owned()));
    assert_eq!(serving.enable("fx").json()["status"], "ready");
    // Taking a permission away stops it.
    let none = json!({ "permissions": [] });
    let reply = serving.send("PUT", "/api/plugins/fx/permissions", Some(&none));
    assert_eq!((&reply.json()["status"], serving.tools().len()), (&json!("permission_required"), 0));
    assert_eq!(serving.send("DELETE", "/api/plugins/fx", None).status, 204);
    assert_eq!(serving.get("/api/plugins/fx/host").failure(), (404, "PLUGIN_NOT_FOUND".to_owned()));
    // A plugin of the same name is another plugin.
    assert_eq!(serving.install(&fixture.package()).json()["granted_permissions"], json!([]));
}

/// Requirements 113, 116: after a crash the state says so, and a restart brings it back.
#[test]
fn a_crashed_plugin_is_unhealthy_until_it_is_restarted() {
    let serving = Serving::start(SLOW_RESTART);
    serving.run("fx", &Fixture::normal("fx"));
    assert_eq!(serving.call("fx.exit", &json!({})).failure(), (503, "PLUGIN_HOST_UNAVAILABLE".to_owned()));
    serving.wait_for_state("fx", "unhealthy");
    assert_eq!(serving.tools().len(), 0);
    let call = serving.call("fx.echo", &json!({ "text": "x" }));
    assert_eq!(call.failure(), (503, "PLUGIN_HOST_UNAVAILABLE".to_owned()));
    assert!(serving.get("/api/plugins/fx/host").json()["error"].is_string());
    let restarted = serving.restart("fx");
    assert_eq!((restarted.status, &restarted.json()["message"]), (202, &json!("Plugin Host status: ready")));
    assert_eq!(serving.call("fx.echo", &json!({ "text": "x" })).status, 200);
}

/// Requirement 111; and whoever hung up meanwhile has started it all the same.
#[test]
fn a_slow_start_is_seen_and_goes_on_without_its_caller() {
    let serving = Serving::start("");
    serving.install_approved("slow", &Fixture::imported("slow", &["slow-start", "--seconds", "5"]));
    let host = serving.address().to_string();
    drop(serving.open("POST", "/api/plugins/slow/enable", &[("Host", &host)], ""));
    serving.wait_for_state("slow", "starting");
    assert_eq!(serving.get("/api/plugins/slow").json()["status"], "starting");
    serving.wait_for_state("slow", "ready");
    wait_until("it is switched on", || serving.get("/api/plugins/slow").json()["enabled"] == true);
}

/// Requirements 114, 125-128: each way a start fails has its code and leaves nothing.
#[test]
fn a_start_that_fails_has_the_code_of_its_reason() {
    let serving = Serving::start("");
    let table: [(&str, &[&str], u16, &str); 6] = [
        ("a", &["no-tools"], 501, "MCP_CAPABILITY_UNSUPPORTED"),
        ("b", &["initialize-error"], 502, "MCP_INITIALIZE_FAILED"),
        ("c", &["invalid-result"], 502, "MCP_INITIALIZE_FAILED"),
        ("d", &["exit-in-handshake", "--step", "initialize"], 503, "PLUGIN_HOST_UNAVAILABLE"),
        ("e", &["list-fails"], 502, "MCP_TOOL_LIST_FAILED"),
        ("f", &["crash-on-start"], 0, ""),
    ];
    for (id, args, status, code) in table {
        serving.install_approved(id, &Fixture::imported(id, args));
        let reply = serving.enable(id);
        let (told, word) = reply.failure();
        if code.is_empty() {
            assert!(told == 502 || told == 503, "{}", reply.text);
        } else {
            assert_eq!((told, word.as_str()), (status, code), "{args:?}: {}", reply.text);
        }
        assert_eq!((serving.host_state(id).as_str(), serving.tools().len()), ("error", 0), "{args:?}");
        // Invariant 4: what a plugin wrote to stderr is in no answer.
        for text in [reply.text, serving.get(&format!("/api/plugins/{id}")).text] {
            assert!(!text.contains("DEMO_API_KEY"), "{text}");
        }
        // Requirement 116: a failed plugin may be restarted, and fails for the same reason.
        assert_eq!(serving.restart(id).failure(), (told, word), "{args:?}");
    }
    let table = [
        ("g", "invalid-schema", 502, "MCP_TOOL_SCHEMA_INVALID"),
        ("h", "oversized-stdout", 503, "PLUGIN_HOST_UNAVAILABLE"),
    ];
    for (id, mode, status, code) in table {
        serving.install_approved(id, &Fixture::imported(id, &[mode]).declares(&NORMAL_TOOLS));
        assert_eq!(serving.enable(id).failure(), (status, code.to_owned()));
    }
}

/// Two plugins can mean one internal id; the first keeps it.
#[test]
fn a_tool_id_that_is_taken_is_a_conflict() {
    let serving = Serving::start("");
    let tools = |id: &str, tool: &str| {
        let package = Fixture::imported(id, &["schema", "--file", "tools.json"]).package();
        let tools = json!([{ "name": tool, "inputSchema": { "type": "object" } }]);
        std::fs::write(package.path().join("tools.json"), tools.to_string()).unwrap();
        package
    };
    for (id, package) in [("a.b", tools("a.b", "c")), ("a", tools("a", "b.c"))] {
        assert_eq!(serving.install(&package).status, 202);
        let digest = serving.get(&format!("/api/plugins/{id}/review")).json()["digest"].clone();
        serving.post(&format!("/api/plugins/{id}/approve"), Some(&json!({ "digest": digest })));
    }
    assert_eq!(serving.enable("a.b").status, 200);
    assert_eq!(serving.enable("a").failure(), (409, "PLUGIN_TOOL_CONFLICT".to_owned()));
    assert_eq!(serving.tools(), ["a.b.c"]);
}

/// Several programs at once: each gets its own answer, and the plugin ends in one of the states asked for.
#[test]
fn enabling_and_disabling_at_the_same_time_leaves_no_half_state() {
    let serving = Serving::start("");
    serving.run("fx", &Fixture::normal("fx"));
    let host = serving.address().to_string();
    let open = |what: &str| serving.open("POST", &format!("/api/plugins/fx/{what}"), &[("Host", &host)], "");
    let streams: Vec<_> = (0..6).map(|round| open(["disable", "enable", "host/restart"][round % 3])).collect();
    for reply in streams.into_iter().map(receive) {
        assert!([200, 202, 409].contains(&reply.status), "{}", reply.text);
    }
    let plugin = serving.get("/api/plugins/fx").json();
    let state = serving.host_state("fx");
    match plugin["enabled"].as_bool() {
        Some(true) => assert_eq!((state.as_str(), serving.tools().len()), ("ready", 6)),
        _ => assert_eq!((state.as_str(), serving.tools().len()), ("stopped", 0)),
    }
}
