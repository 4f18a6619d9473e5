//! The rows of the store as plain data. Owns their field names and units; refuses to interpret them: ids, digests,
//! codes and JSON texts are strings here, and other crates give them meaning.

/// An installed plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginRow {
    /// The plugin's id.
    pub id: String,
    /// Where it was installed from, as the person wrote it.
    pub source: String,
    /// Version named by the manifest.
    pub version: String,
    /// Directory of the unpacked package, relative to the home.
    pub package_dir: String,
    /// Digest over the content of the package.
    pub package_digest: String,
    /// The manifest, byte for byte as installed.
    pub manifest_text: String,
    /// Whether the person wants it running.
    pub enabled: bool,
    /// When it was installed, in microseconds since the Unix epoch.
    pub installed_at_us: i64,
    /// Why it last failed, redacted; `None` while nothing is wrong.
    pub last_error: Option<String>,
}

/// One act of approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRow {
    /// The plugin approved.
    pub plugin_id: String,
    /// Digest of everything that was shown and agreed to.
    pub digest: String,
    /// Digest of the part that decides what is started.
    pub launch_digest: String,
    /// What the digest was taken over, for showing a difference later.
    pub subject_json: String,
    /// The face it came through: `cli`, `api`, `console`, `test` or `demo`.
    pub how: String,
    /// The person, as a user name or uid.
    pub who: String,
    /// When, in microseconds since the Unix epoch.
    pub at_us: i64,
    /// When it was taken back, in microseconds since the Unix epoch.
    pub revoked_at_us: Option<i64>,
}

/// A tool as it was approved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinRow {
    /// The plugin that offers the tool.
    pub plugin_id: String,
    /// The tool's remote name.
    pub tool: String,
    /// Digest of its definition.
    pub digest: String,
    /// Its definition, byte for byte.
    pub definition_json: String,
}

/// One step of something that happened, most often one tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// 32 lower-case hexadecimal digits shared by all spans of one trace.
    pub trace_id: String,
    /// 16 lower-case hexadecimal digits, unique within the trace.
    pub span_id: String,
    /// The span this one is part of.
    pub parent_span_id: Option<String>,
    /// What was done, for a person.
    pub name: String,
    /// Code for the kind of step.
    pub kind: String,
    /// The plugin concerned.
    pub plugin_id: Option<String>,
    /// The tool concerned.
    pub tool: Option<String>,
    /// Who asked for it.
    pub caller: Option<String>,
    /// When it began, in microseconds since the Unix epoch.
    pub started_at_us: i64,
    /// How long it took, in microseconds.
    pub duration_us: u64,
    /// Code for how it ended: `ok`, `tool_error`, and so on.
    pub outcome: String,
    /// JSON object of further facts; empty text stands for none.
    pub attributes_json: String,
    /// JSON array of points in time within the span; empty text stands for none.
    pub events_json: String,
}

/// Which spans to read. The default asks for the newest of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanFilter {
    /// Only spans of this plugin.
    pub plugin_id: Option<String>,
    /// Only spans of this tool.
    pub tool: Option<String>,
    /// Only spans that ended with this outcome code.
    pub outcome: Option<String>,
    /// Only spans that began at or after this time, in microseconds since the Unix epoch.
    pub since_us: Option<i64>,
    /// At most this many; 0 and everything above [`SPAN_PAGE_MAX`](crate::SPAN_PAGE_MAX) stand for that number.
    pub limit: usize,
    /// Only spans recorded before this cursor, as given by [`SpanPage::next_before`].
    pub before: Option<i64>,
}

/// One page of spans, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanPage {
    /// The spans.
    pub spans: Vec<Span>,
    /// Cursor for the page after this one; `None` when there is none.
    pub next_before: Option<i64>,
}

/// Something a person did, or something done to a plugin, kept for the audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventRow {
    /// When, in microseconds since the Unix epoch.
    pub at_us: i64,
    /// The plugin concerned.
    pub plugin_id: Option<String>,
    /// Code for the kind of event.
    pub kind: String,
    /// The event in words.
    pub message: String,
    /// JSON value with further facts; empty text stands for none.
    pub detail_json: String,
}
