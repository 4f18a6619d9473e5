//! Notices of a plugin without a handshake: they come on a stream that has to be asked for.
//!
//! Owns the request that opens it. What comes on it meets the notices of older plugins in the driver. Refuses to open it
//! anew; the supervisor does.

use std::time::Duration;

use plugward_protocol::modern::{self, ListenFilter};

use super::{RequestError, Session};

/// A stream has no end of its own; the conversation has. Bounded all the same, by far more than a plugin lives.
const STREAM_LIMIT: Duration = Duration::from_secs(30 * 24 * 3600);

impl Session {
    /// Asks for the notices that `wanted` names. Resolves when the stream is over.
    pub(crate) async fn listen(&self, wanted: &ListenFilter) -> Result<(), RequestError> {
        let params = Some(wanted.to_params());
        self.request(modern::methods::LISTEN, params, STREAM_LIMIT).await.map(|_| ())
    }
}
