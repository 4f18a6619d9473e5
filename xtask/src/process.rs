//! Owns running another program: a time limit, a process group of its own, captured output with a bound, and proof
//! that nothing it started is still alive afterwards. Refuses to run anything without a limit.
//!
//! This process makes itself the reaper of its orphans (`become_reaper`), so a descendant that left its group or its
//! session still shows up below us in `/proc`. While it waits it also reaps orphans that ended, as an init process
//! would: a test that checks "the process is gone" must not see a zombie that only exists because we adopted it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitOptions};

use crate::guard;

/// Most that is kept of one output stream. A tool list of a real server is below 1 MiB; older bytes are dropped, so a
/// failure still shows its end.
const MAX_CAPTURED_BYTES: usize = 8 * 1024 * 1024;
/// Lines from the beginning of a failed program's output that are shown: where npm and git say what is wrong.
const HEAD_LINES: usize = 12;
/// Lines from its end that are shown: enough for a compiler error or a test's panic with its context.
const TAIL_LINES: usize = 60;
/// How often a running child is looked at. Below what a person notices, far above the cost of one look.
const POLL: Duration = Duration::from_millis(20);
/// Time between the polite and the final signal for a child that overran its limit.
const TERM_GRACE: Duration = Duration::from_secs(5);
/// Time that orphans get to end by themselves before they count as left behind: the requirement on a stopped plugin
/// tree is "a moment", and a loaded machine with two cores makes a moment long.
const ORPHAN_GRACE: Duration = Duration::from_secs(10);
/// Time for the pipes to reach their end once every process that held them is dead.
const DRAIN_GRACE: Duration = Duration::from_secs(5);

/// One program to run: a `Command` with a name for messages and a time limit.
pub(crate) struct Job {
    command: Command,
    label: String,
    limit: Duration,
    echo: bool,
    orphan_grace: Duration,
}

/// Held while a job runs: what is alive below us afterwards is then this job's, not that of a neighbour.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What a finished program left: its status, the end of its output, and what it left running.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Name used in messages.
    pub(crate) label: String,
    /// Exit code; `None` when a signal ended it.
    pub(crate) code: Option<i32>,
    /// Whether the time limit ended it.
    pub(crate) timed_out: bool,
    /// Standard output, at most the last 8 MiB.
    pub(crate) stdout: String,
    /// Standard error, at most the last 8 MiB.
    pub(crate) stderr: String,
    /// Processes that outlived it (and were then killed), as `pid command line`.
    pub(crate) left_behind: Vec<String>,
    /// The limit it ran under, for messages.
    limit: Duration,
}

impl Job {
    /// A job that runs `program` and may take `limit`; `label` names it in messages.
    pub(crate) fn new(program: impl AsRef<OsStr>, label: impl Into<String>, limit: Duration) -> Self {
        Self { command: Command::new(program), label: label.into(), limit, echo: false, orphan_grace: ORPHAN_GRACE }
    }

    /// Adds one argument.
    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    pub(crate) fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets one environment variable.
    pub(crate) fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Takes one environment variable away.
    pub(crate) fn without_env(mut self, name: impl AsRef<OsStr>) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Sets the working directory.
    pub(crate) fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Runs it as another user and group. Takes root.
    pub(crate) fn user(mut self, id: u32) -> Self {
        self.command.uid(id).gid(id);
        self
    }

    /// Copies the output to our standard error while it arrives.
    pub(crate) fn echo(mut self) -> Self {
        self.echo = true;
        self
    }

    /// Runs the program to its end or to its limit and ends whatever it left running.
    pub(crate) fn run(mut self) -> Result<Finished> {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        self.command.process_group(0);
        self.command.stdin(Stdio::null());
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self
            .command
            .spawn()
            .with_context(|| format!("{}: `{}` does not start", self.label, self.command.get_program().display()))?;
        guard::watch(child.id());
        let stdout = child.stdout.take().map(|pipe| capture(pipe, self.echo));
        let stderr = child.stderr.take().map(|pipe| capture(pipe, self.echo));
        let (status, timed_out) = wait(&mut child, self.limit)?;
        let left_behind = end_orphans(self.orphan_grace);
        guard::rest();
        Ok(Finished {
            label: self.label,
            code: status.code(),
            timed_out,
            stdout: collect(stdout),
            stderr: collect(stderr),
            left_behind,
            limit: self.limit,
        })
    }
}

impl Finished {
    /// The result itself if it ended with exit code 0, in time, with nothing left running; else an error with the
    /// end of its output.
    pub(crate) fn success(self) -> Result<Self> {
        self.expect_code(0)
    }

    /// As [`Finished::success`], for another exit code.
    pub(crate) fn expect_code(self, code: i32) -> Result<Self> {
        if self.timed_out {
            bail!("{}: not finished after {} s\n{}", self.label, self.limit.as_secs(), self.tail());
        }
        if self.code != Some(code) {
            let ending = self.code.map_or("ended by a signal".to_owned(), |code| format!("exit code {code}"));
            bail!("{}: {ending}, expected {code}\n{}", self.label, self.tail());
        }
        if !self.left_behind.is_empty() {
            bail!("{}: processes left behind:\n  {}", self.label, self.left_behind.join("\n  "));
        }
        Ok(self)
    }

    /// The first and last lines of both streams, for error messages.
    pub(crate) fn tail(&self) -> String {
        let mut text = String::new();
        for (name, stream) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !stream.trim().is_empty() {
                text.push_str(&format!("--- end of {name}\n{}\n", excerpt(stream)));
            }
        }
        text
    }
}

/// Makes this process the parent of every orphan below it, so that a descendant cannot hide by leaving its group.
pub(crate) fn become_reaper() -> Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .context("this process cannot become the reaper of its orphans (Linux only)")
}

/// The beginning and the end of `text`: programs say what is wrong in either place.
fn excerpt(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    if lines.len() <= HEAD_LINES + TAIL_LINES {
        return lines.join("\n");
    }
    let left_out = lines.len() - HEAD_LINES - TAIL_LINES;
    let (head, tail) = (&lines[..HEAD_LINES], &lines[HEAD_LINES + left_out..]);
    format!("{}\n... {left_out} lines ...\n{}", head.join("\n"), tail.join("\n"))
}

/// Reads a pipe to its end in a thread; the text arrives on the channel when the pipe closes.
fn capture(mut pipe: impl Read + Send + 'static, echo: bool) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut kept = Vec::new();
        let mut chunk = [0_u8; 16 * 1024];
        while let Ok(count @ 1..) = pipe.read(&mut chunk) {
            if echo {
                // Our own output being closed must not stop the reading: the child would block on a full pipe.
                let _ = std::io::stderr().write_all(&chunk[..count]);
            }
            kept.extend_from_slice(&chunk[..count]);
            if kept.len() > 2 * MAX_CAPTURED_BYTES {
                kept.drain(..kept.len() - MAX_CAPTURED_BYTES);
            }
        }
        kept.drain(..kept.len().saturating_sub(MAX_CAPTURED_BYTES));
        let _ = sender.send(kept);
    });
    receiver
}

fn collect(receiver: Option<mpsc::Receiver<Vec<u8>>>) -> String {
    let bytes = receiver.and_then(|receiver| receiver.recv_timeout(DRAIN_GRACE).ok()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for the child; past the limit its group is ended. After a proper end the group is left alone here: what is
/// still in it was left behind, and is found and named as such.
fn wait(child: &mut Child, limit: Duration) -> Result<(ExitStatus, bool)> {
    let group = pid(child.id())?;
    let started = Instant::now();
    let mut asked_at = None;
    loop {
        if let Some(status) = child.try_wait()? {
            if asked_at.is_some() {
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
            }
            return Ok((status, asked_at.is_some()));
        }
        reap_orphans(Some(child.id()));
        match asked_at {
            None if started.elapsed() > limit => {
                let _ = rustix::process::kill_process_group(group, Signal::TERM);
                asked_at = Some(Instant::now());
            }
            Some(asked) if asked.elapsed() > TERM_GRACE => {
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
            }
            _ => {}
        }
        thread::sleep(POLL);
    }
}

/// Gives remaining descendants a moment, then kills and names those that are still there.
fn end_orphans(grace: Duration) -> Vec<String> {
    let started = Instant::now();
    loop {
        reap_orphans(None);
        let alive = descendants();
        if alive.is_empty() {
            return Vec::new();
        }
        if started.elapsed() > grace {
            let named = alive.iter().map(|&id| describe(id)).collect();
            kill_until_gone();
            return named;
        }
        thread::sleep(POLL);
    }
}

/// Kills descendants until none is left; a fork bomb gets a bounded number of rounds.
fn kill_until_gone() {
    for _ in 0..100 {
        let alive = descendants();
        if alive.is_empty() {
            return;
        }
        for id in alive {
            if let Ok(id) = pid(id) {
                let _ = rustix::process::kill_process(id, Signal::KILL);
            }
        }
        thread::sleep(POLL);
        reap_orphans(None);
    }
}

/// Reaps ended children that are not `ours`, the ones adopted from descendants that died first.
fn reap_orphans(ours: Option<u32>) {
    let me = std::process::id();
    for entry in processes() {
        if entry.parent == me
            && entry.ended
            && Some(entry.id) != ours
            && let Ok(id) = pid(entry.id)
        {
            let _ = rustix::process::waitpid(Some(id), WaitOptions::NOHANG);
        }
    }
}

struct Entry {
    id: u32,
    parent: u32,
    ended: bool,
}

/// Every process of the machine with its parent, as far as `/proc` shows them.
fn processes() -> Vec<Entry> {
    let Ok(dir) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    dir.flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|id: u32| parse_stat(id, &std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?))
        .collect()
}

/// Reads state and parent out of one `stat` line. The name in parentheses may itself hold blanks and parentheses, so
/// the fields are counted from the last one.
fn parse_stat(id: u32, stat: &str) -> Option<Entry> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    Some(Entry { id, parent: fields.next()?.parse().ok()?, ended })
}

/// Living processes below this one.
fn descendants() -> Vec<u32> {
    let mut children: HashMap<u32, Vec<(u32, bool)>> = HashMap::new();
    for entry in processes() {
        children.entry(entry.parent).or_default().push((entry.id, entry.ended));
    }
    let mut open = vec![std::process::id()];
    let mut found = Vec::new();
    while let Some(id) = open.pop() {
        for (child, ended) in children.remove(&id).unwrap_or_default() {
            open.push(child);
            if !ended && Some(child) != guard::pid() {
                found.push(child);
            }
        }
    }
    found
}

fn describe(id: u32) -> String {
    let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let words: Vec<String> =
        line.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    format!("{id} {}", words.join(" ").trim())
}

fn pid(id: u32) -> Result<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw).with_context(|| format!("process id `{id}` is out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_secs(30);

    #[test]
    fn output_and_exit_code_arrive() {
        let done = Job::new("sh", "sample", SHORT).args(["-c", "echo out; echo err >&2; exit 3"]).run().unwrap();
        assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (Some(3), "out\n", "err\n"));
        let text = done.success().unwrap_err().to_string();
        assert!(text.contains("exit code 3") && text.contains("err"), "{text}");
    }

    #[test]
    fn a_program_past_its_limit_is_ended_with_its_group() {
        let done = Job::new("sh", "sample", Duration::from_millis(50)).args(["-c", "sleep 1000 & wait"]).run().unwrap();
        assert!(done.timed_out);
        assert!(done.success().unwrap_err().to_string().contains("not finished"));
    }

    #[test]
    fn a_descendant_in_a_session_of_its_own_is_found_and_killed() {
        become_reaper().unwrap();
        // The substitution ends when the new session's shell has let go of the pipe, so the session is there by then.
        let script = "x=$(setsid sh -c 'exec >/dev/null; sleep 1000 &')";
        let mut job = Job::new("sh", "sample", SHORT).args(["-c", script]);
        job.orphan_grace = Duration::from_millis(200);
        let done = job.run().unwrap();
        assert_eq!(done.left_behind.len(), 1, "{:?}", done.left_behind);
        assert!(done.success().unwrap_err().to_string().contains("sleep 1000"));
    }

    #[test]
    fn a_descendant_in_the_same_group_counts_too() {
        become_reaper().unwrap();
        let mut job = Job::new("sh", "sample", SHORT).args(["-c", "sleep 1000 & exit 0"]);
        job.orphan_grace = Duration::from_millis(200);
        assert_eq!(job.run().unwrap().left_behind.len(), 1);
    }

    #[test]
    fn stat_lines_with_odd_names_parse() {
        let entry = parse_stat(7, "7 (a) b (c)) S 42 7 7 0").unwrap();
        assert_eq!((entry.parent, entry.ended), (42, false));
        assert!(parse_stat(7, "7 (x) Z 1 7").unwrap().ended);
        assert!(parse_stat(7, "nonsense").is_none());
    }

    #[test]
    fn long_output_is_shown_by_its_ends() {
        assert_eq!(excerpt("a\nb\n"), "a\nb");
        let long: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let shown = excerpt(&long.join("\n"));
        assert!(shown.starts_with("0\n1\n") && shown.ends_with("98\n99"), "{shown}");
        assert!(shown.contains("\n11\n... 28 lines ...\n40\n"), "{shown}");
    }
}
