//! The control socket: sending with descriptors attached, receiving within limits.
//!
//! Owns the system calls on the socket. Refuses knowing what the bytes mean.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, retry_on_intr},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recv, recvmsg, send, sendmsg,
    },
};

use crate::MAX_LISTENERS;

/// Descriptors that travel with the specification: the plugin's stdin, stdout and stderr. The notebook of a
/// trial comes after them.
pub(super) const PASSED_DESCRIPTORS: usize = 3;

/// Most descriptors in one message: the sockets of a plugin with listed hosts, and the one for names.
pub(super) const MAX_DESCRIPTORS: usize = MAX_LISTENERS + 1;

/// Sends all of `bytes` with `descriptors` attached to the first of them; waits for room until `deadline`.
pub(super) fn send_with_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    deadline: Instant,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::NOBUFS.into());
    }
    let mut sent = loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(count) => break count,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_until(socket, PollFlags::OUT, Some(deadline))?,
            Err(error) => return Err(error.into()),
        }
    };
    while sent < bytes.len() {
        match send(socket, &bytes[sent..], SendFlags::NOSIGNAL) {
            Ok(count) => sent += count,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_until(socket, PollFlags::OUT, Some(deadline))?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Sends a few bytes at once; a reader that is gone is an error, never a signal.
pub(super) fn send_short(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    let count = retry_on_intr(|| send(socket, bytes, SendFlags::NOSIGNAL))?;
    if count == bytes.len() { Ok(()) } else { Err(Errno::AGAIN.into()) }
}

/// Fills `buffer`, collecting descriptors that come along; `Ok(false)` at the end of the stream. The socket blocks.
pub(super) fn receive_exact(
    socket: BorrowedFd<'_>,
    mut buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<bool> {
    while !buffer.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received =
            retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                descriptors.extend(passed);
            }
        }
        if received.bytes == 0 {
            return Ok(false);
        }
        buffer = &mut buffer[received.bytes..];
    }
    Ok(true)
}

/// Outcome of one receive that does not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    /// This many bytes.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// The other side is gone.
    End,
}

/// Receives what is there without waiting. A reset counts as the end: both mean that nobody is there any more.
pub(super) fn receive_now(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    match retry_on_intr(|| recv(socket, &mut *buffer, RecvFlags::DONTWAIT)) {
        Ok((0, _)) | Err(Errno::CONNRESET) => Ok(Received::End),
        Ok((count, _)) => Ok(Received::Bytes(count)),
        Err(Errno::AGAIN) => Ok(Received::Nothing),
        Err(error) => Err(error.into()),
    }
}

/// As [`receive_now`], with descriptors that come along.
pub(super) fn receive_now_with(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags));
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    match received.map(|received| received.bytes) {
        Ok(0) | Err(Errno::CONNRESET) => Ok(Received::End),
        Ok(count) => Ok(Received::Bytes(count)),
        Err(Errno::AGAIN) => Ok(Received::Nothing),
        Err(error) => Err(error.into()),
    }
}

/// Waits until `socket` is ready or the deadline passes (`TimedOut`).
pub(super) fn wait_until(socket: BorrowedFd<'_>, what: PollFlags, deadline: Option<Instant>) -> io::Result<()> {
    let mut polled = [PollFd::from_borrowed_fd(socket.as_fd(), what)];
    if poll_until(&mut polled, deadline)? { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
}

/// Polls until something is ready (`true`) or the deadline passes (`false`). A signal restarts the wait.
pub(super) fn poll_until(polled: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<bool> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timespec = left.map(timespec);
        match poll(polled, timespec.as_ref()) {
            Ok(0) if left.is_none_or(|left| !left.is_zero()) => {}
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX), tv_nsec: duration.subsec_nanos().into() }
}
