//! What follows from what was loaded and what lies in the folders now.
//!
//! Owns the rules, and no file: which file a plugin belongs to, what becomes of a file that went bad (the version before
//! stays), and that a plugin whose file did not change is in no action. Of several files with one id the plugin belongs
//! to the one it was loaded from, as long as that claims it (H4: a newcomer takes nobody's place); else to one with the
//! same content, which is a rename; else to the first by path. Refuses to read anything and to do anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use plugward_policy::PluginId;

/// What a look found at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// A plugin.
    Plugin {
        id: PluginId,
        /// Changes with every byte of it.
        digest: String,
    },
    /// Something that should be a plugin and is none.
    Bad {
        /// One line per finding, with its position.
        reasons: Vec<String>,
        digest: String,
    },
    /// It changed between two looks: somebody may be writing it.
    Unsettled,
}

/// All that a look found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Scan {
    pub(super) files: BTreeMap<PathBuf, Found>,
    /// Folders that could not be read, with the reason: nothing is concluded from what is not seen there.
    pub(super) unreadable: BTreeMap<PathBuf, String>,
}

/// A plugin that was loaded from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) file: PathBuf,
    pub(super) digest: String,
}

/// What was loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) plugins: BTreeMap<PluginId, Owned>,
    /// Plugins that were installed by hand: their ids are taken.
    pub(super) by_hand: BTreeSet<PluginId>,
}

/// One step; steps of different plugins do not depend on each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// A plugin that was not there.
    Install { id: PluginId, owned: Owned },
    /// Another version of one that was.
    Update { id: PluginId, owned: Owned },
    /// The same version in another file.
    Move { id: PluginId, owned: Owned },
    /// Its file is gone.
    Remove { id: PluginId },
}

impl Action {
    pub(super) fn id(&self) -> &PluginId {
        match self {
            Action::Install { id, .. }
            | Action::Update { id, .. }
            | Action::Move { id, .. }
            | Action::Remove { id } => id,
        }
    }
}

impl Action {
    /// The file it is about; none for one that is gone.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Action::Install { owned, .. } | Action::Update { owned, .. } | Action::Move { owned, .. } => {
                Some(&owned.file)
            }
            Action::Remove { .. } => None,
        }
    }
}

/// Why a file is not what runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Problem {
    /// It is no plugin.
    Bad { reasons: Vec<String>, keeps: Option<PluginId> },
    /// Another file is this plugin already.
    Duplicate { id: PluginId, first: PathBuf },
    /// A plugin of this id was installed by hand.
    ByHand { id: PluginId },
    /// It is being written.
    Unsettled { keeps: Option<PluginId> },
}

/// What follows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) actions: Vec<Action>,
    pub(super) problems: BTreeMap<PathBuf, Problem>,
}

/// Takes for granted only what two looks agree on.
pub(super) fn settled(before: &Scan, now: &Scan) -> Scan {
    let paths: BTreeSet<&PathBuf> = before.files.keys().chain(now.files.keys()).collect();
    let file = |path: &PathBuf| match (before.files.get(path), now.files.get(path)) {
        (Some(before), Some(now)) if before == now => (path.clone(), now.clone()),
        _ => (path.clone(), Found::Unsettled),
    };
    let mut unreadable = before.unreadable.clone();
    unreadable.extend(now.unreadable.clone());
    Scan { files: paths.into_iter().map(file).collect(), unreadable }
}

impl Scan {
    /// Whether another look may tell more.
    pub(super) fn is_unsettled(&self) -> bool {
        self.files.values().any(|found| *found == Found::Unsettled)
    }

    fn sees(&self, file: &Path) -> bool {
        // Below an entry that could not be read, nothing was seen either.
        let is_bad = |path: &Path| matches!(self.files.get(path), Some(Found::Bad { .. } | Found::Unsettled));
        !self.unreadable.keys().any(|folder| file.starts_with(folder)) && !file.ancestors().skip(1).any(is_bad)
    }
}

/// One file's claim of an id.
#[derive(Clone, Copy)]
struct Claim<'a> {
    path: &'a PathBuf,
    /// None: whatever it was before.
    digest: Option<&'a String>,
}

/// Works out what is to be done.
pub(super) fn plan(known: &Known, scan: &Scan) -> Plan {
    let mut plan = Plan::default();
    let mut claimed: BTreeMap<PluginId, Claim<'_>> = BTreeMap::new();
    for (id, claims) in claims(known, scan, &mut plan.problems) {
        let Some(first) = choose(&claims, known.plugins.get(&id)).copied() else { continue };
        // A file that is no plugin any more has its problem told already.
        let others = claims.iter().filter(|claim| claim.path != first.path && claim.digest.is_some());
        plan.problems.extend(others.map(|claim| {
            let problem = Problem::Duplicate { id: id.clone(), first: first.path.clone() };
            (claim.path.clone(), problem)
        }));
        claimed.insert(id, first);
    }
    let gone = known.plugins.iter().filter(|(id, owned)| !claimed.contains_key(*id) && scan.sees(&owned.file));
    plan.actions.extend(gone.map(|(id, _)| Action::Remove { id: id.clone() }));
    plan.actions.extend(claimed.into_iter().filter_map(|(id, claim)| {
        let owned = Owned { file: claim.path.clone(), digest: claim.digest?.clone() };
        match known.plugins.get(&id) {
            None => Some(Action::Install { id, owned }),
            Some(before) if before.digest != owned.digest => Some(Action::Update { id, owned }),
            Some(before) if before.file != owned.file => Some(Action::Move { id, owned }),
            Some(_) => None,
        }
    }));
    plan
}

/// Who claims which id, in the order of paths. What claims nothing is told as a problem.
fn claims<'a>(
    known: &Known,
    scan: &'a Scan,
    problems: &mut BTreeMap<PathBuf, Problem>,
) -> BTreeMap<PluginId, Vec<Claim<'a>>> {
    let owned_by = |path: &Path| {
        let mut all = known.plugins.iter();
        all.find(|(_, owned)| owned.file == path).map(|(id, _)| id.clone())
    };
    let mut claims: BTreeMap<PluginId, Vec<Claim<'a>>> = BTreeMap::new();
    for (path, found) in &scan.files {
        let (id, digest) = match found {
            Found::Plugin { id, .. } if known.by_hand.contains(id) => {
                problems.insert(path.clone(), Problem::ByHand { id: id.clone() });
                continue;
            }
            Found::Plugin { id, digest } => (Some(id.clone()), Some(digest)),
            Found::Bad { reasons, .. } => {
                let keeps = owned_by(path);
                problems.insert(path.clone(), Problem::Bad { reasons: reasons.clone(), keeps: keeps.clone() });
                (keeps, None)
            }
            Found::Unsettled => {
                let keeps = owned_by(path);
                problems.insert(path.clone(), Problem::Unsettled { keeps: keeps.clone() });
                (keeps, None)
            }
        };
        if let Some(id) = id {
            claims.entry(id).or_default().push(Claim { path, digest });
        }
    }
    claims
}

/// The file a plugin belongs to.
fn choose<'c, 'a>(claims: &'c [Claim<'a>], before: Option<&Owned>) -> Option<&'c Claim<'a>> {
    let is_owner = |claim: &&Claim<'_>| before.is_some_and(|owned| owned.file == *claim.path);
    let is_same = |claim: &&Claim<'_>| before.is_some_and(|owned| Some(&owned.digest) == claim.digest);
    claims.iter().find(is_owner).or_else(|| claims.iter().find(is_same)).or_else(|| claims.first())
}

#[cfg(test)]
mod tests;
