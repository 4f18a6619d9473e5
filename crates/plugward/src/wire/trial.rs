//! What a plugin wanted in a trial.

use plugward_host::{TrialAttempt, TrialView};
use serde::{Deserialize, Serialize};

/// What a plugin wanted without any grant, and the permissions that would give it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrialBody {
    /// Id.
    pub(crate) id: String,
    /// Digest of what was run.
    pub(crate) digest: String,
    /// How long it ran.
    pub(crate) lasted_ms: u64,
    /// Tools it listed; none if it did not get that far.
    pub(crate) tools: Option<usize>,
    /// Why it did not list its tools.
    pub(crate) fault: Option<String>,
    /// What it wanted.
    pub(crate) attempts: Vec<TrialAttemptBody>,
    /// The whole list for its manifest.
    pub(crate) permissions: Vec<String>,
    /// Those its manifest does not ask for yet.
    pub(crate) added: Vec<String>,
    /// What its manifest asks for and it did not need.
    pub(crate) unused: Vec<String>,
    /// `permissions` as a part of a manifest.
    pub(crate) fragment: String,
    /// What a person should know first.
    pub(crate) warnings: Vec<String>,
    /// Attempts at what its sandbox has.
    pub(crate) reached: u64,
    /// Attempts at what is not on this machine.
    pub(crate) missing: u64,
}

/// One thing it wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrialAttemptBody {
    /// `look`, `read`, `write`, `execute`, `resolve` or `connect`.
    pub(crate) what: String,
    /// Path, host, or host and port.
    pub(crate) target: String,
    /// How often.
    pub(crate) count: u32,
    /// The permission that would give it.
    pub(crate) permission: Option<String>,
    /// Why none is proposed.
    pub(crate) reason: Option<String>,
}

impl From<&TrialView> for TrialBody {
    fn from(view: &TrialView) -> Self {
        Self {
            id: view.id.to_string(),
            digest: view.digest.to_string(),
            lasted_ms: u64::try_from(view.lasted.as_millis()).unwrap_or(u64::MAX),
            tools: view.tools,
            fault: view.fault.clone(),
            attempts: view.attempts.iter().map(TrialAttemptBody::from).collect(),
            permissions: view.permissions.clone(),
            added: view.added.clone(),
            unused: view.unused.clone(),
            fragment: view.fragment.clone(),
            warnings: view.warnings.clone(),
            reached: view.reached,
            missing: view.missing,
        }
    }
}

impl From<&TrialAttempt> for TrialAttemptBody {
    fn from(attempt: &TrialAttempt) -> Self {
        Self {
            what: attempt.what.to_owned(),
            target: attempt.target.clone(),
            count: attempt.count,
            permission: attempt.permission.clone(),
            reason: attempt.reason.clone(),
        }
    }
}
