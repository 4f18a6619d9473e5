//! Programs people really use, inside.

use std::{
    fs,
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use plugward_sandbox::{Level, MainExit, Network};

use crate::world::{World, backend, finish, launcher, through_bwrap};

/// Where a program is, following what `PATH` and version switchers do.
fn locate(program: &str, question: &[&str]) -> Option<PathBuf> {
    let output = Command::new(program).args(question).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_absolute().then_some(path)
}

fn open_to_all(path: &Path) -> bool {
    path.ancestors()
        .skip(1)
        .all(|folder| fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & 0o001 != 0))
}

// Requirements 82 and 90: shells, Python and Node.js start with nothing but the system's files and no network.
pub(crate) fn shells_and_interpreters_start() {
    let world = World::new();
    let sh = finish(
        launcher().spawn(&world.spec(Level::Full, "/bin/sh", &["-c", "echo hi 2>/dev/null; ls / >&2"])).unwrap(),
    );
    assert_eq!(sh.stdout, "hi\n", "{sh:?}");
    // By their names in `/dev`, which asks who owns the pipe.
    let named =
        world.spec(Level::Full, "/bin/sh", &["-c", "echo out > /dev/stdout; echo err > /dev/stderr; cat /dev/stdin"]);
    let named = finish(launcher().spawn(&named).unwrap());
    assert_eq!((named.stdout.as_str(), named.stderr.as_str()), ("out\n", "err\n"));
    let script = "import os, getpass, tempfile, json, threading, subprocess, asyncio\n\
                  t = threading.Thread(target=lambda: None); t.start(); t.join()\n\
                  async def child():\n\
                  \x20   p = await asyncio.create_subprocess_exec('/bin/echo', 'child', stdout=-1)\n\
                  \x20   return (await p.communicate())[0].decode().strip()\n\
                  print(getpass.getuser(), os.uname().nodename, tempfile.gettempdir(), asyncio.run(child()))";
    for level in [Level::Full, Level::Partial] {
        let mut tried = 0;
        for (program, question, arguments, expected) in [
            ("/usr/bin/python3", &["-c", "import sys; print(sys.executable)"][..], ["-c", script], "child"),
            ("python3", &["-c", "import sys; print(sys._base_executable)"], ["-c", script], "child"),
            ("node", &["-p", "process.execPath"], ["-e", NODE_SCRIPT], "worker 42 child"),
        ] {
            // Without a tree of its own, a plugin's user also needs the machine's permission for the way there; and so does
            // bubblewrap, which that user runs.
            let by_root = level == Level::Full && !through_bwrap();
            let found = locate(program, question).filter(|path| by_root || open_to_all(path));
            let Some(path) = found else {
                println!("{program} is not installed here, or not for the plugin's user at {level}");
                continue;
            };
            let mut spec = world.spec(level, path.to_str().unwrap(), &arguments);
            // An installation outside of the system's folders is shared as a whole.
            let installed = path.parent().and_then(Path::parent).filter(|folder| *folder != Path::new("/usr"));
            let sandbox = spec.sandbox.as_mut().unwrap();
            sandbox.read_only.extend(installed.map(Path::to_owned));
            sandbox.limits.memory_bytes = Some(1024 * 1024 * 1024);
            if level == Level::Partial {
                spec.env.push(("TMPDIR".into(), world.root.join("data").into()));
                spec.env.push(("USER".into(), "plugin".into()));
            }
            let outcome = finish(launcher().spawn(&spec).unwrap());
            assert_eq!(outcome.main, MainExit::Code(0), "{program} at {level}: {outcome:?}");
            assert!(outcome.stdout.contains(expected), "{program} at {level}: {outcome:?}");
            tried += 1;
        }
        assert!(tried > 0, "no interpreter is installed here");
    }
}

const NODE_SCRIPT: &str = "const { Worker } = require('worker_threads');\n\
    const w = new Worker('require(\"worker_threads\").parentPort.postMessage(42)', { eval: true });\n\
    w.on('message', n => { const c = require('child_process').spawn('/bin/echo', ['child']);\n\
    c.stdout.on('data', d => console.log('worker', n, d.toString().trim())); });\n\
    require('fs').writeFileSync(process.env.HOME + '/written', 'x');";

/// A program file of `code` alone, without libraries or loader.
pub(crate) fn tiny_program(path: &Path, code: &[u8]) {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    let machine: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    let size = HEADERS + code.len() as u64;
    let mut file = Vec::new();
    file.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend_from_slice(&2_u16.to_le_bytes());
    file.extend_from_slice(&machine.to_le_bytes());
    file.extend_from_slice(&1_u32.to_le_bytes());
    for word in [BASE + HEADERS, 64, 0] {
        file.extend_from_slice(&u64::to_le_bytes(word));
    }
    file.extend_from_slice(&0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 0, 0, 0] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    file.extend_from_slice(&1_u32.to_le_bytes());
    file.extend_from_slice(&5_u32.to_le_bytes());
    for word in [0, BASE, BASE, size, size, 0x1000] {
        file.extend_from_slice(&u64::to_le_bytes(word));
    }
    file.extend_from_slice(code);
    fs::write(path, file).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// exit(42)
#[cfg(target_arch = "x86_64")]
const EXIT_42: &[u8] = &[0xb8, 60, 0, 0, 0, 0xbf, 42, 0, 0, 0, 0x0f, 0x05];
#[cfg(target_arch = "aarch64")]
const EXIT_42: &[u8] = &[0x40, 0x05, 0x80, 0xd2, 0xa8, 0x0b, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];

/// A static program runs in a tree that holds nothing but itself; and calls by other numbers end it.
pub(crate) fn static_program_needs_nothing() {
    let world = World::new();
    let program = world.root.join("package/static");
    tiny_program(&program, EXIT_42);
    for level in [Level::None, Level::Full, Level::Partial, Level::Limited] {
        let mut spec = world.spec(level, program.to_str().unwrap(), &[]);
        if let Some(sandbox) = &mut spec.sandbox {
            sandbox.read_only.clear();
        }
        assert_eq!(finish(launcher().spawn(&spec).unwrap()).main, MainExit::Code(42), "{level}");
    }
    #[cfg(target_arch = "x86_64")]
    {
        const SIGSYS: i32 = 31;
        // Threat 27. The control needs a kernel that runs 32-bit calls at all; others fault.
        tiny_program(&program, crate::table::FOREIGN_CALL);
        let main = |level| finish(launcher().spawn(&world.spec(level, program.to_str().unwrap(), &[])).unwrap()).main;
        println!("32-bit call without a sandbox: {}", main(Level::None));
        for level in [Level::Full, Level::Partial, Level::Limited] {
            let end = main(level);
            let faults = main(Level::None) != MainExit::Code(7);
            assert!(end == MainExit::Signal(SIGSYS) || faults && matches!(end, MainExit::Signal(_)), "{level}: {end}");
        }
    }
}

/// An environment of links (as Python's are) has to look inside as it does outside.
pub(crate) fn links_are_followed_and_made_again() {
    let world = World::new();
    fs::create_dir_all(world.root.join("tools/v2/bin")).unwrap();
    tiny_program(&world.root.join("tools/v2/bin/tool-2"), EXIT_42);
    symlink("v2", world.root.join("tools/current")).unwrap();
    symlink("tool-2", world.root.join("tools/v2/bin/tool")).unwrap();
    symlink(world.root.join("tools/current/bin/tool"), world.root.join("tool")).unwrap();
    let mut spec = world.spec(Level::Full, world.path("tool").as_str(), &[]);
    assert_eq!(finish(launcher().spawn(&spec).unwrap()).main, MainExit::Code(42));
    // Seen from a shell beside it: the links are links, and the files next to the target are not there.
    let tool = spec.executable.clone();
    spec =
        world.spec(Level::Full, "/bin/sh", &["-c", "readlink tool tools/current tools/v2/bin/tool; ls tools/v2/bin/*"]);
    spec.cwd = world.root.clone();
    spec.sandbox.as_mut().unwrap().read_only.push(tool);
    let outcome = finish(launcher().spawn(&spec).unwrap());
    let expected = format!("{}\nv2\ntool-2\n", world.path("tools/current/bin/tool"));
    assert!(outcome.stdout.starts_with(&expected), "{outcome:?}");
}

// Requirements 76 to 78 and 90, from inside: environment, descriptors, files and accounts.
pub(crate) fn plugin_sees_only_what_it_was_given() {
    let world = World::new();
    let script = "for f in /proc/$$/fd/*; do [ -L \"$f\" ] && echo \"${f##*/}\"; done; echo /root* /home* /var* /etc/*; \
                  cat /etc/passwd; echo /dev/*; env | sort";
    let mut spec = world.spec(Level::Full, "/bin/sh", &["-c", script]);
    // Patterns need to list folders, which Landlock allows below declared ones only.
    spec.env.push(("NAME".into(), "value with space".into()));
    let outcome = finish(launcher().spawn(&spec).unwrap());
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines[..3], ["0", "1", "2"], "{outcome:?}");
    assert!(lines[3].starts_with("/root* /home* /var* /etc/"), "{outcome:?}");
    assert!(!lines[3].contains("shadow"), "{outcome:?}");
    assert!(lines[4].starts_with("plugin:x:") && lines[4].ends_with(":/bin/sh"), "{outcome:?}");
    assert_eq!(lines[5], "/dev/*");
    let names: Vec<&str> = lines[6..].iter().filter_map(|line| line.split('=').next()).collect();
    assert_eq!(names, ["HOME", "NAME", "PATH", "PWD"], "{outcome:?}");
}

/// Asked for, and reported as what it is.
pub(crate) fn open_network_is_open() {
    let world = World::new();
    let port = world.tcp.local_addr().unwrap().port().to_string();
    for level in [Level::Full, Level::Partial] {
        let mut spec = world.attack(level, "connect-tcp", &[&port]);
        let closed = finish(launcher().spawn(&spec).unwrap());
        assert_eq!(closed.stdout.trim(), libc::EPERM.to_string(), "control");
        spec.sandbox.as_mut().unwrap().network = Network::Open;
        let spawned = launcher().spawn(&spec).unwrap();
        let report = spawned.process.enforcement().clone();
        assert_eq!(finish(spawned).stdout.trim(), "ok", "{level}");
        assert_eq!(report.net, plugward_sandbox::NetworkControl::Open);
        assert!(report.missing.iter().any(|layer| layer == "network isolation"));
        // Open means the network, not the user's other services on Unix sockets without a path.
        let mut spec = world.attack(level, "connect-abstract", &[&world.abstract_name]);
        spec.sandbox.as_mut().unwrap().network = Network::Open;
        assert_eq!(finish(launcher().spawn(&spec).unwrap()).stdout.trim(), libc::EPERM.to_string(), "{level}");
        // Nor those with a path, which would act for the plugin outside of its sandbox.
        let mut spec = world.attack(level, "connect-unix", &[&world.path("home/socket")]);
        spec.sandbox.as_mut().unwrap().network = Network::Open;
        let refused = finish(launcher().spawn(&spec).unwrap()).stdout;
        assert!(refused.trim().parse::<i32>().is_ok(), "{level}: {refused}");
    }
}

/// Shown for people; the bound only catches a start that has gone wrong.
pub(crate) fn cost_of_a_start() {
    const ROUNDS: usize = 15;
    let world = World::new();
    let launcher = launcher();
    let mut line = format!("start and end of /bin/true by {}, median of 15:", backend().as_str());
    for level in [Level::None, Level::Limited, Level::Partial, Level::Full] {
        let mut times: Vec<Duration> = (0..ROUNDS + 1)
            .map(|_| {
                let began = Instant::now();
                finish(launcher.spawn(&world.spec(level, "/bin/true", &[])).unwrap());
                began.elapsed()
            })
            .collect();
        // The first one includes the witness.
        let first = times.remove(0);
        times.sort();
        line += &format!(
            " {level} {:.1} ms (first {:.1})",
            times[ROUNDS / 2].as_secs_f64() * 1e3,
            first.as_secs_f64() * 1e3
        );
        assert!(times[ROUNDS / 2] < Duration::from_secs(5));
    }
    let _unwritable = writeln!(std::io::stdout(), "{line}");
}
