//! Judges what a plugin offers: each tool on its own, then the set against the manifest and against what was approved.
//!
//! Owns the two modes of the contract check (declared set: all or nothing; imported server: good tools stay, bad ones
//! are quarantined), the mapping of a tool definition (requirements 58-63) and the comparison with approved pins
//! (B044). Refuses to talk to the plugin and to register anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plugward_policy::{Catalogue, Digest, Manifest, PermissionName, RemoteToolName, ToolId, ToolPin};
use serde_json::value::RawValue;

use crate::raw_object::RawObject;
use crate::schema::{self, ToolSchema, Use};
use crate::views::{HeldTool, QuarantinedTool};

/// Keys under `_meta` that name the permission of a tool: the seed's and ours.
const PERMISSION_KEYS: [&str; 2] = ["notesagent/permission", "plugward/permission"];

/// Warnings kept for one contract; a hostile list could produce thousands.
const MAX_WARNINGS: usize = 100;

/// A tool that may be offered.
#[derive(Debug)]
pub(crate) struct ToolDefinition {
    /// The plugin's own name of it.
    pub(crate) name: RemoteToolName,
    /// Description; the name where the plugin gives none.
    pub(crate) description: String,
    /// The definition as clients get it, but for the name: as sent, with repaired or dropped schemas.
    pub(crate) exposed: RawObject,
    /// The definition as sent.
    pub(crate) raw: Box<RawValue>,
    /// The argument schema in force.
    pub(crate) parameters: Box<RawValue>,
    /// Compiled argument schema.
    pub(crate) input: ToolSchema,
    /// Compiled result schema.
    pub(crate) output: Option<ToolSchema>,
    /// Permission it needs.
    pub(crate) permission: Option<PermissionName>,
    /// Digest of what a person would review.
    pub(crate) digest: Digest,
}

/// The outcome of a check that found something usable.
#[derive(Debug, Default)]
pub(crate) struct Contract {
    /// Usable tools in the plugin's order.
    pub(crate) tools: Vec<Arc<ToolDefinition>>,
    /// Tools left out, with reasons.
    pub(crate) quarantined: Vec<QuarantinedTool>,
    /// Things worth knowing.
    pub(crate) warnings: Vec<String>,
}

/// A declared contract that does not hold: one line per difference.
#[derive(Debug, Clone, thiserror::Error)]
#[error("what the plugin offers is not what its manifest declares: {}", differences.join("; "))]
pub(crate) struct ContractBroken {
    pub(crate) differences: Vec<String>,
}

/// Checks a whole list.
pub(crate) fn check(
    manifest: &Manifest,
    catalogue: &Catalogue,
    listed: &[Box<RawValue>],
) -> Result<Contract, ContractBroken> {
    let mut contract = Contract::default();
    let mut seen = BTreeSet::new();
    for (index, raw) in listed.iter().enumerate() {
        match define(manifest, catalogue, raw, &mut contract.warnings) {
            Ok(tool) if seen.insert(tool.name.clone()) => contract.tools.push(Arc::new(tool)),
            Ok(tool) => contract.quarantined.push(QuarantinedTool {
                name: tool.name.to_string(),
                reason: "the name stands twice in the list; the first one is used".to_owned(),
            }),
            Err((name, reason)) => contract
                .quarantined
                .push(QuarantinedTool { name: name.unwrap_or_else(|| format!("entry {}", index + 1)), reason }),
        }
    }
    if let Some(declared) = &manifest.declared_tools {
        hold_to_declaration(declared, &contract)?;
    }
    apply_filter(manifest, &mut contract);
    contract.warnings.truncate(MAX_WARNINGS);
    Ok(contract)
}

/// Requirements 45, 46: one bad tool, one missing or one extra refuses the whole set, and each is named.
fn hold_to_declaration(declared: &[ToolId], contract: &Contract) -> Result<(), ContractBroken> {
    let mut differences: Vec<String> =
        contract.quarantined.iter().map(|tool| format!("`{}`: {}", tool.name, tool.reason)).collect();
    let offered: BTreeSet<&str> = contract.tools.iter().map(|tool| tool.name.as_str()).collect();
    let promised: BTreeSet<&str> = declared.iter().map(|id| id.name().as_str()).collect();
    differences.extend(promised.difference(&offered).map(|name| format!("`{name}` is declared but not offered")));
    differences.extend(offered.difference(&promised).map(|name| format!("`{name}` is offered but not declared")));
    if differences.is_empty() { Ok(()) } else { Err(ContractBroken { differences }) }
}

fn apply_filter(manifest: &Manifest, contract: &mut Contract) {
    let names: Vec<&str> = contract.tools.iter().map(|tool| tool.name.as_str()).collect();
    for pattern in manifest.tools.unmatched(&names) {
        contract.warnings.push(format!("tools filter `{pattern}` matches no tool of this plugin"));
    }
    contract.tools.retain(|tool| manifest.tools.permits(tool.name.as_str()));
}

type Bad = (Option<String>, String);

fn define(
    manifest: &Manifest,
    catalogue: &Catalogue,
    raw: &RawValue,
    warnings: &mut Vec<String>,
) -> Result<ToolDefinition, Bad> {
    let object = RawObject::parse(raw).ok_or((None, "the entry is not an object, or repeats a key".to_owned()))?;
    let name_text = object.get_str("name").ok_or((None, "the entry has no name".to_owned()))?;
    let bad = |reason: String| (Some(shorten(&name_text)), reason);
    let name = RemoteToolName::new(name_text.as_str()).map_err(|error| bad(error.to_string()))?;
    let mut exposed = object.clone();
    let (input, parameters) = input_schema(&object, &mut exposed, name.as_str(), warnings).map_err(bad)?;
    let output = output_schema(&object, &mut exposed, name.as_str(), warnings);
    let permission = permission(manifest, catalogue, &object).map_err(bad)?;
    let pin = ToolPin::from_raw(raw.get()).map_err(|error| bad(error.to_string()))?;
    let description = object.get_str("description").filter(|text| !text.is_empty());
    Ok(ToolDefinition {
        description: description.unwrap_or_else(|| name.to_string()),
        name,
        exposed,
        raw: raw.to_owned(),
        parameters,
        input,
        output,
        permission,
        digest: pin.digest,
    })
}

fn input_schema(
    object: &RawObject,
    exposed: &mut RawObject,
    name: &str,
    warnings: &mut Vec<String>,
) -> Result<(ToolSchema, Box<RawValue>), String> {
    // A tool without a schema takes no arguments (B010); the compiler says so in a warning.
    let raw = object.get("inputSchema").unwrap_or(RawValue::NULL);
    let compiled = schema::compile(raw, Use::Input).map_err(|fault| format!("inputSchema {fault}"))?;
    warnings.extend(compiled.warnings.iter().map(|warning| format!("`{name}`: inputSchema {warning}")));
    let parameters = compiled.exposed.unwrap_or_else(|| raw.to_owned());
    if parameters.get() != raw.get() {
        exposed.set("inputSchema", parameters.clone());
    }
    Ok((compiled.schema, parameters))
}

/// A bad result schema costs the schema, not the tool (B006): results are then passed on unchecked.
fn output_schema(
    object: &RawObject,
    exposed: &mut RawObject,
    name: &str,
    warnings: &mut Vec<String>,
) -> Option<ToolSchema> {
    let raw = object.get("outputSchema").filter(|raw| raw.get() != "null")?;
    match schema::compile(raw, Use::Output) {
        Ok(compiled) => {
            warnings.extend(compiled.warnings.iter().map(|warning| format!("`{name}`: outputSchema {warning}")));
            if let Some(repaired) = compiled.exposed {
                exposed.set("outputSchema", repaired);
            }
            Some(compiled.schema)
        }
        Err(fault) => {
            warnings.push(format!("`{name}`: outputSchema {fault}; it is left out"));
            exposed.remove("outputSchema");
            None
        }
    }
}

/// Requirements 62, 63: a named permission is known to the deployment and asked for by the manifest.
fn permission(
    manifest: &Manifest,
    catalogue: &Catalogue,
    object: &RawObject,
) -> Result<Option<PermissionName>, String> {
    let Some(meta) = object.get("_meta").filter(|raw| raw.get() != "null") else { return Ok(None) };
    let meta = RawObject::parse(meta).ok_or("_meta is not an object")?;
    let Some(raw) = PERMISSION_KEYS.iter().find_map(|key| meta.get(key)) else { return Ok(None) };
    let text: String =
        serde_json::from_str(raw.get()).map_err(|_| "the permission under _meta is not a string".to_owned())?;
    let name = PermissionName::new(text).map_err(|error| error.to_string())?;
    if !catalogue.knows(&name) {
        return Err(format!("permission `{name}` is not known to this deployment"));
    }
    if !manifest.permissions.contains(&name) {
        return Err(format!("permission `{name}` is not among the permissions of the manifest"));
    }
    Ok(Some(name))
}

fn shorten(name: &str) -> String {
    let mut short: String = name.chars().take(64).collect();
    if short.len() < name.len() {
        short.push('…');
    }
    if short.is_empty() { "(empty name)".to_owned() } else { short }
}

/// What approved pins say about a contract: which tools may be offered, and which wait for a person.
#[derive(Debug, Default)]
pub(crate) struct PinCheck {
    /// As approved.
    pub(crate) unchanged: Vec<Arc<ToolDefinition>>,
    /// Changed, new or gone since the approval.
    pub(crate) held: Vec<HeldTool>,
}

/// Compares a contract with the pins of the approval.
pub(crate) fn compare(contract: &Contract, pins: &BTreeMap<String, Digest>) -> PinCheck {
    let mut check = PinCheck::default();
    for tool in &contract.tools {
        match pins.get(tool.name.as_str()) {
            Some(approved) if *approved == tool.digest => check.unchanged.push(Arc::clone(tool)),
            approved => check.held.push(HeldTool {
                remote_name: tool.name.to_string(),
                approved_digest: approved.copied(),
                offered_digest: Some(tool.digest),
            }),
        }
    }
    let offered: BTreeSet<&str> = contract.tools.iter().map(|tool| tool.name.as_str()).collect();
    check.held.extend(pins.iter().filter(|(name, _)| !offered.contains(name.as_str())).map(|(name, digest)| {
        HeldTool { remote_name: name.clone(), approved_digest: Some(*digest), offered_digest: None }
    }));
    check
}
