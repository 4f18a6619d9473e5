//! What can be asked of a host and what comes back, as data that fits through a socket.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::wire::{
    AnswerBody, AskBody, FoldersBody, HostBody, LogLineBody, PluginBody, ReviewBody, SpanBody, SpanPageBody,
    StatusBody, ToolBody,
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
    Mcp,
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
    /// Tools.
    Tools(Vec<ToolBody>),
    /// The end of a call.
    Call(CallBody),
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
