//! The table of clients: what each is called, where its settings are, and what our entry looks like in them.
//!
//! Owns facts only, one row per client. Refuses to look at a disk. A path tells where the *user's* settings are; what a
//! client keeps per project is a second column, used only when asked for.

use serde_json::{Value, json};

/// Name of our entry, the same in every client. Some clients allow letters, digits, `_` and `-` alone.
pub(crate) const ENTRY_NAME: &str = "plugward";

/// How a settings file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON, perhaps with comments and trailing commas.
    Jsonc,
    /// TOML.
    Toml,
    /// YAML.
    Yaml,
}

/// Systems whose paths differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    /// Linux and other Unix systems with XDG folders.
    Unix,
    /// macOS.
    Mac,
    /// Windows.
    Windows,
}

impl System {
    /// The one this program was built for.
    pub(crate) const HERE: System = if cfg!(target_os = "macos") {
        System::Mac
    } else if cfg!(windows) {
        System::Windows
    } else {
        System::Unix
    };
}

/// What a path begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    /// The user's home folder.
    Home,
    /// `XDG_CONFIG_HOME`, else `.config` in the home; the same on every system.
    Config,
    /// The folder for settings of programs as the system has it: `XDG_CONFIG_HOME`, `Library/Application Support`,
    /// `APPDATA`.
    Settings,
    /// A variable that moves the client's own folder. Where it is set, no other place counts.
    Variable(&'static str),
}

/// A candidate for a settings file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Only on this system; none means on each.
    pub(crate) system: Option<System>,
    /// What the path begins with.
    pub(crate) base: Base,
    /// The rest, with `/`.
    pub(crate) path: &'static str,
}

/// What our entry looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `command` and `args`.
    Plain,
    /// The same with `type: stdio`.
    Typed,
    /// The same with an empty `env`.
    TypedWithEnv,
    /// `command`, `args` and an empty `env`.
    PlainWithEnv,
    /// `type: stdio`, `command`, `args`, and all tools switched on.
    TypedWithTools,
    /// `type: local`, with the command as one list.
    CommandList,
    /// With time limits in seconds: calls may wait for a person.
    Limited,
    /// goose's extension.
    Extension,
    /// An item of a list, with its name inside.
    ListItem,
}

/// One client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientKind {
    /// What it is called on the command line and in `[profiles]`.
    pub(crate) name: &'static str,
    /// What people call it.
    pub(crate) title: &'static str,
    /// How its settings are written.
    pub(crate) format: Format,
    /// The key that holds all servers.
    pub(crate) container: &'static str,
    /// What our entry looks like.
    pub(crate) shape: Shape,
    /// Where its settings may be; the first that is there counts.
    pub(crate) places: &'static [Place],
    /// A folder beside the settings that tells the client is in use, in the home.
    pub(crate) sign: Option<&'static str>,
    /// Its settings in a project folder.
    pub(crate) project: Option<&'static str>,
}

const fn at(base: Base, path: &'static str) -> Place {
    Place { system: None, base, path }
}

const fn on(system: System, base: Base, path: &'static str) -> Place {
    Place { system: Some(system), base, path }
}

const fn json(
    name: &'static str,
    title: &'static str,
    container: &'static str,
    shape: Shape,
    places: &'static [Place],
    project: Option<&'static str>,
) -> ClientKind {
    ClientKind { name, title, format: Format::Jsonc, container, shape, places, sign: None, project }
}

use Base::{Config, Home, Settings, Variable};

/// All clients, sorted by name.
pub(crate) const CLIENTS: &[ClientKind] = &[
    json("amp", "Amp", "amp.mcpServers", Shape::Plain, &[at(Config, "amp/settings.json")], Some(".amp/settings.json")),
    json(
        "antigravity",
        "Antigravity",
        "mcpServers",
        Shape::Plain,
        &[at(Home, ".gemini/antigravity/mcp_config.json")],
        None,
    ),
    ClientKind {
        sign: Some(".claude"),
        ..json(
            "claude-code",
            "Claude Code",
            "mcpServers",
            Shape::TypedWithEnv,
            &[at(Variable("CLAUDE_CONFIG_DIR"), ".claude.json"), at(Home, ".claude.json")],
            Some(".mcp.json"),
        )
    },
    json(
        "claude-desktop",
        "Claude Desktop",
        "mcpServers",
        Shape::Plain,
        &[at(Settings, "Claude/claude_desktop_config.json")],
        None,
    ),
    json(
        "cline",
        "Cline",
        "mcpServers",
        Shape::Plain,
        &[
            at(Settings, "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
            at(Home, ".cline/data/settings/cline_mcp_settings.json"),
        ],
        None,
    ),
    ClientKind {
        format: Format::Toml,
        ..json(
            "codex",
            "Codex",
            "mcp_servers",
            Shape::Limited,
            &[at(Variable("CODEX_HOME"), "config.toml"), at(Home, ".codex/config.toml")],
            Some(".codex/config.toml"),
        )
    },
    ClientKind {
        format: Format::Yaml,
        ..json("continue", "Continue", "mcpServers", Shape::ListItem, &[at(Home, ".continue/config.yaml")], None)
    },
    json(
        "copilot-cli",
        "Copilot CLI",
        "mcpServers",
        Shape::TypedWithTools,
        &[at(Variable("COPILOT_HOME"), "mcp-config.json"), at(Home, ".copilot/mcp-config.json")],
        None,
    ),
    json("crush", "Crush", "mcp", Shape::Typed, &[at(Config, "crush/crush.json")], Some("crush.json")),
    json("cursor", "Cursor", "mcpServers", Shape::Plain, &[at(Home, ".cursor/mcp.json")], Some(".cursor/mcp.json")),
    json(
        "gemini-cli",
        "Gemini CLI",
        "mcpServers",
        Shape::Plain,
        &[at(Home, ".gemini/settings.json")],
        Some(".gemini/settings.json"),
    ),
    ClientKind {
        format: Format::Yaml,
        ..json(
            "goose",
            "goose",
            "extensions",
            Shape::Extension,
            &[
                on(System::Windows, Settings, "Block/goose/config/config.yaml"),
                on(System::Mac, Config, "goose/config.yaml"),
                on(System::Unix, Config, "goose/config.yaml"),
            ],
            None,
        )
    },
    json(
        "kiro",
        "Kiro",
        "mcpServers",
        Shape::Plain,
        &[at(Home, ".kiro/settings/mcp.json")],
        Some(".kiro/settings/mcp.json"),
    ),
    json("lm-studio", "LM Studio", "mcpServers", Shape::Plain, &[at(Home, ".lmstudio/mcp.json")], None),
    json(
        "opencode",
        "opencode",
        "mcp",
        Shape::CommandList,
        &[at(Config, "opencode/opencode.json"), at(Config, "opencode/opencode.jsonc")],
        Some("opencode.json"),
    ),
    json(
        "roo",
        "Roo Code",
        "mcpServers",
        Shape::Plain,
        &[at(Settings, "Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json")],
        Some(".roo/mcp.json"),
    ),
    json("vscode", "VS Code", "servers", Shape::Typed, &[at(Settings, "Code/User/mcp.json")], Some(".vscode/mcp.json")),
    json(
        "windsurf",
        "Windsurf",
        "mcpServers",
        Shape::Plain,
        &[at(Home, ".codeium/windsurf/mcp_config.json"), at(Home, ".codeium/mcp_config.json")],
        None,
    ),
    json(
        "zed",
        "Zed",
        "context_servers",
        Shape::PlainWithEnv,
        &[
            on(System::Windows, Settings, "Zed/settings.json"),
            on(System::Mac, Config, "zed/settings.json"),
            on(System::Unix, Config, "zed/settings.json"),
        ],
        Some(".zed/settings.json"),
    ),
];

/// The client with this name.
pub(crate) fn client(name: &str) -> Option<&'static ClientKind> {
    CLIENTS.iter().find(|client| client.name == name)
}

/// A start of ours may wait for plugins, and a call for a person; clients give up much earlier by themselves.
const START_LIMIT_SECONDS: u32 = 20;
const CALL_LIMIT_SECONDS: u32 = 300;

impl Shape {
    /// Our entry for this program and these arguments.
    pub(crate) fn entry(self, program: &str, arguments: &[String]) -> Value {
        match self {
            Shape::Plain => json!({ "command": program, "args": arguments }),
            Shape::PlainWithEnv => json!({ "command": program, "args": arguments, "env": {} }),
            Shape::Typed => json!({ "type": "stdio", "command": program, "args": arguments }),
            Shape::TypedWithEnv => json!({ "type": "stdio", "command": program, "args": arguments, "env": {} }),
            Shape::TypedWithTools => {
                json!({ "type": "stdio", "command": program, "args": arguments, "tools": ["*"] })
            }
            Shape::CommandList => {
                let command: Vec<&str> = std::iter::once(program).chain(arguments.iter().map(String::as_str)).collect();
                json!({ "type": "local", "command": command, "enabled": true })
            }
            Shape::Limited => json!({
                "command": program,
                "args": arguments,
                "startup_timeout_sec": START_LIMIT_SECONDS,
                "tool_timeout_sec": CALL_LIMIT_SECONDS,
            }),
            Shape::Extension => json!({
                "type": "stdio",
                "name": ENTRY_NAME,
                "enabled": true,
                "cmd": program,
                "args": arguments,
                "envs": {},
                "env_keys": [],
                "timeout": CALL_LIMIT_SECONDS,
                "bundled": null,
            }),
            Shape::ListItem => json!({ "name": ENTRY_NAME, "command": program, "args": arguments }),
        }
    }

    /// Program and arguments that an entry starts; none if it has no such thing.
    pub(crate) fn launch(self, entry: &Value) -> Option<(String, Vec<String>)> {
        let texts = |value: &Value| -> Option<Vec<String>> {
            value.as_array()?.iter().map(|text| text.as_str().map(ToOwned::to_owned)).collect()
        };
        match self {
            Shape::CommandList => {
                let mut words = texts(entry.get("command")?)?.into_iter();
                Some((words.next()?, words.collect()))
            }
            Shape::Extension => {
                Some((entry.get("cmd")?.as_str()?.to_owned(), entry.get("args").map_or(Some(Vec::new()), texts)?))
            }
            _ => Some((entry.get("command")?.as_str()?.to_owned(), entry.get("args").map_or(Some(Vec::new()), texts)?)),
        }
    }

    /// Whether an entry is switched off within the client.
    pub(crate) fn is_switched_off(entry: &Value) -> bool {
        entry.get("disabled") == Some(&Value::Bool(true)) || entry.get("enabled") == Some(&Value::Bool(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_is_named_once_and_can_be_read_back() {
        let names: Vec<&str> = CLIENTS.iter().map(|client| client.name).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        let arguments = ["serve".to_owned(), "--stdio".to_owned()];
        for client in CLIENTS {
            let entry = client.shape.entry("/opt/plugward", &arguments);
            let launch = client.shape.launch(&entry).unwrap_or_else(|| panic!("{}: {entry}", client.name));
            assert_eq!(launch, ("/opt/plugward".to_owned(), arguments.to_vec()), "{}", client.name);
            assert!(!Shape::is_switched_off(&entry), "{}", client.name);
            for system in [System::Unix, System::Mac, System::Windows] {
                let has_place = client
                    .places
                    .iter()
                    .any(|place| place.system.is_none_or(|only| only == system) && !matches!(place.base, Variable(_)));
                assert!(has_place, "{} has no place on {system:?}", client.name);
            }
        }
    }
}
