//! Connections that wait for the next request. Owns how many and for how long; refuses to keep what cannot be used again.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use plugward_policy::WebUrl;
use tokio::time::Instant;

use super::line::Line;

/// Connections kept for one plugin. Each holds a descriptor and some KiB of buffers; as many as calls that follow each
/// other closely.
const KEPT_MAX: usize = 8;

/// How long one is kept. Servers commonly close after 5 s, some after 2, and a request that meets the close may be lost.
const KEPT_FOR: Duration = Duration::from_millis(1500);

/// The connections of one way out.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<(Instant, Line)>>);

impl Pool {
    /// A connection to where `url` leads, the one that was used last.
    pub(super) fn take(&self, url: &WebUrl) -> Option<Line> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(since, _)| since.elapsed() < KEPT_FOR);
        let place = kept.iter().rposition(|(_, line)| line.serves(url))?;
        Some(kept.remove(place).1)
    }

    /// Keeps a connection whose answer was read to its end.
    pub(super) fn keep(&self, line: Line) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(since, _)| since.elapsed() < KEPT_FOR);
        if kept.len() == KEPT_MAX {
            kept.remove(0);
        }
        kept.push((Instant::now(), line));
    }
}
