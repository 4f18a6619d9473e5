//! Commands act through the host that is running, when one is.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::time::Instant;

use serde_json::{Value, json};

use super::{Cli, finish, signal, wait};
use crate::support::{Fixture, PATIENCE, TestHost, processes_with};

/// A script must not have to know whether a host runs.
#[test]
fn answers_are_the_same_with_and_without_a_running_host() {
    let cli = Cli::new();
    cli.enable(&Fixture::normal("fix"));
    cli.ok(&["disable", "fix"]);
    cli.ok(&["install", Fixture::normal("other").package().path().to_str().unwrap()]);
    let asked: [&[&str]; 8] = [
        &["list"],
        &["info", "fix"],
        &["review", "fix"],
        &["review", "other"],
        &["tools"],
        &["permissions", "fix"],
        &["trace", "list"],
        &["asks"],
    ];
    let alone: Vec<Value> = asked.iter().map(|arguments| cli.json(arguments)).collect();
    let failing: [&[&str]; 4] = [
        &["info", "nope", "--json"],
        &["call", "a.b", "--json"],
        &["enable", "other", "--json"],
        &["approve", "other", "--digest", "x"],
    ];
    let refused: Vec<(i32, String)> =
        failing.map(|arguments| cli.run(arguments)).into_iter().map(|done| (done.code, done.stderr)).collect();
    let serving = cli.serve(&[]);
    for (arguments, before) in asked.iter().zip(alone) {
        assert_eq!(cli.json(arguments), before, "{arguments:?}");
    }
    for (arguments, before) in failing.iter().zip(refused) {
        let done = cli.run(arguments);
        assert_eq!((done.code, done.stderr), before, "{arguments:?}");
    }
    assert!(serving.terminate().success());
}

/// What a command starts goes on running in the host, and ends with it, however it is ended.
#[test]
fn plugins_live_as_long_as_the_host_and_no_longer() {
    let cli = Cli::new();
    let mark = cli.home().display().to_string();
    cli.enable(&Fixture::normal("fix"));
    assert_eq!(processes_with(&mark), Vec::<u32>::new(), "a command without a host leaves nothing behind");
    let serving = cli.serve(&[]);
    let pid = running(&cli, "fix");
    let called = cli.ok(&["call", "fix.echo", r#"{"text":"through the socket"}"#]);
    assert!(called.stdout.contains("through the socket"));
    let lines = cli.run_with_input(&["call", "fix.echo", "-"], b"{\n  \"text\": \"over lines\"\n}\n");
    assert!(lines.stdout.contains("over lines"), "{}", lines.stderr);
    assert_eq!(running(&cli, "fix"), pid, "the call started nothing anew");
    assert!(serving.terminate().success());
    assert_eq!(processes_with(&mark), Vec::<u32>::new());
    // A host that is killed leaves its socket behind, which must not stand in the way.
    let mut serving = cli.serve(&[]);
    signal(serving.pid(), rustix::process::Signal::KILL);
    wait(&mut serving.child);
    gone(&mark);
    assert_eq!(cli.json(&["status"])["host"]["serving_pid"], Value::Null);
    let serving = cli.serve(&[]);
    assert!(serving.terminate().success());
}

/// Process id of a plugin once it runs.
fn running(cli: &Cli, id: &str) -> u64 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let info = cli.json(&["info", id]);
        if info["plugin"]["status"] == "ready" {
            return info["host"]["pid"].as_u64().unwrap();
        }
        assert!(Instant::now() < deadline, "{info}");
    }
}

/// Waits until no process of a home is left.
fn gone(mark: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !processes_with(mark).is_empty() {
        assert!(Instant::now() < deadline, "left: {:?}", processes_with(mark));
        std::thread::sleep(super::POLL);
    }
}

/// A home that another process has without a socket is told with that process, and nothing is touched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_home_in_use_is_told_with_the_process() {
    let host = TestHost::new().await;
    let cli = Cli::new().variable("PLUGWARD_HOME", host.home().to_str().unwrap());
    let done = tokio::task::spawn_blocking(move || cli.ends(1, &["list"])).await.unwrap();
    assert!(done.stderr.contains("HOME_IN_USE"), "{}", done.stderr);
    assert!(done.stderr.contains(&std::process::id().to_string()), "{}", done.stderr);
    host.close().await;
}

/// Two agents on one machine each start `serve --stdio`; both must work.
#[test]
fn a_second_stdio_host_joins_the_first() {
    let cli = Cli::new();
    cli.enable(&Fixture::normal("fix"));
    let serving = cli.serve(&[]);
    running(&cli, "fix");
    let child = cli.command(&["serve", "--stdio"]).stdin(Stdio::piped()).spawn().unwrap();
    let [hello, call] = first_words();
    let done = finish(child, format!("{hello}{call}").as_bytes());
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stdout.contains("joined"), "{}\n{}", done.stdout, done.stderr);
    let twice = cli.ends(1, &["serve"]);
    assert!(twice.stderr.contains("HOME_IN_USE"), "{}", twice.stderr);
    assert!(serving.terminate().success());
}

/// What a client says: the handshake, then a call.
fn first_words() -> [String; 2] {
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
        "capabilities": {}, "clientInfo": {"name": "second", "version": "1"}}});
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "fix_echo", "arguments": {"text": "joined"}}});
    [format!("{hello}\n{ready}\n"), format!("{call}\n")]
}

/// A process that joined, after its handshake.
fn join(cli: &Cli) -> (std::process::Child, impl Iterator<Item = String> + use<>) {
    let mut child = cli.command(&["serve", "--stdio"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let [hello, _] = first_words();
    child.stdin.as_mut().unwrap().write_all(hello.as_bytes()).unwrap();
    assert!(lines.next().unwrap().contains("serverInfo"));
    (child, lines)
}

/// Closing one agent must not take the tools away from another that was started after it.
#[test]
fn the_first_host_stays_until_the_last_that_joined_has_ended() {
    let cli = Cli::new();
    cli.enable(&Fixture::normal("fix"));
    let mut serving = cli.serve(&["--stdio"]);
    running(&cli, "fix");
    let (mut second, mut answers) = join(&cli);
    let mut log = BufReader::new(serving.child.stderr.take().unwrap()).lines().map(Result::unwrap);
    drop(serving.child.stdin.take());
    assert!(log.any(|line| line.contains("staying for 1")), "it says why it stays");
    let [_, call] = first_words();
    second.stdin.as_mut().unwrap().write_all(call.as_bytes()).unwrap();
    assert!(answers.next().unwrap().contains("joined"));
    drop(second.stdin.take());
    assert!(wait(&mut second).success());
    assert!(wait(&mut serving.child).success());
    gone(&cli.home().display().to_string());
}

/// A client that is restarted starts its server anew while the one before still ends its plugins.
#[test]
fn a_host_waits_for_the_one_before_to_end() {
    let cli = Cli::new();
    cli.enable(&Fixture::imported("deaf", &["ignores-term"]));
    let serving = cli.serve(&[]);
    running(&cli, "deaf");
    signal(serving.pid(), rustix::process::Signal::TERM);
    let deadline = Instant::now() + PATIENCE;
    while cli.home().join("run/control.sock").exists() {
        assert!(Instant::now() < deadline);
    }
    let next = cli.serve(&[]);
    assert!(next.terminate().success());
}

/// An agent whose tools are gone must learn it as a failure, with words in its log.
#[test]
fn a_joined_session_says_when_its_host_ends() {
    let cli = Cli::new();
    let serving = cli.serve(&[]);
    let (mut second, _answers) = join(&cli);
    let input = second.stdin.take();
    assert!(serving.terminate().success());
    let done = finish(second, b"");
    drop(input);
    assert_eq!(done.code, 1, "{}", done.stderr);
    assert!(done.stderr.contains("HOST_STOPPING"), "{}", done.stderr);
}

/// One interrupt ends a command that waits for a plugin, and the plugin with it.
#[test]
fn an_interrupt_breaks_off_a_start() {
    let cli = Cli::new();
    let id =
        cli.approve(&Fixture::imported("mute", &["mute-initialize"]).backend("startup_timeout_seconds: 60").package());
    let child = cli.command(&["enable", &id]).spawn().unwrap();
    let mark = cli.home().display().to_string();
    let deadline = Instant::now() + PATIENCE;
    // The command itself, and what it started.
    while processes_with(&mark).len() < 2 {
        assert!(Instant::now() < deadline);
    }
    signal(child.id(), rustix::process::Signal::INT);
    let done = finish(child, b"");
    assert_eq!(done.code, 1, "{}", done.stderr);
    assert!(done.stderr.contains("INTERRUPTED"), "{}", done.stderr);
    gone(&mark);
}

/// The end of an MCP client's input ends the host it started, with exit code 0.
#[test]
fn the_end_of_input_ends_a_stdio_host() {
    let cli = Cli::new();
    cli.enable(&Fixture::normal("fix"));
    let done = cli.run(&["serve", "--stdio"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(done.stdout, "", "standard output is the protocol's alone");
    gone(&cli.home().display().to_string());
}

/// A person away from the terminal of the call answers from another one.
#[test]
fn a_waiting_call_is_answered_by_another_command() {
    let cli = Cli::new().config("[permissions]\n\"notes.read\" = \"ask\"\n");
    cli.enable(&Fixture::normal("fix").backend("tool_timeout_seconds: 60"));
    let serving = cli.serve(&[]);
    running(&cli, "fix");
    for (answer, code) in [("deny", 4), ("allow", 0), ("allow-session", 0)] {
        let child = cli.command(&["call", "fix.echo", r#"{"text":"answered"}"#]).spawn().unwrap();
        let deadline = Instant::now() + PATIENCE;
        let request = loop {
            let asks = cli.json(&["asks"]);
            if let Some(request) = asks["requests"][0]["request_id"].as_str() {
                assert_eq!(asks["requests"][0]["tool"], "fix.echo");
                break request.to_owned();
            }
            assert!(Instant::now() < deadline);
        };
        cli.ok(&["answer", &request, answer]);
        cli.ends(3, &["answer", &request, answer]);
        let done = finish(child, b"");
        assert_eq!(done.code, code, "{answer}: {}", done.stderr);
        assert!(done.stderr.contains(&format!("plugward answer {request}")), "{}", done.stderr);
    }
    cli.ok(&["call", "fix.echo", r#"{"text":"no question any more"}"#]);
    assert!(serving.terminate().success());
}

/// Following a log shows what comes, and an interrupt ends it without a failure.
#[test]
fn logs_are_followed_until_interrupted() {
    let cli = Cli::new();
    cli.enable(&Fixture::normal("fix"));
    cli.ends(1, &["logs", "fix", "-f"]);
    let serving = cli.serve(&[]);
    running(&cli, "fix");
    let mut child = cli.command(&["logs", "fix", "-f", "-n", "1"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("host"), "the last line there was");
    cli.ok(&["restart", "fix"]);
    assert!(lines.next().unwrap().is_ok(), "and what comes");
    signal(child.id(), rustix::process::Signal::INT);
    assert!(wait(&mut child).success());
    assert!(serving.terminate().success());
}

/// Rubbish on the control socket harms nobody.
#[test]
fn strangers_on_the_socket_are_refused() {
    let cli = Cli::new();
    let serving = cli.serve(&[]);
    let path = cli.home().join("run/control.sock");
    for rubbish in
        [&b"\n"[..], b"{}\n", b"\xff\xff\n", b"{\"control_version\":9,\"operation\":\"plugins\"}\n", b"half a line"]
    {
        let mut socket = std::os::unix::net::UnixStream::connect(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(rubbish).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let answers: Vec<String> = BufReader::new(socket).lines().map(Result::unwrap).collect();
        assert!(answers[0].contains("hello") && answers.len() <= 2, "{answers:?}");
        assert!(!answers.iter().any(|line| line.contains("\"done\"")), "{answers:?}");
    }
    cli.ok(&["list"]);
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&cli.home().join("run")), mode(&path)), (0o700, 0o600));
    assert!(serving.terminate().success());
    assert!(!path.exists());
}

/// A home deep in the file system has a longer path than a socket address holds.
#[test]
fn a_deep_home_works() {
    let outer = tempfile::tempdir().unwrap();
    let home = outer.path().join("d".repeat(120));
    let cli = Cli::new().variable("PLUGWARD_HOME", home.to_str().unwrap());
    let serving = cli.serve(&[]);
    cli.ok(&["list"]);
    assert!(serving.terminate().success());
}
