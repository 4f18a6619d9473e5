//! State of one byte stream between an MCP client and an MCP server, in either role.
//!
//! Owns everything that needs memory between two lines: the phase of the lifecycle, requests in flight both ways,
//! deadlines, cancellation, noise, the queue of lines to write, and the judgement whose fault a failure is. Refuses to
//! move bytes, to read clocks and to decide what a request means.
//!
//! ```text
//! client: Idle --start_handshake--> Asking --answer--> Confirming --confirm_handshake--> Ready
//!                                      \--error, time-out, bad answer--> Refused
//!         Idle --start_probe--> Probing --answer--> Stateless
//!          ^----anything else-----/
//! server: Idle --initialize--> Asked --accept_handshake--> Ready
//!          ^----respond(error)----/
//! ```
//!
//! Requests of the stateless revisions come in at any time and change no phase: one client may use both.
//!
//! | transition | function |
//! |---|---|
//! | Idle to Asking, Idle to Asked | `start_handshake`, `handle_initialize` |
//! | Asking to Confirming or Refused | `handle_hello`, `fail_handshake` |
//! | Confirming to Ready, Asked to Ready | `confirm_handshake`, `accept_handshake` |
//! | Asked to Idle | `respond` with an error |
//! | Idle to Probing, to Stateless or back | `start_probe`, `handle_discovery`, `end_probe` |
//! | anything to dead | `fatal` |

mod calls;
mod config;
mod event;
mod faults;
mod handshake;
mod inbound;
mod outbound;
mod outgoing;
mod probe;
mod receive;

use std::collections::VecDeque;
use std::time::Instant;

pub use config::{
    ConnectionConfig, DEFAULT_CLIENT_MAX_INBOUND_IN_FLIGHT, DEFAULT_CLIENT_MAX_QUEUED_BYTES, DEFAULT_MAX_IN_FLIGHT,
    DEFAULT_MAX_NOISE_LINES, DEFAULT_SERVER_MAX_INBOUND_IN_FLIGHT, DEFAULT_SERVER_MAX_QUEUED_BYTES, NoisePolicy,
    OversizedPolicy, Role,
};
pub use event::{Event, OutboundId, PeerFault, RequestFailure, RequestTiming, SendError, TimeoutKind};

use crate::framing::{FramedLine, LineFramer};
use crate::id::RequestId;
use crate::lifecycle::ProtocolVersion;
use crate::modern::client::ClientMeta;
use inbound::Inbound;
use outbound::Outbound;
use outgoing::Outgoing;

/// Where the connection stands in its lifecycle; see the diagram of this module.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// Client only: `initialize` is sent under this id.
    Asking {
        hello: OutboundId,
    },
    /// Server only: `initialize` came under this id and waits for the owner.
    Asked {
        request: RequestId,
    },
    /// Client only: the answer is there, the owner has not confirmed it.
    Confirming,
    Ready,
    /// Client only: there will be no handshake.
    Refused,
    /// Client only: `server/discover` is sent under this id.
    Probing {
        probe: OutboundId,
    },
    /// Client only: each request stands for itself.
    Stateless,
}

/// Counters over the life of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionStats {
    /// Lines skipped because they are no message.
    pub noise_lines: u64,
    /// Answers to requests that had ended.
    pub late_answers: u64,
    /// Answers to requests that were never sent.
    pub foreign_answers: u64,
    /// Lines over the cap.
    pub oversized_lines: u64,
    /// Messages taken in.
    pub messages_in: u64,
    /// Lines queued for the peer.
    pub lines_out: u64,
}

/// One connection. Four families of methods:
///
/// - `handle_*` take in what happened: bytes, end of stream, time. Each may queue lines and events.
/// - verbs (`send_request`, `respond`, `cancel`, ...) are what the owner wants.
/// - `poll_*` hand out what is to be done: lines to write, events, the instant of the next `handle_timeout`.
/// - the rest only looks.
///
/// After every call of the first two families drain [`poll_event`](Self::poll_event) and
/// [`poll_transmit`](Self::poll_transmit); the queue of events is bounded by what one `handle_input` brought in only if
/// it is drained.
#[derive(Debug)]
pub struct Connection {
    config: ConnectionConfig,
    framer: LineFramer,
    phase: Phase,
    version: Option<ProtocolVersion>,
    /// Client only: names of the capabilities we declared.
    declared: Vec<String>,
    /// Client only: what goes with each request in the stateless revisions.
    says: Option<ClientMeta>,
    /// Server only: the client confirmed the handshake.
    initialized: bool,
    /// Server only: the client has sent a request of a stateless revision.
    is_modern: bool,
    input_closed: bool,
    dead: bool,
    outbound: Outbound,
    inbound: Inbound,
    outgoing: Outgoing,
    events: VecDeque<Event>,
    stats: ConnectionStats,
}

impl Connection {
    /// A connection on a fresh byte stream.
    #[must_use]
    pub fn new(config: ConnectionConfig) -> Self {
        Connection {
            framer: LineFramer::new(config.max_message_bytes),
            phase: Phase::Idle,
            version: None,
            declared: Vec::new(),
            says: None,
            initialized: false,
            is_modern: false,
            input_closed: false,
            dead: false,
            outbound: Outbound::new(config.max_in_flight),
            inbound: Inbound::new(config.max_inbound_in_flight),
            outgoing: Outgoing::new(config.max_queued_bytes),
            events: VecDeque::new(),
            stats: ConnectionStats::default(),
            config,
        }
    }

    /// Takes bytes from the peer, cut anywhere.
    pub fn handle_input(&mut self, now: Instant, bytes: &[u8]) {
        if self.dead || self.input_closed {
            return;
        }
        self.framer.push(bytes);
        while let Some(line) = self.framer.next_line() {
            if self.dead {
                return;
            }
            self.handle_framed(now, line);
        }
        // Where an oversized line is the end, its newline is not waited for: it may never come (Requirement 128).
        let is_final = self.config.role == Role::Client && self.config.oversized == OversizedPolicy::Fatal;
        if is_final
            && !self.dead
            && let Some(line) = self.framer.give_up_line()
        {
            self.handle_framed(now, line);
        }
    }

    /// Notes that the peer will send no more bytes. Requests of ours fail; in the server role requests of the peer can
    /// still be answered, because a client may close its end and read the rest.
    pub fn handle_input_closed(&mut self, now: Instant) {
        if self.dead || self.input_closed {
            return;
        }
        if let Some(FramedLine::Unterminated { bytes, line }) = self.framer.close() {
            self.handle_tail(now, bytes, &line);
        }
        if !self.dead {
            self.input_closed = true;
            self.fail_everything(None);
        }
    }

    /// Notes that time has passed; to be called at [`poll_timeout`](Self::poll_timeout) or later.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(expired) = self.outbound.pop_expired(now) {
            self.expire(expired);
        }
    }

    /// The next line to write, newline included.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.outgoing.pop()
    }

    /// The next thing the owner has to know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.outbound.next_due()
    }

    /// Requests of ours without an outcome, the handshake included.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.outbound.len()
    }

    /// Requests of the peer without an answer.
    #[must_use]
    pub fn inbound_in_flight(&self) -> usize {
        self.inbound.len()
    }

    /// Lines skipped because they are no message.
    #[must_use]
    pub fn noise_count(&self) -> u64 {
        self.stats.noise_lines
    }

    /// Counters so far.
    #[must_use]
    pub fn stats(&self) -> ConnectionStats {
        self.stats
    }

    /// Bytes waiting for [`poll_transmit`](Self::poll_transmit).
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.outgoing.bytes()
    }

    /// Whether half of the queue is used. A server shell should stop reading until it is not: a caller that is merely
    /// slow is then held back instead of cut off.
    #[must_use]
    pub fn is_backlogged(&self) -> bool {
        self.outgoing.bytes() > self.config.max_queued_bytes / 2
    }

    /// The revision in use, once known.
    #[must_use]
    pub fn version(&self) -> Option<ProtocolVersion> {
        self.version
    }

    /// Whether requests can be sent.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready | Phase::Stateless) && !self.dead && !self.input_closed
    }

    /// Whether the connection ended by a fault of the peer.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead
    }
}
