//! A receiver of webhooks that answers as it is told, and keeps what it was sent.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::support::eventually;

/// The made-up authority that signed the receiver's certificate.
pub(super) const AUTHORITY: &[u8] = include_bytes!("../../../../plugward-host/src/outbound/tests/authority.pem");
const CERTIFICATE: &[u8] = include_bytes!("../../../../plugward-host/src/outbound/tests/server.pem");
const KEY: &[u8] = include_bytes!("../../../../plugward-host/src/outbound/tests/server.key");

/// What is done with a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reaction {
    Status(u16),
    /// The status, then less of a body than was announced.
    CutShort,
    /// The status, then a byte now and then, without end.
    Drip,
    /// Nothing, for as long as the sender waits.
    Silence,
    /// Close the connection.
    HangUp,
    /// Another place.
    Redirect,
    /// 200 with a body that is compressed, which nobody asked for and nobody reads.
    Compressed,
}

/// One request.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) head: String,
    pub(super) body: String,
}

impl Received {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    task: JoinHandle<()>,
}

impl Receiver {
    /// Reacts to one request after the other, and to all that follow with status 200.
    pub(super) async fn reacting(reactions: &[Reaction]) -> Self {
        Self::start(reactions, None).await
    }

    /// Answers every request with status 200, over TLS.
    pub(super) async fn over_tls() -> Self {
        let chain = CertificateDer::pem_slice_iter(CERTIFICATE).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = builder.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
        Self::start(&[], Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn start(reactions: &[Reaction], tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let reactions: Arc<Mutex<VecDeque<Reaction>>> = Arc::new(Mutex::new(reactions.iter().copied().collect()));
        let received = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&received);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (reactions, kept, tls) = (Arc::clone(&reactions), Arc::clone(&kept), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, reactions, kept).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serve(stream, reactions, kept).await,
                            Err(_refused_by_the_sender) => {}
                        },
                    }
                });
            }
        });
        Self { address, received, task }
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Waits until it was sent so many requests.
    pub(super) async fn has(&self, count: usize) -> Vec<Received> {
        eventually("requests at the receiver", || {
            let received = self.received();
            (received.len() >= count).then_some(received)
        })
        .await
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    reactions: Arc<Mutex<VecDeque<Reaction>>>,
    kept: Arc<Mutex<Vec<Received>>>,
) {
    let mut pending = Vec::new();
    while let Some(request) = request(&mut stream, &mut pending).await {
        let reaction = reactions.lock().unwrap().pop_front().unwrap_or(Reaction::Status(200));
        kept.lock().unwrap().push(request);
        let answer = match reaction {
            Reaction::Status(status) => format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\nok"),
            Reaction::CutShort | Reaction::Drip => "HTTP/1.1 200 X\r\ncontent-length: 99999\r\n\r\nok".to_owned(),
            Reaction::Compressed => {
                "HTTP/1.1 200 X\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nok".to_owned()
            }
            Reaction::Redirect => {
                "HTTP/1.1 302 X\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n".to_owned()
            }
            Reaction::Silence => {
                while stream.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
                return;
            }
            Reaction::HangUp => return,
        };
        let _gone = stream.write_all(answer.as_bytes()).await;
        let _gone = stream.flush().await;
        match reaction {
            Reaction::CutShort => return,
            Reaction::Drip => {
                while stream.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            _ => {}
        }
    }
}

async fn request<S: AsyncRead + Unpin>(stream: &mut S, pending: &mut Vec<u8>) -> Option<Received> {
    loop {
        if let Some(end) = pending.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(pending[..end + 2].to_vec()).unwrap();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let total = end + 4 + length.map_or(0, |text| text.parse::<usize>().unwrap());
            if pending.len() >= total {
                let body = String::from_utf8(pending[end + 4..total].to_vec()).unwrap();
                pending.drain(..total);
                return Some(Received { head, body });
            }
        }
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
        pending.extend_from_slice(&chunk[..count]);
    }
}
