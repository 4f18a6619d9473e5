//! The task that moves bytes between a plugin's pipes and its [`Connection`], and answers to their askers.
//!
//! Owns the table of who waits for which request. One task reads, writes and keeps time, so nothing in it may block:
//! writes are attempted and resumed, and a plugin that does not read is noticed by the connection's bound (N13).

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use plugward_protocol::{
    ClientHello, ClientMeta, Connection, ConnectionConfig, Event, HandshakeError, InputRequired, OutboundId, PeerFault,
    ProbeFailure, RequestFailure, RequestTiming, SendError, ServerHello,
    mcp::{self, methods},
    modern::{self, LogLevel},
};
use serde_json::value::RawValue;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};

use super::alarm::Alarm;
use super::log::PluginLog;
use super::quote::Secrets;
use super::{Ending, MAX_IN_FLIGHT, RequestError, SessionSettings, Shared, Timing, ToolCall, masked};
use crate::rounds::Inputs;
use crate::views::LogOrigin;

/// Bytes read from the plugin at once; large results arrive in few reads.
const READ_CHUNK_BYTES: usize = 64 * 1024;

/// Bytes taken from the connection before they are written; more stay there, counted against its bound.
const WRITE_CHUNK_BYTES: usize = 64 * 1024;

/// Commands taken in one turn, and with them what is written at once: callers that ask together cost one write together,
/// and a flood of them does not put off reading.
const COMMANDS_PER_TURN: usize = 64;

pub(super) type Reply<T, E> = oneshot::Sender<Result<T, E>>;

/// What the rest of the host asks of a conversation.
pub(super) enum Command {
    Handshake {
        hello: ClientHello,
        limit: Duration,
        reply: Reply<ServerHello, HandshakeError>,
    },
    Discover {
        meta: ClientMeta,
        limit: Duration,
        reply: Reply<ServerHello, ProbeFailure>,
    },
    Confirm,
    Request {
        key: u64,
        method: &'static str,
        params: Option<Box<RawValue>>,
        timing: Timing,
        capabilities: Option<Box<RawValue>>,
        reply: Reply<Box<RawValue>, RequestError>,
    },
    CallTool {
        key: u64,
        call: ToolCall,
        reply: Reply<Box<RawValue>, RequestError>,
    },
    CloseInput,
}

struct Waiter {
    key: u64,
    reply: Reply<Box<RawValue>, RequestError>,
    progress: Option<mpsc::Sender<Box<RawValue>>>,
    /// What may be asked in answer, where that is not the same for every request.
    capabilities: Option<Box<RawValue>>,
    /// Log messages from this level on are wanted with it.
    log_level: Option<LogLevel>,
}

pub(super) struct Driver {
    connection: Connection,
    stdin: Option<pipe::Sender>,
    stdout: pipe::Receiver,
    outgoing: Vec<u8>,
    close_when_flushed: bool,
    /// The plugin closed its stdin, so that no request can reach it any more.
    is_deaf: bool,
    waiters: HashMap<OutboundId, Waiter>,
    ids: HashMap<u64, OutboundId>,
    handshake: Option<Reply<ServerHello, HandshakeError>>,
    discovery: Option<Reply<ServerHello, ProbeFailure>>,
    /// What is said with each request, of a plugin without a handshake.
    says: Option<ClientMeta>,
    /// The plugin opened a stream of notices before.
    has_listened: bool,
    shared: Arc<Shared>,
    log: Arc<PluginLog>,
    secrets: Secrets,
}

impl Driver {
    pub(super) fn new(
        stdin: OwnedFd,
        stdout: OwnedFd,
        settings: SessionSettings,
        shared: Arc<Shared>,
        log: Arc<PluginLog>,
    ) -> io::Result<Self> {
        let base = if settings.strict { ConnectionConfig::client() } else { ConnectionConfig::tolerant_client() };
        let config = ConnectionConfig {
            max_message_bytes: settings.max_message_bytes,
            max_transmit_bytes: settings.max_message_bytes,
            max_in_flight: MAX_IN_FLIGHT,
            ..base
        };
        Ok(Self {
            connection: Connection::new(config),
            stdin: Some(pipe::Sender::from_owned_fd(stdin)?),
            stdout: pipe::Receiver::from_owned_fd(stdout)?,
            outgoing: Vec::new(),
            close_when_flushed: false,
            is_deaf: false,
            waiters: HashMap::new(),
            ids: HashMap::new(),
            handshake: None,
            discovery: None,
            has_listened: false,
            says: None,
            shared,
            log,
            secrets: settings.secrets,
        })
    }

    /// Runs until the plugin closes its stdout, breaks the protocol, or nobody holds the session any more.
    pub(super) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut cancels: mpsc::Receiver<u64>,
    ) -> Ending {
        let mut chunk = vec![0; READ_CHUNK_BYTES];
        let mut asked = Vec::with_capacity(COMMANDS_PER_TURN);
        let mut alarm = Alarm::new();
        let ending = loop {
            self.write_some();
            tokio::select! {
                read = self.stdout.read(&mut chunk) => {
                    if let Some(ending) = self.take_input(read, &chunk) {
                        break ending;
                    }
                }
                () = writable(self.stdin.as_ref(), !self.outgoing.is_empty()) => {}
                count = commands.recv_many(&mut asked, COMMANDS_PER_TURN) => {
                    // Nobody can ask any more: this is how a session without owner ends.
                    if count == 0 {
                        self.close_when_flushed = true;
                        self.write_some();
                        break closed("its session was dropped");
                    }
                    // What nobody waits for is taken back before anything new is asked.
                    while let Ok(key) = cancels.try_recv() {
                        self.cancel(key);
                    }
                    self.take_all(&mut asked);
                }
                Some(key) = cancels.recv() => self.cancel(key),
                () = alarm.rings_at(self.connection.poll_timeout()) => self.connection.handle_timeout(Instant::now()),
            }
            if let Some(ending) = self.deliver() {
                break ending;
            }
            if self.is_deaf && self.waiters.is_empty() && self.handshake.is_none() && self.discovery.is_none() {
                break closed("it closed its stdin");
            }
        };
        commands.close();
        self.stdin = None;
        self.fail_all(&ending.reason);
        // What was sent before the queue closed still gets its answer.
        while let Some(command) = commands.recv().await {
            refuse(command, &ending.reason);
        }
        ending
    }

    fn take_input(&mut self, read: io::Result<usize>, chunk: &[u8]) -> Option<Ending> {
        match read {
            Ok(0) => {
                self.connection.handle_input_closed(Instant::now());
                let fault = self.deliver();
                Some(fault.unwrap_or_else(|| closed("it closed its stdout")))
            }
            Ok(length) => {
                self.shared.touch();
                self.connection.handle_input(Instant::now(), &chunk[..length]);
                self.shared.messages_in.store(self.connection.stats().messages_in, Ordering::Relaxed);
                None
            }
            Err(error) => Some(closed(format!("its stdout cannot be read: {error}"))),
        }
    }

    fn take_all(&mut self, asked: &mut Vec<Command>) {
        for command in asked.drain(..) {
            self.take(command);
            // Large requests go on their way at once, so that they do not fill the connection's queue.
            if self.connection.queued_bytes() >= WRITE_CHUNK_BYTES {
                self.write_some();
            }
        }
    }

    fn write_some(&mut self) {
        loop {
            while self.outgoing.len() < WRITE_CHUNK_BYTES {
                match self.connection.poll_transmit() {
                    Some(line) => self.outgoing.extend_from_slice(&line),
                    None => break,
                }
            }
            if self.outgoing.is_empty() {
                if self.close_when_flushed {
                    self.stdin = None;
                }
                return;
            }
            let Some(stdin) = &self.stdin else {
                self.outgoing.clear();
                return;
            };
            match stdin.try_write(&self.outgoing) {
                Ok(written) => {
                    self.outgoing.drain(..written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // A plugin that closed its stdin may still answer what it has read; then the session ends.
                Err(_) => {
                    self.is_deaf = true;
                    self.stdin = None;
                    self.outgoing.clear();
                    return;
                }
            }
        }
    }

    fn take(&mut self, command: Command) {
        let now = Instant::now();
        match command {
            Command::Handshake { hello, limit, reply } => {
                if self.connection.start_handshake(now, hello, limit).is_ok() {
                    self.handshake = Some(reply);
                } else {
                    let _ = reply.send(Err(HandshakeError::Closed));
                }
            }
            Command::Discover { meta, limit, reply } => {
                self.says = Some(meta.clone());
                if self.connection.start_probe(now, meta, limit).is_ok() {
                    self.discovery = Some(reply);
                } else {
                    let _ = reply.send(Err(ProbeFailure::Legacy(HandshakeError::Closed)));
                }
            }
            // A connection that closed meanwhile says so by its end.
            Command::Confirm => drop(self.connection.confirm_handshake(now)),
            Command::Request { key, method, params, timing, capabilities, reply } => {
                let id = self.connection.reserve_id();
                let waiter = Waiter { key, reply, progress: None, capabilities, log_level: None };
                self.send(now, id, method, params, timing, waiter);
            }
            Command::CallTool { key, call, reply } => {
                let id = self.connection.reserve_id();
                let log_level = call.log_level();
                let params = mcp::CallParamsOut {
                    name: &call.name,
                    arguments: call.arguments.as_deref(),
                    meta: call.meta.as_deref(),
                    progress: call.progress.is_some().then_some(id),
                };
                let params = params.to_raw().and_then(|params| match &call.inputs {
                    None => Ok(params),
                    Some(Inputs { responses, state }) => {
                        modern::client::with_inputs(Some(&params), responses.as_deref(), state.as_deref())
                    }
                });
                match params {
                    Ok(params) => {
                        let (progress, capabilities) = (call.progress, call.capabilities);
                        let waiter = Waiter { key, reply, progress, capabilities, log_level };
                        self.send(now, id, methods::TOOLS_CALL, Some(params), call.timing, waiter);
                    }
                    Err(fault) => drop(reply.send(Err(RequestError::Invalid(fault.to_string())))),
                }
            }
            Command::CloseInput => self.close_when_flushed = true,
        }
    }

    fn send(
        &mut self,
        now: Instant,
        id: OutboundId,
        method: &str,
        params: Option<Box<RawValue>>,
        timing: Timing,
        mut waiter: Waiter,
    ) {
        if waiter.reply.is_closed() {
            return;
        }
        if self.stdin.is_none() {
            let _ = waiter.reply.send(Err(RequestError::Unavailable("its stdin is closed".to_owned())));
            return;
        }
        let timing = RequestTiming { idle: timing.idle, hard: timing.hard };
        let own = waiter.capabilities.is_some() || waiter.log_level.is_some();
        let sent = match self.says.as_ref().filter(|_| own) {
            Some(says) => {
                let capabilities = waiter.capabilities.take().unwrap_or_else(|| says.capabilities.clone());
                let says = ClientMeta { capabilities, log_level: waiter.log_level, ..says.clone() };
                self.connection.send_request_as(now, id, method, params.as_deref(), timing, &says)
            }
            None => self.connection.send_request(now, id, method, params, timing),
        };
        match sent {
            Ok(()) => {
                self.ids.insert(waiter.key, id);
                self.waiters.insert(id, waiter);
            }
            Err(error) => {
                let _ = waiter.reply.send(Err(send_failure(&error)));
            }
        }
    }

    fn cancel(&mut self, key: u64) {
        if let Some(id) = self.ids.remove(&key) {
            self.waiters.remove(&id);
            self.connection.cancel(Instant::now(), id, "the caller no longer waits for the answer");
        }
    }

    /// Hands out everything the connection has to say; an ending if it is over.
    fn deliver(&mut self) -> Option<Ending> {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Handshaken(hello) => {
                    if let Some(reply) = self.handshake.take() {
                        let _ = reply.send(Ok(hello));
                    }
                }
                Event::HandshakeFailed(mut error) => {
                    if let HandshakeError::UnsupportedVersion { offered_by_server } = &mut error {
                        *offered_by_server = self.secrets.excerpt(offered_by_server);
                    }
                    if let Some(reply) = self.handshake.take() {
                        let _ = reply.send(Err(error));
                    }
                }
                Event::Discovered(hello) => {
                    self.shared.is_stateless.store(true, Ordering::Relaxed);
                    if let Some(reply) = self.discovery.take() {
                        let _ = reply.send(Ok(hello));
                    }
                }
                Event::ProbeFailed(failure) => {
                    self.says = None;
                    if let Some(reply) = self.discovery.take() {
                        let _ = reply.send(Err(failure));
                    }
                }
                Event::InputRequired { id, result } => self.answer(id, Err(asks(&result))),
                // Which stream it came on does not matter: this session opens one.
                Event::Notice { method, params, .. } => self.notification(&method, params.as_deref()),
                Event::Response { id, outcome } => self.answer(id, outcome.map_err(RequestError::Rejected)),
                // The end of the conversation follows and tells everybody why.
                Event::Failed { cause: RequestFailure::Closed, .. } => {}
                Event::Failed { id, cause } => {
                    let error = self.failure(cause);
                    self.answer(id, Err(error));
                }
                Event::Progress { id, params } => self.progress(id, params),
                Event::Notification { method, params } => self.notification(&method, params.as_deref()),
                Event::Noise { excerpt, .. } => {
                    self.shared.noise_lines.fetch_add(1, Ordering::Relaxed);
                    self.log.push(LogOrigin::StdoutNoise, &self.secrets.excerpt(&excerpt));
                }
                Event::Fatal(mut fault) => {
                    if let PeerFault::NotProtocol { excerpt, .. } = &mut fault {
                        *excerpt = self.secrets.excerpt(excerpt);
                    }
                    // It may quote what the plugin wrote.
                    let reason = self.log.redactor().redact(&fault.to_string()).into_owned();
                    return Some(Ending { reason, is_fault: true });
                }
                _ => {}
            }
        }
        None
    }

    fn answer(&mut self, id: OutboundId, result: Result<Box<RawValue>, RequestError>) {
        if let Some(waiter) = self.waiters.remove(&id) {
            self.ids.remove(&waiter.key);
            let _ = waiter.reply.send(result);
        }
    }

    fn progress(&mut self, id: OutboundId, params: Box<RawValue>) {
        if let Some(progress) = self.waiters.get(&id).and_then(|waiter| waiter.progress.as_ref()) {
            // A caller that does not keep up loses notes, not its result.
            let _ = progress.try_send(masked(self.log.redactor(), params));
        }
    }

    fn notification(&mut self, method: &str, params: Option<&RawValue>) {
        match method {
            // A stream opened anew: what changed before, nobody was told.
            modern::methods::ACKNOWLEDGED if self.has_listened => self.shared.tools_changed.notify_one(),
            modern::methods::ACKNOWLEDGED => self.has_listened = true,
            methods::TOOLS_LIST_CHANGED => self.shared.tools_changed.notify_one(),
            methods::LOG_MESSAGE => {
                let text = params.map_or("", RawValue::get);
                self.log.push(LogOrigin::Plugin, text);
                self.shared.heard.log(Instant::now(), params, self.log.redactor());
            }
            _ => {}
        }
    }

    fn failure(&self, cause: RequestFailure) -> RequestError {
        match cause {
            RequestFailure::TimedOut { limit, .. } => RequestError::TimedOut { limit },
            RequestFailure::Cancelled => RequestError::Cancelled,
            RequestFailure::Oversized { bytes, limit } => {
                RequestError::TooLarge { bytes, limit: u64::try_from(limit).unwrap_or(u64::MAX) }
            }
            RequestFailure::InvalidAnswer { fault } => RequestError::Invalid(fault.to_string()),
            RequestFailure::UnknownResult { reason } => RequestError::Invalid(reason),
            RequestFailure::Withdrawn => {
                RequestError::Invalid("the plugin ended the request without a result".to_owned())
            }
            RequestFailure::Closed => RequestError::Unavailable("its process went away".to_owned()),
        }
    }

    fn fail_all(&mut self, reason: &str) {
        if let Some(reply) = self.handshake.take() {
            let _ = reply.send(Err(HandshakeError::Closed));
        }
        if let Some(reply) = self.discovery.take() {
            let _ = reply.send(Err(ProbeFailure::Legacy(HandshakeError::Closed)));
        }
        for (_, waiter) in self.waiters.drain() {
            let _ = waiter.reply.send(Err(RequestError::Unavailable(reason.to_owned())));
        }
    }
}

/// Answers what comes after the end.
pub(super) fn refuse(command: Command, reason: &str) {
    match command {
        Command::Handshake { reply, .. } => {
            let _ = reply.send(Err(HandshakeError::Closed));
        }
        Command::Discover { reply, .. } => {
            let _ = reply.send(Err(ProbeFailure::Legacy(HandshakeError::Closed)));
        }
        Command::Request { reply, .. } | Command::CallTool { reply, .. } => {
            let _ = reply.send(Err(RequestError::Unavailable(reason.to_owned())));
        }
        Command::Confirm | Command::CloseInput => {}
    }
}

/// A result that asks for input, as the reason for there being none yet.
fn asks(result: &RawValue) -> RequestError {
    match InputRequired::parse(result) {
        Ok(asked) => RequestError::InputRequired(Box::new(asked)),
        Err(reason) => RequestError::Invalid(reason.to_owned()),
    }
}

fn send_failure(error: &SendError) -> RequestError {
    match error {
        SendError::TooLarge { bytes, limit } => RequestError::RequestTooLarge { bytes: *bytes, limit: *limit },
        other => RequestError::Unavailable(other.to_string()),
    }
}

fn closed(reason: impl Into<String>) -> Ending {
    Ending { reason: reason.into(), is_fault: false }
}

async fn writable(stdin: Option<&pipe::Sender>, wanted: bool) {
    match stdin {
        Some(stdin) if wanted => {
            let _ = stdin.writable().await;
        }
        _ => std::future::pending().await,
    }
}
