//! What the tests share: specifications, reading, waiting with a bound, looking at processes, and the stand-in host.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{Read, Write},
    os::fd::OwnedFd,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use plugward_sandbox::{ExitReport, LaunchSpec, Launcher, MainExit, Spawned, StopGrace};

/// Bound for things that take milliseconds on an idle machine; generous for a loaded one.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// First argument that makes this binary a stand-in for a host.
const STAND_IN: &str = "stand-in-host";

/// `sh -c script sh args...` with a minimal environment.
pub(crate) fn sh(script: &str, args: &[&str]) -> LaunchSpec {
    let argv = ["sh", "-c", script, "sh"].iter().chain(args).map(OsString::from).collect();
    LaunchSpec {
        executable: "/bin/sh".into(),
        argv,
        cwd: "/".into(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        stop: StopGrace { term_after: Duration::from_millis(300), kill_after: Duration::from_millis(300) },
        sandbox: None,
    }
}

pub(crate) fn launcher() -> Launcher {
    Launcher::current_exe().unwrap()
}

pub(crate) fn spawn(spec: &LaunchSpec) -> Spawned {
    launcher().spawn(spec).unwrap()
}

pub(crate) fn read_all(pipe: OwnedFd) -> String {
    let mut text = String::new();
    File::from(pipe).read_to_string(&mut text).unwrap();
    text
}

/// Reads up to and including the first newline.
pub(crate) fn read_line(pipe: &mut File) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while pipe.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

/// Runs to the end with stdin closed and returns stdout and the report.
pub(crate) fn run(spec: &LaunchSpec) -> (String, ExitReport) {
    let Spawned { stdin, stdout, stderr, process } = spawn(spec);
    drop(stdin);
    let output = read_all(stdout);
    let errors = read_all(stderr);
    assert_eq!(errors, "", "the plugin wrote to stderr");
    (output, process.wait_blocking(PATIENCE).unwrap())
}

pub(crate) fn clean_exit() -> ExitReport {
    ExitReport { main: MainExit::Code(0), tree_gone: true, leftovers_killed: 0, exceeded: None }
}

/// Polls until the condition holds; fails after the bound.
pub(crate) fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "still waiting for: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// State letter of a process, `None` if it does not exist.
pub(crate) fn state(pid: u32) -> Option<char> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    line.rsplit(')').next()?.trim().chars().next()
}

/// Whether a process exists and is more than a zombie.
pub(crate) fn alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// Process ids in a file, one per line; empty if there is none yet.
pub(crate) fn pids_in(path: &Path) -> Vec<u32> {
    let text = fs::read_to_string(path).unwrap_or_default();
    // The last line may still be in the middle of being written.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete.lines().map(|line| line.trim().parse().unwrap()).collect()
}

/// Sends a signal by name, through the system's own tool.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("/bin/kill").arg(format!("-{name}")).arg(pid.to_string()).status().unwrap();
    assert!(status.success());
}

/// Script text that starts a daemon: forked twice, in a session of its own, deaf to TERM and HUP. It appends its
/// process id to the file `$1`.
pub(crate) const DAEMON: &str = r#"
(setsid sh -c 'trap "" TERM HUP; echo $$ >> "$1"; while :; do sleep 5; done' sh "$1" >/dev/null 2>&1 </dev/null &)
"#;

/// A stand-in host in a process of its own.
pub(crate) fn stand_in_command(spec_script: &str, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(STAND_IN).arg(spec_script).args(args);
    command
}

/// Runs as the stand-in host if asked to: starts one plugin, copies the first lines of its stdout, and lives until its
/// own stdin closes.
pub(crate) fn stand_in_if_requested() -> bool {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, script, args @ ..] = arguments.as_slice() else { return false };
    if mode != STAND_IN {
        return false;
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let Spawned { stdin, stdout, stderr, process } = spawn(&sh(script, &args));
    println!("{} {}", process.launcher_pid(), process.pid());
    let copier = thread::spawn(move || {
        let mut pipe = File::from(stdout);
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            std::io::stdout().write_all(&buffer[..count]).unwrap();
        }
    });
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(stdin);
    process.wait_blocking(PATIENCE).unwrap();
    copier.join().unwrap();
    drop(stderr);
    true
}
