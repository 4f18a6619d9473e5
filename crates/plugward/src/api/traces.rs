//! Traces: what was called and what came of it; never arguments or results.

use axum::Json;
use axum::extract::State;
use plugward_host::{Host, SpanFilter};
use serde::Serialize;
use utoipa::ToSchema;

use super::errors::ApiError;
use super::payload::{Fields, Id, Parameters};
use crate::wire::{ErrorBody, SpanBody};

/// Spans of a page, unless asked otherwise.
const PAGE_DEFAULT: u64 = 100;

/// Most spans of a page (the seed's limit).
const PAGE_MAX: u64 = 500;

/// Characters of a filter's value.
const MAX_FILTER_CHARS: usize = 512;

/// A page of spans, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SpanList {
    /// The spans.
    items: Vec<SpanBody>,
    /// The `before` that leads to the next page; none on the last.
    next_before: Option<i64>,
    /// Whether there is a next page.
    has_more: bool,
}

/// One trace, oldest span first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Trace {
    /// Its id.
    trace_id: String,
    /// Its spans.
    items: Vec<SpanBody>,
}

/// Lists spans, newest first.
#[utoipa::path(get, path = "/api/traces", tag = "traces", operation_id = "list_spans",
    params(
        ("plugin_id" = Option<String>, Query, description = "Only spans of this plugin"),
        ("tool" = Option<String>, Query, description = "Only spans of this tool, by internal id"),
        ("outcome" = Option<String>, Query, description = "Only spans that ended so: `ok`, `tool_error`, ..."),
        ("since" = Option<String>, Query, description = "Only spans that began then or later, RFC 3339 in UTC"),
        ("limit" = Option<u64>, Query, description = "Spans of a page, 1 to 500; 100 if not given"),
        ("before" = Option<u64>, Query, description = "`next_before` of the page before")),
    responses(
        (status = 200, description = "A page of spans", body = SpanList),
        (status = 422, description = "VALIDATION_ERROR", body = ErrorBody)))]
pub(super) async fn list(
    State(host): State<Host>,
    Parameters(mut query): Parameters,
) -> Result<Json<SpanList>, ApiError> {
    let filter = read_filter(&mut query);
    let page = host.spans(query.finish(filter)?).await?;
    Ok(Json(SpanList {
        items: page.spans.iter().map(SpanBody::from).collect(),
        next_before: page.next_before,
        has_more: page.next_before.is_some(),
    }))
}

/// Shows one trace.
#[utoipa::path(get, path = "/api/traces/{trace_id}", tag = "traces", operation_id = "show_trace",
    params(("trace_id" = String, Path, description = "32 hexadecimal digits")),
    responses(
        (status = 200, description = "The trace", body = Trace),
        (status = 404, description = "RESOURCE_NOT_FOUND", body = ErrorBody)))]
pub(super) async fn show(State(host): State<Host>, Id(id): Id) -> Result<Json<Trace>, ApiError> {
    let spans = host.trace(&id).await?;
    if spans.is_empty() {
        return Err(ApiError::not_found("this trace"));
    }
    Ok(Json(Trace { trace_id: id, items: spans.iter().map(SpanBody::from).collect() }))
}

fn read_filter(query: &mut Fields) -> Option<SpanFilter> {
    let plugin_id = query.optional_text("plugin_id", MAX_FILTER_CHARS);
    let tool = query.optional_text("tool", MAX_FILTER_CHARS);
    let outcome = query.optional_text("outcome", MAX_FILTER_CHARS);
    let since = query.optional_text("since", MAX_FILTER_CHARS);
    let limit = query.optional_number("limit", 1..=PAGE_MAX);
    let before = query.optional_number("before", 0..=i64::MAX.unsigned_abs());
    let since_us = match since? {
        None => None,
        Some(text) => Some(epoch_us(&text).or_else(|| {
            query.note("datetime_type", &["since"], "text is not a time such as 2026-08-01T12:00:00Z");
            None
        })?),
    };
    Some(SpanFilter {
        plugin_id: plugin_id?,
        tool: tool?,
        outcome: outcome?,
        since_us,
        limit: usize::try_from(limit?.unwrap_or(PAGE_DEFAULT)).unwrap_or_default(),
        before: before?.and_then(|number| i64::try_from(number).ok()),
    })
}

fn epoch_us(text: &str) -> Option<i64> {
    let time = humantime::parse_rfc3339(text).ok()?;
    let since = time.duration_since(std::time::SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_micros()).ok()
}
