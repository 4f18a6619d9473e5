//! The task of one session: moves bytes between a client and the [`Connection`], and starts a task per request.
//!
//! Owns the tables of requests under way and the end of a session. One task reads, writes and keeps time and never
//! waits for a request, so that a slow call delays no other (case B043). Everything in it is bounded: requests by the
//! connection's table, answers by its queue, and a client that stops reading stops being read. Refuses to know methods
//! beyond sending each to its file.
//!
//! ```text
//! serving --end of input--> finishing: no more reading, requests under way end, answers are written
//!                           finishing --all written, or the limit--> over
//! serving or finishing --client went away, or does not read--> over
//! ```

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use plugward_host::{Listener, Told};
use plugward_protocol::mcp::{self, CallParamsIn, codes, methods};
use plugward_protocol::{Connection, ConnectionConfig, Event, PeerFault, RequestId, RequestMeta, RpcError, SendError};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::{Id as TaskId, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::client_asks::ClientAsks;
use super::initialize;
use super::logging::{self, WantedLevel};
use super::modern::{Exchange, invalid_params};
use super::notices::Notices;
use super::offers::OfferMethod;
use super::output::Output;
use super::server::Server;
use super::tools_call::{self, Call, Note};

/// Bytes read at once.
const READ_CHUNK_BYTES: usize = 64 * 1024;

/// Bytes taken from the connection before they are written; more stay there, counted against its bound.
const WRITE_CHUNK_BYTES: usize = 64 * 1024;

/// Notes of all requests on their way to the driver.
const MAX_WAITING_NOTES: usize = 64;

/// Limits of a session that are not the connection's.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    /// The connection's own.
    pub(super) connection: ConnectionConfig,
    /// Tasks at once. Twice the requests in flight: cancelled ones leave the connection's table before their task has
    /// ended.
    pub(super) tasks: usize,
    /// Bytes of parameters of requests under way; past it nothing more is read until some have ended.
    pub(super) held_bytes: usize,
    /// Time for requests under way after the client closed its end (case B086).
    pub(super) finish: Duration,
    /// Time after that for the answers to be written.
    pub(super) last_words: Duration,
    /// How long a client may leave half of the queue unread before it counts as gone. Above a breakpoint in a debugger
    /// or a suspended laptop's wake-up, below the patience of whoever looks at a hung session.
    pub(super) stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let connection = ConnectionConfig::server();
        Self {
            tasks: 2 * connection.max_inbound_in_flight,
            connection,
            // Far above what agents send at once, and small beside the memory of any machine that runs one.
            held_bytes: 64 * 1024 * 1024,
            finish: Duration::from_secs(5),
            last_words: Duration::from_secs(2),
            stall: Duration::from_secs(60),
        }
    }
}

type Answer = Result<Box<RawValue>, RpcError>;

/// What the task of a request brings back.
enum Outcome {
    Answered(Answer),
    /// The plugins had their time to start: the tools can be listed.
    Settled,
}

/// A task and the request it is for.
struct Work {
    request: RequestId,
    /// Bytes of its parameters.
    bytes: usize,
}

/// A request under way.
struct UnderWay {
    task: TaskId,
    cancel: CancellationToken,
}

/// Where the session stands.
#[derive(Debug, Clone, Copy)]
enum Phase {
    Serving,
    /// The client closed its end; `give_up_at` ends the requests, `over_at` the session.
    Finishing {
        give_up_at: Instant,
        over_at: Instant,
        gave_up: bool,
    },
}

/// A number that tells a session from others that call themselves the same: clients of one kind take turns like any others.
/// 0 is nobody's.
pub(super) fn next_session() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// One session.
pub(super) struct Driver {
    server: Server,
    limits: Limits,
    connection: Connection,
    caller: String,
    /// Number of this session among those of all clients.
    session: u64,
    phase: Phase,
    tasks: JoinSet<Outcome>,
    work: HashMap<TaskId, Work>,
    held_bytes: usize,
    under_way: HashMap<RequestId, UnderWay>,
    notes_in: mpsc::Sender<Note>,
    notes_out: mpsc::Receiver<Note>,
    asks: ClientAsks,
    notices: Notices,
    listener: Listener,
    tools_version: watch::Receiver<u64>,
    /// The session has asked for tools before; only the first time it waits for plugins that start.
    has_listed: bool,
    /// Ends streams of notices when no more will be read.
    closing: CancellationToken,
    output: Output,
    stalled_since: Option<Instant>,
}

impl Driver {
    pub(super) fn new(server: Server, limits: Limits) -> Self {
        let (notes_in, notes_out) = mpsc::channel(MAX_WAITING_NOTES);
        Self {
            connection: Connection::new(limits.connection.clone()),
            caller: initialize::caller(None),
            session: next_session(),
            phase: Phase::Serving,
            tasks: JoinSet::new(),
            work: HashMap::new(),
            held_bytes: 0,
            under_way: HashMap::new(),
            notes_in,
            notes_out,
            asks: ClientAsks::new(),
            notices: Notices::default(),
            listener: server.listener(),
            tools_version: server.host().tools_version(),
            has_listed: false,
            closing: CancellationToken::new(),
            output: Output::default(),
            stalled_since: None,
            server,
            limits,
        }
    }

    /// Runs the session to its end.
    pub(super) async fn run(
        mut self,
        mut reader: impl AsyncRead + Unpin,
        mut writer: impl AsyncWrite + Unpin,
    ) -> anyhow::Result<()> {
        let end = self.serve(&mut reader, &mut writer).await;
        self.cancel_all();
        // Plugins learn that nobody waits any more, and traces of what was cut off.
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(self.limits.last_words, ended).await;
        end
    }

    async fn serve(
        &mut self,
        reader: &mut (impl AsyncRead + Unpin),
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> anyhow::Result<()> {
        let mut chunk = vec![0; READ_CHUNK_BYTES];
        loop {
            self.fill_output();
            if self.is_over() {
                return Ok(());
            }
            let due_at = self.next_due();
            tokio::select! {
                read = reader.read(&mut chunk), if self.may_read() => self.take_input(read, &chunk),
                written = self.output.advance(writer), if self.output.is_pending() => {
                    if let Err(error) = written {
                        tracing::info!("the client closed its end: {error}");
                        return Ok(());
                    }
                    self.stalled_since = None;
                }
                Some(joined) = self.tasks.join_next_with_id() => self.take_outcomes(joined),
                Some(note) = self.notes_out.recv() => self.hand_on(note),
                Some(ask) = self.asks.next() => self.asks.send(&mut self.connection, Instant::now(), ask),
                Ok(()) = self.tools_version.changed() => self.notices.changed(Instant::now()),
                told = self.listener.next(), if !self.connection.is_backlogged() => self.tell(told),
                () = sleep_until(due_at) => self.handle_time()?,
            }
            self.handle_events()?;
            self.asks.sweep(&mut self.connection, Instant::now());
        }
    }

    fn may_read(&self) -> bool {
        matches!(self.phase, Phase::Serving)
            && self.tasks.len() < self.limits.tasks
            && self.held_bytes < self.limits.held_bytes
            && !self.connection.is_backlogged()
    }

    fn is_over(&self) -> bool {
        let Phase::Finishing { over_at, .. } = self.phase else { return false };
        if self.tasks.is_empty() && !self.output.is_pending() {
            return true;
        }
        let is_late = Instant::now() >= over_at;
        if is_late {
            let unread = self.output.waiting_bytes() + self.connection.queued_bytes();
            tracing::warn!("the session ends with {} requests unfinished and {unread} bytes unread", self.tasks.len());
        }
        is_late
    }

    fn take_input(&mut self, read: io::Result<usize>, chunk: &[u8]) {
        let now = Instant::now();
        match read {
            Ok(length) if length > 0 => self.connection.handle_input(now, &chunk[..length]),
            ended => {
                if let Err(error) = ended {
                    tracing::info!("reading from the client failed, which ends its input: {error}");
                }
                self.connection.handle_input_closed(now);
                self.closing.cancel();
                let give_up_at = now + self.limits.finish;
                let over_at = give_up_at + self.limits.last_words;
                self.phase = Phase::Finishing { give_up_at, over_at, gave_up: false };
            }
        }
    }

    fn fill_output(&mut self) {
        while self.output.waiting_bytes() < WRITE_CHUNK_BYTES {
            match self.connection.poll_transmit() {
                Some(line) => self.output.push(&line),
                None => break,
            }
        }
        if !self.connection.is_backlogged() {
            self.stalled_since = None;
        } else if self.stalled_since.is_none() {
            self.stalled_since = Some(Instant::now());
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let stalled = self.stalled_since.map(|since| since + self.limits.stall);
        let ending = match self.phase {
            Phase::Serving => None,
            Phase::Finishing { give_up_at, gave_up: false, .. } => Some(give_up_at),
            Phase::Finishing { over_at, .. } => Some(over_at),
        };
        [stalled, ending, self.notices.due_at(), self.connection.poll_timeout()].into_iter().flatten().min()
    }

    fn handle_time(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        self.connection.handle_timeout(now);
        if self.stalled_since.is_some_and(|since| now >= since + self.limits.stall) {
            anyhow::bail!(
                "the client has read nothing for {} s while {} bytes wait for it",
                self.limits.stall.as_secs_f32(),
                self.connection.queued_bytes()
            );
        }
        if let Phase::Finishing { give_up_at, gave_up, .. } = &mut self.phase
            && !*gave_up
            && now >= *give_up_at
        {
            *gave_up = true;
            self.cancel_all();
        }
        let server = &self.server;
        if self.notices.take(now, || server.lists().current(server.host()).fingerprint) {
            match self.connection.notify(methods::TOOLS_LIST_CHANGED, None) {
                Ok(()) => {}
                Err(SendError::QueueFull { .. }) => self.notices.unsent(now),
                Err(error) => tracing::debug!("a notice was not sent: {error}"),
            }
        }
        Ok(())
    }

    fn cancel_all(&self) {
        for request in self.under_way.values() {
            request.cancel.cancel();
        }
    }

    fn handle_events(&mut self) -> anyhow::Result<()> {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Initialize { id, client, params, .. } => {
                    self.asks.declared(&params);
                    let name = client.as_ref().map(|client| client.name.as_str());
                    self.caller = initialize::caller(name);
                    let version = self.connection.accept_handshake(
                        Instant::now(),
                        &id,
                        &initialize::hello(self.server.host(), &self.server.view()),
                    );
                    let version = version.map_or("none", |version| version.as_str());
                    tracing::info!(caller = %self.caller, version, "a client connected");
                }
                Event::Initialized => self.notices.confirmed(),
                Event::Request { id, method, params } => self.start(&id, &method, params.as_deref()),
                Event::ModernRequest { id, method, params, meta } => self.start_modern(&id, method, params, meta),
                Event::CancelRequested { id, .. } => {
                    if let Some(request) = self.under_way.remove(&id) {
                        request.cancel.cancel();
                    }
                }
                Event::Response { id, outcome } => self.asks.answered(id, outcome),
                Event::Failed { id, cause } => self.asks.failed(id, &cause),
                Event::Fatal(fault @ PeerFault::NotReading { .. }) => {
                    anyhow::bail!("the client does not read what is sent to it: {fault}");
                }
                Event::Fatal(fault) => anyhow::bail!("the client broke the protocol: {fault}"),
                // Nothing depends on what else a client tells.
                _ => {}
            }
        }
        Ok(())
    }

    /// Tells what plugins say unasked.
    fn tell(&mut self, told: Told) {
        let Told::Log(params) = told;
        if let Err(error) = self.connection.notify(methods::LOG_MESSAGE, Some(params)) {
            tracing::debug!("a notice was not handed on: {error}");
        }
    }

    /// Answers a request at once, or starts a task for it.
    fn start(&mut self, id: &RequestId, method: &str, params: Option<&RawValue>) {
        let answer = match method {
            methods::TOOLS_LIST => self.list_tools(id, params),
            methods::TOOLS_CALL => self.call_tool(id, params),
            methods::LOGGING_SET_LEVEL => Some(logging::set_level(&self.listener, params)),
            _ => match OfferMethod::parse(method) {
                Some(offer) => {
                    self.ask_offer(id, offer, params);
                    None
                }
                None => Some(Err(RpcError::method_not_found(method))),
            },
        };
        if let Some(answer) = answer {
            self.connection.respond(id, answer);
        }
    }

    /// Starts a task for a request of a stateless revision.
    fn start_modern(&mut self, id: &RequestId, method: String, params: Option<Box<RawValue>>, meta: RequestMeta) {
        let bytes = params.as_ref().map_or(0, |params| params.get().len());
        let cancel = CancellationToken::new();
        let exchange = Exchange {
            server: self.server.clone(),
            id: id.clone(),
            method,
            params,
            meta,
            session: self.session,
            cancel: cancel.clone(),
            closing: self.closing.clone(),
            notes: self.notes_in.clone(),
        };
        self.spawn(id, bytes, cancel, async move { Outcome::Answered(exchange.run().await) });
    }

    /// Starts a task for prompts, resources or completion.
    fn ask_offer(&mut self, id: &RequestId, offer: OfferMethod, params: Option<&RawValue>) {
        let bytes = params.map_or(0, |params| params.get().len());
        let (server, cancel) = (self.server.clone(), CancellationToken::new());
        let (params, given_up) = (params.map(ToOwned::to_owned), cancel.clone());
        let counterpart = self.asks.counterpart(self.session);
        let caller = self.caller.clone();
        self.spawn(id, bytes, cancel, async move {
            let view = server.view();
            tokio::select! {
                answer = offer.answer(server.host(), &view, params.as_deref(), counterpart.as_ref(), &caller) => Outcome::Answered(answer),
                () = given_up.cancelled() => Outcome::Answered(Err(tools_call::given_up())),
            }
        });
    }

    fn list_tools(&mut self, id: &RequestId, params: Option<&RawValue>) -> Option<Answer> {
        match mcp::list_cursor(params) {
            Err(fault) => return Some(Err(invalid_params(&fault))),
            Ok(Some(cursor)) => return Some(self.server.lists().page(&cursor)),
            Ok(None) if self.has_listed => return Some(Ok(self.list_anew())),
            Ok(None) => {}
        }
        let (server, cancel) = (self.server.clone(), CancellationToken::new());
        let given_up = cancel.clone();
        self.spawn(id, 0, cancel, async move {
            tokio::select! {
                () = server.host().settled(server.first_list_wait()) => Outcome::Settled,
                () = given_up.cancelled() => Outcome::Answered(Err(tools_call::given_up())),
            }
        });
        None
    }

    /// The first page of the tools as they are now.
    fn list_anew(&mut self) -> Box<RawValue> {
        self.has_listed = true;
        let listing = self.server.lists().current(self.server.host());
        self.notices.listed(Instant::now(), listing.fingerprint, listing.is_current(self.server.host()));
        listing.first_page()
    }

    fn call_tool(&mut self, id: &RequestId, params: Option<&RawValue>) -> Option<Answer> {
        let bytes = params.map_or(0, |params| params.get().len());
        let params = match CallParamsIn::parse(params) {
            Ok(params) => params,
            Err(fault) => return Some(Err(invalid_params(&fault))),
        };
        let cancel = CancellationToken::new();
        let call = Call {
            host: self.server.host().clone(),
            view: self.server.view(),
            request: id.clone(),
            params,
            caller: self.caller.clone(),
            session: self.session,
            start_wait: self.server.first_list_wait(),
            counterpart: self.asks.counterpart(self.session),
            inputs: None,
            log_level: Some(WantedLevel::of_session(&self.listener)),
            cancel: cancel.clone(),
            notes: self.notes_in.clone(),
        };
        self.spawn(id, bytes, cancel, async move { Outcome::Answered(call.run().await) });
        None
    }

    fn spawn(
        &mut self,
        id: &RequestId,
        bytes: usize,
        cancel: CancellationToken,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) {
        let task = self.tasks.spawn(work).id();
        self.held_bytes += bytes;
        self.work.insert(task, Work { request: id.clone(), bytes });
        self.under_way.insert(id.clone(), UnderWay { task, cancel });
    }

    /// Takes what has ended by now, so that it is written together; a writer that is slow leaves the rest where it is.
    fn take_outcomes(&mut self, first: Result<(TaskId, Outcome), JoinError>) {
        let mut next = Some(first);
        while let Some(joined) = next {
            self.take_outcome(joined);
            let is_enough = self.connection.queued_bytes() >= WRITE_CHUNK_BYTES;
            next = if is_enough { None } else { self.tasks.try_join_next_with_id() };
        }
    }

    fn take_outcome(&mut self, joined: Result<(TaskId, Outcome), JoinError>) {
        // Its notes were sent before its task ended; they go first.
        while let Ok(note) = self.notes_out.try_recv() {
            self.hand_on(note);
        }
        let (task, outcome) = joined.unwrap_or_else(|error| {
            // A defect of ours costs one request its result, never its answer.
            let failed = RpcError::new(codes::INTERNAL_ERROR, "plugward failed while it handled the request");
            (error.id(), Outcome::Answered(Err(failed)))
        });
        let Some(Work { request: id, bytes }) = self.work.remove(&task) else { return };
        self.held_bytes -= bytes;
        match self.under_way.get(&id) {
            // The id of a cancelled request may be in use by a newer one.
            Some(newer) if newer.task != task => return,
            Some(_) => drop(self.under_way.remove(&id)),
            None => {}
        }
        let answer = match outcome {
            Outcome::Answered(answer) => answer,
            Outcome::Settled => Ok(self.list_anew()),
        };
        // Not sent if the client cancelled the request; the connection then only forgets it.
        self.connection.respond(&id, answer);
    }

    /// Hands a note on, unless its request has ended.
    fn hand_on(&mut self, note: Note) {
        if self.under_way.contains_key(&note.request)
            && let Err(error) = self.connection.notify(note.method, Some(note.params))
        {
            tracing::debug!("a note was not handed on: {error}");
        }
    }
}

async fn sleep_until(due_at: Option<Instant>) {
    match due_at {
        Some(due_at) => tokio::time::sleep_until(due_at.into()).await,
        None => std::future::pending().await,
    }
}
