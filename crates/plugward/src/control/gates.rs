//! Running the gates of a phase. Owns the order, one after the other and all of them, and the verdict on the phase.
//! Refuses to take a gate that could not run for one that passed.

use plugward_host::{CallRequest, GateView, Host, ToolSelector};
use plugward_policy::GatePhase;
use tokio_util::sync::CancellationToken;

use super::Failure;
use super::operation::{GateBody, GateReport};
use crate::wire::{ErrorBody, FileProblemBody};

/// Who calls, in traces and decisions.
const CALLER: &str = "cli:gate";

/// Characters of what a gate said that a report repeats; the trace and the gate itself have the rest.
const OUTPUT_CHARS_MAX: usize = 4096;

/// Runs every gate of `phase` but those a person switched off. One that nobody approved or switched on has not passed: its
/// silence is no verdict.
pub(super) async fn run(host: &Host, phase: &str, stop: &CancellationToken) -> Result<GateReport, Failure> {
    let phase: GatePhase =
        phase.parse().map_err(|error: plugward_policy::UnknownGatePhase| Failure::usage(error.to_string()))?;
    let (off, on): (Vec<_>, Vec<_>) =
        host.gates().into_iter().filter(|view| view.gate.phase == phase).partition(|view| view.switched_off);
    let mut gates = Vec::new();
    for view in on {
        gates.push(one(host, &view, stop).await);
    }
    let not_loaded: Vec<_> = host.gates_not_loaded().await.iter().map(FileProblemBody::from).collect();
    let is_asked = !(gates.is_empty() && not_loaded.is_empty());
    let is_good = not_loaded.is_empty() && gates.iter().all(|gate| gate.passed || !gate.blocking);
    Ok(GateReport {
        phase: phase.to_string(),
        passed: is_asked.then_some(is_good),
        gates,
        not_loaded,
        switched_off: off.into_iter().map(|view| view.plugin.to_string()).collect(),
    })
}

async fn one(host: &Host, view: &GateView, stop: &CancellationToken) -> GateBody {
    let mut body = GateBody {
        id: view.plugin.to_string(),
        severity: view.gate.severity.as_str().to_owned(),
        blocking: view.gate.blocking,
        passed: false,
        output: String::new(),
        error_code: None,
        duration_ms: 0,
        trace_id: None,
    };
    if let Err(error) = host.ensure_started(view.plugin.as_str()).await {
        body.output = error.to_string();
        body.error_code = Some(error.code.as_str().to_owned());
        return body;
    }
    let tool = view.tool.to_string();
    let mut request = CallRequest::new(ToolSelector::Id(tool.clone()), None, CALLER);
    request.cancel = stop.child_token();
    let report = host.call(request).await;
    body.duration_ms = u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX);
    body.trace_id = Some(report.trace_id);
    let output = match report.outcome {
        Ok(reply) => {
            body.passed = !reply.is_error;
            let output = reply.output();
            output["content"][0]["text"].as_str().unwrap_or_default().to_owned()
        }
        Err(failure) => {
            body.error_code = Some(failure.code().as_str().to_owned());
            ErrorBody::of_call(&failure, &tool, None).error.message
        }
    };
    body.output = output.chars().take(OUTPUT_CHARS_MAX).collect();
    body
}
