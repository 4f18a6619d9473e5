//! What a manifest asks of the machine: the `permissions` list and the `sandbox` section. Owns their
//! keys, the ranges of limits and the warnings about permissions a person should think twice about.
//! Refuses a permission that cannot be read instead of leaving it out: the plugin would fail later,
//! and nobody would know why.

use std::collections::BTreeMap;
use std::path::Path;

use super::diagnostic::Report;
use super::reader::{MapReader, did_you_mean, text_of};
use super::tree::{Mark, Value};
use super::{Backend, SANDBOX_LEVELS, SandboxLevel};
use crate::access::{
    Access, AccessError, AccessPermission, CPU_PERCENT, CPU_SECONDS, DISK_BYTES, FILE_BYTES, MEMORY_BYTES, OPEN_FILES,
    PROCESSES, Permission, PermissionError, ResourceLimits, WALL_SECONDS,
};
use crate::id::PermissionName;

/// Most permissions one manifest may ask for; nobody reads more before agreeing.
const PERMISSIONS_MAX: usize = 64;

const SANDBOX_KEYS: [&str; 9] = [
    "minimum_level",
    "memory_bytes",
    "cpu_seconds",
    "processes",
    "open_files",
    "file_bytes",
    "disk_bytes",
    "wall_seconds",
    "cpu_percent",
];

/// What stands before the value of a permission, for suggestions.
const KINDS: [&str; 6] = ["fs.read", "fs.write", "net", "env", "secret", "process.spawn"];

/// Permissions of the machine with the places they are written at.
pub(crate) struct Requested {
    access: Access,
    places: BTreeMap<AccessPermission, (Mark, String)>,
}

/// Reads the `permissions` list.
pub(crate) fn read_permissions(map: &mut MapReader, report: &mut Report) -> (Vec<PermissionName>, Requested) {
    let mut named: Vec<PermissionName> = Vec::new();
    let mut requested = Requested { access: Access::default(), places: BTreeMap::new() };
    for (path, item) in map.list("permissions", PERMISSIONS_MAX, report).unwrap_or_default() {
        let at = item.at;
        if matches!(item.value, Value::Map(_)) {
            // `fs.read: /data` is a map to YAML.
            let message = format!("expected text, found {}", item.kind());
            report.error_hint(Some(at), &path, message, "write it without a blank after the colon");
            continue;
        }
        let Some(text) = text_of(item, &path, report) else { continue };
        let permission = match text.parse::<Permission>() {
            Ok(permission) => permission,
            Err(error) => {
                refuse(&text, &error, at, &path, report);
                continue;
            }
        };
        let shown = format!("permission `{}` is listed twice", crate::visible(&permission.to_string()));
        let new = match permission {
            Permission::Named(name) => {
                let new = !named.contains(&name);
                if new {
                    check_name(&name, at, &path, report);
                    named.push(name);
                }
                new
            }
            Permission::Access(permission) => requested.take(permission, at, &path, report),
        };
        if !new {
            report.warning(Some(at), &path, shown, None);
        }
    }
    (named, requested)
}

impl Requested {
    /// Takes one permission; `false` when it was taken before.
    fn take(&mut self, permission: AccessPermission, at: Mark, path: &str, report: &mut Report) -> bool {
        if !self.access.insert(permission.clone()) {
            return false;
        }
        if let Some(reason) = permission.red_flag() {
            let message = format!("`{}` {reason}", crate::visible(&permission.to_string()));
            report.warning(Some(at), path, message, None);
        }
        self.places.insert(permission, (at, path.to_owned()));
        true
    }

    /// Adds a permission that follows from another key.
    pub(crate) fn add(&mut self, permission: AccessPermission, at: Mark, path: &str) {
        if self.access.insert(permission.clone()) {
            self.places.insert(permission, (at, path.to_owned()));
        }
    }

    /// Whether exactly this is asked for.
    pub(crate) fn contains(&self, permission: &AccessPermission) -> bool {
        self.places.contains_key(permission)
    }

    /// Whether the place `path` lies in one that is asked for, by its text.
    pub(crate) fn covers(&self, path: &str) -> bool {
        self.places.keys().any(|permission| match permission {
            AccessPermission::FilesRead(place) | AccessPermission::FilesWrite(place) => {
                Path::new(path).starts_with(place.as_str())
            }
            _ => false,
        })
    }

    /// Every permission with where it is written.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&AccessPermission, Mark, &str)> {
        self.places.iter().map(|(permission, (at, path))| (permission, *at, path.as_str()))
    }

    /// What was asked for.
    pub(crate) fn into_access(self) -> Access {
        self.access
    }
}

/// Points out a name that was probably meant for something of the machine: as a name it is legal, and
/// gives the plugin nothing.
fn check_name(name: &PermissionName, at: Mark, path: &str, report: &mut Report) {
    let family = KINDS
        .iter()
        .filter_map(|kind| kind.split_once('.'))
        .any(|(family, _)| name.as_str().split_once('.').is_some_and(|(start, _)| start == family));
    if let Some(hint) = did_you_mean(name.as_str(), KINDS).filter(|_| family) {
        let message = format!("permission `{name}` is only a name for tools and opens nothing of the machine");
        report.warning(Some(at), path, message, Some(hint));
    }
}

fn refuse(text: &str, error: &PermissionError, at: Mark, path: &str, report: &mut Report) {
    let message = error.to_string();
    match error {
        PermissionError::Access(AccessError::Unsupported(_)) => {
            let hint = "set a variable in `backend.env` to `${NAME}`, and it is treated as a reference to a secret";
            report.unsupported(Some(at), path, message, Some(hint.to_owned()));
        }
        PermissionError::Access(AccessError::Kind(_)) => {
            let kind = text.split(':').next().unwrap_or_default();
            match did_you_mean(kind, KINDS) {
                Some(hint) => report.error_hint(Some(at), path, message, hint),
                None => report.error(Some(at), path, message),
            }
        }
        _ => report.error(Some(at), path, message),
    }
}

/// Reads the `sandbox` section: the level, and the limits into `requested`.
pub(crate) fn read_sandbox(map: &mut MapReader, requested: &mut Requested, report: &mut Report) -> SandboxLevel {
    let Some(entry) = map.take("sandbox") else {
        return SandboxLevel::Full;
    };
    let at = entry.at;
    let mut sandbox = MapReader::new(entry.node, "sandbox", &SANDBOX_KEYS, report);
    let level = sandbox.choice("minimum_level", &SANDBOX_LEVELS, report).unwrap_or(SandboxLevel::Full);
    let usual = ResourceLimits::default();
    let mut number = |key, range| sandbox.number(key, range, report);
    // These ranges end far below `u32::MAX`.
    let narrow = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
    let limits = ResourceLimits {
        memory_bytes: number("memory_bytes", MEMORY_BYTES).unwrap_or(usual.memory_bytes),
        cpu_seconds: number("cpu_seconds", CPU_SECONDS).or(usual.cpu_seconds),
        processes: narrow(number("processes", PROCESSES)).unwrap_or(usual.processes),
        open_files: narrow(number("open_files", OPEN_FILES)).unwrap_or(usual.open_files),
        file_bytes: number("file_bytes", FILE_BYTES).unwrap_or(usual.file_bytes),
        disk_bytes: number("disk_bytes", DISK_BYTES).unwrap_or(usual.disk_bytes),
        wall_seconds: number("wall_seconds", WALL_SECONDS).or(usual.wall_seconds),
        cpu_percent: narrow(number("cpu_percent", CPU_PERCENT)).or(usual.cpu_percent),
    };
    requested.access.limits = limits;
    if level < SandboxLevel::Partial && !requested.places.is_empty() {
        let message = format!("level `{level}` lets it start where its permissions hold nothing back");
        let hint = Some("leave `minimum_level` out to start only where they do".to_owned());
        report.warning(Some(at), "sandbox.minimum_level", message, hint);
    }
    level
}

/// Refuses variables that are asked of the host and set by the manifest as well: only one value can
/// reach the plugin, and a reader could not tell which.
pub(crate) fn check_variables(requested: &Requested, backend: &Backend, report: &mut Report) {
    for (permission, (at, path)) in &requested.places {
        let AccessPermission::HostVariable(name) = permission else { continue };
        if backend.env.iter().any(|(set, _)| set == name.as_str()) {
            let message = format!("variable `{name}` is also set in `backend.env`");
            report.error_hint(Some(*at), path, message, "keep only one of them");
        }
    }
}
