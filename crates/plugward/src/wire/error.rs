//! The error envelope: `{"error":{"code","message","cause","hint","details"}}`.

use std::collections::BTreeMap;

use plugward_host::{CallFailure, HostError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

/// Code for a trace, a request or a path that is not there: things without a code of their own.
pub(crate) const NOT_FOUND_CODE: &str = "RESOURCE_NOT_FOUND";

/// Code for a command line that is wrong.
pub(crate) const USAGE_CODE: &str = "USAGE";

/// A failed operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// What failed.
    pub(crate) error: ErrorDetail,
}

/// What failed, for programs (`code`, `cause`) and for people (`message`, `hint`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ErrorDetail {
    /// Stable code.
    pub(crate) code: String,
    /// One sentence.
    pub(crate) message: String,
    /// Stable word that tells failures under one code apart; failed calls only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<String>,
    /// The one next step that helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// Further facts; `lines` holds further sentences, such as each problem of a manifest.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub(crate) details: BTreeMap<String, Value>,
}

impl ErrorBody {
    /// An error of an edge itself: usage, settings, the control socket.
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        let error = ErrorDetail {
            code: code.to_owned(),
            message: message.into(),
            cause: None,
            hint: None,
            details: BTreeMap::new(),
        };
        Self { error }
    }

    /// A failed call of `tool` (its internal id), with its trace if it has one.
    pub(crate) fn of_call(failure: &CallFailure, tool: &str, trace_id: Option<&str>) -> Self {
        let mut body = Self::new(failure.code().as_str(), failure.message(tool));
        body.error.cause = Some(failure.cause().to_owned());
        if let Some(trace_id) = trace_id {
            body.error.details.insert("trace_id".to_owned(), json!(trace_id));
        }
        match failure {
            CallFailure::ArgumentInvalid { violations } => {
                body.error.details.insert("lines".to_owned(), json!(violations));
            }
            CallFailure::Rejected(error) => {
                body.error.details.insert("rpc_code".to_owned(), json!(error.code));
            }
            _ => {}
        }
        body
    }

    /// Further sentences.
    pub(crate) fn lines(&self) -> Vec<&str> {
        let lines = self.error.details.get("lines").and_then(Value::as_array);
        lines.into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

impl From<&HostError> for ErrorBody {
    fn from(error: &HostError) -> Self {
        let mut body = Self::new(error.code.as_str(), error.message.clone());
        body.error.hint = error.hint.clone();
        if !error.details.is_empty() {
            body.error.details.insert("lines".to_owned(), json!(error.details));
        }
        body
    }
}
