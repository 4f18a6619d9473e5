//! Spans of the trace: what was called, decided, and came of it; never arguments or results.

use plugward_host::{Span, SpanPage};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::rfc3339_us;

/// One step of something that happened, most often one tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SpanBody {
    /// 32 hexadecimal digits shared by all spans of one trace.
    pub(crate) trace_id: String,
    /// 16 hexadecimal digits.
    pub(crate) span_id: String,
    /// The span this one is part of.
    pub(crate) parent_span_id: Option<String>,
    /// What was done.
    pub(crate) name: String,
    /// Code for the kind of step.
    pub(crate) kind: String,
    /// The plugin concerned.
    pub(crate) plugin_id: Option<String>,
    /// Internal id of the tool concerned.
    pub(crate) tool: Option<String>,
    /// Who asked for it.
    pub(crate) caller: Option<String>,
    /// When it began, RFC 3339.
    pub(crate) started_at: String,
    /// How long it took, in microseconds.
    pub(crate) duration_us: u64,
    /// How it ended: `ok`, `tool_error`, `timed_out`, ...
    pub(crate) outcome: String,
    /// Further facts.
    #[schema(value_type = Object)]
    pub(crate) attributes: Value,
    /// Points in time within the span.
    #[schema(value_type = Vec<Object>)]
    pub(crate) events: Value,
}

impl From<&Span> for SpanBody {
    fn from(span: &Span) -> Self {
        Self {
            trace_id: span.trace_id.clone(),
            span_id: span.span_id.clone(),
            parent_span_id: span.parent_span_id.clone(),
            name: span.name.clone(),
            kind: span.kind.clone(),
            plugin_id: span.plugin_id.clone(),
            tool: span.tool.clone(),
            caller: span.caller.clone(),
            started_at: rfc3339_us(span.started_at_us),
            duration_us: span.duration_us,
            outcome: span.outcome.clone(),
            attributes: serde_json::from_str(&span.attributes_json).unwrap_or_else(|_| serde_json::json!({})),
            events: serde_json::from_str(&span.events_json).unwrap_or_else(|_| serde_json::json!([])),
        }
    }
}

/// One page of spans, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SpanPageBody {
    /// The spans.
    pub(crate) spans: Vec<SpanBody>,
    /// Cursor for the page after this one; none when there is none.
    pub(crate) next_before: Option<i64>,
}

impl From<&SpanPage> for SpanPageBody {
    fn from(page: &SpanPage) -> Self {
        Self { spans: page.spans.iter().map(SpanBody::from).collect(), next_before: page.next_before }
    }
}
