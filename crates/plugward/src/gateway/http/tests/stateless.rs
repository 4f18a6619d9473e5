//! Clients of the stateless revision: headers and body agree, nothing is kept, streams end well.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Face, Reply, note, request};
use crate::gateway::http::Limits;

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

fn modern(id: u64, method: &str, mut params: Value) -> Value {
    params["_meta"] = meta();
    request(id, method, params)
}

impl Face {
    /// A request of an honest client of the stateless revision.
    async fn ask(&self, method: &str, params: Value) -> Reply {
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", &name)];
        self.post(&headers, &modern(7, method, params)).await
    }
}

#[tokio::test]
async fn a_request_is_answered_by_itself_and_leaves_no_session() {
    let face = Face::new().await;
    let reply = face.ask("server/discover", json!({})).await;
    assert_eq!((reply.status.as_u16(), reply.header("mcp-session-id")), (200, ""));
    let result = reply.json().await["result"].clone();
    assert_eq!(result["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(result["resultType"], "complete");
    let reply = face.ask("tools/list", json!({})).await.json().await;
    assert_eq!(
        (&reply["id"], &reply["result"]["tools"], &reply["result"]["ttlMs"]),
        (&json!(7), &json!([]), &json!(0))
    );
    // Whichever host a balancer picks (B092).
    let other = Face::new().await.ask("tools/list", json!({})).await;
    assert_eq!((other.status.as_u16(), other.header("mcp-session-id")), (200, ""));
    assert_eq!(other.json().await, reply);
    // A session id of another server is nothing to it (HT-01).
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list"), ("mcp-session-id", "x")];
    assert_eq!(face.post(&headers, &modern(1, "tools/list", json!({}))).await.status.as_u16(), 200);
}

#[tokio::test]
async fn what_is_wrong_has_the_status_and_code_that_clients_act_on() {
    // HT-07, HT-08, HT-09, BP-13, VN-01: a client falls back, repeats or gives up by these.
    let face = Face::new().await;
    let full = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];
    let list = modern(7, "tools/list", json!({}));
    assert_eq!(face.post(&full, &list).await.status.as_u16(), 200, "the control");
    for headers in [
        &full[..1],
        &full[1..],
        &[full[0], ("mcp-method", "tools/call")],
        &[("mcp-protocol-version", "2025-11-25"), full[1]],
    ] {
        assert_eq!(face.post(headers, &list).await.refused().await, (400, -32020), "{headers:?}");
    }
    let mut unknown = list.clone();
    unknown["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("v999");
    assert_eq!(face.post(&full, &unknown).await.refused().await, (400, -32020));
    let reply = face.post(&[("mcp-protocol-version", "v999"), full[1]], &unknown).await;
    assert_eq!(reply.status.as_u16(), 400);
    let error = reply.json().await["error"].clone();
    assert_eq!((&error["code"], &error["data"]["requested"]), (&json!(-32022), &json!("v999")));
    assert_eq!(error["data"]["supported"], json!(["2026-07-28"]));
    for broken in
        [json!({}), json!({"_meta": {}}), json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}})]
    {
        let reply = face.post(&full, &request(7, "tools/list", broken.clone())).await;
        let status = reply.status.as_u16();
        let body = reply.json().await;
        assert_eq!((status, &body["id"], &body["error"]["code"]), (400, &json!(7), &json!(-32602)), "{broken}");
    }
    for removed in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "prompts/list", "no/such"] {
        assert_eq!(face.ask(removed, json!({})).await.refused().await, (404, -32601), "{removed}");
    }
    assert_eq!(face.ask("tools/call", json!({"name": "no_such"})).await.refused().await, (200, -32602));
    let other_name = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "b")];
    let call = modern(7, "tools/call", json!({"name": "a"}));
    assert_eq!(face.post(&other_name, &call).await.refused().await, (400, -32020));
    assert_eq!(face.post(&full, &note("notifications/cancelled")).await.status.as_u16(), 202);
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    assert_eq!(face.post(&full, &answer).await.refused().await.0, 400, "HT-03");
}

#[tokio::test]
async fn a_stream_of_notices_opens_lives_and_ends_well() {
    // SU-01, SU-02: the client must be able to tell an end from a break.
    let face = Face::with(Limits { keep_alive: Duration::from_millis(5), ..Limits::default() }).await;
    let filter = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true}});
    let mut stream = face.ask("subscriptions/listen", filter.clone()).await;
    assert!(stream.is_stream() && stream.header("x-accel-buffering") == "no");
    let first = stream.piece().await.unwrap();
    let text = std::str::from_utf8(&first).unwrap().strip_prefix("data: ").unwrap();
    let message: Value = serde_json::from_str(text).unwrap();
    assert_eq!(message["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(message["params"]["notifications"], json!({"toolsListChanged": true}));
    assert_eq!(message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 7);
    assert_eq!(stream.piece().await.unwrap(), ":\n\n", "a silent stream shows that it is alive");
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "subscriptions/listen"),
        ("accept", "application/json"),
    ];
    let reply = face.post(&headers, &modern(7, "subscriptions/listen", filter.clone())).await;
    assert_eq!(reply.status.as_u16(), 406);
    face.closing.cancel();
    let rest = stream.text().await;
    let last = rest.lines().rfind(|line| line.starts_with("data: ")).unwrap();
    let last: Value = serde_json::from_str(&last["data: ".len()..]).unwrap();
    assert_eq!((&last["id"], &last["result"]["resultType"]), (&json!(7), &json!("complete")));
}
