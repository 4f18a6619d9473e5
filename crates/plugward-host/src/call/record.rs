//! The span of one call: decision, stages, sizes and outcome, never arguments or results.
//!
//! Owns what a trace says about a call (requirement 132; names follow the OpenTelemetry conventions for MCP). The
//! store redacts once more at its door. Refuses payloads: a trace must be safe to show to anyone who may see names.

use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime};

use plugward_policy::{Decision, ToolId};
use plugward_store::{Span, Store};
use serde::Serialize;

use super::{CallReport, CallRequest, ToolReply, ToolSelector, epoch_us};
use crate::error::CallFailure;
use crate::ids::{new_trace, parse_traceparent};
use crate::raw_object::RawObject;
use crate::registry::RegisteredTool;

/// The record of one call: written when the call ends, and also when its caller goes away before that.
pub(super) struct Recording<'a> {
    store: &'a Store,
    pub(super) tool: Option<ToolId>,
    pub(super) span: SpanDraft,
    is_over: bool,
}

impl<'a> Recording<'a> {
    pub(super) fn start(store: &'a Store, request: &CallRequest, tool: Option<ToolId>) -> Self {
        Self { store, tool, span: SpanDraft::start(request), is_over: false }
    }

    /// Writes the record and gives the report.
    pub(super) fn end(mut self, outcome: Result<ToolReply, CallFailure>) -> CallReport {
        self.write(outcome)
    }

    fn write(&mut self, outcome: Result<ToolReply, CallFailure>) -> CallReport {
        self.is_over = true;
        let (trace_id, duration) = (self.span.trace_id().to_owned(), self.span.elapsed());
        let report = CallReport { trace_id, tool: self.tool.take(), duration, outcome };
        self.store.record_span(self.span.finish(&report));
        report
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // What may have happened at the plugin must be found in the trace, even if nobody waited for it.
            self.write(Err(CallFailure::Cancelled));
        }
    }
}

/// A span under way.
pub(super) struct SpanDraft {
    started: Instant,
    span: Span,
    attributes: Attributes,
    /// Array of stages, without its end.
    events: String,
}

/// What the attributes and events of an ordinary call take, so that their texts are allocated once.
const TEXT_BYTES: usize = 512;

/// An object of attributes as text, without its end: spans are written for every call and read rarely.
struct Attributes(String);

impl Attributes {
    fn new() -> Self {
        let mut text = String::with_capacity(TEXT_BYTES);
        text.push('{');
        Self(text)
    }

    /// Adds an attribute; each key stands once, and needs no escapes.
    fn add<V: Serialize + ?Sized>(&mut self, key: &'static str, value: &V) {
        // Text, numbers and lists of text always have JSON.
        let Ok(value) = serde_json::to_string(value) else { return };
        let separator = if self.0.len() > 1 { "," } else { "" };
        for part in [separator, "\"", key, "\":", &value] {
            self.0.push_str(part);
        }
    }

    fn finish(self) -> String {
        let mut text = self.0;
        text.push('}');
        text
    }
}

impl SpanDraft {
    pub(super) fn start(request: &CallRequest) -> Self {
        let parent = request
            .meta
            .as_deref()
            .and_then(RawObject::parse)
            .and_then(|meta| meta.get_str("traceparent"))
            .and_then(|text| parse_traceparent(&text));
        let now = SystemTime::now();
        let (new_trace, span_id) = new_trace(now);
        let (trace_id, parent_span_id) = match parent {
            Some((trace, span)) => (trace, Some(span)),
            None => (new_trace, None),
        };
        let name = match &request.tool {
            ToolSelector::Id(name) | ToolSelector::Exposed(name) => name.chars().take(128).collect::<String>(),
        };
        let mut attributes = Attributes::new();
        attributes.add("mcp.method.name", "tools/call");
        attributes.add("gen_ai.operation.name", "execute_tool");
        attributes.add("gen_ai.tool.name", &name);
        let size = request.arguments.as_ref().map_or(0, |raw| raw.get().len());
        attributes.add("plugward.arguments.bytes", &size);
        let span = Span {
            trace_id,
            span_id,
            parent_span_id,
            name: format!("tools/call {name}"),
            kind: "client".to_owned(),
            plugin_id: None,
            tool: None,
            caller: Some(request.caller.clone()),
            started_at_us: epoch_us(now),
            duration_us: 0,
            outcome: String::new(),
            attributes_json: String::new(),
            events_json: String::new(),
        };
        let mut events = String::with_capacity(TEXT_BYTES);
        events.push('[');
        Self { started: Instant::now(), span, attributes, events }
    }

    fn trace_id(&self) -> &str {
        &self.span.trace_id
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn tool(&mut self, tool: &RegisteredTool) {
        self.span.plugin_id = Some(tool.route.plugin.to_string());
        self.span.tool = Some(tool.id.to_string());
        self.attributes.add("network.transport", "pipe");
        self.attributes.add("plugward.tool.exposed_name", &tool.exposed_name);
        self.stage("resolve");
    }

    /// Notes that a stage is over; its name needs no escapes.
    pub(super) fn stage(&mut self, stage: &'static str) {
        let at_us = self.started.elapsed().as_micros();
        let separator = if self.events.len() > 1 { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(self.events, r#"{separator}{{"stage":"{stage}","at_us":{at_us}}}"#);
    }

    pub(super) fn decision(&mut self, decision: &Decision) {
        self.attributes.add("plugward.decision", decision.verdict.as_str());
        self.attributes.add("plugward.decision.reason", &super::explain(decision));
    }

    /// The finished span; the draft is empty afterwards.
    fn finish(&mut self, report: &CallReport) -> Span {
        let mut attributes = std::mem::replace(&mut self.attributes, Attributes(String::new()));
        let outcome = match &report.outcome {
            Ok(reply) => {
                attributes.add("plugward.result.bytes", &reply.result.get().len());
                if !reply.warnings.is_empty() {
                    attributes.add("plugward.result.warnings", &reply.warnings);
                }
                if reply.is_error {
                    attributes.add("error.type", "tool_error");
                    "tool_error"
                } else {
                    "ok"
                }
            }
            Err(failure) => {
                let tool = self.span.tool.clone().unwrap_or_default();
                attributes.add("error.type", failure.code().as_str());
                // What the plugin wrote into its error stays out of the trace, like its results.
                if !matches!(failure, CallFailure::Rejected(_)) {
                    attributes.add("error.message", &failure.message(&tool));
                }
                failure.cause()
            }
        };
        outcome.clone_into(&mut self.span.outcome);
        self.span.duration_us = u64::try_from(report.duration.as_micros()).unwrap_or(u64::MAX);
        self.span.attributes_json = attributes.finish();
        self.events.push(']');
        self.span.events_json = std::mem::take(&mut self.events);
        std::mem::take(&mut self.span)
    }
}
