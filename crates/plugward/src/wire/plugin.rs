//! One plugin: the seed's `Plugin` with our detail beside it.

use plugward_host::{HeldTool, NetworkAttempt, PluginView, QuarantinedTool};
use plugward_policy::{
    AccessLine, ApprovedArgument, Backend, BackendKind, Manifest, expand_backend, parse_manifest, secret_values,
};
use plugward_sandbox::Enforcement;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rfc3339;

/// One plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PluginBody {
    /// Id.
    pub(crate) id: String,
    /// Display name.
    pub(crate) name: String,
    /// Version from the manifest.
    pub(crate) version: String,
    /// Description from the manifest.
    pub(crate) description: String,
    /// The manifest in the seed's shape; none if the kept text is no longer readable.
    pub(crate) manifest: Option<ManifestBody>,
    /// `installed`, `permission_required`, `starting`, `ready`, `error` or `disabled`.
    pub(crate) status: String,
    /// State of its process: `stopped`, `starting`, `ready`, `unhealthy` or `error`.
    pub(crate) host_status: String,
    /// What it does now and what to do about it, in one line.
    pub(crate) detail: String,
    /// Whether a person switched it on.
    pub(crate) enabled: bool,
    /// Whether a person approved what is installed.
    pub(crate) approved: bool,
    /// Permissions it asks for.
    pub(crate) requested_permissions: Vec<String>,
    /// Permissions granted.
    pub(crate) granted_permissions: Vec<String>,
    /// The sandbox level below which it does not start.
    pub(crate) minimum_sandbox_level: String,
    /// What it asks of the machine and what it does not get, most dangerous first.
    pub(crate) access: Vec<AccessLineBody>,
    /// Last failure, if it has not been overcome.
    pub(crate) error_message: Option<String>,
    /// Where it was installed from, as given.
    pub(crate) source: String,
    /// When, RFC 3339.
    pub(crate) installed_at: String,
    /// Tools that can be called now.
    pub(crate) tools_count: usize,
    /// Tools that wait for a review.
    pub(crate) held_tools: Vec<HeldToolBody>,
    /// Tools that cannot be used at all.
    pub(crate) quarantined_tools: Vec<QuarantinedToolBody>,
    /// Things worth knowing.
    pub(crate) warnings: Vec<String>,
    /// Automatic restarts since the host started.
    pub(crate) restarts: u32,
    /// What its process and its circuit breaker do, in one line.
    pub(crate) activity: String,
    /// Non-protocol lines skipped on its stdout.
    pub(crate) noise_lines: u64,
    /// Limits of its sandbox at which its process was seen, and is refused more.
    pub(crate) limits_reached: Vec<String>,
    /// Hosts it tried to reach since it was last approved, refused ones first. Empty for a plugin without any network, or
    /// with all of it: nobody sees then what it tries.
    pub(crate) network_attempts: Vec<NetworkAttemptBody>,
    /// Attempts beyond those, which are only counted.
    pub(crate) network_attempts_unlisted: u64,
    /// Isolation in force while it runs.
    pub(crate) enforcement: Option<EnforcementBody>,
}

/// A manifest in the seed's shape, values of secrets masked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ManifestBody {
    /// Id.
    pub(crate) id: String,
    /// Display name.
    pub(crate) name: String,
    /// Version.
    pub(crate) version: String,
    /// Description.
    pub(crate) description: String,
    /// Permissions it asks for.
    pub(crate) permissions: Vec<String>,
    /// What it adds.
    pub(crate) contributes: ContributionsBody,
    /// What is run.
    pub(crate) backend: BackendBody,
}

/// What a plugin adds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ContributionsBody {
    /// Internal ids of the tools it declares; empty when it declares none.
    pub(crate) tools: Vec<String>,
}

/// What is run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct BackendBody {
    /// `mcp`, or `command` for a program that runs once for each call.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// `stdio`, `streamable_http` or `sse` for a server elsewhere, or `none` for a command.
    pub(crate) transport: String,
    /// The program as the manifest names it; of a server elsewhere its URL, secrets masked.
    pub(crate) command: String,
    /// Its arguments as the manifest gives them, secrets masked.
    pub(crate) args: Vec<String>,
    /// Names of the variables the manifest sets; of a server elsewhere the names of the headers it is sent.
    pub(crate) env: Vec<String>,
    /// Bound on the start, in seconds.
    pub(crate) startup_timeout_seconds: u64,
    /// Bound on one call, in seconds.
    pub(crate) tool_timeout_seconds: u64,
}

/// A tool that is not offered until a person reviewed the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct HeldToolBody {
    /// The plugin's own name of it.
    pub(crate) name: String,
    /// Digest that was approved; none for a new tool.
    pub(crate) approved_digest: Option<String>,
    /// Digest of what is offered now; none if the tool is gone.
    pub(crate) offered_digest: Option<String>,
}

/// A tool whose definition cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct QuarantinedToolBody {
    /// Its name, or its place in the list when it has none.
    pub(crate) name: String,
    /// Why.
    pub(crate) reason: String,
}

/// One sentence on what a plugin gets of the machine, or does not get. Holds at sandbox level `full`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct AccessLineBody {
    /// `danger`, `high`, `moderate`, `low`, or `absent` for what it does not get.
    pub(crate) risk: String,
    /// The sentence, without its subject.
    pub(crate) text: String,
    /// Why to think twice.
    pub(crate) red_flag: Option<String>,
    /// The permission behind it, if there is one.
    pub(crate) permission: Option<String>,
}

/// A host a plugin tried to reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct NetworkAttemptBody {
    /// Its name or address, as the plugin gave it.
    pub(crate) host: String,
    /// The port; none when only the name was asked for.
    pub(crate) port: Option<u16>,
    /// Both, as they are usually written.
    pub(crate) place: String,
    /// `refused` (nobody granted it), `failed` (granted, not reached) or `allowed`.
    pub(crate) outcome: String,
    /// Why it was refused or failed.
    pub(crate) reason: String,
    /// How often.
    pub(crate) count: u64,
    /// The last time, RFC 3339.
    pub(crate) last_at: String,
    /// Bytes sent over connections that have ended.
    pub(crate) sent_bytes: u64,
    /// Bytes received over connections that have ended.
    pub(crate) received_bytes: u64,
}

/// Isolation in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct EnforcementBody {
    /// `none`, `limited`, `partial` or `full`.
    pub(crate) level: String,
    /// What puts it in force: `native` or `bwrap` on Linux.
    pub(crate) backend: String,
    /// Layers that are not in force.
    pub(crate) missing: Vec<String>,
    /// What the level means here.
    pub(crate) note: String,
}

impl PluginBody {
    /// Whether it is a server elsewhere, where no sandbox of this machine is.
    pub(crate) fn is_remote(&self) -> bool {
        let transport = self.manifest.as_ref().map(|manifest| manifest.backend.transport.as_str());
        matches!(transport, Some("streamable_http" | "sse"))
    }
}

impl From<&PluginView> for PluginBody {
    fn from(view: &PluginView) -> Self {
        let parsed = parse_manifest(&view.manifest_text, "plugin.yaml").ok();
        Self {
            id: view.id.to_string(),
            name: view.name.clone(),
            version: view.version.clone(),
            description: view.description.clone(),
            manifest: parsed.map(|parsed| ManifestBody::from(&parsed.manifest)),
            status: view.status.as_str().to_owned(),
            host_status: view.host_status.as_str().to_owned(),
            detail: view.detail.clone(),
            enabled: view.enabled,
            approved: view.approved,
            requested_permissions: view.requested_permissions.clone(),
            granted_permissions: view.granted_permissions.clone(),
            minimum_sandbox_level: view.minimum_level.as_str().to_owned(),
            access: view.access.iter().map(AccessLineBody::from).collect(),
            error_message: view.error.clone(),
            source: view.source.clone(),
            installed_at: rfc3339(view.installed_at),
            tools_count: view.tools_count,
            held_tools: view.held_tools.iter().map(HeldToolBody::from).collect(),
            quarantined_tools: view.quarantined_tools.iter().map(QuarantinedToolBody::from).collect(),
            warnings: view.warnings.clone(),
            restarts: view.restarts,
            activity: view.activity.clone(),
            noise_lines: view.noise_lines,
            limits_reached: view.limits_reached.clone(),
            network_attempts: view.network_attempts.iter().map(NetworkAttemptBody::from).collect(),
            network_attempts_unlisted: view.network_attempts_unlisted,
            enforcement: view.enforcement.as_ref().map(EnforcementBody::from),
        }
    }
}

impl From<&Manifest> for ManifestBody {
    fn from(manifest: &Manifest) -> Self {
        Self {
            id: manifest.id.to_string(),
            name: manifest.name.clone(),
            version: manifest.version.clone(),
            description: manifest.description.clone(),
            permissions: manifest.all_permissions().iter().map(ToString::to_string).collect(),
            contributes: ContributionsBody {
                tools: manifest.declared_tools.iter().flatten().map(ToString::to_string).collect(),
            },
            backend: BackendBody::from(&manifest.backend),
        }
    }
}

impl From<&Backend> for BackendBody {
    fn from(backend: &Backend) -> Self {
        // Only what the manifest itself says is shown, so references to variables are looked up nowhere.
        let secrets = expand_backend(backend, |_| Some(String::new()))
            .map(|expanded| secret_values(&expanded))
            .unwrap_or_default();
        let masked = |text: &str| ApprovedArgument::new(text, &secrets).masked();
        let kind = match &backend.kind {
            BackendKind::McpStdio | BackendKind::McpHttp(_) => "mcp",
            BackendKind::Command(_) => "command",
            BackendKind::Prompt(_) => "prompt",
            BackendKind::Webhook(_) => "webhook",
        };
        Self {
            kind: kind.to_owned(),
            transport: match backend.remote() {
                Some(remote) => remote.transport.as_str(),
                None if kind == "mcp" => "stdio",
                None => "none",
            }
            .to_owned(),
            command: masked(&backend.command),
            args: backend.args.iter().map(|argument| masked(argument)).collect(),
            env: backend.env.iter().map(|(name, _)| name.clone()).collect(),
            startup_timeout_seconds: backend.startup_timeout.as_secs(),
            tool_timeout_seconds: backend.tool_timeout.as_secs(),
        }
    }
}

impl From<&AccessLine> for AccessLineBody {
    fn from(line: &AccessLine) -> Self {
        Self {
            risk: line.risk.as_str().to_owned(),
            text: line.text.clone(),
            red_flag: line.red_flag.map(str::to_owned),
            permission: line.permission.as_ref().map(ToString::to_string),
        }
    }
}

impl From<&HeldTool> for HeldToolBody {
    fn from(tool: &HeldTool) -> Self {
        Self {
            name: tool.remote_name.clone(),
            approved_digest: tool.approved_digest.as_ref().map(ToString::to_string),
            offered_digest: tool.offered_digest.as_ref().map(ToString::to_string),
        }
    }
}

impl From<&QuarantinedTool> for QuarantinedToolBody {
    fn from(tool: &QuarantinedTool) -> Self {
        Self { name: tool.name.clone(), reason: tool.reason.clone() }
    }
}

impl From<&Enforcement> for EnforcementBody {
    fn from(enforcement: &Enforcement) -> Self {
        Self {
            level: enforcement.level.as_str().to_owned(),
            backend: enforcement.backend.as_str().to_owned(),
            missing: enforcement.missing.clone(),
            note: enforcement.note.clone(),
        }
    }
}

impl From<&NetworkAttempt> for NetworkAttemptBody {
    fn from(attempt: &NetworkAttempt) -> Self {
        Self {
            host: attempt.host.clone(),
            port: attempt.port,
            place: attempt.place(),
            outcome: attempt.outcome.as_str().to_owned(),
            reason: attempt.reason.clone(),
            count: attempt.count,
            last_at: rfc3339(attempt.last_at),
            sent_bytes: attempt.sent_bytes,
            received_bytes: attempt.received_bytes,
        }
    }
}
