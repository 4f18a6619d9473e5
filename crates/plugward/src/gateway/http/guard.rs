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

use super::principals::{Principals, TokenFiles};
use crate::api::{Refusal, Token, admit, bearer_of};

/// Who is let in.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    /// What clients have to show.
    pub(crate) token: Token,
    /// Names under which this machine is reached, beside those of the loopback interface.
    pub(crate) hosts: Vec<String>,
    /// Where clients' own tokens are; none where there are none.
    pub(crate) files: Option<TokenFiles>,
}

/// What the guard needs: who may call, and under which names.
pub(super) struct Door {
    pub(super) principals: Arc<Principals>,
    pub(super) hosts: Vec<String>,
}

/// Checks a request, tells the face who makes it, and completes the answer.
pub(super) async fn guard(State(door): State<Arc<Door>>, mut request: Request, next: Next) -> Response {
    let admitted = admit(request.uri(), request.headers(), None, &door.hosts)
        .and_then(|()| door.principals.admit(bearer_of(request.headers())?));
    let mut response = match admitted {
        Ok(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
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
