//! Requests of the host itself: webhooks it sends, servers it is a client of.
//!
//! Owns HTTP/1.1 to one granted host, with or without TLS: the address is judged and then dialled, as for a plugin's own
//! connections (`egress`), each wait has an end, each length a limit, and a body arrives in pieces, so that a stream can be
//! read as it comes. Refuses redirects (they lead where nobody granted it), compressed answers (their size says nothing),
//! proxies of the environment, HTTP/2, and to know what a request is for.
//!
//! ```text
//! request -> rule, look-up, address -> dial -> TLS -> head of the answer -> BodyReader::next_chunk ... -> kept for the next
//! ```
//!
//! Nothing is spawned: a connection moves while somebody waits for it, and ends when its [`BodyReader`] is dropped.

mod body;
mod error;
mod line;
mod pool;
#[cfg(test)]
mod tests;
mod trust;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use plugward_policy::{NetRule, WebUrl};
use tokio::time::{Instant, timeout_at};

pub(crate) use body::BodyReader;
pub(crate) use error::OutboundError;
pub use trust::{Trust, TrustError};

use crate::egress::{Machine, Outside};
use line::Line;
use pool::Pool;

/// Who is calling, for the logs of servers.
const USER_AGENT: &str = concat!("plugward/", env!("CARGO_PKG_VERSION"));

/// Headers that say where a message goes and where it ends. Two opinions on that are how requests are smuggled, so they
/// are made here and nowhere else.
const OWN_HEADERS: [HeaderName; 9] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    header::EXPECT,
    header::ACCEPT_ENCODING,
];

/// How long an exchange may take and how much it may bring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Time from the request to the head of the answer, connecting included.
    pub head: Duration,
    /// Longest silence between two pieces of the body.
    pub quiet: Duration,
    /// Time for all of it, to the end of the body; `None` for a stream that goes on for as long as it is wanted.
    pub total: Option<Duration>,
    /// Bytes of the body; `None` for a stream, of which only a piece at a time is held.
    pub body_bytes: Option<u64>,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub method: Method,
    pub url: &'a WebUrl,
    /// Added to those the module makes itself (`host`, lengths, `user-agent` unless it is given).
    pub headers: &'a [(HeaderName, HeaderValue)],
    pub body: Bytes,
    pub limits: Limits,
}

/// The answer, its body still to come.
#[derive(Debug)]
pub(crate) struct Response {
    /// Never a redirect.
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: BodyReader,
}

/// The way out for one plugin. Its connections are kept for the next request for a short while, and never serve another
/// plugin, which may have been granted something else.
#[derive(Debug)]
pub(crate) struct Outbound<O = Machine> {
    rules: Vec<NetRule>,
    trust: Trust,
    outside: O,
    pool: Arc<Pool>,
}

impl Outbound {
    /// The way to the hosts of `rules`.
    pub(crate) fn new(rules: Vec<NetRule>, trust: Trust) -> Self {
        Self::through(rules, trust, Machine::default())
    }
}

impl<O: Outside> Outbound<O> {
    /// As [`Outbound::new`], by another resolver and network.
    pub(crate) fn through(rules: Vec<NetRule>, trust: Trust, outside: O) -> Self {
        Self { rules, trust, outside, pool: Arc::default() }
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// May be dropped at any time: the connection is closed then.
    ///
    /// # Errors
    /// [`OutboundError`]; of [`OutboundError::Broken`] and [`OutboundError::TimedOut`] the server may have acted on the
    /// request.
    pub(crate) async fn request(&self, request: Request<'_>) -> Result<Response, OutboundError> {
        let begun = Instant::now();
        let Request { url, limits, .. } = request;
        let end = limits.total.map(|total| begun + total);
        let head_end = end.map_or(begun + limits.head, |end| end.min(begun + limits.head));
        let message = message(&request)?;
        let exchange = async {
            let mut message = message;
            // A kept connection may have been closed meanwhile; what it could not send is sent by a new one.
            while let Some(mut line) = self.pool.take(url) {
                match line.exchange(message).await {
                    Ok(answer) => return Ok((line, answer)),
                    Err(line::Failure { unsent: Some(unsent), .. }) => message = unsent,
                    Err(failure) => return Err(OutboundError::of_http(url, &failure.error)),
                }
            }
            let mut line = Line::open(&self.rules, &self.outside, &self.trust, url).await?;
            match line.exchange(message).await {
                Ok(answer) => Ok((line, answer)),
                Err(failure) => Err(OutboundError::of_http(url, &failure.error)),
            }
        };
        let timed_out = |_| OutboundError::timed_out(url, "gave no answer", head_end - begun);
        // On the heap: the state of a TLS handshake would be part of every caller's future.
        let (line, answer) = timeout_at(head_end, Box::pin(exchange)).await.map_err(timed_out)??;
        let (head, incoming) = answer.into_parts();
        check_head(url, &head)?;
        let body = BodyReader::new(url, line, incoming, &head.headers, limits, end, Arc::clone(&self.pool))?;
        Ok(Response { status: head.status, headers: head.headers, body })
    }
}

impl Response {
    /// The whole body, within the limits of the request.
    ///
    /// # Errors
    /// As [`BodyReader::next_chunk`].
    #[cfg(test)]
    async fn into_bytes(mut self) -> Result<Vec<u8>, OutboundError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.body.next_chunk().await? {
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }
}

/// The request as it is sent.
fn message(request: &Request<'_>) -> Result<line::Message, OutboundError> {
    let Request { url, .. } = request;
    let unusual = |_| OutboundError::Misuse { origin: url.origin(), reason: "its URL cannot be sent".to_owned() };
    let mut message = hyper::Request::new(http_body_util::Full::new(request.body.clone()));
    *message.method_mut() = request.method.clone();
    *message.uri_mut() =
        url.target().parse().map_err(|error: hyper::http::uri::InvalidUri| unusual(error.to_string()))?;
    let headers = message.headers_mut();
    let host = HeaderValue::from_str(&url.authority()).map_err(|error| unusual(error.to_string()))?;
    headers.insert(header::HOST, host);
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    let given_agent = request.headers.iter().any(|(name, _)| name == header::USER_AGENT);
    if given_agent {
        headers.remove(header::USER_AGENT);
    }
    for (name, value) in request.headers {
        if is_own_header(name) {
            let reason = format!("header `{name}` is made by the host itself");
            return Err(OutboundError::Misuse { origin: url.origin(), reason });
        }
        headers.append(name, value.clone());
    }
    Ok(message)
}

/// Whether a header is made here, and may not be given.
pub(crate) fn is_own_header(name: &HeaderName) -> bool {
    OWN_HEADERS.contains(name) || name == "keep-alive" || name == "proxy-connection"
}

/// Refuses answers that nobody here can use.
fn check_head(url: &WebUrl, head: &hyper::http::response::Parts) -> Result<(), OutboundError> {
    if head.status.is_redirection() {
        let to = head.headers.get(header::LOCATION).and_then(|to| to.to_str().ok());
        // Only the origin: what follows may be a key, and it was written by a stranger.
        let to = to.and_then(|to| WebUrl::new(to).ok()).map(|to| to.origin());
        return Err(OutboundError::Redirected { origin: url.origin(), status: head.status.as_u16(), to });
    }
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(OutboundError::protocol(url, "it switched to another protocol, unasked"));
    }
    Ok(())
}
