//! Prompts that a file describes: told and filled in by the host, without asking anybody. Owns the limits of the answer
//! and its span. Refuses to put what was filled in into either.

use std::time::{Instant, SystemTime};

use plugward_policy::PromptTemplate;
use plugward_protocol::RpcError;
use plugward_protocol::mcp::codes;
use plugward_store::Span;
use serde_json::value::{RawValue, to_raw_value};

use super::OfferError;
use crate::call::epoch_us;
use crate::host::Inner;
use crate::ids::new_trace;
use crate::raw_object::RawObject;
use crate::supervisor::Plugin;

/// What a list tells of it.
pub(super) fn item(prompt: &PromptTemplate) -> Option<(String, RawObject)> {
    let definition = to_raw_value(&prompt.definition()).ok()?;
    Some((prompt.name.clone(), RawObject::parse(&definition)?))
}

/// The prompt with the values of `params`, the parameters of `prompts/get`.
pub(super) fn get(
    inner: &Inner,
    plugin: &Plugin,
    prompt: &PromptTemplate,
    params: &RawObject,
) -> Result<Box<RawValue>, OfferError> {
    let begun = (Instant::now(), SystemTime::now());
    let outcome = fill(prompt, params, plugin.manifest.backend.max_result_bytes);
    let message = match &outcome {
        Ok(_) => None,
        Err(OfferError::Rejected(error)) => Some(error.message.clone()),
        Err(_) => Some("not given".to_owned()),
    };
    record(inner, plugin, prompt, begun, message.as_deref());
    outcome
}

fn fill(prompt: &PromptTemplate, params: &RawObject, max_bytes: u64) -> Result<Box<RawValue>, OfferError> {
    let values = match params.get("arguments") {
        None => serde_json::Map::new(),
        Some(raw) => {
            serde_json::from_str(raw.get()).map_err(|_| OfferError::Invalid("`arguments` is not an object"))?
        }
    };
    let filled = prompt.fill(&values, max_bytes).map_err(|error| OfferError::Rejected(invalid(&error.to_string())))?;
    let filled = to_raw_value(&filled).map_err(|error| OfferError::Failed(error.to_string()))?;
    let bytes = u64::try_from(filled.get().len()).unwrap_or(u64::MAX);
    if bytes > max_bytes {
        let message = format!("prompt of {bytes} bytes exceeds the limit of {max_bytes} bytes");
        return Err(OfferError::Rejected(invalid(&message)));
    }
    Ok(filled)
}

fn record(
    inner: &Inner,
    plugin: &Plugin,
    prompt: &PromptTemplate,
    (started, at): (Instant, SystemTime),
    error: Option<&str>,
) {
    let (trace_id, span_id) = new_trace(at);
    let mut attributes = serde_json::json!({ "mcp.method.name": "prompts/get", "gen_ai.prompt.name": prompt.name });
    if let Some(error) = error {
        attributes["error.message"] = error.into();
    }
    inner.path.store.record_span(Span {
        trace_id,
        span_id,
        name: format!("prompts/get {}", prompt.name),
        kind: "internal".to_owned(),
        plugin_id: Some(plugin.id.to_string()),
        started_at_us: epoch_us(at),
        duration_us: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
        outcome: if error.is_some() { "rejected" } else { "ok" }.to_owned(),
        attributes_json: attributes.to_string(),
        ..Span::default()
    });
}

fn invalid(message: &str) -> RpcError {
    RpcError::new(codes::INVALID_PARAMS, message)
}
