//! The task that takes what the host asks of a server elsewhere and gives each exchange a task of its own.
//!
//! Owns those tasks: how many there may be, their cancellation, and their end with the conversation. Refuses to speak HTTP:
//! `exchange` does.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use super::exchange::Asked;
use super::greet::SHORT;
use super::peer::{Era, Job, Peer};
use crate::session::driver::{Command, Reply, refuse};
use crate::session::{Ending, MAX_IN_FLIGHT, RequestError, Timing};

/// Messages without an answer that are on their way at once: cancellations, and answers to the server's pings.
const MAX_SENDING: usize = 8;

pub(super) struct Driver {
    peer: Arc<Peer>,
    jobs: mpsc::Receiver<Job>,
    tasks: JoinSet<Option<u64>>,
    /// Requests under way, by the key of who waits.
    running: HashMap<u64, AbortHandle>,
    sending: Arc<Semaphore>,
    follows: bool,
}

impl Driver {
    pub(super) fn new(peer: Arc<Peer>, jobs: mpsc::Receiver<Job>) -> Self {
        let sending = Arc::new(Semaphore::new(MAX_SENDING));
        Self { peer, jobs, tasks: JoinSet::new(), running: HashMap::new(), sending, follows: false }
    }

    /// Runs until the server is lost, or nobody holds the session any more. What is left has to outlive the news of the end:
    /// whoever waits learns from it why.
    pub(super) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut cancels: mpsc::Receiver<u64>,
    ) -> (Ending, JoinSet<Option<u64>>) {
        let peer = Arc::clone(&self.peer);
        let lost = peer.lost();
        tokio::pin!(lost);
        let ending = loop {
            tokio::select! {
                biased;
                ending = &mut lost => break ending,
                Some(key) = cancels.recv() => self.cancel(key),
                Some(done) = self.tasks.join_next() => {
                    if let Ok(Some(key)) = done {
                        self.running.remove(&key);
                    }
                }
                Some(job) = self.jobs.recv() => self.work(job),
                command = commands.recv() => match command {
                    None => break closed("its session was dropped"),
                    Some(Command::CloseInput) => break closed("it was told that no more will come"),
                    Some(command) => self.take(command),
                },
            }
        };
        commands.close();
        while let Some(command) = commands.recv().await {
            refuse(command, &ending.reason);
        }
        if let Era::Legacy(session) = self.peer.era()
            && session.id.is_some()
        {
            // A server may not take it (status 405), or be gone.
            let _ = self.peer.delete(&session, SHORT).await;
        }
        (ending, self.tasks)
    }

    fn take(&mut self, command: Command) {
        let peer = Arc::clone(&self.peer);
        match command {
            Command::Handshake { hello, limit, reply } => {
                self.tasks.spawn(async move {
                    let _ = reply.send(peer.handshake(hello, limit).await);
                    None
                });
            }
            Command::Discover { meta, limit, reply } => {
                self.tasks.spawn(async move {
                    let _ = reply.send(peer.discover(meta, limit).await);
                    None
                });
            }
            Command::Confirm => {
                if std::mem::replace(&mut self.follows, true) {
                    return;
                }
                let is_old = peer.is_old.load(std::sync::atomic::Ordering::Acquire);
                self.tasks.spawn(async move {
                    peer.confirm().await;
                    if !is_old {
                        peer.follow().await;
                    }
                    None
                });
            }
            Command::Request { key, method, params, timing, capabilities, reply } => {
                self.ask(key, Asked::Plain { method, params, capabilities }, timing, reply);
            }
            Command::CallTool { key, call, reply } => {
                let timing = call.timing;
                self.ask(key, Asked::Tool(call), timing, reply);
            }
            Command::CloseInput => {}
        }
    }

    fn ask(&mut self, key: u64, asked: Asked, timing: Timing, reply: Reply<Box<RawValue>, RequestError>) {
        if self.running.len() >= MAX_IN_FLIGHT {
            let reason = format!("{MAX_IN_FLIGHT} requests to it are under way");
            let _ = reply.send(Err(RequestError::Unavailable(reason)));
            return;
        }
        let peer = Arc::clone(&self.peer);
        let handle = self.tasks.spawn(async move {
            let _ = reply.send(peer.request(asked, timing).await);
            Some(key)
        });
        self.running.insert(key, handle);
    }

    /// Ends a request nobody waits for. Its connection ends with it, which is all that servers without sessions need.
    fn cancel(&mut self, key: u64) {
        if let Some(task) = self.running.remove(&key) {
            task.abort();
        }
    }

    fn work(&mut self, job: Job) {
        let peer = Arc::clone(&self.peer);
        match job {
            Job::FollowOld => {
                self.tasks.spawn(async move {
                    peer.follow_old().await;
                    None
                });
            }
            Job::Send(text) => {
                // More than these say nothing that matters.
                let Ok(place) = Arc::clone(&self.sending).try_acquire_owned() else { return };
                self.tasks.spawn(async move {
                    let _place = place;
                    if let Era::Legacy(session) = peer.era() {
                        let _ = peer.post(text, &Peer::session_headers(&session), SHORT).await;
                    }
                    None
                });
            }
        }
    }
}

fn closed(reason: &str) -> Ending {
    Ending { reason: reason.to_owned(), is_fault: false }
}
