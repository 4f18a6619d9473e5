//! Commands as plugins of a host: seen and approved before anything runs, called through the one call path in their
//! sandbox, and gone when they are switched off.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use plugward_host::{CallFailure, Environment, SpanFilter};
use plugward_policy::{HostStatus, PluginStatus};
use plugward_sandbox::Level;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::support::{PATIENCE, Settings, TestHost, eventually, processes_with, request};

/// A host that works in a project, and a folder of tool files.
pub(crate) struct Bench {
    pub(crate) host: TestHost,
    pub(crate) project: TempDir,
    pub(crate) files: TempDir,
}

impl Bench {
    pub(crate) async fn new(environment: Environment) -> Self {
        Self::with(Settings { environment, ..Settings::default() }).await
    }

    pub(crate) async fn with(mut settings: Settings) -> Self {
        let project = open_folder();
        fs::write(project.path().join("a.txt"), "TODO one\nother\nTODO two\n").unwrap();
        let folder = project.path().display().to_string();
        settings.host_environment.push(("PLUGWARD_PROJECT_DIR".to_owned(), folder));
        settings.host_environment.push(("PLANTED_API_KEY".to_owned(), "planted-secret-value".to_owned()));
        Self { host: TestHost::with(settings).await, project, files: open_folder() }
    }

    /// Installs the tool in these lines, under a name that is no package's.
    pub(crate) async fn install(&self, name: &str, command: &str, lines: &str) {
        let text = format!("type: mcp_tool\nname: {name}\ndescription: A tool\ncommand: {command}\n{lines}");
        let file = self.files.path().join(format!("{name}.tool.yaml"));
        fs::write(&file, text).unwrap();
        self.host.host.install(&file, None).await.unwrap();
    }

    pub(crate) async fn run(&self, name: &str, command: &str, lines: &str) {
        self.install(name, command, lines).await;
        self.host.approve(name).await;
        self.host.host.enable(name).await.unwrap();
    }

    pub(crate) async fn result(&self, name: &str, arguments: Value) -> Value {
        let report = self.host.call(&format!("{name}.{name}"), arguments).await;
        let reply = report.outcome.unwrap_or_else(|failure| panic!("{}", failure.message(name)));
        serde_json::from_str(reply.result.get()).unwrap()
    }

    pub(crate) async fn failure(&self, name: &str, arguments: Value) -> CallFailure {
        self.host.call(&format!("{name}.{name}"), arguments).await.outcome.unwrap_err()
    }
}

/// A temporary folder that others may read: a plugin of a host that is root runs as a user of its own.
fn open_folder() -> TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

const PATTERN: &str = "parameters: [{name: pattern, type: string, required: true, description: what to look for}]\n";

/// The same without a sandbox, for what tests look at from outside.
pub(crate) const OPEN: &str = "sandbox: {minimum_level: none}\n";

// Requirements 35, 94, 156, 196: seen whole before anything runs, run in the sandbox, traced, and gone when off.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_reviewed_approved_called_and_switched_off() {
    let bench = Bench::new(Environment::Production).await;
    let host = &bench.host.host;
    bench.install("find_todo", "[grep, -n, --, '{{params.pattern}}', a.txt]", PATTERN).await;
    assert!(host.enable("find_todo").await.is_err(), "nobody approved it");
    let review = host.review("find_todo").await.unwrap();
    assert!(review.argv[0].ends_with("/grep"), "{:?}", review.argv);
    assert_eq!(review.argv[1..], ["-n", "--", "{{params.pattern}}", "a.txt"]);
    assert_eq!(Path::new(&review.cwd), bench.project.path().canonicalize().unwrap());
    assert_eq!(review.environment, [("LOKI_MCP_TOOL".to_owned(), "find_todo".to_owned())]);
    assert_eq!(review.runs, "command");
    assert_eq!(review.package_files, 1, "a file beside it is another tool's");
    assert_eq!(review.tools[0].remote_name, "find_todo");
    bench.host.approve("find_todo").await;
    let view = host.enable("find_todo").await.unwrap();
    assert_eq!((view.status, view.host_status, view.tools_count), (PluginStatus::Ready, HostStatus::Ready, 1));
    assert_eq!(view.detail, "ready: its command runs once for each call");
    assert_eq!(host.host_status("find_todo").unwrap().pid, None, "no process before a call");
    let result = bench.result("find_todo", json!({ "pattern": "TODO" })).await;
    assert_eq!(result["content"], json!([{ "type": "text", "text": "1:TODO one\n3:TODO two" }]));
    let facts = &result["_meta"]["plugward/command"];
    assert_eq!(
        (&facts["exit_code"], &facts["timed_out"], &facts["truncated"]),
        (&json!(0), &json!(false), &json!(false))
    );
    let view = host.plugin("find_todo").await.unwrap();
    assert_eq!(view.enforcement.unwrap().level, Level::Full);
    let failed = bench.result("find_todo", json!({ "pattern": "nothing" })).await;
    assert_eq!(
        (&failed["isError"], &failed["content"][0]["text"]),
        (&json!(true), &json!("command ended with exit code 1"))
    );
    let spans = host.spans(SpanFilter::default()).await.unwrap().spans;
    assert_eq!(spans.iter().map(|span| span.outcome.as_str()).collect::<Vec<_>>(), ["tool_error", "ok"]);
    assert!(!format!("{spans:?}").contains("nothing"), "a trace holds no value");
    host.disable("find_todo").await.unwrap();
    assert_eq!(bench.host.tool_names("find_todo"), [] as [&str; 0]);
    assert_eq!(host.host_status("find_todo").unwrap().status, HostStatus::Stopped);
    host.remove("find_todo").await.unwrap();
    // Off and on again it stays on: a host on the same home starts it unasked.
    bench.install("again", "[echo, hi]", "").await;
    bench.host.approve("again").await;
    host.enable("again").await.unwrap();
    let home = bench.host.close().await;
    let later = TestHost::at(home, Settings { environment: Environment::Production, ..Settings::default() }).await;
    later.host.ensure_started("again").await.unwrap();
    assert_eq!(later.text("again.again", json!({})).await, "hi");
}

// Requirements 90, 91, 205: what the file does not ask for is not there, with its control.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_sees_its_project_and_nothing_else() {
    let bench = Bench::new(Environment::Development).await;
    let beside = open_folder();
    fs::write(beside.path().join("letter"), "planted").unwrap();
    let letter = beside.path().join("letter").display().to_string();
    let file = "parameters: [{name: file, type: string, required: true}]\n";
    bench.run("reads", "[cat, --, '{{params.file}}']", file).await;
    bench.run("open_reads", "[cat, --, '{{params.file}}']", &format!("{file}{OPEN}")).await;
    assert_eq!(bench.result("open_reads", json!({ "file": letter })).await["content"][0]["text"], "planted");
    assert_eq!(bench.result("reads", json!({ "file": letter })).await["isError"], true);
    assert_eq!(bench.result("reads", json!({ "file": "a.txt" })).await["isError"], Value::Null);
    // It may read the project; to write there, its file has to ask for it.
    let write = "[sh, -c, 'echo x > new.txt']";
    bench.run("writes", write, "").await;
    assert_eq!(bench.result("writes", json!({})).await["isError"], true);
    assert!(!bench.project.path().join("new.txt").exists());
    bench.run("env_of", "[env]", "").await;
    let env = bench.result("env_of", json!({})).await["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(env.contains("LOKI_MCP_TOOL=env_of") && !env.contains("planted-secret-value"), "{env}");
}

// Invariant 8: the tool that was approved is the tool that runs, at each call.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_runs_nothing() {
    let bench = Bench::new(Environment::Production).await;
    bench.run("says", "[echo, one]", "working_directory: plugin\n").await;
    assert_eq!(bench.result("says", json!({})).await["content"][0]["text"], "one");
    let installed = bench.host.home().join("plugins/says/says.tool.yaml");
    let text = fs::read_to_string(&installed).unwrap();
    fs::write(&installed, text.replace("one", "two")).unwrap();
    let failure = bench.failure("says", json!({})).await;
    assert!(matches!(&failure, CallFailure::Unavailable { reason } if reason.contains("held")), "{failure:?}");
    assert!(!bench.host.host.plugin("says").await.unwrap().approved);
    // Once a person agreed to what is there now, it runs again, without a restart.
    bench.host.approve("says").await;
    assert_eq!(bench.result("says", json!({})).await["content"][0]["text"], "one");
}

// A file in a user's home, which holds plugward's own, is a package of its own and installs.
#[tokio::test(flavor = "multi_thread")]
async fn a_lone_file_may_lie_above_plugwards_home() {
    let bench = Bench::new(Environment::Development).await;
    let file = bench.host.home().parent().unwrap().join(format!("lone-{}.yaml", std::process::id()));
    fs::write(&file, "type: mcp_tool\nname: lone\ndescription: d\ncommand: [echo]\n").unwrap();
    let installed = bench.host.host.install(&file, None).await;
    fs::remove_file(&file).unwrap();
    assert_eq!(installed.unwrap().id.as_str(), "lone");
}

// A crash, a time-out, bad values and large output are failures of the call; the plugin stays ready.
#[tokio::test(flavor = "multi_thread")]
async fn failures_are_the_calls_own() {
    let bench = Bench::new(Environment::Development).await;
    let how = "parameters: [{name: how, type: string, enum: [crash, sleep, large, ok], required: true}]\ntimeout_ms: \
               1500\nmax_output_bytes: 1000\n";
    let script = "|\n  case {{params.how}} in\n  crash) kill -9 $$;;\n  sleep) echo partial; sleep 65;;\n  large) head -c 2000 \
                  /dev/zero;;\n  ok) echo fine;;\n  esac";
    bench.run("does", script, &format!("shell: true\n{how}")).await;
    let crashed = bench.result("does", json!({ "how": "crash" })).await;
    assert_eq!((&crashed["isError"], &crashed["_meta"]["plugward/command"]["signal"]), (&json!(true), &json!(9)));
    // B042: a time-out has what was said until then.
    let late = bench.result("does", json!({ "how": "sleep" })).await;
    assert_eq!((&late["isError"], &late["_meta"]["plugward/error"]["cause"]), (&json!(true), &json!("timed_out")));
    assert_eq!(late["content"][0]["text"], "Timeout: command exceeded 1500ms limit\npartial");
    let mut hurried = request("does.does", json!({ "how": "sleep" }));
    hurried.timeout = Some(Duration::from_millis(300));
    let hurried = bench.host.host.call(hurried).await.outcome.unwrap_err();
    assert_eq!(hurried.message("does.does"), "`does.does` did not answer within 300ms (limit `timeout of the caller`)");
    let large = bench.failure("does", json!({ "how": "large" })).await;
    assert!(matches!(large, CallFailure::ResultTooLarge { limit: 1000, .. }), "{large:?}");
    for bad in [json!({}), json!({ "how": "no" }), json!({ "how": "ok", "x": 1 }), json!({ "how": 5 })] {
        let failure = bench.failure("does", bad.clone()).await;
        assert!(matches!(failure, CallFailure::ArgumentInvalid { .. }), "{bad}: {failure:?}");
    }
    assert_eq!(bench.host.host.plugin("does").await.unwrap().status, PluginStatus::Ready);
    assert_eq!(bench.result("does", json!({ "how": "ok" })).await["content"][0]["text"], "fine");
    let log = bench.host.host.logs("does").unwrap();
    assert!(log.iter().any(|line| line.text.contains("run failed: command was ended by signal 9")), "{log:?}");
}

// Invariant 5, requirement 97: switching off ends what runs; a cancel ends one call.
#[tokio::test(flavor = "multi_thread")]
async fn what_runs_ends_with_a_cancel_and_with_the_plugin() {
    let bench = Bench::new(Environment::Development).await;
    let mark = bench.project.path().display().to_string();
    let started = bench.project.path().join("started");
    let script = format!("[sh, -c, 'touch {mark}/started; sleep 66; echo', {mark}]");
    bench.run("sleeps", &script, OPEN).await;
    let host = bench.host.host.clone();
    let cancelled = request("sleeps.sleeps", json!({}));
    let token = cancelled.cancel.clone();
    let call = tokio::spawn(async move { host.call(cancelled).await });
    eventually("it starts", || started.exists().then_some(())).await;
    token.cancel();
    assert!(matches!(call.await.unwrap().outcome, Err(CallFailure::Cancelled)));
    assert_eq!(processes_with(&mark), [] as [u32; 0]);
    fs::remove_file(&started).unwrap();
    let host = bench.host.host.clone();
    let call = tokio::spawn(async move { host.call(request("sleeps.sleeps", json!({}))).await });
    eventually("it starts again", || started.exists().then_some(())).await;
    let begun = Instant::now();
    bench.host.host.disable("sleeps").await.unwrap();
    assert!(matches!(call.await.unwrap().outcome, Err(CallFailure::Unavailable { .. })));
    assert_eq!(processes_with(&mark), [] as [u32; 0]);
    assert!(begun.elapsed() < PATIENCE);
}

// Issue 4, item 3: a long command tells how far it is, by the lines it writes.
#[tokio::test(flavor = "multi_thread")]
async fn progress_comes_from_the_lines_of_the_output() {
    let bench = Bench::new(Environment::Development).await;
    let go = bench.project.path().join("go");
    let script = format!("[sh, -c, 'echo first; while ! test -e {}; do sleep 0.05; done; echo last']", go.display());
    bench.run("counts", &script, OPEN).await;
    let (sender, mut notes) = mpsc::channel(16);
    let mut call = request("counts.counts", json!({}));
    call.progress = Some(sender);
    let host = bench.host.host.clone();
    let call = tokio::spawn(async move { host.call(call).await });
    let note = tokio::time::timeout(PATIENCE, notes.recv()).await.unwrap().unwrap();
    assert_eq!(note.get(), r#"{"progress":1,"message":"first"}"#);
    fs::write(go, "").unwrap();
    let reply = call.await.unwrap().outcome.unwrap();
    assert!(reply.result.get().contains("first\\nlast"));
}

// Output that does not fit lies in a file of the plugin's, which goes with the plugin.
#[tokio::test(flavor = "multi_thread")]
async fn output_that_does_not_fit_is_a_link_to_a_file() {
    let bench = Bench::new(Environment::Development).await;
    let lines = "output_limit: spill\nmax_output_bytes: 100\noutput: lines\n";
    bench.run("writes_much", "[seq, '100000']", lines).await;
    let result = bench.result("writes_much", json!({})).await;
    let link = &result["content"][1];
    assert_eq!((&link["type"], &link["size"]), (&json!("resource_link"), &json!(588_895)));
    let path = link["uri"].as_str().unwrap().strip_prefix("file://").unwrap().to_owned();
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 100_000);
    assert_eq!(result["_meta"]["plugward/command"]["truncated"], true);
    assert_eq!(result["structuredContent"]["lines"][0], "1");
    bench.host.host.remove("writes_much").await.unwrap();
    assert!(!Path::new(&path).exists());
}

// B033, B065: a package with a script of its own; it gets no stdin and no descriptor of the host's, and what it writes
// comes back readable, with how it ended. (Descriptor 10 is the script, which the shell itself holds open.)
#[tokio::test(flavor = "multi_thread")]
async fn a_package_may_bring_its_script() {
    use std::os::unix::fs::PermissionsExt as _;
    let bench = Bench::new(Environment::Development).await;
    let script = "#!/bin/sh\nbytes=$(wc -c)\nset -- /proc/self/fd/*\necho \"read $bytes bytes\"\nfor fd; do case ${fd##*/} in \
                  0|1|2|3|10) ;; *) test -e $fd && echo extra $fd;; esac; done\nprintf '\\033[31mred\\033[0m caf\\351\\n'\necho wrong \
                  >&2\nexit 3\n";
    let manifest =
        "type: mcp_tool\nname: packed\ndescription: d\ncommand: [./bin/tool.sh]\nworking_directory: plugin\n";
    let package = bench.files.path().join("packed");
    fs::create_dir_all(package.join("bin")).unwrap();
    fs::write(package.join("plugin.yaml"), manifest).unwrap();
    fs::write(package.join("bin/tool.sh"), script).unwrap();
    fs::set_permissions(package.join("bin/tool.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    bench.host.host.install(&package, None).await.unwrap();
    bench.host.approve("packed").await;
    bench.host.host.enable("packed").await.unwrap();
    let result = bench.result("packed", json!({})).await;
    let text = result["content"][0]["text"].as_str().unwrap();
    assert_eq!(text, "read 0 bytes\nred caf\u{fffd}\nwrong\ncommand ended with exit code 3");
    assert_eq!(result["isError"], true);
}

// Invariants 3, 5, 7: calls over the limit wait their turn and are all answered; what runs when the host ends ends with it.
#[tokio::test(flavor = "multi_thread")]
async fn many_calls_wait_their_turn_and_a_shutdown_ends_them() {
    let bench = Bench::new(Environment::Development).await;
    let folder = bench.project.path().join("runs");
    fs::create_dir(&folder).unwrap();
    let mark = folder.display().to_string();
    let script =
        format!("[sh, -c, 'touch {mark}/$$; while ! test -e {mark}/go; do sleep 0.05; done; echo done', {mark}]");
    bench.run("waits", &script, &format!("max_concurrent_calls: 3\n{OPEN}")).await;
    let call =
        |host: plugward_host::Host| tokio::spawn(async move { host.call(request("waits.waits", json!({}))).await });
    let calls: Vec<_> = (0..9).map(|_| call(bench.host.host.clone())).collect();
    let begun = || fs::read_dir(&folder).unwrap().count();
    eventually("three run", || (begun() == 3).then_some(())).await;
    let view = bench.host.host.host_status("waits").unwrap();
    assert_eq!((view.calls_running, view.calls_waiting, begun()), (3, 6, 3));
    fs::write(folder.join("go"), "").unwrap();
    for call in calls {
        assert!(call.await.unwrap().outcome.unwrap().result.get().contains("done"));
    }
    assert_eq!(begun(), 10, "nine runs and the sign to go");
    fs::remove_file(folder.join("go")).unwrap();
    let last = call(bench.host.host.clone());
    eventually("one more runs", || (begun() == 10).then_some(())).await;
    bench.host.host.shutdown().await;
    assert!(last.await.unwrap().outcome.is_err());
    assert_eq!(processes_with(&mark), [] as [u32; 0]);
}

// Invariant 4: a secret a command was given comes back through nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_the_command_is_masked_in_what_it_says() {
    let bench = Bench::new(Environment::Development).await;
    let lines = "env: {API_KEY: '${PLANTED_API_KEY}'}\noutput: lines\n";
    bench.run("tells", "[env]", lines).await;
    let result = bench.result("tells", json!({})).await.to_string();
    assert!(result.contains("API_KEY=***") && !result.contains("planted-secret-value"), "{result}");
    let review = bench.host.host.review("tells").await.unwrap();
    assert!(!format!("{review:?}").contains("planted-secret-value"));
}

// Invariant 4: nor in half, where its output was cut, nor in the file with all of it.
#[tokio::test(flavor = "multi_thread")]
async fn no_cut_of_the_output_leaves_half_a_secret() {
    let bench = Bench::new(Environment::Development).await;
    let lines = "env: {API_KEY: '${PLANTED_API_KEY}'}\nshell: true\nmax_output_bytes: 15\noutput_limit: ";
    let script = "'printf \"0123456789%s%s and more\" \"$API_KEY\" \"$API_KEY\"'";
    bench.run("cuts", script, &format!("{lines}truncate\n")).await;
    let cut = bench.result("cuts", json!({})).await.to_string();
    assert!(cut.contains("0123456789*****\\n[stdout is cut") && !cut.contains("plan"), "{cut}");
    bench.run("spills", script, &format!("{lines}spill\n")).await;
    let spilled = bench.result("spills", json!({})).await;
    assert!(!spilled.to_string().contains("plan"), "{spilled}");
    let path = spilled["content"][1]["uri"].as_str().unwrap().strip_prefix("file://").unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), "0123456789****** and more");
    // What cannot be kept is told as that, with its place, and not as a command that wrote too much.
    let outputs = bench.host.home().join("outputs/spills");
    fs::remove_dir_all(&outputs).unwrap();
    fs::write(&outputs, "in the way").unwrap();
    let lost = bench.result("spills", json!({})).await;
    let error = &lost["_meta"]["plugward/command"]["error"];
    assert_eq!((&lost["isError"], &error["code"]), (&json!(true), &json!("COMMAND_OUTPUT_NOT_KEPT")));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(outputs.to_str().unwrap()) && message.contains("make room on that disk"), "{message}");
}

// Requirement 39: two files of one name are one conflict, at installation.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_taken_once_and_a_bad_file_is_refused_with_its_place() {
    let bench = Bench::new(Environment::Development).await;
    bench.install("taken", "[echo]", "").await;
    let second = bench.files.path().join("other.yaml");
    fs::write(&second, "type: mcp_tool\nname: taken\ndescription: x\ncommand: [echo]\n").unwrap();
    let error = bench.host.host.install(&second, None).await.unwrap_err();
    assert_eq!(error.code.as_str(), "PLUGIN_ALREADY_INSTALLED");
    fs::write(&second, "type: mcp_tool\nname: bad\ndescription: x\ncommand: \"a | b\"\n").unwrap();
    let error = bench.host.host.install(&second, None).await.unwrap_err();
    assert_eq!(error.code.as_str(), "PLUGIN_MANIFEST_INVALID");
    assert!(error.message.contains("other.yaml:4:10: command: `|` in the command is a pipe"), "{}", error.message);
    let range = "type: mcp_tool\nname: bad\ndescription: x\ncommand: [head, '{{params.n}}']\nparameters: [{name: n, type: \
                 integer, minimum: 5, default: 1}]\n";
    fs::write(&second, range).unwrap();
    let error = bench.host.host.install(&second, None).await.unwrap_err();
    assert!(error.message.contains("parameter `n`: its default does not fit"), "{}", error.message);
}

// Requirement 91: a host that a command was granted is there for each run, and others are not; each try is noted.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_reaches_the_host_it_was_granted() {
    let [granted, beside] = [(); 2].map(|()| greeting_server());
    let bench = Bench::new(Environment::Production).await;
    let lines = format!(
        "permissions: ['net:api.localhost:{granted}']\nparameters: [{{name: host, type: string, required: true}}]\n"
    );
    let command = format!("[bash, -c, 'exec 3<>/dev/tcp/$1/$2 && cat <&3', tool, '{{{{params.host}}}}', '{granted}']");
    bench.run("fetch", &command, &lines).await;
    for _ in 0..2 {
        let result = bench.result("fetch", json!({ "host": "api.localhost" })).await;
        assert_eq!(result["content"][0]["text"], "hello", "{result}");
    }
    let refused = bench.result("fetch", json!({ "host": "telemetry.example" })).await;
    assert_eq!(refused["isError"], true, "{refused}");
    let command = format!("[bash, -c, 'exec 3<>/dev/tcp/$1/$2 && cat <&3', tool, '{{{{params.host}}}}', '{beside}']");
    bench.run("other", &command, &lines).await;
    assert_eq!(bench.result("other", json!({ "host": "api.localhost" })).await["isError"], true);
    let tried = || {
        let places = bench.host.host.overview().into_iter().find(|view| view.id.as_str() == "fetch")?.network_attempts;
        let places: Vec<String> =
            places.iter().map(|attempt| format!("{} {}", attempt.place(), attempt.count)).collect();
        let wanted = ["telemetry.example 1".to_owned(), format!("api.localhost:{granted} 2")];
        (places == wanted).then_some(())
    };
    eventually("what the command tried is known", tried).await;
}

/// A service of this machine that greets whoever connects; its port.
fn greeting_server() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let _gone = std::io::Write::write_all(&mut connection.unwrap(), b"hello");
        }
    });
    port
}
