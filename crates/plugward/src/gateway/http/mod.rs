//! Our MCP server over Streamable HTTP: one path for clients of both eras at once.
//!
//! ```text
//! POST   initialize -> a session; with its id: requests, answers, notifications   (revisions up to 2025-11-25)
//! GET    with its id: what the server says unasked; resumes a stream that broke
//! DELETE with its id: ends it
//! POST   with metadata in the request -> an answer, nothing kept                  (2026-07-28)
//! ```
//!
//! Owns the path and what a request must look like before it is read: guard, content types, sizes. The rules of the eras
//! are in `stateless.rs` and `legacy.rs`. Refuses HTML, cookies, CORS and messages without a token.

mod accept;
mod events;
mod guard;
mod headers;
mod legacy;
mod mirror;
mod requests;
mod session;
mod session_asks;
mod sessions;
mod sse;
mod stateless;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::RequestExt as _;
use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::extract::rejection::{BytesRejection, FailedToBufferBody};
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use plugward_protocol::mcp::codes;
use plugward_protocol::{DEFAULT_MAX_MESSAGE_BYTES, RequestId, RpcError, envelope};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::Server;
use accept::Accepts;
pub(crate) use guard::Admission;
use sessions::Sessions;

/// The path.
pub(crate) const PATH: &str = "/mcp";

/// Bytes of all requests that are being read or served. Far above what agents send at once; a further one waits.
const HELD_BYTES: usize = 64 * 1024 * 1024;

/// What a permit of the semaphore over [`HELD_BYTES`] stands for.
const PERMIT_BYTES: usize = 1024;

/// Time for the body of a request. The longest one over a slow line takes a fraction of it.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Limits of the face, apart from those of connections.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Sessions at once. Ten clients of a few people have tens.
    pub(crate) sessions: usize,
    /// Requests of one session at once.
    pub(crate) requests: usize,
    /// A session without open stream and request ends after this time. Above a lunch break; its client begins a new one.
    pub(crate) idle: Duration,
    /// Silence on a stream before a comment shows that it is alive. Below what proxies wait, 30 s and more.
    pub(crate) keep_alive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 512,
            requests: 128,
            idle: Duration::from_secs(2 * 60 * 60),
            keep_alive: Duration::from_secs(15),
        }
    }
}

/// The face.
#[derive(Clone)]
pub(crate) struct Endpoint {
    shared: Arc<Shared>,
}

struct Shared {
    server: Server,
    sessions: Sessions,
    limits: Limits,
    held: Arc<Semaphore>,
    /// The server ends: long streams end well, calls under way may finish.
    closing: CancellationToken,
}

impl Endpoint {
    /// A face of this server, until `closing`.
    pub(crate) fn new(server: Server, limits: Limits, closing: CancellationToken) -> Self {
        let sessions = Sessions::new(server.clone(), limits.clone(), closing.clone());
        let held = Arc::new(Semaphore::new(HELD_BYTES / PERMIT_BYTES));
        Self { shared: Arc::new(Shared { server, sessions, limits, held, closing }) }
    }

    /// The path, behind its guard.
    pub(crate) fn router(&self, admission: Admission) -> Router {
        Router::new()
            .route(PATH, axum::routing::any(serve))
            .with_state(self.clone())
            .layer(DefaultBodyLimit::max(DEFAULT_MAX_MESSAGE_BYTES))
            .layer(axum::middleware::from_fn_with_state(Arc::new(admission), guard::guard))
    }

    /// Tells sessions what changes and ends those nobody uses, until the server ends and the last request has.
    pub(crate) async fn tend(&self) {
        self.shared.sessions.tend().await;
    }
}

async fn serve(State(endpoint): State<Endpoint>, request: Request) -> Response {
    match *request.method() {
        Method::POST => post(&endpoint, request).await.unwrap_or_else(|refused| refused),
        Method::GET => legacy::get(&endpoint.shared, request.headers()).unwrap_or_else(|refused| refused),
        Method::DELETE => legacy::delete(&endpoint.shared, request.headers()).unwrap_or_else(|refused| refused),
        _ => {
            let message = "method is none of POST, GET and DELETE";
            let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, codes::INVALID_REQUEST, message);
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
            response
        }
    }
}

/// A message of a client. What cannot be served is an `Err` as well, so that each check is one line.
#[allow(clippy::result_large_err, reason = "both sides are the answer")]
async fn post(endpoint: &Endpoint, request: Request) -> Result<Response, Response> {
    if !accept::is_json(request.headers()) {
        let message = "content type is not `application/json`";
        return Err(refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, codes::INVALID_REQUEST, message));
    }
    let accepts = Accepts::of(request.headers());
    if accepts.is_nothing() {
        let message = "client accepts neither `application/json` nor `text/event-stream`";
        return Err(refusal(StatusCode::NOT_ACCEPTABLE, codes::INVALID_REQUEST, message));
    }
    let headers = request.headers().clone();
    let (bytes, held) = read(&endpoint.shared, request).await?;
    let posted = Posted { headers, accepts, held };
    requests::dispatch(&endpoint.shared, posted, &bytes).await
}

/// What surrounds a message.
struct Posted {
    headers: HeaderMap,
    accepts: Accepts,
    /// Its share of [`HELD_BYTES`], given back when it is over.
    held: OwnedSemaphorePermit,
}

#[allow(clippy::result_large_err, reason = "the error is the answer")]
async fn read(shared: &Shared, request: Request) -> Result<(Bytes, OwnedSemaphorePermit), Response> {
    let too_large = || {
        let message = format!("message is longer than {DEFAULT_MAX_MESSAGE_BYTES} bytes");
        refusal(StatusCode::PAYLOAD_TOO_LARGE, codes::INVALID_REQUEST, &message)
    };
    let declared =
        request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|bytes| bytes > DEFAULT_MAX_MESSAGE_BYTES) {
        return Err(too_large());
    }
    // One that does not say how long it is counts as the longest, until it is there.
    let ending = || refusal(StatusCode::SERVICE_UNAVAILABLE, codes::INTERNAL_ERROR, "server is ending");
    let permits = permits(declared.unwrap_or(DEFAULT_MAX_MESSAGE_BYTES));
    let mut held = tokio::select! {
        held = Arc::clone(&shared.held).acquire_many_owned(permits) => held.map_err(|_| ending())?,
        () = shared.closing.cancelled() => return Err(ending()),
    };
    let bytes = match tokio::time::timeout(BODY_TIMEOUT, request.extract::<Bytes, _>()).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(BytesRejection::FailedToBufferBody(FailedToBufferBody::LengthLimitError(_)))) => {
            return Err(too_large());
        }
        Ok(Err(_)) => return Err(refusal(StatusCode::BAD_REQUEST, codes::INVALID_REQUEST, "message broke off")),
        Err(_) => {
            return Err(refusal(StatusCode::REQUEST_TIMEOUT, codes::INVALID_REQUEST, "message did not arrive in time"));
        }
    };
    let excess = held.num_permits().saturating_sub(usize::try_from(self::permits(bytes.len())).unwrap_or(0));
    drop(held.split(excess));
    Ok((bytes, held))
}

fn permits(bytes: usize) -> u32 {
    // At most what the longest message takes, which is far below any number's end.
    u32::try_from(bytes.div_ceil(PERMIT_BYTES).max(1)).unwrap_or(u32::MAX)
}

/// A refused message whose id is not known.
fn refusal(status: StatusCode, code: i64, message: &str) -> Response {
    failure(status, None, &RpcError::new(code, message))
}

/// An error as the whole answer.
fn failure(status: StatusCode, id: Option<&RequestId>, error: &RpcError) -> Response {
    json(status, envelope::error(id, error))
}

fn json(status: StatusCode, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}
