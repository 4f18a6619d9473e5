//! Permission requests that wait for a person, and the answers they take.

use plugward_host::{Answer, PendingAsk};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rfc3339;

/// A permission request that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct AskBody {
    /// Id to answer with, `permission_<hex>`.
    pub(crate) request_id: String,
    /// Internal id of the tool.
    pub(crate) tool: String,
    /// The permission.
    pub(crate) permission: String,
    /// Who calls.
    pub(crate) caller: String,
    /// When it was asked, RFC 3339.
    pub(crate) asked_at: String,
    /// Milliseconds it waits at most from now on.
    pub(crate) expires_in_ms: u64,
    /// Why it is asked.
    pub(crate) reason: String,
}

impl From<&PendingAsk> for AskBody {
    fn from(ask: &PendingAsk) -> Self {
        Self {
            request_id: ask.request_id.clone(),
            tool: ask.tool.to_string(),
            permission: ask.permission.clone(),
            caller: ask.caller.clone(),
            asked_at: rfc3339(ask.asked_at),
            expires_in_ms: u64::try_from(ask.expires_in.as_millis()).unwrap_or(u64::MAX),
            reason: ask.reason.clone(),
        }
    }
}

/// A person's answer to a permission request; the words are the seed's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AnswerBody {
    /// This call only.
    AllowOnce,
    /// This tool until the host stops.
    AllowSession,
    /// No.
    Deny,
}

impl From<AnswerBody> for Answer {
    fn from(answer: AnswerBody) -> Self {
        match answer {
            AnswerBody::AllowOnce => Answer::AllowOnce,
            AnswerBody::AllowSession => Answer::AllowSession,
            AnswerBody::Deny => Answer::Deny,
        }
    }
}
