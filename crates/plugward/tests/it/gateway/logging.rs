//! What plugins log, as clients read it.
//!
//! If these fail, a client reads what another one's call was about, or hears of a plugin that it is not to see.

use serde_json::{Value, json};

use super::client::Client;
use super::home_with;
use super::http_client::{Face, modern};
use crate::support::Fixture;

const MESSAGE: &str = "notifications/message";

fn logging(id: &str) -> Fixture {
    Fixture::imported(id, &["unasked"]).permission("mcp.logging").permission("mcp.prompts")
}

fn levels(client: &mut Client) -> Value {
    let report = client.text("fx_report", &json!({}));
    serde_json::from_str::<Value>(&report).unwrap()["levels"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_a_call_is_for_its_caller_and_of_no_call_for_those_who_named_a_level() {
    let home = home_with(&[logging("fx"), Fixture::normal("silent")]).await;
    let profile = "[profiles.blind]\nplugins = [\"silent\"]\n";
    std::fs::write(home.path().join("config.toml"), profile).unwrap();
    let face = Face::start(home);
    let mut mine = Client::join_at(face.home());
    assert_eq!(mine.handshake()["capabilities"]["logging"], json!({}));
    mine.list();
    let mut other = Client::join_at(face.home());
    other.handshake();
    other.list();
    let mut blind = Client::join_as(face.home(), "blind");
    assert!(blind.handshake()["capabilities"].get("logging").is_none(), "it sees no plugin that logs");
    blind.list();

    // Before anybody names a level the caller reads what concerns it, and the plugin is told none.
    mine.text("fx_log", &json!({"level": "debug"}));
    mine.text("fx_log", &json!({"level": "info", "data": {"n": 1}}));
    let told: Vec<_> = mine.passed(MESSAGE).into_iter().map(|message| message["params"].clone()).collect();
    assert_eq!(told, [json!({"level": "info", "logger": "fx/fixture", "data": {"n": 1}})]);
    assert_eq!(levels(&mut mine), json!([]));

    // The most detailed level that one of them wants is the plugin's; each reads from its own on.
    for (client, level) in [(&mut mine, "debug"), (&mut other, "error"), (&mut blind, "debug")] {
        assert_eq!(client.request("logging/setLevel", &json!({"level": level}))["result"], json!({}));
    }
    let loud = mine.request("logging/setLevel", &json!({"level": "loud"}));
    assert_eq!(loud["error"]["code"], json!(-32602), "{loud}");
    mine.text("fx_log", &json!({"level": "debug", "data": "detail"}));
    assert_eq!(mine.passed(MESSAGE).len(), 2);
    assert_eq!(levels(&mut mine).as_array().unwrap().last(), Some(&json!("debug")));
    mine.text("fx_log", &json!({"level": "emergency", "data": "not for the other"}));
    // A list is for everybody, and so is what the plugin logs of it.
    mine.request("prompts/list", &json!({}));
    for client in [&mut mine, &mut other] {
        if client.passed(MESSAGE).iter().all(|message| message["params"]["data"] != "listed") {
            client.await_message(|message| message["params"]["data"] == "listed");
        }
    }
    // What was not told by now, never is: pipes keep the order.
    blind.text("silent_echo", &json!({"text": "x"}));
    assert_eq!(blind.passed(MESSAGE).len(), 0, "B064");
    assert!(other.passed(MESSAGE).iter().all(|message| message["params"]["data"] == "listed"));

    // Over HTTP: in a session on the stream of the call, and without one only where the request says so.
    let session = face.session("2025-11-25");
    let logged = |messages: Vec<Value>| messages.iter().filter(|message| message["method"] == MESSAGE).count();
    let call = json!({"name": "fx_log", "arguments": {"level": "warning"}});
    assert_eq!(logged(face.ask(&session, 2, "tools/call", &call).messages()), 1);
    let body = modern(3, "tools/call", &call);
    let post = |body: &Value| face.reply("POST", &[], Some(body));
    let silent = post(&body).json();
    assert_eq!(silent["result"]["content"][0]["text"], "done", "LO-01: one JSON text, no stream of notes");
    let mut wanting = body;
    wanting["params"]["_meta"]["io.modelcontextprotocol/logLevel"] = json!("warning");
    assert_eq!(logged(post(&wanting).messages()), 1);
    wanting["params"]["_meta"]["io.modelcontextprotocol/logLevel"] = json!("error");
    assert_eq!(post(&wanting).json()["result"]["content"][0]["text"], "done", "less grave than it wants");
    face.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_person_agreed_to_is_not_handed_on() {
    let mut client = Client::start(home_with(&[Fixture::imported("fx", &["unasked"])]).await);
    assert!(client.handshake()["capabilities"].get("logging").is_none());
    client.list();
    let set = client.request("logging/setLevel", &json!({"level": "debug"}));
    assert_eq!(set["result"], json!({}), "B089: a client that asks all the same is not refused");
    client.text("fx_log", &json!({"level": "emergency"}));
    assert_eq!(levels(&mut client), json!([]));
    assert_eq!(client.passed(MESSAGE).len(), 0);
    let end = client.close();
    assert!(end.messages.iter().all(|message| message["method"] != MESSAGE), "{:?}", end.messages);
}
