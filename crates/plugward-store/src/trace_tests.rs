//! Tests of the trace that need to hold the writer or to lower a limit.

use rusqlite::Connection;

use crate::{Span, SpanFilter, Store, StoreError, home};

fn span(number: usize) -> Span {
    Span {
        trace_id: format!("{number:032x}"),
        span_id: format!("{number:016x}"),
        name: "tools/call".to_owned(),
        kind: "call".to_owned(),
        outcome: "ok".to_owned(),
        started_at_us: i64::try_from(number).unwrap(),
        ..Span::default()
    }
}

fn count(store: &Store) -> usize {
    let mut filter = SpanFilter::default();
    let mut total = 0;
    loop {
        let page = store.spans(&filter).unwrap();
        total += page.spans.len();
        match page.next_before {
            Some(before) => filter.before = Some(before),
            None => return total,
        }
    }
}

/// Holds the database's write lock, as a stalled disk would.
fn stall(dir: &tempfile::TempDir) -> Connection {
    let conn = Connection::open(dir.path().join(home::DATABASE_FILE)).unwrap();
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    conn
}

/// A disk that stalls costs trace, never a call: recording returns at once, and what was lost is counted.
#[test]
fn a_stalled_disk_drops_and_counts_but_never_blocks() {
    const TOTAL: usize = 10_000;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let stalled = stall(&dir);
    for number in 0..TOTAL {
        store.record_span(span(number));
    }
    // Every call above returned while nothing could be written.
    assert_eq!(count(&store), 0);
    let dropped = store.dropped_spans();
    assert!(dropped > 0 && dropped < TOTAL as u64, "{dropped}");

    stalled.execute_batch("ROLLBACK").unwrap();
    store.flush().unwrap();
    assert_eq!(store.dropped_spans(), dropped);
    assert_eq!(count(&store) as u64, TOTAL as u64 - dropped);
}

/// Large records are bounded by size, not by number: the queue cannot take the host's memory.
#[test]
fn large_spans_are_bounded_by_size() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let stalled = stall(&dir);
    for number in 0..40 {
        store.record_span(Span { attributes_json: format!("\"{}\"", "x".repeat(1 << 20)), ..span(number) });
    }
    // At most 15 are queued, and at most as many were taken by the writer before it stalled.
    assert!(store.dropped_spans() >= 10, "{}", store.dropped_spans());
    stalled.execute_batch("ROLLBACK").unwrap();
    store.flush().unwrap();
    assert_eq!(count(&store) as u64, 40 - store.dropped_spans());
}

/// The trace of a host that runs for months stays the size it was after a week.
#[test]
fn the_oldest_spans_go_when_there_are_too_many() {
    const KEPT: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_keeping(dir.path(), KEPT as u64).unwrap();
    for number in 0..2000 {
        store.record_span(span(number));
    }
    store.flush().unwrap();
    let left = count(&store);
    assert!((KEPT..=KEPT + KEPT / 10).contains(&left), "{left}");
    let newest = store.spans(&SpanFilter { limit: 1, ..SpanFilter::default() }).unwrap();
    assert_eq!(newest.spans, [Span { attributes_json: "{}".into(), events_json: "[]".into(), ..span(1999) }]);
}

/// A stream of new spans does not put off the answer to a flush.
#[test]
fn a_flush_is_answered_while_others_record() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                store.record_span(span(number));
                number += 1;
            }
        });
        for _ in 0..5 {
            store.flush().unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Invariant 10: an approval is synced before it is acknowledged; a span costs no sync of its own.
#[test]
fn a_write_runs_with_full_sync() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let level = |conn: &Connection| conn.pragma_query_value(None, "synchronous", |row| row.get::<_, i64>(0)).unwrap();
    let mode: String = store.read(|conn| Ok(conn.pragma_query_value(None, "journal_mode", |row| row.get(0))?)).unwrap();
    assert_eq!(mode, "wal");
    const FULL: i64 = 2;
    assert_eq!(store.write(move |tx| Ok(level(tx.conn))).unwrap(), FULL);
    // The second write would show a level left behind by the first.
    assert_eq!(store.write(move |tx| Ok(level(tx.conn))).unwrap(), FULL);
}

/// A full disk is called that, costs the write that hit it, and nothing else: once there is room, all goes on.
#[test]
fn a_full_disk_is_told_and_survived() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let pages_max = |pages: i64| {
        let set = move |conn: &Connection| conn.pragma_update(None, "max_page_count", pages);
        store.write(move |tx| Ok(set(tx.conn)?)).unwrap();
    };
    store.set_setting("kept", Some("yes")).unwrap();
    pages_max(1);
    let large = "x".repeat(1 << 20);
    let error = store.set_setting("large", Some(&large)).unwrap_err();
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    for number in 0..10 {
        store.record_span(Span { attributes_json: format!("[{}\"\"]", "\"0123456789\",".repeat(90)), ..span(number) });
    }
    store.flush().unwrap();
    assert_eq!(count(&store) as u64 + store.dropped_spans(), 10);
    assert!(store.dropped_spans() > 0);

    pages_max(1 << 20);
    store.set_setting("large", Some(&large)).unwrap();
    assert_eq!(store.setting("kept").unwrap().as_deref(), Some("yes"));
    store.check().unwrap();
}
