//! Plugins that are slow, mute or missing while a client connects: nobody waits for them (case B036).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use super::client::Client;
use crate::support::{Fixture, Package, TestHost, fixture};

/// Generous bound for what has to be at once, on a machine that is busy with other tests.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A plugin whose behaviour a test can change between two starts, without a change of what was approved.
pub(super) struct Switchable {
    id: String,
    dir: TempDir,
}

impl Switchable {
    pub(super) fn new(id: &str) -> Self {
        let switchable = Self { id: id.to_owned(), dir: tempfile::tempdir().unwrap() };
        switchable.behave(&["normal"]);
        switchable
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Arguments of the fixture from the next start on.
    pub(super) fn behave(&self, arguments: &[&str]) {
        fs::write(self.dir.path().join("arguments"), arguments.join(" ")).unwrap();
    }

    /// From the next start on there is no such program.
    pub(super) fn vanish(&self) {
        fs::remove_file(self.dir.path().join("arguments")).unwrap();
    }

    pub(super) fn package(&self) -> Package {
        let arguments = self.dir.path().join("arguments");
        let package =
            Fixture::imported(&self.id, &[]).command("./start.sh").backend("startup_timeout_seconds: 20").package();
        let script = format!(
            "#!/bin/sh\narguments=$(cat {}) || exit 127\nexec {} $arguments\n",
            arguments.display(),
            fixture().display()
        );
        let path = package.path().join("start.sh");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        package
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_mute_and_missing_plugins_hold_up_nobody() {
    // B036: one dead server must not freeze the start of an agent.
    let plugins = ["good", "slow", "mute", "gone", "good2"].map(Switchable::new);
    let test = TestHost::new().await;
    for plugin in &plugins {
        plugin.behave(&["order"]);
        test.install_package(&plugin.package()).await;
        test.host.enable(plugin.id()).await.unwrap();
    }
    let home = test.close().await;
    let [_, slow, mute, gone, _] = &plugins;
    slow.behave(&["order", "--seconds", "8"]);
    mute.behave(&["mute-initialize"]);
    gone.vanish();

    let begun = Instant::now();
    let mut client = Client::start(home);
    let hello = client.handshake();
    assert!(begun.elapsed() < AT_ONCE, "`initialize` waited: {:?}", begun.elapsed());
    assert!(hello["instructions"].as_str().unwrap().contains("`slow`: starting"), "{hello}");
    let listed = Instant::now();
    let names = client.names();
    // The wait for plugins that start is 2 s; far below the 8 s and 20 s the bad ones take.
    assert!(listed.elapsed() < AT_ONCE, "the first list waited: {:?}", listed.elapsed());
    let tools_of = |id: &str| ["zz", "aa", "mm"].map(|tool| format!("{id}_{tool}"));
    assert_eq!(names, [tools_of("good"), tools_of("good2")].concat());
    let said = client.text("good2_zz", &json!({}));

    client.await_message(|message| message["method"] == "notifications/tools/list_changed");
    // In its place by the order of installing, not at the end.
    assert_eq!(client.names(), [tools_of("good"), tools_of("slow"), tools_of("good2")].concat());
    assert_eq!(client.text("slow_zz", &json!({})), said);
    assert_eq!(client.text("good_zz", &json!({})), said);
    let end = client.close();
    assert!(end.status.success(), "{}", end.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_to_a_plugin_that_still_starts_waits_for_it_a_little() {
    // Clients that keep their tool list call before the plugin is up again.
    let plugin = Switchable::new("fx");
    let test = TestHost::new().await;
    plugin.behave(&["errors"]);
    test.install_package(&plugin.package()).await;
    test.host.enable("fx").await.unwrap();
    let mut client = Client::start(test.close().await);
    client.handshake();
    let answer = client.call("fx_fine", &json!({}));
    assert_eq!(answer["result"]["content"][0]["text"], "fine", "{answer}");
    client.close();
}
