//! What a plugin is given at its start, and how a start that cannot work is reported.

use std::{
    fs::{self, File},
    io::Write,
    os::{
        fd::AsRawFd,
        unix::{
            fs::{PermissionsExt, symlink},
            process::CommandExt,
        },
    },
    path::Path,
    process::{Command, Stdio},
    thread,
};

use plugward_sandbox::{LAUNCH_ARGUMENT, LaunchSpec, Launcher, Level, MainExit, SpawnError, SpawnStep, Spawned};

use crate::support::{PATIENCE, clean_exit, launcher, read_all, read_line, run, sh, spawn, stand_in_command};

// Requirements 40 and 79: a separate process whose stderr never mixes with the protocol on stdout.
pub(crate) fn runs_with_three_pipes_and_reports_its_exit() {
    let Spawned { stdin, stdout, stderr, process } = spawn(&sh("cat; echo noise >&2; exit 7", &[]));
    assert_ne!(process.pid(), std::process::id());
    assert_ne!(process.pid(), process.launcher_pid());
    assert_eq!(process.enforcement().level, Level::None);
    assert_eq!(process.poll_status(), None);
    let mut stdin = File::from(stdin);
    stdin.write_all(b"{\"jsonrpc\":\"2.0\"}\n").unwrap();
    drop(stdin);
    assert_eq!(read_all(stdout), "{\"jsonrpc\":\"2.0\"}\n");
    assert_eq!(read_all(stderr), "noise\n");
    let report = process.wait_blocking(PATIENCE).unwrap();
    assert_eq!(report.main, MainExit::Code(7));
    assert!(report.tree_gone);
    assert_eq!(process.poll_main_exit(), Some(MainExit::Code(7)));
    assert_eq!(process.poll_status(), Some(report));
}

// Requirements 76, 77, 78: a provider key in the host's environment must not reach a plugin. The stand-in host has one.
pub(crate) fn environment_is_exactly_what_was_given() {
    let with_secret = |mut command: Command| {
        command.env("OPENAI_API_KEY", "sk-host").env("LD_LIBRARY_PATH", "/nonexistent").stdin(Stdio::null());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let mut control = Command::new("/usr/bin/env");
    control.arg("-0");
    assert!(with_secret(control).contains("sk-host"), "control: an ordinary child would see the key");
    let seen = with_secret(stand_in_command("tr '\\0' '\\n' < /proc/self/environ", &[]));
    let variables: Vec<&str> = seen.lines().skip(1).collect();
    // `tr` is a child of the shell, which adds nothing but its directory.
    assert!(variables.contains(&"PATH=/usr/bin:/bin"));
    assert!(
        variables.iter().all(|it| it.starts_with("PATH=")
            || it.starts_with("PWD=")
            || it.starts_with("OLDPWD=")
            || it.starts_with("_=")),
        "{variables:?}"
    );

    let spec = LaunchSpec {
        executable: "/usr/bin/env".into(),
        argv: vec!["env".into()],
        env: vec![("B".into(), "two words; $HOME".into()), ("A".into(), "".into()), ("LC_ALL".into(), "C".into())],
        ..sh("", &[])
    };
    let (output, report) = run(&spec);
    assert_eq!(output, "B=two words; $HOME\nA=\nLC_ALL=C\n");
    assert_eq!(report, clean_exit());
}

// Requirements 29 and 75: what looks like shell reaches the plugin as text, and no shell acts on it.
pub(crate) fn arguments_arrive_literally() {
    let folder = tempfile::tempdir().unwrap();
    let hostile = ["; touch x", "$(touch y)", "`touch z`", "", "a\nb", "*", "--"];
    let mut spec = sh("for a in \"$@\"; do printf '<%s>' \"$a\"; done", &hostile);
    spec.cwd = folder.path().into();
    let (output, _) = run(&spec);
    assert_eq!(output, "<; touch x><$(touch y)><`touch z`><><a\nb><*><-->");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "a shell acted on an argument");
    // Positive control: given to a shell as text, the same argument does make a file.
    assert!(
        Command::new("/bin/sh").args(["-c", "true ; touch x"]).current_dir(folder.path()).status().unwrap().success()
    );
    assert!(folder.path().join("x").exists());
}

pub(crate) fn runs_in_the_directory_given() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().canonicalize().unwrap();
    let mut spec = sh("pwd -P", &[]);
    spec.cwd = real.clone();
    assert_eq!(run(&spec).0.trim_end(), real.to_str().unwrap());
}

/// Lists the open descriptors of the shell itself; the one of the listing is closed again before the test.
const LIST_DESCRIPTORS: &str = "for f in /proc/$$/fd/*; do [ -L \"$f\" ] && echo \"${f##*/}\"; done";

// Case: a tool inherits descriptors and reads the host's protocol or its database.
pub(crate) fn inherits_no_descriptor_of_the_host() {
    // `sh` leaves descriptor 9 open for what it executes, as a careless starter of the host would.
    let shell = |then: &str| format!("exec 9</etc/passwd; exec {then}");
    let list = |command: &mut Command| {
        let output = command.stdin(Stdio::null()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let control = list(Command::new("/bin/sh").args(["-c", &shell("sh -c \"$0\""), LIST_DESCRIPTORS]));
    assert!(control.lines().any(|line| line == "9"), "control: an ordinary child has descriptor 9: {control}");

    let stand_in = stand_in_command("", &[]);
    let program = stand_in.get_program().to_str().unwrap();
    let mode = stand_in.get_args().next().unwrap().to_str().unwrap();
    let seen = list(Command::new("/bin/sh").args(["-c", &shell("\"$0\" \"$@\""), program, mode, LIST_DESCRIPTORS]));
    let descriptors: Vec<&str> = seen.lines().skip(1).collect();
    assert_eq!(descriptors, ["0", "1", "2"]);
}

// Requirement 40: its own group. Without `NoNewPrivs` a setuid program would give the plugin rights its user lacks.
pub(crate) fn leads_its_own_group_and_gains_no_privileges() {
    let script = "cut -d' ' -f1,5,6 /proc/$$/stat; grep NoNewPrivs /proc/$$/status; read _";
    let Spawned { stdin, stdout, stderr: _stderr, process } = spawn(&sh(script, &[]));
    let mut stdout = File::from(stdout);
    let pid = process.pid();
    assert_eq!(read_line(&mut stdout), format!("{pid} {pid} {}", process.launcher_pid()));
    assert_eq!(read_line(&mut stdout), "NoNewPrivs:\t1");
    drop(stdin);
    assert!(process.wait_blocking(PATIENCE).unwrap().tree_gone);
}

/// A host under `nohup` ignores HUP; a plugin must not, or closing things down politely stops working.
pub(crate) fn inherits_no_signal_settings() {
    const SHOW: &str = "grep -E 'Sig(Blk|Ign)' /proc/self/status";
    let ignoring = "trap '' HUP INT TERM USR1; exec \"$@\"";
    let list = |arguments: &[&str]| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", ignoring, "sh"]).args(arguments).stdin(Stdio::null());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let none = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n";
    assert_ne!(list(&["sh", "-c", SHOW]), none, "control: an ordinary child inherits them");
    let stand_in = stand_in_command("", &[]);
    let program = stand_in.get_program().to_str().unwrap();
    let mode = stand_in.get_args().next().unwrap().to_str().unwrap();
    let seen = list(&[program, mode, SHOW]);
    assert_eq!(seen.split_once('\n').unwrap().1, none);
}

/// More than a socket buffer holds, so that sending in pieces is exercised.
pub(crate) fn large_environment_arrives_whole() {
    let mut spec = sh("env | wc -c", &[]);
    let small: usize = run(&spec).0.trim().parse().unwrap();
    for number in 0..14 {
        spec.env.push((format!("V{number:02}").into(), "x".repeat(100_000).into()));
    }
    let large: usize = run(&spec).0.trim().parse().unwrap();
    assert_eq!(large - small, 14 * (100_000 + "V00=\n".len()));
    // The kernel's own limit for one string is reported as a failed execution.
    spec.env = vec![("BIG".into(), "x".repeat(200_000).into())];
    let error = launcher().spawn(&spec).unwrap_err();
    assert_eq!(error.to_string(), "executable `/bin/sh` cannot be executed: argument list too long");
}

// Requirement 78, from the other side: process lists are open to every user of the machine.
pub(crate) fn launcher_shows_nothing_of_the_specification() {
    let mut spec = sh("read _", &["argument-secret"]);
    spec.env.push(("TOKEN".into(), "environment-secret".into()));
    let Spawned { stdin, process, .. } = spawn(&spec);
    let launcher = process.launcher_pid();
    let command_line = fs::read_to_string(format!("/proc/{launcher}/cmdline")).unwrap();
    assert!(command_line.ends_with(&format!("\0{LAUNCH_ARGUMENT}\0")), "{command_line:?}");
    assert_eq!(fs::read(format!("/proc/{launcher}/environ")).unwrap_or_default(), b"");
    assert_eq!(fs::read_to_string(format!("/proc/{launcher}/comm")).unwrap(), "plugward-launch\n");
    drop(stdin);
    assert!(process.wait_blocking(PATIENCE).unwrap().tree_gone);
}

/// The launcher has read the plugin's secrets, and another plugin of the same user must not read them there. Root could
/// read everything, so the host of this test is an ordinary user.
pub(crate) fn launcher_memory_is_closed_to_its_plugin() {
    const NOBODY: u32 = 65_534;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("host");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let script = "head -c 0 /proc/$$/mem && echo own; head -c 0 /proc/$PPID/mem 2>/dev/null && echo launcher";
    let mut host = Command::new(program);
    host.args(stand_in_command(script, &[]).get_args()).stdin(Stdio::null());
    if rustix::process::geteuid().is_root() {
        host.uid(NOBODY);
    }
    let output = String::from_utf8(host.output().unwrap().stdout).unwrap();
    // The first line is the control: an ordinary process of the same user is open.
    assert_eq!(output.lines().skip(1).collect::<Vec<_>>(), ["own"]);
}

// Requirement 29 and the start steps: a person must read which step failed, on which path, and why.
pub(crate) fn failures_name_step_and_path() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str, mode: u32| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let with_program = |path: &Path| LaunchSpec { executable: path.into(), ..sh("", &[]) };
    let with_cwd = |path: &Path| LaunchSpec { cwd: path.into(), ..sh("", &[]) };
    let missing = folder.path().join("missing");
    let plain = write("plain", "#!/bin/sh\n", 0o644);
    let no_interpreter = write("no-interpreter", "#!/nonexistent/sh\n", 0o755);
    let shell_text = write("shell-text", "touch made\n", 0o755);
    let dangling = folder.path().join("dangling");
    symlink("nowhere", &dangling).unwrap();

    let expect = |spec: &LaunchSpec, step: SpawnStep, message: String| {
        let error = launcher().spawn(spec).unwrap_err();
        assert_eq!((error.step(), error.to_string()), (step, message));
        assert!(!error.is_transient());
    };
    let exec = |path: &Path, cause: &str| {
        expect(
            &with_program(path),
            SpawnStep::Exec,
            format!("executable `{}` cannot be executed: {cause}", path.display()),
        );
    };
    exec(&missing, "no such file or directory");
    exec(&dangling, "no such file or directory");
    exec(&no_interpreter, "no such file or directory (the interpreter or loader it names is missing)");
    exec(&plain, "permission denied (it is not marked executable, or a directory above it is closed)");
    exec(folder.path(), "permission denied (it is a directory)");
    // A file without `#!` is no program; a shell must not be tried on it in the name of convenience.
    exec(&shell_text, "exec format error (neither a program of this machine nor a script that begins with `#!`)");
    assert!(!folder.path().join("made").exists() && !Path::new("/made").exists());

    let cwd = |path: &Path, cause: &str| {
        let message = format!("working directory `{}` cannot be entered: {cause}", path.display());
        expect(&with_cwd(path), SpawnStep::Cwd, message);
    };
    cwd(&missing, "no such file or directory");
    cwd(&plain, "not a directory");
    expect(
        &LaunchSpec { executable: "sh".into(), ..sh("", &[]) },
        SpawnStep::Spec,
        "launch executable `sh` is not an absolute path".to_owned(),
    );
}

/// A launcher binary that is something else must be an error at once, not a plugin that never answers.
pub(crate) fn lost_launchers_are_reported() {
    let error = Launcher::at("/bin/false", [""; 0]).spawn(&sh("", &[])).unwrap_err();
    assert_eq!(error.to_string(), "launcher ended before the plugin was started (exit status: 1)");
    assert!(error.is_transient());
    let error = Launcher::at("/nonexistent/launcher", [LAUNCH_ARGUMENT]).spawn(&sh("", &[])).unwrap_err();
    assert_eq!(error.to_string(), "launcher cannot be started: no such file or directory");
    assert!(matches!(error, SpawnError::Launcher { .. }));
    // Positive control: the same way with the right program works.
    let own = std::env::current_exe().unwrap();
    let started = Launcher::at(own, [LAUNCH_ARGUMENT]).spawn(&sh("exit 3", &[])).unwrap();
    assert_eq!(started.process.wait_blocking(PATIENCE).unwrap().main, MainExit::Code(3));
}

pub(crate) fn direct_use_of_the_launcher_is_refused() {
    let output =
        Command::new(std::env::current_exe().unwrap()).arg(LAUNCH_ARGUMENT).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8(output.stderr).unwrap().contains("for plugward's own use"));
}

/// A pipe end that leaks into a plugin started at the same time would keep the first one's pipe open for ever.
pub(crate) fn parallel_starts_do_not_share_descriptors() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 5;
    let launcher = launcher();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let launcher = &launcher;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let script = format!("echo {number}; {LIST_DESCRIPTORS}; cat");
                    let started = launcher.spawn(&sh(&script, &[])).unwrap();
                    assert!(started.stdin.as_raw_fd() > 2);
                    drop(started.stdin);
                    assert_eq!(read_all(started.stdout), format!("{number}\n0\n1\n2\n"));
                    assert_eq!(started.process.wait_blocking(PATIENCE).unwrap(), clean_exit());
                }
            });
        }
    });
}
