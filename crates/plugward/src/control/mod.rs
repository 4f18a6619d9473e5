//! Operations of the host as the command line needs them, in process or through the socket of a running host.
//!
//! ```text
//! command --> Operation --> execute(host)                         no `plugward serve` runs on this home
//!                      \--> socket --> execute(host of the daemon)  one runs
//! ```
//!
//! Owns the list of operations, their one execution and the socket between two processes of one user. Refuses texts
//! for people (the command line renders outcomes) and rules (the host has them).

mod client;
mod execute;
mod gates;
mod operation;
mod server;
mod socket;

use plugward_host::{ErrorCode, HostError};
use serde::{Deserialize, Serialize};

pub(crate) use client::{Client, ConnectError};
pub(crate) use execute::execute;
pub(crate) use operation::{CallBody, GateReport, InfoBody, Notice, Operation, Outcome};
pub(crate) use server::{ControlServer, Visitors};

use crate::exit::Exit;
use crate::wire::{ErrorBody, USAGE_CODE};

/// Version of the conversation on the socket. Both ends are one program; a mismatch means that the program was
/// replaced while the old one still runs.
pub(crate) const CONTROL_VERSION: u32 = 2;

/// A failed operation with the exit code it leads to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The error as it is shown.
    pub(crate) body: Box<ErrorBody>,
    /// The exit code of a command that ends with it.
    pub(crate) exit: Exit,
}

impl Failure {
    /// A failure of the edge itself.
    pub(crate) fn new(exit: Exit, code: &str, message: impl Into<String>) -> Self {
        Self { body: Box::new(ErrorBody::new(code, message)), exit }
    }

    /// A command or an argument that is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, USAGE_CODE, message)
    }

    /// Something the host has a code for, noticed by the edge.
    pub(crate) fn coded(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::new(Exit::from(code), code.as_str(), message)
    }

    /// Adds what to do next.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.body.error.hint = Some(hint.into());
        self
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        Self { body: Box::new(ErrorBody::from(&error)), exit: Exit::from(error.code) }
    }
}
