//! How a plugin's process tree ends, in every way it can.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    os::fd::AsRawFd,
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use plugward_sandbox::{ExitReport, MainExit, Spawned};

use crate::support::{
    DAEMON, PATIENCE, alive, clean_exit, launcher, pids_in, read_all, read_line, sh, signal, spawn, stand_in_command,
    state, wait_for,
};

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// A script that ignores requests to end, starts `count` daemons recorded in `$1` and then does `rest`.
fn with_daemons(count: usize, rest: &str) -> String {
    format!("trap '' TERM HUP\n{}\n{rest}", DAEMON.repeat(count))
}

/// Does nothing for ever, in small steps.
const IDLE: &str = "while :; do sleep 0.05; done";

fn wait_for_pids(path: &Path, count: usize) -> Vec<u32> {
    wait_for("all daemons have started", || pids_in(path).len() == count);
    let pids = pids_in(path);
    assert!(pids.iter().all(|pid| alive(*pid)));
    pids
}

// Requirement 50: a plugin that cleans up when its stdin closes has the time for it and sees no signal.
pub(crate) fn clean_exit_on_closed_stdin_gets_no_signal() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let script = "trap 'echo TERM >> \"$1\"' TERM; cat > /dev/null; sleep 0.1; echo saved >> \"$1\"";
    let mut spec = sh(script, &[log.to_str().unwrap()]);
    spec.stop.term_after = PATIENCE;
    let started = spawn(&spec);
    drop(started.stdin);
    assert_eq!(started.process.stop_blocking(PATIENCE), Some(clean_exit()));
    assert_eq!(fs::read_to_string(log).unwrap(), "saved\n");
}

// Requirement 51: behind a wrapper such as `npx` it is the grandchild that has something to save.
pub(crate) fn termination_reaches_the_whole_tree() {
    let script = "trap 'wait; echo main; exit 4' TERM
        sh -c 'trap \"echo child; exit 0\" TERM; echo ready; while :; do sleep 0.05; done' &
        wait; wait";
    let Spawned { stdin, stdout, stderr: _stderr, process } = spawn(&sh(script, &[]));
    let mut pipe = File::from(stdout);
    assert_eq!(read_line(&mut pipe), "ready");
    process.terminate().unwrap();
    let report = process.wait_blocking(PATIENCE).unwrap();
    drop(stdin);
    assert_eq!((report.main, report.tree_gone), (MainExit::Code(4), true));
    let rest = read_all(pipe.into());
    assert!(rest.contains("main") && rest.contains("child"), "{rest}");
}

// Requirement 51: a child that ignores stdin and TERM is gone within the bound.
pub(crate) fn ladder_ends_in_kill_when_all_is_ignored() {
    let Spawned { stdin, stdout, stderr: _stderr, process } =
        spawn(&sh("trap '' TERM; echo ready; while :; do sleep 0.05; done", &[]));
    assert_eq!(read_line(&mut File::from(stdout)), "ready");
    drop(stdin);
    let report = process.stop_blocking(PATIENCE).unwrap();
    assert_eq!((report.main, report.tree_gone), (MainExit::Signal(SIGKILL), true));
    assert!(!alive(process.pid()));
}

// Requirement 97: a daemon that forked twice, left session and group and ignores TERM is part of the tree all the same.
pub(crate) fn kill_finds_daemons_that_left_session_and_group() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let started = spawn(&sh(&with_daemons(3, IDLE), &[file.to_str().unwrap()]));
    let daemons = wait_for_pids(&file, 3);
    // Positive control: they survive a request to terminate, which the launcher has passed on by the time it answers.
    started.process.terminate().unwrap();
    assert_eq!(started.process.wait_blocking(Duration::from_millis(300)), None);
    assert!(daemons.iter().all(|pid| alive(*pid)), "control: the daemons ignore TERM");
    started.process.kill().unwrap();
    let report = started.process.wait_blocking(PATIENCE).unwrap();
    assert_eq!((report.main, report.tree_gone), (MainExit::Signal(SIGKILL), true));
    assert!(report.leftovers_killed >= 3, "{report:?}");
    assert!(daemons.iter().all(|pid| !alive(*pid)));
}

// Requirement 97, N7: the direct child exits first, as wrappers do, and leaves a process behind.
pub(crate) fn child_left_by_an_exited_main_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    // The main process ends only once the daemons run, and with a status of its own.
    let script = with_daemons(2, "while [ \"$(wc -l < \"$1\")\" != 2 ]; do sleep 0.02; done; read _; exit 5");
    fs::write(&file, "").unwrap();
    let started = spawn(&sh(&script, &[file.to_str().unwrap()]));
    let daemons = wait_for_pids(&file, 2);
    drop(started.stdin);
    let report = started.process.wait_blocking(PATIENCE).unwrap();
    assert_eq!((report.main, report.tree_gone), (MainExit::Code(5), true));
    assert!(report.leftovers_killed >= 2, "{report:?}");
    assert!(daemons.iter().all(|pid| !alive(*pid)));
}

/// A host that waits for the end of stdout would hang for as long as a forgotten background process lives.
pub(crate) fn pipe_held_by_a_grandchild_is_freed() {
    let started = spawn(&sh("sleep 600 & echo started", &[]));
    assert_eq!(read_all(started.stdout), "started\n");
    let report = started.process.wait_blocking(PATIENCE).unwrap();
    assert_eq!(report, ExitReport { main: MainExit::Code(0), tree_gone: true, leftovers_killed: 1, exceeded: None });
}

pub(crate) fn stopped_processes_can_still_terminate() {
    let Spawned { stdin: _stdin, stdout, stderr: _stderr, process } =
        spawn(&sh("trap 'echo bye; exit 6' TERM; echo ready; kill -STOP $$; while :; do sleep 0.05; done", &[]));
    let mut pipe = File::from(stdout);
    assert_eq!(read_line(&mut pipe), "ready");
    wait_for("the plugin has stopped itself", || state(process.pid()) == Some('T'));
    process.terminate().unwrap();
    assert_eq!(process.wait_blocking(PATIENCE).unwrap().main, MainExit::Code(6));
    assert_eq!(read_all(pipe.into()), "bye\n");
}

/// Six lineages of processes that each start their successor and exit. Without rounds, some successor always escapes.
pub(crate) fn fork_storm_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("lineage.sh");
    let mark = folder.path().join("mark");
    // The lineage ends by itself when the folder goes, so that a failure of this test leaves no storm behind.
    fs::write(&script, "[ -e \"$0\" ] || exit 0; : > \"$1\"; trap '' TERM; sh \"$0\" \"$1\" & exit 0\n").unwrap();
    let main = "for i in 1 2 3 4 5 6; do setsid sh \"$1\" \"$2\" & done; while :; do sleep 1; done";
    let started = spawn(&sh(main, &[script.to_str().unwrap(), mark.to_str().unwrap()]));
    wait_for("the storm runs", || mark.exists());
    // Positive control: it goes on by itself.
    fs::remove_file(&mark).unwrap();
    wait_for("the storm goes on", || mark.exists());
    started.process.kill().unwrap();
    let report = started.process.wait_blocking(PATIENCE).unwrap();
    assert!(report.tree_gone, "{report:?}");
    fs::remove_file(&mark).unwrap();
    assert!(!alive(started.process.pid()));
    assert!(!any_process_mentions(script.to_str().unwrap()));
    assert!(!mark.exists(), "a lineage has survived");
}

fn any_process_mentions(text: &str) -> bool {
    fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    })
}

/// A host process with one plugin, as `(host, launcher pid, plugin pid)`.
fn start_stand_in(script: &str, args: &[&str]) -> (Child, u32, u32) {
    let mut host = stand_in_command(script, args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(host.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (launcher, plugin) = line.trim().split_once(' ').unwrap();
    (host, launcher.parse().unwrap(), plugin.parse().unwrap())
}

// Requirement 97 and the wrapper case: a host that dies without a chance to clean up takes everything along.
pub(crate) fn killed_host_takes_its_plugins_along() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let script = with_daemons(2, IDLE);
    let (mut host, launcher, plugin) = start_stand_in(&script, &[file.to_str().unwrap()]);
    let daemons = wait_for_pids(&file, 2);
    assert!(alive(launcher) && alive(plugin));
    host.kill().unwrap();
    host.wait().unwrap();
    wait_for("launcher, plugin and daemons are gone", || {
        daemons.iter().chain(&[launcher, plugin]).all(|pid| !alive(*pid))
    });
}

/// A plugin that stops its launcher must not outlive the host by that.
pub(crate) fn killed_host_wakes_a_stopped_launcher() {
    let (mut host, launcher, plugin) = start_stand_in(IDLE, &[]);
    signal(launcher, "STOP");
    wait_for("the launcher is stopped", || state(launcher) == Some('T'));
    host.kill().unwrap();
    host.wait().unwrap();
    wait_for("launcher and plugin are gone", || !alive(launcher) && !alive(plugin));
}

/// With the launcher killed and the host unable to act, the kernel is what is left to end the plugin.
pub(crate) fn main_process_does_not_outlive_its_launcher() {
    let (mut host, launcher, plugin) = start_stand_in(IDLE, &[]);
    signal(host.id(), "STOP");
    wait_for("the host is stopped", || state(host.id()) == Some('T'));
    assert!(alive(plugin));
    signal(launcher, "KILL");
    wait_for("the plugin is gone", || !alive(plugin));
    host.kill().unwrap();
    host.wait().unwrap();
}

// Requirement 97: an early return in the host drops the handle; that alone must be enough.
pub(crate) fn dropped_handle_kills_the_tree() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let script = with_daemons(1, IDLE);
    let Spawned { stdin: _stdin, process, .. } = spawn(&sh(&script, &[file.to_str().unwrap()]));
    let daemons = wait_for_pids(&file, 1);
    let (pid, launcher) = (process.pid(), process.launcher_pid());
    // A duplicate that someone still waits on must not keep the plugin alive.
    let duplicate = process.exit_fd().unwrap();
    assert!(duplicate.as_raw_fd() > 2);
    drop(process);
    wait_for("plugin and daemon are gone", || !alive(pid) && daemons.iter().all(|pid| !alive(*pid)));
    wait_for("the launcher is collected, not a zombie", || state(launcher).is_none());
}

/// What cannot be known must not be reported as done.
pub(crate) fn lost_launcher_is_not_called_a_clean_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let script = "(trap '' TERM HUP; sh -c 'echo $$ >> \"$1\"; while :; do sleep 0.05; done' sh \"$1\" &) ; while :; do sleep 0.05; done";
    let Spawned { stdin: _stdin, process, .. } = spawn(&sh(script, &[file.to_str().unwrap()]));
    let orphans = wait_for_pids(&file, 1);
    signal(process.launcher_pid(), "KILL");
    let report = process.wait_blocking(PATIENCE).unwrap();
    assert_eq!((report.main, report.tree_gone), (MainExit::Unknown, false));
    wait_for("main process and orphan in its session are gone", || {
        !alive(process.pid()) && orphans.iter().all(|pid| !alive(*pid))
    });
    assert_eq!(state(process.launcher_pid()), None);
}

/// At a system shutdown the launcher may be asked before its host: the plugin gets its chance to save, then ends.
pub(crate) fn terminated_launcher_passes_the_request_on() {
    let ended_by_request = |trap: &str, kill_after: Duration| {
        let mut spec = sh(&format!("trap '{trap}' TERM; echo ready; {IDLE}"), &[]);
        spec.stop.kill_after = kill_after;
        let Spawned { stdin: _stdin, stdout, stderr: _stderr, process } = spawn(&spec);
        let mut pipe = File::from(stdout);
        assert_eq!(read_line(&mut pipe), "ready");
        signal(process.launcher_pid(), "TERM");
        let report = process.wait_blocking(PATIENCE).unwrap();
        assert!(report.tree_gone);
        (read_all(pipe.into()), report.main)
    };
    assert_eq!(ended_by_request("echo saved; exit 8", PATIENCE), ("saved\n".to_owned(), MainExit::Code(8)));
    assert_eq!(ended_by_request("", Duration::from_millis(100)), (String::new(), MainExit::Signal(SIGKILL)));
}

pub(crate) fn orders_after_the_end_do_nothing() {
    let started = launcher().spawn(&sh("kill -TERM $$", &[])).unwrap();
    let report = started.process.wait_blocking(PATIENCE).unwrap();
    assert_eq!(
        report,
        ExitReport { main: MainExit::Signal(SIGTERM), tree_gone: true, leftovers_killed: 0, exceeded: None }
    );
    started.process.terminate().unwrap();
    started.process.kill().unwrap();
    assert_eq!(started.process.poll_status(), Some(report));
    assert_eq!(File::from(started.stdin).write(b"late").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
}

/// A host waits on many plugins at once; news that does not show on the descriptor would never be seen.
pub(crate) fn news_can_be_waited_for() {
    let started = spawn(&sh("read _; exit 9", &[]));
    let news = started.process.exit_fd().unwrap();
    let readable = |wait: Duration| {
        let mut polled = [PollFd::new(&news, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: 0 })).unwrap() == 1
    };
    assert!(!readable(Duration::ZERO), "control: no news while the plugin runs");
    drop(started.stdin);
    let report = loop {
        assert!(readable(PATIENCE));
        if let Some(report) = started.process.poll_status() {
            break report;
        }
    };
    assert_eq!(report.main, MainExit::Code(9));
}
