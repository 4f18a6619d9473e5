//! Crashes: the test binary starts itself as a child that works on a home and dies, then looks at what is left.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::rows::{approval, pin, plugin, span};
use plugward_store::{EventRow, SpanFilter, Store, StoreError};

/// Tells the child which home to work on, and what to do there.
const HOME: &str = "PLUGWARD_STORE_TEST_HOME";
const TASK: &str = "PLUGWARD_STORE_TEST_TASK";

type Step = fn(&Store) -> Result<(), StoreError>;

/// What a user does with a plugin from beginning to end.
const STEPS: &[Step] = &[
    |store| store.insert_plugin(&plugin("demo")),
    |store| store.set_pins("demo", &[pin("demo", "echo"), pin("demo", "fail")]),
    |store| store.record_approval(&approval("demo", "d1")),
    |store| store.set_grants("demo", &["notes.read", "tasks.read"]),
    |store| store.set_enabled("demo", true),
    |store| store.next_generation("demo").map(drop),
    |store| store.set_tool_enabled("demo", "fail", false),
    |store| store.record_event(&event(1)),
    |store| {
        store.record_span(span(1));
        store.flush()
    },
    |store| store.set_last_error("demo", Some("exited with code 3")),
    |store| store.next_generation("demo").map(drop),
    |store| store.set_setting("api.token_sha256", Some("abc")),
    |store| store.revoke_approvals("demo", 9).map(drop),
    |store| {
        store.write(|tx| {
            tx.insert_plugin(&plugin("other"))?;
            tx.record_approval(&approval("other", "d2"))?;
            tx.set_enabled("other", true)
        })
    },
    |store| store.set_grants("demo", &["notes.read"]),
    |store| store.remove_plugin("demo"),
];

fn event(number: i64) -> EventRow {
    EventRow { at_us: number, kind: "test".into(), message: "x".into(), detail_json: "{}".into(), plugin_id: None }
}

/// Everything a user could see, as text to compare.
fn contents(store: &Store) -> String {
    let plugins = store.plugins().unwrap();
    let mut seen = format!("{plugins:#?}{:#?}", store.setting("api.token_sha256").unwrap());
    for id in ["demo", "other"] {
        let kept = (store.approvals(id).unwrap(), store.grants(id).unwrap(), store.pins(id).unwrap());
        seen.push_str(&format!("{id} {kept:#?} {:#?}", store.disabled_tools(id).unwrap()));
    }
    let events = store.events(None, 0).unwrap();
    seen.push_str(&format!("{events:#?}{:#?}", store.spans(&SpanFilter::default()).unwrap()));
    seen
}

fn start(home: &Path, task: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--nocapture", "--test-threads=1"])
        .env(HOME, home)
        .env(TASK, task)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The child's side. Started by the test runner instead of a parent, it goes through all steps and dies of nothing.
#[test]
fn child() {
    let (home, task) = (std::env::var_os(HOME), std::env::var(TASK).unwrap_or_default());
    let Some(home) = home else {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        STEPS.iter().for_each(|step| step(&store).unwrap());
        return;
    };
    let store = Store::open(Path::new(&home)).unwrap();
    match task.parse::<usize>() {
        Ok(steps) => {
            STEPS[..steps].iter().for_each(|step| step(&store).unwrap());
            std::process::abort();
        }
        Err(_) if task == "write" => write_for_ever(&store),
        Err(_) => {
            eprintln!("ack 0");
            // Holds the home until the parent kills it.
            loop {
                std::thread::park();
            }
        }
    }
}

/// Changes two things at once, again and again, and says each time that it is done.
fn write_for_ever(store: &Store) {
    for number in 1.. {
        store
            .write(move |tx| {
                tx.set_setting("number", Some(&number.to_string()))?;
                tx.record_event(&event(number))
            })
            .unwrap();
        eprintln!("ack {number}");
        store.record_span(span(number.unsigned_abs()));
    }
}

/// Kills the child as soon as it has said `ack` with this number, and returns the last number it said.
fn kill_after(mut child: Child, number: i64) -> i64 {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut last = 0;
    while let Some(Ok(line)) = lines.next() {
        if let Some(acked) = line.strip_prefix("ack ").and_then(|n| n.parse().ok()) {
            last = acked;
            if last >= number {
                child.kill().unwrap();
            }
        }
    }
    child.wait().unwrap();
    last
}

// Requirement 144, invariant 10: a host that dies between any two steps comes back with exactly the steps before.
#[test]
fn dying_between_any_two_steps_loses_nothing_acknowledged() {
    let reference_dir = tempfile::tempdir().unwrap();
    let reference = Store::open(reference_dir.path()).unwrap();
    for steps in 0..=STEPS.len() {
        if let Some(last) = steps.checked_sub(1) {
            STEPS[last](&reference).unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        let status = start(dir.path(), &steps.to_string()).wait().unwrap();
        assert!(!status.success(), "the child was to die");
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(contents(&store), contents(&reference), "after {steps} steps");
        store.check().unwrap();
    }
}

/// A host killed in the middle of writing keeps all it acknowledged, and no half of anything.
#[test]
fn killing_a_writer_leaves_whole_changes() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..8 {
        let home = dir.path().join(format!("round{round}"));
        let acked = kill_after(start(&home, "write"), 1 + round * 7);
        assert!(acked > round * 7);
        let store = Store::open(&home).unwrap();
        store.check().unwrap();
        let number: i64 = store.setting("number").unwrap().unwrap().parse().unwrap();
        assert!(number >= acked, "acknowledged {acked}, found {number}");
        let events = store.events(None, 0).unwrap();
        assert_eq!(events.len() as i64, number.min(500), "both changes of a write, or neither");
        assert_eq!(events[0].at_us, number);
    }
}

/// A second process is told who has the home, and gets it as soon as that one is dead, however it died.
#[test]
fn a_second_process_is_told_and_succeeds_the_dead() {
    let dir = tempfile::tempdir().unwrap();
    let child = start(dir.path(), "hold");
    let pid = child.id();
    let mut child = child;
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("ack")), "the child holds the home");

    let error = Store::open(dir.path()).unwrap_err();
    assert!(matches!(error, StoreError::HomeInUse { pid: Some(holder) } if holder == pid), "{error}");
    assert!(Store::open_read_only(dir.path()).unwrap().plugins().unwrap().is_empty());

    child.kill().unwrap();
    child.wait().unwrap();
    Store::open(dir.path()).unwrap();
}
