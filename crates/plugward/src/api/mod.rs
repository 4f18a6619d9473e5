//! The Host API: HTTP with JSON bodies for programs on the same machine.
//!
//! ```text
//! connection -> guard (Host, Origin, token) -> route -> payload -> Host -> body or error envelope
//! ```
//!
//! Owns the routes, one file per resource, and what each request and answer looks like; docs/api.md is the page for
//! users. Refuses listeners off the loopback interface, requests that a web page could have made, business rules (those
//! are the host's) and MCP: no body holds a `jsonrpc` key (requirement 2).

mod asks;
mod connections;
mod errors;
mod guard;
mod health;
mod host_status;
mod openapi;
mod payload;
mod permissions;
mod plugins;
mod review;
mod token;
mod tools;
mod traces;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use axum::Router;
use plugward_host::Host;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) use guard::{Refusal, admit, bearer_of};
pub(crate) use token::{Token, TokenError};

/// Options of the Host API.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// What callers have to show.
    pub(crate) token: Token,
}

impl Options {
    /// The options with this token.
    pub(crate) fn new(token: Token) -> Self {
        Self { token }
    }
}

/// Opens the listener for [`serve`]. An error for every address that other machines could reach.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    refuse_reachable(address)?;
    TcpListener::bind(address).await.with_context(|| format!("address `{address}` cannot be listened on"))
}

/// Serves the Host API until `stop` is cancelled, and beside it the paths of `more`; requests under way then get a short
/// time to end.
pub(crate) async fn serve(
    host: Host,
    listener: TcpListener,
    options: Options,
    more: Router,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    // Whoever made the listener: a mistake here would open the host to the network.
    refuse_reachable(listener.local_addr().context("the listener has no address")?)?;
    connections::run(listener, app(host, options).merge(more), stop).await;
    Ok(())
}

/// Serves paths without the Host API, wherever the listener is: what they let in is theirs to guard.
pub(crate) async fn serve_alone(listener: TcpListener, paths: Router, stop: CancellationToken) {
    connections::run(listener, paths.fallback(errors::unknown_route), stop).await;
}

fn refuse_reachable(address: SocketAddr) -> anyhow::Result<()> {
    if !address.ip().is_loopback() {
        bail!("address `{address}` can be reached from other machines; use 127.0.0.1 or [::1]");
    }
    Ok(())
}

/// The whole application: routes behind the guard.
fn app(host: Host, options: Options) -> Router {
    let (router, _) = documented_routes().split_for_parts();
    router
        .route("/openapi.json", axum::routing::get(openapi::document))
        .fallback(errors::unknown_route)
        .method_not_allowed_fallback(errors::wrong_method)
        .with_state(host)
        .layer(axum::middleware::from_fn_with_state(Arc::new(options), guard::guard))
}

/// Every route with its documentation; one source for both.
fn documented_routes() -> OpenApiRouter<Host> {
    OpenApiRouter::new()
        .routes(routes!(plugins::list))
        .routes(routes!(plugins::show, plugins::remove))
        .routes(routes!(plugins::install))
        .routes(routes!(plugins::enable))
        .routes(routes!(plugins::disable))
        .routes(routes!(permissions::replace))
        .routes(routes!(review::show))
        .routes(routes!(review::approve))
        .routes(routes!(host_status::show))
        .routes(routes!(host_status::restart))
        .routes(routes!(tools::list))
        .routes(routes!(tools::call))
        .routes(routes!(asks::list))
        .routes(routes!(asks::answer))
        .routes(routes!(traces::list))
        .routes(routes!(traces::show))
        .routes(routes!(health::show))
}
