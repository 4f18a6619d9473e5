//! What Plugward keeps: plugins, approvals, grants, tool pins, settings, audit events and the trace, in one SQLite
//! database in the home directory.
//!
//! This crate owns the database file, its format and its lock, what "acknowledged" means (on the disk, synced), and
//! redaction at the door. It refuses to know what a plugin does: ids, digests, codes and JSON are strings here, and no
//! other crate of the workspace is used.
//!
//! - [`Store`] reads and writes; [`Store::write`] makes several changes as one.
//! - [`Store::record_span`] is the one call that never waits; [`Store::flush`] waits for what it queued.
//! - [`Redactor`] removes secrets from everything recorded, and from whatever else it is given.
//!
//! Every call but `record_span` blocks; asynchronous callers move them off their executor.

mod approvals;
mod audit;
mod error;
mod home;
mod migrate;
mod plugins;
mod queue;
mod readers;
mod records;
mod redact;
mod settings;
mod store;
mod tools;
mod trace;
mod writer;

pub use audit::EVENT_PAGE_MAX;
pub use error::StoreError;
pub use records::{ApprovalRow, EventRow, PinRow, PluginRow, Span, SpanFilter, SpanPage};
pub use redact::{MaskedStream, REDACTED_MARK, Redactor, SECRET_MARK, SECRET_MIN_BYTES, TEXT_MAX_CHARS};
pub use store::{SPANS_KEPT_MAX, Store, WriteTransaction};
pub use trace::{SPAN_PAGE_MAX, TRACE_SPANS_MAX};
