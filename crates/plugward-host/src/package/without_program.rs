//! The plan of a plugin of which no program ever runs: a prompt, a webhook. Owns leaving out what only a process has.
//! Refuses nothing a plan with a program would take: references, secrets and permissions are the same.

use std::path::PathBuf;

use plugward_policy::{Digest, ExpandedBackend};
use plugward_sandbox::StopGrace;

use super::access::LocalAccess;
use super::confinement::Confinement;
use super::plan::{LaunchPlan, PlanError, PlanInput, text};
use super::resolve::ResolvedExecutable;
use super::runtime::RuntimePaths;
use super::subject::{Planned, approval_subject};

/// What is made from a manifest whether or not a program runs.
pub(super) struct Parts {
    pub(super) package_dir: PathBuf,
    pub(super) home_dir: PathBuf,
    pub(super) backend: ExpandedBackend,
    pub(super) host_variables: Vec<String>,
    pub(super) access: LocalAccess,
}

/// The plan.
pub(super) fn plan(input: &PlanInput<'_>, parts: Parts) -> Result<LaunchPlan, PlanError> {
    let Parts { package_dir, home_dir, backend, host_variables, access } = parts;
    // In the place of a program stands nothing, and its digest is that of nothing: a program that came in later would be
    // a difference to what was approved.
    let executable = ResolvedExecutable { path: PathBuf::new(), file: PathBuf::new(), digest: Digest::of(b"") };
    let secrets = backend.secret_values();
    let subject = approval_subject(&Planned {
        manifest: input.manifest,
        source: input.source,
        package_digest: input.facts.digest,
        executable: &executable,
        arguments: &[],
        cwd: text(&package_dir)?,
        backend: &backend,
        access: &access.expanded,
        secrets: &secrets,
    })?;
    let confinement = Confinement {
        user: input.user,
        level: input.manifest.min_sandbox_level,
        package_dir: package_dir.clone(),
        home_dir,
        access,
        shared: RuntimePaths::default(),
    };
    Ok(LaunchPlan {
        executable,
        argv: Vec::new(),
        cwd: package_dir,
        env: Vec::new(),
        manifest_env: backend.env,
        host_variables,
        subject,
        secrets,
        stop: StopGrace::default(),
        container: None,
        confinement,
        command: None,
        remote: None,
    })
}
