//! Permissions that a plugin was given.

use axum::Json;
use axum::extract::State;
use plugward_host::Host;
use utoipa::ToSchema;

use super::errors::ApiError;
use super::payload::{Body, Fields, Id, Payload};
use crate::wire::{ErrorBody, PluginBody};

/// Names in one request; a catalogue has a few dozen.
const MAX_PERMISSIONS: usize = 256;

/// Characters of a permission's name.
const MAX_NAME_CHARS: usize = 256;

/// The permissions a plugin shall have from now on.
#[derive(Debug, ToSchema)]
pub(super) struct PermissionsRequest {
    /// All of them; what is not in the list is taken away.
    #[schema(example = json!(["notes.read"]))]
    permissions: Vec<String>,
}

impl Body for PermissionsRequest {
    fn read(fields: &mut Fields) -> Option<Self> {
        Some(Self { permissions: fields.texts("permissions", MAX_PERMISSIONS, MAX_NAME_CHARS)? })
    }
}

/// Replaces the permissions a plugin has. Taking one away that it asks for stops it.
#[utoipa::path(put, path = "/api/plugins/{plugin_id}/permissions", tag = "plugins",
    operation_id = "replace_plugin_permissions",
    params(("plugin_id" = String, Path, description = "Id of the plugin")),
    request_body = PermissionsRequest,
    responses(
        (status = 200, description = "The plugin as it is now", body = PluginBody),
        (status = 404, description = "PLUGIN_NOT_FOUND", body = ErrorBody),
        (status = 422, description = "VALIDATION_ERROR or PLUGIN_PERMISSION_UNKNOWN", body = ErrorBody)))]
pub(super) async fn replace(
    State(host): State<Host>,
    Id(id): Id,
    Payload(request): Payload<PermissionsRequest>,
) -> Result<Json<PluginBody>, ApiError> {
    Ok(Json(PluginBody::from(&host.set_permissions(&id, &request.permissions).await?)))
}
