//! Our MCP server face. Stub until its owner fills it.

use plugward_host::Host;
use tokio::io::{AsyncRead, AsyncWrite};

/// Options of one MCP session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {}

/// Serves one MCP client until its end of the stream closes and all answers are flushed.
pub(crate) async fn serve(
    _host: Host,
    _reader: impl AsyncRead + Send + Unpin + 'static,
    _writer: impl AsyncWrite + Send + Unpin + 'static,
    _options: Options,
) -> anyhow::Result<()> {
    anyhow::bail!("the MCP server face is not built yet")
}
