//! Permissions and what a person granted. Owns the effects, the catalogue of permissions a
//! deployment knows, and grant sets. Refuses to know who asks: `decision` puts the parts together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::access::{Access, AccessPermission, Permission};
use crate::id::{IdError, PermissionName};
use crate::manifest::did_you_mean;
use crate::visible::quoted;

/// What happens to a call; the order is strictness, so that the strictest of several is their
/// maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// It runs.
    Allow,
    /// A person is asked first.
    Ask,
    /// It does not run.
    Deny,
}

impl Effect {
    /// The effect's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("effect {} is unknown: use allow, ask or deny", quoted(.0))]
pub struct UnknownEffect(pub String);

impl FromStr for Effect {
    type Err = UnknownEffect;

    /// Reads an effect; `confirm` is the seed's word for `ask`.
    fn from_str(text: &str) -> Result<Self, UnknownEffect> {
        match text {
            "allow" => Ok(Self::Allow),
            "ask" | "confirm" => Ok(Self::Ask),
            "deny" => Ok(Self::Deny),
            _ => Err(UnknownEffect(text.to_owned())),
        }
    }
}

/// The seed's twelve permissions.
const SEED: [(&str, Effect); 12] = [
    ("notes.read", Effect::Allow),
    ("notes.search", Effect::Allow),
    ("notes.write", Effect::Ask),
    ("notes.delete", Effect::Ask),
    ("tasks.read", Effect::Allow),
    ("tasks.write", Effect::Ask),
    ("attachments.read", Effect::Allow),
    ("network.request", Effect::Ask),
    ("secrets.use", Effect::Ask),
    ("ui.command", Effect::Allow),
    ("ui.settings", Effect::Allow),
    ("ui.sidebar", Effect::Allow),
];

/// What an MCP server may offer beside tools; without the permission it is not passed on.
const OFFERS: [(&str, Effect); 4] = [
    ("mcp.prompts", Effect::Allow),
    ("mcp.resources", Effect::Allow),
    ("mcp.completions", Effect::Allow),
    ("mcp.logging", Effect::Allow),
];

/// What an MCP server may ask of whoever called it; without the permission it is told that nobody answers.
const QUESTIONS: [(&str, Effect); 3] =
    [("mcp.sampling", Effect::Allow), ("mcp.elicitation", Effect::Allow), ("mcp.roots", Effect::Allow)];

/// The permissions a deployment knows, each with its effect. Unknown ones are denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    effects: BTreeMap<PermissionName, Effect>,
}

impl Catalogue {
    /// A catalogue that knows nothing and so denies everything.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// The default catalogue: the seed's twelve permissions.
    #[must_use]
    pub fn seed() -> Self {
        let names = SEED
            .iter()
            .chain(&OFFERS)
            .chain(&QUESTIONS)
            .filter_map(|(name, effect)| PermissionName::new(*name).ok().map(|name| (name, *effect)));
        Self { effects: names.collect() }
    }

    /// A catalogue of exactly `pairs`; the last one wins for a name given twice.
    ///
    /// # Errors
    /// [`IdError::Permission`] for a name that is not one.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, Effect)>) -> Result<Self, IdError> {
        let named = pairs.into_iter().map(|(name, effect)| PermissionName::new(name).map(|name| (name, effect)));
        Ok(Self { effects: named.collect::<Result<_, _>>()? })
    }

    /// This catalogue with `name` added or changed.
    #[must_use]
    pub fn with(mut self, name: PermissionName, effect: Effect) -> Self {
        self.effects.insert(name, effect);
        self
    }

    /// The effect of `name`: [`Effect::Deny`] when it is unknown.
    #[must_use]
    pub fn effect(&self, name: &PermissionName) -> Effect {
        self.effects.get(name).copied().unwrap_or(Effect::Deny)
    }

    /// Whether `name` is known.
    #[must_use]
    pub fn knows(&self, name: &PermissionName) -> bool {
        self.effects.contains_key(name)
    }

    /// Every known permission with its effect, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&PermissionName, Effect)> {
        self.effects.iter().map(|(name, effect)| (name, *effect))
    }

    /// The permissions of a manifest that this deployment does not know, each with the known name
    /// it was probably meant to be.
    #[must_use]
    pub fn unknown<'p>(&self, permissions: &'p [PermissionName]) -> Vec<(&'p PermissionName, Option<String>)> {
        let unknown = permissions.iter().filter(|name| !self.knows(name));
        unknown
            .map(|name| {
                let known = self.effects.keys().map(PermissionName::as_str);
                (name, did_you_mean(name.as_str(), known))
            })
            .collect()
    }
}

/// The permissions a person granted to one plugin. Each grant covers exactly the permission whose
/// text it is: `fs.read:/data` does not cover `fs.read:/data/x`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantSet {
    permissions: BTreeSet<PermissionName>,
    access: BTreeSet<AccessPermission>,
}

impl GrantSet {
    /// Whether `permission` was granted.
    #[must_use]
    pub fn contains(&self, permission: &PermissionName) -> bool {
        self.permissions.contains(permission)
    }

    /// Whether `permission`, with exactly this text, was granted.
    #[must_use]
    pub fn contains_access(&self, permission: &AccessPermission) -> bool {
        self.access.contains(permission)
    }

    /// What of `wanted` was not granted, in the order of `wanted`.
    #[must_use]
    pub fn missing<'p>(&self, wanted: &'p [PermissionName]) -> Vec<&'p PermissionName> {
        wanted.iter().filter(|permission| !self.contains(permission)).collect()
    }

    /// What of `wanted` was not granted, most dangerous kind first.
    #[must_use]
    pub fn missing_access(&self, wanted: &Access) -> Vec<AccessPermission> {
        let mut missing = wanted.permissions();
        missing.retain(|permission| !self.contains_access(permission));
        missing
    }

    /// The granted named permissions, by name.
    pub fn iter(&self) -> impl Iterator<Item = &PermissionName> {
        self.permissions.iter()
    }

    /// The granted permissions of the machine, most dangerous kind first.
    pub fn iter_access(&self) -> impl Iterator<Item = &AccessPermission> {
        self.access.iter()
    }

    /// Whether nothing was granted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.permissions.is_empty() && self.access.is_empty()
    }

    /// Adds a grant.
    pub fn insert(&mut self, permission: Permission) {
        match permission {
            Permission::Named(name) => self.permissions.insert(name),
            Permission::Access(access) => self.access.insert(access),
        };
    }
}

impl FromIterator<PermissionName> for GrantSet {
    fn from_iter<I: IntoIterator<Item = PermissionName>>(permissions: I) -> Self {
        Self { permissions: permissions.into_iter().collect(), access: BTreeSet::new() }
    }
}

impl FromIterator<Permission> for GrantSet {
    fn from_iter<I: IntoIterator<Item = Permission>>(permissions: I) -> Self {
        let mut grants = Self::default();
        permissions.into_iter().for_each(|permission| grants.insert(permission));
        grants
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> PermissionName {
        text.parse().unwrap()
    }

    // Requirements 62, 63: the twelve permissions of the seed, unknown ones denied.
    #[test]
    fn the_seed_catalogue_has_its_twelve_effects_and_denies_the_rest() {
        let seed = Catalogue::seed();
        let ours: Vec<&str> =
            seed.iter().map(|(name, _)| name.as_str()).filter(|name| name.starts_with("mcp.")).collect();
        assert_eq!(
            (seed.iter().count(), ours.len()),
            (12 + 7, 7),
            "beside what servers offer and ask apart from tools"
        );
        let asked: Vec<&str> =
            seed.iter().filter(|(_, effect)| *effect == Effect::Ask).map(|(name, _)| name.as_str()).collect();
        assert_eq!(asked, ["network.request", "notes.delete", "notes.write", "secrets.use", "tasks.write"]);
        assert_eq!(seed.effect(&name("notes.read")), Effect::Allow);
        assert_eq!(seed.effect(&name("notes.reed")), Effect::Deny);
        assert_eq!(Catalogue::empty().effect(&name("notes.read")), Effect::Deny);
    }

    #[test]
    fn a_deployment_can_replace_and_extend_the_catalogue() {
        let own = Catalogue::seed().with(name("notes.read"), Effect::Deny).with(name("mail.send"), Effect::Ask);
        assert_eq!(own.effect(&name("notes.read")), Effect::Deny);
        assert_eq!(own.effect(&name("mail.send")), Effect::Ask);
        let pairs = Catalogue::from_pairs([("mail.send", Effect::Allow)]).unwrap();
        assert!(pairs.knows(&name("mail.send")) && !pairs.knows(&name("notes.read")));
        assert!(Catalogue::from_pairs([("Mail", Effect::Allow)]).is_err());
    }

    #[test]
    fn unknown_permissions_come_with_a_suggestion() {
        let asked = [name("notes.read"), name("notes.raed"), name("zebra.ride")];
        let unknown = Catalogue::seed().unknown(&asked);
        assert_eq!(unknown.len(), 2);
        assert_eq!(unknown[0].1.as_deref(), Some("did you mean `notes.read`?"));
        assert_eq!(unknown[1], (&asked[2], None));
    }

    // The strictest effect wins everywhere because the order of the type says so.
    #[test]
    fn effects_are_ordered_by_strictness_and_read_the_seeds_word() {
        assert!(Effect::Allow < Effect::Ask && Effect::Ask < Effect::Deny);
        assert_eq!("confirm".parse(), Ok(Effect::Ask));
        for effect in [Effect::Allow, Effect::Ask, Effect::Deny] {
            assert_eq!(effect.as_str().parse(), Ok(effect));
        }
        assert!("Allow".parse::<Effect>().is_err());
    }

    #[test]
    fn grants_tell_what_is_missing() {
        let grants: GrantSet = [name("notes.read")].into_iter().collect();
        let wanted = [name("notes.write"), name("notes.read")];
        assert_eq!(grants.missing(&wanted), [&wanted[0]]);
        assert!(GrantSet::default().is_empty());
    }
}
