//! What many starts leave behind: nothing.

use std::fs;

use plugward_sandbox::LaunchSpec;

use crate::support::{PATIENCE, clean_exit, launcher, sh};

/// Descriptors and children (zombies included) of this process.
fn census() -> (usize, usize) {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    let children = fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .map(|list| list.split_whitespace().count())
        .sum();
    (descriptors, children)
}

/// A host that runs for months and restarts a plugin every hour must not run out of anything.
pub(crate) fn many_rounds_leave_no_descriptor_and_no_process() {
    const ROUNDS: usize = 100;
    let launcher = launcher();
    let before = census();
    for round in 0..ROUNDS {
        let started = launcher.spawn(&sh("cat", &[])).unwrap();
        // Positive control: a running plugin does show in the census.
        assert!(census().0 > before.0 && census().1 == before.1 + 1, "{:?}", census());
        drop(started.stdin);
        let report = if round % 2 == 0 {
            started.process.wait_blocking(PATIENCE)
        } else {
            started.process.stop_blocking(PATIENCE)
        };
        assert_eq!(report, Some(clean_exit()));
    }
    assert_eq!(census(), before);
}

pub(crate) fn failed_starts_leave_no_descriptor_and_no_process() {
    let launcher = launcher();
    let before = census();
    for _ in 0..20 {
        launcher.spawn(&LaunchSpec { executable: "/nonexistent".into(), ..sh("", &[]) }).unwrap_err();
        launcher.spawn(&LaunchSpec { cwd: "/nonexistent".into(), ..sh("", &[]) }).unwrap_err();
    }
    assert_eq!(census(), before);
}
