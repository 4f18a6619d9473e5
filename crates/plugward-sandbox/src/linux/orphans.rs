//! Launchers whose handle was dropped while they were still killing their tree.
//!
//! Owns collecting their exit status, so that no zombie of a launcher stays in the host. Refuses waiting in the thread
//! that drops a handle: that may be a thread of an async runtime.

use std::{
    process::Child,
    sync::{Mutex, PoisonError},
    thread,
};

/// Launchers to wait for and whether a thread is doing so. The list is as long as the number of handles dropped within
/// a launcher's last moments, and a launcher ends within its own limit.
struct Waiting {
    launchers: Vec<Child>,
    thread_runs: bool,
}

static WAITING: Mutex<Waiting> = Mutex::new(Waiting { launchers: Vec::new(), thread_runs: false });

/// Collects `launcher` as soon as it ends, on a thread that exists only while there is something to wait for.
pub(super) fn collect(mut launcher: Child) {
    if let Ok(Some(_)) = launcher.try_wait() {
        return;
    }
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    waiting.launchers.push(launcher);
    if !waiting.thread_runs {
        // Without a thread the launcher stays a zombie until the next one is collected.
        waiting.thread_runs = thread::Builder::new().name("plugward-reaper".into()).spawn(wait_for_all).is_ok();
    }
}

fn wait_for_all() {
    loop {
        let launcher = {
            let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(launcher) = waiting.launchers.pop() else {
                waiting.thread_runs = false;
                return;
            };
            launcher
        };
        let mut launcher = launcher;
        // The only error is that someone else has collected it.
        let _collected = launcher.wait();
    }
}
