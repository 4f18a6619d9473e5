//! The launch plan: everything one start of a plugin would use, worked out before anything is started.
//!
//! Owns the order: references are replaced, the working folder is found, the environment is built, the command is
//! looked for in that environment's `PATH`, arguments are checked. What a person reviews, what the digest of an
//! approval covers and what the launcher gets all come from the same plan. Refuses to start anything and to fall back:
//! a plan that is not complete is an error naming the field.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use plugward_policy::{
    ApprovalSubject, CommandTool, ExpandBackendError, ExpandedBackend, Manifest, SandboxLevel, WorkingDirectory,
    expand_backend,
};
use plugward_sandbox::{LaunchSpec, SandboxSpec, StopGrace, UserPolicy};

use super::access::{AccessError, Surroundings, given_variables, local_access, refuse_shown, secret_variables};
use super::arguments::check_arguments;
use super::confinement::Confinement;
use super::container::ContainerRun;
use super::environment::{EnvironmentError, HostEnvironment, build_environment};
use super::hash::PackageFacts;
use super::remote::{RemotePlan, remote_plan};
use super::resolve::{CommandPlace, ResolveError, ResolvedExecutable, resolve_command};
use super::runtime::{KeptPrivate, runtime_paths};
use super::shown;
use super::subject::{Planned, approval_subject};
use super::without_program;
use super::working_folder::{folder, working_folder};

/// Name by which a manifest refers to its own installed folder.
const PACKAGE_VARIABLE: &str = "PLUGIN_DIR";

/// Name by which a manifest refers to the project folder.
const PROJECT_VARIABLE: &str = "PROJECT_DIR";

/// Name by which a manifest refers to the root of the repository the project folder is in.
const REPO_VARIABLE: &str = "REPO_DIR";

/// Variable of the host that holds the project folder.
pub(crate) const PROJECT_SETTING: &str = "PLUGWARD_PROJECT_DIR";

/// What a plan is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlanInput<'a> {
    /// The manifest of the installed package.
    pub(crate) manifest: &'a Manifest,
    /// Where the package came from, as the person who approves reads it.
    pub(crate) source: &'a str,
    /// The installed package.
    pub(crate) package_dir: &'a Path,
    /// What was found in `package_dir` just now.
    pub(crate) facts: &'a PackageFacts,
    /// The plugin's private home folder; it need not exist yet.
    pub(crate) home_dir: &'a Path,
    /// Who the plugin runs as when it has a sandbox.
    pub(crate) user: UserPolicy,
    /// The folder of plugward's own state, which no permission may reach.
    pub(crate) own_dir: &'a Path,
    /// The project folder, for plugins that work in one.
    pub(crate) project_dir: Option<&'a Path>,
    /// The host's own environment: what `${NAME}` refers to, and where passed variables come from.
    pub(crate) host: &'a HostEnvironment,
    /// Host variables this deployment passes to every plugin, such as proxies.
    pub(crate) passed_variables: &'a [String],
}

/// One start of a plugin, complete but for its number.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct LaunchPlan {
    /// The program.
    pub(crate) executable: ResolvedExecutable,
    /// The arguments as reviewed and approved, beginning with the executable's path.
    pub(crate) argv: Vec<String>,
    /// The working folder: absolute, existing, without links.
    pub(crate) cwd: PathBuf,
    /// The complete environment.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// The manifest's own variables with references replaced. Only these belong to an approval: the rest of `env`
    /// follows the machine (its language, its time zone) and would hold the plugin for no reason of its own.
    pub(crate) manifest_env: Vec<(String, String)>,
    /// Names of host variables the manifest refers to: the person who approves has to see that it asks for them.
    pub(crate) host_variables: Vec<String>,
    /// What an approval of this start is bound to; the contract is not part of it yet.
    pub(crate) subject: ApprovalSubject,
    /// Values that must never be shown, logged or stored.
    pub(crate) secrets: Vec<String>,
    /// Times of the stop ladder.
    pub(crate) stop: StopGrace,
    /// Set when the command starts a container.
    pub(crate) container: Option<ContainerRun>,
    /// What it may touch.
    pub(crate) confinement: Confinement,
    /// The command that runs for each call, with references replaced, when the plugin is one.
    pub(crate) command: Option<Box<CommandTool>>,
    /// The server elsewhere, when the plugin is one; then nothing is started.
    pub(crate) remote: Option<Box<RemotePlan>>,
}

// Arguments and variables may hold secrets.
impl std::fmt::Debug for LaunchPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&OsStr> = self.env.iter().map(|(name, _)| name.as_os_str()).collect();
        f.debug_struct("LaunchPlan")
            .field("executable", &self.executable)
            .field("arguments", &self.argv.len())
            .field("cwd", &self.cwd)
            .field("env", &names)
            .finish_non_exhaustive()
    }
}

impl LaunchPlan {
    /// Puts the arguments of one call in the place of those with placeholders.
    pub(crate) fn set_arguments(&mut self, arguments: &[String]) {
        // With what is added to every container, as it was reviewed.
        self.container = self.container.take().and_then(|container| container.with_arguments(arguments));
        let arguments = self.container.as_ref().map_or(arguments, ContainerRun::arguments);
        self.argv.truncate(1);
        self.argv.extend_from_slice(arguments);
    }

    /// What the launcher gets for start `generation`. The arguments are the approved ones, with `--name` of this start
    /// added when a container is run.
    #[must_use]
    pub(crate) fn launch_spec(&self, generation: u64) -> LaunchSpec {
        let argv: Vec<OsString> = match &self.container {
            Some(container) => self.argv[..1]
                .iter()
                .cloned()
                .chain(container.start_arguments(generation))
                .map(OsString::from)
                .collect(),
            None => self.argv.iter().map(OsString::from).collect(),
        };
        LaunchSpec {
            executable: self.executable.path.clone(),
            argv,
            cwd: self.cwd.clone(),
            env: self.env.clone(),
            stop: self.stop,
            sandbox: None,
        }
    }

    /// As [`Self::launch_spec`], in `sandbox`, with `proxy_variables` if its network has a proxy.
    #[must_use]
    pub(crate) fn sandboxed_spec(
        &self,
        generation: u64,
        sandbox: SandboxSpec,
        proxy_variables: &[(OsString, OsString)],
    ) -> LaunchSpec {
        let mut spec = self.launch_spec(generation);
        // The folder for temporary files the user has is not there, or is everybody's.
        if self.manifest_temporary_dir().is_none_or(|wanted| !self.confinement.is_own_room(wanted)) {
            spec.env.retain(|(name, _)| name != "TMPDIR");
            spec.env.push(("TMPDIR".into(), self.confinement.temporary_dir().into()));
        }
        if !proxy_variables.is_empty() {
            // Settings for the machine's own network lead nowhere in this one.
            let is_replaced = |name: &OsString| {
                name == "NO_PROXY" || name == "no_proxy" || proxy_variables.iter().any(|(ours, _)| ours == name)
            };
            spec.env.retain(|(name, _)| !is_replaced(name));
            spec.env.extend_from_slice(proxy_variables);
        }
        spec.sandbox = Some(sandbox);
        spec
    }

    fn manifest_temporary_dir(&self) -> Option<&Path> {
        let found = self.manifest_env.iter().rev().find(|(name, _)| name == "TMPDIR");
        found.map(|(_, value)| Path::new(value.as_str()))
    }

    /// The folder for temporary files that the manifest sets and the plugin does not get in its sandbox, because it could
    /// not write there.
    pub(crate) fn replaced_temporary_dir(&self) -> Option<&Path> {
        let wanted = self.manifest_temporary_dir()?;
        let kept = self.confinement.level == SandboxLevel::None || self.confinement.is_own_room(wanted);
        (!kept).then_some(wanted)
    }

    /// Name of the container of start `generation`, to stop it by, when the command starts one.
    #[must_use]
    pub(crate) fn container_name(&self, generation: u64) -> Option<String> {
        self.container.as_ref().map(|container| container.name(generation))
    }
}

/// A plugin that cannot be started as it is configured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    /// A reference to a variable that is not set, or a malformed one (case B018).
    #[error("{0}")]
    Expand(#[from] ExpandBackendError),
    /// A permission that cannot be kept to here.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The command names no program that may run.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// A variable no process can have.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The installed package is gone.
    #[error("package folder `{}` does not exist", shown(path))]
    PackageMissing {
        /// Where it should be.
        path: PathBuf,
    },
    /// The working folder is not there (case B035).
    #[error("working folder `{}` does not exist, looked for `{}`", shown(cwd), shown(path))]
    FolderMissing {
        /// The folder as the manifest has it.
        cwd: String,
        /// Where it should be.
        path: PathBuf,
    },
    /// The working folder is a file.
    #[error("working folder `{}` is not a folder", shown(path))]
    FolderNotAFolder {
        /// What was found.
        path: PathBuf,
    },
    /// A relative working folder that leads out of the package.
    #[error("working folder `{}` leads out of the package, to `{}`", shown(cwd), shown(path))]
    FolderOutside {
        /// The folder as the manifest has it.
        cwd: String,
        /// Where it leads.
        path: PathBuf,
    },
    /// `~` without a home of the user.
    #[error("working folder `{}` begins with `~` and the host has no HOME", shown(cwd))]
    NoUserHome {
        /// The folder as the manifest has it.
        cwd: String,
    },
    /// The operating system refused to look at the working folder.
    #[error("working folder `{}` cannot be used: {source}", shown(path))]
    FolderUnusable {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A relative argument that leads out of the package (N8). The installed package lies somewhere else than where
    /// its author wrote it, so such a path would reach files nobody meant.
    #[error(
        "`args[{index}]` leads out of the package, to `{}` (use an absolute path for a file of this machine)",
        shown(path)
    )]
    ArgumentOutside {
        /// Position in `args`.
        index: usize,
        /// Where it leads.
        path: PathBuf,
    },
    /// A command that works in a project, and there is none.
    #[error("it works in a project folder and none is known; set {PROJECT_SETTING} and install it again")]
    NoProject,
    /// A command that works in a repository, and the project is in none.
    #[error("it works in a repository, and neither `{}` nor a folder above it has a `.git`", shown(project))]
    NoRepository {
        /// The project folder.
        project: PathBuf,
    },
    /// A reference in the command.
    #[error("command: {0}")]
    Command(String),
    /// A header whose value is none.
    #[error("header `{name}` has a value that no header has; look at the variable it refers to")]
    Header {
        /// Its name.
        name: String,
    },
    /// A text with a zero byte, which no program can be given.
    #[error("`{field}` holds a zero byte")]
    ZeroByte {
        /// The field of the backend.
        field: String,
    },
    /// A path that has to be handed on as text and is none.
    #[error("`{}` is not UTF-8", shown(path))]
    PathNotText {
        /// The path.
        path: PathBuf,
    },
}

/// Works out one start of the plugin. Reads the file system, starts nothing; blocks while the executable is hashed
/// for the first time.
///
/// # Errors
/// [`PlanError`] naming the field of the manifest and the value that does not work.
pub(crate) fn plan(input: &PlanInput<'_>) -> Result<LaunchPlan, PlanError> {
    let package_dir = folder(input.package_dir, "").map_err(|error| match error {
        PlanError::FolderMissing { path, .. } => PlanError::PackageMissing { path },
        other => other,
    })?;
    let places = Places::of(input, &package_dir)?;
    if let Some(remote) = input.manifest.backend.remote() {
        return remote_plan(input, remote, &places);
    }
    let (backend, host_variables) = expand(input, &places)?;
    refuse_zero_bytes(&backend)?;
    let cwd = working_folder(backend.cwd.as_deref(), &package_dir, input.host)?;
    let own_dir = real(input.own_dir);
    let around = Surroundings { host: input.host, package_dir: &package_dir, own_dir: &own_dir };
    let access = local_access(input.manifest, around, |name| places.value_of(name))?;
    let passed = given_variables(&access.expanded, input.host);
    let home_dir = real(input.home_dir);
    if !input.manifest.backend.has_program() {
        let parts =
            without_program::Parts { package_dir: package_dir.clone(), home_dir, backend, host_variables, access };
        return without_program::plan(input, parts);
    }
    let mut variables = backend.env.clone();
    variables.extend(passed.iter().cloned());
    let env = build_environment(input.host, &home_dir, input.passed_variables, &variables)?;
    let path_var = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str()).unwrap_or_default();
    let place = CommandPlace { package_dir: &package_dir, base_dir: &cwd, path_var };
    let executable = resolve_command(&backend.command, place)?;
    let command = input.manifest.backend.command_tool();
    if command.is_none() {
        check_arguments(&backend.args, &cwd, &package_dir)?;
    }
    let user_home = input.host.get("HOME").map(Path::new).filter(|home| home.is_absolute()).map(real);
    let private = KeptPrivate { user_home: user_home.as_deref(), own_dir: &own_dir };
    let shared = runtime_paths(&executable.path, &package_dir, path_var, private);
    if input.manifest.min_sandbox_level != SandboxLevel::None {
        refuse_shown(&own_dir, shared.names())?;
    }
    let container = ContainerRun::recognise(&backend.command, &backend.args, &input.manifest.id, input.home_dir);
    let command = command.map(|tool| tool.expanded(|name| places.value_of(name))).transpose();
    let command = command.map_err(|error| PlanError::Command(error.to_string()))?.map(Box::new);
    let arguments = container.as_ref().map_or(backend.args.as_slice(), ContainerRun::arguments);
    let argv = std::iter::once(text(&executable.path)?).chain(arguments.iter().cloned()).collect();
    let mut secrets = backend.secret_values();
    secrets.extend(secret_variables(&passed));
    // Longest first, so that masking one never leaves the rest of another.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let subject = approval_subject(&Planned {
        manifest: input.manifest,
        source: input.source,
        package_digest: input.facts.digest,
        executable: &executable,
        arguments,
        cwd: text(&cwd)?,
        backend: &backend,
        access: &access.expanded,
        secrets: &secrets,
    })?;
    let confinement = Confinement {
        user: input.user,
        level: input.manifest.min_sandbox_level,
        package_dir,
        home_dir,
        access,
        shared,
    };
    Ok(LaunchPlan {
        executable,
        argv,
        cwd,
        env,
        manifest_env: backend.env,
        host_variables,
        subject,
        secrets,
        stop: StopGrace::default(),
        container,
        confinement,
        command,
        remote: None,
    })
}

/// Replaces the references of the backend and notes which host variables that read.
pub(super) fn expand(input: &PlanInput<'_>, places: &Places<'_>) -> Result<(ExpandedBackend, Vec<String>), PlanError> {
    text(places.package_dir)?;
    let read = RefCell::new(BTreeSet::new());
    let backend = expand_backend(&input.manifest.backend, |name| {
        if !matches!(name, PACKAGE_VARIABLE | PROJECT_VARIABLE | REPO_VARIABLE | "PATH") {
            read.borrow_mut().insert(name.to_owned());
        }
        places.value_of(name)
    })?;
    Ok((backend, read.into_inner().into_iter().collect()))
}

/// The places a manifest can refer to.
pub(super) struct Places<'a> {
    host: &'a HostEnvironment,
    pub(super) package_dir: &'a Path,
    project_dir: Option<PathBuf>,
    repo_dir: Option<PathBuf>,
}

impl<'a> Places<'a> {
    fn of(input: &PlanInput<'a>, package_dir: &'a Path) -> Result<Self, PlanError> {
        let directory = input.manifest.backend.command_tool().map(|tool| &tool.working_directory);
        let project_dir = input.project_dir.map(|path| folder(path, "project")).transpose()?;
        if project_dir.is_none() && matches!(directory, Some(WorkingDirectory::Project | WorkingDirectory::Repo)) {
            return Err(PlanError::NoProject);
        }
        let repo_dir = project_dir.as_deref().and_then(repository_of);
        match project_dir {
            Some(project) if repo_dir.is_none() && directory == Some(&WorkingDirectory::Repo) => {
                Err(PlanError::NoRepository { project })
            }
            project_dir => Ok(Self { host: input.host, package_dir, project_dir, repo_dir }),
        }
    }

    /// What a reference to `name` in a manifest stands for.
    pub(super) fn value_of(&self, name: &str) -> Option<String> {
        let of = |path: &Option<PathBuf>| path.as_deref().and_then(Path::to_str).map(str::to_owned);
        match name {
            PROJECT_VARIABLE => of(&self.project_dir),
            REPO_VARIABLE => of(&self.repo_dir),
            name => value_of(self.host, self.package_dir, name),
        }
    }
}

/// The nearest folder at or above `project` that is the root of a repository.
fn repository_of(project: &Path) -> Option<PathBuf> {
    project.ancestors().find(|folder| folder.join(".git").exists()).map(Path::to_owned)
}

/// What a reference to `name` stands for wherever the plugin works.
fn value_of(host: &HostEnvironment, package_dir: &Path, name: &str) -> Option<String> {
    match name {
        PACKAGE_VARIABLE => package_dir.to_str().map(str::to_owned),
        // The same PATH the plugin gets: `PATH: /opt/x:${PATH}` must not bring back what was left out.
        "PATH" => host.search_path().into_string().ok(),
        _ => host.get(name).and_then(OsStr::to_str).map(str::to_owned),
    }
}

/// `path` without links, or as it is when it is not there.
pub(super) fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn refuse_zero_bytes(backend: &ExpandedBackend) -> Result<(), PlanError> {
    let fields = std::iter::once(("command".to_owned(), &backend.command))
        .chain(backend.cwd.iter().map(|cwd| ("cwd".to_owned(), cwd)))
        .chain(backend.args.iter().enumerate().map(|(index, arg)| (format!("args[{index}]"), arg)));
    for (field, value) in fields {
        if value.contains('\0') {
            return Err(PlanError::ZeroByte { field });
        }
    }
    Ok(())
}

/// `path` as text: what is approved is kept and shown as text, so a path that is none cannot be approved.
pub(super) fn text(path: &Path) -> Result<String, PlanError> {
    path.to_str().map(str::to_owned).ok_or_else(|| PlanError::PathNotText { path: path.to_owned() })
}

#[cfg(test)]
mod tests;
