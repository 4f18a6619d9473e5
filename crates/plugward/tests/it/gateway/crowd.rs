//! Many clients on one host: legacy sessions with an open stream, stateless requests, and agents over pipes, all calling
//! the same ten plugins at once.
//!
//! If this fails, one agent reads another's answer, the host grows with its clients, or a shared plugin is started once
//! per client. A short run with every test; `cargo xtask crowd` makes a long one of it. All clients count their requests
//! from 1, so that ids collide, and each answer must bring back the word its caller made up.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::task::JoinSet;

use super::crowd_cancels;
use super::crowd_client::Connection;
use super::home_with;
use super::http_client::{Face, modern};
use crate::cases_support::alone;
use crate::support::{Fixture, PATIENCE, fixture, plugward};

const PLUGINS: usize = 10;

/// Clients over HTTP with a session, over HTTP without, and over pipes.
const SHORT: [usize; 3] = [12, 12, 6];
const LONG: [usize; 3] = [240, 220, 40];

/// Length of the run that comes with every test.
const SHORT_RUN: Duration = Duration::from_secs(2);

/// Pause of a client between two calls: an agent thinks. Shorter ones measure the machine and not the host.
const THINK: Duration = Duration::from_millis(900);

/// Every so many calls, one takes a while and reports progress.
const SLOW_EVERY: u64 = 16;

/// What the host may still grow by, once all clients are there and have called: caches fill, the allocator rounds.
const GROWTH_BYTES: u64 = 24 * 1024 * 1024;

/// Pause between two looks at the host.
const LOOK: Duration = Duration::from_millis(500);

/// What all clients count together.
#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    busy: AtomicU64,
    notes: AtomicU64,
}

/// One client's calls: what it asks, and what the answer has to be.
struct Caller {
    number: usize,
    round: u64,
    counts: Arc<Counts>,
}

impl Caller {
    fn new(number: usize, counts: &Arc<Counts>) -> Self {
        Self { number, round: 0, counts: Arc::clone(counts) }
    }

    fn word(&self) -> String {
        format!("client {} round {}", self.number, self.round)
    }

    fn is_slow(&self) -> bool {
        (self.round + self.number as u64).is_multiple_of(SLOW_EVERY)
    }

    /// Parameters of the next call.
    fn next(&mut self) -> Value {
        self.round += 1;
        let plugin = (self.number + usize::try_from(self.round).unwrap()) % PLUGINS;
        if self.is_slow() {
            let meta = json!({"progressToken": self.word()});
            return json!({"name": format!("fx{plugin}_sleep"), "arguments": {"seconds": 0.3}, "_meta": meta});
        }
        json!({"name": format!("fx{plugin}_echo"), "arguments": {"text": self.word()}})
    }

    /// Checks everything that came for one call.
    fn check(&self, messages: &[Value]) {
        let (last, notes) = messages.split_last().unwrap_or_else(|| panic!("{} had no answer", self.word()));
        for note in notes.iter().filter(|note| note["method"] == "notifications/progress") {
            assert_eq!(note["params"]["progressToken"], self.word(), "progress of another call");
            self.counts.notes.fetch_add(1, Ordering::Relaxed);
        }
        assert_eq!(last["id"], self.round, "the answer of another request: {last}");
        let result = &last["result"];
        if result["_meta"]["plugward/error"]["code"] == "PLUGIN_BUSY" {
            self.counts.busy.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if self.is_slow() {
            assert_eq!(result["content"][0]["text"], "slept 0.3 s", "{last}");
        } else {
            assert_eq!(result["structuredContent"]["echo"], self.word(), "the answer of another client: {last}");
        }
        self.counts.answered.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// Where clients call, and until when.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) address: SocketAddr,
    pub(super) token: String,
    pub(super) until: Instant,
}

pub(super) fn headers<'a>(extra: &[(&'a str, &'a str)], bearer: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut all = vec![("Authorization", bearer), ("Accept", "application/json, text/event-stream")];
    all.extend(extra);
    all
}

/// A client with a session and a stream that stays open beside its calls.
async fn with_session(place: Place, mut caller: Caller) {
    let bearer = format!("Bearer {}", place.token);
    let client = json!({"name": format!("crowd-{}", caller.number), "version": "0"});
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let mut calls = Connection::open(place.address).await;
    let hello = request(0, "initialize", &hello);
    let reply = calls.ask("POST", &headers(&[], &bearer), Some(&hello)).await;
    let session = reply.header("mcp-session-id").to_owned();
    let own = [("Mcp-Session-Id", session.as_str())];
    let confirmed = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let reply = calls.ask("POST", &headers(&own, &bearer), Some(&confirmed)).await;
    assert_eq!(reply.status, 202);
    let mut unasked = Connection::open(place.address).await;
    let stream = unasked.listen("GET", &headers(&own, &bearer)).await;
    assert_eq!(stream.status, 200, "the stream is not let in");
    while Instant::now() < place.until {
        let params = caller.next();
        let asked = request(caller.round, "tools/call", &params);
        let reply = calls.ask("POST", &headers(&own, &bearer), Some(&asked)).await;
        caller.check(&reply.messages);
        tokio::time::sleep(THINK).await;
    }
    // Nothing of any call belongs on it, and it is still there.
    let unasked = unasked.received().await.expect("the stream that stays open was closed");
    assert!(!unasked.contains("\"id\":") && !unasked.contains("progressToken"), "{unasked}");
    let reply = calls.ask("DELETE", &headers(&own, &bearer), None).await;
    assert_eq!(reply.status, 204);
}

/// A client whose every request stands alone.
async fn without_session(place: Place, mut caller: Caller) {
    let bearer = format!("Bearer {}", place.token);
    let mut calls = Connection::open(place.address).await;
    while Instant::now() < place.until {
        let params = caller.next();
        let asked = modern(caller.round, "tools/call", &params);
        let name = params["name"].as_str().unwrap();
        let about = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", name)];
        let reply = calls.ask("POST", &headers(&about, &bearer), Some(&asked)).await;
        caller.check(&reply.messages);
        tokio::time::sleep(THINK).await;
    }
}

/// An agent's process that joined the host.
struct Shim {
    child: Child,
    input: Sender,
    output: BufReader<Receiver>,
}

impl Shim {
    fn start(home: &Path) -> Self {
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = fixture().parent().unwrap().display().to_string();
        let mut child = Command::new(plugward())
            .args(["serve", "--stdio"])
            .env_clear()
            .env("PATH", format!("{bin}:{path}"))
            .env("PLUGWARD_HOME", home)
            .env("PLUGWARD_ENVIRONMENT", "development")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = Sender::from_owned_fd(OwnedFd::from(child.stdin.take().unwrap())).unwrap();
        let output = Receiver::from_owned_fd(OwnedFd::from(child.stdout.take().unwrap())).unwrap();
        Self { child, input, output: BufReader::new(output) }
    }

    async fn say(&mut self, message: &Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// Everything up to the answer to `id`, and it.
    async fn until_answer(&mut self, id: u64) -> Vec<Value> {
        let mut messages = Vec::new();
        loop {
            let mut line = String::new();
            let read = tokio::time::timeout(PATIENCE, self.output.read_line(&mut line)).await.expect("no answer");
            assert_ne!(read.unwrap(), 0, "an agent's process ended");
            let message: Value = serde_json::from_str(&line).unwrap();
            let is_answer = message.get("method").is_none();
            if is_answer || message["method"] == "notifications/progress" {
                messages.push(message);
            }
            if is_answer {
                assert_eq!(messages.last().unwrap()["id"], id, "the answer of another request");
                return messages;
            }
        }
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An agent over pipes, of either era.
async fn over_pipes(home: std::path::PathBuf, until: Instant, mut caller: Caller) {
    let mut shim = Shim::start(&home);
    let is_modern = caller.number.is_multiple_of(2);
    if !is_modern {
        let client = json!({"name": format!("crowd-{}", caller.number), "version": "0"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        shim.say(&request(0, "initialize", &hello)).await;
        shim.until_answer(0).await;
        shim.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    }
    while Instant::now() < until {
        let params = caller.next();
        let asked = match is_modern {
            true => modern(caller.round, "tools/call", &params),
            false => request(caller.round, "tools/call", &params),
        };
        shim.say(&asked).await;
        let messages = shim.until_answer(caller.round).await;
        caller.check(&messages);
        tokio::time::sleep(THINK).await;
    }
}

/// Resident bytes of a process.
fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// How many processes of fixture plugins descend from a process.
pub(super) fn plugin_processes(host: u32) -> usize {
    let mut parents = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let Some((before, after)) = stat.rsplit_once(')') else { continue };
        let name = before.split_once('(').map_or("", |(_, name)| name).to_owned();
        let parent = after.split_whitespace().nth(1).and_then(|word| word.parse::<u32>().ok()).unwrap_or_default();
        parents.insert(pid, (parent, name));
    }
    let descends = |pid: &u32| {
        let mut at = *pid;
        while let Some((parent, _)) = parents.get(&at) {
            if *parent == host {
                return true;
            }
            at = *parent;
        }
        false
    };
    parents.iter().filter(|(pid, (_, name))| name == "mcp-fixture" && descends(pid)).count()
}

/// Descriptors for both ends of hundreds of connections and pipes.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _usual = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clients_of_both_eras_share_ten_plugins_and_nothing_is_mixed_up() {
    if !alone("gateway::crowd::many_clients_of_both_eras_share_ten_plugins_and_nothing_is_mixed_up") {
        return;
    }
    raise_descriptor_limit();
    let seconds = std::env::var("PLUGWARD_CROWD_SECONDS").ok().and_then(|text| text.parse().ok());
    let (clients, length) = seconds.map_or((SHORT, SHORT_RUN), |seconds| (LONG, Duration::from_secs(seconds)));
    let mut plugins: Vec<Fixture> = (0..PLUGINS).map(|number| Fixture::normal(&format!("fx{number}"))).collect();
    plugins.push(Fixture::imported(crowd_cancels::PLUGIN, &["wait"]));
    let face = Face::start(home_with(&plugins).await);
    // Until the tools are there; a first list waits for them.
    let listed = face.modern(1, "tools/list", &json!({})).json();
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(PLUGINS * 6 + 2), "{listed}");
    let place = Place { address: face.address(), token: face.token().to_owned(), until: Instant::now() + length };
    let counts = Arc::new(Counts::default());
    let mut crowd = JoinSet::new();
    let all: usize = clients.iter().sum();
    for number in 0..all {
        let (place, caller) = (place.clone(), Caller::new(number, &counts));
        if number < clients[0] {
            crowd.spawn(with_session(place, caller));
        } else if number < clients[0] + clients[1] {
            crowd.spawn(without_session(place, caller));
        } else {
            crowd.spawn(over_pipes(face.home().to_owned(), place.until, caller));
        }
    }
    let cancels = tokio::spawn(crowd_cancels::give_up(place.clone()));
    let mut sizes = Vec::new();
    while Instant::now() < place.until {
        sizes.push(resident_bytes(face.pid()));
        tokio::time::sleep(LOOK).await;
    }
    assert_eq!(plugin_processes(face.pid()), plugins.len(), "one process for each plugin, whoever calls it");
    while let Some(ended) = crowd.join_next().await {
        ended.unwrap();
    }
    let [answered, busy, notes] =
        [&counts.answered, &counts.busy, &counts.notes].map(|count| count.load(Ordering::Relaxed));
    let [warm, end] = [sizes.len() / 3, sizes.len()].map(|end| sizes[..end.max(1)].iter().copied().max().unwrap());
    println!(
        "crowd: {all} clients, {answered} answers ({:.0} a second), {busy} busy, {notes} progress notes; \
         the host has {} MiB after a third and {} MiB at most",
        answered as f64 / length.as_secs_f64(),
        warm >> 20,
        end >> 20
    );
    println!("{}", cancels.await.unwrap().line());
    assert!(answered >= all as u64, "{answered} answers for {all} clients");
    assert!(busy <= answered / 100, "{busy} of {answered} calls found a plugin busy");
    assert!(notes > 0, "no progress was reported at all");
    // The first third of a short run is no time to get warm.
    if seconds.is_some() {
        assert!(end <= warm + warm / 10 + GROWTH_BYTES, "memory grows: {warm} bytes, then {end}");
    }
    assert!(face.close().success());
}
