//! Folders of plugin files that are followed: what lies there is installed, what changes is replaced, what goes is
//! removed.
//!
//! ```text
//! notice or pause -> quiet -> look -> look again -> what both agree on -> plan -> install, update, move, remove
//! ```
//!
//! Owns the order of this. A look tells what is there ([`scan`]), the plan what follows ([`plan`]), the host does it
//! (`host::load`). Refuses to approve: a plugin that was never approved, or that is not what was approved any more, is
//! there and does not run.

mod plan;
mod scan;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

pub use scan::MAX_PLUGIN_FILES;

use crate::error::HostError;
use crate::host::{Host, Inner, PluginFile};
use crate::views::{FileProblem, FoldersView};
use plan::{Action, Known, Owned, Plan, Problem, Scan};
use scan::Look;
use watch::Watch;

/// Time without a notice before a look: an editor that saves writes, renames and deletes within it.
const QUIET: Duration = Duration::from_millis(100);

/// Longest wait for quiet: somebody who writes all the time does not keep other files from being seen.
const QUIET_LIMIT: Duration = Duration::from_secs(1);

/// Between the two looks that have to agree: longer than a program pauses while it writes one file.
const SETTLE: Duration = Duration::from_millis(200);

/// Looks at a file that keeps changing before it is left for the next notice.
const LOOKS_MAX: usize = 15;

/// Steps done at the same time. An update waits for calls in flight; others need not wait for it.
const STEPS_AT_ONCE: usize = 8;

/// Folders of plugin files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderSettings {
    /// The folders. One that is not there yet is waited for.
    pub folders: Vec<PathBuf>,
    /// Whether folders in them that are no packages are looked through as well.
    pub recursive: bool,
    /// How changes are noticed.
    pub watch: FolderWatch,
}

/// How changes of plugin files are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderWatch {
    /// The kernel tells, where it can.
    Events,
    /// A look after each pause: for network file systems, which tell nothing.
    Poll(Duration),
}

impl FolderSettings {
    /// One folder, not looked through, with notices.
    pub fn of(folder: impl Into<PathBuf>) -> Self {
        Self { folders: vec![folder.into()], recursive: false, watch: FolderWatch::Events }
    }
}

impl Host {
    /// Loads what the folders hold now; ends when that is done. What is wrong with a file is in [`Host::folders`].
    ///
    /// # Errors
    /// Those of the store; a file that is wrong is none.
    pub async fn load_folders(&self, settings: &FolderSettings) -> Result<(), HostError> {
        let first = look(settings).await?;
        let plan = plan::plan(&known(&self.inner).await?, &first.scan);
        let takes_away = plan.actions.iter().any(|action| matches!(action, Action::Remove { .. }));
        if first.is_fresh || takes_away {
            // Somebody may be in the middle of it.
            return look_and_act(&self.inner, settings, |_| {}).await;
        }
        act_and_tell(&self.inner, plan, &first, &first.scan).await
    }

    /// Follows the folders until the host ends. Call [`Host::load_folders`] first, so that what is there is not late.
    pub fn follow_folders(&self, settings: FolderSettings) {
        let inner = Arc::clone(&self.inner);
        self.inner.tasks.spawn(async move {
            let stopping = inner.path.stopping.clone();
            tokio::select! {
                () = stopping.cancelled() => {}
                () = follow(&inner, &settings) => {}
            }
        });
    }
}

async fn follow(inner: &Arc<Inner>, settings: &FolderSettings) {
    let mut watch = Watch::new(settings.watch);
    loop {
        // Asked for before the look, so that what changes after it is told.
        if let Err(error) = look_and_act(inner, settings, |look| watch.follow(&look.folders)).await {
            tracing::warn!(code = %error.code, "plugin files were not looked at: {}", error.message);
        }
        watch.changed().await;
        watch.settle(QUIET, QUIET_LIMIT).await;
    }
}

/// Looks until two looks agree, and does what follows from what they agree on.
async fn look_and_act(
    inner: &Arc<Inner>,
    settings: &FolderSettings,
    mut looked: impl FnMut(&Look),
) -> Result<(), HostError> {
    let mut before = look(settings).await?;
    looked(&before);
    for left in (0..LOOKS_MAX).rev() {
        tokio::time::sleep(SETTLE).await;
        let now = look(settings).await?;
        looked(&now);
        let scan = plan::settled(&before.scan, &now.scan);
        let known = known(inner).await?;
        let mut plan = plan::plan(&known, &scan);
        if left > 0 {
            // The next look will tell, most likely; a file that is being written is no news yet.
            plan.problems.retain(|_, problem| !matches!(problem, Problem::Unsettled { .. }));
        }
        act_and_tell(inner, plan, &now, &scan).await?;
        if !scan.is_unsettled() {
            break;
        }
        before = now;
    }
    Ok(())
}

async fn act_and_tell(inner: &Arc<Inner>, mut plan: Plan, look: &Look, scan: &Scan) -> Result<(), HostError> {
    let failed = act(inner, std::mem::take(&mut plan.actions), look).await;
    tell(inner, plan, &scan.unreadable, failed).await
}

async fn look(settings: &FolderSettings) -> Result<Look, HostError> {
    let settings = settings.clone();
    let looked = tokio::task::spawn_blocking(move || scan::look(&settings)).await;
    looked.map_err(|_| HostError::internal("looking at plugin files"))
}

async fn known(inner: &Arc<Inner>) -> Result<Known, HostError> {
    let mut known = Known::default();
    for (id, from) in inner.loaded().await? {
        match from {
            Some(from) => drop(known.plugins.insert(id, Owned { file: from.file, digest: from.digest })),
            None => drop(known.by_hand.insert(id)),
        }
    }
    Ok(known)
}

/// Does all steps, each plugin's on its own; what failed comes back.
async fn act(inner: &Arc<Inner>, actions: Vec<Action>, look: &Look) -> Vec<FileProblem> {
    let mut failed = Vec::new();
    let mut running = JoinSet::new();
    let of_kind = |is_kind: fn(&Action) -> bool| actions.iter().filter(move |action| is_kind(action)).cloned();
    let removals: Vec<_> = of_kind(|action| matches!(action, Action::Remove { .. })).collect();
    let mut installs: Vec<_> = of_kind(|action| matches!(action, Action::Install { .. })).collect();
    let changes = of_kind(|action| matches!(action, Action::Update { .. } | Action::Move { .. })).collect();
    // One by one, in the order of their files: that is their order in every list from now on.
    installs.sort_by(|a, b| a.file().cmp(&b.file()));
    for (steps, at_once) in [(removals, STEPS_AT_ONCE), (installs, 1), (changes, STEPS_AT_ONCE)] {
        for action in steps {
            if running.len() >= at_once {
                failed.extend(running.join_next().await.and_then(Result::ok).flatten());
            }
            let file = action.file().and_then(|file| look.files.get(file)).cloned();
            // In a task that the host waits for: a step that began is not left half done.
            let (owner, inner) = (Arc::clone(inner), Arc::clone(inner));
            let step = owner.tasks.spawn(async move { step(&inner, action, file).await });
            running.spawn(async move { step.await.ok().flatten() });
        }
        while let Some(done) = running.join_next().await {
            failed.extend(done.ok().flatten());
        }
    }
    failed
}

async fn step(inner: &Arc<Inner>, action: Action, file: Option<PluginFile>) -> Option<FileProblem> {
    let done = match (&action, &file) {
        (Action::Remove { id }, _) => inner.unload(id).await,
        (Action::Install { .. }, Some(file)) => inner.load_new(file).await,
        (Action::Update { .. }, Some(file)) => inner.load_version(file).await,
        (Action::Move { id, .. }, Some(file)) => inner.note_file(id, file).await,
        // Gone between two looks; the next one will tell.
        (_, None) => Ok(()),
    };
    let error = done.err()?;
    let keeps = matches!(action, Action::Update { .. }).then(|| action.id().clone());
    let path = file.map_or_else(PathBuf::new, |file| file.path);
    let reasons = std::iter::once(error.message).chain(error.details).chain(error.hint).collect();
    Some(FileProblem { path, reasons, keeps })
}

/// Keeps what is wrong for whoever asks, and logs what was not wrong at the look before.
async fn tell(
    inner: &Arc<Inner>,
    plan: Plan,
    unreadable: &BTreeMap<PathBuf, String>,
    failed: Vec<FileProblem>,
) -> Result<(), HostError> {
    let folders = unreadable.iter().map(|(path, reason)| FileProblem {
        path: path.clone(),
        reasons: vec![reason.clone()],
        keeps: None,
    });
    let files = plan.problems.into_iter().map(|(path, problem)| in_words(path, problem));
    let mut problems: Vec<FileProblem> = folders.chain(files).chain(failed).collect();
    problems.sort_by(|a, b| a.path.cmp(&b.path));
    let before = inner.folders().unwrap_or_default();
    for problem in problems.iter().filter(|problem| !before.problems.contains(problem)) {
        let kept = problem.keeps.as_ref().map(|id| format!("; plugin `{id}` stays as it was")).unwrap_or_default();
        tracing::warn!(file = %problem.path.display(), "plugin file: {}{kept}", problem.reasons.join("; "));
    }
    let plugins = known(inner).await?.plugins.len();
    inner.note_folders(FoldersView { plugins, problems });
    Ok(())
}

fn in_words(path: PathBuf, problem: Problem) -> FileProblem {
    let (reasons, keeps) = match problem {
        Problem::Bad { reasons, keeps } => (reasons, keeps),
        Problem::Duplicate { id, first } => {
            let (here, first) = (path.display(), first.display());
            let line = format!("`{here}` is plugin `{id}`, which `{first}` is already; give one of them another id");
            (vec![line], None)
        }
        Problem::ByHand { id } => {
            let line = format!(
                "plugin `{id}` was installed by hand; `plugward remove {id}` makes room for the one in this file"
            );
            (vec![line], None)
        }
        Problem::Unsettled { keeps } => (vec!["it keeps changing; the next look will tell".to_owned()], keeps),
    };
    FileProblem { path, reasons, keeps }
}
