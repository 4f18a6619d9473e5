//! What happens in the host, as it happens.
//!
//! Owns the closed list of events and their channel. A subscriber that lags loses the oldest and is told so by the
//! channel; nothing waits for it. Inside the host the same is told with the state of that moment, for those that must not
//! miss what lasted only shortly. Refuses payloads of calls.

use std::sync::Arc;

use plugward_policy::{HostStatus, PluginId, PluginStatus};
use tokio::sync::broadcast;

use crate::supervisor::Plugin;

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

/// A plugin as it was when it changed.
#[derive(Debug, Clone)]
pub(crate) struct PluginNotice {
    pub(crate) id: PluginId,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) status: PluginStatus,
    pub(crate) host_status: HostStatus,
    pub(crate) is_held: bool,
    pub(crate) error: Option<String>,
}

impl PluginNotice {
    pub(crate) fn of(plugin: &Plugin) -> Self {
        let state = plugin.state();
        Self {
            id: plugin.id.clone(),
            name: plugin.manifest.name.clone(),
            version: plugin.manifest.version.clone(),
            status: state.status,
            host_status: state.host_status,
            is_held: state.hold.is_held(),
            error: state.error.clone(),
        }
    }
}

/// One event with what belongs to it.
#[derive(Debug, Clone)]
pub(crate) enum Notice {
    /// A plugin changed.
    Plugin(Arc<PluginNotice>),
    /// Anything else.
    Other(HostEvent),
}

/// The channels.
pub(crate) struct Events {
    faces: broadcast::Sender<HostEvent>,
    notices: broadcast::Sender<Notice>,
}

impl Default for Events {
    fn default() -> Self {
        Self { faces: broadcast::Sender::new(EVENT_QUEUE), notices: broadcast::Sender::new(EVENT_QUEUE) }
    }
}

impl Events {
    /// Tells of anything but a change of a plugin. Nobody listening is no error.
    pub(crate) fn send(&self, event: HostEvent) {
        let _ = self.notices.send(Notice::Other(event.clone()));
        let _ = self.faces.send(event);
    }

    /// Tells that a plugin changed.
    pub(crate) fn plugin_changed(&self, plugin: &Plugin) {
        if self.notices.receiver_count() > 0 {
            let _ = self.notices.send(Notice::Plugin(Arc::new(PluginNotice::of(plugin))));
        }
        let _ = self.faces.send(HostEvent::PluginChanged(plugin.id.clone()));
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<HostEvent> {
        self.faces.subscribe()
    }

    /// With the state of each moment.
    pub(crate) fn notices(&self) -> broadcast::Receiver<Notice> {
        self.notices.subscribe()
    }
}
