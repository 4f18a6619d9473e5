//! The client's way into the stateless revisions: asking what the server is, then requests that stand for themselves.
//!
//! Owns the probe, the metadata that goes with each request, and what a server of these revisions may not send. Refuses
//! to write anything but requests and notifications to such a server: whatever it asks, it gets no answer (ST-03).

use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use super::event::{Event, OutboundId, PeerFault, RequestFailure, RequestTiming, SendError};
use super::outbound::Referent;
use super::{Connection, NoisePolicy, Phase, Role};
use crate::excerpt::excerpt;
use crate::lifecycle::HandshakeError;
use crate::mcp::CancelledParams;
use crate::message::RpcError;
use crate::modern::client::{ClientMeta, ProbeFailure, ResultKind, discovered, result_kind, subscription_of};
use crate::modern::{self};
use crate::wire;

impl Connection {
    /// Client: sends `server/discover`. Ends in [`Event::Discovered`] or [`Event::ProbeFailed`] within `limit`. After the
    /// first, requests carry `meta`; after the other, [`start_handshake`](Self::start_handshake) is possible as before.
    ///
    /// # Errors
    /// [`SendError::HandshakeNotPossible`] when something was started before or this is the server role;
    /// [`SendError::Closed`] on an ended connection.
    pub fn start_probe(&mut self, now: Instant, meta: ClientMeta, limit: Duration) -> Result<(), SendError> {
        if self.dead || self.input_closed {
            return Err(SendError::Closed);
        }
        if self.config.role != Role::Client || self.phase != Phase::Idle {
            return Err(SendError::HandshakeNotPossible);
        }
        let params = meta.stamp(None).map_err(|_| SendError::BadParams)?;
        let id = self.outbound.reserve();
        self.enqueue_bounded(wire::line(wire::request(id.0, modern::methods::DISCOVER, Some(&params))))?;
        self.outbound.insert(now, id, RequestTiming::within(limit));
        self.phase = Phase::Probing { probe: id };
        self.says = Some(meta);
        Ok(())
    }

    /// As [`send_request`](Self::send_request), with other metadata than that of the probe: what a caller wants and can do.
    ///
    /// # Errors
    /// [`SendError`]; then nothing was sent, no event follows, and the id stays reserved.
    pub fn send_request_as(
        &mut self,
        now: Instant,
        id: OutboundId,
        method: &str,
        params: Option<&RawValue>,
        timing: RequestTiming,
        meta: &ClientMeta,
    ) -> Result<(), SendError> {
        if self.phase != Phase::Stateless {
            return Err(SendError::NotReady);
        }
        let params = meta.stamp(params).map_err(|_| SendError::BadParams)?;
        self.transmit(now, id, method, Some(&params), timing)
    }

    /// Whether the peer is, or may be, a server that takes no answers.
    pub(super) fn writes_no_answers(&self) -> bool {
        matches!(self.phase, Phase::Probing { .. } | Phase::Stateless)
    }

    /// The answer to the probe arrived.
    pub(super) fn handle_discovery(&mut self, outcome: Result<Box<RawValue>, RpcError>) {
        match discovered(outcome) {
            Ok(hello) => {
                self.version = Some(hello.version);
                self.phase = Phase::Stateless;
                self.events.push_back(Event::Discovered(hello));
            }
            Err(failure) => self.end_probe(failure),
        }
    }

    /// The probe has no answer that could be read.
    pub(super) fn fail_probe(&mut self, error: HandshakeError) {
        self.end_probe(ProbeFailure::Legacy(error));
    }

    fn end_probe(&mut self, failure: ProbeFailure) {
        self.phase = Phase::Idle;
        self.says = None;
        self.events.push_back(Event::ProbeFailed(failure));
    }

    /// A request of a server that must send none: noise, by the policy for noise.
    pub(super) fn note_forbidden(&mut self, method: &str) {
        let method = excerpt(method.as_bytes());
        match self.config.noise {
            NoisePolicy::Strict => self.fatal(PeerFault::ForbiddenRequest { method }),
            NoisePolicy::Tolerant { max_lines } => {
                let bytes = method.len() as u64;
                self.note_noise(
                    format!("request `{method}`, which servers of this revision do not send"),
                    bytes,
                    max_lines,
                );
            }
        }
    }

    /// A result in these revisions: the end of its request, a question, or nothing we know.
    pub(super) fn handle_stateless_result(&mut self, id: OutboundId, result: Box<RawValue>) {
        let event = match result_kind(&result) {
            Ok(ResultKind::Complete) => Event::Response { id, outcome: Ok(result) },
            Ok(ResultKind::InputRequired) => Event::InputRequired { id, result },
            Ok(ResultKind::Unknown(kind)) => {
                Event::Failed { id, cause: RequestFailure::UnknownResult { reason: format!("its type is `{kind}`") } }
            }
            Err(fault) => Event::Failed { id, cause: RequestFailure::UnknownResult { reason: fault.to_string() } },
        };
        self.events.push_back(event);
    }

    /// A notification on a stream goes to the stream it names; of one that has ended nobody wants to know.
    pub(super) fn handle_stateless_notification(
        &mut self,
        now: Instant,
        method: String,
        params: Option<Box<RawValue>>,
    ) {
        match subscription_of(params.as_deref()) {
            None => self.events.push_back(Event::Notification { method, params }),
            Some(stream) => {
                if let Referent::InFlight(id) = self.outbound.refer(&stream) {
                    self.outbound.extend(now, id);
                    self.events.push_back(Event::Notice { stream: OutboundId(id), method, params });
                }
            }
        }
    }

    /// A server ends a stream of ours by a cancellation.
    pub(super) fn handle_withdrawal(&mut self, params: Option<&RawValue>) {
        let Ok(cancelled) = CancelledParams::parse(params) else { return };
        let Referent::InFlight(id) = self.outbound.refer(&cancelled.request_id) else { return };
        if !self.is_hello(id) && self.outbound.remove(id) {
            self.events.push_back(Event::Failed { id: OutboundId(id), cause: RequestFailure::Withdrawn });
        }
    }
}
