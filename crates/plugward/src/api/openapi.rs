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
fn openapi() -> OpenApi {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Set to write the golden copy anew after a change that is meant.
    const REWRITE: &str = "PLUGWARD_REWRITE_GOLDEN";

    fn document() -> serde_json::Value {
        serde_json::to_value(openapi()).unwrap()
    }

    /// Requirement 134: a client is generated from this file; a change in it is a change of the interface.
    #[test]
    fn the_golden_copy_is_the_document() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let now = openapi().to_pretty_json().unwrap() + "\n";
        if std::env::var_os(REWRITE).is_some() {
            std::fs::write(path, &now).unwrap();
        }
        let golden = std::fs::read_to_string(path).unwrap_or_default();
        assert!(golden == now, "docs/openapi.json differs: if that is meant, run the test once with {REWRITE}=1");
    }

    #[test]
    fn every_path_is_described_with_its_failures() {
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        for path in ["/api/plugins/{plugin_id}/host", "/api/plugins/{plugin_id}/host/restart", "/api/tools"] {
            assert!(paths.contains_key(path), "{path}");
        }
        let mut ids = std::collections::HashSet::new();
        for (path, item) in paths {
            for (method, operation) in item.as_object().unwrap() {
                assert!(operation["summary"].is_string(), "{method} {path} has no summary");
                assert!(ids.insert(operation["operationId"].clone()), "{method} {path} shares its id");
                let schema = &operation["responses"]["default"]["content"]["application/json"]["schema"]["$ref"];
                assert_eq!(schema, "#/components/schemas/ErrorBody", "{method} {path}");
                let is_open = operation["security"] == serde_json::json!([{}]);
                assert_eq!(is_open, path == "/healthz", "{method} {path}");
            }
        }
        assert_eq!(document["components"]["securitySchemes"][SCHEME]["scheme"], "bearer");
    }

    /// A generated client stumbles over a reference to nothing.
    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let mut open = vec![&document];
        while let Some(value) = open.pop() {
            if let Some(reference) = value.get("$ref").and_then(serde_json::Value::as_str) {
                let pointer = reference.strip_prefix('#').unwrap();
                assert!(document.pointer(pointer).is_some(), "{reference}");
            }
            match value {
                serde_json::Value::Object(members) => open.extend(members.values()),
                serde_json::Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
    }
}
