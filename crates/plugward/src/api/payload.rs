//! What requests carry: JSON bodies, path segments and query parameters.
//!
//! Owns their reading by rule: JSON only, up to a limit, each key once, no key that is unknown, and for every mistake
//! its kind and place (`type`, `loc`, `msg`, the seed's shape). Refuses to repeat a value back: what somebody sent by
//! mistake may be a secret, and parsers' own messages quote it.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use axum::RequestExt as _;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, FailedToBufferBody};
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::request::Parts;
use plugward_host::{ErrorCode, HostError};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::errors::ApiError;
use crate::wire::NOT_FOUND_CODE;

/// Bytes of a body that is a command: ids, paths, a list of names.
pub(super) const MAX_COMMAND_BYTES: usize = 64 * 1024;

/// Bytes of a body that carries arguments for a tool; the message limit of the protocol, so that whatever a plugin may
/// be sent can be sent here.
pub(super) const MAX_CALL_BYTES: usize = 2 * 1024 * 1024;

/// Time a body may take to arrive. 2 MiB over loopback take milliseconds.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Mistakes told about one request; whoever made more mends these first.
const MAX_PROBLEMS: usize = 20;

/// Characters of an unknown key that are repeated as its place.
const MAX_KEY_CHARS: usize = 64;

/// Characters of an id in a path. None is longer, and answers repeat it.
const MAX_ID_CHARS: usize = 256;

/// One mistake in a request.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, ToSchema)]
pub(super) struct Problem {
    /// Kind of the mistake: `missing`, `extra_forbidden`, `string_type`, ...
    #[serde(rename = "type")]
    kind: &'static str,
    /// Where: `body` or `query`, then the key, then the index.
    loc: Vec<String>,
    /// In words.
    msg: String,
}

/// A request body that can be read from the members of a JSON object.
pub(super) trait Body: Sized {
    /// Most bytes it may have.
    const MAX_BYTES: usize = MAX_COMMAND_BYTES;

    /// Reads the members it knows; `None` if one of them is wrong, with the problem noted in `fields`.
    fn read(fields: &mut Fields) -> Option<Self>;
}

/// The body of a request, read by the rules of this module.
pub(super) struct Payload<T>(pub(super) T);

impl<S: Send + Sync, T: Body> FromRequest<S> for Payload<T> {
    type Rejection = ApiError;

    async fn from_request(mut request: Request, _state: &S) -> Result<Self, ApiError> {
        check_content_type(request.headers())?;
        DefaultBodyLimit::max(T::MAX_BYTES).apply(&mut request);
        let bytes = receive(request, T::MAX_BYTES).await?;
        let mut fields = Fields::of_body(&bytes)?;
        let body = T::read(&mut fields);
        fields.finish(body).map(Payload)
    }
}

/// A request that carries nothing: an empty body, or the empty object that some clients always send.
pub(super) struct NoPayload;

impl<S: Send + Sync> FromRequest<S> for NoPayload {
    type Rejection = ApiError;

    async fn from_request(mut request: Request, _state: &S) -> Result<Self, ApiError> {
        DefaultBodyLimit::max(MAX_COMMAND_BYTES).apply(&mut request);
        let has_type = request.headers().get(header::CONTENT_TYPE).is_some();
        let is_json = check_content_type(request.headers());
        let bytes = receive(request, MAX_COMMAND_BYTES).await?;
        if bytes.is_empty() {
            return Ok(NoPayload);
        }
        if has_type {
            is_json?;
        }
        Fields::of_body(&bytes)?.finish(Some(NoPayload))
    }
}

async fn receive(request: Request, limit: usize) -> Result<Bytes, ApiError> {
    match tokio::time::timeout(BODY_TIMEOUT, request.extract::<Bytes, _>()).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(BytesRejection::FailedToBufferBody(FailedToBufferBody::LengthLimitError(_)))) => Err(ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "REQUEST_BODY_TOO_LARGE",
            format!("request body is over the limit of {limit} bytes"),
        )),
        Ok(Err(_)) => Err(ApiError::new(StatusCode::BAD_REQUEST, "REQUEST_BODY_BROKEN", "request body broke off")),
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "REQUEST_TIMEOUT",
            format!("request body did not arrive within {} s", BODY_TIMEOUT.as_secs()),
        )
        .with_header(header::CONNECTION, HeaderValue::from_static("close"))),
    }
}

/// JSON, with any parameters: a browser cannot send it to another origin without asking first.
fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let is_json = |value: &HeaderValue| {
        let essence = value.to_str().ok().and_then(|text| text.split(';').next()).unwrap_or_default();
        essence.trim().eq_ignore_ascii_case("application/json")
    };
    let is_encoded = headers.get(header::CONTENT_ENCODING).is_some_and(|value| value != "identity");
    match (types.next(), types.next()) {
        (Some(value), None) if is_json(value) && !is_encoded => Ok(()),
        _ => Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UNSUPPORTED_MEDIA_TYPE",
            "request body is not plain `application/json`",
        )),
    }
}

/// The members of a body or the parameters of a query, taken one by one.
pub(super) struct Fields {
    place: &'static str,
    members: Vec<(String, Value)>,
    problems: Vec<Problem>,
}

/// A member: JSON in a body, text in a query.
enum Value {
    Json(Box<RawValue>),
    Text(String),
}

impl Fields {
    fn of_body(bytes: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Self { place: "body", members: Vec::new(), problems: Vec::new() };
        match serde_json::from_slice::<Members>(bytes) {
            Ok(Members(members)) => {
                fields.members = members.into_iter().map(|(key, raw)| (key, Value::Json(raw))).collect();
            }
            // The position is the parser's, the words are ours: its own may quote the body.
            Err(error) if error.is_data() => fields.note("object_type", &[], "body is not a JSON object"),
            Err(error) => {
                let place = format!("body is not valid JSON (line {}, column {})", error.line(), error.column());
                fields.note("json_invalid", &[], &place);
            }
        }
        fields.refuse_repeated();
        if fields.problems.is_empty() { Ok(fields) } else { Err(ApiError::invalid(&fields.problems)) }
    }

    /// Reads the query of a request by the same rules.
    pub(super) fn of_query(parts: &Parts) -> Result<Self, ApiError> {
        let mut fields = Self { place: "query", members: Vec::new(), problems: Vec::new() };
        match Query::<Vec<(String, String)>>::try_from_uri(&parts.uri) {
            Ok(Query(pairs)) => {
                fields.members = pairs.into_iter().map(|(key, text)| (key, Value::Text(text))).collect();
            }
            Err(_) => fields.note("query_invalid", &[], "query is not a list of parameters"),
        }
        fields.refuse_repeated();
        if fields.problems.is_empty() { Ok(fields) } else { Err(ApiError::invalid(&fields.problems)) }
    }

    /// Two values for one key: whoever checks one and uses the other is fooled.
    fn refuse_repeated(&mut self) {
        let mut seen = std::collections::HashSet::new();
        let repeated: Vec<String> =
            self.members.iter().filter(|(key, _)| !seen.insert(key.as_str())).map(|(key, _)| shown_key(key)).collect();
        for key in repeated {
            self.note("duplicate_key", &[&key], "key is repeated");
        }
    }

    pub(super) fn note(&mut self, kind: &'static str, at: &[&str], msg: &str) {
        if self.problems.len() < MAX_PROBLEMS {
            let loc = std::iter::once(self.place).chain(at.iter().copied()).map(str::to_owned).collect();
            self.problems.push(Problem { kind, loc, msg: msg.to_owned() });
        }
    }

    /// The outcome of a reading: whatever was not taken is a mistake of its own.
    pub(super) fn finish<T>(mut self, read: Option<T>) -> Result<T, ApiError> {
        let extra: Vec<String> = self.members.iter().map(|(key, _)| shown_key(key)).collect();
        for key in extra {
            self.note("extra_forbidden", &[&key], "key is not known here");
        }
        match read {
            Some(body) if self.problems.is_empty() => Ok(body),
            _ => Err(ApiError::invalid(&self.problems)),
        }
    }

    fn take(&mut self, key: &str) -> Option<Value> {
        let index = self.members.iter().position(|(name, _)| name == key)?;
        Some(self.members.swap_remove(index).1)
    }

    fn take_required(&mut self, key: &str) -> Option<Value> {
        let taken = self.take(key);
        if taken.is_none() {
            self.note("missing", &[key], "key is required");
        }
        taken
    }

    /// A text of 1 to `max_chars` characters.
    pub(super) fn text(&mut self, key: &'static str, max_chars: usize) -> Option<String> {
        let value = self.take_required(key)?;
        self.read_text(&[key], &value, max_chars)
    }

    /// The same, or nothing: `Some(None)` when it is absent or `null`, `None` when it is wrong.
    pub(super) fn optional_text(&mut self, key: &'static str, max_chars: usize) -> Option<Option<String>> {
        match self.take(key) {
            None => Some(None),
            Some(value) if value.is_null() => Some(None),
            Some(value) => self.read_text(&[key], &value, max_chars).map(Some),
        }
    }

    /// A list of texts.
    pub(super) fn texts(&mut self, key: &'static str, max_items: usize, max_chars: usize) -> Option<Vec<String>> {
        let value = self.take_required(key)?;
        let Some(items) = value.json::<Vec<Box<RawValue>>>() else {
            self.note("list_type", &[key], "value is not a list");
            return None;
        };
        if items.len() > max_items {
            self.note("too_long", &[key], &format!("list has more than {max_items} items"));
            return None;
        }
        let mut texts = Vec::new();
        for (index, item) in items.into_iter().enumerate() {
            texts.push(self.read_text(&[key, &index.to_string()], &Value::Json(item), max_chars)?);
        }
        Some(texts)
    }

    /// A JSON object as it is, or nothing when it is absent or `null`.
    pub(super) fn optional_object(&mut self, key: &'static str) -> Option<Option<Box<RawValue>>> {
        match self.take(key) {
            None => Some(None),
            Some(value) if value.is_null() => Some(None),
            Some(Value::Json(raw)) if raw.get().starts_with('{') => Some(Some(raw)),
            Some(_) => {
                self.note("object_type", &[key], "value is not an object");
                None
            }
        }
    }

    /// A whole number within `range`, or nothing when it is absent or `null`.
    pub(super) fn optional_number(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<Option<u64>> {
        let value = match self.take(key) {
            None => return Some(None),
            Some(value) if value.is_null() => return Some(None),
            Some(value) => value,
        };
        let number = match &value {
            Value::Json(_) => value.json::<u64>(),
            Value::Text(text) => text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit())),
        };
        match number.filter(|number| range.contains(number)) {
            Some(number) => Some(Some(number)),
            None => {
                let msg = format!("value is not a whole number from {} to {}", range.start(), range.end());
                self.note("int_range", &[key], &msg);
                None
            }
        }
    }

    fn read_text(&mut self, at: &[&str], value: &Value, max_chars: usize) -> Option<String> {
        let text = match value {
            Value::Json(_) => value.json::<String>(),
            Value::Text(text) => Some(text.clone()),
        };
        let Some(text) = text else {
            self.note("string_type", at, "value is not a text");
            return None;
        };
        if text.is_empty() {
            self.note("string_too_short", at, "text is empty");
        } else if text.chars().nth(max_chars).is_some() {
            self.note("string_too_long", at, &format!("text has more than {max_chars} characters"));
        } else {
            return Some(text);
        }
        None
    }
}

impl Value {
    fn is_null(&self) -> bool {
        matches!(self, Value::Json(raw) if raw.get() == "null")
    }

    fn json<T: for<'a> Deserialize<'a>>(&self) -> Option<T> {
        match self {
            Value::Json(raw) => serde_json::from_str(raw.get()).ok(),
            Value::Text(_) => None,
        }
    }
}

/// A key as a place in an answer: itself if it looks like a key, else a stand-in.
fn shown_key(key: &str) -> String {
    let is_plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    if is_plain && (1..=MAX_KEY_CHARS).contains(&key.len()) { key.to_owned() } else { "(another key)".to_owned() }
}

/// Members of an object in their order, repeated ones included.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// The query of a request, not read yet.
pub(super) struct Parameters(pub(super) Fields);

impl<S: Send + Sync> FromRequestParts<S> for Parameters {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        Fields::of_query(parts).map(Parameters)
    }
}

/// The id in a path, decoded. What it names is looked up, never opened.
pub(super) struct Id(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let decoded = Path::<String>::from_request_parts(parts, state).await;
        let Ok(Path(id)) = decoded else {
            let problem =
                Problem { kind: "string_unicode", loc: vec!["path".to_owned()], msg: "path is not UTF-8".to_owned() };
            return Err(ApiError::invalid(&[problem]));
        };
        if id.chars().nth(MAX_ID_CHARS).is_none() {
            return Ok(Id(id));
        }
        let message = format!("no id has more than {MAX_ID_CHARS} characters");
        if parts.uri.path().starts_with("/api/plugins/") {
            return Err(HostError::new(ErrorCode::PluginNotFound, message).into());
        }
        Err(ApiError::new(StatusCode::NOT_FOUND, NOT_FOUND_CODE, message))
    }
}
