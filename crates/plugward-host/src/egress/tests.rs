//! The way out with a stand-in for the outside: what is looked up, what is dialled, and what is noted.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plugward_policy::NetRule;
use plugward_sandbox::Listeners;
use plugward_store::Redactor;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Attempts, Egress, EgressPlan, Outside, greeting, names, relay};
use crate::views::{AttemptOutcome, NetworkAttempt};

/// Bound for what takes milliseconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The world as a test makes it: names with their addresses, and one server behind every address that answers.
#[derive(Clone, Default)]
struct Staged(Arc<Stage>);

#[derive(Default)]
struct Stage {
    names: BTreeMap<&'static str, Vec<IpAddr>>,
    own: Vec<IpAddr>,
    server: Option<SocketAddr>,
    looked_up: Mutex<Vec<String>>,
    dialled: Mutex<Vec<SocketAddr>>,
}

impl Outside for Staged {
    async fn resolve(&self, name: String) -> io::Result<Vec<IpAddr>> {
        let found = self.0.names.get(name.as_str()).cloned();
        self.0.looked_up.lock().unwrap().push(name);
        found.ok_or_else(|| io::Error::other("no such name"))
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.0.dialled.lock().unwrap().push(address);
        match self.0.server {
            Some(server) => TcpStream::connect(server).await,
            None => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.0.own.contains(&address)
    }
}

/// An egress that runs, with a listener on this machine for each of its doors.
struct Running {
    doors: Vec<SocketAddr>,
    names: SocketAddr,
    attempts: Arc<Attempts>,
    stage: Staged,
    over: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    fn start(plan: EgressPlan, stage: Stage) -> Self {
        let stage = Staged(Arc::new(stage));
        let tcp: Vec<std::net::TcpListener> =
            plan.doors.iter().map(|_| std::net::TcpListener::bind("0.0.0.0:0").unwrap()).collect();
        let names = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let doors = tcp.iter().map(|it| ([127, 0, 0, 1], it.local_addr().unwrap().port()).into()).collect();
        let asked = names.local_addr().unwrap();
        let attempts = Arc::new(Attempts::new(Redactor::new()));
        let listeners = Listeners { tcp, names: Some(names) };
        let egress = Egress::new(plan, listeners, Arc::clone(&attempts), stage.clone()).unwrap();
        let over = CancellationToken::new();
        let task = tokio::spawn(egress.run(over.clone()));
        Self { doors, names: asked, attempts, stage, over, task }
    }

    fn with_rules(rules: &[&str], stage: Stage) -> Self {
        let rules: BTreeSet<NetRule> = rules.iter().map(|text| NetRule::new(text).unwrap()).collect();
        Self::start(EgressPlan::of(&rules).unwrap(), stage)
    }

    /// What comes back when `bytes` are sent to a door.
    async fn exchange(&self, door: usize, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.doors[door]).await.unwrap();
        // A connection that is cut may be gone before it is written to.
        let _cut = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _cut = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap();
        answer
    }

    async fn connect(&self, target: &str, rest: &str) -> String {
        let request = format!("CONNECT {target} HTTP/1.1\r\n\r\n{rest}");
        String::from_utf8(self.exchange(self.doors.len() - 1, request.as_bytes()).await).unwrap()
    }

    async fn ask(&self, name: &str, kind: u16) -> Vec<u8> {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(&names::tests::query(name, kind), self.names).await.unwrap();
        let mut answer = [0; 512];
        let (length, _) = timeout(PATIENCE, socket.recv_from(&mut answer)).await.unwrap().unwrap();
        answer[..length].to_vec()
    }

    async fn noted(&self, place: &str) -> NetworkAttempt {
        let found = async {
            loop {
                if let Some(found) = self.attempts.view().into_iter().find(|attempt| attempt.place() == place) {
                    return found;
                }
                self.attempts.changed().await;
            }
        };
        timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{place} is not in {:?}", self.attempts.view()))
    }

    fn looked_up(&self) -> Vec<String> {
        self.stage.0.looked_up.lock().unwrap().clone()
    }

    fn dialled(&self) -> Vec<String> {
        self.stage.0.dialled.lock().unwrap().iter().map(ToString::to_string).collect()
    }
}

/// A server that answers each connection with `pong:` and what it was sent, and keeps what it was sent.
async fn server() -> (SocketAddr, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&heard);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let kept = Arc::clone(&kept);
            tokio::spawn(async move {
                let mut bytes = vec![0; 4096];
                let count = stream.read(&mut bytes).await.unwrap_or(0);
                bytes.truncate(count);
                let _cut = stream.write_all(&[b"pong:", bytes.as_slice()].concat()).await;
                kept.lock().unwrap().push(bytes);
            });
        }
    });
    (address, heard)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn names_to(name: &'static str, addresses: &[&str]) -> BTreeMap<&'static str, Vec<IpAddr>> {
    [(name, addresses.iter().map(|text| ip(text)).collect())].into()
}

// Requirement 91: the host that was granted is reached, at the address that was judged, looked up once.
#[tokio::test]
async fn a_granted_name_is_reached_at_the_address_that_was_judged() {
    let (answering, _) = server().await;
    let stage =
        Stage { names: names_to("api.example.test", &["192.0.2.7"]), server: Some(answering), ..Stage::default() };
    let running = Running::with_rules(&["api.example.test"], stage);
    assert_eq!(running.exchange(0, b"ping").await, b"pong:ping");
    assert_eq!(
        (running.looked_up(), running.dialled()),
        (vec!["api.example.test".into()], vec!["192.0.2.7:443".into()])
    );
    let attempt = running.noted("api.example.test:443").await;
    assert_eq!((attempt.outcome, attempt.count), (AttemptOutcome::Allowed, 1));
}

// Threat rows 17 and 21: whoever runs the name must not lead the host to its own services, its network or its keys.
#[tokio::test]
async fn a_granted_name_does_not_lead_to_near_services() {
    let (answering, heard) = server().await;
    for (address, words) in [
        ("127.0.0.1", "services of this machine"),
        ("::ffff:127.0.0.1", "services of this machine"),
        ("169.254.169.254", "metadata"),
        ("10.0.0.1", "private network"),
        ("64:ff9b::7f00:1", "services of this machine"),
        ("198.51.100.9", "is an address of this machine"),
    ] {
        let stage = Stage {
            names: names_to("api.example.test", &[address]),
            own: vec![ip("198.51.100.9")],
            server: Some(answering),
            ..Stage::default()
        };
        let running = Running::with_rules(&["api.example.test"], stage);
        assert_eq!(running.exchange(0, b"ping").await, b"", "{address}");
        let attempt = running.noted("api.example.test:443").await;
        assert_eq!(attempt.outcome, AttemptOutcome::Refused);
        assert!(attempt.reason.contains(words) && attempt.reason.contains("leads to"), "{}", attempt.reason);
        assert!(running.dialled().is_empty(), "{address}");
    }
    assert!(heard.lock().unwrap().is_empty());
    // Among several, only what is permitted is dialled.
    let stage = Stage {
        names: names_to("api.example.test", &["127.0.0.1", "192.0.2.7"]),
        server: Some(answering),
        ..Stage::default()
    };
    let running = Running::with_rules(&["api.example.test"], stage);
    assert_eq!(running.exchange(0, b"ping").await, b"pong:ping");
    assert_eq!(running.dialled(), ["192.0.2.7:443"]);
    // An address that somebody granted by itself is no detour.
    let stage =
        Stage { names: names_to("api.example.test", &["10.0.0.1"]), server: Some(answering), ..Stage::default() };
    let running = Running::with_rules(&["api.example.test", "10.0.0.1"], stage);
    assert_eq!(running.exchange(1, b"ping").await, b"pong:ping");
}

/// What a name of this machine leads to is not for a resolver to say.
#[tokio::test]
async fn this_machine_is_reached_without_a_look_up() {
    let (answering, _) = server().await;
    let running = Running::with_rules(&["app.localhost:3000"], Stage { server: Some(answering), ..Stage::default() });
    assert_eq!(running.exchange(0, b"ping").await, b"pong:ping");
    assert_eq!((running.looked_up().len(), running.dialled()), (0, vec!["127.0.0.1:3000".into()]));
}

/// A host that is down is told from one that was refused: only one of them is for a person to decide.
#[tokio::test]
async fn a_host_that_cannot_be_reached_is_told_as_such() {
    let running = Running::with_rules(
        &["gone.test", "silent.test"],
        Stage { names: names_to("silent.test", &["192.0.2.7"]), ..Stage::default() },
    );
    running.exchange(0, b"ping").await;
    let attempt = running.noted("gone.test:443").await;
    assert_eq!(
        (attempt.outcome, attempt.reason.as_str()),
        (AttemptOutcome::Failed, "its name was not found: no such name")
    );
    running.exchange(1, b"ping").await;
    assert_eq!(running.noted("silent.test:443").await.outcome, AttemptOutcome::Failed);
}

// Threat row 20: the proxy has the same rules, and asks no name server for what they do not cover.
#[tokio::test]
async fn the_proxy_leads_below_its_domain_and_nowhere_else() {
    let (answering, _) = server().await;
    let stage =
        Stage { names: names_to("a.example.test", &["192.0.2.7"]), server: Some(answering), ..Stage::default() };
    let running = Running::with_rules(&["*.example.test"], stage);
    let answer = running.connect("A.Example.test:443", "ping").await;
    assert_eq!(answer, "HTTP/1.1 200 Connection established\r\n\r\npong:ping");
    let asked = running.looked_up();
    for refused in
        ["example.test:443", "a.example.test:80", "evil.test:443", "a.example.test.evil.test:443", "127.0.0.1:443"]
    {
        assert!(running.connect(refused, "ping").await.starts_with("HTTP/1.1 403"), "{refused}");
        assert_eq!(running.noted(refused).await.outcome, AttemptOutcome::Refused);
    }
    for bad in ["evil.test\0.example.test:443", "a.example.test.:443", "[::ffff:127.0.0.1]:443x", "2130706433:443"] {
        let answer = running.connect(bad, "ping").await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{bad}: {answer}");
    }
    assert_eq!(running.looked_up(), asked, "a name that was refused was told to a name server");
    assert!(running.connect("b.example.test:443", "").await.starts_with("HTTP/1.1 502"));
    assert!(
        String::from_utf8(running.exchange(0, b"GET / HTTP/1.1\r\n\r\n").await).unwrap().starts_with("HTTP/1.1 400")
    );
}

// Threat row 20: behind one address there are many sites, and TLS says which one answers.
#[tokio::test]
async fn tls_asks_for_the_host_that_was_granted() {
    let (answering, heard) = server().await;
    let stage =
        Stage { names: names_to("api.example.test", &["192.0.2.7"]), server: Some(answering), ..Stage::default() };
    let running = Running::with_rules(&["api.example.test", "192.0.2.7:444"], stage);
    let (right, wrong) = (greeting::tests::hello("API.example.test"), greeting::tests::hello("evil.test"));
    assert_eq!(running.exchange(1, &right).await, [b"pong:", right.as_slice()].concat());
    assert_eq!(running.exchange(1, &wrong).await, b"");
    let attempt = running.noted("evil.test:443").await;
    assert_eq!(attempt.reason, "TLS asked for it on a connection to api.example.test");
    assert_eq!(running.exchange(1, &[22, 3, 1, 0, 0]).await, b"");
    assert_eq!(
        heard.lock().unwrap().iter().filter(|bytes| !bytes.is_empty()).count(),
        1,
        "nothing of it was passed on"
    );
    // An address was granted as such, whatever it serves.
    assert_eq!(running.exchange(0, &wrong).await, [b"pong:", wrong.as_slice()].concat());
}

/// In many protocols the server speaks first; nothing may wait for the client's first byte.
#[tokio::test]
async fn a_server_may_speak_first() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let stage = Stage { names: names_to("mail.test", &["192.0.2.7"]), server: Some(server), ..Stage::default() };
    let running = Running::with_rules(&["mail.test:25"], stage);
    let mut client = TcpStream::connect(running.doors[0]).await.unwrap();
    let (mut speaking, _) = listener.accept().await.unwrap();
    speaking.write_all(b"220 ready").await.unwrap();
    let mut heard = [0; 9];
    timeout(PATIENCE, client.read_exact(&mut heard)).await.unwrap().unwrap();
    assert_eq!(&heard, b"220 ready");
}

// Threat row 19: a question is a message, so none leaves, and a person sees what was asked.
#[tokio::test]
async fn names_are_answered_here_and_never_passed_on() {
    let running = Running::with_rules(&["api.example.test", "*.example.test"], Stage::default());
    assert!(running.ask("API.example.test", 1).await.ends_with(&[127, 8, 0, 1]));
    assert_eq!(running.ask("telemetry.example", 1).await[3] & 15, 3);
    assert_eq!(running.ask("telemetry.example", 28).await[3] & 15, 3);
    let attempt = running.noted("telemetry.example").await;
    assert_eq!((attempt.outcome, attempt.port, attempt.count), (AttemptOutcome::Refused, None, 1));
    running.ask("other.example.test", 1).await;
    assert!(running.noted("other.example.test").await.reason.contains("proxy setting"));
    assert!(running.looked_up().is_empty());
}

/// For trying a plugin out: it believes that it found its hosts, nothing is looked up, and a person reads how often it asked.
#[tokio::test]
async fn a_watched_plugin_tells_what_it_wants() {
    let running = Running::start(EgressPlan::watching(), Stage::default());
    for _ in 0..3 {
        let answer = running.ask("telemetry.example", 1).await;
        assert!(answer.ends_with(&[127, 9, 0, 1]), "{answer:?}");
    }
    assert!(running.ask("other.example", 1).await.ends_with(&[127, 9, 0, 2]));
    // The question for the newer kind of address, which comes with each of the above, is no question of its own.
    running.ask("other.example", 28).await;
    let counts: Vec<_> = running.attempts.view().into_iter().map(|it| (it.host, it.port, it.count)).collect();
    assert!(counts.contains(&("telemetry.example".to_owned(), None, 3)), "{counts:?}");
    assert!(counts.contains(&("other.example".to_owned(), None, 1)), "{counts:?}");
    assert!(running.looked_up().is_empty() && running.dialled().is_empty());
}

// Invariant 5 for connections: what a plugin opened ends with it.
#[tokio::test]
async fn connections_end_with_the_plugin() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let stage = Stage { names: names_to("api.example.test", &["192.0.2.7"]), server: Some(server), ..Stage::default() };
    let running = Running::with_rules(&["api.example.test"], stage);
    let mut client = TcpStream::connect(running.doors[0]).await.unwrap();
    client.write_all(b"ping").await.unwrap();
    let (mut held, _) = listener.accept().await.unwrap();
    held.read_exact(&mut [0; 4]).await.unwrap();
    running.over.cancel();
    timeout(PATIENCE, running.task).await.unwrap().unwrap();
    assert!(matches!(timeout(PATIENCE, held.read(&mut [0; 1])).await.unwrap(), Ok(0) | Err(_)));
    let attempt = running.attempts.view().remove(0);
    assert_eq!(attempt.sent_bytes, 4, "what it moved is counted when it is broken off");
    assert!(TcpStream::connect(running.doors[0]).await.is_err());
}

// Invariant 7: a plugin that opens connections without end gets a number of them, and the next one when one has ended.
#[tokio::test]
async fn connections_have_a_limit_and_more_wait() {
    let (answering, _) = held_server().await;
    let stage =
        Stage { names: names_to("api.example.test", &["192.0.2.7"]), server: Some(answering), ..Stage::default() };
    let running = Running::with_rules(&["api.example.test"], stage);
    let mut open = Vec::new();
    for _ in 0..super::MAX_CONNECTIONS {
        let mut stream = TcpStream::connect(running.doors[0]).await.unwrap();
        timeout(PATIENCE, stream.read_exact(&mut [0; 2])).await.unwrap().unwrap();
        open.push(stream);
    }
    let mut waiting = TcpStream::connect(running.doors[0]).await.unwrap();
    assert_eq!(running.dialled().len(), super::MAX_CONNECTIONS);
    drop(open.pop());
    timeout(PATIENCE, waiting.read_exact(&mut [0; 2])).await.unwrap().unwrap();
    assert_eq!(running.dialled().len(), super::MAX_CONNECTIONS + 1);
}

/// A server that greets everybody and then holds the connection until its client leaves.
async fn held_server() -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let _gone = stream.write_all(b"hi").await;
                let _gone = stream.read(&mut [0; 1]).await;
            });
        }
    });
    (address, task)
}

/// A connection nobody uses must not keep its place for ever; the clock here is the test's.
#[tokio::test(start_paused = true)]
async fn an_idle_connection_ends() {
    let pair = || async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        (near.unwrap(), far.unwrap().0)
    };
    let ((inside, _plugin), (outside, _host)) = (pair().await, pair().await);
    let began = tokio::time::Instant::now();
    let traffic = relay::Traffic::default();
    let outgoing = relay::Outgoing { pending: b"", name: Some("api.example.test") };
    assert_eq!(relay::relay(inside, outside, outgoing, &traffic).await, Ok(()));
    assert!(began.elapsed() >= relay::IDLE_LIMIT);
}
