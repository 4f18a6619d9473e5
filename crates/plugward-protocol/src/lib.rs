//! Sans-IO core of the Model Context Protocol.
//!
//! Owns everything that can be decided from bytes and instants alone: cutting a byte stream into lines under a cap
//! ([`framing`]), reading and writing JSON-RPC envelopes without touching what is inside them ([`message`]), the
//! lifecycle of the protocol as data ([`lifecycle`], [`modern`]), the few MCP payloads a host has to look into ([`mcp`]),
//! and the state of one byte stream in either role ([`connection`]).
//!
//! Refuses threads, sockets, clocks, async and logging: the caller moves the bytes and says what time it is. So every
//! rule here can be tested in microseconds with a seed instead of a process.

pub mod connection;
pub mod envelope;
mod envelope_scan;
mod excerpt;
pub mod framing;
mod id;
pub mod lifecycle;
pub mod mcp;
pub mod message;
pub mod modern;
mod object;
mod wire;

pub use connection::{
    Connection, ConnectionConfig, ConnectionStats, Event, NoisePolicy, OutboundId, OversizedPolicy, PeerFault,
    RequestFailure, RequestTiming, Role, SendError, TimeoutKind,
};
pub use framing::{DEFAULT_MAX_MESSAGE_BYTES, FramedLine, LineFramer};
pub use id::{BadId, MAX_ID_BYTES, RequestId};
pub use lifecycle::{
    ClientHello, HandshakeError, Implementation, InitializeParams, ProtocolVersion, ServerHello, ServerHelloOut,
};
pub use message::{BatchRule, FaultKind, Message, MessageFault, RpcError, Shape};
pub use modern::RequestMeta;
pub use modern::client::{ClientMeta, InputRequest, InputRequired, ProbeFailure};
