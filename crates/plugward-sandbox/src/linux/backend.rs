//! Who makes the namespaces of level `full`: this program, or bubblewrap where only that is allowed to.
//!
//! Owns the choice and its memory. Refuses a weaker level: both ways lead to the same one, under the same probe, and what
//! the second one lacks is in the report.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use super::{failure::Step, wire::Route};
use crate::{BWRAP, Backend, Level, SpawnError};

/// Steps that a machine denies when it keeps user namespaces from programs it does not know.
const DENIED: [Step; 6] =
    [Step::Namespaces, Step::IdMap, Step::FileTree, Step::Devices, Step::SystemFiles, Step::HostName];

/// The choice of one launcher.
#[derive(Debug, Default)]
pub(super) struct Choice {
    only: Option<Backend>,
    /// Whether bubblewrap has started something that this program could not.
    prefers_bwrap: AtomicBool,
}

impl Choice {
    /// No choice.
    pub(super) fn only(backend: Backend) -> Self {
        Self { only: Some(backend), prefers_bwrap: AtomicBool::new(false) }
    }

    /// The way to try first.
    pub(super) fn first(&self, level: Level) -> Route {
        let bwrap = self.only.map_or_else(|| self.prefers_bwrap.load(Ordering::Relaxed), |only| only == Backend::Bwrap);
        if bwrap && level == Level::Full { Route::Bwrap } else { Route::Native }
    }

    /// Starts by the way that works here.
    pub(super) fn start<T>(
        &self,
        level: Level,
        start: impl Fn(Route) -> Result<T, SpawnError>,
    ) -> Result<T, SpawnError> {
        let route = self.first(level);
        let first = start(route);
        let Err(denied) = first else { return first };
        let may_change = route == Route::Native && self.only.is_none() && level == Level::Full;
        if !may_change || !is_denied(&denied) || !Path::new(BWRAP).exists() {
            return Err(denied);
        }
        match start(Route::Bwrap) {
            Ok(started) => {
                self.prefers_bwrap.store(true, Ordering::Relaxed);
                Ok(started)
            }
            // What this program itself is denied is the cause worth telling, unless the plugin is at fault.
            Err(SpawnError::Layer { path: None, .. } | SpawnError::NotHeld { .. }) => Err(denied),
            Err(other) => Err(other),
        }
    }
}

/// Whether the machine keeps this program from making namespaces, or from using them.
fn is_denied(error: &SpawnError) -> bool {
    let SpawnError::Layer { layer, path: None, .. } = error else { return false };
    DENIED.iter().any(|step| step.layer().is_some_and(|(denied, _)| denied == *layer))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::OsCause;

    fn failure(step: Step) -> SpawnError {
        let (layer, fix) = step.layer().unwrap();
        SpawnError::Layer { level: Level::Full, layer, path: None, cause: OsCause { errno: 1 }, fix }
    }

    // Requirement 146: the other way is tried where namespaces are denied, and nowhere else.
    #[test]
    fn only_a_denial_of_namespaces_leads_to_the_other_way() {
        let tried = RefCell::new(Vec::new());
        let start = |choice: &Choice, level, step| {
            tried.borrow_mut().clear();
            let result = choice.start(level, |route| {
                tried.borrow_mut().push(route);
                if route == Route::Native { Err(failure(step)) } else { Err::<(), _>(failure(Step::Bwrap)) }
            });
            (result.unwrap_err(), tried.borrow().clone())
        };
        let free = Choice::default();
        assert_eq!(start(&free, Level::Full, Step::Seccomp), (failure(Step::Seccomp), vec![Route::Native]));
        assert_eq!(start(&free, Level::Partial, Step::Namespaces).1, [Route::Native]);
        let (error, ways) = start(&free, Level::Full, Step::IdMap);
        let expected = if Path::new(BWRAP).exists() { vec![Route::Native, Route::Bwrap] } else { vec![Route::Native] };
        assert_eq!((error, ways), (failure(Step::IdMap), expected), "the first denial is the one to tell");
        assert_eq!(start(&Choice::only(Backend::Native), Level::Full, Step::IdMap).1, [Route::Native]);
        let (error, ways) = start(&Choice::only(Backend::Bwrap), Level::Full, Step::IdMap);
        assert_eq!((error, ways), (failure(Step::Bwrap), vec![Route::Bwrap]));
    }
}
