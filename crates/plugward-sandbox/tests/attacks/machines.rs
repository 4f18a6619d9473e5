//! Machines that lack something: the level that is left is reported, or the start is refused.
//!
//! Owns making such machines, out of this one: namespaces in which the kernel itself refuses, and a version of Landlock beyond
//! which host and launcher look no further. Refuses a report as proof: an attack shows that it is true.

use std::{fs, process::Command};

use plugward_sandbox::{
    FileControl, LaunchSpec, Launcher, Level, MachineFacts, Network, SandboxSpec, SpawnError, StopGrace, system_paths,
};

use crate::{
    ORDINARY_UID,
    world::{THROUGH_BWRAP, World, finish, is_root, launcher, launcher_with_landlock, plugin_user, through_bwrap},
};

/// First argument that makes this binary a host, which says what became of a plugin at each level.
pub(crate) const HOST: &str = "host-of-levels";
/// Oldest version of Landlock by which level `partial` and bubblewrap do.
const ENOUGH: u8 = 3;
/// First version that knows signals.
const SCOPES: u8 = 6;

/// A kernel of an older version, for this process as a host.
struct OlderKernel;

impl OlderKernel {
    fn with_landlock(abi: u8) -> Self {
        plugward_sandbox::cap_landlock(abi);
        Self
    }
}

impl Drop for OlderKernel {
    fn drop(&mut self) {
        plugward_sandbox::cap_landlock(u8::MAX);
    }
}

// Requirement 146: with each version of Landlock a level is what it says, or it is refused before the plugin runs.
pub(crate) fn older_landlock_is_reported_or_refused() {
    let world = World::new();
    for abi in [0, 1, 3, 5] {
        let _older = OlderKernel::with_landlock(abi);
        assert_eq!(MachineFacts::here().landlock_abi, u32::from(abi), "what `doctor` shows");
        let launcher = launcher_with_landlock(abi);
        for level in [Level::Full, Level::Partial, Level::Limited] {
            let takes_it = level == Level::Partial || level == Level::Full && through_bwrap();
            if takes_it && abi < ENOUGH {
                refused_for_landlock(&world, &launcher, level, abi);
            } else {
                reported_as_it_is(&world, &launcher, level, abi);
            }
        }
    }
    // Control: with all this kernel has, nothing of it is missing.
    assert!(MachineFacts::here().landlock_abi >= u32::from(SCOPES), "this machine has no Landlock to test with");
    let spawned = launcher().spawn(&world.attack(Level::Partial, "stat", &["/"])).unwrap();
    let report = spawned.process.enforcement().clone();
    finish(spawned);
    assert!(report.landlock_abi >= SCOPES && !report.missing.iter().any(|it| it.contains("signals")), "{report:?}");
}

fn refused_for_landlock(world: &World, launcher: &Launcher, level: Level, abi: u8) {
    let marker = world.path("data/ran");
    let touch = format!("touch {marker}");
    let error = launcher.spawn(&world.spec(level, "/bin/sh", &["-c", &touch])).unwrap_err();
    let SpawnError::Layer { level: named, fix, .. } = &error else { panic!("{level} with Landlock {abi}: {error}") };
    assert_eq!(*named, level, "{error}");
    assert!(error.to_string().contains("Landlock") && !fix.is_empty(), "{error}");
    assert!(!fs::exists(&marker).unwrap(), "{level} with Landlock {abi} is refused and the plugin ran");
}

fn reported_as_it_is(world: &World, launcher: &Launcher, level: Level, abi: u8) {
    let answer = |attack: &str, target: &str| {
        let spawned = launcher.spawn(&world.attack(level, attack, &[target])).unwrap();
        let report = spawned.process.enforcement().clone();
        (report, finish(spawned).stdout.trim().to_owned())
    };
    let (report, read) = answer("read", &world.path("home/secret"));
    let lacks = |what: &str| report.missing.iter().any(|missing| missing == what);
    let in_force = if level == Level::Limited { 0 } else { abi };
    assert_eq!((report.level, report.landlock_abi), (level, in_force), "{report:?}");
    let (files, secret) = match level {
        Level::Full => (FileControl::MountNamespace, libc::ENOENT.to_string()),
        Level::Partial => (FileControl::Landlock, libc::EACCES.to_string()),
        _ => (FileControl::None, "ok".to_owned()),
    };
    assert_eq!((report.fs, read), (files, secret), "{level} with Landlock {abi}");
    assert_eq!(lacks("Landlock as a second layer"), level == Level::Full && abi == 0, "{report:?}");
    assert_eq!(lacks("signals to the user's other processes"), level != Level::Full, "{report:?}");
    let (_, signalled) = answer("signal", &world.canary());
    // What the report says is missing gets through, and nothing else does.
    assert_eq!(signalled == "ok", level != Level::Full, "{level} with Landlock {abi}: {signalled}");
}

// Requirement 146: a launcher that finds less than its host knows to be there is not believed, whatever it has instead.
pub(crate) fn launcher_with_less_landlock_than_the_kernel_is_refused() {
    let world = World::new();
    let marker = world.path("data/ran");
    let touch = format!("touch {marker}");
    for level in [Level::Full, Level::Partial] {
        let spec = world.spec(level, "/bin/sh", &["-c", &touch]);
        let error = launcher_with_landlock(ENOUGH).spawn(&spec).unwrap_err();
        assert!(matches!(&error, SpawnError::NotHeld { .. }), "{level}: {error}");
        assert!(!fs::exists(&marker).unwrap(), "{level}: the plugin ran");
        // Control: where the host knows no more either, it runs.
        let _older = OlderKernel::with_landlock(ENOUGH);
        finish(launcher_with_landlock(ENOUGH).spawn(&spec).unwrap());
        fs::remove_file(&marker).unwrap();
    }
}

// Requirement 146: where namespaces are forbidden, `full` is refused with the fix, and `partial` is there for those who ask.
pub(crate) fn without_namespaces_full_is_refused_and_partial_works() {
    let world = World::new();
    // A sandbox that forbids making namespaces is a machine that does, as containers do.
    let mut spec = world.spec(Level::Limited, &world.path("package/probe"), &[HOST]);
    spec.sandbox.as_mut().unwrap().network = Network::Open;
    let filtered = finish(launcher().spawn(&spec).unwrap()).stdout;
    // And where the administrator allows none, the kernel has no room for one.
    let none_left = on_machine(&world, Host::Ordinary, "echo 0 > /proc/sys/user/max_user_namespaces");
    for (machine, said) in [("filtered", filtered), ("none left", none_left)] {
        let lines: Vec<&str> = said.lines().collect();
        let [full, partial, limited] = lines[..] else { panic!("{machine}: {said}") };
        assert!(
            full.contains("level `full` is not possible: user, process, network and mount namespaces")
                && full.contains("user.max_user_namespaces")
                && full.contains("`partial`"),
            "{machine}: {said}"
        );
        assert!(partial.starts_with("partial Code(0)") && limited.starts_with("limited Code(0)"), "{machine}: {said}");
    }
}

/// Containers cover parts of `/proc`, and the kernel then refuses a new one: the plugin goes without, and the report says so.
pub(crate) fn covered_proc_is_reported_or_refused() {
    let world = World::new();
    let hosts: &[Host] = if is_root() { &[Host::Root, Host::Ordinary] } else { &[Host::Ordinary] };
    for host in hosts {
        // A folder, a file, and nothing, which is the control.
        for (cover, is_covered) in [
            ("mount -t tmpfs none /proc/sys/fs", true),
            ("mount --bind /dev/null /proc/kallsyms", true),
            ("true", false),
        ] {
            let said = on_machine(&world, *host, cover);
            let full = said.lines().next().unwrap_or_default();
            if through_bwrap() && is_covered {
                // Bubblewrap does not go without, so neither does the start; partial is there for those who ask.
                assert!(full.contains("level `full` is not possible") && full.contains("`/proc`"), "{host:?}: {said}");
                assert!(said.contains("\npartial Code(0)"), "{host:?}, {cover}: {said}");
                continue;
            }
            assert!(full.starts_with("full Code(0)"), "{host:?}, {cover}: {said}");
            assert_eq!(full.contains("/proc inside the sandbox"), is_covered, "{host:?}, {cover}: {said}");
        }
    }
}

/// Who the host is on a machine made for it.
#[derive(Debug, Clone, Copy)]
enum Host {
    Root,
    Ordinary,
}

/// What a host says about each level, on this machine after `change` was made to it, which nobody else sees.
fn on_machine(world: &World, host: Host, change: &str) -> String {
    let program = world.path("package/probe");
    let ordinary = is_root() && matches!(host, Host::Ordinary);
    let id = ORDINARY_UID.to_string();
    let become_ordinary = ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"];
    // Rights over a user namespace of its own are enough for the change, and are given back before the host begins.
    let (own, give_back): (&[&str], _) = match host {
        Host::Root => (&["unshare", "--mount"], ""),
        Host::Ordinary => (
            &["unshare", "--user", "--map-current-user", "--keep-caps", "--mount"],
            "setpriv --inh-caps=-all --ambient-caps=-all",
        ),
    };
    let backend = if through_bwrap() { THROUGH_BWRAP } else { "" };
    let script = format!("{change} || exit 9; exec {give_back} {program} {HOST} {backend}");
    let words: Vec<&str> =
        become_ordinary.iter().filter(|_| ordinary).chain(own).chain(&["sh", "-c", &script]).copied().collect();
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs as a host that says what became of a plugin at each level if asked to.
pub(crate) fn host_if_requested() -> bool {
    if std::env::args().nth(1).as_deref() != Some(HOST) {
        return false;
    }
    for level in [Level::Full, Level::Partial, Level::Limited] {
        let spec = LaunchSpec {
            executable: "/bin/true".into(),
            argv: vec!["true".into()],
            cwd: "/usr".into(),
            env: Vec::new(),
            stop: StopGrace::default(),
            sandbox: Some(SandboxSpec { read_only: system_paths(), user: plugin_user(), ..SandboxSpec::new(level) }),
        };
        match launcher().spawn(&spec) {
            Ok(spawned) => {
                let report = spawned.process.enforcement().clone();
                println!("{} {:?} {:?}", report.level, finish(spawned).main, report.missing);
            }
            Err(error) => println!("{error}"),
        }
    }
    true
}
