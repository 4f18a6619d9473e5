//! The `backend` section of a manifest. Owns its keys, ranges and defaults. Refuses every way of
//! running a plugin other than an MCP server over stdio or over HTTP (requirement 28).

use std::ops::RangeInclusive;
use std::time::Duration;

use super::access::Requested;
use super::diagnostic::Report;
use super::reader::{MapReader, did_you_mean, text_of};
use super::tree::{Mark, Node, Value};
use super::{
    Backend, BackendKind, CONCURRENT_CALLS_DEFAULT, MESSAGE_BYTES_DEFAULT, ProtocolMode, QUEUED_CALLS_DEFAULT,
    RESULT_BYTES_DEFAULT, RemoteServer, RemoteTransport, RestartMode, STARTUP_TIMEOUT_DEFAULT,
    STARTUP_TIMEOUT_LAUNCHER, STARTUP_TIMEOUT_REMOTE, StdoutMode, TOOL_TIMEOUT_DEFAULT, lint, path_of, remote,
};
use crate::expand;
use crate::visible::quoted;

/// Start-up and listing bounds a manifest may set, in seconds (the seed's range).
const STARTUP_SECONDS: RangeInclusive<u64> = 1..=60;

/// Call bounds a manifest may set, in seconds (the seed's range).
const TOOL_SECONDS: RangeInclusive<u64> = 1..=600;

/// Message limits a manifest may set, in bytes: below 64 KiB ordinary tool lists do not fit, above
/// 64 MiB one plugin could take the memory of the host.
const MESSAGE_BYTES: RangeInclusive<u64> = 64 * 1024..=64 * 1024 * 1024;

/// Result limits a manifest may set, in bytes.
const RESULT_BYTES: RangeInclusive<u64> = 1024..=16 * 1024 * 1024;

/// Parallel calls a manifest may set.
const CONCURRENT_CALLS: RangeInclusive<u64> = 1..=256;

/// Waiting calls a manifest may set.
const QUEUED_CALLS: RangeInclusive<u64> = 0..=4096;

/// Most arguments and most variables; both are shown one a line before somebody agrees.
const LIST_MAX: usize = 256;

/// Longest command, argument, variable or directory, in bytes; an operating system takes 128 KiB,
/// and a person who has to read it far less.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// Longest name of a variable, in bytes.
const ENV_NAME_BYTES_MAX: usize = 128;

const KEYS: [&str; 20] = [
    "type",
    "transport",
    "command",
    "args",
    "env",
    "secret_env",
    "cwd",
    "startup_timeout_seconds",
    "tool_timeout_seconds",
    "list_timeout_seconds",
    "stdout",
    "restart",
    "protocol",
    "max_message_bytes",
    "max_result_bytes",
    "max_concurrent_calls",
    "max_queued_calls",
    "url",
    "headers",
    "secret_headers",
];

/// Keys that only a process has.
const OF_A_PROCESS: [&str; 6] = ["command", "args", "env", "secret_env", "cwd", "stdout"];

/// Keys that only a server elsewhere has.
const OF_A_REMOTE: [&str; 3] = ["url", "headers", "secret_headers"];

/// Backend types the format knows and this version does not run.
const OTHER_TYPES: [&str; 2] = ["none", "internal_rpc"];

/// Transports the format knows and this version does not speak.
const OTHER_TRANSPORTS: [&str; 1] = ["none"];

/// Reads the section; `declared` says whether the manifest declares its tools.
pub(crate) fn read_backend(
    map: &mut MapReader,
    declared: bool,
    requested: &mut Requested,
    report: &mut Report,
) -> Option<Backend> {
    let Some(entry) = map.take("backend") else {
        if !map.lacks("backend") {
            return None;
        }
        let hint = Some("`type: mcp` with `transport: stdio` or `streamable_http` runs in this version".to_owned());
        report.unsupported(Some(map.at()), "backend", "missing, which means type `none`", hint);
        return None;
    };
    let mut backend = MapReader::new(entry.node, "backend", &KEYS, report);
    let remote = backend.peek("transport").and_then(|word| remote::TRANSPORTS.iter().find(|(known, _)| *known == word));
    if let Some((_, transport)) = remote {
        return read_remote(backend, *transport, declared, requested, report);
    }
    let typed = only(&mut backend, "type", "mcp", &OTHER_TYPES, report);
    let stdio = only(&mut backend, "transport", "stdio", &OTHER_TRANSPORTS, report);
    refuse_keys(&mut backend, &OF_A_REMOTE, "is for a server elsewhere, with `transport: streamable_http`", report);
    let runs = typed && stdio;
    let command = read_command(&mut backend, runs, report);
    let args = read_args(&mut backend, report);
    let env = read_env(&mut backend, report);
    let secret_env = read_secret_env(&mut backend, &env, report);
    let cwd = backend.text("cwd", report);
    let cwd = cwd.and_then(|(text, at)| checked_text(text, at, "backend.cwd", report));
    let launcher = command.as_ref().and_then(|(command, _)| lint::launcher(command, &args.texts()));
    let startup = match launcher {
        Some(_) => STARTUP_TIMEOUT_LAUNCHER,
        None => STARTUP_TIMEOUT_DEFAULT,
    };
    let bounded = read_bounds(&mut backend, startup, declared, report);
    let (command, command_at) = command?;
    lint::check(&command, command_at, &args.0, &env, &secret_env, report);
    Some(Backend { args: args.texts(), env: values_of(env), command, secret_env, cwd, ..bounded })
}

/// Reads the section of a server elsewhere.
fn read_remote(
    mut backend: MapReader,
    transport: RemoteTransport,
    declared: bool,
    requested: &mut Requested,
    report: &mut Report,
) -> Option<Backend> {
    drop(backend.take("transport"));
    let typed = only(&mut backend, "type", "mcp", &OTHER_TYPES, report);
    refuse_keys(&mut backend, &OF_A_PROCESS, "is for a process, and a server elsewhere has none here", report);
    let url = remote::read_url(&mut backend, requested, report);
    let headers = remote::read_headers(&mut backend, report);
    let secret_env = remote::read_secret_headers(&mut backend, &headers, report);
    let bounded = read_bounds(&mut backend, STARTUP_TIMEOUT_REMOTE, declared, report);
    let url = url.filter(|_| typed)?;
    remote::refuse_local_permissions(requested, &url, report);
    let command = url.to_string();
    let kind = BackendKind::McpHttp(Box::new(RemoteServer { transport, url }));
    Some(Backend { command, env: values_of(headers), secret_env, kind, ..bounded })
}

/// Reads the bounds that every server has, into a backend that is nothing yet.
fn read_bounds(backend: &mut MapReader, startup_default: Duration, declared: bool, report: &mut Report) -> Backend {
    let seconds = |number: u64| Duration::from_secs(number);
    let startup = backend.number("startup_timeout_seconds", STARTUP_SECONDS, report).map(seconds);
    let startup_timeout = startup.unwrap_or(startup_default);
    let tool = backend.number("tool_timeout_seconds", TOOL_SECONDS, report).map(seconds);
    let list = backend.number("list_timeout_seconds", STARTUP_SECONDS, report).map(seconds);
    let modes = [("strict", StdoutMode::Strict), ("tolerant", StdoutMode::Tolerant)];
    let stdout = backend.choice("stdout", &modes, report);
    let modes = [("on-failure", RestartMode::OnFailure), ("never", RestartMode::Never)];
    let restart = backend.choice("restart", &modes, report);
    let modes = [("auto", ProtocolMode::Auto), ("legacy", ProtocolMode::Legacy), ("modern", ProtocolMode::Modern)];
    let protocol = backend.choice("protocol", &modes, report);
    let message_bytes = backend.number("max_message_bytes", MESSAGE_BYTES, report);
    let result_bytes = backend.number("max_result_bytes", RESULT_BYTES, report);
    let concurrent = narrow(backend.number("max_concurrent_calls", CONCURRENT_CALLS, report));
    let queued = narrow(backend.number("max_queued_calls", QUEUED_CALLS, report));
    Backend {
        args: Vec::new(),
        env: Vec::new(),
        command: String::new(),
        secret_env: Vec::new(),
        cwd: None,
        startup_timeout,
        tool_timeout: tool.unwrap_or(TOOL_TIMEOUT_DEFAULT),
        list_timeout: list.unwrap_or(startup_timeout),
        stdout: stdout.unwrap_or(match declared {
            true => StdoutMode::Strict,
            false => StdoutMode::Tolerant,
        }),
        restart: restart.unwrap_or(RestartMode::OnFailure),
        protocol: protocol.unwrap_or(match declared {
            true => ProtocolMode::Legacy,
            false => ProtocolMode::Auto,
        }),
        max_message_bytes: message_bytes.unwrap_or(MESSAGE_BYTES_DEFAULT),
        max_result_bytes: result_bytes.unwrap_or(RESULT_BYTES_DEFAULT),
        max_concurrent_calls: concurrent.unwrap_or(CONCURRENT_CALLS_DEFAULT),
        max_queued_calls: queued.unwrap_or(QUEUED_CALLS_DEFAULT),
        kind: BackendKind::McpStdio,
    }
}

fn values_of(variables: Vec<Variable>) -> Vec<(String, String)> {
    variables.into_iter().map(|variable| (variable.name, variable.value)).collect()
}

/// Reports keys that belong to the other way of running.
fn refuse_keys(backend: &mut MapReader, keys: &[&str], why: &str, report: &mut Report) {
    for key in keys {
        let path = backend.path_of(key);
        if let Some(entry) = backend.take(key) {
            report.error_hint(Some(entry.at), &path, why, "leave it out");
        }
    }
}

/// Every range of a count ends far below `u32::MAX`.
fn narrow(number: Option<u64>) -> Option<u32> {
    number.and_then(|number| u32::try_from(number).ok())
}

/// Whether `key` has the one value this version runs; the other known values are unsupported,
/// absence means `none` as in the seed, and anything else is a mistake.
fn only(backend: &mut MapReader, key: &str, offered: &str, others: &[&str], report: &mut Report) -> bool {
    let path = backend.path_of(key);
    let hint = Some(format!("only `{key}: {offered}` runs in this version"));
    let Some(entry) = backend.take(key) else {
        if backend.lacks(key) {
            report.unsupported(Some(backend.at()), &path, "missing, which means `none`", hint);
        }
        return false;
    };
    let at = entry.node.at;
    let Some(text) = text_of(entry.node, &path, report) else {
        return false;
    };
    if text == offered {
        return true;
    }
    if others.contains(&text.as_str()) {
        report.unsupported(Some(at), &path, format!("`{text}` is not supported"), hint);
    } else {
        let hint = did_you_mean(&text, std::iter::once(offered).chain(others.iter().copied()))
            .unwrap_or_else(|| format!("write `{offered}`"));
        report.error_hint(Some(at), &path, format!("unknown value {}", quoted(&text)), hint);
    }
    false
}

/// One argument and where it is written.
pub(crate) struct Argument {
    pub(crate) path: String,
    pub(crate) at: Mark,
    pub(crate) text: String,
}

/// One variable and where its value is written.
#[derive(Clone)]
pub(crate) struct Variable {
    pub(crate) path: String,
    pub(crate) at: Mark,
    pub(crate) name: String,
    pub(crate) value: String,
}

struct Arguments(Vec<Argument>);

impl Arguments {
    fn texts(&self) -> Vec<String> {
        self.0.iter().map(|argument| argument.text.clone()).collect()
    }
}

fn read_command(backend: &mut MapReader, required: bool, report: &mut Report) -> Option<(String, Mark)> {
    let path = backend.path_of("command");
    let (text, at) =
        if required { backend.required_text("command", report)? } else { backend.text("command", report)? };
    if text.trim().is_empty() {
        report.error(Some(at), &path, "expected an executable, found only blanks");
        return None;
    }
    checked_text(text, at, &path, report).map(|text| (text, at))
}

fn read_args(backend: &mut MapReader, report: &mut Report) -> Arguments {
    let items = backend.list("args", LIST_MAX, report).unwrap_or_default();
    let read = |(path, item): (String, Node)| {
        let at = item.at;
        let text = text_of(item, &path, report)?;
        let text = checked_text(text, at, &path, report)?;
        Some(Argument { path, at, text })
    };
    Arguments(items.into_iter().filter_map(read).collect())
}

pub(super) fn read_env(backend: &mut MapReader, report: &mut Report) -> Vec<Variable> {
    let path = backend.path_of("env");
    let Some(entry) = backend.take("env") else {
        return Vec::new();
    };
    let (at, kind) = (entry.node.at, entry.node.kind());
    let Value::Map(entries) = entry.node.value else {
        let message = format!("expected a map of names and values, found {kind}");
        report.error(Some(at), &path, message);
        return Vec::new();
    };
    if entries.len() > LIST_MAX {
        let message = format!("map has {} entries, at most {LIST_MAX} are allowed", entries.len());
        report.error(Some(at), &path, message);
        return Vec::new();
    }
    let mut variables = Vec::with_capacity(entries.len());
    for entry in entries {
        let path = path_of(&path, &entry.key);
        if !is_env_name(&entry.key) {
            let message = format!("variable name {} is not valid", quoted(&entry.key));
            let hint = "use letters, digits and `_`, not starting with a digit";
            report.error_hint(Some(entry.at), &path, message, hint);
            continue;
        }
        let at = entry.node.at;
        let value = text_of(entry.node, &path, report).and_then(|text| checked_text(text, at, &path, report));
        if let Some(value) = value {
            variables.push(Variable { path, at, name: entry.key, value });
        }
    }
    variables
}

pub(super) fn read_secret_env(backend: &mut MapReader, env: &[Variable], report: &mut Report) -> Vec<String> {
    let mut names = Vec::new();
    for (path, item) in backend.list("secret_env", LIST_MAX, report).unwrap_or_default() {
        let at = item.at;
        let Some(name) = text_of(item, &path, report) else { continue };
        if env.iter().any(|variable| variable.name == name) {
            names.push(name);
        } else {
            let message = format!("variable {} is not set in `{}`", quoted(&name), backend.path_of("env"));
            let known = env.iter().map(|variable| variable.name.as_str());
            match did_you_mean(&name, known) {
                Some(hint) => report.error_hint(Some(at), &path, message, hint),
                None => report.error(Some(at), &path, message),
            }
        }
    }
    names
}

fn is_env_name(name: &str) -> bool {
    name.len() <= ENV_NAME_BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A text the operating system can take and whose `${NAME}` references can be read.
pub(super) fn checked_text(text: String, at: Mark, path: &str, report: &mut Report) -> Option<String> {
    if text.contains('\0') {
        report.error(Some(at), path, "text holds a NUL character");
        return None;
    }
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("text has {} bytes, at most {TEXT_BYTES_MAX} are allowed", text.len());
        report.error(Some(at), path, message);
        return None;
    }
    if let Err(error) = expand::check_references(&text) {
        report.error(Some(at), path, error.to_string());
        return None;
    }
    Some(text)
}
