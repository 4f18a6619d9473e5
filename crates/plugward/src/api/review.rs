//! Reviews and approvals: what would run, and the agreement to exactly that.

use axum::Json;
use axum::extract::State;
use plugward_host::{ApprovalOrigin, Host};
use plugward_policy::Digest;
use utoipa::ToSchema;

use super::errors::ApiError;
use super::payload::{Body, Fields, Id, Payload};
use crate::wire::{ErrorBody, PluginBody, ReviewBody};

/// Characters of `sha256:` and 64 digits, and some to be wrong with.
const MAX_DIGEST_CHARS: usize = 128;

/// An agreement to what a review showed.
#[derive(Debug, ToSchema)]
pub(super) struct ApproveRequest {
    /// The digest of the review.
    #[schema(value_type = String, example = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")]
    digest: Digest,
}

impl Body for ApproveRequest {
    fn read(fields: &mut Fields) -> Option<Self> {
        let text = fields.text("digest", MAX_DIGEST_CHARS)?;
        let digest = text.parse().ok();
        if digest.is_none() {
            fields.note("digest_format", &["digest"], "text is not `sha256:` and 64 hexadecimal digits");
        }
        Some(Self { digest: digest? })
    }
}

/// Shows everything that would run and be touched. Starts nothing.
#[utoipa::path(get, path = "/api/plugins/{plugin_id}/review", tag = "review", operation_id = "review_plugin",
    params(("plugin_id" = String, Path, description = "Id of the plugin")),
    responses(
        (status = 200, description = "What an approval would cover", body = ReviewBody),
        (status = 404, description = "PLUGIN_NOT_FOUND", body = ErrorBody),
        (status = 422, description = "PLUGIN_PACKAGE_INVALID", body = ErrorBody),
        (status = 502, description = "PLUGIN_HOST_START_FAILED: it cannot be started as it is", body = ErrorBody)))]
pub(super) async fn show(State(host): State<Host>, Id(id): Id) -> Result<Json<ReviewBody>, ApiError> {
    Ok(Json(ReviewBody::from(&host.review(&id).await?)))
}

/// Approves exactly what the digest stands for, and grants the permissions it lists.
#[utoipa::path(post, path = "/api/plugins/{plugin_id}/approve", tag = "review", operation_id = "approve_plugin",
    params(("plugin_id" = String, Path, description = "Id of the plugin")),
    request_body = ApproveRequest,
    responses(
        (status = 200, description = "The plugin as it is now", body = PluginBody),
        (status = 404, description = "PLUGIN_NOT_FOUND", body = ErrorBody),
        (status = 409, description = "MCP_TRUST_DIGEST_STALE", body = ErrorBody),
        (status = 422, description = "VALIDATION_ERROR or PLUGIN_PACKAGE_INVALID", body = ErrorBody)))]
pub(super) async fn approve(
    State(host): State<Host>,
    Id(id): Id,
    Payload(request): Payload<ApproveRequest>,
) -> Result<Json<PluginBody>, ApiError> {
    Ok(Json(PluginBody::from(&host.approve(&id, &request.digest, ApprovalOrigin::Api).await?)))
}
