//! The lifecycle of the protocol as data: revisions, what each allows, and the two halves of the handshake.
//!
//! Owns the list of revisions and the reading and writing of `initialize`. The state that walks through a lifecycle is
//! in [`crate::connection`]. Refuses to judge capabilities: which of them a server needs is the host's decision.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::connection::PeerFault;
use crate::excerpt::excerpt;
use crate::message::{BatchRule, MessageFault, RpcError};
use crate::object;
use crate::wire::json_string;

/// A published revision of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProtocolVersion {
    /// 2024-11-05.
    V2024_11_05,
    /// 2025-03-26: the only one with batches.
    V2025_03_26,
    /// 2025-06-18.
    V2025_06_18,
    /// 2025-11-25: the newest with `initialize`.
    V2025_11_25,
    /// 2026-07-28: no handshake, no server requests; see [`crate::modern`].
    V2026_07_28,
}

impl ProtocolVersion {
    /// The newest revision with a handshake; what we ask for and offer (Requirement 5).
    pub const LATEST_LEGACY: ProtocolVersion = ProtocolVersion::V2025_11_25;

    /// Revisions with a handshake that this crate speaks, newest first.
    pub const SUPPORTED: [ProtocolVersion; 4] = [
        ProtocolVersion::V2025_11_25,
        ProtocolVersion::V2025_06_18,
        ProtocolVersion::V2025_03_26,
        ProtocolVersion::V2024_11_05,
    ];

    /// The date that names the revision on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ProtocolVersion::V2024_11_05 => "2024-11-05",
            ProtocolVersion::V2025_03_26 => "2025-03-26",
            ProtocolVersion::V2025_06_18 => "2025-06-18",
            ProtocolVersion::V2025_11_25 => "2025-11-25",
            ProtocolVersion::V2026_07_28 => "2026-07-28",
        }
    }

    /// The revision of that name, known or spoken.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::SUPPORTED.into_iter().chain([ProtocolVersion::V2026_07_28]).find(|version| version.as_str() == text)
    }

    /// Whether the revision begins with `initialize`.
    #[must_use]
    pub fn is_legacy(self) -> bool {
        self <= Self::LATEST_LEGACY
    }

    /// Whether it can be agreed on in a handshake.
    #[must_use]
    pub fn is_supported(self) -> bool {
        Self::SUPPORTED.contains(&self)
    }

    /// Whether peers of this revision may send arrays of messages.
    #[must_use]
    pub fn allows_batches(self) -> bool {
        self == ProtocolVersion::V2025_03_26
    }

    /// What a server answers to a client that asks for `requested`: the same if spoken, else our newest.
    #[must_use]
    pub fn negotiate(requested: &str) -> Self {
        Self::parse(requested).filter(|version| version.is_supported()).unwrap_or(Self::LATEST_LEGACY)
    }

    /// The supported revisions for a message to people.
    #[must_use]
    pub fn supported_list() -> String {
        Self::SUPPORTED.map(ProtocolVersion::as_str).join(", ")
    }

    pub(crate) fn batch_rule(self) -> BatchRule {
        if self.allows_batches() { BatchRule::Accept } else { BatchRule::Refuse }
    }
}

/// Who a program says it is. Self-reported: never a base for decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Implementation {
    /// Name for programs.
    pub name: String,
    /// Version, in whatever form the program uses.
    #[serde(default)]
    pub version: String,
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

impl Implementation {
    pub(crate) fn to_json(&self) -> String {
        let mut text = format!("{{\"name\":{},\"version\":{}", json_string(&self.name), json_string(&self.version));
        if let Some(title) = &self.title {
            text.push_str(",\"title\":");
            text.push_str(&json_string(title));
        }
        text.push('}');
        text
    }

    pub(crate) fn from_raw(raw: Option<&RawValue>) -> Option<Self> {
        // One member of the wrong kind must not make a server unusable: the name is only shown.
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
    }
}

/// What a client says first.
#[derive(Clone, Debug)]
pub struct ClientHello {
    /// Revision asked for.
    pub version: ProtocolVersion,
    /// Who we are.
    pub client: Implementation,
    /// Capabilities offered, an object. Server requests that need one not named here are refused for the caller.
    pub capabilities: Box<RawValue>,
}

impl ClientHello {
    /// The JSON text of the parameters of `initialize`.
    #[must_use]
    pub fn to_params(&self) -> String {
        format!(
            "{{\"protocolVersion\":\"{}\",\"capabilities\":{},\"clientInfo\":{}}}",
            self.version.as_str(),
            self.capabilities.get(),
            self.client.to_json()
        )
    }
}

/// What a server answered, read leniently where nothing depends on it.
#[derive(Clone, Debug)]
pub struct ServerHello {
    /// Revision agreed on, one of [`ProtocolVersion::SUPPORTED`], or one of [`crate::modern::VERSIONS`] where the server
    /// was discovered instead of greeted.
    pub version: ProtocolVersion,
    /// Who the server says it is.
    pub server: Option<Implementation>,
    /// Capabilities, an object; `{}` when absent.
    pub capabilities: Box<RawValue>,
    /// Advice for the model on how to use the server.
    pub instructions: Option<String>,
    /// The whole result, untouched.
    pub raw: Box<RawValue>,
}

impl ServerHello {
    /// Whether the server declared the capability (Requirement 6). `null` and `false` do not declare it.
    #[must_use]
    pub fn has_capability(&self, name: &str) -> bool {
        declared(&self.capabilities).iter().any(|declared| declared == name)
    }

    /// Reads the result of `initialize`.
    ///
    /// # Errors
    /// [`HandshakeError::InvalidResult`] or [`HandshakeError::UnsupportedVersion`].
    pub fn parse(raw: Box<RawValue>) -> Result<Self, HandshakeError> {
        const NAMES: [&str; 4] = ["protocolVersion", "capabilities", "serverInfo", "instructions"];
        let invalid = |reason: &str| HandshakeError::InvalidResult { reason: reason.to_owned() };
        let members = object::members(raw.get(), &NAMES).map_err(|_| invalid("result is not an object"))?;
        if let Some(name) = members.duplicate() {
            return Err(invalid(&format!("`{name}` stands more than once")));
        }
        let [version, capabilities, server, instructions] = members.values;
        let offered = version.ok_or_else(|| invalid("`protocolVersion` is missing")).and_then(|version| {
            object::as_string(version).ok_or_else(|| invalid("`protocolVersion` is not a string"))
        })?;
        let Some(version) = ProtocolVersion::parse(&offered).filter(|version| version.is_supported()) else {
            return Err(HandshakeError::UnsupportedVersion { offered_by_server: excerpt(offered.as_bytes()) });
        };
        let capabilities = match capabilities.filter(|raw| !object::is_null(raw)) {
            None => empty_object(),
            Some(raw) if object::is_object(raw) => raw.to_owned(),
            Some(_) => return Err(invalid("`capabilities` is not an object")),
        };
        let server = Implementation::from_raw(server);
        let instructions = instructions.and_then(object::as_string);
        Ok(ServerHello { version, server, capabilities, instructions, raw })
    }
}

/// What our own server side answers to `initialize`; the revision is chosen by the connection.
#[derive(Clone, Debug)]
pub struct ServerHelloOut {
    /// Who we are.
    pub server: Implementation,
    /// Capabilities, an object.
    pub capabilities: Box<RawValue>,
    /// Advice for the model.
    pub instructions: Option<String>,
}

impl ServerHelloOut {
    /// The JSON text of the result, for a client that will speak `version`.
    #[must_use]
    pub fn to_result(&self, version: ProtocolVersion) -> String {
        let mut text = format!(
            "{{\"protocolVersion\":\"{}\",\"capabilities\":{},\"serverInfo\":{}",
            version.as_str(),
            self.capabilities.get(),
            self.server.to_json()
        );
        if let Some(instructions) = &self.instructions {
            text.push_str(",\"instructions\":");
            text.push_str(&json_string(instructions));
        }
        text.push('}');
        text
    }
}

/// What a client asked for in `initialize`.
#[derive(Clone, Debug)]
pub struct InitializeParams {
    /// The revision it wants, as sent.
    pub requested_version: String,
    /// Who it says it is.
    pub client: Option<Implementation>,
}

impl InitializeParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// What is wrong with them, for the text of an error -32602.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, &'static str> {
        let params = params.ok_or("params are missing")?;
        let members = object::members(params.get(), &["protocolVersion", "clientInfo"])
            .map_err(|_| "params are not an object")?;
        if members.duplicate().is_some() {
            return Err("params have a member more than once");
        }
        let [version, client] = members.values;
        let requested_version = version.and_then(object::as_string).ok_or("`protocolVersion` is not a string")?;
        Ok(InitializeParams { requested_version, client: Implementation::from_raw(client) })
    }
}

/// Why a handshake did not succeed.
#[derive(Clone, Debug, Error)]
pub enum HandshakeError {
    /// The server answered `initialize` with an error.
    #[error("server rejected the handshake: {0}")]
    Rejected(#[source] RpcError),
    /// The answer is not what the protocol asks for.
    #[error("server answered the handshake with an invalid result: {reason}")]
    InvalidResult {
        /// What is wrong with it.
        reason: String,
    },
    /// The answer breaks a rule of JSON-RPC or is too large.
    #[error("server answered the handshake with an invalid message: {fault}")]
    InvalidAnswer {
        /// The rule.
        #[source]
        fault: MessageFault,
    },
    /// The server wants a revision we do not speak.
    #[error(
        "server offered protocol version `{offered_by_server}`; supported are {}",
        ProtocolVersion::supported_list()
    )]
    UnsupportedVersion {
        /// The server's version; cut and escaped when it is longer or stranger than a version.
        offered_by_server: String,
    },
    /// No answer in time.
    #[error("server did not answer the handshake within {} ms", limit.as_millis())]
    TimedOut {
        /// The limit that ran out.
        limit: Duration,
    },
    /// The server wrote something that ends the connection, such as a banner where none is tolerated.
    #[error("server broke the protocol during the handshake: {0}")]
    Broken(#[source] PeerFault),
    /// The stream ended before the answer.
    #[error("connection closed before the handshake was answered")]
    Closed,
}

/// Names of the members of a capability object that are neither `null` nor `false`.
pub(crate) fn declared(capabilities: &RawValue) -> Vec<String> {
    let entries = object::entries(capabilities.get()).unwrap_or_default();
    entries.into_iter().filter(|(_, value)| !matches!(value.get(), "null" | "false")).map(|(name, _)| name).collect()
}

/// `{}`.
pub(crate) fn empty_object() -> Box<RawValue> {
    // The literal is valid JSON, so the other branch is never taken; it only keeps the type free of panics.
    RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
