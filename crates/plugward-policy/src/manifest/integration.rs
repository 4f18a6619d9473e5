//! A plugin that is one webhook (`type: integration`). Owns its keys and ranges; `crate::webhook` owns what they mean.
//! Refuses a host that a variable could change, addresses near this machine that nobody asked for in so many words, and
//! headers that are the host's own.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::backend::{Variable, checked_text};
use super::command::{identity, read_description, read_name};
use super::command_parameters::json_of;
use super::diagnostic::Report;
use super::reader::{MapReader, did_you_mean, text_of};
use super::tree::{Mark, Node, Value};
use super::{Backend, BackendKind, Manifest, SandboxLevel, ToolFilter, access, lint, path_of, plugin};
use crate::access::AccessPermission;
use crate::secret::is_secret_name;
use crate::visible::quoted;
use crate::webhook::{
    FIELDS, HostOccasion, PAYLOAD_BYTES_MAX, Payload, PayloadError, WEBHOOK_HEADER, WEBHOOK_SECRET, WEBHOOK_URL,
    Webhook, occasion_names, occasions_of, url_shape,
};

/// Bounds on one attempt, in milliseconds (the seed's upper bound; a receiver on this machine answers at once).
const TIMEOUT_MS: RangeInclusive<u64> = 100..=30_000;

/// Bound on one attempt when a file says nothing (the seed's value).
const TIMEOUT_MS_DEFAULT: u64 = 5000;

/// Attempts after the first that a file may ask for: a receiver that is down for longer misses an event, and the ones
/// behind it do not wait for ever.
const RETRIES: RangeInclusive<u64> = 0..=5;

/// Attempts after the first when a file says nothing (the seed's value).
const RETRIES_DEFAULT: u64 = 1;

/// First pause between two attempts, in milliseconds.
const RETRY_DELAY_MS: RangeInclusive<u64> = 10..=60_000;

/// First pause when a file says nothing: a restart of a receiver takes about as long.
const RETRY_DELAY_MS_DEFAULT: u64 = 1000;

/// Most entries of a filter.
const EVENTS_MAX: usize = 32;

/// Most headers, and longest name of one in bytes.
const HEADERS_MAX: usize = 32;
const HEADER_NAME_BYTES_MAX: usize = 64;

const KEYS: [&str; 13] = [
    "type",
    "name",
    "version",
    "description",
    "webhook_url",
    "events",
    "payload_template",
    "headers",
    "secret",
    "timeout_ms",
    "retry_count",
    "retry_delay_ms",
    "permissions",
];

/// Headers that frame the message or vouch for it.
const OWN_HEADERS: [&str; 12] = [
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What the headers of the signature begin with.
const OWN_PREFIX: &str = "webhook-";

/// Reads a whole file; `None` when it is refused, with every reason in `report`.
pub(crate) fn read_integration(root: Node, report: &mut Report) -> Option<Manifest> {
    let mut map = MapReader::new(root, "", &KEYS, report);
    let at = map.at();
    drop(map.take("type"));
    let name = read_name(&mut map, report);
    let version = plugin::read_optional_line(&mut map, "version", report).unwrap_or_else(|| "0".to_owned());
    let description = read_description(&mut map, report);
    let (permissions, mut requested) = access::read_permissions(&mut map, report);
    let url = read_url(&mut map, &mut requested, report);
    let occasions = read_events(&mut map, report);
    let payload = read_payload(&mut map, report);
    let mut variables: Vec<Variable> = url.iter().cloned().collect();
    let headers = read_headers(&mut map, &mut variables, report);
    let secret = read_secret(&mut map, report);
    let is_signed = secret.is_some();
    if !is_signed && map.lacks("secret") {
        let hint = "write `secret: ${NAME}` with the name of a variable that holds a key shared with the receiver";
        report.warning(Some(at), "secret", "is not signed: anybody can send the same", Some(hint.to_owned()));
    }
    variables.extend(secret);
    let timeout_ms = map.number("timeout_ms", TIMEOUT_MS, report).unwrap_or(TIMEOUT_MS_DEFAULT);
    let retries = map.number("retry_count", RETRIES, report).unwrap_or(RETRIES_DEFAULT);
    let retry_delay_ms = map.number("retry_delay_ms", RETRY_DELAY_MS, report).unwrap_or(RETRY_DELAY_MS_DEFAULT);
    let secret_names: Vec<String> =
        variables.iter().filter(|variable| is_kept_secret(variable)).map(|it| it.name.clone()).collect();
    lint::check("", at, &[], &variables, &secret_names, report);
    let webhook = Webhook {
        name: name?,
        description: description?,
        url: url?.value,
        occasions: occasions?,
        payload: payload?,
        headers,
        is_signed,
        timeout: Duration::from_millis(timeout_ms),
        retries: u32::try_from(retries).unwrap_or_default(),
        retry_delay: Duration::from_millis(retry_delay_ms),
    };
    Some(Manifest {
        id: identity(&webhook.name)?,
        name: webhook.name.clone(),
        version,
        description: webhook.description.clone(),
        permissions,
        access: requested.into_access(),
        declared_tools: Some(Vec::new()),
        tools: ToolFilter::default(),
        min_sandbox_level: SandboxLevel::Full,
        supervision: super::Supervision::default(),
        backend: Backend::without_program(
            variables.into_iter().map(|variable| (variable.name, variable.value)).collect(),
            secret_names,
            webhook.timeout,
            BackendKind::Webhook(Box::new(webhook)),
        ),
    })
}

/// Whether the value must not be shown: the key, and what has something of the environment in it.
fn is_kept_secret(variable: &Variable) -> bool {
    variable.name == WEBHOOK_SECRET || variable.value.contains("${") || is_secret_name(&variable.name)
}

fn read_url(map: &mut MapReader, requested: &mut access::Requested, report: &mut Report) -> Option<Variable> {
    const PATH: &str = "webhook_url";
    let (text, at) = map.required_text(PATH, report)?;
    let text = checked_text(text, at, PATH, report)?;
    let url = match url_shape(&text) {
        Ok(url) => url,
        Err(error) => {
            report.error(Some(at), PATH, error.to_string());
            return None;
        }
    };
    let rule = url.rule().clone();
    if !url.is_secure() && !rule.is_this_machine() {
        let hint = "use `https://`; plain HTTP is for receivers on this machine";
        report.error_hint(Some(at), PATH, "sends in the clear to another machine", hint);
        return None;
    }
    let permission = AccessPermission::Network(rule.clone());
    // A wider rule would let the name lead where a webhook has no business.
    for (asked, at, path) in requested.all() {
        if matches!(asked, AccessPermission::Network(_)) && *asked != permission {
            let hint = format!("a webhook connects to its URL alone: `{permission}` is all it may ask for");
            report.error_hint(Some(at), path, format!("`{asked}` is not for the host of `{PATH}`"), hint);
        }
    }
    if !requested.contains(&permission) {
        // What a name says of itself must have been meant: nobody reads it out of a URL.
        if let Some(reason) = rule.red_flag() {
            let hint = format!("add `{permission}` to `permissions` if that is meant");
            report.error_hint(Some(at), PATH, format!("{reason}, and no permission asks for that"), hint);
            return None;
        }
        requested.add(permission, at, PATH);
    }
    Some(Variable { path: PATH.to_owned(), at, name: WEBHOOK_URL.to_owned(), value: text })
}

fn read_events(map: &mut MapReader, report: &mut Report) -> Option<Vec<HostOccasion>> {
    let at = map.at();
    if map.lacks("events") {
        report.error(Some(at), "events", "missing key");
    }
    let words = map.list("events", EVENTS_MAX, report)?;
    let mut picked: Vec<HostOccasion> = Vec::new();
    if words.is_empty() {
        report.error_hint(Some(at), "events", "is empty", "name one, or write `\"*\"` for all");
        return None;
    }
    for (path, word) in words {
        let at = word.at;
        let Some(text) = text_of(word, &path, report) else { continue };
        match occasions_of(&text) {
            Ok(found) => {
                for occasion in found {
                    if !picked.contains(&occasion) {
                        picked.push(occasion);
                    }
                }
            }
            Err(error) => match did_you_mean(&text, occasion_names()) {
                Some(hint) => report.error_hint(Some(at), &path, error.to_string(), hint),
                None => report.error(Some(at), &path, error.to_string()),
            },
        }
    }
    Some(picked)
}

/// Requirement 197 for payloads: what no event would ever fill is found when the file is read.
fn read_payload(map: &mut MapReader, report: &mut Report) -> Option<Payload> {
    const PATH: &str = "payload_template";
    let Some(entry) = map.take(PATH) else { return Some(Payload::default()) };
    let at = entry.node.at;
    let read = match &entry.node.value {
        Value::Map(_) | Value::List(_) => Payload::from_json(&json_of(&entry.node)),
        Value::Scalar { .. } => Payload::from_text(&text_of(entry.node, PATH, report)?),
    };
    match read {
        Ok(payload) => Some(payload),
        Err(error) => {
            refuse_payload(&error, at, PATH, report);
            None
        }
    }
}

fn refuse_payload(error: &PayloadError, at: Mark, path: &str, report: &mut Report) {
    let hint = match error {
        PayloadError::Unknown(place) => {
            let name = place.trim_matches(['{', '}', ' ']);
            did_you_mean(name, FIELDS).unwrap_or_else(|| format!("there are {}", FIELDS.join(", ")))
        }
        PayloadError::TooLong(_) => format!("say it in {PAYLOAD_BYTES_MAX} bytes"),
        _ => "write `{{event.NAME}}` in quotes for text, without quotes for the value".to_owned(),
    };
    report.error_hint(Some(at), path, error.to_string(), hint);
}

fn read_headers(map: &mut MapReader, variables: &mut Vec<Variable>, report: &mut Report) -> Vec<String> {
    let Some(entry) = map.take("headers") else { return Vec::new() };
    let (at, kind) = (entry.node.at, entry.node.kind());
    let Value::Map(entries) = entry.node.value else {
        report.error(Some(at), "headers", format!("expected a map of names and values, found {kind}"));
        return Vec::new();
    };
    if entries.len() > HEADERS_MAX {
        let message = format!("map has {} entries, at most {HEADERS_MAX} are allowed", entries.len());
        report.error(Some(at), "headers", message);
        return Vec::new();
    }
    let mut names: Vec<String> = Vec::new();
    for entry in entries {
        let path = path_of("headers", &entry.key);
        let name = entry.key.to_ascii_lowercase();
        if !is_header_name(&name) {
            let message = format!("header name {} is not valid", quoted(&entry.key));
            report.error_hint(Some(entry.at), &path, message, "use letters, digits and `-`");
            continue;
        }
        if OWN_HEADERS.contains(&name.as_str()) || name.starts_with(OWN_PREFIX) {
            report.error(Some(entry.at), &path, format!("header `{name}` is made by the host itself"));
            continue;
        }
        if names.contains(&name) {
            report.error(Some(entry.at), &path, format!("header `{name}` is given twice"));
            continue;
        }
        let at = entry.node.at;
        let value = text_of(entry.node, &path, report).and_then(|text| checked_text(text, at, &path, report));
        let Some(value) = value else { continue };
        if value.chars().any(char::is_control) {
            report.error(Some(at), &path, "text holds a control character, which would begin another header");
            continue;
        }
        variables.push(Variable { path, at, name: format!("{WEBHOOK_HEADER}{name}"), value });
        names.push(name);
    }
    names
}

fn is_header_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= HEADER_NAME_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn read_secret(map: &mut MapReader, report: &mut Report) -> Option<Variable> {
    let (text, at) = map.text("secret", report)?;
    let value = checked_text(text, at, "secret", report)?;
    if value.trim().is_empty() {
        report.error(Some(at), "secret", "is empty, and would sign nothing");
        return None;
    }
    Some(Variable { path: "secret".to_owned(), at, name: WEBHOOK_SECRET.to_owned(), value })
}
