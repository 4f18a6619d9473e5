//! `serve`: the host that stays, with its faces.
//!
//! Owns the order of start and end: home, plugins, control socket, faces; and back. Refuses to serve a home twice: a
//! second `serve --stdio` becomes a thin pipe to the first. Where none runs, `serve --stdio` starts one in the background
//! and is a pipe to it, so that no agent's end takes the tools of others along. With `--in-process` it serves itself, and
//! stays, after its own client has gone, until the last one that joined has.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use plugward_host::{ErrorCode, Host, HostError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::link::{self, Found};
use super::{Context, daemon, stdio};
use crate::control::{Client, ControlServer, Failure, Visitors};
use crate::exit::Exit;
use crate::profile::Profile;
use crate::{api, gateway};

/// The face over HTTP, as it was asked for.
pub(super) struct HttpFace {
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// Names under which this machine is reached, beside its own for itself.
    pub(super) names: Vec<String>,
}

/// What is to be offered, and how.
pub(super) struct Faces {
    /// MCP on standard input and output.
    pub(super) stdio: bool,
    /// Which agent is at the other end.
    pub(super) client: Option<String>,
    /// In this process, whatever the settings say.
    pub(super) in_process: bool,
    /// MCP and the Host API over HTTP.
    pub(super) http: Option<HttpFace>,
}

/// The host in the background. Another one that is there already is as good.
pub(super) async fn detached(context: &Context) -> Result<Exit, Failure> {
    match context.unless_interrupted(link::find(&context.settings, link::SERVE_WAIT)).await? {
        Found::Running(_) => Ok(Exit::Ok),
        Found::Home(host) => {
            let none = Faces { stdio: false, client: None, in_process: true, http: None };
            let result = serve(context, &host, none, Some(context.settings.daemon_idle)).await;
            host.shutdown().await;
            tracing::info!("stopped");
            result
        }
    }
}

pub(super) async fn run(context: &Context, faces: Faces) -> Result<Exit, Failure> {
    let is_pipe = faces.stdio && faces.http.is_none();
    if is_pipe && context.settings.is_on_demand && !faces.in_process {
        let mut joins = 0;
        loop {
            let client = context.unless_interrupted(daemon::reach(context)).await?;
            joins += 1;
            match join(context, client, faces.client.as_deref()).await {
                Err(failure) if joins < JOINS_MAX && failure.body.error.code == ErrorCode::HostStopping.as_str() => {
                    tracing::info!("the host ended as this process came; looking for another");
                }
                joined => return pipe(context, joined?).await,
            }
        }
    }
    match context.unless_interrupted(link::find(&context.settings, link::SERVE_WAIT)).await? {
        Found::Home(host) => {
            let result = serve(context, &host, faces, None).await;
            host.shutdown().await;
            tracing::info!("stopped");
            result
        }
        Found::Running(client) if is_pipe => {
            let joined = join(context, client, faces.client.as_deref()).await?;
            pipe(context, joined).await
        }
        Found::Running(_) => {
            let message = "another `plugward serve` runs on this home already";
            Err(Failure::coded(ErrorCode::HomeInUse, message)
                .with_hint("see it with `plugward status`; `plugward serve --stdio` joins it, `plugward stop` ends it"))
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

/// Serves until told to end, or, with `idle`, until nobody has been connected for so long.
async fn serve(context: &Context, host: &Host, offered: Faces, idle: Option<Duration>) -> Result<Exit, Failure> {
    let home = &context.settings.home;
    raise_descriptor_limit();
    // Before any plugin starts: what cannot be offered needs no start.
    let http = match offered.http {
        Some(face) => Some(prepare_http(context, face).await?),
        None => None,
    };
    let control = ControlServer::bind(home).map_err(|error| {
        let message = format!("control socket of home `{}` cannot be opened: {error}", home.display());
        Failure::coded(ErrorCode::HomeUnusable, message)
    })?;
    let (joined, visitors) = (control.joined(), control.visitors());
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
    let address = http.as_ref().and_then(|http| http.listener.local_addr().ok());
    announce(context, address);
    if let Some(http) = http {
        // Which agent is at the other end of a connection nobody says, so all get the default profile.
        serve_http(host, http, context.settings.profiles.of_client(None), &mut faces, &stop);
    }
    // A task of its own: beside those of its requests it runs on the same threads, and nobody has to be woken.
    let mut session = JoinSet::new();
    if offered.stdio {
        let profile = context.settings.profiles.of_client(offered.client.as_deref());
        let options = gateway::Options { profile, ..gateway::Options::default() };
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
        () = unused(&visitors, idle) => {
            tracing::info!("nobody has been connected for a while");
            Ok(())
        }
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

/// The end of a host on demand; never, for one that was started to stay.
async fn unused(visitors: &Visitors, idle: Option<Duration>) {
    match idle {
        Some(idle) => visitors.none_for(idle).await,
        None => std::future::pending().await,
    }
}

fn announce(context: &Context, listening: Option<SocketAddr>) {
    let home = &context.settings.home;
    tracing::info!(home = %home.display(), pid = std::process::id(), "serving");
    if let Some(address) = listening {
        let token = api::Token::path(home);
        if address.ip().is_loopback() {
            tracing::info!("Host API on http://{address}, its token is in {}", token.display());
        }
        let token = api::Token::mcp_path(home);
        tracing::info!("MCP on http://{address}{}, its token is in {}", gateway::http::PATH, token.display());
    }
}

/// What is needed to serve HTTP.
struct Http {
    listener: TcpListener,
    admission: gateway::http::Admission,
    /// None where other machines could reach it.
    api: Option<api::Options>,
}

async fn prepare_http(context: &Context, face: HttpFace) -> Result<Http, Failure> {
    let home = &context.settings.home;
    let HttpFace { address, names } = face;
    let is_private = address.ip().is_loopback();
    if !is_private && names.is_empty() {
        let message = format!("address `{address}` can be reached from other machines");
        return Err(Failure::usage(message).with_hint(
            "use --http 127.0.0.1:8420, or add --allow-host NAME for each name that clients on other machines use",
        ));
    }
    if !is_private {
        tracing::warn!(
            "`{address}` is served without TLS: who is on the way reads tokens and results, unless a proxy encrypts"
        );
    }
    let listener = if is_private {
        api::bind(address).await
    } else {
        TcpListener::bind(address).await.with_context(|| format!("address `{address}` cannot be listened on"))
    };
    let listener = listener.map_err(|error| Failure::new(Exit::Failure, "ADDRESS_UNUSABLE", format!("{error:#}")))?;
    let unusable = |error: api::TokenError| Failure::coded(ErrorCode::HomeUnusable, error.to_string());
    let files = gateway::http::TokenFiles { home: home.clone(), profiles: context.settings.profiles.clone() };
    let token = api::Token::open_mcp(home).map_err(unusable)?;
    let admission = gateway::http::Admission { token, hosts: names, files: Some(files) };
    let api = match is_private {
        true => Some(api::Options::new(api::Token::open(home).map_err(unusable)?)),
        false => None,
    };
    Ok(Http { listener, admission, api })
}

fn serve_http(
    host: &Host,
    http: Http,
    profile: Profile,
    faces: &mut JoinSet<anyhow::Result<()>>,
    stop: &CancellationToken,
) {
    let server = gateway::Server::new(host.clone(), gateway::Options { profile, ..gateway::Options::default() });
    let endpoint = gateway::http::Endpoint::new(server, gateway::http::Limits::default(), stop.clone());
    let paths = endpoint.router(http.admission);
    faces.spawn(async move {
        endpoint.tend().await;
        Ok(())
    });
    let (host, stop) = (host.clone(), stop.clone());
    faces.spawn(async move {
        match http.api {
            Some(options) => api::serve(host, http.listener, options, paths, stop).await,
            None => {
                api::serve_alone(http.listener, paths, stop).await;
                Ok(())
            }
        }
    });
}

/// Times a host that ends as we come is looked for anew. One that goes on ending is no host.
const JOINS_MAX: u32 = 3;

/// Both ends of an MCP session with the host that runs.
type Joined = (BufReader<OwnedReadHalf>, OwnedWriteHalf);

/// Begins an MCP session with the host that runs.
async fn join(context: &Context, client: Client, name: Option<&str>) -> Result<Joined, Failure> {
    client.into_mcp(context.settings.profiles.of_client(name)).await
}

/// Moves bytes between standard input and output and the host that runs.
async fn pipe(context: &Context, (mut from_host, mut to_host): Joined) -> Result<Exit, Failure> {
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
