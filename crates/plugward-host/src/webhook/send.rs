//! One delivery: its payload, its signature, its attempts and its record.
//!
//! Owns which answers are worth another attempt, the pauses between them, and that all of it ends. Refuses to let an answer
//! change where the next attempt goes, and to keep more of an answer than its status.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, StatusCode};
use plugward_store::{EventRow, Span};
use tokio_util::sync::CancellationToken;

use super::{Happening, Sender};
use crate::call::epoch_us;
use crate::host::Inner;
use crate::outbound::{BodyReader, Limits, OutboundError, Request};
use crate::views::LogOrigin;

/// Longest pause between two attempts, whatever doubling or the receiver asks for.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Largest payload. A template has 5000 bytes and may repeat a fact; receivers refuse far less.
const PAYLOAD_BYTES_MAX: usize = 256 * 1024;

/// Bytes of an answer that are read, so that the connection can be used again. Nobody looks at them.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// What became of a delivery.
#[derive(Debug)]
pub(super) struct Outcome {
    began: SystemTime,
    took: Duration,
    attempts: u32,
    /// Status of the last answer.
    status: Option<u16>,
    /// Why it was not delivered.
    failure: Option<String>,
}

/// What one attempt came to.
enum Attempt {
    Delivered(u16),
    /// With the pause the receiver asked for.
    Again(Option<u16>, String, Option<Duration>),
    Failed(Option<u16>, String),
}

impl Sender {
    /// Tries until it is delivered, refused for good, or out of attempts; once only when it is stopping.
    pub(super) async fn deliver(&self, happening: &Happening, stopping: &CancellationToken) -> Outcome {
        let (began, start) = (SystemTime::now(), Instant::now());
        self.plugin.deliveries.change(|counts| {
            counts.waiting = counts.waiting.saturating_sub(1);
            counts.is_sending = true;
        });
        let body = self.webhook.payload.fill(&happening.facts);
        let (mut attempts, mut pause) = (0, self.webhook.retry_delay);
        let (status, failure) = loop {
            if body.len() > PAYLOAD_BYTES_MAX {
                break (
                    None,
                    Some(format!("its payload has {} bytes, at most {PAYLOAD_BYTES_MAX} are sent", body.len())),
                );
            }
            attempts += 1;
            match self.attempt(happening, &body).await {
                Attempt::Delivered(status) => break (Some(status), None),
                Attempt::Failed(status, reason) => break (status, Some(reason)),
                Attempt::Again(status, reason, _) if attempts > self.webhook.retries || stopping.is_cancelled() => {
                    break (status, Some(reason));
                }
                Attempt::Again(status, reason, asked) => {
                    let wait = asked.unwrap_or_else(|| jittered(pause)).min(PAUSE_MAX);
                    pause = (pause * 2).min(PAUSE_MAX);
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        () = stopping.cancelled() => break (status, Some(reason)),
                    }
                }
            }
        };
        Outcome { began, took: start.elapsed(), attempts, status, failure }
    }

    async fn attempt(&self, happening: &Happening, body: &str) -> Attempt {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut headers = self.headers.clone();
        headers.push((CONTENT_TYPE, HeaderValue::from_static("application/json")));
        let mut add = |name: &'static str, value: String| {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.push((HeaderName::from_static(name), value));
            }
        };
        // The same id at each attempt, so that a receiver can tell a repetition.
        add("webhook-id", happening.id.clone());
        add("webhook-timestamp", now_s.to_string());
        if let Some(key) = &self.key {
            add("webhook-signature", key.sign(&happening.id, now_s, body));
        }
        let limit = self.webhook.timeout;
        let request = Request {
            method: Method::POST,
            url: &self.url,
            headers: &headers,
            body: Bytes::copy_from_slice(body.as_bytes()),
            limits: Limits { head: limit, quiet: limit, total: Some(limit), body_bytes: None },
        };
        let response = match self.outbound.request(request).await {
            Ok(response) => response,
            // Nothing of that passes by itself.
            Err(error @ (OutboundError::Refused { .. } | OutboundError::Misuse { .. } | OutboundError::Tls { .. })) => {
                return Attempt::Failed(None, error.to_string());
            }
            Err(OutboundError::Redirected { status, .. }) => {
                let reason = format!("it answered with a redirect (status {status}), which is not followed");
                return Attempt::Failed(Some(status), reason);
            }
            Err(error) => return Attempt::Again(None, error.to_string(), None),
        };
        let (status, asked) = (response.status, retry_after(&response.headers));
        // A receiver that cuts its answer short has answered all the same (row I1 of the seed's faults).
        read_over(response.body).await;
        judge(status, asked)
    }

    /// Counts, logs and keeps what became of it.
    pub(super) async fn record(&self, inner: &Arc<Inner>, happening: &Happening, outcome: Outcome) {
        let Outcome { began, took, attempts, status, failure } = outcome;
        // What a receiver or its name server says may repeat a key that is in the URL.
        let failure = failure.map(|reason| self.plugin.redactor.redact(&reason).into_owned());
        let took_ms = took.as_millis();
        let name = happening.name;
        let line = match (&failure, status) {
            (None, Some(status)) => format!("{name} delivered: status {status}, attempt {attempts}, {took_ms} ms"),
            (Some(reason), _) => format!("{name} NOT delivered after {attempts} attempts in {took_ms} ms: {reason}"),
            (None, None) => format!("{name} delivered"),
        };
        self.plugin.log.push(LogOrigin::Host, &line);
        let plugin_id = Some(self.plugin.id.to_string());
        inner.path.store.record_span(Span {
            trace_id: happening.id.clone(),
            span_id: happening.span_id.clone(),
            name: format!("webhook {name}"),
            kind: "client".to_owned(),
            plugin_id: plugin_id.clone(),
            started_at_us: epoch_us(began),
            duration_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            outcome: if failure.is_none() { "ok" } else { "failed" }.to_owned(),
            attributes_json: serde_json::json!({
                "server.address": self.url.host(),
                "server.port": self.url.port(),
                "http.response.status_code": status,
                "plugward.webhook.attempts": attempts,
                "error.message": failure,
            })
            .to_string(),
            ..Span::default()
        });
        if let Some(reason) = &failure {
            let event = EventRow {
                at_us: epoch_us(began),
                plugin_id,
                kind: "webhook_failed".to_owned(),
                message: format!("{name} was not delivered: {reason}"),
                detail_json: serde_json::json!({ "id": happening.id, "attempts": attempts }).to_string(),
            };
            let kept = inner.blocking(move |inner| inner.path.store.record_event(&event)).await;
            if let Err(error) = kept {
                tracing::warn!(plugin = %self.plugin.id, "a failed delivery was not recorded: {}", error.message);
            }
        }
        self.plugin.deliveries.change(|counts| {
            counts.is_sending = false;
            match failure {
                None => {
                    counts.delivered += 1;
                    counts.failing = None;
                }
                Some(reason) => {
                    counts.failed += 1;
                    counts.failing = Some(reason);
                }
            }
        });
    }
}

/// Reads to the end of an answer, for the sake of the connection, if it is not far and not late.
async fn read_over(mut body: BodyReader) {
    let mut read_bytes = 0;
    while let Ok(Some(chunk)) = body.next_chunk().await {
        read_bytes += chunk.len();
        if read_bytes > ANSWER_BYTES_MAX {
            return;
        }
    }
}

/// What an answer means. Errors of the receiver pass; errors of ours would be the same the next time.
fn judge(status: StatusCode, asked: Option<Duration>) -> Attempt {
    let code = status.as_u16();
    if status.is_success() {
        return Attempt::Delivered(code);
    }
    let reason = format!("it answered with status {code}");
    let is_passing = status.is_server_error()
        || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY);
    if is_passing { Attempt::Again(Some(code), reason, asked) } else { Attempt::Failed(Some(code), reason) }
}

/// The pause a receiver asks for, in seconds; dates are not understood, and count as not said.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Between half and all of it: receivers that come back find not everybody at the door at once.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [0; 1];
    let part = getrandom::fill(&mut byte).map_or(128, |()| u32::from(byte[0]));
    pause / 2 + pause / 2 * part / 255
}

#[cfg(test)]
mod tests {
    use super::*;

    // Row I3 of the seed's faults: an answer of 500 counted as sent.
    #[test]
    fn an_answer_is_what_its_status_says() {
        let kind = |status: u16| match judge(StatusCode::from_u16(status).unwrap(), None) {
            Attempt::Delivered(_) => "delivered",
            Attempt::Again(..) => "again",
            Attempt::Failed(..) => "failed",
        };
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(kind(status), "delivered", "{status}");
        }
        for status in [408, 425, 429, 500, 502, 503, 504, 599] {
            assert_eq!(kind(status), "again", "{status}");
        }
        for status in [100, 304, 400, 401, 403, 404, 410, 413, 422] {
            assert_eq!(kind(status), "failed", "{status}");
        }
    }

    #[test]
    fn pauses_are_what_was_asked_for_within_reason() {
        let asked = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_str(text).unwrap());
            retry_after(&headers)
        };
        assert_eq!(asked("7"), Some(Duration::from_secs(7)));
        for unclear in ["-1", "soon", "Tue, 01 Dec 2026 00:00:00 GMT", ""] {
            assert_eq!(asked(unclear), None, "{unclear}");
        }
        for _ in 0..1000 {
            let pause = jittered(Duration::from_secs(2));
            assert!(pause >= Duration::from_secs(1) && pause <= Duration::from_secs(2), "{pause:?}");
        }
    }
}
