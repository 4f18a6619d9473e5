//! Prompts, resources and completion: what plugins offer beside tools, passed through in both eras.
//!
//! Owns which methods these are, their answers and the errors of both eras. Refuses to announce what no plugin may offer
//! (case B089); clients of the older era ask for the lists all the same, and some drop a server that answers with an
//! error (case B013), so those get an empty list.

use plugward_host::{Counterpart, Host, OfferError, OfferList, OfferRequest, Offers};
use plugward_protocol::RpcError;
use plugward_protocol::mcp::codes;
use serde_json::value::RawValue;

use super::view::View;

/// A method about offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OfferMethod {
    /// A list.
    List(OfferList),
    /// One of them.
    One(OfferRequest),
}

impl OfferMethod {
    /// The method of that name.
    pub(super) fn parse(method: &str) -> Option<Self> {
        Some(match method {
            "prompts/list" => Self::List(OfferList::Prompts),
            "resources/list" => Self::List(OfferList::Resources),
            "resources/templates/list" => Self::List(OfferList::ResourceTemplates),
            "prompts/get" => Self::One(OfferRequest::Prompt),
            "resources/read" => Self::One(OfferRequest::Resource),
            "completion/complete" => Self::One(OfferRequest::Completion),
            _ => return None,
        })
    }

    /// Whether some plugin offers what it is about.
    pub(super) fn is_offered(self, offers: Offers) -> bool {
        match self {
            Self::List(OfferList::Prompts) | Self::One(OfferRequest::Prompt) => offers.prompts,
            Self::List(OfferList::Resources | OfferList::ResourceTemplates) | Self::One(OfferRequest::Resource) => {
                offers.resources
            }
            Self::One(OfferRequest::Completion) => offers.completions,
        }
    }

    /// Whether its results carry cache hints in the stateless revisions.
    pub(super) fn is_cacheable(self) -> bool {
        !matches!(self, Self::One(OfferRequest::Prompt | OfferRequest::Completion))
    }

    /// Its answer. Dropping this gives the request up, at the plugin too.
    pub(super) async fn answer(
        self,
        host: &Host,
        view: &View,
        params: Option<&RawValue>,
        counterpart: Option<&Counterpart>,
    ) -> Result<Box<RawValue>, RpcError> {
        match self {
            Self::List(list) => {
                let all = host.list_offers(list).await.into_iter();
                let seen = all.filter(|(plugin, _)| view.has_plugin(plugin)).map(|(_, item)| item);
                Ok(page(list, &seen.collect::<Vec<_>>()))
            }
            Self::One(request) => {
                if !self.is_offered(view.offers(host)) {
                    return Err(RpcError::method_not_found(request_name(request)));
                }
                host.forward_offer(request, params, |plugin| view.has_plugin(plugin), counterpart)
                    .await
                    .map_err(|error| told(request, error))
            }
        }
    }
}

fn request_name(request: OfferRequest) -> &'static str {
    match request {
        OfferRequest::Prompt => "prompts/get",
        OfferRequest::Resource => "resources/read",
        OfferRequest::Completion => "completion/complete",
    }
}

/// Everything on one page: the host has bounded it.
fn page(list: OfferList, items: &[Box<RawValue>]) -> Box<RawValue> {
    let items: Vec<&str> = items.iter().map(|item| item.get()).collect();
    let text = format!("{{\"{}\":[{}]}}", list.member(), items.join(","));
    // Composed of items that are JSON.
    RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// In the words of the revisions with a handshake; the stateless ones have one code less.
fn told(request: OfferRequest, error: OfferError) -> RpcError {
    match error {
        OfferError::NotFound if request == OfferRequest::Resource => {
            RpcError::new(codes::RESOURCE_NOT_FOUND, "there is no such resource")
        }
        OfferError::NotFound => RpcError::new(codes::INVALID_PARAMS, "there is no such prompt or resource"),
        OfferError::Invalid(reason) => RpcError::new(codes::INVALID_PARAMS, reason),
        OfferError::Rejected(error) => error,
        OfferError::Failed(reason) => RpcError::new(codes::INTERNAL_ERROR, reason),
    }
}
