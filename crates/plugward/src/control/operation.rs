//! What can be asked of a host and what comes back, as data that fits through a socket.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::profile::Profile;
use crate::wire::{
    AnswerBody, AskBody, FileProblemBody, FoldersBody, HostBody, LogLineBody, PluginBody, ReviewBody, SpanBody,
    SpanPageBody, StatusBody, ToolBody, TrialBody,
};

/// One operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    /// Copies a package in.
    Install {
        /// Folder or manifest file, absolute: the host may have another working directory.
        source: PathBuf,
        /// The id it must have.
        id: Option<String>,
    },
    /// What would run.
    Review { id: String },
    /// Runs it without grants for a while, watched; `digest` is the one the person confirmed.
    Trial {
        /// The plugin.
        id: String,
        /// As the review shows it.
        digest: String,
        /// How long.
        limit_ms: u64,
    },
    /// Agrees to exactly `digest`.
    Approve { id: String, digest: String },
    /// Switches on.
    Enable { id: String },
    /// Switches off.
    Disable { id: String },
    /// Starts anew.
    Restart { id: String },
    /// Stops and forgets.
    Remove { id: String },
    /// All plugins.
    Plugins,
    /// One plugin with its process and tools.
    Info { id: String },
    /// Tools of all switched-on plugins or of one.
    Tools { id: Option<String> },
    /// Runs a tool.
    Call {
        /// Internal id.
        tool: String,
        /// Untouched.
        arguments: Option<Box<RawValue>>,
        /// A limit shorter than the tool's own.
        timeout_ms: Option<u64>,
    },
    /// Runs the gates of a phase.
    Gates { phase: String },
    /// The host as a whole.
    Status,
    /// The log of a plugin, and new lines as they come.
    Logs { id: String, lines: usize, follow: bool },
    /// Spans, newest first.
    Spans { plugin: Option<String>, outcome: Option<String>, limit: usize },
    /// All spans of one trace: its id, the beginning of it, or `last`.
    Trace { trace: String },
    /// Permission requests that wait.
    Asks,
    /// Answers one.
    Answer { request: String, answer: AnswerBody },
    /// Grants and takes back permissions; with neither, only looks.
    Permissions { id: String, grant: Vec<String>, revoke: Vec<String> },
    /// Turns the connection into an MCP session on the running host. Not for the execution in process.
    Mcp {
        /// What its client gets.
        profile: Box<Profile>,
    },
}

/// What came of an operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Done, with nothing to show.
    Done,
    /// One plugin.
    Plugin(Box<PluginBody>),
    /// All plugins.
    Plugins(Vec<PluginBody>),
    /// One plugin with its process and tools.
    Info(Box<InfoBody>),
    /// The process side of one plugin.
    Host(Box<HostBody>),
    /// What would run.
    Review(Box<ReviewBody>),
    /// What a plugin wanted.
    Trial(Box<TrialBody>),
    /// Tools.
    Tools(Vec<ToolBody>),
    /// The end of a call.
    Call(CallBody),
    /// What the gates of a phase say.
    Gates(GateReport),
    /// The host as a whole.
    Status(Box<StatusReport>),
    /// Log lines.
    Logs(Vec<LogLineBody>),
    /// Spans.
    Spans(SpanPageBody),
    /// One trace.
    Trace(Vec<SpanBody>),
    /// Permission requests.
    Asks(Vec<AskBody>),
    /// The connection is an MCP stream from here on.
    Mcp,
}

/// One plugin with its process and tools.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct InfoBody {
    /// The plugin.
    pub(crate) plugin: PluginBody,
    /// Its process.
    pub(crate) host: HostBody,
    /// Its tools.
    pub(crate) tools: Vec<ToolBody>,
    /// What it said on stderr in its last run, when it is in trouble.
    pub(crate) last_words: Vec<LogLineBody>,
}

/// The host as a whole with its plugins.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StatusReport {
    /// The host.
    pub(crate) host: StatusBody,
    /// Its plugins.
    pub(crate) plugins: Vec<PluginBody>,
    /// The folders of plugin files; none if there are none.
    pub(crate) folders: Option<FoldersBody>,
}

/// A call that got a result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CallBody {
    /// For `plugward trace show`.
    pub(crate) trace_id: String,
    /// Whether the tool says it failed.
    pub(crate) is_error: bool,
    /// The MCP result object, untouched.
    pub(crate) result: Box<RawValue>,
    /// What was noticed about it.
    pub(crate) warnings: Vec<String>,
}

/// What the gates of a phase say.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct GateReport {
    /// The phase.
    pub(crate) phase: String,
    /// Whether no blocking gate failed; none if there was no gate to ask.
    pub(crate) passed: Option<bool>,
    /// The gates that were to run, in the order they were installed.
    pub(crate) gates: Vec<GateBody>,
    /// Files that may be gates of any phase and could not be loaded: the phase fails with them.
    #[serde(default)]
    pub(crate) not_loaded: Vec<FileProblemBody>,
    /// Gates of the phase that are switched off.
    pub(crate) switched_off: Vec<String>,
}

/// What one gate says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct GateBody {
    /// Id of its plugin.
    pub(crate) id: String,
    /// `critical`, `high`, `medium` or `low`.
    pub(crate) severity: String,
    /// Whether the phase fails with it.
    pub(crate) blocking: bool,
    /// Its verdict; one that could not run has not passed.
    pub(crate) passed: bool,
    /// What it wrote, or why it could not run.
    pub(crate) output: String,
    /// The code, when it could not run.
    pub(crate) error_code: Option<String>,
    /// How long it took, in milliseconds.
    pub(crate) duration_ms: u64,
    /// For `plugward trace show`.
    pub(crate) trace_id: Option<String>,
}

/// Something told while an operation runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Notice {
    /// The call waits for a person.
    Ask(AskBody),
    /// A new log line.
    Line(LogLineBody),
    /// So many log lines were lost because the reader was too slow.
    LinesLost(u64),
}
