//! The host's end of the control socket.
//!
//! Owns accepting, the check of the peer's user, and the bound on connections. One connection is one operation; the
//! end of the client's side ends an operation that would go on.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plugward_host::{ErrorCode, Host};
use tokio::io::{AsyncReadExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::operation::{Operation, Outcome};
use super::socket::{Frame, REQUEST_BYTES_MAX, Request, SocketAddress, is_same_user, read_line, write_line};
use super::{CONTROL_VERSION, Failure, execute};
use crate::exit::Exit;
use crate::gateway;
use crate::profile::Profile;
use crate::settings::RUN_DIR;

/// Connections at once: agents' MCP sessions and commands. Each costs a task and its buffers, and one descriptor.
const CONNECTIONS_MAX: usize = 1024;

/// A client sends its request at once; one that does not is not ours.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// Notices that wait for a slow client.
const NOTICE_QUEUE: usize = 256;

/// Pause after a failed accept, which is out of descriptors most of the time: spinning would make that worse.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// After the stop, operations under way have this long to tell their end.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// A bound socket. The home's lock must be held: that is what makes it safe to replace a socket that a crash left.
pub(crate) struct ControlServer {
    listener: UnixListener,
    address: SocketAddress,
    joined: TaskTracker,
    visitors: Visitors,
}

/// Who is connected: for a host that ends once nobody is.
#[derive(Debug, Clone)]
pub(crate) struct Visitors {
    present: TaskTracker,
    arrivals: Arc<AtomicU64>,
}

impl Visitors {
    fn new() -> Self {
        let present = TaskTracker::new();
        // Only a closed one can be waited for; it still counts what comes.
        present.close();
        Self { present, arrivals: Arc::default() }
    }

    /// Waits until nobody has been connected for so long.
    pub(crate) async fn none_for(&self, idle: Duration) {
        loop {
            self.present.wait().await;
            let arrivals = self.arrivals.load(Ordering::Acquire);
            tokio::time::sleep(idle).await;
            if self.present.is_empty() && self.arrivals.load(Ordering::Acquire) == arrivals {
                return;
            }
        }
    }
}

impl ControlServer {
    /// Binds the socket of `home`.
    pub(crate) fn bind(home: &Path) -> io::Result<Self> {
        let folder = home.join(RUN_DIR);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        // One that was there with wider permissions is ours to close.
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
        let address = SocketAddress::of(home)?;
        match std::fs::remove_file(address.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(address.path())?;
        std::fs::set_permissions(address.path(), std::fs::Permissions::from_mode(0o600))?;
        let joined = TaskTracker::new();
        // Only a closed one can be waited for; it still counts what comes.
        joined.close();
        Ok(Self { listener, address, joined, visitors: Visitors::new() })
    }

    /// The MCP sessions of processes that joined this one, to be counted and waited for.
    pub(crate) fn joined(&self) -> TaskTracker {
        self.joined.clone()
    }

    /// Whoever is connected.
    pub(crate) fn visitors(&self) -> Visitors {
        self.visitors.clone()
    }

    /// Serves until `stop`, then takes the socket away and waits, within a bound, for what is under way.
    pub(crate) async fn serve(self, host: Host, stop: CancellationToken) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let tasks = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!("control socket cannot accept: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                tracing::warn!("control socket has {CONNECTIONS_MAX} connections, a further one was refused");
                refuse_at_once(stream);
                continue;
            };
            let (host, stop, joined) = (host.clone(), stop.child_token(), self.joined.clone());
            self.visitors.arrivals.fetch_add(1, Ordering::AcqRel);
            let visit = self.visitors.present.token();
            tasks.spawn(async move {
                if let Err(error) = connection(host, stream, &stop, &joined).await {
                    tracing::debug!("control connection ended: {error}");
                }
                drop((place, visit));
            });
        }
        let _ = std::fs::remove_file(self.address.path());
        tasks.close();
        let _ = tokio::time::timeout(DRAIN_LIMIT, tasks.wait()).await;
    }
}

/// Tells a connection too many why it ends. A new socket takes the few bytes at once; the accept loop waits for nobody.
fn refuse_at_once(stream: UnixStream) {
    let message = format!("the running `plugward serve` has {CONNECTIONS_MAX} connections already");
    let failure = Failure::coded(ErrorCode::HomeInUse, message).with_hint("end some of its MCP sessions or commands");
    let line = serde_json::to_string(&Frame::Failed(failure)).unwrap_or_default() + "\n";
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write_all(line.as_bytes());
    }
}

async fn connection(host: Host, stream: UnixStream, stop: &CancellationToken, joined: &TaskTracker) -> io::Result<()> {
    if !is_same_user(&stream)? {
        tracing::warn!("control socket refused a process of another user");
        return Ok(());
    }
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let hello = Frame::Hello {
        control_version: CONTROL_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
    };
    write_line(&mut writer, &hello).await?;
    let request = tokio::time::timeout(REQUEST_LIMIT, read_line::<Request>(&mut reader, REQUEST_BYTES_MAX)).await;
    let request = match request.unwrap_or(Ok(None)) {
        Ok(Some(request)) if request.control_version == CONTROL_VERSION => request,
        Ok(None) => return Ok(()),
        Ok(Some(_)) => return refuse(&mut writer, "request has another control version").await,
        Err(error) => return refuse(&mut writer, &error.to_string()).await,
    };
    match request.operation {
        Operation::Mcp { profile } => joined.track_future(mcp(host, reader, writer, *profile, stop)).await,
        operation => answer(&host, operation, reader, &mut writer, stop).await,
    }
}

async fn refuse(writer: &mut OwnedWriteHalf, message: &str) -> io::Result<()> {
    let failure = Failure::new(Exit::Failure, ErrorCode::Internal.as_str(), message);
    write_line(writer, &Frame::Failed(failure)).await
}

async fn answer(
    host: &Host,
    operation: Operation,
    mut reader: BufReader<OwnedReadHalf>,
    writer: &mut OwnedWriteHalf,
    stop: &CancellationToken,
) -> io::Result<()> {
    let (sender, mut notices) = mpsc::channel(NOTICE_QUEUE);
    let work = execute(host, operation, Some(std::process::id()), &sender, stop);
    tokio::pin!(work);
    let mut byte = [0_u8; 1];
    let mut listening = true;
    let end = loop {
        tokio::select! {
            end = &mut work => break end,
            Some(notice) = notices.recv() => {
                // A client that is gone; the operation still ends in order.
                if write_line(writer, &Frame::Notice(notice)).await.is_err() {
                    listening = false;
                    stop.cancel();
                }
            }
            // Nothing more is to come from the client, so whatever comes is its end.
            _ = reader.read(&mut byte), if listening => {
                listening = false;
                stop.cancel();
            }
        }
    };
    while let Ok(notice) = notices.try_recv() {
        write_line(writer, &Frame::Notice(notice)).await?;
    }
    write_line(writer, &end.map_or_else(Frame::Failed, Frame::Done)).await
}

async fn mcp(
    host: Host,
    reader: BufReader<OwnedReadHalf>,
    mut writer: OwnedWriteHalf,
    profile: Profile,
    stop: &CancellationToken,
) -> io::Result<()> {
    write_line(&mut writer, &Frame::Done(Outcome::Mcp)).await?;
    let session = gateway::serve(host, reader, writer, gateway::Options { profile, ..gateway::Options::default() });
    tokio::select! {
        () = stop.cancelled() => {}
        () = session => {}
    }
    Ok(())
}
