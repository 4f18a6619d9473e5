//! Backend `mcp_stdio`: one conversation with one plugin process.
//!
//! Owns the pipes of the process, the [`plugward_protocol::Connection`] that speaks over them, and the log of what
//! the plugin writes beside the protocol. Requests are matched by id, so a slow one holds up nobody (B043); a request
//! that is dropped, cancelled or late is cancelled at the plugin (requirements 13, 83). Refuses to restart anything,
//! to judge tools and to decide who may call: the supervisor and the call path do.

mod alarm;
mod driver;
pub(crate) mod heard;
mod http;
pub(crate) mod log;
mod logging;
pub(crate) mod process;
pub(crate) mod quote;
mod stream;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plugward_protocol::modern::LogLevel;
use plugward_protocol::{ClientHello, ClientMeta, HandshakeError, InputRequired, ProbeFailure, RpcError, ServerHello};
use plugward_store::Redactor;
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use driver::{Command, Driver};
use heard::{Heard, LogWish};
pub(crate) use http::Remote;
use log::PluginLog;
use quote::Secrets;

use crate::rounds::Inputs;

/// Requests that may be in flight to one plugin. The call path admits fewer; the rest is room for lists and pings.
pub(crate) const MAX_IN_FLIGHT: usize = 1024;

/// Commands waiting for the driver. The driver never blocks on the plugin, so this only absorbs bursts.
const COMMAND_QUEUE: usize = 256;

/// Why a request has no result.
#[derive(Debug, Clone)]
pub(crate) enum RequestError {
    /// No answer within this limit.
    TimedOut {
        /// The limit that ran out.
        limit: Duration,
    },
    /// The caller cancelled or went away.
    Cancelled,
    /// The plugin wants answers first, and then the request again.
    InputRequired(Box<InputRequired>),
    /// The values make no call, for this reason; it repeats none of them.
    Refused(String),
    /// The plugin answered with an error.
    Rejected(RpcError),
    /// The plugin answered with something that is no answer.
    Invalid(String),
    /// The answer is longer than a message may be.
    TooLarge {
        /// Its length in bytes.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The request is longer than a message may be; the seed counts this as a failed call.
    RequestTooLarge {
        /// Its length in bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The conversation is over, or the plugin does not read.
    Unavailable(String),
}

/// How long a request may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// Without a sign of life about this request.
    pub(crate) idle: Duration,
    /// In all, whatever progress is reported.
    pub(crate) hard: Duration,
}

/// A call of a tool on its way to the plugin.
#[derive(Clone)]
pub(crate) struct ToolCall {
    pub(crate) name: String,
    pub(crate) arguments: Option<Box<RawValue>>,
    pub(crate) meta: Option<Box<RawValue>>,
    pub(crate) timing: Timing,
    pub(crate) progress: Option<mpsc::Sender<Box<RawValue>>>,
    /// Answers of the round before.
    pub(crate) inputs: Option<Inputs>,
    /// What may be asked in answer, an object; read by plugins of the stateless revisions alone.
    pub(crate) capabilities: Option<Box<RawValue>>,
    /// The session of the client, 0 where it has none.
    pub(crate) client: u64,
    /// What the caller wants to read of what the plugin logs.
    pub(crate) logs: Option<LogWish>,
}

impl ToolCall {
    /// The level that a plugin without a handshake is told.
    fn log_level(&self) -> Option<LogLevel> {
        self.logs.as_ref().map(|wish| wish.level)
    }
}

/// How a conversation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ending {
    /// In plain words; a broken rule quotes the beginning of the line that broke it, without secrets.
    pub(crate) reason: String,
    /// Whether the plugin broke the protocol (and did not merely go away).
    pub(crate) is_fault: bool,
}

/// A running conversation. Dropping the last handle closes the plugin's stdin.
pub(crate) struct Session {
    commands: mpsc::Sender<Command>,
    cancels: mpsc::Sender<u64>,
    next_key: AtomicU64,
    shared: Arc<Shared>,
    ended: watch::Receiver<Option<Ending>>,
    /// The level that the plugin was told.
    log_level: tokio::sync::Mutex<Option<LogLevel>>,
}

/// What the driver tells without being asked.
#[derive(Default)]
pub(crate) struct Shared {
    last_seen_ms: AtomicU64,
    pub(crate) messages_in: AtomicU64,
    pub(crate) noise_lines: AtomicU64,
    pub(crate) tools_changed: Notify,
    heard: Heard,
    /// What ended it stays until a person changes something.
    pub(crate) is_hopeless: AtomicBool,
    /// It has no handshake: results may be questions.
    pub(crate) is_stateless: AtomicBool,
}

impl Shared {
    fn touch(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_seen_ms.store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// What a session needs to know of the manifest.
#[derive(Clone)]
pub(crate) struct SessionSettings {
    pub(crate) max_message_bytes: usize,
    /// Every broken rule ends the conversation; otherwise what can be survived is survived and counted.
    pub(crate) strict: bool,
    /// What must not be repeated of what the plugin writes.
    pub(crate) secrets: Secrets,
}

impl Session {
    /// Takes over the pipes of a process. The driver task ends with the conversation.
    pub(crate) fn open(
        stdin: std::os::fd::OwnedFd,
        stdout: std::os::fd::OwnedFd,
        log: Arc<PluginLog>,
        settings: SessionSettings,
    ) -> std::io::Result<Session> {
        let (commands, command_rx) = mpsc::channel(COMMAND_QUEUE);
        // One slot per request that can be in flight or queued: a cancel is never lost to a full queue.
        let (cancels, cancel_rx) = mpsc::channel(MAX_IN_FLIGHT + COMMAND_QUEUE);
        let (ended_tx, ended) = watch::channel(None);
        let shared = Arc::new(Shared::default());
        let driver = Driver::new(stdin, stdout, settings, Arc::clone(&shared), log)?;
        tokio::spawn(async move {
            let ending = driver.run(command_rx, cancel_rx).await;
            ended_tx.send_replace(Some(ending));
        });
        Ok(Session::with(commands, cancels, shared, ended))
    }

    fn with(
        commands: mpsc::Sender<Command>,
        cancels: mpsc::Sender<u64>,
        shared: Arc<Shared>,
        ended: watch::Receiver<Option<Ending>>,
    ) -> Session {
        Session {
            commands,
            cancels,
            next_key: AtomicU64::new(1),
            shared,
            ended,
            log_level: tokio::sync::Mutex::default(),
        }
    }

    /// Sends `initialize` and waits for the answer (requirements 5, 41).
    pub(crate) async fn handshake(&self, hello: ClientHello, limit: Duration) -> Result<ServerHello, HandshakeError> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Handshake { hello, limit, reply };
        if self.commands.send(command).await.is_err() {
            return Err(HandshakeError::Closed);
        }
        answer.await.unwrap_or(Err(HandshakeError::Closed))
    }

    /// Asks what the plugin is, in the stateless revisions. On a plugin that knows them every request says `meta` from then
    /// on; else a handshake is possible as before.
    pub(crate) async fn discover(&self, meta: ClientMeta, limit: Duration) -> Result<ServerHello, ProbeFailure> {
        let closed = || ProbeFailure::Legacy(HandshakeError::Closed);
        let (reply, answer) = oneshot::channel();
        if self.commands.send(Command::Discover { meta, limit, reply }).await.is_err() {
            return Err(closed());
        }
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Sends `notifications/initialized` (requirement 43).
    pub(crate) async fn confirm(&self) -> Result<(), RequestError> {
        self.commands.send(Command::Confirm).await.map_err(|_| self.gone())
    }

    /// A request without progress.
    pub(crate) async fn request(
        &self,
        method: &'static str,
        params: Option<Box<RawValue>>,
        limit: Duration,
    ) -> Result<Box<RawValue>, RequestError> {
        let timing = Timing { idle: limit, hard: limit };
        let (reply, answer) = oneshot::channel();
        let key = self.key();
        let capabilities = None;
        let command = Command::Request { key, method, params, timing, capabilities, reply };
        self.dispatch(command, key, answer, &CancellationToken::new()).await
    }

    /// As [`Session::request`], with what may be asked in answer to it.
    pub(crate) async fn request_with(
        &self,
        method: &'static str,
        params: Option<Box<RawValue>>,
        timing: Timing,
        capabilities: Option<Box<RawValue>>,
    ) -> Result<Box<RawValue>, RequestError> {
        // What is logged meanwhile belongs to whoever asked, who is not told of it.
        let _during = self.shared.heard.during(0, None);
        let (reply, answer) = oneshot::channel();
        let key = self.key();
        let command = Command::Request { key, method, params, timing, capabilities, reply };
        self.dispatch(command, key, answer, &CancellationToken::new()).await
    }

    /// A tool call; `cancel` ends it at once, here and at the plugin.
    pub(crate) async fn call_tool(
        &self,
        call: ToolCall,
        cancel: &CancellationToken,
    ) -> Result<Box<RawValue>, RequestError> {
        if let Some(wish) = call.logs.as_ref().filter(|wish| wish.is_named) {
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(RequestError::Cancelled),
                () = self.log_from(wish.level) => {}
            }
        }
        let _during = self.shared.heard.during(call.client, call.logs.clone());
        let (reply, answer) = oneshot::channel();
        let key = self.key();
        self.dispatch(Command::CallTool { key, call, reply }, key, answer, cancel).await
    }

    async fn dispatch(
        &self,
        command: Command,
        key: u64,
        answer: oneshot::Receiver<Result<Box<RawValue>, RequestError>>,
        cancel: &CancellationToken,
    ) -> Result<Box<RawValue>, RequestError> {
        // Armed before sending: whatever happens to this future, the plugin learns that nobody waits any more.
        let mut guard = CancelGuard { cancels: &self.cancels, key, armed: true };
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(RequestError::Cancelled),
            result = async {
                if self.commands.send(command).await.is_err() {
                    return Err(self.gone());
                }
                answer.await.unwrap_or_else(|_| Err(self.gone()))
            } => {
                guard.armed = false;
                result
            }
        }
    }

    /// Lets the plugin know that no more will come: closes its stdin once all that was queued is written.
    pub(crate) async fn close_input(&self) {
        let _ = self.commands.send(Command::CloseInput).await;
    }

    /// Resolves with the reason when the conversation is over.
    pub(crate) async fn ended(&self) -> Ending {
        let mut ended = self.ended.clone();
        let result = ended.wait_for(Option::is_some).await.map(|ending| (*ending).clone());
        match result {
            Ok(Some(ending)) => ending,
            _ => Ending { reason: "the conversation was dropped".to_owned(), is_fault: false },
        }
    }

    /// Whether the conversation is over.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.ended.borrow().clone()
    }

    /// Resolves at the next `notifications/tools/list_changed`; notices that come together count once (B039).
    pub(crate) async fn tools_changed(&self) {
        self.shared.tools_changed.notified().await;
    }

    /// Whether the plugin has no handshake, so that its results may be questions.
    pub(crate) fn is_stateless(&self) -> bool {
        self.shared.is_stateless.load(Ordering::Relaxed)
    }

    /// When the plugin last sent a message.
    pub(crate) fn last_seen(&self) -> Option<SystemTime> {
        match self.shared.last_seen_ms.load(Ordering::Relaxed) {
            0 => None,
            ms => Some(UNIX_EPOCH + Duration::from_millis(ms)),
        }
    }

    /// Messages received so far; a timeout of a plugin that still talks is no sign of death.
    pub(crate) fn messages_in(&self) -> u64 {
        self.shared.messages_in.load(Ordering::Relaxed)
    }

    /// Non-protocol lines skipped so far.
    pub(crate) fn noise_lines(&self) -> u64 {
        self.shared.noise_lines.load(Ordering::Relaxed)
    }

    /// Whether beginning anew is of no use before a person changed something.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.shared.is_hopeless.load(Ordering::Acquire)
    }

    fn key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    fn gone(&self) -> RequestError {
        let reason = self.ending().map_or_else(|| "its process went away".to_owned(), |ending| ending.reason);
        RequestError::Unavailable(reason)
    }
}

/// `raw` without the secrets that plugins were given: they do not come back through a call (invariant 4, B020).
pub(crate) fn masked(secrets: &Redactor, raw: Box<RawValue>) -> Box<RawValue> {
    match secrets.redact_values(raw.get()) {
        Cow::Borrowed(_) => raw,
        // `***` replaces text inside strings only; if a value was not in a string, its number is not worth keeping.
        Cow::Owned(text) => RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned()),
    }
}

/// Tells the driver that nobody waits for a request any more.
struct CancelGuard<'a> {
    cancels: &'a mpsc::Sender<u64>,
    key: u64,
    armed: bool,
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        if self.armed {
            let _ = self.cancels.try_send(self.key);
        }
    }
}
