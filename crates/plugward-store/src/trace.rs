//! The trace. Owns the rows of spans, their redaction, their order and how many are kept; refuses to make the recorder
//! of a span wait.

use std::borrow::Cow;

use rusqlite::types::{ToSql, Value};
use rusqlite::{Connection, Row, params_from_iter};

use crate::redact::Matcher;
use crate::{Span, SpanFilter, SpanPage, Store, StoreError};

/// One page of spans holds at most this many.
pub const SPAN_PAGE_MAX: usize = 500;
/// One trace is answered with at most this many spans, the earliest: more than any run makes, and a bound on the answer.
pub const TRACE_SPANS_MAX: usize = 5000;
/// Names are for reading: longer ones are cut.
const NAME_MAX_CHARS: usize = 256;
/// Codes are chosen by us: longer ones are a mistake and are cut.
pub(crate) const CODE_MAX_CHARS: usize = 64;
/// Spans above the number to keep are deleted this many at a time, so that not every batch has to delete.
const PRUNE_SLACK: u64 = 1000;

const COLUMNS: &str = "trace_id, span_id, parent_span_id, name, kind, plugin_id, tool, caller, started_at_us, \
                       duration_us, outcome, attributes_json, events_json";
const INSERT: &str = "INSERT OR IGNORE INTO spans \
    (trace_id, span_id, parent_span_id, name, kind, plugin_id, tool, caller, started_at_us, \
     duration_us, outcome, attributes_json, events_json) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";

impl Store {
    /// Records a span. Never waits: the span is queued, redacted and written within milliseconds, or, when the disk
    /// cannot keep up, dropped and counted by [`Store::dropped_spans`]. A span with the ids of one already recorded is
    /// ignored. In a store opened for reading nothing is recorded.
    pub fn record_span(&self, span: Span) {
        if let Ok(writer) = self.writer() {
            writer.queue().push_span(span, self.redactor().matcher());
        }
    }

    /// How many spans were lost since the store was opened.
    #[must_use]
    pub fn dropped_spans(&self) -> u64 {
        self.writer().map_or(0, |writer| writer.queue().dropped())
    }

    /// One page of the spans that match, newest first by the order of recording.
    ///
    /// # Errors
    /// Those of the database only.
    pub fn spans(&self, filter: &SpanFilter) -> Result<SpanPage, StoreError> {
        let limit = if filter.limit == 0 { SPAN_PAGE_MAX } else { filter.limit.min(SPAN_PAGE_MAX) };
        let mut conditions = String::new();
        let mut values: Vec<Value> = Vec::new();
        let mut condition = |sql: &str, value: Option<Value>| {
            if let Some(value) = value {
                values.push(value);
                conditions.push_str(&format!(" AND {sql} ?{}", values.len()));
            }
        };
        condition("plugin_id =", filter.plugin_id.clone().map(Value::from));
        condition("tool =", filter.tool.clone().map(Value::from));
        condition("outcome =", filter.outcome.clone().map(Value::from));
        condition("started_at_us >=", filter.since_us.map(Value::from));
        condition("seq <", filter.before.map(Value::from));
        // One more than asked for tells whether there is a further page.
        let sql = format!("SELECT {COLUMNS}, seq FROM spans WHERE 1{conditions} ORDER BY seq DESC LIMIT {}", limit + 1);
        self.read(|conn| {
            let mut query = conn.prepare_cached(&sql)?;
            let rows = query.query_map(params_from_iter(values), |row| Ok((span_row(row)?, row.get(13)?)))?;
            let mut rows: Vec<(Span, i64)> = rows.collect::<Result<_, _>>()?;
            let more = rows.len() > limit;
            rows.truncate(limit);
            let next_before = rows.last().filter(|_| more).map(|(_, seq)| *seq);
            Ok(SpanPage { spans: rows.into_iter().map(|(span, _)| span).collect(), next_before })
        })
    }

    /// Ids of traces that begin with these hexadecimal digits, at most `limit`.
    ///
    /// # Errors
    /// Those of the database only.
    pub fn traces_with(&self, digits: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        self.read(|conn| {
            // A range the index serves: no digit sorts behind `f`.
            let mut query = conn.prepare_cached(
                "SELECT DISTINCT trace_id FROM spans WHERE trace_id >= ?1 AND trace_id < ?1 || 'g' LIMIT ?2",
            )?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let rows =
                query.query_map(rusqlite::params![digits, limit], |row| row.get(0))?.collect::<Result<_, _>>()?;
            Ok(rows)
        })
    }

    /// The spans of one trace, earliest first; none for a trace that is not there.
    ///
    /// # Errors
    /// Those of the database only.
    pub fn trace(&self, trace_id: &str) -> Result<Vec<Span>, StoreError> {
        self.read(|conn| {
            let sql = format!(
                "SELECT {COLUMNS} FROM spans WHERE trace_id = ?1 ORDER BY started_at_us, seq LIMIT {TRACE_SPANS_MAX}"
            );
            let mut query = conn.prepare_cached(&sql)?;
            let rows = query.query_map([trace_id], span_row)?.collect::<Result<_, _>>()?;
            Ok(rows)
        })
    }
}

/// Writes one span, redacted: nothing of it reaches the database in another way.
pub(crate) fn insert(conn: &Connection, matcher: &Matcher, span: &Span) -> Result<(), rusqlite::Error> {
    let values: [&dyn ToSql; 13] = [
        &kept_id(matcher, &span.trace_id),
        &kept_id(matcher, &span.span_id),
        &span.parent_span_id.as_deref().map(|id| kept_id(matcher, id)),
        &matcher.redact_to(&span.name, NAME_MAX_CHARS),
        &matcher.redact_to(&span.kind, CODE_MAX_CHARS),
        &span.plugin_id,
        &span.tool.as_deref().map(|name| matcher.redact_to(name, NAME_MAX_CHARS)),
        &span.caller.as_deref().map(|name| matcher.redact_to(name, NAME_MAX_CHARS)),
        &span.started_at_us,
        &i64::try_from(span.duration_us).unwrap_or(i64::MAX),
        &matcher.redact_to(&span.outcome, CODE_MAX_CHARS),
        &matcher.redact_json(json_or(&span.attributes_json, "{}")),
        &matcher.redact_json(json_or(&span.events_json, "[]")),
    ];
    conn.prepare_cached(INSERT)?.execute(values)?;
    Ok(())
}

/// An id as it is kept. A random one may happen to contain a short secret; changing it would tear the trace apart, and
/// an id that has the right form was made by us or is a caller's `traceparent`.
fn kept_id<'t>(matcher: &Matcher, text: &'t str) -> Cow<'t, str> {
    if is_id(text) { Cow::Borrowed(text) } else { matcher.redact_to(text, CODE_MAX_CHARS) }
}

/// Deletes the oldest spans once there are noticeably more than `max`. Numbers are given without gaps, so the distance
/// between the first and the last is the count.
pub(crate) fn prune(conn: &Connection, max: u64) -> Result<(), rusqlite::Error> {
    let (first, last): (Option<i64>, Option<i64>) = conn
        .prepare_cached("SELECT (SELECT min(seq) FROM spans), (SELECT max(seq) FROM spans)")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (Some(first), Some(last)) = (first, last) else {
        return Ok(());
    };
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    let slack = i64::try_from(PRUNE_SLACK).unwrap_or_default().min(max / 10);
    if last - first >= max.saturating_add(slack) {
        conn.prepare_cached("DELETE FROM spans WHERE seq <= ?1")?.execute([last - max])?;
    }
    Ok(())
}

/// The text, or what an empty one stands for.
pub(crate) fn json_or<'t>(text: &'t str, empty: &'t str) -> &'t str {
    if text.trim().is_empty() { empty } else { text }
}

fn is_id(text: &str) -> bool {
    matches!(text.len(), 16 | 32) && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn span_row(row: &Row<'_>) -> Result<Span, rusqlite::Error> {
    Ok(Span {
        trace_id: row.get(0)?,
        span_id: row.get(1)?,
        parent_span_id: row.get(2)?,
        name: row.get(3)?,
        kind: row.get(4)?,
        plugin_id: row.get(5)?,
        tool: row.get(6)?,
        caller: row.get(7)?,
        started_at_us: row.get(8)?,
        duration_us: row.get::<_, i64>(9)?.unsigned_abs(),
        outcome: row.get(10)?,
        attributes_json: row.get(11)?,
        events_json: row.get(12)?,
    })
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
