//! A message that was posted: what kind it is, which era it belongs to, and who answers it.
//!
//! Owns this choice alone. A request belongs to the stateless revisions when it names a version in its metadata, or when
//! its header names one that has no sessions; `initialize` and whatever names a session belong to the others.

use axum::http::StatusCode;
use axum::response::Response;
use plugward_protocol::mcp::{codes, methods};
use plugward_protocol::message::{BatchRule, Message, Parsed, parse_line};
use plugward_protocol::{ProtocolVersion, RpcError, modern};

use super::headers::{self, PROTOCOL_VERSION, SESSION_ID};
use super::session::Asked;
use super::{Posted, Shared, failure, legacy, refusal, stateless};

/// Answers a message.
#[allow(clippy::result_large_err, reason = "both sides are the answer")]
pub(super) async fn dispatch(shared: &Shared, posted: Posted, bytes: &[u8]) -> Result<Response, Response> {
    // Whether batches are taken depends on the session; one without is refused below.
    let parsed = parse_line(bytes, BatchRule::Accept).map_err(|fault| {
        let error = RpcError::new(fault.kind.error_code(), fault.kind.to_string());
        failure(StatusCode::BAD_REQUEST, fault.id.as_ref(), &error)
    })?;
    let message = match parsed {
        Parsed::One(message) => message,
        Parsed::Batch(parts) => return legacy::batch(shared, &posted, parts).await,
    };
    match message {
        Message::Request { id, method, params } => {
            let named = modern::named_version(params.as_deref());
            let is_hello = method == methods::INITIALIZE;
            if named.is_some() || (!is_hello && is_stateless_header(&posted)) {
                return stateless::answer(shared, posted, id, method, params, named).await;
            }
            let asked = Asked { id, method, params, reads_stream: false, held: None };
            if is_hello {
                legacy::hello(shared, &asked, posted.accepts)
            } else {
                legacy::ask(shared, posted, asked).await
            }
        }
        Message::Notification { method, params } => {
            // Nothing of these revisions is told by a notification: giving up is closing the connection.
            if is_stateless_header(&posted) {
                return Ok(accepted());
            }
            let session = legacy::session(shared, &posted.headers)?;
            session.told(&method, params.as_deref());
            Ok(accepted())
        }
        message @ (Message::Response { .. } | Message::UnattributedError(_)) => {
            if is_stateless_header(&posted) {
                let message = "answers are not taken: nothing was asked";
                return Err(refusal(StatusCode::BAD_REQUEST, codes::INVALID_REQUEST, message));
            }
            let session = legacy::session(shared, &posted.headers)?;
            if let Message::Response { id, outcome } = message {
                session.asks().answered(&id, outcome);
            }
            Ok(accepted())
        }
    }
}

/// Whether the headers speak for the stateless revisions: they name a version with no sessions, known or not, and no
/// session.
fn is_stateless_header(posted: &Posted) -> bool {
    let version = headers::single(&posted.headers, &PROTOCOL_VERSION);
    let is_other = version.is_some_and(|version| !ProtocolVersion::parse(version).is_some_and(|v| v.is_legacy()));
    is_other && !posted.headers.contains_key(SESSION_ID)
}

fn accepted() -> Response {
    let mut response = Response::new(axum::body::Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}
