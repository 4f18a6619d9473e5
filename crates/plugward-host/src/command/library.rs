//! Commands as tools for a program of yours, without a host, a store and a server.
//!
//! Owns a registry in memory and the runs of what is in it (requirements 160-183). Each command runs in the sandbox its
//! file asks for, with what its file asks for: whoever registers a tool agrees to it. Results are values; nothing
//! expected is an `Err`. Refuses to persist, to share and to watch: a host does that (requirements 194, 195).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use plugward_policy::{CommandTool, Digest, GrantSet, Manifest, Parameter, Prepared, WorkingDirectory, parse_manifest};
use plugward_sandbox::{Launcher, Listeners, Spawned};
use plugward_store::Redactor;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio_util::sync::CancellationToken;

use super::error::{CommandError, CommandErrorCode, CommandStage};
use super::outcome::CommandResult;
use super::run::{Run, run};
use super::schemas::check_schemas;
use super::spill::SpillDir;
use crate::egress::{Attempts, Egress, EgressPlan, Machine};
use crate::host::users::user_by_home;
use crate::package::{self, HostEnvironment, LaunchPlan, PackageFacts, PlanInput};
use crate::schema::ToolSchema;

/// Settings of [`CommandTools`].
pub struct CommandToolsConfig {
    /// How processes are launched.
    pub launcher: Launcher,
    /// The environment of the program, of which an allow-list reaches commands and `${NAME}` is looked up in.
    pub host_environment: Vec<(String, String)>,
    /// A folder of its own: private homes of commands, and output that did not fit.
    pub storage: PathBuf,
}

/// What came of a registration (requirement 163).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Whether the registry changed.
    pub success: bool,
    /// Why it did not.
    pub error: Option<String>,
}

impl Registration {
    fn of(outcome: Result<(), String>) -> Self {
        Self { success: outcome.is_ok(), error: outcome.err() }
    }
}

/// A registered tool, as a copy: changing it changes nothing (W17).
#[derive(Debug, Clone, PartialEq)]
pub struct RegisteredCommand {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The program and its arguments, with placeholders.
    pub command: Vec<String>,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// Bound on one run, in milliseconds.
    pub timeout_ms: u64,
    /// `project`, `plugin`, `repo` or a path.
    pub working_directory: String,
    /// When it was registered.
    pub registered_at: SystemTime,
}

struct Registered {
    manifest: Manifest,
    tool: CommandTool,
    input: ToolSchema,
    /// The folder of the tool's own files.
    folder: Option<PathBuf>,
    registered_at: SystemTime,
}

/// Commands as tools. Share it by reference; all methods may be called at the same time.
pub struct CommandTools {
    launcher: Arc<Launcher>,
    environment: HostEnvironment,
    storage: PathBuf,
    /// Held while a tool is given its user, on a machine where this program is root.
    users_turn: Arc<Mutex<()>>,
    tools: Mutex<BTreeMap<String, Arc<Registered>>>,
}

impl CommandTools {
    /// An empty registry.
    pub fn new(config: CommandToolsConfig) -> Self {
        Self {
            launcher: Arc::new(config.launcher),
            environment: HostEnvironment::from_pairs(config.host_environment),
            storage: config.storage,
            users_turn: Arc::default(),
            tools: Mutex::default(),
        }
    }

    /// Registers the tool in `text`, the content of `file`; the folder of the file is the tool's own.
    pub fn register_text(&self, text: &str, file: &Path) -> Registration {
        match parse_manifest(text, &file.display().to_string()) {
            Ok(parsed) => self.register(&parsed.manifest, file.parent()),
            Err(error) => Registration::of(Err(error.to_string())),
        }
    }

    /// Registers a tool that was read before. Of two registrations of one name at the same time exactly one wins.
    pub fn register(&self, manifest: &Manifest, folder: Option<&Path>) -> Registration {
        Registration::of(self.try_register(manifest, folder))
    }

    fn try_register(&self, manifest: &Manifest, folder: Option<&Path>) -> Result<(), String> {
        let tool = manifest
            .backend
            .command_tool()
            .filter(|tool| tool.gate.is_none())
            .ok_or_else(|| format!("plugin `{}` is not of type `mcp_tool`", manifest.id))?;
        let input = check_schemas(tool)?;
        // Only for a command that uses it: a project that is the folder of the file as well could not be written to.
        let uses_folder = tool.working_directory == WorkingDirectory::Plugin
            || tool.program().contains('/')
            || names_its_folder(manifest);
        let folder = folder.filter(|folder| uses_folder && !folder.as_os_str().is_empty()).map(Path::to_owned);
        let registered = Registered {
            manifest: manifest.clone(),
            tool: tool.clone(),
            input,
            folder,
            registered_at: SystemTime::now(),
        };
        let mut tools = self.lock();
        if tools.contains_key(&tool.name) {
            return Err(format!("tool `{}` is already registered", tool.name));
        }
        tools.insert(tool.name.clone(), Arc::new(registered));
        Ok(())
    }

    /// Takes a tool out; runs under way end on their own.
    pub fn unregister(&self, name: &str) -> Registration {
        let removed = self.lock().remove(name);
        Registration::of(removed.map(|_| ()).ok_or_else(|| not_registered(name)))
    }

    /// The tool as an MCP definition; none if it is not registered.
    pub fn definition(&self, name: &str) -> Option<Value> {
        self.find(name).map(|registered| registered.tool.definition())
    }

    /// All tools at this moment, by name.
    pub fn list(&self) -> Vec<RegisteredCommand> {
        let copy = |registered: &Arc<Registered>| {
            let tool = &registered.tool;
            RegisteredCommand {
                name: tool.name.clone(),
                description: tool.description.clone(),
                command: std::iter::once(tool.program().to_owned()).chain(tool.shown_arguments()).collect(),
                parameters: tool.parameters.clone(),
                timeout_ms: u64::try_from(tool.timeout.as_millis()).unwrap_or(u64::MAX),
                working_directory: tool.working_directory.as_str().to_owned(),
                registered_at: registered.registered_at,
            }
        };
        self.lock().values().map(copy).collect()
    }

    /// Runs a tool with `values`, an object, in `project` or else the folder this program is in. Dropping the future ends
    /// the command and everything it started.
    pub async fn execute(&self, name: &str, values: &Value, project: Option<&Path>) -> CommandResult {
        match self.try_execute(name, values, project).await {
            Ok(result) => result,
            Err(error) => CommandResult::refused(error),
        }
    }

    async fn try_execute(
        &self,
        name: &str,
        values: &Value,
        project: Option<&Path>,
    ) -> Result<CommandResult, CommandError> {
        let error = CommandError::new;
        let registered = self
            .find(name)
            .ok_or_else(|| error(CommandErrorCode::NotRegistered, CommandStage::PreCheck, not_registered(name)))?;
        let invalid = |stage, text: String| error(CommandErrorCode::ArgumentInvalid, stage, text);
        let values = match values {
            Value::Null => serde_json::json!({}),
            other => other.clone(),
        };
        let raw = to_raw_value(&values).map_err(|fault| invalid(CommandStage::PreCheck, fault.to_string()))?;
        registered
            .input
            .validate(&raw)
            .map_err(|violations| invalid(CommandStage::PreCheck, violations.to_string()))?;
        let values: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(raw.get()).map_err(|fault| invalid(CommandStage::PreCheck, fault.to_string()))?;
        let (storage, environment, launcher) =
            (self.storage.clone(), self.environment.clone(), Arc::clone(&self.launcher));
        let users_turn = Arc::clone(&self.users_turn);
        let project = project.map(Path::to_owned);
        let timeout = registered.tool.timeout;
        let started = tokio::task::spawn_blocking(move || {
            start(&registered, &values, &storage, project, &environment, &launcher, &users_turn)
        });
        let started = started.await.map_err(|_| {
            error(CommandErrorCode::NotExecutable, CommandStage::Run, "its start was broken off".to_owned())
        })??;
        finish(started, timeout).await
    }

    fn find(&self, name: &str) -> Option<Arc<Registered>> {
        self.lock().get(name).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Registered>>> {
        // A map is whole at every moment, so a panic elsewhere does not spoil it.
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn finish(started: Started, timeout: Duration) -> Result<CommandResult, CommandError> {
    let unusable = |what: &str, fault: std::io::Error| {
        let message = format!("{what} cannot be used: {fault}");
        CommandError::new(CommandErrorCode::NotExecutable, CommandStage::Run, message)
    };
    let Started { tool, prepared, spawned, egress, outputs, redactor } = started;
    let never = CancellationToken::new();
    // Without a host there is nobody to tell of attempts; the rules are the same.
    let attempts = || Arc::new(Attempts::new(Redactor::new()));
    let way_out = match egress {
        Some((plan, listeners)) => Some(
            Egress::new(plan, listeners, attempts(), Machine::default())
                .map_err(|fault| unusable("the network of its sandbox", fault))?,
        ),
        None => None,
    };
    let serving = async {
        match way_out {
            Some(way_out) => way_out.run(never.clone()).await,
            None => std::future::pending().await,
        }
    };
    let settings = Run {
        tool: &tool,
        prepared,
        timeout,
        used: Duration::ZERO,
        spill_dir: Some(outputs),
        redactor,
        cancel: &never,
        over: &never,
        notes: None,
    };
    tokio::select! {
        // Ends only with the run: nothing cancels it before.
        () = serving => Err(CommandError::new(
            CommandErrorCode::NotExecutable,
            CommandStage::Run,
            "the network of its sandbox ended before it".to_owned(),
        )),
        finished = run(spawned, settings) => finished.map_err(|fault| unusable("its pipes", fault)),
    }
}

fn not_registered(name: &str) -> String {
    format!("tool `{}` is not registered", plugward_policy::visible(&name.chars().take(64).collect::<String>()))
}

/// A command that runs, and what its end takes.
struct Started {
    tool: CommandTool,
    prepared: Prepared,
    spawned: Spawned,
    /// Its network, if it may reach some hosts.
    egress: Option<(EgressPlan, Listeners)>,
    outputs: SpillDir,
    /// Knows the secrets it was given.
    redactor: Redactor,
}

/// Everything up to the process. Blocks.
fn start(
    registered: &Registered,
    values: &BTreeMap<String, Box<RawValue>>,
    storage: &Path,
    project: Option<PathBuf>,
    environment: &HostEnvironment,
    launcher: &Launcher,
    users_turn: &Mutex<()>,
) -> Result<Started, CommandError> {
    let cannot = |stage, text: String| CommandError::new(CommandErrorCode::NotExecutable, stage, text);
    let name = registered.tool.name.as_str();
    let folder = |kind: &str| {
        let path = storage.join(kind).join(name);
        std::fs::create_dir_all(&path).map(|()| path.clone()).map_err(|fault| {
            let text = format!("folder `{}` cannot be made: {fault}", path.display());
            cannot(CommandStage::PreCheck, text)
        })
    };
    let home = folder("homes")?;
    let user = {
        let _turn = users_turn.lock().unwrap_or_else(PoisonError::into_inner);
        user_by_home(&storage.join("homes"), name).map_err(|fault| {
            cannot(CommandStage::PreCheck, format!("folder `{}` cannot become its user's: {fault}", home.display()))
        })?
    };
    let own = match &registered.folder {
        Some(own) => own.clone(),
        None => folder("folders")?,
    };
    let project = match project {
        Some(project) => project,
        None => std::env::current_dir()
            .map_err(|fault| cannot(CommandStage::PreCheck, format!("the working folder is not known: {fault}")))?,
    };
    let facts = PackageFacts { digest: Digest::of(b""), files: 0, bytes: 0, escaping_links: Vec::new() };
    let input = PlanInput {
        manifest: &registered.manifest,
        source: name,
        package_dir: &own,
        facts: &facts,
        home_dir: &home,
        user,
        project_dir: Some(&project),
        own_dir: storage,
        host: environment,
        passed_variables: &[],
    };
    let mut plan = package::plan(&input).map_err(|fault| cannot(CommandStage::PreCheck, fault.to_string()))?;
    let tool = plan.command.take().map_or_else(|| registered.tool.clone(), |tool| *tool);
    let prepared = tool.prepare(values).map_err(|fault| {
        CommandError::new(CommandErrorCode::ArgumentInvalid, CommandStage::Substitution, fault.to_string())
    })?;
    // Nobody here would look after a container; a command that starts one has to end it.
    plan.container = None;
    plan.set_arguments(&prepared.arguments);
    let (spawned, egress) =
        spawn(&plan, &registered.manifest, launcher).map_err(|text| cannot(CommandStage::Run, text))?;
    let redactor = Redactor::new();
    redactor.set_secrets(name, &plan.secrets);
    let runs = usize::try_from(registered.manifest.backend.max_concurrent_calls).unwrap_or(1);
    let outputs = SpillDir::new(storage.join("outputs").join(name), runs);
    Ok(Started { tool, prepared, spawned, egress, outputs, redactor })
}

/// Whether anything of a tool is said in terms of the folder of its file.
fn names_its_folder(manifest: &Manifest) -> bool {
    let backend = &manifest.backend;
    let texts = backend.args.iter().chain(backend.env.iter().map(|(_, value)| value)).chain(&backend.cwd);
    let permissions = manifest.all_permissions();
    texts.cloned().chain(permissions.iter().map(ToString::to_string)).any(|text| text.contains("${PLUGIN_DIR}"))
}

/// In the sandbox the file asks for, or not at all.
fn spawn(
    plan: &LaunchPlan,
    manifest: &Manifest,
    launcher: &Launcher,
) -> Result<(Spawned, Option<(EgressPlan, Listeners)>), String> {
    /// Numbers starts of servers; a command has none.
    const GENERATION: u64 = 0;
    let grants: GrantSet = manifest.all_permissions().into_iter().collect();
    let sandbox = plan.confinement.sandbox(&grants).map_err(|fault| fault.to_string())?;
    let egress = plan.confinement.egress(&grants).map_err(|fault| fault.to_string())?;
    let variables = egress.as_ref().map(EgressPlan::proxy_variables).unwrap_or_default();
    let spec = match sandbox {
        Some(mut sandbox) => {
            plan.confinement.refuse_foreign(&grants).map_err(|fault| fault.to_string())?;
            plan.confinement.refuse_closed().map_err(|fault| fault.to_string())?;
            // The folder of a tool's file is its author's and stays so: only copies are handed to the user a command runs as.
            let folder = sandbox.package_dir.take();
            sandbox.granted.extend(folder);
            plan.sandboxed_spec(GENERATION, sandbox, &variables)
        }
        None => plan.launch_spec(GENERATION),
    };
    // The text names the program and the step, and no argument.
    let spawned = launcher.spawn(&spec).map_err(|fault| fault.to_string())?;
    let egress = egress.zip(spawned.process.take_listeners());
    Ok((spawned, egress))
}
