//! The call path: the one way a tool is run, for every face (invariant 2).
//!
//! ```text
//! resolve -> validate -> decide -> (ask a person) -> admit -> session -> check result -> record
//! ```
//!
//! Owns the order of these stages and the deadline over them. Each stage has a file of its own beside this one; a
//! failure names its stage and has a stable code ([`CallFailure`]). Refuses to know who calls: faces hand in a
//! [`CallRequest`] and render the [`CallReport`].

pub(crate) mod admission;
pub(crate) mod asks;
pub(crate) mod breaker;
mod dialogue;
mod place;
mod record;
pub(crate) mod result;
mod target;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use plugward_policy::{
    BackendKind, Catalogue, Decision, DecisionInput, Effect, GrantSet, Manifest, PluginId, StandingAnswer, ToolId,
    decide,
};
use plugward_store::Store;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use result::ToolReply;
pub(crate) use target::Target;

use crate::counterpart::Counterpart;
use crate::error::CallFailure;
use crate::raw_object::RawObject;
use crate::registry::{RegisteredTool, Registry};
use crate::rounds::{Ended, Inputs, Questions, Seal};
use crate::schema::Violations;
use crate::session::heard::LogWish;
use crate::session::{RequestError, Timing, ToolCall, masked};
use admission::{Admission, Share};
use asks::{AskEnd, Asks};
use breaker::{Breaker, Outcome};
use dialogue::Caller;
use place::Placed;
use record::{Recording, SpanDraft};

/// Progress may extend a call beyond its tool's timeout, up to this many times the timeout (spec: a hard maximum
/// regardless of progress).
pub(crate) const HARD_TIMEOUT_FACTOR: u32 = 10;

/// Where the calls of one running plugin go. A new start makes a new route; calls begun on the old one end on it.
pub(crate) struct Route {
    pub(crate) plugin: PluginId,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) target: Target,
    pub(crate) admission: Admission,
    pub(crate) breaker: Arc<Breaker>,
    /// Its end was counted against the plugin already, or was wanted. One end fails all calls in flight at once, and is
    /// one failure all the same.
    pub(crate) is_end_counted: AtomicBool,
    pub(crate) grants: Arc<RwLock<GrantSet>>,
    pub(crate) secrets: plugward_store::Redactor,
}

/// How a tool is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolSelector {
    /// By internal id, `<plugin_id>.<remote_name>`.
    Id(String),
    /// By the name MCP clients see.
    Exposed(String),
}

/// A call as a face hands it in.
pub struct CallRequest {
    /// Which tool.
    pub tool: ToolSelector,
    /// Arguments, untouched; none and `null` mean `{}`.
    pub arguments: Option<Box<RawValue>>,
    /// `_meta` of the caller, passed on.
    pub meta: Option<Box<RawValue>>,
    /// Who calls, for decisions and traces: `cli`, `api`, `mcp:claude-code`, ...
    pub caller: String,
    /// Which session of the caller, where it has more than one: those who wait for a busy plugin take turns by session.
    pub session: u64,
    /// A limit shorter than the tool's own (requirement 82); the shorter one wins.
    pub timeout: Option<Duration>,
    /// Whoever calls, as far as the plugin may turn to it; nobody is asked anything without.
    pub counterpart: Option<Counterpart>,
    /// What the caller brings back for a question, where the call before this one ended in one.
    pub inputs: Option<Inputs>,
    /// Where progress notes go.
    pub progress: Option<mpsc::Sender<Box<RawValue>>>,
    /// What the caller wants to read of what the plugin logs during the call.
    pub logs: Option<LogWish>,
    /// Cancels the call.
    pub cancel: CancellationToken,
}

impl CallRequest {
    /// A call without progress, cancel and limit of its own.
    pub fn new(tool: ToolSelector, arguments: Option<Box<RawValue>>, caller: impl Into<String>) -> Self {
        Self {
            tool,
            arguments,
            meta: None,
            caller: caller.into(),
            session: 0,
            timeout: None,
            counterpart: None,
            inputs: None,
            progress: None,
            logs: None,
            cancel: CancellationToken::new(),
        }
    }
}

/// The end of a call.
#[derive(Debug)]
pub struct CallReport {
    /// Trace id, for `plugward trace show`.
    pub trace_id: String,
    /// The tool, if the name was known; not that of a tool nobody may know of.
    pub tool: Option<ToolId>,
    /// What came of it.
    pub outcome: Result<ToolReply, CallFailure>,
    /// From the face's call to the report.
    pub duration: Duration,
}

/// What the call path needs of the host.
pub(crate) struct CallPath {
    pub(crate) registry: Registry,
    pub(crate) asks: Asks,
    pub(crate) catalogue: Catalogue,
    pub(crate) admission: Admission,
    pub(crate) seal: Seal,
    pub(crate) store: Store,
    pub(crate) stopping: CancellationToken,
}

impl CallPath {
    /// Runs a call through all stages; always returns, within the tool's limits (invariant 3).
    ///
    /// `absent` says why a tool that is known is not callable now, if the caller may know.
    pub(crate) async fn call(&self, request: CallRequest, absent: impl Fn(&ToolId) -> Option<String>) -> CallReport {
        let snapshot = self.registry.snapshot();
        let found = match &request.tool {
            ToolSelector::Id(name) => snapshot.by_id(name),
            ToolSelector::Exposed(name) => snapshot.by_exposed(name),
        };
        let mut recording = Recording::start(&self.store, &request, found.map(|tool| tool.id.clone()));
        let outcome = match found {
            _ if self.stopping.is_cancelled() => Err(CallFailure::Stopping),
            None => {
                let (known, failure) = self.not_callable(&request.tool, absent);
                recording.tool = known;
                Err(failure)
            }
            Some(tool) => self.run(tool, request, &mut recording.span).await,
        };
        recording.end(outcome)
    }

    /// A tool of a plugin that fell over, or one that is held, is not the same as one nobody has heard of.
    fn not_callable(
        &self,
        tool: &ToolSelector,
        absent: impl Fn(&ToolId) -> Option<String>,
    ) -> (Option<ToolId>, CallFailure) {
        let names = self.registry.exposed_names();
        let (known, name) = match tool {
            ToolSelector::Id(name) => (names.by_id(name), name),
            ToolSelector::Exposed(name) => (names.by_exposed(name), name),
        };
        match known.and_then(|id| Some((id.clone(), absent(id)?))) {
            Some((id, reason)) => (Some(id), CallFailure::Unavailable { reason }),
            None => (None, CallFailure::ToolNotFound { name: visible_name(name) }),
        }
    }

    async fn run(
        &self,
        tool: &RegisteredTool,
        request: CallRequest,
        span: &mut SpanDraft,
    ) -> Result<ToolReply, CallFailure> {
        span.tool(tool);
        let arguments = normalise(request.arguments)?;
        let arguments = validate(tool, arguments).await?;
        span.stage("validate");
        let share = Share::new(&request.caller, request.session);
        let limits = Limits::of(&tool.route.manifest, request.timeout);
        // Nobody is asked, and nobody queues, for a call that is refused anyway.
        let refused = |retry_after| CallFailure::CircuitOpen { retry_after };
        tool.route.breaker.check(Instant::now()).map_err(refused)?;
        let waiting = self.permit(tool, &share, &limits, span);
        let placed = tokio::select! {
            biased;
            () = request.cancel.cancelled() => return Err(CallFailure::Cancelled),
            () = self.stopping.cancelled() => return Err(CallFailure::Stopping),
            placed = waiting => placed?,
        };
        let tool = placed.tool(tool);
        let timing = limits.left(span.elapsed());
        let pass = tool.route.breaker.admit(Instant::now(), timing.idle).map_err(refused)?;
        span.stage("admit");
        let heard_before = tool.route.target.messages_in();
        let client = request.counterpart.as_ref();
        let questions = client.map(|client| {
            let route = &tool.route;
            Questions::new(&route.manifest, &self.catalogue, &route.secrets, client)
        });
        let call = ToolCall {
            name: tool.definition.name.to_string(),
            arguments: Some(arguments),
            meta: request.meta,
            timing,
            progress: request.progress,
            inputs: None,
            capabilities: questions.as_ref().map(Questions::capabilities),
            client: request.session,
            logs: request.logs,
        };
        let caller = Caller {
            client: client.map_or("", |client| client.client.as_str()),
            share: &share,
            answerer: questions.as_ref(),
            inputs: request.inputs,
        };
        let outcome = match self.send(tool, call, caller, &request.cancel).await {
            Ok(Ended::Question(question)) => Ok(result::question(question)),
            Ok(Ended::Reply(reply)) => judge(tool, Ok(reply), &limits),
            Err(error) => judge(tool, Err(error), &limits),
        };
        let silent = tool.route.target.messages_in() == heard_before;
        let verdict = match &outcome {
            // Each start of a command that fails is one of its own: no process was shared.
            Err(CallFailure::Unavailable { .. })
                if tool.route.target.has_process() && tool.route.is_end_counted.swap(true, Ordering::AcqRel) =>
            {
                Outcome::Unknown
            }
            outcome => verdict(outcome, silent, &limits),
        };
        pass.report(Instant::now(), verdict);
        drop(placed);
        span.stage("plugin");
        outcome
    }

    /// Decides, asks a person where the decision says so, and waits for a place. One limit covers all of it; a plugin that
    /// has to be started first gets the time for that on top, from a caller that has it.
    async fn permit(
        &self,
        tool: &RegisteredTool,
        share: &Share,
        limits: &Limits,
        span: &mut SpanDraft,
    ) -> Result<Placed, CallFailure> {
        let (begun, limit) = (Instant::now(), limits.shortest());
        self.decide(tool, &share.caller, limit, span).await?;
        span.stage("decide");
        // Also one that fell asleep while the call was decided or waited: what it waits for then is the same start.
        let wakes = AtomicBool::new(false);
        let placing = self.place(tool, share, &wakes);
        tokio::pin!(placing);
        if let Ok(placed) = tokio::time::timeout(limit.saturating_sub(begun.elapsed()), &mut placing).await {
            return placed;
        }
        if !wakes.load(Ordering::Acquire) {
            return Err(limits.ran_out(limit));
        }
        let limit = limits.with_start(tool.route.manifest.backend.startup_timeout);
        let left = limit.saturating_sub(begun.elapsed());
        tokio::time::timeout(left, placing).await.map_err(|_| limits.ran_out(limit))?
    }

    async fn decide(
        &self,
        tool: &RegisteredTool,
        caller: &str,
        limit: Duration,
        span: &mut SpanDraft,
    ) -> Result<(), CallFailure> {
        let permission = tool.definition.permission.as_ref();
        let session_yes = permission.is_some_and(|name| self.asks.allowed_for_session(&tool.id, name));
        let decision = {
            let grants = tool.route.grants.read().unwrap_or_else(PoisonError::into_inner);
            decide(&DecisionInput {
                tool: &tool.id,
                tool_permission: permission,
                catalogue: &self.catalogue,
                manifest_permissions: &tool.route.manifest.permissions,
                grants: &grants,
                // What is not switched on, approved and unchanged is not in the registry at all.
                plugin_enabled: true,
                plugin_held: None,
                tool_on: true,
                tool_held: None,
                answer: session_yes.then_some(StandingAnswer::AllowSession),
            })
        };
        span.decision(&decision);
        match (decision.verdict, permission) {
            (Effect::Allow, _) => Ok(()),
            (Effect::Ask, Some(permission)) => {
                match self.asks.ask(&tool.id, permission, caller, explain(&decision), limit).await {
                    AskEnd::Allowed => Ok(()),
                    AskEnd::Denied => Err(CallFailure::Denied { reason: "a person answered no".to_owned() }),
                    AskEnd::TimedOut => Err(CallFailure::AskTimedOut { limit }),
                    AskEnd::TooMany { limit } => {
                        let whose = if limit == asks::MAX_OPEN_ASKS { "" } else { " of its plugin" };
                        let reason = format!("{limit} permission requests{whose} already wait for a person");
                        Err(CallFailure::Busy { reason })
                    }
                }
            }
            (Effect::Ask | Effect::Deny, _) => Err(CallFailure::Denied { reason: explain(&decision) }),
        }
    }
}

/// What the answer of a session is to the caller.
fn judge(
    tool: &RegisteredTool,
    answer: Result<Box<RawValue>, RequestError>,
    limits: &Limits,
) -> Result<ToolReply, CallFailure> {
    let secrets = &tool.route.secrets;
    // Reasons quote what the plugin wrote when it is no message.
    let clean = |reason: String| secrets.redact(&reason).into_owned();
    match answer {
        Ok(raw) => {
            let max_bytes = usize::try_from(tool.route.manifest.backend.max_result_bytes).unwrap_or(usize::MAX);
            result::accept(masked(secrets, raw), tool.definition.output.as_ref(), max_bytes)
        }
        Err(RequestError::TimedOut { limit }) => Err(limits.ran_out(limit)),
        Err(RequestError::Cancelled) => Err(CallFailure::Cancelled),
        Err(RequestError::Refused(reason)) => Err(CallFailure::ArgumentInvalid { violations: vec![reason] }),
        Err(RequestError::Rejected(mut error)) => {
            error.message = clean(error.message);
            error.data = error.data.map(|data| masked(secrets, data));
            Err(CallFailure::Rejected(error))
        }
        Err(RequestError::InputRequired(asked)) => {
            let count = asked.requests.len();
            let reason = format!("it asks for {count} answers that nobody here offered to give");
            Err(CallFailure::ResultInvalid { reason })
        }
        Err(RequestError::Invalid(reason)) => Err(CallFailure::ResultInvalid { reason: clean(reason) }),
        Err(RequestError::TooLarge { bytes, limit }) => Err(CallFailure::ResultTooLarge { bytes, limit }),
        Err(RequestError::RequestTooLarge { bytes, limit }) => Err(CallFailure::RequestTooLarge { bytes, limit }),
        Err(RequestError::Unavailable(reason)) => Err(CallFailure::Unavailable { reason: clean(reason) }),
    }
}

/// The limits of one call: the tool's own, and the caller's over everything (requirement 82).
struct Limits {
    own: Duration,
    caller: Option<Duration>,
    /// The setting that holds the tool's own.
    setting: &'static str,
}

impl Limits {
    fn of(manifest: &Manifest, caller: Option<Duration>) -> Self {
        let setting = match manifest.backend.kind {
            BackendKind::McpStdio | BackendKind::McpHttp(_) => "backend.tool_timeout_seconds",
            BackendKind::Command(_) | BackendKind::Prompt(_) | BackendKind::Webhook(_) => "timeout_ms",
        };
        Self { own: manifest.backend.tool_timeout, caller, setting }
    }

    fn shortest(&self) -> Duration {
        self.caller.map_or(self.own, |caller| caller.min(self.own))
    }

    /// As [`Limits::shortest`], for a call that has to start its plugin first.
    fn with_start(&self, start: Duration) -> Duration {
        let own = self.own.saturating_add(start);
        self.caller.map_or(own, |caller| caller.min(own))
    }

    fn hardest(&self) -> Duration {
        self.own.saturating_mul(HARD_TIMEOUT_FACTOR)
    }

    /// What the plugin has once `used` of the caller's time is gone. Progress extends a call beyond the tool's own
    /// limit up to the hard maximum, and never beyond what the caller waits.
    fn left(&self, used: Duration) -> Timing {
        let left = self.caller.map(|caller| caller.saturating_sub(used));
        let within = |limit: Duration| left.map_or(limit, |left| left.min(limit));
        Timing { idle: within(self.own), hard: within(self.hardest()) }
    }

    /// The failure of a call for which `limit` was up: whose limit that was, a caller wants to know.
    fn ran_out(&self, limit: Duration) -> CallFailure {
        match self.caller {
            Some(caller) if caller == limit || ![self.own, self.hardest()].contains(&limit) => {
                CallFailure::TimedOut { limit: caller, setting: "timeout of the caller" }
            }
            _ => CallFailure::TimedOut { limit, setting: self.setting },
        }
    }
}

/// None, `null` and `{}` are the same call (B009).
fn normalise(arguments: Option<Box<RawValue>>) -> Result<Box<RawValue>, CallFailure> {
    let empty = || RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned());
    match arguments {
        None => Ok(empty()),
        Some(raw) if raw.get() == "null" => Ok(empty()),
        Some(raw) if RawObject::parse(&raw).is_some() => Ok(raw),
        Some(_) => Err(CallFailure::ArgumentInvalid {
            violations: vec!["arguments are not an object, or repeat a key".to_owned()],
        }),
    }
}

/// Arguments above this size are checked on a thread of their own: checking may take long, and others call meanwhile.
const INLINE_VALIDATION_BYTES: usize = 64 * 1024;

async fn validate(tool: &RegisteredTool, arguments: Box<RawValue>) -> Result<Box<RawValue>, CallFailure> {
    let schema = tool.definition.input.clone();
    let is_short = arguments.get().len() <= INLINE_VALIDATION_BYTES;
    let check = move || match schema.validate(&arguments) {
        Ok(()) => Ok(arguments),
        Err(violations) => Err(CallFailure::ArgumentInvalid { violations: lines(&violations) }),
    };
    if is_short {
        return check();
    }
    tokio::task::spawn_blocking(check).await.unwrap_or_else(|_| {
        Err(CallFailure::ArgumentInvalid { violations: vec!["arguments could not be checked".to_owned()] })
    })
}

fn lines(violations: &Violations) -> Vec<String> {
    let mut lines: Vec<String> = violations.list.iter().map(ToString::to_string).collect();
    if violations.more {
        lines.push("and more".to_owned());
    }
    lines
}

/// Bad arguments, business errors and cancels never speak against a plugin (C4); a timeout does only if the plugin
/// said nothing at all meanwhile (B067: one tool that hangs must not take the others along), and only one of the tool's
/// own limit: a caller in a hurry must not pause it for everybody.
fn verdict(outcome: &Result<ToolReply, CallFailure>, silent: bool, limits: &Limits) -> Outcome {
    match outcome {
        Ok(_) | Err(CallFailure::Rejected(_) | CallFailure::ResultTooLarge { .. }) => Outcome::Answered,
        Err(CallFailure::TimedOut { limit, .. }) if !silent || *limit < limits.own => Outcome::Unknown,
        Err(failure) if failure.counts_against_plugin() => Outcome::Failed,
        Err(_) => Outcome::Unknown,
    }
}

/// The sentence that settled a decision: the first rule that demanded more than the rest, or, where all agreed, the
/// last and most particular one.
fn explain(decision: &Decision) -> String {
    let settled = match decision.verdict {
        Effect::Allow => decision.steps.last(),
        Effect::Ask | Effect::Deny => decision.reason(),
    };
    settled.map_or_else(String::new, |step| step.text.clone())
}

/// A name from outside, fit for an error text.
fn visible_name(name: &str) -> String {
    name.chars().take(128).flat_map(char::escape_default).collect()
}

/// Microseconds since the epoch, as the store keeps times.
pub(crate) fn epoch_us(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
