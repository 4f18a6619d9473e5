//! Lines of a plugin's log: the only body that carries what a plugin wrote to stderr.

use plugward_host::LogLine;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rfc3339;

/// One line of a plugin's log, redacted by the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct LogLineBody {
    /// When it arrived, RFC 3339.
    pub(crate) at: String,
    /// `stderr`, `stdout` (outside the protocol), `plugin` (a log message of the protocol) or `host`.
    pub(crate) origin: String,
    /// The text.
    pub(crate) text: String,
}

impl From<&LogLine> for LogLineBody {
    fn from(line: &LogLine) -> Self {
        Self { at: rfc3339(line.at), origin: line.origin.as_str().to_owned(), text: line.text.clone() }
    }
}
