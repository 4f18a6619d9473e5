//! Who may run now, who waits, and who is told to come back later.
//!
//! Owns one bound on calls in flight and one on calls that wait, per plugin and for the whole host (invariant 7).
//! Waiting is first come, first served; a caller that gives up leaves the queue at once. Refuses deadlines: the call
//! path's own covers the wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A bounded door with a bounded queue before it.
pub(crate) struct Admission {
    places: Arc<Semaphore>,
    capacity: usize,
    waiting: AtomicUsize,
    max_waiting: usize,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The queue is full.
    Full { running: usize, waiting: usize },
    /// The door is closed for good.
    Closed,
}

impl Admission {
    pub(crate) fn new(capacity: usize, max_waiting: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(capacity)), capacity, waiting: AtomicUsize::new(0), max_waiting }
    }

    /// Waits for a place; the place is free again when the permit is dropped.
    pub(crate) async fn enter(&self) -> Result<OwnedSemaphorePermit, Refused> {
        if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(permit);
        }
        let _ticket = self.queue()?;
        Arc::clone(&self.places).acquire_owned().await.map_err(|_| Refused::Closed)
    }

    /// Closes the door: whoever waits is sent away, nobody gets a place any more, and whoever has one keeps it.
    pub(crate) fn close(&self) {
        self.places.close();
    }

    fn queue(&self) -> Result<Ticket<'_>, Refused> {
        if self.places.is_closed() {
            return Err(Refused::Closed);
        }
        let before = self.waiting.fetch_add(1, Ordering::AcqRel);
        let ticket = Ticket(&self.waiting);
        if before >= self.max_waiting {
            return Err(Refused::Full { running: self.capacity, waiting: before });
        }
        Ok(ticket)
    }

    /// Calls that run now.
    pub(crate) fn running(&self) -> usize {
        self.capacity - self.places.available_permits()
    }

    /// Calls that wait now.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }
}

/// A place in the queue, given back however the wait ends.
struct Ticket<'a>(&'a AtomicUsize);

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_refuses_and_a_caller_that_gives_up_leaves_no_trace() {
        let door = Arc::new(Admission::new(1, 1));
        let first = door.enter().await.unwrap();
        let waiter = tokio::spawn({
            let door = Arc::clone(&door);
            async move { door.enter().await.map(drop) }
        });
        while door.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(door.enter().await.unwrap_err(), Refused::Full { running: 1, waiting: 1 });
        waiter.abort();
        assert!(waiter.await.unwrap_err().is_cancelled());
        assert_eq!((door.running(), door.waiting()), (1, 0));
        drop(first);
        assert!(door.enter().await.is_ok());
    }

    #[tokio::test]
    async fn a_closed_door_sends_the_queue_away_and_leaves_the_rest_their_places() {
        // A plugin that is being stopped must not get the calls that queued for it, one after the other.
        let door = Arc::new(Admission::new(1, 1));
        let first = door.enter().await.unwrap();
        let waiter = tokio::spawn({
            let door = Arc::clone(&door);
            async move { door.enter().await.map(drop) }
        });
        while door.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        door.close();
        assert_eq!(waiter.await.unwrap(), Err(Refused::Closed));
        assert_eq!((door.running(), door.waiting()), (1, 0));
        drop(first);
        assert_eq!(door.running(), 0);
        assert_eq!(door.enter().await.map(drop), Err(Refused::Closed));
    }
}
