//! Opening a home: who may read it, and what happens to one that is damaged, foreign or from the future.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::rows::{plugin, span};
use plugward_store::{SpanFilter, Store, StoreError};
use rusqlite::Connection;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Other users of the machine can read neither approvals nor traces.
#[test]
fn the_home_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("deep").join("home");
    let store = Store::open(&home).unwrap();
    store.insert_plugin(&plugin("demo")).unwrap();
    assert_eq!(mode(&home), 0o700);
    let files: Vec<_> = std::fs::read_dir(&home).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.iter().any(|file| file.ends_with("plugward.db-wal")), "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

/// A damaged database is reported with its path and is not touched: it may be all a person has left to restore from.
#[test]
fn a_damaged_database_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plugward.db");
    std::fs::write(&path, "this is no database, but long enough to be looked at ".repeat(100)).unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = Store::open(dir.path()).unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt { path: at, .. } if *at == path), "{error}");
    assert!(error.to_string().contains(&path.display().to_string()));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    // The failed attempt does not hold the home.
    assert!(matches!(Store::open(dir.path()).unwrap_err(), StoreError::Corrupt { .. }));
}

/// Half a database is not mistaken for a whole one.
#[test]
fn a_cut_off_database_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    store.insert_plugin(&plugin("demo")).unwrap();
    drop(store);
    let path = dir.path().join("plugward.db");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let damaged = Store::open(dir.path()).and_then(|store| store.check()).unwrap_err();
    assert!(matches!(damaged, StoreError::Corrupt { .. }), "{damaged}");
    // Positive control: the whole file is fine.
    std::fs::write(&path, whole).unwrap();
    Store::open(dir.path()).unwrap().check().unwrap();
}

/// After going back to an older version, the newer database is refused and stays usable by the newer version.
#[test]
fn a_newer_database_is_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path()).unwrap());
    let path = dir.path().join("plugward.db");
    let conn = Connection::open(&path).unwrap();
    conn.execute("INSERT INTO schema_migrations VALUES (99, 'future', 0)", []).unwrap();
    drop(conn);
    let before = std::fs::read(&path).unwrap();
    for opened in [Store::open(dir.path()), Store::open_read_only(dir.path())] {
        let error = opened.unwrap_err();
        assert!(matches!(error, StoreError::TooNew { found: 99, .. }), "{error}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

/// A home that cannot be made says which path and why.
#[test]
fn an_impossible_home_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    for path in [file.clone(), file.join("home")] {
        let error = Store::open(&path).unwrap_err();
        assert!(matches!(&error, StoreError::Io { path: at, .. } if *at == path), "{error}");
    }
}

/// Two stores on one home, also of one process, would be two writers.
#[test]
fn a_home_is_open_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let error = Store::open(dir.path()).unwrap_err();
    let own = std::process::id();
    assert!(matches!(error, StoreError::HomeInUse { pid: Some(pid) } if pid == own), "{error}");
    assert_eq!(error.to_string(), format!("home is in use by process {own}"));
    let clone = store.clone();
    drop(store);
    Store::open(dir.path()).unwrap_err();
    drop(clone);
    Store::open(dir.path()).unwrap();
}

/// `list` and `trace` work beside a running host, and can change nothing.
#[test]
fn reading_beside_the_holder() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Store::open_read_only(dir.path()).unwrap_err(), StoreError::NotFound { .. }));
    let store = Store::open(dir.path()).unwrap();
    let reader = Store::open_read_only(dir.path()).unwrap();
    store.insert_plugin(&plugin("demo")).unwrap();
    store.record_span(span(1));
    store.flush().unwrap();
    assert_eq!(reader.plugins().unwrap(), [plugin("demo")]);
    assert_eq!(reader.spans(&SpanFilter::default()).unwrap().spans.len(), 1);
    assert!(matches!(reader.set_enabled("demo", true).unwrap_err(), StoreError::ReadOnly));
    reader.record_span(span(2));
    reader.flush().unwrap();
    assert_eq!(reader.spans(&SpanFilter::default()).unwrap().spans.len(), 1);
    drop(store);
    // Also when nobody holds it.
    assert_eq!(Store::open_read_only(dir.path()).unwrap().plugins().unwrap().len(), 1);
}

/// One home used by root and an ordinary user in turn ends with files that one of them cannot open.
#[test]
fn a_home_of_somebody_else_is_refused_by_name() {
    use std::os::unix::fs::chown;
    const OTHER: u32 = 61_700;
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    drop(Store::open(&home).unwrap());
    if let Err(error) = chown(home.join("plugward.db"), Some(OTHER), None) {
        // Only root can give a file away, and only root could then write here.
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
        return;
    }
    let error = Store::open(&home).unwrap_err();
    assert!(matches!(error, StoreError::HomeForeign { owner: OTHER, user: 0, .. }), "{error}");
    assert!(error.to_string().contains("belongs to user 61700, and this plugward runs as user 0"), "{error}");
    let before = std::fs::metadata(&home).unwrap().modified().unwrap();
    let _refused = Store::open(&home).unwrap_err();
    assert_eq!(std::fs::metadata(&home).unwrap().modified().unwrap(), before, "nothing was made there");
    chown(home.join("plugward.db"), Some(0), None).unwrap();
    Store::open(&home).unwrap();
}
