//! What follows from what was loaded and what lies in the folders now.
//!
//! Owns the rules, and no file: which file a plugin belongs to (the first by path, at every look), what becomes of a file
//! that went bad (the version before stays), and that a plugin whose file did not change is in no action. Refuses to
//! read anything and to do anything.

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
    /// An earlier file is this plugin already.
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
        !self.unreadable.keys().any(|folder| file.starts_with(folder))
    }
}

/// Works out what is to be done.
pub(super) fn plan(known: &Known, scan: &Scan) -> Plan {
    let mut plan = Plan::default();
    // In the order of paths: the first claim of an id is the one that counts. No digest: whatever it was before.
    let mut claims: BTreeMap<PluginId, (PathBuf, Option<String>)> = BTreeMap::new();
    let owned_by = |path: &Path| {
        let mut all = known.plugins.iter();
        all.find(|(_, owned)| owned.file == path).map(|(id, _)| id.clone())
    };
    for (path, found) in &scan.files {
        let (id, digest) = match found {
            Found::Plugin { id, .. } if known.by_hand.contains(id) => {
                plan.problems.insert(path.clone(), Problem::ByHand { id: id.clone() });
                continue;
            }
            Found::Plugin { id, digest } => (id.clone(), Some(digest.clone())),
            Found::Bad { reasons, .. } => {
                let keeps = owned_by(path);
                let problem = Problem::Bad { reasons: reasons.clone(), keeps: keeps.clone() };
                plan.problems.insert(path.clone(), problem);
                let Some(id) = keeps else { continue };
                (id, None)
            }
            Found::Unsettled => {
                let keeps = owned_by(path);
                plan.problems.insert(path.clone(), Problem::Unsettled { keeps: keeps.clone() });
                let Some(id) = keeps else { continue };
                (id, None)
            }
        };
        match claims.get(&id) {
            // A file that is no plugin any more has its problem told already.
            Some((first, _)) if digest.is_some() => {
                plan.problems.insert(path.clone(), Problem::Duplicate { id, first: first.clone() });
            }
            Some(_) => {}
            None => drop(claims.insert(id, (path.clone(), digest))),
        }
    }
    let gone = known.plugins.iter().filter(|(id, owned)| !claims.contains_key(*id) && scan.sees(&owned.file));
    plan.actions.extend(gone.map(|(id, _)| Action::Remove { id: id.clone() }));
    plan.actions.extend(claims.into_iter().filter_map(|(id, (file, digest))| {
        let digest = digest?;
        let owned = Owned { file, digest };
        match known.plugins.get(&id) {
            None => Some(Action::Install { id, owned }),
            Some(before) if before.digest != owned.digest => Some(Action::Update { id, owned }),
            Some(before) if before.file != owned.file => Some(Action::Move { id, owned }),
            Some(_) => None,
        }
    }));
    plan
}

#[cfg(test)]
mod tests;
