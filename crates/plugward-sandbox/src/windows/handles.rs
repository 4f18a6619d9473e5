//! Handles and texts at the border to the system's calls.
//!
//! Owns turning raw handles into owned ones and strings into UTF-16. Refuses handles that mean failure.

use std::{
    ffi::OsStr,
    io,
    os::windows::{
        ffi::OsStrExt,
        io::{AsRawHandle, FromRawHandle, OwnedHandle},
    },
    ptr,
};

use windows_sys::Win32::{
    Foundation::{HANDLE, HANDLE_FLAG_INHERIT, INVALID_HANDLE_VALUE, SetHandleInformation},
    System::Pipes::CreatePipe,
};

/// Takes a handle that a call has just returned.
pub(super) fn owned(raw: HANDLE) -> io::Result<OwnedHandle> {
    if raw.is_null() || raw == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    #[allow(unsafe_code, reason = "taking ownership of a raw handle")]
    // SAFETY: the caller has just got it from a call that gives it away.
    Ok(unsafe { OwnedHandle::from_raw_handle(raw.cast()) })
}

/// Whether a call that answers with a truth value succeeded.
pub(super) fn check(result: i32) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// UTF-16 without an end mark.
pub(super) fn wide(text: &OsStr) -> Vec<u16> {
    text.encode_wide().collect()
}

/// UTF-16 with an end mark.
pub(super) fn wide_ended(text: &OsStr) -> Vec<u16> {
    text.encode_wide().chain([0]).collect()
}

/// Read and write end of a pipe that nobody inherits.
pub(super) fn pipe() -> io::Result<(OwnedHandle, OwnedHandle)> {
    let (mut read, mut write): (HANDLE, HANDLE) = (ptr::null_mut(), ptr::null_mut());
    #[allow(unsafe_code, reason = "anonymous pipes for another process have no safe wrapper")]
    // SAFETY: both places live across the call, which fills them; no attributes and no size are given.
    check(unsafe { CreatePipe(&raw mut read, &raw mut write, ptr::null(), 0) })?;
    Ok((owned(read)?, owned(write)?))
}

/// Lets the next process that lists it inherit a handle.
pub(super) fn make_inheritable(handle: &OwnedHandle) -> io::Result<()> {
    #[allow(unsafe_code, reason = "flags of handles have no safe wrapper")]
    // SAFETY: the handle is open as long as it is borrowed.
    check(unsafe { SetHandleInformation(handle.as_raw_handle().cast(), HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT) })
}
