//! What a level reports, and how one that cannot be reached is refused.

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
};

use plugward_sandbox::{
    Alias, Backend, DiskControl, FileControl, LaunchSpec, Launcher, Level, ListedHosts, MemoryControl, Network,
    NetworkControl, ProcessControl, SpawnError, SpawnStep, TreeControl, UserControl, UserPolicy,
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
