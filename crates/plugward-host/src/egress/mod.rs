//! The way out of a plugin's network, for the hosts that were granted.
//!
//! The sandbox hands over listening sockets from inside the plugin's network; here connections to them are accepted, and
//! led to where they were meant to go if the rules allow it. The plugin needs no setting for that and cannot get around
//! it: nothing else is in its network.
//!
//! ```text
//! plugin: connect(api.example.test:443) -> 127.8.0.1:443 inside -> accept -> rule -> look up -> judge address -> dial
//! plugin: who is telemetry.example?     -> 127.0.0.53:53 inside -> noted, "no such name"
//! ```
//!
//! A name is looked up only after a rule allowed it, once for each connection, and the address that was judged is the one
//! that is dialled. Owns all of that, its limits, and noting every attempt. Refuses to read what goes over a connection,
//! but for the name in a TLS greeting, and to tell anybody outside what a plugin asked for.

mod attempts;
mod greeting;
mod names;
mod outside;
mod plan;
mod reach;
mod relay;
mod request;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plugward_policy::{NetRule, NetTarget};
use plugward_sandbox::Listeners;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

pub(crate) use attempts::{Attempts, Note};
pub(crate) use outside::{Machine, Outside};
pub(crate) use plan::{EgressPlan, EgressPlanError, Leads};
pub(crate) use reach::{Missed, reach};

use crate::views::AttemptOutcome;
use reach::NOT_LISTED;
use relay::{Cut, Outgoing, Traffic};
use request::Head;

/// Connections of one plugin at a time; more wait. Each holds 32 KiB and two descriptors of the host, which other plugins
/// need too.
const MAX_CONNECTIONS: usize = 64;

/// Time for a program to say what it wants of the proxy.
const HEAD_LIMIT: Duration = Duration::from_secs(10);

/// Pause after a connection could not be accepted, which is for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Questions answered in one second. A program asks a few for each connection; what asks more waits.
const MAX_QUESTIONS_PER_S: u32 = 200;

/// First address given to a name that is watched; the next 65,535 follow.
const WATCHED: Ipv4Addr = Ipv4Addr::new(127, 9, 0, 1);

/// Names of a watched plugin that get an address.
const MAX_WATCHED: usize = 4096;

/// The open ways of one running plugin.
pub(crate) struct Egress<O> {
    shared: Arc<Shared<O>>,
    listeners: Vec<(TcpListener, Leads)>,
    names: Option<UdpSocket>,
}

struct Shared<O> {
    plan: EgressPlan,
    attempts: Arc<Attempts>,
    outside: O,
    places: Arc<Semaphore>,
    /// Names a watched plugin asked for, with the addresses they were given.
    watched: Watched,
}

/// Names and the addresses they were given.
type Watched = Arc<Mutex<BTreeMap<String, Ipv4Addr>>>;

impl<O: Outside> Egress<O> {
    /// Takes over the sockets of a plugin that was started with the network of `plan`. Within a runtime.
    pub(crate) fn new(plan: EgressPlan, listeners: Listeners, attempts: Arc<Attempts>, outside: O) -> io::Result<Self> {
        let Listeners { tcp, names } = listeners;
        let mut open = Vec::with_capacity(tcp.len());
        for (listener, door) in tcp.into_iter().zip(&plan.doors) {
            listener.set_nonblocking(true)?;
            open.push((TcpListener::from_std(listener)?, door.leads.clone()));
        }
        let names = match names {
            Some(socket) => {
                socket.set_nonblocking(true)?;
                Some(UdpSocket::from_std(socket)?)
            }
            None => None,
        };
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let shared = Arc::new(Shared { plan, attempts, outside, places, watched: Watched::default() });
        Ok(Self { shared, listeners: open, names })
    }

    /// Names a watched plugin asks for, with the addresses they are given; it goes on after this is served.
    pub(crate) fn watched(&self) -> Watched {
        Arc::clone(&self.shared.watched)
    }

    /// Serves the plugin until `over`, then ends every connection.
    pub(crate) async fn run(self, over: CancellationToken) {
        let mut tasks = JoinSet::new();
        for (listener, leads) in self.listeners {
            tasks.spawn(accept(Arc::clone(&self.shared), listener, leads));
        }
        if let Some(socket) = self.names {
            tasks.spawn(answer_names(Arc::clone(&self.shared), socket));
        }
        over.cancelled().await;
        tasks.shutdown().await;
    }
}

/// Accepts at one listener. Its connections end with it.
async fn accept<O: Outside>(shared: Arc<Shared<O>>, listener: TcpListener, leads: Leads) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let Ok((inside, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(place) = Arc::clone(&shared.places).acquire_owned().await else { return };
        let (shared, leads) = (Arc::clone(&shared), leads.clone());
        connections.spawn(async move {
            serve(&shared, inside, &leads).await;
            drop(place);
        });
    }
}

async fn serve<O: Outside>(shared: &Shared<O>, inside: TcpStream, leads: &Leads) {
    match leads {
        Leads::To(rule) => {
            let (Some(host), Some(port)) = (host_of(rule), rule.port()) else { return };
            let _missed = shared.tunnel(inside, &host, port, &[], &[]).await;
        }
        Leads::Proxy => serve_proxy(shared, inside).await,
    }
}

/// The one host a rule is about.
fn host_of(rule: &NetRule) -> Option<String> {
    match rule.target() {
        NetTarget::Name(name) => Some(name.to_owned()),
        NetTarget::Address(address) => Some(address.to_string()),
        NetTarget::Any | NetTarget::Below(_) => None,
    }
}

async fn serve_proxy<O: Outside>(shared: &Shared<O>, mut inside: TcpStream) {
    let mut bytes = Vec::new();
    let head = timeout(HEAD_LIMIT, async {
        loop {
            match request::read(&bytes) {
                Head::Unfinished => {}
                head => return Some(head),
            }
            let mut chunk = [0; 1024];
            let count = inside.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
            bytes.extend_from_slice(&chunk[..count]);
        }
    });
    let answer = match head.await {
        Ok(Some(Head::Connect { host, port, length })) => {
            let tunnel = shared.tunnel(inside, &host, port, &bytes[length..], request::ESTABLISHED).await;
            let Err((returned, missed)) = tunnel else { return };
            inside = returned;
            match missed {
                Missed::Refused(_) => request::FORBIDDEN,
                Missed::Failed(_) => request::BAD_GATEWAY,
            }
        }
        Ok(Some(Head::NoHost(target))) => {
            shared.note(&target, None, AttemptOutcome::Refused, "it is not written as a host and a port");
            request::BAD_REQUEST
        }
        Ok(Some(Head::Unfinished | Head::Malformed)) => request::BAD_REQUEST,
        Ok(None) | Err(_) => return,
    };
    // A program that does not listen to the answer does not need it.
    let _unheard = inside.write_all(answer).await;
    let _unheard = inside.shutdown().await;
}

impl<O: Outside> Shared<O> {
    /// Leads one connection to `host` if a rule allows it, after `reply` to the plugin. The stream comes back with the
    /// reason if it does not come about.
    async fn tunnel(
        &self,
        mut inside: TcpStream,
        host: &str,
        port: u16,
        pending: &[u8],
        reply: &[u8],
    ) -> Result<(), (TcpStream, Missed)> {
        let outside = match reach(&self.plan.rules, &self.outside, host, port).await {
            Ok(outside) => outside,
            Err(missed) => {
                let (outcome, reason) = match &missed {
                    Missed::Refused(reason) => (AttemptOutcome::Refused, reason),
                    Missed::Failed(reason) => (AttemptOutcome::Failed, reason),
                };
                self.note(host, Some(port), outcome, reason);
                return Err((inside, missed));
            }
        };
        self.note(host, Some(port), AttemptOutcome::Allowed, "");
        if inside.write_all(reply).await.is_err() {
            return Ok(());
        }
        let traffic = Counter { attempts: &self.attempts, host, port, traffic: Traffic::default() };
        let name = host.parse::<IpAddr>().is_err().then_some(host);
        match relay::relay(inside, outside, Outgoing { pending, name }, &traffic.traffic).await {
            Ok(()) => {}
            Err(Cut::OtherName(asked)) => {
                let reason = format!("TLS asked for it on a connection to {host}");
                self.note(&asked, Some(port), AttemptOutcome::Refused, &reason);
            }
            Err(Cut::Unreadable) => {
                let reason = "TLS began in a way that cannot be read";
                self.note(host, Some(port), AttemptOutcome::Refused, reason);
            }
        }
        Ok(())
    }

    fn note(&self, host: &str, port: Option<u16>, outcome: AttemptOutcome, reason: &str) {
        self.attempts.note(Note { host, port, outcome, reason });
    }

    /// The address a name gets, if it is to be found.
    fn address_of(&self, question: &names::Question) -> Option<Ipv4Addr> {
        let name = question.name.as_str();
        if name == "localhost" || name.ends_with(".localhost") {
            return Some(Ipv4Addr::LOCALHOST);
        }
        if self.plan.is_watching {
            return self.watch(question);
        }
        let listed = self.plan.names.get(name).copied();
        if listed.is_none() {
            // Which port does not matter: every rule for a domain has one of its own.
            let is_below = |rule: &NetRule| {
                matches!(rule.target(), NetTarget::Below(_)) && rule.port().is_some_and(|port| rule.matches(name, port))
            };
            let reason = match self.plan.rules.iter().any(is_below) {
                true => {
                    "hosts below a domain can be reached by programs that use a proxy setting, and this one did not"
                }
                false => NOT_LISTED,
            };
            let note = Note { host: name, port: None, outcome: AttemptOutcome::Refused, reason };
            match question.is_beside {
                true => self.attempts.note_beside(note),
                false => self.attempts.note(note),
            }
        }
        listed
    }

    /// Gives a watched name an address of its own.
    fn watch(&self, question: &names::Question) -> Option<Ipv4Addr> {
        let name = question.name.as_str();
        let note = Note { host: name, port: None, outcome: AttemptOutcome::Refused, reason: NOT_LISTED };
        match question.is_beside {
            true => self.attempts.note_beside(note),
            false => self.attempts.note(note),
        }
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(address) = watched.get(name) {
            return Some(*address);
        }
        let number = u32::try_from(watched.len()).ok().filter(|_| watched.len() < MAX_WATCHED)?;
        let address = Ipv4Addr::from(u32::from(WATCHED) + number);
        watched.insert(name.to_owned(), address);
        Some(address)
    }
}

/// Adds up what a connection moved when it ends, also by being broken off.
struct Counter<'a> {
    attempts: &'a Attempts,
    host: &'a str,
    port: u16,
    traffic: Traffic,
}

impl Drop for Counter<'_> {
    fn drop(&mut self) {
        let load = |bytes: &std::sync::atomic::AtomicU64| bytes.load(Ordering::Relaxed);
        let (sent, received) = (load(&self.traffic.sent_bytes), load(&self.traffic.received_bytes));
        self.attempts.moved(self.host, self.port, sent, received);
    }
}

/// Answers questions for names, none of which is passed on.
async fn answer_names<O: Outside>(shared: Arc<Shared<O>>, socket: UdpSocket) {
    let mut second = Instant::now();
    let mut asked = 0;
    loop {
        let mut message = [0; names::MAX_QUESTION_BYTES];
        let received: io::Result<(usize, SocketAddr)> = socket.recv_from(&mut message).await;
        let Ok((length, from)) = received else {
            // A program that closed its socket before the answer came; nothing to wait for, but not in a circle.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if let Some(question) = names::read(&message[..length]) {
            let answer = names::answer(&message[..length], &question, shared.address_of(&question));
            let _unheard = socket.send_to(&answer, from).await;
        }
        asked += 1;
        if second.elapsed() >= Duration::from_secs(1) {
            (second, asked) = (Instant::now(), 0);
        } else if asked >= MAX_QUESTIONS_PER_S {
            tokio::time::sleep_until(second + Duration::from_secs(1)).await;
            (second, asked) = (Instant::now(), 0);
        }
    }
}
