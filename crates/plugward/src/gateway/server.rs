//! What all clients of one process share: the host, and the lists that were made for them.
//!
//! Owns the way from a request to where it is answered in the stateless revisions (`modern.rs`); sessions with a
//! handshake keep more and go their own (`driver.rs`). Refuses state of single clients.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plugward_host::{Host, Listener};

use super::Options;
use super::initialize;
use super::tools_list::Lists;
use super::view::View;

/// One MCP server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    host: Host,
    options: Options,
    lists: Lists,
    view: Arc<View>,
    began: Instant,
}

impl Server {
    /// A server over this host's plugins.
    pub(crate) fn new(host: Host, options: Options) -> Self {
        let view = Arc::new(View::new(options.profile.clone()));
        let shared = Shared { host, options, lists: Lists::new(Arc::clone(&view)), view, began: Instant::now() };
        Self { shared: Arc::new(shared) }
    }

    /// Another one for the same clients' view.
    pub(super) fn anew(&self) -> Self {
        Self::new(self.shared.host.clone(), self.shared.options.clone())
    }

    /// Whether both are one.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The name of a client in traces and decisions: that of its token, beside which its own word on itself counts for
    /// nothing.
    pub(super) fn caller(&self, claimed: Option<&str>) -> String {
        let own = self.shared.options.token_name.as_ref();
        own.map_or_else(|| initialize::caller(claimed), |name| format!("token:{name}"))
    }

    pub(super) fn host(&self) -> &Host {
        &self.shared.host
    }

    pub(super) fn lists(&self) -> &Lists {
        &self.shared.lists
    }

    /// What the clients of this server see.
    pub(super) fn view(&self) -> Arc<View> {
        Arc::clone(&self.shared.view)
    }

    /// A client with this view, to be told what plugins say unasked.
    pub(super) fn listener(&self) -> Listener {
        let view = self.view();
        self.host().listener(move |plugin| view.has_plugin(plugin))
    }

    /// How long the first list of a session waits for plugins that are starting.
    pub(super) fn first_list_wait(&self) -> Duration {
        self.shared.options.first_list_wait
    }

    /// How long a list without a session waits for them: no longer than a first one would have, had it been asked for
    /// when the server began. Otherwise a plugin that hangs at its start would hold up every list.
    pub(super) fn list_wait(&self) -> Duration {
        self.first_list_wait().saturating_sub(self.shared.began.elapsed())
    }
}
