//! What a session says: a few streams of events, each of which one connection reads at a time and may resume.
//!
//! ```text
//! stream 0       what the server says unasked; read by GET
//! stream 1, 2..  one per request: its notes, then its answer; read by the POST that asked
//! ```
//!
//! Owns the store from which streams are read and resumed, and its bounds. An event that nobody will read goes first; one
//! that a connection is about to read is never dropped. Refuses to know messages.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::sse::{Event, Source};

/// Events kept for clients that lost their connection. A call that reports progress ten times a second fills it in half a
/// minute, which is longer than a reconnect takes.
const MAX_KEPT: usize = 256;

/// Bytes of them.
const MAX_KEPT_BYTES: usize = 1024 * 1024;

/// Events of one stream that its reader has not taken yet; further notes are left out. An answer never is.
const MAX_UNREAD: usize = 256;

/// Bytes of them, likewise: large notes must not take what many small ones may not.
const MAX_UNREAD_BYTES: usize = MAX_KEPT_BYTES;

/// The stream of what is said unasked.
pub(super) const UNASKED: u64 = 0;

struct Stored {
    stream: u64,
    number: u64,
    text: Arc<str>,
    is_answer: bool,
    is_read: bool,
}

#[derive(Default)]
struct Stream {
    /// The connection that reads it now; an older one ends.
    reader: Option<u64>,
    /// Nothing more will be said on it.
    is_complete: bool,
    /// Number of the newest event that is not kept any more.
    dropped: u64,
}

struct Store {
    kept: VecDeque<Stored>,
    bytes: usize,
    streams: HashMap<u64, Stream>,
    last_number: u64,
    last_stream: u64,
    last_reader: u64,
}

/// The store of one session.
pub(super) struct Events {
    store: Mutex<Store>,
    /// Told after each change.
    changes: watch::Sender<()>,
}

impl Events {
    pub(super) fn new() -> Self {
        let store = Store {
            kept: VecDeque::new(),
            bytes: 0,
            streams: HashMap::from([(UNASKED, Stream::default())]),
            last_number: 0,
            last_stream: UNASKED,
            last_reader: 0,
        };
        Self { store: Mutex::new(store), changes: watch::Sender::new(()) }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream for a request.
    pub(super) fn open(&self) -> u64 {
        let mut store = self.store();
        store.last_stream += 1;
        let stream = store.last_stream;
        store.streams.insert(stream, Stream::default());
        stream
    }

    /// Adds a note. It is left out when the reader of its stream is far behind: a note is worth no memory without end.
    pub(super) fn note(&self, stream: u64, text: String) {
        let mut store = self.store();
        let (unread, bytes) = store.unread(stream);
        if unread < MAX_UNREAD && bytes + text.len() <= MAX_UNREAD_BYTES {
            store.push(stream, text, false);
        }
        drop(store);
        self.changes.send_replace(());
    }

    /// Adds a note unless one of the same text waits to be read already.
    pub(super) fn note_once(&self, stream: u64, text: String) {
        let waits =
            self.store().kept.iter().any(|event| event.stream == stream && !event.is_read && *event.text == *text);
        if !waits {
            self.note(stream, text);
        }
    }

    /// Ends a stream, with its answer if there is one.
    pub(super) fn complete(&self, stream: u64, answer: Option<String>) {
        let mut store = self.store();
        if let Some(text) = answer {
            store.push(stream, text, true);
        }
        if let Some(stream) = store.streams.get_mut(&stream) {
            stream.is_complete = true;
        }
        store.tidy();
        drop(store);
        self.changes.send_replace(());
    }

    /// Forgets a stream that was read to its end.
    pub(super) fn forget(&self, stream: u64) {
        let mut store = self.store();
        let freed: usize = store.kept.iter().filter(|event| event.stream == stream).map(|event| event.text.len()).sum();
        store.bytes -= freed;
        store.kept.retain(|event| event.stream != stream);
        if stream != UNASKED {
            store.streams.remove(&stream);
        }
    }

    /// Whether some connection reads.
    pub(super) fn has_reader(&self) -> bool {
        self.store().streams.values().any(|stream| stream.reader.is_some())
    }
}

impl Store {
    /// Events of a stream that its reader has not taken, and their bytes.
    fn unread(&self, stream: u64) -> (usize, usize) {
        let unread = self.kept.iter().filter(|event| event.stream == stream && !event.is_read);
        unread.fold((0, 0), |(count, bytes), event| (count + 1, bytes + event.text.len()))
    }

    fn push(&mut self, stream: u64, text: String, is_answer: bool) {
        self.last_number += 1;
        self.bytes += text.len();
        self.kept.push_back(Stored { stream, number: self.last_number, text: text.into(), is_answer, is_read: false });
        self.tidy();
    }

    /// Drops the oldest events that no connection is about to read, until the bounds hold.
    fn tidy(&mut self) {
        while self.kept.len() > MAX_KEPT || self.bytes > MAX_KEPT_BYTES {
            let is_awaited = |event: &Stored| {
                !event.is_read && self.streams.get(&event.stream).is_some_and(|stream| stream.reader.is_some())
            };
            let Some(index) = self.kept.iter().position(|event| !is_awaited(event)) else { break };
            let Some(event) = self.kept.remove(index) else { break };
            self.bytes -= event.text.len();
            if let Some(stream) = self.streams.get_mut(&event.stream) {
                stream.dropped = stream.dropped.max(event.number);
            }
        }
        let kept = &self.kept;
        self.streams.retain(|number, stream| {
            *number == UNASKED
                || !stream.is_complete
                || stream.reader.is_some()
                || kept.iter().any(|event| event.stream == *number)
        });
    }
}

/// One connection's view of a stream. Dropping it leaves the rest of the stream to whoever resumes it.
pub(super) struct Reader {
    events: Arc<Events>,
    stream: u64,
    number: u64,
    /// Number of the last event that was taken.
    position: u64,
    changes: watch::Receiver<()>,
    ends: Ends,
}

/// What ends a stream from outside.
#[derive(Clone)]
pub(super) struct Ends {
    /// The session is over.
    pub(super) session: CancellationToken,
    /// The server ends: nothing more will be said unasked, while answers still may come.
    pub(super) server: CancellationToken,
}

impl Ends {
    async fn of(&self, stream: u64) {
        tokio::select! {
            () = self.session.cancelled() => {}
            () = self.server.cancelled(), if stream == UNASKED => {}
        }
    }
}

impl Reader {
    /// Reads a stream from the first event that nobody has taken. A connection that read it before ends: the client
    /// opened another one, so it has lost the first.
    pub(super) fn open(events: &Arc<Events>, stream: u64, ends: Ends) -> Option<Self> {
        let first = |store: &Store| {
            let unread = store.kept.iter().find(|event| event.stream == stream && !event.is_read);
            unread.map_or(store.last_number, |event| event.number - 1)
        };
        Self::at(events, stream, first, ends)
    }

    /// Reads on after the event that a client names; `None` when that stream is not kept, or not to that point.
    pub(super) fn resume(events: &Arc<Events>, last_id: &str, ends: Ends) -> Option<Self> {
        let (stream, number) = parse_id(last_id)?;
        if events.store().streams.get(&stream).is_none_or(|stream| stream.dropped > number) {
            return None;
        }
        Self::at(events, stream, |_| number, ends)
    }

    fn at(events: &Arc<Events>, stream: u64, position: impl FnOnce(&Store) -> u64, ends: Ends) -> Option<Self> {
        let changes = events.changes.subscribe();
        let mut store = events.store();
        let position = position(&store);
        store.last_reader += 1;
        let number = store.last_reader;
        store.streams.get_mut(&stream)?.reader = Some(number);
        drop(store);
        // The reader before it sees that it is one no longer.
        events.changes.send_replace(());
        Some(Self { events: Arc::clone(events), stream, number, position, changes, ends })
    }

    /// The stream it reads.
    pub(super) fn stream(&self) -> u64 {
        self.stream
    }

    /// An event without a message, from which a client can resume before there is any.
    pub(super) fn opening(&self) -> Event {
        Event { id: Some(id(self.stream, self.position)), text: String::new(), is_last: false }
    }

    /// What can be had at once: an event, the end, or neither yet.
    fn look(&mut self) -> Option<Option<Event>> {
        let mut store = self.events.store();
        let Some(stream) = store.streams.get(&self.stream) else { return Some(None) };
        let (is_complete, is_mine) = (stream.is_complete, stream.reader == Some(self.number));
        // What is missing in the middle cannot be mended by reading on.
        if !is_mine || stream.dropped > self.position {
            return Some(None);
        }
        let next = store.kept.iter_mut().find(|event| event.stream == self.stream && event.number > self.position);
        let Some(next) = next else { return is_complete.then_some(None) };
        next.is_read = true;
        self.position = next.number;
        let event =
            Event { id: Some(id(self.stream, next.number)), text: next.text.to_string(), is_last: next.is_answer };
        store.tidy();
        Some(Some(event))
    }
}

impl Source for Reader {
    async fn next(&mut self) -> Option<Event> {
        loop {
            self.changes.mark_unchanged();
            if let Some(found) = self.look() {
                return found;
            }
            tokio::select! {
                changed = self.changes.changed() => changed.ok()?,
                () = self.ends.of(self.stream) => return None,
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut store = self.events.store();
        if let Some(stream) = store.streams.get_mut(&self.stream)
            && stream.reader == Some(self.number)
        {
            stream.reader = None;
        }
        store.tidy();
    }
}

fn id(stream: u64, number: u64) -> String {
    format!("{stream}-{number}")
}

fn parse_id(text: &str) -> Option<(u64, u64)> {
    let (stream, number) = text.split_once('-')?;
    Some((stream.parse().ok()?, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> Arc<Events> {
        Arc::new(Events::new())
    }

    impl Events {
        /// Events kept, and their bytes.
        fn size(&self) -> (usize, usize) {
            let store = self.store();
            (store.kept.len(), store.bytes)
        }
    }

    fn never() -> Ends {
        Ends { session: CancellationToken::new(), server: CancellationToken::new() }
    }

    fn open(events: &Arc<Events>, stream: u64) -> Reader {
        Reader::open(events, stream, never()).unwrap()
    }

    async fn texts(mut reader: Reader) -> Vec<String> {
        let mut texts = Vec::new();
        while let Some(event) = reader.next().await {
            texts.push(event.text);
        }
        texts
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_answer_and_is_resumed_after_what_was_read() {
        let events = events();
        let (stream, other) = (events.open(), events.open());
        let mut reader = open(&events, stream);
        events.note(stream, "one".to_owned());
        events.note(other, "not yours".to_owned());
        let first = reader.next().await.unwrap();
        assert_eq!(first.text, "one");
        drop(reader);
        events.note(stream, "two".to_owned());
        events.complete(stream, Some("answer".to_owned()));
        let resume = |id: &str| Reader::resume(&events, id, never());
        assert_eq!(texts(resume(first.id.as_deref().unwrap()).unwrap()).await, ["two", "answer"]);
        // Again, as a client whose second connection broke as well.
        assert_eq!(texts(resume(first.id.as_deref().unwrap()).unwrap()).await, ["two", "answer"]);
        for strange in ["", "7", "7-", "9-0", "x-1", "1-x", "-1-1"] {
            assert!(resume(strange).is_none(), "{strange}");
        }
    }

    #[tokio::test]
    async fn what_is_said_unasked_waits_for_a_reader_and_is_read_once() {
        let events = events();
        events.note_once(UNASKED, "changed".to_owned());
        events.note_once(UNASKED, "changed".to_owned());
        let mut first = open(&events, UNASKED);
        assert_eq!(first.next().await.unwrap().text, "changed");
        let mut second = open(&events, UNASKED);
        assert!(first.next().await.is_none(), "a second connection takes over");
        events.note_once(UNASKED, "changed".to_owned());
        assert_eq!(second.next().await.unwrap().text, "changed", "what was read before is news again");
        assert!(events.has_reader());
        drop((first, second));
        assert!(!events.has_reader());
    }

    #[tokio::test]
    async fn memory_is_bounded_and_what_is_awaited_is_kept() {
        // Invariant 7: a client that never reads costs a fixed amount, and one that reads slowly loses no answer.
        let events = events();
        let abandoned = events.open();
        for _ in 0..10_000 {
            events.note(UNASKED, "x".repeat(100));
            events.note(abandoned, "y".repeat(100));
        }
        events.complete(abandoned, Some("z".repeat(3 * MAX_KEPT_BYTES)));
        let (kept, bytes) = events.size();
        assert!(kept <= MAX_KEPT && bytes <= MAX_KEPT_BYTES, "{kept} events, {bytes} bytes");

        let awaited = events.open();
        let mut reader = open(&events, awaited);
        events.note(awaited, "first".to_owned());
        let large = "a".repeat(2 * MAX_KEPT_BYTES);
        events.complete(awaited, Some(large.clone()));
        for _ in 0..1000 {
            events.note(UNASKED, "x".repeat(1000));
        }
        assert_eq!(reader.next().await.unwrap().text, "first");
        assert_eq!(reader.next().await.unwrap().text.len(), large.len());
        drop(reader);
        let (kept, bytes) = events.size();
        assert!(kept <= MAX_KEPT && bytes <= MAX_KEPT_BYTES, "{kept} events, {bytes} bytes");
        let streams = events.store().streams.len();
        assert!(streams <= 2, "{streams} streams are kept for nothing");
    }

    #[tokio::test]
    async fn large_notes_that_a_reader_does_not_take_are_bounded_too() {
        // A plugin with progress notes of a megabyte would otherwise cost hundreds of them for one slow client.
        let events = events();
        let stream = events.open();
        let mut reader = open(&events, stream);
        for _ in 0..MAX_UNREAD {
            events.note(stream, "x".repeat(MAX_KEPT_BYTES / 4));
        }
        let (kept, bytes) = events.size();
        assert!(kept <= 4 && bytes <= MAX_KEPT_BYTES, "{kept} events, {bytes} bytes");
        events.complete(stream, Some("answer".to_owned()));
        let mut last = String::new();
        while let Some(event) = reader.next().await {
            last = event.text;
        }
        assert_eq!(last, "answer", "an answer is never left out");
    }

    #[tokio::test]
    async fn a_stream_with_a_gap_is_not_read_on() {
        let events = events();
        let stream = events.open();
        let mut reader = open(&events, stream);
        events.note(stream, "1".to_owned());
        let first = reader.next().await.unwrap().id.unwrap();
        drop(reader);
        for _ in 0..=MAX_KEPT {
            events.note(UNASKED, "x".to_owned());
            events.note(stream, "2".to_owned());
        }
        assert!(Reader::resume(&events, &first, never()).is_none());
    }

    #[tokio::test]
    async fn the_end_of_the_session_ends_its_readers_and_that_of_the_server_lets_answers_come() {
        let (events, ends) = (events(), never());
        let stream = events.open();
        let mut unasked = Reader::open(&events, UNASKED, ends.clone()).unwrap();
        let mut asked = Reader::open(&events, stream, ends.clone()).unwrap();
        ends.server.cancel();
        assert!(unasked.next().await.is_none());
        events.note(stream, "late".to_owned());
        assert_eq!(asked.next().await.unwrap().text, "late");
        ends.session.cancel();
        assert!(asked.next().await.is_none());
    }
}
