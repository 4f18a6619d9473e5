//! What a plugin logs, and from which level on it is asked to.
//!
//! Owns `logging/setLevel`: sent only where it says something new, one after the other. Plugins without a handshake are
//! told with each call instead. Refuses to fail a call for it.

use std::time::Duration;

use plugward_policy::PluginId;
use plugward_protocol::mcp::methods;
use plugward_protocol::modern::LogLevel;
use serde_json::json;
use serde_json::value::to_raw_value;

use super::Session;
use super::heard::Logged;

/// Time a plugin has to take note of a level; calls that want it wait as long.
const LEVEL_LIMIT: Duration = Duration::from_secs(2);

impl Session {
    /// Hands on what the plugin logs from now on.
    pub(crate) fn allow_logs(&self, plugin: &PluginId) {
        self.shared.heard.allow(plugin);
    }

    /// Whether what it logs is handed on.
    pub(crate) fn hands_on_logs(&self) -> bool {
        self.shared.heard.is_allowed()
    }

    /// The next message that belongs to no call.
    pub(crate) async fn logged(&self) -> Logged {
        self.shared.heard.next().await
    }

    /// Has the plugin log from exactly this level on.
    pub(crate) async fn set_log_level(&self, level: LogLevel) {
        self.tell_level(level, |told| told != Some(level)).await;
    }

    /// Has it log at least from this level on.
    pub(super) async fn log_from(&self, level: LogLevel) {
        self.tell_level(level, |told| told.is_none_or(|told| told > level)).await;
    }

    async fn tell_level(&self, level: LogLevel, is_news: impl Fn(Option<LogLevel>) -> bool) {
        if self.is_stateless() || !self.hands_on_logs() {
            return;
        }
        let mut told = self.log_level.lock().await;
        if !is_news(*told) {
            return;
        }
        // One that refuses or says nothing is not asked for the same again.
        *told = Some(level);
        let params = to_raw_value(&json!({"level": level.as_str()})).ok();
        if let Err(error) = self.request(methods::LOGGING_SET_LEVEL, params, LEVEL_LIMIT).await {
            tracing::debug!("a plugin took no note of a log level: {error:?}");
        }
    }
}
