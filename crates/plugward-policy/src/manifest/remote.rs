//! A plugin that is a server elsewhere (`transport: streamable_http` or `sse`). Owns its URL and the headers sent with
//! each request, and the permission that follows from the URL. Refuses what a server elsewhere has no use for, headers
//! that the protocol or HTTP itself has to set, and connections without TLS that leave this machine.

use std::net::IpAddr;

use super::access::Requested;
use super::backend::{Variable, checked_text};
use super::diagnostic::Report;
use super::path_of;
use super::reader::{MapReader, did_you_mean, text_of};
use super::tree::{Mark, Value};
use crate::access::{AccessPermission, NetTarget, WebUrl};
use crate::secret;
use crate::visible::quoted;

/// Most headers; each is shown before somebody agrees.
const HEADERS_MAX: usize = 32;

/// Longest name of a header, in bytes.
const HEADER_NAME_BYTES_MAX: usize = 128;

/// Headers that say where a message goes, where it ends or what the protocol does: two opinions on them are how requests
/// are smuggled, or answers lost.
const RESERVED: [&str; 17] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "origin",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Beginning of the headers the protocol has for itself.
const PROTOCOL_PREFIX: &str = "mcp-";

/// How messages travel to a server elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemoteTransport {
    /// One address for everything; what revisions since 2025-03-26 have.
    StreamableHttp,
    /// A stream that names the address for messages; what 2024-11-05 had. Servers of this kind are still around.
    Sse,
}

impl RemoteTransport {
    /// The word for it in manifests.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StreamableHttp => "streamable_http",
            Self::Sse => "sse",
        }
    }
}

/// A server elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteServer {
    /// How messages travel.
    pub transport: RemoteTransport,
    /// Where to. Its debug text ends after the host, because what follows may be a key.
    pub url: WebUrl,
}

/// The words for transports to a server elsewhere; `http` is what many clients' settings call the first.
pub(super) const TRANSPORTS: [(&str, RemoteTransport); 3] = [
    ("streamable_http", RemoteTransport::StreamableHttp),
    ("http", RemoteTransport::StreamableHttp),
    ("sse", RemoteTransport::Sse),
];

/// Reads the URL.
pub(super) fn read_url(backend: &mut MapReader, requested: &mut Requested, report: &mut Report) -> Option<WebUrl> {
    let path = backend.path_of("url");
    let (text, at) = backend.required_text("url", report)?;
    if text.contains("${") {
        // What is approved is one place; a variable would make it many.
        let hint = "write the URL out, and send credentials in `headers`";
        report.error_hint(Some(at), &path, "URL refers to a variable", hint);
        return None;
    }
    let url = match WebUrl::new(&text) {
        Ok(url) => url,
        Err(error) => {
            report.error(Some(at), &path, error.to_string());
            return None;
        }
    };
    if !url.is_secure() && !stays_here(&url) {
        let message = format!("`{}` is without TLS: whoever is on the way reads and changes it", url.origin());
        report.error_hint(Some(at), &path, message, "use `https://`; `http://` is for this machine only");
        return None;
    }
    if let Some(name) = secret_in_query(&url) {
        let message = format!("URL has what looks like a secret in its query, `{}`", crate::visible(name));
        let hint = "URLs end in logs of servers; send it in `headers` if the server takes it there";
        report.warning(Some(at), &path, message, Some(hint.to_owned()));
    }
    let permission = AccessPermission::Network(url.rule().clone());
    if let Some(reason) = permission.red_flag().filter(|_| !stays_here(&url)) {
        report.warning(Some(at), &path, format!("`{}` {reason}", url.origin()), None);
    }
    requested.add(permission, at, &path);
    Some(url)
}

fn stays_here(url: &WebUrl) -> bool {
    match url.rule().target() {
        NetTarget::Name(name) => name == "localhost" || name.ends_with(".localhost"),
        NetTarget::Address(IpAddr::V4(address)) => address.is_loopback(),
        NetTarget::Address(IpAddr::V6(address)) => address.is_loopback(),
        NetTarget::Any | NetTarget::Below(_) => false,
    }
}

/// Names of query parameters that hold keys as often as not.
fn is_key(name: &str) -> bool {
    name.eq_ignore_ascii_case("key") || secret::is_secret_name(name)
}

fn secret_in_query(url: &WebUrl) -> Option<&str> {
    let (_, query) = url.target().split_once('?')?;
    query.split('&').filter_map(|pair| pair.split_once('=')).map(|(name, _)| name).find(|name| is_key(name))
}

/// Reads the headers.
pub(super) fn read_headers(backend: &mut MapReader, report: &mut Report) -> Vec<Variable> {
    let path = backend.path_of("headers");
    let Some(entry) = backend.take("headers") else { return Vec::new() };
    let (at, kind) = (entry.node.at, entry.node.kind());
    let Value::Map(entries) = entry.node.value else {
        report.error(Some(at), &path, format!("expected a map of names and values, found {kind}"));
        return Vec::new();
    };
    if entries.len() > HEADERS_MAX {
        let message = format!("map has {} entries, at most {HEADERS_MAX} are allowed", entries.len());
        report.error(Some(at), &path, message);
        return Vec::new();
    }
    let mut headers: Vec<Variable> = Vec::with_capacity(entries.len());
    for entry in entries {
        let path = path_of(&path, &entry.key);
        if let Err(reason) = check_name(&entry.key) {
            report.error(Some(entry.at), &path, format!("header name {} {reason}", quoted(&entry.key)));
            continue;
        }
        if headers.iter().any(|other| other.name.eq_ignore_ascii_case(&entry.key)) {
            report.error(Some(entry.at), &path, "is there already, with other capitals");
            continue;
        }
        let at = entry.node.at;
        let value = text_of(entry.node, &path, report).and_then(|text| checked_text(text, at, &path, report));
        let Some(value) = value else { continue };
        if value.chars().any(char::is_control) || !value.is_ascii() {
            report.error(Some(at), &path, "header value has a character that no header has");
            continue;
        }
        warn_of_literal(&entry.key, &value, at, &path, report);
        headers.push(Variable { path, at, name: entry.key, value });
    }
    headers
}

/// A key in a manifest is in every copy of it.
fn warn_of_literal(name: &str, value: &str, at: Mark, path: &str, report: &mut Report) {
    let is_secret = name.eq_ignore_ascii_case("authorization") || secret::is_secret_name(name);
    if is_secret && !value.contains("${") {
        let hint = "set a variable of the host and write `${NAME}` instead";
        report.warning(Some(at), path, "header holds what looks like a secret", Some(hint.to_owned()));
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || name.len() > HEADER_NAME_BYTES_MAX || !name.chars().all(is_token) {
        return Err("is not valid".to_owned());
    }
    let lower = name.to_ascii_lowercase();
    if RESERVED.contains(&lower.as_str()) || lower.starts_with(PROTOCOL_PREFIX) {
        return Err("is set by the host itself".to_owned());
    }
    Ok(())
}

/// Reads `secret_headers`.
pub(super) fn read_secret_headers(backend: &mut MapReader, headers: &[Variable], report: &mut Report) -> Vec<String> {
    let mut names = Vec::new();
    for (path, item) in backend.list("secret_headers", HEADERS_MAX, report).unwrap_or_default() {
        let at = item.at;
        let Some(name) = text_of(item, &path, report) else { continue };
        if headers.iter().any(|header| header.name == name) {
            names.push(name);
        } else {
            let message = format!("header {} is not set in `{}`", quoted(&name), backend.path_of("headers"));
            match did_you_mean(&name, headers.iter().map(|header| header.name.as_str())) {
                Some(hint) => report.error_hint(Some(at), &path, message, hint),
                None => report.error(Some(at), &path, message),
            }
        }
    }
    names
}

/// Refuses what only a process of this machine can be given.
pub(super) fn refuse_local_permissions(requested: &Requested, url: &WebUrl, report: &mut Report) {
    for (permission, at, path) in requested.all() {
        let shown = quoted(&permission.to_string());
        match permission {
            AccessPermission::Network(rule) if rule == url.rule() => {}
            AccessPermission::Network(_) => {
                let hint = "leave it out: what follows from `backend.url` is added by itself";
                report.error_hint(Some(at), path, format!("permission {shown} is not where the server is"), hint);
            }
            _ => {
                let message = format!("permission {shown} is for a process, and a server elsewhere has none here");
                report.error_hint(Some(at), path, message, "leave it out");
            }
        }
    }
}
