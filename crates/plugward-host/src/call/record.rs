//! The span of one call: decision, stages, sizes and outcome, never arguments or results.
//!
//! Owns what a trace says about a call (requirement 132; names follow the OpenTelemetry conventions for MCP). The
//! store redacts once more at its door. Refuses payloads: a trace must be safe to show to anyone who may see names.

use std::time::{Duration, Instant, SystemTime};

use plugward_policy::{Decision, ToolId};
use plugward_store::{Span, Store};
use serde_json::{Map, Value, json};

use super::{CallReport, CallRequest, ToolReply, ToolSelector, epoch_us};
use crate::error::CallFailure;
use crate::ids::{parse_traceparent, random_hex};
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
    attributes: Map<String, Value>,
    events: Vec<Value>,
}

impl SpanDraft {
    pub(super) fn start(request: &CallRequest) -> Self {
        let parent = request
            .meta
            .as_deref()
            .and_then(RawObject::parse)
            .and_then(|meta| meta.get_str("traceparent"))
            .and_then(|text| parse_traceparent(&text));
        let (trace_id, parent_span_id) = match parent {
            Some((trace, span)) => (trace, Some(span)),
            None => (random_hex::<16>(), None),
        };
        let name = match &request.tool {
            ToolSelector::Id(name) | ToolSelector::Exposed(name) => name.chars().take(128).collect::<String>(),
        };
        let mut attributes = Map::new();
        attributes.insert("mcp.method.name".to_owned(), json!("tools/call"));
        attributes.insert("gen_ai.operation.name".to_owned(), json!("execute_tool"));
        attributes.insert("gen_ai.tool.name".to_owned(), json!(name));
        let size = request.arguments.as_ref().map_or(0, |raw| raw.get().len());
        attributes.insert("plugward.arguments.bytes".to_owned(), json!(size));
        let span = Span {
            trace_id,
            span_id: random_hex::<8>(),
            parent_span_id,
            name: format!("tools/call {name}"),
            kind: "client".to_owned(),
            plugin_id: None,
            tool: None,
            caller: Some(request.caller.clone()),
            started_at_us: epoch_us(SystemTime::now()),
            duration_us: 0,
            outcome: String::new(),
            attributes_json: String::new(),
            events_json: String::new(),
        };
        Self { started: Instant::now(), span, attributes, events: Vec::new() }
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
        self.attributes.insert("network.transport".to_owned(), json!("pipe"));
        self.attributes.insert("plugward.tool.exposed_name".to_owned(), json!(tool.exposed_name));
        self.stage("resolve");
    }

    pub(super) fn stage(&mut self, stage: &str) {
        let at_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.events.push(json!({ "stage": stage, "at_us": at_us }));
    }

    pub(super) fn decision(&mut self, decision: &Decision) {
        self.attributes.insert("plugward.decision".to_owned(), json!(decision.verdict.as_str()));
        self.attributes.insert("plugward.decision.reason".to_owned(), json!(super::explain(decision)));
    }

    /// The finished span; the draft is empty afterwards.
    fn finish(&mut self, report: &CallReport) -> Span {
        let outcome = match &report.outcome {
            Ok(reply) => {
                self.attributes.insert("plugward.result.bytes".to_owned(), json!(reply.result.get().len()));
                if !reply.warnings.is_empty() {
                    self.attributes.insert("plugward.result.warnings".to_owned(), json!(reply.warnings));
                }
                if reply.is_error {
                    self.attributes.insert("error.type".to_owned(), json!("tool_error"));
                    "tool_error"
                } else {
                    "ok"
                }
            }
            Err(failure) => {
                let tool = self.span.tool.clone().unwrap_or_default();
                self.attributes.insert("error.type".to_owned(), json!(failure.code().as_str()));
                // What the plugin wrote into its error stays out of the trace, like its results.
                if !matches!(failure, CallFailure::Rejected(_)) {
                    self.attributes.insert("error.message".to_owned(), json!(failure.message(&tool)));
                }
                failure.cause()
            }
        };
        outcome.clone_into(&mut self.span.outcome);
        self.span.duration_us = u64::try_from(report.duration.as_micros()).unwrap_or(u64::MAX);
        self.span.attributes_json = Value::Object(std::mem::take(&mut self.attributes)).to_string();
        self.span.events_json = Value::Array(std::mem::take(&mut self.events)).to_string();
        std::mem::take(&mut self.span)
    }
}
