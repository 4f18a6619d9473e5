//! Server-sent events: the body of an answer that comes in pieces.
//!
//! Owns the text of events and the comments that show a silent stream is alive. Refuses to buffer: the next event is
//! asked for when the one before it is taken, so a client that does not read costs one event.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Frame;
use tokio::time::{Instant, Sleep};

/// A comment: no event, and a sign of life.
const COMMENT: &str = ":\n\n";

/// Tells proxies not to hold events back.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// Where a client may resume, in revisions that can.
    pub(super) id: Option<String>,
    /// One message in one line; empty for an event that only brings an id.
    pub(super) text: String,
    /// Nothing comes after it: it is the answer.
    pub(super) is_last: bool,
}

impl Event {
    fn write(&self) -> String {
        let mut text = String::with_capacity(self.text.len() + 64);
        if let Some(id) = &self.id {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "id: {id}");
        }
        text.push_str("data: ");
        text.push_str(&self.text);
        text.push_str("\n\n");
        text
    }
}

/// Where events come from.
pub(super) trait Source: Send + 'static {
    /// The next event; none when the stream is over.
    fn next(&mut self) -> impl Future<Output = Option<Event>> + Send;
}

/// An answer that is one event, for a client that takes nothing but streams.
pub(super) fn alone(text: String) -> Response {
    let headers = [(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"))];
    (headers, Event { id: None, text, is_last: true }.write()).into_response()
}

/// The answer with these events, `begun` first.
pub(super) fn respond<S: Source>(source: S, begun: &[Event], keep_alive: Duration) -> Response {
    let first: String = begun.iter().map(Event::write).collect();
    let stream = Stream {
        first: (!first.is_empty()).then(|| first.into()),
        coming: Some(step(source)),
        silence: Box::pin(tokio::time::sleep(keep_alive)),
        keep_alive,
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (X_ACCEL_BUFFERING, HeaderValue::from_static("no")),
    ];
    (headers, Body::new(stream)).into_response()
}

type Step<S> = Pin<Box<dyn Future<Output = (S, Option<Event>)> + Send>>;

fn step<S: Source>(mut source: S) -> Step<S> {
    Box::pin(async move {
        let event = source.next().await;
        (source, event)
    })
}

struct Stream<S> {
    first: Option<Bytes>,
    coming: Option<Step<S>>,
    silence: Pin<Box<Sleep>>,
    keep_alive: Duration,
}

impl<S: Source> hyper::body::Body for Stream<S> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let Some(coming) = &mut self.coming else { return Poll::Ready(None) };
        let data = match coming.as_mut().poll(context) {
            Poll::Ready((source, Some(event))) => {
                self.coming = Some(step(source));
                Bytes::from(event.write())
            }
            Poll::Ready((_, None)) => {
                self.coming = None;
                return Poll::Ready(None);
            }
            Poll::Pending => {
                ready!(self.silence.as_mut().poll(context));
                Bytes::from_static(COMMENT.as_bytes())
            }
        };
        let due = Instant::now() + self.keep_alive;
        self.silence.as_mut().reset(due);
        Poll::Ready(Some(Ok(Frame::data(data))))
    }
}
