//! The doing of a plan, each plugin's step on its own.
//!
//! Owns who is waited for, and how long: a plugin whose calls take their time to end holds up no other file. Refuses a
//! second step of a plugin while one is under way; a later look finds it again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plugward_policy::PluginId;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::plan::Action;
use super::scan::Look;
use crate::host::{Inner, PluginFile};
use crate::views::FileProblem;

/// Steps begun at the same time.
const STEPS_AT_ONCE: usize = 8;

/// Steps under way, those that nobody waits for any more among them: each holds a task and a copy of a package. With so
/// many plugins whose calls do not end, the next ones wait for one of them.
const UNDER_WAY_MAX: usize = 4 * STEPS_AT_ONCE;

/// Longest wait for steps before the next look. One that takes longer, because calls in flight have to end, goes on by
/// itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// Steps under way.
#[derive(Default)]
pub(super) struct Steps(Arc<UnderWay>);

#[derive(Default)]
struct UnderWay {
    /// By plugin, with whether nobody waits for the step any more.
    late: Mutex<BTreeMap<PluginId, bool>>,
    late_one_ended: Notify,
}

/// The mark of a step under way, taken back however it ends.
struct Mark(Arc<UnderWay>, PluginId);

impl Drop for Mark {
    fn drop(&mut self) {
        let was_late = self.0.late.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
        if was_late == Some(true) {
            self.0.late_one_ended.notify_one();
        }
    }
}

impl Steps {
    /// Does what it can of a plan, installs in the order of their files; what failed comes back.
    pub(super) async fn take(&self, inner: &Arc<Inner>, actions: Vec<Action>, look: &Look) -> Vec<FileProblem> {
        let mut failed = Vec::new();
        let of_kind = |is_kind: fn(&Action) -> bool| actions.iter().filter(move |action| is_kind(action)).cloned();
        let removals: Vec<_> = of_kind(|action| matches!(action, Action::Remove { .. })).collect();
        let mut installs: Vec<_> = of_kind(|action| matches!(action, Action::Install { .. })).collect();
        let changes = of_kind(|action| matches!(action, Action::Update { .. } | Action::Move { .. })).collect();
        // One by one: that is their order in every list from now on.
        installs.sort_by(|a, b| a.file().cmp(&b.file()));
        for (steps, at_once) in [(removals, STEPS_AT_ONCE), (installs, 1), (changes, STEPS_AT_ONCE)] {
            let mut running = JoinSet::new();
            'steps: for action in steps {
                while running.len() >= at_once {
                    // An install waits for no call, only for its copy, and the next one comes after it.
                    let patience = if at_once == 1 { Duration::MAX } else { PATIENCE };
                    match timeout(patience, running.join_next()).await {
                        Ok(done) => failed.extend(done.and_then(Result::ok).flatten()),
                        // The look after the next end finds the rest again.
                        Err(_) => break 'steps,
                    }
                }
                let Some(mark) = self.begin(action.id()) else { continue };
                let file = action.file().and_then(|file| look.files.get(file)).cloned();
                // In a task that the host waits for: a step that began is not left half done.
                let (owner, inner) = (Arc::clone(inner), Arc::clone(inner));
                let step = owner.tasks.spawn(async move {
                    let _mark = mark;
                    step(&inner, action, file).await
                });
                running.spawn(async move { step.await.ok().flatten() });
            }
            let all = async {
                while let Some(done) = running.join_next().await {
                    failed.extend(done.ok().flatten());
                }
            };
            if timeout(PATIENCE, all).await.is_err() {
                self.leave();
            }
        }
        failed
    }

    /// Resolves when a step nobody waited for has ended.
    pub(super) async fn late_one_ended(&self) {
        self.0.late_one_ended.notified().await;
    }

    fn begin(&self, id: &PluginId) -> Option<Mark> {
        let mut late = self.0.late.lock().unwrap_or_else(PoisonError::into_inner);
        if late.contains_key(id) || late.len() >= UNDER_WAY_MAX {
            return None;
        }
        late.insert(id.clone(), false);
        Some(Mark(Arc::clone(&self.0), id.clone()))
    }

    /// Waits no longer for those under way.
    fn leave(&self) {
        self.0.late.lock().unwrap_or_else(PoisonError::into_inner).values_mut().for_each(|late| *late = true);
    }
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
