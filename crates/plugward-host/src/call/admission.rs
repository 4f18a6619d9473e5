//! Who may run now, who waits, and who is told to come back later.
//!
//! Owns one bound on calls in flight and one on calls that wait, per plugin and for the whole host (invariant 7), and the
//! order in which those who wait are served: callers take turns, each caller's own calls in the order they came. A full
//! queue makes room for a caller with few calls in it at the cost of the one with most, so that nobody who floods a
//! plugin keeps the others out. A caller that gives up leaves the queue at once. Refuses deadlines: the call path's own
//! covers the wait.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;

/// Whose call it is: the caller's name, and which of its sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) caller: Arc<str>,
    pub(crate) session: u64,
}

impl Share {
    pub(crate) fn new(caller: &str, session: u64) -> Self {
        Self { caller: caller.into(), session }
    }
}

/// A bounded door with a bounded queue before it.
pub(crate) struct Admission {
    queue: Arc<Mutex<Queue>>,
    capacity: usize,
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

struct Queue {
    running: usize,
    is_closed: bool,
    /// One line per caller that waits; the front one is served next and goes to the back. Few: one per session.
    lines: VecDeque<Line>,
    waiting: usize,
    next_ticket: u64,
    /// Calls that came so far, and when the last one left: how long nobody was here.
    came: u64,
    left_at: Instant,
}

struct Line {
    share: Share,
    waiters: VecDeque<Waiter>,
}

struct Waiter {
    ticket: u64,
    called: oneshot::Sender<Result<(), Refused>>,
}

/// A place among the calls in flight; free again when it is dropped.
#[must_use]
pub(crate) struct Place(Arc<Mutex<Queue>>);

impl Drop for Place {
    fn drop(&mut self) {
        locked(&self.0).leave();
    }
}

fn locked(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Admission {
    pub(crate) fn new(capacity: usize, max_waiting: usize) -> Self {
        let queue = Queue {
            running: 0,
            is_closed: false,
            lines: VecDeque::new(),
            waiting: 0,
            next_ticket: 0,
            came: 0,
            left_at: Instant::now(),
        };
        Self { queue: Arc::new(Mutex::new(queue)), capacity, max_waiting }
    }

    /// Waits for a place.
    pub(crate) async fn enter(&self, share: &Share) -> Result<Place, Refused> {
        let (called, ticket) = {
            let mut queue = locked(&self.queue);
            queue.came += 1;
            if queue.is_closed {
                return Err(Refused::Closed);
            }
            // Whoever finds a free place finds nobody waiting: a place that becomes free goes to the queue.
            if queue.running < self.capacity {
                queue.running += 1;
                return Ok(Place(Arc::clone(&self.queue)));
            }
            if queue.waiting >= self.max_waiting && !queue.make_room_for(share, self.capacity) {
                return Err(Refused::Full { running: self.capacity, waiting: queue.waiting });
            }
            queue.join(share)
        };
        let mut wait = Wait { queue: &self.queue, ticket, called };
        match (&mut wait.called).await {
            Ok(Ok(())) => Ok(Place(Arc::clone(&self.queue))),
            Ok(Err(refused)) => Err(refused),
            Err(_) => Err(Refused::Closed),
        }
    }

    /// Closes the door: whoever waits is sent away, nobody gets a place any more, and whoever has one keeps it.
    pub(crate) fn close(&self) {
        let mut queue = locked(&self.queue);
        queue.is_closed = true;
        queue.waiting = 0;
        for waiter in queue.lines.drain(..).flat_map(|line| line.waiters) {
            let _ = waiter.called.send(Err(Refused::Closed));
        }
    }

    /// Calls that run now.
    pub(crate) fn running(&self) -> usize {
        locked(&self.queue).running
    }

    /// Calls that wait now.
    pub(crate) fn waiting(&self) -> usize {
        locked(&self.queue).waiting
    }

    /// Since when no call runs, with the number of calls that came so far; none while one does.
    pub(crate) fn idle_since(&self) -> Option<(Instant, u64)> {
        let queue = locked(&self.queue);
        (queue.running == 0 && queue.waiting == 0).then_some((queue.left_at, queue.came))
    }

    /// Closes the door if nobody came since [`Admission::idle_since`] gave `came`, as one step.
    pub(crate) fn close_if_idle(&self, came: u64) -> bool {
        let mut queue = locked(&self.queue);
        let is_idle = queue.running == 0 && queue.waiting == 0 && queue.came == came;
        queue.is_closed |= is_idle;
        is_idle
    }
}

impl Queue {
    fn join(&mut self, share: &Share) -> (oneshot::Receiver<Result<(), Refused>>, u64) {
        let (called, receiver) = oneshot::channel();
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting += 1;
        let waiter = Waiter { ticket, called };
        match self.lines.iter_mut().find(|line| line.share == *share) {
            Some(line) => line.waiters.push_back(waiter),
            None => self.lines.push_back(Line { share: share.clone(), waiters: VecDeque::from([waiter]) }),
        }
        (receiver, ticket)
    }

    /// Sends the newest call of the longest line away, if that line is longer than the one of `share` would be.
    fn make_room_for(&mut self, share: &Share, running: usize) -> bool {
        let own = self.lines.iter().find(|line| line.share == *share).map_or(0, |line| line.waiters.len());
        let waiting = self.waiting;
        let Some(longest) = self.lines.iter_mut().max_by_key(|line| line.waiters.len()) else { return false };
        if longest.waiters.len() <= own + 1 {
            return false;
        }
        if let Some(last) = longest.waiters.pop_back() {
            self.waiting -= 1;
            let _ = last.called.send(Err(Refused::Full { running, waiting }));
        }
        true
    }

    /// Gives a place that became free to the next in turn, or back.
    fn leave(&mut self) {
        while let Some(mut line) = self.lines.pop_front() {
            let Some(waiter) = line.waiters.pop_front() else { continue };
            self.waiting -= 1;
            if !line.waiters.is_empty() {
                self.lines.push_back(line);
            }
            if waiter.called.send(Ok(())).is_ok() {
                return;
            }
        }
        self.running -= 1;
        self.left_at = Instant::now();
    }

    fn forget(&mut self, ticket: u64) -> bool {
        for line in &mut self.lines {
            if let Some(index) = line.waiters.iter().position(|waiter| waiter.ticket == ticket) {
                line.waiters.remove(index);
                self.waiting -= 1;
                self.lines.retain(|line| !line.waiters.is_empty());
                return true;
            }
        }
        false
    }
}

/// A wait in the queue, taken back however it ends.
struct Wait<'a> {
    queue: &'a Mutex<Queue>,
    ticket: u64,
    called: oneshot::Receiver<Result<(), Refused>>,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut queue = locked(self.queue);
        // A place given at the very moment its caller went away is not lost. One that was taken is not here any more.
        if !queue.forget(self.ticket) && matches!(self.called.try_recv(), Ok(Ok(()))) {
            queue.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(caller: &str) -> Share {
        Share::new(caller, 0)
    }

    /// A call that waits until it has a place, and tells so.
    fn queued(door: &Arc<Admission>, caller: &str, number: usize, order: &Arc<Mutex<Vec<String>>>) -> Waiting {
        let (door, order, caller) = (Arc::clone(door), Arc::clone(order), caller.to_owned());
        // Sessions of one client are callers of their own.
        let share = match caller.as_str() {
            "b" => Share::new("a", 1),
            _ => share(&caller),
        };
        tokio::spawn(async move {
            let place = door.enter(&share).await?;
            order.lock().unwrap().push(format!("{caller}{number}"));
            drop(place);
            Ok(())
        })
    }

    type Waiting = tokio::task::JoinHandle<Result<(), Refused>>;

    async fn until_waiting(door: &Admission, count: usize) {
        while door.waiting() != count {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_a_caller_that_gives_up_leaves_no_trace() {
        let door = Arc::new(Admission::new(1, 1));
        let first = door.enter(&share("a")).await.map_err(drop).unwrap();
        let waiter = queued(&door, "a", 0, &Arc::default());
        until_waiting(&door, 1).await;
        assert_eq!(door.enter(&share("a")).await.map(drop).unwrap_err(), Refused::Full { running: 1, waiting: 1 });
        waiter.abort();
        assert!(waiter.await.unwrap_err().is_cancelled());
        assert_eq!((door.running(), door.waiting()), (1, 0));
        drop(first);
        assert!(door.enter(&share("a")).await.is_ok());
        assert_eq!(door.running(), 0);
    }

    #[tokio::test]
    async fn a_closed_door_sends_the_queue_away_and_leaves_the_rest_their_places() {
        // A plugin that is being stopped must not get the calls that queued for it, one after the other.
        let door = Arc::new(Admission::new(1, 1));
        let first = door.enter(&share("a")).await.map_err(drop).unwrap();
        let waiter = queued(&door, "a", 0, &Arc::default());
        until_waiting(&door, 1).await;
        door.close();
        assert_eq!(waiter.await.unwrap(), Err(Refused::Closed));
        assert_eq!((door.running(), door.waiting()), (1, 0));
        drop(first);
        assert_eq!(door.running(), 0);
        assert_eq!(door.enter(&share("a")).await.map(drop), Err(Refused::Closed));
    }

    #[tokio::test]
    async fn callers_take_turns_however_many_calls_one_of_them_has_waiting() {
        // An agent that queues fifty calls must not make another one wait for all fifty.
        let (door, order) = (Arc::new(Admission::new(1, 100)), Arc::default());
        let first = door.enter(&share("x")).await.map_err(drop).unwrap();
        let mut waiting = Vec::new();
        for (caller, calls) in [("a", 4), ("b", 2), ("c", 1)] {
            for number in 0..calls {
                waiting.push(queued(&door, caller, number, &order));
                until_waiting(&door, waiting.len()).await;
            }
        }
        drop(first);
        for call in waiting {
            call.await.unwrap().unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]);
    }

    #[tokio::test]
    async fn a_full_queue_makes_room_for_a_caller_with_fewer_calls_in_it() {
        // One that floods the queue is told to come back; the others find room.
        let (door, order) = (Arc::new(Admission::new(1, 3)), Arc::default());
        let first = door.enter(&share("x")).await.map_err(drop).unwrap();
        let mut flood = Vec::new();
        for number in 0..3 {
            flood.push(queued(&door, "a", number, &order));
            until_waiting(&door, number + 1).await;
        }
        let other = queued(&door, "b", 0, &order);
        assert_eq!(flood.pop().unwrap().await.unwrap(), Err(Refused::Full { running: 1, waiting: 3 }));
        assert_eq!(door.waiting(), 3);
        // Equal shares: nobody is sent away for the next one of the same caller.
        let refused = door.enter(&share("a")).await.map(drop).unwrap_err();
        assert_eq!(refused, Refused::Full { running: 1, waiting: 3 });
        drop(first);
        for call in flood.into_iter().chain([other]) {
            call.await.unwrap().unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["a0", "b0", "a1"]);
    }

    #[tokio::test]
    async fn a_place_given_to_a_caller_that_went_away_meanwhile_goes_to_the_next() {
        let door = Admission::new(1, 10);
        let first = door.enter(&share("a")).await.map_err(drop).unwrap();
        let shares = (share("b"), share("c"));
        let mut gone = Box::pin(door.enter(&shares.0));
        let mut next = Box::pin(door.enter(&shares.1));
        for waiting in [&mut gone, &mut next] {
            assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await);
        }
        // The place is handed to `b`, which never looks at it.
        drop(first);
        drop(gone);
        assert!(next.await.is_ok());
        assert_eq!((door.running(), door.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn a_door_closes_for_sleep_only_if_nobody_came_meanwhile() {
        let door = Admission::new(2, 2);
        let (_, came) = door.idle_since().unwrap();
        let place = door.enter(&share("a")).await.map_err(drop).unwrap();
        assert!(door.idle_since().is_none() && !door.close_if_idle(came));
        drop(place);
        assert!(!door.close_if_idle(came), "a call came and went");
        let (_, came) = door.idle_since().unwrap();
        assert!(door.close_if_idle(came));
        assert_eq!(door.enter(&share("a")).await.map(drop), Err(Refused::Closed));
    }
}
