//! Questions of plugins without a handshake, on their way to clients without one and back (MR-01 to MR-05, BP-14, EL-02).

use serde_json::{Value, json};

use super::client::Client;
use super::home_with;
use super::http_client::{Face, Reply};
use crate::support::Fixture;

const QUESTIONS: [&str; 3] = ["mcp.elicitation", "mcp.sampling", "mcp.roots"];
const STATE_TOOL: &str = "fx_test_input_required_result_request_state";

/// A plugin that asks; it may ask what `permissions` say.
fn asking(permissions: &[&str]) -> Fixture {
    let fixture = Fixture::imported("fx", &["conformance-modern"]).backend("protocol: auto").permission("mcp.prompts");
    permissions.iter().fold(fixture, |fixture, name| fixture.permission(name))
}

/// Parameters of a client that can do this.
fn of(capabilities: &Value, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": {"name": "demo-client", "version": "0"},
    });
    params
}

/// The next request to the client for which `fits` holds.
fn asked_of(client: &mut Client, method: &str) -> Value {
    client.await_message(|message| message["method"] == method && message.get("id").is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_a_handshake_is_asked_while_its_call_waits() {
    // The pair of an older client and a newer plugin: its rounds are ours, and the client knows nothing of them.
    let mut client = Client::start(home_with(&[asking(&QUESTIONS)]).await);
    client.send_raw(
        &json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}, "roots": {}},
            "clientInfo": {"name": "old-client", "version": "1"},
        }})
        .to_string(),
    );
    client.answer(&json!("hello"));
    client.notify("notifications/initialized", &json!({}));
    client.list();
    let call = client.send("tools/call", &json!({"name": "fx_test_input_required_result_multi_round"}));
    for (step, field) in [("Step 1", "name"), ("Step 2", "color")] {
        let ask = asked_of(&mut client, "elicitation/create");
        let message = ask["params"]["message"].as_str().unwrap();
        assert!(message.starts_with("fx asks: ") && message.contains(step), "{message}");
        let result = json!({"action": "accept", "content": {field: "x"}});
        client.send_raw(&json!({"jsonrpc": "2.0", "id": ask["id"], "result": result}).to_string());
    }
    let end = client.answer(&call)["result"].clone();
    assert_eq!(end["content"][0]["text"], "both told", "{end}");
    assert!(end.get("resultType").is_none(), "an older client meets no word of the newer revision");
    // A state went through nobody's hands but ours.
    let call = client.send("tools/call", &json!({"name": STATE_TOOL}));
    let ask = asked_of(&mut client, "elicitation/create");
    assert!(ask["params"].get("requestState").is_none());
    let declined = json!({"action": "decline"});
    client.send_raw(&json!({"jsonrpc": "2.0", "id": ask["id"], "result": declined}).to_string());
    assert_eq!(client.answer(&call)["result"]["content"][0]["text"], "state-ok", "a no is an answer too");
    // What it did not declare is not asked of it.
    let refused = client.request("tools/call", &json!({"name": "fx_test_input_required_result_sampling"}));
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    // An error in place of an answer ends the call, unless a person can cancel.
    let call = client.send("tools/call", &json!({"name": "fx_test_input_required_result_list_roots"}));
    let ask = asked_of(&mut client, "roots/list");
    client.send_raw(&json!({"jsonrpc": "2.0", "id": ask["id"], "error": {"code": -1, "message": "no"}}).to_string());
    assert_eq!(client.answer(&call)["error"]["code"], json!(-32603));
    // One that gives its call up is told that the question is over.
    let call = client.send("tools/call", &json!({"name": STATE_TOOL}));
    let ask = asked_of(&mut client, "elicitation/create");
    client.notify("notifications/cancelled", &json!({"requestId": call}));
    let over = client.await_message(|message| message["method"] == "notifications/cancelled");
    assert_eq!(over["params"]["requestId"], ask["id"]);
    assert!(client.close().status.success());
}

fn all() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

fn call(client: &mut Client, params: Value) -> Value {
    client.request("tools/call", &of(&all(), params))
}

/// The state of a question that was asked just now.
fn asked(client: &mut Client) -> Value {
    let question = call(client, json!({"name": STATE_TOOL}))["result"].clone();
    assert_eq!(question["resultType"], "input_required", "{question}");
    question["requestState"].clone()
}

fn again(name: &str, state: &Value) -> Value {
    json!({"name": name, "inputResponses": {"confirm": {"action": "accept", "content": {"ok": true}}}, "requestState": state})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_reaches_the_person_and_the_answer_its_plugin() {
    let mut client = Client::start(home_with(&[asking(&QUESTIONS)]).await);
    let question = call(&mut client, json!({"name": STATE_TOOL}))["result"].clone();
    let shown = &question["inputRequests"]["confirm"];
    assert_eq!(shown["method"], "elicitation/create");
    assert_eq!(shown["params"]["message"], "fx asks: Please confirm", "EL-02: a person sees who asks");
    assert_eq!(question["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "plugward");
    assert!(question.get("ttlMs").is_none() && question.get("content").is_none(), "{question}");
    let end = call(&mut client, again(STATE_TOOL, &question["requestState"]))["result"].clone();
    assert_eq!((&end["resultType"], &end["content"][0]["text"]), (&json!("complete"), &json!("state-ok")));
    // Several questions at once, and one after the other.
    let several = call(&mut client, json!({"name": "fx_test_input_required_result_multiple_inputs"}))["result"].clone();
    assert_eq!(several["inputRequests"].as_object().unwrap().len(), 3);
    let name = "fx_test_input_required_result_multi_round";
    let first = call(&mut client, json!({"name": name}))["result"].clone();
    let answers = json!({"step1": {"action": "accept", "content": {"name": "n"}}});
    let retry = json!({"name": name, "inputResponses": answers, "requestState": first["requestState"]});
    let second = call(&mut client, retry)["result"].clone();
    assert!(second["inputRequests"].get("step2").is_some(), "{second}");
    assert_ne!(first["requestState"], second["requestState"]);
    // A prompt may ask as well.
    let name = "fx_test_input_required_result_prompt";
    let question = client.request("prompts/get", &of(&all(), json!({"name": name})))["result"].clone();
    assert_eq!(question["resultType"], "input_required", "{question}");
    let answers = json!({"user_context": {"action": "accept", "content": {"context": "rain"}}});
    let params = of(&all(), json!({"name": name, "inputResponses": answers}));
    let end = client.request("prompts/get", &params)["result"].clone();
    assert_eq!(end["messages"][0]["content"]["text"], "In the context of rain.");
    assert!(client.close().status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_is_of_one_request_and_no_other() {
    // MR-03: what a client changed, made up or took from elsewhere never reaches a plugin.
    let mut client = Client::start(home_with(&[asking(&QUESTIONS)]).await);
    let state = asked(&mut client);
    let tampered = json!(format!("{}-TAMPERED", state.as_str().unwrap()));
    let other_arguments = {
        let mut params = again(STATE_TOOL, &state);
        params["arguments"] = json!({"more": 1});
        params
    };
    let attempts = [
        again(STATE_TOOL, &tampered),
        again(STATE_TOOL, &json!("state/1")),
        again(STATE_TOOL, &json!(7)),
        again("fx_test_input_required_result_tampered_state", &state),
        other_arguments,
        json!({"name": STATE_TOOL, "inputResponses": [], "requestState": state}),
    ];
    for attempt in attempts {
        let refused = call(&mut client, attempt.clone());
        assert_eq!(refused["error"]["code"], json!(-32602), "{attempt}: {refused}");
    }
    // The control, and after a restart: nothing is kept, so nothing is lost.
    let mut client = Client::start(client.close().home);
    client.request("tools/list", &of(&all(), json!({})));
    let end = call(&mut client, again(STATE_TOOL, &state))["result"].clone();
    assert_eq!(end["content"][0]["text"], "state-ok", "{end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_asks_only_what_it_was_granted_and_what_the_client_can_answer() {
    // BP-14; the control is the first test.
    let mut client = Client::start(home_with(&[asking(&["mcp.sampling"])]).await);
    let name = "fx_test_input_required_result_capabilities";
    let question = call(&mut client, json!({"name": name}))["result"].clone();
    let keys: Vec<&String> = question["inputRequests"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["said"], "it was told that nobody can be asked anything else");
    let refused = call(&mut client, json!({"name": STATE_TOOL}))["result"].clone();
    let text = refused["content"][0]["text"].as_str().unwrap();
    assert!(refused["isError"] == true && text.contains("mcp.elicitation"), "{refused}");
    let able = client.request("tools/call", &of(&json!({}), json!({"name": "fx_test_missing_capability"})));
    assert_eq!(able["error"]["code"], json!(-32021), "{able}");
    assert_eq!(able["error"]["data"]["requiredCapabilities"], json!({"sampling": {}}));
    let silent = client.request("tools/call", &of(&json!({}), json!({"name": name})))["result"].clone();
    assert_eq!(silent["content"][0]["text"], "enough");
    // One that asks all the same is not heard.
    let params = json!({"name": "fx_test_input_required_result_sampling"});
    let refused = client.request("tools/call", &of(&json!({"elicitation": {}}), params))["result"].clone();
    assert_eq!(refused["isError"], true, "{refused}");
}

/// A session over HTTP of a client that can answer questions to a person.
fn session_of(face: &Face) -> String {
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "old-client", "version": "1"},
    });
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let session = Reply::read(face.open("POST", &[], Some(&hello))).header("mcp-session-id").to_owned();
    face.tell(&session, "notifications/initialized", &json!({}));
    session
}

/// The next message on a stream; what opens it is none.
fn next(stream: &mut Reply) -> Value {
    loop {
        let event = stream.event().expect("the stream goes on");
        if !event.data.is_empty() {
            return serde_json::from_str(&event.data).unwrap();
        }
    }
}

fn post(face: &Face, session: &str, message: &Value) -> u16 {
    Reply::read(face.open("POST", &[("Mcp-Session-Id", session)], Some(message))).status
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_over_http_are_asked_on_the_stream_of_their_own_request() {
    // Two clients with the same questions under the same numbers: neither sees, or answers, what the other is asked.
    let face = Face::start(home_with(&[asking(&QUESTIONS)]).await);
    let sessions = [session_of(&face), session_of(&face)];
    let name = "fx_test_input_required_result_elicitation";
    let ask = |session: &String| face.ask(session, 7, "tools/call", &json!({"name": name}));
    let mut streams = [ask(&sessions[0]), ask(&sessions[1])];
    let asked = [next(&mut streams[0]), next(&mut streams[1])];
    assert_eq!(asked[0]["id"], asked[1]["id"], "the numbers are of each session");
    for (who, (session, question)) in ["Ada", "Grace"].iter().zip(sessions.iter().zip(&asked)) {
        assert_eq!(question["params"]["message"], "fx asks: What is your name?");
        let answer = json!({"jsonrpc": "2.0", "id": question["id"],
            "result": {"action": "accept", "content": {"name": who}}});
        assert_eq!(post(&face, session, &answer), 202);
        assert_eq!(post(&face, session, &answer), 202, "a second answer is nobody's");
    }
    for (who, stream) in ["Ada", "Grace"].iter().zip(&mut streams) {
        let end = next(stream);
        assert_eq!((&end["id"], &end["result"]["content"][0]["text"]), (&json!(7), &json!(format!("Hello, {who}!"))));
    }
    // One that reads no stream cannot be asked, and is not left waiting.
    let call = json!({"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": {"name": name}});
    let (host, bearer) = (face.address().to_string(), format!("Bearer {}", face.token()));
    let headers = [
        ("Host", host.as_str()),
        ("Authorization", bearer.as_str()),
        ("Mcp-Session-Id", sessions[0].as_str()),
        ("Accept", "application/json"),
    ];
    let refused = face.raw("POST", "/mcp", &headers, &call.to_string()).json();
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    face.close();
}
