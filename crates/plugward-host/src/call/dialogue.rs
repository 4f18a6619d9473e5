//! A call on its way to a plugin that may ask before it answers.
//!
//! Owns what a question of one call is bound to, and that the time of all its rounds is the time of one call. Plugins that
//! cannot ask by results are called straight.

use std::time::Instant;

use plugward_policy::Digest;
use tokio_util::sync::CancellationToken;

use super::CallPath;
use crate::registry::RegisteredTool;
use crate::rounds::{self, Answerer, Ended, Inputs, Purpose};
use crate::session::{RequestError, ToolCall};

/// Method of the request.
const METHOD: &str = "tools/call";

/// Who made the call, as far as its plugin may turn to it.
pub(super) struct Caller<'a, A> {
    /// Whom a question is bound to.
    pub(super) client: &'a str,
    /// Who answers; nobody where nothing may be asked.
    pub(super) answerer: Option<&'a A>,
    /// What the caller brought back for a question of before.
    pub(super) inputs: Option<Inputs>,
}

impl CallPath {
    /// Sends the call until it has a result, or a question that its caller takes.
    pub(super) async fn send(
        &self,
        tool: &RegisteredTool,
        call: ToolCall,
        caller: Caller<'_, impl Answerer + Sync>,
        cancel: &CancellationToken,
    ) -> Result<Ended, RequestError> {
        let target = &tool.route.target;
        if !target.asks_by_results() {
            return target.call_tool(call, cancel).await.map(Ended::Reply);
        }
        let asked_for = format!("{}\0{}", call.name, call.arguments.as_ref().map_or("", |arguments| arguments.get()));
        let subject = Digest::of(asked_for.as_bytes());
        let purpose = Purpose {
            plugin: tool.route.plugin.as_str(),
            version: &tool.route.manifest.version,
            client: caller.client,
            method: METHOD,
            subject: subject.as_bytes(),
        };
        let inputs = match caller.inputs {
            None => None,
            Some(brought) => {
                let inputs = rounds::brought_back(&self.seal, purpose, brought.responses, brought.state.as_deref());
                Some(inputs.map_err(RequestError::Rejected)?)
            }
        };
        let begun = Instant::now();
        let send = |inputs: Option<Inputs>| {
            let mut call = ToolCall { inputs, ..call.clone() };
            call.timing.hard = call.timing.hard.saturating_sub(begun.elapsed());
            target.call_tool(call, cancel)
        };
        // A person has the time that progress could give a call, and no more.
        let limit = call.timing.hard;
        let rounds = tokio::time::timeout(limit, rounds::run(caller.answerer, &self.seal, purpose, inputs, send));
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(RequestError::Cancelled),
            ended = rounds => ended.unwrap_or(Err(RequestError::TimedOut { limit })),
        }
    }
}
