//! What would run now, and whether a person agreed to exactly that.
//!
//! Owns the launch plan of a plugin, the subject its approval digest is taken over, and the comparison with approved
//! tool pins (invariants 1 and 8). The package is hashed anew at every start, so a byte that changed on disk holds the
//! plugin. Refuses to grant anything: see the review.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plugward_policy::{Digest, ToolPin};
use plugward_store::{ApprovalRow, PinRow};
use serde_json::value::RawValue;

use super::Inner;
use crate::contract::{self, Contract, PinCheck};
use crate::error::{ErrorCode, HostError};
use crate::package::{self, LaunchPlan, PackageFacts, PlanError, PlanInput};
use crate::supervisor::Plugin;

/// Host variables passed to plugins beyond the fixed allow-list; none until a deployment can name some.
const PASSED_VARIABLES: [String; 0] = [];

/// A launch plan with what an approval of it covers.
pub(crate) struct Planned {
    pub(crate) plan: LaunchPlan,
    pub(crate) facts: PackageFacts,
}

/// Setting that keeps what a plugin offered when it differs from what was approved, for a review while it is stopped.
pub(super) fn offered_key(id: &str) -> String {
    format!("offered.{id}")
}

/// Setting that tells "nobody has seen the tools yet" from "it has none".
pub(super) fn pinned_key(id: &str) -> String {
    format!("pinned.{id}")
}

/// Setting that keeps the folder a command works in as its project: the one the host worked in when the plugin was
/// installed, so that it is the same one from wherever the host is started later.
pub(super) fn project_key(id: &str) -> String {
    format!("project.{id}")
}

impl Inner {
    /// Works out what a start would use; reads and hashes, starts nothing.
    pub(crate) async fn plan(self: &Arc<Self>, plugin: &Arc<Plugin>) -> Result<Planned, HostError> {
        self.plan_at_home(plugin, self.private_home(&plugin.id)).await
    }

    /// As [`Self::plan`], with another folder in the place of the plugin's private home.
    pub(super) async fn plan_at_home(
        self: &Arc<Self>,
        plugin: &Arc<Plugin>,
        home_dir: PathBuf,
    ) -> Result<Planned, HostError> {
        let (inner, plugin) = (Arc::clone(self), Arc::clone(plugin));
        tokio::task::spawn_blocking(move || inner.plan_blocking(&plugin, &home_dir))
            .await
            .map_err(|_| HostError::internal("planning a start"))?
    }

    fn plan_blocking(&self, plugin: &Plugin, home_dir: &Path) -> Result<Planned, HostError> {
        let id = &plugin.id;
        let row = plugin.state().row.clone();
        let package_dir = self.package_dir(&row);
        let facts = package::hash_package(&package_dir).map_err(|error| {
            HostError::new(ErrorCode::PluginPackageInvalid, format!("package of plugin `{id}`: {error}"))
                .with_hint(format!("install it again: `plugward remove {id}`, then `plugward install`"))
        })?;
        super::install::create_private_dir(home_dir)?;
        let project = match plugin.manifest.backend.command_tool() {
            Some(_) => {
                self.path.store.setting(&project_key(id.as_str())).map_err(|error| super::store_error(&error))?
            }
            None => None,
        };
        let input = PlanInput {
            manifest: &plugin.manifest,
            source: &row.source,
            package_dir: &package_dir,
            facts: &facts,
            home_dir,
            user: self.user_of(id)?,
            own_dir: &self.config.home,
            project_dir: project.as_deref().map(Path::new),
            host: &self.environment,
            passed_variables: &PASSED_VARIABLES,
        };
        let plan = package::plan(&input).map_err(|error| plan_error(plugin, &error))?;
        Ok(Planned { plan, facts })
    }

    pub(crate) async fn current_approval(self: &Arc<Self>, plugin: &Plugin) -> Result<Option<ApprovalRow>, HostError> {
        let id = plugin.id.to_string();
        self.blocking(move |inner| inner.path.store.current_approval(&id)).await
    }

    /// Whether somebody approved it and nothing seen since speaks against that. Cheap: it does not hash the package;
    /// a start does.
    pub(super) async fn is_approved(self: &Arc<Self>, plugin: &Plugin) -> Result<bool, HostError> {
        let is_held = plugin.state().hold.is_held();
        Ok(!is_held && self.current_approval(plugin).await?.is_some())
    }

    /// The definitions that were approved, in the plugin's order; none if nobody has seen its tools yet.
    pub(crate) async fn pinned_definitions(
        self: &Arc<Self>,
        plugin: &Plugin,
    ) -> Result<Option<Vec<Box<RawValue>>>, HostError> {
        let id = plugin.id.to_string();
        self.blocking(move |inner| {
            let store = &inner.path.store;
            if store.setting(&pinned_key(&id))?.is_none() {
                return Ok(None);
            }
            let raw = |pin: PinRow| RawValue::from_string(pin.definition_json).ok();
            // One that cannot be read is not known: a start will tell.
            Ok(store.pins(&id)?.into_iter().map(raw).collect())
        })
        .await
    }

    /// Compares what a plugin offers with what was approved. The first list after an approval becomes the pin.
    pub(crate) async fn hold_to_pins(
        self: &Arc<Self>,
        plugin: &Plugin,
        contract: &Arc<Contract>,
    ) -> Result<PinCheck, HostError> {
        let id = plugin.id.to_string();
        let offered = Arc::clone(contract);
        let pins = self
            .blocking(move |inner| {
                let store = &inner.path.store;
                if store.setting(&pinned_key(&id))?.is_none() {
                    let pinned = id.clone();
                    store.write(move |tx| {
                        tx.set_pins(&pinned, &pin_rows(&pinned, &offered))?;
                        tx.set_setting(&pinned_key(&pinned), Some("1"))
                    })?;
                }
                store.pins(&id)
            })
            .await?;
        let pins: BTreeMap<String, Digest> =
            pins.iter().filter_map(|pin| Some((pin.tool.clone(), pin.digest.parse().ok()?))).collect();
        let check = contract::compare(contract, &pins);
        self.keep_offer(plugin, contract, !check.held.is_empty()).await?;
        Ok(check)
    }

    /// Remembers a differing offer, so that it can be reviewed when the plugin is not running.
    async fn keep_offer(
        self: &Arc<Self>,
        plugin: &Plugin,
        contract: &Arc<Contract>,
        differs: bool,
    ) -> Result<(), HostError> {
        let id = plugin.id.to_string();
        let offered = Arc::clone(contract);
        self.blocking(move |inner| {
            let definitions = || {
                let parts: Vec<&str> = offered.tools.iter().map(|tool| tool.raw.get()).collect();
                format!("[{}]", parts.join(","))
            };
            let value = differs.then(definitions);
            inner.path.store.set_setting(&offered_key(&id), value.as_deref())
        })
        .await
    }

    /// Tools a person switched off.
    pub(crate) async fn disabled_tools(self: &Arc<Self>, plugin: &Plugin) -> Result<BTreeSet<String>, HostError> {
        let id = plugin.id.to_string();
        let names = self.blocking(move |inner| inner.path.store.disabled_tools(&id)).await?;
        Ok(names.into_iter().collect())
    }
}

/// Pins of a contract as the store keeps them.
pub(super) fn pin_rows(id: &str, contract: &Contract) -> Vec<PinRow> {
    let row = |tool: &Arc<contract::ToolDefinition>| PinRow {
        plugin_id: id.to_owned(),
        tool: tool.name.to_string(),
        digest: tool.digest.to_string(),
        definition_json: tool.raw.get().to_owned(),
    };
    contract.tools.iter().map(row).collect()
}

/// The pins of kept definitions; what cannot be read is left out and shows as gone.
pub(super) fn pins_of(rows: &[PinRow]) -> Vec<ToolPin> {
    rows.iter().filter_map(|row| ToolPin::from_raw(&row.definition_json).ok()).collect()
}

fn plan_error(plugin: &Plugin, error: &PlanError) -> HostError {
    let message = format!("plugin `{}` cannot be started as it is: {error}", plugin.id);
    HostError::new(ErrorCode::PluginHostStartFailed, message).permanent()
}
