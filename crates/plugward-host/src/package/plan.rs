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

use plugward_policy::{ExpandBackendError, ExpandedBackend, Manifest, expand_backend};
use plugward_sandbox::{LaunchSpec, StopGrace};

use super::arguments::check_arguments;
use super::container::ContainerRun;
use super::environment::{EnvironmentError, HostEnvironment, build_environment};
use super::resolve::{CommandPlace, ResolveError, ResolvedExecutable, resolve_command};
use super::shown;
use super::working_folder::{folder, working_folder};

/// Name by which a manifest refers to its own installed folder.
const PACKAGE_VARIABLE: &str = "PLUGIN_DIR";

/// What a plan is made from.
#[derive(Debug, Clone, Copy)]
pub struct PlanInput<'a> {
    /// The manifest of the installed package.
    pub manifest: &'a Manifest,
    /// The installed package.
    pub package_dir: &'a Path,
    /// The plugin's private home folder; it need not exist yet.
    pub home_dir: &'a Path,
    /// The host's own environment: what `${NAME}` refers to, and where passed variables come from.
    pub host: &'a HostEnvironment,
    /// Host variables this deployment passes to every plugin, such as proxies.
    pub passed_variables: &'a [String],
}

/// One start of a plugin, complete but for its number.
#[derive(Clone, PartialEq, Eq)]
pub struct LaunchPlan {
    /// The program.
    pub executable: ResolvedExecutable,
    /// The arguments as reviewed and approved, beginning with the executable's path.
    pub argv: Vec<String>,
    /// The working folder: absolute, existing, without links.
    pub cwd: PathBuf,
    /// The complete environment.
    pub env: Vec<(OsString, OsString)>,
    /// The manifest's own variables with references replaced. Only these belong to an approval: the rest of `env`
    /// follows the machine (its language, its time zone) and would hold the plugin for no reason of its own.
    pub manifest_env: Vec<(String, String)>,
    /// Names of host variables the manifest refers to: the person who approves has to see that it asks for them.
    pub host_variables: Vec<String>,
    /// Values that must never be shown, logged or stored.
    pub secrets: Vec<String>,
    /// Times of the stop ladder.
    pub stop: StopGrace,
    /// Set when the command starts a container.
    pub container: Option<ContainerRun>,
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
    /// What the launcher gets for start `generation`. The arguments are the approved ones, with `--name` of this start
    /// added when a container is run.
    #[must_use]
    pub fn launch_spec(&self, generation: u64) -> LaunchSpec {
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
        }
    }

    /// Name of the container of start `generation`, to stop it by, when the command starts one.
    #[must_use]
    pub fn container_name(&self, generation: u64) -> Option<String> {
        self.container.as_ref().map(|container| container.name(generation))
    }
}

/// A plugin that cannot be started as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A reference to a variable that is not set, or a malformed one (case B018).
    #[error("{0}")]
    Expand(#[from] ExpandBackendError),
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
pub fn plan(input: &PlanInput<'_>) -> Result<LaunchPlan, PlanError> {
    let package_dir = folder(input.package_dir, "").map_err(|error| match error {
        PlanError::FolderMissing { path, .. } => PlanError::PackageMissing { path },
        other => other,
    })?;
    let (backend, host_variables) = expand(input, &package_dir)?;
    refuse_zero_bytes(&backend)?;
    let cwd = working_folder(backend.cwd.as_deref(), &package_dir, input.host)?;
    let env = build_environment(input.host, input.home_dir, input.passed_variables, &backend.env)?;
    let path_var = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str()).unwrap_or_default();
    let place = CommandPlace { package_dir: &package_dir, base_dir: &cwd, path_var };
    let executable = resolve_command(&backend.command, place)?;
    check_arguments(&backend.args, &cwd, &package_dir)?;
    let container = ContainerRun::recognise(&backend.command, &backend.args, &input.manifest.id, input.home_dir);
    let arguments = container.as_ref().map_or(backend.args.as_slice(), ContainerRun::arguments);
    let argv = std::iter::once(text(&executable.path)?).chain(arguments.iter().cloned()).collect();
    let secrets = backend.secret_values();
    Ok(LaunchPlan {
        executable,
        argv,
        cwd,
        env,
        manifest_env: backend.env,
        host_variables,
        secrets,
        stop: StopGrace::default(),
        container,
    })
}

/// Replaces the references of the backend and notes which host variables that read.
fn expand(input: &PlanInput<'_>, package_dir: &Path) -> Result<(ExpandedBackend, Vec<String>), PlanError> {
    let package = text(package_dir)?;
    let read = RefCell::new(BTreeSet::new());
    let backend = expand_backend(&input.manifest.backend, |name| match name {
        PACKAGE_VARIABLE => Some(package.clone()),
        // The same PATH the plugin gets: `PATH: /opt/x:${PATH}` must not bring back what was left out.
        "PATH" => input.host.search_path().into_string().ok(),
        _ => {
            read.borrow_mut().insert(name.to_owned());
            input.host.get(name).and_then(OsStr::to_str).map(str::to_owned)
        }
    })?;
    Ok((backend, read.into_inner().into_iter().collect()))
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

fn text(path: &Path) -> Result<String, PlanError> {
    path.to_str().map(str::to_owned).ok_or_else(|| PlanError::PathNotText { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::Duration;

    use plugward_policy::parse_manifest;

    struct Place {
        _dir: tempfile::TempDir,
        root: PathBuf,
        host: HostEnvironment,
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for folder in ["package/work", "bin", "user/projects"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for program in ["bin/python3", "bin/docker", "package/server"] {
            fs::write(root.join(program), "#!/bin/sh\n").unwrap();
            fs::set_permissions(root.join(program), fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(root.join("package/server.py"), "").unwrap();
        fs::write(root.join("outside.py"), "").unwrap();
        let (path, user) = (root.join("bin"), root.join("user"));
        let host = HostEnvironment::from_pairs([
            ("PATH", path.to_str().unwrap()),
            ("HOME", user.to_str().unwrap()),
            ("DEMO_USER", "ann"),
            ("DEMO_EMPTY", ""),
            ("DEMO_API_KEY", "planted-secret"),
        ]);
        Place { _dir: dir, root, host }
    }

    impl Place {
        /// Plans the backend of these YAML lines.
        fn plan(&self, backend: &str) -> Result<LaunchPlan, PlanError> {
            let lines: String = backend.lines().map(|line| format!("  {}\n", line.trim())).collect();
            let text =
                format!("id: demo\nname: Demo\nversion: 1.0.0\nbackend:\n  type: mcp\n  transport: stdio\n{lines}");
            let manifest = parse_manifest(&text, "plugin.yaml").unwrap().manifest;
            plan(&PlanInput {
                manifest: &manifest,
                package_dir: &self.root.join("package"),
                home_dir: &self.root.join("home"),
                host: &self.host,
                passed_variables: &[],
            })
        }

        fn refusal(&self, backend: &str) -> String {
            self.plan(backend).unwrap_err().to_string()
        }

        fn path(&self, below: &str) -> String {
            self.root.join(below).to_str().unwrap().to_owned()
        }
    }

    // Requirements 29, 74, 75, 94: what is shown is what runs.
    #[test]
    fn arguments_arrive_as_written_behind_the_resolved_program() {
        let place = place();
        let plan = place.plan("command: python3\nargs: [server.py, '; touch x', '', 'a  b', '$(id)']").unwrap();
        assert_eq!(plan.argv, [&place.path("bin/python3"), "server.py", "; touch x", "", "a  b", "$(id)"]);
        assert_eq!(plan.cwd, place.root.join("package"));
        let spec = plan.launch_spec(3);
        assert_eq!(spec.argv, plan.argv.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(spec.executable, place.root.join("bin/python3"));
        assert_eq!(plan.container_name(3), None);
    }

    // Case B018.
    #[test]
    fn references_are_replaced_once_and_a_missing_one_names_its_field() {
        let place = place();
        let plan = place
            .plan(
                "command: python3
                args: ['--user=${DEMO_USER}', '${DEMO_MISSING:-fall back}', '$${DEMO_USER}', '[${DEMO_EMPTY:-dflt}]', '${PLUGIN_DIR}/server.py']
                env: {GREETING: 'hi ${DEMO_USER}'}",
            )
            .unwrap();
        let script = place.path("package/server.py");
        assert_eq!(plan.argv[1..], ["--user=ann", "fall back", "${DEMO_USER}", "[dflt]", script.as_str()]);
        assert_eq!(plan.manifest_env, [("GREETING".to_owned(), "hi ann".to_owned())]);
        assert!(plan.env.contains(&("GREETING".into(), "hi ann".into())));
        assert_eq!(plan.host_variables, ["DEMO_EMPTY", "DEMO_MISSING", "DEMO_USER"]);
        let text = place.refusal("command: python3\nargs: [server.py, '${DEMO_MISSING}']");
        assert!(text.contains("args[1]") && text.contains("DEMO_MISSING"), "{text}");
    }

    // Requirement 76: a manifest can ask for a key by name, and then the plan says so.
    #[test]
    fn a_secret_of_the_host_is_named_for_review_and_kept_out_of_debug_output() {
        let place = place();
        let plan = place.plan("command: python3\nenv: {TOKEN: '${DEMO_API_KEY}'}").unwrap();
        assert_eq!(plan.host_variables, ["DEMO_API_KEY"]);
        assert_eq!(plan.secrets, ["planted-secret"]);
        assert!(!format!("{plan:?}").contains("planted-secret"));
        let without = place.plan("command: python3").unwrap();
        let planted = OsStr::new("planted-secret");
        assert!(without.env.iter().all(|(_, value)| value != planted));
    }

    // Case B035.
    #[test]
    fn the_working_folder_is_the_packages_or_one_inside_it_or_an_existing_one_of_the_machine() {
        let place = place();
        let cwd = |value: &str| place.plan(&format!("command: python3\ncwd: '{value}'")).map(|plan| plan.cwd);
        assert_eq!(cwd("./work").unwrap(), place.root.join("package/work"));
        assert_eq!(cwd("${PLUGIN_DIR}/work").unwrap(), place.root.join("package/work"));
        assert_eq!(cwd("~").unwrap(), place.root.join("user"));
        assert_eq!(cwd("~/projects").unwrap(), place.root.join("user/projects"));
        assert_eq!(cwd(&place.path("user")).unwrap(), place.root.join("user"));
        let text = cwd("./no-such-dir").unwrap_err().to_string();
        let expected = place.path("package/no-such-dir");
        assert_eq!(text, format!("working folder `./no-such-dir` does not exist, looked for `{expected}`"));
        assert!(cwd("server.py").unwrap_err().to_string().ends_with("is not a folder"));
        assert!(cwd("work/../..").unwrap_err().to_string().contains("leads out of the package"));
        symlink(place.root.join("user"), place.root.join("package/out")).unwrap();
        assert!(cwd("out").unwrap_err().to_string().contains("leads out of the package"));
        assert!(cwd("~nobody").unwrap_err().to_string().contains("does not exist"));
    }

    #[test]
    fn a_home_relative_folder_needs_a_home() {
        let mut place = place();
        place.host = HostEnvironment::from_pairs([("PATH", place.path("bin"))]);
        assert!(place.refusal("command: python3\ncwd: '~/x'").ends_with("the host has no HOME"));
    }

    // Requirement 33 and case B035 together.
    #[test]
    fn a_command_with_a_folder_part_is_relative_to_the_working_folder_and_inside_the_package() {
        let place = place();
        let plan = place.plan("command: ../server\ncwd: work").unwrap();
        assert_eq!(plan.executable.path, place.root.join("package/server"));
        assert!(place.refusal("command: ../bin/python3").contains("lies outside the package"));
        let text = place.refusal(&format!("command: ../server\ncwd: '{}'", place.path("user/projects")));
        assert!(text.contains("lies outside the package"), "{text}");
    }

    // Case B002: a PATH of the manifest is the one the plugin sees, so it is the one that is searched.
    #[test]
    fn the_command_is_looked_for_in_the_path_the_plugin_gets() {
        let mut place = place();
        let bin = place.path("bin");
        place.host = HostEnvironment::from_pairs([("PATH", "/nowhere")]);
        assert!(place.refusal("command: python3").contains("was not found in PATH `/nowhere`"));
        let plan = place.plan(&format!("command: python3\nenv: {{PATH: '{bin}:${{PATH}}'}}")).unwrap();
        assert!(plan.env.contains(&("PATH".into(), format!("{bin}:/nowhere").into())));
    }

    // N8: the original let `python ../../x.py` run whatever lay there.
    #[test]
    fn relative_arguments_stay_inside_the_package() {
        let place = place();
        let args = |args: &str| place.plan(&format!("command: python3\nargs: [{args}]"));
        assert!(place.root.join("outside.py").exists(), "positive control: there is something to run");
        for bad in ["../outside.py", "work/../../outside.py", "'--config=../outside.py'", "..", "-x, ../gone.py"] {
            let text = args(bad).unwrap_err().to_string();
            assert!(text.contains("leads out of the package"), "{bad}: {text}");
        }
        symlink(place.root.join("outside.py"), place.root.join("package/run.py")).unwrap();
        let text = args("-u, run.py").unwrap_err().to_string();
        assert!(text.starts_with("`args[1]` leads out of the package, to "), "{text}");
        let outside = place.path("outside.py");
        for good in
            ["server.py", "work/../server.py", "'https://x.test/a/../b'", "'--a=b=..'", "'...'", outside.as_str()]
        {
            assert!(args(good).is_ok(), "{good}");
        }
        let plan = place.plan("command: python3\nargs: [../server.py]\ncwd: ./work");
        assert!(plan.is_ok(), "case B035 starts a script beside its working folder");
    }

    // Case B047.
    #[test]
    fn a_container_run_is_named_per_start_and_approved_without_the_name() {
        let place = place();
        let plan = place.plan("command: docker\nargs: [run, -i, --rm, demo/image]").unwrap();
        assert!(plan.argv.contains(&"--init".to_owned()) && !plan.argv.contains(&"--name".to_owned()));
        let spec = plan.launch_spec(9);
        let name = plan.container_name(9).unwrap();
        assert_eq!(spec.argv[0], OsString::from(place.path("bin/docker")));
        assert_eq!(spec.argv[1..4], [OsString::from("run"), "--name".into(), OsString::from(&name)]);
        assert!(name.ends_with("-demo-9"), "{name}");
    }

    // N15.
    #[test]
    fn home_is_the_plugins_own() {
        let place = place();
        let plan = place.plan("command: python3").unwrap();
        assert!(plan.env.contains(&("HOME".into(), place.root.join("home").into())));
    }

    #[test]
    fn the_stop_ladder_has_two_seconds_per_step() {
        let plan = place().plan("command: python3").unwrap();
        assert_eq!((plan.stop.term_after, plan.stop.kill_after), (Duration::from_secs(2), Duration::from_secs(2)));
    }

    #[test]
    fn a_package_that_is_gone_is_named() {
        let place = place();
        fs::remove_dir_all(place.root.join("package")).unwrap();
        assert!(place.refusal("command: python3").starts_with("package folder `"));
    }
}
