//! The revisions with a handshake over HTTP: sessions, their streams and their end.
//!
//! Owns what each method of HTTP means for a session and its statuses: 400 without an id, 404 for one that is not (or not
//! any more) there, so that a client knows to begin anew (case B008). Refuses to guess a session.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use plugward_protocol::mcp::codes;
use plugward_protocol::message::{Message, MessageFault};
use plugward_protocol::{InitializeParams, ProtocolVersion, RpcError, envelope};

use super::super::initialize;
use super::accept::Accepts;
use super::events::Reader;
use super::headers::{LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID, single};
use super::session::{Asked, NotBegun, Session};
use super::sessions::NoSession;
use super::sse::{self, Event, Source as _};
use super::{Posted, Shared, failure, json, refusal};

/// Seconds after which a client may try again when all sessions are in use.
const FULL_RETRY_SECONDS: u64 = 30;

/// `initialize`: begins a session.
#[allow(clippy::result_large_err, reason = "both sides are the answer")]
pub(super) fn hello(shared: &Shared, asked: &Asked, accepts: Accepts) -> Result<Response, Response> {
    let params = InitializeParams::parse(asked.params.as_deref()).map_err(|reason| {
        failure(StatusCode::BAD_REQUEST, Some(&asked.id), &RpcError::new(codes::INVALID_PARAMS, reason))
    })?;
    let version = ProtocolVersion::negotiate(&params.requested_version);
    let caller = shared.server.caller(params.client.as_ref().map(|client| client.name.as_str()));
    let session = shared
        .sessions
        .begin(version, caller.clone(), &shared.server, &shared.closing)
        .map_err(|none| no_session(none, asked))?;
    session.asks().declared(asked.params.as_deref());
    tracing::info!(caller = %caller, version = version.as_str(), "a client began an MCP session over HTTP");
    let result = initialize::hello(shared.server.host(), &shared.server.view()).to_result(version);
    // Made of JSON by ourselves.
    let result = serde_json::value::RawValue::from_string(result)
        .map_err(|_| refusal(StatusCode::INTERNAL_SERVER_ERROR, codes::INTERNAL_ERROR, "hello cannot be written"))?;
    let answer = envelope::result(&asked.id, &result);
    let mut response = if accepts.json { json(StatusCode::OK, answer) } else { sse::alone(answer) };
    if let Ok(id) = HeaderValue::from_str(session.id()) {
        response.headers_mut().insert(SESSION_ID, id);
    }
    Ok(response)
}

fn no_session(none: NoSession, asked: &Asked) -> Response {
    let message = match none {
        NoSession::Full => "all sessions are in use",
        NoSession::Ending => "server is ending",
        NoSession::NoRandomness => "the system gave no random bytes for a session",
    };
    let error = RpcError::new(codes::INTERNAL_ERROR, message);
    let mut response = failure(StatusCode::SERVICE_UNAVAILABLE, Some(&asked.id), &error);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(FULL_RETRY_SECONDS));
    response
}

/// The session that the headers name.
#[allow(clippy::result_large_err, reason = "the error is the answer")]
pub(super) fn session(shared: &Shared, headers: &HeaderMap) -> Result<Arc<Session>, Response> {
    let bad_request = |message: &str| refusal(StatusCode::BAD_REQUEST, codes::INVALID_REQUEST, message);
    let id = single(headers, &SESSION_ID).ok_or_else(|| {
        bad_request("`Mcp-Session-Id` is missing: send `initialize` first, or metadata in the request")
    })?;
    if headers.contains_key(PROTOCOL_VERSION) {
        let version = single(headers, &PROTOCOL_VERSION).and_then(ProtocolVersion::parse);
        if !version.is_some_and(ProtocolVersion::is_legacy) {
            return Err(bad_request("`MCP-Protocol-Version` names no version that has sessions"));
        }
    }
    // Another's is as unknown as one that never was: its id is no secret to whoever made it.
    let found = shared.sessions.find(id).filter(|session| session.is_of(&shared.server));
    let session = found.ok_or_else(|| {
        refusal(StatusCode::NOT_FOUND, codes::INVALID_REQUEST, "session is not there any more: send `initialize`")
    })?;
    session.touch();
    Ok(session)
}

/// A request within a session.
#[allow(clippy::result_large_err, reason = "both sides are the answer")]
pub(super) async fn ask(shared: &Shared, posted: Posted, asked: Asked) -> Result<Response, Response> {
    let session = session(shared, &posted.headers)?;
    let id = asked.id.clone();
    let asked = Asked { held: Some(posted.held), reads_stream: posted.accepts.stream, ..asked };
    let mut reader = session.ask(asked).map_err(|not_begun| {
        let (status, id) = match not_begun {
            NotBegun::Over => (StatusCode::NOT_FOUND, Some(&id)),
            NotBegun::IdInUse(_) => (StatusCode::BAD_REQUEST, None),
            NotBegun::TooMany => (StatusCode::SERVICE_UNAVAILABLE, Some(&id)),
        };
        failure(status, id, &not_begun.error())
    })?;
    let Accepts { json: json_taken, stream: stream_taken } = posted.accepts;
    if !stream_taken {
        return Ok(last_of(&session, reader).await.map_or_else(nothing, |text| json(StatusCode::OK, text)));
    }
    let opening = reader.opening();
    let first = tokio::time::timeout(shared.limits.keep_alive, reader.next()).await;
    match first {
        Ok(Some(event)) if json_taken && event.is_last => {
            session.forget(reader.stream());
            Ok(json(StatusCode::OK, event.text))
        }
        Ok(event) => Ok(stream(shared, &session, reader, opening, event)),
        Err(_) => Ok(stream(shared, &session, reader, opening, None)),
    }
}

/// The answer of a client that takes no streams: what comes before it is left out.
async fn last_of(session: &Session, mut reader: Reader) -> Option<String> {
    let mut last = None;
    while let Some(event) = reader.next().await {
        if event.is_last {
            last = Some(event.text);
        }
    }
    session.forget(reader.stream());
    last
}

/// A request that was cancelled has no answer (CA-03), its connection gets one.
fn nothing() -> Response {
    StatusCode::ACCEPTED.into_response()
}

fn stream(shared: &Shared, session: &Session, reader: Reader, opening: Event, first: Option<Event>) -> Response {
    // Before this revision clients read every event as a message.
    let opens = session.version() >= ProtocolVersion::V2025_11_25;
    let begun: Vec<Event> = opens.then_some(opening).into_iter().chain(first).collect();
    sse::respond(reader, &begun, shared.limits.keep_alive)
}

/// Several messages at once, where the session's revision has such.
#[allow(clippy::result_large_err, reason = "both sides are the answer")]
pub(super) async fn batch(
    shared: &Shared,
    posted: &Posted,
    parts: Vec<Result<Message, MessageFault>>,
) -> Result<Response, Response> {
    let refused = || refusal(StatusCode::BAD_REQUEST, codes::INVALID_REQUEST, "batch is not accepted");
    if !posted.headers.contains_key(SESSION_ID) {
        return Err(refused());
    }
    let session = session(shared, &posted.headers)?;
    if !session.version().allows_batches() {
        return Err(refused());
    }
    let (mut readers, mut answers) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            Ok(Message::Request { id, method, params }) => {
                match session.ask(Asked { id, method, params, reads_stream: false, held: None }) {
                    Ok(reader) => readers.push(reader),
                    Err(not_begun) => answers.push(envelope::error(None, &not_begun.error())),
                }
            }
            Ok(Message::Notification { method, params }) => session.told(&method, params.as_deref()),
            Ok(Message::Response { id, outcome }) => session.asks().answered(&id, outcome),
            Ok(Message::UnattributedError(_)) => {}
            Err(fault) => {
                let error = RpcError::new(fault.kind.error_code(), fault.kind.to_string());
                answers.push(envelope::error(fault.id.as_ref(), &error));
            }
        }
    }
    for reader in readers {
        answers.extend(last_of(&session, reader).await);
    }
    if answers.is_empty() {
        return Ok(nothing());
    }
    let text = envelope::batch(&answers);
    if posted.accepts.json {
        return Ok(json(StatusCode::OK, text));
    }
    Ok(sse::respond(Whole, &[Event { id: None, text, is_last: true }], shared.limits.keep_alive))
}

/// A stream of which everything is said at its beginning.
struct Whole;

impl sse::Source for Whole {
    async fn next(&mut self) -> Option<Event> {
        None
    }
}

/// `GET`: what the server says unasked, or the rest of a stream that broke.
#[allow(clippy::result_large_err, reason = "both sides are the answer")]
pub(super) fn get(shared: &Shared, headers: &HeaderMap) -> Result<Response, Response> {
    if !Accepts::of(headers).stream {
        let message = "client does not accept `text/event-stream`";
        return Err(refusal(StatusCode::NOT_ACCEPTABLE, codes::INVALID_REQUEST, message));
    }
    let session = session(shared, headers)?;
    let last_id = single(headers, &LAST_EVENT_ID);
    let reader = session.read(last_id).ok_or_else(|| {
        refusal(StatusCode::BAD_REQUEST, codes::INVALID_REQUEST, "`Last-Event-ID` names no event that is still kept")
    })?;
    let opening = reader.opening();
    Ok(stream(shared, &session, reader, opening, None))
}

/// `DELETE`: ends a session.
#[allow(clippy::result_large_err, reason = "both sides are the answer")]
pub(super) fn delete(shared: &Shared, headers: &HeaderMap) -> Result<Response, Response> {
    let session = session(shared, headers)?;
    shared.sessions.end(session.id());
    Ok(StatusCode::NO_CONTENT.into_response())
}
