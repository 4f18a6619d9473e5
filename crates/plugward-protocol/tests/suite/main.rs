//! Tests of the protocol crate through its public surface.
//!
//! - `framing`: lines out of bytes, any cutting
//! - `messages`: what is a message and what is not
//! - `handshake`: both halves, all revisions
//! - `client`: requests, answers, deadlines, noise, requests of a server
//! - `server`: requests of a client, cancellation, batches, malformed input
//! - `hostile`: random traffic of a peer, both roles
//! - `payloads`: the MCP payloads
//! - `modern`: requests of the stateless revisions, and what their results carry
//! - `stateless`: the client of those revisions
//! - `pair`: two connections against each other with a virtual clock and a seed
//!
//! Nothing here reads a clock or waits: instants are computed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod client;
mod framing;
mod handshake;
mod hostile;
mod messages;
mod modern;
mod pair;
mod payloads;
mod server;
mod stateless;
mod support;
