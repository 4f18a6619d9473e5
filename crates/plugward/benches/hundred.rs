//! A hundred plugins in one host: how long they take to be there together, against the slowest of them alone; the memory
//! that comes back when they fall asleep; and a first call after that, against starting the same server plainly.
//!
//! Owns the counting. The two kinds of first call take turns, so that a machine that is busy for a while is busy for
//! both. Refuses to judge: it prints figures and ratios. `cargo bench -p plugward --bench hundred [-- PLUGINS]`.
#![allow(clippy::print_stdout, reason = "the figures are the output")]
#![allow(missing_docs, reason = "a program of its own, without an interface")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use plugward_host::{
    ApprovalOrigin, CallRequest, Environment, Host, HostConfig, Naming, SupervisionSettings, ToolSelector,
};
use plugward_policy::Catalogue;
use plugward_sandbox::{LaunchSpec, Launcher, StopGrace};
use serde_json::json;
use serde_json::value::RawValue;

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// First argument that turns this program into the server, after the milliseconds it takes to start.
const SERVER: &str = "__server";

/// Plugins, when no number is given.
const PLUGINS: usize = 100;

/// Time that the slowest plugin takes before it says anything.
const SLOWEST_MS: u64 = 2_000;

/// Pause after which a plugin falls asleep: longer than all of them take to start.
const IDLE_SECONDS: u64 = 15;

/// First calls of each kind.
const ROUNDS: usize = 20;

/// Longest wait for a state: a host that does not get there ends the benchmark instead of holding it up.
const STATE_LIMIT: Duration = Duration::from_secs(300);

/// How often a state is looked at: well below what is measured.
const LOOK: Duration = Duration::from_millis(2);

fn main() -> Fallible<()> {
    // First of all: a launcher must have a single thread and no state.
    plugward_sandbox::launcher_main_if_requested();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [SERVER, delay_ms, ..] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        std::thread::sleep(Duration::from_millis(delay_ms.parse()?));
        let code = mcp_fixture::run_arguments(["normal".to_owned()]);
        std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        // Figures of a test build would mislead.
        println!("run `cargo bench -p plugward` for figures");
        return Ok(());
    }
    let plugins = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(PLUGINS);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(plugins))
}

async fn measure(plugins: usize) -> Fallible<()> {
    let cpus = std::thread::available_parallelism()?;
    println!("{plugins} plugins at sandbox level `full` on {cpus} CPUs; the slowest takes {SLOWEST_MS} ms to start");
    let (alone, together) = (tempfile::tempdir()?, tempfile::tempdir()?);
    prepare(alone.path(), 1).await?;
    prepare(together.path(), plugins).await?;
    let (slowest, host) = started(alone.path()).await?;
    host.shutdown().await;
    let (all, host) = started(together.path()).await?;
    println!("  the slowest alone is ready after {:>8.0} ms", ms(slowest));
    println!("  all of them are ready after      {:>8.0} ms, {:.2} times that", ms(all), ms(all) / ms(slowest));
    let awake = (memory_kib(), processes());
    wait(&host, |host| host.overview().iter().all(|view| view.activity.starts_with("asleep"))).await?;
    let asleep = (memory_kib(), processes());
    println!("  memory of all of them            {:>8} KiB in {} processes", awake.0, awake.1);
    println!("  once they sleep                  {:>8} KiB in {} processes", asleep.0, asleep.1);
    first_calls(&host, plugins).await?;
    host.shutdown().await;
    Ok(())
}

/// First calls of plugins that sleep, and first calls of the same server started plainly, by turns.
async fn first_calls(host: &Host, plugins: usize) -> Fallible<()> {
    let (mut plain, mut woken) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS.min(plugins.saturating_sub(1)) {
        plain.push(tokio::task::spawn_blocking(plain_call).await??);
        let began = Instant::now();
        // The first of them is the slow one.
        call(host, &format!("p{}", round + 1)).await?;
        woken.push(began.elapsed());
    }
    let (plain, woken) = (median_ms(&mut plain), median_ms(&mut woken));
    println!("  a server started plainly answers its first call after {plain:>7.1} ms (median)");
    println!("  one that sleeps answers after                         {woken:>7.1} ms, {:.1} ms more", woken - plain);
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median_ms(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().map(ms).unwrap_or_default()
}

/// Opens a host on a home where plugins are switched on; the time until all of them are there.
async fn started(home: &Path) -> Fallible<(Duration, Host)> {
    let host = open(home).await?;
    let began = Instant::now();
    host.start_enabled();
    wait(&host, |host| host.overview().iter().all(|view| view.status.as_str() == "ready")).await?;
    Ok((began.elapsed(), host))
}

async fn wait(host: &Host, is_so: impl Fn(&Host) -> bool) -> Fallible<()> {
    let began = Instant::now();
    while !is_so(host) {
        if began.elapsed() > STATE_LIMIT {
            return Err("the plugins are not where they should be".into());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// A home with so many plugins switched on, the first of them slow.
async fn prepare(home: &Path, plugins: usize) -> Fallible<()> {
    let host = open(home).await?;
    for index in 0..plugins {
        let delay_ms = if index == 0 { SLOWEST_MS } else { 0 };
        run_plugin(&host, &format!("p{index}"), delay_ms).await?;
    }
    host.shutdown().await;
    Ok(())
}

async fn open(home: &Path) -> Fallible<Host> {
    let program = std::env::current_exe()?;
    let folder = program.parent().ok_or("the benchmark has no folder")?;
    let config = HostConfig {
        home: home.to_owned(),
        environment: Environment::Production,
        catalogue: Catalogue::seed(),
        launcher: Launcher::current_exe()?,
        host_environment: vec![("PATH".to_owned(), folder.display().to_string())],
        naming: Naming::Prefixed,
        restart_base_delay: Duration::from_secs(1),
        supervision: SupervisionSettings::default(),
        operator: "bench".to_owned(),
        trust: plugward_host::Trust::default(),
    };
    Ok(Host::open(config).await?)
}

async fn run_plugin(host: &Host, id: &str, delay_ms: u64) -> Fallible<()> {
    let package = tempfile::tempdir()?;
    let program = std::env::current_exe()?;
    let command = program.file_name().and_then(|name| name.to_str()).ok_or("the benchmark has no name")?;
    let manifest = format!(
        "id: {id}\nname: Fixture\nversion: 1.0.0\npermissions: [notes.read]\nsupervision:\n  idle_stop_seconds: {IDLE_SECONDS}\nbackend:\n  type: \
         mcp\n  transport: stdio\n  command: {command}\n  args: [{SERVER}, '{delay_ms}']\n"
    );
    std::fs::write(package.path().join("plugin.yaml"), manifest)?;
    host.install(package.path(), None).await?;
    let review = host.review(id).await?;
    host.approve(id, &review.digest, ApprovalOrigin::Test).await?;
    host.enable(id).await?;
    // Its tools are seen now, and what was seen is approved: without that it could not sleep.
    let review = host.review(id).await?;
    host.approve(id, &review.digest, ApprovalOrigin::Test).await?;
    Ok(())
}

async fn call(host: &Host, id: &str) -> Fallible<()> {
    let arguments = RawValue::from_string(json!({ "text": "hello" }).to_string())?;
    let tool = ToolSelector::Id(format!("{id}.echo"));
    let report = host.call(CallRequest::new(tool, Some(arguments), "bench")).await;
    report.outcome.map_err(|failure| failure.message(id))?;
    Ok(())
}

/// The time of a server that is started as any client does it, without a sandbox, until it answered a call.
fn plain_call() -> Fallible<Duration> {
    let executable = std::env::current_exe()?;
    let argv = [executable.as_os_str(), SERVER.as_ref(), "0".as_ref()].map(ToOwned::to_owned).to_vec();
    let spec =
        LaunchSpec { executable, argv, cwd: "/".into(), env: Vec::new(), stop: StopGrace::default(), sandbox: None };
    let began = Instant::now();
    let spawned = Launcher::current_exe()?.spawn(&spec)?;
    let (mut stdin, stdout) = (std::fs::File::from(spawned.stdin), std::fs::File::from(spawned.stdout));
    let mut answers = BufReader::new(stdout).lines();
    let mut ask = |id: u64, method: &str, params: serde_json::Value| -> Fallible<()> {
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(stdin, "{line}")?;
        let answer = answers.next().ok_or("the server has ended")??;
        if answer.contains("\"result\"") { Ok(()) } else { Err(answer.into()) }
    };
    let client = json!({ "name": "bench", "version": "1" });
    ask(1, "initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client }))?;
    ask(2, "tools/call", json!({ "name": "echo", "arguments": { "text": "hello" } }))?;
    let took = began.elapsed();
    // Dropping it ends it.
    drop(spawned.process);
    Ok(took)
}

/// This process and everything below it.
fn tree() -> Vec<u32> {
    let mut all = vec![std::process::id()];
    let mut at = 0;
    while at < all.len() {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", all[at])).into_iter().flatten().flatten();
        for task in tasks {
            let list = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(list.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        at += 1;
    }
    all
}

fn processes() -> usize {
    tree().len()
}

/// Memory of the host and all of its plugins, shared pages divided among those who share them.
fn memory_kib() -> u64 {
    let of = |pid: u32| {
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
        line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or(0)
    };
    tree().into_iter().map(of).sum()
}
