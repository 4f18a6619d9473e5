//! What a connection tells its owner, and whose fault a failure is.
//!
//! Owns the closed list of events and the errors split by fault: of the peer, of the owner, of time. Refuses to format
//! what the peer sent without escaping and cutting it.

use std::fmt;
use std::time::Duration;

use serde_json::value::RawValue;
use thiserror::Error;

use crate::id::RequestId;
use crate::lifecycle::{HandshakeError, Implementation, ProtocolVersion, ServerHello};
use crate::message::{MessageFault, RpcError};
use crate::modern::RequestMeta;
use crate::modern::client::ProbeFailure;

/// Id of a request we send: a number in a name space of our own, never reused within a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OutboundId(pub(crate) u64);

impl OutboundId {
    /// An id of a request that is sent without a [`Connection`](super::Connection), where every message has an exchange of
    /// its own. Whoever makes them uses none twice.
    #[must_use]
    pub fn numbered(number: u64) -> Self {
        Self(number)
    }
}

/// The number as it goes over the wire.
impl fmt::Display for OutboundId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0)
    }
}

/// How long a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTiming {
    /// Longest silence; progress starts it anew.
    pub idle: Duration,
    /// Longest time overall, whatever progress says.
    pub hard: Duration,
}

impl RequestTiming {
    /// One limit for everything: progress does not extend it.
    #[must_use]
    pub fn within(limit: Duration) -> Self {
        RequestTiming { idle: limit, hard: limit }
    }
}

/// Something the owner has to know.
#[derive(Clone, Debug)]
pub enum Event {
    /// Client: the server answered the handshake. Check capabilities, then confirm.
    Handshaken(ServerHello),
    /// Client: there will be no handshake on this connection.
    HandshakeFailed(HandshakeError),
    /// Client: the server speaks a stateless revision. Requests can be sent.
    Discovered(ServerHello),
    /// Client: the server was not found to speak a stateless revision with us.
    ProbeFailed(ProbeFailure),
    /// Client: a request of ours in a stateless revision is to be sent again, with what its result asks for.
    InputRequired {
        /// The request, which has ended with this.
        id: OutboundId,
        /// The result.
        result: Box<RawValue>,
    },
    /// Client: a notification on a stream of ours.
    Notice {
        /// The request that opened the stream.
        stream: OutboundId,
        /// Method name.
        method: String,
        /// Parameters.
        params: Option<Box<RawValue>>,
    },
    /// Server: a client asks for the handshake. Accept it or answer it with an error.
    Initialize {
        /// Id to answer.
        id: RequestId,
        /// Version the client asked for, as sent.
        requested_version: String,
        /// Version that an acceptance will announce.
        version: ProtocolVersion,
        /// Who the client says it is.
        client: Option<Implementation>,
        /// All parameters, untouched.
        params: Box<RawValue>,
    },
    /// Server: the client confirmed the handshake.
    Initialized,
    /// A request of ours was answered.
    Response {
        /// The request.
        id: OutboundId,
        /// Its answer.
        outcome: Result<Box<RawValue>, RpcError>,
    },
    /// A request of ours will not be answered.
    Failed {
        /// The request.
        id: OutboundId,
        /// Why.
        cause: RequestFailure,
    },
    /// The peer reports progress of a request of ours.
    Progress {
        /// The request.
        id: OutboundId,
        /// The parameters, untouched.
        params: Box<RawValue>,
    },
    /// The peer asks for something. Answer with [`respond`](crate::Connection::respond), exactly once.
    Request {
        /// Id to answer.
        id: RequestId,
        /// Method name.
        method: String,
        /// Parameters.
        params: Option<Box<RawValue>>,
    },
    /// Server: a client asks for something in a stateless revision, at any time. Answer like a [`Event::Request`].
    ModernRequest {
        /// Id to answer.
        id: RequestId,
        /// Method name.
        method: String,
        /// Parameters, with the metadata.
        params: Option<Box<RawValue>>,
        /// What the request says about itself.
        meta: RequestMeta,
    },
    /// The peer tells something.
    Notification {
        /// Method name.
        method: String,
        /// Parameters.
        params: Option<Box<RawValue>>,
    },
    /// The peer gave up a request of its own. An answer to it is dropped from now on.
    CancelRequested {
        /// The request.
        id: RequestId,
        /// Why, for people.
        reason: Option<String>,
    },
    /// The peer wrote something that is no message; skipped.
    Noise {
        /// Its beginning, control characters escaped.
        excerpt: String,
        /// Its length in bytes.
        bytes: u64,
    },
    /// An answer came after its request had ended. Only the first few are reported, all are counted.
    LateAnswer {
        /// The request.
        id: OutboundId,
    },
    /// An answer came to a request that was never sent, or that names none. Only the first few are reported.
    ForeignAnswer {
        /// The id in it.
        id: Option<RequestId>,
    },
    /// The connection is of no use any more. Every request of ours has had its [`Event::Failed`] before.
    Fatal(PeerFault),
}

/// Which limit of a request ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutKind {
    /// The peer was silent for too long.
    Idle,
    /// The request took too long overall.
    Hard,
}

impl fmt::Display for TimeoutKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            TimeoutKind::Idle => "without a sign of life",
            TimeoutKind::Hard => "in total",
        })
    }
}

/// Why a request of ours has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestFailure {
    /// Its time ran out; the peer was told.
    #[error("request timed out after {} ms {kind}", limit.as_millis())]
    TimedOut {
        /// The limit that ran out.
        limit: Duration,
        /// Which limit.
        kind: TimeoutKind,
    },
    /// We gave it up; the peer was told.
    #[error("request was cancelled")]
    Cancelled,
    /// The answer is over the cap.
    #[error("answer of {bytes} bytes exceeds the limit of {limit} bytes")]
    Oversized {
        /// Length of the answer.
        bytes: u64,
        /// The cap.
        limit: usize,
    },
    /// The answer breaks a rule.
    #[error("answer is invalid: {fault}")]
    InvalidAnswer {
        /// The rule.
        #[source]
        fault: MessageFault,
    },
    /// The result is of no kind that we know.
    #[error("result is invalid: {reason}")]
    UnknownResult {
        /// What is wrong with it.
        reason: String,
    },
    /// The server ended it without a result, which only streams may come to.
    #[error("server ended the request without a result")]
    Withdrawn,
    /// The connection ended first.
    #[error("connection closed before the request was answered")]
    Closed,
}

/// What a peer did that ends the connection.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PeerFault {
    /// A line that is no message, where none is tolerated.
    #[error("peer wrote a line that is not a protocol message ({fault}): `{excerpt}`")]
    NotProtocol {
        /// The rule it breaks.
        #[source]
        fault: MessageFault,
        /// Its beginning, control characters escaped.
        excerpt: String,
    },
    /// More noise than tolerated.
    #[error("peer wrote more than {limit} lines that are not protocol messages")]
    TooMuchNoise {
        /// The bound.
        limit: u32,
    },
    /// A line over the cap, where that is fatal.
    #[error("peer wrote a message of {bytes} bytes, more than the limit of {limit} bytes")]
    OversizedLine {
        /// Length of the line.
        bytes: u64,
        /// The cap.
        limit: usize,
    },
    /// The stream ended within a line.
    #[error("peer closed the stream in the middle of a message, after {bytes} bytes of it")]
    UnterminatedLine {
        /// Length of what arrived.
        bytes: u64,
    },
    /// A server of a revision without server requests sent one, where no broken rule is tolerated.
    #[error("peer sent the request `{method}`, and servers of its revision send none")]
    ForbiddenRequest {
        /// The method, control characters escaped.
        method: String,
    },
    /// The peer does not read what is sent to it.
    #[error("peer does not read: more than {limit} bytes are waiting for it")]
    NotReading {
        /// The bound.
        limit: usize,
    },
}

/// Why something could not be sent. Nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The handshake is not complete.
    #[error("connection has not completed its handshake")]
    NotReady,
    /// A handshake was started before, or this is not the client role.
    #[error("handshake cannot be started now")]
    HandshakeNotPossible,
    /// The connection ended.
    #[error("connection is closed")]
    Closed,
    /// As many requests as allowed are in flight.
    #[error("connection has {limit} requests in flight already")]
    TooManyInFlight {
        /// The bound.
        limit: usize,
    },
    /// The id was not reserved, or was used before.
    #[error("request id was not reserved or was used before")]
    IdNotReserved,
    /// The parameters, or their `_meta`, are no object.
    #[error("parameters of the request are not an object")]
    BadParams,
    /// The message is over the cap.
    #[error("message of {bytes} bytes exceeds the limit of {limit} bytes")]
    TooLarge {
        /// Length of the message.
        bytes: usize,
        /// The cap.
        limit: usize,
    },
    /// Too much is waiting for a slow peer.
    #[error("peer is slow: {queued_bytes} bytes are waiting for it")]
    QueueFull {
        /// Bytes waiting.
        queued_bytes: usize,
    },
}
