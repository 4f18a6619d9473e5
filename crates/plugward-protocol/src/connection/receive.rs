//! What arrives: lines become messages, messages find their place.
//!
//! Owns the dispatch of good messages. Bad ones are judged in `faults`. Refuses to interpret methods beyond those the
//! protocol itself needs: ping, initialize, initialized, cancelled, progress.

use std::time::Instant;

use serde_json::value::RawValue;

use super::event::{Event, OutboundId};
use super::inbound::{Admission, BatchKey};
use super::outbound::Referent;
use super::{Connection, Phase, Role};
use crate::framing::FramedLine;
use crate::id::RequestId;
use crate::mcp::{self, CancelledParams, codes, methods};
use crate::message::{BatchRule, Message, Parsed, RpcError, parse_line};
use crate::modern::{self, RequestMeta};
use crate::wire;

/// Answers without a request that are reported as events; further ones are only counted, so that a peer cannot turn
/// them into a flood of its owner's log.
const MAX_REPORTED_STRAYS: u64 = 64;

impl Connection {
    pub(super) fn handle_framed(&mut self, now: Instant, line: FramedLine) {
        match line {
            FramedLine::Line(line) => self.handle_line(now, &line),
            FramedLine::Oversized { bytes, id, shape } => self.handle_oversized(bytes, id, shape),
            FramedLine::Unterminated { bytes, line } => self.handle_tail(now, bytes, &line),
        }
    }

    pub(super) fn handle_line(&mut self, now: Instant, line: &[u8]) {
        match parse_line(line, self.batch_rule()) {
            Ok(Parsed::One(message)) => self.handle_message(now, message, None),
            Ok(Parsed::Batch(parts)) => {
                let key = self.inbound.open_batch();
                for part in parts {
                    match part {
                        _ if self.dead => return,
                        Ok(message) => self.handle_message(now, message, Some(key)),
                        Err(fault) => self.handle_fault(fault, line, Some(key)),
                    }
                }
                self.settle_batch(key);
            }
            Err(fault) => self.handle_fault(fault, line, None),
        }
    }

    pub(super) fn batch_rule(&self) -> BatchRule {
        self.version.map_or(BatchRule::Refuse, |version| version.batch_rule())
    }

    fn handle_message(&mut self, now: Instant, message: Message, batch: Option<BatchKey>) {
        self.stats.messages_in += 1;
        match message {
            Message::Request { id, method, params } => self.handle_request(id, method, params, batch),
            Message::Notification { method, params } => self.handle_notification(now, method, params),
            Message::Response { id, outcome } => self.handle_response(&id, outcome),
            Message::UnattributedError(_) => self.note_foreign(None),
        }
    }

    fn handle_request(
        &mut self,
        id: RequestId,
        method: String,
        params: Option<Box<RawValue>>,
        batch: Option<BatchKey>,
    ) {
        if self.config.role == Role::Server && modern::named_version(params.as_deref()).is_some() {
            self.handle_modern(id, method, params, batch);
            return;
        }
        if self.writes_no_answers() {
            self.note_forbidden(&method);
            return;
        }
        if method == methods::PING {
            // Answered here and now, in any phase: a peer measures our life by it.
            self.deliver(wire::result(&id.to_string(), "{}"), batch);
            return;
        }
        if method == methods::INITIALIZE && self.config.role == Role::Server {
            self.handle_initialize(id, params, batch);
            return;
        }
        if let Some(error) = self.unsupported(&method).or_else(|| self.too_early(&method)) {
            self.refuse(&id, &error, batch);
            return;
        }
        if self.admit(&id, batch) {
            self.events.push_back(Event::Request { id, method, params });
        }
    }

    /// Server: a request of a stateless revision stands for itself, whatever was said before.
    fn handle_modern(&mut self, id: RequestId, method: String, params: Option<Box<RawValue>>, batch: Option<BatchKey>) {
        self.is_modern = true;
        match RequestMeta::parse(params.as_deref()) {
            Err(error) => self.refuse(&id, &error, batch),
            Ok(meta) if self.admit(&id, batch) => {
                self.events.push_back(Event::ModernRequest { id, method, params, meta });
            }
            Ok(_) => {}
        }
    }

    /// Enters a request of the peer into the table, or tells the peer why not.
    fn admit(&mut self, id: &RequestId, batch: Option<BatchKey>) -> bool {
        match self.inbound.admit(id, batch) {
            Admission::Admitted => return true,
            Admission::Duplicate => self.refuse_duplicate(id, batch),
            Admission::Full => {
                let error = RpcError::new(codes::INTERNAL_ERROR, "too many requests are in flight");
                self.refuse(id, &error, batch);
            }
        }
        false
    }

    /// Client: requests of a server that we did not offer to serve are refused without asking the owner.
    fn unsupported(&self, method: &str) -> Option<RpcError> {
        if self.config.role == Role::Server {
            return None;
        }
        let offered = methods::needed_client_capability(method)
            .is_some_and(|needed| self.declared.iter().any(|declared| declared == needed));
        (!offered).then(|| RpcError::method_not_found(method))
    }

    fn handle_notification(&mut self, now: Instant, method: String, params: Option<Box<RawValue>>) {
        match method.as_str() {
            methods::CANCELLED if self.writes_no_answers() => self.handle_withdrawal(params.as_deref()),
            methods::CANCELLED => self.handle_cancelled(params.as_deref()),
            methods::PROGRESS => self.handle_progress(now, params),
            methods::INITIALIZED if self.config.role == Role::Server => self.handle_initialized(),
            _ if self.config.role == Role::Server && self.phase == Phase::Idle => {}
            _ if self.writes_no_answers() => self.handle_stateless_notification(now, method, params),
            _ => self.events.push_back(Event::Notification { method, params }),
        }
    }

    fn handle_initialized(&mut self) {
        if !self.initialized && self.phase != Phase::Idle {
            self.initialized = true;
            self.events.push_back(Event::Initialized);
        }
    }

    /// Malformed cancellations and those of unknown or answered requests are ignored: they may have crossed the answer.
    fn handle_cancelled(&mut self, params: Option<&RawValue>) {
        let Ok(cancelled) = CancelledParams::parse(params) else { return };
        if self.is_handshake_request(&cancelled.request_id) {
            return;
        }
        let Some(batch) = self.inbound.cancel(&cancelled.request_id) else { return };
        self.events.push_back(Event::CancelRequested { id: cancelled.request_id, reason: cancelled.reason });
        if let Some(key) = batch {
            self.settle_batch(key);
        }
    }

    fn handle_progress(&mut self, now: Instant, params: Option<Box<RawValue>>) {
        let Ok(token) = mcp::progress_token(params.as_deref()) else { return };
        let Referent::InFlight(id) = self.outbound.refer(&token) else { return };
        if self.is_hello(id) {
            return;
        }
        self.outbound.extend(now, id);
        if let Some(params) = params {
            self.events.push_back(Event::Progress { id: OutboundId(id), params });
        }
    }

    fn handle_response(&mut self, id: &RequestId, outcome: Result<Box<RawValue>, RpcError>) {
        match self.outbound.refer(id) {
            Referent::InFlight(ours) => {
                let was_hello = self.is_hello(ours);
                self.outbound.remove(ours);
                if was_hello {
                    self.handle_hello(outcome);
                } else {
                    match outcome {
                        Ok(result) if self.phase == Phase::Stateless => {
                            self.handle_stateless_result(OutboundId(ours), result);
                        }
                        outcome => self.events.push_back(Event::Response { id: OutboundId(ours), outcome }),
                    }
                }
            }
            stray => self.note_stray(stray, Some(id)),
        }
    }

    /// Counts an answer nobody waits for.
    pub(super) fn note_stray(&mut self, stray: Referent, id: Option<&RequestId>) {
        match stray {
            Referent::Ended(ours) => {
                self.stats.late_answers += 1;
                if self.stats.late_answers <= MAX_REPORTED_STRAYS {
                    self.events.push_back(Event::LateAnswer { id: OutboundId(ours) });
                }
            }
            Referent::Foreign | Referent::InFlight(_) => self.note_foreign(id),
        }
    }

    fn note_foreign(&mut self, id: Option<&RequestId>) {
        self.stats.foreign_answers += 1;
        if self.stats.foreign_answers <= MAX_REPORTED_STRAYS {
            self.events.push_back(Event::ForeignAnswer { id: id.cloned() });
        }
    }

    /// Answers a request with an error before it enters the table.
    pub(super) fn refuse(&mut self, id: &RequestId, error: &RpcError, batch: Option<BatchKey>) {
        self.deliver(wire::error(&id.to_string(), error), batch);
    }

    /// A second request under an open id gets its error without id: under the id the peer would take it for the answer
    /// to the first.
    pub(super) fn refuse_duplicate(&mut self, id: &RequestId, batch: Option<BatchKey>) {
        let error = RpcError::new(codes::INVALID_REQUEST, format!("request id {id} is in use"));
        self.deliver(wire::error("null", &error), batch);
    }
}
