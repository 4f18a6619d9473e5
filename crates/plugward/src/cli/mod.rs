//! The command line: one file per group of commands.
//!
//! Owns arguments, texts for people, `--json` and exit codes. Refuses rules: what a command does is an
//! [`Operation`], run here or by the host that is running.

mod approve;
mod arguments;
mod attempts;
mod call;
mod clients;
mod cost;
mod daemon;
mod demo;
mod doctor;
mod gate;
mod help;
mod link;
mod logs;
mod look;
mod output;
mod permissions;
mod plugins;
mod review;
mod serve;
mod stdio;
mod token;
mod trace;
mod trial;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _};
use plugward_host::ErrorCode;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use arguments::{Command, CommandLine, GateCommand, Global, TraceCommand};
use link::Link;
use output::Output;

use crate::control::{Failure, Operation, Outcome};
use crate::exit::Exit;
use crate::settings::{Settings, SettingsError};

/// Hidden first argument that turns the binary into the demo's MCP server.
pub(crate) const FIXTURE_ARGUMENT: &str = "__fixture";

/// Reads and prompts that never end must not keep the process alive.
const RUNTIME_END_LIMIT: Duration = Duration::from_millis(100);

/// What every command is given.
struct Context {
    /// Where results and messages go.
    output: Output,
    /// Settings of this process.
    settings: Settings,
    /// Cancelled by the first SIGINT or SIGTERM.
    stop: CancellationToken,
}

impl Context {
    /// Runs one operation with a link of its own.
    async fn run(&self, operation: Operation) -> Result<Outcome, Failure> {
        let link = Link::open(&self.settings).await?;
        let outcome = self.unless_interrupted(link.run(operation)).await;
        link.close().await;
        outcome
    }

    /// Waits for `work` until the first interrupt. A host of this process is then closed, which breaks off a start; one
    /// that runs elsewhere finishes what it began.
    async fn unless_interrupted<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        tokio::select! {
            outcome = work => outcome,
            () = self.stop.cancelled() => {
                Err(interrupted("command").with_hint("see what came of it: `plugward status`"))
            }
        }
    }
}

/// Runs the command line.
pub(crate) fn main() -> ExitCode {
    // Looked at by hand because they matter before, and when, the arguments cannot be read.
    let typed: Vec<_> = std::env::args_os().skip(1).take_while(|argument| argument != "--").collect();
    let json = typed.iter().any(|argument| argument == "--json");
    let plain = typed.iter().any(|argument| argument == "--no-color");
    if plain {
        anstream::ColorChoice::Never.write_global();
    }
    let command = CommandLine::command().color(if plain { clap::ColorChoice::Never } else { clap::ColorChoice::Auto });
    let parsed = command.try_get_matches().and_then(|matches| CommandLine::from_arg_matches(&matches));
    let exit = match parsed {
        Ok(line) => run(line),
        Err(error) => usage(&error, json),
    };
    exit.into()
}

/// Help and version go out as clap writes them; a mistake is told without the tricks that a mistyped word may hold.
fn usage(error: &clap::Error, json: bool) -> Exit {
    let output = Output::new(json, false);
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            output.text(&error.render().ansi().to_string());
            finish(&output, Ok(Exit::Ok))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if !json => {
            output.to_stderr(error.render().ansi().to_string().trim_end());
            Exit::Usage
        }
        _ => {
            let text = output::safe_lines(&error.render().to_string(), "");
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            if json {
                output.to_stderr(&output::usage_object(text).to_string());
            } else {
                output.to_stderr(&format!("{} {text}", output::paint(output::Tone::Bad, "error:")));
            }
            Exit::Usage
        }
    }
}

fn run(line: CommandLine) -> Exit {
    let CommandLine { global, command } = line;
    let output = Output::new(global.json, global.quiet);
    let is_detached = matches!(command, Command::Serve { detached: true, .. });
    if is_detached {
        daemon::leave_session();
    }
    log_to_stderr(&global, matches!(command, Command::Serve { .. }), is_detached);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build().context("runtime") {
        Ok(runtime) => runtime,
        Err(error) => {
            let message = format!("plugward cannot start its threads: {error:#}");
            output.failure(&Failure::coded(ErrorCode::Internal, message));
            return Exit::Failure;
        }
    };
    let exit = runtime.block_on(start(output, global, command));
    runtime.shutdown_timeout(RUNTIME_END_LIMIT);
    exit
}

async fn start(output: Output, global: Global, command: Command) -> Exit {
    let settings = Settings::load(global.home, |name| std::env::var_os(name));
    // These work without a home, and the doctor is there to tell what is wrong with it.
    let settings = match (command, settings) {
        (Command::Completion { shell }, _) => return finish(&output, Ok(completion(&output, shell))),
        (Command::Demo, _) => {
            // Dropped at a signal, so that its folder goes too; its plugin ends with this process.
            let result = tokio::select! {
                result = Box::pin(demo::run(&output)) => result,
                () = signal() => Err(interrupted("demo")),
            };
            return finish(&output, result);
        }
        (Command::Doctor, settings) => {
            let exit = doctor::run(&output, settings).await;
            return finish(&output, Ok(exit));
        }
        (command, Ok(settings)) => (command, settings),
        (_, Err(error)) => return finish(&output, Err(settings_failure(&error))),
    };
    let (command, settings) = settings;
    let stop = CancellationToken::new();
    let context = Context { output, settings, stop: stop.clone() };
    // Boxed: the sum of all commands is large, and it is moved once.
    let work = Box::pin(dispatch(&context, command));
    let result = tokio::select! {
        result = work => result,
        () = second_signal(stop) => {
            context.output.note("interrupted twice: not waiting for the end");
            Ok(Exit::Failure)
        }
    };
    finish(&context.output, result)
}

async fn dispatch(context: &Context, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Install { source, id } => plugins::install(context, &source, id).await,
        Command::Review { id, trial: false, .. } => review::run(context, id).await,
        Command::Review { id, trial: true, digest, seconds } => trial::run(context, id, digest, seconds).await,
        Command::Approve { id, digest } => approve::run(context, id, digest).await,
        Command::Enable { id } => plugins::enable(context, id).await,
        Command::Disable { id } => plugins::disable(context, id).await,
        Command::Restart { id } => plugins::restart(context, id).await,
        Command::Remove { id } => plugins::remove(context, id).await,
        Command::List => look::list(context).await,
        Command::Info { id } => look::info(context, id).await,
        Command::Tools { id, cost: true, profile } => cost::run(context, id, profile.as_deref()).await,
        Command::Tools { id, .. } => look::tools(context, id).await,
        Command::Call(arguments) => call::run(context, arguments).await,
        Command::Gate { command: GateCommand::Run { phase } } => gate::run(context, phase).await,
        Command::Status => look::status(context).await,
        Command::Logs { id, follow, lines } => logs::run(context, id, follow, lines).await,
        Command::Trace { command: TraceCommand::List { plugin, outcome, limit } } => {
            trace::list(context, plugin, outcome, limit).await
        }
        Command::Trace { command: TraceCommand::Show { trace } } => trace::show(context, trace).await,
        Command::Permissions { id, grant, revoke } => permissions::permissions(context, id, grant, revoke).await,
        Command::Asks => permissions::asks(context).await,
        Command::Answer { request, answer } => permissions::answer(context, request, answer.into()).await,
        Command::Serve { detached: true, .. } => serve::detached(context).await,
        Command::Serve { stdio, client, in_process, http, allow_host, .. } => {
            let http = http.map(|address| serve::HttpFace { address, names: allow_host });
            serve::run(context, serve::Faces { stdio, client, in_process, http }).await
        }
        Command::Token { command } => token::run(context, command),
        Command::Stop => daemon::stop(context).await,
        Command::Connect(arguments) => clients::connect(context, &arguments).await,
        Command::Disconnect(arguments) => clients::disconnect(context, &arguments).await,
        Command::Clients => clients::list(context),
        // Handled before settings are needed.
        Command::Demo | Command::Doctor | Command::Completion { .. } => Ok(Exit::Ok),
    }
}

fn finish(output: &Output, result: Result<Exit, Failure>) -> Exit {
    let exit = result.unwrap_or_else(|failure| {
        output.failure(&failure);
        failure.exit
    });
    if output.is_broken() && exit == Exit::Ok { Exit::Failure } else { exit }
}

fn settings_failure(error: &SettingsError) -> Failure {
    Failure::new(Exit::Usage, "SETTINGS_INVALID", error.to_string())
}

fn interrupted(what: &str) -> Failure {
    Failure::new(Exit::Failure, "INTERRUPTED", format!("the {what} was interrupted"))
}

/// An outcome of another kind than the operation has: both ends are this program, so it is a defect.
fn unexpected() -> Failure {
    plugward_host::HostError::internal("an outcome of another operation").into()
}

fn completion(output: &Output, shell: clap_complete::Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut CommandLine::command(), "plugward", &mut script);
    output.text(&String::from_utf8_lossy(&script));
    Exit::Ok
}

/// The first signal asks for the end; the second does not wait for it.
async fn second_signal(stop: CancellationToken) {
    signal().await;
    stop.cancel();
    signal().await;
}

/// SIGINT or SIGTERM. Never, if the system lets us hear neither: then the default action still ends the process.
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// The host's own messages go to standard error; a serving process says a little more.
fn log_to_stderr(global: &Global, serving: bool, bounded: bool) {
    let level = match (global.quiet, global.verbose, serving) {
        (true, _, _) => "error",
        (false, 0, false) => "off",
        (false, 0, true) | (false, 1, _) => "info",
        (false, _, _) => "debug",
    };
    let own = ["plugward", "plugward_host", "plugward_store", "plugward_protocol", "plugward_sandbox"];
    let directives: Vec<String> = own.iter().map(|target| format!("{target}={level}")).collect();
    // Failing means that somebody else collects them.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(directives.join(",")))
        .with_writer(if bounded {
            BoxMakeWriter::new(std::sync::Arc::new(daemon::BoundedLog::open()))
        } else {
            BoxMakeWriter::new(std::io::stderr)
        })
        .with_ansi(false)
        .with_target(false)
        .try_init();
}
