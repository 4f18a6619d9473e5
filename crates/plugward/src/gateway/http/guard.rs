//! What stands before the MCP path: who asks, and from where.
//!
//! Owns the check before any byte of a body is read, with the Host API's own rules for `Host` and `Origin` (case B029)
//! and a token of its own: whoever may call tools may not approve plugins. Refuses in the words of the protocol.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use plugward_protocol::mcp::codes;

use crate::api::{Refusal, Token, admit};

/// Who is let in.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    /// What clients have to show.
    pub(crate) token: Token,
    /// Names under which this machine is reached, beside those of the loopback interface.
    pub(crate) hosts: Vec<String>,
}

/// Checks a request, and completes the answer.
pub(super) async fn guard(State(admission): State<Arc<Admission>>, request: Request, next: Next) -> Response {
    let admitted = admit(request.uri(), request.headers(), Some(&admission.token), &admission.hosts);
    let mut response = match admitted {
        Ok(()) => next.run(request).await,
        Err(refused) => refuse(refused),
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn refuse(refused: Refusal) -> Response {
    let mut response = super::refusal(refused.status(), codes::INVALID_REQUEST, refused.message());
    if let Some(challenge) = refused.challenge() {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    response
}
