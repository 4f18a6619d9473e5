//! No byte of a secret reaches the disk through the trace, an audit event or an error message.

use std::path::Path;

use crate::rows::{plugin, span};
use plugward_store::{EventRow, Span, Store};

const SECRET: &str = "s3cr3t-DEMO-7f3a";

fn record_with_secret_everywhere(store: &Store) {
    store.insert_plugin(&plugin("demo")).unwrap();
    let json = format!(r#"{{"a":"{SECRET}","{SECRET}":[1,"x{SECRET}y"],"b":"{{\"c\":\"{SECRET}\"}}"}}"#);
    store.record_span(Span {
        name: format!("call {SECRET}"),
        kind: SECRET.to_owned(),
        tool: Some(SECRET.to_owned()),
        caller: Some(format!("me {SECRET}")),
        outcome: SECRET.to_owned(),
        parent_span_id: Some(SECRET.to_owned()),
        attributes_json: json.clone(),
        events_json: format!("cut off: {json}}}"),
        ..span(1)
    });
    store.flush().unwrap();
    store
        .record_event(&EventRow {
            at_us: 1,
            plugin_id: Some("demo".into()),
            kind: SECRET.to_owned(),
            message: format!("bad key {SECRET}"),
            detail_json: json,
        })
        .unwrap();
    store.set_last_error("demo", Some(&format!("stderr: {SECRET}"))).unwrap();
}

fn occurrences(dir: &Path) -> usize {
    let files = std::fs::read_dir(dir).unwrap();
    let contents = files.map(|file| std::fs::read(file.unwrap().path()).unwrap());
    contents.map(|bytes| bytes.windows(SECRET.len()).filter(|w| *w == SECRET.as_bytes()).count()).sum()
}

// Requirements 21 and 80, case B020: whoever copies the home directory learns no key from the trace.
#[test]
fn a_known_secret_is_in_no_byte_of_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    store.redactor().set_secrets("demo", &[SECRET.to_owned()]);
    record_with_secret_everywhere(&store);
    assert_eq!(occurrences(dir.path()), 0, "with the write-ahead log beside it");
    assert_eq!(store.events(None, 1).unwrap()[0].message, "bad key ***");
    assert_eq!(store.plugin("demo").unwrap().unwrap().last_error.as_deref(), Some("stderr: ***"));
    assert_eq!(store.trace(&span(1).trace_id).unwrap()[0].name, "call ***");
    drop(store);
    assert_eq!(occurrences(dir.path()), 0, "after closing");

    // Positive control: the same records, without knowing the secret, put it on the disk.
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    record_with_secret_everywhere(&store);
    assert!(occurrences(dir.path()) >= 8);
}

/// A plugin that is stopped takes its secrets along, but not those of a call it still answered.
#[test]
fn what_was_secret_when_recorded_is_redacted() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    for number in 0..50 {
        store.redactor().set_secrets("demo", &[SECRET.to_owned()]);
        store.record_span(Span { name: SECRET.to_owned(), ..span(number) });
        store.redactor().clear("demo");
    }
    store.flush().unwrap();
    assert_eq!(occurrences(dir.path()), 0);
}
