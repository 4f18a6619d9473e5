//! Running the gates of a phase. Owns the order, one after the other and all of them, and the verdict on the phase.
//! Refuses to take a gate that could not run for one that passed.

use std::io::Read as _;

use plugward_host::{CallRequest, ErrorCode, FileProblem, GateView, Host, ToolSelector};
use plugward_policy::GatePhase;
use tokio_util::sync::CancellationToken;

use super::Failure;
use super::operation::{GateBody, GateReport};
use crate::wire::ErrorBody;

/// Who calls, in traces and decisions.
const CALLER: &str = "cli:gate";

/// Characters of what a gate said that a report repeats; the trace and the gate itself have the rest.
const OUTPUT_CHARS_MAX: usize = 4096;

/// Part of the text of a file of plugins that cannot be read, by which it was meant to be a gate.
const TYPE: &str = "quality_gate";

/// Most of such a file that is looked at: as much as a manifest may have.
const MAX_FILE_BYTES: u64 = plugward_policy::MANIFEST_BYTES_MAX as u64;

/// Runs every gate of `phase` that nobody switched off. One that cannot run, because it was not approved or did not start,
/// has not passed; nor has a file that was meant to be a gate of some phase and cannot be read.
pub(super) async fn run(host: &Host, phase: &str, stop: &CancellationToken) -> Result<GateReport, Failure> {
    let phase: GatePhase =
        phase.parse().map_err(|error: plugward_policy::UnknownGatePhase| Failure::usage(error.to_string()))?;
    let (mut gates, mut switched_off) = (Vec::new(), Vec::new());
    let plugins = host.overview();
    for view in host.gates().into_iter().filter(|view| view.gate.phase == phase) {
        let error = plugins.iter().find(|plugin| plugin.id == view.plugin).and_then(|plugin| plugin.error.as_deref());
        if view.enabled {
            gates.push(one(host, &view, stop).await);
        } else if view.switched_off && error.is_none() {
            switched_off.push(view.plugin.to_string());
        } else {
            gates.push(never_on(&view, error));
        }
    }
    let unread = host.folders().map(|folders| folders.problems).unwrap_or_default();
    gates
        .extend(unread.iter().filter(|problem| problem.keeps.is_none() && is_of_a_gate(&problem.path)).map(unreadable));
    Ok(GateReport {
        phase: phase.to_string(),
        passed: gates.iter().all(|gate| gate.passed || !gate.blocking),
        gates,
        switched_off,
    })
}

/// A gate that nobody switched on, and nobody off.
fn never_on(view: &GateView, error: Option<&str>) -> GateBody {
    let id = &view.plugin;
    let why = error.map(|error| format!("{error}; ")).unwrap_or_default();
    GateBody {
        output: format!(
            "{why}it is not switched on: `plugward approve {id}` and `plugward enable {id}` have it judge, `plugward disable \
             {id}` leaves it out"
        ),
        error_code: Some(ErrorCode::McpTrustApprovalRequired.as_str().to_owned()),
        ..empty(id.to_string(), view.gate.severity.as_str(), view.gate.blocking)
    }
}

/// A file that was meant to be one.
fn unreadable(problem: &FileProblem) -> GateBody {
    GateBody {
        output: problem.reasons.join("; "),
        error_code: Some(ErrorCode::PluginManifestInvalid.as_str().to_owned()),
        ..empty(problem.path.display().to_string(), "critical", true)
    }
}

fn is_of_a_gate(file: &std::path::Path) -> bool {
    let mut text = String::new();
    let read = std::fs::File::open(file).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text));
    read.is_ok() && text.contains(TYPE)
}

fn empty(id: String, severity: &str, blocking: bool) -> GateBody {
    GateBody {
        id,
        severity: severity.to_owned(),
        blocking,
        passed: false,
        output: String::new(),
        error_code: None,
        duration_ms: 0,
        trace_id: None,
    }
}

async fn one(host: &Host, view: &GateView, stop: &CancellationToken) -> GateBody {
    let mut body = empty(view.plugin.to_string(), view.gate.severity.as_str(), view.gate.blocking);
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
