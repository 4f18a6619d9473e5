//! Tests of the migrations on databases of every age.

use super::*;

fn database(dir: &tempfile::TempDir) -> (Connection, std::path::PathBuf) {
    let path = dir.path().join("test.db");
    (Connection::open(&path).unwrap(), path)
}

fn schema(conn: &Connection) -> Vec<(String, String)> {
    let mut query = conn.prepare("SELECT name, coalesce(sql, '') FROM sqlite_schema ORDER BY name").unwrap();
    let rows = query.query_map([], |r| Ok((r.get(0)?, r.get(1)?))).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

/// A user who updates keeps what an older version recorded, whichever version that was.
#[test]
fn every_older_format_is_brought_up_to_date() {
    let fresh = tempfile::tempdir().unwrap();
    let (mut newest, path) = database(&fresh);
    migrate(&mut newest, MIGRATIONS, &path).unwrap();

    for age in 0..=MIGRATIONS.len() {
        let dir = tempfile::tempdir().unwrap();
        let (mut conn, path) = database(&dir);
        migrate(&mut conn, &MIGRATIONS[..age], &path).unwrap();
        if age >= 1 {
            conn.execute("INSERT INTO settings (key, value) VALUES ('kept', 'yes')", []).unwrap();
        }
        migrate(&mut conn, MIGRATIONS, &path).unwrap();

        assert_eq!(found(&conn, MIGRATIONS, &path).unwrap(), known(MIGRATIONS), "from format {age}");
        assert_eq!(schema(&conn), schema(&newest), "from format {age}");
        let kept: u32 = conn.query_row("SELECT count(*) FROM settings", [], |r| r.get(0)).unwrap();
        assert_eq!(kept, u32::from(age >= 1), "from format {age}");
    }
}

/// A step that fails half-way leaves the database as the step before left it, usable by the older version.
#[test]
fn a_failing_step_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut conn, path) = database(&dir);
    migrate(&mut conn, MIGRATIONS, &path).unwrap();
    let before = schema(&conn);

    let broken = Migration { name: "broken", sql: "CREATE TABLE half (id INTEGER); CREATE TABLE half (id INTEGER);" };
    let steps: Vec<Migration> = MIGRATIONS.iter().copied().chain([broken]).collect();
    migrate(&mut conn, &steps, &path).unwrap_err();

    assert_eq!(schema(&conn), before);
    assert_eq!(found(&conn, MIGRATIONS, &path).unwrap(), known(MIGRATIONS));
}

/// Going back to an older binary must not damage what the newer one wrote.
#[test]
fn a_newer_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (mut conn, path) = database(&dir);
    let future = Migration { name: "future", sql: "CREATE TABLE future (id INTEGER) STRICT;" };
    let steps: Vec<Migration> = MIGRATIONS.iter().copied().chain([future]).collect();
    migrate(&mut conn, &steps, &path).unwrap();

    let known = known(MIGRATIONS);
    let error = migrate(&mut conn, MIGRATIONS, &path).unwrap_err();
    assert!(matches!(error, StoreError::TooNew { found, known: k } if found == known + 1 && k == known), "{error}");
}

/// A file of another program that has our name is not written to.
#[test]
fn a_foreign_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (mut conn, path) = database(&dir);
    conn.execute_batch("CREATE TABLE theirs (id INTEGER)").unwrap();
    let error = migrate(&mut conn, MIGRATIONS, &path).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    assert_eq!(schema(&conn).len(), 1);
}

/// A database whose history differs from ours at the same number is not guessed about.
#[test]
fn another_history_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (mut conn, path) = database(&dir);
    let other = Migration { name: "other", sql: "CREATE TABLE other (id INTEGER) STRICT;" };
    migrate(&mut conn, &[other], &path).unwrap();
    let error = migrate(&mut conn, MIGRATIONS, &path).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
}
