//! The kernel's questions about system calls.
//!
//! Owns the three commands on a listener and the socket it travels through. Refuses any answer but "go on".

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::retry_on_intr,
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
};

/// A process that waits at a system call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Notification {
    /// Names the question in the answer.
    pub(super) id: u64,
    /// The thread that asks, as this process sees it.
    pub(super) pid: u32,
    pub(super) number: i64,
    pub(super) arguments: [u64; 6],
}

/// What is ready now.
pub(super) fn poll_now(listener: BorrowedFd<'_>) -> io::Result<PollFlags> {
    let mut polled = [PollFd::from_borrowed_fd(listener, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    retry_on_intr(|| poll(&mut polled, Some(&at_once)))?;
    Ok(polled[0].revents())
}

/// The next question. Call it when one is there; the kernel would wait otherwise.
pub(super) fn receive(listener: BorrowedFd<'_>) -> io::Result<Notification> {
    // The kernel refuses a structure that is not all zeroes.
    let mut raw = MaybeUninit::<libc::seccomp_notif>::zeroed();
    #[allow(unsafe_code, reason = "commands on a listener have no safe wrapper")]
    // SAFETY: the kernel fills the structure, whose size is part of the command's number.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, raw.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    #[allow(unsafe_code, reason = "the kernel has filled it")]
    // SAFETY: all fields are numbers, for which zeroes are valid and so is whatever the kernel wrote.
    let raw = unsafe { raw.assume_init() };
    Ok(Notification { id: raw.id, pid: raw.pid, number: raw.data.nr.into(), arguments: raw.data.args })
}

/// Whether the process that asked still waits.
pub(super) fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    #[allow(unsafe_code, reason = "commands on a listener have no safe wrapper")]
    // SAFETY: the kernel reads one number of 64 bits that lives across the call.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) };
    result == 0
}

/// Lets the call go on as if nobody had looked.
pub(super) fn let_go_on(listener: BorrowedFd<'_>, id: u64) -> io::Result<()> {
    let answer = libc::seccomp_notif_resp {
        id,
        val: 0,
        error: 0,
        flags: u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or_default(),
    };
    #[allow(unsafe_code, reason = "commands on a listener have no safe wrapper")]
    // SAFETY: the kernel reads one structure that lives across the call.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const answer) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends the listener to the observer. Allocates nothing, for use between fork and exec.
pub(in crate::linux) fn send(listener: &OwnedFd, observer: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let passed = [listener.as_fd()];
    if !ancillary.push(SendAncillaryMessage::ScmRights(&passed)) {
        return Err(rustix::io::Errno::NOBUFS.into());
    }
    retry_on_intr(|| sendmsg(observer, &[io::IoSlice::new(b"L")], &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}
