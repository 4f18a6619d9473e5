//! `tools --cost`: what the tools of a profile cost in a model's context.
//!
//! Owns the sums and their rendering, and the row of `doctor` about budgets. Refuses to decide what is too much: a budget
//! is a person's.

use serde::Serialize;

use super::link::Link;
use super::output::table;
use super::{Context, unexpected};
use crate::control::{Failure, Operation, Outcome};
use crate::exit::Exit;
use crate::profile::{Mode, Profile};
use crate::settings::Settings;
use crate::wire::ToolBody;
use crate::{cost, gateway};

/// The cost of one profile.
#[derive(Debug, Serialize)]
pub(super) struct Costs {
    profile: String,
    /// Tokens of what the agent is given at its start: all tools, or the three of search mode.
    total_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_tokens: Option<u64>,
    over_budget: bool,
    /// Whether the tools are searched and not listed.
    search: bool,
    plugins: Vec<PluginCost>,
    tools: Vec<ToolCost>,
}

#[derive(Debug, Serialize)]
struct PluginCost {
    plugin_id: String,
    tools: usize,
    tokens: u64,
}

#[derive(Debug, Serialize)]
struct ToolCost {
    name: String,
    plugin_id: String,
    tokens: u64,
}

impl Costs {
    fn of(profile: &Profile, tools: &[ToolBody]) -> Self {
        let mut plugins: Vec<PluginCost> = Vec::new();
        let mut costs = Vec::new();
        for tool in tools.iter().filter(|tool| profile.has(&tool.plugin_id, &tool.name)) {
            let tokens = cost::of_tool(&tool.exposed_name, &tool.description, tool.parameters.get());
            match plugins.iter_mut().find(|plugin| plugin.plugin_id == tool.plugin_id) {
                Some(plugin) => {
                    plugin.tools += 1;
                    plugin.tokens += tokens;
                }
                None => plugins.push(PluginCost { plugin_id: tool.plugin_id.clone(), tools: 1, tokens }),
            }
            costs.push(ToolCost { name: tool.name.clone(), plugin_id: tool.plugin_id.clone(), tokens });
        }
        let search = profile.mode == Mode::Search;
        let listed = plugins.iter().map(|plugin| plugin.tokens).sum();
        let total_tokens = if search { gateway::search_tokens() } else { listed };
        Self {
            profile: profile.shown_name().to_owned(),
            total_tokens,
            budget_tokens: profile.budget_tokens,
            over_budget: profile.budget_tokens.is_some_and(|budget| total_tokens > budget),
            search,
            plugins,
            tools: costs,
        }
    }
}

pub(super) async fn run(context: &Context, id: Option<String>, name: Option<&str>) -> Result<Exit, Failure> {
    let profiles = &context.settings.profiles;
    let profile = match name {
        None => profiles.of_client(None),
        Some(name) => profiles.named(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = profiles.0.iter().map(|profile| profile.name.as_str()).collect();
            let shown = plugward_policy::visible(name);
            let failure = Failure::new(Exit::NotFound, "PROFILE_UNKNOWN", format!("profile `{shown}` is not set up"));
            failure.with_hint(if known.is_empty() {
                "profiles are `[profiles.NAME]` in config.toml".to_owned()
            } else {
                format!("there are: {}", known.join(", "))
            })
        })?,
    };
    let Outcome::Tools(tools) = context.run(Operation::Tools { id }).await? else { return Err(unexpected()) };
    let costs = Costs::of(&profile, &tools);
    if context.output.json {
        context.output.object(&costs);
        return Ok(Exit::Ok);
    }
    let tool = |tool: &ToolCost| vec![tool.name.clone(), tool.tokens.to_string()];
    let plugin =
        |plugin: &PluginCost| vec![plugin.plugin_id.clone(), plugin.tools.to_string(), plugin.tokens.to_string()];
    context.output.text(&table(&["TOOL", "TOKENS"], costs.tools.iter().map(tool).collect()));
    context.output.text("");
    context
        .output
        .text(&format!("\n{}", table(&["PLUGIN", "TOOLS", "TOKENS"], costs.plugins.iter().map(plugin).collect())));
    let how = if costs.search { " in search mode, where tools are found and not listed" } else { "" };
    context.output.text(&format!("\nprofile {}: about {} tokens{how}", costs.profile, costs.total_tokens));
    if let Some(budget) = costs.budget_tokens.filter(|_| costs.over_budget) {
        context.output.to_stderr(&format!("warning: that is over its budget of {budget} tokens"));
        context.output.next("name fewer `plugins` or `tools` in config.toml, or set `mode = \"search\"`");
    }
    Ok(Exit::Ok)
}

/// Profiles with a budget, each with what it costs now; nothing where no plugin was ever installed.
pub(super) async fn of_budgets(settings: &Settings) -> Vec<Costs> {
    let profiles: Vec<&Profile> =
        settings.profiles.0.iter().filter(|profile| profile.budget_tokens.is_some()).collect();
    if profiles.is_empty() || !settings.home.exists() {
        return Vec::new();
    }
    let Ok(link) = Link::open(settings).await else { return Vec::new() };
    let outcome = link.run(Operation::Tools { id: None }).await;
    link.close().await;
    let Ok(Outcome::Tools(tools)) = outcome else { return Vec::new() };
    profiles.into_iter().map(|profile| Costs::of(profile, &tools)).collect()
}

impl Costs {
    /// What `doctor` says: the check, what was found, whether it is within the budget.
    pub(super) fn finding(&self) -> (String, String, bool) {
        let budget = self.budget_tokens.unwrap_or(u64::MAX);
        let found = format!("about {} tokens of {budget}", self.total_tokens);
        (format!("profile {}", self.profile), found, !self.over_budget)
    }
}
