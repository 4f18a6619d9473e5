//! Webhooks the host sends when something happens in it (`type: integration`).
//!
//! ```text
//! HostEvent -> watch (what is new, is it wanted?) -> bounded queue -> send (payload, signature, attempts) -> receiver
//! ```
//!
//! One event after the other for each webhook, each webhook on its own: a slow receiver delays its own events and nothing
//! else. Owns the queue, its limits, the record of what became of each delivery, and the end: what is queued when the host
//! ends is tried once more within [`DRAIN_GRACE`]. Refuses to send what a person has not approved, or to anywhere that was
//! not granted: requests go through `outbound`.

mod occasion;
mod send;
mod sign;

use std::sync::{Arc, Mutex, PoisonError};

use hyper::header::{HeaderName, HeaderValue};
use plugward_policy::{WEBHOOK_HEADER, WEBHOOK_SECRET, WEBHOOK_URL, WebUrl, Webhook};
use serde_json::Value as Json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::config::DRAIN_GRACE;
use crate::error::{ErrorCode, HostError};
use crate::host::Inner;
use crate::outbound::Outbound;
use crate::supervisor::Plugin;
use crate::views::{DeliveriesView, LogOrigin};
use sign::SigningKey;

/// Events of one webhook that may wait. A host with a hundred plugins tells of a hundred starts at once; past that a
/// receiver is down, and old news is of little use. What is too much is counted and told.
const QUEUE_MAX: usize = 256;

/// An event on its way.
#[derive(Debug, Clone)]
struct Happening {
    /// Also the id of its trace.
    id: String,
    span_id: String,
    /// Its kind.
    name: &'static str,
    /// Everything it says: `event` of the payload.
    facts: Json,
}

/// What became of the events of one webhook, since the host began.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    counts: Mutex<DeliveriesView>,
    /// Held by whoever sends: after a restart the one before finishes first.
    turn: tokio::sync::Mutex<()>,
}

impl Deliveries {
    pub(crate) fn view(&self) -> DeliveriesView {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut DeliveriesView)) {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A webhook that can be sent.
pub(crate) struct Sender {
    plugin: Arc<Plugin>,
    webhook: Webhook,
    url: WebUrl,
    headers: Vec<(HeaderName, HeaderValue)>,
    key: Option<SigningKey>,
    outbound: Outbound,
}

/// Makes a webhook ready with the values its references stand for now.
pub(crate) fn prepare(
    inner: &Arc<Inner>,
    plugin: &Arc<Plugin>,
    webhook: &Webhook,
    values: &[(String, String)],
) -> Result<Sender, HostError> {
    let unusable = |what: &str, reason: &str| {
        let message = format!("webhook `{}` cannot be sent: {what} {reason}", plugin.id);
        HostError::new(ErrorCode::PluginHostStartFailed, message).permanent()
    };
    let value = |name: &str| values.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let url = WebUrl::new(value(WEBHOOK_URL).unwrap_or_default())
        .map_err(|error| unusable("with the values of its references, its", &error.to_string()))?;
    let mut headers = Vec::new();
    for name in &webhook.headers {
        let text = value(&format!("{WEBHOOK_HEADER}{name}")).unwrap_or_default();
        let header = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_str(text).ok());
        // Never the value: it may be a key.
        let (name, mut value) =
            header.ok_or_else(|| unusable(&format!("header `{name}`"), "has a value that no header can have"))?;
        value.set_sensitive(true);
        headers.push((name, value));
    }
    let key = match value(WEBHOOK_SECRET) {
        None => None,
        Some(text) => Some(SigningKey::new(text).map_err(|error| unusable("its secret", &error.to_string()))?),
    };
    let rules = plugin.manifest.access.network.iter().cloned().collect();
    let outbound = Outbound::new(rules, inner.config.trust.clone());
    Ok(Sender { plugin: Arc::clone(plugin), webhook: webhook.clone(), url, headers, key, outbound })
}

impl Sender {
    /// Watches and sends until `stopping`.
    pub(crate) fn begin(self, inner: &Arc<Inner>, stopping: CancellationToken) {
        let (queue, queued) = mpsc::channel(QUEUE_MAX);
        let watch = occasion::Watch::new(inner, &self.plugin, &self.webhook, queue);
        inner.tasks.spawn(watch.run(stopping.clone()));
        inner.tasks.spawn(self.run(Arc::downgrade(inner), queued, stopping));
    }

    async fn run(
        self,
        inner: std::sync::Weak<Inner>,
        mut queued: mpsc::Receiver<Happening>,
        stopping: CancellationToken,
    ) {
        let deliveries = Arc::clone(&self.plugin.deliveries);
        let _turn = deliveries.turn.lock().await;
        let work = async {
            // Ends when the watch has, and nothing is left.
            while let Some(happening) = queued.recv().await {
                let Some(inner) = inner.upgrade() else { return };
                let outcome = self.deliver(&happening, &stopping).await;
                self.record(&inner, &happening, outcome).await;
            }
        };
        let end = async {
            stopping.cancelled().await;
            // Whoever switched it off, removed it or took its host away does not want anything more to be sent.
            if self.is_wanted() {
                tokio::time::sleep(DRAIN_GRACE).await;
            }
        };
        tokio::select! {
            () = work => {}
            () = end => {}
        }
        queued.close();
        let left = queued.len();
        let under_way = deliveries.view().is_sending;
        let unsent = left + usize::from(under_way);
        deliveries.change(|counts| {
            counts.is_sending = false;
            counts.waiting = 0;
            counts.dropped += u64::try_from(unsent).unwrap_or(u64::MAX);
        });
        if unsent > 0 {
            self.plugin.log.push(LogOrigin::Host, &format!("stopped with {unsent} events that were not delivered"));
        }
    }

    fn is_wanted(&self) -> bool {
        let is_granted = self.plugin.missing_grants().is_empty();
        let state = self.plugin.state();
        is_granted && state.row.enabled && !state.removed && !state.hold.is_held()
    }
}
