//! Tools as a face offers them: the exposed name, the internal id behind it, and the definition.
//!
//! Owns the exact map between the two names for faces that narrow what a client gets. Refuses to narrow anything itself.

use plugward_policy::ToolId;
use serde_json::value::RawValue;

use super::Host;

/// A callable tool as MCP clients get it.
#[derive(Debug, Clone)]
pub struct ExposedTool {
    /// Internal id.
    pub id: ToolId,
    /// Name MCP clients see.
    pub name: String,
    /// The plugin's own definition under that name.
    pub definition: Box<RawValue>,
}

impl Host {
    /// The tools that can be called now, in the order of every list.
    pub fn exposed_tools(&self) -> Vec<ExposedTool> {
        let snapshot = self.inner.path.registry.snapshot();
        let tool = |tool: &crate::registry::RegisteredTool| {
            let mut object = tool.definition.exposed.clone();
            object.set_str("name", &tool.exposed_name);
            ExposedTool { id: tool.id.clone(), name: tool.exposed_name.clone(), definition: object.to_raw() }
        };
        snapshot.tools().iter().map(tool).collect()
    }

    /// The tool behind an exposed name, whether or not it can be called now.
    pub fn exposed_id(&self, name: &str) -> Option<ToolId> {
        let registry = &self.inner.path.registry;
        let callable = registry.snapshot().by_exposed(name).map(|tool| tool.id.clone());
        callable.or_else(|| registry.exposed_names().by_exposed(name).cloned())
    }
}
