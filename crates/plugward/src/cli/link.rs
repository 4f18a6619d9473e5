//! Where a command acts: on the running host, or on the home itself.
//!
//! Owns the choice, which nobody has to make: a host that answers on its socket is used, else the home is opened. Refuses
//! to start a host that stays.

use std::time::{Duration, Instant};

use plugward_host::{ErrorCode, Host, HostError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::control::{Client, ConnectError, Failure, Notice, Operation, Outcome, execute};
use crate::settings::Settings;

/// How long a command waits for a home that another command has for a moment. A serving process that has just begun
/// opens its socket within this time.
const HOME_WAIT: Duration = Duration::from_secs(3);

/// How long a process that is to serve waits: a client that is restarted starts it while the one before still ends its
/// plugins.
pub(super) const SERVE_WAIT: Duration = Duration::from_secs(30);

/// Pause between two looks.
const HOME_POLL: Duration = Duration::from_millis(40);

/// Notices nobody reads.
const NO_NOTICES: usize = 1;

/// Where a command acts.
pub(super) enum Link {
    /// On the home, with a host that ends with the command.
    InProcess(Host),
    /// On the running host; each operation has a connection of its own.
    Running(Box<Settings>),
}

impl Link {
    /// Finds the running host or opens the home.
    pub(super) async fn open(settings: &Settings) -> Result<Self, Failure> {
        match find(settings, HOME_WAIT).await? {
            Found::Running(_) => Ok(Self::Running(Box::new(settings.clone()))),
            Found::Home(host) => Ok(Self::InProcess(host)),
        }
    }

    /// Whether a host runs that outlives the command.
    pub(super) fn is_running(&self) -> bool {
        matches!(self, Self::Running(_))
    }

    /// Runs an operation of which only the end matters.
    pub(super) async fn run(&self, operation: Operation) -> Result<Outcome, Failure> {
        // Without a reader a notice is dropped at once instead of waiting for one.
        let (notices, _) = mpsc::channel(NO_NOTICES);
        self.watch(operation, &notices, &CancellationToken::new()).await
    }

    /// Runs an operation that tells things meanwhile, or that `stop` has to end.
    pub(super) async fn watch(
        &self,
        operation: Operation,
        notices: &mpsc::Sender<Notice>,
        stop: &CancellationToken,
    ) -> Result<Outcome, Failure> {
        match self {
            Self::InProcess(host) => execute(host, operation, None, notices, stop).await,
            Self::Running(settings) => match Client::connect(&settings.home).await {
                Ok(client) => client.run(operation, notices, stop).await,
                Err(ConnectError::Failed(failure)) => Err(failure),
                Err(ConnectError::NobodyThere) => {
                    Err(Failure::coded(ErrorCode::HostStopping, "the running `plugward serve` ended meanwhile"))
                }
            },
        }
    }

    /// Ends what was started for this command.
    pub(super) async fn close(self) {
        if let Self::InProcess(host) = self {
            host.shutdown().await;
        }
    }
}

/// What is there.
pub(super) enum Found {
    /// A host that answers.
    Running(Client),
    /// The home, opened.
    Home(Host),
}

/// Finds the running host or opens the home; waits up to `patience` for a home that is in use.
pub(super) async fn find(settings: &Settings, patience: Duration) -> Result<Found, Failure> {
    let deadline = Instant::now() + patience;
    let mut told = false;
    loop {
        match Client::connect(&settings.home).await {
            Ok(client) => return Ok(Found::Running(client)),
            Err(ConnectError::Failed(failure)) => return Err(failure),
            Err(ConnectError::NobodyThere) => {}
        }
        let config = settings.host_config().map_err(HostError::internal)?;
        match Host::open(config).await {
            Ok(host) => {
                if let Some(folders) = &settings.folders
                    && let Err(error) = host.load_folders(folders).await
                {
                    tracing::warn!(code = %error.code, "plugin files were not loaded: {}", error.message);
                }
                return Ok(Found::Home(host));
            }
            Err(error) if error.code == ErrorCode::HomeInUse && Instant::now() < deadline => {
                if !std::mem::replace(&mut told, true) {
                    tracing::info!("{}; waiting for up to {} s", error.message, patience.as_secs());
                }
                tokio::time::sleep(HOME_POLL).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
