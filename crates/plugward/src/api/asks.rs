//! Permission requests that wait for a person.

use axum::Json;
use axum::extract::State;
use plugward_host::Host;
use serde::Serialize;
use utoipa::ToSchema;

use super::errors::ApiError;
use super::host_status::OperationResponse;
use super::payload::{Body, Fields, Id, Payload};
use crate::wire::{AnswerBody, AskBody, ErrorBody};

/// Characters of an answer; the words have at most 13.
const MAX_ANSWER_CHARS: usize = 64;

/// The open permission requests, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AskList {
    /// The requests.
    items: Vec<AskBody>,
}

/// An answer.
#[derive(Debug, ToSchema)]
pub(super) struct AnswerRequest {
    /// What the person said.
    answer: AnswerBody,
}

impl Body for AnswerRequest {
    fn read(fields: &mut Fields) -> Option<Self> {
        let word = fields.text("answer", MAX_ANSWER_CHARS)?;
        let answer = serde_json::from_value(serde_json::Value::String(word)).ok();
        if answer.is_none() {
            fields.note("literal_error", &["answer"], "text is not `allow_once`, `allow_session` or `deny`");
        }
        Some(Self { answer: answer? })
    }
}

/// Lists the open permission requests.
#[utoipa::path(get, path = "/api/permission-requests", tag = "permission requests",
    operation_id = "list_permission_requests",
    responses((status = 200, description = "The open requests, oldest first", body = AskList)))]
pub(super) async fn list(State(host): State<Host>) -> Json<AskList> {
    Json(AskList { items: host.pending_asks().iter().map(AskBody::from).collect() })
}

/// Answers a permission request; the first answer counts.
#[utoipa::path(post, path = "/api/permission-requests/{request_id}", tag = "permission requests",
    operation_id = "answer_permission_request",
    params(("request_id" = String, Path, description = "Id of the request")),
    request_body = AnswerRequest,
    responses(
        (status = 200, description = "The answer was taken", body = OperationResponse),
        (status = 404, description = "RESOURCE_NOT_FOUND: no such request is open", body = ErrorBody),
        (status = 409, description = "PLUGIN_STATE_CONFLICT: another answer came first", body = ErrorBody),
        (status = 422, description = "VALIDATION_ERROR", body = ErrorBody)))]
pub(super) async fn answer(
    State(host): State<Host>,
    Id(id): Id,
    Payload(request): Payload<AnswerRequest>,
) -> Result<Json<OperationResponse>, ApiError> {
    if !host.pending_asks().iter().any(|ask| ask.request_id == id) {
        return Err(ApiError::not_found("this permission request").with_hint("it was answered, or its call has ended"));
    }
    host.answer(&id, request.answer.into())?;
    let word = match request.answer {
        AnswerBody::AllowOnce => "allow_once",
        AnswerBody::AllowSession => "allow_session",
        AnswerBody::Deny => "deny",
    };
    Ok(Json(OperationResponse::accepted(id, format!("Permission request answered: {word}"))))
}
