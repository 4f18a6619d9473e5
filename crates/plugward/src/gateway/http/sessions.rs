//! The sessions there are.
//!
//! Owns their ids, their number, the end of those nobody uses, and the telling of changes to all of them: what the tools
//! are is found out once, however many clients there are. Refuses to authenticate by an id: it names a session to
//! whoever has shown the token.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plugward_protocol::ProtocolVersion;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::super::Server;
use super::super::notices::COALESCE;
use super::Limits;
use super::session::{Session, Surroundings};

/// Random bytes of an id: nobody guesses one.
const ID_BYTES: usize = 16;

/// How often idle sessions are looked for, as a part of the time they may be idle.
const LOOKS_PER_IDLE_TIME: u32 = 10;

/// Time calls under way have when the server ends; connections give them as long.
const FINISH: Duration = Duration::from_secs(5);

/// Time for cancelled calls to end after that.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why there is no new session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoSession {
    /// As many as allowed are in use.
    Full,
    /// The server ends.
    Ending,
    /// The system has no randomness to give.
    NoRandomness,
}

/// The table.
pub(super) struct Sessions {
    open: Mutex<HashMap<String, Arc<Session>>>,
    around: Surroundings,
    limits: Limits,
}

impl Sessions {
    pub(super) fn new(server: Server, limits: Limits, closing: CancellationToken) -> Self {
        let around = Surroundings {
            server,
            max_requests: limits.requests,
            closing,
            recheck: Arc::new(Notify::new()),
            tasks: TaskTracker::new(),
        };
        Self { open: Mutex::default(), around, limits }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session. With as many as allowed, the one that was idle longest makes place.
    /// It is of those who have this server, and over when `closing` says so.
    pub(super) fn begin(
        &self,
        version: ProtocolVersion,
        caller: String,
        server: &Server,
        closing: &CancellationToken,
    ) -> Result<Arc<Session>, NoSession> {
        if self.around.closing.is_cancelled() {
            return Err(NoSession::Ending);
        }
        let id = random_id().ok_or(NoSession::NoRandomness)?;
        let mut open = self.open();
        if open.len() >= self.limits.sessions {
            let now = Instant::now();
            let idle = open.values().filter_map(|session| Some((session.idle_for(now)?, session.id().to_owned())));
            let (_, longest) = idle.max().ok_or(NoSession::Full)?;
            if let Some(session) = open.remove(&longest) {
                tracing::info!("an idle MCP session was ended to make place for a new one");
                session.end();
            }
        }
        let around =
            Surroundings { server: server.clone(), closing: closing.clone(), ..Surroundings::clone(&self.around) };
        let session = Arc::new(Session::new(id.clone(), version, caller, around));
        session.follow();
        open.insert(id, Arc::clone(&session));
        Ok(session)
    }

    /// The session with this id.
    pub(super) fn find(&self, id: &str) -> Option<Arc<Session>> {
        self.open().get(id).cloned()
    }

    /// Ends a session; whether there was one.
    pub(super) fn end(&self, id: &str) -> bool {
        let session = self.open().remove(id);
        session.is_some_and(|session| {
            session.end();
            true
        })
    }

    /// Tells changes and ends idle sessions, until the server ends; then lets what is under way finish.
    pub(super) async fn tend(&self) {
        let mut version = self.around.server.host().tools_version();
        let mut looks = tokio::time::interval((self.limits.idle / LOOKS_PER_IDLE_TIME).max(Duration::from_millis(10)));
        loop {
            tokio::select! {
                () = self.around.closing.cancelled() => break,
                Ok(()) = version.changed() => {}
                () = self.around.recheck.notified() => {}
                _ = looks.tick() => {
                    self.end_idle(Instant::now());
                    continue;
                }
            }
            // A storm of changes is one notice.
            tokio::time::sleep(COALESCE).await;
            version.mark_unchanged();
            self.tell();
        }
        self.around.tasks.close();
        let _ = tokio::time::timeout(FINISH, self.around.tasks.wait()).await;
        for (_, session) in self.open().drain() {
            session.end();
        }
        let _ = tokio::time::timeout(LAST_WORDS, self.around.tasks.wait()).await;
    }

    fn tell(&self) {
        let sessions: Vec<_> = self.open().values().cloned().collect();
        if sessions.is_empty() {
            return;
        }
        for session in sessions {
            // Each has its own view of them; a list is made once for all who share it.
            session.tools_changed();
        }
    }

    /// Ends the sessions of those who may not call any more.
    pub(super) fn end_closed(&self) {
        if self.around.closing.is_cancelled() {
            return;
        }
        self.open().retain(|_, session| {
            if session.is_closed() {
                session.end();
            }
            !session.is_closed()
        });
    }

    fn end_idle(&self, now: Instant) {
        self.open().retain(|_, session| {
            let is_over = session.idle_for(now).is_some_and(|idle| idle >= self.limits.idle);
            if is_over {
                session.end();
            }
            !is_over
        });
    }
}

fn random_id() -> Option<String> {
    let mut bytes = [0_u8; ID_BYTES];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
