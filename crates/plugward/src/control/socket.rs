//! The socket between two processes of one user: where it is, how lines travel on it.
//!
//! Owns the folder's permissions, the line limits and the frames. Refuses everything about hosts.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::Failure;
use super::operation::{Notice, Operation, Outcome};
use crate::settings::RUN_DIR;

/// Name of the socket.
const SOCKET_FILE: &str = "control.sock";

/// Longest path that fits into a socket address with its final zero, on every system we know (macOS has the least).
const SOCKET_PATH_BYTES_MAX: usize = 103;

/// Longest request. Arguments of a call are the largest part; a plugin takes 2 MiB by default, and a manifest may raise
/// that.
pub(super) const REQUEST_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Longest line of an answer: a list of 10,000 tools with large schemas stays below it.
pub(super) const ANSWER_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// One line from the host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Frame {
    /// First of all.
    Hello {
        /// [`super::CONTROL_VERSION`].
        control_version: u32,
        /// Version of the program.
        version: String,
        /// Its process.
        pid: u32,
    },
    /// While it works.
    Notice(Notice),
    /// The end.
    Done(Outcome),
    /// The end.
    Failed(Failure),
}

/// The one line from the client.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// [`super::CONTROL_VERSION`].
    pub(super) control_version: u32,
    /// What to do.
    pub(super) operation: Operation,
}

/// The address of the socket of a home. Keeps the folder open while a path goes through it.
pub(super) struct SocketAddress {
    path: PathBuf,
    _folder: Option<OwnedFd>,
}

impl SocketAddress {
    /// The address in an existing folder. A home may lie deeper than an address is long; the way then leads through
    /// the open folder.
    pub(super) fn of(home: &Path) -> io::Result<Self> {
        let folder = home.join(RUN_DIR);
        let path = folder.join(SOCKET_FILE);
        if path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
            return Ok(Self { path, _folder: None });
        }
        let folder = rustix::fs::open(&folder, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET_FILE}", folder.as_raw_fd()));
        Ok(Self { path, _folder: Some(folder) })
    }

    /// A path that reaches the socket as long as this value lives.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether the other end is a process of the same user.
pub(super) fn is_same_user(stream: &tokio::net::UnixStream) -> io::Result<bool> {
    Ok(stream.peer_cred()?.uid() == rustix::process::geteuid().as_raw())
}

/// Reads one line of at most `limit` bytes; none at the end of the stream.
pub(super) async fn read_line<T: DeserializeOwned>(
    reader: &mut (impl AsyncBufRead + Unpin),
    limit: u64,
) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    let read = (&mut *reader).take(limit).read_until(b'\n', &mut line).await?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        let reason = if u64::try_from(read).unwrap_or(u64::MAX) >= limit { "is too long" } else { "has no end" };
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("line on the control socket {reason}")));
    }
    serde_json::from_slice(&line).map(Some).map_err(|error| {
        // Positions only: the line may hold arguments.
        let text = format!("line on the control socket is not understood at byte {}", error.column());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

/// Writes one line.
pub(super) async fn write_line(writer: &mut (impl AsyncWrite + Unpin), line: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    // Arguments go out as they were typed, perhaps over several lines; in JSON a line end is white space.
    for byte in bytes.iter_mut().filter(|byte| **byte == b'\n') {
        *byte = b' ';
    }
    bytes.push(b'\n');
    writer.write_all(&bytes).await?;
    writer.flush().await
}
