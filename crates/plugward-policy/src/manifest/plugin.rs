//! The top level of a manifest. Owns its keys: identity, contributions and tool filter; `access` and
//! `backend` read the other sections. Refuses contributions this version does not offer instead of ignoring them.

use super::diagnostic::Report;
use super::pattern::{NamePattern, ToolFilter};
use super::reader::{MapReader, text_of};
use super::tree::{Mark, Node, Value};
use super::{Manifest, access, backend, supervision};
use crate::id::{PluginId, ToolId};
use crate::visible::is_deceptive;

/// Longest name for people, in characters: one line of a terminal.
const NAME_CHARS_MAX: usize = 80;

/// Longest version text, in characters.
const VERSION_CHARS_MAX: usize = 64;

/// Longest description, in characters: it is read before agreeing, so it has to be readable.
const DESCRIPTION_CHARS_MAX: usize = 4096;

/// Most tools one manifest may declare (the seed's bound on discovery).
const DECLARED_TOOLS_MAX: usize = 500;

/// Most patterns in each filter list.
const PATTERNS_MAX: usize = 500;

const KEYS: [&str; 12] = [
    "id",
    "plugin_id",
    "name",
    "version",
    "description",
    "permissions",
    "contributes",
    "backend",
    "tools",
    "sandbox",
    "supervision",
    "isolation",
];

/// Contributions that exist in the format and are accepted only when empty.
const OTHER_CONTRIBUTIONS: [&str; 5] = ["commands", "importers", "exporters", "panels", "settings_sections"];

/// Reads the whole manifest; `None` when it is refused, with every reason in `report`.
pub(crate) fn read_manifest(root: Node, report: &mut Report) -> Option<Manifest> {
    if !matches!(root.value, Value::Map(_)) {
        let message = format!("expected a map of keys, found {}", root.kind());
        report.error(Some(root.at), "", message);
        return None;
    }
    let mut map = MapReader::new(root, "", &KEYS, report);
    let id = read_id(&mut map, report);
    let name = read_line(&mut map, "name", NAME_CHARS_MAX, report);
    let version = read_line(&mut map, "version", VERSION_CHARS_MAX, report);
    let description = read_description(&mut map, report);
    let (permissions, mut access) = access::read_permissions(&mut map, report);
    let declared_tools = read_contributes(&mut map, id.as_ref(), report);
    let backend = backend::read_backend(&mut map, declared_tools.is_some(), &mut access, report);
    let tools = read_filter(&mut map, report);
    let min_sandbox_level = access::read_sandbox(&mut map, &mut access, report);
    // Nothing of it runs here that could have one.
    let is_remote = backend.as_ref().is_some_and(|backend| backend.remote().is_some());
    let min_sandbox_level = if is_remote { super::SandboxLevel::None } else { min_sandbox_level };
    let mut supervision = supervision::read_supervision(&mut map, report);
    let exclusive = supervision.exclusive;
    supervision.isolation = supervision::read_isolation(&mut map, backend.as_ref(), exclusive, report);
    if let Some(backend) = &backend {
        access::check_variables(&access, backend, report);
    }
    Some(Manifest {
        id: id?,
        name: name?,
        version: version?,
        description,
        permissions,
        access: access.into_access(),
        declared_tools,
        backend: backend?,
        tools,
        min_sandbox_level,
        supervision,
    })
}

fn read_id(map: &mut MapReader, report: &mut Report) -> Option<PluginId> {
    let (short, long) = (map.take("id"), map.take("plugin_id"));
    let entry = match (short, long) {
        (Some(_), Some(long)) => {
            report.error(Some(long.at), "plugin_id", "means the same as `id`, give only one");
            return None;
        }
        (Some(entry), None) | (None, Some(entry)) => entry,
        (None, None) => {
            if map.lacks("id") && map.lacks("plugin_id") {
                report.error(Some(map.at()), "id", "missing key");
            }
            return None;
        }
    };
    let at = entry.node.at;
    let text = text_of(entry.node, &entry.key, report)?;
    checked(PluginId::new(text), at, &entry.key, report)
}

/// The value, or its error as a finding.
fn checked<T, E: std::fmt::Display>(result: Result<T, E>, at: Mark, path: &str, report: &mut Report) -> Option<T> {
    result.map_err(|error| report.error(Some(at), path, error.to_string())).ok()
}

/// One line of text for people.
fn read_line(map: &mut MapReader, key: &str, chars_max: usize, report: &mut Report) -> Option<String> {
    let (text, at) = map.required_text(key, report)?;
    let chars = text.chars().count();
    if text.trim().is_empty() {
        report.error(Some(at), key, "expected text, found only blanks");
    } else if chars > chars_max {
        let message = format!("text has {chars} characters, at most {chars_max} are allowed");
        report.error(Some(at), key, message);
    } else if text.chars().any(is_deceptive) {
        report.error(Some(at), key, "text holds control or invisible characters");
    } else {
        return Some(text);
    }
    None
}

pub(super) fn read_description(map: &mut MapReader, report: &mut Report) -> String {
    let Some(entry) = map.take("description") else {
        return String::new();
    };
    let at = entry.node.at;
    if entry.node.is_null() {
        return String::new();
    }
    let text = text_of(entry.node, "description", report).unwrap_or_default();
    let chars = text.chars().count();
    if chars > DESCRIPTION_CHARS_MAX {
        let message = format!("text has {chars} characters, at most {DESCRIPTION_CHARS_MAX} are allowed");
        report.error(Some(at), "description", message);
    }
    if text.chars().any(|c| is_deceptive(c) && !matches!(c, '\n' | '\t')) {
        let message = "text holds control or invisible characters";
        report.error(Some(at), "description", message);
    }
    text
}

/// One line of text that may be absent.
pub(super) fn read_optional_line(map: &mut MapReader, key: &str, report: &mut Report) -> Option<String> {
    if map.lacks(key) { None } else { read_line(map, key, VERSION_CHARS_MAX, report) }
}

/// The declared tool set, `None` when the manifest does not declare one.
fn read_contributes(map: &mut MapReader, plugin: Option<&PluginId>, report: &mut Report) -> Option<Vec<ToolId>> {
    let entry = map.take("contributes")?;
    let keys: Vec<&str> = std::iter::once("tools").chain(OTHER_CONTRIBUTIONS).collect();
    let mut contributes = MapReader::new(entry.node, "contributes", &keys, report);
    for kind in OTHER_CONTRIBUTIONS {
        let path = contributes.path_of(kind);
        if let Some(entry) = contributes.take(kind) {
            let empty = match &entry.node.value {
                Value::List(items) => items.is_empty(),
                _ => false,
            };
            if !empty {
                let hint = Some("leave it out or empty".to_owned());
                report.unsupported(Some(entry.at), &path, "not supported by this version", hint);
            }
        }
    }
    let items = contributes.list("tools", DECLARED_TOOLS_MAX, report)?;
    let mut tools: Vec<ToolId> = Vec::new();
    for (path, item) in items {
        let at = item.at;
        let Some(text) = text_of(item, &path, report) else { continue };
        // Without a valid plugin id there is nothing to compare with, and that is reported already.
        let Some(plugin) = plugin else { continue };
        let Some(tool) = checked(ToolId::parse(&text, plugin), at, &path, report) else {
            continue;
        };
        if tools.contains(&tool) {
            report.error(Some(at), &path, format!("tool `{tool}` is listed twice"));
        } else {
            tools.push(tool);
        }
    }
    Some(tools)
}

fn read_filter(map: &mut MapReader, report: &mut Report) -> ToolFilter {
    let Some(entry) = map.take("tools") else {
        return ToolFilter::default();
    };
    let mut tools = MapReader::new(entry.node, "tools", &["allow", "deny"], report);
    let mut patterns = |key: &str| {
        let items = tools.list(key, PATTERNS_MAX, report)?;
        let read = |(path, item): (String, Node)| {
            let at = item.at;
            let text = text_of(item, &path, report)?;
            checked(text.parse::<NamePattern>(), at, &path, report)
        };
        Some(items.into_iter().filter_map(read).collect::<Vec<_>>())
    };
    ToolFilter { allow: patterns("allow"), deny: patterns("deny").unwrap_or_default() }
}
