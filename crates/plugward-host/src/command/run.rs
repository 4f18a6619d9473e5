//! One run of a command: its process from the start to the end of its whole tree.
//!
//! Owns feeding stdin, reading both streams while it runs, and the one deadline over all of it. Whatever happens, the
//! tree has ended when [`run`] returns, and if its caller goes away the tree goes as well (W8, W9). Refuses to judge
//! what the output means.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use plugward_policy::{CommandTool, Prepared};
use plugward_sandbox::{Exceeded, ExitReport, MainExit, Reached, Spawned};
use plugward_store::Redactor;
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

use super::capture::{Capture, CaptureError, Captured, Notes};
use super::outcome::CommandResult;
use super::spill::SpillDir;
use crate::config::STOP_KILL_GRACE;
use crate::session::process::RunningProcess;

/// Time between TERM and KILL at the end of a run that was cut short: enough to remove a lock file, short because
/// somebody waits for the answer.
const TERM_GRACE: Duration = Duration::from_millis(500);

/// Time for the streams to end once the tree is gone. Only a process that got away could still hold them.
const STREAM_GRACE: Duration = Duration::from_millis(500);

/// How a run ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// By itself.
    Own(MainExit),
    /// At a limit of its sandbox.
    Exceeded(Exceeded),
    /// Its time was up.
    TimedOut,
    /// The caller cancelled.
    Cancelled,
    /// The tool is stopped.
    Stopped,
    /// It wrote more than is handed on.
    TooLarge,
    /// It wrote more than a file of output may have.
    SpillTooLarge,
    /// Its output could not be kept in this folder.
    NotKept { dir: PathBuf, error: std::io::Error },
}

/// A run that is over.
pub(super) struct Finished {
    pub(super) ended: Ended,
    pub(super) stdout: Captured,
    pub(super) stderr: Captured,
    pub(super) duration: Duration,
    /// Whether no process of it is left.
    pub(super) tree_gone: bool,
    /// Limits at which it was refused more, as far as that was seen.
    pub(super) reached: Vec<Reached>,
}

/// What a run needs beside its process.
pub(crate) struct Run<'a> {
    pub(crate) tool: &'a CommandTool,
    pub(crate) prepared: Prepared,
    /// Its limit.
    pub(crate) timeout: Duration,
    /// How much of that is gone already.
    pub(crate) used: Duration,
    /// Where output over the limit goes.
    pub(crate) spill_dir: Option<SpillDir>,
    /// Takes secrets out of what it writes.
    pub(crate) redactor: Redactor,
    pub(crate) cancel: &'a CancellationToken,
    /// Cancelled when the tool is stopped.
    pub(crate) over: &'a CancellationToken,
    pub(crate) notes: Option<Notes>,
}

/// Runs what was started to its end.
///
/// # Errors
/// The pipes cannot be taken over; the process is ended all the same.
pub(crate) async fn run(spawned: Spawned, run: Run<'_>) -> std::io::Result<CommandResult> {
    let (tool, timeout) = (run.tool, run.timeout);
    let finished = drive(spawned, run).await?;
    if !finished.tree_gone {
        tracing::warn!(tool = %tool.name, "a process of the command's tree could not be ended");
    }
    Ok(CommandResult::of(tool, timeout, finished))
}

async fn drive(spawned: Spawned, run: Run<'_>) -> std::io::Result<Finished> {
    let begun = Instant::now();
    let process = RunningProcess::watch(spawned.process)?;
    let stdout = pipe::Receiver::from_owned_fd(spawned.stdout)?;
    let stderr = pipe::Receiver::from_owned_fd(spawned.stderr)?;
    let stdin = match run.prepared.stdin {
        Some(bytes) => Some((pipe::Sender::from_owned_fd(spawned.stdin)?, bytes)),
        // Closed before the program can wait for it (W20).
        None => {
            drop(spawned.stdin);
            None
        }
    };
    let tool = run.tool;
    let capture = |name| Capture::new(name, tool.max_output_bytes, tool.overflow, run.spill_dir.clone(), &run.redactor);
    let (mut out, mut err) = (capture("stdout"), capture("stderr"));
    let mut notes = run.notes;
    let ended = tokio::select! {
        biased;
        () = run.cancel.cancelled() => Ended::Cancelled,
        () = run.over.cancelled() => Ended::Stopped,
        ended = to_the_end(&process, stdin, (stdout, &mut out, notes.as_mut()), (stderr, &mut err)) => ended,
        () = tokio::time::sleep(run.timeout.saturating_sub(run.used)) => Ended::TimedOut,
    };
    let tree_gone = match ended {
        Ended::Own(_) | Ended::Exceeded(_) => {
            process.gone_within(Duration::ZERO).await.is_some_and(|report| report.tree_gone)
        }
        _ => end(&process).await,
    };
    let duration = begun.elapsed();
    let reached = process.reached();
    Ok(Finished { ended, stdout: out.finish().await, stderr: err.finish().await, duration, tree_gone, reached })
}

async fn to_the_end(
    process: &RunningProcess,
    stdin: Option<(pipe::Sender, Vec<u8>)>,
    (stdout, out, notes): (pipe::Receiver, &mut Capture, Option<&mut Notes>),
    (stderr, err): (pipe::Receiver, &mut Capture),
) -> Ended {
    let feed = async {
        if let Some((mut pipe, bytes)) = stdin {
            // A program that does not read to the end is free not to.
            let _ = pipe.write_all(&bytes).await;
        }
    };
    let read = async { tokio::try_join!(out.read(stdout, notes), err.read(stderr, None)) };
    let streams = async {
        tokio::pin!(feed, read);
        tokio::select! {
            read = &mut read => read,
            () = &mut feed => read.await,
        }
    };
    tokio::pin!(streams);
    let failed = |error| match error {
        CaptureError::TooLarge => Ended::TooLarge,
        CaptureError::SpillTooLarge => Ended::SpillTooLarge,
        CaptureError::Spill { dir, error } => Ended::NotKept { dir, error },
    };
    let own = |report: Option<ExitReport>| match report {
        Some(ExitReport { exceeded: Some(exceeded), .. }) => Ended::Exceeded(exceeded),
        Some(report) => Ended::Own(report.main),
        None => Ended::Own(MainExit::Unknown),
    };
    tokio::select! {
        biased;
        read = &mut streams => match read {
            Ok(_) => own(process.gone().await),
            Err(error) => failed(error),
        },
        report = process.gone() => match tokio::time::timeout(STREAM_GRACE, streams).await {
            Ok(Err(error)) => failed(error),
            Ok(Ok(_)) | Err(_) => own(report),
        },
    }
}

/// TERM, then KILL of the whole tree.
async fn end(process: &RunningProcess) -> bool {
    process.terminate();
    let mut gone = process.gone_within(TERM_GRACE).await;
    if gone.is_none() {
        process.kill();
        gone = process.gone_within(STOP_KILL_GRACE).await;
    }
    gone.is_some_and(|report| report.tree_gone)
}
