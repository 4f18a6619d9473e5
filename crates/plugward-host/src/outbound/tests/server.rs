//! A server that answers every request with the same bytes, whatever they are, and keeps what it heard.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// What is written after a request, with what follows it.
#[derive(Clone)]
pub(super) struct Answer {
    pub(super) bytes: Vec<u8>,
    pub(super) then: Then,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Then {
    /// Wait for the next request.
    Listen,
    /// Close the connection.
    Close,
    /// Say nothing more.
    Silence,
    /// Repeat the last byte, a little at a time, without end.
    Drip,
    /// Repeat the last byte as fast as it is taken.
    Flood,
}

pub(super) struct Server {
    pub(super) address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
    closing: watch::Sender<u32>,
    open: Arc<Mutex<usize>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(super) async fn answering(text: &str) -> Self {
        Self::start(Answer { bytes: text.as_bytes().to_vec(), then: Then::Listen }, None).await
    }

    pub(super) async fn start(answer: Answer, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (closing, watching) = watch::channel(0);
        let (heard, open) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let (kept, opened) = (Arc::clone(&heard), Arc::clone(&open));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (answer, kept, opened, tls) = (answer.clone(), Arc::clone(&kept), Arc::clone(&opened), tls.clone());
                let mut watching = watching.clone();
                watching.mark_unchanged();
                *opened.lock().unwrap() += 1;
                tokio::spawn(async move {
                    let served = async {
                        match tls {
                            None => serve(stream, answer, &kept).await,
                            Some(tls) => match tls.accept(stream).await {
                                Ok(stream) => serve(stream, answer, &kept).await,
                                Err(_refused_by_client) => {}
                            },
                        }
                    };
                    tokio::select! {
                        () = served => {}
                        _ = watching.changed() => {}
                    }
                    *opened.lock().unwrap() -= 1;
                });
            }
        });
        Self { address, heard, closing, open, task }
    }

    /// Each request as it came, head and body.
    pub(super) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    /// Closes every open connection, and waits until that is so.
    pub(super) async fn close_all(&self) {
        self.closing.send_modify(|number| *number += 1);
        while *self.open.lock().unwrap() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// TLS with the certificate of `pem`.
pub(super) fn tls(pem: &[u8]) -> TlsAcceptor {
    let chain = CertificateDer::pem_slice_iter(pem).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    TlsAcceptor::from(Arc::new(builder.with_no_client_auth().with_single_cert(chain, key).unwrap()))
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, answer: Answer, kept: &Mutex<Vec<String>>) {
    let mut pending = Vec::new();
    loop {
        let length = loop {
            if let Some(length) = request_length(&pending) {
                break length;
            }
            let mut chunk = [0; 4096];
            match stream.read(&mut chunk).await {
                Ok(0) | Err(_) => return,
                Ok(count) => pending.extend_from_slice(&chunk[..count]),
            }
        };
        let request: Vec<u8> = pending.drain(..length).collect();
        kept.lock().unwrap().push(String::from_utf8(request).unwrap());
        if stream.write_all(&answer.bytes).await.is_err() {
            return;
        }
        let _gone = stream.flush().await;
        match answer.then {
            Then::Listen => {}
            Then::Close => {
                let _gone = stream.shutdown().await;
                return;
            }
            Then::Silence => {
                // Until the client leaves.
                while stream.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
                return;
            }
            Then::Drip | Then::Flood => {
                let piece = vec![*answer.bytes.last().unwrap(); if answer.then == Then::Drip { 1 } else { 16 * 1024 }];
                while stream.write_all(&piece).await.is_ok() && stream.flush().await.is_ok() {
                    if answer.then == Then::Drip {
                        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                    }
                }
                return;
            }
        }
    }
}

/// Length of the first request in `bytes`, once it is whole.
fn request_length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let body =
        text.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |text| text.parse().unwrap());
    (bytes.len() >= head + body).then_some(head + body)
}
