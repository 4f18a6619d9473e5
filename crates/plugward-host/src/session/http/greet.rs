//! How a conversation with a server elsewhere begins, and begins anew when the server lost it.
//!
//! Owns telling servers of the two eras, and of the first HTTP transport, apart by what they answer. Refuses to go on after
//! an answer that leaves it open: what is said to the wrong kind may be acted on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::HeaderValue;
use plugward_policy::RemoteTransport;
use plugward_protocol::modern::client::discovered;
use plugward_protocol::{
    ClientHello, ClientMeta, HandshakeError, ProbeFailure, RpcError, ServerHello, envelope,
    mcp::{codes, methods},
    modern,
};
use serde_json::value::RawValue;

use super::exchange::{Clock, Letter, Missed, modern_headers};
use super::peer::{Era, Job, LegacySession, Peer, is_hopeless};
use crate::outbound::Limits;
use crate::session::{RequestError, Timing};

/// Time for a message without an answer, and for the end of a session.
const SHORT_LIMIT: Duration = Duration::from_secs(10);

/// Bytes of the answer to a message that has none.
const SHORT_BYTES: u64 = 64 * 1024;

/// Time for greeting a server again that lost its session.
const RENEWAL_LIMIT: Duration = Duration::from_secs(20);

/// Longest id of a session that is sent back, in bytes.
const MAX_SESSION_ID_BYTES: usize = 1024;

/// Limits of an exchange that brings nothing.
pub(super) const SHORT: Limits =
    Limits { head: SHORT_LIMIT, quiet: SHORT_LIMIT, total: Some(SHORT_LIMIT), body_bytes: Some(SHORT_BYTES) };

/// Why there is no greeting.
enum Ungreeted {
    /// No answer of the protocol.
    Missed(Missed),
    /// One that is none, or an error.
    Answer(HandshakeError),
}

impl Peer {
    /// `server/discover`.
    pub(super) async fn discover(
        self: &Arc<Self>,
        meta: ClientMeta,
        limit: Duration,
    ) -> Result<ServerHello, ProbeFailure> {
        let older = |reason: String| ProbeFailure::Legacy(HandshakeError::InvalidResult { reason });
        if self.remote.transport == RemoteTransport::Sse {
            return Err(older("the transport `sse` is older than it".to_owned()));
        }
        let params = meta.stamp(None).map_err(|fault| older(fault.to_string()))?;
        let method = modern::methods::DISCOVER;
        let mut clock = Clock::new(Timing { idle: limit, hard: limit });
        let mut is_again = false;
        loop {
            let id = self.next_id();
            let body = envelope::request(id, method, Some(&params));
            let letter = Letter { id, body, headers: modern_headers(&meta, method), session: None };
            let missed = match self.exchange(&letter, &mut clock, None).await {
                Ok(answer) => match discovered(answer) {
                    // VN-02: it refuses the version and names it as one it has. Said once more, it may be heard.
                    Err(ProbeFailure::Refused(error)) if is_version(&error) && !is_again => {
                        is_again = true;
                        continue;
                    }
                    Err(failure) => return Err(failure),
                    Ok(hello) => {
                        self.set_era(Era::Modern(Arc::new(meta)));
                        return Ok(hello);
                    }
                },
                Err(missed) => missed,
            };
            return Err(ProbeFailure::Legacy(self.ungreeted(missed)));
        }
    }

    /// `initialize`.
    pub(super) async fn handshake(
        self: &Arc<Self>,
        hello: ClientHello,
        limit: Duration,
    ) -> Result<ServerHello, HandshakeError> {
        let mut clock = Clock::new(Timing { idle: limit, hard: limit });
        if self.remote.transport == RemoteTransport::Sse {
            self.open_old(&clock).await?;
        }
        let greeted = match self.greet(&hello, &mut clock, 1).await {
            // What a server of the first HTTP transport says to a POST.
            Err(Ungreeted::Missed(Missed::Status(status))) if self.may_be_old(status) => {
                self.open_old(&clock).await?;
                self.greet(&hello, &mut clock, 1).await
            }
            greeted => greeted,
        };
        greeted.map_err(|ungreeted| match ungreeted {
            Ungreeted::Answer(error) => error,
            Ungreeted::Missed(missed) => self.ungreeted(missed),
        })
    }

    fn may_be_old(&self, status: StatusCode) -> bool {
        self.remote.transport == RemoteTransport::StreamableHttp
            && matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::BAD_REQUEST)
    }

    async fn greet(
        self: &Arc<Self>,
        hello: &ClientHello,
        clock: &mut Clock,
        number: u64,
    ) -> Result<ServerHello, Ungreeted> {
        let id = self.next_id();
        let params = RawValue::from_string(hello.to_params()).ok();
        let body = envelope::request(id, methods::INITIALIZE, params.as_deref());
        let letter = Letter { id, body, headers: Vec::new(), session: None };
        let (answer, session) = self.exchange_with_session(&letter, clock, None).await.map_err(Ungreeted::Missed)?;
        let result = answer.map_err(|error| Ungreeted::Answer(HandshakeError::Rejected(error)))?;
        let mut greeted = ServerHello::parse(result).map_err(Ungreeted::Answer)?;
        if session.as_ref().is_some_and(|id| !is_session_id(id)) {
            let reason = "the id of its session is not visible ASCII, or too long".to_owned();
            return Err(Ungreeted::Answer(HandshakeError::InvalidResult { reason }));
        }
        if let Some(server) = &mut greeted.server {
            server.name = self.secrets.redactor.redact(&server.name).into_owned();
        }
        let session = LegacySession { id: session, version: greeted.version, hello: hello.clone(), number };
        self.set_era(Era::Legacy(Arc::new(session)));
        Ok(greeted)
    }

    /// `notifications/initialized`.
    pub(super) async fn confirm(&self) {
        let Era::Legacy(session) = self.era() else { return };
        let text = envelope::notification(methods::INITIALIZED, None);
        // A server that does not take it says so to the next request.
        let _ = self.post(text, &Self::session_headers(&session), SHORT).await;
        self.confirmed.send_replace(true);
    }

    /// Replaces session number `lost`, unless that was done meanwhile.
    pub(super) async fn renew(self: &Arc<Self>, lost: u64) -> Result<(), RequestError> {
        let _turn = self.renewal.lock().await;
        let Era::Legacy(session) = self.era() else { return Ok(()) };
        if session.number != lost {
            return Ok(());
        }
        let mut clock = Clock::new(Timing { idle: RENEWAL_LIMIT, hard: RENEWAL_LIMIT });
        match self.greet(&session.hello, &mut clock, lost + 1).await {
            Ok(_) => {
                self.confirm().await;
                // A server that forgot a session was often started anew, maybe with other tools.
                self.shared.tools_changed.notify_one();
                self.log.push(crate::views::LogOrigin::Host, "it lost its session; another was begun");
                Ok(())
            }
            Err(ungreeted) => {
                let reason = match ungreeted {
                    Ungreeted::Answer(error) => error.to_string(),
                    Ungreeted::Missed(missed) => reason(&missed.into_error()),
                };
                let reason = format!("it lost its session, and began no other: {reason}");
                self.lose(&reason, false);
                Err(RequestError::Unavailable(reason))
            }
        }
    }

    /// Opens the stream of the first HTTP transport and waits for the address that it names.
    async fn open_old(self: &Arc<Self>, clock: &Clock) -> Result<(), HandshakeError> {
        self.is_old.store(true, Ordering::Release);
        if self.jobs.send(Job::FollowOld).await.is_err() {
            return Err(HandshakeError::Closed);
        }
        let mut endpoint = self.endpoint.subscribe();
        let named = async {
            tokio::select! {
                _ = self.lost() => false,
                named = endpoint.wait_for(Option::is_some) => named.is_ok(),
            }
        };
        match clock.wait(named).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(HandshakeError::Closed),
            Err(RequestError::TimedOut { limit }) => Err(HandshakeError::TimedOut { limit }),
            Err(_) => Err(HandshakeError::Closed),
        }
    }

    /// Why there is no greeting. What a later one would meet again ends the conversation.
    fn ungreeted(&self, missed: Missed) -> HandshakeError {
        match missed {
            Missed::Failed(RequestError::TimedOut { limit }) => HandshakeError::TimedOut { limit },
            Missed::Status(status) => HandshakeError::InvalidResult { reason: format!("status {}", status.as_u16()) },
            Missed::Failed(RequestError::Invalid(reason)) => {
                HandshakeError::InvalidResult { reason: self.secrets.redactor.redact(&reason).into_owned() }
            }
            Missed::Unauthorized(reason) => {
                self.lose(&reason, true);
                HandshakeError::Closed
            }
            Missed::Unsent(error) => {
                self.lose(&error.to_string(), is_hopeless(&error));
                HandshakeError::Closed
            }
            missed => {
                self.lose(&reason(&missed.into_error()), false);
                HandshakeError::Closed
            }
        }
    }
}

fn is_version(error: &RpcError) -> bool {
    error.code == codes::UNSUPPORTED_VERSION
}

/// LG-06: visible ASCII.
fn is_session_id(id: &HeaderValue) -> bool {
    !id.is_empty() && id.len() <= MAX_SESSION_ID_BYTES && id.as_bytes().iter().all(u8::is_ascii_graphic)
}

/// A failure of a request, in words.
pub(super) fn reason(error: &RequestError) -> String {
    match error {
        RequestError::TimedOut { limit } => format!("it gave no answer within {limit:?}"),
        RequestError::Unavailable(reason) | RequestError::Invalid(reason) | RequestError::Refused(reason) => {
            reason.clone()
        }
        RequestError::Rejected(error) => error.to_string(),
        RequestError::TooLarge { limit, .. } => format!("its answer has more than {limit} bytes"),
        RequestError::RequestTooLarge { limit, .. } => format!("the request has more than {limit} bytes"),
        RequestError::Cancelled => "it was cancelled".to_owned(),
        RequestError::InputRequired(_) => "it asks for input".to_owned(),
    }
}
