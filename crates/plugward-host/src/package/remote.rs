//! The plan of a server elsewhere: where its requests go and what is sent with each.
//!
//! Owns the headers with their references replaced, and what an approval is bound to: the URL, the names of the headers,
//! and of their values a digest or the reference they come from. Refuses to look anything up: the address is judged at each
//! connection.

use hyper::header::{HeaderName, HeaderValue};
use plugward_policy::{Digest, RemoteServer, RemoteTransport, SandboxLevel, WebUrl};
use plugward_sandbox::StopGrace;

use super::access::{Surroundings, local_access};
use super::confinement::Confinement;
use super::plan::{LaunchPlan, Places, PlanError, PlanInput, expand, real};
use super::resolve::ResolvedExecutable;
use super::runtime::RuntimePaths;
use super::subject::{Planned, approval_subject};

/// A server elsewhere, complete.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RemotePlan {
    /// Where it is.
    pub(crate) url: WebUrl,
    /// How messages travel.
    pub(crate) transport: RemoteTransport,
    /// Sent with each request. All are kept out of debug texts, whatever their names.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

/// Works out the plan.
pub(super) fn remote_plan(
    input: &PlanInput<'_>,
    remote: &RemoteServer,
    places: &Places<'_>,
) -> Result<LaunchPlan, PlanError> {
    let (backend, host_variables) = expand(input, places)?;
    let own_dir = real(input.own_dir);
    let around = Surroundings { host: input.host, package_dir: places.package_dir, own_dir: &own_dir };
    let access = local_access(input.manifest, around, |name| places.value_of(name))?;
    let mut headers = Vec::with_capacity(backend.env.len());
    for (name, value) in &backend.env {
        let unusable = || PlanError::Header { name: name.clone() };
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unusable())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| unusable())?;
        value.set_sensitive(true);
        headers.push((header, value));
    }
    let secrets = backend.secret_values();
    // What stands where the program of another plugin would: the whole URL in the digest, without secrets where it is seen.
    let url = remote.url.to_string();
    let shown = secrets.iter().fold(url.clone(), |text, secret| text.replace(secret.as_str(), "***"));
    let digest = Digest::of(format!("plugward remote\0{}\0{url}", remote.transport.as_str()).as_bytes());
    let executable = ResolvedExecutable { path: shown.clone().into(), file: shown.clone().into(), digest };
    let subject = approval_subject(&Planned {
        manifest: input.manifest,
        source: input.source,
        package_digest: input.facts.digest,
        executable: &executable,
        arguments: &[],
        cwd: String::new(),
        backend: &backend,
        access: &access.expanded,
        secrets: &secrets,
    })?;
    let confinement = Confinement {
        user: input.user,
        level: SandboxLevel::None,
        package_dir: places.package_dir.to_owned(),
        home_dir: real(input.home_dir),
        access,
        shared: RuntimePaths::default(),
    };
    Ok(LaunchPlan {
        executable,
        argv: vec![shown],
        cwd: places.package_dir.to_owned(),
        env: Vec::new(),
        manifest_env: backend.env,
        host_variables,
        subject,
        secrets,
        stop: StopGrace::default(),
        container: None,
        confinement,
        command: None,
        remote: Some(Box::new(RemotePlan { url: remote.url.clone(), transport: remote.transport, headers })),
    })
}
