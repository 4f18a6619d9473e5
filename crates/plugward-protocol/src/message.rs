//! JSON-RPC messages, read by rule and passed on untouched.
//!
//! Owns the envelope: which of the six members may stand together, what an id may be, what counts as an error object,
//! whether an array of messages is taken. Parameters, results and error data stay the text that was sent, so big
//! integers, unknown fields and key order survive. Every refusal is a [`MessageFault`] that carries the id when it
//! could be read, so that the request it answers fails at once instead of timing out. Refuses to look inside values.

use serde_json::value::RawValue;
use thiserror::Error;

use crate::envelope_scan::EnvelopeScan;
use crate::excerpt::excerpt;
use crate::id::RequestId;
use crate::mcp::codes;
use crate::object::{self, JSON_WHITE_SPACE, ObjectFault};

/// Deepest nesting of a message, in levels. Real messages stay below 40; parsers at the far end often recurse, and a
/// gateway must not hand them what overflows their stack.
pub const MAX_DEPTH: usize = 512;

/// Most messages in one batch. Bounds the tables one line can fill.
pub const MAX_BATCH_MESSAGES: usize = 100;

/// Longest text kept from a malformed error object, in bytes.
pub const MAX_FAULT_TEXT_BYTES: usize = 4096;

/// The error of an answer.
#[derive(Clone, Debug, Error)]
#[error("{message} (code {code})")]
pub struct RpcError {
    /// Code, as the peer chose it.
    pub code: i64,
    /// Text for people.
    pub message: String,
    /// Anything more, untouched.
    pub data: Option<Box<RawValue>>,
}

impl RpcError {
    /// An error without data.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        RpcError { code, message: message.into(), data: None }
    }

    /// The answer to a method nobody implements.
    #[must_use]
    pub fn method_not_found(method: &str) -> Self {
        let method = excerpt(method.as_bytes());
        Self::new(codes::METHOD_NOT_FOUND, format!("method `{method}` is not supported"))
    }
}

/// One JSON-RPC message.
#[derive(Clone, Debug)]
pub enum Message {
    /// Wants exactly one answer.
    Request {
        /// Id the answer has to carry.
        id: RequestId,
        /// Method name.
        method: String,
        /// Parameters: an object or an array; `null` counts as absent.
        params: Option<Box<RawValue>>,
    },
    /// Wants no answer.
    Notification {
        /// Method name.
        method: String,
        /// Parameters: an object or an array; `null` counts as absent.
        params: Option<Box<RawValue>>,
    },
    /// Answers a request.
    Response {
        /// Id of the request.
        id: RequestId,
        /// Result or error.
        outcome: Result<Box<RawValue>, RpcError>,
    },
    /// An error with a null or absent id: the peer could not tell which message it is about.
    UnattributedError(RpcError),
}

/// What one line holds.
#[derive(Clone, Debug)]
pub enum Parsed {
    /// One message.
    One(Message),
    /// Several messages, each good or bad by itself.
    Batch(Vec<Result<Message, MessageFault>>),
}

/// Whether an array of messages is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchRule {
    /// Arrays are refused.
    Refuse,
    /// Arrays are taken (protocol version 2025-03-26 only).
    Accept,
}

/// What kind of message something would have been, judged by the names of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Has `method` and `id`.
    Request,
    /// Has `method` without `id`.
    Notification,
    /// Has `result` or `error` without `method`.
    Response,
    /// None of these.
    Unknown,
}

impl Shape {
    pub(crate) fn of(has_method: bool, has_id: bool, has_answer: bool) -> Self {
        match (has_method, has_id, has_answer) {
            (true, true, _) => Shape::Request,
            (true, false, _) => Shape::Notification,
            (false, _, true) => Shape::Response,
            (false, _, false) => Shape::Unknown,
        }
    }
}

/// Why a line is not a message. Always the fault of whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind}")]
pub struct MessageFault {
    /// What is wrong.
    pub kind: FaultKind,
    /// The id, when it could be read without doubt.
    pub id: Option<RequestId>,
    /// What the message would have been.
    pub shape: Shape,
}

/// The rules a line can break.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FaultKind {
    /// Not JSON at all: a banner, a log line, NaN, a cut-off message.
    #[error("line is not JSON: {detail}")]
    NotJson {
        /// Where and why, from the parser.
        detail: String,
    },
    /// Bytes that are not UTF-8.
    #[error("line is not valid UTF-8 at byte {position}")]
    InvalidUtf8 {
        /// Offset of the first bad byte.
        position: usize,
    },
    /// JSON, but neither an object nor an array.
    #[error("message is not an object")]
    NotAnObject,
    /// A member of the envelope stands twice, so readers could disagree on it.
    #[error("message has the member `{name}` more than once")]
    DuplicateMember {
        /// Name of the member.
        name: &'static str,
    },
    /// `jsonrpc` is missing or not `"2.0"`.
    #[error("message has no `jsonrpc` member with the value `2.0`")]
    BadVersion,
    /// `id` is not an integer or string.
    #[error("message has an id that is neither an integer nor a string")]
    BadId,
    /// An answer without an id.
    #[error("answer has no id")]
    MissingId,
    /// `method` is not a string.
    #[error("message has a method that is not a string")]
    BadMethod,
    /// `params` is neither an object nor an array.
    #[error("message has params that are not an object")]
    BadParams,
    /// `result` and `error` in one answer.
    #[error("answer has both a result and an error")]
    ResultAndError,
    /// `method` together with `result` or `error`.
    #[error("message is both a request and an answer")]
    RequestAndAnswer,
    /// None of `method`, `result`, `error`.
    #[error("message has neither method nor result nor error")]
    NeitherRequestNorAnswer,
    /// `error` is not an object with an integer code and a text.
    #[error("answer has a malformed error: {text}")]
    MalformedError {
        /// The text found in it, cut to [`MAX_FAULT_TEXT_BYTES`].
        text: String,
    },
    /// An array where arrays are not taken.
    #[error("batch is not accepted in this protocol version")]
    BatchRefused,
    /// `[]`.
    #[error("batch is empty")]
    EmptyBatch,
    /// An array with too many messages.
    #[error("batch has more than {MAX_BATCH_MESSAGES} messages")]
    BatchTooLong,
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("message is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

impl FaultKind {
    /// The JSON-RPC code to answer with when a request breaks this rule.
    #[must_use]
    pub fn error_code(&self) -> i64 {
        match self {
            FaultKind::NotJson { .. } | FaultKind::InvalidUtf8 { .. } => codes::PARSE_ERROR,
            FaultKind::BadParams => codes::INVALID_PARAMS,
            FaultKind::NotAnObject
            | FaultKind::DuplicateMember { .. }
            | FaultKind::BadVersion
            | FaultKind::BadId
            | FaultKind::MissingId
            | FaultKind::BadMethod
            | FaultKind::ResultAndError
            | FaultKind::RequestAndAnswer
            | FaultKind::NeitherRequestNorAnswer
            | FaultKind::MalformedError { .. }
            | FaultKind::BatchRefused
            | FaultKind::EmptyBatch
            | FaultKind::BatchTooLong
            | FaultKind::TooDeep => codes::INVALID_REQUEST,
        }
    }
}

/// Reads one line, without its newline.
///
/// # Errors
/// [`MessageFault`] naming the rule that is broken and, where readable, the id.
pub fn parse_line(line: &[u8], rule: BatchRule) -> Result<Parsed, MessageFault> {
    let text = match std::str::from_utf8(line) {
        Ok(text) => text.trim_matches(JSON_WHITE_SPACE),
        Err(fault) => {
            let kind = FaultKind::InvalidUtf8 { position: fault.valid_up_to() };
            return Err(scanned_fault(kind, line));
        }
    };
    if object::nests_deeper_than(text, MAX_DEPTH) {
        return Err(scanned_fault(FaultKind::TooDeep, line));
    }
    if text.starts_with('[') {
        return parse_batch(text, rule).map(Parsed::Batch);
    }
    parse_one(text).map(Parsed::One).map_err(|fault| match fault.kind {
        // A result like NaN spoils the line for every parser, but not the id beside it.
        FaultKind::NotJson { .. } => scanned_fault(fault.kind, line),
        _ => fault,
    })
}

fn parse_batch(text: &str, rule: BatchRule) -> Result<Vec<Result<Message, MessageFault>>, MessageFault> {
    let elements = match object::elements(text, MAX_BATCH_MESSAGES) {
        Ok(elements) => elements,
        Err(fault) => return Err(bare_fault(object_fault(fault))),
    };
    if rule == BatchRule::Refuse {
        return Err(bare_fault(FaultKind::BatchRefused));
    }
    match elements {
        None => Err(bare_fault(FaultKind::BatchTooLong)),
        Some(elements) if elements.is_empty() => Err(bare_fault(FaultKind::EmptyBatch)),
        Some(elements) => Ok(elements.iter().map(|raw| parse_one(raw.get())).collect()),
    }
}

/// The members of an envelope, before it is decided what they make together.
struct Envelope<'a> {
    id: Option<&'a RawValue>,
    /// The id, when it is valid and stands once.
    readable_id: Option<RequestId>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

fn parse_one(text: &str) -> Result<Message, MessageFault> {
    const ID_SLOT: usize = 1;
    const NAMES: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
    let members = object::members(text, &NAMES).map_err(|fault| bare_fault(object_fault(fault)))?;
    let [version, id, method, params, mut result, mut error] = members.values;
    // Some servers write the unused half of an answer as null; that is not ambiguous.
    if let (Some(some_result), Some(some_error)) = (result, error) {
        if object::is_null(some_error) {
            error = None;
        } else if object::is_null(some_result) {
            result = None;
        }
    }
    // With two ids nobody can say which request is meant.
    let readable_id = id.filter(|_| !members.is_repeated(ID_SLOT)).and_then(|id| RequestId::from_json(id.get()).ok());
    let envelope = Envelope { id, readable_id, method, params, result, error };
    if let Some(name) = members.duplicate() {
        return Err(envelope.fault(FaultKind::DuplicateMember { name }));
    }
    if version.is_none_or(|version| version.get() != "\"2.0\"") {
        return Err(envelope.fault(FaultKind::BadVersion));
    }
    envelope.into_message()
}

impl Envelope<'_> {
    fn into_message(self) -> Result<Message, MessageFault> {
        match (self.method, self.result, self.error) {
            (Some(_), None, None) => self.into_call(),
            (None, Some(_), Some(_)) => Err(self.fault(FaultKind::ResultAndError)),
            (None, Some(result), None) => {
                let outcome = Ok(result.to_owned());
                Ok(Message::Response { id: self.answered_id()?, outcome })
            }
            (None, None, Some(error)) => self.into_error(error),
            (None, None, None) => Err(self.fault(FaultKind::NeitherRequestNorAnswer)),
            (Some(_), _, _) => Err(self.fault(FaultKind::RequestAndAnswer)),
        }
    }

    fn into_call(self) -> Result<Message, MessageFault> {
        if self.id.is_some() && self.readable_id.is_none() {
            return Err(self.fault(FaultKind::BadId));
        }
        let Some(method) = self.method.and_then(object::as_string) else {
            return Err(self.fault(FaultKind::BadMethod));
        };
        let params = self.params.filter(|params| !object::is_null(params));
        if params.is_some_and(|params| !params.get().starts_with(['{', '['])) {
            return Err(self.fault(FaultKind::BadParams));
        }
        let params = params.map(ToOwned::to_owned);
        Ok(match self.readable_id {
            Some(id) => Message::Request { id, method, params },
            None => Message::Notification { method, params },
        })
    }

    fn into_error(self, raw: &RawValue) -> Result<Message, MessageFault> {
        let error = match rpc_error(raw) {
            Ok(error) => error,
            Err(text) => return Err(self.fault(FaultKind::MalformedError { text })),
        };
        if self.id.is_none_or(object::is_null) {
            return Ok(Message::UnattributedError(error));
        }
        Ok(Message::Response { id: self.answered_id()?, outcome: Err(error) })
    }

    fn answered_id(&self) -> Result<RequestId, MessageFault> {
        match (self.id, &self.readable_id) {
            (_, Some(id)) => Ok(id.clone()),
            (Some(_), None) => Err(self.fault(FaultKind::BadId)),
            (None, None) => Err(self.fault(FaultKind::MissingId)),
        }
    }

    fn fault(&self, kind: FaultKind) -> MessageFault {
        let has_answer = self.result.is_some() || self.error.is_some();
        MessageFault {
            kind,
            id: self.readable_id.clone(),
            shape: Shape::of(self.method.is_some(), self.id.is_some(), has_answer),
        }
    }
}

/// Reads an error object, or says what text stands in its place.
fn rpc_error(raw: &RawValue) -> Result<RpcError, String> {
    if let Some(text) = object::as_string(raw) {
        return Err(cut(&text));
    }
    let Ok(members) = object::members(raw.get(), &["code", "message", "data"]) else {
        return Err(cut(raw.get()));
    };
    let [code, message, data] = members.values;
    let code = code.and_then(|code| code.get().parse::<i64>().ok());
    let message = message.and_then(object::as_string);
    match (code, message) {
        (Some(code), Some(message)) if members.duplicate().is_none() => {
            let data = data.map(ToOwned::to_owned);
            Ok(RpcError { code, message, data })
        }
        (None, Some(message)) => Err(cut(&message)),
        _ => Err(cut(raw.get())),
    }
}

/// Cuts at a character boundary.
fn cut(text: &str) -> String {
    let mut end = text.len().min(MAX_FAULT_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

fn object_fault(fault: ObjectFault) -> FaultKind {
    match fault {
        ObjectFault::NotJson { detail } => FaultKind::NotJson { detail },
        ObjectFault::NotAnObject => FaultKind::NotAnObject,
    }
}

/// A fault of a line whose envelope cannot be read at all.
fn bare_fault(kind: FaultKind) -> MessageFault {
    MessageFault { kind, id: None, shape: Shape::Unknown }
}

/// A fault of a line that cannot be parsed strictly but may still say which request it belongs to.
fn scanned_fault(kind: FaultKind, line: &[u8]) -> MessageFault {
    let scanned = EnvelopeScan::scan(line);
    MessageFault { kind, id: scanned.id, shape: scanned.shape }
}
