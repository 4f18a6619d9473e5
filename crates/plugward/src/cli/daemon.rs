//! The host on demand: started by the first agent, shared by all, ended by itself.
//!
//! ```text
//! agent -- serve --stdio (a pipe) --\
//! agent -- serve --stdio (a pipe) ----> control socket -> serve --detached (own session, log in the home)
//! command --------------------------/                     ends once nobody was there for a while
//! ```
//!
//! Owns the start of that process, the bounded wait for its socket, its log, and `stop`. Refuses to keep it alive: what it
//! was started for comes back as easily as it went.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use plugward_host::{ErrorCode, SHUTDOWN_LIMIT};
use plugward_sandbox::{Detached, start_detached};

use super::Context;
use super::link::SERVE_WAIT;
use crate::control::{Client, ConnectError, Failure};
use crate::exit::Exit;
use crate::settings::{RUN_DIR, Settings};

/// Log of a host that was started on demand, in the folder for what belongs to a serving process.
const LOG_FILE: &str = "serve.log";

/// The log before it.
const OLD_LOG_FILE: &str = "serve.log.1";

/// Largest log. A day of a plugin that crashes in a loop stays below it.
const LOG_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Bytes of the log's end that are looked at for what went wrong.
const LOG_END_BYTES: u64 = 4096;

/// Pause between two looks for the socket: a host opens it within some ten milliseconds.
const SOCKET_POLL: Duration = Duration::from_millis(10);

/// Starts before giving up. A second one is needed where a host was about to end by itself as we came.
const STARTS_MAX: u32 = 3;

/// The running host; where none runs, one is started.
pub(super) async fn reach(context: &Context) -> Result<Client, Failure> {
    let settings = &context.settings;
    let deadline = Instant::now() + SERVE_WAIT;
    let mut started: Option<Detached> = None;
    let mut starts = 0;
    loop {
        match Client::connect(&settings.home).await {
            Ok(client) => return Ok(client),
            Err(ConnectError::Failed(failure)) => return Err(failure),
            Err(ConnectError::NobodyThere) => {}
        }
        let end = match &mut started {
            Some(process) => process.ended().map_err(|error| failed(settings, &error.to_string()))?,
            None => Some(true),
        };
        match end {
            Some(false) => return Err(failed(settings, "it ended")),
            Some(true) if starts == STARTS_MAX => return Err(failed(settings, "it ends as soon as it runs")),
            Some(true) => {
                started = Some(start(settings).map_err(|error| failed(settings, &error.to_string()))?);
                starts += 1;
            }
            None if Instant::now() >= deadline => {
                let limit = SERVE_WAIT.as_secs();
                return Err(failed(settings, &format!("it did not open its socket within {limit} s")));
            }
            None => {}
        }
        tokio::time::sleep(SOCKET_POLL).await;
    }
}

fn log_path(home: &Path) -> PathBuf {
    home.join(RUN_DIR).join(LOG_FILE)
}

fn start(settings: &Settings) -> io::Result<Detached> {
    let folder = settings.home.join(RUN_DIR);
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let path = log_path(&settings.home);
    if path.metadata().is_ok_and(|facts| facts.len() > LOG_BYTES_MAX / 2) {
        put_aside(&path, &folder.join(OLD_LOG_FILE))?;
    }
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
    let program = std::env::current_exe()?;
    let arguments: [OsString; 4] =
        ["serve".into(), "--detached".into(), "--home".into(), settings.home.clone().into_os_string()];
    start_detached(&program, arguments, &settings.home, log)
}

/// Makes the log the old one. Of two agents that start a host at once, one finds it gone already, which is as good.
fn put_aside(log: &Path, old: &Path) -> io::Result<()> {
    match std::fs::rename(log, old) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn failed(settings: &Settings, why: &str) -> Failure {
    let path = log_path(&settings.home);
    let mut message = format!("a host could not be started in the background: {why}");
    if let Some(line) = last_line(&path) {
        message.push_str(&format!("; its log ends with: {}", plugward_policy::visible(&line)));
    }
    let hint = format!("its log is `{}`; `plugward serve --stdio --in-process` does without it", path.display());
    Failure::coded(ErrorCode::HomeUnusable, message).with_hint(hint)
}

fn last_line(path: &Path) -> Option<String> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_END_BYTES))).ok()?;
    let mut end = Vec::new();
    file.take(LOG_END_BYTES).read_to_end(&mut end).ok()?;
    let text = String::from_utf8_lossy(&end).into_owned();
    text.lines().rev().find(|line| !line.trim().is_empty()).map(ToOwned::to_owned)
}

/// The first step of a host on demand: away from the session of the agent that started it.
pub(super) fn leave_session() {
    // It fails for the leader of a process group, which has nothing to leave.
    let _ = rustix::process::setsid();
}

/// Standard error that is the log of a host on demand: begun anew where it would grow past its limit.
#[derive(Debug)]
pub(super) struct BoundedLog {
    written: AtomicU64,
}

impl BoundedLog {
    pub(super) fn open() -> Self {
        // What an earlier host wrote counts.
        let there = rustix::fs::fstat(io::stderr()).map_or(0, |facts| u64::try_from(facts.st_size).unwrap_or(0));
        Self { written: AtomicU64::new(there) }
    }
}

impl Write for &BoundedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.written.fetch_add(u64::try_from(bytes.len()).unwrap_or(0), Ordering::Relaxed);
        if written > LOG_BYTES_MAX {
            self.written.store(0, Ordering::Relaxed);
            rustix::fs::ftruncate(io::stderr(), 0)?;
        }
        io::stderr().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Ends the host that runs on this home, and waits for its end.
pub(super) async fn stop(context: &Context) -> Result<Exit, Failure> {
    let home = &context.settings.home;
    // Also a host of another version, which no other command can talk to.
    let pid = match Client::process(home).await {
        Ok(pid) => pid,
        Err(ConnectError::Failed(failure)) => return Err(failure),
        Err(ConnectError::NobodyThere) => {
            context.output.note("no host runs here");
            return Ok(Exit::Ok);
        }
    };
    let process = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let gone = || Failure::coded(ErrorCode::Internal, format!("process {pid} of the running host is not there"));
    let process = process.ok_or_else(gone)?;
    rustix::process::kill_process(process, rustix::process::Signal::TERM).map_err(|_| gone())?;
    let deadline = Instant::now() + SHUTDOWN_LIMIT;
    // The socket goes first; the process is gone once its plugins are.
    while rustix::process::test_kill_process(process).is_ok() {
        if Instant::now() >= deadline {
            let message = format!("host with process {pid} still ends its plugins");
            return Err(Failure::coded(ErrorCode::HostStopping, message));
        }
        tokio::time::sleep(SOCKET_POLL).await;
    }
    context.output.text(&format!("stopped the host that was process {pid}"));
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two agents that open at once must both get their host.
    #[test]
    fn a_log_that_another_start_has_put_aside_is_no_fault() {
        let folder = tempfile::tempdir().unwrap();
        let (log, old) = (folder.path().join("log"), folder.path().join("log.1"));
        std::fs::write(&log, "text").unwrap();
        put_aside(&log, &old).unwrap();
        put_aside(&log, &old).unwrap();
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "text");
        assert!(put_aside(&old, folder.path()).is_err());
    }
}
