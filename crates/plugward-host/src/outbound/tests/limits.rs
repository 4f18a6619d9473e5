//! Servers that do not end, or do not stop: every wait has an end and every length a limit (invariants 3 and 7).

use super::server::{Answer, Then};
use super::*;

async fn server(text: &str, then: Then) -> Server {
    Server::start(Answer { bytes: text.as_bytes().to_vec(), then }, None).await
}

const QUICK: Limits = Limits { head: Duration::from_millis(300), ..LIMITS };

/// What a whole exchange ends in.
async fn end(server: &Server, limits: Limits) -> OutboundError {
    let way = way(&["*"], "192.0.2.7", server);
    match get(&way, "http://api.example.test/", limits).await {
        Ok(response) => response.into_bytes().await.unwrap_err(),
        Err(error) => error,
    }
}

// Rows I1 and I2 of the seed's faults: a receiver that cuts its answer short or drips it for ever was waited for for ever.
#[tokio::test]
async fn an_answer_that_does_not_end_has_an_end() {
    let silent = server("", Then::Silence).await;
    assert!(matches!(end(&silent, QUICK).await, OutboundError::TimedOut { what: "gave no answer", .. }));
    let half_a_head = server("HTTP/1.1 200 OK\r\ncontent-le", Then::Silence).await;
    assert!(matches!(end(&half_a_head, QUICK).await, OutboundError::TimedOut { what: "gave no answer", .. }));
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\nx";
    let limits = Limits { quiet: Duration::from_millis(300), ..LIMITS };
    let stalled = end(&server(head, Then::Silence).await, limits).await;
    assert_eq!(stalled.to_string(), "`http://api.example.test` sent nothing more within 300 ms");
    let limits = Limits { total: Some(Duration::from_millis(400)), ..LIMITS };
    let dripped = end(&server(head, Then::Drip).await, limits).await;
    assert_eq!(dripped.to_string(), "`http://api.example.test` did not finish its answer within 400 ms");
    let cut = end(&server(head, Then::Close).await, LIMITS).await;
    assert!(matches!(cut, OutboundError::Broken { .. }), "{cut}");
    let nothing = end(&server("", Then::Close).await, LIMITS).await;
    assert!(matches!(nothing, OutboundError::Broken { .. }), "{nothing}");
}

#[tokio::test]
async fn what_is_too_large_is_not_read() {
    let limits = Limits { body_bytes: Some(1000), ..LIMITS };
    let too_large = |what: &'static str, limit_bytes: u64| OutboundError::TooLarge {
        origin: "http://api.example.test".to_owned(),
        what,
        limit_bytes,
    };
    let announced = server("HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n", Then::Silence).await;
    assert_eq!(end(&announced, limits).await, too_large("a body", 1000));
    let unannounced = server("HTTP/1.1 200 OK\r\n\r\nx", Then::Flood).await;
    assert_eq!(end(&unannounced, limits).await, too_large("a body", 1000));
    let head = server("HTTP/1.1 200 OK\r\nx-long: x", Then::Flood).await;
    assert_eq!(end(&head, limits).await, too_large("a head", 65_536));
    let many = "x: y\r\n".repeat(200);
    let many = server(&format!("HTTP/1.1 200 OK\r\n{many}content-length: 0\r\n\r\n"), Then::Listen).await;
    assert!(matches!(end(&many, limits).await, OutboundError::TooLarge { what: "a head", .. }));
    let fits =
        server(&format!("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{}", "x".repeat(1000)), Then::Listen).await;
    let way = way(&["*"], "192.0.2.7", &fits);
    let response = get(&way, "http://api.example.test/", limits).await.unwrap();
    assert_eq!(response.into_bytes().await.unwrap().len(), 1000);
}

#[tokio::test]
async fn what_is_no_http_is_told_as_such() {
    for answer in [
        "SSH-2.0-OpenSSH_9.2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ] {
        let refused = end(&server(answer, Then::Close).await, LIMITS).await;
        assert!(matches!(refused, OutboundError::Protocol { .. }), "{answer}: {refused}");
    }
}

/// Streams of events are read as they come, for as long as they are wanted, and one that is not read costs a bounded
/// amount of memory.
#[tokio::test]
async fn a_stream_is_read_in_pieces() {
    let events = server("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n", Then::Flood).await;
    let way = way(&["*"], "192.0.2.7", &events);
    let limits = Limits { total: None, body_bytes: None, ..LIMITS };
    let mut body = get(&way, "http://api.example.test/", limits).await.unwrap().body;
    let mut received = 0;
    while received < 4_000_000 {
        let chunk = body.next_chunk().await.unwrap().expect("it does not end");
        assert!(chunk.len() <= 65_536, "{}", chunk.len());
        received += chunk.len();
    }
}

/// A reader that waits for two things at once drops one wait after the other.
#[tokio::test]
async fn a_wait_for_a_piece_can_be_broken_off() {
    let server = server("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", Then::Drip).await;
    let way = way(&["*"], "192.0.2.7", &server);
    let mut body = get(&way, "http://api.example.test/", LIMITS).await.unwrap().body;
    let mut received = Vec::new();
    loop {
        tokio::select! {
            biased;
            chunk = body.next_chunk() => match chunk.unwrap() {
                Some(chunk) => received.extend_from_slice(&chunk),
                None => break,
            },
            () = tokio::task::yield_now() => {}
        }
    }
    assert_eq!(received, b"abb");
    assert_eq!(body.next_chunk().await, Ok(None), "the end stays the end");
}
