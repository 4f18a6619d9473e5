//! Prompts, resources and completion through the gateway (requirements 135, 136), in both eras and from two plugins that
//! call their things the same.

use serde_json::{Value, json};

use super::client::Client;
use super::home_with;
use crate::support::{Fixture, TestHost};

pub(super) fn offering(id: &str) -> Fixture {
    let fixture = Fixture::imported(id, &["conformance"]);
    ["mcp.prompts", "mcp.resources", "mcp.completions"].iter().fold(fixture, |fixture, name| fixture.permission(name))
}

fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    params
}

pub(super) fn names(result: &Value, list: &str, key: &str) -> Vec<String> {
    let items = result[list].as_array().unwrap_or_else(|| panic!("{result}"));
    items.iter().map(|item| item[key].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_of_two_plugins_are_told_apart_and_each_is_asked_under_its_own_name() {
    let mut client = Client::start(home_with(&[offering("one"), offering("two")]).await);
    // At once, while the plugins start: what they offered when they ran last is known.
    let hello = client.handshake();
    assert_eq!(
        hello["capabilities"],
        json!({"tools": {"listChanged": true}, "prompts": {}, "resources": {}, "completions": {}})
    );
    client.list();
    let listed = client.request("prompts/list", &json!({}))["result"].clone();
    let prompts = names(&listed, "prompts", "name");
    assert_eq!(prompts.len(), 8, "{prompts:?}");
    assert!(
        prompts.contains(&"one_test_simple_prompt".to_owned())
            && prompts.contains(&"two_test_simple_prompt".to_owned())
    );
    assert!(listed["prompts"][0]["description"].is_string(), "the rest passes through");

    let params = json!({"name": "two_test_prompt_with_arguments", "arguments": {"arg1": "grüße", "arg2": "b"}});
    let got = client.request("prompts/get", &params);
    assert_eq!(got["result"]["messages"][0]["content"]["text"], "arg1='grüße', arg2='b'");
    let got = client.request("prompts/get", &modern(params))["result"].clone();
    assert_eq!((&got["resultType"], &got["messages"][0]["role"]), (&json!("complete"), &json!("user")));
    assert!(got.get("ttlMs").is_none(), "CH-01: a prompt that was filled in is not for keeping");
    let reference = json!({"type": "ref/prompt", "name": "one_test_prompt_with_arguments"});
    let argument = json!({"name": "arg1", "value": "te"});
    let completed = client.request("completion/complete", &json!({"ref": reference, "argument": argument}));
    assert_eq!(completed["result"]["completion"]["values"], json!(["test", "tested"]));
    for unknown in ["test_simple_prompt", "three_test_simple_prompt", ""] {
        let answer = client.request("prompts/get", &json!({"name": unknown}));
        assert_eq!(answer["error"]["code"], json!(-32602), "{unknown}: {answer}");
    }
    for params in [json!({}), json!({"name": 1}), json!([])] {
        assert_eq!(client.request("prompts/get", &params)["error"]["code"], json!(-32602), "{params}");
    }
    assert!(client.close().status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_are_listed_once_read_and_missed_in_the_words_of_each_era() {
    let mut client = Client::start(home_with(&[offering("one"), offering("two")]).await);
    client.handshake();
    client.list();
    // Both plugins have the same ones: a URI stands for one thing.
    let listed = client.request("resources/list", &json!({}))["result"].clone();
    let uris = names(&listed, "resources", "uri");
    assert_eq!(uris, ["test://static-text", "test://static-binary", "test://watched-resource"]);
    let templates = client.request("resources/templates/list", &modern(json!({})))["result"].clone();
    assert_eq!(names(&templates, "resourceTemplates", "uriTemplate"), ["test://template/{id}/data"]);
    assert_eq!((&templates["ttlMs"], &templates["cacheScope"]), (&json!(0), &json!("private")));

    let read = client.request("resources/read", &json!({"uri": "test://static-binary"}));
    assert!(read["result"]["contents"][0]["blob"].is_string(), "{read}");
    let read = client.request("resources/read", &modern(json!({"uri": "test://template/7/data"})))["result"].clone();
    assert_eq!(read["contents"][0]["text"], r#"{"id":"7"}"#);
    assert_eq!((&read["resultType"], &read["ttlMs"]), (&json!("complete"), &json!(0)));
    for unknown in ["test://not-there", "test://template/", "file:///etc/passwd", ""] {
        let legacy = client.request("resources/read", &json!({"uri": unknown}));
        assert_eq!(legacy["error"]["code"], json!(-32002), "{unknown}: {legacy}");
        let answer = client.request("resources/read", &modern(json!({"uri": unknown})));
        assert_eq!(answer["error"]["code"], json!(-32602), "{unknown}: {answer}");
    }
    client.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_person_agreed_to_is_not_offered() {
    // The same server without the permissions: its prompts are texts that nobody has seen it ask for.
    let mut client = Client::start(home_with(&[Fixture::imported("fx", &["conformance"])]).await);
    let hello = client.handshake();
    assert_eq!(hello["capabilities"], json!({"tools": {"listChanged": true}}));
    assert!(client.names().contains(&"fx_test_simple_text".to_owned()), "the control: its tools are there");
    for (list, member) in [("prompts/list", "prompts"), ("resources/list", "resources")] {
        assert_eq!(client.request(list, &json!({}))["result"], json!({member: []}), "B013");
        assert_eq!(client.request(list, &modern(json!({})))["error"]["code"], json!(-32601), "B089");
    }
    for (method, params) in [
        ("prompts/get", json!({"name": "fx_test_simple_prompt"})),
        ("resources/read", json!({"uri": "test://static-text"})),
        ("completion/complete", json!({"ref": {"type": "ref/prompt", "name": "x"}, "argument": {}})),
    ] {
        assert_eq!(client.request(method, &params)["error"]["code"], json!(-32601), "{method}");
        assert_eq!(client.request(method, &modern(params))["error"]["code"], json!(-32601), "{method}");
    }
    client.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_without_a_plugin_has_nothing_of_it() {
    // Case B064: what an agent is not to see it can neither find nor ask for.
    let home = home_with(&[offering("one"), offering("two")]).await;
    std::fs::write(home.path().join("config.toml"), "[profiles.default]\nplugins = [\"one\"]\n").unwrap();
    let mut client = Client::start(home);
    client.handshake();
    client.list();
    let listed = client.request("prompts/list", &json!({}))["result"].clone();
    let prompts = names(&listed, "prompts", "name");
    assert!(!prompts.is_empty() && prompts.iter().all(|name| name.starts_with("one_")), "{prompts:?}");
    let get = |name: &str| json!({"name": name});
    let control = client.request("prompts/get", &get("one_test_simple_prompt"));
    assert!(control["result"]["messages"].is_array(), "the control: {control}");
    assert_eq!(client.request("prompts/get", &get("two_test_simple_prompt"))["error"]["code"], json!(-32602));
    client.close();

    // Single tools bring no prompts and no resources with them.
    let home = home_with(&[offering("one")]).await;
    let config = "[profiles.default]\ntools = [\"one.test_simple_text\"]\n";
    std::fs::write(home.path().join("config.toml"), config).unwrap();
    let mut client = Client::start(home);
    assert_eq!(client.handshake()["capabilities"], json!({"tools": {"listChanged": true}}));
    client.list();
    for (list, member) in [("prompts/list", "prompts"), ("resources/list", "resources")] {
        assert_eq!(client.request(list, &json!({}))["result"], json!({member: []}));
    }
    let read = client.request("resources/read", &json!({"uri": "test://static-text"}));
    assert_eq!(read["error"]["code"], json!(-32601), "{read}");
    client.close();
}

/// A home with an agent's prompt from a file, beside a server.
async fn home_with_prompt() -> tempfile::TempDir {
    let test = TestHost::new().await;
    let file = test.home().join("reviewer.yaml");
    let text = "type: agent\nname: reviewer\ndescription: Reviews\narguments: [{name: diff, required: true}]\n\
                prompt_template: \"Review {{params.diff}}\"\n";
    std::fs::write(&file, text).unwrap();
    test.host.install(&file, None).await.unwrap();
    test.approve("reviewer").await;
    test.host.enable("reviewer").await.unwrap();
    test.run(&Fixture::normal("tool")).await;
    test.close().await
}

// Requirements 135, 159: a prompt of a file is one like any other to a client, in both eras, and within its profile.
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_of_a_file_is_offered_like_any_other() {
    let mut client = Client::start(home_with_prompt().await);
    assert_eq!(client.handshake()["capabilities"], json!({"tools": {"listChanged": true}, "prompts": {}}));
    client.list();
    let listed = client.request("prompts/list", &json!({}))["result"].clone();
    assert_eq!(names(&listed, "prompts", "name"), ["reviewer_reviewer"]);
    assert_eq!(listed["prompts"][0]["arguments"], json!([{"name": "diff", "required": true}]));
    let params = json!({"name": "reviewer_reviewer", "arguments": {"diff": "\"{{params.diff}}\" grüße"}});
    let expected = json!([{"role": "user", "content": {"type": "text", "text": "Review \"{{params.diff}}\" grüße"}}]);
    assert_eq!(client.request("prompts/get", &params)["result"]["messages"], expected);
    let got = client.request("prompts/get", &modern(params))["result"].clone();
    assert_eq!((&got["resultType"], &got["messages"]), (&json!("complete"), &expected));
    let missing = client.request("prompts/get", &json!({"name": "reviewer_reviewer"}));
    assert_eq!(missing["error"]["code"], json!(-32602));
    assert!(missing["error"]["message"].as_str().unwrap().contains("`diff` is required"), "{missing}");
    let home = client.close().home;
    std::fs::write(home.path().join("config.toml"), "[profiles.default]\nplugins = [\"tool\"]\n").unwrap();
    let mut narrow = Client::start(home);
    assert_eq!(narrow.handshake()["capabilities"], json!({"tools": {"listChanged": true}}));
    narrow.list();
    let denied = narrow.request("prompts/get", &json!({"name": "reviewer_reviewer", "arguments": {"diff": "x"}}));
    assert!(denied["error"]["code"].is_i64(), "{denied}");
    assert!(narrow.close().status.success());
}
