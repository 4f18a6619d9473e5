//! One session of a client with a handshake: what it asked, what it knows, and what is said to it.
//!
//! Owns the requests under way, which go on when a connection breaks (only `notifications/cancelled` and the end of the
//! session end them), and the answers of the revisions with a handshake. Refuses HTTP: it is given messages and gives
//! streams of events.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plugward_host::{Counterpart, Listener, Told};
use plugward_protocol::mcp::{self, CallParamsIn, CancelledParams, codes, methods};
use plugward_protocol::{ProtocolVersion, RequestId, RpcError, envelope};
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::super::Server;
use super::super::driver::next_session;
use super::super::empty_object;
use super::super::logging::{self, WantedLevel};
use super::super::modern::invalid_params;
use super::super::offers::OfferMethod;
use super::super::tools_call::{self, Call, Note};
use super::super::tools_list::Fingerprint;
use super::events::{Ends, Events, Reader, UNASKED};
use super::session_asks::SessionAsks;

/// Notes of one request on their way to the store.
const MAX_WAITING_NOTES: usize = 16;

/// A request as a client sent it.
pub(super) struct Asked {
    pub(super) id: RequestId,
    pub(super) method: String,
    pub(super) params: Option<Box<RawValue>>,
    /// Whether the client reads a stream, on which it can be asked.
    pub(super) reads_stream: bool,
    /// Its share of the memory for requests.
    pub(super) held: Option<OwnedSemaphorePermit>,
}

/// Why a request did not begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NotBegun {
    /// The session has ended meanwhile.
    Over,
    /// Another request of the same id is under way. Under that id a client would take the refusal for its answer.
    IdInUse(RequestId),
    /// As many as allowed are under way.
    TooMany,
}

impl NotBegun {
    /// What the client is told.
    pub(super) fn error(&self) -> RpcError {
        match self {
            Self::Over => RpcError::new(codes::INVALID_REQUEST, "session is not there any more: send `initialize`"),
            Self::IdInUse(id) => RpcError::new(codes::INVALID_REQUEST, format!("request id {id} is in use")),
            Self::TooMany => RpcError::new(codes::INTERNAL_ERROR, "too many requests are in flight"),
        }
    }
}

struct State {
    under_way: HashMap<RequestId, CancellationToken>,
    is_confirmed: bool,
    has_listed: bool,
    /// The tools as last listed or announced.
    known: Option<Fingerprint>,
    last_used: Instant,
}

/// A session.
pub(super) struct Session {
    id: String,
    version: ProtocolVersion,
    caller: String,
    /// Tells it apart where callers take turns.
    turn: u64,
    max_requests: usize,
    server: Server,
    events: Arc<Events>,
    asks: SessionAsks,
    listener: Listener,
    state: Mutex<State>,
    over: CancellationToken,
    /// Ends what is said unasked: the server ends, calls under way may finish.
    closing: CancellationToken,
    /// Told when a list was out of date when it was made.
    recheck: Arc<tokio::sync::Notify>,
    tasks: TaskTracker,
}

/// What sessions share.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub(super) server: Server,
    pub(super) max_requests: usize,
    pub(super) closing: CancellationToken,
    pub(super) recheck: Arc<tokio::sync::Notify>,
    pub(super) tasks: TaskTracker,
}

impl Session {
    pub(super) fn new(id: String, version: ProtocolVersion, caller: String, around: Surroundings) -> Self {
        let Surroundings { server, max_requests, closing, recheck, tasks } = around;
        let state = State {
            under_way: HashMap::new(),
            is_confirmed: false,
            has_listed: false,
            known: None,
            last_used: Instant::now(),
        };
        let (events, over) = (Arc::new(Events::new()), CancellationToken::new());
        let (state, turn, listener) = (Mutex::new(state), next_session(), server.listener());
        Self {
            id,
            version,
            caller,
            turn,
            max_requests,
            server,
            events,
            asks: SessionAsks::default(),
            listener,
            state,
            over,
            closing,
            recheck,
            tasks,
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn version(&self) -> ProtocolVersion {
        self.version
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is asked of the client, and its answers.
    pub(super) fn asks(&self) -> &SessionAsks {
        &self.asks
    }

    /// The client is there.
    pub(super) fn touch(&self) {
        self.state().last_used = Instant::now();
    }

    /// How long nobody has used it; none while somebody does.
    pub(super) fn idle_for(&self, now: Instant) -> Option<Duration> {
        let state = self.state();
        let is_idle = state.under_way.is_empty() && !self.events.has_reader();
        is_idle.then(|| now.saturating_duration_since(state.last_used))
    }

    /// Ends it: its requests, its streams.
    pub(super) fn end(&self) {
        self.over.cancel();
        for (_, request) in self.state().under_way.drain() {
            request.cancel();
        }
    }

    /// A notification of the client.
    pub(super) fn told(&self, method: &str, params: Option<&RawValue>) {
        match method {
            methods::INITIALIZED => self.state().is_confirmed = true,
            methods::CANCELLED => {
                let Ok(cancelled) = CancelledParams::parse(params) else { return };
                let request = self.state().under_way.remove(&cancelled.request_id);
                if let Some(request) = request {
                    request.cancel();
                }
            }
            _ => {}
        }
    }

    /// Begins a request; its stream brings its notes and its answer.
    ///
    /// # Errors
    /// Why it is refused before it begins.
    pub(super) fn ask(self: &Arc<Self>, asked: Asked) -> Result<Reader, NotBegun> {
        let cancel = CancellationToken::new();
        {
            let mut state = self.state();
            // Under the lock that its end takes last: what begins after that would have nobody to end it.
            if self.over.is_cancelled() {
                return Err(NotBegun::Over);
            }
            if state.under_way.contains_key(&asked.id) {
                return Err(NotBegun::IdInUse(asked.id));
            }
            if state.under_way.len() >= self.max_requests {
                return Err(NotBegun::TooMany);
            }
            state.under_way.insert(asked.id.clone(), cancel.clone());
        }
        let stream = self.events.open();
        let reader = Reader::open(&self.events, stream, self.ends()).ok_or(NotBegun::Over)?;
        let session = Arc::clone(self);
        self.tasks.spawn(async move { session.serve(asked, stream, cancel).await });
        Ok(reader)
    }

    async fn serve(self: Arc<Self>, asked: Asked, stream: u64, cancel: CancellationToken) {
        let (notes, mut waiting) = mpsc::channel::<Note>(MAX_WAITING_NOTES);
        let (id, mut asked) = (asked.id.clone(), asked);
        // Given back when this ends.
        let _held = asked.held.take();
        let mut unanswered = Unanswered { session: &self, id: &id, stream, cancel: &cancel, is_answered: false };
        let hand_on = |note: Note| {
            self.events.note(stream, envelope::notification(note.method, Some(&note.params)));
        };
        let (counterpart, mut asks) = self.asks.during(self.turn, asked.reads_stream);
        let mut can_ask = true;
        let mut answering = Box::pin(self.answer(asked, cancel.clone(), notes, counterpart));
        let answer = loop {
            tokio::select! {
                biased;
                Some(note) = waiting.recv() => hand_on(note),
                question = asks.next(), if can_ask => match question {
                    Some(question) => self.events.note(stream, question),
                    None => can_ask = false,
                },
                answer = &mut answering => break answer,
            }
        };
        drop(answering);
        while let Ok(note) = waiting.try_recv() {
            hand_on(note);
        }
        for over in asks.given_up() {
            self.events.note(stream, over);
        }
        // A cancelled request is out of the table, and is not answered (CA-03).
        let was_wanted = !cancel.is_cancelled();
        if was_wanted {
            let mut state = self.state();
            state.under_way.remove(&id);
            state.last_used = Instant::now();
        }
        let text = match answer {
            Ok(result) => envelope::result(&id, &result),
            Err(error) => envelope::error(Some(&id), &error),
        };
        self.events.complete(stream, was_wanted.then_some(text));
        unanswered.is_answered = true;
    }

    async fn answer(
        &self,
        asked: Asked,
        cancel: CancellationToken,
        notes: mpsc::Sender<Note>,
        counterpart: Option<Counterpart>,
    ) -> Result<Box<RawValue>, RpcError> {
        let params = asked.params.as_deref();
        match asked.method.as_str() {
            methods::PING => Ok(empty_object()),
            methods::LOGGING_SET_LEVEL => logging::set_level(&self.listener, params),
            methods::TOOLS_LIST => self.list_tools(params, &cancel).await,
            methods::TOOLS_CALL => {
                let call = Call {
                    host: self.server.host().clone(),
                    view: self.server.view(),
                    request: asked.id,
                    params: CallParamsIn::parse(params).map_err(|fault| invalid_params(&fault))?,
                    caller: self.caller.clone(),
                    session: self.turn,
                    start_wait: self.server.first_list_wait(),
                    counterpart,
                    inputs: None,
                    log_level: Some(WantedLevel::of_session(&self.listener)),
                    cancel,
                    notes,
                };
                call.run().await
            }
            methods::INITIALIZE => Err(RpcError::new(codes::INVALID_REQUEST, "session is initialized already")),
            method => {
                let offer = OfferMethod::parse(method).ok_or_else(|| RpcError::method_not_found(method))?;
                let view = self.server.view();
                tokio::select! {
                    answer = offer.answer(self.server.host(), &view, params, counterpart.as_ref(), &self.caller) => answer,
                    () = cancel.cancelled() => Err(tools_call::given_up()),
                }
            }
        }
    }

    async fn list_tools(
        &self,
        params: Option<&RawValue>,
        cancel: &CancellationToken,
    ) -> Result<Box<RawValue>, RpcError> {
        let (host, lists) = (self.server.host(), self.server.lists());
        if let Some(cursor) = mcp::list_cursor(params).map_err(|fault| invalid_params(&fault))? {
            return lists.page(&cursor);
        }
        if !self.state().has_listed {
            tokio::select! {
                () = host.settled(self.server.first_list_wait()) => {}
                () = cancel.cancelled() => return Err(tools_call::given_up()),
            }
        }
        let listing = lists.current(host);
        let mut state = self.state();
        state.has_listed = true;
        state.known = Some(listing.fingerprint);
        drop(state);
        if !listing.is_current(host) {
            self.recheck.notify_one();
        }
        Ok(listing.first_page())
    }

    /// Tells what plugins say unasked, until the session or the server ends.
    pub(super) fn follow(self: &Arc<Self>) {
        let session = Arc::clone(self);
        self.tasks.spawn(async move {
            loop {
                let told = tokio::select! {
                    biased;
                    () = session.over.cancelled() => return,
                    () = session.closing.cancelled() => return,
                    told = session.listener.next() => told,
                };
                let Told::Log(params) = told;
                session.events.note(UNASKED, envelope::notification(methods::LOG_MESSAGE, Some(&params)));
            }
        });
    }

    /// Whether it is of those who have this server.
    pub(super) fn is_of(&self, server: &Server) -> bool {
        self.server.is(server)
    }

    /// Whether those who began it may call no more.
    pub(super) fn is_closed(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Tells the client that tools changed, if it has seen others.
    pub(super) fn tools_changed(&self) {
        let current = self.server.lists().current(self.server.host()).fingerprint;
        let mut state = self.state();
        if !state.is_confirmed || state.known.is_none_or(|known| known == current) {
            return;
        }
        state.known = Some(current);
        drop(state);
        self.events.note_once(UNASKED, envelope::notification(methods::TOOLS_LIST_CHANGED, None));
    }

    /// Reads what is said unasked, or on from where an earlier connection broke.
    pub(super) fn read(&self, last_id: Option<&str>) -> Option<Reader> {
        match last_id {
            Some(last_id) => Reader::resume(&self.events, last_id, self.ends()),
            None => Reader::open(&self.events, UNASKED, self.ends()),
        }
    }

    /// Forgets the stream of a request whose whole answer was handed out.
    pub(super) fn forget(&self, stream: u64) {
        self.events.forget(stream);
    }

    fn ends(&self) -> Ends {
        Ends { session: self.over.clone(), server: self.closing.clone() }
    }
}

/// Ends a request whose task ends without an answer, as by a panic: its client would wait for ever, and could not use
/// the id again.
struct Unanswered<'a> {
    session: &'a Session,
    id: &'a RequestId,
    stream: u64,
    cancel: &'a CancellationToken,
    is_answered: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let was_wanted = !self.cancel.is_cancelled();
        if was_wanted {
            self.session.state().under_way.remove(self.id);
        }
        let error = RpcError::new(codes::INTERNAL_ERROR, "the request was not served to its end");
        self.session.events.complete(self.stream, was_wanted.then(|| envelope::error(Some(self.id), &error)));
    }
}
