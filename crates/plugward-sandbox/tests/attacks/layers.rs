//! Leaving out one layer at a time: a suite that stays green without a layer does not test it.

use std::{collections::BTreeSet, os::fd::AsRawFd as _};

use plugward_sandbox::{Level, SpawnError};

use crate::{
    table::{Expected, rows, run},
    world::{World, finish, launcher, launcher_without, launcher_without_after_probe, through_bwrap},
};

/// Layers that are ours where bubblewrap makes the others. Capabilities are gone by then.
const LAYERS_BEHIND_BWRAP: [&str; 3] = ["landlock", "seccomp", "limits"];
/// Every layer of level `full`.
const LAYERS: [&str; 10] =
    ["files", "read-only", "processes", "network", "ipc", "host-name", "capabilities", "landlock", "seccomp", "limits"];

/// Layers with a test of their own.
/// The last one by `machines::without_namespaces_full_is_refused_and_partial_works` and its neighbours.
const LAYERS_APART: [&str; 3] = ["descriptors", "no-new-privileges", "permission"];

/// A layer that is in no list would be one that nothing tests.
pub(crate) fn every_layer_is_left_out_somewhere() {
    let listed: BTreeSet<&str> = LAYERS.into_iter().chain(LAYERS_APART).collect();
    assert_eq!(plugward_sandbox::layer_names().collect::<BTreeSet<_>>(), listed);
}

// Requirement 146: without any one layer at least one attack is answered differently.
pub(crate) fn leaving_out_any_layer_is_noticed() {
    let world = World::new();
    let rows = rows(&world);
    for layer in if through_bwrap() { &LAYERS_BEHIND_BWRAP[..] } else { &LAYERS } {
        let launcher = launcher_without(layer);
        let noticed: Vec<&str> = rows
            .iter()
            .filter(|row| {
                let Expected::Stopped(errors) = row.full else { return false };
                !run(&world, &launcher, Level::Full, row, false).is_some_and(|errno| errors.contains(&errno))
            })
            .map(|row| row.what)
            .collect();
        println!("without {layer}: {}", noticed.join(", "));
        assert!(!noticed.is_empty(), "no attack notices that `{layer}` is missing");
    }
}

/// Without these, what the level says would be wrong, so a start must be refused before the plugin runs.
pub(crate) fn witness_refuses_a_level_that_lacks_a_layer() {
    let world = World::new();
    let full = if through_bwrap() {
        &["landlock", "seccomp"][..]
    } else {
        &["files", "processes", "network", "capabilities", "landlock", "seccomp"]
    };
    for (level, layers) in
        [(Level::Full, full), (Level::Partial, &["landlock", "seccomp"]), (Level::Limited, &["seccomp"])]
    {
        for layer in layers {
            let error = launcher_without(layer).spawn(&world.attack(level, "stat", &["/"])).unwrap_err();
            println!("{level} without {layer}: {error}");
            assert!(matches!(&error, SpawnError::NotHeld { .. }), "{layer}: {error}");
        }
    }
}

// Requirement 146: what the probe ran under is what the plugin runs under, or it runs nowhere. Had it been executed and only
// then ended, it could have done its work by that time.
pub(crate) fn a_layer_that_goes_after_the_probe_starts_nothing() {
    let world = World::new();
    let native = if through_bwrap() {
        &["landlock", "seccomp", "limits"][..]
    } else {
        &["files", "processes", "network", "landlock", "seccomp", "limits"]
    };
    for (level, layers) in [
        (Level::Full, native),
        (Level::Partial, &["landlock", "seccomp", "limits"]),
        (Level::Limited, &["seccomp", "limits"]),
    ] {
        let trace = world.root.join("data/was-run");
        let spec = world.spec(level, "/bin/sh", &["-c", &format!("echo 1 > {}", trace.display())]);
        finish(launcher().spawn(&spec).unwrap());
        assert!(trace.exists(), "control: at {level} the program leaves its trace");
        std::fs::remove_file(&trace).unwrap();
        for layer in layers {
            let error = launcher_without_after_probe(layer).spawn(&spec).unwrap_err();
            assert!(
                error.to_string().contains("without a layer that was there for its probe"),
                "{level} {layer}: {error}"
            );
            assert!(!trace.exists(), "{level} without {layer}: the program ran");
        }
    }
}

/// What a starter of the host left open by mistake is a way to files that no layer looks at again.
pub(crate) fn leaving_out_the_descriptors_is_noticed() {
    let world = World::new();
    // Without the flag that closes it, as a careless starter would have left it.
    let open = rustix::io::dup(std::fs::File::open("/etc/passwd").unwrap()).unwrap();
    let script = format!("if [ -e /proc/self/fd/{} ]; then echo found; else echo none; fi", open.as_raw_fd());
    for level in [Level::Full, Level::Partial, Level::Limited] {
        let spec = world.spec(level, "/bin/sh", &["-c", &script]);
        assert_eq!(finish(launcher().spawn(&spec).unwrap()).stdout.trim(), "none", "{level}");
        let without = launcher_without("descriptors").spawn_unwitnessed(&spec).unwrap();
        // Level `full` of our own making has a second keeper: the first process of its namespaces closes all it has.
        let wanted = if level == Level::Full && !through_bwrap() { "none" } else { "found" };
        assert_eq!(finish(without).stdout.trim(), wanted, "{level} without `descriptors`");
    }
}

/// The kernel takes neither rules nor a filter from a process that a program could give rights to, so nothing starts.
pub(crate) fn leaving_out_no_new_privileges_starts_nothing() {
    let world = World::new();
    for level in [Level::Full, Level::Partial, Level::Limited] {
        let spec = world.attack(level, "stat", &["/"]);
        assert!(launcher().spawn_unwitnessed(&spec).is_ok(), "control: {level}");
        let started = launcher_without("no-new-privileges").spawn_unwitnessed(&spec);
        let Err(error) = started else { panic!("{level} starts without `no-new-privileges`") };
        println!("{level} without no-new-privileges: {error}");
    }
}
