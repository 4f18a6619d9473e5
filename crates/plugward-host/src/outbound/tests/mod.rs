//! The way out against servers that misbehave: real sockets, real TLS, and a stage that says where names lead.

mod limits;
mod server;
mod tls;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use tokio::net::TcpStream;

use super::*;
use server::Server;

/// Bound for everything that has to happen; nothing is expected to take this long.
const PATIENCE: Duration = Duration::from_secs(20);

const LIMITS: Limits = Limits { head: PATIENCE, quiet: PATIENCE, total: Some(PATIENCE), body_bytes: Some(100_000) };

/// Where names lead, and one server at every address.
struct Stage {
    names: BTreeMap<&'static str, IpAddr>,
    server: SocketAddr,
    own: Option<IpAddr>,
    dialled: Mutex<Vec<String>>,
    looked_up: Mutex<Vec<String>>,
}

impl Outside for Stage {
    async fn resolve(&self, name: String) -> io::Result<Vec<IpAddr>> {
        self.looked_up.lock().unwrap().push(name.clone());
        self.names.get(name.as_str()).map(|address| vec![*address]).ok_or_else(|| io::Error::other("no such name"))
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.dialled.lock().unwrap().push(address.to_string());
        TcpStream::connect(self.server).await
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.own == Some(address)
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn url(text: &str) -> WebUrl {
    WebUrl::new(text).unwrap()
}

/// A way out to `rules`, on a stage where `api.example.test` leads to `address` and `server` is everywhere.
fn way(rules: &[&str], address: &str, server: &Server) -> Outbound<Stage> {
    let rules = rules.iter().map(|rule| NetRule::new(rule).unwrap()).collect();
    let stage = Stage {
        names: [("api.example.test", ip(address))].into(),
        server: server.address,
        own: Some(ip("198.51.100.9")),
        dialled: Mutex::default(),
        looked_up: Mutex::default(),
    };
    Outbound::through(rules, Trust::with_added(include_bytes!("authority.pem")).unwrap(), stage)
}

async fn get(way: &Outbound<Stage>, text: &str, limits: Limits) -> Result<Response, OutboundError> {
    let url = url(text);
    let request = Request { method: Method::GET, url: &url, headers: &[], body: Bytes::new(), limits };
    tokio::time::timeout(PATIENCE * 2, way.request(request)).await.expect("a request has an end")
}

/// Status and body of a whole exchange.
async fn fetched(way: &Outbound<Stage>, text: &str) -> Result<(u16, String), OutboundError> {
    let response = get(way, text, LIMITS).await?;
    let status = response.status.as_u16();
    Ok((status, String::from_utf8(response.into_bytes().await?).unwrap()))
}

// Requirement 91 for the host itself: what was granted is reached, at the address that was judged, looked up once.
#[tokio::test]
async fn the_address_that_was_judged_is_dialled() {
    let server = Server::answering("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npong").await;
    let way = way(&["api.example.test:80"], "192.0.2.7", &server);
    assert_eq!(fetched(&way, "http://api.example.test/a?b=1").await, Ok((200, "pong".to_owned())));
    assert_eq!(*way.outside.looked_up.lock().unwrap(), ["api.example.test"]);
    assert_eq!(*way.outside.dialled.lock().unwrap(), ["192.0.2.7:80"]);
    let head = server.heard().remove(0);
    assert!(head.starts_with("GET /a?b=1 HTTP/1.1\r\nhost: api.example.test\r\n"), "{head}");
    assert!(head.contains("accept-encoding: identity\r\n") && head.contains("user-agent: plugward/"), "{head}");
}

// Row V6 of the seed's faults: a name that leads to this machine, its network or its keys is not called.
#[tokio::test]
async fn near_services_are_not_reached_by_a_far_name() {
    let server = Server::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    for (address, words) in [
        ("127.0.0.1", "services of this machine"),
        ("169.254.169.254", "metadata"),
        ("10.0.0.1", "private network"),
        ("::ffff:127.0.0.1", "services of this machine"),
        ("198.51.100.9", "an address of this machine"),
    ] {
        let way = way(&["api.example.test:80"], address, &server);
        let refused = fetched(&way, "http://api.example.test/secret").await.unwrap_err();
        let OutboundError::Refused { reason, .. } = &refused else { panic!("{refused}") };
        assert!(reason.contains(words) && !refused.to_string().contains("secret"), "{refused}");
    }
    let way = way(&["api.example.test:80"], "192.0.2.7", &server);
    for place in ["http://169.254.169.254/", "http://localhost/", "http://other.test/", "http://api.example.test:81/"] {
        assert!(matches!(fetched(&way, place).await, Err(OutboundError::Refused { .. })), "{place}");
    }
    assert!(server.heard().is_empty() && way.outside.looked_up.lock().unwrap().is_empty());
}

/// Who grants this machine by its name reaches it: a receiver on the developer's own machine.
#[tokio::test]
async fn this_machine_is_reached_where_it_was_granted() {
    let server = Server::answering("HTTP/1.1 204 No Content\r\n\r\n").await;
    let way = way(&["localhost:3000", "127.0.0.1:4000"], "192.0.2.7", &server);
    assert_eq!(fetched(&way, "http://localhost:3000/").await.unwrap().0, 204);
    assert_eq!(fetched(&way, "http://127.0.0.1:4000/").await.unwrap().0, 204);
    assert!(way.outside.looked_up.lock().unwrap().is_empty());
}

/// Each status but a redirect is an answer: what it means is for the caller.
#[tokio::test]
async fn redirects_are_refused_and_other_answers_are_not() {
    for (answer, to) in [
        (
            "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/keys\r\ncontent-length: 0\r\n\r\n",
            Some("http://169.254.169.254"),
        ),
        ("HTTP/1.1 307 T\r\nlocation: /elsewhere?token=1\r\ncontent-length: 0\r\n\r\n", None),
    ] {
        let server = Server::answering(answer).await;
        let way = way(&["*"], "192.0.2.7", &server);
        let refused = fetched(&way, "http://api.example.test/").await.unwrap_err();
        let OutboundError::Redirected { to: found, .. } = &refused else { panic!("{refused}") };
        assert_eq!(found.as_deref(), to);
        assert!(!refused.to_string().contains("keys") && !refused.to_string().contains("token"), "{refused}");
        assert_eq!(server.heard().len(), 1, "it was followed");
    }
    for status in [400, 401, 404, 429, 500, 503] {
        let server = Server::answering(&format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\nno")).await;
        let way = way(&["*"], "192.0.2.7", &server);
        assert_eq!(fetched(&way, "http://api.example.test/").await, Ok((status, "no".to_owned())));
    }
}

/// Two opinions on where a message ends are how a second request is smuggled in; one line too many is a header of its own.
#[tokio::test]
async fn headers_that_frame_the_message_are_not_for_callers() {
    let server = Server::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let way = way(&["*"], "192.0.2.7", &server);
    let url = url("http://api.example.test/");
    let send = async |name: &'static str, value: &str| {
        let headers = [(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())];
        let body = Bytes::from_static(b"{}");
        way.request(Request { method: Method::POST, url: &url, headers: &headers, body, limits: LIMITS }).await
    };
    for name in ["host", "content-length", "transfer-encoding", "connection", "keep-alive", "accept-encoding"] {
        let refused = send(name, "1").await.unwrap_err();
        assert!(matches!(&refused, OutboundError::Misuse { reason, .. } if reason.contains(name)), "{refused}");
    }
    assert!(HeaderValue::from_str("a\r\nx: y").is_err());
    send("authorization", "Bearer t").await.unwrap();
    send("user-agent", "mine/1").await.unwrap();
    let heard = server.heard();
    assert!(heard[0].contains("authorization: Bearer t\r\n") && heard[0].ends_with("content-length: 2\r\n\r\n{}"));
    assert!(heard[1].contains("user-agent: mine/1\r\n") && !heard[1].contains("plugward"), "{}", heard[1]);
}

/// A connection serves the next request, and one that was closed meanwhile costs no request.
#[tokio::test]
async fn connections_are_kept_and_replaced() {
    let server = Server::answering("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npong").await;
    let way = way(&["*"], "192.0.2.7", &server);
    for _ in 0..3 {
        assert_eq!(fetched(&way, "http://api.example.test/").await.unwrap().1, "pong");
    }
    assert_eq!((way.outside.dialled.lock().unwrap().len(), server.heard().len()), (1, 3));
    // Another host, though at the same address, is another connection.
    fetched(&way, "http://192.0.2.7/").await.unwrap();
    assert_eq!(way.outside.dialled.lock().unwrap().len(), 2);
    server.close_all().await;
    assert_eq!(fetched(&way, "http://api.example.test/").await.unwrap().1, "pong");
    assert_eq!((way.outside.dialled.lock().unwrap().len(), server.heard().len()), (3, 5));
    // An answer that was not read to its end leaves nothing to use again.
    drop(get(&way, "http://api.example.test/", LIMITS).await.unwrap());
    fetched(&way, "http://api.example.test/").await.unwrap();
    assert_eq!(way.outside.dialled.lock().unwrap().len(), 4);
}
