//! Ten plugins that die at random under calls: none is lost, none is answered twice, breakers do what their rules say,
//! and nothing is left.
//!
//! A short run with every test; `cargo xtask chaos` makes a long one of it. One seed says all that happens. Half of the
//! plugins have one caller each, so that the order of everything is known and a reference of the breaker can be held
//! beside it; the others have eight, so that ends meet calls at any moment.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use plugward_host::{CallFailure, Host, SpanFilter, SupervisionSettings};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::cases_support::alone;
use crate::support::{Fixture, Settings, TestHost, eventually, processes_with, request};

/// Calls of a short run.
const CALLS_SHORT: u64 = 3000;

const PLUGINS: u64 = 10;

/// Callers of each plugin that is called by many.
const CROWD: u64 = 8;

/// Failures in a row that pause a plugin here, and for how long: often enough to see many pauses.
const THRESHOLD: u32 = 2;
const OPEN_FOR: Duration = Duration::from_millis(400);

/// Calls that come together when a pause is over, and how long the one that goes through takes.
const PROBES: u64 = 3;
const PROBE_MS: u64 = 500;

/// Pause of a caller that met a plugin that is paused or away.
const COME_BACK: Duration = Duration::from_millis(20);

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// What the next call asks the plugin to do. Deaths come in groups, so that breakers have something to do.
    fn fate(&mut self, last: &str) -> &'static str {
        match (last, self.below(1000)) {
            ("die", 0..550) | (_, 0..6) => "die",
            (_, 6..12) => "die-after",
            (_, 12..60) => "fail",
            (_, 60..100) => "refuse",
            (_, 100..120) => "slow",
            _ => "answer",
        }
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// What one caller saw.
#[derive(Default)]
struct Seen {
    traces: Vec<String>,
    answered: u64,
    failed_as_told: u64,
    refused: u64,
    away: u64,
    deaths: u64,
    openings: u64,
    /// Pauses that ended with one probe among several calls.
    probes: u64,
    /// From a death to the next good answer.
    recoveries: Vec<Duration>,
}

impl Seen {
    fn add(&mut self, other: Seen) {
        self.traces.extend(other.traces);
        self.answered += other.answered;
        self.failed_as_told += other.failed_as_told;
        self.refused += other.refused;
        self.away += other.away;
        self.deaths += other.deaths;
        self.openings += other.openings;
        self.probes += other.probes;
        self.recoveries.extend(other.recoveries);
    }
}

/// The rules of the breaker for one caller that waits for each answer; times are known up to the length of a call.
enum Model {
    Closed { failures: u32 },
    Open { earliest: Instant, latest: Instant },
}

impl Model {
    /// A call was refused between `begun` and `ended`.
    fn refused(&self, begun: Instant) {
        match self {
            Model::Closed { .. } => panic!("a call was refused by a closed breaker"),
            Model::Open { latest, .. } => assert!(begun < *latest, "a call was refused after the pause"),
        }
    }

    /// A call went through between `begun` and `ended`; whether the plugin answered it.
    fn went_through(&mut self, begun: Instant, ended: Instant, answered: bool) -> bool {
        let failures = match self {
            Model::Closed { failures } => *failures,
            Model::Open { earliest, .. } => {
                assert!(ended >= *earliest, "a call went through an open breaker");
                // The probe: one more failure is enough.
                THRESHOLD - 1
            }
        };
        let opens = !answered && failures + 1 >= THRESHOLD;
        *self = match (answered, opens) {
            (true, _) => Model::Closed { failures: 0 },
            (false, true) => Model::Open { earliest: begun + OPEN_FOR, latest: ended + OPEN_FOR },
            (false, false) => Model::Closed { failures: failures + 1 },
        };
        opens
    }

    fn check(&self, host: &Host, plugin: &str) {
        let breaker = host.host_status(plugin).unwrap().breaker;
        let expected = match self {
            Model::Closed { failures } => ("closed", *failures),
            Model::Open { .. } => ("open", THRESHOLD),
        };
        assert_eq!((breaker.state.as_str(), breaker.failures), expected, "breaker of {plugin}");
    }
}

/// The end of one call, checked against what was asked for.
fn judge(seen: &mut Seen, fate: &str, number: u64, outcome: Result<Value, CallFailure>) -> &'static str {
    match (outcome, fate) {
        (Ok(reply), "answer" | "slow" | "die-after") => {
            assert_eq!(reply["content"][0]["text"], json!(number.to_string()), "the answer of another call");
            seen.answered += 1;
            "answered"
        }
        (Ok(reply), "fail") => {
            assert_eq!(reply["isError"], json!(true), "{reply}");
            seen.failed_as_told += 1;
            "answered"
        }
        (Err(CallFailure::Rejected(_)), "refuse") => {
            seen.failed_as_told += 1;
            "answered"
        }
        (Err(CallFailure::CircuitOpen { .. }), _) => {
            seen.refused += 1;
            "refused"
        }
        (Err(CallFailure::Unavailable { .. }), _) => {
            seen.away += 1;
            "away"
        }
        (other, fate) => panic!("call {number}, told to {fate}: {other:?}"),
    }
}

async fn call(host: &Host, seen: &mut Seen, plugin: &str, fate: &str, number: u64) -> &'static str {
    let arguments = json!({"n": number, "fate": fate, "ms": 2});
    let report = host.call(request(&format!("{plugin}.act"), arguments)).await;
    seen.traces.push(report.trace_id);
    let outcome = report.outcome.map(|reply| serde_json::from_str(reply.result.get()).unwrap());
    judge(seen, fate, number, outcome)
}

fn is_up(host: &Host, plugin: &str) -> bool {
    host.tools().iter().any(|tool| tool.id.plugin().as_str() == plugin)
}

/// Calls one after the other, with the reference beside.
async fn alone_with(host: Host, plugin: String, calls: u64, seed: u64) -> Seen {
    let (mut dice, mut seen, mut model) = (Dice(seed), Seen::default(), Model::Closed { failures: 0 });
    let (mut fate, mut died_at, mut restarts) = ("answer", None, 0);
    for number in 0..calls {
        fate = dice.fate(fate);
        let begun = Instant::now();
        let end = call(&host, &mut seen, &plugin, fate, number).await;
        let ended = Instant::now();
        match end {
            "refused" => {
                model.refused(begun);
                // As a caller does that is told when to come back.
                tokio::time::sleep(COME_BACK).await;
                continue;
            }
            "away" => {
                assert_eq!(fate, "die", "call {number} of {plugin} found nobody");
                seen.openings += u64::from(model.went_through(begun, ended, false));
            }
            _ => {
                model.went_through(begun, ended, true);
                if let Some(died_at) = died_at.take() {
                    seen.recoveries.push(ended - died_at);
                }
            }
        }
        model.check(&host, &plugin);
        if fate.starts_with("die") {
            seen.deaths += 1;
            restarts += 1;
            died_at = Some(ended);
            eventually("it is started again", || {
                (host.host_status(&plugin).unwrap().restarts == restarts && is_up(&host, &plugin)).then_some(())
            })
            .await;
        }
    }
    seen
}

/// Calls beside others; any end is possible, and each has to be the end of this call.
async fn in_a_crowd(host: Host, plugin: String, first: u64, calls: u64, seed: u64) -> Seen {
    let (mut dice, mut seen, mut fate, mut died_at) = (Dice(seed), Seen::default(), "answer", None);
    for number in first..first + calls {
        // Deaths do not come in groups here: each is everybody's.
        fate = dice.fate(if fate == "die" { "answer" } else { fate });
        match call(&host, &mut seen, &plugin, fate, number).await {
            "answered" if fate != "die-after" => {
                if let Some(died_at) = died_at.take() {
                    seen.recoveries.push(Instant::elapsed(&died_at));
                }
            }
            "answered" => seen.deaths += 1,
            end => {
                if end == "away" {
                    seen.deaths += u64::from(fate == "die");
                    died_at.get_or_insert_with(Instant::now);
                }
                tokio::time::sleep(COME_BACK).await;
            }
        }
    }
    seen
}

/// Opens the breaker of `plugin`, waits out its pause, and calls at once what only one may get through to (C1).
async fn one_call_is_the_probe(host: &Host, all: &mut Seen, plugin: &str) {
    for _ in 0..THRESHOLD {
        let restarts = host.host_status(plugin).unwrap().restarts;
        assert_eq!(call(host, all, plugin, "die", 1).await, "away", "{plugin}");
        eventually("it is started again", || {
            (host.host_status(plugin).unwrap().restarts > restarts && is_up(host, plugin)).then_some(())
        })
        .await;
    }
    let breaker = || host.host_status(plugin).unwrap().breaker;
    assert_eq!(breaker().state.as_str(), "open", "{plugin}");
    eventually("its pause is over", || breaker().retry_after.is_none().then_some(())).await;
    let calls = (0..PROBES).map(|number| {
        let (host, tool) = (host.clone(), format!("{plugin}.act"));
        let arguments = json!({"n": number, "fate": "slow", "ms": PROBE_MS});
        async move { host.call(request(&tool, arguments)).await }
    });
    let (mut answered, mut refused) = (0, 0);
    for report in calls.collect::<JoinSet<_>>().join_all().await {
        all.traces.push(report.trace_id);
        match report.outcome {
            Ok(_) => answered += 1,
            Err(CallFailure::CircuitOpen { .. }) => refused += 1,
            Err(other) => panic!("{plugin}: {other:?}"),
        }
    }
    assert_eq!((answered, refused), (1, PROBES - 1), "{plugin}");
    all.answered += 1;
    all.refused += PROBES - 1;
    all.probes += 1;
}

/// The end of a plugin's part: it is up, answers, pauses and comes back once more.
async fn comes_back(host: Host, id: String) -> Seen {
    let mut seen = Seen::default();
    eventually("it is up again", || is_up(&host, &id).then_some(())).await;
    eventually("its pause is over", || host.host_status(&id).unwrap().breaker.retry_after.is_none().then_some(()))
        .await;
    assert_eq!(call(&host, &mut seen, &id, "answer", 1).await, "answered", "{id}");
    one_call_is_the_probe(&host, &mut seen, &id).await;
    let status = host.host_status(&id).unwrap();
    assert_eq!((status.calls_running, status.calls_waiting, status.breaker.state.as_str()), (0, 0, "closed"));
    seen
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Each call has one trace of its own, and no trace is of no call.
async fn each_call_has_one_trace(host: &Host, traces: &[String]) {
    let made = traces.len();
    let distinct: HashSet<&String> = traces.iter().collect();
    assert_eq!(distinct.len(), made);
    let (mut kept, mut before_this) = (0, None);
    loop {
        let page = host.spans(SpanFilter { limit: 0, before: before_this, ..SpanFilter::default() }).await.unwrap();
        assert!(page.spans.iter().all(|span| distinct.contains(&span.trace_id)), "a trace of no call");
        kept += page.spans.len();
        before_this = page.next_before;
        if before_this.is_none() {
            break;
        }
    }
    assert_eq!(u64::try_from(made - kept).unwrap(), host.dropped_spans(), "{kept} of {made} traces are kept");
}

#[allow(clippy::print_stdout, reason = "a long run is made for what it prints")]
fn report(all: &mut Seen, took: Duration) {
    let made = all.traces.len();
    all.recoveries.sort();
    let at = |part: usize| all.recoveries.get(all.recoveries.len() * part / 100).copied().unwrap_or_default();
    println!(
        "{made} calls in {:.1} s: {} answered, {} failed as told, {} met a pause, {} met a plugin that was away; {} \
         deaths, {} pauses as the reference has them, {} pauses of which one call of {PROBES} was the probe; from a death to the next good answer {:.0} ms (median), {:.0} ms \
         (99 of 100), {:.0} ms (longest)",
        took.as_secs_f64(),
        all.answered,
        all.failed_as_told,
        all.refused,
        all.away,
        all.deaths,
        all.openings,
        all.probes,
        at(50).as_secs_f64() * 1e3,
        at(99).as_secs_f64() * 1e3,
        all.recoveries.last().copied().unwrap_or_default().as_secs_f64() * 1e3,
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_plugins_die_at_random_and_every_call_ends_once() {
    // Issue 4: `cargo xtask chaos`; invariants 3, 5 and 7.
    if !alone("chaos::ten_plugins_die_at_random_and_every_call_ends_once") {
        return;
    }
    let calls = setting("PLUGWARD_CHAOS_CALLS").unwrap_or(CALLS_SHORT);
    let seed = setting("PLUGWARD_CHAOS_SEED").unwrap_or(0x5eed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let supervision = SupervisionSettings {
        breaker_failures: THRESHOLD,
        breaker_open: OPEN_FOR,
        start_limit: 1000,
        // Each start earns a fresh count: what is looked at here is not the backoff.
        healthy_after: Duration::ZERO,
        ..SupervisionSettings::default()
    };
    let settings = Settings { supervision, restart_base_delay: Duration::from_millis(1), ..Settings::default() };
    let before = (tasks(), descriptors());
    let test = TestHost::with(settings).await;
    let mark = test.home().display().to_string();
    for plugin in 0..PLUGINS {
        test.run(&Fixture::imported(&format!("c{plugin}"), &["fates"])).await;
    }
    assert!(!processes_with(&mark).is_empty(), "the mark finds no process: nothing could be found left");
    let began = Instant::now();
    let mut callers = JoinSet::new();
    for plugin in 0..PLUGINS {
        let (host, id, seed) = (test.host.clone(), format!("c{plugin}"), seed.wrapping_add(plugin << 32));
        let share = calls / PLUGINS;
        if plugin < PLUGINS / 2 {
            callers.spawn(alone_with(host, id, share, seed));
            continue;
        }
        for caller in 0..CROWD {
            let (first, share) = (caller * share, share / CROWD);
            callers.spawn(in_a_crowd(host.clone(), id.clone(), first, share, seed.wrapping_add(caller + 1)));
        }
    }
    let mut all = Seen::default();
    callers.join_all().await.into_iter().for_each(|seen| all.add(seen));
    let took = began.elapsed();
    // Every one comes back: a breaker that stays open, or a plugin that is not started again, would show here.
    let come_back = (0..PLUGINS).map(|plugin| comes_back(test.host.clone(), format!("c{plugin}")));
    come_back.collect::<JoinSet<_>>().join_all().await.into_iter().for_each(|seen| all.add(seen));
    each_call_has_one_trace(&test.host, &all.traces).await;
    test.close().await;
    eventually("nothing is left", || {
        (processes_with(&mark).is_empty() && tasks() <= before.0 && descriptors() <= before.1 + 2).then_some(())
    })
    .await;
    report(&mut all, took);
    assert!(all.deaths > 10 && all.openings > 0 && all.refused > 0, "a run without deaths and pauses shows nothing");
}
