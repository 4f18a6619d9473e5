//! The one thread that writes. Owns the write connection and what a commit means for durability; refuses to answer a
//! caller before its change is on the disk.
//!
//! Commands that wait together are committed together, each in a savepoint of its own, so that one that fails takes
//! nothing with it. Such a commit is synced to the disk (`synchronous = FULL`). Spans are committed in batches without
//! a sync (`NORMAL`): a crash of the process loses none of them, a loss of power at most the last few, and a flush
//! syncs them.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::queue::{Attempt, Command, Queue, QueuedSpan, Turn};
use crate::{StoreError, trace};

/// The running writer thread. Dropping it works off the queue and waits for the thread to end.
pub(crate) struct Writer {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread.
    pub(crate) fn start(conn: Connection, path: &Arc<Path>, spans_max: u64) -> Result<Self, StoreError> {
        let queue = Arc::new(Queue::default());
        let mut loop_state =
            Loop { queue: Arc::clone(&queue), conn, path: Arc::clone(path), spans_max, unsynced: false };
        let thread = std::thread::Builder::new()
            .name("plugward-store".to_owned())
            .spawn(move || loop_state.run())
            .map_err(|e| StoreError::io(path, e))?;
        Ok(Self { queue, thread: Some(thread) })
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take()
            // The last handle may have been moved into a command; a thread cannot wait for itself.
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

struct Loop {
    queue: Arc<Queue>,
    conn: Connection,
    path: Arc<Path>,
    spans_max: u64,
    /// Spans were committed since the last commit that was synced.
    unsynced: bool,
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.queue.abandon();
    }
}

impl Loop {
    fn run(&mut self) {
        loop {
            match self.queue.next() {
                Turn::Work { commands, spans } => {
                    if !commands.is_empty() {
                        self.run_commands(commands);
                    }
                    if !spans.is_empty() {
                        let count = spans.len();
                        match self.write_spans(spans) {
                            Ok(()) => self.queue.settle(count, 0),
                            Err(_) => self.queue.settle(0, count),
                        }
                    }
                }
                Turn::Flush(waiters) => {
                    let synced = self.sync();
                    for waiter in waiters {
                        let answer = synced.as_ref().copied().map_err(|e| StoreError::from(e).located(&self.path));
                        // A caller that no longer waits wants no answer.
                        let _ = waiter.answer.send(answer);
                    }
                }
                Turn::End => return,
            }
        }
    }

    fn run_commands(&mut self, commands: Vec<Command>) {
        let mut attempts: Vec<Attempt> = Vec::with_capacity(commands.len());
        let mut commands = commands.into_iter();
        let committed = durable(&mut self.conn, |tx| {
            for command in commands.by_ref() {
                tx.execute_batch("SAVEPOINT command")?;
                let attempt = command(Ok(tx));
                let keep = attempt.keep;
                attempts.push(attempt);
                let end = if keep { "RELEASE command" } else { "ROLLBACK TO command; RELEASE command" };
                tx.execute_batch(end)?;
            }
            Ok(())
        });
        let outcome = committed.as_ref().copied();
        if outcome.is_ok() {
            self.unsynced = false;
        }
        for attempt in attempts {
            (attempt.answer)(outcome);
        }
        if let Err(error) = &committed {
            for command in commands {
                (command(Err(error)).answer)(Err(error));
            }
        }
    }

    fn write_spans(&mut self, spans: Vec<QueuedSpan>) -> Result<(), rusqlite::Error> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for QueuedSpan { span, matcher, .. } in spans {
            trace::insert(&tx, &matcher, &span)?;
        }
        trace::prune(&tx, self.spans_max)?;
        tx.commit()?;
        self.unsynced = true;
        Ok(())
    }

    /// Forces everything committed so far to the disk: a synced commit takes those before it along.
    fn sync(&mut self) -> Result<(), rusqlite::Error> {
        if !self.unsynced {
            return Ok(());
        }
        durable(&mut self.conn, |tx| tx.execute("UPDATE sync_mark SET flushes = flushes + 1", []).map(drop))?;
        self.unsynced = false;
        Ok(())
    }
}

/// Runs `work` in a transaction whose commit returns only when it is on the disk.
fn durable(
    conn: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> Result<(), rusqlite::Error>,
) -> Result<(), rusqlite::Error> {
    conn.pragma_update(None, "synchronous", "FULL")?;
    let done = (|| {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        work(&tx)?;
        tx.commit()
    })();
    // Only the speed of later span commits hangs on this.
    let _ = conn.pragma_update(None, "synchronous", "NORMAL");
    done
}
