//! The schemas of a command, checked when it is installed or registered. Owns that a default is a value its own
//! parameter takes. Refuses to wait with a bad schema until the first call.

use plugward_policy::CommandTool;
use serde_json::Value;
use serde_json::value::to_raw_value;

use crate::schema::{self, ToolSchema, Use};

/// The compiled schema of the arguments, if everything about the schemas of `tool` is in order.
///
/// # Errors
/// The reason, for people.
pub(crate) fn check_schemas(tool: &CommandTool) -> Result<ToolSchema, String> {
    let definition = tool.definition();
    let compile = |schema: &Value, usage, what: &str| {
        let raw = to_raw_value(schema).map_err(|error| format!("{what}: {error}"))?;
        let compiled = schema::compile(&raw, usage).map_err(|fault| format!("{what}: {fault}"))?;
        // What is repaired or passed over in a stranger's server is a mistake in a file somebody is writing.
        match compiled.warnings.first() {
            Some(warning) => Err(format!("{what}: {warning}")),
            None => Ok(compiled.schema),
        }
    };
    let input = compile(&definition["inputSchema"], Use::Input, "parameters")?;
    if let Some(output) = definition.get("outputSchema") {
        compile(output, Use::Output, "output_schema")?;
    }
    for parameter in &tool.parameters {
        let Some(default) = &parameter.default else { continue };
        let what = format!("parameter `{}`", parameter.name);
        let own = compile(&definition["inputSchema"]["properties"][&parameter.name], Use::Output, &what)?;
        let raw = to_raw_value(default).map_err(|error| format!("{what}: {error}"))?;
        own.validate(&raw).map_err(|violations| format!("{what}: its default does not fit: {violations}"))?;
    }
    Ok(input)
}
