//! What a level reports, and how one that cannot be reached is refused.

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    process::Command,
};

use plugward_sandbox::{
    Alias, Backend, DiskControl, FileControl, LaunchSpec, Launcher, Level, ListedHosts, MemoryControl, Network,
    NetworkControl, ProcessControl, SandboxSpec, SpawnError, SpawnStep, StopGrace, TreeControl, UserControl,
    UserPolicy, system_paths,
};

use crate::world::{
    WITHOUT, World, backend, finish, give_to_plugin, is_root, launcher, launcher_with_landlock, through_bwrap,
};

// Requirements 69 and 146: a console shows these fields, so they have to be what the kernel enforces.
pub(crate) fn report_says_what_is_in_force() {
    let world = World::new();
    let launcher = launcher();
    let own_user = if is_root() { UserControl::Separate } else { UserControl::Same };
    for level in [Level::Full, Level::Partial, Level::Limited, Level::None] {
        let spawned = launcher.spawn(&world.attack(level, "stat", &["/"])).unwrap();
        let report = spawned.process.enforcement().clone();
        finish(spawned);
        println!("{level}: missing {:?}, witness {:?}", report.missing, report.witness);
        assert_eq!(report.level, level);
        assert_eq!(report.witness.is_some(), level != Level::None);
        assert_eq!(report.backend, if level == Level::Full { backend() } else { Backend::Native });
        if let Some(witness) = &report.witness {
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
            assert!(witness.starts_with(&format!("ok@{}/", boot.trim())));
            assert_eq!(report.uid, own_user);
            let grouped = plugward_sandbox::control_group_missing().is_none() && level >= Level::Partial;
            assert_eq!(report.mem, if grouped { MemoryControl::Cgroup } else { MemoryControl::RlimitAndWatch });
        }
        let (fs, net, tree) = (report.fs, report.net, report.tree);
        match level {
            Level::Full => {
                assert_eq!((fs, net), (FileControl::MountNamespace, NetworkControl::NoneNamespace));
                let grouped = plugward_sandbox::control_group_missing().is_none();
                let pids = if grouped { ProcessControl::Cgroup } else { ProcessControl::UserNamespace };
                assert_eq!((tree, report.pids), (TreeControl::PidNamespace, pids));
                assert_eq!(report.disk, DiskControl::TmpfsFileSizeAndWatch);
            }
            Level::Partial => {
                assert_eq!((fs, net), (FileControl::Landlock, NetworkControl::NoneSeccomp));
                let grouped = plugward_sandbox::control_group_missing().is_none();
                let ends = if grouped { TreeControl::Cgroup } else { TreeControl::Subreaper };
                assert_eq!((tree, report.landlock_abi > 0), (ends, true));
            }
            _ => assert_eq!((fs, tree), (FileControl::None, TreeControl::Subreaper)),
        }
    }
}

// Requirement 146: a weaker run is never what happens when something is missing.
pub(crate) fn what_cannot_be_enforced_does_not_start() {
    let world = World::new();
    let marker = world.path("data/ran");
    let mut spec = world.spec(Level::Full, "/bin/sh", &["-c", &format!("touch {marker}")]);
    let sandbox = spec.sandbox.as_mut().unwrap();
    sandbox.level = Level::Partial;
    sandbox.network = Network::Hosts(ListedHosts::default());
    let error = launcher().spawn(&spec).unwrap_err();
    assert!(matches!(error, SpawnError::InvalidSandbox { field: "network", .. }), "{error}");
    spec.sandbox.as_mut().unwrap().level = Level::Full;
    spec.sandbox.as_mut().unwrap().network = Network::Off;
    spec.sandbox.as_mut().unwrap().read_only.push(world.root.join("missing"));
    launcher().spawn(&spec).unwrap_err();
    assert!(!fs::exists(&marker).unwrap(), "the plugin ran without its sandbox");
    // Positive control: with what it asks for it runs.
    spec.sandbox.as_mut().unwrap().read_only.pop();
    finish(launcher().spawn(&spec).unwrap());
    assert!(fs::exists(&marker).unwrap());
}

/// A person has to read which path it was, and what to do.
pub(crate) fn errors_name_the_path_and_the_fix() {
    let world = World::new();
    symlink("/etc", world.root.join("data/planted")).unwrap();
    let planted = world.root.join("data/planted");
    let missing = world.root.join("missing");
    for level in [Level::Full, Level::Partial] {
        let mut spec = world.attack(level, "stat", &["/"]);
        spec.sandbox.as_mut().unwrap().read_write.push(planted.clone());
        let error = launcher().spawn(&spec).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(planted.to_str().unwrap()) && text.contains("symbolic link"), "{text}");
        let mut spec = world.attack(level, "stat", &["/"]);
        spec.sandbox.as_mut().unwrap().read_only.push(missing.clone());
        let error = launcher().spawn(&spec).unwrap_err();
        assert_eq!(error.step(), SpawnStep::Sandbox);
        assert_eq!(
            error.to_string(),
            format!(
                "sandbox level `{level}` is not possible: a readable path cannot be put in force at `{}`: no such file or \
                 directory; it has to exist and to be a file or folder",
                missing.display()
            )
        );
        let mut spec = world.attack(level, "stat", &["/"]);
        spec.executable = missing.clone();
        let error = launcher().spawn(&spec).unwrap_err().to_string();
        assert!(error.contains(missing.to_str().unwrap()), "{error}");
    }
}

// Threat: between the look at a place and the start, somebody bends a link on the way, and the plugin gets another place.
pub(crate) fn what_was_looked_at_is_what_is_opened() {
    let world = World::new();
    let (notes, keys, name) = (world.root.join("notes"), world.root.join("home"), world.root.join("mine"));
    fs::create_dir(&notes).unwrap();
    fs::write(notes.join("secret"), "canary").unwrap();
    symlink("notes", &name).unwrap();
    for level in [Level::Full, Level::Partial] {
        let mut spec = world.attack(level, "read", &[&world.path("mine/secret")]);
        let sandbox = spec.sandbox.as_mut().unwrap();
        sandbox.granted = vec![notes.clone()];
        sandbox.aliases = vec![Alias { name: name.clone(), place: notes.clone() }];
        assert_eq!(finish(launcher().spawn(&spec).unwrap()).stdout.trim(), "ok", "{level}: control");
        fs::remove_file(&name).unwrap();
        symlink("home", &name).unwrap();
        let error = launcher().spawn(&spec).unwrap_err().to_string();
        assert!(error.contains("leads elsewhere") && error.contains(name.to_str().unwrap()), "{error}");
        spec.sandbox.as_mut().unwrap().aliases.clear();
        fs::rename(&notes, world.root.join("moved")).unwrap();
        symlink("home", &notes).unwrap();
        let error = launcher().spawn(&spec).unwrap_err().to_string();
        assert!(error.contains("have become a symbolic link") && error.contains(notes.to_str().unwrap()), "{error}");
        // Control: the file behind the bent way is there to be read.
        assert!(fs::exists(keys.join("secret")).unwrap());
        fs::remove_file(&notes).unwrap();
        fs::rename(world.root.join("moved"), &notes).unwrap();
        fs::remove_file(&name).unwrap();
        symlink("notes", &name).unwrap();
    }
}

// Requirement 86: a host that runs as root gives a plugin its own home, and takes nothing from anybody else.
pub(crate) fn only_the_home_changes_its_owner() {
    let world = World::new();
    fs::create_dir(world.root.join("shared")).unwrap();
    let shared = world.root.join("shared");
    for level in [Level::Full, Level::Partial] {
        let mut spec = world.spec(level, "/bin/sh", &["-c", "touch made"]);
        spec.sandbox.as_mut().unwrap().read_write.push(shared.clone());
        let before = fs::metadata(&shared).unwrap().uid();
        match launcher().spawn(&spec) {
            Ok(spawned) => assert!(!is_root() && finish(spawned).stderr.is_empty()),
            Err(error) => {
                let text = error.to_string();
                assert!(is_root() && text.contains("owner of what it writes to"), "{text}");
                assert!(text.contains(shared.to_str().unwrap()), "{text}");
            }
        }
        assert_eq!(fs::metadata(&shared).unwrap().uid(), before, "{level}");
    }
    // Control: with the folder's owner agreed, it runs.
    give_to_plugin(&shared);
    let mut spec = world.spec(Level::Full, "/bin/sh", &["-c", "touch made"]);
    spec.sandbox.as_mut().unwrap().read_write.push(shared);
    assert_eq!(finish(launcher().spawn(&spec).unwrap()).stderr, "");
}

// Threat 22: with an open network, a socket without a path is the machine's, and before version 6 Landlock does not see it.
pub(crate) fn older_landlock_leaves_no_unix_sockets_with_an_open_network() {
    let world = World::new();
    let answer = |launcher: &Launcher, level, attack, target: &str| {
        let mut spec = world.attack(level, attack, &[target]);
        if let Some(sandbox) = &mut spec.sandbox {
            sandbox.network = Network::Open;
        }
        finish(launcher.spawn_unwitnessed(&spec).unwrap()).stdout.trim().to_owned()
    };
    let port = world.tcp.local_addr().unwrap().port().to_string();
    let refused = libc::EPERM.to_string();
    assert_eq!(answer(&launcher(), Level::None, "connect-abstract", &world.abstract_name), "ok", "control");
    for abi in [3, 5] {
        let older = launcher_with_landlock(abi);
        for level in [Level::Full, Level::Partial] {
            assert_eq!(answer(&older, level, "connect-tcp", &port), "ok", "control: the network is open");
            assert_eq!(answer(&older, level, "connect-abstract", &world.abstract_name), refused, "{level}, {abi}");
        }
    }
    assert_eq!(answer(&launcher(), Level::Full, "connect-abstract", &world.abstract_name), refused);
}

/// Landlock adds rights up, so a data folder inside the package could hold programs; a file tree of its own can do better.
pub(crate) fn partial_refuses_folders_within_each_other() {
    let world = World::new();
    fs::create_dir(world.root.join("package/cache")).unwrap();
    give_to_plugin(&world.root.join("package/cache"));
    let dropped = world.path("package/cache/dropped");
    let mut spec = world.attack(Level::Partial, "execute", &[&dropped]);
    spec.sandbox.as_mut().unwrap().read_write.push(world.root.join("package/cache"));
    let error = launcher().spawn(&spec).unwrap_err().to_string();
    assert!(error.contains("Landlock cannot take back") && error.contains("package/cache"), "{error}");
    spec.sandbox.as_mut().unwrap().level = Level::Full;
    if through_bwrap() {
        let error = launcher().spawn(&spec).unwrap_err().to_string();
        assert!(error.contains("through bubblewrap") && error.contains("package/cache"), "{error}");
        return;
    }
    assert_eq!(finish(launcher().spawn(&spec).unwrap()).stdout.trim(), libc::EACCES.to_string());
    // Control: it was written, so the only thing refused is executing it.
    assert!(fs::exists(dropped).unwrap());
}

// Requirement 86: root never becomes the plugin, and only root can make it somebody else.
pub(crate) fn root_needs_a_user_for_the_plugin() {
    let world = World::new();
    let wrong = if is_root() { UserPolicy::Same } else { UserPolicy::Drop { uid: 61_777, gid: 61_777 } };
    for level in [Level::Full, Level::Partial, Level::Limited] {
        let mut spec = world.spec(level, "/bin/sh", &["-c", "touch made; exec /usr/bin/id -u"]);
        let right = spec.sandbox.clone();
        spec.sandbox.as_mut().unwrap().user = wrong;
        let error = launcher().spawn(&spec).unwrap_err().to_string();
        assert!(error.contains("the plugin's own user"), "{error}");
        spec.sandbox = right;
        let spawned = launcher().spawn(&spec).unwrap();
        let seen = finish(spawned).stdout.trim().to_owned();
        let expected = match crate::world::plugin_user() {
            UserPolicy::Same => rustix::process::getuid().as_raw(),
            UserPolicy::Drop { uid, .. } => uid,
        };
        assert_eq!(seen, expected.to_string(), "{level}");
        let owner = fs::metadata(world.root.join("data/made")).unwrap().uid();
        assert_eq!(owner, expected, "{level}: what it writes is its own");
        fs::remove_file(world.root.join("data/made")).unwrap();
    }
}

// Requirement 146: where namespaces are forbidden, `full` is refused with the fix, and `partial` is there for those who ask.
pub(crate) fn without_namespaces_full_is_refused_and_partial_works() {
    let world = World::new();
    // A sandbox that forbids making namespaces is a machine that does.
    let probe = world.path("package/probe");
    let mut spec = world.spec(Level::Limited, &probe, &[NESTED]);
    spec.sandbox.as_mut().unwrap().network = Network::Open;
    let outcome = finish(launcher().spawn(&spec).unwrap());
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{outcome:?}");
    assert!(
        lines[0].contains("level `full` is not possible: user, process, network and mount namespaces"),
        "{outcome:?}"
    );
    assert!(lines[0].contains("user.max_user_namespaces") && lines[0].contains("`partial`"), "{outcome:?}");
    assert_eq!(lines[1..], ["partial Code(0)", "limited Code(0)"], "{outcome:?}");
}

/// Containers cover parts of `/proc`, and the kernel then refuses a new one: the plugin goes without, and the report says so.
/// Covering takes root; the run as an ordinary user is what this test starts.
pub(crate) fn covered_proc_is_reported() {
    if !is_root() {
        println!("covering /proc takes root: not tried by an ordinary user");
        return;
    }
    let world = World::new();
    let program = world.path("package/probe");
    let script = format!(
        "mount -t tmpfs none /proc/sys/fs || mount -t tmpfs none /proc/irq || exit 9
         exec setpriv --reuid 61500 --regid 61500 --clear-groups {program} {PRINT_MISSING}"
    );
    let missing = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let covered = missing(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
    assert!(covered.contains("full") && covered.contains("/proc inside the sandbox"), "{covered}");
    let ids = ["--reuid", "61500", "--regid", "61500", "--clear-groups"];
    let control = missing(Command::new("setpriv").args(ids).args([&program, PRINT_MISSING]));
    assert!(control.contains("full") && !control.contains("/proc inside the sandbox"), "{control}");
}

/// First argument that makes this binary print the report of one plugin.
const PRINT_MISSING: &str = "print-missing";

/// First argument that makes this binary a host inside.
pub(crate) const NESTED: &str = "nested-host";

/// Runs as a host on a machine without namespaces if asked to.
pub(crate) fn nested_if_requested() -> bool {
    match std::env::args().nth(1).as_deref() {
        Some(NESTED) => {}
        Some(PRINT_MISSING) => {
            let world = World::new();
            let spawned = launcher().spawn(&world.spec(Level::Full, "/bin/true", &[])).unwrap();
            println!("{} {:?}", spawned.process.enforcement().level, spawned.process.enforcement().missing);
            return true;
        }
        _ => return false,
    }
    for level in [Level::Full, Level::Partial, Level::Limited] {
        let spec = LaunchSpec {
            executable: "/bin/true".into(),
            argv: vec!["true".into()],
            cwd: "/usr".into(),
            env: Vec::new(),
            stop: StopGrace::default(),
            sandbox: Some(SandboxSpec { read_only: system_paths(), ..SandboxSpec::new(level) }),
        };
        match launcher().spawn(&spec) {
            Ok(spawned) => {
                let reached = spawned.process.enforcement().level;
                println!("{reached} {:?}", finish(spawned).main);
            }
            Err(error) => println!("{error}"),
        }
    }
    true
}

// Requirement 146: where only bubblewrap may make namespaces it makes them, the level is the same, and the report names it.
pub(crate) fn bubblewrap_is_asked_where_only_it_is_allowed() {
    let world = World::new();
    let denied = || Launcher::at(std::env::current_exe().unwrap(), [WITHOUT, "permission"]);
    let spec = world.attack(Level::Full, "read", &[&world.path("home/secret")]);
    let error = denied().with_backend(Backend::Native).spawn(&spec).unwrap_err().to_string();
    assert!(error.contains("user, process, network and mount namespaces") && error.contains("AppArmor"), "{error}");
    let launcher = denied();
    // The second start does not try what was denied before.
    for _ in 0..2 {
        let spawned = launcher.spawn(&spec).unwrap();
        let report = spawned.process.enforcement().clone();
        assert_eq!((report.level, report.backend), (Level::Full, Backend::Bwrap));
        assert_eq!(finish(spawned).stdout.trim(), libc::ENOENT.to_string());
    }
    // A plugin at fault is told about itself, not about namespaces.
    let mut spec = spec;
    spec.executable = world.root.join("missing");
    let error = launcher.spawn(&spec).unwrap_err().to_string();
    assert!(error.contains("missing"), "{error}");
}

// Threat: a link that a plugin left in its data would have bubblewrap make files where the plugin may not.
pub(crate) fn bubblewrap_refuses_what_it_cannot_keep() {
    let world = World::new();
    fs::create_dir(world.root.join("data/tools")).unwrap();
    let mut spec = world.attack(Level::Full, "stat", &["/"]);
    let through = |spec: &LaunchSpec| Launcher::current_exe().unwrap().with_backend(Backend::Bwrap).spawn(spec);
    finish(through(&spec).unwrap());
    // A network of its own in which hosts can be found takes more than bubblewrap leaves.
    let mut with_hosts = spec.clone();
    with_hosts.sandbox.as_mut().unwrap().network = Network::Hosts(ListedHosts::default());
    let error = through(&with_hosts).unwrap_err().to_string();
    assert!(error.contains("a list of hosts, through bubblewrap"), "{error}");
    spec.sandbox.as_mut().unwrap().read_only.push(world.root.join("data/tools"));
    let error = through(&spec).unwrap_err().to_string();
    assert!(
        error.contains("a writable path around or inside another one, through bubblewrap") && error.contains("/data`"),
        "{error}"
    );
}
