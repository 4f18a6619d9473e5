//! `install`, `enable`, `disable`, `restart`, `remove`: what changes a plugin.

use std::path::Path;

use plugward_policy::visible;

use super::link::Link;
use super::output::safe;
use super::{Context, unexpected};
use crate::control::{Failure, Operation, Outcome};
use crate::exit::Exit;
use crate::wire::PluginBody;

pub(super) async fn install(context: &Context, source: &Path, id: Option<String>) -> Result<Exit, Failure> {
    // The running host may have another working directory.
    let source = std::path::absolute(source).map_err(|error| {
        let message = format!("source `{}` is no path: {error}", visible(&source.display().to_string()));
        Failure::usage(message)
    })?;
    let plugin = plugin(context.run(Operation::Install { source, id }).await?)?;
    show(context, &plugin, &format!("installed {} {}; nothing of it has run", plugin.id, safe(&plugin.version)));
    context.output.next(&format!("plugward review {}", plugin.id));
    context.output.undo(&format!("plugward remove {}", plugin.id));
    Ok(Exit::Ok)
}

pub(super) async fn enable(context: &Context, id: String) -> Result<Exit, Failure> {
    let link = Link::open(&context.settings).await?;
    let outcome = context.unless_interrupted(link.run(Operation::Enable { id })).await;
    let stays = link.is_running();
    link.close().await;
    let plugin = plugin(outcome?)?;
    let tools = match plugin.tools_count {
        1 => "1 tool".to_owned(),
        count => format!("{count} tools"),
    };
    let kind = plugin.manifest.as_ref().map(|manifest| manifest.backend.kind.as_str());
    let is_in_host = matches!(kind, Some("prompt" | "webhook"));
    let outcome = if is_in_host { plugin.detail.clone() } else { format!("it started and offers {tools}") };
    show(context, &plugin, &format!("enabled {}: {outcome}", plugin.id));
    for held in &plugin.held_tools {
        context.output.note(&format!("held: tool {} differs from what you approved", safe(&held.name)));
    }
    for tool in &plugin.quarantined_tools {
        context.output.note(&format!("not usable: tool {}: {}", safe(&tool.name), safe(&tool.reason)));
    }
    if !stays {
        context.output.note("no host is running, so it was ended again; `plugward serve` keeps it running");
    }
    let next = if is_in_host { "plugward status".to_owned() } else { format!("plugward tools {}", plugin.id) };
    context.output.next(&next);
    context.output.undo(&format!("plugward disable {}", plugin.id));
    Ok(Exit::Ok)
}

pub(super) async fn disable(context: &Context, id: String) -> Result<Exit, Failure> {
    let plugin = plugin(context.run(Operation::Disable { id }).await?)?;
    show(context, &plugin, &format!("disabled {}: its tools are gone and its processes have ended", plugin.id));
    context.output.undo(&format!("plugward enable {}", plugin.id));
    Ok(Exit::Ok)
}

pub(super) async fn restart(context: &Context, id: String) -> Result<Exit, Failure> {
    let link = Link::open(&context.settings).await?;
    let outcome = context.unless_interrupted(link.run(Operation::Restart { id })).await;
    let stays = link.is_running();
    link.close().await;
    let Outcome::Host(host) = outcome? else { return Err(unexpected()) };
    if context.output.json {
        context.output.keyed("host", &host);
    } else {
        context.output.text(&format!("restarted {}: {} with {} tools", host.plugin_id, host.status, host.tools_count));
    }
    if !stays {
        context.output.note("no host is running, so it was ended again; `plugward serve` keeps it running");
    }
    context.output.next(&format!("plugward info {}", host.plugin_id));
    Ok(Exit::Ok)
}

pub(super) async fn remove(context: &Context, id: String) -> Result<Exit, Failure> {
    let link = Link::open(&context.settings).await?;
    // Looked up first: afterwards nobody knows where it came from.
    let work = async {
        let before = link.run(Operation::Info { id: id.clone() }).await?;
        Ok((before, link.run(Operation::Remove { id }).await?))
    };
    let outcome = context.unless_interrupted(work).await;
    link.close().await;
    let (Outcome::Info(info), Outcome::Done) = outcome? else { return Err(unexpected()) };
    if context.output.json {
        context.output.keyed("removed", &info.plugin.id);
    } else {
        context.output.text(&format!("removed {}: package, approval and grants are gone, traces stay", info.plugin.id));
    }
    context.output.undo(&format!("plugward install {}", quoted(&info.plugin.source)));
    Ok(Exit::Ok)
}

/// Shows a plugin after a change.
fn show(context: &Context, plugin: &PluginBody, text: &str) {
    if context.output.json {
        context.output.keyed("plugin", plugin);
    } else {
        context.output.text(text);
        for warning in &plugin.warnings {
            context.output.note(&format!("warning: {}", safe(warning)));
        }
    }
}

pub(super) fn plugin(outcome: Outcome) -> Result<PluginBody, Failure> {
    match outcome {
        Outcome::Plugin(plugin) => Ok(*plugin),
        _ => Err(unexpected()),
    }
}

/// A path as a shell takes it.
fn quoted(path: &str) -> String {
    let is_plain = !path.is_empty() && path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+@:".contains(c));
    if is_plain { path.to_owned() } else { format!("'{}'", visible(path).replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The undo line is copied into a shell.
    #[test]
    fn paths_are_quoted_for_a_shell() {
        assert_eq!(quoted("/a/b-1.0"), "/a/b-1.0");
        assert_eq!(quoted("/a b"), "'/a b'");
        assert_eq!(quoted("/it's $HOME"), r"'/it'\''s $HOME'");
    }
}
