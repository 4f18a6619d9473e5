//! One request and its answer: as JSON, as the last event of a stream, or on another stream of the session.
//!
//! Owns what to do when it does not come: a stream that says where to go on is resumed, a session that was lost is begun
//! anew, and a request that changes nothing is made a second time. Refuses to repeat a tool call that may have been acted
//! on: its caller is told that nobody knows.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{self, HeaderName, HeaderValue};
use plugward_protocol::modern::client::{ResultKind, result_kind};
use plugward_protocol::{
    ClientMeta, InputRequired, OutboundId, RpcError, envelope,
    mcp::{self, methods},
    modern,
};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::events::{Event, EventReader};
use super::mirror;
use super::peer::{
    Answer, Era, Heard, LAST_EVENT_ID, LegacySession, PROTOCOL_VERSION, Peer, SESSION_ID, unavailable, was_unsent,
};
use super::status;
use crate::outbound::{BodyReader, Limits, OutboundError, Response};
use crate::session::{Inputs, RequestError, Timing, ToolCall, masked};

/// Bytes of an error's body that are read; what does not fit is no error of the protocol.
const MAX_ERROR_BYTES: u64 = 64 * 1024;

/// Streams in a row that end without bringing anything before a request is given up.
const MAX_RESUMES: u32 = 5;

/// Pause before a stream is resumed when the server names none.
const RESUME_PAUSE: Duration = Duration::from_secs(1);

/// Longest pause a server may ask for: a caller waits meanwhile.
const RESUME_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Longest silence on a stream. Requests end before it, but for one that listens: this is how a connection that is dead
/// without a word is noticed.
const QUIET_MAX: Duration = Duration::from_secs(15 * 60);

/// Times one request is made: once more after a lost session or a broken stream.
const ATTEMPTS: u32 = 2;

pub(super) const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");
const MCP_NAME: HeaderName = HeaderName::from_static("mcp-name");

/// What is asked.
pub(super) enum Asked {
    Plain {
        method: &'static str,
        params: Option<Box<RawValue>>,
        /// What may be asked in answer.
        capabilities: Option<Box<RawValue>>,
    },
    Tool(ToolCall),
}

impl Asked {
    fn method(&self) -> &'static str {
        match self {
            Self::Plain { method, .. } => method,
            Self::Tool(_) => methods::TOOLS_CALL,
        }
    }

    fn progress(&self) -> Option<&mpsc::Sender<Box<RawValue>>> {
        match self {
            Self::Plain { .. } => None,
            Self::Tool(call) => call.progress.as_ref(),
        }
    }

    fn capabilities(&self) -> Option<&RawValue> {
        match self {
            Self::Plain { capabilities, .. } => capabilities.as_deref(),
            Self::Tool(call) => call.capabilities.as_deref(),
        }
    }

    fn log_level(&self) -> Option<modern::LogLevel> {
        match self {
            Self::Plain { .. } => None,
            Self::Tool(call) => call.log_level(),
        }
    }

    /// Whether making it twice is as making it once.
    fn is_safe(&self) -> bool {
        matches!(self, Self::Plain { .. }) && self.method() != methods::TOOLS_CALL
    }

    fn params(&self, id: u64) -> Result<Option<Box<RawValue>>, RequestError> {
        match self {
            Self::Plain { params, .. } => Ok(params.clone()),
            Self::Tool(call) => {
                let params = mcp::CallParamsOut {
                    name: &call.name,
                    arguments: call.arguments.as_deref(),
                    meta: call.meta.as_deref(),
                    progress: call.progress.is_some().then_some(OutboundId::numbered(id)),
                };
                let params = params.to_raw().and_then(|params| match &call.inputs {
                    None => Ok(params),
                    Some(Inputs { responses, state }) => {
                        modern::client::with_inputs(Some(&params), responses.as_deref(), state.as_deref())
                    }
                });
                params.map(Some).map_err(|fault| RequestError::Invalid(fault.to_string()))
            }
        }
    }
}

/// Why an attempt brought no answer.
pub(super) enum Missed {
    /// Trying again is of no use, or is not ours to decide.
    Failed(RequestError),
    /// The server will not have us.
    Unauthorized(String),
    /// The server does not know the session any more, and did nothing.
    SessionLost,
    /// It answered with this status and no error of the protocol.
    Status(StatusCode),
    /// The connection ended; the server may have acted.
    Broken(String),
    /// Nothing reached the server.
    Unsent(OutboundError),
}

impl Missed {
    fn of(error: OutboundError) -> Self {
        match error {
            error if was_unsent(&error) => Self::Unsent(error),
            OutboundError::Broken { .. } | OutboundError::TimedOut { .. } => Self::Broken(error.to_string()),
            error => Self::Failed(unavailable(&error)),
        }
    }

    /// As the failure of a request.
    pub(super) fn into_error(self) -> RequestError {
        match self {
            Self::Failed(error) => error,
            Self::Unauthorized(reason) => RequestError::Unavailable(reason),
            Self::SessionLost => RequestError::Unavailable("it lost its session again and again".to_owned()),
            Self::Status(status) => RequestError::Unavailable(format!("it answered with status {}", status.as_u16())),
            Self::Broken(reason) => {
                RequestError::Unavailable(format!("{reason}; whether it acted on the request, nobody here can tell"))
            }
            Self::Unsent(error) => unavailable(&error),
        }
    }
}

/// The time of one request.
pub(super) struct Clock {
    timing: Timing,
    idle_end: Instant,
    hard_end: Instant,
}

impl Clock {
    pub(super) fn new(timing: Timing) -> Self {
        let now = Instant::now();
        Self { timing, idle_end: now + timing.idle, hard_end: now + timing.hard }
    }

    /// A sign of life.
    fn touch(&mut self) {
        self.idle_end = Instant::now() + self.timing.idle;
    }

    pub(super) async fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T, RequestError> {
        let end = self.idle_end.min(self.hard_end);
        let limit = if self.hard_end < self.idle_end { self.timing.hard } else { self.timing.idle };
        timeout_at(end, future).await.map_err(|_| RequestError::TimedOut { limit })
    }

    /// Limits of an exchange that this clock ends.
    pub(super) fn limits(&self) -> Limits {
        let quiet = self.timing.hard.min(QUIET_MAX);
        Limits { head: self.timing.hard, quiet, total: None, body_bytes: None }
    }
}

/// A message on its way, with what goes beside it.
pub(super) struct Letter {
    pub(super) id: u64,
    pub(super) body: String,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// Sent under a session that may be lost.
    pub(super) session: Option<Arc<LegacySession>>,
}

impl Peer {
    /// One request, under whatever rules this server is spoken to.
    pub(super) async fn request(self: &Arc<Self>, asked: Asked, timing: Timing) -> Result<Box<RawValue>, RequestError> {
        let mut clock = Clock::new(timing);
        let mut attempt = 1;
        loop {
            let era = self.era();
            let letter = match &era {
                Era::Unknown => return Err(RequestError::Unavailable("it was not greeted".to_owned())),
                Era::Modern(meta) => self.modern_letter(&asked, meta)?,
                Era::Legacy(session) => {
                    let mut confirmed = self.confirmed.subscribe();
                    // Its sender is this peer itself.
                    let _ = clock.wait(confirmed.wait_for(|is_confirmed| *is_confirmed)).await?;
                    self.legacy_letter(&asked, session)?
                }
            };
            if letter.body.len() > self.max_bytes {
                return Err(RequestError::RequestTooLarge { bytes: letter.body.len(), limit: self.max_bytes });
            }
            let missed = match self.exchange(&letter, &mut clock, asked.progress()).await {
                Ok(answer) => return self.finish(&asked, matches!(era, Era::Modern(_)), answer),
                Err(missed) => missed,
            };
            let may_repeat = attempt < ATTEMPTS;
            attempt += 1;
            match missed {
                Missed::SessionLost if may_repeat => {
                    let lost = letter.session.as_ref().map_or(0, |session| session.number);
                    clock.wait(self.renew(lost)).await??;
                }
                Missed::Broken(_) if may_repeat && asked.is_safe() && asked.method() != modern::methods::LISTEN => {}
                // Who listens opens another stream after a pause.
                Missed::Broken(reason) if asked.method() == modern::methods::LISTEN => {
                    return Err(RequestError::Invalid(reason));
                }
                missed => return Err(missed.into_error()),
            }
        }
    }

    fn modern_letter(&self, asked: &Asked, meta: &ClientMeta) -> Result<Letter, RequestError> {
        let (id, method) = (self.next_id(), asked.method());
        let invalid = |fault: mcp::PayloadFault| RequestError::Invalid(fault.to_string());
        let params = asked.params(id)?;
        let mut says = ClientMeta { log_level: asked.log_level(), ..meta.clone() };
        if let Some(capabilities) = asked.capabilities() {
            says.capabilities = capabilities.to_owned();
        }
        let params = says.stamp(params.as_deref()).map_err(invalid)?;
        let mut headers = modern_headers(meta, method);
        if let Some(name) = mcp::target_name(method, Some(&params)) {
            headers.extend(mirror::encoded(&name).map(|value| (MCP_NAME, value)));
        }
        if let Asked::Tool(call) = asked {
            headers.extend(self.mirror().headers(&call.name, call.arguments.as_deref()));
        }
        Ok(Letter { id, body: envelope::request(id, method, Some(&params)), headers, session: None })
    }

    fn legacy_letter(&self, asked: &Asked, session: &Arc<LegacySession>) -> Result<Letter, RequestError> {
        let id = self.next_id();
        let body = envelope::request(id, asked.method(), asked.params(id)?.as_deref());
        let session = Arc::clone(session);
        Ok(Letter { id, body, headers: Self::session_headers(&session), session: Some(session) })
    }

    /// Reads what an answer says beside its content.
    fn finish(&self, asked: &Asked, is_modern: bool, answer: Answer) -> Result<Box<RawValue>, RequestError> {
        let result = answer.map_err(|error| self.rejected(error))?;
        if !is_modern {
            return Ok(result);
        }
        match result_kind(&result).map_err(|fault| RequestError::Invalid(fault.to_string()))? {
            ResultKind::InputRequired => match InputRequired::parse(&result) {
                Ok(asks) => Err(RequestError::InputRequired(Box::new(asks))),
                Err(reason) => Err(RequestError::Invalid(reason.to_owned())),
            },
            ResultKind::Unknown(kind) => {
                Err(RequestError::Invalid(format!("its result is of the unknown kind `{kind}`")))
            }
            ResultKind::Complete if asked.method() == methods::TOOLS_LIST => {
                Ok(self.mirror().learn(result, |name, reason| {
                    let name = plugward_policy::visible(name);
                    self.log.push(crate::views::LogOrigin::Host, &format!("tool `{name}` is left out: {reason}"));
                }))
            }
            ResultKind::Complete => Ok(result),
        }
    }

    fn rejected(&self, error: RpcError) -> RequestError {
        // Its tools may have changed since their arguments were looked at: the list is read again (HT-14).
        if error.code == mcp::codes::HEADER_MISMATCH {
            self.shared.tools_changed.notify_one();
        }
        RequestError::Rejected(error)
    }

    /// Sends a message and waits for its answer.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        letter: &Letter,
        clock: &mut Clock,
        progress: Option<&mpsc::Sender<Box<RawValue>>>,
    ) -> Result<Answer, Missed> {
        self.exchange_with_session(letter, clock, progress).await.map(|(answer, _)| answer)
    }

    /// As [`Self::exchange`], with the session the answer names.
    pub(super) async fn exchange_with_session(
        self: &Arc<Self>,
        letter: &Letter,
        clock: &mut Clock,
        progress: Option<&mpsc::Sender<Box<RawValue>>>,
    ) -> Result<(Answer, Option<HeaderValue>), Missed> {
        let (mut waiting, inbox) = self.wait_for(letter.id);
        waiting.is_owed = letter.session.is_some();
        let sent = clock.wait(self.post(letter.body.clone(), &letter.headers, clock.limits())).await;
        let response = match sent.map_err(Missed::Failed)? {
            Ok(response) => response,
            Err(error) => {
                waiting.is_owed = false;
                return Err(Missed::of(error));
            }
        };
        let session_id = response.headers.get(SESSION_ID).cloned();
        let reader = EventReader::new(self.max_bytes);
        let mut reading = Reading { peer: self, letter, clock, progress, inbox, reader, resumes: 0 };
        let answer = reading.answer(response).await;
        waiting.is_owed &= matches!(answer, Err(Missed::Failed(RequestError::TimedOut { .. })));
        Ok((answer?, session_id))
    }
}

/// Headers of every request of the stateless revisions.
pub(super) fn modern_headers(meta: &ClientMeta, method: &'static str) -> Vec<(HeaderName, HeaderValue)> {
    vec![
        (PROTOCOL_VERSION, HeaderValue::from_static(meta.version.as_str())),
        (MCP_METHOD, HeaderValue::from_static(method)),
    ]
}

/// An exchange whose answer has begun.
struct Reading<'a> {
    peer: &'a Arc<Peer>,
    letter: &'a Letter,
    clock: &'a mut Clock,
    progress: Option<&'a mpsc::Sender<Box<RawValue>>>,
    inbox: mpsc::Receiver<Heard>,
    reader: EventReader,
    resumes: u32,
}

impl Reading<'_> {
    async fn answer(&mut self, response: Response) -> Result<Answer, Missed> {
        let content = content_type(&response);
        if !response.status.is_success() {
            return self.refusal(response).await;
        }
        match content.as_str() {
            "text/event-stream" => self.stream(response.body).await,
            "application/json" => {
                let text = self.whole(response.body, self.peer.max_bytes as u64).await?;
                if let Some(error) = self.peer.hear(&text) {
                    return Ok(Err(error));
                }
                match self.take_heard() {
                    Some(answer) => Ok(answer),
                    None => Err(invalid("its answer is not for the request it was asked")),
                }
            }
            // Taken, and answered on a stream of the session.
            _ if response.status == StatusCode::ACCEPTED => self.elsewhere().await,
            other => {
                let other = plugward_policy::visible(&other.chars().take(100).collect::<String>());
                Err(invalid(&format!(
                    "it answered with content type `{other}`, which is neither JSON nor a stream of events"
                )))
            }
        }
    }

    /// What an answer that is no success says.
    async fn refusal(&mut self, response: Response) -> Result<Answer, Missed> {
        let (status, is_json) = (response.status, content_type(&response) == "application/json");
        if let Some(reason) = status::refusal(status, &response.headers) {
            return Err(Missed::Unauthorized(reason));
        }
        let had_session = self.letter.session.as_ref().is_some_and(|session| session.id.is_some());
        if status == StatusCode::NOT_FOUND && had_session {
            return Err(Missed::SessionLost);
        }
        if !is_json {
            return Err(Missed::Status(status));
        }
        let Ok(text) = self.whole(response.body, MAX_ERROR_BYTES).await else { return Err(Missed::Status(status)) };
        let error = match self.peer.hear(&text) {
            Some(error) => Some(Err(error)),
            None => self.take_heard(),
        };
        match error {
            // Some servers have another status for a session they do not know (B008).
            Some(Err(error)) if had_session && status == StatusCode::BAD_REQUEST && names_session(&error) => {
                Err(Missed::SessionLost)
            }
            Some(answer) => Ok(answer),
            None => Err(Missed::Status(status)),
        }
    }

    async fn whole(&mut self, mut body: BodyReader, limit: u64) -> Result<Vec<u8>, Missed> {
        let mut text = Vec::new();
        loop {
            match self.clock.wait(body.next_chunk()).await.map_err(Missed::Failed)? {
                Ok(None) => return Ok(text),
                Ok(Some(chunk)) => {
                    text.extend_from_slice(&chunk);
                    if text.len() as u64 > limit {
                        let bytes = text.len() as u64;
                        return Err(Missed::Failed(RequestError::TooLarge { bytes, limit }));
                    }
                }
                Err(error) => return Err(Missed::of(error)),
            }
        }
    }

    /// Reads a stream, and those that go on where it ended.
    async fn stream(&mut self, body: BodyReader) -> Result<Answer, Missed> {
        let mut body = Some(body);
        loop {
            let broken = match body.take() {
                Some(body) => match self.one_stream(body).await? {
                    Ok(answer) => return Ok(answer),
                    Err(reason) => reason,
                },
                None => "the stream with its answer ended before it".to_owned(),
            };
            let Some(session) = self.letter.session.clone().filter(|_| self.resumes < MAX_RESUMES) else {
                return Err(Missed::Broken(broken));
            };
            let Some(last_id) = self.reader.last_id().and_then(|id| HeaderValue::from_str(id).ok()) else {
                return Err(Missed::Broken(broken));
            };
            self.resumes += 1;
            let pause = self.reader.retry().unwrap_or(RESUME_PAUSE).min(RESUME_PAUSE_MAX);
            self.clock.wait(tokio::time::sleep(pause)).await.map_err(Missed::Failed)?;
            let mut headers = Peer::session_headers(&session);
            headers.push((LAST_EVENT_ID, last_id));
            let again = self.clock.wait(self.peer.get(&headers, self.clock.limits())).await.map_err(Missed::Failed)?;
            self.reader.reopen();
            match again {
                Ok(response) if response.status.is_success() && content_type(&response) == "text/event-stream" => {
                    body = Some(response.body);
                }
                Ok(_) => return Err(Missed::Broken(broken)),
                // The way there may come back.
                Err(_) => {}
            }
        }
    }

    /// Reads one stream to its end; the inner error is why it ended.
    async fn one_stream(&mut self, mut body: BodyReader) -> Result<Result<Answer, String>, Missed> {
        enum Step {
            Heard(Option<Heard>),
            Chunk(Result<Option<bytes::Bytes>, OutboundError>),
        }
        let mut events = Vec::new();
        loop {
            if let Some(answer) = self.take_heard() {
                return Ok(Ok(answer));
            }
            let step = self.clock.wait(async {
                tokio::select! {
                    biased;
                    heard = self.inbox.recv() => Step::Heard(heard),
                    chunk = body.next_chunk() => Step::Chunk(chunk),
                }
            });
            match step.await.map_err(Missed::Failed)? {
                Step::Heard(Some(heard)) => {
                    if let Some(answer) = self.heard(heard) {
                        return Ok(Ok(answer));
                    }
                }
                // Its sender goes with its answer, which was taken above.
                Step::Heard(None) => return Ok(Err("the stream with its answer was given up".to_owned())),
                Step::Chunk(Ok(Some(chunk))) => {
                    let fits = self.reader.push(&chunk, &mut events);
                    self.hear_events(&mut events);
                    if let Err(too_long) = fits {
                        let limit = too_long.limit as u64;
                        return Err(Missed::Failed(RequestError::TooLarge { bytes: limit + 1, limit }));
                    }
                }
                Step::Chunk(Ok(None)) => return Ok(Err("the stream with its answer ended before it".to_owned())),
                Step::Chunk(Err(error)) => return Ok(Err(error.to_string())),
            }
        }
    }

    fn hear_events(&mut self, events: &mut Vec<Event>) {
        for event in events.drain(..) {
            self.resumes = 0;
            if event.name == "message" {
                self.peer.hear(event.data.as_bytes());
            }
        }
    }

    /// Waits for an answer that comes on another stream.
    async fn elsewhere(&mut self) -> Result<Answer, Missed> {
        loop {
            match self.clock.wait(self.inbox.recv()).await.map_err(Missed::Failed)? {
                Some(heard) => {
                    if let Some(answer) = self.heard(heard) {
                        return Ok(answer);
                    }
                }
                None => return Err(invalid("it was given up")),
            }
        }
    }

    fn take_heard(&mut self) -> Option<Answer> {
        while let Ok(heard) = self.inbox.try_recv() {
            if let Some(answer) = self.heard(heard) {
                return Some(answer);
            }
        }
        None
    }

    fn heard(&mut self, heard: Heard) -> Option<Answer> {
        match heard {
            Heard::Answer(answer) => Some(answer),
            Heard::Progress(params) => {
                self.clock.touch();
                if let Some(progress) = self.progress {
                    // A caller that does not keep up loses notes, not its result.
                    let _ = progress.try_send(masked(self.peer.log.redactor(), params));
                }
                None
            }
        }
    }
}

fn invalid(reason: &str) -> Missed {
    Missed::Failed(RequestError::Invalid(reason.to_owned()))
}

fn names_session(error: &RpcError) -> bool {
    error.message.to_ascii_lowercase().contains("session")
}

/// The type of an answer, without its parameters.
pub(super) fn content_type(response: &Response) -> String {
    let value = response.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
