//! `permissions`, `asks`, `answer`: what plugins may do, and calls that wait for a person.

use super::attempts::attempts;
use super::output::{safe, table};
use super::plugins::plugin;
use super::review::access;
use super::{Context, unexpected};
use crate::control::{Failure, Operation, Outcome};
use crate::exit::Exit;
use crate::wire::{AnswerBody, PluginBody};

pub(super) async fn permissions(
    context: &Context,
    id: String,
    grant: Vec<String>,
    revoke: Vec<String>,
) -> Result<Exit, Failure> {
    if let Some(name) = grant.iter().find(|name| revoke.contains(name)) {
        let message = format!("permission `{}` is to be granted and taken back at once", safe(name));
        return Err(Failure::usage(message));
    }
    let (given, taken) = (grant.join(" "), revoke.join(" "));
    let changes = !grant.is_empty() || !revoke.is_empty();
    let plugin = plugin(context.run(Operation::Permissions { id, grant, revoke }).await?)?;
    if context.output.json {
        context.output.object(&serde_json::json!({
            "plugin_id": plugin.id,
            "requested_permissions": plugin.requested_permissions,
            "granted_permissions": plugin.granted_permissions,
            "minimum_sandbox_level": plugin.minimum_sandbox_level,
            "access": plugin.access,
            "enforcement": plugin.enforcement,
            "network_attempts": plugin.network_attempts,
            "network_attempts_unlisted": plugin.network_attempts_unlisted,
            "status": plugin.status,
        }));
    } else {
        context.output.text(&text(&plugin));
    }
    if changes {
        let undo = [("--revoke", given), ("--grant", taken)]
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(flag, names)| format!(" {flag} {}", safe(&names)));
        context.output.undo(&format!("plugward permissions {}{}", plugin.id, undo.collect::<String>()));
    } else if let Some(name) = plugin.requested_permissions.first() {
        context.output.next(&format!("plugward permissions {} --revoke {}", plugin.id, safe(name)));
    }
    Ok(Exit::Ok)
}

fn text(plugin: &PluginBody) -> String {
    let mut text = if plugin.requested_permissions.is_empty() {
        format!("plugin {} asks for no permissions\n", plugin.id)
    } else {
        let rows = plugin.requested_permissions.iter().map(|name| {
            let granted = plugin.granted_permissions.contains(name);
            vec![name.clone(), if granted { "✓ granted" } else { "✗ not granted" }.to_owned()]
        });
        let mut rows = table(&["PERMISSION", "STATE"], rows.collect());
        rows.push('\n');
        rows
    };
    if plugin.is_remote() {
        // No line about files or programs of this machine is about it.
        text.push_str(
            "\nit runs elsewhere, where nothing here can hold it; it is sent the arguments of calls and its headers",
        );
        return text;
    }
    text.push_str("\nof this machine, inside its sandbox, it\n");
    access(&mut text, &plugin.access);
    text.push_str(&format!("\nsandbox level wanted: {}\n", safe(&plugin.minimum_sandbox_level)));
    text.push_str(&match &plugin.enforcement {
        Some(enforcement) => format!("in force now: {} - {}", enforcement.level, safe(&enforcement.note)),
        None => "in force now: nothing, it does not run".to_owned(),
    });
    if !plugin.network_attempts.is_empty() {
        text.push_str("\n\n");
        attempts(&mut text, plugin);
    }
    text
}

pub(super) async fn asks(context: &Context) -> Result<Exit, Failure> {
    let Outcome::Asks(asks) = context.run(Operation::Asks).await? else { return Err(unexpected()) };
    if context.output.json {
        context.output.keyed("requests", &asks);
        return Ok(Exit::Ok);
    }
    if asks.is_empty() {
        context.output.to_stderr("no call waits for your permission");
        return Ok(Exit::Ok);
    }
    let rows = asks.iter().map(|ask| {
        vec![
            ask.request_id.clone(),
            ask.tool.clone(),
            ask.permission.clone(),
            ask.caller.clone(),
            format!("{} s", ask.expires_in_ms / 1000),
        ]
    });
    context.output.text(&table(&["REQUEST", "TOOL", "PERMISSION", "CALLER", "ENDS IN"], rows.collect()));
    if let Some(ask) = asks.first() {
        context.output.next(&format!("plugward answer {} allow|allow-session|deny", ask.request_id));
    }
    Ok(Exit::Ok)
}

pub(super) async fn answer(context: &Context, request: String, answer: AnswerBody) -> Result<Exit, Failure> {
    let shown = safe(&request);
    let Outcome::Done = context.run(Operation::Answer { request, answer }).await? else { return Err(unexpected()) };
    if context.output.json {
        context.output.object(&serde_json::json!({ "request_id": shown, "answer": answer }));
    } else {
        let word = match answer {
            AnswerBody::AllowOnce => "allowed for this call",
            AnswerBody::AllowSession => "allowed until the host ends",
            AnswerBody::Deny => "denied",
        };
        context.output.text(&format!("{shown}: {word}"));
    }
    context.output.next("plugward trace show last");
    Ok(Exit::Ok)
}
