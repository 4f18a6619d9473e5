//! What the owner of a connection wants: requests, answers, notifications, cancellation.
//!
//! Owns sending and its bounds. Refuses to queue past the bound: requests of the owner are handed back, while answers
//! we owe and cannot queue mean that the peer does not read, which ends the connection.

use std::time::Instant;

use serde_json::value::RawValue;

use super::event::{Event, OutboundId, PeerFault, RequestFailure, RequestTiming, SendError};
use super::inbound::BatchKey;
use super::outbound::Expired;
use super::{Connection, Phase, Role};
use crate::id::RequestId;
use crate::lifecycle::HandshakeError;
use crate::mcp::{codes, methods};
use crate::message::RpcError;
use crate::wire;

/// Reason sent along when a request of ours ran out of time.
const TIMED_OUT_REASON: &str = "request timed out";

impl Connection {
    /// Takes the next id, so that the owner can name it in the request (as progress token) before sending.
    pub fn reserve_id(&mut self) -> OutboundId {
        self.outbound.reserve()
    }

    /// Sends a request under a reserved id. It ends in exactly one [`Event::Response`] or [`Event::Failed`].
    ///
    /// # Errors
    /// [`SendError`]; then nothing was sent, no event follows, and the id stays reserved.
    // By value: parameters are sent once, and a copy the owner keeps would only cost memory.
    #[allow(clippy::needless_pass_by_value, reason = "parameters are sent once")]
    pub fn send_request(
        &mut self,
        now: Instant,
        id: OutboundId,
        method: &str,
        params: Option<Box<RawValue>>,
        timing: RequestTiming,
    ) -> Result<(), SendError> {
        let stamped = match &self.says {
            Some(says) if self.phase == Phase::Stateless => {
                Some(says.stamp(params.as_deref()).map_err(|_| SendError::BadParams)?)
            }
            _ => None,
        };
        self.transmit(now, id, method, stamped.as_deref().or(params.as_deref()), timing)
    }

    pub(super) fn transmit(
        &mut self,
        now: Instant,
        id: OutboundId,
        method: &str,
        params: Option<&RawValue>,
        timing: RequestTiming,
    ) -> Result<(), SendError> {
        self.ensure_ready()?;
        self.outbound.admits(id)?;
        let line = wire::line(wire::request(id.0, method, params));
        self.enqueue_bounded(line)?;
        self.outbound.insert(now, id, timing);
        Ok(())
    }

    /// Gives up a request of ours and tells the peer. `false` when it is not in flight; else [`Event::Failed`] follows.
    pub fn cancel(&mut self, _now: Instant, id: OutboundId, reason: &str) -> bool {
        if self.dead || self.is_hello(id.0) || !self.outbound.remove(id.0) {
            return false;
        }
        self.events.push_back(Event::Failed { id, cause: RequestFailure::Cancelled });
        self.send_cancelled(id, reason);
        true
    }

    /// Answers a request of the peer. `false` when it is unknown, answered or cancelled: then nothing is sent. An
    /// answer longer than the peer may be sent is replaced by an error.
    // By value: an answer is given once.
    #[allow(clippy::needless_pass_by_value, reason = "an answer is given once")]
    pub fn respond(&mut self, id: &RequestId, outcome: Result<Box<RawValue>, RpcError>) -> bool {
        match outcome {
            Ok(result) => self.answer_result(id, result.get()),
            Err(error) => {
                if self.is_handshake_request(id) {
                    self.phase = Phase::Idle;
                    self.version = None;
                }
                self.answer(id, wire::error(&id.to_string(), &error))
            }
        }
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// [`SendError`]; then nothing was sent.
    // By value: parameters are sent once.
    #[allow(clippy::needless_pass_by_value, reason = "parameters are sent once")]
    pub fn notify(&mut self, method: &str, params: Option<Box<RawValue>>) -> Result<(), SendError> {
        self.ensure_open()?;
        if self.phase != Phase::Ready && !self.is_modern {
            return Err(SendError::NotReady);
        }
        self.enqueue_bounded(wire::line(wire::notification(method, params.as_deref())))
    }

    /// Answers a request of the peer with the JSON text of a result.
    pub(super) fn answer_result(&mut self, id: &RequestId, result: &str) -> bool {
        self.answer(id, wire::result(&id.to_string(), result))
    }

    /// Gives the one answer to a request of the peer.
    fn answer(&mut self, id: &RequestId, text: String) -> bool {
        if self.dead {
            return false;
        }
        let Some(batch) = self.inbound.take(id) else { return false };
        let text = self.within_transmit_limit(id, text);
        self.deliver(text, batch);
        if let Some(key) = batch {
            self.settle_batch(key);
        }
        true
    }

    /// Puts an error in the place of an answer that is longer than the peer may be sent.
    fn within_transmit_limit(&self, id: &RequestId, text: String) -> String {
        let limit = self.config.max_transmit_bytes;
        if text.len() <= limit {
            return text;
        }
        let message = format!("answer of {} bytes exceeds the limit of {limit} bytes", text.len());
        wire::error(&id.to_string(), &RpcError::new(codes::INTERNAL_ERROR, message))
    }

    /// Sends an answer on its own, or keeps it for the rest of its batch.
    pub(super) fn deliver(&mut self, text: String, batch: Option<BatchKey>) {
        if self.writes_no_answers() {
            return;
        }
        match batch {
            None => self.enqueue_owed(wire::line(text)),
            Some(key) => {
                self.inbound.collect(key, text);
                let held_bytes = self.inbound.collected_bytes() + self.outgoing.bytes();
                if held_bytes > self.config.max_queued_bytes {
                    self.fatal(PeerFault::NotReading { limit: self.config.max_queued_bytes });
                }
            }
        }
    }

    /// Counts one part of a batch as done and sends the answer of the whole when it was the last.
    pub(super) fn settle_batch(&mut self, key: BatchKey) {
        if let Some(text) = self.inbound.settle(key) {
            self.enqueue_owed(wire::line(text));
        }
    }

    /// A request of ours ran out of time.
    pub(super) fn expire(&mut self, expired: Expired) {
        if self.is_hello(expired.id) {
            // `initialize` must not be cancelled; the owner stops the server instead.
            self.fail_handshake(HandshakeError::TimedOut { limit: expired.limit });
            return;
        }
        let id = OutboundId(expired.id);
        let cause = RequestFailure::TimedOut { limit: expired.limit, kind: expired.kind };
        self.events.push_back(Event::Failed { id, cause });
        self.send_cancelled(id, TIMED_OUT_REASON);
    }

    /// Every request of ours, the handshake included, fails because nothing more can arrive.
    pub(super) fn fail_everything(&mut self, fault: Option<&PeerFault>) {
        for id in self.outbound.drain() {
            if self.is_hello(id) {
                self.fail_handshake(fault.cloned().map_or(HandshakeError::Closed, HandshakeError::Broken));
            } else {
                self.events.push_back(Event::Failed { id: OutboundId(id), cause: RequestFailure::Closed });
            }
        }
    }

    /// Ends the connection by a fault of the peer.
    pub(super) fn fatal(&mut self, fault: PeerFault) {
        if self.dead {
            return;
        }
        self.dead = true;
        self.fail_everything(Some(&fault));
        self.inbound.clear();
        self.outgoing.clear();
        self.events.push_back(Event::Fatal(fault));
    }

    /// Tells the peer that a request of ours is given up (Requirement 13).
    fn send_cancelled(&mut self, id: OutboundId, reason: &str) {
        if self.dead || self.input_closed {
            return;
        }
        let params = format!("{{\"requestId\":{id},\"reason\":{}}}", wire::json_string(reason));
        // Composed of a number and an escaped string, so it is valid JSON.
        if let Ok(params) = RawValue::from_string(params) {
            self.enqueue_owed(wire::line(wire::notification(methods::CANCELLED, Some(&params))));
        }
    }

    fn ensure_open(&self) -> Result<(), SendError> {
        if self.dead { Err(SendError::Closed) } else { Ok(()) }
    }

    fn ensure_ready(&self) -> Result<(), SendError> {
        self.ensure_open()?;
        if self.input_closed {
            return Err(SendError::Closed);
        }
        let confirmed = self.config.role == Role::Client || self.initialized;
        let is_open = matches!(self.phase, Phase::Ready | Phase::Stateless);
        if is_open && confirmed { Ok(()) } else { Err(SendError::NotReady) }
    }

    /// Queues a line of the owner, within all bounds.
    pub(super) fn enqueue_bounded(&mut self, line: Vec<u8>) -> Result<(), SendError> {
        let (bytes, limit) = (line.len() - 1, self.config.max_transmit_bytes);
        if bytes > limit {
            return Err(SendError::TooLarge { bytes, limit });
        }
        if !self.outgoing.has_room(line.len()) {
            return Err(SendError::QueueFull { queued_bytes: self.outgoing.bytes() });
        }
        self.push_line(line);
        Ok(())
    }

    /// Queues a line we owe the peer. Without room the peer has not read for long, and the connection ends (N13).
    fn enqueue_owed(&mut self, line: Vec<u8>) {
        if self.dead {
            return;
        }
        if self.outgoing.has_room(line.len()) {
            self.push_line(line);
        } else {
            self.fatal(PeerFault::NotReading { limit: self.config.max_queued_bytes });
        }
    }

    fn push_line(&mut self, line: Vec<u8>) {
        self.stats.lines_out += 1;
        self.outgoing.push(line);
    }
}
