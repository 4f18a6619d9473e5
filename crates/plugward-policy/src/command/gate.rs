//! Commands that judge (`type: quality_gate`): when they run, and how much their verdict weighs. Owns the words for both.
//! Refuses to run anything.

use std::fmt;
use std::str::FromStr;

/// What a gate is asked before or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GatePhase {
    /// Before a commit.
    PreCommit,
    /// After a commit.
    PostCommit,
    /// Before a deployment.
    PreDeploy,
    /// After a deployment.
    PostDeploy,
    /// In a review.
    Review,
}

/// The phases by name.
pub(crate) const PHASES: [(&str, GatePhase); 5] = [
    ("pre-commit", GatePhase::PreCommit),
    ("post-commit", GatePhase::PostCommit),
    ("pre-deploy", GatePhase::PreDeploy),
    ("post-deploy", GatePhase::PostDeploy),
    ("review", GatePhase::Review),
];

/// A word that is no phase.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("phase {} is unknown: use pre-commit, post-commit, pre-deploy, post-deploy or review", crate::visible::quoted(.0))]
pub struct UnknownGatePhase(pub String);

impl GatePhase {
    /// The phase's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        PHASES.iter().find(|(_, phase)| *phase == self).map_or("", |(name, _)| name)
    }
}

impl fmt::Display for GatePhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for GatePhase {
    type Err = UnknownGatePhase;

    fn from_str(text: &str) -> Result<Self, UnknownGatePhase> {
        let found = PHASES.iter().find(|(name, _)| *name == text);
        found.map(|(_, phase)| *phase).ok_or_else(|| UnknownGatePhase(text.to_owned()))
    }
}

/// How bad it is when a gate does not pass, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GateSeverity {
    /// Nothing may go on.
    Critical,
    /// The usual.
    High,
    /// Worth mending.
    Medium,
    /// Worth knowing.
    Low,
}

/// The severities by name.
pub(crate) const SEVERITIES: [(&str, GateSeverity); 4] = [
    ("critical", GateSeverity::Critical),
    ("high", GateSeverity::High),
    ("medium", GateSeverity::Medium),
    ("low", GateSeverity::Low),
];

impl GateSeverity {
    /// The severity's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        SEVERITIES.iter().find(|(_, severity)| *severity == self).map_or("", |(name, _)| name)
    }
}

/// What makes a command a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// When it runs.
    pub phase: GatePhase,
    /// Whether the phase fails when it does not pass.
    pub blocking: bool,
    /// How bad that is.
    pub severity: GateSeverity,
}
