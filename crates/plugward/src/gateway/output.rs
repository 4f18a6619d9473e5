//! Bytes that the connection handed out and the client has not taken yet.
//!
//! Owns partial writes and the flush after the last one. Refuses to hold much: the driver fills it by the chunk, and
//! the rest stays in the connection, counted against its bound.

use std::io;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};

/// Bytes on their way to the client.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    /// How many of them are written.
    written: usize,
    needs_flush: bool,
}

impl Output {
    pub(super) fn push(&mut self, line: &[u8]) {
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
        }
        self.bytes.extend_from_slice(line);
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        self.bytes.len() - self.written
    }

    pub(super) fn is_pending(&self) -> bool {
        self.waiting_bytes() > 0 || self.needs_flush
    }

    /// Writes some of what waits, or flushes when nothing waits. Cancel safe: what was written is noted at once.
    pub(super) async fn advance(&mut self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        if self.waiting_bytes() == 0 {
            writer.flush().await?;
            self.needs_flush = false;
            return Ok(());
        }
        let written = writer.write(&self.bytes[self.written..]).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.written += written;
        self.needs_flush = true;
        Ok(())
    }
}
