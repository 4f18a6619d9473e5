//! Standard input and output as an MCP client hands them over: pipes or sockets, read and written when they are ready.
//!
//! Owns finding out what they are. Anything else, a file or a terminal, goes through threads that block, which costs
//! some hundred microseconds for each message. Refuses to change what other processes share with us: a pipe is opened
//! anew, and a socket is told with each operation not to wait, so that neither is switched to non-blocking for whoever
//! else has it.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::FileType;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::unix::pipe;

/// What is read as standard input.
pub(super) type Input = Box<dyn AsyncRead + Send + Unpin>;

/// What is written as standard output.
pub(super) type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Standard input; to be opened once.
pub(super) fn input() -> Input {
    open_input(io::stdin().as_fd()).unwrap_or_else(|| Box::new(tokio::io::stdin()))
}

/// Standard output; to be opened once.
pub(super) fn output() -> Output {
    open_output(io::stdout().as_fd()).unwrap_or_else(|| Box::new(tokio::io::stdout()))
}

fn open_input(fd: BorrowedFd<'_>) -> Option<Input> {
    match kind(fd)? {
        FileType::Fifo => Some(Box::new(pipe::OpenOptions::new().open_receiver(again(fd)?).ok()?)),
        FileType::Socket => Some(Box::new(Socket::of(fd, Interest::READABLE).ok()?)),
        _ => None,
    }
}

fn open_output(fd: BorrowedFd<'_>) -> Option<Output> {
    match kind(fd)? {
        FileType::Fifo => Some(Box::new(pipe::OpenOptions::new().open_sender(again(fd)?).ok()?)),
        FileType::Socket => Some(Box::new(Socket::of(fd, Interest::WRITABLE).ok()?)),
        _ => None,
    }
}

fn kind(fd: BorrowedFd<'_>) -> Option<FileType> {
    Some(FileType::from_raw_mode(rustix::fs::fstat(fd).ok()?.st_mode))
}

/// The path under which an open pipe can be opened once more. Not one that has a name in the file system: it would not
/// tell its end to a reader that comes after the last writer has left.
fn again(fd: BorrowedFd<'_>) -> Option<PathBuf> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    let target = std::fs::read_link(&path).ok()?;
    target.to_str().is_some_and(|target| target.starts_with("pipe:")).then_some(path)
}

/// A stream socket that may be in blocking mode.
struct Socket(AsyncFd<OwnedFd>);

impl Socket {
    fn of(fd: BorrowedFd<'_>, interest: Interest) -> io::Result<Self> {
        // What can go wrong with it, a descriptor that is closed meanwhile, an owned one cannot be.
        #[allow(deprecated, reason = "its successor is unsafe, which is for descriptors that are not owned")]
        Ok(Self(AsyncFd::with_interest(fd.try_clone_to_owned()?, interest)?))
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            let unfilled = buffer.initialize_unfilled();
            let read = ready.try_io(|fd| Ok(rustix::net::recv(fd, &mut *unfilled, RecvFlags::DONTWAIT)?.0));
            // Otherwise it was not ready after all, which is noted.
            if let Ok(read) = read {
                buffer.advance(read?);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(context))?;
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            if let Ok(written) = ready.try_io(|fd| Ok(rustix::net::send(fd, bytes, flags)?)) {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(rustix::net::shutdown(&self.0, Shutdown::Write).map_err(io::Error::from))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::fs::{OFlags, fcntl_getfl};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Sends more than any buffer holds through what `output` and `input` are opened as, to the end.
    async fn carries_all(input: OwnedFd, output: OwnedFd) {
        let sent = vec![b'x'; 1_000_000];
        let (mut reader, mut writer) = (open_input(input.as_fd()).unwrap(), open_output(output.as_fd()).unwrap());
        for fd in [&input, &output] {
            let flags = fcntl_getfl(fd).unwrap();
            assert!(!flags.contains(OFlags::NONBLOCK), "whoever shares it would find it changed");
        }
        let expected = sent.clone();
        let write = async move {
            writer.write_all(&sent).await.unwrap();
            writer.shutdown().await.unwrap();
            drop((writer, output));
        };
        let mut received = Vec::new();
        let read = reader.read_to_end(&mut received);
        let ((), read) = tokio::join!(write, read);
        assert_eq!((read.unwrap(), received == expected), (1_000_000, true));
    }

    #[tokio::test]
    async fn pipes_and_sockets_carry_all_and_stay_as_they_were() {
        // Requirement 1: clients of every make start us, some with pipes, some with sockets, some with one for several.
        let (reader, writer) = io::pipe().unwrap();
        carries_all(reader.into(), writer.into()).await;
        let (reader, writer) = UnixStream::pair().unwrap();
        carries_all(reader.into(), writer.into()).await;
    }

    #[tokio::test]
    async fn what_was_said_before_we_looked_is_read_to_its_end() {
        // `printf ... | plugward serve --stdio`: the writer may be gone first.
        let (reader, mut writer) = io::pipe().unwrap();
        io::Write::write_all(&mut writer, b"all there is").unwrap();
        drop(writer);
        let mut received = String::new();
        open_input(reader.as_fd()).unwrap().read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "all there is");
    }

    #[tokio::test]
    async fn files_are_left_to_threads() {
        let file = tempfile::tempfile().unwrap();
        assert!(open_input(file.as_fd()).is_none() && open_output(file.as_fd()).is_none());
    }
}
