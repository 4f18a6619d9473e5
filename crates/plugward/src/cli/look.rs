//! `list`, `info`, `tools`, `status`: what is there and how it is.

use std::fmt::Write as _;

use super::attempts::attempts;
use super::output::{Tone, paint, safe, safe_lines, strong, table};
use super::{Context, unexpected};
use crate::control::{Failure, InfoBody, Operation, Outcome};
use crate::exit::Exit;
use crate::wire::PluginBody;

/// What an empty home says.
const NOTHING_INSTALLED: &str = "nothing is installed yet";

/// A description is shown up to here in a table; `--json` has all of it.
const DESCRIPTION_CHARS: usize = 60;

/// Where the values of a list of facts begin.
const VALUE_INDENT: &str = "               ";

pub(super) async fn list(context: &Context) -> Result<Exit, Failure> {
    let Outcome::Plugins(plugins) = context.run(Operation::Plugins).await? else { return Err(unexpected()) };
    if context.output.json {
        context.output.keyed("plugins", &plugins);
        return Ok(Exit::Ok);
    }
    if plugins.is_empty() {
        context.output.to_stderr(NOTHING_INSTALLED);
        context.output.next("plugward install FOLDER (or see it all first: plugward demo)");
        return Ok(Exit::Ok);
    }
    context.output.text(&plugin_table(&plugins));
    if let Some((_, next)) = plugins.iter().filter_map(next_step).next() {
        context.output.next(&next);
    }
    Ok(Exit::Ok)
}

pub(super) async fn info(context: &Context, id: String) -> Result<Exit, Failure> {
    let Outcome::Info(info) = context.run(Operation::Info { id }).await? else { return Err(unexpected()) };
    if context.output.json {
        context.output.object(&*info);
        return Ok(Exit::Ok);
    }
    context.output.text(&info_text(&info));
    if let Some((_, next)) = next_step(&info.plugin) {
        context.output.next(&next);
    }
    Ok(Exit::Ok)
}

pub(super) async fn tools(context: &Context, id: Option<String>) -> Result<Exit, Failure> {
    let Outcome::Tools(tools) = context.run(Operation::Tools { id: id.clone() }).await? else {
        return Err(unexpected());
    };
    if context.output.json {
        context.output.keyed("tools", &tools);
        return Ok(Exit::Ok);
    }
    if tools.is_empty() {
        context.output.to_stderr("no tools: plugins offer them once they are enabled");
        context
            .output
            .next(&id.map_or_else(|| "plugward list".to_owned(), |id| format!("plugward info {}", safe(&id))));
        return Ok(Exit::Ok);
    }
    let rows = tools.iter().map(|tool| {
        let description: String =
            tool.description.lines().next().unwrap_or_default().chars().take(DESCRIPTION_CHARS).collect();
        vec![tool.name.clone(), tool.permission.clone().unwrap_or_else(|| "-".to_owned()), description]
    });
    context.output.text(&table(&["TOOL", "PERMISSION", "DESCRIPTION"], rows.collect()));
    if let Some(tool) = tools.first() {
        context.output.next(&format!("plugward call {} '{{}}'", tool.name));
    }
    Ok(Exit::Ok)
}

pub(super) async fn status(context: &Context) -> Result<Exit, Failure> {
    let Outcome::Status(status) = context.run(Operation::Status).await? else { return Err(unexpected()) };
    if context.output.json {
        context.output.object(&*status);
        return Ok(Exit::Ok);
    }
    let host = &status.host;
    let mut text = String::new();
    let serving = match host.serving_pid {
        Some(pid) => format!("running as process {pid}, version {}", host.version),
        None => "not running; commands open the home themselves".to_owned(),
    };
    row(&mut text, "host", &serving);
    row(&mut text, "home", &safe(&host.home));
    row(&mut text, "environment", &host.environment);
    row(&mut text, "tools", &format!("{} can be called now", host.tools_count));
    if host.pending_requests > 0 {
        row(&mut text, "waiting", &format!("{} calls wait for your permission: plugward asks", host.pending_requests));
    }
    if host.dropped_spans > 0 {
        row(&mut text, "trace", &format!("{} entries were lost because the disk was too slow", host.dropped_spans));
    }
    if let Some(folders) = &status.folders {
        row(&mut text, "plugin files", &format!("{} plugins come from files", folders.plugins));
        for problem in &folders.problems {
            let kept = problem.keeps.as_ref().map(|id| format!(" ({id} stays as it was)")).unwrap_or_default();
            row(&mut text, "  problem", &format!("{}{kept}", safe(&problem.path)));
            for reason in &problem.reasons {
                row(&mut text, "", &safe(reason));
            }
        }
    }
    if status.plugins.is_empty() {
        text.push_str(NOTHING_INSTALLED);
    } else {
        text.push('\n');
        text.push_str(&plugin_table(&status.plugins));
        text.push('\n');
        for plugin in status.plugins.iter().filter(|plugin| plugin.enabled) {
            let _ = write!(text, "\n{}: {}", plugin.id, safe(&plugin.activity));
        }
    }
    context.output.text(&text);
    match (host.serving_pid, status.plugins.iter().find_map(next_step)) {
        (_, Some((_, next))) => context.output.next(&next),
        (None, None) => context.output.next("plugward serve --stdio (as the command in your agent's MCP settings)"),
        (Some(_), None) => {}
    }
    Ok(Exit::Ok)
}

fn plugin_table(plugins: &[PluginBody]) -> String {
    let rows = plugins.iter().map(|plugin| {
        let (_, sign, word) = state(plugin);
        let elsewhere = if plugin.is_remote() { "remote" } else { "-" };
        let sandbox =
            plugin.enforcement.as_ref().map_or(elsewhere, |enforcement| enforcement.level.as_str()).to_owned();
        vec![
            plugin.id.clone(),
            plugin.version.clone(),
            format!("{sign} {word}"),
            sandbox,
            plugin.tools_count.to_string(),
        ]
    });
    table(&["PLUGIN", "VERSION", "STATE", "SANDBOX", "TOOLS"], rows.collect())
}

/// Sign and words for the state of a plugin.
fn state(plugin: &PluginBody) -> (Tone, &'static str, String) {
    let held = plugin.held_tools.len();
    match plugin.status.as_str() {
        "ready" if held > 0 => (Tone::Warn, "!", format!("running, {held} tools held for review")),
        "ready" if plugin.host_status == "stopped" => (Tone::Good, "○", "asleep, the next call starts it".to_owned()),
        "ready" => (Tone::Good, "●", "running".to_owned()),
        "starting" => (Tone::Warn, "◌", "starting".to_owned()),
        "error" => (Tone::Bad, "✗", "failed".to_owned()),
        "permission_required" => (Tone::Warn, "?", "needs consent".to_owned()),
        "disabled" => (Tone::Warn, "○", "disabled".to_owned()),
        _ if !plugin.approved => (Tone::Warn, "?", "needs consent".to_owned()),
        _ if plugin.enabled => (Tone::Good, "○", "enabled, not running".to_owned()),
        _ => (Tone::Warn, "○", "approved, not enabled".to_owned()),
    }
}

/// What a plugin needs next, most urgent kind first.
fn next_step(plugin: &PluginBody) -> Option<(Tone, String)> {
    let id = &plugin.id;
    let (tone, _, _) = state(plugin);
    match plugin.status.as_str() {
        "error" => Some((tone, format!("plugward info {id}"))),
        "ready" | "starting" if plugin.held_tools.is_empty() => None,
        "permission_required" | "ready" => Some((tone, format!("plugward review {id}"))),
        "disabled" => None,
        _ if !plugin.approved => Some((tone, format!("plugward review {id}"))),
        _ if !plugin.enabled => Some((tone, format!("plugward enable {id}"))),
        _ => None,
    }
}

fn info_text(info: &InfoBody) -> String {
    let InfoBody { plugin, host, tools, last_words } = info;
    let (tone, sign, word) = state(plugin);
    let mut text =
        format!("{}\n", strong(&format!("{} {} ({})", safe(&plugin.name), safe(&plugin.version), plugin.id)));
    for words in plugin.description.lines() {
        let _ = writeln!(text, "  {}", safe(words));
    }
    row(&mut text, "state", &format!("{} {}", paint(tone, sign), paint(tone, &word)));
    row(&mut text, "detail", &safe(&plugin.detail));
    if let Some(error) = &plugin.error_message {
        row(&mut text, "last error", &safe_lines(error, VALUE_INDENT));
    }
    for line in last_words {
        row(&mut text, "last words", &safe(&line.text));
    }
    row(&mut text, "activity", &safe(&plugin.activity));
    row(&mut text, "approved", if plugin.approved { "yes" } else { "no" });
    let granted = |name: &String| {
        let is_granted = plugin.granted_permissions.contains(name);
        format!("{} ({})", safe(name), if is_granted { "granted" } else { "not granted" })
    };
    let permissions: Vec<String> = plugin.requested_permissions.iter().map(granted).collect();
    row(&mut text, "permissions", &if permissions.is_empty() { "none".to_owned() } else { permissions.join(", ") });
    row(&mut text, "from", &safe(&plugin.source));
    row(&mut text, "installed", &plugin.installed_at);
    if let (Some(pid), Some(since)) = (host.pid, &host.started_at) {
        row(&mut text, "process", &format!("{pid}, start {} at {since}", host.generation));
    }
    if let Some(name) = &host.server_name {
        let version = host.server_version.as_deref().unwrap_or("without a version");
        let revision = host.protocol_version.as_deref().unwrap_or("?");
        row(&mut text, "server", &format!("{} {}, MCP {revision}", safe(name), safe(version)));
    }
    if plugin.is_remote() {
        row(&mut text, "isolation", "remote: it runs elsewhere, where nothing here can hold it");
    }
    if let Some(enforcement) = &plugin.enforcement {
        row(&mut text, "isolation", &format!("{}: {}", enforcement.level, safe(&enforcement.note)));
        if !enforcement.missing.is_empty() {
            row(&mut text, "not enforced", &safe(&enforcement.missing.join(", ")));
        }
    }
    for limit in &plugin.limits_reached {
        row(&mut text, "at a limit", &safe(limit));
    }
    if plugin.restarts > 0 {
        row(&mut text, "restarts", &format!("{} since the host started", plugin.restarts));
    }
    if plugin.noise_lines > 0 {
        row(&mut text, "noise", &format!("{} lines on its output were no messages", plugin.noise_lines));
    }
    for warning in &plugin.warnings {
        row(&mut text, "warning", &safe(warning));
    }
    for held in &plugin.held_tools {
        row(&mut text, "held", &format!("{}: not what you approved", safe(&held.name)));
    }
    for tool in &plugin.quarantined_tools {
        row(&mut text, "not usable", &format!("{}: {}", safe(&tool.name), safe(&tool.reason)));
    }
    for tool in tools {
        row(&mut text, "tool", &safe(&tool.name));
    }
    attempts(&mut text, plugin);
    text
}

fn row(text: &mut String, label: &str, value: &str) {
    // Writing into a `String` cannot fail.
    let _ = writeln!(text, "  {label:<12} {value}");
}
