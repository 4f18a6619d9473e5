//! Commands as a library: the registry and the runs of a program that embeds them. Each weakness the format's first
//! implementation is known for is an input here, with the right value.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plugward_host::{CommandResult, CommandTools, CommandToolsConfig};
use plugward_sandbox::{LAUNCH_ARGUMENT, Launcher};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{PATIENCE, plugward, processes_with};

/// The format's first example.
const GREP: &str = "type: mcp_tool\nname: grep_todo\ndescription: Search TODO comments\ncommand: \"grep -R \
                    {{params.keyword}} src\"\nparameters: [{name: keyword, type: string, required: true, description: \
                    keyword to search}]\ntimeout_ms: 5000\nworking_directory: project\n";

/// A registry with a storage of its own and a project to work in.
pub(crate) struct Library {
    pub(crate) tools: CommandTools,
    pub(crate) project: TempDir,
    _storage: TempDir,
}

impl Library {
    pub(crate) fn new() -> Self {
        Self::with_environment(&[])
    }

    pub(crate) fn with_environment(variables: &[(&str, &str)]) -> Self {
        let storage = tempfile::tempdir().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut host_environment = vec![("PATH".to_owned(), path)];
        host_environment.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let tools = CommandTools::new(CommandToolsConfig {
            launcher: Launcher::at(plugward(), [LAUNCH_ARGUMENT]),
            host_environment,
            storage: storage.path().to_owned(),
        });
        Self { tools, project: project(), _storage: storage }
    }

    /// Registers a tool `demo` without a sandbox: these tests are about processes, and many touch temporary folders.
    pub(crate) fn demo(&self, command: &str, lines: &str) {
        let text = format!(
            "type: mcp_tool\nname: demo\ndescription: d\ncommand: {command}\nsandbox: {{minimum_level: none}}\n{lines}"
        );
        let registration = self.tools.register_text(&text, Path::new("demo.yaml"));
        assert_eq!(registration.error, None, "{text}");
    }

    pub(crate) async fn run(&self, values: Value) -> CommandResult {
        self.tools.execute("demo", &values, Some(self.project.path())).await
    }

    /// A script in the project; not a program anybody else runs, so its name marks its processes.
    pub(crate) fn script(&self, name: &str, body: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.project.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

fn project() -> TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let project = tempfile::tempdir().unwrap();
    fs::set_permissions(project.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(project.path().join("src")).unwrap();
    fs::write(project.path().join("src/a.txt"), "TODO one\n-x\nit's \"quoted\" $(id)\n").unwrap();
    project
}

pub(crate) fn code(result: &CommandResult) -> &'static str {
    result.error.as_ref().map_or("", |error| error.code.as_str())
}

pub(crate) fn stage(result: &CommandResult) -> &'static str {
    result.error.as_ref().map_or("", |error| error.stage.as_str())
}

// Requirements 163-168, 175, 182; W16, W17.
#[tokio::test]
async fn the_registry_tells_its_mistakes_and_lists_copies() {
    let library = Library::new();
    let tools = &library.tools;
    assert!(tools.register_text(GREP, Path::new("grep.yaml")).success);
    let again = tools.register_text(GREP, Path::new("grep.yaml"));
    assert_eq!((again.success, again.error.as_deref()), (false, Some("tool `grep_todo` is already registered")));
    let server = "id: a\nname: A\nversion: 1\nbackend: {type: mcp, transport: stdio, command: x}\n";
    let wrong = tools.register_text(server, Path::new("a.yaml"));
    assert_eq!(wrong.error.as_deref(), Some("plugin `a` is not of type `mcp_tool`"));
    // Requirement 164: a gate judges for a person; whoever registers tools gets tools.
    let gate = "type: quality_gate\nname: judges\ndescription: d\ncommand: [\"true\"]\n";
    let gate = tools.register_text(gate, Path::new("g.yaml"));
    assert_eq!(gate.error.as_deref(), Some("plugin `judges` is not of type `mcp_tool`"));
    assert!(tools.register_text("type: mcp_tool\n", Path::new("b.yaml")).error.unwrap().contains("name: missing key"));
    let schema =
        GREP.replace("required: true", "pattern: '('").replace("grep_todo", "bad").replace("{{params.keyword}}", "x");
    assert!(tools.register_text(&schema, Path::new("c.yaml")).error.is_some(), "a pattern that is none");
    let range = "type: mcp_tool\nname: demo\ndescription: d\ncommand: [head, '{{params.n}}']\nparameters: [{name: n, type: \
                 integer, minimum: 5, default: 1}]\n";
    assert!(tools.register_text(range, Path::new("d.yaml")).error.unwrap().contains("its default does not fit"));
    let mut list = tools.list();
    assert_eq!(list.len(), 1);
    assert_eq!(list[0].command, ["grep", "-R", "{{params.keyword}}", "src"]);
    assert_eq!((list[0].timeout_ms, list[0].working_directory.as_str()), (5000, "project"));
    list[0].name.push('x');
    assert_eq!(tools.list()[0].name, "grep_todo");
    assert_eq!(tools.definition("grep_todo").unwrap()["inputSchema"]["required"], json!(["keyword"]));
    assert_eq!(tools.definition("nobody"), None);
    assert!(tools.unregister("grep_todo").success);
    assert_eq!(tools.unregister("grep_todo").error.as_deref(), Some("tool `grep_todo` is not registered"));
    let gone = tools.execute("grep_todo", &json!({}), None).await;
    assert_eq!((code(&gone), stage(&gone)), ("COMMAND_NOT_REGISTERED", "pre-check"));
}

// Requirement 195: exactly one of many registrations of a name wins.
#[test]
fn one_of_many_registrations_wins() {
    let library = Library::new();
    let wins = std::thread::scope(|scope| {
        let register = || library.tools.register_text(GREP, Path::new("grep.yaml")).success;
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(register)).collect();
        threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum::<usize>()
    });
    assert_eq!(wins, 1);
}

// Requirements 156, 170: the example of the format runs, in its sandbox, and sees the project and nothing beside it.
#[tokio::test(flavor = "multi_thread")]
async fn the_seeds_example_runs_in_its_sandbox() {
    let library = Library::new();
    assert_eq!(library.tools.register_text(GREP, Path::new("grep.yaml")).error, None);
    let values = json!({ "keyword": "TODO" });
    let result = library.tools.execute("grep_todo", &values, Some(library.project.path())).await;
    assert_eq!((result.success, result.output.as_str()), (true, "src/a.txt:TODO one"), "{result:?}");
    assert_eq!((result.exit_code, result.timed_out, result.truncated), (Some(0), false, false));
    let none = library.tools.execute("grep_todo", &json!({ "keyword": "nothing" }), Some(library.project.path())).await;
    assert_eq!((none.success, none.exit_code, code(&none)), (false, Some(1), "COMMAND_FAILED"));
    // W19: not an option, and nothing was run.
    let option = library.tools.execute("grep_todo", &json!({ "keyword": "--file=/etc/shells" }), None).await;
    assert_eq!((code(&option), stage(&option)), ("COMMAND_ARGUMENT_INVALID", "substitution"));
    // A file beside the project is there for others and not for it. Control: it is there without a sandbox.
    let outside = project();
    let secret = outside.path().join("src/a.txt");
    let read = format!("type: mcp_tool\nname: reads\ndescription: d\ncommand: [cat, {}]\n", secret.display());
    assert!(library.tools.register_text(&read, Path::new("r.yaml")).success);
    assert!(!library.tools.execute("reads", &json!({}), Some(library.project.path())).await.success);
    library.demo(&format!("[cat, {}]", secret.display()), "");
    assert!(library.run(json!({})).await.output.starts_with("TODO one"));
}

// W1-W4, W6: whatever the value is, the program gets exactly that.
#[tokio::test(flavor = "multi_thread")]
async fn values_arrive_as_they_are() {
    let library = Library::new();
    let params =
        "parameters: [{name: a, type: string, required: true}, {name: b, type: string, default: '; echo PWNED #'}]\n";
    library.demo("\"printf '<%s>' '{{params.a}}' \\\"{{params.b}}\\\"\"", params);
    for value in [
        "{{params.b}}",
        "price $$5 [$&] $'",
        "';echo PWNED;'",
        "$(echo PWNED)",
        "`id`",
        "a b\tc",
        "it's",
        "\"",
        "\\",
        "",
        "é🦀",
        "line\nbreak",
        "${HOME}",
        "$1",
        "*",
        "../../etc/passwd",
    ] {
        let result = library.run(json!({ "a": value })).await;
        assert_eq!(result.stdout, format!("<{value}><; echo PWNED #>"), "{result:?}");
    }
    let nul = library.run(json!({ "a": "x\u{0}y" })).await;
    assert_eq!((nul.success, code(&nul)), (false, "COMMAND_ARGUMENT_INVALID"));
}

// The same with a shell in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_shell_never_reads_a_value() {
    let library = Library::new();
    let params = "shell: true\nparameters: [{name: a, type: string, required: true, allow_leading_dash: true}]\n";
    library.demo("|\n  printf '<%s>' {{params.a}} \"{{params.a}}\" '{{params.a}}' | cat", params);
    for value in ["; echo PWNED", "$(echo PWNED)", "a  b *", "it's \"x\"", "-n", "`id`", "\\", "${HOME} $1"] {
        let result = library.run(json!({ "a": value })).await;
        assert_eq!(result.stdout, format!("<{value}>").repeat(3), "{result:?}");
    }
}

// W7, requirement 176: the command knows which tool it is, and nothing of the host.
#[tokio::test(flavor = "multi_thread")]
async fn no_secret_of_the_host_is_inherited() {
    let library = Library::with_environment(&[("DEMO_HOST_SECRET", "planted-secret"), ("DEMO_KEY", "given")]);
    library.demo("[env]", "env: {GIVEN: '${DEMO_KEY}'}\n");
    let result = library.run(json!({})).await;
    assert!(!result.output.contains("planted-secret"), "{}", result.output);
    assert!(result.output.contains("GIVEN=given") && result.output.contains("LOKI_MCP_TOOL=demo"), "{}", result.output);
}

// W8, W9, requirement 174: time is up for the whole tree, bounded even for programs that ignore TERM, and said so.
#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_ends_the_whole_tree_and_says_so() {
    let library = Library::new();
    let tree = library.script("tree.sh", "sh -c 'sleep 61; echo' & setsid sh -c 'sleep 62; echo' & wait");
    let stubborn = library.script("stubborn.sh", "trap '' TERM\nwhile :; do sleep 63; done");
    for script in [&tree, &stubborn] {
        let begun = Instant::now();
        drop(library.tools.unregister("demo"));
        library.demo(&format!("[sh, {}]", script.display()), "timeout_ms: 400\n");
        let result = library.run(json!({})).await;
        assert_eq!((result.success, result.timed_out, code(&result)), (false, true, "COMMAND_TIMEOUT"));
        assert_eq!(result.output, "Timeout: command exceeded 400ms limit");
        assert!(begun.elapsed() < PATIENCE);
        assert_eq!(processes_with(library.project.path().to_str().unwrap()), [] as [u32; 0], "{}", script.display());
    }
}

/// A caller that goes away takes the command along.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_run_leaves_no_process() {
    let library = Library::new();
    let script = library.script("slow.sh", "echo x > started; sleep 61");
    library.demo(&format!("[sh, {}]", script.display()), "");
    let started = library.project.path().join("started");
    tokio::select! {
        result = library.run(json!({})) => panic!("{result:?}"),
        () = crate::support::eventually("it starts", || started.exists().then_some(())) => {}
    }
    let mark = library.project.path().to_str().unwrap();
    crate::support::eventually("it ends", || processes_with(mark).is_empty().then_some(())).await;
}

// W10, requirements 175, 181, 201: over the limit is an error that says so, a cut that says so, or a file.
#[tokio::test(flavor = "multi_thread")]
async fn large_output_is_an_error_a_cut_or_a_file() {
    let library = Library::new();
    let write = |bytes: u64| format!("[head, -c, '{bytes}', /dev/zero]");
    library.demo("[sh, -c, \"head -c 1048576 /dev/zero | tr '\\\\0' x\"]", "");
    let exact = library.run(json!({})).await;
    assert_eq!((exact.success, exact.stdout.len(), exact.truncated), (true, 1_048_576, false));
    drop(library.tools.unregister("demo"));
    library.demo(&write(1_048_577), "");
    let over = library.run(json!({})).await;
    assert_eq!((over.success, code(&over), over.timed_out), (false, "COMMAND_OUTPUT_TOO_LARGE", false));
    assert!(over.output.contains("more than 1048576 bytes to stdout"), "{}", over.output);
    drop(library.tools.unregister("demo"));
    library.demo("[sh, -c, 'yes | head -c 3000000']", "output_limit: truncate\nmax_output_bytes: 1000\n");
    let cut = library.run(json!({})).await;
    assert_eq!((cut.success, cut.stdout.len(), cut.truncated, cut.exit_code), (true, 1000, true, Some(0)));
    assert!(cut.output.ends_with("[stdout is cut: 2999000 of its 3000000 bytes are left out]"));
    drop(library.tools.unregister("demo"));
    library.demo("[sh, -c, 'yes | head -c 3000000; echo warn >&2']", "output_limit: spill\nmax_output_bytes: 1000\n");
    let spilled = library.run(json!({})).await;
    assert_eq!((spilled.success, spilled.spilled.len(), spilled.stderr.as_str()), (true, 1, "warn\n"));
    assert_eq!(spilled.spilled[0].bytes, 3_000_000);
    assert_eq!(fs::metadata(&spilled.spilled[0].path).unwrap().len(), 3_000_000);
}

// W11: what fails repeats no value.
#[tokio::test(flavor = "multi_thread")]
async fn no_failure_repeats_a_value() {
    let library = Library::new();
    let params = "parameters: [{name: token, type: string, required: true, maxLength: 20}]\n";
    library.demo("[\"false\", '{{params.token}}']", params);
    for token in ["SECRET", "--SECRET", "SECRET\u{0}", "SECRET-SECRET-SECRET-SECRET"] {
        let result = library.run(json!({ "token": token })).await;
        assert!(!result.success && !format!("{result:?}").contains("SECRET"), "{result:?}");
    }
}

// W12/13, requirements 192, 197: nothing runs for values that do not fit.
#[tokio::test(flavor = "multi_thread")]
async fn values_are_checked_before_anything_starts() {
    let library = Library::new();
    let mark = library.project.path().join("ran");
    let params = "parameters: [{name: n, type: integer, required: true, minimum: 1, maximum: 9}, {name: m, type: string, \
                  enum: [fast, slow], default: fast}]\n";
    library.demo(
        &format!("[sh, -c, 'echo \"$@\" > {}', sh, '{{{{params.n}}}}', '{{{{params.m}}}}']", mark.display()),
        params,
    );
    for values in [
        json!({}),
        json!({"n": "1"}),
        json!({"n": 0}),
        json!({"n": 1.5}),
        json!({"n": 1, "m": "no"}),
        json!([]),
        json!({"n": 1, "x": 1}),
        json!({"n": null}),
    ] {
        let result = library.run(values.clone()).await;
        assert_eq!(code(&result), "COMMAND_ARGUMENT_INVALID", "{values}");
        assert!(!mark.exists(), "{values}");
    }
    assert!(library.run(json!({ "n": 3 })).await.success);
    assert_eq!(fs::read_to_string(&mark).unwrap(), "3 fast\n");
}

// W14, requirements 178, 199: the folder a command runs in is the one its file names.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_where_its_file_says() {
    let library = Library::new();
    let project = library.project.path().canonicalize().unwrap();
    fs::create_dir(project.join(".git")).unwrap();
    let tools = project.join("tools");
    fs::create_dir(&tools).unwrap();
    let inside = project.join("src");
    let permitted = format!("permissions: ['fs.read:{}']\n", inside.display());
    for (lines, given, wanted) in [
        (String::new(), &project, &project),
        ("working_directory: project\n".to_owned(), &inside, &inside),
        ("working_directory: repo\n".to_owned(), &inside, &project),
        ("working_directory: plugin\n".to_owned(), &inside, &tools),
        (format!("working_directory: {}\n{permitted}", inside.display()), &project, &inside),
    ] {
        let text = format!("type: mcp_tool\nname: where\ndescription: d\ncommand: pwd\n{lines}");
        assert_eq!(library.tools.register_text(&text, &tools.join("where.yaml")).error, None);
        let result = library.tools.execute("where", &json!({}), Some(given)).await;
        assert_eq!(result.output, wanted.to_str().unwrap(), "{lines}{result:?}");
        assert!(library.tools.unregister("where").success);
    }
    // W21: a folder that is not there is named, with its stage; a program that is not there as well.
    library.demo("ls", "");
    let gone = library.tools.execute("demo", &json!({}), Some(&project.join("gone"))).await;
    assert_eq!((code(&gone), stage(&gone)), ("COMMAND_NOT_EXECUTABLE", "pre-check"));
    assert!(gone.output.contains("gone` does not exist") || gone.output.contains("looked for"), "{}", gone.output);
    let norepo = tempfile::tempdir().unwrap();
    let text = "type: mcp_tool\nname: where\ndescription: d\ncommand: pwd\nworking_directory: repo\n";
    assert!(library.tools.register_text(text, Path::new("w.yaml")).success);
    let result = library.tools.execute("where", &json!({}), Some(norepo.path())).await;
    assert!(result.output.contains("has a `.git`"), "{}", result.output);
    let text = "type: mcp_tool\nname: nothing\ndescription: d\ncommand: no-such-program-here\n";
    assert!(library.tools.register_text(text, Path::new("n.yaml")).success);
    let result = library.tools.execute("nothing", &json!({}), Some(&project)).await;
    assert_eq!(code(&result), "COMMAND_NOT_EXECUTABLE");
    assert!(result.output.contains("`no-such-program-here` was not found in PATH"), "{}", result.output);
}

// W20, W21: stdin is closed or one value; exit code and signal are told apart.
#[tokio::test(flavor = "multi_thread")]
async fn stdin_exit_code_and_signal_are_as_they_are() {
    let library = Library::new();
    library.demo("cat", "");
    assert_eq!(library.run(json!({})).await.exit_code, Some(0));
    drop(library.tools.unregister("demo"));
    library.demo("[cat]", "stdin: '{{params.t}}'\nparameters: [{name: t, type: string, required: true}]\n");
    let text = "x\0y\n".repeat(100_000);
    assert_eq!(library.run(json!({ "t": text })).await.stdout.len(), 300_000, "without the NULs");
    drop(library.tools.unregister("demo"));
    library.demo("[\"true\"]", "stdin: '{{params.t}}'\nparameters: [{name: t, type: string, required: true}]\n");
    let unread = library.run(json!({ "t": "x".repeat(1_000_000) })).await;
    assert!(unread.success, "a program need not read: {unread:?}");
    drop(library.tools.unregister("demo"));
    library.demo("[sh, -c, 'echo out; echo err >&2; exit 3']", "");
    let result = library.run(json!({})).await;
    assert_eq!((result.exit_code, result.signal, code(&result)), (Some(3), None, "COMMAND_FAILED"));
    assert_eq!(
        (result.stdout.as_str(), result.stderr.as_str(), result.output.as_str()),
        ("out\n", "err\n", "out\nerr")
    );
    drop(library.tools.unregister("demo"));
    library.demo("[sh, -c, 'kill -9 $$']", "");
    let result = library.run(json!({})).await;
    assert_eq!((result.exit_code, result.signal, code(&result)), (None, Some(9), "COMMAND_SIGNALLED"));
}

// Requirement 201: 100 MB of output completes, and the memory of this process does not grow with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_megabytes_cost_no_memory() {
    let library = Library::new();
    library.demo("[head, -c, '100000000', /dev/zero]", "output_limit: spill\nmax_output_bytes: 65536\n");
    let before = peak_kib();
    let result = library.run(json!({})).await;
    assert_eq!((result.success, result.spilled[0].bytes), (true, 100_000_000), "{:?}", result.error);
    let grown = peak_kib().saturating_sub(before);
    // Other tests run in this process at the same time; a hundred megabytes would show all the same.
    assert!(grown < 60_000, "memory grew by {grown} KiB");
}

/// Most memory this process ever had.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A tool file in the project itself does not keep its command from writing to the project.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_the_project_root_is_in_nobodys_way() {
    use std::os::unix::fs::MetadataExt as _;
    let library = Library::new();
    let project = library.project.path();
    let text = "type: mcp_tool\nname: writes\ndescription: d\ncommand: [touch, made]\npermissions: \
                ['fs.write:${PROJECT_DIR}']\n";
    assert_eq!(library.tools.register_text(text, &project.join("writes.yaml")).error, None);
    let result = library.tools.execute("writes", &json!({}), Some(project)).await;
    // Where the tests run as root, a command runs as a user of its own, who has to own what it writes to.
    let runs_as_other = fs::metadata(project).unwrap().uid() == 0;
    let is_foreign = result.output.contains("belongs to another user");
    assert!(if runs_as_other { is_foreign } else { result.success && project.join("made").exists() }, "{result:?}");
}

/// The folder of a file is where its permissions and variables say it is, whatever else names it.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_whose_variables_name_its_folder_finds_it() {
    let library = Library::new();
    let own = library.project.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("words"), "found").unwrap();
    let text = "type: mcp_tool\nname: finds\ndescription: d\ncommand: [sh, -c, 'cat \"$WORDS/words\"']\nenv: {WORDS: \
                '${PLUGIN_DIR}'}\n";
    assert_eq!(library.tools.register_text(text, &own.join("finds.yaml")).error, None);
    let result = library.tools.execute("finds", &json!({}), Some(&library.project.path().join("src"))).await;
    assert_eq!((result.success, result.output.as_str()), (true, "found"), "{result:?}");
}

/// A tool that daemonises does not hold its call up.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_leaves_behind_ends_with_it() {
    let library = Library::new();
    let script = library.script("leaves.sh", "setsid sh -c 'sleep 64; echo' & echo done");
    library.demo(&format!("[sh, {}]", script.display()), "");
    let begun = Instant::now();
    let result = library.run(json!({})).await;
    assert_eq!((result.success, result.output.as_str()), (true, "done"));
    assert!(begun.elapsed() < Duration::from_secs(20), "the answer did not wait for what was left behind");
    let mark = library.project.path().to_str().unwrap().to_owned();
    crate::support::eventually("its tree ends", || processes_with(&mark).is_empty().then_some(())).await;
}

// Invariant 5's kind of promise (SECURITY.md, users of plugins): a program that runs as root and uses the library must not
// find the folder of its tool files given away.
#[tokio::test(flavor = "multi_thread")]
async fn the_folder_of_a_tool_file_stays_its_authors() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let library = Library::new();
    let folder = tempfile::Builder::new().prefix("plugward-tools-").tempdir_in("/var/tmp").unwrap();
    let open = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    open(folder.path(), 0o755);
    for (name, mode) in [("list.txt", 0o644), ("tool.sh", 0o755)] {
        fs::write(folder.path().join(name), "#!/bin/sh\ncat list.txt\nid -u\n").unwrap();
        open(&folder.path().join(name), mode);
    }
    let text = "type: mcp_tool\nname: own\ndescription: d\ncommand: [./tool.sh]\nworking_directory: plugin\n\
                permissions: [process.spawn]\n";
    let registration = library.tools.register_text(text, &folder.path().join("own.yaml"));
    assert_eq!(registration.error, None);
    let result = library.tools.execute("own", &json!({}), Some(library.project.path())).await;
    // Control: at level `full` it has run in that folder, with its files, as a user that is not the owner where we are root.
    assert!(result.error.is_none() && result.output.contains("cat list.txt"), "{result:?}");
    let own = rustix::process::geteuid();
    let ran_as = result.output.lines().last().unwrap_or_default().to_owned();
    assert_eq!(own.is_root(), ran_as != own.as_raw().to_string(), "{ran_as}");
    for path in [folder.path().to_owned(), folder.path().join("list.txt"), folder.path().join("tool.sh")] {
        assert_eq!(fs::metadata(&path).unwrap().uid(), own.as_raw(), "{}", path.display());
    }
}
