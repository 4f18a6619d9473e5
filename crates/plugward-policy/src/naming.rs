//! Names under which tools are offered. Owns the map from every tool of every plugin to one name
//! that any model API accepts, and back. Refuses to depend on order or time: the same set of tools
//! gives the same names, and a tool's name changes only when another tool clashes with it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::id::{Digest, PluginId, RemoteToolName, ToolId};
use crate::visible::quoted;

/// Longest exposed name, in bytes: the strictest limit among model APIs and their clients.
pub const EXPOSED_NAME_BYTES_MAX: usize = 64;

/// Hex digits of the hash on a name that is cut or would clash; doubled until all names differ.
const HASH_DIGITS: usize = 8;

/// The step on which the hash fills the whole name.
const LAST_STEP: usize = 4;

/// The tools of one plugin, in the order its server lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginTools {
    /// The plugin.
    pub plugin: PluginId,
    /// What its tools' names begin with; the plugin's id when empty.
    pub prefix: String,
    /// Its tools.
    pub tools: Vec<RemoteToolName>,
}

/// How names are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamingMode {
    /// `<prefix>_<tool>`, made legal, with a hash where needed. Never fails for want of a name.
    Prefixed,
    /// The server's own names, unchanged; for a gateway with one plugin.
    PassThrough,
}

/// A tool and the name it is offered under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExposedName {
    /// The name callers use.
    pub exposed: String,
    /// The tool it stands for.
    pub tool: ToolId,
}

/// A set of tools that cannot be named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamingError {
    /// The same tool twice.
    #[error("tool `{0}` is listed twice")]
    DuplicateTool(ToolId),
    /// Two tools with the same name while names pass through unchanged.
    #[error("tool name {} belongs to `{first}` and `{second}`: use prefixed names", quoted(.name))]
    Clash {
        /// The name.
        name: String,
        /// One tool.
        first: ToolId,
        /// The other.
        second: ToolId,
    },
}

/// Names every tool of `plugins`, in their order. Names are `[A-Za-z0-9_-]{1,64}`, except for what
/// [`NamingMode::PassThrough`] passes through.
///
/// # Errors
/// [`NamingError`] for a tool listed twice, or a clash while names pass through.
pub fn expose(plugins: &[PluginTools], mode: NamingMode) -> Result<Vec<ExposedName>, NamingError> {
    let mut tools: Vec<(ToolId, String)> = Vec::new();
    let mut seen = BTreeSet::new();
    for plugin in plugins {
        let prefix = match plugin.prefix.as_str() {
            "" => plugin.plugin.as_str(),
            prefix => prefix,
        };
        for name in &plugin.tools {
            let tool = ToolId::new(plugin.plugin.clone(), name.clone());
            if !seen.insert(tool.clone()) {
                return Err(NamingError::DuplicateTool(tool));
            }
            let plain = match mode {
                NamingMode::Prefixed => legal(&format!("{prefix}_{name}")),
                NamingMode::PassThrough => name.to_string(),
            };
            tools.push((tool, plain));
        }
    }
    let names = match mode {
        NamingMode::PassThrough => {
            refuse_clashes(&tools)?;
            tools.iter().map(|(_, plain)| plain.clone()).collect()
        }
        NamingMode::Prefixed => distinct(&tools),
    };
    let pairs = tools.into_iter().zip(names);
    Ok(pairs.map(|((tool, _), exposed)| ExposedName { exposed, tool }).collect())
}

/// `text` with every character that some model API refuses replaced by `_`.
fn legal(text: &str) -> String {
    let replace = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    text.chars().map(replace).collect()
}

fn refuse_clashes(tools: &[(ToolId, String)]) -> Result<(), NamingError> {
    let mut owners: HashMap<&str, &ToolId> = HashMap::new();
    for (tool, name) in tools {
        if let Some(first) = owners.insert(name, tool) {
            let (first, second) = (first.min(tool).clone(), first.max(tool).clone());
            return Err(NamingError::Clash { name: name.clone(), first, second });
        }
    }
    Ok(())
}

/// A legal name for each tool, all different.
///
/// Every tool has a ladder of names: the plain one if it fits, then ones with a hash of growing
/// length. All tools that share a name climb one step, until none do. Which step a tool ends on
/// depends on the set alone, and a tool that shares no name stays where it is.
fn distinct(tools: &[(ToolId, String)]) -> Vec<String> {
    let mut steps: Vec<usize> =
        tools.iter().map(|(_, plain)| usize::from(plain.len() > EXPOSED_NAME_BYTES_MAX)).collect();
    let mut names: Vec<String> =
        tools.iter().zip(&steps).map(|((tool, plain), step)| rung(tool, plain, *step)).collect();
    loop {
        let mut sharing: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, name) in names.iter().enumerate() {
            sharing.entry(name).or_default().push(index);
        }
        let shared = sharing.into_values().filter(|tools| tools.len() > 1).flatten();
        let climbing: Vec<usize> = shared.filter(|index| steps[*index] < LAST_STEP).collect();
        if climbing.is_empty() {
            return names;
        }
        for index in climbing {
            steps[index] += 1;
            let (tool, plain) = &tools[index];
            names[index] = rung(tool, plain, steps[index]);
        }
    }
}

/// The name of `tool` on one step of its ladder. The ladder ends with a hash that fills the name;
/// two tools that still share it share 252 bits of SHA-256.
fn rung(tool: &ToolId, plain: &str, step: usize) -> String {
    let Some(doublings) = step.checked_sub(1) else {
        return plain.to_owned();
    };
    // Not over the tool's text form, in which different tools can look the same.
    let hash = Digest::of(format!("{}\0{}", tool.plugin(), tool.name()).as_bytes()).hex();
    let digits = (HASH_DIGITS << doublings.min(LAST_STEP - 1)).min(EXPOSED_NAME_BYTES_MAX - 1);
    let room = EXPOSED_NAME_BYTES_MAX - 1 - digits;
    let kept = &plain[..plain.len().min(room)];
    format!("{kept}_{}", &hash[..digits])
}
