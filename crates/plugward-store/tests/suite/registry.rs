//! What the store keeps across restarts, and what it answers for wrong ids.

use crate::rows::{approval, pin, plugin, span};
use plugward_store::{EventRow, PluginRow, SpanFilter, Store, StoreError};

// Requirement 144: what a person installed, granted and enabled is there after a restart, exactly as it was.
#[test]
fn everything_survives_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let event = EventRow {
        at_us: 5,
        plugin_id: Some("demo".into()),
        kind: "approved".into(),
        message: "approved".into(),
        detail_json: r#"{"digest":"d2"}"#.into(),
    };
    let store = Store::open(dir.path()).unwrap();
    store.insert_plugin(&plugin("demo")).unwrap();
    store.record_approval(&approval("demo", "d1")).unwrap();
    store.record_approval(&approval("demo", "d2")).unwrap();
    store.set_grants("demo", &["notes.read", "network.request", "notes.read"]).unwrap();
    store.set_pins("demo", &[pin("demo", "zeta"), pin("demo", "alpha")]).unwrap();
    store.set_tool_enabled("demo", "zeta", false).unwrap();
    store.set_enabled("demo", true).unwrap();
    store.set_last_error("demo", Some("exited with code 3")).unwrap();
    store.record_event(&event).unwrap();
    store.set_setting("api.token_sha256", Some("abc")).unwrap();
    assert_eq!(store.next_generation("demo").unwrap(), 1);
    store.record_span(span(1));
    drop(store);

    let store = Store::open(dir.path()).unwrap();
    let expected = PluginRow { enabled: true, last_error: Some("exited with code 3".into()), ..plugin("demo") };
    assert_eq!(store.plugins().unwrap(), std::slice::from_ref(&expected));
    assert_eq!(store.plugin("demo").unwrap(), Some(expected));
    assert_eq!(store.current_approval("demo").unwrap(), Some(approval("demo", "d2")));
    assert_eq!(store.approvals("demo").unwrap(), [approval("demo", "d2"), approval("demo", "d1")]);
    assert_eq!(store.grants("demo").unwrap(), ["network.request", "notes.read"]);
    assert_eq!(store.pins("demo").unwrap(), [pin("demo", "zeta"), pin("demo", "alpha")]);
    assert_eq!(store.disabled_tools("demo").unwrap(), ["zeta"]);
    assert_eq!(store.events(None, 0).unwrap(), [event]);
    assert_eq!(store.setting("api.token_sha256").unwrap().as_deref(), Some("abc"));
    assert_eq!(store.trace(&span(1).trace_id).unwrap(), [span(1)]);
    assert_eq!(store.next_generation("demo").unwrap(), 2);
    store.check().unwrap();
}

/// Removing a plugin takes back what was agreed to; the record of what happened stays.
#[test]
fn removing_a_plugin_keeps_its_trace_only() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    store.insert_plugin(&plugin("demo")).unwrap();
    store.record_approval(&approval("demo", "d1")).unwrap();
    store.set_grants("demo", &["notes.read"]).unwrap();
    store.set_pins("demo", &[pin("demo", "echo")]).unwrap();
    store.set_tool_enabled("demo", "echo", false).unwrap();
    store.record_event(&EventRow { plugin_id: Some("demo".into()), ..EventRow::default() }).unwrap();
    store.record_span(span(1));
    store.flush().unwrap();
    assert_eq!(store.next_generation("demo").unwrap(), 1);
    store.remove_plugin("demo").unwrap();

    // Installed again under the same id, nothing of the old agreement applies.
    store.insert_plugin(&plugin("demo")).unwrap();
    assert_eq!(store.current_approval("demo").unwrap(), None);
    assert!(store.grants("demo").unwrap().is_empty());
    assert!(store.pins("demo").unwrap().is_empty());
    assert!(store.disabled_tools("demo").unwrap().is_empty());
    assert_eq!(store.spans(&SpanFilter::default()).unwrap().spans, [span(1)]);
    assert_eq!(store.events(Some("demo"), 10).unwrap().len(), 1);
    // A late event of the removed plugin's process must not carry the number of a new one.
    assert_eq!(store.next_generation("demo").unwrap(), 2);
    store.check().unwrap();
}

/// After taking back an approval none is current, also none given earlier.
#[test]
fn revoking_leaves_no_current_approval() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    store.insert_plugin(&plugin("demo")).unwrap();
    store.record_approval(&approval("demo", "d1")).unwrap();
    store.record_approval(&approval("demo", "d2")).unwrap();
    assert_eq!(store.revoke_approvals("demo", 99).unwrap(), 2);
    assert_eq!(store.revoke_approvals("demo", 100).unwrap(), 0);
    assert_eq!(store.current_approval("demo").unwrap(), None);
    assert!(store.approvals("demo").unwrap().iter().all(|a| a.revoked_at_us == Some(99)));
    store.record_approval(&approval("demo", "d3")).unwrap();
    assert_eq!(store.current_approval("demo").unwrap(), Some(approval("demo", "d3")));
}

/// A wrong id is named in the error, and nothing is written for it.
#[test]
fn wrong_ids_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    store.insert_plugin(&plugin("demo")).unwrap();
    let error = store.insert_plugin(&PluginRow { version: "2".into(), ..plugin("demo") }).unwrap_err();
    assert_eq!(error.to_string(), "plugin `demo` already exists");
    assert_eq!(store.plugin("demo").unwrap(), Some(plugin("demo")));

    let missing = [
        store.set_enabled("nope", true),
        store.set_last_error("nope", None),
        store.remove_plugin("nope"),
        store.record_approval(&approval("nope", "d")),
        store.revoke_approvals("nope", 1).map(drop),
        store.set_grants("nope", &["x"]),
        store.set_pins("nope", &[]),
        store.set_tool_enabled("nope", "x", false),
    ];
    for result in missing {
        assert_eq!(result.unwrap_err().to_string(), "plugin `nope` does not exist");
    }
    let error = store.set_pins("demo", &[pin("demo", "echo"), pin("demo", "echo")]).unwrap_err();
    assert_eq!(error.to_string(), "tool `echo` already exists");
    assert!(store.pins("demo").unwrap().is_empty(), "the contract changes whole or not at all");
    assert_eq!(store.plugin("nope").unwrap(), None);
    assert_eq!(store.setting("nope").unwrap(), None);
    store.set_setting("gone", Some("x")).unwrap();
    store.set_setting("gone", None).unwrap();
    assert_eq!(store.setting("gone").unwrap(), None);
}

/// What was agreed to in one act is stored in one act: an error undoes all of it.
#[test]
fn several_changes_are_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    store.insert_plugin(&plugin("demo")).unwrap();
    let error = store
        .write(|tx| {
            tx.record_approval(&approval("demo", "d1"))?;
            tx.set_enabled("demo", true)?;
            tx.set_grants("nope", &["x"])
        })
        .unwrap_err();
    assert!(matches!(error, StoreError::NotFound { .. }));
    assert_eq!(store.current_approval("demo").unwrap(), None);
    assert!(!store.plugin("demo").unwrap().unwrap().enabled);
}

/// A bug in one write ends neither the store nor another write.
#[test]
fn a_panicking_write_is_undone_and_contained() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let error = store
        .write(|tx| -> Result<(), StoreError> {
            tx.insert_plugin(&plugin("demo"))?;
            panic!("a bug");
        })
        .unwrap_err();
    assert_eq!(error.to_string(), "database operation failed: the write itself failed");
    assert_eq!(store.plugin("demo").unwrap(), None);
    store.insert_plugin(&plugin("demo")).unwrap();
}

/// Writes that are committed together do not share their failures.
#[test]
fn concurrent_writes_stand_for_themselves() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = store.clone();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let id = format!("p{thread}.{round}");
                    store.insert_plugin(&plugin(&id)).unwrap();
                    store.insert_plugin(&plugin(&id)).unwrap_err();
                    // A reader sees what was acknowledged to it.
                    assert!(store.plugin(&id).unwrap().is_some());
                    store.next_generation("shared").unwrap();
                }
            });
        }
    });
    assert_eq!(store.plugins().unwrap().len(), THREADS * ROUNDS);
    assert_eq!(store.next_generation("shared").unwrap(), (THREADS * ROUNDS) as u64 + 1);
    store.check().unwrap();
}
