//! A command-line program as a tool (`type: mcp_tool`). Owns what such a tool is, how its command is read
//! (`words` for a line, `shell` for a script), how the values of a call become arguments (`build`), and the
//! definition clients see (`definition`). Refuses processes and files, and every way in which a value could become
//! anything but part of one argument: no text with a value in it is ever read again, by us or by a shell.

mod build;
mod definition;
mod gate;
mod parameter;
mod shell;
mod template;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

pub use build::{ARGUMENT_BYTES_MAX, ARGUMENTS_BYTES_MAX, ArgumentError, Prepared};
pub use gate::{Gate, GatePhase, GateSeverity, UnknownGatePhase};
pub use parameter::{Parameter, ParameterKind, is_parameter_name};
pub use shell::ShellScript;
pub use template::{Group, Item, Piece, Template, Word};

pub(crate) use gate::{PHASES, SEVERITIES};
pub(crate) use parameter::number_text;
pub(crate) use shell::read_script;
pub(crate) use template::{check_interpreter, literal, read_word};
pub(crate) use words::{program_of_values, read_line};

use crate::expand::{ExpandError, expand};

/// Bound on one run when a tool gives none (the seed's value).
pub const COMMAND_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Most output of one stream when a tool gives none (the seed's value), in bytes.
pub const OUTPUT_BYTES_DEFAULT: u64 = 1024 * 1024;

/// Variable that tells a command which tool it runs for (requirement 176).
pub const TOOL_NAME_VARIABLE: &str = "LOKI_MCP_TOOL";

/// The same for a gate.
pub const GATE_NAME_VARIABLE: &str = "LOKI_GATE";

/// The program that runs scripts of `shell: true`.
pub const SHELL: &str = "sh";

/// What is wrong with a command as written, with what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl Fault {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

/// A command-line program offered as a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTool {
    /// Name of the tool and of its plugin.
    pub name: String,
    /// What it does, for models and people.
    pub description: String,
    /// What is run.
    pub invocation: Invocation,
    /// The parameters in the order of the file.
    pub parameters: Vec<Parameter>,
    /// JSON Schema of the arguments, as clients see it.
    pub input_schema: String,
    /// Bound on one run.
    pub timeout: Duration,
    /// Where it runs.
    pub working_directory: WorkingDirectory,
    /// The parameter whose value it reads from stdin; without one stdin is closed (W20).
    pub stdin: Option<String>,
    /// What exit codes mean where it is not 0 for success and the rest for failure.
    pub exit_codes: BTreeMap<i32, ExitMeaning>,
    /// How its output is read.
    pub output: OutputForm,
    /// JSON Schema of its structured result.
    pub output_schema: Option<String>,
    /// What happens to output over the limit.
    pub overflow: Overflow,
    /// Most output of one stream that is handed on, in bytes.
    pub max_output_bytes: u64,
    /// Set when it is a gate: it then has no parameters.
    pub gate: Option<Gate>,
}

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invocation {
    /// A program with arguments, without a shell.
    Argv(Template),
    /// A script for [`SHELL`]; values reach it as positional parameters.
    Shell(ShellScript),
}

/// Where a command runs (requirement 199).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkingDirectory {
    /// The project folder.
    Project,
    /// The folder of the plugin's own files.
    Plugin,
    /// The root of the repository the project is in.
    Repo,
    /// This folder; it lies in a place the tool has a permission for.
    Absolute(String),
}

impl WorkingDirectory {
    /// The folder as a launch plan reads it; `None` is the plugin's own.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Project => Some("${PROJECT_DIR}"),
            Self::Plugin => None,
            Self::Repo => Some("${REPO_DIR}"),
            Self::Absolute(path) => Some(path),
        }
    }

    /// The word of the manifest.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Project => "project",
            Self::Plugin => "plugin",
            Self::Repo => "repo",
            Self::Absolute(path) => path,
        }
    }
}

/// What one exit code means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitMeaning {
    /// Whether the tool succeeded.
    pub success: bool,
    /// What to say when the command itself says nothing.
    pub message: Option<String>,
}

/// How output is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputForm {
    /// As text.
    Text,
    /// As one JSON value.
    Json,
    /// As a list of lines.
    Lines,
    /// By the named groups of a pattern.
    Regex {
        /// The pattern.
        pattern: String,
        /// Every match, or the first only.
        every: bool,
    },
}

/// What happens to output over the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The call fails and says so.
    Error,
    /// The beginning is handed on, and the result says that it was cut.
    Truncate,
    /// All of it goes to a file; the result has the beginning and a link.
    Spill,
}

impl CommandTool {
    /// The parameter `name`.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }

    /// The program as written: a bare name looked up in `PATH`, or a path in the plugin's folder.
    #[must_use]
    pub fn program(&self) -> &str {
        match &self.invocation {
            Invocation::Argv(template) => &template.program,
            Invocation::Shell(_) => SHELL,
        }
    }

    /// The arguments as a person reads them, with placeholders where values come: one text for each argument, and one
    /// in square brackets for each optional group. References to variables are still in them; those of a shell script
    /// are its own and stand escaped.
    #[must_use]
    pub fn shown_arguments(&self) -> Vec<String> {
        match &self.invocation {
            Invocation::Argv(template) => template.items.iter().map(Item::shown).collect(),
            Invocation::Shell(script) => {
                let own = ["-c".to_owned(), literal(&script.script), literal(&self.name)];
                own.into_iter().chain(script.parameters.iter().map(|name| template::placeholder(name))).collect()
            }
        }
    }

    /// The tool with every `${NAME}` of its command replaced. What a variable holds is not looked at again, so that it
    /// brings no placeholder in.
    ///
    /// # Errors
    /// [`ExpandError`] for the first reference that cannot be replaced.
    pub fn expanded(&self, lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ExpandError> {
        let mut tool = self.clone();
        if let Invocation::Argv(template) = &mut tool.invocation {
            template.program = expand(&template.program, &lookup)?;
            for word in template.words_mut() {
                for piece in &mut word.pieces {
                    if let Piece::Text(text) = piece {
                        *text = expand(text, &lookup)?;
                    }
                }
            }
        }
        Ok(tool)
    }

    /// What exit code `code` means.
    #[must_use]
    pub fn exit_meaning(&self, code: i32) -> ExitMeaning {
        let usual = || ExitMeaning { success: code == 0, message: None };
        self.exit_codes.get(&code).cloned().unwrap_or_else(usual)
    }
}
