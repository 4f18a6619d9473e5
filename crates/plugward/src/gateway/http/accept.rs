//! Content types: what a client sends, and what it can take.
//!
//! Owns the reading of `Content-Type` and `Accept`. Lenient where nothing can go wrong: a client that says nothing, or
//! only `*/*`, takes both kinds of answer (case B030). Refuses bodies that are not declared as JSON: a web page can send
//! those without asking.

use axum::http::header::{self, HeaderMap};

/// Kinds of answers that a client takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepts {
    /// One JSON text.
    pub(super) json: bool,
    /// A stream of events.
    pub(super) stream: bool,
}

impl Accepts {
    /// What the headers say.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let values: Vec<&str> =
            headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
        if values.is_empty() {
            return Self { json: true, stream: true };
        }
        let mut accepts = Self { json: false, stream: false };
        for range in values.iter().flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            // A weight of zero means: not this.
            let is_refused = parts.any(|parameter| {
                let weight = parameter.strip_prefix("q=").or_else(|| parameter.strip_prefix("Q="));
                weight.is_some_and(|weight| weight.trim().parse::<f32>().is_ok_and(|weight| weight <= 0.0))
            });
            if is_refused {
                continue;
            }
            accepts.json |= matches!(kind.as_str(), "*/*" | "application/*" | "application/json");
            accepts.stream |= matches!(kind.as_str(), "*/*" | "text/*" | "text/event-stream");
        }
        accepts
    }

    /// Whether there is no way to answer.
    pub(super) fn is_nothing(self) -> bool {
        !self.json && !self.stream
    }
}

/// Whether the body is declared as JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return false };
    if headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return false;
    }
    let kind = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &header::HeaderName, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn what_a_client_takes_is_read_leniently() {
        // B030: real clients send each of these, and being strict turned them away.
        let of = |values: &[&str]| {
            let accepts = Accepts::of(&headers(&header::ACCEPT, values));
            (accepts.json, accepts.stream)
        };
        assert_eq!(of(&[]), (true, true));
        assert_eq!(of(&["*/*"]), (true, true));
        assert_eq!(of(&["application/json, text/event-stream"]), (true, true));
        assert_eq!(of(&["application/json", "text/event-stream"]), (true, true));
        assert_eq!(of(&["APPLICATION/JSON"]), (true, false));
        assert_eq!(of(&["text/event-stream;charset=utf-8"]), (false, true));
        assert_eq!(of(&["text/html, application/json;q=0.9, text/event-stream;q=0.1"]), (true, true));
        assert_eq!(of(&["application/json;q=0, text/event-stream"]), (false, true));
        assert_eq!(of(&["text/html"]), (false, false));
        assert_eq!(of(&[""]), (false, false));
    }

    #[test]
    fn only_declared_json_is_read() {
        // A page of another origin can send `text/plain` and forms without a preflight.
        for good in ["application/json", "application/json; charset=utf-8", "Application/JSON"] {
            assert!(is_json(&headers(&header::CONTENT_TYPE, &[good])), "{good}");
        }
        for bad in [&["text/plain"][..], &[], &["application/jsonx"], &["application/json", "text/plain"]] {
            assert!(!is_json(&headers(&header::CONTENT_TYPE, bad)), "{bad:?}");
        }
    }
}
