//! `trace list` and `trace show`: what was called, what was decided, what came of it.

use std::fmt::Write as _;

use plugward_host::HostError;
use serde_json::Value;

use super::output::{Tone, paint, safe, strong, table};
use super::{Context, unexpected};
use crate::control::{Failure, Operation, Outcome};
use crate::exit::Exit;
use crate::wire::{SpanBody, SpanPageBody};

/// Digits of a trace id in a list: enough to find it again.
const SHORT_ID_DIGITS: usize = 12;

pub(super) async fn list(
    context: &Context,
    plugin: Option<String>,
    outcome: Option<String>,
    limit: usize,
) -> Result<Exit, Failure> {
    if limit == 0 {
        return Err(Failure::usage("`--limit` must be at least 1"));
    }
    let Outcome::Spans(page) = context.run(Operation::Spans { plugin, outcome, limit }).await? else {
        return Err(unexpected());
    };
    if context.output.json {
        context.output.object(&page);
        return Ok(Exit::Ok);
    }
    if page.spans.is_empty() {
        context.output.to_stderr("no call of this kind is recorded");
        context.output.next("plugward call TOOL");
        return Ok(Exit::Ok);
    }
    context.output.text(&list_text(&page));
    context.output.next("plugward trace show last");
    Ok(Exit::Ok)
}

pub(super) fn list_text(page: &SpanPageBody) -> String {
    let rows = page.spans.iter().map(|span| {
        vec![
            span.trace_id.get(..SHORT_ID_DIGITS).unwrap_or(&span.trace_id).to_owned(),
            span.started_at.get(..19).unwrap_or(&span.started_at).to_owned(),
            span.tool.clone().unwrap_or_else(|| span.name.clone()),
            span.caller.clone().unwrap_or_default(),
            duration(span.duration_us),
            format!("{} {}", sign(&span.outcome).1, span.outcome),
        ]
    });
    table(&["TRACE", "STARTED (UTC)", "TOOL", "CALLER", "TOOK", "OUTCOME"], rows.collect())
}

pub(super) async fn show(context: &Context, trace: String) -> Result<Exit, Failure> {
    let Outcome::Trace(spans) = context.run(Operation::Trace { trace }).await? else { return Err(unexpected()) };
    let Some(first) = spans.first() else { return Err(HostError::internal("an empty trace").into()) };
    if context.output.json {
        let body = serde_json::json!({ "trace_id": first.trace_id, "spans": spans });
        context.output.object(&body);
    } else {
        context.output.text(&show_text(&spans));
    }
    Ok(Exit::Ok)
}

pub(super) fn show_text(spans: &[SpanBody]) -> String {
    let mut text = String::new();
    for span in spans {
        let (tone, sign) = sign(&span.outcome);
        row(&mut text, &strong("trace"), 5, &span.trace_id);
        row(&mut text, "call", 4, &safe(span.tool.as_deref().unwrap_or(&span.name)));
        row(&mut text, "caller", 6, &safe(span.caller.as_deref().unwrap_or("unknown")));
        row(&mut text, "started", 7, &span.started_at);
        row(&mut text, "took", 4, &duration(span.duration_us));
        row(&mut text, "outcome", 7, &format!("{} {}", paint(tone, sign), paint(tone, &safe(&span.outcome))));
        attributes(&mut text, &span.attributes);
        steps(&mut text, &span.events, span.duration_us);
    }
    text
}

/// The attributes people ask about; `--json` has all of them.
fn attributes(text: &mut String, attributes: &Value) {
    let shown = [
        ("plugward.decision", "decision"),
        ("plugward.decision.reason", "because"),
        ("error.type", "error"),
        ("error.message", "message"),
        ("plugward.arguments.bytes", "sent bytes"),
        ("plugward.result.bytes", "got bytes"),
    ];
    for (key, label) in shown {
        match attributes.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::String(words)) => row(text, label, label.len(), &safe(words)),
            Some(other) => row(text, label, label.len(), &other.to_string()),
        }
    }
}

/// Stages with the time each took.
fn steps(text: &mut String, events: &Value, duration_us: u64) {
    let stages: Vec<(&str, u64)> = events
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|event| Some((event.get("stage")?.as_str()?, event.get("at_us")?.as_u64()?)))
        .collect();
    let mut before = 0;
    for (stage, at) in &stages {
        let what = match *stage {
            "resolve" => "tool found",
            "validate" => "arguments fit the schema",
            "decide" => "permission decided",
            "admit" => "its turn came",
            "plugin" => "plugin answered or time ran out",
            other => other,
        };
        row(text, "step", 4, &format!("{:>10}  {stage}: {}", duration(at.saturating_sub(before)), safe(what)));
        before = *at;
    }
    if !stages.is_empty() {
        row(text, "step", 4, &format!("{:>10}  end", duration(duration_us.saturating_sub(before))));
    }
}

/// Tone and sign of an outcome.
fn sign(outcome: &str) -> (Tone, &'static str) {
    match outcome {
        "ok" => (Tone::Good, "✓"),
        "tool_error" => (Tone::Warn, "!"),
        _ => (Tone::Bad, "✗"),
    }
}

fn duration(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..10_000_000 => format!("{}.{:01} ms", us / 1_000, us % 1_000 / 100),
        _ => format!("{}.{:01} s", us / 1_000_000, us % 1_000_000 / 100_000),
    }
}

/// A label of `width` visible characters with its value.
fn row(text: &mut String, label: &str, width: usize, value: &str) {
    // Writing into a `String` cannot fail.
    let _ = writeln!(text, "{label}{} {value}", " ".repeat(10_usize.saturating_sub(width)));
}
