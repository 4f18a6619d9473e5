//! The process side of a plugin (requirement 109: the seed's fields, then ours).

use plugward_host::{DeliveriesView, HostView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rfc3339;

/// The process side of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct HostBody {
    /// Id of the plugin.
    pub(crate) plugin_id: String,
    /// `mcp`, `command` for a program that runs once for each call, `prompt` or `webhook` for what no program runs for.
    pub(crate) backend_type: String,
    /// `stdio`, `streamable_http` or `sse` for a server elsewhere, or `none` for all others.
    pub(crate) transport: String,
    /// `stopped`, `starting`, `ready`, `unhealthy` or `error`.
    pub(crate) status: String,
    /// Tools registered now.
    pub(crate) tools_count: usize,
    /// When the running process was started, RFC 3339.
    pub(crate) started_at: Option<String>,
    /// When the plugin last sent a message, RFC 3339.
    pub(crate) last_seen_at: Option<String>,
    /// Negotiated protocol revision.
    pub(crate) protocol_version: Option<String>,
    /// As the server calls itself.
    pub(crate) server_name: Option<String>,
    /// As the server calls itself.
    pub(crate) server_version: Option<String>,
    /// Last failure.
    pub(crate) error: Option<String>,
    /// Process id of the plugin's main process.
    pub(crate) pid: Option<u32>,
    /// Number of this start; rises with each start.
    pub(crate) generation: u64,
    /// All that moves, in one line.
    pub(crate) activity: String,
    /// The circuit breaker: `closed`, `open` or `half-open`.
    pub(crate) breaker: String,
    /// Calls under way.
    pub(crate) calls_running: usize,
    /// Calls that wait for a place.
    pub(crate) calls_waiting: usize,
    /// Automatic restarts since the host started.
    pub(crate) restarts: u32,
    /// Milliseconds until the next automatic start, if one is due.
    pub(crate) next_start_in_ms: Option<u64>,
    /// Whether it is on and offers its tools without a process; the next call starts it.
    pub(crate) asleep: bool,
    /// What became of its events since the host began; of webhooks only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deliveries: Option<DeliveriesBody>,
}

/// What became of the events of a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DeliveriesBody {
    /// Events that the receiver took.
    pub(crate) delivered: u64,
    /// Events that were tried and not taken.
    pub(crate) failed: u64,
    /// Events that were not tried: too many waited, or it was stopped.
    pub(crate) dropped: u64,
    /// Events that wait.
    pub(crate) waiting: usize,
    /// Why the last one failed; none once one was taken.
    pub(crate) failing: Option<String>,
}

impl From<&DeliveriesView> for DeliveriesBody {
    fn from(view: &DeliveriesView) -> Self {
        Self {
            delivered: view.delivered,
            failed: view.failed,
            dropped: view.dropped,
            waiting: view.waiting,
            failing: view.failing.clone(),
        }
    }
}

impl From<&HostView> for HostBody {
    fn from(view: &HostView) -> Self {
        Self {
            plugin_id: view.plugin_id.to_string(),
            backend_type: view.backend.to_owned(),
            transport: match view.remote_transport {
                Some(transport) => transport,
                None if view.backend == "mcp" => "stdio",
                None => "none",
            }
            .to_owned(),
            status: view.status.as_str().to_owned(),
            tools_count: view.tools_count,
            started_at: view.started_at.map(rfc3339),
            last_seen_at: view.last_seen_at.map(rfc3339),
            protocol_version: view.protocol_version.clone(),
            server_name: view.server_name.clone(),
            server_version: view.server_version.clone(),
            error: view.error.clone(),
            pid: view.pid,
            generation: view.generation,
            activity: view.activity(),
            breaker: view.breaker.state.as_str().to_owned(),
            calls_running: view.calls_running,
            calls_waiting: view.calls_waiting,
            restarts: view.restarts,
            next_start_in_ms: view.next_start_in.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)),
            asleep: view.is_asleep,
            deliveries: view.deliveries.as_ref().map(DeliveriesBody::from),
        }
    }
}
