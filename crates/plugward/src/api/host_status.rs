//! The process side of a plugin: its state, and restarts (requirements 107-117).

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use plugward_host::{ErrorCode, Host, HostError, PluginView};
use plugward_policy::PluginStatus;
use serde::Serialize;
use utoipa::ToSchema;

use super::errors::ApiError;
use super::payload::{Id, NoPayload};
use crate::wire::{ErrorBody, HostBody};

/// An operation that was carried out (the seed's shape).
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OperationResponse {
    /// Always `accepted`.
    status: &'static str,
    /// What it was carried out on.
    resource_id: String,
    /// How it is now.
    message: String,
}

impl OperationResponse {
    /// An operation on `resource_id` that ended as `message` says.
    pub(super) fn accepted(resource_id: String, message: String) -> Self {
        Self { status: "accepted", resource_id, message }
    }
}

/// Shows the process of a plugin (requirement 109).
#[utoipa::path(get, path = "/api/plugins/{plugin_id}/host", tag = "plugin host", operation_id = "show_plugin_host",
    params(("plugin_id" = String, Path, description = "Id of the plugin")),
    responses(
        (status = 200, description = "The state of its process", body = HostBody),
        (status = 404, description = "PLUGIN_NOT_FOUND", body = ErrorBody)))]
pub(super) async fn show(State(host): State<Host>, Id(id): Id) -> Result<Json<HostBody>, ApiError> {
    Ok(Json(HostBody::from(&host.host_status(&id)?)))
}

/// Restarts a plugin that runs or has failed; answers when its tools are discovered again (requirement 115).
#[utoipa::path(post, path = "/api/plugins/{plugin_id}/host/restart", tag = "plugin host",
    operation_id = "restart_plugin_host",
    params(("plugin_id" = String, Path, description = "Id of the plugin")),
    responses(
        (status = 202, description = "It runs again", body = OperationResponse),
        (status = 403, description = "MCP_TRUST_APPROVAL_REQUIRED or MCP_SANDBOX_REQUIRED", body = ErrorBody),
        (status = 404, description = "PLUGIN_NOT_FOUND", body = ErrorBody),
        (status = 409, description = "PLUGIN_HOST_UNAVAILABLE: it is not switched on; enable it", body = ErrorBody),
        (status = 502, description = "The plugin did not start as it must", body = ErrorBody),
        (status = 503, description = "PLUGIN_HOST_UNAVAILABLE: it broke off while starting", body = ErrorBody)))]
pub(super) async fn restart(
    State(host): State<Host>,
    Id(id): Id,
    _: NoPayload,
) -> Result<(StatusCode, Json<OperationResponse>), ApiError> {
    match host.restart(&id).await {
        Ok(view) => {
            let message = format!("Plugin Host status: {}", view.status.as_str());
            Ok((StatusCode::ACCEPTED, Json(OperationResponse::accepted(view.plugin_id.to_string(), message))))
        }
        Err(error) => Err(refused(&host, &id, error).await),
    }
}

/// One code, two meanings: "not switched on" is the caller's to mend (409), "broke off" is the plugin's (503). A start
/// that broke off has left the state `error`; one that was refused has not.
async fn refused(host: &Host, id: &str, error: HostError) -> ApiError {
    let is_unavailable = error.code == ErrorCode::PluginHostUnavailable;
    let is_refused = |view: PluginView| !view.enabled && view.status != PluginStatus::Error;
    let is_off = is_unavailable && host.plugin(id).await.is_ok_and(is_refused);
    let error = ApiError::from(error);
    if is_off { error.with_status(StatusCode::CONFLICT) } else { error }
}
