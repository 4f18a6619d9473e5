//! What stands before every route: who asks, from where, and what every answer carries.
//!
//! Owns the checks of `Host`, `Origin` and the token, in this order and before any byte of a body is read (B029), and
//! the headers of all answers. Refuses CORS: no preflight is answered, so no browser lets a page of another origin read
//! an answer. A page that had its name rebound to 127.0.0.1 shows by its `Host`, any other page of another machine by
//! its `Origin`, a page of another server on this machine, and any other program, by its lack of the token.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::Options;
use super::errors::ApiError;
use super::token::Token;

/// Paths that answer without a token; they hold nothing about this host.
const PUBLIC_PATHS: [&str; 2] = ["/healthz", "/openapi.json"];

/// Where clients that were refused look for a place to sign in (B046). There is none, and 404 says so; 401 would have
/// them look on. No route begins like this.
const DISCOVERY_PATHS: &str = "/.well-known/";

/// Names of this machine for itself.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Header that names a request, for reports and logs.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Checks a request, runs its route, and completes the answer.
pub(super) async fn guard(State(options): State<Arc<Options>>, request: Request, next: Next) -> Response {
    let id = request_id();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let token = (!is_public(&path)).then_some(&options.token);
    let mut response = match admit(request.uri(), request.headers(), token, &[]) {
        Ok(()) => next.run(request).await,
        Err(refused) => ApiError::from(refused).into_response(),
    };
    // The path only: queries and bodies may hold what does not belong in a log.
    tracing::debug!(request = %id, %method, path = %path.escape_debug(), status = response.status().as_u16(), "api");
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, id);
    }
    response
}

fn is_public(path: &str) -> bool {
    PUBLIC_PATHS.contains(&path) || path.starts_with(DISCOVERY_PATHS)
}

fn request_id() -> String {
    static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let mut random = [0u8; 8];
    // Without randomness the count alone tells requests of this process apart.
    let _ = getrandom::fill(&mut random);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("req_{:016x}_{count:x}", u64::from_be_bytes(random))
}

/// Why a request is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It does not say, or says twice, whom it is addressed to.
    HostMissing,
    /// It is addressed to another name.
    HostForeign,
    /// A page of another origin made it.
    OriginForeign,
    /// It has no token.
    TokenMissing,
    /// It has another token.
    TokenWrong,
}

impl Refusal {
    /// Its status.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Refusal::HostMissing => StatusCode::BAD_REQUEST,
            Refusal::HostForeign | Refusal::OriginForeign => StatusCode::FORBIDDEN,
            Refusal::TokenMissing | Refusal::TokenWrong => StatusCode::UNAUTHORIZED,
        }
    }

    /// What a person is told.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Refusal::HostMissing => "request has not exactly one `Host`",
            Refusal::HostForeign => "request is addressed to another host",
            Refusal::OriginForeign => "request comes from another origin",
            Refusal::TokenMissing => "request has no token",
            Refusal::TokenWrong => "request has a wrong token",
        }
    }

    /// The value of `WWW-Authenticate`, where a token would help.
    pub(crate) fn challenge(self) -> Option<&'static str> {
        match self {
            Refusal::TokenMissing => Some("Bearer realm=\"plugward\""),
            Refusal::TokenWrong => Some("Bearer realm=\"plugward\", error=\"invalid_token\""),
            _ => None,
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refused: Refusal) -> Self {
        let code = match refused {
            Refusal::HostMissing => "HOST_HEADER_INVALID",
            Refusal::HostForeign => "HOST_NOT_ALLOWED",
            Refusal::OriginForeign => "ORIGIN_NOT_ALLOWED",
            Refusal::TokenMissing | Refusal::TokenWrong => "UNAUTHORIZED",
        };
        let error = ApiError::new(refused.status(), code, refused.message());
        match (refused, refused.challenge()) {
            (Refusal::HostForeign, _) => error.with_hint("address it to 127.0.0.1, localhost or [::1]"),
            (_, Some(challenge)) => error
                .with_hint("send `Authorization: Bearer TOKEN`; `plugward serve` tells where the token is kept")
                .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge)),
            _ => error,
        }
    }
}

/// Checks where a request comes from, whom it is addressed to, and its token where one is needed. `names` are those this
/// machine is reached by, beside its own for itself.
pub(crate) fn admit(uri: &Uri, headers: &HeaderMap, token: Option<&Token>, names: &[String]) -> Result<(), Refusal> {
    check_host(uri, headers, names)?;
    check_origin(headers, names)?;
    token.map_or(Ok(()), |token| check_token(token, headers))
}

fn check_host(uri: &Uri, headers: &HeaderMap, names: &[String]) -> Result<(), Refusal> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return Err(Refusal::HostMissing) };
    // A request for a whole address names its target twice; both have to be us.
    let target = uri.authority().map(|authority| authority.as_str());
    let allowed = [host.to_str().ok(), target.or(Some("localhost"))];
    let is_ours = |authority: &Option<&str>| authority.is_some_and(|authority| is_allowed_authority(authority, names));
    if allowed.iter().all(is_ours) { Ok(()) } else { Err(Refusal::HostForeign) }
}

fn check_origin(headers: &HeaderMap, names: &[String]) -> Result<(), Refusal> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let is_allowed = |origin: &HeaderValue| {
        let text = origin.to_str().unwrap_or_default();
        let authority = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        authority.is_some_and(|authority| is_allowed_authority(authority, names))
    };
    match (origins.next(), origins.next()) {
        (None, _) => Ok(()),
        (Some(origin), None) if is_allowed(origin) => Ok(()),
        _ => Err(Refusal::OriginForeign),
    }
}

/// `name` or `name:port`, with a name of ours. Whole names are compared: a name that only begins with ours is foreign.
fn is_allowed_authority(authority: &str, names: &[String]) -> bool {
    let name = match authority.rsplit_once(':') {
        // The colons of a bare IPv6 address are no port's.
        Some((name, port)) if !port.ends_with(']') => {
            if port.parse::<u16>().is_err() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
                return false;
            }
            name
        }
        _ => authority,
    };
    let mut ours = LOOPBACK_NAMES.into_iter().chain(names.iter().map(String::as_str));
    ours.any(|our| our.eq_ignore_ascii_case(name))
}

fn check_token(token: &Token, headers: &HeaderMap) -> Result<(), Refusal> {
    if token.matches(bearer_of(headers)?) { Ok(()) } else { Err(Refusal::TokenWrong) }
}

/// The one token that a request shows.
pub(crate) fn bearer_of(headers: &HeaderMap) -> Result<&[u8], Refusal> {
    let mut shown = headers.get_all(header::AUTHORIZATION).iter();
    match (shown.next(), shown.next()) {
        (None, _) => Err(Refusal::TokenMissing),
        (Some(value), None) => bearer(value.as_bytes()).ok_or(Refusal::TokenWrong),
        _ => Err(Refusal::TokenWrong),
    }
}

/// The token of a `Bearer` header; the word may be in any case (RFC 9110 §11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_of_ours_are_ours() {
        // B029: a look-alike name would let any web page of that name in.
        for good in ["localhost", "LOCALHOST:1", "127.0.0.1:65535", "[::1]", "[::1]:80"] {
            assert!(is_allowed_authority(good, &[]), "{good}");
        }
        for bad in [
            "",
            ":80",
            "localhost.",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "evil.example",
            "evil.example:80",
            "localhost:80@evil.example",
            "evil.example@localhost",
            "localhost:",
            "localhost:+80",
            "localhost:99999",
            "localhost/path",
            "127.1",
            "0.0.0.0:80",
            "::1",
            "[::1",
            "[::2]:80",
            "localhost:80:80",
            "sub.localhost",
        ] {
            assert!(!is_allowed_authority(bad, &[]), "{bad}");
        }
    }

    #[test]
    fn a_bearer_token_is_read_and_nothing_else() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bearer  abc "), Some(&b"abc"[..]));
        for wrong in [&b"Basic abc"[..], b"Bearer", b"", b"abc", b"Bearerabc"] {
            assert_eq!(bearer(wrong), None);
        }
    }
}
