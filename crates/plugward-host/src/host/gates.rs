//! The installed gates: commands that judge. Owns telling which there are. Refuses to run them: they are tools, and a
//! face calls them like any other, through the one call path.

use std::path::Path;

use plugward_policy::{Gate, PluginId, ToolId};

use super::Host;
use crate::package::{self, MANIFEST_NAMES};
use crate::views::FileProblem;

/// What the file of a gate says of itself.
const GATE_WORD: &str = "quality_gate";

/// An installed gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateView {
    /// Its plugin.
    pub plugin: PluginId,
    /// The tool to call.
    pub tool: ToolId,
    /// When it runs and how much it weighs.
    pub gate: Gate,
    /// Whether a person switched it off; one that nobody ever switched on is not switched off.
    pub switched_off: bool,
}

impl Host {
    /// All installed gates, in the order they were installed.
    pub fn gates(&self) -> Vec<GateView> {
        let view = |plugin: std::sync::Arc<crate::supervisor::Plugin>| {
            let gate = plugin.manifest.backend.command_tool()?.gate?;
            let tool = plugin.manifest.declared_tools.iter().flatten().next()?.clone();
            let switched_off = plugin.state().switched_off;
            Some(GateView { plugin: plugin.id.clone(), tool, gate, switched_off })
        };
        self.inner.all().into_iter().filter_map(view).collect()
    }

    /// Plugin files that are not loaded and may be gates: they say so, or cannot be read.
    pub async fn gates_not_loaded(&self) -> Vec<FileProblem> {
        let mut problems = self.inner.folders().unwrap_or_default().problems;
        // A removal that failed has no file, and what keeps a version runs that.
        problems.retain(|problem| problem.keeps.is_none() && !problem.path.as_os_str().is_empty());
        let given = problems.clone();
        let read = tokio::task::spawn_blocking(move || {
            problems.retain(|problem| may_be_gate(&problem.path));
            problems
        });
        read.await.unwrap_or(given)
    }
}

/// The word is enough: a file whose text does not parse has no keys yet.
fn may_be_gate(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else { return true };
    let inside = MANIFEST_NAMES.iter().map(|name| path.join(name)).find(|path| path.exists());
    match package::read_manifest(&inside.unwrap_or(path)) {
        Ok(text) => text.contains(GATE_WORD),
        Err(_) => true,
    }
}
