//! Plugins: list, look, install, switch on and off, remove.

use std::path::Path;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use plugward_host::Host;
use serde::Serialize;
use utoipa::ToSchema;

use super::errors::ApiError;
use super::payload::{Body, Fields, Id, NoPayload, Payload};
use crate::wire::{ErrorBody, PluginBody};

/// Characters of a path; the system's own limit.
const MAX_PATH_CHARS: usize = 4096;

/// Characters of a plugin id; the host's rule is stricter and speaks for itself.
const MAX_ID_CHARS: usize = 256;

/// All plugins, in the order they were installed.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PluginList {
    /// The plugins.
    items: Vec<PluginBody>,
}

/// A package to install.
#[derive(Debug, ToSchema)]
pub(super) struct InstallRequest {
    /// Absolute path of a package folder or of its `plugin.yaml`, on the machine of the host.
    #[schema(example = "/srv/plugins/notes")]
    package_path: String,
    /// The id the package must have; a check, not a new name.
    id: Option<String>,
}

impl Body for InstallRequest {
    fn read(fields: &mut Fields) -> Option<Self> {
        let package_path = fields.text("package_path", MAX_PATH_CHARS);
        let id = fields.optional_text("id", MAX_ID_CHARS);
        let package_path = package_path?;
        // The host's working folder is nothing a caller knows.
        if !Path::new(&package_path).is_absolute() {
            fields.note("path_type", &["package_path"], "path is not absolute");
            return None;
        }
        Some(Self { package_path, id: id? })
    }
}

/// Lists the installed plugins.
#[utoipa::path(get, path = "/api/plugins", tag = "plugins", operation_id = "list_plugins",
    responses((status = 200, description = "All plugins, in the order they were installed", body = PluginList)))]
pub(super) async fn list(State(host): State<Host>) -> Result<Json<PluginList>, ApiError> {
    let views = host.plugins().await?;
    Ok(Json(PluginList { items: views.iter().map(PluginBody::from).collect() }))
}

/// Shows one plugin.
#[utoipa::path(get, path = "/api/plugins/{plugin_id}", tag = "plugins", operation_id = "show_plugin",
    params(("plugin_id" = String, Path, description = "Id of the plugin")),
    responses(
        (status = 200, description = "The plugin", body = PluginBody),
        (status = 404, description = "PLUGIN_NOT_FOUND", body = ErrorBody)))]
pub(super) async fn show(State(host): State<Host>, Id(id): Id) -> Result<Json<PluginBody>, ApiError> {
    Ok(Json(PluginBody::from(&host.plugin(&id).await?)))
}

/// Installs a package: copies and reads it, runs nothing of it (requirement 35).
#[utoipa::path(post, path = "/api/plugins/install", tag = "plugins", operation_id = "install_plugin",
    request_body = InstallRequest,
    responses(
        (status = 202, description = "Installed; it waits for a review", body = PluginBody),
        (status = 409, description = "PLUGIN_ALREADY_INSTALLED", body = ErrorBody),
        (status = 422, description = "VALIDATION_ERROR, PLUGIN_MANIFEST_INVALID, PLUGIN_PACKAGE_INVALID or \
            PLUGIN_PERMISSION_UNKNOWN", body = ErrorBody),
        (status = 501, description = "MCP_CAPABILITY_UNSUPPORTED", body = ErrorBody)))]
pub(super) async fn install(
    State(host): State<Host>,
    Payload(request): Payload<InstallRequest>,
) -> Result<(StatusCode, Json<PluginBody>), ApiError> {
    let view = host.install(Path::new(&request.package_path), request.id.as_deref()).await?;
    Ok((StatusCode::ACCEPTED, Json(PluginBody::from(&view))))
}

/// Switches a plugin on: started, its tools discovered and registered, or nothing of all that.
#[utoipa::path(post, path = "/api/plugins/{plugin_id}/enable", tag = "plugins", operation_id = "enable_plugin",
    params(("plugin_id" = String, Path, description = "Id of the plugin")),
    responses(
        (status = 200, description = "It runs", body = PluginBody),
        (status = 403, description = "MCP_TRUST_APPROVAL_REQUIRED or MCP_SANDBOX_REQUIRED", body = ErrorBody),
        (status = 404, description = "PLUGIN_NOT_FOUND", body = ErrorBody),
        (status = 409, description = "PLUGIN_PERMISSION_REQUIRED or PLUGIN_TOOL_CONFLICT", body = ErrorBody),
        (status = 501, description = "MCP_CAPABILITY_UNSUPPORTED", body = ErrorBody),
        (status = 502, description = "The plugin did not start as it must", body = ErrorBody),
        (status = 503, description = "PLUGIN_HOST_UNAVAILABLE", body = ErrorBody)))]
pub(super) async fn enable(State(host): State<Host>, Id(id): Id, _: NoPayload) -> Result<Json<PluginBody>, ApiError> {
    Ok(Json(PluginBody::from(&host.enable(&id).await?)))
}

/// Switches a plugin off: its tools go first, then its process.
#[utoipa::path(post, path = "/api/plugins/{plugin_id}/disable", tag = "plugins", operation_id = "disable_plugin",
    params(("plugin_id" = String, Path, description = "Id of the plugin")),
    responses(
        (status = 200, description = "It is off", body = PluginBody),
        (status = 404, description = "PLUGIN_NOT_FOUND", body = ErrorBody)))]
pub(super) async fn disable(State(host): State<Host>, Id(id): Id, _: NoPayload) -> Result<Json<PluginBody>, ApiError> {
    Ok(Json(PluginBody::from(&host.disable(&id).await?)))
}

/// Stops a plugin and forgets it, its approvals and its grants. Traces stay.
#[utoipa::path(delete, path = "/api/plugins/{plugin_id}", tag = "plugins", operation_id = "remove_plugin",
    params(("plugin_id" = String, Path, description = "Id of the plugin")),
    responses(
        (status = 204, description = "It is gone"),
        (status = 404, description = "PLUGIN_NOT_FOUND", body = ErrorBody)))]
pub(super) async fn remove(State(host): State<Host>, Id(id): Id) -> Result<StatusCode, ApiError> {
    host.remove(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
