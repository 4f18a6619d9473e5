//! The `instructions` of our server: which plugins are there, which are not and why, and what a person can do.
//!
//! A model reads this text, so it is made of our own words, plugin ids and numbers alone. Refuses anything a plugin
//! wrote (its instructions, errors, stderr, names, descriptions): nobody has reviewed those as orders to a model.

use std::fmt::Write as _;

use plugward_host::PluginView;
use plugward_policy::{HostStatus, PluginStatus};

use crate::profile::Mode;

/// Longest text. Clients put it into every conversation, and some cut what is longer.
const MAX_INSTRUCTIONS_BYTES: usize = 4096;

/// Kept free for the line that tells how many plugins were left out.
const LEFT_OUT_BYTES: usize = 64;

/// What a model has to know where tools are not listed.
const SEARCH: &str = " They are not listed: find them with `search_tools`, read how one is called with `describe_tool`, \
                      and run it with `call_tool`.";

/// The text for these plugins.
pub(super) fn text(plugins: &[PluginView], mode: Mode) -> String {
    if plugins.is_empty() {
        return "Plugward runs tools of installed plugins. None is installed: a person can add one with \
                `plugward install FOLDER`."
            .to_owned();
    }
    let ready = plugins.iter().filter(|plugin| plugin.status == PluginStatus::Ready);
    let (available, tools) = ready.fold((0, 0), |(count, tools), plugin| (count + 1, tools + plugin.tools_count));
    let mut text = format!(
        "Plugward runs tools of installed plugins. {available} of {} plugins {} available, with {}.",
        plugins.len(),
        if available == 1 { "is" } else { "are" },
        counted(tools, "tool")
    );
    if mode == Mode::Search {
        text.push_str(SEARCH);
    }
    // What is missing first: what is there can be seen in the tool list as well.
    let (missing, present): (Vec<_>, Vec<_>) = plugins.iter().partition(|plugin| plugin.status != PluginStatus::Ready);
    for (done, plugin) in missing.iter().chain(&present).enumerate() {
        let line = line(plugin);
        if text.len() + line.len() > MAX_INSTRUCTIONS_BYTES - LEFT_OUT_BYTES {
            // Writing into a `String` cannot fail.
            let _ = write!(text, "\n- and {} more: `plugward list`", plugins.len() - done);
            break;
        }
        text.push_str(&line);
    }
    text
}

fn line(plugin: &PluginView) -> String {
    let id = &plugin.id;
    let state = match plugin.status {
        PluginStatus::Ready => {
            let held = plugin.held_tools.len();
            let mut state = counted(plugin.tools_count, "tool");
            if held > 0 {
                let _ = write!(state, "; {held} more wait for a person: `plugward review {id}`");
            }
            state
        }
        PluginStatus::Starting => "starting; its tools appear in the tool list when it is ready".to_owned(),
        PluginStatus::PermissionRequired => format!(
            "not available: it waits for a person's approval (`plugward review {id}`, then `plugward approve {id}`)"
        ),
        PluginStatus::Installed | PluginStatus::Disabled => {
            format!("not available: it is switched off (`plugward enable {id}`)")
        }
        PluginStatus::Error if plugin.host_status == HostStatus::Unhealthy => {
            format!("not available: it broke off and is started again soon (`plugward info {id}`)")
        }
        PluginStatus::Error => {
            format!("not available: it failed (`plugward info {id}` says why, `plugward restart {id}` tries again)")
        }
    };
    format!("\n- `{id}`: {state}")
}

fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
