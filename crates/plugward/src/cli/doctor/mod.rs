//! `doctor`: what is there, what is missing, why it matters and what to do about it.
//!
//! Owns the checks and their wording. Refuses to start plugins and what is on the
//! `PATH`: programs are looked up, never run. Only the sandbox is tried, with a program that does nothing.

mod clients;
mod machine;

use std::path::{Path, PathBuf};

use plugward_host::{Environment, ErrorCode, Host, LevelCheck, check_level, check_levels};
use plugward_sandbox::{Availability, BWRAP, Backend, Launcher, Level, MachineFacts, PlatformReport};
use serde::Serialize;

use super::output::{Output, Tone, paint, safe};
use crate::control::{Client, ConnectError};
use crate::exit::Exit;
use crate::settings::{CONFIG_FILE, Settings, SettingsError};

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Row {
    /// What was looked at.
    check: String,
    /// `ok`, `warning` or `broken`.
    state: State,
    /// What was found.
    found: String,
    /// Why that matters.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    Warning,
    Broken,
}

impl Row {
    fn ok(check: &str, found: impl Into<String>) -> Self {
        Self { check: check.to_owned(), state: State::Ok, found: found.into(), cause: None, fix: None }
    }

    fn warning(check: &str, found: impl Into<String>, cause: &str, fix: &str) -> Self {
        let (cause, fix) = (Some(cause.to_owned()), Some(fix.to_owned()));
        Self { check: check.to_owned(), state: State::Warning, found: found.into(), cause, fix }
    }

    fn broken(check: &str, found: impl Into<String>, cause: &str, fix: &str) -> Self {
        Self { state: State::Broken, ..Self::warning(check, found, cause, fix) }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    version: &'a str,
    state: State,
    checks: &'a [Row],
}

pub(super) async fn run(output: &Output, settings: Result<Settings, SettingsError>) -> Exit {
    let mut rows = platform(&plugward_sandbox::probe());
    let levels = tokio::task::spawn_blocking(sandbox_levels).await.unwrap_or_default();
    rows.extend(machine::rows(&MachineFacts::here(), full_holds(&levels)));
    let has_level = levels.iter().any(|row| row.state == State::Ok);
    rows.extend(levels);
    match settings {
        Ok(settings) => {
            rows.push(config(&settings));
            rows.push(environment(&settings, has_level));
            rows.extend(home(&settings).await);
            rows.extend(clients::rows(&settings));
            rows.extend(clients::budgets(&settings).await);
        }
        Err(error) => {
            let fix = "correct the file at that place, or move it away to use the defaults";
            rows.push(Row::broken("settings", error.to_string(), "no other command works before this is right", fix));
        }
    }
    rows.extend(programs(std::env::var_os("PATH").as_deref()));
    let worst = [State::Broken, State::Warning].into_iter().find(|state| rows.iter().any(|row| row.state == *state));
    let worst = worst.unwrap_or(State::Ok);
    if output.json {
        output.object(&Report { version: env!("CARGO_PKG_VERSION"), state: worst, checks: &rows });
    } else {
        let lines: Vec<String> = rows.iter().map(text).collect();
        output.text(&lines.join("\n"));
        output.note(match worst {
            State::Ok => "all is well",
            State::Warning => "nothing is broken; [!!] rows say what does not work yet",
            State::Broken => "[XX] rows say what is broken and how to mend it",
        });
        output.next(if worst == State::Broken { "plugward doctor" } else { "plugward demo" });
    }
    if worst == State::Broken { Exit::Failure } else { Exit::Ok }
}

fn text(row: &Row) -> String {
    let sign = match row.state {
        State::Ok => paint(Tone::Good, "[ok]"),
        State::Warning => paint(Tone::Warn, "[!!]"),
        State::Broken => paint(Tone::Bad, "[XX]"),
    };
    let mut text = format!("{sign} {:<17} {}", row.check, safe(&row.found));
    if let Some(cause) = &row.cause {
        text.push_str(&format!("\n     {:<17} why: {}", "", safe(cause)));
    }
    if let Some(fix) = &row.fix {
        text.push_str(&format!("\n     {:<17} fix: {}", "", safe(fix)));
    }
    text
}

fn platform(report: &PlatformReport) -> Vec<Row> {
    let kernel = report.kernel_release.as_deref().unwrap_or("unknown release");
    let mut rows = vec![match report.launcher {
        Availability::Available => Row::ok("system", format!("{} {kernel}", report.system)),
        _ => Row::broken(
            "system",
            format!("{} {kernel}", report.system),
            "plugins are started through /proc, which is not there",
            "mount /proc, or use a Linux system",
        ),
    }];
    rows.push(match report.subreaper {
        Availability::Available => Row::ok("process trees", "a plugin's processes can be ended together"),
        _ => Row::broken(
            "process trees",
            "orphans of plugins cannot be adopted",
            "processes of a plugin could stay when it ends",
            "use Linux 3.4 or later",
        ),
    });
    if report.running_as_root {
        rows.push(Row::warning(
            "user",
            "plugward runs as root",
            "plugins started without isolation run as root too",
            "run plugward as an ordinary user",
        ));
    }
    rows
}

fn config(settings: &Settings) -> Row {
    let file = settings.home.join(CONFIG_FILE);
    let found = if settings.has_file { "read" } else { "not there, defaults are used" };
    Row::ok("settings", format!("{}: {found}", file.display()))
}

/// Each level that plugins can ask for, tried on this machine.
fn sandbox_levels() -> Vec<Row> {
    let launcher = match Launcher::current_exe() {
        Ok(launcher) => launcher,
        Err(error) => {
            return vec![Row::broken("sandbox", error.to_string(), "no plugin can be started", "mount /proc")];
        }
    };
    let row = |check: LevelCheck| {
        let name = format!("sandbox {}", check.level);
        match check.outcome {
            Ok(enforcement) => {
                let mut found = "holds: a probe under its rules could not get out".to_owned();
                if enforcement.backend == Backend::Bwrap {
                    found.push_str("; bubblewrap makes its namespaces, because plugward itself may not");
                }
                if !enforcement.missing.is_empty() {
                    found.push_str(&format!("; not covered: {}", enforcement.missing.join(", ")));
                }
                Row::ok(&name, found)
            }
            Err(error) => Row::warning(
                &name,
                error.to_string(),
                "plugins that ask for this level do not start, or in development start without a sandbox",
                "the text above names the layer that is missing; allow it for plugward, or ask who runs this machine",
            ),
        }
    };
    let mut rows: Vec<Row> = check_levels(&launcher).into_iter().map(row).collect();
    let full_holds = full_holds(&rows);
    rows.extend(Launcher::current_exe().ok().and_then(|launcher| through_bubblewrap(launcher, full_holds)));
    rows
}

/// Whether level `full` was tried and held.
fn full_holds(levels: &[Row]) -> bool {
    let check = format!("sandbox {}", Level::Full);
    levels.iter().any(|row| row.check == check && row.state == State::Ok)
}

/// Bubblewrap tried by itself, where it is installed: it may be needed one day, and then it has to work.
fn through_bubblewrap(launcher: Launcher, full_holds: bool) -> Option<Row> {
    const CHECK: &str = "sandbox by bwrap";
    if !Path::new(BWRAP).is_file() {
        return None;
    }
    let check = check_level(&launcher.with_backend(Backend::Bwrap), Level::Full);
    Some(match check.outcome {
        Ok(_) => Row::ok(CHECK, "level `full` holds through bubblewrap too"),
        Err(error) if full_holds => Row::ok(CHECK, format!("could not stand in, and is not needed: {error}")),
        Err(error) => Row::warning(
            CHECK,
            error.to_string(),
            "it cannot stand in for the namespaces that plugward itself may not make",
            "as for level `full` above; one of both is enough",
        ),
    })
}

fn environment(settings: &Settings, has_level: bool) -> Row {
    let found = format!("{} (from {})", settings.environment.as_str(), settings.environment_source);
    match settings.environment {
        Environment::Production if has_level => Row::ok("environment", found),
        Environment::Production => Row::warning(
            "environment",
            found,
            "production starts plugins in a sandbox only, and this machine has none: no plugin will start",
            "to run plugins you trust with all your rights: set PLUGWARD_ENVIRONMENT=development",
        ),
        Environment::Development => Row::warning(
            "environment",
            found,
            "plugins that ask for no sandbox, or cannot have theirs here, run as you, with all your rights",
            "enable only plugins you trust; unset it when you are done",
        ),
    }
}

/// The home, its owner, its store and its plugins.
async fn home(settings: &Settings) -> Vec<Row> {
    let shown = settings.home.display().to_string();
    if !settings.home.exists() {
        return vec![absent_home(&settings.home)];
    }
    match Client::connect(&settings.home).await {
        Ok(client) => {
            let found = format!("{shown}: in use by `plugward serve`, process {}", client.pid());
            return vec![Row::ok("home", found), Row::ok("store", "not checked: the running host has it open")];
        }
        Err(ConnectError::Failed(failure)) => {
            let fix = failure.body.error.hint.unwrap_or_else(|| "end that process and start it again".to_owned());
            return vec![Row::broken(
                "home",
                failure.body.error.message,
                "commands cannot reach the running host",
                &fix,
            )];
        }
        Err(ConnectError::NobodyThere) => {}
    }
    let config = match settings.host_config() {
        Ok(config) => config,
        Err(error) => {
            return vec![Row::broken("launcher", error.to_string(), "no plugin can be started", "mount /proc")];
        }
    };
    // Opening reads everything that is kept and starts nothing.
    match Host::open(config).await {
        Ok(host) => {
            let mut rows = vec![Row::ok("home", shown), Row::ok("store", "intact")];
            rows.extend(plugins(&host).await);
            host.shutdown().await;
            rows
        }
        Err(error) if error.code == ErrorCode::HomeInUse => {
            let fix = "wait for it; if it hangs, end it";
            vec![Row::warning("home", error.message, "another command works on it at this moment", fix)]
        }
        Err(error) => {
            let fix = error.hint.unwrap_or_else(|| "set PLUGWARD_HOME to another folder".to_owned());
            vec![Row::broken("home", error.message, "nothing that is kept can be used", &fix)]
        }
    }
}

/// A home that the first command will have to make.
fn absent_home(home: &Path) -> Row {
    let nearest = home.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let is_writable = nearest.is_dir() && rustix::fs::access(nearest, rustix::fs::Access::WRITE_OK).is_ok();
    if is_writable {
        return Row::ok("home", format!("{}: not there yet, the first command makes it", home.display()));
    }
    Row::broken(
        "home",
        format!("{}: not there, and `{}` cannot be written", home.display(), nearest.display()),
        "nothing can be kept",
        "set PLUGWARD_HOME to a folder you may write to",
    )
}

async fn plugins(host: &Host) -> Vec<Row> {
    let plugins = match host.plugins().await {
        Ok(plugins) => plugins,
        Err(error) => {
            return vec![Row::broken("plugins", error.message, "no plugin can be used", "see the store above")];
        }
    };
    let mut rows = vec![Row::ok("plugins", format!("{} installed", plugins.len()))];
    for plugin in plugins.iter().filter(|plugin| plugin.enabled && (plugin.error.is_some() || !plugin.approved)) {
        let found = plugin.error.clone().unwrap_or_else(|| plugin.detail.clone());
        let (cause, fix) = if plugin.approved {
            ("its last start or run failed", format!("plugward info {}", plugin.id))
        } else {
            ("it is not what you approved", format!("plugward review {}", plugin.id))
        };
        rows.push(Row::warning(plugin.id.as_str(), found, cause, &fix));
    }
    rows
}

/// Programs that servers are commonly written for. Looked up only.
fn programs(path: Option<&std::ffi::OsStr>) -> Vec<Row> {
    let wanted = [
        ("node", "servers from npm run on it"),
        ("npx", "it installs servers from npm"),
        ("python3", "servers from PyPI run on it"),
        ("uvx", "it installs servers from PyPI"),
    ];
    let row = |(name, cause): (&str, &str)| match look_up(name, path) {
        Some(found) => Row::ok(name, found.display().to_string()),
        None => Row::warning(name, "not on PATH", cause, "install it if you need such servers"),
    };
    wanted.into_iter().map(row).collect()
}

fn look_up(name: &str, path: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    std::env::split_paths(path?).map(|folder| folder.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata().is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}
