//! What a person is asked to agree to, taken from a finished plan. Owns which part of the plan goes where in the
//! subject; refuses the tool contract, which is only known once the plugin has run.

use std::collections::BTreeMap;

use plugward_policy::{
    ApprovalSubject, ApprovedArgument, Digest, ExpandedAccess, ExpandedBackend, Manifest, is_secret_name,
};

use super::plan::PlanError;
use super::resolve::ResolvedExecutable;

/// The parts of a plan an approval covers.
pub(super) struct Planned<'a> {
    pub(super) manifest: &'a Manifest,
    pub(super) source: &'a str,
    pub(super) package_digest: Digest,
    pub(super) executable: &'a ResolvedExecutable,
    /// After the executable.
    pub(super) arguments: &'a [String],
    pub(super) cwd: String,
    pub(super) backend: &'a ExpandedBackend,
    pub(super) access: &'a ExpandedAccess,
    pub(super) secrets: &'a [String],
}

/// The subject of `planned`, without a contract.
pub(super) fn approval_subject(planned: &Planned<'_>) -> Result<ApprovalSubject, PlanError> {
    let manifest = planned.manifest;
    let mut env = BTreeMap::new();
    let mut secret_refs = BTreeMap::new();
    // Expansion keeps the order, so each value stands beside the text it came from.
    for ((name, value), (_, written)) in planned.backend.env.iter().zip(&manifest.backend.env) {
        let is_secret = is_secret_name(name) || manifest.backend.secret_env.contains(name);
        let reference = match manifest.backend.remote() {
            Some(_) => header_reference(written),
            None => whole_reference(written).map(|variable| format!("host:{variable}")),
        };
        match reference.filter(|_| is_secret) {
            // A rotated key is no new plugin: the reference is what was agreed to.
            Some(reference) => {
                secret_refs.insert(name.clone(), reference);
            }
            None => {
                env.insert(name.clone(), ApprovalSubject::env_digest(name, value));
            }
        }
    }
    Ok(ApprovalSubject {
        plugin: manifest.id.clone(),
        version: manifest.version.clone(),
        source: planned.source.to_owned(),
        package_digest: planned.package_digest,
        executable: super::plan::text(&planned.executable.path)?,
        executable_digest: planned.executable.digest,
        argv: planned.arguments.iter().map(|argument| ApprovedArgument::new(argument, planned.secrets)).collect(),
        cwd: planned.cwd.clone(),
        env,
        secret_refs,
        permissions: manifest.permissions.iter().cloned().collect(),
        access: planned.access.clone(),
        minimum_level: manifest.min_sandbox_level,
        contract: None,
    })
}

/// `NAME` when `written` is `${NAME}` and nothing more.
fn whole_reference(written: &str) -> Option<&str> {
    let name = written.strip_prefix("${")?.strip_suffix('}')?;
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_name.then_some(name)
}

/// The same for a header, in which a word may stand before the key: `Bearer ${NAME}`.
fn header_reference(written: &str) -> Option<String> {
    match written.split_once(' ') {
        None => whole_reference(written).map(|variable| format!("host:{variable}")),
        Some((scheme, rest)) => {
            // Short words only: what is longer could be a key itself.
            let is_scheme = scheme.len() <= 16 && scheme.bytes().all(|byte| byte.is_ascii_alphabetic());
            let variable = whole_reference(rest).filter(|_| is_scheme)?;
            Some(format!("{scheme} host:{variable}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_a_word_before_its_reference_and_nothing_else() {
        assert_eq!(header_reference("Bearer ${TOKEN}").as_deref(), Some("Bearer host:TOKEN"));
        assert_eq!(header_reference("${TOKEN}").as_deref(), Some("host:TOKEN"));
        for other in ["Bearer x${TOKEN}", "sk-1 ${TOKEN}", "Bearer ${A} ${B}", "Bearer", " ${TOKEN}x"] {
            assert_eq!(header_reference(other), None, "{other}");
        }
    }

    #[test]
    fn only_a_whole_reference_stands_for_its_value() {
        assert_eq!(whole_reference("${TOKEN}"), Some("TOKEN"));
        for other in ["TOKEN", "${}", "${A}${B}", "x${A}", "${A:-b}", "$${A}", "${A} "] {
            assert_eq!(whole_reference(other), None, "{other}");
        }
    }
}
