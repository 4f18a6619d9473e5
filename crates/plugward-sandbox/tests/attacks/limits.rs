//! The end of a confined plugin: by order, by limit, with its launcher, and against its will.

use std::{
    fs::{self, File},
    io::Read,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use plugward_sandbox::{Exceeded, ExitReport, Level, Limits, MainExit, Spawned};

use crate::world::{PATIENCE, World, finish, is_root, launcher};

const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;
const LEVELS: [Level; 2] = [Level::Full, Level::Partial];

/// Starts three daemons that ignore every request, tells so, and goes on.
const DAEMONS: &str = "for i in 1 2 3; do (setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' \
                       >/dev/null 2>&1 </dev/null &); done; echo ready; trap '' TERM; while :; do sleep 1; done";

pub(crate) fn first_line(stdout: std::os::fd::OwnedFd) -> (String, File) {
    let mut pipe = File::from(stdout);
    let mut line = Vec::new();
    let mut byte = [0];
    while pipe.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    (String::from_utf8(line).unwrap(), pipe)
}

fn descendants(launcher: u32) -> usize {
    let text = Command::new("ps").args(["-e", "-o", "sid="]).output().unwrap().stdout;
    String::from_utf8(text).unwrap().lines().filter(|line| line.trim() == launcher.to_string()).count()
}

pub(crate) fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "still waiting for: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

// Requirement 97: the end of the tree does not depend on what its processes do.
pub(crate) fn daemons_end_with_their_namespace() {
    let world = World::new();
    for level in LEVELS {
        let spawned = launcher().spawn(&world.spec(level, "/bin/sh", &["-c", DAEMONS])).unwrap();
        let Spawned { stdin, stdout, stderr: _stderr, process } = spawned;
        let (line, _pipe) = first_line(stdout);
        assert_eq!(line, "ready");
        drop(stdin);
        let ExitReport { main, tree_gone, leftovers_killed, exceeded: None } = process.stop_blocking(PATIENCE).unwrap()
        else {
            panic!("ended for a limit");
        };
        assert_eq!((main, tree_gone), (MainExit::Signal(SIGKILL), true), "{level}");
        assert!(leftovers_killed >= 3, "{level}: {leftovers_killed}");
        // Positive control of the other kind: a main process that ends by itself leaves them, and they end too.
        let script = DAEMONS.replace("trap '' TERM; while :; do sleep 1; done", "exit 5");
        let spawned = launcher().spawn(&world.spec(level, "/bin/sh", &["-c", &script])).unwrap();
        let Spawned { stdin: _stdin, stdout: _stdout, stderr: _stderr, process } = spawned;
        let report = process.wait_blocking(PATIENCE).unwrap();
        assert_eq!((report.main, report.tree_gone), (MainExit::Code(5), true), "{level}");
        assert!(report.leftovers_killed >= 3, "{level}: {report:?}");
    }
}

// Threat 53: a plugin that kills what holds it would be free of it.
pub(crate) fn first_process_and_launcher_cannot_be_killed() {
    let world = World::new();
    let script =
        "kill -9 1 2>/dev/null; kill -9 $PPID 2>/dev/null; kill -STOP $PPID 2>/dev/null; sleep 0.2; echo alive; read _";
    for level in LEVELS {
        let spawned = launcher().spawn(&world.spec(level, "/bin/sh", &["-c", script])).unwrap();
        let Spawned { stdin, stdout, stderr: _stderr, process } = spawned;
        let (line, _pipe) = first_line(stdout);
        assert_eq!(line, "alive", "{level}");
        drop(stdin);
        let report = process.wait_blocking(PATIENCE).unwrap();
        assert_eq!((report.main, report.tree_gone), (MainExit::Code(1), true), "{level}: {report:?}");
    }
}

// Requirement 93: a plugin that only burns time ends, and the report names the signal of that limit.
pub(crate) fn processor_time_ends() {
    let world = World::new();
    for level in [Level::Full, Level::Partial, Level::Limited] {
        let mut spec = world.spec(level, "/bin/sh", &["-c", "while :; do :; done"]);
        spec.sandbox.as_mut().unwrap().limits.cpu_s = Some(1);
        let outcome = finish(launcher().spawn(&spec).unwrap());
        assert_eq!(outcome.main, MainExit::Signal(SIGXCPU), "{level}: {outcome:?}");
        // One that ignores the signal is ended all the same.
        let mut spec = world.spec(level, "/bin/sh", &["-c", "trap '' XCPU; while :; do :; done"]);
        spec.sandbox.as_mut().unwrap().limits.cpu_s = Some(1);
        let outcome = finish(launcher().spawn(&spec).unwrap());
        assert_eq!(outcome.main, MainExit::Signal(SIGKILL), "{level}: {outcome:?}");
    }
}

// Requirement 97: a launcher that is killed takes the whole namespace along.
pub(crate) fn killed_host_side_leaves_nothing() {
    let world = World::new();
    let spawned = launcher().spawn(&world.spec(Level::Full, "/bin/sh", &["-c", DAEMONS])).unwrap();
    let Spawned { stdin: _stdin, stdout, stderr: _stderr, process } = spawned;
    let (line, _pipe) = first_line(stdout);
    assert_eq!(line, "ready");
    let launcher = process.launcher_pid();
    let main = process.pid();
    assert!(fs::exists(format!("/proc/{main}")).unwrap() && descendants(launcher) >= 2, "control: it runs");
    assert!(Command::new("/bin/kill").args(["-9", &launcher.to_string()]).status().unwrap().success());
    wait_for("the main process is gone", || !fs::exists(format!("/proc/{main}")).unwrap());
    wait_for("nothing of its session is left", || descendants(launcher) <= 1);
    assert!(process.wait_blocking(PATIENCE).is_some());
}

// Requirement 97: nothing is left behind, not even by many starts at a time.
pub(crate) fn many_at_once_leave_nothing() {
    const AT_ONCE: usize = 20;
    const ROUNDS: usize = 3;
    let world = World::new();
    let launcher = launcher();
    let spec = world.spec(Level::Full, "/bin/sh", &["-c", DAEMONS]);
    // The witness has run before anything is counted.
    drop(launcher.spawn(&spec).unwrap());
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let launchers = || {
        let listed =
            Command::new("ps").args(["--ppid", &std::process::id().to_string(), "-o", "comm="]).output().unwrap();
        String::from_utf8(listed.stdout).unwrap().lines().filter(|name| name.starts_with("plugward")).count()
    };
    wait_for("the first launcher is collected", || launchers() == 0);
    let before = open();
    for _ in 0..ROUNDS {
        let mains: Vec<u32> = thread::scope(|scope| {
            let one = || {
                let Spawned { stdin: _stdin, stdout, stderr: _stderr, process } = launcher.spawn(&spec).unwrap();
                assert_eq!(first_line(stdout).0, "ready");
                process.kill().unwrap();
                let report = process.wait_blocking(PATIENCE).unwrap();
                assert!(report.tree_gone, "{report:?}");
                process.pid()
            };
            let started: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(one)).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(mains.iter().all(|pid| !fs::exists(format!("/proc/{pid}")).unwrap()));
    }
    assert_eq!((open(), launchers()), (before, 0));
}

/// One mebibyte.
const MIB: u64 = 1024 * 1024;

/// Runs an attack that goes on until it is ended, and returns the limit it was ended for.
fn exceeded(world: &World, level: Level, attack: &str, arguments: &[&str], limits: Limits) -> Exceeded {
    let mut spec = world.attack(level, attack, arguments);
    spec.sandbox.as_mut().unwrap().limits = limits;
    let Spawned { stdin: _stdin, stdout, stderr: _stderr, process } = launcher().spawn(&spec).unwrap();
    let report = process.wait_blocking(PATIENCE).unwrap();
    assert_eq!((report.main, report.tree_gone), (MainExit::Signal(SIGKILL), true), "{attack} at {level}: {report:?}");
    // Control: it went on until then, and did not fail by itself.
    assert_eq!(first_line(stdout).0, "", "{attack} at {level}");
    report.exceeded.unwrap_or_else(|| panic!("{attack} at {level}: no limit is named"))
}

// Threats 35 and 36: memory that no process's own limit sees, in one map, in many processes, or behind a descriptor.
pub(crate) fn shared_memory_ends_at_the_limit() {
    const LIMIT_BYTES: u64 = 64 * MIB;
    let world = World::new();
    let limits = Limits { memory_bytes: Some(LIMIT_BYTES), file_bytes: Some(256 * MIB), ..Limits::default() };
    for level in LEVELS {
        for attack in ["share-memory", "hide-memory", "hide-in-thread", "outlive-main", "fork-memory"] {
            match exceeded(&world, level, attack, &["192"], limits) {
                Exceeded::Memory { used_bytes, limit_bytes } => {
                    assert_eq!(limit_bytes, LIMIT_BYTES);
                    assert!(used_bytes > LIMIT_BYTES, "{attack} at {level}: {used_bytes}");
                }
                other => panic!("{attack} at {level}: {other}"),
            }
            // Control: below the limit it is left alone.
            left_alone(&world, level, attack, &["24"], limits);
        }
    }
}

/// Time in which a plugin that is looked at wrongly has been ended: several looks.
const SEVERAL_LOOKS: Duration = Duration::from_millis(700);

/// Runs an attack that is none, or not yet, and sees it left alone.
fn left_alone(world: &World, level: Level, attack: &str, arguments: &[&str], limits: Limits) {
    let mut spec = world.attack(level, attack, arguments);
    spec.sandbox.as_mut().unwrap().limits = limits;
    let Spawned { stdin: _stdin, stdout: _stdout, stderr: _stderr, process } = launcher().spawn(&spec).unwrap();
    let report = process.wait_blocking(SEVERAL_LOOKS);
    assert!(report.is_none(), "{attack} at {level}: {report:?}");
    process.kill().unwrap();
    assert_eq!(process.wait_blocking(PATIENCE).unwrap().exceeded, None, "{attack} at {level}");
}

// Requirement 92: a plugin that starts programs is not ended for memory that its child has in common with it.
pub(crate) fn memory_in_common_counts_once() {
    let world = World::new();
    let limits = Limits { memory_bytes: Some(64 * MIB), ..Limits::default() };
    for level in LEVELS {
        left_alone(&world, level, "spawn-shared", &["44"], limits);
        // Control: one that really takes it twice.
        let found = exceeded(&world, level, "copy-memory", &["44"], limits);
        assert!(matches!(found, Exceeded::Memory { .. }), "{level}: {found}");
    }
}

// Threat 36: what the kernel shows to root alone cannot be counted by the host of an ordinary user, and counts as too much.
pub(crate) fn memory_of_unreadable_programs_ends_the_plugin() {
    let world = World::new();
    let (unreadable, readable) = (world.path("package/unreadable"), world.path("package/probe"));
    let limits = Limits {
        memory_bytes: Some(64 * MIB),
        file_bytes: Some(256 * MIB),
        open_files: Some(256),
        ..Limits::default()
    };
    for level in LEVELS {
        // Without permission to change modes there is no such program in memory.
        let made = (level == Level::Full).then_some(("hide-in-memory-program", vec!["192"]));
        for (attack, arguments) in [("hide-in-program", vec![unreadable.as_str(), "192"])].into_iter().chain(made) {
            let found = exceeded(&world, level, attack, &arguments, limits);
            let is_counted = matches!(found, Exceeded::Memory { used_bytes, .. } if used_bytes > 64 * MIB);
            if is_root() {
                assert!(is_counted, "{attack} at {level}: root sees it: {found}");
            } else {
                assert_eq!(found, Exceeded::Hidden, "{attack} at {level}");
                assert!(found.to_string().contains("read permission"), "{found}");
            }
        }
        // Control: the same program, readable, holds little and is left alone.
        left_alone(&world, level, "hide-in-program", &[&readable, "24"], limits);
    }
}

// Threat 61: buffers of the kernel are in no process's memory. Each socket and pipe counts as full.
pub(crate) fn kernel_buffers_end_at_the_limit() {
    let world = World::new();
    let limits = Limits { memory_bytes: Some(64 * MIB), ..Limits::default() };
    for level in LEVELS {
        for attack in ["fill-sockets", "fill-pipes"] {
            let found = exceeded(&world, level, attack, &["192"], limits);
            assert!(matches!(found, Exceeded::Memory { used_bytes, .. } if used_bytes > 64 * MIB), "{level}: {found}");
            left_alone(&world, level, attack, &["24"], limits);
        }
    }
    // Control: nothing else stops them.
    left_alone(&world, Level::Full, "fill-sockets", &["192"], Limits { memory_bytes: Some(1024 * MIB), ..limits });
}

// Threat 38: each file is small, and so are those without a name; all together they fill the disk.
pub(crate) fn own_data_ends_at_the_limit() {
    const LIMIT_BYTES: u64 = 8 * MIB;
    let world = World::new();
    let data = world.path("data");
    let limits = Limits { disk_bytes: Some(LIMIT_BYTES), file_bytes: Some(MIB), ..Limits::default() };
    for level in LEVELS {
        for attack in ["fill-many", "fill-nameless"] {
            match exceeded(&world, level, attack, &[&data, "24"], limits) {
                Exceeded::Disk { used_bytes: Some(used_bytes), limit_bytes } => {
                    assert!(
                        used_bytes > limit_bytes && limit_bytes == LIMIT_BYTES,
                        "{attack} at {level}: {used_bytes}"
                    );
                }
                other => panic!("{attack} at {level}: {other}"),
            }
            fs::read_dir(&data).unwrap().for_each(|entry| fs::remove_file(entry.unwrap().path()).unwrap());
        }
    }
}

/// A plugin whose time is over is ended by name, not by a guess.
pub(crate) fn time_to_run_ends() {
    let world = World::new();
    let limits = Limits { wall_s: Some(1), ..Limits::default() };
    let started = Instant::now();
    let found = exceeded(&world, Level::Full, "wait", &[], limits);
    assert_eq!(found, Exceeded::WallTime { limit_s: 1 });
    assert!(started.elapsed() >= Duration::from_secs(1));
}
