//! The plugin host: installs, reviews, approves, starts, supervises and calls plugins.
//!
//! Owns the lifecycle of plugins, the tool registry, the call path, discovery and contract check, and the events of
//! all this. Refuses HTTP servers, terminals, configuration files and wire formats of the faces: those belong to the
//! binary. Start at [`Host`]; a call's way is told in [`CallRequest`]'s module, a plugin's life in the supervisor's.

mod audience;
mod call;
mod command;
mod config;
mod contract;
mod counterpart;
mod discovery;
mod egress;
mod error;
mod events;
mod host;
mod ids;
mod loader;
mod offers;
mod outbound;
mod package;
mod raw_object;
mod registry;
mod rounds;
mod sandbox_check;
mod schema;
mod session;
mod supervisor;
mod trial;
mod views;
mod webhook;

pub use audience::{Listener, Told};
pub use call::breaker::{BreakerState, BreakerView};
pub use call::{CallReport, CallRequest, ToolReply, ToolSelector};
pub use command::{
    CommandError, CommandErrorCode, CommandResult, CommandStage, CommandTools, CommandToolsConfig, RegisteredCommand,
    Registration, SpilledOutput,
};
pub use config::{
    DRAIN_GRACE, Environment, HostConfig, MAX_CONCURRENT_CALLS, MAX_CONCURRENT_CALLS_PER_PLUGIN, MAX_PARALLEL_STARTS,
    MAX_QUEUED_CALLS, Naming, SHUTDOWN_LIMIT, STOP_EOF_GRACE, STOP_KILL_GRACE, STOP_TERM_GRACE, SupervisionSettings,
};
pub use counterpart::{Ask, Counterpart};
pub use error::{CallFailure, ErrorCode, HostError};
pub use events::HostEvent;
pub use host::{ApprovalOrigin, ExposedTool, GateView, Host};
pub use loader::{FolderSettings, FolderWatch, MAX_PLUGIN_FILES};
pub use offers::{OfferError, OfferList, OfferRequest, Offers};
pub use outbound::{Trust, TrustError};
pub use plugward_store::{Span, SpanFilter, SpanPage};
pub use registry::Snapshot;
pub use rounds::Inputs;
pub use sandbox_check::{LevelCheck, check_level, check_levels};
pub use session::heard::LogWish;
pub use supervisor::MAX_BACKOFF;
pub use trial::{TRIAL_DEFAULT, TRIAL_MAX, TrialAttempt, TrialView};
pub use views::{
    Answer, AttemptOutcome, DeliveriesView, FileProblem, FoldersView, HeldTool, HostView, LogLine, LogOrigin,
    NetworkAttempt, PendingAsk, PluginView, QuarantinedTool, ReviewTool, ReviewView, ToolView,
};
