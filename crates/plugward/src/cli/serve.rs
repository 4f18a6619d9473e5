//! `serve`: the host that stays, with its faces.
//!
//! Owns the order of start and end: home, plugins, control socket, faces; and back. Refuses to serve a home twice: a
//! second `serve --stdio` becomes a thin pipe to the first, which therefore stays, after its own client has gone, until
//! the last one that joined has.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;

use plugward_host::{ErrorCode, Host, HostError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::link::{self, Found};
use super::{Context, stdio};
use crate::control::{Client, ControlServer, Failure};
use crate::exit::Exit;
use crate::{api, gateway};

pub(super) async fn run(context: &Context, stdio: bool, http: Option<SocketAddr>) -> Result<Exit, Failure> {
    match context.unless_interrupted(link::find(&context.settings, link::SERVE_WAIT)).await? {
        Found::Home(host) => {
            let result = serve(context, &host, stdio, http).await;
            host.shutdown().await;
            tracing::info!("stopped");
            result
        }
        Found::Running(client) if stdio && http.is_none() => pipe(context, client).await,
        Found::Running(_) => {
            let message = "another `plugward serve` runs on this home already";
            Err(Failure::coded(ErrorCode::HomeInUse, message)
                .with_hint("see it with `plugward status`; `plugward serve --stdio` joins it"))
        }
    }
}

/// Descriptors of the host: hundreds of plugins with all connections they may have. Plugins without a sandbox inherit the
/// number, and some programs close all they could have one by one, so it is not as high as it could be.
const DESCRIPTORS: u64 = 65_536;

/// Lets this process have as many descriptors as it needs, if it may: connections of plugins to their hosts take two each, and
/// what is usual at first is meant for programs that serve one user one thing.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(DESCRIPTORS, |maximum| maximum.min(DESCRIPTORS));
    if limit.current.is_some_and(|current| current < wanted) {
        // Without it the usual number holds, and plugins wait for one another.
        let _usual = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
}

async fn serve(context: &Context, host: &Host, stdio: bool, http: Option<SocketAddr>) -> Result<Exit, Failure> {
    let home = &context.settings.home;
    raise_descriptor_limit();
    // Before any plugin starts: what cannot be offered needs no start.
    let api = match http {
        Some(address) => Some(prepare_api(home, address).await?),
        None => None,
    };
    let control = ControlServer::bind(home).map_err(|error| {
        let message = format!("control socket of home `{}` cannot be opened: {error}", home.display());
        Failure::coded(ErrorCode::HomeUnusable, message)
    })?;
    let joined = control.joined();
    host.start_enabled();
    if let Some(folders) = &context.settings.folders {
        host.follow_folders(folders.clone());
    }
    let stop = context.stop.child_token();
    let mut faces = JoinSet::new();
    let (served, stopped) = (host.clone(), stop.clone());
    faces.spawn(async move {
        control.serve(served, stopped).await;
        Ok(())
    });
    // The address in use: the one asked for may leave the port open.
    let address = api.as_ref().and_then(|(listener, _)| listener.local_addr().ok());
    if let Some((listener, options)) = api {
        faces.spawn(api::serve(host.clone(), listener, options, stop.clone()));
    }
    announce(context, address);
    // A task of its own: beside those of its requests it runs on the same threads, and nobody has to be woken.
    let mut session = JoinSet::new();
    if stdio {
        let options = gateway::Options::default();
        let (served, joined) = (host.clone(), joined.clone());
        session.spawn(async move {
            gateway::serve(served, stdio::input(), stdio::output(), options).await;
            if !joined.is_empty() {
                tracing::info!("standard input has ended; staying for {} MCP sessions that joined", joined.len());
                joined.wait().await;
            }
        });
    }
    // The end of standard input ends all, once nobody is left who joined; so does a face that ends by itself, which
    // only a defect makes it do.
    let result = tokio::select! {
        Some(ended) = session.join_next() => ended.map_err(Into::into),
        Some(ended) = faces.join_next() => ended.unwrap_or_else(|error| Err(error.into())),
        () = stop.cancelled() => Ok(()),
    };
    if !joined.is_empty() {
        tracing::warn!("{} MCP sessions that joined end with this process", joined.len());
    }
    stop.cancel();
    session.shutdown().await;
    // Each face bounds its own end.
    while faces.join_next().await.is_some() {}
    result.map(|()| Exit::Ok).map_err(|error| HostError::internal(format!("{error:#}")).into())
}

fn announce(context: &Context, listening: Option<SocketAddr>) {
    let home = &context.settings.home;
    tracing::info!(home = %home.display(), pid = std::process::id(), "serving");
    if let Some(address) = listening {
        let token = api::Token::path(home);
        tracing::info!("Host API on http://{address}, its token is in {}", token.display());
    }
}

async fn prepare_api(home: &Path, address: SocketAddr) -> Result<(TcpListener, api::Options), Failure> {
    if !address.ip().is_loopback() {
        let message = format!("address `{address}` can be reached from other machines, which this version refuses");
        return Err(Failure::usage(message).with_hint("use --http 127.0.0.1:8420"));
    }
    let listener = api::bind(address)
        .await
        .map_err(|error| Failure::new(Exit::Failure, "ADDRESS_UNUSABLE", format!("{error:#}")))?;
    let token = api::Token::open(home).map_err(|error| Failure::coded(ErrorCode::HomeUnusable, error.to_string()))?;
    Ok((listener, api::Options::new(token)))
}

/// Moves bytes between standard input and output and the host that runs.
async fn pipe(context: &Context, client: Client) -> Result<Exit, Failure> {
    let (mut from_host, mut to_host) = client.into_mcp().await?;
    tracing::info!("joined the running host");
    let input_ended = Cell::new(false);
    let up = async {
        let _ = tokio::io::copy(&mut stdio::input(), &mut to_host).await;
        input_ended.set(true);
        // The host answers what it has, then closes its side.
        let _ = to_host.shutdown().await;
        std::future::pending::<()>().await;
    };
    let down = async {
        let mut stdout = stdio::output();
        let copied = tokio::io::copy(&mut from_host, &mut stdout).await;
        let _ = stdout.flush().await;
        copied
    };
    let ended = tokio::select! {
        ended = down => ended,
        () = up => Ok(0),
        () = context.stop.cancelled() => return Ok(Exit::Ok),
    };
    match ended {
        Ok(_) if input_ended.get() => Ok(Exit::Ok),
        // The client has gone away.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Exit::Ok),
        Ok(_) | Err(_) => {
            let message = "the running `plugward serve` ended this session";
            Err(Failure::coded(ErrorCode::HostStopping, message).with_hint("start it again: it then serves by itself"))
        }
    }
}
