//! The listener itself: where it may listen, what it does with broken requests, and how it ends.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::Api;
use crate::api::{Options, bind, serve};

/// Generous: a busy machine is no failure.
const PATIENCE: Duration = Duration::from_secs(30);

struct Listening {
    api: Api,
    address: std::net::SocketAddr,
    stop: CancellationToken,
    server: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl Listening {
    async fn new() -> Self {
        let api = Api::new().await;
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(
            api.host.clone(),
            listener,
            Options::new(api.token.clone()),
            axum::Router::new(),
            stop.clone(),
        ));
        Self { api, address, stop, server }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes and reads until the other side closes.
    async fn exchange(&self, request: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        String::from_utf8(answer).unwrap()
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.server).await.unwrap().unwrap().unwrap();
        assert!(TcpStream::connect(self.address).await.is_err(), "it listens after its end");
    }
}

/// This version is for one machine: an address that others can reach is a mistake, not a choice.
#[tokio::test]
async fn only_loopback_addresses_are_listened_on() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:0.0.0.0]:0"] {
        let error = bind(address.parse().unwrap()).await.unwrap_err().to_string();
        assert!(error.contains("can be reached from other machines"), "{address}: {error}");
    }
    for address in ["127.0.0.1:0", "127.0.0.2:0"] {
        assert!(bind(address.parse().unwrap()).await.is_ok(), "{address}");
    }
    // Whoever opened it.
    let api = Api::new().await;
    let open = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let served =
        serve(api.host.clone(), open, Options::new(api.token.clone()), axum::Router::new(), CancellationToken::new())
            .await;
    assert!(served.unwrap_err().to_string().contains("can be reached from other machines"));
}

#[tokio::test]
async fn broken_requests_are_refused_and_the_next_caller_is_served() {
    let listening = Listening::new().await;
    let many_headers = "x-a: 1\r\n".repeat(200);
    let long_header = format!("x-a: {}\r\n", "a".repeat(64 * 1024));
    let table = [
        ("\0\0\0\0\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost : localhost\r\n\r\n".to_owned(), "400"),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many_headers}\r\n"), "431"),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\n{long_header}\r\n"), "431"),
        ("GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n".to_owned(), "400"),
    ];
    for (request, status) in table {
        let answer = listening.exchange(request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{:.40}: {answer:.200}", request.escape_debug());
    }
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert!(listening.exchange(request.as_bytes()).await.ends_with(r#"{"status":"ok"}"#));
    listening.end().await;
}

/// A body without a declared length is counted while it arrives.
#[tokio::test]
async fn a_body_in_chunks_is_cut_off_at_the_limit() {
    let listening = Listening::new().await;
    let bearer = listening.api.bearer();
    let mut stream = listening.connect().await;
    let head = format!(
        "POST /api/plugins/install HTTP/1.1\r\nHost: localhost\r\nAuthorization: {bearer}\r\n\
         Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("4000\r\n{}\r\n", " ".repeat(0x4000));
    // More than the limit and far less than a connection can hold unread.
    for _ in 0..5 {
        stream.write_all(chunk.as_bytes()).await.unwrap();
    }
    let mut answer = vec![0u8; 12];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(answer, b"HTTP/1.1 413");
    listening.end().await;
}

/// The end of the host waits neither for idle connections nor for half a request.
#[tokio::test]
async fn the_stop_ends_idle_and_half_open_connections() {
    let listening = Listening::new().await;
    let idle = listening.connect().await;
    let mut half = listening.connect().await;
    half.write_all(b"POST /api/plugins/install HTTP/1.1\r\nHost: loc").await.unwrap();
    let mut kept = listening.connect().await;
    kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = [0u8; 15];
    kept.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    listening.end().await;
    drop((idle, half, kept));
}
