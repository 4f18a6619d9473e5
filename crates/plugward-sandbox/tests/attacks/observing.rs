//! Trials: what a plugin wants and does not get is seen, and nothing else changes for it.

use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::PermissionsExt,
    path::Path,
};

use plugward_sandbox::{AttemptKind, Level, MainExit, Observations, SpawnError, Spawned};

use crate::world::{Outcome, PATIENCE, World, finish, launcher};

fn observe(world: &World, script: &str) -> (Outcome, Observations) {
    let spec = world.spec(Level::Full, "/bin/sh", &["-c", script]);
    let (spawned, notebook) = launcher().spawn_observed(&spec).unwrap();
    assert_eq!(spawned.process.enforcement().level, Level::Full);
    (finish(spawned), notebook.read().unwrap())
}

fn count(seen: &Observations, kind: AttemptKind, path: &str) -> u32 {
    let found = seen.attempts.iter().find(|attempt| attempt.kind == kind && attempt.target == path);
    found.map_or(0, |attempt| attempt.count)
}

/// What a person is asked to grant must be what the plugin wanted: no more, no less, and under its real name.
pub(crate) fn trial_notes_what_was_wanted_and_not_there() {
    let world = World::new();
    let tool = world.path("home/tool");
    fs::copy("/bin/true", &tool).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let (secret, new, none) = (world.path("home/secret"), world.path("home/new"), world.path("home/none"));
    let script = format!(
        "cat {secret}; cat ../home/secret; echo x > {new}; {tool}; cat {none}; test -e {}; \
         cat {} > /dev/null; echo ok > {}; echo ok > /tmp/ok; exit 7",
        world.path("other/data/file"),
        world.path("package/main.py"),
        world.path("data/ok"),
    );
    let plain = finish(launcher().spawn(&world.spec(Level::Full, "/bin/sh", &["-c", &script])).unwrap());
    fs::remove_file(world.path("data/ok")).unwrap();
    let (outcome, seen) = observe(&world, &script);
    // Requirement 72: looking on gives nothing: the same errors, the same files, the same end.
    assert_eq!((&outcome.stdout, &outcome.stderr, outcome.main), (&plain.stdout, &plain.stderr, MainExit::Code(7)));
    assert_eq!(fs::read_to_string(world.path("data/ok")).unwrap(), "ok\n");
    assert!(!Path::new(&new).exists(), "a trial let something through");

    assert_eq!(count(&seen, AttemptKind::Read, &secret), 2, "{seen:?}");
    assert_eq!(count(&seen, AttemptKind::Write, &new), 1, "{seen:?}");
    assert_eq!(count(&seen, AttemptKind::Look, &world.path("other/data/file")), 1, "{seen:?}");
    // A shell looks first and does not execute what is not there.
    let tool_wanted = [AttemptKind::Look, AttemptKind::Execute].iter().any(|kind| count(&seen, *kind, &tool) > 0);
    assert!(tool_wanted, "{seen:?}");
    // Programs it starts beside itself are told, whether or not they are there.
    let cat = seen.attempts.iter().find(|attempt| attempt.kind == AttemptKind::Execute && attempt.reached);
    assert!(cat.is_some_and(|cat| cat.target.to_string_lossy().ends_with("/cat")), "{seen:?}");
    for there in [none.as_str(), "/tmp/ok", &world.path("data/ok"), &world.path("package/main.py"), "/dev/null"] {
        assert!(!seen.attempts.iter().any(|attempt| attempt.target == there), "`{there}` in {seen:?}");
    }
    assert!(seen.reached > 0 && seen.missing > 0 && seen.dropped == 0, "{seen:?}");
}

/// A package is read-only: a plugin that wants to write there has to be seen, and one that reads there not.
pub(crate) fn trial_notes_writes_to_what_is_read_only() {
    let world = World::new();
    let code = world.path("package/main.py");
    let (_, seen) =
        observe(&world, &format!("cat {code} > /dev/null; echo x >> {code}; touch {}", world.path("package/new")));
    assert_eq!(count(&seen, AttemptKind::Write, &code), 1, "{seen:?}");
    assert_eq!(count(&seen, AttemptKind::Read, &code), 0, "{seen:?}");
    assert!(count(&seen, AttemptKind::Write, &world.path("package/new")) > 0, "{seen:?}");
}

/// Many processes and threads at once, all asking: nothing may hang, and the end is the same as without an observer.
pub(crate) fn trial_of_a_busy_plugin_ends_like_any_other() {
    let world = World::new();
    let secret = world.path("home/secret");
    let script =
        format!("for i in 1 2 3 4 5 6 7 8; do (for j in 1 2 3 4 5; do cat {secret} 2>/dev/null; done) & done; wait");
    let (outcome, seen) = observe(&world, &script);
    assert_eq!(outcome.main, MainExit::Code(0));
    assert_eq!(count(&seen, AttemptKind::Read, &secret), 40, "{seen:?}");
    // One that never ends by itself, in the middle of asking.
    let spec =
        world.spec(Level::Full, "/bin/sh", &["-c", &format!("echo go; while :; do : < {secret}; done 2>/dev/null")]);
    let (spawned, notebook) = launcher().spawn_observed(&spec).unwrap();
    let Spawned { stdin, stdout, stderr, process } = spawned;
    File::from(stdout).read_exact(&mut [0; 3]).unwrap();
    process.kill().unwrap();
    let report = process.wait_blocking(PATIENCE).unwrap();
    assert!(report.tree_gone, "{report:?}");
    drop((stdin, stderr));
    notebook.read().unwrap();
}

/// The launcher is gone before it could write down what it saw: that must not read as "it wanted nothing".
pub(crate) fn lost_record_is_no_empty_record() {
    let world = World::new();
    let (spawned, notebook) =
        launcher().spawn_observed(&world.spec(Level::Full, "/bin/sh", &["-c", "sleep 60"])).unwrap();
    let pid = i32::try_from(spawned.process.launcher_pid()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL).unwrap();
    assert!(spawned.process.wait_blocking(PATIENCE).is_some());
    assert_eq!(notebook.read().unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
}

/// A trial at a weaker level would let the plugin do what it should only be seen to want.
pub(crate) fn trial_takes_level_full() {
    let world = World::new();
    for level in [Level::None, Level::Limited, Level::Partial] {
        let refused = launcher().spawn_observed(&world.spec(level, "/bin/sh", &["-c", "true"])).unwrap_err();
        assert!(matches!(refused, SpawnError::InvalidSandbox { field: "level", .. }), "{refused}");
    }
}
