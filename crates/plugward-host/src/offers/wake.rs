//! Plugins that sleep, when something they offer is asked for.
//!
//! Owns the wait for the start of one, within a bound. Refuses to start what does not sleep: a plugin that fell over
//! comes back by its supervisor's rules.

use std::sync::Arc;
use std::time::Duration;

use crate::supervisor::{Plugin, Running};

/// The plugin as it runs; one that sleeps is woken. `None` if it is not there in time.
pub(super) async fn awake(plugin: &Plugin, limit: Duration) -> Option<Arc<Running>> {
    let asleep = {
        let state = plugin.state();
        if let Some(running) = &state.running {
            return Some(Arc::clone(running));
        }
        state.asleep.clone()?
    };
    tokio::time::timeout(limit, asleep.wake()).await.ok()?.ok()?;
    plugin.running()
}
