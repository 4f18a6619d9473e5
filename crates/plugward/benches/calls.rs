//! What the host adds to a call, against talking to the same server directly.
//!
//! Owns the ways to the same tool: the pipes of the server itself, [`Host::call`], `plugward serve --stdio`, and
//! `plugward serve --http` in both eras. The ways take turns within each round, so that a machine that is busy for a while is busy for all of them. Also: CPU
//! time per call, and memory with one plugin and with twenty. Refuses to judge: it prints figures and ratios.
//!
//! The server is the fixture inside this very executable, so it is built like everything else that is measured.
#![allow(clippy::print_stdout, reason = "the figures are the output")]
#![allow(missing_docs, reason = "a program of its own, without an interface")]

#[path = "calls/http.rs"]
mod http;

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use plugward_host::{
    ApprovalOrigin, CallRequest, Environment, Host, HostConfig, Naming, SupervisionSettings, ToolSelector,
};
use plugward_policy::Catalogue;
use plugward_sandbox::{LaunchSpec, Launcher, PluginProcess, StopGrace};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// First argument that turns this program into the server.
const FIXTURE: &str = "__fixture";

/// First argument that makes this program tell its memory with so many plugins.
const MEMORY: &str = "__memory";

/// Rounds; in each, every way is measured once in both manners.
const ROUNDS: usize = 7;

/// Calls of one round, one after the other.
const SEQUENTIAL: usize = 2_000;

/// Calls of one round, [`AT_ONCE`] at a time.
const CONCURRENT: usize = 8_000;

/// Callers at one time.
const AT_ONCE: usize = 32;

/// Calls of each way before anything is measured.
const WARM_UP: usize = 500;

/// Idle plugins of the larger memory measurement.
const MANY_PLUGINS: usize = 20;

/// Longest wait for one answer: a way that hangs ends the benchmark instead of holding it up.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

fn main() -> Fallible<()> {
    // First of all: a launcher must have a single thread and no state.
    plugward_sandbox::launcher_main_if_requested();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [FIXTURE, ..] => {
            let code = mcp_fixture::run_arguments(arguments.into_iter().skip(1));
            std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
        }
        [MEMORY, plugins] => {
            let plugins = plugins.parse()?;
            runtime()?.block_on(tell_memory(plugins))
        }
        // What `cargo bench` passes.
        _ if arguments.iter().any(|argument| argument == "--bench") => runtime()?.block_on(measure()),
        // `cargo test --benches` only wants to know that it builds; figures of a test build would mislead.
        _ => {
            println!("run `cargo bench -p plugward` for figures");
            Ok(())
        }
    }
}

async fn measure() -> Fallible<()> {
    let home = tempfile::tempdir()?;
    let host = open(home.path()).await?;
    run_plugin(&host, "fx", "full").await?;
    run_plugin(&host, "bare", "none").await?;
    let served = tempfile::tempdir()?;
    let mut ways = vec![
        Way::new("direct", Road::Direct(Client::start(fixture_spec()?, "echo").await?)),
        Way::new("host", Road::Host(host.clone(), "fx.echo")),
        Way::new("host, bare", Road::Host(host.clone(), "bare.echo")),
    ];
    match serve(served.path()).await {
        Ok(client) => ways.push(Way::new("serve --stdio", Road::Direct(client))),
        Err(error) => println!("`plugward serve --stdio` is not measured: {error}"),
    }
    let over_http = tempfile::tempdir()?;
    match serve_http(over_http.path()).await {
        Ok([session, stateless]) => {
            ways.push(Way::new("http, session", Road::Http(session)));
            ways.push(Way::new("http, no state", Road::Http(stateless)));
        }
        Err(error) => println!("`plugward serve --http` is not measured: {error}"),
    }
    for way in &ways {
        for _ in 0..WARM_UP {
            way.road.call().await?;
        }
    }
    for _ in 0..ROUNDS {
        for way in &mut ways {
            way.one_at_a_time().await?;
        }
        for way in &mut ways {
            way.many_at_once().await?;
        }
    }
    let cpus = std::thread::available_parallelism()?;
    println!("calls of `echo` through each way; {cpus} CPUs, median of {ROUNDS} rounds that take turns");
    report("one at a time", &ways, |way| &way.sequential);
    report(&format!("{AT_ONCE} at once"), &ways, |way| &way.concurrent);
    drop(ways);
    host.shutdown().await;
    let one = memory_with(1)?;
    let many = memory_with(MANY_PLUGINS)?;
    let further = many.saturating_sub(one) / (MANY_PLUGINS as u64 - 1);
    println!("\nmemory of the host process, plugins and launchers aside");
    println!("  with 1 plugin             {:>8.1} MiB", one as f64 / 1024.0);
    println!("  with {MANY_PLUGINS} idle plugins      {:>8.1} MiB", many as f64 / 1024.0);
    println!("  per further idle plugin   {further:>8} KiB");
    Ok(())
}

/// A way to the tool, with what was measured of it.
struct Way {
    name: &'static str,
    road: Road,
    sequential: Measured,
    concurrent: Measured,
}

#[derive(Clone)]
enum Road {
    /// An MCP server over pipes: the fixture, or our own face.
    Direct(Arc<Client>),
    /// Our own face over HTTP.
    Http(Arc<http::Client>),
    /// A host, and the tool of the plugin that is called: in its sandbox, or without one.
    Host(Host, &'static str),
}

#[derive(Default)]
struct Measured {
    /// Calls per second, by round.
    rates: Vec<f64>,
    /// CPU time of the process under measurement per call, by round.
    cpu_us: Vec<f64>,
    /// Of every call.
    latencies: Vec<Duration>,
}

impl Way {
    fn new(name: &'static str, road: Road) -> Self {
        Self { name, road, sequential: Measured::default(), concurrent: Measured::default() }
    }

    async fn one_at_a_time(&mut self) -> Fallible<()> {
        let (began, cpu) = (Instant::now(), self.road.cpu());
        for _ in 0..SEQUENTIAL {
            self.sequential.latencies.push(timed(&self.road).await?);
        }
        self.sequential.round(SEQUENTIAL, began.elapsed(), self.road.cpu().saturating_sub(cpu));
        Ok(())
    }

    async fn many_at_once(&mut self) -> Fallible<()> {
        let (began, cpu) = (Instant::now(), self.road.cpu());
        let mut callers: JoinSet<Fallible<Vec<Duration>>> = JoinSet::new();
        for _ in 0..AT_ONCE {
            let road = self.road.clone();
            callers.spawn(async move {
                let mut latencies = Vec::with_capacity(CONCURRENT / AT_ONCE);
                for _ in 0..CONCURRENT / AT_ONCE {
                    latencies.push(timed(&road).await?);
                }
                Ok(latencies)
            });
        }
        while let Some(latencies) = callers.join_next().await {
            self.concurrent.latencies.extend(latencies??);
        }
        self.concurrent.round(CONCURRENT, began.elapsed(), self.road.cpu().saturating_sub(cpu));
        Ok(())
    }
}

impl Measured {
    fn round(&mut self, calls: usize, took: Duration, cpu: Duration) {
        self.rates.push(calls as f64 / took.as_secs_f64());
        self.cpu_us.push(cpu.as_secs_f64() * 1e6 / calls as f64);
    }

    /// The latency that this part of the calls stayed below, in microseconds.
    fn latency_us(&self, part: f64) -> f64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let index = ((sorted.len() - 1) as f64 * part) as usize;
        sorted[index].as_secs_f64() * 1e6
    }
}

fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn report(title: &str, ways: &[Way], of: impl Fn(&Way) -> &Measured) {
    println!(
        "\n{title:<16}{:>10}{:>8}{:>10}{:>10}{:>12}{:>12}",
        "calls/s", "ratio", "p50 us", "p99 us", "added p50", "CPU us"
    );
    let direct = of(&ways[0]);
    for way in ways {
        let measured = of(way);
        let (rate, p50) = (median(&measured.rates), measured.latency_us(0.5));
        println!(
            "  {:<14}{rate:>10.0}{:>8.2}{p50:>10.0}{:>10.0}{:>12.0}{:>12.1}",
            way.name,
            rate / median(&direct.rates),
            measured.latency_us(0.99),
            p50 - direct.latency_us(0.5),
            median(&measured.cpu_us),
        );
    }
}

async fn timed(road: &Road) -> Fallible<Duration> {
    let began = Instant::now();
    road.call().await?;
    Ok(began.elapsed())
}

impl Road {
    async fn call(&self) -> Fallible<()> {
        match self {
            Road::Direct(client) => {
                let answer = client.call().await?;
                if answer.contains("hello") { Ok(()) } else { Err(answer.into()) }
            }
            Road::Http(client) => {
                let answer = client.call().await?;
                if answer.contains("hello") { Ok(()) } else { Err(answer.into()) }
            }
            Road::Host(host, tool) => {
                let arguments = RawValue::from_string(ARGUMENTS.to_owned())?;
                let selector = ToolSelector::Id((*tool).to_owned());
                let report = host.call(CallRequest::new(selector, Some(arguments), "bench")).await;
                let reply = report.outcome.map_err(|failure| failure.message(tool))?;
                if reply.result.get().contains("hello") { Ok(()) } else { Err(reply.error_text().into()) }
            }
        }
    }

    /// CPU time so far of the process that does the work between caller and server.
    fn cpu(&self) -> Duration {
        match self {
            Road::Direct(client) if client.is_ours => cpu_of(&client.process.pid().to_string()),
            Road::Http(client) => cpu_of(&client.server.pid().to_string()),
            _ => cpu_of("self"),
        }
    }
}

/// Arguments of every call.
const ARGUMENTS: &str = r#"{"text":"hello"}"#;

/// CPU time of all threads of a process; zero where the kernel does not tell.
fn cpu_of(process: &str) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let ns = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(ns.sum())
}

/// The smallest MCP client that can have many calls under way.
struct Client {
    tool: &'static str,
    next_id: AtomicU64,
    stdin: tokio::sync::Mutex<pipe::Sender>,
    waiting: Waiting,
    process: PluginProcess,
    /// Whether the process is `plugward` and its CPU time the figure wanted.
    is_ours: bool,
    _stderr: std::os::fd::OwnedFd,
}

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<String>>>>;

#[derive(Deserialize)]
struct Answer {
    id: Option<u64>,
}

impl Client {
    async fn start(spec: LaunchSpec, tool: &'static str) -> Fallible<Arc<Self>> {
        let is_ours = tool != "echo";
        let spawned = tokio::task::spawn_blocking(move || Launcher::current_exe()?.spawn(&spec)).await??;
        let waiting = Waiting::default();
        let stdout = pipe::Receiver::from_owned_fd(spawned.stdout)?;
        tokio::spawn(read_answers(stdout, Arc::clone(&waiting)));
        let client = Self {
            tool,
            next_id: AtomicU64::new(1),
            stdin: tokio::sync::Mutex::new(pipe::Sender::from_owned_fd(spawned.stdin)?),
            waiting,
            process: spawned.process,
            is_ours,
            _stderr: spawned.stderr,
        };
        let hello = r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}"#;
        client.request("initialize", hello).await?;
        client.write("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n").await?;
        client.request("tools/list", "{}").await?;
        Ok(Arc::new(client))
    }

    async fn call(&self) -> Fallible<String> {
        self.request("tools/call", &format!(r#"{{"name":"{}","arguments":{ARGUMENTS}}}"#, self.tool)).await
    }

    async fn request(&self, method: &str, params: &str) -> Fallible<String> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, answer);
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n");
        self.write(&line).await?;
        Ok(tokio::time::timeout(ANSWER_LIMIT, answered).await.map_err(|_| format!("no answer to {method}"))??)
    }

    async fn write(&self, line: &str) -> Fallible<()> {
        Ok(self.stdin.lock().await.write_all(line.as_bytes()).await?)
    }
}

async fn read_answers(stdout: pipe::Receiver, waiting: Waiting) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let id = serde_json::from_str::<Answer>(&line).ok().and_then(|answer| answer.id);
        let caller = id.and_then(|id| waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id));
        if let Some(caller) = caller {
            let _ = caller.send(line);
        }
    }
    // Whoever still waits learns that nothing comes any more.
    waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

fn fixture_spec() -> Fallible<LaunchSpec> {
    let executable = std::env::current_exe()?;
    let argv = [executable.as_os_str(), FIXTURE.as_ref(), "normal".as_ref()].map(ToOwned::to_owned).to_vec();
    Ok(LaunchSpec { executable, argv, cwd: "/".into(), env: Vec::new(), stop: StopGrace::default(), sandbox: None })
}

/// Our own MCP server face, on a home in which the same plugin is switched on.
async fn serve(home: &Path) -> Fallible<Arc<Client>> {
    Client::start(prepared(home).await?, "fx_echo").await
}

/// The same over HTTP: a client with a session, and one without.
async fn serve_http(home: &Path) -> Fallible<[Arc<http::Client>; 2]> {
    let server = http::Server::start(prepared(home).await?, home).await?;
    Ok([http::Client::new(&server, true).await?, http::Client::new(&server, false).await?])
}

/// The program on a home in which the plugin is switched on.
async fn prepared(home: &Path) -> Fallible<LaunchSpec> {
    let host = open(home).await?;
    run_plugin(&host, "fx", "full").await?;
    host.shutdown().await;
    drop(host);
    let executable = PathBuf::from(env!("CARGO_BIN_EXE_plugward"));
    let argv = [executable.as_os_str(), "serve".as_ref(), "--stdio".as_ref()].map(ToOwned::to_owned).to_vec();
    let env = vec![
        ("PLUGWARD_HOME".into(), home.as_os_str().to_owned()),
        ("PLUGWARD_ENVIRONMENT".into(), "production".into()),
        ("PLUGWARD_DAEMON".into(), "off".into()),
        ("PATH".into(), program_folder()?.into()),
    ];
    Ok(LaunchSpec { executable, argv, cwd: "/".into(), env, stop: StopGrace::default(), sandbox: None })
}

fn program_folder() -> Fallible<PathBuf> {
    Ok(std::env::current_exe()?.parent().ok_or("the benchmark has no folder")?.to_owned())
}

async fn open(home: &Path) -> Fallible<Host> {
    let config = HostConfig {
        home: home.to_owned(),
        environment: Environment::Development,
        catalogue: Catalogue::seed(),
        launcher: Launcher::current_exe()?,
        host_environment: vec![("PATH".to_owned(), program_folder()?.display().to_string())],
        naming: Naming::Prefixed,
        restart_base_delay: Duration::from_secs(1),
        supervision: SupervisionSettings::default(),
        trust: plugward_host::Trust::default(),
        operator: "bench".to_owned(),
    };
    Ok(Host::open(config).await?)
}

/// Installs, approves and enables the fixture at a sandbox level: validation, permission and trace are all on.
async fn run_plugin(host: &Host, id: &str, level: &str) -> Fallible<()> {
    let package = tempfile::tempdir()?;
    let program = std::env::current_exe()?;
    let command = program.file_name().and_then(|name| name.to_str()).ok_or("the benchmark has no name")?;
    let tools = ["echo", "fail", "sleep", "large", "environment", "exit"].map(|tool| format!("{id}.{tool}")).join(", ");
    let manifest = format!(
        "id: {id}\nname: Fixture\nversion: 1.0.0\npermissions: [notes.read]\ncontributes:\n  tools: [{tools}]\n\
         sandbox:\n  minimum_level: {level}\n\
         backend:\n  type: mcp\n  transport: stdio\n  command: {command}\n  args: [{FIXTURE}, normal]\n"
    );
    std::fs::write(package.path().join("plugin.yaml"), manifest)?;
    host.install(package.path(), None).await?;
    let review = host.review(id).await?;
    host.approve(id, &review.digest, ApprovalOrigin::Test).await?;
    let view = host.enable(id).await?;
    let found = view.enforcement.map_or("none", |enforcement| enforcement.level.as_str());
    // What is measured has to be what the row says.
    if found == level {
        Ok(())
    } else {
        Err(format!("sandbox level is {found}, not {level}; see `plugward doctor`").into())
    }
}

/// The other process of a memory measurement: a host with so many plugins, each called once.
async fn tell_memory(plugins: usize) -> Fallible<()> {
    let home = tempfile::tempdir()?;
    let host = open(home.path()).await?;
    for index in 0..plugins {
        run_plugin(&host, &format!("p{index}"), "full").await?;
        let arguments = RawValue::from_string(ARGUMENTS.to_owned())?;
        let tool = ToolSelector::Id(format!("p{index}.echo"));
        let report = host.call(CallRequest::new(tool, Some(arguments), "bench")).await;
        report.outcome.map_err(|failure| failure.message("echo"))?;
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    println!("{}", resident.trim().trim_end_matches("kB").trim());
    host.shutdown().await;
    Ok(())
}

/// Resident memory of a host process with so many plugins, in KiB.
fn memory_with(plugins: usize) -> Fallible<u64> {
    let mut spec = fixture_spec()?;
    spec.argv = vec![spec.argv[0].clone(), MEMORY.into(), plugins.to_string().into()];
    let spawned = Launcher::current_exe()?.spawn(&spec)?;
    let mut said = String::new();
    std::fs::File::from(spawned.stdout).read_to_string(&mut said)?;
    Ok(said.trim().parse()?)
}
