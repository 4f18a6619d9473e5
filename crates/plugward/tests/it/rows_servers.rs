//! Weaknesses that hosts of many servers were seen to have: rows G, each with its input, and the probe of row C1 under
//! calls at the same moment. [`super::rows`] has the list of all rows.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use plugward_host::{CallFailure, ErrorCode};
use serde_json::json;
use tokio::task::JoinSet;

use crate::cases_support::Switchable;
use crate::support::{Fixture, Package, Settings, TestHost, eventually, is_alive, processes_with, request};

// G1: the second of one name is refused, the first runs on, and neither is left when the host ends.
#[tokio::test(flavor = "multi_thread")]
async fn g1_two_servers_of_one_name_leak_no_process() {
    let test = TestHost::new().await;
    let mark = test.home().display().to_string();
    test.run(&Fixture::imported("twin", &["never-answers"])).await;
    let pid = test.host.host_status("twin").unwrap().pid.unwrap();
    let second = Fixture::imported("twin", &["normal"]).package();
    let error = test.host.install(second.path(), None).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::PluginAlreadyInstalled);
    assert_eq!(test.host.host_status("twin").unwrap().pid, Some(pid));
    assert_eq!(test.text("twin.say", json!({})).await, "pong");
    assert!(!processes_with(&mark).is_empty(), "the control");
    test.close().await;
    eventually("nothing is left", || (!is_alive(pid) && processes_with(&mark).is_empty()).then_some(())).await;
}

// G2: tools of equal names are two tools with two names, in the one list there is.
#[tokio::test(flavor = "multi_thread")]
async fn g2_equal_tool_names_are_listed_once_each_and_lead_to_their_own_server() {
    let test = TestHost::new().await;
    for id in ["left", "right"] {
        test.run(&Fixture::imported(id, &["collision", "--me", id])).await;
    }
    let tools = test.host.tools();
    let names: BTreeSet<&String> = tools.iter().map(|tool| &tool.exposed_name).collect();
    assert_eq!((tools.len(), names.len()), (4, 4), "{names:?}");
    for id in ["left", "right"] {
        assert_eq!(test.text(&format!("{id}.send"), json!({})).await, format!("{id}:send"));
    }
    test.close().await;
}

// G3: a server that is none spoils nothing but itself.
#[tokio::test(flavor = "multi_thread")]
async fn g3_a_shell_in_place_of_a_server_keeps_no_other_from_being_found() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("good", &["never-answers"])).await;
    let shell = Fixture::imported("shell", &[]).command("bash").backend("startup_timeout_seconds: 2");
    assert!(test.try_run(&shell).await.is_err());
    test.run(&Fixture::imported("later", &["never-answers"])).await;
    for id in ["good", "later"] {
        assert_eq!(test.text(&format!("{id}.say"), json!({})).await, "pong");
    }
    test.assert_nothing_left("shell");
    test.close().await;
}

// G4: a server that was dead at the first try is tried again, by itself.
#[tokio::test(flavor = "multi_thread")]
async fn g4_a_dead_server_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let test = TestHost::new().await;
    let plugin = Switchable::new(folder.path(), "fx", &Fixture::imported("fx", &[]), "never-answers");
    plugin.run(&test, "fx").await;
    let home = test.close().await;
    plugin.set("crash-on-start --code 3");
    let settings = Settings { restart_base_delay: Duration::from_millis(200), ..Settings::default() };
    let test = TestHost::at(home, settings).await;
    test.host.start_enabled();
    eventually("the first try failed", || test.host.host_status("fx").unwrap().next_start_in).await;
    plugin.set("never-answers");
    test.ready_soon("fx").await;
    assert_eq!(test.text("fx.say", json!({})).await, "pong");
    test.close().await;
}

// G5: servers that say nothing are waited for at the same time, and not one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn g5_mute_servers_are_started_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let test = TestHost::new().await;
    let mut plugins = Vec::new();
    for id in ["a", "b", "c"] {
        let plugin = Switchable::new(folder.path(), id, &Fixture::imported(id, &[]), "never-answers");
        plugin.run(&test, id).await;
        plugins.push(plugin);
    }
    test.run(&Fixture::imported("quick", &["never-answers"])).await;
    let home = test.close().await;
    plugins.iter().for_each(|plugin| plugin.set("mute-initialize"));
    let test = TestHost::at(home, Settings::default()).await;
    test.host.start_enabled();
    // All of them have their process while none has said a word.
    let all_wait = || {
        ["a", "b", "c"].iter().all(|id| {
            let is_starting = test.host.host_status(id).unwrap().status.as_str() == "starting";
            is_starting && !test.processes_of(id).is_empty()
        })
    };
    eventually("all of them are waited for at once", || all_wait().then_some(())).await;
    test.ready_soon("quick").await;
    assert!(all_wait(), "the one that speaks did not wait for those that do not");
    test.close().await;
}

// G6: a link out of a package is none, a map where a list belongs is told, and arguments and variables are what the file
// says.
#[tokio::test(flavor = "multi_thread")]
async fn g6_files_are_read_as_they_are_written_and_links_lead_nowhere() {
    let test = TestHost::new().await;
    let block = "id: fx\nname: Block\nversion: 1.0.0\nbackend:\n  type: mcp\n  transport: stdio\n  command: mcp-fixture\n  \
                 args:\n    - show\n    - --env\n    - ONE,TWO\n    - --\n    - \"a # b\" # c\n    - 'it''s'\n  env:\n    \
                 ONE: \"x # y\"\n    TWO: 1.10\n";
    test.install_package(&Package::with_manifest(block)).await;
    test.host.enable("fx").await.unwrap();
    assert_eq!(test.text("fx.show", json!({})).await, json!([["a # b", "it's"], ["x # y", "1.10"]]).to_string());
    let map = block.replace("id: fx", "id: map").replace("    - show\n", "    first: show\n");
    let map = map.split("    - --env").next().unwrap().to_owned();
    let error = test.host.install(Package::with_manifest(&map).path(), None).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::PluginManifestInvalid);
    assert!(error.message.contains("backend.args: expected a list"), "{}", error.message);
    // A package that is reached through a link is the one behind it; a link out of it is told, and leads nowhere inside.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("letter"), "planted").unwrap();
    let package = Fixture::imported("linked", &["attempts"]).package();
    symlink(elsewhere.path().join("letter"), package.path().join("letter")).unwrap();
    let link = elsewhere.path().join("package");
    symlink(package.path(), &link).unwrap();
    test.host.install(&link, None).await.unwrap();
    let review = test.host.review("linked").await.unwrap();
    assert!(format!("{review:?}").contains("letter -> "), "{review:?}");
    test.approve("linked").await;
    test.host.enable("linked").await.unwrap();
    let read = test.text("linked.attempt", json!({ "kind": "read", "target": "letter" })).await;
    assert!(!read.contains("planted"), "{read}");
    test.close().await;
}

// C1: of calls that come together after the pause one goes through, and the others are told to wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn c1_one_of_three_calls_is_the_probe() {
    let mut settings = Settings::default();
    settings.supervision.breaker_failures = 1;
    settings.supervision.breaker_open = Duration::from_millis(500);
    settings.supervision.start_limit = 100;
    let test = TestHost::with(settings).await;
    test.run(&Fixture::imported("fx", &["fates"])).await;
    for round in 1..=3 {
        let death = test.call("fx.act", json!({ "n": 1, "fate": "die" })).await;
        assert!(matches!(death.outcome, Err(CallFailure::Unavailable { .. })));
        eventually("it is up again, and its pause is over", || {
            let status = test.host.host_status("fx").unwrap();
            let is_up = status.restarts == round && !test.tool_names("fx").is_empty();
            (is_up && status.breaker.retry_after.is_none()).then_some(())
        })
        .await;
        assert_eq!(test.host.host_status("fx").unwrap().breaker.state.as_str(), "open");
        let calls = (0..3).map(|number| {
            let host = test.host.clone();
            let arguments = json!({ "n": number, "fate": "slow", "ms": 1500 });
            async move { host.call(request("fx.act", arguments)).await.outcome.map(drop) }
        });
        let ends = calls.collect::<JoinSet<_>>().join_all().await;
        let went_through = ends.iter().filter(|end| end.is_ok()).count();
        let refused = ends.iter().filter(|end| matches!(end, Err(CallFailure::CircuitOpen { .. }))).count();
        assert_eq!((went_through, refused), (1, 2), "{ends:?}");
        assert_eq!(test.host.host_status("fx").unwrap().breaker.state.as_str(), "closed");
    }
    test.close().await;
}
