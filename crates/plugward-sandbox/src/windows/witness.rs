//! The witness on Windows: programs of the system try, in the plugin's own container, what a plugin must not do.
//!
//! Owns a file and a service of ours, the attempts on them, and a control of each outside the container. Refuses a level if
//! an attempt succeeds, and if a control fails, because then nothing is known.

use std::{
    ffi::OsString,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{container::Container, job::Job, report, start::start};
use crate::{LaunchSpec, Level, MainExit, Network, SandboxSpec, SpawnError, StopGrace};

/// Longest time of one attempt.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(10);
/// Exit code of `curl` when it could not connect, and when it took too long.
const NOT_CONNECTED: [i32; 2] = [7, 28];

/// Connections the service takes: one of the control and one of an attempt that got through.
const CONNECTIONS: usize = 2;

/// One attempt: program, arguments, and whether its exit code means that it got through.
struct Attempt {
    program: PathBuf,
    arguments: Vec<OsString>,
    got_through: fn(i32) -> bool,
    escape: &'static str,
}

/// Runs the witness; `Ok` if nothing got through.
pub(super) fn confirm(spec: &LaunchSpec, sandbox: &SandboxSpec, container: &Container) -> Result<(), SpawnError> {
    let not_held = |escapes: &str| SpawnError::NotHeld { level: sandbox.level, escapes: escapes.to_owned() };
    let unknown = || not_held("not be tried, because its probe could not be set up");
    let canary = Canary::new().map_err(|_| unknown())?;
    let system = system_folder().ok_or_else(unknown)?;
    let service = TcpListener::bind("127.0.0.1:0").map_err(|_| unknown())?;
    let port = service.local_addr().map_err(|_| unknown())?.port();
    let mut attempts = vec![Attempt {
        program: system.join("findstr.exe"),
        arguments: vec!["canary".into(), canary.file.clone().into_os_string()],
        got_through: |code| code == 0,
        escape: "read a file it was not given",
    }];
    if sandbox.network == Network::Off {
        let address = format!("http://127.0.0.1:{port}/");
        attempts.push(Attempt {
            program: system.join("curl.exe"),
            arguments: ["--silent", "--max-time", "2", "--connect-timeout", "2", &address].map(Into::into).to_vec(),
            // Our service closes each connection, which `curl` calls by another number.
            got_through: |code| !NOT_CONNECTED.contains(&code),
            escape: "reach a service of this machine",
        });
    }
    let closing = std::thread::spawn(move || {
        let taken = service.incoming().take(CONNECTIONS).count();
        drop((service, taken));
    });
    let result = attempts.iter().try_for_each(|attempt| {
        let outside = run(spec, attempt, None).ok_or_else(unknown)?;
        if !(attempt.got_through)(outside) {
            return Err(not_held("not be tried, because the probe fails without a sandbox too"));
        }
        let inside = run(spec, attempt, Some(container)).ok_or_else(unknown)?;
        if (attempt.got_through)(inside) { Err(not_held(attempt.escape)) } else { Ok(()) }
    });
    // Wakes the thread if nothing has.
    for _ in 0..CONNECTIONS {
        let _woken = std::net::TcpStream::connect(("127.0.0.1", port));
    }
    let _ended = closing.join();
    result
}

/// The exit code of an attempt.
fn run(spec: &LaunchSpec, attempt: &Attempt, container: Option<&Container>) -> Option<i32> {
    let mut argv = vec![attempt.program.clone().into_os_string()];
    argv.extend(attempt.arguments.iter().cloned());
    let system_root = std::env::var_os("SystemRoot").unwrap_or_default();
    let probe = LaunchSpec {
        executable: attempt.program.clone(),
        argv,
        cwd: spec.cwd.clone(),
        env: vec![("SystemRoot".into(), system_root)],
        stop: StopGrace { term_after: Duration::ZERO, kill_after: Duration::ZERO },
        sandbox: None,
    };
    let started = start(&probe, Job::new(None).ok()?, container, report(Level::None, None)).ok()?;
    drop(started.stdin);
    match started.process.wait_blocking(ATTEMPT_LIMIT)?.main {
        MainExit::Code(code) => Some(code),
        _ => None,
    }
}

fn system_folder() -> Option<PathBuf> {
    Some(Path::new(&std::env::var_os("SystemRoot")?).join("System32")).filter(|folder| folder.is_absolute())
}

/// A file that no container was granted.
struct Canary {
    folder: PathBuf,
    file: PathBuf,
}

impl Canary {
    fn new() -> std::io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("plugward-canary-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let file = folder.join("file");
        fs::write(&file, "canary\r\n")?;
        Ok(Self { folder, file })
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        // What stays costs a few bytes.
        let _left_behind = fs::remove_dir_all(&self.folder);
    }
}
