//! Public fault reports about processes that stay behind: launchers that pass no signal on, servers that ignore every
//! request to end, containers that outlive their client, and hosts that are killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plugward_host::{Host, STOP_EOF_GRACE, STOP_KILL_GRACE, STOP_TERM_GRACE};
use serde_json::json;

use crate::cases_support::{child, is_alone, pid_in, script};
use crate::support::{
    Fixture, PATIENCE, Settings, TestHost, config, eventually, fixture, is_alive, processes_with, request,
};

/// Folder in which a host of another process works: `home`, `bin` and what its plugins leave.
const FOLDER: &str = "PLUGWARD_TEST_FOLDER";

/// Default settings with the programs in `folder/bin` first in `PATH`.
fn settings(folder: &Path) -> Settings {
    let mut settings = Settings::default();
    let path = &mut settings.host_environment[0].1;
    *path = format!("{}:{path}", folder.join("bin").display());
    settings
}

/// The other process of a test: runs everything that is switched on in `home`, calls `say` of each plugin, and stays
/// until it is killed.
async fn run_until_killed() -> ! {
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let home = PathBuf::from(fs::read_to_string(folder.join("home")).unwrap());
    let host = Host::open(config(&home, settings(&folder))).await.unwrap();
    host.start_enabled();
    host.settled(PATIENCE).await;
    for plugin in host.plugins().await.unwrap() {
        let report = host.call(request(&format!("{}.say", plugin.id), json!({}))).await;
        assert_eq!(report.outcome.unwrap().output()["content"][0]["text"], "pong");
    }
    fs::write(folder.join("ready"), "").unwrap();
    loop {
        tokio::time::sleep(PATIENCE).await;
    }
}

/// Starts the other process of the test `name` on `home`, and kills it once its plugins run.
async fn kill_a_host(name: &str, folder: &Path, home: &Path) {
    fs::write(folder.join("home"), home.to_str().unwrap()).unwrap();
    let mut host = child(name).env(FOLDER, folder).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap();
    eventually("the other host is ready", || {
        assert!(host.try_wait().unwrap().is_none(), "the other host ended by itself");
        folder.join("ready").exists().then_some(())
    })
    .await;
    host.kill().unwrap();
    host.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn b004_a_server_behind_a_launcher_ends_with_it() {
    // Requirement 97: the launcher passes no signal on, and one server sits in a session of its own.
    let (test, folder) = (TestHost::new().await, tempfile::tempdir().unwrap());
    let ids = ["same", "apart"];
    for id in ids {
        let pid_file = folder.path().join(id);
        let mut args = vec!["launcher", "--real-pid-file", pid_file.to_str().unwrap()];
        args.extend((id == "apart").then_some("--new-session"));
        test.run(&Fixture::imported(id, &args)).await;
        assert_eq!(test.text(&format!("{id}.say"), json!({})).await, "pong");
        assert!(is_alive(pid_in(&pid_file)), "the control: the real server runs");
    }
    let began = Instant::now();
    let (one, other) = tokio::join!(test.host.disable("same"), test.host.disable("apart"));
    assert_eq!((one.unwrap().status.as_str(), other.unwrap().status.as_str()), ("disabled", "disabled"));
    let grace = STOP_EOF_GRACE + STOP_TERM_GRACE + STOP_KILL_GRACE;
    assert!(began.elapsed() < grace * 2, "{:?}", began.elapsed());
    for id in ids {
        assert!(!is_alive(pid_in(&folder.path().join(id))), "{id}");
    }
    assert_eq!(processes_with(folder.path().to_str().unwrap()), Vec::<u32>::new());
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b004_a_host_that_is_killed_takes_servers_behind_launchers_along() {
    const NAME: &str = "cases_processes::b004_a_host_that_is_killed_takes_servers_behind_launchers_along";
    if is_alone(NAME) {
        run_until_killed().await;
    }
    let (test, folder) = (TestHost::new().await, tempfile::tempdir().unwrap());
    let ids = ["same", "apart"];
    for id in ids {
        let pid_file = folder.path().join(id);
        let mut args = vec!["launcher", "--real-pid-file", pid_file.to_str().unwrap()];
        args.extend((id == "apart").then_some("--new-session"));
        test.run(&Fixture::imported(id, &args)).await;
    }
    let home = test.close().await;
    kill_a_host(NAME, folder.path(), home.path()).await;
    for id in ids {
        let pid = pid_in(&folder.path().join(id));
        eventually("the real server is gone", || (!is_alive(pid)).then_some(())).await;
    }
    let mark = folder.path().to_str().unwrap();
    eventually("nothing of the killed host is left", || processes_with(mark).is_empty().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b041_five_servers_that_refuse_to_end_hold_up_the_hosts_end_no_longer_than_one() {
    let (test, folder) = (TestHost::new().await, tempfile::tempdir().unwrap());
    let mut pids = Vec::new();
    for id in ["a", "b", "c", "d", "e"] {
        let pid_file = folder.path().join(id);
        test.run(&Fixture::imported(id, &["ignores-term", "--pid-file", pid_file.to_str().unwrap()])).await;
        assert_eq!(test.text(&format!("{id}.say"), json!({})).await, "pong");
        pids.push(pid_in(&pid_file));
    }
    let began = Instant::now();
    test.close().await;
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
}

#[tokio::test(flavor = "multi_thread")]
async fn b041_a_server_that_cleans_up_after_the_end_of_stdin_gets_the_time() {
    let (test, folder) = (TestHost::new().await, tempfile::tempdir().unwrap());
    let flag = folder.path().join("clean");
    let args = ["slow-exit", "--seconds", "1", "--flag", flag.to_str().unwrap()];
    test.run(&Fixture::imported("tidy", &args)).await;
    assert_eq!(test.text("tidy.say", json!({})).await, "pong");
    test.host.disable("tidy").await.unwrap();
    assert!(flag.exists());
    let lines = test.host.logs("tidy").unwrap();
    assert!(lines.iter().all(|line| !line.text.contains("TERM")), "{lines:?}");
    test.close().await;
}

/// Names of containers that the stand-in for docker holds in `folder`.
fn containers(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("containers")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A process that plays a container which nobody's signals reach: it is none of ours.
fn survivor() -> Child {
    Command::new(fixture()).arg("ignores-eof").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn b047_containers_end_with_their_plugin_and_leftovers_of_a_killed_host_are_swept() {
    const NAME: &str =
        "cases_processes::b047_containers_end_with_their_plugin_and_leftovers_of_a_killed_host_are_swept";
    if is_alone(NAME) {
        run_until_killed().await;
    }
    let folder = tempfile::tempdir().unwrap();
    let held = folder.path().join("containers");
    fs::create_dir(folder.path().join("bin")).unwrap();
    let docker = format!("#!/bin/sh\nexec mcp-fixture docker --dir '{}' -- \"$@\"\n", held.display());
    script(&folder.path().join("bin/docker"), &docker);
    let test = TestHost::with(settings(folder.path())).await;
    let image = Fixture::imported("box", &["run", "-i", "--rm", "demo/image"]).command("docker");
    test.run(&image).await;
    assert_eq!(test.text("box.say", json!({})).await, "pong");
    let [name] = &containers(folder.path())[..] else { panic!("one container runs") };
    let pid = pid_in(&held.join(name));
    assert!(is_alive(pid), "the control: the container runs");
    test.host.disable("box").await.unwrap();
    assert!(containers(folder.path()).is_empty() && !is_alive(pid));

    test.host.enable("box").await.unwrap();
    let home = test.close().await;
    kill_a_host(NAME, folder.path(), home.path()).await;
    // A real container is no child of anything of ours, so it is still there after such an end.
    let [name] = &containers(folder.path())[..] else { panic!("the killed host left one container") };
    let (mut left, mut foreign) = (survivor(), survivor());
    fs::write(held.join(name), left.id().to_string()).unwrap();
    fs::write(held.join("somebody-elses"), foreign.id().to_string()).unwrap();
    let test = TestHost::at(home, settings(folder.path())).await;
    test.host.ensure_started("box").await.unwrap();
    assert_eq!(test.text("box.say", json!({})).await, "pong");
    assert!(!is_alive(left.id()), "the leftover still runs");
    let lines = test.host.logs("box").unwrap();
    assert!(lines.iter().any(|line| line.text.contains(name.as_str())), "{lines:?}");
    test.host.disable("box").await.unwrap();
    assert_eq!(containers(folder.path()), ["somebody-elses"]);
    assert!(foreign.try_wait().unwrap().is_none(), "a container of somebody else was ended");
    foreign.kill().unwrap();
    let _ = (foreign.wait(), left.wait());
    test.close().await;
}
