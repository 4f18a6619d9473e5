//! Bringing a database to the format this binary knows. Owns the numbered migrations and the table that records them;
//! refuses a database of a newer Plugward and one that is not ours, before changing either.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use crate::StoreError;

/// One step of the format. A published step is never edited: a change is a further step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    name: &'static str,
    sql: &'static str,
}

/// Step `n` is the `n`th entry, counted from 1.
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration { name: "initial", sql: include_str!("../migrations/0001_initial.sql") },
    Migration { name: "trace", sql: include_str!("../migrations/0002_trace.sql") },
];

const CREATE_HISTORY: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    version       INTEGER NOT NULL PRIMARY KEY,
    name          TEXT    NOT NULL,
    applied_at_us INTEGER NOT NULL
) STRICT";

/// The newest format of `migrations`.
pub(crate) fn known(migrations: &[Migration]) -> u32 {
    u32::try_from(migrations.len()).unwrap_or(u32::MAX)
}

/// Applies the steps that are missing, each in a transaction of its own, so that a crash leaves a whole format behind.
pub(crate) fn migrate(conn: &mut Connection, migrations: &[Migration], path: &Path) -> Result<(), StoreError> {
    let found = found(conn, migrations, path)?;
    for (version, migration) in (1u32..).zip(migrations).skip(found as usize) {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.execute_batch(CREATE_HISTORY)?;
        tx.execute_batch(migration.sql)?;
        tx.execute(
            "INSERT INTO schema_migrations (version, name, applied_at_us) \
             VALUES (?1, ?2, CAST(unixepoch('subsec') * 1000000 AS INTEGER))",
            (version, migration.name),
        )?;
        tx.commit()?;
    }
    Ok(())
}

/// The format of the database: 0 for an empty one.
///
/// # Errors
/// [`StoreError::TooNew`], and [`StoreError::Corrupt`] for a database with tables of another program or another history.
pub(crate) fn found(conn: &Connection, migrations: &[Migration], path: &Path) -> Result<u32, StoreError> {
    let corrupt = |detail: &str| StoreError::Corrupt { path: path.to_owned(), detail: detail.to_owned() };
    let tables: u32 = conn.query_row("SELECT count(*) FROM sqlite_schema WHERE type = 'table'", [], |r| r.get(0))?;
    if tables == 0 {
        return Ok(0);
    }
    if !conn.table_exists(None, "schema_migrations")? {
        return Err(corrupt("it holds tables of another program"));
    }
    let newest: Option<u32> = conn.query_row("SELECT max(version) FROM schema_migrations", [], |r| r.get(0))?;
    let newest = newest.ok_or_else(|| corrupt("its list of migrations is empty"))?;
    let known = known(migrations);
    if newest > known {
        return Err(StoreError::TooNew { found: newest, known });
    }
    for (version, migration) in (1..=newest).zip(migrations) {
        let name: Option<String> = conn
            .query_row("SELECT name FROM schema_migrations WHERE version = ?1", [version], |r| r.get(0))
            .optional()?;
        if name.as_deref() != Some(migration.name) {
            return Err(corrupt("its list of migrations is not one of plugward"));
        }
    }
    Ok(newest)
}

#[cfg(test)]
#[path = "migrate_tests.rs"]
mod tests;
