//! The MCP payloads a host has to look into, and nothing more of them.
//!
//! Owns method names, error codes, the page of a tool list, the parameters of `tools/call` in both directions, of
//! `notifications/cancelled` and of `notifications/progress`. Tools, arguments, results and unknown fields stay raw.
//! Refuses duplicate members where two readers could act on different values.

use serde_json::value::RawValue;
use thiserror::Error;

use crate::connection::OutboundId;
use crate::id::RequestId;
use crate::lifecycle::empty_object;
use crate::object::{self, ObjectFault};
use crate::wire::json_string;

/// Method names.
pub mod methods {
    /// First request of a legacy client.
    pub const INITIALIZE: &str = "initialize";
    /// Notification that ends the legacy handshake.
    pub const INITIALIZED: &str = "notifications/initialized";
    /// Liveness request, either way.
    pub const PING: &str = "ping";
    /// Notification that abandons a request, either way.
    pub const CANCELLED: &str = "notifications/cancelled";
    /// Notification about a running request, either way.
    pub const PROGRESS: &str = "notifications/progress";
    /// Log line of a server.
    pub const LOG_MESSAGE: &str = "notifications/message";
    /// Sets the level from which on a legacy server logs.
    pub const LOGGING_SET_LEVEL: &str = "logging/setLevel";
    /// Lists tools, by page.
    pub const TOOLS_LIST: &str = "tools/list";
    /// Runs a tool.
    pub const TOOLS_CALL: &str = "tools/call";
    /// Notification that the tool list may differ now.
    pub const TOOLS_LIST_CHANGED: &str = "notifications/tools/list_changed";
    /// Server request: which folders the client works in.
    pub const ROOTS_LIST: &str = "roots/list";
    /// Server request: run a prompt through the client's model.
    pub const SAMPLING_CREATE_MESSAGE: &str = "sampling/createMessage";
    /// Server request: ask the person.
    pub const ELICITATION_CREATE: &str = "elicitation/create";

    /// Requests that a legacy client may send once the handshake is done; before it they are refused as too early
    /// instead of unknown.
    pub const AFTER_HANDSHAKE: [&str; 13] = [
        TOOLS_LIST,
        TOOLS_CALL,
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        LOGGING_SET_LEVEL,
        "tasks/get",
        "tasks/list",
    ];

    /// The client capability a server request needs.
    #[must_use]
    pub fn needed_client_capability(method: &str) -> Option<&'static str> {
        match method {
            ROOTS_LIST => Some("roots"),
            SAMPLING_CREATE_MESSAGE => Some("sampling"),
            ELICITATION_CREATE => Some("elicitation"),
            _ => None,
        }
    }
}

/// JSON-RPC error codes.
pub mod codes {
    /// The line is not JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// The JSON is not a message, or not one allowed now.
    pub const INVALID_REQUEST: i64 = -32600;
    /// Nobody implements the method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters are wrong; also an unknown tool.
    pub const INVALID_PARAMS: i64 = -32602;
    /// Our own failure.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// Legacy revisions: there is no such resource. The stateless ones say it with [`INVALID_PARAMS`].
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// Stateless revisions over HTTP: headers and body say different things.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// Stateless revisions: the request needs a capability that its client did not declare.
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// Stateless revisions: the request is written in a revision that is not spoken.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
}

/// What is wrong with a payload. Whose fault it is depends on the direction.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PayloadFault {
    /// The payload is missing or no object.
    #[error("{what} is not an object")]
    NotAnObject {
        /// What was read, e.g. `params`.
        what: &'static str,
    },
    /// A member stands twice.
    #[error("{what} has the member `{name}` more than once")]
    Duplicate {
        /// What was read.
        what: &'static str,
        /// The member.
        name: &'static str,
    },
    /// A required member is missing.
    #[error("{what} has no member `{name}`")]
    Missing {
        /// What was read.
        what: &'static str,
        /// The member.
        name: &'static str,
    },
    /// A member is of the wrong kind.
    #[error("`{name}` of {what} is not {expected}")]
    WrongKind {
        /// What was read.
        what: &'static str,
        /// The member.
        name: &'static str,
        /// The kind it has to be, with its article.
        expected: &'static str,
    },
}

/// One page of a tool list. Items may be anything: one bad tool is the host's to judge.
#[derive(Clone, Debug)]
pub struct ListToolsPage {
    /// The items of `tools`, untouched.
    pub tools: Vec<Box<RawValue>>,
    /// Where the next page starts. The empty string is a cursor; `null` means the list ends here.
    pub next_cursor: Option<String>,
}

impl ListToolsPage {
    /// Reads the result of `tools/list`.
    ///
    /// # Errors
    /// [`PayloadFault`] when the result is no object, `tools` no array or `nextCursor` no string.
    pub fn parse(result: &RawValue) -> Result<Self, PayloadFault> {
        let what = "tool list";
        let [tools, cursor] = read(what, result, &["tools", "nextCursor"])?;
        let tools = tools.ok_or(PayloadFault::Missing { what, name: "tools" })?;
        // The number is bounded by the size of the message the result came in.
        let tools = serde_json::from_str::<Vec<Box<RawValue>>>(tools.get()).map_err(|_| PayloadFault::WrongKind {
            what,
            name: "tools",
            expected: "an array",
        })?;
        let next_cursor = optional_string(what, "nextCursor", cursor)?;
        Ok(ListToolsPage { tools, next_cursor })
    }
}

/// Parameters for one page of a tool list; none for the first page.
#[must_use]
pub fn list_params(cursor: Option<&str>) -> Option<Box<RawValue>> {
    cursor.and_then(|cursor| RawValue::from_string(format!("{{\"cursor\":{}}}", json_string(cursor))).ok())
}

/// The cursor of a list request that came in; absent params, absent cursor and `null` all mean the first page.
///
/// # Errors
/// [`PayloadFault`] when params are no object or the cursor no string.
pub fn list_cursor(params: Option<&RawValue>) -> Result<Option<String>, PayloadFault> {
    let Some(params) = params else { return Ok(None) };
    let [cursor] = read("params", params, &["cursor"])?;
    optional_string("params", "cursor", cursor)
}

/// What a request is about, for methods that name it: a tool, a prompt, a resource.
#[must_use]
pub fn target_name(method: &str, params: Option<&RawValue>) -> Option<String> {
    let key: [&'static str; 1] = match method {
        methods::TOOLS_CALL | "prompts/get" => ["name"],
        "resources/read" => ["uri"],
        _ => return None,
    };
    let [name] = object::members(params?.get(), &key).ok()?.values;
    name.and_then(object::as_string)
}

/// Parameters of `tools/call` to send.
#[derive(Clone, Copy, Debug)]
pub struct CallParamsOut<'a> {
    /// The tool's own name at that server.
    pub name: &'a str,
    /// Arguments, an object, sent as they are.
    pub arguments: Option<&'a RawValue>,
    /// The caller's `_meta`, an object; its `progressToken` is replaced, everything else kept.
    pub meta: Option<&'a RawValue>,
    /// Asks for progress of this request; the token is the id itself.
    pub progress: Option<OutboundId>,
}

impl CallParamsOut<'_> {
    /// The JSON text.
    ///
    /// # Errors
    /// [`PayloadFault`] when arguments or `_meta` are no object.
    pub fn to_raw(&self) -> Result<Box<RawValue>, PayloadFault> {
        let what = "params";
        if self.arguments.is_some_and(|arguments| !object::is_object(arguments)) {
            return Err(PayloadFault::WrongKind { what, name: "arguments", expected: "an object" });
        }
        let mut text = format!("{{\"name\":{}", json_string(self.name));
        if let Some(arguments) = self.arguments {
            text.push_str(",\"arguments\":");
            text.push_str(arguments.get());
        }
        if let Some(meta) = merged_meta(self.meta, self.progress)? {
            text.push_str(",\"_meta\":");
            text.push_str(&meta);
        }
        text.push('}');
        RawValue::from_string(text).map_err(|_| PayloadFault::NotAnObject { what })
    }
}

/// `_meta` with our progress token in place of the caller's: tokens are per connection and must never leak across.
fn merged_meta(meta: Option<&RawValue>, progress: Option<OutboundId>) -> Result<Option<String>, PayloadFault> {
    let wrong = PayloadFault::WrongKind { what: "params", name: "_meta", expected: "an object" };
    let mut parts = match meta {
        None => Vec::new(),
        Some(meta) => object::entries(meta.get())
            .map_err(|_| wrong)?
            .into_iter()
            .filter(|(name, _)| name != "progressToken")
            .map(|(name, value)| format!("{}:{}", json_string(&name), value.get()))
            .collect(),
    };
    if let Some(id) = progress {
        parts.push(format!("\"progressToken\":{id}"));
    }
    Ok((meta.is_some() || progress.is_some()).then(|| format!("{{{}}}", parts.join(","))))
}

/// Parameters of a `tools/call` that came in.
#[derive(Clone, Debug)]
pub struct CallParamsIn {
    /// The name the caller used.
    pub name: String,
    /// Arguments, an object; `{}` when absent or `null`.
    pub arguments: Box<RawValue>,
    /// The caller's `_meta`.
    pub meta: Option<Box<RawValue>>,
    /// Where the caller wants progress reported, if it does.
    pub progress_token: Option<RequestId>,
}

impl CallParamsIn {
    /// Reads the parameters.
    ///
    /// # Errors
    /// [`PayloadFault`], to be answered with -32602: no object, no name, wrong kinds, or a name that stands twice.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, PayloadFault> {
        let what = "params";
        let params = params.ok_or(PayloadFault::NotAnObject { what })?;
        let [name, arguments, meta] = read(what, params, &["name", "arguments", "_meta"])?;
        let name = name.ok_or(PayloadFault::Missing { what, name: "name" })?;
        let name =
            object::as_string(name).ok_or(PayloadFault::WrongKind { what, name: "name", expected: "a string" })?;
        let arguments = optional_object(what, "arguments", arguments)?.unwrap_or_else(empty_object);
        let meta = optional_object(what, "_meta", meta)?;
        let progress_token = match &meta {
            Some(meta) => {
                let [token] = read("_meta", meta, &["progressToken"])?;
                optional_token("_meta", token)?
            }
            None => None,
        };
        Ok(CallParamsIn { name, arguments, meta, progress_token })
    }
}

/// Parameters of `notifications/cancelled`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelledParams {
    /// Id of the request that is given up, in the sender's name space.
    pub request_id: RequestId,
    /// Why, for people.
    pub reason: Option<String>,
}

impl CancelledParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// [`PayloadFault`]; a malformed cancellation is ignored by whoever reads it.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, PayloadFault> {
        let what = "params";
        let params = params.ok_or(PayloadFault::NotAnObject { what })?;
        let [id, reason] = read(what, params, &["requestId", "reason"])?;
        let request_id = id.and_then(|id| RequestId::from_json(id.get()).ok()).ok_or(PayloadFault::WrongKind {
            what,
            name: "requestId",
            expected: "an integer or a string",
        })?;
        Ok(CancelledParams { request_id, reason: reason.and_then(object::as_string) })
    }
}

/// The part of `notifications/progress` that says which request it is about.
///
/// # Errors
/// [`PayloadFault`] when params are no object or the token neither an integer nor a string.
pub fn progress_token(params: Option<&RawValue>) -> Result<RequestId, PayloadFault> {
    let what = "params";
    let params = params.ok_or(PayloadFault::NotAnObject { what })?;
    let [token] = read(what, params, &["progressToken"])?;
    optional_token(what, token)?.ok_or(PayloadFault::Missing { what, name: "progressToken" })
}

/// Progress parameters under another token: how a gateway hands progress on to its own caller.
///
/// # Errors
/// [`PayloadFault`] when params are no object.
pub fn progress_for(params: &RawValue, token: &RequestId) -> Result<Box<RawValue>, PayloadFault> {
    let fault = PayloadFault::NotAnObject { what: "params" };
    let entries = object::entries(params.get()).map_err(|_| fault.clone())?;
    let mut text = format!("{{\"progressToken\":{token}");
    for (name, value) in entries.iter().filter(|(name, _)| name != "progressToken") {
        text.push(',');
        text.push_str(&json_string(name));
        text.push(':');
        text.push_str(value.get());
    }
    text.push('}');
    RawValue::from_string(text).map_err(|_| fault)
}

fn read<'a, const N: usize>(
    what: &'static str,
    raw: &'a RawValue,
    names: &[&'static str; N],
) -> Result<[Option<&'a RawValue>; N], PayloadFault> {
    let members = object::members(raw.get(), names).map_err(|fault| match fault {
        ObjectFault::NotJson { .. } | ObjectFault::NotAnObject => PayloadFault::NotAnObject { what },
    })?;
    match members.duplicate() {
        Some(name) => Err(PayloadFault::Duplicate { what, name }),
        None => Ok(members.values),
    }
}

fn optional_string(
    what: &'static str,
    name: &'static str,
    raw: Option<&RawValue>,
) -> Result<Option<String>, PayloadFault> {
    match raw.filter(|raw| !object::is_null(raw)) {
        None => Ok(None),
        Some(raw) => {
            object::as_string(raw).map(Some).ok_or(PayloadFault::WrongKind { what, name, expected: "a string" })
        }
    }
}

fn optional_object(
    what: &'static str,
    name: &'static str,
    raw: Option<&RawValue>,
) -> Result<Option<Box<RawValue>>, PayloadFault> {
    match raw.filter(|raw| !object::is_null(raw)) {
        None => Ok(None),
        Some(raw) if object::is_object(raw) => Ok(Some(raw.to_owned())),
        Some(_) => Err(PayloadFault::WrongKind { what, name, expected: "an object" }),
    }
}

fn optional_token(what: &'static str, raw: Option<&RawValue>) -> Result<Option<RequestId>, PayloadFault> {
    match raw.filter(|raw| !object::is_null(raw)) {
        None => Ok(None),
        Some(raw) => RequestId::from_json(raw.get()).map(Some).map_err(|_| PayloadFault::WrongKind {
            what,
            name: "progressToken",
            expected: "an integer or a string",
        }),
    }
}
