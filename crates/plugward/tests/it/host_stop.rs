//! The end of a plugin: on purpose, by accident, and with the host (requirements 20, 50-57, 97, 115-117, 144; B023, B041).

use std::time::{Duration, Instant};

use plugward_host::{ErrorCode, HostEvent};
use serde_json::json;

use crate::support::marks::Marks;
use crate::support::{Fixture, NORMAL_TOOLS, Settings, TestHost, eventually, is_alive, plugward, request};

/// The ladder has 2 s for each of three steps; this is generous and still tells a bound from none.
const LADDER_BOUND: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn requirement_50_tools_go_first_then_stdin_closes_then_it_is_waited_for() {
    // A plugin that cleans up for 1 s after the end of its stdin: it is neither killed nor kept in the registry.
    for end in ["disable", "remove", "shutdown"] {
        let test = TestHost::new().await;
        let marks = Marks::new();
        let args = ["slow-exit", "--seconds", "1", "--flag", &marks.arg("flag"), "--pid-file", &marks.arg("pid")];
        test.run(&Fixture::imported("fx", &args)).await;
        let pid = marks.pid_soon("pid").await;
        let mut changes = test.host.tools_version();
        changes.mark_unchanged();
        let host = test.host.clone();
        let ending = tokio::spawn(async move {
            match end {
                "disable" => drop(host.disable("fx").await.unwrap()),
                "remove" => host.remove("fx").await.unwrap(),
                _ => host.shutdown().await,
            }
        });
        changes.changed().await.unwrap();
        assert_eq!(test.tool_names("fx"), [""; 0], "{end}");
        assert!(is_alive(pid) && !marks.exists("flag"), "{end}: the process ended before its tools were gone");
        ending.await.unwrap();
        assert!(!is_alive(pid), "{end}");
        assert_eq!(marks.read("flag"), "clean", "{end}: it was not left the time to clean up");
        test.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_51_97_what_does_not_want_to_end_is_ended_with_its_whole_tree() {
    let modes: [(&str, &[&str]); 5] = [
        ("eof", &["ignores-eof"]),
        ("term", &["ignores-term"]),
        ("daemon", &["forks-daemon"]),
        ("session", &["forks-daemon", "--new-session"]),
        ("pipes", &["forks-daemon", "--new-session", "--hold-pipes"]),
    ];
    let test = TestHost::new().await;
    let marks = Marks::new();
    let mut pid_files = Vec::new();
    for (id, mode) in modes {
        let mut args: Vec<String> = mode.iter().map(|arg| (*arg).to_owned()).collect();
        args.extend(["--pid-file".to_owned(), marks.arg(id)]);
        pid_files.push(id.to_owned());
        if mode[0] == "forks-daemon" {
            args.extend(["--daemon-pid-file".to_owned(), marks.arg(&format!("{id}-child"))]);
            pid_files.push(format!("{id}-child"));
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        test.run(&Fixture::imported(id, &args)).await;
    }
    for file in &pid_files {
        // Positive control: all of them run, the ones that left their session included.
        assert!(is_alive(marks.pid_soon(file).await), "{file}");
    }
    let mut stops = tokio::task::JoinSet::new();
    for (id, _) in modes {
        let host = test.host.clone();
        stops.spawn(async move { host.disable(id).await.unwrap() });
    }
    let begun = Instant::now();
    stops.join_all().await;
    assert!(begun.elapsed() < LADDER_BOUND);
    for file in &pid_files {
        assert!(!is_alive(marks.pid(file).unwrap()), "{file} outlived its plugin");
    }
    for (id, _) in modes {
        test.assert_nothing_left(id);
        assert_eq!(test.states(id).await, ("disabled", "stopped"));
    }
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_with_five_stubborn_plugins_takes_as_long_as_one() {
    // N11: six seconds for each, one after the other, would be half a minute.
    let test = TestHost::new().await;
    for id in ["a", "b", "c", "d", "e"] {
        test.run(&Fixture::imported(id, &["ignores-term"])).await;
    }
    let begun = Instant::now();
    test.host.shutdown().await;
    assert!(begun.elapsed() < LADDER_BOUND, "{:?}", begun.elapsed());
    for id in ["a", "b", "c", "d", "e"] {
        assert_eq!(test.processes_of(id), [0; 0]);
    }
    let refused = test.host.enable("a").await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::HostStopping);
    let report = test.call("a.say", json!({})).await;
    assert_eq!(report.outcome.unwrap_err().code(), ErrorCode::HostStopping);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_in_flight_finish_before_an_orderly_stop() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("fx", &["slow-fast", "--seconds", "1"])).await;
    let host = test.host.clone();
    let call = tokio::spawn(async move { host.call(request("fx.slow", json!({}))).await });
    eventually("the call is under way", || (test.host.host_status("fx").unwrap().calls_running == 1).then_some(()))
        .await;
    test.host.disable("fx").await.unwrap();
    assert_eq!(call.await.unwrap().outcome.unwrap().output()["content"][0]["text"], "slow");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_in_the_queue_are_sent_away_by_an_orderly_stop() {
    // A queue that kept moving would use up the whole time for calls in flight, and be cut off in the middle of one.
    let test = TestHost::new().await;
    test.run(&Fixture::imported("fx", &["slow-fast", "--seconds", "1"]).backend("max_concurrent_calls: 1")).await;
    let call = || {
        let host = test.host.clone();
        tokio::spawn(async move { host.call(request("fx.slow", json!({}))).await })
    };
    let first = call();
    let has = |running, waiting| {
        let status = test.host.host_status("fx").unwrap();
        ((status.calls_running, status.calls_waiting) == (running, waiting)).then_some(())
    };
    eventually("the call is under way", || has(1, 0)).await;
    let queued = call();
    eventually("the second one waits", || has(1, 1)).await;
    test.host.disable("fx").await.unwrap();
    assert!(first.await.unwrap().outcome.is_ok());
    let failure = queued.await.unwrap().outcome.unwrap_err();
    assert_eq!(failure.code(), ErrorCode::PluginHostUnavailable, "{failure:?}");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_52_to_56_123_a_crash_and_the_way_back() {
    // Requirement 20: tools are gone at once, everybody who waits is told, and a person's restart brings them back.
    let test = TestHost::new().await;
    test.run(&Fixture::normal("fx").backend("restart: never")).await;
    let host = test.host.clone();
    let waiting = tokio::spawn(async move { host.call(request("fx.sleep", json!({"seconds": 20}))).await });
    eventually("the sleep is under way", || (test.host.host_status("fx").unwrap().calls_running == 1).then_some(()))
        .await;
    let report = test.call("fx.exit", json!({})).await;
    assert_eq!(report.outcome.unwrap_err().code(), ErrorCode::PluginHostUnavailable);
    let failure = waiting.await.unwrap().outcome.unwrap_err();
    assert_eq!(failure.code(), ErrorCode::PluginHostUnavailable, "{failure:?}");
    test.status_soon("fx", "unhealthy").await;
    // The tools go at once; how the process ended is known a moment later.
    assert_eq!(test.tool_names("fx"), [""; 0]);
    eventually("its exit code is told", || {
        let error = test.host.host_status("fx").unwrap().error;
        error.is_some_and(|error| error.contains("exit code 17")).then_some(())
    })
    .await;
    assert_eq!(test.host.plugin("fx").await.unwrap().status.as_str(), "error");
    eventually("it is gone", || test.processes_of("fx").is_empty().then_some(())).await;
    test.assert_nothing_left("fx");
    let failure = test.call("fx.echo", json!({"text": "x"})).await.outcome.unwrap_err();
    assert_eq!(failure.code(), ErrorCode::PluginHostUnavailable, "{failure:?}");
    let status = test.host.restart("fx").await.unwrap();
    assert_eq!((status.status.as_str(), status.tools_count, status.error), ("ready", 6, None));
    assert_eq!(test.tool_names("fx"), NORMAL_TOOLS);
    assert_eq!(test.output("fx.echo", json!({"text": "x"})).await, json!({"echo": "x"}));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirements_3_20_a_killed_plugin_comes_back_by_itself() {
    // B023: by default a plugin that fell over is started again, and the trouble is forgotten once it runs.
    let test = TestHost::new().await;
    let first = test.run(&Fixture::normal("fx")).await;
    assert_eq!(first.restarts, 0);
    let before = test.host.host_status("fx").unwrap();
    kill(before.pid.unwrap());
    eventually("it runs again", || {
        let now = test.host.host_status("fx").unwrap();
        (now.status.as_str() == "ready" && now.generation > before.generation).then_some(())
    })
    .await;
    assert_eq!(test.output("fx.echo", json!({"text": "x"})).await, json!({"echo": "x"}));
    let view = test.host.plugin("fx").await.unwrap();
    assert_eq!((view.restarts, view.error, view.tools_count), (1, None, 6));
    let home = test.close().await;
    let again = TestHost::at(home, Settings::default()).await;
    assert_eq!(again.host.plugin("fx").await.unwrap().error, None, "an error that was overcome is still shown");
    again.close().await;
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_never_recovers_is_given_up_and_a_person_can_still_restart_it() {
    // B023: the storm of restarts ends, and says what to do.
    let settings = Settings { restart_base_delay: Duration::from_millis(5), ..Settings::default() };
    let test = TestHost::with(settings).await;
    let marks = Marks::new();
    // Good at the first start only: what was approved and enabled breaks later.
    marks.mend();
    let plugin = marks.mending("fx", &["crash-on-start"]);
    test.run(&plugin).await;
    std::fs::remove_file(marks.path("good")).unwrap();
    kill(test.host.host_status("fx").unwrap().pid.unwrap());
    test.status_soon("fx", "error").await;
    eventually("it is given up", || {
        let lines = test.host.logs("fx").unwrap();
        (lines.iter().filter(|line| line.text.starts_with("start failed")).count() == 5).then_some(())
    })
    .await;
    let view = test.host.plugin("fx").await.unwrap();
    assert_eq!((view.status.as_str(), view.restarts, view.enabled), ("error", 5, true));
    assert!(view.detail.contains("given up") && view.detail.contains("plugward restart fx"), "{}", view.detail);
    test.assert_nothing_left("fx");
    marks.mend();
    assert_eq!(test.host.restart("fx").await.unwrap().status.as_str(), "ready");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_117_restart_revives_nothing_that_is_not_switched_on() {
    // Requirement 133. Never enabled, waiting for a grant, and switched off by a person.
    let test = TestHost::new().await;
    let refused = async |id: &str| {
        let error = test.host.restart(id).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::PluginHostUnavailable, "{id}: {error}");
        assert!(error.hint.unwrap().contains("plugward enable"), "{id}");
        test.assert_nothing_left(id);
    };
    test.install(&Fixture::normal("never")).await;
    refused("never").await;
    test.host.install(Fixture::normal("waits").package().path(), None).await.unwrap();
    refused("waits").await;
    test.run(&Fixture::normal("off")).await;
    test.host.disable("off").await.unwrap();
    refused("off").await;
    assert_eq!(test.states("off").await, ("disabled", "stopped"));
    // Requirement 144: neither does the next start of the host.
    let again = TestHost::at(test.close().await, Settings::default()).await;
    again.host.start_enabled();
    again.host.settled(Duration::from_secs(10)).await;
    for (id, status) in [("never", "installed"), ("waits", "permission_required"), ("off", "disabled")] {
        assert_eq!(again.states(id).await, (status, "stopped"), "{id}");
        again.assert_nothing_left(id);
        assert_eq!(again.host.restart(id).await.unwrap_err().code, ErrorCode::PluginHostUnavailable);
    }
    again.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_116_restart_from_ready_and_from_error() {
    let test = TestHost::new().await;
    let before = test.run(&Fixture::normal("fx")).await;
    let old = test.host.host_status("fx").unwrap();
    let new = test.host.restart("fx").await.unwrap();
    assert_eq!((new.status.as_str(), new.tools_count), ("ready", before.tools_count));
    assert!(new.generation > old.generation && new.pid != old.pid && !is_alive(old.pid.unwrap()));
    // A first enable that failed left an abnormal host; its restart counts as the enabling.
    let marks = Marks::new();
    test.try_run(&marks.mending("late", &["initialize-error"])).await.unwrap_err();
    marks.mend();
    assert_eq!(test.host.restart("late").await.unwrap().status.as_str(), "ready");
    assert!(test.host.plugin("late").await.unwrap().enabled);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_144_enabled_plugins_come_back_with_the_next_host() {
    let test = TestHost::new().await;
    for id in ["a", "b"] {
        test.run(&Fixture::normal(id)).await;
    }
    let again = TestHost::at(test.close().await, Settings::default()).await;
    // Requirement 35: opening starts nothing.
    again.assert_nothing_left("a");
    assert_eq!(again.host.approved_tools().await.unwrap().len(), 12);
    again.host.start_enabled();
    again.host.settled(Duration::from_secs(20)).await;
    for id in ["a", "b"] {
        again.ready_soon(id).await;
        assert_eq!(again.tool_names(id), NORMAL_TOOLS);
    }
    // A second call must not disturb what runs.
    again.host.start_enabled();
    again.host.settled(Duration::from_secs(20)).await;
    assert_eq!(again.states("a").await, ("ready", "ready"));
    again.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_under_way_is_broken_off_by_whoever_wants_its_end() {
    // A person who switches a plugin off must not wait a minute for its time limits first.
    let test = TestHost::new().await;
    let marks = Marks::new();
    for (id, mode, end) in [("a", "mute-initialize", "disable"), ("b", "mute-list", "remove")] {
        let fixture = Fixture::imported(id, &[mode, "--pid-file", &marks.arg(id)]);
        test.install(&fixture.backend("startup_timeout_seconds: 60")).await;
        let host = test.host.clone();
        let enable = tokio::spawn(async move { host.enable(id).await });
        let pid = marks.pid_soon(id).await;
        let begun = Instant::now();
        match end {
            "disable" => drop(test.host.disable(id).await.unwrap()),
            _ => test.host.remove(id).await.unwrap(),
        }
        assert!(begun.elapsed() < LADDER_BOUND, "{end} waited for the start");
        let error = enable.await.unwrap().unwrap_err();
        assert_eq!(error.code, ErrorCode::PluginStateConflict, "{end}: {error}");
        assert!(!is_alive(pid), "{end}");
    }
    test.assert_nothing_left("a");
    assert_eq!(test.states("a").await, ("disabled", "stopped"));
    assert_eq!(test.host.plugin("b").await.unwrap_err().code, ErrorCode::PluginNotFound);
    // A restart breaks off and starts anew.
    test.install(&marks.mending("c", &["mute-initialize"]).backend("startup_timeout_seconds: 60")).await;
    let host = test.host.clone();
    let enable = tokio::spawn(async move { host.enable("c").await });
    marks.pid_soon("pid").await;
    marks.mend();
    assert_eq!(test.host.restart("c").await.unwrap().status.as_str(), "ready");
    assert_eq!(enable.await.unwrap().unwrap_err().code, ErrorCode::PluginStateConflict);
    assert!(test.host.plugin("c").await.unwrap().enabled);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_takes_long_to_end_keeps_only_its_own_id() {
    // While it goes, others can be installed; its successor is told to wait instead of losing its files.
    let test = TestHost::new().await;
    let stubborn = Fixture::imported("fx", &["ignores-term"]);
    test.run(&stubborn).await;
    let host = test.host.clone();
    let removing = tokio::spawn(async move { host.remove("fx").await });
    eventually("it is going", || test.tool_names("fx").is_empty().then_some(())).await;
    let refused = test.host.install(stubborn.package().path(), None).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::PluginStateConflict, "{refused}");
    assert!(refused.message.contains("is being removed"), "{refused}");
    test.install(&Fixture::normal("other")).await;
    assert!(!removing.is_finished(), "an install of another plugin waited for it");
    removing.await.unwrap().unwrap();
    assert_eq!(test.run(&stubborn).await.tools_count, 1);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_keeps_the_host_waiting_is_cut_off_at_shutdown() {
    // A start under way must not hold the shutdown up, nor leave its process behind.
    let test = TestHost::new().await;
    let marks = Marks::new();
    let args = ["mute-initialize", "--pid-file", &marks.arg("pid")];
    test.install(&Fixture::imported("fx", &args)).await;
    let host = test.host.clone();
    let enable = tokio::spawn(async move { host.enable("fx").await });
    let pid = marks.pid_soon("pid").await;
    let begun = Instant::now();
    test.host.shutdown().await;
    assert!(begun.elapsed() < LADDER_BOUND);
    assert_eq!(enable.await.unwrap().unwrap_err().code, ErrorCode::HostStopping);
    assert!(!is_alive(pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disable_beside_a_crash_returns_only_when_the_process_is_gone() {
    // Two ends at once: whoever is second must not find the work half done.
    let test = TestHost::new().await;
    let marks = Marks::new();
    test.install(
        &Fixture::imported("fx", &["unterminated", "--pid-file", &marks.arg("pid")]).backend("stdout: strict"),
    )
    .await;
    for _ in 0..5 {
        test.host.enable("fx").await.unwrap();
        let pid = test.host.host_status("fx").unwrap().pid.unwrap();
        let (report, disabled) = tokio::join!(test.call("fx.flood", json!({})), async {
            test.status_soon("fx", "unhealthy").await;
            test.host.disable("fx").await
        });
        assert_eq!(report.outcome.unwrap_err().code(), ErrorCode::PluginHostUnavailable);
        assert_eq!(disabled.unwrap().status.as_str(), "disabled");
        assert!(!is_alive(pid), "disable returned while the process was still there");
        test.assert_nothing_left("fx");
    }
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requirement_97_a_killed_host_takes_every_process_of_its_plugins_along() {
    // Invariant 5 through the real program: nobody is left to run a ladder.
    let test = TestHost::new().await;
    let marks = Marks::new();
    let child = marks.arg("child");
    let args = ["forks-daemon", "--new-session", "--daemon-pid-file", &child, "--pid-file", &marks.arg("pid")];
    test.run(&Fixture::imported("fx", &args)).await;
    let home = test.close().await;
    for file in ["pid", "child"] {
        std::fs::remove_file(marks.path(file)).unwrap();
    }
    let mut settings = Settings::default();
    let (path, value) = settings.host_environment.remove(0);
    let mut host = std::process::Command::new(plugward())
        .args(["serve", "--stdio", "--in-process"])
        .env("PLUGWARD_HOME", home.path())
        .env("PLUGWARD_ENVIRONMENT", "development")
        .env(path, value)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let pids = [marks.pid_soon("pid").await, marks.pid_soon("child").await];
    assert!(pids.into_iter().all(is_alive));
    host.kill().unwrap();
    host.wait().unwrap();
    for pid in pids {
        eventually(&format!("process {pid} is gone with its host"), || (!is_alive(pid)).then_some(())).await;
    }
    // The home is free again and nothing in it is broken.
    let again = TestHost::at(home, Settings::default()).await;
    again.host.ensure_started("fx").await.unwrap();
    assert_eq!(again.text("fx.say", json!({})).await, "pong");
    again.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_leaves_no_operation_half_done() {
    let test = TestHost::new().await;
    let marks = Marks::new();
    let args = ["slow-start", "--seconds", "1", "--pid-file", &marks.arg("pid")];
    test.install(&Fixture::imported("fx", &args)).await;
    let host = test.host.clone();
    let enable = tokio::spawn(async move { host.enable("fx").await });
    marks.pid_soon("pid").await;
    enable.abort();
    assert!(enable.await.unwrap_err().is_cancelled());
    // Whoever asks next waits for the one that is under way, and no second process is started.
    let (one, two) = tokio::join!(test.host.enable("fx"), test.host.enable("fx"));
    assert_eq!((one.unwrap().tools_count, two.unwrap().tools_count), (1, 1));
    assert_eq!(test.host.host_status("fx").unwrap().pid, marks.pid("pid"));
    assert_eq!(test.processes_of("fx").len(), 1);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_who_listens_hears_of_each_change() {
    let test = TestHost::new().await;
    let mut events = test.host.events();
    test.run(&Fixture::normal("fx")).await;
    test.host.remove("fx").await.unwrap();
    let mut heard = Vec::new();
    while let Ok(Ok(event)) = tokio::time::timeout(Duration::from_secs(5), events.recv()).await {
        let is_last = matches!(event, HostEvent::PluginRemoved(_));
        heard.push(event);
        if is_last {
            break;
        }
    }
    assert!(heard.iter().any(|event| matches!(event, HostEvent::ToolsChanged(_))), "{heard:?}");
    assert!(matches!(heard.last(), Some(HostEvent::PluginRemoved(id)) if id.as_str() == "fx"), "{heard:?}");
    test.close().await;
}
