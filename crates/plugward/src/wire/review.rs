//! What a person is shown before agreeing (requirement 94).

use plugward_host::{ReviewTool, ReviewView};
use plugward_policy::Change;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::AccessLineBody;

/// Everything that would run and be touched; agreeing names `digest`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReviewBody {
    /// Id.
    pub(crate) id: String,
    /// Display name.
    pub(crate) name: String,
    /// Version.
    pub(crate) version: String,
    /// Description.
    pub(crate) description: String,
    /// Where it came from.
    pub(crate) source: String,
    /// The digest an approval must name.
    pub(crate) digest: String,
    /// Whether exactly this was approved already.
    pub(crate) approved: bool,
    /// Digest over all files of the package.
    pub(crate) package_digest: String,
    /// Files in the package.
    pub(crate) package_files: u64,
    /// Bytes in the package.
    pub(crate) package_bytes: u64,
    /// `server`, `remote` for a server elsewhere, `command` for a program that runs once for each call, `script` for a
    /// command that is a shell script, or `prompt` or `webhook`, for which no program runs.
    pub(crate) runs: String,
    /// The program that would be executed; empty if none is.
    pub(crate) executable: String,
    /// Digest of that program.
    pub(crate) executable_digest: String,
    /// The exact argument vector, secrets masked; for a plugin without a program what it says or sends.
    pub(crate) argv: Vec<String>,
    /// Working directory.
    pub(crate) cwd: String,
    /// Variables the manifest sets, secrets masked.
    pub(crate) environment: Vec<VariableBody>,
    /// Names passed on from the host's environment.
    pub(crate) inherited_environment: Vec<String>,
    /// Permissions it asks for.
    pub(crate) permissions: Vec<PermissionBody>,
    /// What it gets of the machine and what it does not, most dangerous first.
    pub(crate) access: Vec<AccessLineBody>,
    /// Programs and libraries of this machine it can read, to run at all.
    pub(crate) shared_read_only: Vec<String>,
    /// Minimum isolation it asks for.
    pub(crate) minimum_sandbox_level: String,
    /// What this host's isolation really does, in words.
    pub(crate) isolation: String,
    /// Its tools as far as they are known.
    pub(crate) tools: Vec<ReviewToolBody>,
    /// Red flags and lints.
    pub(crate) warnings: Vec<String>,
    /// What differs from the last approval.
    pub(crate) changes: Vec<ChangeBody>,
    /// The text the digest is taken over; it holds no value of a secret.
    pub(crate) canonical: String,
}

/// A variable the manifest sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct VariableBody {
    /// Name.
    pub(crate) name: String,
    /// Value, `***` for a secret.
    pub(crate) value: String,
}

/// A permission with what this deployment does about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PermissionBody {
    /// Name.
    pub(crate) name: String,
    /// `allow`, `ask` or `deny`.
    pub(crate) effect: String,
}

/// A tool in a review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReviewToolBody {
    /// The plugin's own name of it.
    pub(crate) name: String,
    /// What a model will read; none before the first start.
    pub(crate) description: Option<String>,
    /// What the plugin claims about it.
    pub(crate) claims: Vec<String>,
    /// `declared`, `new`, `changed`, `approved` or `gone`.
    pub(crate) state: String,
}

/// One difference from the last approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ChangeBody {
    /// What has changed.
    pub(crate) what: String,
    /// What it was.
    pub(crate) before: Option<String>,
    /// What it is now.
    pub(crate) after: Option<String>,
}

impl From<&ReviewView> for ReviewBody {
    fn from(view: &ReviewView) -> Self {
        let variable = |(name, value): &(String, String)| VariableBody { name: name.clone(), value: value.clone() };
        let permission =
            |(name, effect): &(String, String)| PermissionBody { name: name.clone(), effect: effect.clone() };
        Self {
            id: view.id.to_string(),
            name: view.name.clone(),
            version: view.version.clone(),
            description: view.description.clone(),
            source: view.source.clone(),
            digest: view.digest.to_string(),
            approved: view.approved,
            package_digest: view.package_digest.to_string(),
            package_files: view.package_files,
            package_bytes: view.package_bytes,
            runs: view.runs.to_owned(),
            executable: view.executable.clone(),
            executable_digest: view.executable_digest.to_string(),
            argv: view.argv.clone(),
            cwd: view.cwd.clone(),
            environment: view.environment.iter().map(variable).collect(),
            inherited_environment: view.inherited_environment.clone(),
            permissions: view.permissions.iter().map(permission).collect(),
            access: view.access.iter().map(AccessLineBody::from).collect(),
            shared_read_only: view.shared.clone(),
            minimum_sandbox_level: view.minimum_level.clone(),
            isolation: view.isolation.clone(),
            tools: view.tools.iter().map(ReviewToolBody::from).collect(),
            warnings: view.warnings.clone(),
            changes: view.changes.iter().map(ChangeBody::from).collect(),
            canonical: view.canonical.clone(),
        }
    }
}

impl From<&ReviewTool> for ReviewToolBody {
    fn from(tool: &ReviewTool) -> Self {
        Self {
            name: tool.remote_name.clone(),
            description: tool.description.clone(),
            claims: tool.claims.clone(),
            state: tool.state.to_owned(),
        }
    }
}

impl From<&Change> for ChangeBody {
    fn from(change: &Change) -> Self {
        Self { what: change.what.clone(), before: change.before.clone(), after: change.after.clone() }
    }
}
