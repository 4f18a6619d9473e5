//! A plugin of which nothing runs: a prompt that the host tells, a webhook that the host sends.
//!
//! Owns making it ready: the same plan, approval and pins as for every plugin, and then no process. Refuses to have it
//! called: it has no tools.

use std::sync::Arc;

use plugward_policy::BackendKind;
use tokio_util::sync::CancellationToken;

use super::{Plugin, Running, start};
use crate::call::Target;
use crate::error::HostError;
use crate::host::Inner;
use crate::offers::Offers;
use crate::webhook;

/// All steps, without those of a process.
pub(super) async fn offer(inner: &Arc<Inner>, plugin: &Arc<Plugin>) -> Result<(), HostError> {
    let (planned, _generation) = start::may_start(inner, plugin).await?;
    let plan = planned.plan;
    plugin.redactor.set_secrets(plugin.id.as_str(), &plan.secrets);
    plugin.own_redactor.set_secrets(plugin.id.as_str(), &plan.secrets);
    let contract = Arc::new(start::judge_definitions(inner, plugin, Vec::new()).await?);
    let check = inner.hold_to_pins(plugin, &contract).await?;
    let stopping = CancellationToken::new();
    let sender = match &plugin.manifest.backend.kind {
        BackendKind::Webhook(hook) => Some(webhook::prepare(inner, plugin, hook, &plan.manifest_env)?),
        _ => None,
    };
    let offers = Offers { prompts: plugin.manifest.backend.prompt().is_some(), ..Offers::default() };
    inner.remember_offers(plugin, offers).await;
    let running = Arc::new(Running {
        launched: None,
        route: Arc::new(start::route(plugin, Target::Nowhere)),
        protocol_version: None,
        offers,
        server_name: None,
        server_version: None,
        stopping: stopping.clone(),
    });
    start::go_live(inner, plugin, &running, contract, check).await?;
    if let Some(sender) = sender {
        sender.begin(inner, stopping);
    }
    Ok(())
}
