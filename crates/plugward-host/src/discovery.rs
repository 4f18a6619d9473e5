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
    /// The plugin went away.
    #[error("{0}")]
    Unavailable(String),
}

/// Reads all pages within `limit` for the whole list (not per page: N1).
pub(crate) async fn list_tools(session: &Session, limit: Duration) -> Result<Vec<Box<RawValue>>, DiscoveryError> {
    let deadline = Instant::now() + limit;
    let mut tools = Vec::new();
    let mut seen = HashSet::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_LIST_PAGES {
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = session.request(methods::TOOLS_LIST, mcp::list_params(cursor.as_deref()), left).await;
        let page = ListToolsPage::parse(&answer.map_err(|error| failure(error, limit))?)
            .map_err(|error| DiscoveryError::Invalid(error.to_string()))?;
        let new = page.tools.into_iter().filter(|tool| cursor.as_deref() != Some("") || !is_listed(&tools, tool));
        let new: Vec<_> = new.collect();
        let brought_none = new.is_empty();
        tools.extend(new);
        if tools.len() > MAX_TOOLS {
            return Err(DiscoveryError::TooManyTools);
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

/// Whether a tool of this name was listed before: a server that means "end" by an empty cursor starts over.
fn is_listed(listed: &[Box<RawValue>], tool: &RawValue) -> bool {
    let name = |raw: &RawValue| RawObject::parse(raw).and_then(|tool| tool.get_str("name"));
    name(tool).is_some_and(|wanted| listed.iter().any(|other| name(other).as_ref() == Some(&wanted)))
}

fn failure(error: RequestError, limit: Duration) -> DiscoveryError {
    match error {
        RequestError::TimedOut { .. } => DiscoveryError::TimedOut { limit },
        RequestError::Rejected(error) => DiscoveryError::Rejected { code: error.code, message: error.message },
        RequestError::Invalid(reason) => DiscoveryError::Invalid(reason),
        RequestError::TooLarge { bytes, limit } => {
            DiscoveryError::Invalid(format!("a page has {bytes} bytes, over the limit of {limit} bytes"))
        }
        RequestError::RequestTooLarge { bytes, limit } => {
            DiscoveryError::Invalid(format!("a cursor makes a request of {bytes} bytes, over the limit of {limit}"))
        }
        RequestError::Unavailable(reason) => DiscoveryError::Unavailable(reason),
        RequestError::Cancelled => DiscoveryError::Unavailable("the start was cancelled".to_owned()),
    }
}
