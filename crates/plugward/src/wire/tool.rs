//! One tool, in the seed's words (`name` is the internal id).

use plugward_host::ToolView;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// One tool.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ToolBody {
    /// Internal id, `<plugin_id>.<remote_name>`.
    pub(crate) name: String,
    /// Id of its plugin.
    pub(crate) plugin_id: String,
    /// The plugin's own name of it.
    pub(crate) remote_name: String,
    /// Name MCP clients see.
    pub(crate) exposed_name: String,
    /// Description.
    pub(crate) description: String,
    /// The schema its arguments must fit.
    #[schema(value_type = Object)]
    pub(crate) parameters: Box<RawValue>,
    /// Permission it needs.
    pub(crate) permission: Option<String>,
    /// Whether its plugin runs at this moment.
    pub(crate) available: bool,
}

impl From<&ToolView> for ToolBody {
    fn from(view: &ToolView) -> Self {
        Self {
            name: view.id.to_string(),
            plugin_id: view.id.plugin().to_string(),
            remote_name: view.remote_name.clone(),
            exposed_name: view.exposed_name.clone(),
            description: view.description.clone(),
            parameters: view.parameters.clone(),
            permission: view.permission.clone(),
            available: view.available,
        }
    }
}
