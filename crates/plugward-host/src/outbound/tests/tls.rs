//! TLS: who a server has to be. The certificates here are of a made-up authority, which the tests add as a person would.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::server::{Answer, Then, tls};
use super::*;

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npong";

async fn server(pem: &[u8]) -> Server {
    Server::start(Answer { bytes: ANSWER.as_bytes().to_vec(), then: Then::Listen }, Some(tls(pem))).await
}

#[tokio::test]
async fn a_server_has_to_prove_its_name() {
    let good = server(include_bytes!("server.pem")).await;
    let to_good = way(&["*"], "192.0.2.7", &good);
    assert_eq!(fetched(&to_good, "https://api.example.test/").await, Ok((200, "pong".to_owned())));
    assert_eq!(fetched(&to_good, "https://127.0.0.1:4443/").await, Ok((200, "pong".to_owned())));
    let reason = async |way: &Outbound<Stage>, place: &str| match fetched(way, place).await {
        Err(OutboundError::Tls { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(&to_good, "https://192.0.2.8/").await, "its certificate is for another host");
    let expired = server(include_bytes!("expired.pem")).await;
    let to_expired = way(&["*"], "192.0.2.7", &expired);
    assert_eq!(reason(&to_expired, "https://api.example.test/").await, "its certificate has expired");
    // What was meant for TLS does not go out without it, also where the server answers in plain text.
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = plain.local_addr().unwrap();
    let listening = tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.unwrap();
        let mut heard = [0; 4096];
        let count = stream.read(&mut heard).await.unwrap();
        stream.write_all(ANSWER.as_bytes()).await.unwrap();
        heard[..count].to_vec()
    });
    let mut to_plain = way(&["*"], "192.0.2.7", &good);
    to_plain.outside.server = address;
    assert_eq!(reason(&to_plain, "https://api.example.test/").await, "it does not speak TLS on this port");
    assert!(listening.await.unwrap().starts_with(&[22, 3]), "a TLS greeting and nothing else");
    assert!(good.heard().len() == 2 && expired.heard().is_empty());
}

/// The machine's own store does not know our authority; the control for the tests above.
#[tokio::test]
async fn an_authority_nobody_added_is_not_trusted() {
    let server = server(include_bytes!("server.pem")).await;
    let mut way = way(&["*"], "192.0.2.7", &server);
    way.trust = Trust::default();
    let refused = fetched(&way, "https://api.example.test/").await.unwrap_err();
    assert!(refused.to_string().contains("extra_roots"), "{refused}");
    assert!(server.heard().is_empty());
}

#[test]
fn a_file_of_roots_says_what_is_wrong_with_it() {
    assert_eq!(Trust::with_added(b"").unwrap_err(), TrustError::Empty);
    assert_eq!(Trust::with_added(b"hello").unwrap_err(), TrustError::Empty);
    let broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(Trust::with_added(broken), Err(TrustError::Certificate { number: 1, .. })));
    let both = [include_bytes!("authority.pem").as_slice(), broken].concat();
    assert!(matches!(Trust::with_added(&both), Err(TrustError::Certificate { number: 2, .. })));
}
