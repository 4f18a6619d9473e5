//! The canonical text of an approval, written and read. Owns the wire form, apart from the domain
//! type, so that a field renamed there does not change digests that people agreed to. Refuses
//! unknown fields and other versions of the form: what it does not know it cannot compare.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{ApprovalSubject, ApprovedArgument, ArgumentPart, ToolPin};
use crate::access::{Access, AccessPermission, ExpandedAccess, ResourceLimits};
use crate::canonical::canonical_value;
use crate::id::{Digest, PermissionName, PluginId, RemoteToolName};
use crate::manifest::SandboxLevel;

/// The version of the form; a digest is only comparable with one of the same version.
const FORMAT: u32 = 2;

/// A text that is not the record of an approval.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalTextError {
    /// Not the form at all.
    #[error("approval record is not readable: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// A path without a place, or a place without a path.
    #[error("approval record has a permission that does not fit its place")]
    Place,
    /// The form of another version.
    #[error("approval record has format `{0}`, expected `{FORMAT}`")]
    Format(u32),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    access: Permitted,
    argv: Vec<Vec<Part>>,
    contract: Option<Vec<Pin>>,
    cwd: String,
    env: BTreeMap<String, Digest>,
    executable: String,
    executable_digest: Digest,
    format: u32,
    minimum_level: SandboxLevel,
    package_digest: Digest,
    permissions: BTreeSet<PermissionName>,
    plugin: PluginId,
    secret_refs: BTreeMap<String, String>,
    source: String,
    version: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Part {
    Text(String),
    Secret(Digest),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pin {
    digest: Digest,
    name: RemoteToolName,
    parts: BTreeMap<String, Digest>,
}

/// Permissions of the machine by their text, each with the place its path stands for.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Permitted {
    limits: Bounds,
    permissions: BTreeMap<AccessPermission, Option<String>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bounds {
    cpu_seconds: Option<u64>,
    disk_bytes: u64,
    file_bytes: u64,
    memory_bytes: u64,
    open_files: u32,
    processes: u32,
    /// Left out without a bound, as before there was this limit: an approval of then is one of now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wall_seconds: Option<u64>,
    /// As above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpu_percent: Option<u32>,
}

pub(super) fn write(subject: &ApprovalSubject) -> String {
    let record = Record {
        access: permitted(&subject.access),
        argv: subject.argv.iter().map(parts).collect(),
        contract: subject.contract.as_deref().map(pins),
        cwd: subject.cwd.clone(),
        env: subject.env.clone(),
        executable: subject.executable.clone(),
        executable_digest: subject.executable_digest,
        format: FORMAT,
        minimum_level: subject.minimum_level,
        package_digest: subject.package_digest,
        permissions: subject.permissions.clone(),
        plugin: subject.plugin.clone(),
        secret_refs: subject.secret_refs.clone(),
        source: subject.source.clone(),
        version: subject.version.clone(),
    };
    // Strings and maps with string keys always serialise, and what was serialised has a canonical
    // form; an empty text could not be mistaken for an approval.
    let text = serde_json::to_string(&record).unwrap_or_default();
    canonical_value(&text).unwrap_or_default()
}

fn permitted(access: &ExpandedAccess) -> Permitted {
    let limits = access.limits;
    let place = |permission: AccessPermission| {
        let place = access.place(&permission).map(str::to_owned);
        (permission, place)
    };
    Permitted {
        limits: Bounds {
            cpu_seconds: limits.cpu_seconds,
            disk_bytes: limits.disk_bytes,
            file_bytes: limits.file_bytes,
            memory_bytes: limits.memory_bytes,
            open_files: limits.open_files,
            processes: limits.processes,
            wall_seconds: limits.wall_seconds,
            cpu_percent: limits.cpu_percent,
        },
        permissions: access.as_written().permissions().into_iter().map(place).collect(),
    }
}

/// The access that was written, or nothing when a path has no place or another permission has one.
fn access(permitted: Permitted) -> Option<ExpandedAccess> {
    let bounds = permitted.limits;
    let limits = ResourceLimits {
        memory_bytes: bounds.memory_bytes,
        cpu_seconds: bounds.cpu_seconds,
        processes: bounds.processes,
        open_files: bounds.open_files,
        file_bytes: bounds.file_bytes,
        disk_bytes: bounds.disk_bytes,
        wall_seconds: bounds.wall_seconds,
        cpu_percent: bounds.cpu_percent,
    };
    let mut access = ExpandedAccess { limits, ..ExpandedAccess::default() };
    let mut rest = Access::default();
    for (permission, place) in permitted.permissions {
        match (permission, place) {
            (AccessPermission::FilesRead(path), Some(place)) => {
                access.files_read.insert(path, place);
            }
            (AccessPermission::FilesWrite(path), Some(place)) => {
                access.files_write.insert(path, place);
            }
            (AccessPermission::FilesRead(_) | AccessPermission::FilesWrite(_), None) | (_, Some(_)) => return None,
            (permission, None) => {
                rest.insert(permission);
            }
        }
    }
    access.network = rest.network;
    access.host_variables = rest.host_variables;
    access.may_spawn = rest.may_spawn;
    Some(access)
}

fn parts(argument: &ApprovedArgument) -> Vec<Part> {
    let part = |part: &ArgumentPart| match part {
        ArgumentPart::Text(text) => Part::Text(text.clone()),
        ArgumentPart::Secret(digest) => Part::Secret(*digest),
    };
    argument.parts.iter().map(part).collect()
}

/// The pins by name: the order in which a server lists its tools is not part of what it offers.
fn pins(contract: &[ToolPin]) -> Vec<Pin> {
    let mut pins: Vec<&ToolPin> = contract.iter().collect();
    pins.sort_by(|left, right| left.name.cmp(&right.name));
    let record =
        |pin: &ToolPin| Pin { digest: pin.digest, name: pin.name.clone(), parts: pin.parts.iter().cloned().collect() };
    pins.into_iter().map(record).collect()
}

pub(super) fn read(text: &str) -> Result<ApprovalSubject, ApprovalTextError> {
    /// Read first, so that a newer form is named as such and not as unknown fields.
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let version: Version = serde_json::from_str(text)?;
    if version.format != FORMAT {
        return Err(ApprovalTextError::Format(version.format));
    }
    let record: Record = serde_json::from_str(text)?;
    let part = |part: Part| match part {
        Part::Text(text) => ArgumentPart::Text(text),
        Part::Secret(digest) => ArgumentPart::Secret(digest),
    };
    let argument = |parts: Vec<Part>| ApprovedArgument { parts: parts.into_iter().map(part).collect() };
    let pin = |pin: Pin| ToolPin { name: pin.name, digest: pin.digest, parts: pin.parts.into_iter().collect() };
    Ok(ApprovalSubject {
        plugin: record.plugin,
        version: record.version,
        source: record.source,
        package_digest: record.package_digest,
        executable: record.executable,
        executable_digest: record.executable_digest,
        argv: record.argv.into_iter().map(argument).collect(),
        cwd: record.cwd,
        env: record.env,
        secret_refs: record.secret_refs,
        permissions: record.permissions,
        access: access(record.access).ok_or(ApprovalTextError::Place)?,
        minimum_level: record.minimum_level,
        contract: record.contract.map(|pins| pins.into_iter().map(pin).collect()),
    })
}
