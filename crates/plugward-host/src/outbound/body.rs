//! The body of an answer, piece by piece. Owns its limits of time and size; refuses to hold more than one piece.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap};
use plugward_policy::WebUrl;
use tokio::time::{Instant, timeout_at};

use super::Limits;
use super::error::OutboundError;
use super::line::Line;
use super::pool::Pool;

/// What an answer brings, as it arrives. Dropping it before its end closes the connection.
pub(crate) struct BodyReader {
    url: WebUrl,
    limits: Limits,
    /// When all of it has to be there.
    end: Option<Instant>,
    received_bytes: u64,
    /// Compressed, so that its size says nothing. That is for whoever wants the body; a status stands by itself.
    is_encoded: bool,
    incoming: Incoming,
    /// `None` once the end was read, and after an error.
    line: Option<Line>,
    pool: Arc<Pool>,
}

impl BodyReader {
    pub(super) fn new(
        url: &WebUrl,
        line: Line,
        incoming: Incoming,
        headers: &HeaderMap,
        limits: Limits,
        end: Option<Instant>,
        pool: Arc<Pool>,
    ) -> Result<Self, OutboundError> {
        let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
        let is_encoded = encodings.any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"));
        let (url, line) = (url.clone(), Some(line));
        let reader = Self { url, limits, end, received_bytes: 0, is_encoded, incoming, line, pool };
        match announced {
            Some(length) => reader.check_size(length).map(|()| reader),
            None => Ok(reader),
        }
    }

    /// The next piece, of at most 64 KiB; `None` at the end. May be dropped while it waits, and called again: nothing is
    /// lost by that.
    ///
    /// # Errors
    /// [`OutboundError::TimedOut`], [`OutboundError::TooLarge`], [`OutboundError::Broken`] or
    /// [`OutboundError::Protocol`]; the body has ended with any of them.
    pub(crate) async fn next_chunk(&mut self) -> Result<Option<Bytes>, OutboundError> {
        if self.is_encoded && self.line.take().is_some() {
            return Err(OutboundError::protocol(&self.url, "its answer is compressed, which was not asked for"));
        }
        let Some(line) = &mut self.line else { return Ok(None) };
        let quiet_end = Instant::now() + self.limits.quiet;
        let deadline = self.end.map_or(quiet_end, |end| end.min(quiet_end));
        let incoming = &mut self.incoming;
        let piece = timeout_at(deadline, async {
            loop {
                match line.drive(incoming.frame()).await {
                    None => return Ok(None),
                    Some(Err(error)) => return Err(error),
                    // Trailers say nothing that anybody here reads; an empty piece is none.
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) if !data.is_empty() => return Ok(Some(data)),
                        _ => {}
                    },
                }
            }
        });
        match piece.await {
            Ok(Ok(Some(data))) => {
                self.received_bytes = self.received_bytes.saturating_add(data.len() as u64);
                if let Err(error) = self.check_size(self.received_bytes) {
                    self.line = None;
                    return Err(error);
                }
                Ok(Some(data))
            }
            Ok(Ok(None)) => {
                self.finish().await;
                Ok(None)
            }
            Ok(Err(error)) => {
                self.line = None;
                Err(OutboundError::of_http(&self.url, &error))
            }
            Err(_) => {
                self.line = None;
                Err(match self.limits.total.filter(|_| self.end.is_some_and(|end| end <= quiet_end)) {
                    Some(total) => OutboundError::timed_out(&self.url, "did not finish its answer", total),
                    None => OutboundError::timed_out(&self.url, "sent nothing more", self.limits.quiet),
                })
            }
        }
    }

    /// Keeps the connection for the next request, if it can take one.
    async fn finish(&mut self) {
        let Some(mut line) = self.line.take() else { return };
        line.settle().await;
        if line.is_open() {
            self.pool.keep(line);
        }
    }

    fn check_size(&self, bytes: u64) -> Result<(), OutboundError> {
        match self.limits.body_bytes {
            Some(limit) if bytes > limit => {
                Err(OutboundError::TooLarge { origin: self.url.origin(), what: "a body", limit_bytes: limit })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for BodyReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyReader").field("url", &self.url).field("received_bytes", &self.received_bytes).finish()
    }
}
