//! Failed requests: the envelope and its status.
//!
//! Owns the one mapping from the host's codes to HTTP status numbers, and the codes that exist only at this edge.
//! Refuses texts of other layers: parsers' messages repeat the input, so none of them gets here.

use axum::Json;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use plugward_host::{CallFailure, ErrorCode, HostError};
use serde_json::json;

use super::payload::Problem;
use crate::wire::{ErrorBody, NOT_FOUND_CODE};

/// Seconds after which a caller may try again when a queue was full: a queue moves on within the length of a call.
const BUSY_RETRY_SECONDS: u64 = 1;

/// A failed request.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    // Boxed: every handler's result has the size of its larger side.
    body: Box<ErrorBody>,
    header: Option<Box<(HeaderName, HeaderValue)>>,
}

impl ApiError {
    /// A failure of this edge.
    pub(super) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self { status, body: Box::new(ErrorBody::new(code, message)), header: None }
    }

    /// A body or a query that does not say what it must; names the places, never the values.
    pub(super) fn invalid(problems: &[Problem]) -> Self {
        let mut error = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "VALIDATION_ERROR",
            "request is not valid; `details.errors` tells where",
        );
        error.body.error.details.insert("errors".to_owned(), json!(problems));
        error
    }

    /// Nothing of this kind.
    pub(super) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, NOT_FOUND_CODE, format!("{what} does not exist"))
    }

    /// A failed call of `tool`, its internal id.
    pub(super) fn of_call(failure: &CallFailure, tool: &str, trace_id: &str) -> Self {
        let error = Self {
            status: call_status(failure),
            body: Box::new(ErrorBody::of_call(failure, tool, Some(trace_id))),
            header: None,
        };
        match failure {
            CallFailure::CircuitOpen { retry_after } => {
                error.with_header(header::RETRY_AFTER, HeaderValue::from(retry_after.as_secs() + 1))
            }
            CallFailure::Busy { .. } => error.with_header(header::RETRY_AFTER, HeaderValue::from(BUSY_RETRY_SECONDS)),
            _ => error,
        }
    }

    /// Another status than the code's usual one.
    #[must_use]
    pub(super) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// What to do next.
    #[must_use]
    pub(super) fn with_hint(mut self, hint: &str) -> Self {
        self.body.error.hint = Some(hint.to_owned());
        self
    }

    /// A header of the answer.
    #[must_use]
    pub(super) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.header = Some(Box::new((name, value)));
        self
    }
}

impl From<HostError> for ApiError {
    fn from(error: HostError) -> Self {
        let status = status(error.code);
        if error.code == ErrorCode::Internal {
            tracing::error!("{}", error.message);
        }
        Self { status, body: Box::new(ErrorBody::from(&error)), header: None }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        if let Some(header) = self.header {
            let (name, value) = *header;
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// The status of a code. What a caller can mend is 4xx, what the plugin did is 502 to 504, what the host did is 5xx.
fn status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::PluginNotFound | ErrorCode::ToolNotFound => StatusCode::NOT_FOUND,
        ErrorCode::PluginAlreadyInstalled
        | ErrorCode::PluginPermissionRequired
        | ErrorCode::PluginToolConflict
        | ErrorCode::PluginStateConflict
        | ErrorCode::McpTrustDigestStale => StatusCode::CONFLICT,
        ErrorCode::PluginManifestInvalid
        | ErrorCode::PluginPackageInvalid
        | ErrorCode::PluginPermissionUnknown
        | ErrorCode::ToolArgumentInvalid => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorCode::McpTrustApprovalRequired | ErrorCode::McpSandboxRequired | ErrorCode::PermissionDenied => {
            StatusCode::FORBIDDEN
        }
        ErrorCode::PluginBusy => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::McpCapabilityUnsupported => StatusCode::NOT_IMPLEMENTED,
        ErrorCode::PluginHostStartFailed
        | ErrorCode::McpInitializeFailed
        | ErrorCode::McpToolListFailed
        | ErrorCode::McpToolSchemaInvalid
        | ErrorCode::McpToolCallFailed
        | ErrorCode::McpToolResultTooLarge => StatusCode::BAD_GATEWAY,
        ErrorCode::PluginHostUnavailable
        | ErrorCode::PluginCircuitOpen
        | ErrorCode::HomeInUse
        | ErrorCode::HostStopping => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::PermissionTimeout => StatusCode::GATEWAY_TIMEOUT,
        ErrorCode::HomeUnusable | ErrorCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The status of a failed call: its code's, but for those that share a code and differ in whose fault they are.
fn call_status(failure: &CallFailure) -> StatusCode {
    match failure {
        CallFailure::TimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
        CallFailure::RequestTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        CallFailure::ToolNotFound { .. }
        | CallFailure::ArgumentInvalid { .. }
        | CallFailure::Denied { .. }
        | CallFailure::AskTimedOut { .. }
        | CallFailure::Busy { .. }
        | CallFailure::CircuitOpen { .. }
        | CallFailure::Unavailable { .. }
        | CallFailure::Cancelled
        | CallFailure::Rejected(_)
        | CallFailure::ResultInvalid { .. }
        | CallFailure::ResultTooLarge { .. }
        | CallFailure::Stopping => status(failure.code()),
    }
}

/// Answer to a path that is no route.
pub(super) async fn unknown_route(_uri: Uri) -> ApiError {
    ApiError::not_found("this path").with_hint("all paths are listed in /openapi.json")
}

/// Answer to a method that the route does not take; `Allow` is added by the router.
pub(super) async fn wrong_method(method: Method) -> ApiError {
    // Methods are short tokens by grammar, but not by length.
    let method: String = method.as_str().chars().take(16).collect();
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "METHOD_NOT_ALLOWED",
        format!("method `{method}` is not taken by this path"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_an_error_status_and_the_published_ones_are_kept() {
        for code in ErrorCode::ALL {
            let status = status(code);
            assert!(status.is_client_error() || status.is_server_error(), "{code}");
        }
        // The seed's numbers.
        assert_eq!(status(ErrorCode::PluginNotFound), 404);
        assert_eq!(status(ErrorCode::PluginPermissionRequired), 409);
        assert_eq!(status(ErrorCode::PluginToolConflict), 409);
        assert_eq!(status(ErrorCode::McpTrustApprovalRequired), 403);
        assert_eq!(status(ErrorCode::McpSandboxRequired), 403);
        assert_eq!(status(ErrorCode::McpCapabilityUnsupported), 501);
        assert_eq!(status(ErrorCode::PluginHostUnavailable), 503);
    }

    /// Whoever writes a client reads the page, not this file.
    #[test]
    fn the_page_of_codes_tells_these_statuses() {
        let page = include_str!("../../../../docs/errors.md");
        for code in ErrorCode::ALL {
            let row = page.lines().find(|line| line.starts_with(&format!("| `{code}` |"))).unwrap();
            let told = row.split('|').nth(3).and_then(|column| column.split(',').next()).unwrap();
            assert_eq!(told.trim(), status(code).as_str(), "{row}");
        }
    }

    #[test]
    fn failures_that_share_a_code_differ_in_status_where_a_caller_acts_differently() {
        let limit = std::time::Duration::from_secs(1);
        assert_eq!(call_status(&CallFailure::TimedOut { limit, setting: "x" }), 504);
        assert_eq!(call_status(&CallFailure::RequestTooLarge { bytes: 2, limit: 1 }), 413);
        assert_eq!(call_status(&CallFailure::ResultInvalid { reason: String::new() }), 502);
    }
}
