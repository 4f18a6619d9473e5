//! A plugin that is a server elsewhere: nothing is started, a conversation is.
//!
//! Owns the way there, which is open to the one host that was granted and judged at each connection. Refuses to greet it:
//! the start does, as for every plugin.

use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use plugward_policy::{AccessPermission, StdoutMode};
use tokio_util::sync::CancellationToken;

use super::{Launched, Plugin};
use crate::host::Inner;
use crate::outbound::Outbound;
use crate::package::{LaunchPlan, RemotePlan};
use crate::session::log::STARTED_REMOTE;
use crate::session::quote::Secrets;
use crate::session::{Remote, Session, SessionSettings};
use crate::views::LogOrigin;

/// Begins a conversation; what goes wrong with it shows when the server is greeted.
pub(super) fn connect(
    inner: &Inner,
    plugin: &Plugin,
    plan: &LaunchPlan,
    remote: &RemotePlan,
    generation: u64,
) -> Launched {
    let backend = &plugin.manifest.backend;
    let grants = plugin.grants.read().unwrap_or_else(PoisonError::into_inner);
    let granted = |permission: &AccessPermission| grants.iter_access().any(|granted| granted == permission);
    let rule = remote.url.rule().clone();
    let is_granted = granted(&AccessPermission::Network(rule.clone()));
    drop(grants);
    let rules = if is_granted { vec![rule] } else { Vec::new() };
    let settings = SessionSettings {
        max_message_bytes: usize::try_from(backend.max_message_bytes).unwrap_or(usize::MAX),
        strict: backend.stdout == StdoutMode::Strict,
        secrets: Secrets { redactor: plugin.redactor.clone(), own: plan.secrets.as_slice().into() },
    };
    let remote = Remote {
        url: remote.url.clone(),
        transport: remote.transport,
        headers: remote.headers.clone(),
        outbound: Outbound::new(rules, inner.config.trust.clone()),
    };
    let origin = remote.url.origin();
    let session = Session::open_http(remote, Arc::clone(&plugin.log), settings);
    plugin.log.push(LogOrigin::Host, &format!("{STARTED_REMOTE}{origin}, generation {generation}, it runs elsewhere"));
    Launched {
        generation,
        session: Arc::new(session),
        process: None,
        started_at: SystemTime::now(),
        container: None,
        unconfined: None,
        over: CancellationToken::new(),
    }
}
