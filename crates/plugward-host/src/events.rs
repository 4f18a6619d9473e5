//! What happens in the host, as it happens.
//!
//! Owns the closed list of events and their channel. A subscriber that lags loses the oldest and is told so by the
//! channel; nothing waits for it. Refuses payloads of calls.

use plugward_policy::PluginId;
use tokio::sync::broadcast;

/// Events a subscriber may lag behind.
const EVENT_QUEUE: usize = 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostEvent {
    /// A plugin changed its state; details are in its view.
    PluginChanged(PluginId),
    /// A plugin was removed.
    PluginRemoved(PluginId),
    /// The set of callable tools changed; the number is the snapshot's version.
    ToolsChanged(u64),
    /// A permission request opened or ended.
    AsksChanged,
}

/// The channel.
pub(crate) struct Events(broadcast::Sender<HostEvent>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::Sender::new(EVENT_QUEUE))
    }
}

impl Events {
    pub(crate) fn send(&self, event: HostEvent) {
        // Nobody listening is no error.
        let _ = self.0.send(event);
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<HostEvent> {
        self.0.subscribe()
    }
}
