//! Public fault reports about starting servers: what they are given, how long they may take, how often they are tried,
//! and that one that does not start costs nobody else anything.

use std::fs;
use std::time::{Duration, Instant};

use plugward_host::{ErrorCode, Host};
use serde_json::{Value, json};

use crate::cases_support::{Switchable, lines_of, script, settings_with};
use crate::support::{Fixture, PATIENCE, Package, Settings, TestHost, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn b001_a_slow_start_shows_as_starting_and_holds_up_nobody() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("quick", &["never-answers"])).await;
    test.install(&Fixture::imported("slow", &["slow-start", "--seconds", "2"])).await;
    let versions = test.host.tools_version();
    let before = *versions.borrow();
    let host = test.host.clone();
    let enabling = tokio::spawn(async move { host.enable("slow").await });
    // What a person looking at a slow download wants to see.
    eventually("progress of the start in its log", || {
        let lines = test.host.logs("slow").unwrap();
        lines.iter().any(|line| line.text.contains("fetching packages")).then_some(())
    })
    .await;
    assert_eq!(test.host.plugin("slow").await.unwrap().status.as_str(), "starting");
    assert_eq!(test.host.host_status("slow").unwrap().status.as_str(), "starting");
    assert_eq!(test.text("quick.say", json!({})).await, "pong");
    assert_eq!((*versions.borrow(), enabling.is_finished()), (before, false));
    assert_eq!(enabling.await.unwrap().unwrap().status.as_str(), "ready");
    assert_eq!(test.text("slow.say", json!({})).await, "pong");
    // Clients are told once that the list changed.
    assert_eq!(*versions.borrow(), before + 1);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b002_path_and_home_are_there_host_secrets_are_not_and_a_missing_command_is_named() {
    let test = TestHost::with(settings_with(&[("HOST_ONLY_SECRET", "zzz")])).await;
    test.run(&Fixture::imported("env", &["echo-env"]).backend("env: {DEMO_FLAG: \"1\"}")).await;
    let seen: Value = serde_json::from_str(&test.text("env.env", json!({})).await).unwrap();
    assert_eq!(seen, json!({"demo": "1", "home": true, "leaked": null, "path": true}));

    let missing = Fixture::imported("gone", &[]).command("no-such-cmd-demo");
    test.host.install(missing.package().path(), None).await.unwrap();
    for error in [test.host.review("gone").await.unwrap_err(), test.host.enable("gone").await.unwrap_err()] {
        let path = std::env::var("PATH").unwrap();
        assert!(error.message.contains("no-such-cmd-demo") && error.message.contains(&path), "{error}");
        assert_eq!(error.code, ErrorCode::PluginHostStartFailed);
    }
    let view = test.host.plugin("gone").await.unwrap();
    assert_eq!((view.status.as_str(), view.enabled), ("error", false));
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b018_variables_are_replaced_once_or_named_when_missing() {
    let test = TestHost::with(settings_with(&[("DEMO_USER", "ann"), ("DEMO_EMPTY", "")])).await;
    let args = [
        "show",
        "--env",
        "GREETING",
        "--",
        "--user=${DEMO_USER}",
        "${DEMO_MISSING:-fall back}",
        "$${DEMO_USER}",
        "$DEMO_USER",
        "[${DEMO_EMPTY:-dflt}]",
    ];
    test.run(&Fixture::imported("ok", &args).backend("env: {GREETING: \"hi ${DEMO_USER}\"}")).await;
    let expected = json!([["--user=ann", "fall back", "${DEMO_USER}", "$DEMO_USER", "[dflt]"], ["hi ann"]]);
    assert_eq!(test.text("ok.show", json!({})).await, expected.to_string());

    let broken = Fixture::imported("broken", &["show", "${DEMO_MISSING}"]);
    test.host.install(broken.package().path(), None).await.unwrap();
    let error = test.host.enable("broken").await.unwrap_err().message;
    assert!(["broken", "args[1]", "DEMO_MISSING"].iter().all(|part| error.contains(part)), "{error}");
    assert_eq!(test.text("ok.show", json!({})).await, expected.to_string());
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b023_a_server_that_keeps_failing_is_tried_with_growing_pauses_and_then_given_up() {
    const BASE: Duration = Duration::from_millis(200);
    // The schedule: five attempts, each pause twice the one before, a tenth less at most by chance.
    const ATTEMPTS: usize = 5;
    let folder = tempfile::tempdir().unwrap();
    let starts = folder.path().join("starts");
    let test = TestHost::with(Settings { restart_base_delay: BASE, ..Settings::default() }).await;
    test.run(&Fixture::imported("fine", &["never-answers"])).await;
    let plugin = Switchable::new(folder.path(), "bad", &Fixture::imported("bad", &[]), "crash-after --calls 0");
    plugin.run(&test, "bad").await;
    plugin.set(&format!("crash-on-start --starts {}", starts.display()));
    assert_eq!(test.call("bad.say", json!({})).await.outcome.unwrap_err().cause(), "unavailable");
    // Ten callers that do not take no for an answer.
    let callers: Vec<_> = (0..10).map(|_| tokio::spawn(insist(test.host.clone()))).collect();
    let view = eventually("the server is given up", || {
        let status = test.host.host_status("bad").unwrap();
        let given_up = test.host.logs("bad").unwrap().iter().any(|line| line.text.contains("given up"));
        (given_up && lines_of(&starts).len() >= ATTEMPTS).then_some(status)
    })
    .await;
    assert_eq!(view.status.as_str(), "error");
    for caller in callers {
        assert!(caller.await.unwrap(), "a call of a server that is down was answered");
    }
    let times: Vec<f64> = lines_of(&starts).iter().map(|line| line.parse().unwrap()).collect();
    assert_eq!(times.len(), ATTEMPTS);
    for (index, pair) in times.windows(2).enumerate() {
        let least = BASE.as_secs_f64() * f64::from(1 << (index + 1)) * 0.9;
        assert!(pair[1] - pair[0] >= least - 0.002, "gap {index} is {:.3} s", pair[1] - pair[0]);
    }
    let view = test.host.plugin("bad").await.unwrap();
    assert_eq!((view.status.as_str(), view.restarts), ("error", 5));
    assert!(view.detail.contains("given up after 5 attempts"), "{}", view.detail);
    assert!(view.error.unwrap().contains("exit code 1"), "{}", view.detail);
    // What it said last is in its log, and nowhere else (requirement 80).
    assert!(test.host.logs("bad").unwrap().iter().any(|line| line.text.contains("DEMO_API_KEY is not set")));
    assert!(!view.detail.contains("DEMO_API_KEY"));
    assert_eq!(test.text("fine.say", json!({})).await, "pong");
    // A person's restart begins anew, and the count with it.
    plugin.set("never-answers");
    test.host.restart("bad").await.unwrap();
    assert_eq!(test.text("bad.say", json!({})).await, "pong");
    test.close().await;
}

/// Calls the server 20 times; whether every call was refused.
async fn insist(host: Host) -> bool {
    let mut refused = true;
    for _ in 0..20 {
        let report = host.call(crate::support::request("bad.say", json!({}))).await;
        refused &= report.outcome.is_err();
        tokio::task::yield_now().await;
    }
    refused
}

#[tokio::test(flavor = "multi_thread")]
async fn b032_older_versions_are_spoken_and_unknown_ones_named_without_trying_again() {
    let (test, folder) = (TestHost::new().await, tempfile::tempdir().unwrap());
    for (id, version) in [("v2024", "2024-11-05"), ("v2025a", "2025-03-26"), ("v2025b", "2025-06-18")] {
        test.run(&Fixture::imported(id, &["version", "--answer", version])).await;
        assert_eq!(test.text(&format!("{id}.say"), json!({})).await, "pong");
        assert_eq!(test.host.host_status(id).unwrap().protocol_version.as_deref(), Some(version));
    }
    let starts = folder.path().join("starts");
    let plugin = Switchable::new(folder.path(), "late", &Fixture::imported("late", &[]), "crash-after --calls 0");
    plugin.run(&test, "late").await;
    plugin.set(&format!("version --answer 2099-01-01 --starts {}", starts.display()));
    let _ = test.call("late.say", json!({})).await;
    let error = eventually("the version is refused", || {
        let error = test.host.host_status("late").unwrap().error?;
        error.contains("2099-01-01").then_some(error)
    })
    .await;
    assert!(error.contains("2025-11-25") && error.contains("2024-11-05"), "{error}");
    // Nothing is planned any more: asking again changes nothing.
    assert!(!test.host.plugin("late").await.unwrap().detail.contains("starting again"));
    assert_eq!(lines_of(&starts).len(), 1);
    let none = test.try_run(&Fixture::imported("none", &["version", "--answer", "none"])).await.unwrap_err();
    assert_eq!(none.code, ErrorCode::McpInitializeFailed);
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b035_the_working_folder_is_the_one_asked_for_or_nothing_starts() {
    let test = TestHost::new().await;
    let package = Fixture::imported("rel", &["cwd"]).backend("cwd: ./work").package();
    fs::create_dir(package.path().join("work")).unwrap();
    fs::write(package.path().join("work/hello.txt"), "hello from work\n").unwrap();
    test.install_package(&package).await;
    test.host.enable("rel").await.unwrap();
    assert_eq!(test.text("rel.read", json!({})).await, "hello from work in work");

    let folder = tempfile::tempdir().unwrap();
    let starts = folder.path().join("starts");
    let gone = Fixture::imported("gone", &["cwd", "--starts", starts.to_str().unwrap()]).backend("cwd: ./no-such-dir");
    test.host.install(gone.package().path(), None).await.unwrap();
    let error = test.host.enable("gone").await.unwrap_err();
    assert!(error.message.contains("no-such-dir") && error.is_permanent, "{error}");
    assert_eq!(test.host.plugin("gone").await.unwrap().status.as_str(), "error");
    assert!(lines_of(&starts).is_empty());
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b036_good_servers_are_there_while_others_are_slow_mute_or_missing() {
    let folder = tempfile::tempdir().unwrap();
    let tool = folder.path().join("only-here");
    script(&tool, "#!/bin/sh\nexec mcp-fixture never-answers\n");
    let with_path = || {
        let mut settings = Settings::default();
        let path = &mut settings.host_environment[0].1;
        *path = format!("{}:{path}", folder.path().display());
        settings
    };
    let test = TestHost::with(with_path()).await;
    let slow = Switchable::new(folder.path(), "slow", &Fixture::imported("slow", &[]), "never-answers");
    let mute = Fixture::imported("mute", &[]).backend("startup_timeout_seconds: 1");
    let mute = Switchable::new(folder.path(), "mute", &mute, "never-answers");
    slow.run(&test, "slow").await;
    mute.run(&test, "mute").await;
    test.run(&Fixture::imported("missing", &[]).command("only-here")).await;
    test.run(&Fixture::imported("good", &["never-answers"])).await;
    test.run(&Fixture::imported("good2", &["never-answers"])).await;
    let home = test.close().await;
    slow.set("slow-start --seconds 4");
    mute.set("mute-initialize");
    fs::remove_file(&tool).unwrap();

    // Requirement 144: what was on comes back, each on its own.
    let test = TestHost::at(home, with_path()).await;
    test.host.start_enabled();
    let status = |id: &str| test.host.host_status(id).unwrap().status.as_str();
    eventually("the good ones are ready", || (status("good") == "ready" && status("good2") == "ready").then_some(()))
        .await;
    assert_eq!(status("slow"), "starting");
    eventually("the missing one has failed", || (status("missing") == "error").then_some(())).await;
    assert!(test.host.host_status("missing").unwrap().error.unwrap().contains("only-here"));
    assert_eq!(status("slow"), "starting");
    let error = eventually("the mute one has failed", || test.host.host_status("mute").unwrap().error).await;
    assert!(error.contains("did not answer the handshake within 1000 ms"), "{error}");
    for id in ["good", "good2"] {
        assert_eq!(test.text(&format!("{id}.say"), json!({})).await, "pong");
    }
    eventually("the slow one is ready", || (status("slow") == "ready").then_some(())).await;
    assert_eq!(test.text("slow.say", json!({})).await, "pong");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b077_yaml_scalars_reach_the_server_as_they_are_written() {
    let test = TestHost::new().await;
    let manifest = |id: &str, env: &str, args: &str, names: &str| {
        Package::with_manifest(&format!(
            "id: {id}\nname: N\nversion: 1.0.0\nbackend:\n  type: mcp\n  transport: stdio\n  command: mcp-fixture\n  \
             args: [show, --env, \"{names}\", --{args}]\n  env: {env}\n"
        ))
    };
    let plain = "{PORT: 8080, FLAG: true, QUOTED: \"1.10\"}";
    test.install_package(&manifest("plain", plain, ", 8080, true", "PORT,FLAG,QUOTED")).await;
    test.host.enable("plain").await.unwrap();
    let expected = json!([["8080", "true"], ["8080", "true", "1.10"]]);
    assert_eq!(test.text("plain.show", json!({})).await, expected.to_string());
    // Never "1.1", "false" and "493".
    let ambiguous = "{VERSION: 1.10, COUNTRY: no, MODE: 0755}";
    test.install_package(&manifest("ambiguous", ambiguous, "", "VERSION,COUNTRY,MODE")).await;
    test.host.enable("ambiguous").await.unwrap();
    assert_eq!(test.text("ambiguous.show", json!({})).await, json!([[], ["1.10", "no", "0755"]]).to_string());
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b078_a_broken_manifest_is_refused_at_its_place_and_costs_no_other() {
    let test = TestHost::new().await;
    test.run(&Fixture::imported("good", &["never-answers"])).await;
    let head = "id: bad\nname: Bad\nversion: 1.0.0\n";
    let backend = "backend:\n  type: mcp\n  transport: stdio\n";
    let refused = [
        (format!("{head}backend:\n  type: mcp\n command: x\n"), vec![":6:"]),
        (format!("{head}{backend}  command: a\n  command: b\n"), vec![":8:", "command"]),
        (format!("{head}{backend}  comand: a\n"), vec!["comand", "command"]),
        (format!("{head}{backend}"), vec!["command"]),
        ("17\n".to_owned(), vec!["map"]),
        (String::new(), vec![]),
    ];
    for (manifest, parts) in refused {
        let error = test.host.install(Package::with_manifest(&manifest).path(), None).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::PluginManifestInvalid, "{manifest}: {error}");
        let said = format!("{} {}", error.message, error.details.join(" "));
        assert!(parts.iter().all(|part| said.contains(part)), "{manifest}: {said}");
    }
    let again = test.host.install(Fixture::imported("good", &[]).package().path(), None).await.unwrap_err();
    assert_eq!(again.code, ErrorCode::PluginAlreadyInstalled);
    assert_eq!(test.host.plugins().await.unwrap().len(), 1);
    assert_eq!(test.text("good.say", json!({})).await, "pong");
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b082_servers_that_cannot_stand_a_probe_connect_at_the_first_start() {
    let (test, folder) = (TestHost::new().await, tempfile::tempdir().unwrap());
    for (id, strict) in [("lax", false), ("strict", true)] {
        let starts = folder.path().join(id);
        let mut args = vec!["strict-2026-probe", "--starts", starts.to_str().unwrap()];
        args.extend(strict.then_some("--strict"));
        let began = Instant::now();
        test.run(&Fixture::imported(id, &args)).await;
        assert!(began.elapsed() < PATIENCE);
        assert_eq!(test.text(&format!("{id}.say"), json!({})).await, "pong");
        assert_eq!(lines_of(&starts).len(), 1, "{id}");
    }
    test.close().await;
}
