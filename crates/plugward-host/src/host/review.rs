//! What a person sees before agreeing, and what agreeing does.
//!
//! Owns the review (requirement 94; SEP-1024), approvals bound to its digest, and grants. Nothing of a package runs
//! for a review. Refuses any approval that does not name the exact digest of what would run now.

use std::ffi::OsStr;
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use plugward_policy::{
    AccessLine, ApprovalSubject, Backend, BackendKind, Digest, Invocation, Permission, PluginId, SandboxLevel, ToolPin,
    is_secret_name, visible,
};
use plugward_store::{ApprovalRow, EventRow, PinRow};
use serde_json::value::RawValue;

use super::trust::{self, Planned};
use super::{Host, Inner, grant_set};
use crate::call::epoch_us;
use crate::config::Environment;
use crate::error::{ErrorCode, HostError};
use crate::package;
use crate::raw_object::RawObject;
use crate::supervisor::stop::{self, Ladder};
use crate::supervisor::{Plugin, sleep, start};
use crate::views::{PluginView, ReviewTool, ReviewView};

/// Through which face an approval came; kept with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalOrigin {
    /// A person at a terminal, or a script that names the digest.
    Cli,
    /// The Host API.
    Api,
    /// The demo.
    Demo,
    /// A test.
    Test,
}

impl ApprovalOrigin {
    /// The word that is kept.
    pub fn as_str(self) -> &'static str {
        match self {
            ApprovalOrigin::Cli => "cli",
            ApprovalOrigin::Api => "api",
            ApprovalOrigin::Demo => "demo",
            ApprovalOrigin::Test => "test",
        }
    }
}

impl Host {
    /// Everything that would run and be touched. Starts nothing.
    pub async fn review(&self, id: &str) -> Result<ReviewView, HostError> {
        let plugin = self.inner.plugin(id)?;
        self.inner.review(&plugin).await
    }

    /// Approves exactly what `digest` stands for, and grants the permissions it lists. Durable when it returns.
    pub async fn approve(&self, id: &str, digest: &Digest, origin: ApprovalOrigin) -> Result<PluginView, HostError> {
        let digest = *digest;
        self.inner.operation_on(id, |inner, plugin| async move { inner.approve(&plugin, digest, origin).await }).await
    }

    /// Replaces the granted permissions. Taking one away from a running plugin stops it (as in the seed).
    pub async fn set_permissions(&self, id: &str, permissions: &[String]) -> Result<PluginView, HostError> {
        let permissions: Arc<[String]> = permissions.into();
        self.inner
            .operation_on(id, |inner, plugin| {
                let permissions = Arc::clone(&permissions);
                async move { inner.set_permissions(&plugin, &permissions).await }
            })
            .await
    }
}

/// The tools a review shows: what was approved beside what is offered.
struct Offer {
    approved: Vec<PinRow>,
    offered: Option<Vec<PinRow>>,
    was_seen: bool,
}

impl Offer {
    /// What an approval given now would pin; none before the first start.
    fn contract(&self) -> Option<Vec<ToolPin>> {
        self.was_seen.then(|| trust::pins_of(self.offered.as_ref().unwrap_or(&self.approved)))
    }
}

impl Inner {
    async fn review(self: &Arc<Self>, plugin: &Arc<Plugin>) -> Result<ReviewView, HostError> {
        let planned = self.plan(plugin).await?;
        let offer = self.offer(plugin).await?;
        let approval = self.current_approval(plugin).await?;
        let subject = ApprovalSubject { contract: offer.contract(), ..planned.plan.subject.clone() };
        let agreed = approval.as_ref().and_then(|row| ApprovalSubject::from_canonical(&row.subject_json).ok());
        let agreed = agreed.map(|agreed| ApprovalSubject {
            // The contract that counts is the one that is pinned, which the first start adds to an approval.
            contract: offer.was_seen.then(|| trust::pins_of(&offer.approved)),
            ..agreed
        });
        let changes = agreed.as_ref().map(|agreed| agreed.diff(&subject)).unwrap_or_default();
        let approved = agreed.is_some() && changes.is_empty();
        Ok(self.render_review(plugin, &planned, &subject, &offer, changes, approved))
    }

    fn render_review(
        &self,
        plugin: &Plugin,
        planned: &Planned,
        subject: &ApprovalSubject,
        offer: &Offer,
        changes: Vec<plugward_policy::Change>,
        approved: bool,
    ) -> ReviewView {
        let Planned { plan, facts, .. } = planned;
        let manifest = &plugin.manifest;
        let catalogue = &self.path.catalogue;
        let argv = match in_words(&manifest.backend) {
            Some(lines) => lines.iter().map(|line| visible(line)).collect(),
            None => {
                let mut argv = vec![visible(&plan.executable.path.display().to_string())];
                argv.extend(subject.argv.iter().map(|argument| visible(&argument.masked())));
                argv
            }
        };
        let masked = |name: &str, value: &str| {
            let is_secret = is_secret_name(name) || plan.secrets.iter().any(|secret| value.contains(secret.as_str()));
            if is_secret { "***".to_owned() } else { visible(value) }
        };
        let mut warnings = plugin.manifest_warnings.clone();
        warnings.extend(
            facts.escaping_links.iter().map(|link| format!("the package has a link that leads out of it: {link}")),
        );
        if manifest.supervision.isolation == plugward_policy::Isolation::PerClient {
            warnings
                .push("it runs once for each client that calls it, up to 16 times at once, beside itself".to_owned());
        }
        let use_of = if manifest.backend.has_program() { "it is given" } else { "what is sent is made with" };
        let note = |name: &String| format!("{use_of} the value of your environment variable {name}");
        warnings.extend(plan.host_variables.iter().map(note));
        if manifest.backend.has_program() {
            warnings.extend(confinement_warnings(plan));
        }
        ReviewView {
            id: plugin.id.clone(),
            name: visible(&manifest.name),
            version: visible(&manifest.version),
            description: visible(&manifest.description),
            source: visible(&subject.source),
            package_digest: facts.digest,
            package_files: facts.files,
            package_bytes: facts.bytes,
            runs: runs(&manifest.backend),
            executable: visible(&plan.executable.file.display().to_string()),
            executable_digest: plan.executable.digest,
            argv,
            cwd: visible(&subject.cwd),
            environment: plan.manifest_env.iter().map(|(name, value)| (visible(name), masked(name, value))).collect(),
            inherited_environment: package::PASSED_VARIABLES
                .iter()
                .filter(|_| manifest.backend.has_program() && plan.remote.is_none())
                .filter(|name| self.environment.get(name).is_some())
                .map(|name| (*name).to_owned())
                .collect(),
            permissions: manifest
                .permissions
                .iter()
                .map(|name| (name.to_string(), catalogue.effect(name).as_str().to_owned()))
                .collect(),
            access: access_lines(
                &manifest.backend,
                subject.access.describe(self.environment.get("HOME").and_then(OsStr::to_str)),
            ),
            shared: plan.confinement.shared_paths(),
            minimum_level: manifest.min_sandbox_level.as_str().to_owned(),
            isolation: match (&plan.remote, manifest.backend.has_program()) {
                (Some(_), _) => REMOTE_ISOLATION,
                (None, true) => {
                    isolation(self.config.environment, manifest.min_sandbox_level, plan.container.is_some())
                }
                (None, false) => "no program of it ever runs: the host does what is written above, and nothing else",
            }
            .to_owned(),
            tools: review_tools(plugin, offer),
            warnings,
            changes,
            approved,
            digest: subject.digest(),
            canonical: subject.canonical(),
        }
    }

    async fn offer(self: &Arc<Self>, plugin: &Plugin) -> Result<Offer, HostError> {
        let id = plugin.id.to_string();
        self.blocking(move |inner| {
            let store = &inner.path.store;
            let approved = store.pins(&id)?;
            let was_seen = store.setting(&trust::pinned_key(&id))?.is_some();
            let offered = store.setting(&trust::offered_key(&id))?.map(|text| offered_rows(&id, &text));
            Ok(Offer { approved, offered, was_seen })
        })
        .await
    }

    /// Refuses a digest that is not the one a review shows now.
    pub(super) async fn check_reviewed(
        self: &Arc<Self>,
        plugin: &Plugin,
        planned: &Planned,
        digest: Digest,
    ) -> Result<(), HostError> {
        let contract = self.offer(plugin).await?.contract();
        refuse_stale(&plugin.id, &ApprovalSubject { contract, ..planned.plan.subject.clone() }, digest)
    }

    async fn approve(
        self: &Arc<Self>,
        plugin: &Arc<Plugin>,
        digest: Digest,
        origin: ApprovalOrigin,
    ) -> Result<PluginView, HostError> {
        let id = &plugin.id;
        let _operation = plugin.operation.lock().await;
        plugin.still_installed()?;
        let planned = self.plan(plugin).await?;
        let offer = self.offer(plugin).await?;
        let subject = ApprovalSubject { contract: offer.contract(), ..planned.plan.subject.clone() };
        refuse_stale(id, &subject, digest)?;
        let row = ApprovalRow {
            plugin_id: id.to_string(),
            digest: digest.to_string(),
            launch_digest: planned.plan.subject.digest().to_string(),
            subject_json: subject.canonical(),
            how: origin.as_str().to_owned(),
            who: self.config.operator.clone(),
            at_us: epoch_us(SystemTime::now()),
            revoked_at_us: None,
        };
        let permissions: Vec<String> = plugin.manifest.all_permissions().iter().map(ToString::to_string).collect();
        let (record, granted) = (row, permissions.clone());
        let offered = offer.offered;
        self.blocking(move |inner| {
            let (id, digest) = (record.plugin_id.clone(), record.digest.clone());
            let event = EventRow {
                at_us: record.at_us,
                plugin_id: Some(id.clone()),
                kind: "approved".to_owned(),
                message: format!("{} approved {digest} through {}", record.who, record.how),
                detail_json: String::new(),
            };
            // One transaction: an approval never stands without its grants and pins.
            inner.path.store.write(move |tx| {
                tx.record_approval(&record)?;
                tx.set_grants(&id, &granted)?;
                tx.set_setting(&crate::supervisor::attempts_key(&id), None)?;
                if let Some(pins) = &offered {
                    tx.set_pins(&id, pins)?;
                    tx.set_setting(&trust::offered_key(&id), None)?;
                }
                tx.record_event(&event)
            })
        })
        .await?;
        *plugin.grants.write().unwrap_or_else(PoisonError::into_inner) = grant_set(&permissions);
        self.path.asks.forget(id);
        // What it tried before was decided on just now.
        plugin.attempts.clear();
        self.after_approval(plugin).await?;
        self.plugin_changed(plugin);
        self.view_with_approval(plugin).await
    }

    /// A running plugin gets its held tools back; one that waited for this is free to start.
    async fn after_approval(self: &Arc<Self>, plugin: &Arc<Plugin>) -> Result<(), HostError> {
        let (running, contract) = {
            let mut state = plugin.state();
            state.hold.release();
            if state.running.is_none() && state.status == plugward_policy::PluginStatus::PermissionRequired {
                state.settle(false);
            }
            (state.running.clone(), state.contract.clone())
        };
        if plugin.state().asleep.is_some() {
            // What was held is offered from now on.
            sleep::lay_down(self, plugin).await?;
            return Ok(());
        }
        let (Some(running), Some(contract)) = (running, contract) else {
            self.start_if_wanted(plugin);
            return Ok(());
        };
        let check = self.hold_to_pins(plugin, &contract).await?;
        start::go_live(self, plugin, &running, contract, check).await
    }

    async fn set_permissions(
        self: &Arc<Self>,
        plugin: &Arc<Plugin>,
        permissions: &[String],
    ) -> Result<PluginView, HostError> {
        let _operation = plugin.operation.lock().await;
        plugin.still_installed()?;
        let mut granted = Vec::new();
        let wanted = plugin.manifest.all_permissions();
        for text in permissions {
            let permission = text.parse::<Permission>().ok().filter(|permission| wanted.contains(permission));
            match permission {
                Some(permission) => granted.push(permission.to_string()),
                None => {
                    let message = format!("plugin `{}` does not ask for permission `{}`", plugin.id, visible(text));
                    let asked: Vec<String> = wanted.iter().map(ToString::to_string).collect();
                    let asked = if asked.is_empty() { "nothing".to_owned() } else { asked.join(", ") };
                    return Err(HostError::new(ErrorCode::PluginPermissionUnknown, message)
                        .with_hint(format!("it asks for: {asked}")));
                }
            }
        }
        let (id, record) = (plugin.id.to_string(), granted.clone());
        self.blocking(move |inner| inner.path.store.set_grants(&id, &record)).await?;
        *plugin.grants.write().unwrap_or_else(PoisonError::into_inner) = grant_set(&granted);
        let missing = !plugin.missing_grants().is_empty();
        if missing {
            stop::stop(self, plugin, Ladder::ORDERLY).await;
            // Only what was on is switched off: a plugin that nobody enabled yet is not `disabled` afterwards.
            let was_enabled = plugin.state().row.enabled;
            if was_enabled {
                self.set_enabled(plugin, false).await?;
            }
            plugin.state().settle(true);
        } else {
            let mut state = plugin.state();
            if state.status == plugward_policy::PluginStatus::PermissionRequired {
                state.settle(false);
            }
        }
        self.plugin_changed(plugin);
        self.view_with_approval(plugin).await
    }
}

fn refuse_stale(id: &PluginId, subject: &ApprovalSubject, digest: Digest) -> Result<(), HostError> {
    if subject.digest() == digest {
        return Ok(());
    }
    let message = format!("digest {digest} is not the digest of what plugin `{id}` would run now");
    Err(HostError::new(ErrorCode::McpTrustDigestStale, message)
        .with_hint(format!("look again: `plugward review {id}`")))
}

/// The same for a server elsewhere.
const REMOTE_ISOLATION: &str = "nothing of it runs on this machine, and nothing here can hold what it does: it sees the values of calls and the \
     headers it is sent, and keeps what it likes";

/// The honest word on isolation (requirement 69): what a start will do. What is in force is told while it runs.
fn isolation(environment: Environment, wanted: SandboxLevel, starts_container: bool) -> &'static str {
    match (wanted, environment) {
        (_, Environment::Production) if starts_container => {
            "none: it starts a container, whose engine cannot be reached from inside a sandbox. It will not be started \
             while environment = production"
        }
        (_, Environment::Development) if starts_container => {
            "none: it starts a container, and the command that does so has all your rights (environment = development)"
        }
        (SandboxLevel::None | SandboxLevel::Limited, Environment::Production) => {
            "none worth the name is asked for: it will not be started while environment = production"
        }
        (SandboxLevel::None, Environment::Development) => {
            "none: it runs as a process of yours with all your rights (environment = development)"
        }
        (SandboxLevel::Limited, Environment::Development) => {
            "system calls and resources are limited, files and network are not: it can touch what you can"
        }
        (SandboxLevel::Partial, Environment::Production) => {
            "the kernel closes files and network except for what is listed here; it can see that other files exist. If \
             this machine cannot do that, it does not start"
        }
        (SandboxLevel::Partial, Environment::Development) => {
            "the kernel closes files and network except for what is listed here; it can see that other files exist. If \
             this machine cannot do that, it runs with all your rights and says so (environment = development)"
        }
        (SandboxLevel::Full, Environment::Production) => {
            "the kernel shows it only what is listed here. If this machine cannot do that, it does not start"
        }
        (SandboxLevel::Full, Environment::Development) => {
            "the kernel shows it only what is listed here. If this machine cannot do that, it runs with all your rights \
             and says so (environment = development)"
        }
    }
}

/// What is asked for and will not come out as its words say.
fn confinement_warnings(plan: &package::LaunchPlan) -> Vec<String> {
    let confinement = &plan.confinement;
    let access = &confinement.access.expanded;
    let everything = access.as_written().permissions().into_iter().map(Permission::Access).collect();
    let kept = confinement.sandbox(&everything).and_then(|_| match confinement.level {
        SandboxLevel::None => Ok(()),
        _ => confinement.refuse_foreign(&everything).and_then(|()| confinement.refuse_closed()),
    });
    let mut warnings = match kept {
        Ok(()) => Vec::new(),
        Err(error) => vec![format!("it will not start: {error}")],
    };
    warnings.extend(plan.replaced_temporary_dir().map(|wanted| {
        format!(
            "its manifest sets TMPDIR to `{}`, which it was not given to write to; it gets `{}` instead",
            visible(&wanted.to_string_lossy()),
            confinement.temporary_dir().display()
        )
    }));
    warnings
}

/// Which way a plugin runs, for a review.
fn runs(backend: &Backend) -> &'static str {
    match &backend.kind {
        BackendKind::McpStdio => "server",
        BackendKind::McpHttp(_) => "remote",
        BackendKind::Prompt(_) => "prompt",
        BackendKind::Webhook(_) => "webhook",
        BackendKind::Command(tool) => match tool.invocation {
            Invocation::Argv(_) => "command",
            Invocation::Shell(_) => "script",
        },
    }
}

/// What a plugin without a program does, in the place of a command; a message may have many lines.
fn in_words(backend: &Backend) -> Option<Vec<String>> {
    let texts = match &backend.kind {
        BackendKind::Prompt(prompt) => prompt.in_words(),
        BackendKind::Webhook(webhook) => webhook.in_words(),
        BackendKind::McpStdio | BackendKind::McpHttp(_) | BackendKind::Command(_) => return None,
    };
    Some(texts.iter().flat_map(|text| text.lines()).map(str::to_owned).collect())
}

/// What is told of the machine: all of it, or without a program only what the host does for the plugin.
pub(super) fn access_lines(backend: &Backend, mut lines: Vec<AccessLine>) -> Vec<AccessLine> {
    lines.retain(|line| backend.has_program() || line.permission.is_some());
    lines
}

/// Definitions kept from an offer, as pins.
fn offered_rows(id: &str, text: &str) -> Vec<PinRow> {
    let raw: Vec<Box<RawValue>> = serde_json::from_str(text).unwrap_or_default();
    let row = |raw: Box<RawValue>| {
        let pin = ToolPin::from_raw(raw.get()).ok()?;
        Some(PinRow {
            plugin_id: id.to_owned(),
            tool: pin.name.to_string(),
            digest: pin.digest.to_string(),
            definition_json: raw.get().to_owned(),
        })
    };
    raw.into_iter().filter_map(row).collect()
}

fn review_tools(plugin: &Plugin, offer: &Offer) -> Vec<ReviewTool> {
    if !offer.was_seen {
        let declared = plugin.manifest.declared_tools.iter().flatten();
        // Of a command its manifest tells; a server has to be asked.
        let command = plugin.manifest.backend.command_tool();
        return declared
            .map(|id| ReviewTool {
                remote_name: id.name().to_string(),
                description: command.map(|tool| visible(&tool.description)),
                claims: Vec::new(),
                state: "declared",
            })
            .collect();
    }
    let offered = offer.offered.as_ref().unwrap_or(&offer.approved);
    let mut tools: Vec<ReviewTool> = offered
        .iter()
        .map(|row| {
            let state = match offer.approved.iter().find(|pin| pin.tool == row.tool) {
                Some(pin) if pin.digest == row.digest => "approved",
                Some(_) => "changed",
                None => "new",
            };
            review_tool(row, state)
        })
        .collect();
    let gone = offer.approved.iter().filter(|pin| !offered.iter().any(|row| row.tool == pin.tool));
    tools.extend(gone.map(|pin| review_tool(pin, "gone")));
    tools
}

fn review_tool(row: &PinRow, state: &'static str) -> ReviewTool {
    let object = RawValue::from_string(row.definition_json.clone()).ok().and_then(|raw| RawObject::parse(&raw));
    let object = object.unwrap_or_default();
    let annotations = object.get("annotations").and_then(RawObject::parse).unwrap_or_default();
    let claimed = |key: &str| annotations.get(key).is_some_and(|raw| raw.get() == "true");
    let claims = [
        ("readOnlyHint", "read-only"),
        ("destructiveHint", "destructive"),
        ("idempotentHint", "idempotent"),
        ("openWorldHint", "reaches outside"),
    ];
    ReviewTool {
        remote_name: row.tool.clone(),
        description: object.get_str("description").map(|text| visible(&text)),
        claims: claims.iter().filter(|(key, _)| claimed(key)).map(|(_, word)| (*word).to_owned()).collect(),
        state,
    }
}
