//! What arrives broken: whose request it ends, whether the connection survives it, what the peer is told.
//!
//! Owns the judgement over lines that are no messages, by role and policy. As a server we answer with an error, because
//! the client waits for one; as a client we write nothing, because noise of a server is no conversation. Refuses to let
//! a broken answer leave its request waiting.

use std::time::Instant;

use super::event::{Event, OutboundId, PeerFault, RequestFailure};
use super::inbound::BatchKey;
use super::outbound::Referent;
use super::{Connection, NoisePolicy, OversizedPolicy, Role};
use crate::excerpt::excerpt;
use crate::id::RequestId;
use crate::lifecycle::HandshakeError;
use crate::mcp::codes;
use crate::message::{FaultKind, MessageFault, RpcError, Shape, parse_line};
use crate::wire;

impl Connection {
    /// A line, or a member of a batch, that is no message.
    pub(super) fn handle_fault(&mut self, fault: MessageFault, line: &[u8], batch: Option<BatchKey>) {
        match self.config.role {
            Role::Server => self.answer_fault(fault, batch),
            Role::Client => self.judge_fault(fault, line, batch),
        }
    }

    /// Server: every bad line gets an error, except answers (or two peers could answer each other for ever) and
    /// notifications with bad parameters.
    fn answer_fault(&mut self, fault: MessageFault, batch: Option<BatchKey>) {
        match fault.shape {
            Shape::Response => self.fail_answered(fault),
            Shape::Notification if fault.kind == FaultKind::BadParams => {}
            Shape::Request | Shape::Notification | Shape::Unknown => {
                let id = match fault.kind {
                    // What could not be parsed has no id, even if it can be guessed.
                    FaultKind::InvalidUtf8 { .. } | FaultKind::NotJson { .. } => None,
                    _ => fault.id,
                };
                let id = id.map_or_else(|| "null".to_owned(), |id| id.to_string());
                let error = RpcError::new(fault.kind.error_code(), fault.kind.to_string());
                self.deliver(wire::error(&id, &error), batch);
            }
        }
    }

    /// Client: a broken answer ends its request; what else happens depends on the policy.
    fn judge_fault(&mut self, fault: MessageFault, line: &[u8], batch: Option<BatchKey>) {
        if let (FaultKind::BadParams, Some(id), false) = (&fault.kind, &fault.id, self.writes_no_answers()) {
            let error = RpcError::new(fault.kind.error_code(), fault.kind.to_string());
            self.refuse(id, &error, batch);
            return;
        }
        // The envelope is good, only the error inside is odd; its text is all the person needs (case B088).
        let survivable = matches!(fault.kind, FaultKind::MalformedError { .. });
        let answers = fault.shape == Shape::Response && fault.id.is_some();
        if answers {
            self.fail_answered(fault.clone());
        }
        match self.config.noise {
            NoisePolicy::Strict if !survivable => {
                self.fatal(PeerFault::NotProtocol { fault, excerpt: excerpt(line) });
            }
            NoisePolicy::Strict => {}
            NoisePolicy::Tolerant { .. } if answers => {}
            NoisePolicy::Tolerant { max_lines } => self.note_noise(excerpt(line), line.len() as u64, max_lines),
        }
    }

    /// Ends the request that a broken answer names.
    fn fail_answered(&mut self, fault: MessageFault) {
        let referent = fault.id.as_ref().map_or(Referent::Foreign, |id| self.outbound.refer(id));
        match referent {
            Referent::InFlight(ours) => {
                let was_hello = self.is_hello(ours);
                self.outbound.remove(ours);
                if was_hello {
                    self.fail_handshake(HandshakeError::InvalidAnswer { fault });
                } else {
                    let cause = RequestFailure::InvalidAnswer { fault };
                    self.events.push_back(Event::Failed { id: OutboundId(ours), cause });
                }
            }
            stray => self.note_stray(stray, fault.id.as_ref()),
        }
    }

    /// A line over the cap.
    pub(super) fn handle_oversized(&mut self, bytes: u64, id: Option<RequestId>, shape: Shape) {
        self.stats.oversized_lines += 1;
        let limit = self.config.max_message_bytes;
        let answers = shape == Shape::Response && id.is_some();
        if let Some(id) = id.as_ref().filter(|_| answers) {
            self.fail_oversized(id, bytes);
        }
        match (self.config.role, self.config.oversized) {
            (Role::Server, _) => {
                if matches!(shape, Shape::Request | Shape::Unknown) {
                    let id = id.map_or_else(|| "null".to_owned(), |id| id.to_string());
                    let message = format!("message of {bytes} bytes exceeds the limit of {limit} bytes");
                    let error = RpcError::new(codes::INVALID_REQUEST, message);
                    self.deliver(wire::error(&id, &error), None);
                }
            }
            (Role::Client, OversizedPolicy::Fatal) => self.fatal(PeerFault::OversizedLine { bytes, limit }),
            (Role::Client, OversizedPolicy::FailRequest) if answers => {}
            (Role::Client, OversizedPolicy::FailRequest) => match self.config.noise {
                NoisePolicy::Strict => self.fatal(PeerFault::OversizedLine { bytes, limit }),
                NoisePolicy::Tolerant { max_lines } => self.note_noise(String::new(), bytes, max_lines),
            },
        }
    }

    fn fail_oversized(&mut self, id: &RequestId, bytes: u64) {
        let limit = self.config.max_message_bytes;
        match self.outbound.refer(id) {
            Referent::InFlight(ours) => {
                let was_hello = self.is_hello(ours);
                self.outbound.remove(ours);
                if was_hello {
                    let reason = format!("answer of {bytes} bytes exceeds the limit of {limit} bytes");
                    self.fail_handshake(HandshakeError::InvalidResult { reason });
                } else {
                    let cause = RequestFailure::Oversized { bytes, limit };
                    self.events.push_back(Event::Failed { id: OutboundId(ours), cause });
                }
            }
            stray => self.note_stray(stray, Some(id)),
        }
    }

    /// The stream ended within a line. A tail that is a whole message is taken: an object cut short never parses, so
    /// nothing is guessed, and a client that forgets its last newline still gets its answer (case B086).
    pub(super) fn handle_tail(&mut self, now: Instant, bytes: u64, line: &[u8]) {
        let strict = self.config.role == Role::Client && self.config.noise == NoisePolicy::Strict;
        let whole = parse_line(line, self.batch_rule()).is_ok();
        if whole && !strict {
            self.handle_line(now, line);
        } else if strict {
            self.fatal(PeerFault::UnterminatedLine { bytes });
        } else if self.config.role == Role::Server {
            self.handle_line(now, line);
        } else if let NoisePolicy::Tolerant { max_lines } = self.config.noise {
            self.note_noise(excerpt(line), bytes, max_lines);
        }
    }

    pub(super) fn note_noise(&mut self, excerpt: String, bytes: u64, limit: u32) {
        self.stats.noise_lines += 1;
        if self.stats.noise_lines > u64::from(limit) {
            self.fatal(PeerFault::TooMuchNoise { limit });
        } else {
            self.events.push_back(Event::Noise { excerpt, bytes });
        }
    }
}
