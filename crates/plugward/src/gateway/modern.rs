//! Requests of the stateless revisions: each by itself, over whatever it came in.
//!
//! ```text
//! discover          who we are and what works
//! tools/list        a page, with cache hints
//! tools/call        the one way a tool is run
//! prompts, resources, completion   passed through (`offers.rs`)
//! subscriptions/listen   notices until somebody ends it
//! ```
//!
//! Owns the choice of what answers a method and the shape of answers in these revisions. Refuses to remember clients:
//! what was asked before changes nothing.

use plugward_host::{Counterpart, Inputs};
use plugward_protocol::mcp::{self, CallParamsIn, codes, methods};
use plugward_protocol::modern::{self, CacheScope, Caching};
use plugward_protocol::{RequestId, RequestMeta, RpcError};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::logging::WantedLevel;
use super::offers::OfferMethod;
use super::server::Server;
use super::tools_call::{self, Call, Note};
use super::{initialize, instructions, listen};

/// Lists and the discovery are out of date at once: a plugin may come, go or be held at any moment, and each caller may
/// see other tools. Whoever wants to keep a list opens a stream of notices.
const CACHING: Caching = Caching { ttl_ms: 0, scope: CacheScope::Private };

/// One request with all it needs.
pub(crate) struct Exchange {
    pub(super) server: Server,
    pub(super) id: RequestId,
    pub(super) method: String,
    pub(super) params: Option<Box<RawValue>>,
    pub(super) meta: RequestMeta,
    /// Which conversation it came in: those who wait for a busy plugin take turns by it.
    pub(super) session: u64,
    /// The client gave it up, or went away.
    pub(super) cancel: CancellationToken,
    /// The server ends; long streams end well.
    pub(super) closing: CancellationToken,
    /// What is told before the answer.
    pub(super) notes: mpsc::Sender<Note>,
}

/// Whether the stateless revisions have the method, as we serve it.
pub(super) fn is_served(server: &Server, method: &str) -> bool {
    let ours = [methods::TOOLS_LIST, methods::TOOLS_CALL, modern::methods::DISCOVER, modern::methods::LISTEN];
    ours.contains(&method)
        || OfferMethod::parse(method).is_some_and(|offer| offer.is_offered(server.view().offers(server.host())))
}

impl Exchange {
    /// Runs it to its end; all notes are handed on before this returns.
    pub(super) async fn run(self) -> Result<Box<RawValue>, RpcError> {
        match self.method.as_str() {
            modern::methods::DISCOVER => self.discover(),
            modern::methods::LISTEN => listen::run(&self).await.map(|result| completed(&result, None)),
            methods::TOOLS_LIST => self.list_tools().await,
            methods::TOOLS_CALL => self.call_tool().await,
            method => match OfferMethod::parse(method)
                .filter(|offer| offer.is_offered(self.server.view().offers(self.server.host())))
            {
                Some(offer) => self.offer(offer).await,
                None => Err(RpcError::method_not_found(method)),
            },
        }
    }

    async fn offer(&self, offer: OfferMethod) -> Result<Box<RawValue>, RpcError> {
        let view = self.server.view();
        modern::inputs_of(self.params.as_deref())?;
        let client = self.counterpart();
        let caller = self.server.caller(self.meta.client.as_ref().map(|client| client.name.as_str()));
        let answer = tokio::select! {
            answer = offer.answer(self.server.host(), &view, self.params.as_deref(), Some(&client), &caller) => answer,
            () = self.cancel.cancelled() => return Err(tools_call::given_up()),
        };
        let caching = offer.is_cacheable().then_some(CACHING);
        answer.map(|result| completed(&result, caching)).map_err(|error| error_of_a_plugin(error, &self.meta))
    }

    /// The client as plugins may turn to it. Bound to its profile: a name it gives itself proves nothing, and who is given
    /// other tools is somebody else.
    fn counterpart(&self) -> Counterpart {
        let client = format!("profile:{}", self.server.view().profile().name);
        Counterpart::of_rounds(client, self.meta.capabilities.clone())
    }

    fn discover(&self) -> Result<Box<RawValue>, RpcError> {
        let versions: Vec<&str> = modern::VERSIONS.iter().map(|version| version.as_str()).collect();
        let result = json!({
            "supportedVersions": versions,
            "capabilities": initialize::capabilities(self.server.host(), &self.server.view()),
            "instructions": instructions::text(&self.server.view().overview(self.server.host()), self.server.view().profile().mode),
        });
        let unwritable = |_| RpcError::new(codes::INTERNAL_ERROR, "the discovery cannot be written");
        to_raw_value(&result).map_err(unwritable).map(|result| completed(&result, Some(CACHING)))
    }

    async fn list_tools(&self) -> Result<Box<RawValue>, RpcError> {
        let page = match mcp::list_cursor(self.params.as_deref()).map_err(|fault| invalid_params(&fault))? {
            Some(cursor) => self.server.lists().page(&cursor)?,
            None => {
                tokio::select! {
                    () = self.server.host().settled(self.server.list_wait()) => {}
                    () = self.cancel.cancelled() => return Err(tools_call::given_up()),
                }
                self.server.lists().current(self.server.host()).first_page()
            }
        };
        Ok(completed(&page, Some(CACHING)))
    }

    async fn call_tool(self) -> Result<Box<RawValue>, RpcError> {
        let mut params = CallParamsIn::parse(self.params.as_deref()).map_err(|fault| invalid_params(&fault))?;
        let (responses, state) = modern::inputs_of(self.params.as_deref())?;
        let inputs = (responses.is_some() || state.is_some()).then_some(Inputs { responses, state });
        // The plugin's client is us: what ours can do is no promise to it.
        params.meta = params.meta.and_then(|meta| modern::without_hop(&meta));
        let meta = self.meta.clone();
        let counterpart = Some(self.counterpart());
        let call = Call {
            start_wait: self.server.first_list_wait(),
            host: self.server.host().clone(),
            view: self.server.view(),
            request: self.id,
            params,
            caller: self.server.caller(self.meta.client.as_ref().map(|client| client.name.as_str())),
            session: self.session,
            counterpart,
            inputs,
            log_level: WantedLevel::of_request(&meta),
            cancel: self.cancel,
            notes: self.notes,
        };
        call.run().await.map(|result| completed(&result, None)).map_err(|error| error_of_a_plugin(error, &meta))
    }
}

fn completed(result: &RawValue, caching: Option<Caching>) -> Box<RawValue> {
    modern::complete(result, &initialize::identity(), caching)
}

/// Codes that mean something else in these revisions, or nothing, keep their text alone.
fn error_of_a_plugin(mut error: RpcError, meta: &RequestMeta) -> RpcError {
    error.code = match error.code {
        codes::RESOURCE_NOT_FOUND => codes::INVALID_PARAMS,
        codes::MISSING_CAPABILITY if lacks(meta, error.data.as_deref()) => error.code,
        // Reserved for meanings that the plugin cannot have meant.
        -32099..=-32020 => codes::INTERNAL_ERROR,
        code => code,
    };
    error
}

/// Whether the client did not declare what a plugin says it needs: then it is the client's to know.
fn lacks(meta: &RequestMeta, data: Option<&RawValue>) -> bool {
    let data = data.and_then(|data| serde_json::from_str::<serde_json::Value>(data.get()).ok());
    let needed = data.as_ref().and_then(|data| data.get("requiredCapabilities")?.as_object());
    needed.is_some_and(|needed| !needed.is_empty() && needed.keys().all(|name| !meta.has_capability(name)))
}

pub(super) fn invalid_params(fault: &mcp::PayloadFault) -> RpcError {
    RpcError::new(codes::INVALID_PARAMS, fault.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_legacy_plugins_do_not_claim_what_they_do_not_mean() {
        // BP-06, BP-07: a client would take -32022 for our word on versions.
        for (code, told) in [(-32002, -32602), (-32042, -32603), (-32022, -32603), (-32601, -32601), (5, 5)] {
            assert_eq!(error_of_a_plugin(RpcError::new(code, "x"), &meta("{}")).code, told, "{code}");
        }
    }

    #[test]
    fn what_a_plugin_needs_of_its_client_is_told_to_one_that_lacks_it() {
        // BP-14: a client that can do it would take the word for one on itself, and look for a fault it does not have.
        let error = || {
            let data = to_raw_value(&json!({"requiredCapabilities": {"sampling": {}}})).unwrap();
            RpcError { data: Some(data), ..RpcError::new(codes::MISSING_CAPABILITY, "needs sampling") }
        };
        assert_eq!(error_of_a_plugin(error(), &meta("{}")).code, codes::MISSING_CAPABILITY);
        assert_eq!(error_of_a_plugin(error(), &meta(r#"{"sampling":{}}"#)).code, codes::INTERNAL_ERROR);
    }

    fn meta(capabilities: &str) -> RequestMeta {
        let capabilities = RawValue::from_string(capabilities.to_owned()).unwrap();
        RequestMeta { version: modern::VERSIONS[0], client: None, capabilities, log_level: None }
    }
}
