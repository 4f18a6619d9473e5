//! Weaknesses that wrappers of commands were seen to have, input by input, where no other test has exactly that input:
//! rows W and C, and the cases about arguments. [`super::rows`] has the list of all rows.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use plugward_host::CallFailure;
use plugward_policy::parse_manifest;
use serde_json::{Value, json};

use crate::cases_support::script;
use crate::command_host::{Bench, OPEN};
use crate::command_library::{Library, code, stage};
use crate::support::{Settings, eventually};

/// Tells each argument as hexadecimal bytes, so that nothing is lost on the way back.
const TELLS: &str = "[sh, -c, 'printf \"%s\\0\" \"$@\" | od -An -v -tx1', sh, ";

/// The arguments of a run of a tool whose command begins with [`TELLS`].
fn told(output: &str) -> Vec<String> {
    let bytes: Vec<u8> = output.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let mut all: Vec<String> =
        bytes.split(|byte| *byte == 0).map(|argument| String::from_utf8(argument.to_vec()).unwrap()).collect();
    assert_eq!(all.pop().as_deref(), Some(""), "each argument has its end");
    all
}

// W5: a name that is a pattern is a name, and a value that looks like the start of a placeholder takes no time.
#[tokio::test(flavor = "multi_thread")]
async fn w05_names_that_are_patterns_match_nothing() {
    let library = Library::new();
    library.demo(&format!("{TELLS}--, '{{{{params.a}}}}']"), "parameters: [{name: a, type: string, required: true}]\n");
    for name in ["(", ".*", "(a+)+"] {
        let result = library.run(json!({ "a": "x", name: "y" })).await;
        assert_eq!((code(&result), result.exit_code), ("COMMAND_ARGUMENT_INVALID", None), "{name}");
    }
    let begun = Instant::now();
    let value = format!("{{{{params.{}!", "a".repeat(26));
    assert_eq!(told(&library.run(json!({ "a": value })).await.stdout), ["--", &value]);
    assert!(begun.elapsed() < Duration::from_secs(10), "it took {:?}", begun.elapsed());
}

// W7: the variable is there for whoever runs the host, and not for a command.
#[tokio::test(flavor = "multi_thread")]
async fn w07_a_variable_of_the_host_is_not_printed() {
    let library = Library::with_environment(&[("DEMO_HOST_SECRET", "planted-secret"), ("SHOWN", "given")]);
    library.demo("printenv DEMO_HOST_SECRET", "");
    let result = library.run(json!({})).await;
    assert_eq!((result.stdout.as_str(), result.exit_code), ("", Some(1)), "{result:?}");
    // Control: a variable that its file names is.
    drop(library.tools.unregister("demo"));
    library.demo("printenv HANDED_ON", "env: {HANDED_ON: '${SHOWN}'}\n");
    assert_eq!(library.run(json!({})).await.output, "given");
}

// W10: a gate that writes too much has failed, and is told as that and not as one that was slow.
#[tokio::test(flavor = "multi_thread")]
async fn w10_a_gate_that_writes_much_is_not_called_slow() {
    let bench = Bench::new(plugward_host::Environment::Development).await;
    let text = "type: quality_gate\nname: talks\ndescription: d\ncommand: [sh, -c, 'yes | head -c 3000000']\ntimeout_ms: \
                10000\n";
    let file = bench.files.path().join("talks.yaml");
    fs::write(&file, text).unwrap();
    bench.host.host.install(&file, None).await.unwrap();
    bench.host.approve("talks").await;
    bench.host.host.enable("talks").await.unwrap();
    let begun = Instant::now();
    let failure = bench.failure("talks", json!({})).await;
    assert!(matches!(failure, CallFailure::ResultTooLarge { .. }), "{failure:?}");
    let message = failure.message("talks.talks");
    assert!(message.contains("over the limit of 1048576 bytes") && !message.contains("within"), "{message}");
    assert!(begun.elapsed() < Duration::from_secs(10), "it was ended at the limit");
    // W12/13 in a host: nothing runs for an object, null or nothing where text is wanted.
    bench.run("echoes", "[echo, '{{params.a}}']", "parameters: [{name: a, type: string, required: true}]\n").await;
    for bad in [json!({ "a": {} }), json!({ "a": null }), json!({})] {
        assert!(matches!(bench.failure("echoes", bad).await, CallFailure::ArgumentInvalid { .. }));
    }
}

// W16: whoever registers next to nothing is told what is missing.
#[test]
fn w16_a_type_alone_registers_nothing() {
    let library = Library::new();
    let registered = library.tools.register_text("{\"type\": \"mcp_tool\"}", Path::new("x.json"));
    let error = registered.error.unwrap();
    assert!(
        !registered.success && error.contains("name: missing key") && error.contains("command: missing key"),
        "{error}"
    );
    assert!(library.tools.list().is_empty());
}

// W21, W9: each end is told as what it was.
#[tokio::test(flavor = "multi_thread")]
async fn w21_a_missing_folder_an_exit_code_and_a_signal_are_three_things() {
    let library = Library::new();
    library.demo("pwd", "");
    let gone = library.tools.execute("demo", &json!({}), Some(&library.project.path().join("gone"))).await;
    assert_eq!((code(&gone), gone.exit_code, gone.signal), ("COMMAND_NOT_EXECUTABLE", None, None));
    for (script, wanted) in [("exit 3", (Some(3), None)), ("kill -KILL $$", (None, Some(9)))] {
        drop(library.tools.unregister("demo"));
        library.demo(&format!("[sh, -c, '{script}']"), "");
        let result = library.run(json!({})).await;
        assert_eq!((result.exit_code, result.signal), wanted, "{result:?}");
    }
}

// C2, C4 for commands: a command that cannot be started pauses its plugin at the number that was set; one that fails at
// its task, or is called wrongly, does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_cannot_start_is_paused_and_one_that_fails_is_not() {
    let mut settings = Settings::default();
    settings.supervision.breaker_failures = 3;
    settings.supervision.breaker_open = Duration::from_millis(1500);
    let bench = Bench::with(settings).await;
    let place = bench.files.path().join("place");
    fs::create_dir(&place).unwrap();
    let lines = format!(
        "working_directory: {0}\npermissions: ['fs.read:{0}']\n{OPEN}parameters: [{{name: code, type: integer, \
         required: true}}]\n",
        place.display()
    );
    bench.run("ends", "[sh, -c, 'exit $1', sh, '{{params.code}}']", &lines).await;
    let breaker = || bench.host.host.host_status("ends").unwrap().breaker;
    for _ in 0..5 {
        assert_eq!(bench.result("ends", json!({ "code": 7 })).await["isError"], true);
        assert!(matches!(bench.failure("ends", json!({ "code": "7" })).await, CallFailure::ArgumentInvalid { .. }));
    }
    assert_eq!((breaker().state.as_str(), breaker().failures), ("closed", 0));
    fs::remove_dir(&place).unwrap();
    for number in 1..=3 {
        let failure = bench.failure("ends", json!({ "code": 0 })).await;
        assert!(matches!(failure, CallFailure::Unavailable { .. }), "{number}: {failure:?}");
    }
    assert_eq!(breaker().state.as_str(), "open");
    let refused = bench.failure("ends", json!({ "code": 0 })).await;
    assert!(matches!(refused, CallFailure::CircuitOpen { .. }), "{refused:?}");
    fs::create_dir(&place).unwrap();
    eventually("the pause is over", || breaker().retry_after.is_none().then_some(())).await;
    assert_eq!(bench.result("ends", json!({ "code": 0 })).await["isError"], Value::Null);
    assert_eq!((breaker().state.as_str(), breaker().failures), ("closed", 0));
}

// B016: whatever a caller sends is one argument of the program, and a script that would read it is no tool.
#[tokio::test(flavor = "multi_thread")]
async fn b016_no_value_is_run() {
    let library = Library::new();
    let name = "parameters: [{name: name, type: string, required: true}]\n";
    let command = format!(
        "{TELLS}'--name={{{{params.name}}}}', --, '{{{{params.name}}}}', '--tag=pre-{{{{params.name}}}}-post']"
    );
    library.demo(&command, name);
    for value in [
        "x; touch PWNED",
        "$(touch PWNED)",
        "`touch PWNED`",
        "a\nb",
        "it's \"q\" \\ $HOME *",
        "",
        "--help",
        "\u{202e}abc",
    ] {
        let result = library.run(json!({ "name": value })).await;
        let wanted = [format!("--name={value}"), "--".to_owned(), value.to_owned(), format!("--tag=pre-{value}-post")];
        assert_eq!(told(&result.stdout), wanted, "{result:?}");
    }
    assert!(!library.project.path().join("PWNED").exists());
    let nul = library.run(json!({ "name": "a\u{0}b" })).await;
    assert_eq!(
        (code(&nul), nul.exit_code),
        ("COMMAND_ARGUMENT_INVALID", None),
        "refused before a process, and not cut"
    );
    let script =
        format!("type: mcp_tool\nname: bad\ndescription: d\ncommand: [sh, -c, 'echo {{{{params.name}}}}']\n{name}");
    let refused = library.tools.register_text(&script, Path::new("bad.yaml")).error.unwrap();
    assert!(refused.contains("bad.yaml:4:") && refused.contains("where it would be run"), "{refused}");
    assert_eq!(library.tools.list().len(), 1, "the good one stays");
}

// B071: spaces, quotes, empty text and numbers stay what and where they are.
#[tokio::test(flavor = "multi_thread")]
async fn b071_arguments_are_neither_split_nor_dropped() {
    let library = Library::new();
    let params = "parameters: [{name: title, type: string}, {name: note, type: string}, {name: file, type: string}, {name: \
                  n, type: integer}, {name: depth, type: integer}, {name: dir, type: string}]\n";
    let required = |names: &[&str]| {
        names.iter().fold(params.to_owned(), |text, name| {
            text.replace(&format!("name: {name}, "), &format!("name: {name}, required: true, "))
        })
    };
    for (rest, needed, values, wanted) in [
        (
            "'--title={{params.title}}', '{{params.note}}', --, '{{params.file}}']",
            &["title", "note", "file"][..],
            json!({ "title": "A B (c; d)", "note": "", "file": "-rf" }),
            &["--title=A B (c; d)", "", "--", "-rf"][..],
        ),
        ("[--depth, '{{params.depth}}'], '{{params.dir}}']", &["dir"], json!({ "dir": "x y" }), &["x y"]),
        (
            "[--depth, '{{params.depth}}'], '{{params.dir}}']",
            &["dir"],
            json!({ "depth": 0, "dir": "." }),
            &["--depth", "0", "."],
        ),
    ] {
        drop(library.tools.unregister("demo"));
        library.demo(&format!("{TELLS}{rest}"), &required(needed));
        assert_eq!(told(&library.run(values).await.stdout), wanted, "{rest}");
    }
    // As one text, which is split once, before any value is there.
    drop(library.tools.unregister("demo"));
    let tells = library.script("tells.sh", "printf '%s\\0' \"$@\" | od -An -v -tx1");
    let text = format!("\"sh {} --title '{{{{params.title}}}}' --n={{{{params.n}}}}\"", tells.display());
    library.demo(&text, &required(&["title", "n"]));
    let title = "it's a \"test\" $HOME";
    assert_eq!(told(&library.run(json!({ "title": title, "n": 3 })).await.stdout), ["--title", title, "--n=3"]);
}

/// A stand-in for docker whose containers are files in `held`, each with the pid of a process that no signal of ours
/// reaches; `rm` ends them.
fn stand_in_for_docker(folder: &Path) {
    let held = folder.join("held");
    fs::create_dir_all(&held).unwrap();
    let text = format!(
        "#!/bin/sh\nheld='{0}'\ncase $1 in\nrun)\n  echo \"$*\" >> \"$held/../runs\"\n  while [ \"$1\" != --name ]; do shift; \
         done\n  : > \"$held/$2\"; echo started; exec sleep 68;;\nrm)\n  shift; for name; do [ \"$name\" = --force ] && \
         continue\n  read pid < \"$held/$name\" && kill -9 \"$pid\"; rm -f \"$held/$name\"; done;;\nps) ls \"$held\";;\nesac\n",
        held.display()
    );
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).unwrap();
    script(&bin.join("docker"), &text);
}

/// Gives the one container that runs a process of its own, and waits until it has it.
async fn container(folder: &Path) -> (String, std::process::Child) {
    let held = folder.join("held");
    let names = || -> Vec<String> {
        fs::read_dir(&held).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap()).collect()
    };
    let name = eventually("a container runs", || names().pop()).await;
    let process = std::process::Command::new("sleep").arg("69").spawn().unwrap();
    fs::write(held.join(&name), format!("{}\n", process.id())).unwrap();
    (name, process)
}

// B047: the container of a command ends with its run, however that ends, and what a killed host left is swept.
#[tokio::test(flavor = "multi_thread")]
async fn b047_a_container_that_a_command_runs_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    stand_in_for_docker(folder.path());
    let mut settings = Settings::default();
    let path = settings.host_environment.iter_mut().find(|(name, _)| name == "PATH").unwrap();
    path.1 = format!("{}:{}", folder.path().join("bin").display(), path.1);
    let bench = Bench::with(settings).await;
    let lines = format!("timeout_ms: 1500\n{OPEN}parameters: [{{name: text, type: string, required: true}}]\n");
    bench.run("boxed", "[docker, run, -i, demo/image, '--say={{params.text}}']", &lines).await;
    let review = bench.host.host.review("boxed").await.unwrap();
    assert!(review.argv.join(" ").contains("run --rm --init --label plugward.plugin="), "{:?}", review.argv);
    let call = |text: &str| {
        let (host, arguments) = (bench.host.host.clone(), json!({ "text": text }));
        tokio::spawn(async move { host.call(crate::support::request("boxed.boxed", arguments)).await })
    };
    let late = call("a b");
    let (name, mut process) = container(folder.path()).await;
    let result: Value = serde_json::from_str(late.await.unwrap().outcome.unwrap().result.get()).unwrap();
    assert_eq!(result["_meta"]["plugward/command"]["timed_out"], true, "{result}");
    assert!(!folder.path().join("held").join(&name).exists(), "it is gone before the answer is there");
    assert!(!process.wait().unwrap().success());
    let runs = fs::read_to_string(folder.path().join("runs")).unwrap();
    assert!(runs.contains(&format!("--name {name}")) && runs.trim_end().ends_with("demo/image --say=a b"), "{runs}");
    // Two at a time have names of their own, and a caller that goes away leaves none.
    let gone = call("x");
    let (second, mut process) = container(folder.path()).await;
    assert_ne!(second, name);
    gone.abort();
    eventually("it ends", || (!folder.path().join("held").join(&second).exists()).then_some(())).await;
    assert!(!process.wait().unwrap().success());
    // What a host that was killed left has a name of this plugin, and goes when it is switched on; others stay.
    bench.host.host.disable("boxed").await.unwrap();
    let left = folder.path().join("held").join(format!("{}-7", name.rsplit_once('-').unwrap().0));
    let foreign = folder.path().join("held/somebody-elses");
    let mut process = std::process::Command::new("sleep").arg("70").spawn().unwrap();
    fs::write(&left, format!("{}\n", process.id())).unwrap();
    fs::write(&foreign, "").unwrap();
    bench.host.host.enable("boxed").await.unwrap();
    assert!(foreign.exists(), "a container of somebody else was ended");
    assert!(!left.exists() && !process.wait().unwrap().success(), "{:?}", bench.host.host.logs("boxed").unwrap());
}

// B079: a placeholder that means nothing is an error of the file, and braces that are none are text.
#[tokio::test(flavor = "multi_thread")]
async fn b079_no_placeholder_reaches_a_program() {
    let library = Library::new();
    let params = "parameters: [{name: a, type: string, required: true}]\n";
    library.demo(
        &format!("{TELLS}'{{{{ params.a }}}}', '{{{{params.a}}}}', '{{not_a_placeholder}}', '\\{{{{a}}}}']"),
        params,
    );
    for value in ["v", "{{params.a}} ${HOME} {{b}}"] {
        let result = library.run(json!({ "a": value })).await;
        assert_eq!(told(&result.stdout), [value, value, "{not_a_placeholder}", "{{a}}"], "{result:?}");
    }
    for (command, wanted) in [
        (
            "[echo, '{{params.nmae}}']",
            "tool.yaml:4:10: command: placeholder names parameter `nmae`, which is not declared",
        ),
        ("[echo, '{{params.name']", "tool.yaml:4:17: command[1]: placeholder `{{params.name` has no end"),
    ] {
        let text = format!(
            "type: mcp_tool\nname: typo\ndescription: d\ncommand: {command}\nparameters: [{{name: name, type: string, \
             required: true}}]\n"
        );
        let error = parse_manifest(&text, "tool.yaml").unwrap_err().to_string();
        assert!(error.contains(wanted), "{command}: {error}");
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }

    fn text(&mut self) -> String {
        const PIECES: [&str; 24] = [
            "",
            "-",
            "--",
            "'",
            "\"",
            "\\",
            "\n",
            "\r\n",
            "$",
            "`id`",
            "{{params.b}}",
            "{{",
            "}}",
            "${HOME}",
            "$1",
            "$(id)",
            "*",
            "\u{7f}",
            "\u{feff}",
            "\u{202e}",
            "é🦀",
            " ",
            "; | & > <",
            "\u{1b}[2J",
        ];
        let pieces = self.below(6);
        let mut text: String = (0..pieces).map(|_| PIECES[self.below(PIECES.len())]).collect();
        if self.below(12) == 0 {
            text.push('\0');
        }
        text
    }
}

// Requirement 171: as the property of the same name over built arguments, through real processes and a shell's quoting.
#[tokio::test(flavor = "multi_thread")]
async fn any_value_arrives_in_a_real_process_as_it_was_built() {
    const RUNS: usize = 80;
    let library = Library::new();
    let lines = "parameters: [{name: a, type: string, required: true, allow_leading_dash: true}, {name: b, type: string, \
                 required: true}, {name: many, type: array, required: true}]\n";
    library.demo(&format!("{TELLS}'{{{{params.a}}}}', 'x={{{{params.b}}}}', --, '{{{{params.many}}}}', end]"), lines);
    let mut dice = Dice(0x5eed_0f41_d1ce);
    let (mut arrived, mut refused) = (0, 0);
    for _ in 0..RUNS {
        let (a, b) = (dice.text(), dice.text());
        let many: Vec<String> = (0..dice.below(4)).map(|_| dice.text()).collect();
        let result = library.run(json!({ "a": a, "b": b, "many": many })).await;
        if [&a, &b].into_iter().chain(&many).any(|value| value.contains('\0')) {
            assert_eq!((code(&result), stage(&result)), ("COMMAND_ARGUMENT_INVALID", "substitution"));
            refused += 1;
            continue;
        }
        let mut wanted = vec![a, format!("x={b}"), "--".to_owned()];
        wanted.extend(many);
        wanted.push("end".to_owned());
        assert_eq!(told(&result.stdout), wanted, "{result:?}");
        arrived += 1;
    }
    assert!(arrived > RUNS / 2 && refused > 3, "{arrived} arrived, {refused} were refused");
}

// The same in a host, for what is no text at all: half a character pair is refused, and nothing runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_is_no_text_is_refused() {
    let bench = Bench::new(plugward_host::Environment::Development).await;
    let mark = bench.project.path().display().to_string();
    let lines = format!("{OPEN}parameters: [{{name: a, type: string, required: true}}]\n");
    bench.run("marks", &format!("[sh, -c, 'touch {mark}/ran', sh, --, '{{{{params.a}}}}']"), &lines).await;
    for bad in ["{\"a\":\"\\ud800\"}", "{\"a\":\"x\",\"a\":\"y\"}", "[\"x\"]"] {
        let mut call = crate::support::request("marks.marks", json!({}));
        call.arguments = Some(serde_json::value::RawValue::from_string(bad.to_owned()).unwrap());
        let failure = bench.host.host.call(call).await.outcome.unwrap_err();
        assert!(matches!(failure, CallFailure::ArgumentInvalid { .. }), "{bad}: {failure:?}");
    }
    assert!(!bench.project.path().join("ran").exists());
    assert_eq!(bench.result("marks", json!({ "a": "x" })).await["isError"], Value::Null);
    assert!(bench.project.path().join("ran").exists(), "the control");
}
