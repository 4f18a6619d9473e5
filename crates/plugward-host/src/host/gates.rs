//! The installed gates: commands that judge. Owns telling which there are. Refuses to run them: they are tools, and a
//! face calls them like any other, through the one call path.

use plugward_policy::{Gate, PluginId, ToolId};

use super::Host;

/// An installed gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateView {
    /// Its plugin.
    pub plugin: PluginId,
    /// The tool to call.
    pub tool: ToolId,
    /// When it runs and how much it weighs.
    pub gate: Gate,
    /// Whether a person switched it on.
    pub enabled: bool,
}

impl Host {
    /// All installed gates, in the order they were installed.
    pub fn gates(&self) -> Vec<GateView> {
        let view = |plugin: std::sync::Arc<crate::supervisor::Plugin>| {
            let gate = plugin.manifest.backend.command_tool()?.gate?;
            let tool = plugin.manifest.declared_tools.iter().flatten().next()?.clone();
            let enabled = plugin.state().row.enabled;
            Some(GateView { plugin: plugin.id.clone(), tool, gate, enabled })
        };
        self.inner.all().into_iter().filter_map(view).collect()
    }
}
