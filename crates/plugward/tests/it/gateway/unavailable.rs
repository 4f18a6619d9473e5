//! Plugins that are not there: the client is told which, why and what a person can do.

use serde_json::json;

use super::client::Client;
use super::starting::Switchable;
use crate::support::{Fixture, TestHost};

#[tokio::test(flavor = "multi_thread")]
async fn instructions_say_which_plugins_are_missing_and_what_helps() {
    let test = TestHost::new().await;
    let unapproved = Fixture::normal("unapproved").package();
    test.host.install(unapproved.path(), None).await.unwrap();
    test.run(&Fixture::normal("off")).await;
    test.host.disable("off").await.unwrap();
    let failing = Switchable::new("failing");
    test.install_package(&failing.package()).await;
    test.host.enable("failing").await.unwrap();
    let home = test.close().await;
    failing.behave(&["crash-on-start"]);

    let mut client = Client::start(home);
    let hello = client.handshake();
    let text = hello["instructions"].as_str().unwrap();
    assert!(text.contains("plugward approve unapproved"), "{text}");
    assert!(text.contains("plugward enable off"), "{text}");
    assert!(text.contains("`failing`: "), "{text}");
    assert!(text.len() <= 4096);
    // What a plugin writes is no instruction to a model (invariant 4).
    assert!(!text.contains("DEMO_API_KEY"), "{text}");
    assert_eq!(client.names(), Vec::<String>::new());
    let off = client.call("off_echo", &json!({"text": "x"}));
    assert_eq!(off["error"]["code"], json!(-32602), "{off}");
    client.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_of_a_plugin_that_broke_off_is_not_available_rather_than_unknown() {
    // B025: the model has to learn that waiting helps, and a person which plugin it is.
    let plugin = Switchable::new("fx");
    let test = TestHost::new().await;
    test.install_package(&plugin.package()).await;
    test.host.enable("fx").await.unwrap();
    let mut client = Client::start(test.close().await);
    client.handshake();
    client.list();
    plugin.behave(&["crash-on-start"]);
    client.call("fx_exit", &json!({}));
    client.await_message(|message| message["method"] == "notifications/tools/list_changed");
    let answer = client.call("fx_fail", &json!({}));
    assert_eq!(answer["result"]["isError"], json!(true), "{answer}");
    assert_eq!(answer["result"]["_meta"]["plugward/error"]["code"], "PLUGIN_HOST_UNAVAILABLE");
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("fx.fail") && text.contains("plugward restart fx"), "{text}");
    client.close();
}
