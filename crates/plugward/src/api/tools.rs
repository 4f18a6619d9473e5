//! Tools: which there are, and calls of them.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use plugward_host::{CallRequest, ErrorCode, Host, ToolSelector};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use super::errors::ApiError;
use super::payload::{Body, Fields, MAX_CALL_BYTES, Parameters, Payload};
use crate::wire::{ErrorBody, ToolBody};

/// Characters of a tool's internal id: a plugin id, a dot and a tool name, each with room to be wrong.
const MAX_TOOL_CHARS: usize = 512;

/// Characters of a caller's own name for a call.
const MAX_CALL_ID_CHARS: usize = 128;

/// Longest limit a caller may set; tools' own limits are shorter and win.
const MAX_TIMEOUT_MS: u64 = 24 * 60 * 60 * 1000;

/// The tools that can be called now.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ToolList {
    /// The tools.
    items: Vec<ToolBody>,
}

/// A call.
#[derive(Debug, ToSchema)]
pub(super) struct ToolCallRequest {
    /// Internal id of the tool, `<plugin_id>.<remote_name>`.
    #[schema(example = "notes.search")]
    tool: String,
    /// Its arguments; none means `{}`.
    #[schema(value_type = Option<Object>)]
    arguments: Option<Box<RawValue>>,
    /// A limit in milliseconds, if shorter than the tool's own.
    #[schema(minimum = 1, maximum = 86_400_000)]
    timeout_ms: Option<u64>,
    /// The caller's name for this call; one is made if there is none.
    #[schema(max_length = 128)]
    tool_call_id: Option<String>,
}

impl Body for ToolCallRequest {
    const MAX_BYTES: usize = MAX_CALL_BYTES;

    fn read(fields: &mut Fields) -> Option<Self> {
        // Read all before giving up on one: a caller learns of every mistake at once.
        let tool = fields.text("tool", MAX_TOOL_CHARS);
        let arguments = fields.optional_object("arguments");
        let timeout_ms = fields.optional_number("timeout_ms", 1..=MAX_TIMEOUT_MS);
        let tool_call_id = fields.optional_text("tool_call_id", MAX_CALL_ID_CHARS);
        Some(Self { tool: tool?, arguments: arguments?, timeout_ms: timeout_ms?, tool_call_id: tool_call_id? })
    }
}

/// What a tool answered (the seed's shape, then ours).
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ToolResult {
    /// The caller's name for this call, or one made for it.
    tool_call_id: String,
    /// Internal id of the tool.
    name: String,
    /// Whether the tool says that it did what was asked.
    success: bool,
    /// Its structured content, or its controlled content blocks; none if it failed.
    #[schema(value_type = Option<Object>)]
    output: Value,
    /// `MCP_TOOL_CALL_FAILED` if the tool says that it failed.
    error_code: Option<&'static str>,
    /// The tool's own words on that, cut to a limit.
    error_message: Option<String>,
    /// From the request to the answer, in milliseconds.
    duration_ms: u64,
    /// The trace of this call.
    trace_id: String,
}

/// Lists the tools that can be called now.
#[utoipa::path(get, path = "/api/tools", tag = "tools", operation_id = "list_tools",
    params(("plugin_id" = Option<String>, Query, description = "Only tools of this plugin")),
    responses((status = 200, description = "The tools", body = ToolList)))]
pub(super) async fn list(
    State(host): State<Host>,
    Parameters(mut query): Parameters,
) -> Result<Json<ToolList>, ApiError> {
    let plugin = query.optional_text("plugin_id", MAX_TOOL_CHARS);
    let plugin = query.finish(plugin)?;
    let tools = host.tools();
    let wanted = tools.iter().filter(|tool| plugin.as_deref().is_none_or(|id| tool.id.plugin().as_str() == id));
    Ok(Json(ToolList { items: wanted.map(ToolBody::from).collect() }))
}

/// Calls a tool. A caller that goes away cancels its call.
#[utoipa::path(post, path = "/api/tools/call", tag = "tools", operation_id = "call_tool",
    request_body = ToolCallRequest,
    responses(
        (status = 200, description = "The tool answered; `success` tells whether it did what was asked",
            body = ToolResult),
        (status = 403, description = "PERMISSION_DENIED", body = ErrorBody),
        (status = 404, description = "TOOL_NOT_FOUND", body = ErrorBody),
        (status = 413, description = "REQUEST_BODY_TOO_LARGE, or MCP_TOOL_CALL_FAILED with cause \
            `request_too_large`", body = ErrorBody),
        (status = 422, description = "VALIDATION_ERROR or TOOL_ARGUMENT_INVALID", body = ErrorBody),
        (status = 429, description = "PLUGIN_BUSY", body = ErrorBody),
        (status = 502, description = "MCP_TOOL_CALL_FAILED or MCP_TOOL_RESULT_TOO_LARGE", body = ErrorBody),
        (status = 503, description = "PLUGIN_HOST_UNAVAILABLE, PLUGIN_CIRCUIT_OPEN or HOST_STOPPING",
            body = ErrorBody),
        (status = 504, description = "MCP_TOOL_CALL_FAILED with cause `timed_out`, or PERMISSION_TIMEOUT",
            body = ErrorBody)))]
pub(super) async fn call(
    State(host): State<Host>,
    Payload(request): Payload<ToolCallRequest>,
) -> Result<Json<ToolResult>, ApiError> {
    let name = request.tool.clone();
    let mut call = CallRequest::new(ToolSelector::Id(request.tool), request.arguments, "api");
    call.timeout = request.timeout_ms.map(Duration::from_millis);
    let cancel = CancellationToken::new();
    call.cancel = cancel.clone();
    // In a task of its own: a caller that hangs up drops this future, which cancels the call in order, trace included.
    let _hang_up = cancel.drop_guard();
    let report = tokio::spawn(async move { host.call(call).await }).await.map_err(|_| broken_call())?;
    let name = report.tool.as_ref().map_or(name, ToString::to_string);
    let reply = report.outcome.map_err(|failure| ApiError::of_call(&failure, &visible(&name), &report.trace_id))?;
    let (error_code, error_message, output) = if reply.is_error {
        (Some(ErrorCode::McpToolCallFailed.as_str()), Some(reply.error_text()), Value::Null)
    } else {
        (None, None, reply.output())
    };
    Ok(Json(ToolResult {
        tool_call_id: request.tool_call_id.unwrap_or_else(|| format!("call_{}", report.trace_id)),
        name,
        success: !reply.is_error,
        output,
        error_code,
        error_message,
        duration_ms: u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
        trace_id: report.trace_id,
    }))
}

fn visible(name: &str) -> String {
    plugward_policy::visible(name)
}

fn broken_call() -> ApiError {
    plugward_host::HostError::internal("a call").into()
}
