//! What the kernel holds a running plugin to, as reported to people and programs.
//!
//! Owns the words of the report. Refuses optimism: a level is stated only for layers this crate has applied and seen
//! work, never derived from configuration.

use serde::{Deserialize, Serialize};

/// How strongly a plugin is confined, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Level {
    /// No confinement: the plugin can do what its user can do.
    None,
    /// Resource limits or a system call filter alone; no confinement worth trusting.
    Limited,
    /// File content and network are confined, existence of files and the end of the tree are not guaranteed.
    Partial,
    /// Files, network, processes and the end of the tree are confined, and a probe under the same rules confirmed it.
    Full,
}

impl Level {
    /// The word used in reports and configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Limited => "limited",
            Self::Partial => "partial",
            Self::Full => "full",
        }
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The means by which the whole process tree of a plugin is found and ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TreeControl {
    /// The launcher adopts orphans and walks its descendants; a plugin that keeps forking can delay the end.
    Subreaper,
}

/// Report of what is enforced for one plugin process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    /// Overall level; the only value a policy may compare with a required minimum.
    pub level: Level,
    /// How the process tree is ended.
    pub tree: TreeControl,
    /// Layers that are not in force, in words for people.
    pub missing: Vec<String>,
    /// One sentence on what the level means here.
    pub note: String,
}

impl Enforcement {
    /// The report for a plugin started by the launcher without isolation layers.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux starts plugins"))]
    pub(crate) fn launcher_only() -> Self {
        const MISSING: [&str; 5] = [
            "file system isolation",
            "network isolation",
            "system call filter",
            "memory and process limits",
            "process namespace",
        ];
        Self {
            level: Level::None,
            tree: TreeControl::Subreaper,
            missing: MISSING.iter().map(ToString::to_string).collect(),
            note: "the plugin runs with all rights of its user; environment and descriptors are its own, setuid \
                   programs gain nothing, and its process tree ends with the host"
                .to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A console that shows more than `none` would tell the user that files are safe when they are not.
    #[test]
    fn launcher_alone_claims_no_level() {
        let report = Enforcement::launcher_only();
        assert_eq!(report.level, Level::None);
        assert!(report.missing.iter().any(|layer| layer == "file system isolation"));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["level"], "none");
        assert_eq!(json["tree"], "subreaper");
        assert_eq!(serde_json::from_value::<Enforcement>(json).unwrap(), report);
    }

    /// A minimum level is a comparison; a wrong order would let a weak sandbox pass for a strong one.
    #[test]
    fn levels_are_ordered_weakest_first() {
        assert!(Level::None < Level::Limited && Level::Limited < Level::Partial && Level::Partial < Level::Full);
    }
}
