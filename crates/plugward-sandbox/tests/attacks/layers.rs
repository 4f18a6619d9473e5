//! Leaving out one layer at a time, or one part of it: a suite that stays green without it does not test it.
//!
//! Owns which attack meets which layer, and what is behind it. Refuses a list with gaps: every layer the launcher knows is
//! left out somewhere.

use std::{collections::BTreeSet, fs::File, os::fd::AsRawFd as _};

use plugward_sandbox::{LAUNCH_ARGUMENT, Launcher, Level, ListedHosts, MainExit, Network, SpawnError, UserPolicy};

use crate::{
    runtimes::tiny_program,
    table::{Control, Expected, FOREIGN_CALL, Row, rows, run},
    world::{
        WITHOUT, World, backend, finish, give_to_plugin, is_root, launcher, launcher_without,
        launcher_without_after_probe, plugin_user, through_bwrap,
    },
};

/// Layers that are ours where bubblewrap makes the others. Capabilities are gone by then.
const LAYERS_BEHIND_BWRAP: [&str; 3] = ["landlock", "seccomp", "limits"];
/// Every layer of level `full`. The user namespace is not among them: the kernel makes the others only within one.
const LAYERS: [&str; 10] =
    ["files", "read-only", "processes", "network", "ipc", "host-name", "capabilities", "landlock", "seccomp", "limits"];

/// Layers with a test of their own.
/// The last one by `machines::without_namespaces_full_is_refused_and_partial_works` and its neighbours.
const LAYERS_APART: [&str; 8] = [
    "descriptors",
    "descriptors-inside",
    "environment",
    "user",
    "no-new-privileges",
    "filter-fast-open",
    "filter-architecture",
    "permission",
];
/// Numbers that this kernel may not know either, with or without a filter: unit tests of the filter leave these out.
const LAYERS_OF_UNIT_TESTS: [&str; 2] = ["filter-x32", "filter-newer"];

/// What an attack is answered without a part of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behind {
    /// Nothing: it gets through.
    Nothing,
    /// Another layer, which answers with this error.
    Another(i32),
}

use Behind::{Another, Nothing};

/// Parts of the filter and of Landlock, with the attacks that each of them stops. What two layers stop is left to the second
/// one first, and then gets through without both.
const PARTS: &[(&str, Level, Behind, &[&str])] = &[
    ("landlock-files", Level::Full, Nothing, &["list the root"]),
    (
        "landlock-files",
        Level::Partial,
        Nothing,
        &[
            "read a secret",
            "list another plugin's data",
            "change its own code",
            "replace its own code",
            "make a file outside",
            "read through a link",
            "link a file in",
            "run a dropped program",
            "read another's arguments",
            "list another's descriptors",
            "shared memory by file",
            "fill /tmp",
        ],
    ),
    ("landlock-scope", Level::Partial, Nothing, &["signal another process"]),
    (
        "filter-calls",
        Level::Partial,
        Nothing,
        &[
            "hold another process",
            "ring of calls",
            "faults in user space",
            "the user's keys",
            "nested namespace",
            "shared memory by key",
            "pages given to a pipe",
        ],
    ),
    ("filter-calls", Level::Full, Another(libc::ESRCH), &["trace another process", "hold another process"]),
    (
        "filter-arguments",
        Level::Partial,
        Nothing,
        &[
            "limit another process",
            "slow down another process",
            "nested namespace by clone",
            "weaker address layout",
            "type for the user",
            "type, with a dressed-up number",
        ],
    ),
    ("filter-clone3", Level::Full, Nothing, &["nested namespace by clone3"]),
    (
        "filter-sockets",
        Level::Partial,
        Nothing,
        &[
            "send a datagram",
            "reach it by fast open",
            "open a multipath socket",
            "reach a Unix socket",
            "ask the kernel's network",
            "reach the machine below",
        ],
    ),
    ("filter-sockets", Level::Partial, Another(libc::EACCES), &["reach a local service", "reach it by another form"]),
    (
        "filter-sockets+landlock-network",
        Level::Partial,
        Nothing,
        &["reach a local service", "reach it by another form"],
    ),
    ("filter-sockets", Level::Partial, Another(libc::EPERM), &["reach one without path"]),
    ("filter-sockets+landlock-scope", Level::Partial, Nothing, &["reach one without path"]),
    ("filter-set-id", Level::Full, Nothing, &["make a setuid program", "make one in one step"]),
    ("filter-buffers", Level::Full, Nothing, &["a larger buffer of a socket", "a larger pipe"]),
    ("filter-hiding", Level::Full, Nothing, &["hide from who counts"]),
    (
        "filter-metadata",
        Level::Partial,
        Nothing,
        &[
            "change permissions",
            "change times",
            "change permissions of code",
            "change attributes",
            "watch the user's files",
            "semaphores by key",
        ],
    ),
];

/// A layer that is in no list would be one that nothing tests.
pub(crate) fn every_layer_is_left_out_somewhere() {
    let parts = PARTS.iter().flat_map(|(names, ..)| names.split('+'));
    let listed: BTreeSet<&str> =
        LAYERS.into_iter().chain(LAYERS_APART).chain(LAYERS_OF_UNIT_TESTS).chain(parts).collect();
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

// Requirement 146: each part of the filter and of Landlock stops what it is there for, and not another part beside it.
pub(crate) fn leaving_out_any_part_is_noticed() {
    let world = World::new();
    // Permissions are their owner's to change, and that must not be what stops it.
    ["home/secret", "package/main.py"].iter().for_each(|file| give_to_plugin(&world.root.join(file)));
    let rows = rows(&world);
    // Only level `full` goes through bubblewrap.
    for (names, level, behind, attacks) in PARTS.iter().filter(|part| !through_bwrap() || part.1 == Level::Full) {
        let without = launcher_without(names);
        for attack in *attacks {
            let row = rows.iter().find(|row| row.what == *attack).unwrap_or_else(|| panic!("no row `{attack}`"));
            if row.control == Control::MaySucceed && run(&world, &launcher(), Level::None, row, false).is_some() {
                println!("{level} without {names}: {attack}: does not work here without a sandbox either");
                continue;
            }
            assert!(is_stopped(&world, level, row), "control: {level}: {attack}");
            let answer = run(&world, &without, *level, row, false);
            let found = answer.map_or(Nothing, Another);
            assert_eq!(found, *behind, "{level} without {names}: {attack}");
        }
    }
}

fn is_stopped(world: &World, level: &Level, row: &Row) -> bool {
    let expected = if *level == Level::Full { row.full } else { row.partial };
    let Expected::Stopped(errors) = expected else { return false };
    run(world, &launcher(), *level, row, false).is_some_and(|errno| errors.contains(&errno))
}

/// Beside listed hosts there are sockets, and sending that connects is a way around Landlock's rules on them.
pub(crate) fn leaving_out_fast_open_is_noticed() {
    let world = World::new();
    let port = world.tcp.local_addr().unwrap().port().to_string();
    let mut spec = world.attack(Level::Full, "send-fast-open", &[&port]);
    spec.sandbox.as_mut().unwrap().network = Network::Hosts(ListedHosts::default());
    let answer = |launcher: &Launcher| finish(launcher.spawn_unwitnessed(&spec).unwrap()).stdout.trim().to_owned();
    assert_eq!(answer(&launcher()), libc::EPERM.to_string());
    let without = answer(&launcher_without("filter-fast-open"));
    // What is left is the network itself, in which nobody listens.
    assert_eq!(without, libc::ECONNREFUSED.to_string());
}

/// Threat 27, where the kernel makes 32-bit calls for a 64-bit program at all.
pub(crate) fn leaving_out_the_architecture_is_noticed() {
    const SIGSYS: i32 = 31;
    let world = World::new();
    let program = world.root.join("package/foreign");
    tiny_program(&program, FOREIGN_CALL);
    let end = |launcher: &Launcher, level| {
        finish(launcher.spawn_unwitnessed(&world.spec(level, program.to_str().unwrap(), &[])).unwrap()).main
    };
    let unconfined = end(&launcher(), Level::None);
    for level in [Level::Full, Level::Partial, Level::Limited] {
        if unconfined == MainExit::Code(7) {
            assert_eq!(end(&launcher(), level), MainExit::Signal(SIGSYS), "{level}");
        }
        assert_eq!(end(&launcher_without("filter-architecture"), level), unconfined, "{level}");
    }
}

/// What is in the launcher's environment is the host's, and may be a secret.
pub(crate) fn leaving_out_the_environment_is_noticed() {
    let world = World::new();
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    // Started as by a host that gives its own environment on, which ours does not: that is the first keeper.
    let started_with = |arguments: &[&str]| {
        let all = [&["HOST_SECRET=canary", program], arguments].concat();
        Launcher::at("/usr/bin/env", all).with_backend(backend())
    };
    for level in [Level::Full, Level::Partial, Level::Limited] {
        let spec = world.spec(level, "/usr/bin/env", &[]);
        let names = |launcher: &Launcher| {
            let printed = finish(launcher.spawn_unwitnessed(&spec).unwrap()).stdout;
            let names = printed.lines().filter_map(|line| Some(line.split_once('=')?.0.to_owned()));
            // Bubblewrap says where the plugin begins.
            names.filter(|name| !(through_bwrap() && name == "PWD")).collect::<BTreeSet<_>>()
        };
        let own = BTreeSet::from(["HOME".to_owned(), "PATH".to_owned()]);
        assert_eq!(names(&started_with(&[LAUNCH_ARGUMENT])), own, "{level}: the second keeper");
        assert_eq!(names(&launcher_without("environment")), own, "{level}: the first keeper");
        let without = names(&started_with(&[WITHOUT, "environment"]));
        // Bubblewrap, where it stands between, is a third one.
        let is_found = level != Level::Full || !through_bwrap();
        assert_eq!(without.contains("HOST_SECRET"), is_found, "{level} without `environment`: {without:?}");
    }
}

/// Requirement 86. A host of an ordinary user has no other user to give, and its plugins none to lose.
pub(crate) fn leaving_out_the_user_is_noticed() {
    let world = World::new();
    for level in [Level::Full, Level::Partial, Level::Limited] {
        let spec = world.spec(level, "/usr/bin/id", &["-u"]);
        let user = |launcher: &Launcher| finish(launcher.spawn_unwitnessed(&spec).unwrap()).stdout.trim().to_owned();
        let own = rustix::process::getuid().as_raw();
        let wanted = match plugin_user() {
            UserPolicy::Drop { uid, .. } => uid,
            UserPolicy::Same => own,
        };
        assert_eq!((user(&launcher()), own != wanted), (wanted.to_string(), is_root()), "{level}");
        let without = launcher_without("user");
        if is_root() && level == Level::Full {
            // Root would write into a folder that is not its own, and that is noticed before.
            let error = without.spawn_unwitnessed(&spec).unwrap_err().to_string();
            assert!(error.contains("writing as a user of the plugin's own"), "{error}");
        } else {
            assert_eq!(user(&without), own.to_string(), "{level} without `user`");
        }
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
    let open = rustix::io::dup(File::open("/etc/passwd").unwrap()).unwrap();
    let script = format!("if [ -e /proc/self/fd/{} ]; then echo found; else echo none; fi", open.as_raw_fd());
    for level in [Level::Full, Level::Partial, Level::Limited] {
        let spec = world.spec(level, "/bin/sh", &["-c", &script]);
        assert_eq!(finish(launcher().spawn(&spec).unwrap()).stdout.trim(), "none", "{level}");
        let without = launcher_without("descriptors").spawn_unwitnessed(&spec).unwrap();
        // Level `full` of our own making has a second keeper: the first process of its namespaces closes all it has.
        let wanted = if level == Level::Full && !through_bwrap() { "none" } else { "found" };
        assert_eq!(finish(without).stdout.trim(), wanted, "{level} without `descriptors`");
        let without = launcher_without("descriptors+descriptors-inside").spawn_unwitnessed(&spec).unwrap();
        assert_eq!(finish(without).stdout.trim(), "found", "{level} without both");
        let without = launcher_without("descriptors-inside").spawn_unwitnessed(&spec).unwrap();
        assert_eq!(finish(without).stdout.trim(), "none", "{level} without the second keeper alone");
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
