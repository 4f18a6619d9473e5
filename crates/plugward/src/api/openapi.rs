//! The description of the Host API in OpenAPI, made from the routes themselves (requirement 134).
//!
//! Owns what holds for all routes: title, version, the token, and the answers the guard may give. docs/openapi.json is
//! its golden copy; a test compares them.

use axum::Json;
use utoipa::OpenApi as _;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Components, ContentBuilder, OpenApi, Ref, ResponseBuilder, SecurityRequirement};

use super::payload::Problem;

/// Name of the token in the document.
const SCHEME: &str = "token";

/// What holds for all routes; the title and version of the document, and schemas that no route names itself.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Plugward Host API", description = "Plugins, their processes, tools and traces. See docs/api.md."),
    components(schemas(Problem, crate::wire::ErrorBody))
)]
struct Frame;

/// The document.
pub(crate) fn openapi() -> OpenApi {
    let (_, routes) = super::documented_routes().split_for_parts();
    let mut document = Frame::openapi();
    document.merge(routes);
    let scheme = SecurityScheme::Http(
        HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("The token in `run/api-token` of the host's home."))
            .build(),
    );
    document.components.get_or_insert_with(Components::new).add_security_scheme(SCHEME, scheme);
    document.security = Some(vec![SecurityRequirement::new(SCHEME, Vec::<String>::new())]);
    let failure = ResponseBuilder::new()
        .description("Any other failure; docs/api.md lists the codes")
        .content("application/json", ContentBuilder::new().schema(Some(Ref::from_schema_name("ErrorBody"))).build())
        .build();
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
        for operation in operations.into_iter().flatten() {
            operation.responses.responses.insert("default".to_owned(), failure.clone().into());
        }
    }
    document
}

/// `GET /openapi.json`.
pub(super) async fn document() -> Json<OpenApi> {
    Json(openapi())
}
