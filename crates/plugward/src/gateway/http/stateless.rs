//! Requests of the stateless revisions: each is answered on the connection that brought it.
//!
//! Owns the checks of a request against its headers, the statuses of its errors and the form of its answer: JSON when
//! there is nothing to tell before it, events otherwise. A connection that closes takes its request with it (HT-06).

use std::pin::Pin;

use axum::http::StatusCode;
use axum::response::Response;
use plugward_protocol::mcp::{self, CallParamsIn, codes, methods};
use plugward_protocol::modern;
use plugward_protocol::{RequestId, RequestMeta, RpcError, envelope};
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::modern::{Exchange, is_served};
use super::super::tools_call::Note;
use super::sse::{self, Event, Source};
use super::{Posted, Shared, failure, headers, json, mirror};

/// Notes of one request on their way to its connection.
const MAX_WAITING_NOTES: usize = 16;

/// Answers a request; `named` is the version in its metadata.
#[allow(clippy::result_large_err, reason = "both sides are the answer")]
pub(super) async fn answer(
    shared: &Shared,
    posted: Posted,
    id: RequestId,
    method: String,
    params: Option<Box<RawValue>>,
    named: Option<Option<String>>,
) -> Result<Response, Response> {
    let bad_request = |error: &RpcError| failure(StatusCode::BAD_REQUEST, Some(&id), error);
    if let Some(Some(version)) = &named {
        // Parameters that cannot be read are refused when the call is made.
        let call = (method == methods::TOOLS_CALL).then(|| CallParamsIn::parse(params.as_deref()).ok()).flatten();
        let name = mcp::target_name(&method, params.as_deref());
        headers::check(&posted.headers, version, &method, name.as_deref()).map_err(|error| bad_request(&error))?;
        if let Some(call) = &call {
            check_arguments(shared, &posted, call).map_err(|error| bad_request(&error))?;
        }
    }
    let meta = RequestMeta::parse(params.as_deref()).map_err(|error| bad_request(&error))?;
    if !is_served(&shared.server, &method) {
        return Err(failure(StatusCode::NOT_FOUND, Some(&id), &RpcError::method_not_found(&method)));
    }
    if method == modern::methods::LISTEN && !posted.accepts.stream {
        let error = RpcError::new(codes::INVALID_REQUEST, "client does not accept `text/event-stream`");
        return Err(failure(StatusCode::NOT_ACCEPTABLE, Some(&id), &error));
    }
    let (notes, waiting) = mpsc::channel(MAX_WAITING_NOTES);
    let cancel = CancellationToken::new();
    let exchange = Exchange {
        server: shared.server.clone(),
        // Without sessions, clients of one name take their turns together: a number for each request would let one that
        // sends many crowd out all others.
        session: 0,
        id: id.clone(),
        method,
        params,
        meta,
        cancel: cancel.clone(),
        closing: shared.closing.clone(),
        notes,
    };
    let conversation = Conversation {
        id,
        running: Some(Box::pin(exchange.run())),
        answer: None,
        notes: waiting,
        status: StatusCode::OK,
        _cancel: cancel.drop_guard(),
        _held: posted.held,
    };
    Ok(begin(shared, conversation, posted.accepts.json, posted.accepts.stream).await)
}

fn check_arguments(shared: &Shared, posted: &Posted, call: &CallParamsIn) -> Result<(), RpcError> {
    // What the profile hides is refused as unknown later; an error about its headers would show that it is there.
    if !shared.server.view().lists(shared.server.host(), &call.name) {
        return Ok(());
    }
    let Some(definition) = shared.server.host().exposed_definition(&call.name) else { return Ok(()) };
    headers::check_mirrored(&posted.headers, &mirror::of_definition(&definition), &call.arguments)
}

/// Waits for the first thing there is to say; what it is decides the form of the answer.
async fn begin(shared: &Shared, mut conversation: Conversation, json_taken: bool, stream_taken: bool) -> Response {
    let keep_alive = shared.limits.keep_alive;
    if !stream_taken {
        while let Some(event) = conversation.next().await {
            if event.is_last {
                return json(conversation.status, event.text);
            }
        }
    }
    let first = tokio::time::timeout(keep_alive, conversation.next()).await;
    match first {
        Ok(Some(event)) if json_taken && event.is_last => json(conversation.status, event.text),
        Ok(event) => sse::respond(conversation, event.as_slice(), keep_alive),
        // Nothing yet: a stream shows that somebody works on it.
        Err(_) => sse::respond(conversation, &[], keep_alive),
    }
}

type Running = Pin<Box<dyn Future<Output = Result<Box<RawValue>, RpcError>> + Send>>;

/// A request under way. Dropping it gives the request up.
struct Conversation {
    id: RequestId,
    running: Option<Running>,
    /// The answer, until the notes before it are told.
    answer: Option<String>,
    notes: mpsc::Receiver<Note>,
    /// Of an answer that is not a stream.
    status: StatusCode,
    _cancel: DropGuard,
    _held: OwnedSemaphorePermit,
}

impl Conversation {
    fn take(&mut self, outcome: Result<Box<RawValue>, RpcError>) {
        self.running = None;
        self.answer = Some(match outcome {
            Ok(result) => envelope::result(&self.id, &result),
            Err(error) => {
                if matches!(error.code, codes::MISSING_CAPABILITY | codes::UNSUPPORTED_VERSION) {
                    self.status = StatusCode::BAD_REQUEST;
                }
                envelope::error(Some(&self.id), &error)
            }
        });
    }
}

impl Source for Conversation {
    async fn next(&mut self) -> Option<Event> {
        loop {
            let note = match &mut self.running {
                Some(running) => tokio::select! {
                    biased;
                    Some(note) = self.notes.recv() => note,
                    outcome = running => {
                        self.take(outcome);
                        continue;
                    }
                },
                None => match self.notes.recv().await {
                    Some(note) => note,
                    None => return self.answer.take().map(|text| Event { id: None, text, is_last: true }),
                },
            };
            let text = envelope::notification(note.method, Some(&note.params));
            return Some(Event { id: None, text, is_last: false });
        }
    }
}
