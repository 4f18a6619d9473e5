//! Whether the Host API answers; for programs that wait for it to come up.

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

/// It answers.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    /// Always `ok`.
    status: &'static str,
}

/// Says that the Host API answers; needs no token and tells nothing else.
#[utoipa::path(get, path = "/healthz", tag = "service", operation_id = "health", security(()),
    responses((status = 200, description = "It answers", body = Health)))]
pub(super) async fn show() -> Json<Health> {
    Json(Health { status: "ok" })
}
