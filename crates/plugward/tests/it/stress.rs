//! Many calls, many starts, many plugins at once: nothing is answered twice, nothing is left behind, nobody waits for
//! somebody else.
//!
//! Tests that count tasks and descriptors run alone in a process of their own.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plugward_host::{CallRequest, Host};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::cases_support::{Switchable, alone};
use crate::support::{Fixture, PATIENCE, Settings, TestHost, eventually, processes_with, request};

/// Calls of the largest test.
const CALLS: usize = 10_000;

/// Calls under way at one time.
const AT_ONCE: usize = 64;

/// Rounds of starting and crashing.
const ROUNDS: u64 = 200;

/// A small generator of numbers: the same seed gives the same test.
struct Dice(u64);

impl Dice {
    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// What is done to a call besides waiting for it.
#[derive(Clone, Copy)]
enum Fate {
    Wait,
    CancelAfterUs(u64),
    DropAfterUs(u64),
    TimeOut,
}

/// Makes one call; what it ended with.
async fn one_call(host: Host, number: usize, fate: Fate) -> &'static str {
    let said = format!("call {number}");
    let (tool, arguments) = match fate {
        Fate::TimeOut => ("fx.sleep", json!({"seconds": 5})),
        // Every eighth call is in the plugin's hands when it is cancelled.
        Fate::CancelAfterUs(_) | Fate::DropAfterUs(_) if number.is_multiple_of(8) => {
            ("fx.sleep", json!({"seconds": 5}))
        }
        _ => ("fx.echo", json!({"text": said})),
    };
    let mut call: CallRequest = request(tool, arguments);
    call.timeout = matches!(fate, Fate::TimeOut).then(|| Duration::from_millis(20));
    let cancel = call.cancel.clone();
    let report = match fate {
        Fate::Wait | Fate::TimeOut => host.call(call).await,
        Fate::CancelAfterUs(us) => {
            let calling = host.call(call);
            tokio::pin!(calling);
            tokio::select! {
                report = &mut calling => report,
                () = tokio::time::sleep(Duration::from_micros(us)) => { cancel.cancel(); calling.await }
            }
        }
        Fate::DropAfterUs(us) => match tokio::time::timeout(Duration::from_micros(us), host.call(call)).await {
            Ok(report) => report,
            Err(_) => return "dropped",
        },
    };
    match report.outcome {
        Ok(reply) => {
            assert_eq!(reply.output(), json!({"echo": said}), "an answer reached the wrong caller");
            "answered"
        }
        Err(failure) => failure.cause(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_calls_with_cancels_and_time_outs_are_each_answered_once() {
    // Invariant 3, requirement 83: B057 and B067 together, in bulk.
    let test = TestHost::new().await;
    let fixture = Fixture::normal("fx").backend("max_concurrent_calls: 64").backend("tool_timeout_seconds: 30");
    test.run(&fixture).await;
    let pid = test.host.host_status("fx").unwrap().pid;
    let (places, mut dice) = (Arc::new(Semaphore::new(AT_ONCE)), Dice(0x5eed_1234_9876_abcd));
    let mut calls = JoinSet::new();
    let mut ends: HashMap<&str, usize> = HashMap::new();
    for number in 0..CALLS {
        let fate = match dice.below(20) {
            0 | 1 => Fate::CancelAfterUs(dice.below(3_000)),
            2 => Fate::DropAfterUs(dice.below(3_000)),
            3 => Fate::TimeOut,
            _ => Fate::Wait,
        };
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        let host = test.host.clone();
        calls.spawn(async move {
            let end = one_call(host, number, fate).await;
            drop(place);
            end
        });
        while let Some(end) = calls.try_join_next() {
            *ends.entry(end.unwrap()).or_default() += 1;
        }
    }
    while let Some(end) = calls.join_next().await {
        *ends.entry(end.unwrap()).or_default() += 1;
    }
    assert_eq!(ends.values().sum::<usize>(), CALLS, "{ends:?}");
    for end in ends.keys() {
        assert!(["answered", "cancelled", "dropped", "timed_out"].contains(end), "{ends:?}");
    }
    assert!(ends["answered"] > CALLS / 2 && ends["cancelled"] > 50 && ends["timed_out"] > 200, "{ends:?}");
    let status = test.host.host_status("fx").unwrap();
    assert_eq!((status.calls_running, status.calls_waiting, status.is_paused), (0, 0, false));
    // The same process, still in step: late answers found nobody else.
    assert_eq!(status.pid, pid);
    assert_eq!(test.output("fx.echo", json!({"text": "after"})).await, json!({"echo": "after"}));
    test.close().await;
}

/// Descriptors this process has open.
fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_crashes_leave_no_process_no_task_and_no_descriptor() {
    if !alone("stress::two_hundred_crashes_leave_no_process_no_task_and_no_descriptor") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("pids");
    let test = TestHost::new().await;
    let args = ["crash-after", "--calls", "0", "--pid-file", mark.to_str().unwrap()];
    test.install(&Fixture::imported("c", &args)).await;
    let mut before = None;
    for round in 0..ROUNDS {
        // Every second time a person starts it; in the others it comes back by itself.
        let by_itself = round % 2 == 1;
        if !by_itself {
            test.host.enable("c").await.unwrap();
        }
        eventually("the next process is ready", || {
            let status = test.host.host_status("c").unwrap();
            let is_next = status.generation > round && status.status.as_str() == "ready";
            is_next.then(|| assert_eq!(status.generation, round + 1))
        })
        .await;
        let cause = test.call("c.say", json!({})).await.outcome.unwrap_err().cause();
        assert_eq!(cause, "unavailable", "round {round}");
        if !by_itself {
            continue;
        }
        test.host.disable("c").await.unwrap();
        eventually("nothing of the round is left", || {
            let now = (tasks(), descriptors());
            let first = *before.get_or_insert(now);
            let left = processes_with(mark.to_str().unwrap());
            (now.0 <= first.0 && now.1 <= first.1 && left.is_empty()).then_some(())
        })
        .await;
    }
    test.close().await;
    assert_eq!(processes_with(mark.to_str().unwrap()), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_plugins_start_at_once_and_a_slow_or_mute_one_holds_up_none() {
    // B036 in bulk; invariant 9.
    const PLUGINS: usize = 50;
    let folder = tempfile::tempdir().unwrap();
    let test = TestHost::new().await;
    let mut odd = Vec::new();
    for id in ["slow", "mute"] {
        let plugin = Switchable::new(folder.path(), id, &Fixture::imported(id, &[]), "never-answers");
        plugin.run(&test, id).await;
        odd.push(plugin);
    }
    let mut enabling = JoinSet::new();
    for index in 2..PLUGINS {
        let id = format!("p{index}");
        test.install(&Fixture::imported(&id, &["never-answers"])).await;
        let host = test.host.clone();
        enabling.spawn(async move { host.enable(&id).await.map(drop) });
    }
    while let Some(enabled) = enabling.join_next().await {
        enabled.unwrap().unwrap();
    }
    let names = test.host.exposed_definitions().len();
    assert_eq!(names, PLUGINS * 2);
    let home = test.close().await;
    odd[0].set("slow-start --seconds 8");
    odd[1].set("mute-initialize");

    let test = TestHost::at(home, Settings::default()).await;
    test.host.start_enabled();
    let status = |id: &str| test.host.host_status(id).unwrap().status.as_str();
    eventually("48 are ready", || (test.host.tools().len() == (PLUGINS - 2) * 2).then_some(())).await;
    assert_eq!((status("slow"), status("mute")), ("starting", "starting"));
    for index in 2..PLUGINS {
        assert_eq!(test.text(&format!("p{index}.say"), json!({})).await, "pong");
    }
    // The end of the host does not wait for starts under way either.
    let began = Instant::now();
    test.close().await;
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_of_the_list_sees_a_plugins_tools_all_or_not_at_all() {
    // Requirement 47, invariant 2.
    const READERS: usize = 3;
    let test = TestHost::new().await;
    test.install(&Fixture::normal("whole")).await;
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let (host, stop) = (test.host.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let (mut reads, mut with_tools, mut version) = (0_u64, 0_u64, 0);
                while !stop.load(Ordering::Relaxed) {
                    let snapshot = host.snapshot();
                    assert!(snapshot.version() >= version, "the list went back in time");
                    version = snapshot.version();
                    assert!(snapshot.is_empty() || snapshot.len() == 6, "{} tools of 6", snapshot.len());
                    let listed = host.exposed_definitions();
                    assert!(listed.is_empty() || listed.len() == 6, "{} definitions of 6", listed.len());
                    reads += 1;
                    with_tools += u64::from(!snapshot.is_empty());
                }
                (reads, with_tools)
            })
        })
        .collect();
    for _ in 0..40 {
        test.host.enable("whole").await.unwrap();
        test.host.disable("whole").await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        let (reads, with_tools) = reader.join().unwrap();
        assert!(with_tools > 0 && with_tools < reads, "{with_tools} of {reads}");
    }
    test.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_over_the_queue_is_refused_and_everything_admitted_is_answered() {
    // Invariant 7: past its bounds the host says so instead of growing.
    let test = TestHost::new().await;
    let fixture = Fixture::imported("b", &["slow-fast", "--seconds", "0.3"])
        .backend("max_concurrent_calls: 4")
        .backend("max_queued_calls: 8");
    test.run(&fixture).await;
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        let host = test.host.clone();
        calls.spawn(async move { host.call(request("b.slow", json!({}))).await.outcome });
    }
    let (mut answered, mut busy) = (0, 0);
    while let Some(outcome) = calls.join_next().await {
        match outcome.unwrap() {
            Ok(reply) => {
                assert_eq!(reply.output()["content"][0]["text"], Value::from("slow"));
                answered += 1;
            }
            Err(failure) => {
                assert_eq!(failure.code().as_str(), "PLUGIN_BUSY");
                busy += 1;
            }
        }
    }
    assert!(answered >= 12 && busy > 0 && answered + busy == 100, "{answered} answered, {busy} busy");
    let status = test.host.host_status("b").unwrap();
    assert_eq!((status.calls_running, status.calls_waiting), (0, 0));
    test.close().await;
}
