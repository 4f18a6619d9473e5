//! Limits and policies of a connection.
//!
//! Owns every number that bounds a connection and the reason for it. Refuses to read configuration: the host maps its
//! own settings onto these fields.

use crate::framing::DEFAULT_MAX_MESSAGE_BYTES;

/// Requests we may have in flight at a peer. Above what agents start at once (tens), below what a single-threaded
/// server can hold without falling over.
pub const DEFAULT_MAX_IN_FLIGHT: usize = 1024;

/// Requests a server may have in flight at us as its client. Servers ask rarely (roots, sampling, elicitation).
pub const DEFAULT_CLIENT_MAX_INBOUND_IN_FLIGHT: usize = 64;

/// Requests a client may have in flight at us as its server.
pub const DEFAULT_SERVER_MAX_INBOUND_IN_FLIGHT: usize = 1024;

/// Bytes that may wait for a plugin that does not read. Four messages of the default cap.
pub const DEFAULT_CLIENT_MAX_QUEUED_BYTES: usize = 8 * 1024 * 1024;

/// Bytes that may wait for a caller that does not read. Larger than towards plugins, because answers to many finished
/// calls arrive at once and a slow caller is no attacker.
pub const DEFAULT_SERVER_MAX_QUEUED_BYTES: usize = 32 * 1024 * 1024;

/// Noise lines that an imported server may write over its whole life before it is given up. A banner and the log lines
/// of a session fit; a server that logs each call to stdout for a day does not.
pub const DEFAULT_MAX_NOISE_LINES: u32 = 10_000;

/// Which end of the protocol this connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// We speak to an MCP server.
    Client,
    /// We are the MCP server.
    Server,
}

/// What happens when a server writes something that is no protocol message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoisePolicy {
    /// The first such line ends the connection (Requirement 81).
    Strict,
    /// Such lines are skipped, counted and reported; past the bound the connection ends.
    Tolerant {
        /// Lines skipped over the life of the connection.
        max_lines: u32,
    },
}

/// What happens when a server writes a line over the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OversizedPolicy {
    /// The connection ends (Requirement 52).
    Fatal,
    /// Only the request it answers fails; without a readable id it counts as noise (case B026).
    FailRequest,
}

/// Limits and policies of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionConfig {
    /// Our role.
    pub role: Role,
    /// Longest line taken from the peer, in bytes without newline (Requirement 99).
    pub max_message_bytes: usize,
    /// Longest line sent to the peer, in bytes without newline.
    pub max_transmit_bytes: usize,
    /// Non-protocol lines; only in the client role, a server answers bad lines with errors instead.
    pub noise: NoisePolicy,
    /// Lines over the cap; only in the client role.
    pub oversized: OversizedPolicy,
    /// Requests of ours in flight.
    pub max_in_flight: usize,
    /// Requests of the peer in flight.
    pub max_inbound_in_flight: usize,
    /// Bytes waiting to be transmitted. Past it the peer counts as not reading and the connection ends.
    pub max_queued_bytes: usize,
}

impl ConnectionConfig {
    /// Towards a server with a native manifest: every broken rule ends the connection.
    #[must_use]
    pub fn client() -> Self {
        ConnectionConfig {
            role: Role::Client,
            max_message_bytes: DEFAULT_MAX_MESSAGE_BYTES,
            max_transmit_bytes: DEFAULT_MAX_MESSAGE_BYTES,
            noise: NoisePolicy::Strict,
            oversized: OversizedPolicy::Fatal,
            max_in_flight: DEFAULT_MAX_IN_FLIGHT,
            max_inbound_in_flight: DEFAULT_CLIENT_MAX_INBOUND_IN_FLIGHT,
            max_queued_bytes: DEFAULT_CLIENT_MAX_QUEUED_BYTES,
        }
    }

    /// Towards an imported server: what can be survived is survived and counted.
    #[must_use]
    pub fn tolerant_client() -> Self {
        ConnectionConfig {
            noise: NoisePolicy::Tolerant { max_lines: DEFAULT_MAX_NOISE_LINES },
            oversized: OversizedPolicy::FailRequest,
            ..Self::client()
        }
    }

    /// Towards a client of ours. Answers may be as long as the queue: the host has bounded results already.
    #[must_use]
    pub fn server() -> Self {
        ConnectionConfig {
            role: Role::Server,
            max_transmit_bytes: DEFAULT_SERVER_MAX_QUEUED_BYTES,
            noise: NoisePolicy::Tolerant { max_lines: DEFAULT_MAX_NOISE_LINES },
            oversized: OversizedPolicy::FailRequest,
            max_inbound_in_flight: DEFAULT_SERVER_MAX_INBOUND_IN_FLIGHT,
            max_queued_bytes: DEFAULT_SERVER_MAX_QUEUED_BYTES,
            ..Self::client()
        }
    }
}
