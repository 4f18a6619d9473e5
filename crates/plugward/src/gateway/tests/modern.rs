//! Clients of the stateless revision over a byte stream. What needs plugins is tested over the real binary.

use serde_json::{Value, json};

use super::Session;

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "demo-client", "version": "0"},
    })
}

impl Session {
    /// A request of the stateless revision, and its answer.
    async fn modern(&mut self, id: Value, method: &str, mut params: Value) -> Value {
        params["_meta"] = meta();
        self.request(id, method, params).await
    }
}

#[tokio::test]
async fn a_client_may_begin_with_any_request() {
    let mut session = Session::start().await;
    let answer = session.modern(json!("a"), "tools/list", json!({})).await;
    let result = &answer["result"];
    assert_eq!((&answer["id"], &result["tools"], &result["resultType"]), (&json!("a"), &json!([]), &json!("complete")));
    // Strict clients drop a list without hints.
    assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(0), &json!("private")));
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "plugward");
    let (rest, end) = session.close().await;
    assert!(rest.is_empty() && end.is_ok());
}

#[tokio::test]
async fn the_discovery_says_what_works_and_nothing_else() {
    // B089: what is announced is served, and what is not is no method.
    let mut session = Session::start().await;
    let result = session.modern(json!(1), "server/discover", json!({})).await["result"].clone();
    assert_eq!(result["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(result["capabilities"], json!({"tools": {"listChanged": true}}));
    assert!(result["instructions"].as_str().unwrap().contains("plugward install"), "{result}");
    assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(0), &json!("private")));
    for removed in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/list",
        "resources/list",
        "tasks/list",
        "no/such",
    ] {
        let answer = session.modern(json!(removed), removed, json!({"protocolVersion": "2025-11-25"})).await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(removed), &json!(-32601)), "{answer}");
    }
}

#[tokio::test]
async fn wrong_params_are_refused() {
    let mut session = Session::start().await;
    for (method, params) in [
        ("tools/call", json!({"name": 7})),
        ("tools/call", json!({"name": "no_such_tool"})),
        ("tools/list", json!({"cursor": ""})),
        ("tools/list", json!({"cursor": 1})),
        ("subscriptions/listen", json!({})),
        ("subscriptions/listen", json!({"notifications": {"toolsListChanged": "yes"}})),
    ] {
        let answer = session.modern(json!(1), method, params.clone()).await;
        assert_eq!(answer["error"]["code"], json!(-32602), "{method} {params}: {answer}");
    }
}

#[tokio::test]
async fn both_eras_share_one_process() {
    // VN-06: a host that starts us once may hold clients of both kinds behind one pipe.
    let mut session = Session::initialized().await;
    assert_eq!(session.modern(json!(1), "tools/list", json!({})).await["result"]["resultType"], "complete");
    let legacy = session.request(json!(2), "tools/list", json!({})).await;
    assert_eq!(legacy["result"], json!({"tools": []}), "a legacy result stays as it was");
    assert_eq!(session.modern(json!(3), "ping", json!({})).await["error"]["code"], json!(-32601));
    session.silence().await;
}

#[tokio::test]
async fn a_stream_says_first_what_it_carries_and_ends_well() {
    // SU-01, SU-02: a client must be able to tell a stream that ended from one that broke.
    let mut session = Session::start().await;
    let filter = json!({"toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["x:1"]});
    for id in [json!(5), json!("s")] {
        let answer = session.modern(id.clone(), "subscriptions/listen", json!({"notifications": filter})).await;
        assert_eq!(
            answer,
            json!({
                "jsonrpc": "2.0",
                "method": "notifications/subscriptions/acknowledged",
                "params": {
                    "_meta": {"io.modelcontextprotocol/subscriptionId": id},
                    "notifications": {"toolsListChanged": true},
                },
            })
        );
    }
    // One is given up, which is not answered; the end of the input ends the other with a result.
    session.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s"}}"#).await;
    let (rest, end) = session.close().await;
    assert!(end.is_ok());
    assert_eq!(rest.len(), 1, "{rest:?}");
    assert_eq!(rest[0]["id"], 5);
    assert_eq!(rest[0]["result"]["resultType"], "complete");
    assert_eq!(rest[0]["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 5);
}
