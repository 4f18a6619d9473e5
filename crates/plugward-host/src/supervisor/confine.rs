//! Whether a plugin starts in its sandbox, without one, or not at all (requirements 104, 105 and 146).
//!
//! | asks for | production | development |
//! |---|---|---|
//! | `full`, `partial` | at that level, enforced, or not at all | at that level; if this machine cannot, without, and said so |
//! | `limited` | not at all | at that level; if this machine cannot, without, and said so |
//! | `none` | not at all | without, and said so |
//!
//! Owns this table. Refuses to guess whether a machine could enforce a level: it is tried, and a probe under the same
//! rules confirms it before the plugin runs. A probe that got out stops the start in every environment.

use std::sync::{Arc, PoisonError};

use plugward_policy::{GrantSet, SandboxLevel};
use plugward_sandbox::{LaunchSpec, Listeners, Notebook, SpawnError, SpawnStep, Spawned};

use super::Plugin;
use crate::config::Environment;
use crate::egress::EgressPlan;
use crate::error::{ErrorCode, HostError};
use crate::host::Inner;
use crate::package::{Confinement, ConfinementError, LaunchPlan};
use crate::views::LogOrigin;

/// How to run a plugin that cannot be sandboxed here, for somebody who wants that.
const DEVELOPMENT_HINT: &str =
    "to run it without a sandbox, set PLUGWARD_ENVIRONMENT=development; it then has all your rights";

/// A started process, and why it has no sandbox when it has none.
pub(super) struct Confined {
    pub(super) spawned: Spawned,
    pub(super) unconfined: Option<String>,
    /// Its network, if it may reach some hosts.
    pub(super) egress: Option<(EgressPlan, Listeners)>,
}

/// Refuses before anything is started what no machine could make right.
pub(super) fn check_gate(inner: &Inner, plugin: &Plugin, plan: &LaunchPlan) -> Result<(), HostError> {
    if inner.config.environment == Environment::Development {
        return Ok(());
    }
    let id = &plugin.id;
    let message = match plan.confinement.level {
        SandboxLevel::None => {
            format!("plugin `{id}` would run without a sandbox, which needs environment `development`")
        }
        SandboxLevel::Limited => format!(
            "plugin `{id}` asks for sandbox level `limited`, which keeps it from no file, and that needs environment \
             `development`"
        ),
        wanted if plan.container.is_some() => {
            format!("plugin `{id}` asks for sandbox level `{wanted}`, and {CONTAINER}")
        }
        _ => return Ok(()),
    };
    Err(HostError::new(ErrorCode::McpSandboxRequired, message).with_hint(DEVELOPMENT_HINT))
}

/// Why a container has no level here. Its own isolation is not looked at.
const CONTAINER: &str = "it starts a container, whose engine cannot be reached from inside a sandbox";

/// Starts the process as the table has it. Blocks; see [`Launcher::spawn`](plugward_sandbox::Launcher::spawn).
pub(super) fn spawn(
    inner: &Arc<Inner>,
    plugin: &Plugin,
    plan: &LaunchPlan,
    generation: u64,
) -> Result<Confined, HostError> {
    let level = plan.confinement.level;
    if level == SandboxLevel::None {
        return unconfined(inner, plugin, &plan.launch_spec(generation), "it asks for level `none`".to_owned());
    }
    if plan.container.is_some() {
        return unconfined(inner, plugin, &plan.launch_spec(generation), CONTAINER.to_owned());
    }
    let grants = plugin.grants.read().unwrap_or_else(PoisonError::into_inner).clone();
    let cannot_be_kept = |error: ConfinementError| {
        let message = format!("plugin `{}` cannot be started: {error}", plugin.id);
        HostError::new(ErrorCode::PluginHostStartFailed, message).permanent()
    };
    let sandbox = plan.confinement.sandbox(&grants).map_err(cannot_be_kept)?;
    let Some(sandbox) = sandbox else {
        return Err(HostError::internal("making the sandbox of a plugin that asks for one"));
    };
    plan.confinement.refuse_foreign(&grants).map_err(cannot_be_kept)?;
    plan.confinement.refuse_closed().map_err(cannot_be_kept)?;
    if let Some(wanted) = plan.replaced_temporary_dir() {
        let given = plan.confinement.temporary_dir().display();
        let wanted = plugward_policy::visible(&wanted.to_string_lossy());
        plugin.log.push(LogOrigin::Host, &format!("TMPDIR of the manifest, `{wanted}`, is replaced by `{given}`"));
    }
    let egress = plan.confinement.egress(&grants).map_err(cannot_be_kept)?;
    let variables = egress.as_ref().map(EgressPlan::proxy_variables).unwrap_or_default();
    match inner.config.launcher.spawn(&plan.sandboxed_spec(generation, sandbox, &variables)) {
        Ok(spawned) => {
            let egress = egress.zip(spawned.process.take_listeners());
            Ok(Confined { spawned, unconfined: None, egress })
        }
        Err(error) if !is_level_missing(&error) => Err(start_failed(plugin, plan, &error)),
        Err(error) if inner.config.environment == Environment::Development && !is_broken(&error) => {
            unconfined(inner, plugin, &plan.launch_spec(generation), error.to_string())
        }
        Err(error) => {
            let message = format!("plugin `{}` asks for sandbox level `{level}`: {error}", plugin.id);
            let hint = if is_broken(&error) {
                "`plugward doctor` tries each level; a sandbox that lets something out is no reason to run without one"
                    .to_owned()
            } else {
                format!("`plugward doctor` tells what is missing here; {DEVELOPMENT_HINT}")
            };
            Err(HostError::new(ErrorCode::McpSandboxRequired, message).with_hint(hint))
        }
    }
}

/// Starts it for a trial: at level `full` whatever it asks for, with no grant, in a network where every name can be asked for
/// and nothing is there, and observed. Blocks as [`spawn`].
pub(super) fn spawn_observed(
    inner: &Inner,
    plugin: &Plugin,
    plan: &LaunchPlan,
    generation: u64,
) -> Result<(Confined, Notebook), HostError> {
    let id = &plugin.id;
    if plan.container.is_some() {
        let message = format!("plugin `{id}` cannot be tried: {CONTAINER}");
        return Err(HostError::new(ErrorCode::McpSandboxRequired, message));
    }
    let failed = |what: String| HostError::new(ErrorCode::PluginHostStartFailed, what);
    let confinement = Confinement { level: SandboxLevel::Full, ..plan.confinement.clone() };
    let sandbox = confinement.sandbox(&GrantSet::default());
    let sandbox = sandbox.map_err(|error| failed(format!("plugin `{id}` cannot be tried: {error}")))?;
    let Some(mut sandbox) = sandbox else { return Err(HostError::internal("making the sandbox of a trial")) };
    let egress = EgressPlan::watching();
    sandbox.network = egress.network();
    let spawned = inner.config.launcher.spawn_observed(&plan.sandboxed_spec(generation, sandbox, &[]));
    let (spawned, notebook) = spawned.map_err(|error| {
        if !is_level_missing(&error) {
            return start_failed(plugin, plan, &error);
        }
        let message = format!("plugin `{id}` cannot be tried, which takes sandbox level `full`: {error}");
        HostError::new(ErrorCode::McpSandboxRequired, message).with_hint("`plugward doctor` tells what is missing here")
    })?;
    let egress = Some(egress).zip(spawned.process.take_listeners());
    Ok((Confined { spawned, unconfined: None, egress }, notebook))
}

/// Starts it without a sandbox, and says so where a person looks.
fn unconfined(inner: &Inner, plugin: &Plugin, spec: &LaunchSpec, reason: String) -> Result<Confined, HostError> {
    // Behind the gate of `check_gate` already; a second look costs nothing, and being wrong here would cost everything.
    if inner.config.environment != Environment::Development {
        let message = format!("plugin `{}` would run without a sandbox: {reason}", plugin.id);
        return Err(HostError::new(ErrorCode::McpSandboxRequired, message).with_hint(DEVELOPMENT_HINT));
    }
    let spawned = inner.config.launcher.spawn(spec).map_err(|error| {
        let message = format!("plugin `{}` cannot be started: {error}", plugin.id);
        HostError::new(ErrorCode::PluginHostStartFailed, message)
    })?;
    plugin.log.push(LogOrigin::Host, &format!("runs without a sandbox, with all your rights: {reason}"));
    tracing::warn!(plugin = %plugin.id, "runs without a sandbox, with all rights of its user: {reason}");
    Ok(Confined { spawned, unconfined: Some(reason), egress: None })
}

/// Whether the machine lacks the level, as opposed to something of this start.
fn is_level_missing(error: &SpawnError) -> bool {
    let about_a_path = matches!(error, SpawnError::Layer { path: Some(_), .. });
    error.step() == SpawnStep::Sandbox && !about_a_path && !error.is_transient()
}

/// Whether the probe got out: the layers were there and did not hold. Something is wrong with this machine or with the
/// rules, so the plugin does not start in any environment.
fn is_broken(error: &SpawnError) -> bool {
    matches!(error, SpawnError::NotHeld { .. })
}

fn start_failed(plugin: &Plugin, plan: &LaunchPlan, error: &SpawnError) -> HostError {
    let message = format!("plugin `{}` cannot be started: {error}", plugin.id);
    let host_error = HostError::new(ErrorCode::PluginHostStartFailed, message);
    match error {
        SpawnError::Cwd { path, .. } if path.exists() => host_error.with_hint(format!(
            "it starts in a folder it was not given; its manifest has to ask for `fs.read:{}`",
            plugward_policy::visible(&path.display().to_string())
        )),
        SpawnError::Exec { .. } => {
            let shared = plan.confinement.shared_paths().join(", ");
            host_error.with_hint(format!("inside its sandbox it finds its package and, of this machine: {shared}"))
        }
        _ => host_error,
    }
}

#[cfg(test)]
mod tests {
    use plugward_sandbox::Level;

    use super::*;

    // Requirement 146: a level that did not hold is a fault, not a machine that lacks something.
    #[test]
    fn a_sandbox_that_let_something_out_is_not_one_that_is_missing() {
        let escaped = SpawnError::NotHeld { level: Level::Full, escapes: "read a file outside".to_owned() };
        assert!(is_broken(&escaped) && is_level_missing(&escaped));
        let lost = SpawnError::LauncherLost { status: "signal 9".to_owned() };
        assert!(!is_broken(&lost) && !is_level_missing(&lost));
    }
}
