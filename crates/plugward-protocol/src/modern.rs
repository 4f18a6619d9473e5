//! The stateless revisions (2026-07-28 and later): what each request says about itself, and what each result carries.
//!
//! Owns the metadata of requests with its errors, the members that results have beside their own, and the filter of
//! `subscriptions/listen`. Refuses to keep anything between two requests: a client says everything each time.
//!
//! A request belongs to these revisions when its `_meta` names a protocol version; everything else is the business of
//! [`crate::lifecycle`].

pub mod client;

use serde_json::value::RawValue;

use crate::id::RequestId;
use crate::lifecycle::{Implementation, ProtocolVersion, declared};
use crate::mcp::codes;
use crate::message::RpcError;
use crate::object;
use crate::wire::json_string;

/// Members of `_meta` with a meaning in the protocol.
pub mod meta_keys {
    /// Of every request: the revision it is written in.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// Of every request: what its client can do.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Of a request: who the client says it is.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// Of a request: log messages from this level on are wanted with it.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Of a result: who the server says it is.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// Of a notification: the `subscriptions/listen` request it belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

    /// What one client says to one server; a gateway says its own to the next.
    pub const OF_THE_HOP: [&str; 6] =
        [PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, SERVER_INFO, SUBSCRIPTION_ID];
}

/// Methods that only these revisions have.
pub mod methods {
    /// What a server can do.
    pub const DISCOVER: &str = "server/discover";
    /// Opens a stream of notices.
    pub const LISTEN: &str = "subscriptions/listen";
    /// Notification: the stream is open.
    pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
}

/// Revisions that begin without a handshake, newest first.
pub const VERSIONS: [ProtocolVersion; 1] = [ProtocolVersion::V2026_07_28];

/// Longest version that an error repeats, in bytes. Real ones have ten.
const MAX_SHOWN_VERSION_BYTES: usize = 64;

/// Resources one stream may be about. Editors watch what is open; each costs a text of the client's choosing.
pub const MAX_RESOURCE_SUBSCRIPTIONS: usize = 256;

/// How grave a log message is, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the levels of syslog, by their names")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    /// All of them, least first.
    pub const ALL: [LogLevel; 8] = [
        LogLevel::Debug,
        LogLevel::Info,
        LogLevel::Notice,
        LogLevel::Warning,
        LogLevel::Error,
        LogLevel::Critical,
        LogLevel::Alert,
        LogLevel::Emergency,
    ];

    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Notice => "notice",
            LogLevel::Warning => "warning",
            LogLevel::Error => "error",
            LogLevel::Critical => "critical",
            LogLevel::Alert => "alert",
            LogLevel::Emergency => "emergency",
        }
    }

    /// The level of that name.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == word)
    }
}

/// What a request says about itself.
#[derive(Clone, Debug)]
pub struct RequestMeta {
    /// The revision it is written in, one of [`VERSIONS`].
    pub version: ProtocolVersion,
    /// Who the client says it is.
    pub client: Option<Implementation>,
    /// What it can do, an object. Nothing else may be asked of it in answer to this request.
    pub capabilities: Box<RawValue>,
    /// Log messages from this level on are wanted; none at all without it.
    pub log_level: Option<LogLevel>,
}

impl RequestMeta {
    /// Reads the metadata out of a request's parameters.
    ///
    /// # Errors
    /// The answer to give: -32602 when a member is missing or wrong, -32022 for a revision that is not one of
    /// [`VERSIONS`].
    pub fn parse(params: Option<&RawValue>) -> Result<Self, RpcError> {
        const NAMES: [&str; 4] =
            [meta_keys::PROTOCOL_VERSION, meta_keys::CLIENT_CAPABILITIES, meta_keys::CLIENT_INFO, meta_keys::LOG_LEVEL];
        if params.is_some_and(has_two_metas) {
            return Err(invalid("params have the member `_meta` more than once"));
        }
        let meta = params.and_then(meta_of).ok_or_else(|| invalid("`_meta` is missing or not an object"))?;
        let members =
            object::members(meta.get(), &NAMES).map_err(|_| invalid("`_meta` is missing or not an object"))?;
        if let Some(name) = members.duplicate() {
            return Err(invalid(format!("`_meta` has the member `{name}` more than once")));
        }
        let [version, capabilities, client, log_level] = members.values;
        let version = version.ok_or_else(|| missing(meta_keys::PROTOCOL_VERSION))?;
        let version = object::as_string(version)
            .ok_or_else(|| invalid(format!("`{}` is not a string", meta_keys::PROTOCOL_VERSION)))?;
        let capabilities = capabilities.ok_or_else(|| missing(meta_keys::CLIENT_CAPABILITIES))?;
        if !object::is_object(capabilities) {
            return Err(invalid(format!("`{}` is not an object", meta_keys::CLIENT_CAPABILITIES)));
        }
        let version = VERSIONS
            .into_iter()
            .find(|known| known.as_str() == version)
            .ok_or_else(|| unsupported_version(&version))?;
        let log_level = match log_level.filter(|raw| !object::is_null(raw)) {
            None => None,
            Some(raw) => Some(
                object::as_string(raw)
                    .and_then(|word| LogLevel::parse(&word))
                    .ok_or_else(|| invalid(format!("`{}` is not a level", meta_keys::LOG_LEVEL)))?,
            ),
        };
        let client = Implementation::from_raw(client);
        Ok(RequestMeta { version, client, capabilities: capabilities.to_owned(), log_level })
    }

    /// Whether the client declared the capability. `null` and `false` do not declare it.
    #[must_use]
    pub fn has_capability(&self, name: &str) -> bool {
        declared(&self.capabilities).iter().any(|declared| declared == name)
    }
}

/// The protocol version that parameters name in their `_meta`, as sent: what makes a request one of these revisions.
/// `Some(None)` when something is there that is no string.
#[must_use]
pub fn named_version(params: Option<&RawValue>) -> Option<Option<String>> {
    let meta = meta_of(params?)?;
    let members = object::members(meta.get(), &[meta_keys::PROTOCOL_VERSION]).ok()?;
    let [version] = members.values;
    version.map(object::as_string)
}

/// The answer to a revision we do not speak.
#[must_use]
pub fn unsupported_version(requested: &str) -> RpcError {
    let shown: String = requested.chars().take(MAX_SHOWN_VERSION_BYTES).collect();
    let supported: Vec<String> = VERSIONS.iter().map(|version| json_string(version.as_str())).collect();
    let data = format!("{{\"supported\":[{}],\"requested\":{}}}", supported.join(","), json_string(&shown));
    RpcError {
        code: codes::UNSUPPORTED_VERSION,
        message: "protocol version is not supported".to_owned(),
        data: RawValue::from_string(data).ok(),
    }
}

/// The answer to a request that cannot be served to a client without a capability.
#[must_use]
pub fn missing_capability(name: &str) -> RpcError {
    let data = format!("{{\"requiredCapabilities\":{{{}:{{}}}}}}", json_string(name));
    RpcError {
        code: codes::MISSING_CAPABILITY,
        message: format!("client did not declare the capability `{name}`, which this request needs"),
        data: RawValue::from_string(data).ok(),
    }
}

/// What a request brings back for a question that its last result was: answers, and the text that came with it.
///
/// # Errors
/// The answer to give, -32602, when one of them is of the wrong kind or stands twice.
#[allow(clippy::type_complexity, reason = "two members of one request")]
pub fn inputs_of(params: Option<&RawValue>) -> Result<(Option<Box<RawValue>>, Option<Box<RawValue>>), RpcError> {
    let Some(params) = params else { return Ok((None, None)) };
    let members = object::members(params.get(), &["inputResponses", "requestState"])
        .map_err(|_| invalid("params are not an object"))?;
    if let Some(name) = members.duplicate() {
        return Err(invalid(format!("params have the member `{name}` more than once")));
    }
    let [responses, state] = members.values;
    if responses.is_some_and(|raw| !object::is_object(raw)) {
        return Err(invalid("`inputResponses` is not an object"));
    }
    if state.is_some_and(|raw| object::as_string(raw).is_none()) {
        return Err(invalid("`requestState` is not a string"));
    }
    Ok((responses.map(ToOwned::to_owned), state.map(ToOwned::to_owned)))
}

/// Who may keep a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheScope {
    /// Whoever sees it.
    Public,
    /// The caller it was made for.
    Private,
}

/// How long a result may be kept, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caching {
    /// Milliseconds; 0 means that it may be out of date at once.
    pub ttl_ms: u64,
    /// By whom.
    pub scope: CacheScope,
}

/// `result` as a complete one of these revisions: with `resultType` unless it has one, our name in its `_meta`, and its
/// cache hints. Everything else stays, in its order.
#[must_use]
pub fn complete(result: &RawValue, server: &Implementation, caching: Option<Caching>) -> Box<RawValue> {
    let entries = object::entries(result.get()).unwrap_or_default();
    // A question is nothing to keep (CH-01).
    let caching = caching.filter(|_| matches!(client::result_kind(result), Ok(client::ResultKind::Complete)));
    let mut text = String::with_capacity(result.get().len() + 256);
    text.push('{');
    if !entries.iter().any(|(name, _)| name == "resultType") {
        text.push_str("\"resultType\":\"complete\",");
    }
    let mut meta = None;
    for (name, value) in &entries {
        match name.as_str() {
            "_meta" => meta = Some(*value),
            "ttlMs" | "cacheScope" if caching.is_some() => {}
            _ => push_member(&mut text, name, value.get()),
        }
    }
    if let Some(Caching { ttl_ms, scope }) = caching {
        let scope = match scope {
            CacheScope::Public => "public",
            CacheScope::Private => "private",
        };
        text.push_str(&format!("\"ttlMs\":{ttl_ms},\"cacheScope\":\"{scope}\","));
    }
    text.push_str("\"_meta\":{");
    for (name, value) in meta.map(|meta| object::entries(meta.get()).unwrap_or_default()).unwrap_or_default() {
        if name != meta_keys::SERVER_INFO {
            push_member(&mut text, &name, value.get());
        }
    }
    text.push_str(&format!("{}:{}}}}}", json_string(meta_keys::SERVER_INFO), server.to_json()));
    raw(text)
}

/// `_meta` without what its sender said to us alone; `None` when nothing is left.
#[must_use]
pub fn without_hop(meta: &RawValue) -> Option<Box<RawValue>> {
    let entries = object::entries(meta.get()).ok()?;
    let mut text = String::from("{");
    for (name, value) in entries.iter().filter(|(name, _)| !meta_keys::OF_THE_HOP.contains(&name.as_str())) {
        push_member(&mut text, name, value.get());
    }
    if text.len() == 1 {
        return None;
    }
    text.pop();
    text.push('}');
    Some(raw(text))
}

/// Which notices a stream is to carry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenFilter {
    /// That tools changed.
    pub tools: bool,
    /// That prompts changed.
    pub prompts: bool,
    /// That the list of resources changed.
    pub resources: bool,
    /// That these resources were updated, by URI.
    pub updates: Vec<String>,
}

impl ListenFilter {
    /// Reads the parameters of `subscriptions/listen`.
    ///
    /// # Errors
    /// The answer to give, -32602.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, RpcError> {
        const NAMES: [&str; 4] =
            ["toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions"];
        let not_an_object = || invalid("`notifications` is missing or not an object");
        let params = params.ok_or_else(not_an_object)?;
        let members = object::members(params.get(), &["notifications"]).map_err(|_| not_an_object())?;
        let [filter] = members.values;
        let filter = filter.filter(|raw| object::is_object(raw)).ok_or_else(not_an_object)?;
        let members = object::members(filter.get(), &NAMES).map_err(|_| not_an_object())?;
        if let Some(name) = members.duplicate() {
            return Err(invalid(format!("`notifications` has the member `{name}` more than once")));
        }
        let flag = |slot: usize| match members.values[slot].map(RawValue::get) {
            None | Some("null" | "false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(invalid(format!("`{}` is neither true nor false", NAMES[slot]))),
        };
        let updates = match members.values[3].filter(|raw| !object::is_null(raw)) {
            None => Vec::new(),
            Some(raw) => serde_json::from_str::<Vec<String>>(raw.get())
                .map_err(|_| invalid("`resourceSubscriptions` is not a list of strings"))?,
        };
        if updates.len() > MAX_RESOURCE_SUBSCRIPTIONS {
            let message = format!("`resourceSubscriptions` names more than {MAX_RESOURCE_SUBSCRIPTIONS} resources");
            return Err(invalid(message));
        }
        Ok(ListenFilter { tools: flag(0)?, prompts: flag(1)?, resources: flag(2)?, updates })
    }

    /// Parameters of `subscriptions/listen` that ask for this.
    #[must_use]
    pub fn to_params(&self) -> Box<RawValue> {
        raw(format!("{{\"notifications\":{}}}", self.to_json()))
    }

    fn to_json(&self) -> String {
        let flags = [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ];
        let mut parts: Vec<String> =
            flags.iter().filter(|(_, wanted)| *wanted).map(|(name, _)| format!("\"{name}\":true")).collect();
        if !self.updates.is_empty() {
            let uris: Vec<String> = self.updates.iter().map(|uri| json_string(uri)).collect();
            parts.push(format!("\"resourceSubscriptions\":[{}]", uris.join(",")));
        }
        format!("{{{}}}", parts.join(","))
    }
}

/// Parameters of the notification that opens stream `id`, which will carry what `honoured` names.
#[must_use]
pub fn acknowledged(id: &RequestId, honoured: &ListenFilter) -> Box<RawValue> {
    raw(format!("{{\"_meta\":{{{}}},\"notifications\":{}}}", subscription(id), honoured.to_json()))
}

/// Parameters of a notification on stream `id` that has none of its own.
#[must_use]
pub fn on_stream(id: &RequestId) -> Box<RawValue> {
    raw(format!("{{\"_meta\":{{{}}}}}", subscription(id)))
}

/// The result that ends stream `id`.
#[must_use]
pub fn stream_closed(id: &RequestId) -> Box<RawValue> {
    on_stream(id)
}

fn subscription(id: &RequestId) -> String {
    format!("{}:{id}", json_string(meta_keys::SUBSCRIPTION_ID))
}

fn push_member(text: &mut String, name: &str, value: &str) {
    text.push_str(&json_string(name));
    text.push(':');
    text.push_str(value);
    text.push(',');
}

fn meta_of(params: &RawValue) -> Option<&RawValue> {
    let members = object::members(params.get(), &["_meta"]).ok()?;
    let [meta] = members.values;
    meta.filter(|meta| object::is_object(meta))
}

fn has_two_metas(params: &RawValue) -> bool {
    object::members(params.get(), &["_meta"]).is_ok_and(|members| members.duplicate().is_some())
}

fn invalid(message: impl Into<String>) -> RpcError {
    RpcError::new(codes::INVALID_PARAMS, message)
}

fn missing(name: &str) -> RpcError {
    invalid(format!("`_meta` has no member `{name}`"))
}

/// Composed of values that are JSON and of escaped strings, so the other branch is never taken.
fn raw(text: String) -> Box<RawValue> {
    RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
