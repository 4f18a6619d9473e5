//! The spans of requests for prompts, resources and completions.
//!
//! Owns what a trace says about them: what was asked for, of which plugin, by whom, how long it took and what came of it.
//! Refuses what was filled in and what came back: a trace must be safe to show to anyone who may see names.

use std::time::{Instant, SystemTime};

use plugward_store::Span;
use serde_json::json;
use serde_json::value::RawValue;

use super::OfferError;
use super::forward::{OfferRequest, Target, target};
use crate::call::epoch_us;
use crate::host::Host;
use crate::ids::{new_trace, parse_traceparent};
use crate::raw_object::RawObject;

/// Characters of a name or URI that a span keeps.
const NAME_CHARS_MAX: usize = 128;

/// A request that ends unrecorded only by being recorded as given up.
struct Recording<'a> {
    host: &'a Host,
    caller: &'a str,
    request: OfferRequest,
    params: Option<RawObject>,
    begun: (Instant, SystemTime),
    is_over: bool,
}

impl Host {
    /// Runs `work`, a request of `caller` with these parameters, and records it.
    pub async fn traced_offer(
        &self,
        caller: &str,
        request: OfferRequest,
        params: Option<&RawValue>,
        work: impl Future<Output = Result<Box<RawValue>, OfferError>>,
    ) -> Result<Box<RawValue>, OfferError> {
        let params = params.and_then(RawObject::parse);
        let begun = (Instant::now(), SystemTime::now());
        let mut recording = Recording { host: self, caller, request, params, begun, is_over: false };
        let outcome = work.await;
        recording.is_over = true;
        recording.write(&match &outcome {
            Ok(result) => ("ok", json!({ "plugward.result.bytes": result.get().len() })),
            Err(OfferError::NotFound) => ("not_found", json!({ "error.type": "not_found" })),
            Err(OfferError::Invalid(reason)) => {
                ("invalid", json!({ "error.type": "invalid_params", "error.message": reason }))
            }
            // What the plugin wrote into its error stays out, like its results.
            Err(OfferError::Rejected(error)) => ("rejected", json!({ "error.type": error.code.to_string() })),
            Err(OfferError::Failed(reason)) => {
                ("unavailable", json!({ "error.type": "unavailable", "error.message": reason }))
            }
        });
        outcome
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // What may have happened at the plugin must be found in the trace, even if nobody waited for it.
            self.write(&("cancelled", json!({ "error.type": "cancelled" })));
        }
    }
}

impl Recording<'_> {
    fn write(&self, (outcome, attributes): &(&str, serde_json::Value)) {
        let wanted = self.params.as_ref().and_then(|params| target(self.request, params).ok());
        let plugin = wanted.as_ref().and_then(|wanted| self.host.known_owner(wanted));
        if self.host.records_itself(self.request, plugin.as_ref()) {
            return;
        }
        let name = wanted.map_or_else(String::new, |wanted| match wanted {
            Target::Prompt(name) | Target::Resource(name) => name.chars().take(NAME_CHARS_MAX).collect(),
        });
        let parent = self.params.as_ref().and_then(|params| RawObject::parse(params.get("_meta")?));
        let parent = parent.and_then(|meta| parse_traceparent(&meta.get_str("traceparent")?));
        let (fresh, span_id) = new_trace(self.begun.1);
        let (trace_id, parent_span_id) = parent.map_or((fresh, None), |(trace, span)| (trace, Some(span)));
        let mut attributes = attributes.clone();
        attributes["mcp.method.name"] = self.request.method().into();
        self.host.inner.path.store.record_span(Span {
            trace_id,
            span_id,
            parent_span_id,
            name: format!("{} {name}", self.request.method()),
            kind: "client".to_owned(),
            plugin_id: plugin.map(|plugin| plugin.to_string()),
            tool: None,
            caller: Some(self.caller.to_owned()),
            started_at_us: epoch_us(self.begun.1),
            duration_us: u64::try_from(self.begun.0.elapsed().as_micros()).unwrap_or(u64::MAX),
            outcome: (*outcome).to_owned(),
            attributes_json: attributes.to_string(),
            events_json: "[]".to_owned(),
        });
    }
}
