//! The client end of the control socket.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::operation::{Notice, Operation, Outcome};
use super::socket::{ANSWER_BYTES_MAX, Frame, Request, SocketAddress, is_same_user, read_line, write_line};
use super::{CONTROL_VERSION, Failure};
use crate::exit::Exit;
use crate::profile::Profile;
use plugward_host::{ErrorCode, HostError};

/// A serving process says hello at once; one that does not within this time hangs.
const HELLO_LIMIT: Duration = Duration::from_secs(5);

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// Nobody serves this home.
    NobodyThere,
    /// Somebody does, and it does not work.
    Failed(Failure),
}

/// A serving process that said hello.
#[derive(Debug)]
pub(crate) struct Client {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    pid: u32,
}

impl Client {
    /// Connects to the process that serves `home`.
    pub(crate) async fn connect(home: &Path) -> Result<Self, ConnectError> {
        Self::greet(Self::reach(home).await?).await
    }

    /// The process that serves `home`, of whatever version, as the system knows it.
    pub(crate) async fn process(home: &Path) -> Result<u32, ConnectError> {
        let stream = Self::reach(home).await?;
        let peer = stream.peer_cred().map_err(|error| ConnectError::Failed(broken(&error)))?;
        let unknown = || ConnectError::Failed(HostError::internal("the process behind the control socket").into());
        peer.pid().and_then(|pid| u32::try_from(pid).ok()).ok_or_else(unknown)
    }

    /// A connection to a process of the same user.
    async fn reach(home: &Path) -> Result<UnixStream, ConnectError> {
        let nobody = |error: &io::Error| {
            matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::NotADirectory
            )
        };
        let address = match SocketAddress::of(home) {
            Ok(address) => address,
            Err(error) if nobody(&error) => return Err(ConnectError::NobodyThere),
            Err(error) => return Err(ConnectError::Failed(broken(&error))),
        };
        let stream = match UnixStream::connect(address.path()).await {
            Ok(stream) => stream,
            Err(error) if nobody(&error) => return Err(ConnectError::NobodyThere),
            Err(error) => return Err(ConnectError::Failed(broken(&error))),
        };
        if !is_same_user(&stream).map_err(|error| ConnectError::Failed(broken(&error)))? {
            let message = "control socket of the home belongs to a process of another user";
            return Err(ConnectError::Failed(Failure::coded(ErrorCode::HomeUnusable, message)));
        }
        Ok(stream)
    }

    async fn greet(stream: UnixStream) -> Result<Self, ConnectError> {
        let (reader, writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        let hello = tokio::time::timeout(HELLO_LIMIT, read_line(&mut reader, ANSWER_BYTES_MAX)).await;
        let silent = || {
            Failure::coded(ErrorCode::HomeInUse, "the running `plugward serve` does not answer on its control socket")
                .with_hint("end it with `plugward stop`")
        };
        let failure = match hello {
            Ok(Ok(Some(Frame::Hello { control_version: CONTROL_VERSION, pid, .. }))) => {
                return Ok(Self { reader, writer, pid });
            }
            Ok(Ok(Some(Frame::Hello { version, pid, .. }))) => {
                let message = format!("the running `plugward serve` (process {pid}) has the other version {version}");
                Failure::coded(ErrorCode::HomeInUse, message)
                    .with_hint("stop it with `plugward stop`, and start it again")
            }
            Ok(Ok(Some(Frame::Failed(failure)))) => failure,
            // It was about to end when we came.
            Ok(Ok(None)) => return Err(ConnectError::NobodyThere),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => return Err(ConnectError::NobodyThere),
            Ok(Err(error)) => broken(&error),
            Ok(Ok(Some(_))) | Err(_) => silent(),
        };
        Err(ConnectError::Failed(failure))
    }

    /// Process id of the other side, as it says.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Runs one operation. Dropping the future, or `stop`, ends it on the other side as well.
    pub(crate) async fn run(
        self,
        operation: Operation,
        notices: &mpsc::Sender<Notice>,
        stop: &CancellationToken,
    ) -> Result<Outcome, Failure> {
        let Self { mut reader, mut writer, .. } = self;
        let request = Request { control_version: CONTROL_VERSION, operation };
        write_line(&mut writer, &request).await.map_err(|error| broken(&error))?;
        let mut stopping = false;
        loop {
            // Kept across the stop: what was read of a line would be lost with it.
            let mut line = std::pin::pin!(read_line(&mut reader, ANSWER_BYTES_MAX));
            let frame = tokio::select! {
                frame = &mut line => frame,
                () = stop.cancelled(), if !stopping => {
                    // The end of our side is the sign to stop; the answer still comes.
                    stopping = true;
                    let _ = writer.shutdown().await;
                    line.await
                }
            };
            match frame.map_err(|error| broken(&error))? {
                Some(Frame::Notice(notice)) => {
                    let _ = notices.send(notice).await;
                }
                Some(Frame::Done(outcome)) => return Ok(outcome),
                Some(Frame::Failed(failure)) => return Err(failure),
                Some(Frame::Hello { .. }) => return Err(HostError::internal("a second hello").into()),
                None if stopping => return Ok(Outcome::Done),
                None => {
                    return Err(Failure::coded(
                        ErrorCode::HostStopping,
                        "the running `plugward serve` ended meanwhile",
                    ));
                }
            }
        }
    }

    /// Turns the connection into an MCP stream.
    pub(crate) async fn into_mcp(
        mut self,
        profile: Profile,
    ) -> Result<(BufReader<OwnedReadHalf>, OwnedWriteHalf), Failure> {
        let request =
            Request { control_version: CONTROL_VERSION, operation: Operation::Mcp { profile: Box::new(profile) } };
        // It ended between its hello and this: nothing was said yet, so that another one can be asked.
        let ended = || Failure::coded(ErrorCode::HostStopping, "the running `plugward serve` ended meanwhile");
        let lost = |error: io::Error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ended(),
            _ => broken(&error),
        };
        write_line(&mut self.writer, &request).await.map_err(lost)?;
        match read_line(&mut self.reader, ANSWER_BYTES_MAX).await.map_err(lost)? {
            Some(Frame::Done(Outcome::Mcp)) => Ok((self.reader, self.writer)),
            Some(Frame::Failed(failure)) => Err(failure),
            None => Err(ended()),
            Some(_) => Err(HostError::internal("opening an MCP session").into()),
        }
    }
}

fn broken(error: &io::Error) -> Failure {
    let message = format!("conversation with the running `plugward serve` failed: {error}");
    Failure::new(Exit::Failure, ErrorCode::Internal.as_str(), message)
}
