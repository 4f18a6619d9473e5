//! What one agent sees: which plugins, which tools, and in which form.
//!
//! Owns the rule whether a tool is in a profile; listing and calling both ask it, so that a tool outside is neither
//! seen nor run (case B064). Refuses to know where profiles are written, and permissions: a profile narrows what an
//! agent is offered and never what a tool may do.

use plugward_policy::{PluginId, ToolId};
use serde::{Deserialize, Serialize};

/// The profile of agents that have none of their own.
pub(crate) const DEFAULT_PROFILE: &str = "default";

/// How an agent meets the tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// All of them, with their definitions.
    #[default]
    List,
    /// Three tools: to search, to describe, to call.
    Search,
}

/// One profile. The default one holds everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Profile {
    /// Its name; empty where none is set up.
    pub(crate) name: String,
    /// Plugins with all their tools, and single tools; none means everything.
    pub(crate) only: Option<Only>,
    /// How the agent meets the tools.
    pub(crate) mode: Mode,
    /// Tokens that the definitions may cost before somebody is warned.
    pub(crate) budget_tokens: Option<u64>,
}

/// What a profile is narrowed to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Only {
    /// Plugins with all their tools.
    pub(crate) plugins: Vec<String>,
    /// Internal ids of single tools.
    pub(crate) tools: Vec<String>,
}

impl Profile {
    /// Whether a tool is in it.
    pub(crate) fn has_tool(&self, tool: &ToolId) -> bool {
        self.has(tool.plugin().as_str(), &tool.to_string())
    }

    /// The same by names.
    pub(crate) fn has(&self, plugin: &str, tool: &str) -> bool {
        let Some(only) = &self.only else { return true };
        only.plugins.iter().any(|id| id == plugin) || only.tools.iter().any(|id| id == tool)
    }

    /// Whether any tool of a plugin can be in it.
    pub(crate) fn has_some_of(&self, plugin: &PluginId) -> bool {
        let Some(only) = &self.only else { return true };
        let id = plugin.as_str();
        let is_of = |tool: &String| tool.strip_prefix(id).is_some_and(|rest| rest.starts_with('.'));
        only.plugins.iter().any(|known| known == id) || only.tools.iter().any(is_of)
    }

    /// Whether a plugin is in it as a whole. Single tools bring no prompts and no resources with them.
    pub(crate) fn has_plugin(&self, plugin: &PluginId) -> bool {
        self.only.as_ref().is_none_or(|only| only.plugins.iter().any(|id| id == plugin.as_str()))
    }

    /// What it is called in messages.
    pub(crate) fn shown_name(&self) -> &str {
        if self.name.is_empty() { DEFAULT_PROFILE } else { &self.name }
    }
}

/// All profiles that are set up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Profiles(pub(crate) Vec<Profile>);

impl Profiles {
    /// The profile with this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Profile> {
        self.0.iter().find(|profile| profile.name == name)
    }

    /// The profile of an agent: its own, else the default one, else everything.
    pub(crate) fn of_client(&self, client: Option<&str>) -> Profile {
        let own = client.and_then(|client| self.named(client));
        own.or_else(|| self.named(DEFAULT_PROFILE)).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use plugward_policy::RemoteToolName;

    use super::*;

    fn tool(plugin: &str, name: &str) -> ToolId {
        ToolId::new(PluginId::new(plugin).unwrap(), RemoteToolName::new(name).unwrap())
    }

    #[test]
    fn a_profile_holds_what_it_names_and_nothing_like_it() {
        let only = Only { plugins: vec!["a".to_owned()], tools: vec!["b.c.echo".to_owned()] };
        let profile = Profile { name: "x".to_owned(), only: Some(only), ..Profile::default() };
        let cases = [
            (tool("a", "anything"), true),
            (tool("a.b", "anything"), false),
            (tool("b.c", "echo"), true),
            (tool("b.c", "echo2"), false),
            (tool("b", "other"), false),
        ];
        for (tool, expected) in cases {
            assert_eq!(profile.has_tool(&tool), expected, "{tool}");
        }
        assert!(profile.has_some_of(&PluginId::new("b.c").unwrap()));
        assert!(!profile.has_some_of(&PluginId::new("b.cc").unwrap()));
        let whole = ["a", "a.b", "b.c"].map(|id| profile.has_plugin(&PluginId::new(id).unwrap()));
        assert_eq!(whole, [true, false, false], "a single tool brings no prompts");
        assert!(Profile::default().has_plugin(&PluginId::new("z").unwrap()));
        assert!(Profile::default().has_tool(&tool("z", "z")));
        let nothing = Profile { only: Some(Only::default()), ..Profile::default() };
        assert!(!nothing.has_tool(&tool("a", "b")), "an empty list is a list");
    }

    #[test]
    fn an_agent_without_a_profile_gets_the_default_one() {
        let named = |name: &str| Profile { name: name.to_owned(), only: Some(Only::default()), ..Profile::default() };
        let profiles = Profiles(vec![named("default"), named("zed")]);
        assert_eq!(profiles.of_client(Some("zed")).name, "zed");
        assert_eq!(profiles.of_client(Some("cursor")).name, "default");
        assert_eq!(profiles.of_client(None).name, "default");
        assert_eq!(Profiles::default().of_client(Some("zed")), Profile::default());
    }
}
