//! The one execution of each operation, whoever asks.

use std::collections::HashSet;
use std::time::Duration;

use plugward_host::{
    ApprovalOrigin, CallFailure, CallReport, CallRequest, ErrorCode, Host, HostError, HostEvent, SpanFilter,
    ToolSelector,
};
use plugward_policy::{Digest, visible};
use serde_json::value::RawValue;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Failure;
use super::operation::{CallBody, InfoBody, Notice, Operation, Outcome, StatusReport};
use crate::exit::Exit;
use crate::wire::{
    AskBody, ErrorBody, FoldersBody, HostBody, LogLineBody, NOT_FOUND_CODE, PluginBody, ReviewBody, SpanBody,
    SpanPageBody, StatusBody, ToolBody, TrialBody,
};

/// Who calls, in traces and decisions.
const CALLER: &str = "cli";

/// How alike two tool names are (Jaro-Winkler) before one is offered for the other.
const SUGGESTION_SIMILARITY_MIN: f64 = 0.85;

/// Longest name compared with others: comparing costs the product of the lengths, and no tool id is longer.
const SUGGESTION_BYTES_MAX: usize = 300;

/// Shortest beginning of a trace id that is looked up: shorter ones are more likely typos than shorthand.
const TRACE_PREFIX_MIN: usize = 4;

/// Hexadecimal digits of a whole trace id.
const TRACE_ID_DIGITS: usize = 32;

/// Runs one operation. `notices` is told what happens meanwhile; `stop` ends what would go on.
///
/// # Errors
/// What the host says, and [`NOT_FOUND_CODE`] for traces and requests that are not there.
pub(crate) async fn execute(
    host: &Host,
    operation: Operation,
    serving_pid: Option<u32>,
    notices: &mpsc::Sender<Notice>,
    stop: &CancellationToken,
) -> Result<Outcome, Failure> {
    let plugin = |view| Ok(Outcome::Plugin(Box::new(PluginBody::from(&view))));
    match operation {
        Operation::Install { source, id } => plugin(host.install(&source, id.as_deref()).await?),
        Operation::Review { id } => Ok(Outcome::Review(Box::new(ReviewBody::from(&host.review(&id).await?)))),
        Operation::Trial { id, digest, limit_ms } => {
            let digest = parse_digest(&digest)?;
            let trial = host.trial(&id, &digest, Duration::from_millis(limit_ms), ApprovalOrigin::Cli).await?;
            Ok(Outcome::Trial(Box::new(TrialBody::from(&trial))))
        }
        Operation::Approve { id, digest } => {
            let digest = parse_digest(&digest)?;
            plugin(host.approve(&id, &digest, ApprovalOrigin::Cli).await?)
        }
        Operation::Enable { id } => plugin(host.enable(&id).await?),
        Operation::Disable { id } => plugin(host.disable(&id).await?),
        Operation::Restart { id } => Ok(Outcome::Host(Box::new(HostBody::from(&host.restart(&id).await?)))),
        Operation::Remove { id } => {
            host.remove(&id).await?;
            Ok(Outcome::Done)
        }
        Operation::Plugins => Ok(Outcome::Plugins(plugins(host).await?)),
        Operation::Info { id } => {
            let plugin = PluginBody::from(&host.plugin(&id).await?);
            let tools = tools(host, Some(&plugin.id)).await?;
            let is_in_trouble = plugin.error_message.is_some();
            let words = if is_in_trouble { host.last_words(&id)? } else { Vec::new() };
            let last_words = words.iter().map(LogLineBody::from).collect();
            let process = HostBody::from(&host.host_status(&id)?);
            Ok(Outcome::Info(Box::new(InfoBody { host: process, plugin, tools, last_words })))
        }
        Operation::Tools { id } => {
            let id = match id {
                Some(id) => Some(host.plugin(&id).await?.id.to_string()),
                None => None,
            };
            Ok(Outcome::Tools(tools(host, id.as_deref()).await?))
        }
        Operation::Call { tool, arguments, timeout_ms } => call(host, tool, arguments, timeout_ms, notices, stop).await,
        Operation::Gates { phase } => Ok(Outcome::Gates(Box::pin(super::gates::run(host, &phase, stop)).await?)),
        Operation::Status => {
            let plugins = plugins(host).await?;
            let folders = host.folders().as_ref().map(FoldersBody::from);
            let report = StatusReport { host: StatusBody::read(host, serving_pid), plugins, folders };
            Ok(Outcome::Status(Box::new(report)))
        }
        Operation::Logs { id, lines, follow } => logs(host, &id, lines, follow, notices, stop).await,
        Operation::Spans { plugin, outcome, limit } => {
            let filter = SpanFilter { plugin_id: plugin, outcome, limit, ..SpanFilter::default() };
            Ok(Outcome::Spans(SpanPageBody::from(&host.spans(filter).await?)))
        }
        Operation::Trace { trace: wanted } => trace(host, &wanted).await,
        Operation::Asks => Ok(Outcome::Asks(host.pending_asks().iter().map(AskBody::from).collect())),
        Operation::Answer { request, answer } => {
            if !host.pending_asks().iter().any(|ask| ask.request_id == request) {
                let message = format!("permission request `{}` is not open", shown(&request));
                return Err(not_found(message, "see what is open: `plugward asks`"));
            }
            host.answer(&request, answer.into())?;
            Ok(Outcome::Done)
        }
        Operation::Permissions { id, grant, revoke } => permissions(host, &id, grant, &revoke).await,
        Operation::Mcp { .. } => Err(HostError::internal("an MCP session outside a socket").into()),
    }
}

/// A digest as a person gives it.
pub(super) fn parse_digest(text: &str) -> Result<Digest, Failure> {
    text.parse().map_err(|_| {
        let message = format!("digest `{}` is not one: expected `sha256:` and 64 hexadecimal digits", shown(text));
        Failure::usage(message)
    })
}

async fn plugins(host: &Host) -> Result<Vec<PluginBody>, Failure> {
    Ok(host.plugins().await?.iter().map(PluginBody::from).collect())
}

/// Approved tools of switched-on plugins; what runs now is told as it is registered.
async fn tools(host: &Host, plugin: Option<&str>) -> Result<Vec<ToolBody>, Failure> {
    let wanted = |tool: &plugward_host::ToolView| plugin.is_none_or(|id| tool.id.plugin().as_str() == id);
    let live = host.tools();
    let mut tools: Vec<ToolBody> =
        host.approved_tools().await?.iter().filter(|tool| wanted(tool)).map(ToolBody::from).collect();
    for view in live.iter().filter(|tool| wanted(tool)) {
        let body = ToolBody::from(view);
        match tools.iter_mut().find(|tool| tool.name == body.name) {
            Some(tool) => *tool = body,
            None => tools.push(body),
        }
    }
    Ok(tools)
}

async fn call(
    host: &Host,
    tool: String,
    arguments: Option<Box<RawValue>>,
    timeout_ms: Option<u64>,
    notices: &mpsc::Sender<Notice>,
    stop: &CancellationToken,
) -> Result<Outcome, Failure> {
    let Some(plugin) = plugin_of(host, &tool).await? else { return Err(unknown_tool(host, &tool).await?) };
    // A start has a bound of its own, which is longer than somebody waits who wants to go.
    tokio::select! {
        started = host.ensure_started(&plugin) => started?,
        () = stop.cancelled() => return Err(failed_call(&CallFailure::Cancelled, &tool, &plugin, None)),
    }
    let mut request = CallRequest::new(ToolSelector::Id(tool.clone()), arguments, CALLER);
    request.timeout = timeout_ms.map(Duration::from_millis);
    request.cancel = stop.child_token();
    let report = call_and_tell(host, request, &tool, notices).await;
    match report.outcome {
        Ok(reply) => Ok(Outcome::Call(CallBody {
            trace_id: report.trace_id,
            is_error: reply.is_error,
            result: reply.result,
            warnings: reply.warnings,
        })),
        Err(failure) => Err(failed_call(&failure, &tool, &plugin, Some(&report.trace_id))),
    }
}

fn failed_call(failure: &CallFailure, tool: &str, plugin: &str, trace_id: Option<&str>) -> Failure {
    let mut body = ErrorBody::of_call(failure, tool, trace_id);
    body.error.hint = call_hint(failure, plugin);
    Failure { exit: Exit::from(failure), body: Box::new(body) }
}

/// Runs the call and passes on its permission requests; nobody else knows that they belong to it.
async fn call_and_tell(host: &Host, request: CallRequest, tool: &str, notices: &mpsc::Sender<Notice>) -> CallReport {
    let mut told: HashSet<String> = host.pending_asks().into_iter().map(|ask| ask.request_id).collect();
    let mut events = host.events();
    let call = host.call(request);
    tokio::pin!(call);
    loop {
        let event = tokio::select! {
            report = &mut call => return report,
            event = events.recv() => event,
        };
        match event {
            Ok(HostEvent::AsksChanged) | Err(RecvError::Lagged(_)) => {}
            Ok(_) => continue,
            Err(RecvError::Closed) => return call.await,
        }
        for ask in host.pending_asks() {
            let is_ours = ask.caller == CALLER && ask.tool.to_string() == tool;
            if is_ours && told.insert(ask.request_id.clone()) {
                // A face that reads no notices still gets its answer.
                let _ = notices.try_send(Notice::Ask(AskBody::from(&ask)));
            }
        }
    }
}

/// The plugin of a tool, by exact name (invariant 2).
async fn plugin_of(host: &Host, tool: &str) -> Result<Option<String>, Failure> {
    let approved = host.approved_tools().await?;
    let found = approved.iter().chain(&host.tools()).find(|view| view.id.to_string() == tool).cloned();
    Ok(found.map(|view| view.id.plugin().to_string()))
}

/// The failure for a name that no tool has, with the most likely reason.
async fn unknown_tool(host: &Host, name: &str) -> Result<Failure, Failure> {
    let failure = CallFailure::ToolNotFound { name: shown(name) };
    let body = ErrorBody::of_call(&failure, name, None);
    let mut failure = Failure { exit: Exit::from(&failure), body: Box::new(body) };
    let approved = host.approved_tools().await?;
    let plugins = host.plugins().await?;
    // The longest id wins, as `a.b.c` may be tool `c` of `a.b`. This only chooses a hint.
    let owner = plugins
        .iter()
        .filter(|plugin| name.strip_prefix(plugin.id.as_str()).is_some_and(|rest| rest.starts_with('.')))
        .max_by_key(|plugin| plugin.id.as_str().len());
    let exposed = approved.iter().find(|tool| tool.exposed_name == name);
    let hint = match (exposed, owner) {
        (Some(tool), _) => format!("its internal id is `{}`", tool.id),
        (None, Some(plugin)) if !plugin.enabled => {
            format!("plugin `{0}` is not switched on: `plugward enable {0}`", plugin.id)
        }
        (None, owner) => match (most_like(name, approved.iter().map(|tool| tool.id.to_string())), owner) {
            (Some(id), _) => format!("did you mean `{id}`?"),
            // It may have the tool and keep it from use.
            (None, Some(plugin)) => format!("see what it offers, and what not and why: `plugward info {}`", plugin.id),
            (None, None) => "see which tools there are: `plugward tools`".to_owned(),
        },
    };
    failure.body.error.hint = Some(hint);
    Ok(failure)
}

fn most_like(name: &str, known: impl Iterator<Item = String>) -> Option<String> {
    if name.len() > SUGGESTION_BYTES_MAX {
        return None;
    }
    known
        .map(|candidate| (strsim::jaro_winkler(name, &candidate), candidate))
        .filter(|(similarity, _)| *similarity >= SUGGESTION_SIMILARITY_MIN)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

/// What helps after a failed call.
fn call_hint(failure: &CallFailure, plugin: &str) -> Option<String> {
    match failure {
        CallFailure::ToolNotFound { .. } => Some(format!("see what it offers: `plugward info {plugin}`")),
        CallFailure::ArgumentInvalid { .. } => Some(format!("see the schema: `plugward tools {plugin} --json`")),
        CallFailure::Denied { .. } => Some(format!("see what is allowed: `plugward permissions {plugin}`")),
        CallFailure::AskTimedOut { .. } => Some(
            "while the call waits: `plugward asks`, then `plugward answer REQUEST allow`; or allow the permission in \
             config.toml"
                .to_owned(),
        ),
        CallFailure::Unavailable { .. } => Some(format!("see why: `plugward info {plugin}`")),
        CallFailure::TimedOut { setting, .. } => Some(format!("raise the limit (`{setting}`) if it needs longer")),
        CallFailure::ResultTooLarge { .. } => Some("ask the tool for less at once".to_owned()),
        CallFailure::Busy { .. }
        | CallFailure::CircuitOpen { .. }
        | CallFailure::Cancelled
        | CallFailure::Rejected(_)
        | CallFailure::ResultInvalid { .. }
        | CallFailure::RequestTooLarge { .. }
        | CallFailure::Stopping => None,
    }
}

async fn logs(
    host: &Host,
    id: &str,
    lines: usize,
    follow: bool,
    notices: &mpsc::Sender<Notice>,
    stop: &CancellationToken,
) -> Result<Outcome, Failure> {
    // Subscribed first, so that no line falls between.
    let mut coming = host.follow_logs(id)?;
    let kept = host.logs(id)?;
    let first = kept.len().saturating_sub(lines);
    let kept: Vec<LogLineBody> = kept[first..].iter().map(LogLineBody::from).collect();
    if !follow {
        return Ok(Outcome::Logs(kept));
    }
    for line in kept {
        if notices.send(Notice::Line(line)).await.is_err() {
            return Ok(Outcome::Done);
        }
    }
    loop {
        let notice = tokio::select! {
            () = stop.cancelled() => return Ok(Outcome::Done),
            line = coming.recv() => match line {
                Ok(line) => Notice::Line(LogLineBody::from(&line)),
                Err(RecvError::Lagged(lost)) => Notice::LinesLost(lost),
                Err(RecvError::Closed) => return Ok(Outcome::Done),
            },
        };
        if notices.send(notice).await.is_err() {
            return Ok(Outcome::Done);
        }
    }
}

async fn trace(host: &Host, wanted: &str) -> Result<Outcome, Failure> {
    let missing = || {
        let message = format!("trace `{}` is not recorded", shown(wanted));
        not_found(message, "see what is recorded: `plugward trace list`")
    };
    let trace_id = if wanted.len() == TRACE_ID_DIGITS {
        wanted.to_owned()
    } else {
        let is_prefix = wanted.len() >= TRACE_PREFIX_MIN && wanted.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut found: Vec<String> = if wanted == "last" {
            let page = host.spans(SpanFilter { limit: 1, ..SpanFilter::default() }).await?;
            page.spans.into_iter().map(|span| span.trace_id).collect()
        } else if is_prefix {
            // Two tell that one is not the only one.
            host.traces_with(wanted, 2).await?
        } else {
            Vec::new()
        };
        match (found.pop(), found.is_empty()) {
            (Some(id), true) => id,
            (Some(_), false) => {
                let message = format!("more than one recorded trace begins with `{}`", shown(wanted));
                return Err(not_found(message, "give more digits"));
            }
            (None, _) if wanted == "last" => {
                return Err(not_found("no call is recorded yet".to_owned(), "run one: `plugward call TOOL`"));
            }
            (None, _) => return Err(missing()),
        }
    };
    let spans = host.trace(&trace_id).await?;
    if spans.is_empty() { Err(missing()) } else { Ok(Outcome::Trace(spans.iter().map(SpanBody::from).collect())) }
}

async fn permissions(host: &Host, id: &str, grant: Vec<String>, revoke: &[String]) -> Result<Outcome, Failure> {
    let view = host.plugin(id).await?;
    if grant.is_empty() && revoke.is_empty() {
        return Ok(Outcome::Plugin(Box::new(PluginBody::from(&view))));
    }
    if let Some(unknown) = revoke.iter().find(|name| !view.requested_permissions.contains(name)) {
        let message = format!("plugin `{}` does not ask for permission `{}`", view.id, shown(unknown));
        let asked = view.requested_permissions.join(", ");
        let hint = format!("it asks for: {}", if asked.is_empty() { "nothing" } else { &asked });
        return Err(Failure::coded(ErrorCode::PluginPermissionUnknown, message).with_hint(hint));
    }
    let mut granted = view.granted_permissions.clone();
    granted.extend(grant);
    granted.retain(|name| !revoke.contains(name));
    granted.sort();
    granted.dedup();
    let view = host.set_permissions(id, &granted).await?;
    Ok(Outcome::Plugin(Box::new(PluginBody::from(&view))))
}

fn not_found(message: String, hint: &str) -> Failure {
    Failure::new(Exit::NotFound, NOT_FOUND_CODE, message).with_hint(hint)
}

/// A text from outside, fit for an error: cut and without tricks.
fn shown(text: &str) -> String {
    visible(&text.chars().take(128).collect::<String>())
}
