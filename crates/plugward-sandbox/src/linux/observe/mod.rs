//! Watching what a plugin tries to reach, for a trial without grants.
//!
//! Owns the launcher's side: the kernel stops the plugin at each call that names a path or an address and tells this
//! observer, which reads the name from the plugin's memory, notes it if it exists on the machine and not in the sandbox,
//! and lets the call go on. Refuses deciding anything: every call continues, under the same filter, tree and rules as
//! without an observer.
//!
//! Another thread of the plugin may change the name between the look at it and the call. That is no hole here, because the
//! call is judged by the kernel as always and not by what was read; such a plugin spoils its own record, nothing else. For
//! the same reason a name that cannot be read is counted and the call goes on.
//!
//! A stricter answer of another filter wins over the question to the observer, so a call that the filter of the sandbox
//! refuses is never seen here: without a network there is no `connect` to watch.

mod calls;
mod listener;
mod notebook;
mod target;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    event::PollFlags,
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
        socketpair,
    },
};

use self::{listener::Notification, target::Surroundings};
use super::channel;

pub(super) use calls::numbers;
pub(super) use listener::send as hand_over;
pub use notebook::Notebook;
use notebook::Pages;

/// Most calls looked at before the launcher sees to its other work, so that a busy plugin cannot keep orders of the host
/// waiting.
const MAX_IN_A_ROW: usize = 64;

/// The launcher's observer of one plugin.
pub(super) struct Observer {
    source: Source,
    surroundings: Surroundings,
    pages: Pages,
    notebook: OwnedFd,
}

/// Where the next news comes from.
enum Source {
    /// The plugin-to-be sends its listener here once its filter is in force.
    Expected(OwnedFd),
    /// The kernel's questions.
    Listener(OwnedFd),
    /// Every watched process has ended, or none will be.
    Over,
}

impl Observer {
    /// An observer that writes to `notebook` at the end, and the socket for the process that will be watched.
    pub(super) fn new(notebook: OwnedFd) -> io::Result<(Self, OwnedFd)> {
        let (receiver, sender) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let source = Source::Expected(receiver);
        Ok((Self { source, surroundings: Surroundings::default(), pages: Pages::default(), notebook }, sender))
    }

    /// What to wait for, if there is anything left to observe.
    pub(super) fn news(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            Source::Expected(source) | Source::Listener(source) => Some(source.as_fd()),
            Source::Over => None,
        }
    }

    /// Takes what is there, and returns without waiting for more.
    pub(super) fn serve(&mut self) {
        for _ in 0..MAX_IN_A_ROW {
            let Some(news) = self.news() else { return };
            match listener::poll_now(news) {
                Ok(ready) if ready.contains(PollFlags::IN) => {}
                Ok(ready) if ready.is_empty() => return,
                // Nobody is left to ask.
                Ok(_) | Err(_) => {
                    self.source = Source::Over;
                    return;
                }
            }
            self.take_one();
        }
    }

    fn take_one(&mut self) {
        match &self.source {
            Source::Expected(receiver) => {
                self.source = match receive_listener(receiver) {
                    Some(listener) => Source::Listener(listener),
                    None => Source::Over,
                };
            }
            Source::Listener(listener) => match listener::receive(listener.as_fd()) {
                Ok(notification) => {
                    note(&mut self.surroundings, &mut self.pages, listener.as_fd(), &notification);
                    // A process that has ended meanwhile needs no answer.
                    let _ended = listener::let_go_on(listener.as_fd(), notification.id);
                }
                // The process that asked was killed before the question was read.
                Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::INTR)) => {}
                // Closing the listener makes the kernel refuse the calls it would have asked about, which ends the trial
                // rather than letting it go on unseen.
                Err(_) => self.source = Source::Over,
            },
            Source::Over => {}
        }
    }

    /// Writes down what was seen. Called once the plugin's processes are gone.
    pub(super) fn finish(self) {
        // A notebook that is not complete is seen as such by the host.
        let _incomplete = self.pages.write_to(self.notebook);
    }
}

/// Notes what one call is about.
fn note(surroundings: &mut Surroundings, pages: &mut Pages, listener: BorrowedFd<'_>, call: &Notification) {
    surroundings.meet(call);
    let wanted: Vec<_> = calls::of(call.number).map(|about| surroundings.read(call, about)).collect();
    // The id of a process that has ended may be another one's by now; what was read is the caller's only if it still
    // waits for the answer.
    if !listener::is_waiting(listener, call.id) {
        return;
    }
    for wanted in wanted {
        match wanted {
            Ok(None) => {}
            Ok(Some((kind, target))) => pages.note(kind, &target, |kind, target| surroundings.fate(call, kind, target)),
            Err(_) => pages.unread(),
        }
    }
}

/// Takes the listener from the socket; `None` if the other side is gone.
fn receive_listener(receiver: &OwnedFd) -> Option<OwnedFd> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut buffers = [io::IoSliceMut::new(&mut byte)];
    recvmsg(receiver, &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT).ok()?;
    ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut passed) => passed.next(),
        _ => None,
    })
}

/// Waits until one of `awaited` or the observer has news, serving the observer meanwhile; returns once one of `awaited` is
/// ready.
pub(super) fn wait_serving(awaited: BorrowedFd<'_>, observer: &mut Observer) -> io::Result<()> {
    loop {
        let mut polled = vec![rustix::event::PollFd::from_borrowed_fd(awaited, PollFlags::IN)];
        polled.extend(observer.news().map(|news| rustix::event::PollFd::from_borrowed_fd(news, PollFlags::IN)));
        channel::poll_until(&mut polled, None)?;
        if !polled[0].revents().is_empty() {
            return Ok(());
        }
        drop(polled);
        observer.serve();
    }
}
