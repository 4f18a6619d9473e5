//! Trials: a plugin without grants, watched, and the permissions that would have given it what it wanted.
//!
//! Owns what a trial tells. How one is run is in [`crate::supervisor::trial`], who may ask for one in the host's
//! operations. Refuses granting anything: a proposal is a text for a person to put into a manifest.

mod fragment;
mod propose;

use std::time::Duration;

use plugward_policy::{Digest, PluginId};

pub(crate) use fragment::fragment;
pub(crate) use propose::{Around, Proposal, propose};

/// How long a trial lasts unless told otherwise: real servers have listed their tools after one or two seconds, and what
/// they do on their own right after that is what a trial is for.
pub const TRIAL_DEFAULT: Duration = Duration::from_secs(10);

/// Longest trial: what a plugin does later than this it does in use, where the same is seen as refusals.
pub const TRIAL_MAX: Duration = Duration::from_secs(300);

/// What a plugin did in a trial.
#[derive(Debug, Clone)]
pub struct TrialView {
    /// The plugin.
    pub id: PluginId,
    /// Digest of what was run, as the review shows it.
    pub digest: Digest,
    /// How long it ran.
    pub lasted: Duration,
    /// Tools it listed; none if it did not get that far.
    pub tools: Option<usize>,
    /// Why it did not list its tools.
    pub fault: Option<String>,
    /// What it wanted, most often first within a kind.
    pub attempts: Vec<TrialAttempt>,
    /// The whole list for the manifest: what was needed, and what a trial cannot see.
    pub permissions: Vec<String>,
    /// Of these, the ones its manifest does not ask for yet.
    pub added: Vec<String>,
    /// What its manifest asks for and it did not need now.
    pub unused: Vec<String>,
    /// `permissions` as part of a manifest.
    pub fragment: String,
    /// What a person should know before using the list.
    pub warnings: Vec<String>,
    /// Attempts at what its sandbox has.
    pub reached: u64,
    /// Attempts at what does not exist on this machine.
    pub missing: u64,
}

/// One thing it wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialAttempt {
    /// What it tried: `look`, `read`, `write`, `execute`, `resolve` or `connect`.
    pub what: &'static str,
    /// A path, a host, or a host with its port; safe to show.
    pub target: String,
    /// How often.
    pub count: u32,
    /// The permission that would give it; none if nothing is proposed.
    pub permission: Option<String>,
    /// Why nothing is proposed.
    pub reason: Option<String>,
}
