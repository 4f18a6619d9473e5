//! `tools/call`: one call through the host, and what its end looks like to a client.
//!
//! ```text
//! tool result (isError or not)      -> the same result, untouched
//! JSON-RPC error of the plugin      -> the same code, message and data
//! no such tool, or a hidden one     -> error -32602 with one text for all
//! everything else that went wrong   -> result with isError, a sentence for the model and a code for programs
//! ```
//!
//! Owns this mapping (case B025) and the handing on of progress. Refuses to tell hidden tools from unknown ones (case
//! B064) and to look into arguments and results (case B059).

use std::sync::Arc;
use std::time::Duration;

use plugward_host::{
    CallFailure, CallReport, CallRequest, Counterpart, ErrorCode, Host, Inputs, LogWish, ToolSelector,
};
use plugward_protocol::mcp::{self, CallParamsIn, codes, methods};
use plugward_protocol::{RequestId, RpcError};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::logging::WantedLevel;
use super::view::{Routed, View};

/// Progress notes of one call that may wait to be handed on; a caller that does not keep up loses notes, not its
/// result.
const MAX_WAITING_NOTES: usize = 16;

/// The one text for tools that are unknown, hidden by a filter, held for a review or switched off.
pub(super) const UNKNOWN_TOOL: &str = "unknown tool: `tools/list` tells which there are";

/// Member of `_meta` that holds code and cause of our own failures, for programs.
const ERROR_META: &str = "plugward/error";

/// A notification about a request, on its way to the client.
#[derive(Debug)]
pub(super) struct Note {
    /// The request it is about.
    pub(super) request: RequestId,
    /// Its method.
    pub(super) method: &'static str,
    /// Its parameters, under the caller's own token where it has one.
    pub(super) params: Box<RawValue>,
}

/// One call as a client asked for it.
pub(super) struct Call {
    pub(super) host: Host,
    /// What the caller sees.
    pub(super) view: Arc<View>,
    pub(super) request: RequestId,
    pub(super) params: CallParamsIn,
    pub(super) caller: String,
    /// Which session of that caller.
    pub(super) session: u64,
    /// The client as plugins may turn to it.
    pub(super) counterpart: Option<Counterpart>,
    /// What the client brings back for a question.
    pub(super) inputs: Option<Inputs>,
    /// What the client wants to read of what the plugin logs.
    pub(super) log_level: Option<WantedLevel>,
    /// How long a call waits for a plugin that is starting.
    pub(super) start_wait: Duration,
    pub(super) cancel: CancellationToken,
    pub(super) notes: mpsc::Sender<Note>,
}

impl Call {
    /// Runs it to its end; every note is handed on before this returns.
    pub(super) async fn run(mut self) -> Result<Box<RawValue>, RpcError> {
        match self.view.route(&self.host, self.params)? {
            Routed::Answered(result) => return Ok(result),
            Routed::Call(params) => self.params = params,
        }
        let tool = ToolSelector::Exposed(self.params.name.clone());
        // A client that kept its tool list may call before the plugin is up.
        tokio::select! {
            () = self.host.tool_settled(&tool, self.start_wait) => {}
            () = self.cancel.cancelled() => return Err(given_up()),
        }
        let report = self.call(tool).await;
        finish(report, &self.params.name)
    }

    async fn call(&self, tool: ToolSelector) -> CallReport {
        let (progress, mut notes) = mpsc::channel(MAX_WAITING_NOTES);
        let (sender, mut logs) = mpsc::channel(MAX_WAITING_NOTES);
        let wish = |wanted: WantedLevel| LogWish { level: wanted.level, is_named: wanted.is_named, sender };
        let request = CallRequest {
            tool,
            arguments: Some(self.params.arguments.clone()),
            meta: self.params.meta.clone(),
            caller: self.caller.clone(),
            session: self.session,
            timeout: None,
            counterpart: self.counterpart.clone(),
            inputs: self.inputs.clone(),
            progress: self.params.progress_token.is_some().then_some(progress),
            logs: self.log_level.map(wish),
            cancel: self.cancel.clone(),
        };
        let call = self.host.call(request);
        tokio::pin!(call);
        let report = loop {
            tokio::select! {
                report = &mut call => break report,
                Some(params) = notes.recv() => self.hand_on(&params).await,
                Some(params) = logs.recv() => self.note(methods::LOG_MESSAGE, params).await,
            }
        };
        // What the plugin sent before its answer goes out before its answer.
        while let Ok(params) = notes.try_recv() {
            self.hand_on(&params).await;
        }
        while let Ok(params) = logs.try_recv() {
            self.note(methods::LOG_MESSAGE, params).await;
        }
        report
    }

    async fn hand_on(&self, params: &RawValue) {
        let Some(token) = &self.params.progress_token else { return };
        if let Ok(params) = mcp::progress_for(params, token) {
            self.note(methods::PROGRESS, params).await;
        }
    }

    async fn note(&self, method: &'static str, params: Box<RawValue>) {
        // Without a driver nobody is there to be told.
        let _ = self.notes.send(Note { request: self.request.clone(), method, params }).await;
    }
}

/// What the client is told of a call that ended.
fn finish(report: CallReport, name: &str) -> Result<Box<RawValue>, RpcError> {
    let failure = match report.outcome {
        Ok(reply) => return Ok(reply.result),
        Err(CallFailure::Rejected(error)) => return Err(error),
        Err(CallFailure::ToolNotFound { .. }) => return Err(RpcError::new(codes::INVALID_PARAMS, UNKNOWN_TOOL)),
        // Of a client that cancelled nobody waits for this; else the session is ending.
        Err(CallFailure::Cancelled) => return Err(given_up()),
        Err(failure) => failure,
    };
    let tool = report.tool.as_ref().map_or_else(|| name.to_owned(), ToString::to_string);
    let plugin = report.tool.as_ref().map_or_else(|| name.to_owned(), |tool| tool.plugin().to_string());
    let mut text = failure.message(&tool);
    if let Some(advice) = advice(failure.code(), &plugin) {
        text.push_str(". ");
        text.push_str(&advice);
    }
    let result = json!({
        "content": [{ "type": "text", "text": text }],
        "isError": true,
        "_meta": {
            ERROR_META: {
                "code": failure.code().as_str(),
                "cause": failure.cause(),
                "trace_id": report.trace_id,
            }
        },
    });
    to_raw_value(&result).map_err(|_| RpcError::new(codes::INTERNAL_ERROR, "the failure of a call cannot be written"))
}

/// The answer to a request that the end of the session cut off.
pub(super) fn given_up() -> RpcError {
    RpcError::new(codes::INTERNAL_ERROR, "the request was given up because the session is ending")
}

/// What the model, or the person in front of it, can do. Exhaustive, so that a new code gets an advice or none on
/// purpose.
fn advice(code: ErrorCode, plugin: &str) -> Option<String> {
    match code {
        ErrorCode::ToolArgumentInvalid => Some("Correct the arguments and call again".to_owned()),
        ErrorCode::PermissionDenied => {
            Some(format!("Do not try again; a person can change the permissions: `plugward permissions {plugin}`"))
        }
        ErrorCode::PermissionTimeout => {
            Some("Ask the person to answer the permission request of Plugward, then call again".to_owned())
        }
        ErrorCode::PluginBusy => Some("Call again when fewer calls are running".to_owned()),
        ErrorCode::PluginCircuitOpen | ErrorCode::PluginHostUnavailable => Some(format!(
            "Call again later; if it stays so, a person can look at `plugward info {plugin}` and run \
             `plugward restart {plugin}`"
        )),
        ErrorCode::McpToolCallFailed => Some(format!("A person can see what happened with `plugward logs {plugin}`")),
        ErrorCode::McpToolResultTooLarge => Some("Ask for less at once".to_owned()),
        ErrorCode::PluginNotFound
        | ErrorCode::PluginAlreadyInstalled
        | ErrorCode::PluginManifestInvalid
        | ErrorCode::PluginPackageInvalid
        | ErrorCode::PluginPermissionRequired
        | ErrorCode::PluginPermissionUnknown
        | ErrorCode::PluginToolConflict
        | ErrorCode::PluginHostStartFailed
        | ErrorCode::PluginStateConflict
        | ErrorCode::McpInitializeFailed
        | ErrorCode::McpCapabilityUnsupported
        | ErrorCode::McpToolListFailed
        | ErrorCode::McpToolSchemaInvalid
        | ErrorCode::McpTrustApprovalRequired
        | ErrorCode::McpTrustDigestStale
        | ErrorCode::McpSandboxRequired
        | ErrorCode::ToolNotFound
        | ErrorCode::HomeInUse
        | ErrorCode::HomeUnusable
        | ErrorCode::HostStopping
        | ErrorCode::Internal => None,
    }
}
