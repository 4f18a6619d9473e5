//! The host as a whole.

use plugward_host::Host;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The host as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct StatusBody {
    /// Version of plugward that answers.
    pub(crate) version: String,
    /// Process id of the running host; none when no `plugward serve` runs.
    pub(crate) serving_pid: Option<u32>,
    /// State folder.
    pub(crate) home: String,
    /// `production` or `development`.
    pub(crate) environment: String,
    /// Tools that can be called now.
    pub(crate) tools_count: usize,
    /// Permission requests that wait for a person.
    pub(crate) pending_requests: usize,
    /// Trace entries lost to a full queue since the host opened.
    pub(crate) dropped_spans: u64,
}

impl StatusBody {
    /// Reads the state of `host`; `serving_pid` is this process's id if it serves.
    pub(crate) fn read(host: &Host, serving_pid: Option<u32>) -> Self {
        let config = host.config();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            serving_pid,
            home: config.home.display().to_string(),
            environment: config.environment.as_str().to_owned(),
            tools_count: host.snapshot().len(),
            pending_requests: host.pending_asks().len(),
            dropped_spans: host.dropped_spans(),
        }
    }
}
