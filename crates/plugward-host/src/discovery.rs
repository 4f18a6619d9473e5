//! Reads a plugin's whole tool list: all pages, within limits, without ever looping.
//!
//! Owns paging (requirements 8, 44; B068, N1). Refuses to judge single tools: [`crate::contract`] does.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use plugward_protocol::mcp::{self, ListToolsPage, methods};
use serde_json::value::RawValue;

use crate::raw_object::RawObject;
use crate::session::{RequestError, Session};

/// Pages of one list (the seed's limit). A server that needs more is broken or hostile.
pub(crate) const MAX_LIST_PAGES: usize = 100;

/// Tools of one plugin (the seed's limit; the largest of 48 real servers has 119).
pub(crate) const MAX_TOOLS: usize = 500;

/// Bytes of all definitions together. 500 tools of 16 KiB each, far more than any real list; without it 100 pages of the
/// largest message would be kept and stored.
pub(crate) const MAX_LIST_BYTES: usize = 8 * 1024 * 1024;

/// Why a list could not be read.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum DiscoveryError {
    /// The plugin did not answer in time.
    #[error("`tools/list` did not end within {limit:?} (limit `backend.list_timeout_seconds`)")]
    TimedOut {
        /// The limit over all pages.
        limit: Duration,
    },
    /// The plugin answered with an error.
    #[error("`tools/list` failed with error {code}: {message}")]
    Rejected {
        /// JSON-RPC code.
        code: i64,
        /// The plugin's text.
        message: String,
    },
    /// The answer is not a tool list.
    #[error("`tools/list` answered with an invalid page: {0}")]
    Invalid(String),
    /// The cursors never end.
    #[error("`tools/list` has more than {MAX_LIST_PAGES} pages, or its cursors go in a circle")]
    TooManyPages,
    /// Too many tools.
    #[error("the plugin lists more than {MAX_TOOLS} tools")]
    TooManyTools,
    /// Definitions too long altogether.
    #[error("the tools the plugin lists have more than {MAX_LIST_BYTES} bytes")]
    TooManyBytes,
    /// The plugin went away.
    #[error("{0}")]
    Unavailable(String),
}

/// Reads all pages within `limit` for the whole list (not per page: N1).
pub(crate) async fn list_tools(session: &Session, limit: Duration) -> Result<Vec<Box<RawValue>>, DiscoveryError> {
    let deadline = Instant::now() + limit;
    let mut tools = Vec::new();
    let mut bytes = 0;
    let mut seen = HashSet::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_LIST_PAGES {
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = session.request(methods::TOOLS_LIST, mcp::list_params(cursor.as_deref()), left).await;
        let page = ListToolsPage::parse(&answer.map_err(|error| failure(error, limit))?)
            .map_err(|error| DiscoveryError::Invalid(error.to_string()))?;
        // A server that means "end" by an empty cursor starts over.
        let listed = if cursor.as_deref() == Some("") { names(&tools) } else { HashSet::new() };
        let is_new = |tool: &RawValue| name(tool).is_none_or(|name| !listed.contains(&name));
        let new: Vec<_> = page.tools.into_iter().filter(|tool| is_new(tool)).collect();
        let brought_none = new.is_empty();
        bytes += new.iter().map(|tool| tool.get().len()).sum::<usize>();
        tools.extend(new);
        if tools.len() > MAX_TOOLS {
            return Err(DiscoveryError::TooManyTools);
        }
        if bytes > MAX_LIST_BYTES {
            return Err(DiscoveryError::TooManyBytes);
        }
        let Some(next) = page.next_cursor else { return Ok(tools) };
        if !seen.insert(next.clone()) {
            // Up to 2025-11-25 many servers mean "end" by an empty cursor: it is followed once (B068).
            return if next.is_empty() { Ok(tools) } else { Err(DiscoveryError::TooManyPages) };
        }
        if cursor.as_deref() == Some("") && brought_none {
            return Ok(tools);
        }
        cursor = Some(next);
    }
    Err(DiscoveryError::TooManyPages)
}

fn names(tools: &[Box<RawValue>]) -> HashSet<String> {
    tools.iter().filter_map(|tool| name(tool)).collect()
}

fn name(tool: &RawValue) -> Option<String> {
    RawObject::parse(tool)?.get_str("name")
}

fn failure(error: RequestError, limit: Duration) -> DiscoveryError {
    match error {
        RequestError::TimedOut { .. } => DiscoveryError::TimedOut { limit },
        RequestError::Rejected(error) => DiscoveryError::Rejected { code: error.code, message: error.message },
        RequestError::Invalid(reason) | RequestError::Refused(reason) => DiscoveryError::Invalid(reason),
        RequestError::TooLarge { bytes, limit } => {
            DiscoveryError::Invalid(format!("a page has {bytes} bytes, over the limit of {limit} bytes"))
        }
        RequestError::RequestTooLarge { bytes, limit } => {
            DiscoveryError::Invalid(format!("a cursor makes a request of {bytes} bytes, over the limit of {limit}"))
        }
        RequestError::Unavailable(reason) => DiscoveryError::Unavailable(reason),
        RequestError::InputRequired(_) => DiscoveryError::Invalid("it asks for input".to_owned()),
        RequestError::Cancelled => DiscoveryError::Unavailable("the start was cancelled".to_owned()),
    }
}
