//! The JSON that people and programs see: one shape per thing, the same in `--json`, on the control socket and in the
//! Host API.
//!
//! Owns the bodies and how they are made from the host's views. Refuses behaviour, and anything that must not be seen:
//! values of secrets are masked in here, stderr of plugins is in [`LogLineBody`] only. A field once published keeps its
//! name and meaning; new ones may be added at any time.

mod ask;
mod error;
mod folders;
mod host;
mod log;
mod plugin;
mod review;
mod status;
mod tool;
mod trace;
mod trial;

use std::time::{Duration, SystemTime};

pub(crate) use ask::{AnswerBody, AskBody};
pub(crate) use error::{ErrorBody, NOT_FOUND_CODE, USAGE_CODE};
pub(crate) use folders::{FileProblemBody, FoldersBody};
pub(crate) use host::HostBody;
pub(crate) use log::LogLineBody;
pub(crate) use plugin::{AccessLineBody, NetworkAttemptBody, PluginBody};
pub(crate) use review::{ChangeBody, ReviewBody, ReviewToolBody};
pub(crate) use status::StatusBody;
pub(crate) use tool::ToolBody;
pub(crate) use trace::{SpanBody, SpanPageBody};
pub(crate) use trial::TrialBody;

/// Version of the shapes in `--json` outputs; raised when a field changes its meaning or goes.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// A time as RFC 3339 in UTC with milliseconds.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

/// The store's microseconds since the epoch as RFC 3339; times before the epoch read as the epoch.
pub(crate) fn rfc3339_us(us: i64) -> String {
    rfc3339(SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(us).unwrap_or(0)))
}
