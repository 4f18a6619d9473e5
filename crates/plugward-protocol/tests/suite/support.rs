//! A connection with a virtual clock and shorthands for what tests say to it. Refuses to hide events: a test that does
//! not drain them sees them in its next look.

use std::time::{Duration, Instant};

use plugward_protocol::{
    ClientHello, Connection, ConnectionConfig, Event, Implementation, OutboundId, ProtocolVersion, RequestTiming,
    ServerHelloOut,
};
use serde_json::Value;
use serde_json::value::RawValue;

/// Limit of handshakes and, unless a test says otherwise, of requests.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) fn hello(capabilities: &str) -> ClientHello {
    ClientHello {
        version: ProtocolVersion::LATEST_LEGACY,
        client: Implementation { name: "plugward".to_owned(), version: "0.1.0".to_owned(), title: None },
        capabilities: raw(capabilities),
    }
}

pub(crate) fn hello_out() -> ServerHelloOut {
    ServerHelloOut {
        server: Implementation { name: "plugward".to_owned(), version: "0.1.0".to_owned(), title: None },
        capabilities: raw(r#"{"tools":{"listChanged":true}}"#),
        instructions: None,
    }
}

/// One connection under test; the test plays the peer.
pub(crate) struct Driven {
    pub(crate) connection: Connection,
    pub(crate) now: Instant,
}

impl Driven {
    pub(crate) fn new(config: ConnectionConfig) -> Self {
        Driven { connection: Connection::new(config), now: Instant::now() }
    }

    /// A client whose handshake is done.
    pub(crate) fn ready_client(config: ConnectionConfig, capabilities: &str) -> Self {
        let mut driven = Driven::new(config);
        driven.connection.start_handshake(driven.now, hello(capabilities), LIMIT).unwrap();
        driven.say(r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}}"#);
        assert!(matches!(driven.events()[..], [Event::Handshaken(_)]));
        driven.connection.confirm_handshake(driven.now).unwrap();
        driven.lines();
        driven
    }

    /// A server whose handshake is done in the given revision.
    pub(crate) fn ready_server(version: &str) -> Self {
        let mut driven = Driven::new(ConnectionConfig::server());
        driven.say(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"demo-client","version":"0"}}}}}}"#
        ));
        let events = driven.events();
        let [Event::Initialize { id, .. }] = &events[..] else { panic!("{events:?}") };
        assert!(driven.connection.accept_handshake(driven.now, id, &hello_out()).is_some());
        driven.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        assert!(matches!(driven.events()[..], [Event::Initialized]));
        driven.lines();
        driven
    }

    /// The peer writes one line.
    pub(crate) fn say(&mut self, line: &str) {
        self.bytes(format!("{line}\n").as_bytes());
    }

    /// The peer writes bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.connection.handle_input(self.now, bytes);
    }

    /// Time passes, and is noticed.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.connection.handle_timeout(self.now);
    }

    /// Sends a request of ours.
    pub(crate) fn request(&mut self, method: &str, params: &str) -> OutboundId {
        self.request_within(method, params, RequestTiming::within(LIMIT))
    }

    pub(crate) fn request_within(&mut self, method: &str, params: &str, timing: RequestTiming) -> OutboundId {
        let id = self.connection.reserve_id();
        self.connection.send_request(self.now, id, method, Some(raw(params)), timing).unwrap();
        id
    }

    /// What was written since the last look, as text without newline.
    pub(crate) fn texts(&mut self) -> Vec<String> {
        let mut texts = Vec::new();
        while let Some(line) = self.connection.poll_transmit() {
            let text = String::from_utf8(line).unwrap();
            texts.push(text.strip_suffix('\n').expect("a line ends in a newline").to_owned());
        }
        texts
    }

    /// What was written since the last look, parsed.
    pub(crate) fn lines(&mut self) -> Vec<Value> {
        self.texts().iter().map(|text| serde_json::from_str(text).unwrap()).collect()
    }

    /// What happened since the last look.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.connection.poll_event()).collect()
    }
}

/// The text of the only content block of an answer.
pub(crate) fn answer_text(event: &Event, expected: OutboundId) -> String {
    match event {
        Event::Response { id, outcome: Ok(result) } if *id == expected => result.get().to_owned(),
        other => panic!("no answer to {expected}: {other:?}"),
    }
}
