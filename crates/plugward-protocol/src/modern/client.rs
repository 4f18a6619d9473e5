//! The client's half of the stateless revisions: what we say with each request, and how we read what comes back.
//!
//! Owns our metadata in requests, the result of `server/discover`, the kinds of results and the reading of results that
//! ask for input. Refuses to look into what is asked for, and into `requestState`: both pass as they were written.

use serde_json::value::RawValue;
use thiserror::Error;

use super::{LogLevel, VERSIONS, meta_keys, push_member, raw};
use crate::excerpt::excerpt;
use crate::lifecycle::{HandshakeError, Implementation, ProtocolVersion, ServerHello, empty_object};
use crate::mcp::{PayloadFault, codes};
use crate::message::RpcError;
use crate::object;
use crate::wire::json_string;

/// Requests for input in one result. A person answers them one after the other; nobody fills in more.
pub const MAX_INPUT_REQUESTS: usize = 16;

/// Longest key of a request for input, in bytes. It names a question, it is none.
pub const MAX_INPUT_KEY_BYTES: usize = 256;

/// Errors that only servers of these revisions answer with: whoever knows them needs no handshake.
const OF_THESE_REVISIONS: [i64; 3] = [codes::HEADER_MISMATCH, codes::MISSING_CAPABILITY, codes::UNSUPPORTED_VERSION];

/// What we say about ourselves with each request.
#[derive(Clone, Debug)]
pub struct ClientMeta {
    /// The revision the request is written in.
    pub version: ProtocolVersion,
    /// Who we are.
    pub client: Implementation,
    /// What may be asked for in answer to this request, an object.
    pub capabilities: Box<RawValue>,
    /// Log messages from this level on are wanted with it.
    pub log_level: Option<LogLevel>,
}

impl ClientMeta {
    /// In our newest revision, with nothing on offer and no log messages wanted.
    #[must_use]
    pub fn new(client: Implementation) -> Self {
        ClientMeta { version: VERSIONS[0], client, capabilities: empty_object(), log_level: None }
    }

    /// `params` with this in their `_meta`. What somebody else said there to us goes; everything else stays.
    ///
    /// # Errors
    /// [`PayloadFault`] when `params` or their `_meta` are no object.
    pub fn stamp(&self, params: Option<&RawValue>) -> Result<Box<RawValue>, PayloadFault> {
        let entries = match params {
            None => Vec::new(),
            Some(params) => object::entries(params.get()).map_err(|_| PayloadFault::NotAnObject { what: "params" })?,
        };
        let mut text = String::with_capacity(params.map_or(0, |params| params.get().len()) + 256);
        text.push('{');
        let mut meta = None;
        for (name, value) in &entries {
            match name.as_str() {
                "_meta" => meta = Some(*value),
                _ => push_member(&mut text, name, value.get()),
            }
        }
        let wrong = PayloadFault::WrongKind { what: "params", name: "_meta", expected: "an object" };
        let meta = match meta {
            None => Vec::new(),
            Some(meta) => object::entries(meta.get()).map_err(|_| wrong)?,
        };
        text.push_str("\"_meta\":{");
        for (name, value) in meta.iter().filter(|(name, _)| !meta_keys::OF_THE_HOP.contains(&name.as_str())) {
            push_member(&mut text, name, value.get());
        }
        push_member(&mut text, meta_keys::PROTOCOL_VERSION, &json_string(self.version.as_str()));
        push_member(&mut text, meta_keys::CLIENT_INFO, &self.client.to_json());
        if let Some(level) = self.log_level {
            push_member(&mut text, meta_keys::LOG_LEVEL, &json_string(level.as_str()));
        }
        text.push_str(&format!("{}:{}}}}}", json_string(meta_keys::CLIENT_CAPABILITIES), self.capabilities.get()));
        Ok(raw(text))
    }
}

/// Why a server was not found to speak these revisions with us.
#[derive(Clone, Debug, Error)]
pub enum ProbeFailure {
    /// It does not know them, as far as can be told: what an older server says, or does not say, when asked.
    #[error("server does not know `server/discover`: {0}")]
    Legacy(#[source] HandshakeError),
    /// It speaks such revisions, and none that we do.
    #[error("server speaks protocol versions `{offered_by_server}`, of which none is supported")]
    NoCommonVersion {
        /// The server's versions; cut and escaped where they are longer or stranger than versions.
        offered_by_server: String,
    },
    /// It knows the request and refused it.
    #[error("server refused `server/discover`: {0}")]
    Refused(#[source] RpcError),
}

/// Reads the answer to `server/discover`.
///
/// # Errors
/// [`ProbeFailure`]. No single code means "older server": whatever is not an answer of these revisions does.
pub fn discovered(outcome: Result<Box<RawValue>, RpcError>) -> Result<ServerHello, ProbeFailure> {
    match outcome {
        Ok(result) => read_discovery(result),
        Err(error) => Err(refusal(error)),
    }
}

fn refusal(error: RpcError) -> ProbeFailure {
    if !OF_THESE_REVISIONS.contains(&error.code) {
        return ProbeFailure::Legacy(HandshakeError::Rejected(error));
    }
    let supported = error.data.as_deref().and_then(|data| {
        let [supported] = object::members(data.get(), &["supported"]).ok()?.values;
        serde_json::from_str::<Vec<String>>(supported?.get()).ok()
    });
    match supported {
        Some(supported) if error.code == codes::UNSUPPORTED_VERSION && !has_ours(&supported) => no_common(&supported),
        _ => ProbeFailure::Refused(error),
    }
}

fn has_ours(supported: &[String]) -> bool {
    supported.iter().any(|name| VERSIONS.iter().any(|version| version.as_str() == name))
}

/// Nothing of these revisions in common. A server that names an older revision can be greeted in it.
fn no_common(supported: &[String]) -> ProbeFailure {
    let offered_by_server = excerpt(supported.join(", ").as_bytes());
    let is_older = |name: &String| ProtocolVersion::parse(name).is_some_and(ProtocolVersion::is_supported);
    match supported.iter().any(is_older) {
        true => ProbeFailure::Legacy(HandshakeError::UnsupportedVersion { offered_by_server }),
        false => ProbeFailure::NoCommonVersion { offered_by_server },
    }
}

fn read_discovery(result: Box<RawValue>) -> Result<ServerHello, ProbeFailure> {
    const NAMES: [&str; 4] = ["supportedVersions", "capabilities", "instructions", "_meta"];
    let older = |reason: &str| ProbeFailure::Legacy(HandshakeError::InvalidResult { reason: reason.to_owned() });
    if !matches!(result_kind(&result), Ok(ResultKind::Complete)) {
        return Err(older("result is not a complete one"));
    }
    let members = object::members(result.get(), &NAMES).map_err(|_| older("result is not an object"))?;
    if let Some(name) = members.duplicate() {
        return Err(older(&format!("`{name}` stands more than once")));
    }
    let [versions, capabilities, instructions, meta] = members.values;
    let versions = versions
        .and_then(|raw| serde_json::from_str::<Vec<String>>(raw.get()).ok())
        .ok_or_else(|| older("`supportedVersions` is not a list of strings"))?;
    let Some(version) = VERSIONS.into_iter().find(|ours| versions.iter().any(|name| name == ours.as_str())) else {
        return Err(no_common(&versions));
    };
    let capabilities = match capabilities.filter(|raw| !object::is_null(raw)) {
        None => empty_object(),
        Some(raw) if object::is_object(raw) => raw.to_owned(),
        Some(_) => return Err(older("`capabilities` is not an object")),
    };
    let server = meta.and_then(|meta| {
        let [server] = object::members(meta.get(), &[meta_keys::SERVER_INFO]).ok()?.values;
        Implementation::from_raw(server)
    });
    let instructions = instructions.and_then(object::as_string);
    Ok(ServerHello { version, server, capabilities, instructions, raw: result })
}

/// What a result is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// The end of its request. Results of older servers, which do not say, are that too.
    Complete,
    /// A question: the request is to be sent again with answers.
    InputRequired,
    /// Something that no revision or extension of ours has; escaped and cut.
    Unknown(String),
}

/// What a result says it is.
///
/// # Errors
/// [`PayloadFault`] when it is no object, or says it more than once or in another way than by a string.
pub fn result_kind(result: &RawValue) -> Result<ResultKind, PayloadFault> {
    let what = "result";
    let name = "resultType";
    let members = object::members(result.get(), &[name]).map_err(|_| PayloadFault::NotAnObject { what })?;
    if members.duplicate().is_some() {
        return Err(PayloadFault::Duplicate { what, name });
    }
    let [kind] = members.values;
    let Some(kind) = kind else { return Ok(ResultKind::Complete) };
    let kind = object::as_string(kind).ok_or(PayloadFault::WrongKind { what, name, expected: "a string" })?;
    Ok(match kind.as_str() {
        "complete" => ResultKind::Complete,
        "input_required" => ResultKind::InputRequired,
        other => ResultKind::Unknown(excerpt(other.as_bytes())),
    })
}

/// One question of a server.
#[derive(Clone, Debug)]
pub struct InputRequest {
    /// Under which its answer goes back.
    pub key: String,
    /// `elicitation/create`, `sampling/createMessage` or `roots/list`; anything else is the owner's to refuse.
    pub method: String,
    /// Parameters, untouched.
    pub params: Option<Box<RawValue>>,
}

/// A result that asks for input.
#[derive(Clone, Debug)]
pub struct InputRequired {
    /// The questions, in their order; none when the server only wants the request again.
    pub requests: Vec<InputRequest>,
    /// The text to bring back, as it was written.
    pub state: Option<Box<RawValue>>,
}

impl InputRequired {
    /// Reads the result.
    ///
    /// # Errors
    /// What is wrong with it, for the text of a failure; it repeats nothing the server wrote.
    pub fn parse(result: &RawValue) -> Result<Self, &'static str> {
        let members = object::members(result.get(), &["inputRequests", "requestState"])
            .map_err(|_| "a request for input is not an object")?;
        if members.duplicate().is_some() {
            return Err("a request for input has a member more than once");
        }
        let [requests, state] = members.values;
        let state = match state.filter(|raw| !object::is_null(raw)) {
            Some(raw) if object::as_string(raw).is_none() => return Err("`requestState` is not a string"),
            state => state.map(ToOwned::to_owned),
        };
        let mut read: Vec<InputRequest> = Vec::new();
        if let Some(raw) = requests.filter(|raw| !object::is_null(raw)) {
            let entries = object::entries(raw.get()).map_err(|_| "`inputRequests` is not an object")?;
            if entries.len() > MAX_INPUT_REQUESTS {
                return Err("`inputRequests` has too many members");
            }
            for (key, request) in entries {
                if key.len() > MAX_INPUT_KEY_BYTES || read.iter().any(|other| other.key == key) {
                    return Err("a key of `inputRequests` is too long or stands more than once");
                }
                read.push(read_request(key, request)?);
            }
        }
        if read.is_empty() && state.is_none() {
            return Err("a request for input has neither `inputRequests` nor `requestState`");
        }
        Ok(InputRequired { requests: read, state })
    }
}

fn read_request(key: String, request: &RawValue) -> Result<InputRequest, &'static str> {
    let wrong = "a member of `inputRequests` is not a request";
    let members = object::members(request.get(), &["method", "params"]).map_err(|_| wrong)?;
    if members.duplicate().is_some() {
        return Err(wrong);
    }
    let [method, params] = members.values;
    let method = method.and_then(object::as_string).ok_or(wrong)?;
    let params = match params.filter(|raw| !object::is_null(raw)) {
        Some(raw) if !object::is_object(raw) => return Err(wrong),
        params => params.map(ToOwned::to_owned),
    };
    Ok(InputRequest { key, method, params })
}

/// `params` of a request that is sent again: with these answers and this state, and none that were there before.
///
/// # Errors
/// [`PayloadFault`] when `params` are no object.
pub fn with_inputs(
    params: Option<&RawValue>,
    responses: Option<&RawValue>,
    state: Option<&RawValue>,
) -> Result<Box<RawValue>, PayloadFault> {
    let entries = match params {
        None => Vec::new(),
        Some(params) => object::entries(params.get()).map_err(|_| PayloadFault::NotAnObject { what: "params" })?,
    };
    let kept = entries.iter().filter(|(name, _)| !["inputResponses", "requestState"].contains(&name.as_str()));
    let mut text = String::from("{");
    for (name, value) in kept {
        push_member(&mut text, name, value.get());
    }
    for (name, value) in [("requestState", state), ("inputResponses", responses)] {
        if let Some(value) = value {
            push_member(&mut text, name, value.get());
        }
    }
    if text.len() > 1 {
        text.pop();
    }
    text.push('}');
    Ok(raw(text))
}

/// Answers under the keys they were asked for, as `inputResponses`.
#[must_use]
pub fn responses(answers: &[(String, Box<RawValue>)]) -> Box<RawValue> {
    let members: Vec<String> =
        answers.iter().map(|(key, answer)| format!("{}:{}", json_string(key), answer.get())).collect();
    raw(format!("{{{}}}", members.join(",")))
}

/// The stream that a notification says it belongs to.
pub(crate) fn subscription_of(params: Option<&RawValue>) -> Option<crate::id::RequestId> {
    let [meta] = object::members(params?.get(), &["_meta"]).ok()?.values;
    let [id] = object::members(meta?.get(), &[meta_keys::SUBSCRIPTION_ID]).ok()?.values;
    crate::id::RequestId::from_json(id?.get()).ok()
}
