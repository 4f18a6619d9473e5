//! The threat table: one row for each attack, with the error that each level answers it with.

use plugward_sandbox::{Launcher, Level};

use crate::{
    threats::{self, Measured},
    world::{World, finish, launcher, through_bwrap},
};

/// What a level answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// One of these errors.
    Stopped(&'static [i32]),
    /// The level does not claim to stop it.
    NotClaimed,
}

/// How it is known that the attack works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// It succeeds without a sandbox, or the row fails.
    Succeeds,
    /// It succeeds without a sandbox on some machines (a feature of the kernel or rights of root); elsewhere the row is
    /// shown as not tried.
    MaySucceed,
    /// It looks at a state that only a sandbox without the layer has; leaving out that layer is the control.
    Layer,
}

pub(crate) struct Row {
    /// What the attacker wants.
    pub(crate) what: &'static str,
    pub(crate) attack: &'static str,
    pub(crate) arguments: Vec<String>,
    pub(crate) control: Control,
    pub(crate) full: Expected,
    pub(crate) partial: Expected,
    pub(crate) limited: Expected,
}

use Control::{Layer, MaySucceed, Succeeds};
use Expected::{NotClaimed, Stopped};

const ABSENT: Expected = Stopped(&[libc::ENOENT]);
const DENIED: Expected = Stopped(&[libc::EACCES]);
const REFUSED: Expected = Stopped(&[libc::EPERM]);
const READ_ONLY: Expected = Stopped(&[libc::EROFS]);
const NO_CALL: Expected = Stopped(&[libc::ENOSYS]);

/// A program that makes one call by the numbers of 32-bit programs and exits with 7.
#[cfg(target_arch = "x86_64")]
pub(crate) const FOREIGN_CALL: &[u8] = &[
    0xb8, 20, 0, 0, 0, 0xcd, 0x80, // eax = getpid of the other numbering; int 0x80
    0xb8, 60, 0, 0, 0, 0xbf, 7, 0, 0, 0, 0x0f, 0x05, // exit(7) by the own numbering
];

pub(crate) fn rows(world: &World) -> Vec<Row> {
    let secret = world.path("home/secret");
    let code = world.path("package/main.py");
    let inside = |name: &str| world.path(&format!("data/{name}"));
    let canary = world.canary();
    let of_canary = |name: &str| format!("/proc/{canary}/{name}");
    let mut rows = Vec::new();
    let mut row = |what, attack, arguments: &[&str], control, full, partial, limited| {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        rows.push(Row { what, attack, arguments, control, full, partial, limited });
    };
    // Rows 1 to 10: files.
    row("read a secret", "read", &[&secret], Succeeds, ABSENT, DENIED, NotClaimed);
    row("see that a file exists", "stat", &[&secret], Succeeds, ABSENT, NotClaimed, NotClaimed);
    row("list another plugin's data", "list", &[&world.path("other/data")], Succeeds, ABSENT, DENIED, NotClaimed);
    row("list the root", "list", &["/"], Succeeds, DENIED, DENIED, NotClaimed);
    row("change its own code", "append", &[&code], Succeeds, READ_ONLY, DENIED, NotClaimed);
    row("replace its own code", "rename", &[&code, &world.path("package/x")], Succeeds, READ_ONLY, DENIED, NotClaimed);
    row("make a file outside", "create", &[&world.path("home/made")], Succeeds, ABSENT, DENIED, NotClaimed);
    row("read through a link", "read-through-link", &[&secret, &inside("l")], Succeeds, ABSENT, DENIED, NotClaimed);
    row("link a file in", "hard-link", &[&secret, &inside("h")], Succeeds, ABSENT, Stopped(&[libc::EXDEV]), NotClaimed);
    row("change permissions", "chmod", &[&secret], Succeeds, ABSENT, REFUSED, REFUSED);
    row("make a setuid program", "set-id", &[&inside("s")], Succeeds, REFUSED, REFUSED, REFUSED);
    row("make one in one step", "set-id-new", &[&inside("s")], Succeeds, REFUSED, REFUSED, REFUSED);
    row("change times", "touch", &[&secret], Succeeds, ABSENT, REFUSED, REFUSED);
    row("change permissions of code", "fchmod", &[&code], Succeeds, READ_ONLY, REFUSED, REFUSED);
    row("change attributes", "set-attribute", &[&secret], MaySucceed, ABSENT, REFUSED, REFUSED);
    row("watch the user's files", "watch", &[&secret], Succeeds, ABSENT, REFUSED, REFUSED);
    row("run a dropped program", "execute", &[&inside("dropped")], Succeeds, DENIED, DENIED, NotClaimed);
    // Bubblewrap mounts nothing `noexec`, and the report says so.
    let mapped = if through_bwrap() { NotClaimed } else { REFUSED };
    row("map a dropped library", "map-executable", &[&inside("lib")], Succeeds, mapped, NotClaimed, NotClaimed);
    // Rows 11 to 15: other processes.
    row("read another's environment", "read", &[&of_canary("environ")], Succeeds, ABSENT, DENIED, NotClaimed);
    row("read another's arguments", "read", &[&of_canary("cmdline")], Succeeds, ABSENT, DENIED, NotClaimed);
    row("list another's descriptors", "list", &[&of_canary("fd")], Succeeds, ABSENT, DENIED, NotClaimed);
    row(
        "read the host's files by another's root",
        "list",
        &[&of_canary("root/")],
        Succeeds,
        ABSENT,
        DENIED,
        NotClaimed,
    );
    row("open another's memory", "read-memory", &[&canary], Succeeds, ABSENT, DENIED, Stopped(&[libc::EPERM]));
    row("trace another process", "trace", &[&canary], Succeeds, REFUSED, REFUSED, REFUSED);
    row("signal another process", "signal", &[&canary], Succeeds, Stopped(&[libc::ESRCH]), REFUSED, NotClaimed);
    row("limit another process", "prlimit", &[&canary], MaySucceed, REFUSED, REFUSED, REFUSED);
    row("slow down another process", "renice", &[&canary], Succeeds, REFUSED, REFUSED, REFUSED);
    row("hold another process", "open-pid", &[&canary], Succeeds, REFUSED, REFUSED, REFUSED);
    network_rows(world, &mut row);
    kernel_rows(world, &mut row);
    rows
}

type Add<'a> = dyn FnMut(&'static str, &'static str, &[&str], Control, Expected, Expected, Expected) + 'a;

/// Rows 16 to 24.
fn network_rows(world: &World, row: &mut Add<'_>) {
    let tcp = world.tcp.local_addr().unwrap().port().to_string();
    let udp = world.udp.local_addr().unwrap().port().to_string();
    row("reach a local service", "connect-tcp", &[&tcp], Succeeds, REFUSED, REFUSED, REFUSED);
    row("reach it by another form", "connect-tcp-mapped", &[&tcp], Succeeds, REFUSED, REFUSED, REFUSED);
    row("reach it by fast open", "send-fast-open", &[&tcp], Succeeds, REFUSED, REFUSED, REFUSED);
    row("open a multipath socket", "socket", &["2", "1", "262"], MaySucceed, REFUSED, REFUSED, REFUSED);
    row("send a datagram", "send-udp", &[&udp], Succeeds, REFUSED, REFUSED, REFUSED);
    row("reach a Unix socket", "connect-unix", &[&world.path("home/socket")], Succeeds, REFUSED, REFUSED, REFUSED);
    row("reach one without path", "connect-abstract", &[&world.abstract_name], Succeeds, REFUSED, REFUSED, REFUSED);
    row("ask the kernel's network", "socket", &["16", "3", "0"], Succeeds, REFUSED, REFUSED, REFUSED);
    row("reach the machine below", "socket", &["40", "1", "0"], MaySucceed, REFUSED, REFUSED, REFUSED);
    row("read raw packets", "socket", &["17", "3", "0"], MaySucceed, REFUSED, REFUSED, REFUSED);
    row("use kernel ciphers", "socket", &["38", "5", "0"], MaySucceed, REFUSED, REFUSED, REFUSED);
}

/// Rows 25 to 50.
fn kernel_rows(world: &World, row: &mut Add<'_>) {
    row("ring of calls", "io-uring", &[], MaySucceed, REFUSED, REFUSED, REFUSED);
    row("faults in user space", "userfaultfd", &[], MaySucceed, REFUSED, REFUSED, REFUSED);
    row("the user's keys", "keyring", &[], MaySucceed, REFUSED, REFUSED, REFUSED);
    row("nested namespace", "user-namespace", &[], MaySucceed, REFUSED, REFUSED, REFUSED);
    row("nested namespace by clone", "clone-namespace", &[], MaySucceed, REFUSED, REFUSED, REFUSED);
    row("nested namespace by clone3", "clone3", &[], MaySucceed, NO_CALL, NO_CALL, NO_CALL);
    row("calls of x32", "x32", &[], MaySucceed, NO_CALL, NO_CALL, NO_CALL);
    row("weaker address layout", "personality", &[], Succeeds, REFUSED, REFUSED, REFUSED);
    row("type for the user", "type", &[], Succeeds, REFUSED, REFUSED, REFUSED);
    row("type, with a dressed-up number", "type-upper", &[], Succeeds, REFUSED, REFUSED, REFUSED);
    let shared = world.shared_path.to_str().unwrap();
    let key = world.shared_memory_key.to_string();
    row("shared memory by file", "read", &[shared], Succeeds, ABSENT, DENIED, NotClaimed);
    row("shared memory by key", "shared-memory", &[&key], Succeeds, REFUSED, REFUSED, REFUSED);
    row("semaphores by key", "semaphores", &[&key], Succeeds, ABSENT, REFUSED, REFUSED);
    row("the machine's name", "host-name", &[&host_name()], Succeeds, REFUSED, NotClaimed, NotClaimed);
    let namespace =
        |kind: &str| std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap().to_str().unwrap().to_owned();
    row("the machine's network", "namespace", &["net", &namespace("net")], Succeeds, REFUSED, NotClaimed, NotClaimed);
    row("the machine's processes", "namespace", &["pid", &namespace("pid")], Succeeds, REFUSED, NotClaimed, NotClaimed);
    row("the machine's mounts", "namespace", &["mnt", &namespace("mnt")], Succeeds, REFUSED, NotClaimed, NotClaimed);
    row("a larger buffer of a socket", "socket-buffer", &[], Succeeds, REFUSED, REFUSED, REFUSED);
    row("a larger pipe", "pipe-size", &[], Succeeds, REFUSED, REFUSED, REFUSED);
    row("pages given to a pipe", "give-pages", &[], Succeeds, REFUSED, REFUSED, REFUSED);
    row("hide from who counts", "hide", &[], Succeeds, REFUSED, REFUSED, NotClaimed);
    row("core image", "core-image", &[], MaySucceed, REFUSED, REFUSED, REFUSED);
    row("capabilities", "capability", &[], Layer, REFUSED, REFUSED, REFUSED);
    row("capabilities to regain", "bounding-set", &[], Layer, REFUSED, NotClaimed, NotClaimed);
    row("setuid programs", "new-privileges", &[], Layer, REFUSED, REFUSED, REFUSED);
    row("no filter", "unfiltered", &[], Layer, REFUSED, REFUSED, REFUSED);
    // Rows 32 to 39: limits, small enough for a control.
    row("many processes", "fork", &["80"], Succeeds, Stopped(&[libc::EAGAIN]), NotClaimed, NotClaimed);
    row(
        "much memory",
        "allocate",
        &["1073741824"],
        Succeeds,
        Stopped(&[libc::ENOMEM]),
        Stopped(&[libc::ENOMEM]),
        Stopped(&[libc::ENOMEM]),
    );
    row(
        "many descriptors",
        "open-many",
        &["200"],
        Succeeds,
        Stopped(&[libc::EMFILE]),
        Stopped(&[libc::EMFILE]),
        Stopped(&[libc::EMFILE]),
    );
    let temporary = format!("/tmp/plugward-attack-{}", std::process::id());
    row("fill /tmp", "fill", &[&temporary, "4194304"], Succeeds, Stopped(&[libc::ENOSPC]), DENIED, NotClaimed);
    let large = world.path("data/large");
    row(
        "a large file",
        "fill",
        &[&large, "33554432"],
        Succeeds,
        Stopped(&[libc::EFBIG]),
        Stopped(&[libc::EFBIG]),
        Stopped(&[libc::EFBIG]),
    );
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_str().unwrap().to_owned()
}

/// The answer to one attack: `None` if it got through.
pub(crate) fn run(world: &World, launcher: &Launcher, level: Level, row: &Row, witnessed: bool) -> Option<i32> {
    let arguments: Vec<&str> = row.arguments.iter().map(String::as_str).collect();
    let mut spec = world.attack(level, row.attack, &arguments);
    if let Some(sandbox) = &mut spec.sandbox {
        sandbox.tmp_bytes = 2 * 1024 * 1024;
        sandbox.limits.processes = Some(40);
        sandbox.limits.open_files = Some(128);
        sandbox.limits.memory_bytes = Some(512 * 1024 * 1024);
        sandbox.limits.file_bytes = Some(16 * 1024 * 1024);
    }
    let spawned = if witnessed { launcher.spawn(&spec) } else { launcher.spawn_unwitnessed(&spec) };
    let outcome = finish(spawned.unwrap_or_else(|error| panic!("{} at {level}: {error}", row.what)));
    match outcome.stdout.trim() {
        "ok" => None,
        text => Some(text.parse().unwrap_or_else(|_| panic!("{} at {level}: {outcome:?}", row.what))),
    }
}

// Requirements 87, 90 to 93 and 146: every attack works without a sandbox, and none works where a level claims to stop it.
pub(crate) fn every_attack_is_stopped_where_the_level_claims_it() {
    let world = World::new();
    let launcher = launcher();
    let rows = rows(&world);
    let mut wrong = Vec::new();
    let (mut tried, mut stopped) = (0, 0);
    println!("{:42} {:>10} {:>10} {:>10} {:>10}", "attack", "none", "full", "partial", "limited");
    for row in &rows {
        let control = run(&world, &launcher, Level::None, row, true);
        let untried = match (row.control, control) {
            (Succeeds, Some(errno)) => {
                wrong.push(format!("{}: the control fails with {errno}", row.what));
                threats::LEVELS.iter().for_each(|level| threats::note_row(row.what, *level, Measured::Through));
                continue;
            }
            (MaySucceed, Some(_)) => true,
            _ => false,
        };
        let mut shown = Vec::new();
        for (level, expected) in [(Level::Full, row.full), (Level::Partial, row.partial), (Level::Limited, row.limited)]
        {
            let answer = run(&world, &launcher, level, row, true);
            shown.push(answer.map_or_else(|| "through".to_owned(), name));
            let Stopped(errors) = expected else {
                threats::note_row(row.what, level, Measured::Unclaimed);
                continue;
            };
            tried += usize::from(!untried);
            let as_claimed = answer.filter(|errno| errors.contains(errno));
            let measured = as_claimed
                .map_or(Measured::Through, |errno| if untried { Measured::Untried } else { Measured::Stopped(errno) });
            threats::note_row(row.what, level, measured);
            match as_claimed {
                Some(_) => stopped += usize::from(!untried),
                None => wrong.push(format!("{} at {level}: expected {errors:?}, got {answer:?}", row.what)),
            }
        }
        let control = if untried { "not here".to_owned() } else { control.map_or_else(|| "through".to_owned(), name) };
        println!("{:42} {control:>10} {:>10} {:>10} {:>10}", row.what, shown[0], shown[1], shown[2]);
    }
    println!("stopped {stopped} of {tried} claims that could be tried here");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

pub(crate) fn name(errno: i32) -> String {
    let names = [
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::ESRCH, "ESRCH"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EACCES, "EACCES"),
        (libc::EXDEV, "EXDEV"),
        (libc::EMFILE, "EMFILE"),
        (libc::EFBIG, "EFBIG"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::EROFS, "EROFS"),
        (libc::ENOSYS, "ENOSYS"),
    ];
    names.iter().find(|(number, _)| *number == errno).map_or_else(|| errno.to_string(), |(_, name)| (*name).to_owned())
}
