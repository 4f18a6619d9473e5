//! The legacy handshake, both halves.
//!
//! Owns the order `initialize`, answer, `notifications/initialized` and what is refused outside of it (Requirements 5,
//! 7, 42, 43). Refuses to cancel `initialize`, which the protocol forbids.

use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use super::event::{Event, OutboundId, RequestTiming, SendError};
use super::inbound::{Admission, BatchKey};
use super::{Connection, Phase, Role};
use crate::id::RequestId;
use crate::lifecycle::{
    ClientHello, HandshakeError, InitializeParams, ProtocolVersion, ServerHello, ServerHelloOut, declared, empty_object,
};
use crate::mcp::{codes, methods};
use crate::message::RpcError;
use crate::modern;
use crate::wire;

impl Connection {
    /// Client: sends `initialize`. Ends in [`Event::Handshaken`] or [`Event::HandshakeFailed`] within `limit`.
    ///
    /// # Errors
    /// [`SendError::HandshakeNotPossible`] when one was started before or this is the server role;
    /// [`SendError::Closed`] on an ended connection.
    // By value: a hello is said once.
    #[allow(clippy::needless_pass_by_value, reason = "a hello is said once")]
    pub fn start_handshake(&mut self, now: Instant, hello: ClientHello, limit: Duration) -> Result<(), SendError> {
        if self.dead || self.input_closed {
            return Err(SendError::Closed);
        }
        if self.config.role != Role::Client || self.phase != Phase::Idle {
            return Err(SendError::HandshakeNotPossible);
        }
        let params = RawValue::from_string(hello.to_params()).map_err(|_| SendError::HandshakeNotPossible)?;
        let id = self.outbound.reserve();
        let line = wire::line(wire::request(id.0, methods::INITIALIZE, Some(&params)));
        self.enqueue_bounded(line)?;
        self.declared = declared(&hello.capabilities);
        self.outbound.insert(now, id, RequestTiming::within(limit));
        self.phase = Phase::Asking { hello: id };
        Ok(())
    }

    /// Client: sends `notifications/initialized`, after [`Event::Handshaken`] and the owner's own checks.
    ///
    /// # Errors
    /// [`SendError::NotReady`] when there is no answered handshake to confirm; [`SendError::Closed`] on an ended
    /// connection.
    pub fn confirm_handshake(&mut self, _now: Instant) -> Result<(), SendError> {
        if self.dead || self.input_closed {
            return Err(SendError::Closed);
        }
        if self.phase != Phase::Confirming {
            return Err(SendError::NotReady);
        }
        self.enqueue_bounded(wire::line(wire::notification(methods::INITIALIZED, None)))?;
        self.phase = Phase::Ready;
        Ok(())
    }

    /// Server: answers `initialize`. Returns the version announced, or `None` when no such request waits.
    pub fn accept_handshake(
        &mut self,
        _now: Instant,
        id: &RequestId,
        hello: &ServerHelloOut,
    ) -> Option<ProtocolVersion> {
        let version = self.version?;
        if !self.is_handshake_request(id) || !self.answer_result(id, &hello.to_result(version)) {
            return None;
        }
        self.phase = Phase::Ready;
        Some(version)
    }

    /// Whether this request of ours is `initialize`, or the probe that is sent in its place.
    pub(super) fn is_hello(&self, id: u64) -> bool {
        self.phase == Phase::Asking { hello: OutboundId(id) } || self.phase == Phase::Probing { probe: OutboundId(id) }
    }

    /// Whether this request of the peer is the `initialize` that waits for the owner.
    pub(super) fn is_handshake_request(&self, id: &RequestId) -> bool {
        matches!(&self.phase, Phase::Asked { request } if request == id)
    }

    /// Client: the answer to `initialize` arrived.
    pub(super) fn handle_hello(&mut self, outcome: Result<Box<RawValue>, RpcError>) {
        if matches!(self.phase, Phase::Probing { .. }) {
            self.handle_discovery(outcome);
            return;
        }
        let hello = outcome.map_err(HandshakeError::Rejected).and_then(ServerHello::parse);
        match hello {
            Ok(hello) => {
                self.version = Some(hello.version);
                self.phase = Phase::Confirming;
                self.events.push_back(Event::Handshaken(hello));
            }
            Err(error) => self.fail_handshake(error),
        }
    }

    /// Client: there will be no handshake.
    pub(super) fn fail_handshake(&mut self, error: HandshakeError) {
        if matches!(self.phase, Phase::Probing { .. }) {
            self.fail_probe(error);
            return;
        }
        self.phase = Phase::Refused;
        self.events.push_back(Event::HandshakeFailed(error));
    }

    /// Server: a client asks for the handshake.
    pub(super) fn handle_initialize(&mut self, id: RequestId, params: Option<Box<RawValue>>, batch: Option<BatchKey>) {
        if self.phase != Phase::Idle {
            let error = RpcError::new(codes::INVALID_REQUEST, "connection is initialized already");
            self.refuse(&id, &error, batch);
            return;
        }
        let parsed = match InitializeParams::parse(params.as_deref()) {
            Ok(parsed) => parsed,
            Err(reason) => {
                self.refuse(&id, &RpcError::new(codes::INVALID_PARAMS, reason), batch);
                return;
            }
        };
        if self.inbound.admit(&id, batch) != Admission::Admitted {
            self.refuse_duplicate(&id, batch);
            return;
        }
        // Known at once: a client may send its next lines, in a form only this version allows, without waiting.
        let version = ProtocolVersion::negotiate(&parsed.requested_version);
        self.version = Some(version);
        self.phase = Phase::Asked { request: id.clone() };
        self.events.push_back(Event::Initialize {
            id,
            requested_version: parsed.requested_version,
            version,
            client: parsed.client,
            params: params.unwrap_or_else(empty_object),
        });
    }

    /// Server: whether a request may be served in this phase; otherwise why not.
    pub(super) fn too_early(&self, method: &str) -> Option<RpcError> {
        if self.config.role != Role::Server || self.phase != Phase::Idle {
            return None;
        }
        if [modern::methods::DISCOVER, modern::methods::LISTEN].contains(&method) {
            // No handshake makes these possible: what is missing is in the request.
            return Some(RpcError::new(codes::INVALID_PARAMS, "`_meta` names no protocol version"));
        }
        Some(if methods::AFTER_HANDSHAKE.contains(&method) {
            RpcError::new(codes::INVALID_REQUEST, "connection is not initialized: send `initialize` first")
        } else {
            RpcError::method_not_found(method)
        })
    }
}
