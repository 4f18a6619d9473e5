//! Streams that are no answer: notices of servers with a handshake, and all that a server of the first HTTP transport says.
//!
//! Owns opening the first kind again after it ended, with pauses, and not at all where the server has none; the end of the
//! second kind is the end of the conversation. Refuses an address for messages at another host than the stream's.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderValue;
use plugward_policy::WebUrl;

use super::events::{Event, EventReader};
use super::exchange::content_type;
use super::peer::{Era, LAST_EVENT_ID, LegacySession, Peer, is_hopeless, was_unsent};
use super::status;
use crate::outbound::{BodyReader, Limits};

/// Pause before a stream that ended is opened again; doubled for one that ends again and again.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Time for a stream to begin.
const HEAD_LIMIT: Duration = Duration::from_secs(30);

/// Longest silence on a stream. Servers may have nothing to say for hours; a connection that is dead without a word is
/// noticed after this.
const QUIET_LIMIT: Duration = Duration::from_secs(15 * 60);

const STREAM: Limits = Limits { head: HEAD_LIMIT, quiet: QUIET_LIMIT, total: None, body_bytes: None };

/// What a server said to the wish for a stream.
enum Opened {
    /// One, until its end. `brought`: something came on it.
    Ended { brought: bool },
    /// It has none, or none now.
    No,
    /// The session is gone.
    NoSession,
    /// It could not be asked.
    Failed,
}

impl Peer {
    /// Reads the notices of each session, one after the other.
    pub(super) async fn follow(self: Arc<Self>) {
        let mut sessions = self.sessions.subscribe();
        loop {
            let Era::Legacy(session) = self.era() else { return };
            sessions.borrow_and_update();
            tokio::select! {
                () = self.follow_session(&session) => {}
                _ = sessions.changed() => continue,
            }
            // No stream of this session; the next may have one.
            if sessions.changed().await.is_err() {
                return;
            }
        }
    }

    async fn follow_session(&self, session: &LegacySession) {
        let mut reader = EventReader::new(self.max_bytes);
        let mut pause = PAUSE_MIN;
        loop {
            match self.notices(session, &mut reader).await {
                // LG-06: a server need not have one. It is not asked again (B028).
                Opened::No | Opened::NoSession => return,
                Opened::Ended { brought: true } => pause = PAUSE_MIN,
                Opened::Ended { brought: false } | Opened::Failed => {}
            }
            // What changed meanwhile, nobody was told.
            self.shared.tools_changed.notify_one();
            tokio::time::sleep(reader.retry().unwrap_or(pause).clamp(pause.min(PAUSE_MIN), PAUSE_MAX)).await;
            pause = (pause * 2).min(PAUSE_MAX);
            reader.reopen();
        }
    }

    async fn notices(&self, session: &LegacySession, reader: &mut EventReader) -> Opened {
        let mut headers = Self::session_headers(session);
        let last_id = reader.last_id().and_then(|id| HeaderValue::from_str(id).ok());
        headers.extend(last_id.map(|id| (LAST_EVENT_ID, id)));
        let Ok(response) = self.get(&headers, STREAM).await else { return Opened::Failed };
        match response.status.as_u16() {
            200..300 if content_type(&response) == "text/event-stream" => {
                let mut brought = false;
                let read = self.read(response.body, reader, |event| {
                    brought = true;
                    if event.name == "message" {
                        self.hear(event.data.as_bytes());
                    }
                });
                read.await;
                Opened::Ended { brought }
            }
            404 if session.id.is_some() => Opened::NoSession,
            429 | 500..600 => Opened::Failed,
            _ => Opened::No,
        }
    }

    /// Reads a stream to its end; the error is why it had to.
    async fn read(
        &self,
        mut body: BodyReader,
        reader: &mut EventReader,
        mut heard: impl FnMut(Event) + Send,
    ) -> Option<String> {
        let mut events = Vec::new();
        loop {
            match body.next_chunk().await {
                Ok(None) => return None,
                Ok(Some(chunk)) => {
                    let fits = reader.push(&chunk, &mut events);
                    events.drain(..).for_each(&mut heard);
                    if let Err(too_long) = fits {
                        let reason = format!("a message on it has more than {} bytes", too_long.limit);
                        self.log.push(crate::views::LogOrigin::Host, &format!("a stream was ended: {reason}"));
                        return Some(reason);
                    }
                }
                Err(error) => return Some(error.to_string()),
            }
        }
    }

    /// Reads the one stream of the first HTTP transport. Its end is the end of the conversation.
    pub(super) async fn follow_old(self: Arc<Self>) {
        let response = match self.get(&[], STREAM).await {
            Ok(response) => response,
            Err(error) => return self.lose(&error.to_string(), was_unsent(&error) && is_hopeless(&error)),
        };
        if let Some(reason) = status::refusal(response.status, &response.headers) {
            return self.lose(&reason, true);
        }
        if !response.status.is_success() || content_type(&response) != "text/event-stream" {
            let status = response.status.as_u16();
            return self.lose(
                &format!("it takes no `initialize`, and has no stream of the first HTTP transport (status {status})"),
                false,
            );
        }
        let mut reader = EventReader::new(self.max_bytes);
        let read = self.read(response.body, &mut reader, |event| match event.name.as_str() {
            "endpoint" => self.name_endpoint(&event.data),
            "message" => drop(self.hear(event.data.as_bytes())),
            _ => {}
        });
        let reason = read.await.unwrap_or_else(|| "its stream of events ended".to_owned());
        self.lose(&reason, false);
    }

    fn name_endpoint(&self, text: &str) {
        let base = &self.remote.url;
        let text = text.trim();
        let absolute = match text.strip_prefix('/') {
            Some(path) if !path.starts_with('/') => format!("{}{text}", base.origin()),
            _ if text.contains("://") => text.to_owned(),
            _ => {
                let folder = base.target().split('?').next().unwrap_or("/");
                let folder = folder.rsplit_once('/').map_or("", |(folder, _)| folder);
                format!("{}{folder}/{text}", base.origin())
            }
        };
        match WebUrl::new(&absolute) {
            // Its credentials go to the host that was approved.
            Ok(url) if url.origin() == base.origin() => {
                self.endpoint.send_if_modified(|endpoint| {
                    let is_first = endpoint.is_none();
                    endpoint.get_or_insert(url);
                    is_first
                });
            }
            Ok(url) => self.lose(&format!("it wants messages at another place, `{}`", url.origin()), true),
            Err(error) => self.lose(&format!("it names no address for messages: {error}"), false),
        }
    }
}
