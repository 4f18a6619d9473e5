//! Requests for one prompt, resource or completion, on their way to the plugin that offers it.
//!
//! Owns finding the plugin and the change of names on the way. The rest of the parameters and the whole result pass as
//! they are, but for secrets and sizes. Dropping the request cancels it at the plugin.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plugward_policy::{Digest, PluginId};
use plugward_protocol::modern;
use serde_json::value::RawValue;

use super::wake::awake;
use super::{OfferError, OfferList, Offers};
use crate::call::admission::Share;
use crate::call::result::RESULT_TYPE;
use crate::call::{CallPath, HARD_TIMEOUT_FACTOR};
use crate::counterpart::Counterpart;
use crate::host::Host;
use crate::raw_object::{RawObject, compact_len};
use crate::rounds::{self, Ended, Inputs, Purpose, Questions};
use crate::session::{RequestError, Timing, masked};
use crate::supervisor::{Plugin, Running};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferRequest {
    /// `prompts/get`.
    Prompt,
    /// `resources/read`.
    Resource,
    /// `completion/complete`.
    Completion,
}

impl OfferRequest {
    pub(super) fn method(self) -> &'static str {
        match self {
            OfferRequest::Prompt => "prompts/get",
            OfferRequest::Resource => "resources/read",
            OfferRequest::Completion => "completion/complete",
        }
    }

    fn is_in(self, offers: Offers) -> bool {
        match self {
            OfferRequest::Prompt => offers.prompts,
            OfferRequest::Resource => offers.resources,
            OfferRequest::Completion => offers.completions,
        }
    }
}

/// What names the thing that is asked for.
pub(super) enum Target {
    Prompt(String),
    Resource(String),
}

impl Host {
    /// Asks the plugin that offers it, if the asker sees that plugin; else it is not found.
    pub async fn forward_offer(
        &self,
        request: OfferRequest,
        params: Option<&RawValue>,
        sees: impl Fn(&PluginId) -> bool + Sync,
        counterpart: Option<&Counterpart>,
    ) -> Result<Box<RawValue>, OfferError> {
        let mut params = params.and_then(RawObject::parse).ok_or(OfferError::Invalid("params are not an object"))?;
        strip_meta(&mut params);
        let target = target(request, &params)?;
        let (plugin, own_name) =
            self.owner(&target, &sees).await.filter(|(plugin, _)| sees(plugin)).ok_or(OfferError::NotFound)?;
        rename(request, &mut params, &target, &own_name);
        let offering = self.offering(|offers| request.is_in(offers));
        let plugin = offering.into_iter().find(|other| other.id == plugin).ok_or(OfferError::NotFound)?;
        if let (Some(prompt), OfferRequest::Prompt) = (plugin.manifest.backend.prompt(), request) {
            return super::prompt::get(&self.inner, &plugin, prompt, &params);
        }
        let backend = &plugin.manifest.backend;
        let limit = backend.startup_timeout.saturating_add(backend.list_timeout);
        let asleep = || OfferError::Failed(format!("plugin `{}`: it did not start in time", plugin.id));
        let running = awake(&plugin, limit).await.ok_or_else(asleep)?;
        // MR-01: a completion is no request that may lead to a question.
        let counterpart = counterpart.filter(|_| request != OfferRequest::Completion);
        let asked = Asked { plugin: &plugin, running: &running, request, counterpart };
        asked.send(&self.inner.path, params).await
    }

    /// The plugin that offers it, and what it calls it. What no list has told yet is looked for once.
    async fn owner(&self, target: &Target, sees: &(impl Fn(&PluginId) -> bool + Sync)) -> Option<(PluginId, String)> {
        match target {
            Target::Prompt(name) => {
                let find = || self.inner.offers.known().prompts.get(name).cloned();
                if let Some(found) = find() {
                    return Some(found);
                }
                self.list_offers(OfferList::Prompts, sees).await;
                find()
            }
            Target::Resource(uri) => {
                let plugin = match self.find_resource(uri, sees) {
                    Some(plugin) => plugin,
                    None => {
                        self.list_offers(OfferList::Resources, sees).await;
                        self.list_offers(OfferList::ResourceTemplates, sees).await;
                        // Servers may have resources that they do not list; with one such server it is clear whose.
                        self.find_resource(uri, sees).or_else(|| self.only_owner(sees))?
                    }
                };
                Some((plugin, uri.clone()))
            }
        }
    }

    /// The plugin that has a resource, of those the asker sees.
    fn find_resource(&self, uri: &str, sees: &impl Fn(&PluginId) -> bool) -> Option<PluginId> {
        let known = self.inner.offers.known();
        let seen = |owners: &'_ Vec<PluginId>| owners.iter().find(|owner| sees(owner)).cloned();
        let templates = || {
            let fitting = known.templates.iter().filter(|(beginning, _)| uri.starts_with(beginning.as_str()));
            let seen = fitting.filter_map(|(beginning, owners)| Some((beginning.len(), seen(owners)?)));
            seen.max_by_key(|(length, _)| *length).map(|(_, plugin)| plugin)
        };
        // A template is named by itself when its arguments are completed.
        let plain = uri.split('{').next().unwrap_or_default();
        let own = known.resources.get(uri).and_then(seen);
        own.or_else(templates).or_else(|| known.templates.get(plain).and_then(seen))
    }

    /// Whose it is as far as lists have told, whoever asks.
    pub(super) fn known_owner(&self, target: &Target) -> Option<PluginId> {
        match target {
            Target::Prompt(name) => self.inner.offers.known().prompts.get(name).map(|(plugin, _)| plugin.clone()),
            Target::Resource(uri) => self.find_resource(uri, &|_| true),
        }
    }

    /// Whether the request is answered by the host itself, which records it where it does.
    pub(super) fn records_itself(&self, request: OfferRequest, plugin: Option<&PluginId>) -> bool {
        let is_own = |plugin: &PluginId| {
            self.inner.all().iter().any(|other| other.id == *plugin && other.manifest.backend.prompt().is_some())
        };
        request == OfferRequest::Prompt && plugin.is_some_and(is_own)
    }

    fn only_owner(&self, sees: impl Fn(&PluginId) -> bool) -> Option<PluginId> {
        let mut offering = self.offering(|offers| offers.resources).into_iter().filter(|plugin| sees(&plugin.id));
        match (offering.next(), offering.next()) {
            (Some(plugin), None) => Some(plugin.id.clone()),
            _ => None,
        }
    }
}

/// What a client said to us alone goes no further, and no progress is asked for that nobody would hand on.
fn strip_meta(params: &mut RawObject) {
    let Some(meta) = params.get("_meta") else { return };
    let rest = modern::without_hop(meta).and_then(|meta| RawObject::parse(&meta));
    params.remove("_meta");
    if let Some(mut rest) = rest {
        rest.remove("progressToken");
        params.set("_meta", rest.to_raw());
    }
}

pub(super) fn target(request: OfferRequest, params: &RawObject) -> Result<Target, OfferError> {
    let text = |object: &RawObject, key: &str| object.get_str(key);
    match request {
        OfferRequest::Prompt => {
            text(params, "name").map(Target::Prompt).ok_or(OfferError::Invalid("`name` is not a string"))
        }
        OfferRequest::Resource => {
            text(params, "uri").map(Target::Resource).ok_or(OfferError::Invalid("`uri` is not a string"))
        }
        OfferRequest::Completion => {
            let reference = params.get("ref").and_then(RawObject::parse);
            let reference = reference.ok_or(OfferError::Invalid("`ref` is not an object"))?;
            let found = match text(&reference, "type").as_deref() {
                Some("ref/prompt") => text(&reference, "name").map(Target::Prompt),
                Some("ref/resource") => text(&reference, "uri").map(Target::Resource),
                _ => None,
            };
            found.ok_or(OfferError::Invalid("`ref` names neither a prompt nor a resource"))
        }
    }
}

fn rename(request: OfferRequest, params: &mut RawObject, target: &Target, own_name: &str) {
    let Target::Prompt(_) = target else { return };
    match request {
        OfferRequest::Completion => {
            if let Some(mut reference) = params.get("ref").and_then(RawObject::parse) {
                reference.set_str("name", own_name);
                params.set("ref", reference.to_raw());
            }
        }
        OfferRequest::Prompt | OfferRequest::Resource => params.set_str("name", own_name),
    }
}

/// A request on its way to a plugin.
struct Asked<'a> {
    plugin: &'a Arc<Plugin>,
    running: &'a Running,
    request: OfferRequest,
    counterpart: Option<&'a Counterpart>,
}

impl Asked<'_> {
    async fn send(&self, path: &CallPath, mut params: RawObject) -> Result<Box<RawValue>, OfferError> {
        let backend = &self.plugin.manifest.backend;
        let limit = backend.tool_timeout;
        // With its calls: a plugin has one queue, whatever it is asked for.
        // Requests of this kind have one turn among its callers.
        let share = Share::new("offers", 0);
        let place = tokio::time::timeout(limit, self.running.route.admission.enter(&share)).await;
        let Ok(Ok(_place)) = place else {
            return Err(self.failed("too many requests wait for it, or it is stopping"));
        };
        let Some(launched) = &self.running.launched else { return Err(self.failed("it is asleep")) };
        let brought = ["inputResponses", "requestState"].map(|name| {
            let value = params.get(name).map(ToOwned::to_owned);
            params.remove(name);
            value
        });
        let params = params.to_raw();
        let subject = Digest::of(without_meta(&params).get().as_bytes());
        let purpose = Purpose {
            plugin: self.plugin.id.as_str(),
            version: &self.plugin.manifest.version,
            client: self.counterpart.map_or("", |client| client.client.as_str()),
            method: self.request.method(),
            subject: subject.as_bytes(),
        };
        let session = &launched.session;
        let secrets = &self.running.route.secrets;
        let questions =
            self.counterpart.map(|client| Questions::new(&self.plugin.manifest, &path.catalogue, secrets, client));
        let seal = &path.seal;
        let inputs = match brought {
            [None, None] => None,
            // An older plugin asks in other ways, and knows nothing of these members.
            _ if !session.is_stateless() => None,
            [responses, state] => {
                let inputs = rounds::brought_back(seal, purpose, responses, state.as_deref());
                Some(inputs.map_err(OfferError::Rejected)?)
            }
        };
        let begun = Instant::now();
        let send = |inputs: Option<Inputs>| {
            let params = match inputs {
                None => Ok(params.clone()),
                Some(Inputs { responses, state }) => {
                    modern::client::with_inputs(Some(&params), responses.as_deref(), state.as_deref())
                }
            };
            let left = limit.saturating_mul(HARD_TIMEOUT_FACTOR).saturating_sub(begun.elapsed()).min(limit);
            let capabilities = questions.as_ref().map(Questions::capabilities);
            async move {
                let params = params.map_err(|fault| RequestError::Invalid(fault.to_string()))?;
                let timing = Timing { idle: left, hard: left };
                session.request_with(self.request.method(), Some(params), timing, capabilities).await
            }
        };
        let rounds = rounds::run(questions.as_ref(), seal, purpose, inputs, send);
        let ran_out = |_| Err(RequestError::TimedOut { limit });
        let answer =
            tokio::time::timeout(limit.saturating_mul(HARD_TIMEOUT_FACTOR), rounds).await.unwrap_or_else(ran_out);
        match answer {
            Ok(Ended::Reply(result)) => {
                accept(masked(secrets, result), backend.max_result_bytes).map_err(|text| self.failed(&text))
            }
            Ok(Ended::Question(question)) => Ok(question),
            Err(RequestError::Rejected(mut error)) => {
                error.message = secrets.redact(&error.message).into_owned();
                error.data = error.data.map(|data| masked(secrets, data));
                Err(OfferError::Rejected(error))
            }
            Err(error) => Err(self.failed(&reason(&error, limit))),
        }
    }

    fn failed(&self, text: &str) -> OfferError {
        OfferError::Failed(format!("plugin `{}`: {text}", self.plugin.id))
    }
}

/// What a question is bound to: each round has metadata of its own.
fn without_meta(params: &RawValue) -> Box<RawValue> {
    let Some(mut object) = RawObject::parse(params) else { return params.to_owned() };
    object.remove("_meta");
    object.to_raw()
}

fn accept(result: Box<RawValue>, max_bytes: u64) -> Result<Box<RawValue>, String> {
    let Some(mut object) = RawObject::parse(&result) else {
        return Err("its result is not an object, or repeats a key".to_owned());
    };
    let bytes = u64::try_from(compact_len(result.get())).unwrap_or(u64::MAX);
    if bytes > max_bytes {
        return Err(format!("its result of {bytes} bytes exceeds the limit of {max_bytes} bytes"));
    }
    if !object.has(RESULT_TYPE) {
        return Ok(result);
    }
    object.remove(RESULT_TYPE);
    Ok(object.to_raw())
}

/// In our own words: what the plugin wrote stays out.
pub(super) fn reason(error: &RequestError, limit: Duration) -> String {
    match error {
        RequestError::TimedOut { .. } => format!("no answer within {limit:?}"),
        RequestError::InputRequired(_) => "it asks for what nobody here can give".to_owned(),
        RequestError::Invalid(_) => "its answer is no valid message".to_owned(),
        RequestError::TooLarge { bytes, limit } => format!("its answer of {bytes} bytes exceeds {limit} bytes"),
        RequestError::RequestTooLarge { bytes, limit } => format!("the request of {bytes} bytes exceeds {limit} bytes"),
        RequestError::Cancelled
        | RequestError::Rejected(_)
        | RequestError::Refused(_)
        | RequestError::Unavailable(_) => "it is not available".to_owned(),
    }
}
