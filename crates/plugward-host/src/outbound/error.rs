//! What becomes of a request that fails, split by whose fault it is. Owns the sentences; refuses to quote what a server
//! sent, or more of a URL than its origin.

use std::time::Duration;

use plugward_policy::WebUrl;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OutboundError {
    /// The rules, or the address the name leads to, do not allow it. For a person to decide; nothing was sent.
    #[error("`{origin}` must not be reached: {reason}")]
    Refused {
        /// Scheme, host, port.
        origin: String,
        /// Why.
        reason: String,
    },
    /// Nobody answers there. Nothing was sent.
    #[error("`{origin}` cannot be reached: {reason}")]
    Unreachable {
        /// Scheme, host, port.
        origin: String,
        /// Why.
        reason: String,
    },
    /// It did not prove to be the host that was meant. Nothing was sent.
    #[error("`{origin}` cannot be trusted: {reason}")]
    Tls {
        /// Scheme, host, port.
        origin: String,
        /// Why.
        reason: String,
    },
    /// A wait came to its end.
    #[error("`{origin}` {what} within {limit_ms} ms")]
    TimedOut {
        /// Scheme, host, port.
        origin: String,
        /// What did not happen.
        what: &'static str,
        /// The time it had.
        limit_ms: u64,
    },
    /// A part of the answer is larger than its limit.
    #[error("`{origin}` sent {what} of more than {limit_bytes} bytes")]
    TooLarge {
        /// Scheme, host, port.
        origin: String,
        /// What.
        what: &'static str,
        /// The limit.
        limit_bytes: u64,
    },
    /// It leads elsewhere.
    #[error(
        "`{origin}` redirects (status {status}){}; redirects are not followed, because nobody granted where they lead: \
         use the address it leads to",
        .to.as_deref().map(|to| format!(" to `{to}`")).unwrap_or_default()
    )]
    Redirected {
        /// Scheme, host, port.
        origin: String,
        /// The status.
        status: u16,
        /// Origin of where it leads, if it can be told.
        to: Option<String>,
    },
    /// Its answer breaks the rules of HTTP.
    #[error("`{origin}` does not answer in HTTP/1.1: {reason}")]
    Protocol {
        /// Scheme, host, port.
        origin: String,
        /// How.
        reason: String,
    },
    /// The connection ended before the answer did.
    #[error("`{origin}` broke off the connection: {reason}")]
    Broken {
        /// Scheme, host, port.
        origin: String,
        /// How.
        reason: String,
    },
    /// Our own fault: the request cannot be sent as it is, or there is nobody to trust.
    #[error("`{origin}` was not asked: {reason}")]
    Misuse {
        /// Scheme, host, port.
        origin: String,
        /// Why.
        reason: String,
    },
}

impl OutboundError {
    pub(super) fn timed_out(url: &WebUrl, what: &'static str, limit: Duration) -> Self {
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        Self::TimedOut { origin: url.origin(), what, limit_ms }
    }

    pub(super) fn protocol(url: &WebUrl, reason: &str) -> Self {
        Self::Protocol { origin: url.origin(), reason: reason.to_owned() }
    }

    /// What hyper found wrong.
    pub(super) fn of_http(url: &WebUrl, error: &hyper::Error) -> Self {
        let origin = url.origin();
        if error.is_parse_too_large() {
            return Self::TooLarge { origin, what: "a head", limit_bytes: super::line::HEAD_BYTES_MAX as u64 };
        }
        if error.is_parse() {
            return Self::Protocol { origin, reason: error.to_string() };
        }
        let cause = std::error::Error::source(error).map(ToString::to_string);
        Self::Broken { origin, reason: cause.unwrap_or_else(|| error.to_string()) }
    }
}
