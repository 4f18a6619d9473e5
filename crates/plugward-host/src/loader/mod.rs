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
mod steps;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use scan::MAX_PLUGIN_FILES;

use crate::error::HostError;
use crate::host::{Host, Inner};
use crate::views::{FileProblem, FoldersView};
use plan::{Action, Known, Owned, Plan, Problem, Scan};
use scan::Look;
use steps::Steps;
use watch::Watch;

/// Time without a notice before a look: an editor that saves writes, renames and deletes within it.
const QUIET: Duration = Duration::from_millis(100);

/// Longest wait for quiet: somebody who writes all the time does not keep other files from being seen.
const QUIET_LIMIT: Duration = Duration::from_secs(1);

/// Between the two looks that have to agree: longer than a program pauses while it writes one file.
const SETTLE: Duration = Duration::from_millis(200);

/// Looks at a file that keeps changing before it is left for the next notice.
const LOOKS_MAX: usize = 15;

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
            return look_and_act(&self.inner, settings, &Steps::default(), |_| {}).await;
        }
        act_and_tell(&self.inner, plan, &first, &first.scan, &Steps::default()).await
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
    let (mut watch, steps) = (Watch::new(settings.watch), Steps::default());
    loop {
        // Asked for before the look, so that what changes after it is told.
        if let Err(error) = look_and_act(inner, settings, &steps, |look| watch.follow(&look.folders)).await {
            tracing::warn!(code = %error.code, "plugin files were not looked at: {}", error.message);
        }
        tokio::select! {
            () = watch.changed() => {}
            // What waited for a plugin that took its time can be done now.
            () = steps.late_one_ended() => {}
        }
        watch.settle(QUIET, QUIET_LIMIT).await;
    }
}

/// Looks until two looks agree, and does what follows from what they agree on.
async fn look_and_act(
    inner: &Arc<Inner>,
    settings: &FolderSettings,
    steps: &Steps,
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
        act_and_tell(inner, plan, &now, &scan, steps).await?;
        if !scan.is_unsettled() {
            break;
        }
        before = now;
    }
    Ok(())
}

async fn act_and_tell(
    inner: &Arc<Inner>,
    mut plan: Plan,
    look: &Look,
    scan: &Scan,
    steps: &Steps,
) -> Result<(), HostError> {
    let failed = steps.take(inner, std::mem::take(&mut plan.actions), look).await;
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
