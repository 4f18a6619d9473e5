//! The supervisor where people rely on it: plugins that sleep, hang, are restarted under load, or are given up.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use plugward_host::{Answer, CallReport, SupervisionSettings};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::cases_support::{Switchable, script};
use crate::support::{Fixture, PATIENCE, Package, Settings, TestHost, eventually, is_alive, request};

/// Settings with `change` made to the usual supervision.
fn supervised(change: impl FnOnce(&mut SupervisionSettings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings.supervision);
    settings
}

fn said(report: CallReport) -> Value {
    match report.outcome {
        Ok(reply) => reply.output()["content"][0]["text"].clone(),
        Err(failure) => panic!("{}", failure.message("call")),
    }
}

fn reason(report: CallReport) -> String {
    report.outcome.expect_err("the call succeeded").message("x")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lazy_plugin_lists_its_tools_asleep_and_ten_first_calls_share_one_start() {
    // Issue 4, item 5: a hundred plugins must not cost a hundred processes before anybody calls one.
    let test = TestHost::new().await;
    test.run(&Fixture::normal("fx").extra("supervision:\n  lazy: true\n")).await;
    let listed = test.tool_names("fx");
    let before = test.host.host_status("fx").unwrap().generation;
    let home = test.close().await;

    let test = TestHost::at(home, Settings::default()).await;
    test.host.start_enabled();
    eventually("it sleeps", || test.host.host_status("fx").unwrap().is_asleep.then_some(())).await;
    assert_eq!(test.tool_names("fx"), listed);
    let status = test.host.host_status("fx").unwrap();
    assert_eq!((status.pid, status.status.as_str()), (None, "stopped"));
    let view = test.host.plugin("fx").await.unwrap();
    assert_eq!(view.status.as_str(), "ready");
    assert!(view.activity.starts_with("asleep, 0 calls running") && view.detail.contains("the next call"), "{view:?}");

    // Arguments that do not fit wake nobody.
    let refused = test.call("fx.echo", json!({"text": 1})).await;
    assert_eq!(refused.outcome.unwrap_err().cause(), "argument_invalid");
    assert!(test.host.host_status("fx").unwrap().is_asleep);

    let version = test.host.snapshot().version();
    let mut calls = JoinSet::new();
    for number in 0..10 {
        let host = test.host.clone();
        let call = async move { host.call(request("fx.echo", json!({"text": format!("{number}")}))).await };
        calls.spawn(async move { (number, call.await) });
    }
    for (number, report) in calls.join_all().await {
        assert_eq!(report.outcome.unwrap().output(), json!({"echo": format!("{number}")}));
    }
    let status = test.host.host_status("fx").unwrap();
    assert_eq!((status.generation, status.is_asleep), (before + 1, false));
    assert!(status.pid.is_some_and(is_alive));
    // The list is the same, so that no client is told to read it again.
    assert_eq!(test.host.snapshot().version(), version);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_wake_tells_every_waiting_call_why() {
    let folder = tempfile::tempdir().unwrap();
    let test = TestHost::new().await;
    let fixture = Fixture::imported("fx", &[]).extra("supervision:\n  lazy: true\n");
    let plugin = Switchable::new(folder.path(), "fx", &fixture, "never-answers");
    plugin.run(&test, "fx").await;
    let home = test.close().await;
    plugin.set("crash-on-start --code 3");

    let settings = Settings { restart_base_delay: Duration::from_secs(30), ..Settings::default() };
    let test = TestHost::at(home, settings).await;
    test.host.start_enabled();
    eventually("it sleeps", || test.host.host_status("fx").unwrap().is_asleep.then_some(())).await;
    let calls = (0..5).map(|_| {
        let host = test.host.clone();
        async move { host.call(request("fx.say", json!({}))).await }
    });
    let reasons: Vec<String> = calls.collect::<JoinSet<_>>().join_all().await.into_iter().map(reason).collect();
    for reason in &reasons {
        assert!(reason.contains("not available") && reason.contains("failed to initialize"), "{reasons:?}");
    }
    eventually("the next start is planned", || test.host.host_status("fx").unwrap().next_start_in).await;
    assert!(!test.host.host_status("fx").unwrap().is_asleep);
    assert!(test.tool_names("fx").is_empty());
    // A person mends it, and it is there again.
    plugin.set("never-answers");
    test.host.restart("fx").await.unwrap();
    assert_eq!(said(test.call("fx.say", json!({})).await), "pong");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_a_plugin_that_is_being_woken_loses_none_of_the_calls_that_wait() {
    // Issue 4, item 5: a restart loses no call, whatever state it finds the plugin in.
    let folder = tempfile::tempdir().unwrap();
    let test = TestHost::new().await;
    let fixture = Fixture::imported("fx", &[]).extra("supervision:\n  lazy: true\n");
    let plugin = Switchable::new(folder.path(), "fx", &fixture, "never-answers");
    plugin.run(&test, "fx").await;
    let home = test.close().await;
    plugin.set("mute-initialize");
    let test = TestHost::at(home, Settings::default()).await;
    test.host.start_enabled();
    eventually("it sleeps", || test.host.host_status("fx").unwrap().is_asleep.then_some(())).await;
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let host = test.host.clone();
            tokio::spawn(async move { host.call(request("fx.say", json!({}))).await })
        })
        .collect();
    let is_starting = || test.host.host_status("fx").unwrap().status.as_str() == "starting";
    eventually("a call wakes it", || is_starting().then_some(())).await;
    plugin.set("never-answers");
    test.host.restart("fx").await.unwrap();
    for call in calls {
        assert_eq!(said(call.await.unwrap()), "pong");
    }
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switched_off_plugin_that_is_being_woken_tells_its_calls() {
    let folder = tempfile::tempdir().unwrap();
    let test = TestHost::new().await;
    let fixture = Fixture::imported("fx", &[]).extra("supervision:\n  lazy: true\n");
    let plugin = Switchable::new(folder.path(), "fx", &fixture, "never-answers");
    plugin.run(&test, "fx").await;
    let home = test.close().await;
    plugin.set("mute-initialize");
    let test = TestHost::at(home, Settings::default()).await;
    test.host.start_enabled();
    eventually("it sleeps", || test.host.host_status("fx").unwrap().is_asleep.then_some(())).await;
    let host = test.host.clone();
    let call = tokio::spawn(async move { host.call(request("fx.say", json!({}))).await });
    let is_starting = || test.host.host_status("fx").unwrap().status.as_str() == "starting";
    eventually("a call wakes it", || is_starting().then_some(())).await;
    test.host.disable("fx").await.unwrap();
    let told = reason(tokio::time::timeout(PATIENCE, call).await.unwrap().unwrap());
    assert!(told.contains("it was stopped"), "{told}");
    assert!(test.tool_names("fx").is_empty() && !test.host.host_status("fx").unwrap().is_asleep);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_plugin_falls_asleep_while_a_person_is_asked_has_the_time_of_a_start() {
    // Requirement 82: the limit of the tool is not used up by a start that its caller knows nothing of.
    let folder = tempfile::tempdir().unwrap();
    let (slow, tools) = (folder.path().join("slow"), folder.path().join("tools.json"));
    let ask = json!([{"name": "write", "inputSchema": {"type": "object"},
        "_meta": {"notesagent/permission": "notes.write"}}]);
    std::fs::write(&tools, ask.to_string()).unwrap();
    let fixture = Fixture::imported("fx", &[]).permission("notes.write").backend("tool_timeout_seconds: 4");
    let fixture = fixture.extra("supervision:\n  idle_stop_seconds: 3\n");
    let package = fixture.command("./run.sh").package();
    let text = format!(
        "#!/bin/sh\ntest -e '{}' && sleep 3\nexec mcp-fixture schema --file '{}'\n",
        slow.display(),
        tools.display()
    );
    script(&package.path().join("run.sh"), &text);
    let test = TestHost::new().await;
    test.install_package(&package).await;
    test.host.enable("fx").await.unwrap();
    std::fs::write(&slow, "").unwrap();
    let host = test.host.clone();
    let call = tokio::spawn(async move { host.call(request("fx.write", json!({}))).await });
    let ask = eventually("a person is asked", || test.host.pending_asks().pop()).await;
    assert!(!test.host.host_status("fx").unwrap().is_asleep, "the call began with a process");
    eventually("it sleeps", || test.host.host_status("fx").unwrap().is_asleep.then_some(())).await;
    test.host.answer(&ask.request_id, Answer::AllowOnce).unwrap();
    assert!(said(call.await.unwrap()).as_str().unwrap().contains("write"));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_plugin_gives_its_memory_back_and_the_next_call_finds_it() {
    let test = TestHost::new().await;
    let fixture = Fixture::imported("fx", &["never-answers"]).extra("supervision:\n  idle_stop_seconds: 1\n");
    test.run(&fixture).await;
    let (pid, version) = (test.host.host_status("fx").unwrap().pid.unwrap(), test.host.snapshot().version());
    for _ in 0..2 {
        eventually("it sleeps", || test.host.host_status("fx").unwrap().is_asleep.then_some(())).await;
        eventually("its process ended", || (!is_alive(pid)).then_some(())).await;
        assert_eq!(test.tool_names("fx"), ["hang", "say"]);
        assert_eq!(said(test.call("fx.say", json!({})).await), "pong");
        assert_ne!(test.host.host_status("fx").unwrap().pid, Some(pid));
    }
    assert_eq!(test.host.snapshot().version(), version);
    // Sleeping is on: a disable ends it like anything that runs.
    eventually("it sleeps", || test.host.host_status("fx").unwrap().is_asleep.then_some(())).await;
    test.host.disable("fx").await.unwrap();
    assert!(test.tool_names("fx").is_empty() && !test.host.host_status("fx").unwrap().is_asleep);
    assert_eq!(test.call("fx.say", json!({})).await.outcome.unwrap_err().cause(), "tool_not_found");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_is_lost_to_a_plugin_that_falls_asleep_all_the_time() {
    // The moment between the last look and the closed door must not cost anybody a call.
    let test = TestHost::new().await;
    let fixture = Fixture::imported("fx", &["never-answers"]).extra("supervision:\n  idle_stop_seconds: 1\n");
    test.run(&fixture).await;
    for round in 0..6 {
        tokio::time::sleep(Duration::from_millis(985 + 5 * round)).await;
        assert_eq!(said(test.call("fx.say", json!({})).await), "pong", "round {round}");
    }
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_answers_no_ping_is_started_anew_and_one_that_knows_none_is_left_alone() {
    let settings = supervised(|supervision| supervision.ping_every = Duration::from_millis(300));
    let test = TestHost::with(settings).await;
    test.run(&Fixture::imported("fx", &["goes-mute"])).await;
    test.run(&Fixture::imported("old", &["goes-mute", "--no-ping"])).await;
    let (pid, old) = (test.host.host_status("fx").unwrap().pid, test.host.host_status("old").unwrap().pid);
    // It is asked once, and says that it knows no pings.
    let seen = || test.host.host_status("old").unwrap().last_seen_at;
    let at_start = seen();
    eventually("the old one was asked", || (seen() != at_start).then_some(())).await;
    for id in ["fx", "old"] {
        said(test.call(&format!("{id}.mute"), json!({})).await);
    }
    eventually("it was started anew", || {
        let status = test.host.host_status("fx").unwrap();
        (status.pid.is_some() && status.pid != pid && status.status.as_str() == "ready").then_some(())
    })
    .await;
    assert_eq!(said(test.call("fx.say", json!({})).await), "pong");
    let logs: Vec<String> = test.host.logs("fx").unwrap().into_iter().map(|line| line.text).collect();
    assert!(logs.iter().any(|line| line.contains("answered none of 2 pings")), "{logs:?}");
    let status = test.host.host_status("old").unwrap();
    assert_eq!((status.pid, status.restarts), (old, 0));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_restart_under_load_loses_no_call() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("fx", &["slow-fast", "--seconds", "0.5"]).backend("max_concurrent_calls: 8")).await;
    let first = test.host.host_status("fx").unwrap().pid.unwrap();
    let mut calls = JoinSet::new();
    let stop = tokio_util::sync::CancellationToken::new();
    for worker in 0..16 {
        let (host, stop) = (test.host.clone(), stop.clone());
        calls.spawn(async move {
            let (mut made, tool) = (0, if worker % 4 == 0 { "fx.slow" } else { "fx.fast" });
            while !stop.is_cancelled() {
                let report = host.call(request(tool, json!({"k": worker}))).await;
                if let Err(failure) = report.outcome {
                    panic!("call {made} of worker {worker}: {}", failure.message(tool));
                }
                made += 1;
            }
            made
        });
    }
    let mut pids = BTreeSet::from([first]);
    for _ in 0..4 {
        let status = test.host.restart("fx").await.unwrap();
        assert_eq!(status.status.as_str(), "ready");
        assert!(pids.insert(status.pid.unwrap()), "the process is the same");
    }
    stop.cancel();
    let made: usize = calls.join_all().await.into_iter().sum();
    assert!(made > 50, "{made} calls show nothing");
    let last = test.host.host_status("fx").unwrap().pid.unwrap();
    assert!(pids.iter().filter(|pid| **pid != last).all(|pid| !is_alive(*pid)), "an old process was left");
    assert_eq!(test.host.host_status("fx").unwrap().restarts, 0, "a person's restarts are no crashes");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_replaced_without_cutting_its_runs_short() {
    let test = TestHost::new().await;
    let manifest = "type: mcp_tool\nname: nap\ndescription: takes a moment\nworking_directory: plugin\n\
                    command: [sleep, \"1.5\"]\n";
    test.install_package(&Package::with_manifest(manifest)).await;
    test.host.enable("nap").await.unwrap();
    let host = test.host.clone();
    let call = tokio::spawn(async move { host.call(request("nap.nap", json!({}))).await });
    eventually("it runs", || (test.host.host_status("nap").unwrap().calls_running == 1).then_some(())).await;
    test.host.restart("nap").await.unwrap();
    let reply = call.await.unwrap().outcome.unwrap_or_else(|failure| panic!("{}", failure.message("nap.nap")));
    assert!(!reply.is_error, "{}", reply.output());
    assert_eq!(test.tool_names("nap"), ["nap"]);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exclusive_plugin_is_stopped_before_its_successor_starts() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("fx", &["never-answers"]).extra("supervision:\n  exclusive: true\n")).await;
    let old = test.host.host_status("fx").unwrap().pid.unwrap();
    test.host.restart("fx").await.unwrap();
    let lines: Vec<String> = test.host.logs("fx").unwrap().into_iter().map(|line| line.text).collect();
    assert!(!is_alive(old) && !lines.iter().any(|line| line.starts_with("replaced")), "{lines:?}");
    assert_eq!(said(test.call("fx.say", json!({})).await), "pong");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_that_cannot_run_beside_the_old_process_falls_back_and_tells_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let test = TestHost::new().await;
    let plugin = Switchable::new(folder.path(), "fx", &Fixture::imported("fx", &[]), "never-answers");
    plugin.run(&test, "fx").await;
    let old = test.host.host_status("fx").unwrap().pid.unwrap();
    plugin.set("crash-on-start --code 3");
    let error = test.host.restart("fx").await.unwrap_err();
    assert!(error.message.contains("failed to initialize"), "{error:?}");
    assert!(!is_alive(old) && test.tool_names("fx").is_empty());
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disable_cuts_a_restart_short_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let test = TestHost::new().await;
    let plugin = Switchable::new(folder.path(), "fx", &Fixture::imported("fx", &[]), "never-answers");
    plugin.run(&test, "fx").await;
    let old = test.host.host_status("fx").unwrap().pid.unwrap();
    plugin.set("mute-initialize");
    let host = test.host.clone();
    let restarting = tokio::spawn(async move { host.restart("fx").await });
    eventually("the second process is started", || {
        let starts = test.host.logs("fx").unwrap().iter().filter(|line| line.text.starts_with("started, pid")).count();
        (starts == 2).then_some(())
    })
    .await;
    // The old process serves meanwhile.
    assert_eq!(said(test.call("fx.say", json!({})).await), "pong");
    let begun = Instant::now();
    test.host.disable("fx").await.unwrap();
    assert!(begun.elapsed() < PATIENCE / 2);
    assert!(restarting.await.unwrap().is_err());
    assert!(!is_alive(old) && test.tool_names("fx").is_empty());
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_keeps_dying_ends_in_error_with_its_last_words_where_people_look_and_not_in_calls() {
    // Requirement 80, B023: the storm ends, and the reason is found.
    let settings = supervised(|supervision| supervision.start_limit = 2);
    let test = TestHost::with(settings).await;
    test.run(&Fixture::imported("fx", &["fates"])).await;
    for restarts in 0..3 {
        let is_up = || test.host.host_status("fx").unwrap().restarts == restarts && !test.tool_names("fx").is_empty();
        eventually("it is up", || is_up().then_some(())).await;
        let report = test.call("fx.act", json!({"n": 1, "fate": "die"})).await;
        let text = reason(report);
        assert!(!text.contains("as told"), "stderr reached an answer: {text}");
    }
    let status = eventually("it is given up", || {
        let status = test.host.host_status("fx").unwrap();
        (status.status.as_str() == "error").then_some(status)
    })
    .await;
    assert_eq!((status.restarts, status.next_start_in), (2, None));
    let view = test.host.plugin("fx").await.unwrap();
    assert_eq!(view.status.as_str(), "error");
    assert!(view.detail.contains("given up after 2 attempts") && !view.detail.contains("as told"), "{}", view.detail);
    let words: Vec<String> = test.host.last_words("fx").unwrap().into_iter().map(|line| line.text).collect();
    assert_eq!(words, ["dying as told"]);
    let text = reason(test.call("fx.act", json!({"n": 1})).await);
    assert!(text.contains("given up") && !text.contains("as told"), "{text}");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_sets_its_breaker_and_business_errors_never_trip_it() {
    // C2, C4: the number that is written counts, and a tool that fails at its task is no plugin that fails.
    let test = TestHost::new().await;
    let extra = "supervision:\n  breaker_failures: 2\n  breaker_open_seconds: 3\n  start_limit: 100\n";
    test.run(&Fixture::imported("fx", &["fates"]).extra(extra)).await;
    for number in 0..10 {
        for fate in ["fail", "refuse"] {
            let _ = test.call("fx.act", json!({"n": number, "fate": fate})).await;
        }
        let _ = test.call("fx.act", json!({"n": "no number"})).await;
    }
    assert_eq!(test.host.host_status("fx").unwrap().breaker.failures, 0);
    let is_up = |restarts: u32| {
        let is_up = test.host.host_status("fx").unwrap().restarts == restarts && !test.tool_names("fx").is_empty();
        is_up.then_some(())
    };
    for restarts in 0..2 {
        eventually("it is up", || is_up(restarts)).await;
        assert_eq!(
            test.call("fx.act", json!({"n": 1, "fate": "die"})).await.outcome.unwrap_err().cause(),
            "unavailable"
        );
    }
    eventually("it is up", || is_up(2)).await;
    let status = test.host.host_status("fx").unwrap();
    assert!(status.activity().contains("breaker open (for "), "{}", status.activity());
    assert_eq!(test.call("fx.act", json!({"n": 1})).await.outcome.unwrap_err().cause(), "circuit_open");
    eventually("the pause is over", || {
        test.host.host_status("fx").unwrap().breaker.retry_after.is_none().then_some(())
    })
    .await;
    assert_eq!(said(test.call("fx.act", json!({"n": 7})).await), "7");
    assert_eq!(test.host.host_status("fx").unwrap().breaker.state.as_str(), "closed");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_floods_a_plugin_does_not_keep_another_waiting() {
    // Issue 4: fair shares between callers.
    let test = TestHost::new().await;
    test.run(&Fixture::imported("fx", &["slow-fast", "--seconds", "0.2"]).backend("max_concurrent_calls: 1")).await;
    let call_as = |session: u64| {
        let host = test.host.clone();
        let mut call = request("fx.slow", json!({}));
        call.session = session;
        async move { host.call(call).await.outcome.map(drop).map_err(|failure| failure.message("fx.slow")) }
    };
    let mut flood = JoinSet::new();
    for _ in 0..20 {
        flood.spawn(call_as(1));
    }
    eventually("the flood waits", || (test.host.host_status("fx").unwrap().calls_waiting == 19).then_some(())).await;
    call_as(2).await.unwrap();
    let waiting = test.host.host_status("fx").unwrap().calls_waiting;
    assert!(waiting >= 14, "the other call came after all but {waiting} of the flood");
    flood.abort_all();
    test.close().await;
}
