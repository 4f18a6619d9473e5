//! `connect`, `disconnect`, `clients`: our entry in agents' own settings.
//!
//! Owns the question, the texts and the order: all changes are planned and shown before the first is written. Refuses
//! to write without a yes, and to start anything: an agent is found by its files.

use std::io::{IsTerminal as _, stderr, stdin};

use serde::Serialize;

use super::approve::read_answer;
use super::arguments::ConnectArguments;
use super::output::{Tone, paint, safe, table};
use super::{Context, interrupted};
use crate::clients::{CLIENTS, ClientError, ClientKind, Machine, Plan, Report, Standing, client};
use crate::control::Failure;
use crate::exit::Exit;

/// How alike two names are (Jaro-Winkler) before one is offered for the other.
const SUGGESTION_SIMILARITY_MIN: f64 = 0.8;

/// One client for programs.
#[derive(Serialize)]
struct ClientBody<'a> {
    name: &'a str,
    title: &'a str,
    /// `not_found`, `found`, `connected`, `drifted` or `broken`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    file: String,
    /// Names of entries that are not ours.
    other_servers: &'a [String],
}

/// One change for programs.
#[derive(Serialize)]
struct ChangeBody<'a> {
    client: &'a str,
    file: String,
    /// Whether the file differs from what it was.
    changed: bool,
    diff: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    backup: Option<String>,
    /// Why it was not written, of one of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

pub(super) fn machine(settings: &crate::settings::Settings) -> Result<Machine, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(Exit::Failure, "INTERNAL_ERROR", format!("own program cannot be located: {error}"))
    })?;
    Ok(Machine::of(|name| std::env::var_os(name), &program, &settings.home, settings.is_usual_home))
}

pub(super) async fn connect(context: &Context, arguments: &ConnectArguments) -> Result<Exit, Failure> {
    change(context, arguments, Way::In).await
}

pub(super) async fn disconnect(context: &Context, arguments: &ConnectArguments) -> Result<Exit, Failure> {
    change(context, arguments, Way::Out).await
}

pub(super) fn list(context: &Context) -> Result<Exit, Failure> {
    let reports = machine(&context.settings)?.survey();
    if context.output.json {
        context.output.keyed("clients", &reports.iter().map(body).collect::<Vec<_>>());
        return Ok(Exit::Ok);
    }
    let (here, absent): (Vec<&Report>, Vec<&Report>) =
        reports.iter().partition(|report| report.standing != Standing::NotFound);
    if here.is_empty() {
        context.output.to_stderr("no agent was found here");
    } else {
        let row = |report: &&Report| {
            let (state, detail) = words(&report.standing);
            let others = match report.others.len() {
                0 => String::new(),
                number => format!("{number}: {}", report.others.join(", ")),
            };
            let state = detail.map_or_else(|| state.to_owned(), |detail| format!("{state}: {detail}"));
            vec![report.client.name.to_owned(), state, report.file.display().to_string(), others]
        };
        let rows = here.iter().map(row).collect();
        context.output.text(&table(&["CLIENT", "STATE", "SETTINGS", "OTHER SERVERS"], rows));
    }
    let names: Vec<&str> = absent.iter().map(|report| report.client.name).collect();
    if !names.is_empty() {
        context.output.note(&format!("also known, not found here: {}", names.join(", ")));
    }
    if let Some(next) = here.iter().find(|report| report.standing != Standing::Connected) {
        context.output.next(&format!("plugward connect {}", next.client.name));
    }
    Ok(Exit::Ok)
}

fn words(standing: &Standing) -> (&'static str, Option<&str>) {
    match standing {
        Standing::NotFound => ("not_found", None),
        Standing::Found => ("found", None),
        Standing::Connected => ("connected", None),
        Standing::Drifted(detail) => ("drifted", Some(detail)),
        Standing::Broken(detail) => ("broken", Some(detail)),
    }
}

fn body(report: &Report) -> ClientBody<'_> {
    let (state, detail) = words(&report.standing);
    ClientBody {
        name: report.client.name,
        title: report.client.title,
        state,
        detail,
        file: report.file.display().to_string(),
        other_servers: &report.others,
    }
}

async fn change(context: &Context, arguments: &ConnectArguments, way: Way) -> Result<Exit, Failure> {
    let machine = machine(&context.settings)?;
    if let Some(fault) = machine.records_fault() {
        return Err(Failure::new(Exit::Failure, "CLIENT_SETTINGS_UNUSABLE", fault.to_string()));
    }
    let (plans, failures) = plans(&machine, arguments, way)?;
    // One agent's broken file is no reason to leave the others out; it is told, and the exit code remembers.
    for failure in &failures {
        context.output.failure(failure);
    }
    let mut worst = if failures.is_empty() { Exit::Ok } else { Exit::Failure };
    let due: Vec<&Plan> = plans.iter().filter(|plan| plan.is_change()).collect();
    if !context.output.json {
        for plan in &due {
            context.output.text(&coloured(&plan.diff));
        }
    }
    if arguments.dry_run {
        let note = format!("{} would change; nothing was written", counted(due.len()));
        finish(context, &plans, &[], &note);
        return Ok(worst);
    }
    if due.is_empty() {
        if way == Way::Out {
            // A record of what is gone already is of no use.
            for plan in &plans {
                if let Err(error) = machine.disconnect(plan) {
                    context.output.failure(&failure(&machine, plan.client, &error));
                    worst = Exit::Failure;
                }
            }
        }
        let note = if way == Way::In { "connected already; nothing to do" } else { "not connected; nothing to do" };
        finish(context, &plans, &[], note);
        return Ok(worst);
    }
    if !arguments.yes && !agreed(context, due.len()).await? {
        context.output.to_stderr("nothing was written");
        return Ok(Exit::Denied);
    }
    let outcomes = write_all(context, &machine, &plans, way);
    if outcomes.iter().any(Result::is_err) {
        worst = Exit::Failure;
    }
    let written = plans.iter().zip(&outcomes).any(|(plan, outcome)| plan.is_change() && outcome.is_ok());
    let note = if written { "agents read their settings when they start: restart them" } else { "nothing was written" };
    finish(context, &plans, &outcomes, note);
    if way == Way::In && written {
        context.output.undo(&format!("plugward disconnect {}", target(arguments)));
    }
    Ok(worst)
}

/// Where the backup of each went, or why it was not written. One that fails leaves the others to be done.
type Outcome = Result<Option<String>, String>;

fn write_all(context: &Context, machine: &Machine, plans: &[Plan], way: Way) -> Vec<Outcome> {
    let write = |plan: &Plan| {
        let backup = match way {
            Way::In if !plan.is_change() => Ok(None),
            Way::In => machine.connect(plan),
            Way::Out => machine.disconnect(plan),
        };
        let backup = backup.map_err(|error| {
            context.output.failure(&failure(machine, plan.client, &error));
            error.to_string()
        })?;
        if !context.output.json && plan.is_change() {
            let verb = if way == Way::In { "connected" } else { "disconnected" };
            context.output.text(&format!("{verb} {}: {}", plan.client.name, safe(&plan.file.display().to_string())));
            if let Some(backup) = &backup {
                context.output.note(&format!("backup: {}", safe(&backup.display().to_string())));
            }
        }
        Ok(backup.map(|path| path.display().to_string()))
    };
    plans.iter().map(write).collect()
}

fn target(arguments: &ConnectArguments) -> String {
    let name = arguments.client.as_deref().unwrap_or("--all");
    match &arguments.project {
        Some(project) => format!("{name} --project {}", safe(&project.display().to_string())),
        None => name.to_owned(),
    }
}

fn change_body<'p>(plan: &'p Plan, outcome: Option<&Outcome>) -> ChangeBody<'p> {
    ChangeBody {
        client: plan.client.name,
        file: plan.file.display().to_string(),
        changed: plan.is_change() && !outcome.is_some_and(Result::is_err),
        diff: &plan.diff,
        backup: outcome.and_then(|outcome| outcome.clone().ok().flatten()),
        error: outcome.and_then(|outcome| outcome.clone().err()),
    }
}

fn finish(context: &Context, plans: &[Plan], outcomes: &[Outcome], note: &str) {
    if context.output.json {
        let changes: Vec<ChangeBody<'_>> =
            plans.iter().enumerate().map(|(index, plan)| change_body(plan, outcomes.get(index))).collect();
        context.output.keyed("changes", &changes);
    }
    context.output.note(note);
}

fn counted(number: usize) -> String {
    if number == 1 { "1 file".to_owned() } else { format!("{number} files") }
}

fn plans(machine: &Machine, arguments: &ConnectArguments, way: Way) -> Result<(Vec<Plan>, Vec<Failure>), Failure> {
    let project = arguments.project.as_deref().map(|folder| std::path::absolute(folder).unwrap_or(folder.to_owned()));
    let one = |kind: &'static ClientKind| {
        let plan = match way {
            Way::In => machine.plan_connect(kind, project.as_deref()),
            Way::Out => machine.plan_disconnect(kind, project.as_deref()),
        };
        plan.map_err(|error| failure(machine, kind, &error))
    };
    if let Some(name) = &arguments.client {
        let kind = client(name).ok_or_else(|| unknown(name))?;
        if project.as_deref().is_some_and(|folder| !folder.is_dir()) {
            let message = format!("project folder `{}` is not there", safe(&target(arguments)));
            return Err(Failure::usage(message));
        }
        return Ok((vec![one(kind)?], Vec::new()));
    }
    let wanted = |report: &Report| match (way, &report.standing) {
        (_, Standing::NotFound) => false,
        // It is told by name rather than left out.
        (Way::In, _) => true,
        (Way::Out, standing) => *standing != Standing::Found || report.is_recorded,
    };
    let found: Vec<Report> = machine.survey().into_iter().filter(wanted).collect();
    let mut seen = Vec::new();
    let (mut plans, mut failures) = (Vec::new(), Vec::new());
    for report in found {
        if !seen.contains(&report.client.name) {
            seen.push(report.client.name);
            match one(report.client) {
                Ok(plan) => plans.push(plan),
                Err(failure) => failures.push(failure),
            }
        }
    }
    Ok((plans, failures))
}

fn unknown(name: &str) -> Failure {
    let shown = safe(&name.chars().take(64).collect::<String>());
    let failure = Failure::new(Exit::NotFound, "CLIENT_UNKNOWN", format!("client `{shown}` is not known"));
    let alike = CLIENTS
        .iter()
        .map(|client| (strsim::jaro_winkler(&shown, client.name), client.name))
        .filter(|(similarity, _)| *similarity >= SUGGESTION_SIMILARITY_MIN)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    match alike {
        Some((_, name)) => failure.with_hint(format!("did you mean `{name}`?")),
        None => {
            let names: Vec<&str> = CLIENTS.iter().map(|client| client.name).collect();
            failure.with_hint(format!("there are: {}", names.join(", ")))
        }
    }
}

fn failure(machine: &Machine, kind: &ClientKind, error: &ClientError) -> Failure {
    match error {
        ClientError::NoProject { .. } => Failure::usage(error.to_string()),
        ClientError::Edit { .. } => {
            let paste = format!(
                "nothing was written; mend the file, or add this to it by hand:\n{}",
                machine.snippet(kind).trim_end()
            );
            let mut failure = Failure::new(Exit::Failure, "CLIENT_SETTINGS_UNUSABLE", error.to_string());
            failure.body.error.message = format!("{}\n{paste}", error);
            failure
        }
        ClientError::File(_) | ClientError::NoPlace { .. } => {
            Failure::new(Exit::Failure, "CLIENT_SETTINGS_UNUSABLE", error.to_string())
        }
    }
}

fn coloured(diff: &str) -> String {
    let line = |line: &str| match line.chars().next() {
        Some('+') if !line.starts_with("+++") => paint(Tone::Good, line),
        Some('-') if !line.starts_with("---") => paint(Tone::Bad, line),
        _ => line.to_owned(),
    };
    diff.lines().map(line).collect::<Vec<_>>().join("\n")
}

async fn agreed(context: &Context, files: usize) -> Result<bool, Failure> {
    if context.output.json || !stdin().is_terminal() || !stderr().is_terminal() {
        let message = format!("{} would change, and nobody can be asked", counted(files));
        return Err(Failure::new(Exit::Denied, "CONFIRMATION_REQUIRED", message)
            .with_hint("look at it with --dry-run, then pass --yes"));
    }
    context.output.prompt(&format!("Write {}? Type `yes`; Enter cancels: ", counted(files)));
    tokio::select! {
        answer = read_answer() => Ok(answer?.is_some_and(|typed| typed == "yes")),
        () = context.stop.cancelled() => Err(interrupted("command")),
    }
}
