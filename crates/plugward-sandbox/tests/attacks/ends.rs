//! Two hundred ends of plugins that do all they can to outlive them.
//!
//! Owns the ways of staying and the ways of ending, each with each, and a host of its own to be killed. Refuses looking at the
//! plugin's own word: what counts is which processes of its namespace and of its launcher the machine still has.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use plugward_sandbox::{LaunchSpec, Level, SandboxSpec, Spawned, StopGrace, system_paths};

use crate::{
    limits::{first_line, wait_for},
    world::{PATIENCE, THROUGH_BWRAP, launcher, plugin_user, through_bwrap},
};

const ROUNDS: usize = 200;
/// Longest time from the end to nothing being left. It takes 5 ms, and 30 ms where the processes are many.
const NOTHING_LEFT_WITHIN: Duration = Duration::from_secs(1);
/// First argument that makes this binary a host with one plugin, whose way of staying is the second.
const HOST: &str = "host-of-one";

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
    /// Nobody holds its handle any more.
    Dropped,
    /// Its host, a process of its own, is killed by a signal that no program can answer.
    WithItsHost,
}

const ENDS: [Way; 5] = [Way::Killed, Way::Stopped, Way::WithItsLauncher, Way::Dropped, Way::WithItsHost];

/// A plugin that does all it can to stay, and its launcher.
struct Staying {
    holder: Holder,
    launcher: u32,
    space: PathBuf,
}

/// Who holds the plugin.
enum Holder {
    This(Box<Spawned>),
    /// A process that is there to be killed.
    Another(Child),
}

// Requirement 97: daemons, double forks, fork races, processes that ignore every request; none of them is left after a
// second, whoever ended the plugin and however, and no process that has ended is left uncollected.
pub(crate) fn two_hundred_ends_leave_nothing() {
    let launcher = launcher();
    let mut took = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let (way, end) = (round % WAYS.len(), ENDS[round / WAYS.len() % ENDS.len()]);
        let Staying { holder, launcher, space } = match end {
            Way::WithItsHost => held_by_another(way),
            _ => held_by_this(launcher.spawn(&spec(WAYS[way])).unwrap()),
        };
        // Control: beside the launcher and the first process of the namespace there is something to leave behind.
        wait_for("its processes run", || left(&space, launcher) >= 4);
        let began = Instant::now();
        let pipes = bring_about(end, holder);
        wait_for(&format!("nothing is left of round {round}, {end:?}"), || left(&space, launcher) == 0);
        let ended = began.elapsed();
        assert!(ended <= NOTHING_LEFT_WITHIN, "round {round}, {end:?}: something was left for {ended:?}");
        took.push(ended);
        drop(pipes);
    }
    wait_for("no zombie is left", || zombies() == 0);
    took.sort();
    println!("{ROUNDS} ends: median {} ms, longest {} ms", took[ROUNDS / 2].as_millis(), took[ROUNDS - 1].as_millis());
}

/// A shell that stays in this way. It needs no folder of its own, so that a host which is killed leaves none either.
fn spec(way: &str) -> LaunchSpec {
    let soon = Duration::from_millis(10);
    LaunchSpec {
        executable: "/bin/sh".into(),
        argv: ["/bin/sh", "-c", way].map(Into::into).into(),
        cwd: "/usr".into(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        stop: StopGrace { term_after: soon, kill_after: soon },
        sandbox: Some(SandboxSpec { read_only: system_paths(), user: plugin_user(), ..SandboxSpec::new(Level::Full) }),
    }
}

fn space_of(main: u32) -> PathBuf {
    fs::read_link(format!("/proc/{main}/ns/pid")).unwrap()
}

fn held_by_this(mut spawned: Spawned) -> Staying {
    let (line, stdout) = first_line(spawned.stdout);
    assert_eq!(line, "ready");
    spawned.stdout = stdout.into();
    let (launcher, space) = (spawned.process.launcher_pid(), space_of(spawned.process.pid()));
    Staying { holder: Holder::This(Box::new(spawned)), launcher, space }
}

fn held_by_another(way: usize) -> Staying {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([HOST, &way.to_string()]).args(through_bwrap().then_some(THROUGH_BWRAP));
    let mut host = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(host.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ids: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
    let [launcher, main] = ids[..] else { panic!("the host says `{line}`") };
    Staying { holder: Holder::Another(host), launcher, space: space_of(main) }
}

/// Runs as a host with one plugin if asked to. It ends when its standard input does, should the test be what ends first.
pub(crate) fn host_if_requested() -> bool {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, way, ..] = arguments.as_slice() else { return false };
    if mode != HOST {
        return false;
    }
    let way: usize = way.parse().unwrap();
    let Staying { holder, launcher, space: _ } = held_by_this(launcher().spawn(&spec(WAYS[way])).unwrap());
    let Holder::This(spawned) = &holder else { return false };
    println!("{launcher} {}", spawned.process.pid());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    true
}

/// Ends a plugin, and returns the pipes that must not be what ended it.
fn bring_about(end: Way, holder: Holder) -> Vec<OwnedFd> {
    let Spawned { stdin, stdout, stderr, process } = match holder {
        Holder::This(spawned) => *spawned,
        Holder::Another(mut host) => {
            host.kill().unwrap();
            let status = host.wait().unwrap();
            assert_eq!(status.signal(), Some(libc::SIGKILL), "control: the host ran until it was killed");
            return Vec::new();
        }
    };
    match end {
        Way::Killed => {
            process.kill().unwrap();
            assert!(process.wait_blocking(PATIENCE).unwrap().tree_gone);
        }
        Way::Stopped => {
            drop(stdin);
            assert!(process.stop_blocking(PATIENCE).unwrap().tree_gone);
            return vec![stdout, stderr];
        }
        Way::WithItsLauncher => {
            let launcher = process.launcher_pid().to_string();
            assert!(Command::new("/bin/kill").args(["-9", &launcher]).status().unwrap().success());
            assert!(process.wait_blocking(PATIENCE).is_some());
        }
        Way::Dropped | Way::WithItsHost => drop(process),
    }
    vec![stdin, stdout, stderr]
}

/// Processes in this process namespace or in the launcher's session that have not ended. The first process of a plugin whose
/// launcher was killed, and the launcher whose host was, become children of the machine's own first process, and it is that
/// one's business how soon they are collected.
fn left(space: &Path, launcher: u32) -> usize {
    let launcher = launcher.to_string();
    let lives_here = |process: &Path| {
        let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
        // After the name, which may hold anything: state, parent, group, session.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ended = fields.next().is_none_or(|state| state == "Z" || state == "X");
        let in_session = fields.nth(2).is_some_and(|session| session == launcher);
        !ended && (in_session || fs::read_link(process.join("ns/pid")).is_ok_and(|found| found == space))
    };
    fs::read_dir("/proc").unwrap().flatten().filter(|entry| lives_here(&entry.path())).count()
}

/// Children of this process that nobody collected.
fn zombies() -> usize {
    let own = std::process::id().to_string();
    let listed = Command::new("ps").args(["--ppid", &own, "-o", "stat="]).output().unwrap();
    String::from_utf8(listed.stdout).unwrap().lines().filter(|state| state.starts_with('Z')).count()
}
