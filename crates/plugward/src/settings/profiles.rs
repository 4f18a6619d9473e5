//! `[profiles.NAME]`: which tools an agent gets.

use plugward_policy::{PluginId, visible};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::{Mistake, number, text, unknown};
use crate::profile::{Mode, Only, Profile, Profiles};

const KEYS: [&str; 4] = ["budget_tokens", "mode", "plugins", "tools"];

/// Longest name of a profile; agents' names are short.
const NAME_BYTES_MAX: usize = 64;

/// Longest id of a tool: a plugin's and a tool's name, each with its own limit, stay below it.
const TOOL_BYTES_MAX: usize = 512;

/// Largest budget. No model reads as much.
const BUDGET_TOKENS_MAX: u64 = 100_000_000;

pub(super) fn read(value: &Spanned<DeValue<'_>>) -> Result<Profiles, Mistake> {
    let mut profiles = Vec::new();
    for (key, value) in table("profiles", value)? {
        let name = key.get_ref().as_ref();
        let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_name) {
            let message = "name of a profile must be letters, digits, `.`, `_` and `-`, as `plugward clients` has them";
            return Err(Mistake::new(key.span().start, message));
        }
        profiles.push(profile(name, value)?);
    }
    Ok(Profiles(profiles))
}

fn table<'v, 'd>(name: &str, value: &'v Spanned<DeValue<'d>>) -> Result<&'v DeTable<'d>, Mistake> {
    match value.get_ref() {
        DeValue::Table(table) => Ok(table),
        _ => Err(Mistake::new(value.span().start, format!("`{name}` must be a table"))),
    }
}

fn profile(name: &str, value: &Spanned<DeValue<'_>>) -> Result<Profile, Mistake> {
    let mut profile = Profile { name: name.to_owned(), ..Profile::default() };
    for (key, value) in table(name, value)? {
        match key.get_ref().as_ref() {
            "budget_tokens" => {
                profile.budget_tokens = Some(number("budget_tokens", value, 1..=BUDGET_TOKENS_MAX)?);
            }
            "mode" => {
                profile.mode = match text("mode", value)? {
                    "list" => Mode::List,
                    "search" => Mode::Search,
                    other => {
                        let message = format!("mode `{}` is unknown: use list or search", visible(other));
                        return Err(Mistake::new(value.span().start, message));
                    }
                };
            }
            "plugins" => {
                let plugin = |id: &str| PluginId::new(id).map(|_| ()).map_err(|error| error.to_string());
                profile.only.get_or_insert_with(Only::default).plugins = ids("plugins", value, plugin)?;
            }
            "tools" => profile.only.get_or_insert_with(Only::default).tools = ids("tools", value, tool)?,
            other => return Err(Mistake::new(key.span().start, unknown(other, &KEYS))),
        }
    }
    Ok(profile)
}

fn tool(id: &str) -> Result<(), String> {
    let is_id = id.len() <= TOOL_BYTES_MAX
        && id.split_once('.').is_some_and(|(plugin, tool)| !plugin.is_empty() && !tool.is_empty());
    let message = || format!("tool `{}` is no internal id: write PLUGIN.TOOL, as `plugward tools` does", visible(id));
    if is_id { Ok(()) } else { Err(message()) }
}

fn ids(
    name: &str,
    value: &Spanned<DeValue<'_>>,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<Vec<String>, Mistake> {
    let DeValue::Array(items) = value.get_ref() else {
        return Err(Mistake::new(value.span().start, format!("`{name}` must be a list of texts")));
    };
    let id = |item: &Spanned<DeValue<'_>>| {
        let id = text(name, item)?;
        check(id).map_err(|message| Mistake::new(item.span().start, message))?;
        Ok(id.to_owned())
    };
    items.iter().map(id).collect()
}
