//! Trying a plugin before approving it, to learn what it wants.
//!
//! Owns who may ask for a trial (somebody who confirms the digest of the command by a review, as for an approval), its
//! empty home, and its place in the record. Refuses counting a trial as an approval: afterwards the plugin is what it was.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use plugward_policy::{AccessPermission, Digest};
use plugward_sandbox::LocalFiles;
use plugward_store::EventRow;

use super::{ApprovalOrigin, Host, INCOMING_DIR, Inner, install};
use crate::call::epoch_us;
use crate::error::{ErrorCode, HostError};
use crate::ids::random_hex;
use crate::supervisor::{Plugin, trial};
use crate::trial::{Around, Proposal, TRIAL_MAX, TrialView, fragment, propose};

impl Host {
    /// Runs the plugin without any grant for at most `limit`, watched, and proposes the permissions it would need. `digest`
    /// is the one its review shows: the person has confirmed the command itself. No tool is called, nothing leaves the
    /// machine, and what it writes is thrown away.
    pub async fn trial(
        &self,
        id: &str,
        digest: &Digest,
        limit: Duration,
        origin: ApprovalOrigin,
    ) -> Result<TrialView, HostError> {
        let (inner, plugin, digest) = (Arc::clone(&self.inner), self.inner.plugin(id)?, *digest);
        // Boxed: what goes on here is long, and would make every operation of the callers as large.
        let work = Box::pin(async move { inner.trial(&plugin, digest, limit.min(TRIAL_MAX), origin).await });
        self.inner.operation(work).await
    }
}

impl Inner {
    async fn trial(
        self: &Arc<Self>,
        plugin: &Arc<Plugin>,
        digest: Digest,
        limit: Duration,
        origin: ApprovalOrigin,
    ) -> Result<TrialView, HostError> {
        let _operation = plugin.operation.lock().await;
        plugin.still_installed()?;
        let interrupted = plugin.state().begin_interruptible();
        let home = ScratchHome(self.config.home.join(INCOMING_DIR).join(format!("trial-{}", random_hex::<8>())));
        let outcome = self.trial_at_home(plugin, digest, limit, origin, &home, &interrupted).await;
        plugin.state().starting = None;
        // Off the async threads: it may hold many files.
        let _removed = tokio::task::spawn_blocking(move || drop(home)).await;
        outcome
    }

    async fn trial_at_home(
        self: &Arc<Self>,
        plugin: &Arc<Plugin>,
        digest: Digest,
        limit: Duration,
        origin: ApprovalOrigin,
        home: &ScratchHome,
        interrupted: &tokio_util::sync::CancellationToken,
    ) -> Result<TrialView, HostError> {
        let id = &plugin.id;
        if plugin.manifest.backend.is_lone_file() {
            let what = match plugin.manifest.backend.has_program() {
                true => "is a command that runs when it is called",
                false => "runs no program",
            };
            let message = format!("plugin `{id}` {what}: a trial would see nothing");
            return Err(HostError::new(ErrorCode::McpCapabilityUnsupported, message));
        }
        if plugin.manifest.backend.remote().is_some() {
            let message = format!("plugin `{id}` runs elsewhere: a trial here would see nothing of it");
            return Err(HostError::new(ErrorCode::McpCapabilityUnsupported, message));
        }
        let mut planned = self.plan_at_home(plugin, home.0.clone()).await?;
        self.check_reviewed(plugin, &planned, digest).await?;
        // Variables of the user's are grants like any other.
        let ungranted = planned.plan.confinement.access.expanded.host_variables.clone();
        planned.plan.env.retain(|(name, _)| !ungranted.iter().any(|variable| name == variable.as_str()));
        let who = &self.config.operator;
        let how = origin.as_str();
        // Before anything of it runs: code nobody approved is about to.
        self.record_trial(id.as_str(), format!("{who} started a trial of {digest} through {how}"), String::new())
            .await?;
        let tried = trial::run(self, plugin, planned.plan.clone(), limit, interrupted).await?;
        let own_dir = self.config.home.canonicalize().unwrap_or_else(|_| self.config.home.clone());
        let (manifest, plan) = (Arc::clone(&plugin.manifest), planned.plan);
        let user_home = self.environment.get("HOME").and_then(OsStr::to_str).map(str::to_owned);
        let (seen, names) = (tried.seen, tried.names);
        let (attempts, reached, missing) = (seen.attempts, seen.reached, seen.missing);
        // It looks at the file system.
        let judged = tokio::task::spawn_blocking(move || {
            let user_home = user_home.as_deref();
            let (plan, files) = (&plan, RefCell::new(LocalFiles::new()));
            let around = Around { manifest: &manifest, plan, user_home, own_dir: &own_dir, names, files };
            propose(&attempts, &around)
        });
        let proposal = judged.await.map_err(|_| HostError::internal("judging a trial"))?;
        let Proposal { attempts, permissions, added, unused, mut warnings } = proposal;
        if !ungranted.is_empty() {
            let names: Vec<String> =
                ungranted.into_iter().map(|name| AccessPermission::HostVariable(name).to_string()).collect();
            warnings.push(format!(
                "what it reads of its variables cannot be seen; kept as asked for: {}",
                names.join(", ")
            ));
        }
        if seen.dropped > 0 {
            warnings.push(format!("{} more attempts were not kept: it looked through the machine", seen.dropped));
        }
        if seen.unread > 0 {
            warnings.push(format!("of {} attempts it could not be read what they were about", seen.unread));
        }
        let detail = serde_json::json!({ "digest": digest.to_string(), "proposed": permissions, "added": added });
        let message = format!("the trial wanted {} things beyond its sandbox", attempts.len());
        self.record_trial(id.as_str(), message, detail.to_string()).await?;
        let (tools, fault) = match tried.tools {
            Ok(count) => (Some(count), None),
            Err(error) => (None, Some(error.message)),
        };
        Ok(TrialView {
            id: id.clone(),
            digest,
            lasted: tried.lasted,
            tools,
            fault,
            attempts,
            fragment: fragment(&permissions),
            permissions,
            added,
            unused,
            warnings,
            reached,
            missing,
        })
    }

    async fn record_trial(self: &Arc<Self>, id: &str, message: String, detail_json: String) -> Result<(), HostError> {
        let event = EventRow {
            at_us: epoch_us(SystemTime::now()),
            plugin_id: Some(id.to_owned()),
            kind: "trial".to_owned(),
            message,
            detail_json,
        };
        self.blocking(move |inner| inner.path.store.record_event(&event)).await
    }
}

/// A home for one trial, in the folder that the next start of the host empties.
struct ScratchHome(PathBuf);

impl Drop for ScratchHome {
    fn drop(&mut self) {
        install::remove_tree(&self.0);
    }
}
