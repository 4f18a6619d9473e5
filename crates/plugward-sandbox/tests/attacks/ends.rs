//! Two hundred ends of plugins that do all they can to outlive them.
//!
//! Owns the ways of staying and the ways of ending, each with each. Refuses looking at the plugin's own word: what counts is
//! which processes of its namespace the machine still has.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use plugward_sandbox::{Level, Spawned, StopGrace};

use crate::{
    limits::{first_line, wait_for},
    world::{PATIENCE, World, launcher},
};

const ROUNDS: usize = 200;

/// Ways to leave something behind. Each tells once it has begun, and then ignores every request.
const WAYS: [&str; 4] = [
    // Daemons in sessions of their own.
    "for i in 1 2 3; do (setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' </dev/null >/dev/null 2>&1 &); done; \
     echo ready; trap '' TERM; while :; do sleep 1; done",
    // Forked twice, so that their parents are gone.
    "for i in 1 2 3; do ( ( trap '' TERM HUP; sleep 600 >/dev/null 2>&1 & ) & ); done; sleep 0.02; echo ready; \
     trap '' TERM; while :; do sleep 1; done",
    // Lineages of processes that each start their successor and end: whoever counts them counts the last ones.
    "export S='trap \"\" TERM HUP; sh -c \"$S\" >/dev/null 2>&1 & exit 0'; for i in 1 2 3; do setsid sh -c \"$S\" & done; \
     echo ready; trap '' TERM; while :; do sleep 1; done",
    // A crowd that ignores what it is asked.
    "trap '' TERM HUP INT; for i in 1 2 3 4 5 6; do sh -c 'trap \"\" TERM; while :; do sleep 1; done' & done; echo ready; \
     while :; do sleep 1; done",
];

/// Ways a plugin is ended.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// On order.
    Killed,
    /// By the whole ladder, up to the last step.
    Stopped,
    /// Its launcher is killed.
    WithItsLauncher,
    /// The host's end of the control socket closes, as it does when the host is killed.
    WithItsHost,
}

const ENDS: [Way; 4] = [Way::Killed, Way::Stopped, Way::WithItsLauncher, Way::WithItsHost];

// Requirement 97: daemons, double forks, fork races, processes that ignore every request; none of them is left, whoever
// ended the plugin and however.
pub(crate) fn two_hundred_ends_leave_nothing() {
    let world = World::new();
    let launcher = launcher();
    let mut took = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let (way, end) = (WAYS[round % WAYS.len()], ENDS[round / WAYS.len() % ENDS.len()]);
        let mut spec = world.spec(Level::Full, "/bin/sh", &["-c", way]);
        let soon = Duration::from_millis(10);
        spec.stop = StopGrace { term_after: soon, kill_after: soon };
        let Spawned { stdin, stdout, stderr, process } = launcher.spawn(&spec).unwrap();
        let (line, pipe) = first_line(stdout);
        assert_eq!(line, "ready", "round {round}");
        let space = fs::read_link(format!("/proc/{}/ns/pid", process.pid())).unwrap();
        // Control: there is something to leave behind.
        wait_for("its processes run", || inside(&space) >= 2);
        let began = Instant::now();
        match end {
            Way::Killed => {
                process.kill().unwrap();
                assert!(process.wait_blocking(PATIENCE).unwrap().tree_gone, "round {round}");
            }
            Way::Stopped => {
                drop(stdin);
                assert!(process.stop_blocking(PATIENCE).unwrap().tree_gone, "round {round}");
            }
            Way::WithItsLauncher => {
                let launcher = process.launcher_pid().to_string();
                assert!(Command::new("/bin/kill").args(["-9", &launcher]).status().unwrap().success());
                assert!(process.wait_blocking(PATIENCE).is_some(), "round {round}");
            }
            Way::WithItsHost => drop(process),
        }
        wait_for(&format!("nothing is left of round {round}, {end:?}"), || inside(&space) == 0);
        took.push(began.elapsed());
        drop((pipe, stderr));
    }
    wait_for("no zombie is left", || zombies() == 0);
    took.sort();
    let within = took.iter().filter(|took| **took < Duration::from_secs(1)).count();
    println!(
        "{ROUNDS} ends: median {} ms, longest {} ms, {within} within a second",
        took[ROUNDS / 2].as_millis(),
        took[ROUNDS - 1].as_millis()
    );
}

/// Processes in this process namespace that have not ended. The first process of a plugin whose launcher was killed becomes a
/// child of the machine's own first process, and it is that one's business how soon it is collected.
fn inside(space: &Path) -> usize {
    let lives = |process: &Path| {
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:") && !line.contains('Z') && !line.contains('X'))
    };
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let inside = processes.filter(|process| fs::read_link(process.join("ns/pid")).is_ok_and(|found| found == space));
    inside.filter(|process| lives(process)).count()
}

/// Children of this process that nobody collected.
fn zombies() -> usize {
    let own = std::process::id().to_string();
    let listed = Command::new("ps").args(["--ppid", &own, "-o", "stat="]).output().unwrap();
    String::from_utf8(listed.stdout).unwrap().lines().filter(|state| state.starts_with('Z')).count()
}
