//! One timer for a conversation, whatever number of requests is under way.
//!
//! Owns when it has to be set anew: only where it would ring late. Deadlines mostly move away while requests are
//! answered, so the timer that is set rings once in a while for nothing, which costs less than setting it for each
//! request. Refuses to know what is due.

use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::time::Sleep;

/// Never rings in this time unless asked to. Long beyond any deadline, short of what a timer can hold.
const UNSET: Duration = Duration::from_secs(30 * 24 * 3600);

/// A timer that is kept from one wait to the next.
pub(super) struct Alarm(Pin<Box<Sleep>>);

impl Alarm {
    pub(super) fn new() -> Self {
        Self(Box::pin(tokio::time::sleep(UNSET)))
    }

    /// Resolves at `due_at` or, at most once per timer set, before that; never without a time. Cancel safe.
    pub(super) async fn rings_at(&mut self, due_at: Option<Instant>) {
        let Some(due_at) = due_at else { return std::future::pending().await };
        let due_at = tokio::time::Instant::from_std(due_at);
        if self.0.is_elapsed() || due_at < self.0.deadline() {
            self.0.as_mut().reset(due_at);
        }
        self.0.as_mut().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_moves_is_neither_missed_nor_waited_for_twice() {
        // Requirement 82: a call whose time is up ends, whatever calls came and went before.
        let (mut alarm, start) = (Alarm::new(), tokio::time::Instant::now());
        let at = |seconds| Some((start + Duration::from_secs(seconds)).into_std());
        let soon = Duration::from_secs(1);
        assert!(tokio::time::timeout(soon, alarm.rings_at(at(30))).await.is_err());
        assert!(tokio::time::timeout(soon, alarm.rings_at(None)).await.is_err());
        // Nearer than what is set: rings for it.
        alarm.rings_at(at(10)).await;
        assert_eq!(start.elapsed().as_secs(), 10);
        assert!(tokio::time::timeout(soon, alarm.rings_at(at(20))).await.is_err());
        // Further: rings once for nothing, then in time.
        alarm.rings_at(at(40)).await;
        assert_eq!(start.elapsed().as_secs(), 20);
        alarm.rings_at(at(40)).await;
        assert_eq!(start.elapsed().as_secs(), 40);
    }
}
