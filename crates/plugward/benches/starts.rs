//! What the sandbox adds to the start of a program, against starting the same program plainly, and the memory it takes.
//!
//! Owns four ways to start `/bin/true` and wait for its end: as any program does it, through the launcher, in a sandbox at
//! level `full`, and in `bwrap --unshare-all` where that is installed. The ways take turns, so that a machine that is busy
//! for a while is busy for all of them. Refuses to judge: it prints figures and ratios.
#![allow(clippy::print_stdout, reason = "the figures are the output")]
#![allow(missing_docs, reason = "a program of its own, without an interface")]

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use plugward_sandbox::{
    LaunchSpec, Launcher, Level, MainExit, SandboxSpec, Spawned, StopGrace, UserPolicy, system_paths,
};

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The program: it does nothing, so what is measured is the way to it.
const PROGRAM: &str = "/bin/true";

/// Rounds; in each, every way is taken once.
const ROUNDS: usize = 100;

/// Longest wait for the end of one program.
const END_LIMIT: Duration = Duration::from_secs(20);

/// User of the program when this runs as root, as a host that runs as root has one for each plugin.
const OWN_USER: u32 = 61_002;

/// One way with the times it took.
struct Way<'a> {
    name: &'static str,
    start: Box<dyn Fn() -> Fallible<()> + 'a>,
    times: Vec<Duration>,
}

fn main() -> Fallible<()> {
    // First of all: a launcher must have a single thread and no state.
    plugward_sandbox::launcher_main_if_requested();
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("run `cargo bench -p plugward` for figures");
        return Ok(());
    }
    let launcher = Launcher::current_exe()?;
    let data = tempfile::tempdir()?;
    let (bare, full) = (spec(PROGRAM, &[], None), spec(PROGRAM, &[], Some(sandbox(data.path()))));
    let mut ways = vec![
        Way::new("plain", plainly),
        Way::new("launcher", || through(&launcher, &bare)),
        Way::new("full", || through(&launcher, &full)),
    ];
    if Path::new("/usr/bin/bwrap").exists() {
        ways.push(Way::new("bwrap", in_bubblewrap));
    } else {
        println!("`bwrap` is not installed, so it is not measured");
    }
    for way in &ways {
        // The first start at a level includes its probe.
        (way.start)()?;
    }
    for _ in 0..ROUNDS {
        for way in &mut ways {
            let began = Instant::now();
            (way.start)()?;
            way.times.push(began.elapsed());
        }
    }
    let cpus = std::thread::available_parallelism()?;
    println!("start and end of `{PROGRAM}`; {cpus} CPUs, {ROUNDS} rounds that take turns");
    println!("  {:<12}{:>10}{:>10}{:>10}{:>12}{:>8}", "", "p50 ms", "p95 ms", "min ms", "added p50", "ratio");
    let plain = ways[0].part_ms(0.5);
    for way in &ways {
        let p50 = way.part_ms(0.5);
        println!(
            "  {:<12}{p50:>10.2}{:>10.2}{:>10.2}{:>12.2}{:>8.1}",
            way.name,
            way.part_ms(0.95),
            way.part_ms(0.0),
            p50 - plain,
            p50 / plain
        );
    }
    tell_memory(&launcher, data.path())
}

impl<'a> Way<'a> {
    fn new(name: &'static str, start: impl Fn() -> Fallible<()> + 'a) -> Self {
        Self { name, start: Box::new(start), times: Vec::with_capacity(ROUNDS) }
    }

    /// The time that this part of the starts stayed below, in milliseconds.
    fn part_ms(&self, part: f64) -> f64 {
        let mut sorted = self.times.clone();
        sorted.sort_unstable();
        let index = ((sorted.len() - 1) as f64 * part) as usize;
        sorted[index].as_secs_f64() * 1e3
    }
}

fn plainly() -> Fallible<()> {
    let mut command = Command::new(PROGRAM);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).env_clear().status()?;
    if status.success() { Ok(()) } else { Err(format!("{PROGRAM}: {status}").into()) }
}

fn in_bubblewrap() -> Fallible<()> {
    let mut command = Command::new("/usr/bin/bwrap");
    command.args(["--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
    for path in system_paths() {
        command.arg("--ro-bind").arg(&path).arg(&path);
    }
    let status = command.arg(PROGRAM).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("bwrap: {status}").into()) }
}

fn through(launcher: &Launcher, spec: &LaunchSpec) -> Fallible<()> {
    let Spawned { stdin, stdout, stderr, process } = launcher.spawn(spec)?;
    drop((stdin, stdout, stderr));
    let report = process.wait_blocking(END_LIMIT).ok_or("it did not end")?;
    if report.main == MainExit::Code(0) { Ok(()) } else { Err(format!("{PROGRAM}: {}", report.main).into()) }
}

fn spec(program: &str, arguments: &[&str], sandbox: Option<SandboxSpec>) -> LaunchSpec {
    let argv = [program].iter().chain(arguments).map(|argument| argument.into()).collect();
    LaunchSpec {
        executable: program.into(),
        argv,
        cwd: "/".into(),
        env: Vec::new(),
        stop: StopGrace::default(),
        sandbox,
    }
}

/// What a plugin without permissions gets.
fn sandbox(data: &Path) -> SandboxSpec {
    let user = match rustix::process::geteuid().is_root() {
        true => UserPolicy::Drop { uid: OWN_USER, gid: OWN_USER },
        false => UserPolicy::Same,
    };
    SandboxSpec {
        read_only: system_paths(),
        home_dir: Some(data.to_owned()),
        certificates: true,
        user,
        ..SandboxSpec::new(Level::Full)
    }
}

/// Memory of the processes that stand between the host and one plugin.
fn tell_memory(launcher: &Launcher, data: &Path) -> Fallible<()> {
    println!("\nmemory beside one plugin, its own processes aside (KiB, shared pages in part)");
    for (name, sandbox) in [("launcher", None), ("full", Some(sandbox(data)))] {
        let waiting = launcher.spawn(&spec("/bin/sh", &["-c", "echo up; read end"], sandbox))?;
        let mut up = [0; 3];
        fs::File::from(waiting.stdout).read_exact(&mut up)?;
        let (pid, plugin) = (waiting.process.launcher_pid(), waiting.process.pid());
        let between: Vec<u32> = std::iter::once(pid).chain(children(pid)).filter(|pid| *pid != plugin).collect();
        let kib: u64 = between.iter().map(|pid| proportional_kib(*pid)).sum();
        println!("  {name:<12}{kib:>8}  in {} processes", between.len());
    }
    Ok(())
}

fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Memory of a process, shared pages divided among those who share them; zero where the kernel does not tell.
fn proportional_kib(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}
