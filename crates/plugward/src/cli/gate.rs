//! `gate run`: the gates of a phase, and whether it may go on.

use super::output::{Tone, paint, safe, safe_lines};
use super::{Context, unexpected};
use crate::control::{Failure, GateReport, Operation, Outcome};
use crate::exit::Exit;

pub(super) async fn run(context: &Context, phase: String) -> Result<Exit, Failure> {
    let Outcome::Gates(report) = context.run(Operation::Gates { phase }).await? else { return Err(unexpected()) };
    if context.output.json {
        context.output.object(&report);
    } else {
        context.output.text(&text(&report));
    }
    for id in &report.switched_off {
        context.output.note(&format!("gate {} is switched off", safe(id)));
    }
    if let Some(gate) = report.gates.iter().find(|gate| !gate.passed) {
        let trace = gate.trace_id.as_deref().and_then(|id| id.get(..12));
        context.output.next(&match trace {
            Some(trace) => format!("plugward trace show {trace}"),
            None => format!("plugward info {}", gate.id),
        });
    }
    Ok(if report.passed == Some(false) { Exit::Failure } else { Exit::Ok })
}

fn text(report: &GateReport) -> String {
    let mut text = String::new();
    for gate in &report.gates {
        let (tone, sign) = match (gate.passed, gate.blocking) {
            (true, _) => (Tone::Good, "✓ passed"),
            (false, true) => (Tone::Bad, "✗ failed"),
            (false, false) => (Tone::Warn, "! failed, not blocking"),
        };
        let head = format!("{} {} ({}, {} ms)\n", paint(tone, sign), safe(&gate.id), gate.severity, gate.duration_ms);
        text.push_str(&head);
        if !gate.passed {
            text.push_str(&safe_lines(&gate.output, "    "));
            text.push('\n');
        }
    }
    for file in &report.not_loaded {
        let head = format!("{} {}\n", paint(Tone::Bad, "✗ not loaded, and may be a gate"), safe(&file.path));
        text.push_str(&head);
        text.push_str(&safe_lines(&file.reasons.join("\n"), "    "));
        text.push('\n');
    }
    let verdict = match report.passed {
        None => format!("no gate ran for {}", report.phase),
        Some(true) => format!("{} may go on", report.phase),
        Some(false) => format!("{} must not go on", report.phase),
    };
    text + &verdict
}
