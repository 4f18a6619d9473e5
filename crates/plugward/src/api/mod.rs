//! The Host API. Stub until its owner fills it.

use plugward_host::Host;
use tokio_util::sync::CancellationToken;

/// Options of the Host API.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {}

/// Serves the Host API until `stop` is cancelled.
pub(crate) async fn serve(
    _host: Host,
    _listener: tokio::net::TcpListener,
    _options: Options,
    _stop: CancellationToken,
) -> anyhow::Result<()> {
    anyhow::bail!("the Host API is not built yet")
}
