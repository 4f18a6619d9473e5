//! Public fault reports about lists that change while a server runs: storms, failures, and definitions that are not
//! what somebody agreed to.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::cases_support::call_raw;
use crate::support::{Fixture, Settings, TestHost, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn b039_a_storm_of_changes_that_are_none_costs_few_lists_and_tells_nobody() {
    let test = TestHost::new().await;
    let began = Instant::now();
    test.run(&Fixture::imported("storm", &["list-changed", "--storm", "200", "--on-list"])).await;
    let versions = test.host.tools_version();
    let before = *versions.borrow();
    // The first list, one at once for the storm, and each further one after a longer pause than the last.
    loop {
        let lists: u32 = test.text("storm.count", json!({})).await.parse().unwrap();
        let least = Duration::from_secs(match lists {
            0..=2 => 0,
            3 => 2,
            _ => 6,
        });
        assert!(began.elapsed() >= least, "{lists} lists after {:?}", began.elapsed());
        if lists >= 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(*versions.borrow(), before);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b044_a_definition_that_changed_is_held_until_somebody_looked() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("mail", &["rug-pull"])).await;
    let versions = test.host.tools_version();
    let before = *versions.borrow();
    // The first change only swaps the order of properties: what a person would review is the same.
    assert_eq!(test.text("mail.send", json!({})).await, "sent");
    assert_eq!(test.text("mail.send", json!({})).await, "sent");
    eventually("the changed tool is taken out", || test.tool_names("mail").is_empty().then_some(())).await;
    assert_eq!(*versions.borrow(), before + 1);
    let failure = test.call("mail.send", json!({})).await.outcome.unwrap_err();
    assert_eq!(failure.cause(), "unavailable");
    assert!(failure.message("mail.send").contains("definition changed"), "{failure:?}");
    let view = test.host.plugin("mail").await.unwrap();
    assert_eq!(view.status.as_str(), "ready");
    let held = &view.held_tools[0];
    assert!(held.remote_name == "send" && held.approved_digest.is_some() && held.offered_digest.is_some());
    assert_ne!(held.approved_digest, held.offered_digest);
    let review = test.host.review("mail").await.unwrap();
    assert!(!review.approved && !review.changes.is_empty());
    let tool = review.tools.iter().find(|tool| tool.remote_name == "send").unwrap();
    assert_eq!(tool.state, "changed");
    assert!(tool.description.as_deref().unwrap().contains("BCC"), "{tool:?}");

    // A fresh process shows the old text again, and what was pinned is what is offered.
    let home = test.close().await;
    let test = TestHost::at(home, Settings::default()).await;
    test.host.ensure_started("mail").await.unwrap();
    assert_eq!(test.tool_names("mail"), ["send"]);
    assert!(test.host.plugin("mail").await.unwrap().held_tools.is_empty());
    assert!(test.host.tools()[0].description.starts_with("Sends a mail."));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b044_a_server_that_comes_back_with_another_definition_is_held_too() {
    // The pin survives the host: the new process offers the changed text from its first list on.
    let folder = tempfile::tempdir().unwrap();
    let fixture = Fixture::imported("mail", &[]);
    let plugin = crate::cases_support::Switchable::new(folder.path(), "mail", &fixture, "rug-pull");
    let test = TestHost::new().await;
    plugin.run(&test, "mail").await;
    let home = test.close().await;
    plugin.set("rug-pull --at 1");
    let test = TestHost::at(home, Settings::default()).await;
    test.host.ensure_started("mail").await.unwrap();
    assert!(test.tool_names("mail").is_empty());
    let view = test.host.plugin("mail").await.unwrap();
    assert_eq!((view.status.as_str(), view.held_tools.len()), ("ready", 1));
    // Somebody looked and agreed: the tool is back without another start.
    let generation = test.host.host_status("mail").unwrap().generation;
    test.approve("mail").await;
    assert_eq!(test.tool_names("mail"), ["send"]);
    assert_eq!(test.host.host_status("mail").unwrap().generation, generation);
    assert!(call_raw(&test, "mail.send", None).await.outcome.is_ok());
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b084_a_list_that_fails_later_keeps_the_last_good_one_and_fails_no_other() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("fine", &["never-answers"])).await;
    test.run(&Fixture::imported("flaky", &["list-fails-later"])).await;
    let sick = test.try_run(&Fixture::imported("sick", &["list-fails"])).await.unwrap_err();
    assert!(sick.message.contains("backend database is down"), "{sick}");
    assert!(test.host.plugin("sick").await.unwrap().error.unwrap().contains("backend database is down"));
    let listed = |test: &TestHost| test.host.tools().iter().map(|tool| tool.id.to_string()).collect::<Vec<_>>();
    assert_eq!(listed(&test), ["fine.hang", "fine.say", "flaky.say"]);
    assert_eq!(test.text("flaky.say", json!({})).await, "pong");
    eventually("the failed list is in the log", || {
        let lines = test.host.logs("flaky").unwrap();
        lines.iter().any(|line| line.text.contains("backend database is down")).then_some(())
    })
    .await;
    // Documented policy: stale is better than gone.
    assert_eq!(listed(&test), ["fine.hang", "fine.say", "flaky.say"]);
    assert_eq!(test.text("flaky.say", json!({})).await, "pong");
    assert_eq!(test.host.plugin("flaky").await.unwrap().status.as_str(), "ready");
    test.close().await;
}
