//! One connection to one server. Owns opening it, with TLS where the URL says so, and moving its bytes while somebody waits.
//! Refuses to run in a task of its own: whoever waits for an answer moves the connection, and dropping it ends it.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use plugward_policy::{NetRule, WebUrl};
use rustls::pki_types::ServerName;
use rustls::{CertificateError, Error as TlsError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::error::OutboundError;
use super::trust::Trust;
use crate::egress::{Missed, Outside, reach};

/// Largest head of an answer, and largest piece of a body that is held at once. Heads of real servers are a few KiB; 64 KiB
/// is room for one with many cookies.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Most headers of an answer.
const HEADERS_MAX: usize = 128;

/// Time for a TLS handshake, which is two ways there and back and some arithmetic.
const TLS_LIMIT: Duration = Duration::from_secs(10);

/// A request as it is sent.
pub(super) type Message = hyper::Request<Full<Bytes>>;

/// What a connection runs over.
trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

type Moving = http1::Connection<TokioIo<Box<dyn Wire>>, Full<Bytes>>;

/// An open connection.
pub(super) struct Line {
    url: WebUrl,
    sender: http1::SendRequest<Full<Bytes>>,
    /// `None` once it has ended.
    connection: Option<Pin<Box<Moving>>>,
}

/// Why a request was not answered.
pub(super) struct Failure {
    pub(super) error: hyper::Error,
    /// The request, if nothing of it was sent.
    pub(super) unsent: Option<Message>,
}

impl Line {
    /// Connects to the host of `url`, if one of `rules` allows it.
    pub(super) async fn open<O: Outside>(
        rules: &[NetRule],
        outside: &O,
        trust: &Trust,
        url: &WebUrl,
    ) -> Result<Self, OutboundError> {
        let stream = reach(rules, outside, &url.host(), url.port()).await.map_err(|missed| match missed {
            Missed::Refused(reason) => OutboundError::Refused { origin: url.origin(), reason },
            Missed::Failed(reason) => OutboundError::Unreachable { origin: url.origin(), reason },
        })?;
        // Small messages each way: waiting to fill a packet would cost a tool call 40 ms. Not vital where it fails.
        let _slower = stream.set_nodelay(true);
        let wire: Box<dyn Wire> =
            if url.is_secure() { Box::new(secure(trust, url, stream).await?) } else { Box::new(stream) };
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .handshake(TokioIo::new(wire))
            .await
            .map_err(|error| OutboundError::of_http(url, &error))?;
        Ok(Self { url: url.clone(), sender, connection: Some(Box::pin(connection)) })
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn exchange(&mut self, message: Message) -> Result<hyper::Response<Incoming>, Failure> {
        let Self { sender, connection, .. } = self;
        if let Err(error) = drive(connection, sender.ready()).await {
            return Err(Failure { error, unsent: Some(message) });
        }
        let answer = sender.try_send_request(message);
        drive(connection, answer).await.map_err(|mut failed| {
            let unsent = failed.take_message();
            Failure { error: failed.into_error(), unsent }
        })
    }

    /// Waits for `wanted` while the bytes of the connection move.
    pub(super) async fn drive<T>(&mut self, wanted: impl Future<Output = T>) -> T {
        drive(&mut self.connection, wanted).await
    }

    /// Lets the connection take notice of what has happened, without waiting.
    pub(super) async fn settle(&mut self) {
        self.drive(std::future::ready(())).await;
    }

    /// Whether it could take another request.
    pub(super) fn is_open(&self) -> bool {
        self.connection.is_some() && !self.sender.is_closed()
    }

    /// Whether it leads to where `url` does.
    pub(super) fn serves(&self, url: &WebUrl) -> bool {
        self.url.is_secure() == url.is_secure() && self.url.rule() == url.rule()
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Line({:?})", self.url)
    }
}

async fn drive<T>(connection: &mut Option<Pin<Box<Moving>>>, wanted: impl Future<Output = T>) -> T {
    let mut wanted = pin!(wanted);
    std::future::poll_fn(|context: &mut Context<'_>| {
        if let Some(moving) = connection
            && moving.as_mut().poll(context).is_ready()
        {
            // Whoever waits for an answer is told by the channel between the two; so is why.
            *connection = None;
        }
        match wanted.as_mut().poll(context) {
            // The connection has to hear of what was taken from it (room for more of a body) before both wait.
            Poll::Ready(value) => Poll::Ready(value),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn secure(
    trust: &Trust,
    url: &WebUrl,
    stream: tokio::net::TcpStream,
) -> Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>, OutboundError> {
    let misuse = |reason: String| OutboundError::Misuse { origin: url.origin(), reason };
    let trust = trust.clone();
    // The first use reads a store from disk.
    let config = tokio::task::spawn_blocking(move || trust.config()).await;
    let config = config.map_err(|error| misuse(error.to_string()))?.map_err(misuse)?;
    let name = ServerName::try_from(url.host()).map_err(|error| misuse(error.to_string()))?;
    match timeout(TLS_LIMIT, TlsConnector::from(config).connect(name, stream)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
            Some(refusal) => Err(OutboundError::Tls { origin: url.origin(), reason: tls_reason(refusal) }),
            None => {
                let reason = format!("it ended the connection before TLS was agreed on: {error}");
                Err(OutboundError::Unreachable { origin: url.origin(), reason })
            }
        },
        Err(_) => Err(OutboundError::timed_out(url, "agreed on no TLS", TLS_LIMIT)),
    }
}

/// Why TLS did not come about, in words for whoever runs the host.
fn tls_reason(error: &TlsError) -> String {
    match error {
        TlsError::InvalidCertificate(problem) => match problem {
            CertificateError::UnknownIssuer => {
                "its certificate is signed by nobody this machine trusts; the setting `extra_roots` names more"
                    .to_owned()
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet; the clock of this machine may be wrong".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another host".to_owned()
            }
            CertificateError::Revoked => "its certificate was revoked".to_owned(),
            _ => "its certificate is not valid".to_owned(),
        },
        TlsError::InvalidMessage(_) => "it does not speak TLS on this port".to_owned(),
        other => other.to_string(),
    }
}
