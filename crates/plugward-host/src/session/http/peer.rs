//! What is known of the server, and what is done with each message it sends, by whatever stream it came.
//!
//! Owns the era and session of the conversation, the table of who waits for which answer, and the end of the
//! conversation. Refuses requests of the server, except a ping: nothing is offered to it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hyper::Method;
use hyper::header::{self, HeaderName, HeaderValue};
use plugward_policy::WebUrl;
use plugward_protocol::message::{Parsed, parse_line};
use plugward_protocol::{
    BatchRule, ClientHello, ClientMeta, Message, ProtocolVersion, RequestId, RpcError, envelope,
    mcp::{self, methods},
    modern,
};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};

use super::Remote;
use super::mirror::Mirror;
use crate::outbound::{Limits, OutboundError, Request, Response};
use crate::session::log::PluginLog;
use crate::session::quote::Secrets;
use crate::session::{Ending, RequestError, SessionSettings, Shared};
use crate::views::LogOrigin;

/// Requests in a row that never left this machine before the conversation is over. One may meet a name server that
/// restarts; a server that cannot be reached three times is looked for anew, with pauses.
const MAX_UNSENT: u32 = 3;

/// Messages one request may have waiting; progress beyond that is lost, an answer never.
const INBOX: usize = 64;

/// Answers to the server that may wait to be sent. It asks for signs of life only.
const JOBS: usize = 16;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What a request is answered with.
pub(super) type Answer = Result<Box<RawValue>, RpcError>;

/// What one request is told.
pub(super) enum Heard {
    Answer(Answer),
    Progress(Box<RawValue>),
}

/// Work that nobody waits for, done by the driver.
pub(super) enum Job {
    /// A message to the server that has no answer.
    Send(String),
    /// The stream of the first HTTP transport.
    FollowOld,
}

/// How the server is spoken to.
#[derive(Clone)]
pub(super) enum Era {
    /// Not greeted yet.
    Unknown,
    /// Each request stands for itself.
    Modern(Arc<ClientMeta>),
    /// After a handshake.
    Legacy(Arc<LegacySession>),
}

/// What a handshake led to.
pub(super) struct LegacySession {
    /// What the server calls it, if it has sessions.
    pub(super) id: Option<HeaderValue>,
    pub(super) version: ProtocolVersion,
    /// To greet it again with.
    pub(super) hello: ClientHello,
    /// Counts sessions of this conversation.
    pub(super) number: u64,
}

pub(super) struct Peer {
    pub(super) remote: Remote,
    pub(super) max_bytes: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) log: Arc<PluginLog>,
    pub(super) secrets: Secrets,
    era: Mutex<Era>,
    /// Number of the session; who follows a stream looks at it.
    pub(super) sessions: watch::Sender<u64>,
    /// Requests wait for the end of the greeting (LG-01).
    pub(super) confirmed: watch::Sender<bool>,
    /// Held while a lost session is replaced: all who lost it get the same new one.
    pub(super) renewal: tokio::sync::Mutex<()>,
    /// Where the first HTTP transport wants its messages.
    pub(super) endpoint: watch::Sender<Option<WebUrl>>,
    pub(super) is_old: AtomicBool,
    next_id: AtomicU64,
    waiting: Mutex<HashMap<u64, mpsc::Sender<Heard>>>,
    lost: watch::Sender<Option<Ending>>,
    unsent: AtomicU32,
    pub(super) jobs: mpsc::Sender<Job>,
    mirror: Mutex<Mirror>,
    has_listened: AtomicBool,
}

impl Peer {
    pub(super) fn new(
        remote: Remote,
        shared: Arc<Shared>,
        log: Arc<PluginLog>,
        settings: SessionSettings,
    ) -> (Arc<Self>, mpsc::Receiver<Job>) {
        let (jobs, job_rx) = mpsc::channel(JOBS);
        let peer = Self {
            remote,
            max_bytes: settings.max_message_bytes,
            shared,
            log,
            secrets: settings.secrets,
            era: Mutex::new(Era::Unknown),
            sessions: watch::Sender::new(0),
            confirmed: watch::Sender::new(false),
            renewal: tokio::sync::Mutex::default(),
            endpoint: watch::Sender::new(None),
            is_old: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
            waiting: Mutex::default(),
            lost: watch::Sender::new(None),
            unsent: AtomicU32::new(0),
            jobs,
            mirror: Mutex::default(),
            has_listened: AtomicBool::new(false),
        };
        (Arc::new(peer), job_rx)
    }

    pub(super) fn era(&self) -> Era {
        self.era.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_era(&self, era: Era) {
        let number = match &era {
            Era::Legacy(session) => session.number,
            Era::Unknown | Era::Modern(_) => 0,
        };
        self.shared.is_stateless.store(matches!(era, Era::Modern(_)), Ordering::Relaxed);
        *self.era.lock().unwrap_or_else(PoisonError::into_inner) = era;
        self.sessions.send_replace(number);
    }

    pub(super) fn mirror(&self) -> MutexGuard<'_, Mirror> {
        self.mirror.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Ends the conversation; only the first reason counts. `is_hopeless`: nothing but a person can change it.
    pub(super) fn lose(&self, reason: &str, is_hopeless: bool) {
        if is_hopeless {
            self.shared.is_hopeless.store(true, Ordering::Release);
        }
        let reason = self.secrets.redactor.redact(reason).into_owned();
        self.lost.send_if_modified(|ended| {
            let is_first = ended.is_none();
            ended.get_or_insert(Ending { reason, is_fault: false });
            is_first
        });
    }

    /// Resolves when the conversation is over.
    pub(super) async fn lost(&self) -> Ending {
        let mut lost = self.lost.subscribe();
        match lost.wait_for(Option::is_some).await.map(|ending| ending.clone()) {
            Ok(Some(ending)) => ending,
            // Its sender is this peer itself.
            _ => std::future::pending().await,
        }
    }

    /// Notes whether a request left this machine.
    pub(super) fn note_sent(&self, failure: Option<&OutboundError>) {
        let Some(failure) = failure else { return self.unsent.store(0, Ordering::Relaxed) };
        if self.unsent.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_UNSENT {
            self.lose(&failure.to_string(), is_hopeless(failure));
        }
    }

    /// Registers a request, until the guard is dropped.
    pub(super) fn wait_for(self: &Arc<Self>, id: u64) -> (Waiting, mpsc::Receiver<Heard>) {
        let (sender, inbox) = mpsc::channel(INBOX);
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        (Waiting { peer: Arc::clone(self), id, is_owed: false }, inbox)
    }

    /// Reads what a message is. `text` is one message, or several where the revision has such.
    pub(super) fn hear(&self, text: &[u8]) -> Option<RpcError> {
        self.shared.touch();
        self.shared.messages_in.fetch_add(1, Ordering::Relaxed);
        let rule = match self.era() {
            Era::Legacy(session) if session.version.allows_batches() => BatchRule::Accept,
            _ => BatchRule::Refuse,
        };
        let messages = match parse_line(text, rule) {
            Ok(Parsed::One(message)) => vec![Ok(message)],
            Ok(Parsed::Batch(messages)) => messages,
            Err(fault) => vec![Err(fault)],
        };
        let mut unattributed = None;
        for message in messages {
            match message {
                Ok(Message::UnattributedError(error)) => unattributed = Some(error),
                Ok(message) => self.take(message),
                Err(fault) => {
                    self.shared.noise_lines.fetch_add(1, Ordering::Relaxed);
                    self.log.push(LogOrigin::Host, &format!("a message that is none was skipped: {fault}"));
                    // Whoever waits for it learns that it came and cannot be used.
                    if let Some(id) = fault.id.as_ref().and_then(RequestId::as_sequence) {
                        let error =
                            RpcError::new(mcp::codes::INTERNAL_ERROR, format!("its answer is invalid: {fault}"));
                        self.tell(id, Heard::Answer(Err(error)));
                    }
                }
            }
        }
        unattributed
    }

    fn take(&self, message: Message) {
        match message {
            Message::Response { id, outcome } => {
                if let Some(id) = id.as_sequence() {
                    self.tell(id, Heard::Answer(outcome));
                }
            }
            Message::Notification { method, params } => self.notice(&method, params),
            Message::Request { id, method, .. } => self.answer(&id, &method),
            Message::UnattributedError(_) => {}
        }
    }

    fn tell(&self, id: u64, heard: Heard) {
        let inbox = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        // An answer nobody waits for came too late.
        let Some(inbox) = inbox else { return };
        match heard {
            // The last place is the answer's.
            Heard::Progress(_) if inbox.capacity() <= 1 => {}
            Heard::Progress(_) => drop(inbox.try_send(heard)),
            Heard::Answer(_) => {
                self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                drop(inbox.try_send(heard));
            }
        }
    }

    fn notice(&self, method: &str, params: Option<Box<RawValue>>) {
        match method {
            methods::PROGRESS => {
                let token = mcp::progress_token(params.as_deref()).ok().and_then(|token| token.as_sequence());
                if let (Some(id), Some(params)) = (token, params) {
                    self.tell(id, Heard::Progress(params));
                }
            }
            // A stream opened anew: what changed before, nobody was told.
            modern::methods::ACKNOWLEDGED if self.has_listened.swap(true, Ordering::Relaxed) => {
                self.shared.tools_changed.notify_one();
            }
            methods::TOOLS_LIST_CHANGED => self.shared.tools_changed.notify_one(),
            methods::LOG_MESSAGE => {
                let text = params.as_deref().map_or("", RawValue::get);
                self.log.push(LogOrigin::Plugin, text);
                self.shared.heard.log(std::time::Instant::now(), params.as_deref(), self.log.redactor());
            }
            _ => {}
        }
    }

    /// Answers a request of the server. Servers of the stateless revisions have none, and get no answer (ST-03).
    fn answer(&self, id: &RequestId, method: &str) {
        if !matches!(self.era(), Era::Legacy(_)) {
            return;
        }
        let text = match method {
            methods::PING => match RawValue::from_string("{}".to_owned()) {
                Ok(empty) => envelope::result(id, &empty),
                Err(_) => return,
            },
            _ => envelope::error(Some(id), &RpcError::method_not_found(method)),
        };
        // A server that asks faster than it takes answers gets fewer.
        let _ = self.jobs.try_send(Job::Send(text));
    }

    /// Headers that each request of a session has.
    pub(super) fn session_headers(session: &LegacySession) -> Vec<(HeaderName, HeaderValue)> {
        let id = session.id.clone().map(|id| (SESSION_ID, id));
        let version = (PROTOCOL_VERSION, HeaderValue::from_static(session.version.as_str()));
        id.into_iter().chain([version]).collect()
    }

    /// Sends one message.
    pub(super) async fn post(
        &self,
        body: String,
        extra: &[(HeaderName, HeaderValue)],
        limits: Limits,
    ) -> Result<Response, OutboundError> {
        let endpoint = self.endpoint.borrow().clone();
        let url = endpoint.as_ref().unwrap_or(&self.remote.url);
        let mut headers = self.remote.headers.clone();
        headers.push((header::CONTENT_TYPE, HeaderValue::from_static("application/json")));
        headers.push((header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream")));
        headers.extend_from_slice(extra);
        let request = Request { method: Method::POST, url, headers: &headers, body: Bytes::from(body), limits };
        self.send(request).await
    }

    /// Asks for a stream.
    pub(super) async fn get(
        &self,
        extra: &[(HeaderName, HeaderValue)],
        limits: Limits,
    ) -> Result<Response, OutboundError> {
        let mut headers = self.remote.headers.clone();
        headers.push((header::ACCEPT, HeaderValue::from_static("text/event-stream")));
        headers.extend_from_slice(extra);
        let url = &self.remote.url;
        self.send(Request { method: Method::GET, url, headers: &headers, body: Bytes::new(), limits }).await
    }

    /// Tells the server that a session is over.
    pub(super) async fn delete(&self, session: &LegacySession, limits: Limits) -> Result<Response, OutboundError> {
        let mut headers = self.remote.headers.clone();
        headers.extend(Self::session_headers(session));
        let url = &self.remote.url;
        self.send(Request { method: Method::DELETE, url, headers: &headers, body: Bytes::new(), limits }).await
    }

    async fn send(&self, request: Request<'_>) -> Result<Response, OutboundError> {
        let answer = self.remote.outbound.request(request).await;
        match &answer {
            Ok(_) => self.note_sent(None),
            Err(error) if was_unsent(error) => self.note_sent(Some(error)),
            Err(_) => {}
        }
        answer
    }
}

/// Whether the server cannot have seen the request.
pub(super) fn was_unsent(error: &OutboundError) -> bool {
    match error {
        OutboundError::Refused { .. }
        | OutboundError::Unreachable { .. }
        | OutboundError::Tls { .. }
        | OutboundError::Misuse { .. }
        // It saw it and pointed elsewhere: nothing was done with it, and nothing will be.
        | OutboundError::Redirected { .. } => true,
        OutboundError::TimedOut { .. }
        | OutboundError::TooLarge { .. }
        | OutboundError::Protocol { .. }
        | OutboundError::Broken { .. } => false,
    }
}

/// Whether trying again later changes nothing.
pub(super) fn is_hopeless(error: &OutboundError) -> bool {
    matches!(error, OutboundError::Refused { .. } | OutboundError::Misuse { .. } | OutboundError::Redirected { .. })
}

/// A failure of the way there, as one of a request.
pub(super) fn unavailable(error: &OutboundError) -> RequestError {
    match error {
        OutboundError::TooLarge { limit_bytes, .. } => {
            RequestError::TooLarge { bytes: limit_bytes + 1, limit: *limit_bytes }
        }
        other => RequestError::Unavailable(other.to_string()),
    }
}

/// A request that is waited for.
pub(super) struct Waiting {
    peer: Arc<Peer>,
    id: u64,
    /// The server is to be told when nobody waits any more.
    pub(super) is_owed: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.peer.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
        if self.is_owed {
            // LG-05; without sessions the end of the connection says it.
            let reason = "the caller no longer waits for the answer";
            let params = format!("{{\"requestId\":{},\"reason\":\"{reason}\"}}", self.id);
            let params = RawValue::from_string(params).ok();
            let _ = self.peer.jobs.try_send(Job::Send(envelope::notification(methods::CANCELLED, params.as_deref())));
        }
    }
}
