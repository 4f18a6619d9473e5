//! Audit events: what a person did and what was done to a plugin. Owns their rows, their redaction and how many are
//! kept; refuses to lose an acknowledged one.

use rusqlite::Row;

use crate::redact::TEXT_MAX_CHARS;
use crate::trace::{CODE_MAX_CHARS, json_or};
use crate::{EventRow, Store, StoreError, WriteTransaction};

/// The oldest events go when there are more than this: years of acts of people, or days of a plugin that crashes in a
/// loop.
const EVENTS_KEPT_MAX: i64 = 100_000;
/// One question for events is answered with at most this many.
pub const EVENT_PAGE_MAX: usize = 500;

impl Store {
    /// The newest events, newest first, of one plugin or of all. A `limit` of 0 or above [`EVENT_PAGE_MAX`] stands for
    /// that number.
    ///
    /// # Errors
    /// Those of the database only.
    pub fn events(&self, plugin_id: Option<&str>, limit: usize) -> Result<Vec<EventRow>, StoreError> {
        let limit = if limit == 0 { EVENT_PAGE_MAX } else { limit.min(EVENT_PAGE_MAX) };
        self.read(|conn| {
            let condition = if plugin_id.is_some() { "plugin_id = ?1" } else { "?1 IS NULL" };
            let sql = format!(
                "SELECT at_us, plugin_id, kind, message, detail_json FROM events WHERE {condition} \
                 ORDER BY seq DESC LIMIT {limit}"
            );
            let mut query = conn.prepare_cached(&sql)?;
            let rows = query.query_map([plugin_id], event_row)?.collect::<Result<_, _>>()?;
            Ok(rows)
        })
    }

    /// See [`WriteTransaction::record_event`].
    ///
    /// # Errors
    /// Those of [`Store::write`].
    pub fn record_event(&self, event: &EventRow) -> Result<(), StoreError> {
        let event = event.clone();
        self.write(move |tx| tx.record_event(&event))
    }
}

impl WriteTransaction<'_> {
    /// Adds an event, redacted. Unlike a span it is on the disk when the write returns.
    ///
    /// # Errors
    /// Those of the database only.
    pub fn record_event(&self, event: &EventRow) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "INSERT INTO events (at_us, plugin_id, kind, message, detail_json) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute((
                event.at_us,
                &event.plugin_id,
                self.matcher.redact_to(&event.kind, CODE_MAX_CHARS),
                self.matcher.redact_to(&event.message, TEXT_MAX_CHARS),
                self.matcher.redact_json(json_or(&event.detail_json, "{}")),
            ))?;
        let oldest_kept = self.conn.last_insert_rowid() - EVENTS_KEPT_MAX;
        self.conn.prepare_cached("DELETE FROM events WHERE seq <= ?1")?.execute([oldest_kept])?;
        Ok(())
    }
}

fn event_row(row: &Row<'_>) -> Result<EventRow, rusqlite::Error> {
    Ok(EventRow {
        at_us: row.get(0)?,
        plugin_id: row.get(1)?,
        kind: row.get(2)?,
        message: row.get(3)?,
        detail_json: row.get(4)?,
    })
}
