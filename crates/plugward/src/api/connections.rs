//! Connections over HTTP, of the Host API and the MCP path: how many, how long, how large their heads may be.
//!
//! Owns the accept loop and the limits that hold before a request exists. Refuses to look into requests. Every
//! connection is a task of a bounded set; when the stop comes, each finishes its request or is cut off.

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// Connections at once. An MCP client holds one stream and a request or two, so this serves some 700 of them. The next
/// one waits in the listener's queue.
const MAX_CONNECTIONS: usize = 2048;

/// Connections never take more than this part of the descriptors the process may have: the rest is for plugins, which
/// could not start without.
const DESCRIPTORS_PER_CONNECTION: u64 = 2;

/// Time for the head of a request, and for the silence between two requests on one connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Header lines of a request; browsers send about 20.
const MAX_HEADERS: usize = 64;

/// Bytes a request's head and a connection's read buffer may take. Ours fit into 1 KiB.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Time a caller may leave an answer unread before its connection is given up.
const UNREAD_TIMEOUT_MS: u32 = 60_000;

/// Time requests under way have to end after the stop.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Pause after a failed accept (no descriptors left, most often), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts and serves until `stop`; returns when the last connection is gone.
pub(super) async fn run(listener: TcpListener, app: Router, stop: CancellationToken) {
    let places = std::sync::Arc::new(Semaphore::new(places(getrlimit(Resource::Nofile).current)));
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            let place = std::sync::Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = connections.join_next() => note_panic(ended),
            (place, stream) = accepted => match stream {
                Ok((stream, _)) => {
                    let connection = serve(stream, app.clone(), stop.clone());
                    connections.spawn(async move {
                        let _place = place;
                        connection.await;
                    });
                }
                Err(error) => {
                    tracing::warn!("a connection to the Host API was not accepted: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    while let Some(ended) = connections.join_next().await {
        note_panic(ended);
    }
}

/// How many connections fit beside the plugins, given how many descriptors there may be; `None` is no limit.
fn places(descriptors: Option<u64>) -> usize {
    let fitting = descriptors.map_or(u64::MAX, |limit| limit / DESCRIPTORS_PER_CONNECTION);
    usize::try_from(fitting).map_or(MAX_CONNECTIONS, |fitting| fitting.clamp(1, MAX_CONNECTIONS))
}

fn note_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!("a connection of the Host API broke: {error}");
    }
}

async fn serve(stream: TcpStream, app: Router, stop: CancellationToken) {
    // Answers are small and complete: nothing is gained by holding them back.
    let _ = stream.set_nodelay(true);
    if let Err(error) = rustix::net::sockopt::set_tcp_user_timeout(&stream, UNREAD_TIMEOUT_MS) {
        tracing::debug!("a connection has no limit on unread answers: {error}");
    }
    let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        app.clone().oneshot(request.map(Body::new))
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(MAX_HEAD_BYTES);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(STOP_GRACE, connection).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection of the Host API ended early: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_plugins() {
        // A machine with the usual 1024 descriptors would otherwise refuse to start plugins once agents are connected.
        assert_eq!(places(Some(1024)), 512);
        assert_eq!(places(Some(65_536)), MAX_CONNECTIONS);
        assert_eq!(places(None), MAX_CONNECTIONS);
        assert_eq!(places(Some(0)), 1);
    }
}
