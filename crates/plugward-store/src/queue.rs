//! What waits for the writer. Owns the bounds of the two queues and the order between them; refuses to block the
//! recorder of a span, and refuses to lose one without counting it.
//!
//! Commands (what a caller waits for) and spans (what nobody waits for) wait apart, so that a flood of spans delays no
//! approval and is itself cut off at a bound.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::redact::Matcher;
use crate::{Span, StoreError};

/// A command waits with a blocked caller behind it, so this bounds callers, not memory.
const COMMANDS_MAX: usize = 64;
/// Spans are written together once this many wait ...
pub(crate) const SPAN_BATCH_MAX: usize = 200;
/// ... or once the first of them has waited this long. A crash of the machine loses at most this much of the trace.
const SPAN_DELAY: Duration = Duration::from_millis(20);
/// Spans waiting beyond this number are dropped and counted: about a second of calls at full speed, long enough for a
/// slow disk to catch up.
const SPANS_MAX: usize = 8192;
/// Spans waiting beyond this size are dropped and counted, so that large ones cannot take the host's memory.
const SPANS_MAX_BYTES: usize = 16 * 1024 * 1024;

/// How the writer answers the caller of a command once the outcome of the whole batch is known.
pub(crate) type Answer = Box<dyn FnOnce(Result<(), &rusqlite::Error>)>;

/// What became of a command before its batch was committed.
pub(crate) struct Attempt {
    /// Whether its changes are to be kept.
    pub(crate) keep: bool,
    /// To be called when they are on disk, or cannot be.
    pub(crate) answer: Answer,
}

/// A command: given the connection, or the reason why there is none, makes its attempt.
pub(crate) type Command = Box<dyn FnOnce(Result<&Connection, &rusqlite::Error>) -> Attempt + Send>;

/// A span and the secrets that were known when it was handed in.
pub(crate) struct QueuedSpan {
    pub(crate) span: Span,
    pub(crate) matcher: Arc<Matcher>,
    bytes: usize,
}

/// Somebody waiting for all spans up to a number.
pub(crate) struct FlushWaiter {
    upto: u64,
    pub(crate) answer: SyncSender<Result<(), StoreError>>,
}

/// What the writer does next.
pub(crate) enum Turn {
    /// Run these, then come back.
    Work { commands: Vec<Command>, spans: Vec<QueuedSpan> },
    /// The spans these wait for are written: sync, and answer.
    Flush(Vec<FlushWaiter>),
    /// The store was closed and everything handed in before is done.
    End,
}

#[derive(Default)]
struct State {
    commands: VecDeque<Command>,
    spans: VecDeque<QueuedSpan>,
    span_bytes: usize,
    spans_since: Option<Instant>,
    accepted: u64,
    settled: u64,
    dropped: u64,
    flushes: Vec<FlushWaiter>,
    closed: bool,
}

/// The two queues, shared between callers and the one writer.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// The writer waits here.
    work: Condvar,
    /// Callers wait here for room for a command.
    room: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every section below leaves the state whole, so a poisoned lock is still good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a command, waiting for room.
    pub(crate) fn push_command(&self, command: Command) -> Result<(), StoreError> {
        let mut state = self.lock();
        while state.commands.len() >= COMMANDS_MAX && !state.closed {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return Err(StoreError::Closed);
        }
        state.commands.push_back(command);
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// Queues a span, or counts it as dropped. Never waits for the disk.
    pub(crate) fn push_span(&self, span: Span, matcher: Arc<Matcher>) {
        let bytes = size(&span);
        let mut state = self.lock();
        if state.closed || state.spans.len() >= SPANS_MAX || state.span_bytes + bytes > SPANS_MAX_BYTES {
            state.dropped += 1;
            return;
        }
        state.accepted += 1;
        state.span_bytes += bytes;
        state.spans.push_back(QueuedSpan { span, matcher, bytes });
        let waiting = state.spans.len();
        if waiting == 1 {
            state.spans_since = Some(Instant::now());
        }
        drop(state);
        if waiting == 1 || waiting == SPAN_BATCH_MAX {
            self.work.notify_one();
        }
    }

    /// Queues a request to be answered when every span accepted so far is on disk.
    pub(crate) fn push_flush(&self, answer: SyncSender<Result<(), StoreError>>) -> Result<(), StoreError> {
        let mut state = self.lock();
        if state.closed {
            return Err(StoreError::Closed);
        }
        let upto = state.accepted;
        // Bounded by the number of callers: each of them waits for its answer.
        state.flushes.push(FlushWaiter { upto, answer });
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// Spans dropped since the store was opened.
    pub(crate) fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Tells the queue that spans taken earlier are written, or are lost.
    pub(crate) fn settle(&self, written: usize, lost: usize) {
        let mut state = self.lock();
        state.settled += (written + lost) as u64;
        state.dropped += lost as u64;
    }

    /// Takes nothing more in. What is queued is still worked off.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
        self.room.notify_all();
    }

    /// Drops everything queued, for a writer that ends without having worked it off: waiting callers see their answer
    /// channel close.
    pub(crate) fn abandon(&self) {
        let mut state = self.lock();
        state.closed = true;
        let lost = state.spans.len();
        state.dropped += lost as u64;
        state.spans.clear();
        let commands = std::mem::take(&mut state.commands);
        let flushes = std::mem::take(&mut state.flushes);
        drop(state);
        drop((commands, flushes));
        self.room.notify_all();
    }

    /// Waits for something to do. Called by the writer alone.
    pub(crate) fn next(&self) -> Turn {
        let mut state = self.lock();
        loop {
            // First, so that a stream of spans recorded after a flush cannot put its answer off for ever.
            let reached = state.take_reached_flushes();
            if !reached.is_empty() {
                return Turn::Flush(reached);
            }
            let spans_due = state.spans_due();
            if !state.commands.is_empty() || spans_due {
                let commands = state.commands.drain(..).collect();
                let spans = if spans_due { state.take_spans() } else { Vec::new() };
                drop(state);
                self.room.notify_all();
                return Turn::Work { commands, spans };
            }
            if state.closed {
                return Turn::End;
            }
            state = match state.spans_since.filter(|_| !state.spans.is_empty()) {
                Some(since) => {
                    let left = SPAN_DELAY.saturating_sub(since.elapsed());
                    self.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl State {
    fn spans_due(&self) -> bool {
        let aged = self.spans_since.is_some_and(|since| since.elapsed() >= SPAN_DELAY);
        let asked_for = !self.flushes.is_empty();
        !self.spans.is_empty() && (aged || asked_for || self.closed || self.spans.len() >= SPAN_BATCH_MAX)
    }

    fn take_reached_flushes(&mut self) -> Vec<FlushWaiter> {
        let settled = self.settled;
        self.flushes.extract_if(.., |flush| flush.upto <= settled).collect()
    }

    fn take_spans(&mut self) -> Vec<QueuedSpan> {
        let count = self.spans.len().min(SPAN_BATCH_MAX);
        let taken: Vec<_> = self.spans.drain(..count).collect();
        self.span_bytes -= taken.iter().map(|queued| queued.bytes).sum::<usize>();
        // What stays has waited as long as the first: it is due at once.
        taken
    }
}

/// Text of a span, and about what its own record takes.
fn size(span: &Span) -> usize {
    let optional = [&span.parent_span_id, &span.plugin_id, &span.tool, &span.caller];
    let texts = [&span.trace_id, &span.span_id, &span.name, &span.kind, &span.outcome];
    size_of::<QueuedSpan>()
        + optional.iter().filter_map(|text| text.as_ref()).map(String::len).sum::<usize>()
        + texts.iter().map(|text| text.len()).sum::<usize>()
        + span.attributes_json.len()
        + span.events_json.len()
}
