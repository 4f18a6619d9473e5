//! Plugins that use up the machine, each in its own way: they end, or are refused, at a limit that has a name, and neither
//! the host nor another plugin notices.

use std::cell::Cell;
use std::fs;
use std::time::{Duration, Instant};

use plugward_host::{CallReport, Environment, LogOrigin};
use serde_json::json;
use tokio::sync::Mutex;

use crate::support::{Fixture, Settings, TestHost, eventually};

/// Most that the host's memory may grow by in one bomb. Each of them is larger than that, or has nothing to do with memory
/// of the host; what the host keeps of a plugin, its longest message and its log, is a few mebibytes.
const HOST_GROWTH_KIB: u64 = 64 * 1024;

/// Longest an answer of the neighbour may take. Far below what a call that waits for a bomb would take, and far above what
/// a busy machine does to one that does not.
const NEIGHBOUR_PATIENCE: Duration = Duration::from_secs(10);

/// How many times slower its usual answer may become. A bomb takes one of the two processors, and the machine has other
/// work; a neighbour that waits for the bomb itself is slower by thousands.
const NEIGHBOUR_RATIO: u32 = 20;

/// Below this, what the machine does besides is more than what any bomb adds.
const UNNOTICED: Duration = Duration::from_millis(100);

/// Most lines of a plugin that the host keeps.
const LOG_LINES: usize = 500;

/// Calls of the neighbour before anything happens.
const QUIET_CALLS: usize = 20;

/// Held by the bomb that goes off.
static ALONE: Mutex<()> = Mutex::const_new(());

/// One bomb: below its limit, and beyond.
struct Bomb {
    id: &'static str,
    kind: &'static str,
    /// The limit it meets, as a line of the manifest's `sandbox` section.
    limit: &'static str,
    /// Below every limit.
    harmless: u64,
    /// Far beyond.
    beyond: u64,
    /// Where it writes.
    folder: Folder,
    told: Told,
}

#[derive(Clone, Copy)]
enum Folder {
    Temporary,
    Home,
}

/// Who says at which limit it was, and how.
#[derive(Clone, Copy)]
enum Told {
    /// The kernel, to the plugin, which goes on; and the host, to people, which limit that is.
    ToBoth(&'static str, &'static str),
    /// The host, to people: the plugin is ended.
    ToPeople(&'static [&'static str]),
    /// Nobody has to know: what is beyond is forgotten, and the plugin goes on.
    Forgotten,
}

impl Bomb {
    fn fixture(&self, limit: &str) -> Fixture {
        let limits = format!("sandbox:\n  {limit}\n");
        Fixture::imported(self.id, &["bombs"]).backend("restart: never").backend("stdout: strict").extra(&limits)
    }

    async fn set_off(&self, host: &TestHost, amount: u64) -> CallReport {
        let folder = match self.folder {
            Folder::Temporary => "/tmp".to_owned(),
            Folder::Home => host.home().join("homes").join(self.id).canonicalize().unwrap().display().to_string(),
        };
        let arguments = json!({"kind": self.kind, "amount": amount, "folder": folder});
        host.call(&format!("{}.bomb", self.id), arguments).await
    }
}

/// What the caller reads.
fn words(report: CallReport, tool: &str) -> String {
    match report.outcome {
        Ok(reply) => reply.output()["content"][0]["text"].as_str().unwrap_or_default().to_owned(),
        Err(failure) => failure.message(tool),
    }
}

/// Memory of this process, which is the host, in KiB.
fn host_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn ask_neighbour(host: &TestHost) -> Duration {
    let started = Instant::now();
    // The same server, one that takes next to nothing.
    let said = host.text("neighbour.bomb", json!({"kind": "cpu", "amount": 0})).await;
    assert_eq!(said, "done: 0");
    started.elapsed()
}

/// Median and longest.
fn summary(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    (times[times.len() / 2], *times.last().unwrap())
}

/// What people read of a plugin that fell over.
async fn fall_of(host: &TestHost, id: &str) -> String {
    eventually(&format!("{id} falls over"), || {
        let lines = host.host.logs(id).unwrap();
        let fell = lines.into_iter().find(|line| line.origin == LogOrigin::Host && line.text.contains("fell over"));
        fell.map(|line| line.text)
    })
    .await
}

async fn assert_told(host: &TestHost, bomb: &Bomb, said: &str, fall: &str) {
    match bomb.told {
        Told::ToBoth(error, limit) => {
            assert!(said.starts_with("refused: ") && said.contains(error), "{}: {said}", bomb.id);
            eventually(&format!("people read of `{limit}`"), || {
                let lines = host.host.logs(bomb.id).unwrap();
                lines.into_iter().find(|line| line.origin == LogOrigin::Host && line.text.contains(limit))
            })
            .await;
            let shown = host.host.plugin(bomb.id).await.unwrap().limits_reached;
            assert!(shown.len() == 1 && shown[0].contains(limit), "{}: {shown:?}", bomb.id);
        }
        Told::ToPeople(parts) => {
            assert!(parts.iter().all(|part| fall.contains(part)), "{}: {fall}", bomb.id);
            let detail = host.host.plugin(bomb.id).await.unwrap().detail;
            assert!(parts.iter().all(|part| detail.contains(part)), "{}: its state says {detail}", bomb.id);
            eventually("its whole tree is gone", || host.processes_of(bomb.id).is_empty().then_some(())).await;
        }
        Told::Forgotten => {
            assert_eq!(said, format!("done: {}", bomb.beyond), "{}", bomb.id);
            let kept = host.host.logs(bomb.id).unwrap().len();
            assert!((1..=LOG_LINES).contains(&kept), "{}: {kept} lines are kept", bomb.id);
        }
    }
}

/// Sets one bomb off beside a neighbour that is called all the time.
#[allow(
    clippy::print_stdout,
    reason = "how much the neighbour and the host notice is worth reading, whatever the bound"
)]
async fn explode(bomb: &Bomb) {
    // One at a time: the memory that is looked at is that of this process.
    let _alone = ALONE.lock().await;
    let host = TestHost::with(Settings { environment: Environment::Production, ..Settings::default() }).await;
    host.run(&Fixture::imported("neighbour", &["bombs"])).await;
    host.run(&bomb.fixture(bomb.limit)).await;
    let tool = format!("{}.bomb", bomb.id);
    let control = words(bomb.set_off(&host, bomb.harmless).await, &tool);
    assert_eq!(control, format!("done: {}", bomb.harmless), "control: {} below its limit", bomb.id);
    let mut quiet = Vec::new();
    for _ in 0..QUIET_CALLS {
        quiet.push(ask_neighbour(&host).await);
    }
    let shown = host.host.plugin(bomb.id).await.unwrap().limits_reached;
    assert_eq!(shown, [""; 0], "control: {} is at no limit yet", bomb.id);
    let before_kib = host_kib();
    let (mut most_kib, mut busy) = (before_kib, Vec::new());
    let is_over = Cell::new(false);
    let going_off = async {
        let said = words(bomb.set_off(&host, bomb.beyond).await, &tool);
        let fall = if matches!(bomb.told, Told::ToPeople(_)) { fall_of(&host, bomb.id).await } else { String::new() };
        is_over.set(true);
        (said, fall)
    };
    let asking = async {
        // Once in any case: some bombs are over before an answer is there.
        loop {
            busy.push(ask_neighbour(&host).await);
            most_kib = most_kib.max(host_kib());
            if is_over.get() {
                return;
            }
        }
    };
    let ((said, fall), ()) = tokio::join!(going_off, asking);
    let (quiet, calls, busy) = (summary(quiet), busy.len(), summary(busy));
    let grown_kib = most_kib.saturating_sub(before_kib);
    println!("{}: said `{said}`, fell `{fall}`", bomb.id);
    println!("{}: neighbour {quiet:?} before, {busy:?} in {calls} calls during; host +{grown_kib} KiB", bomb.id);
    let usual = (quiet.0 * NEIGHBOUR_RATIO).max(UNNOTICED);
    assert!(busy.0 <= usual, "{}: the neighbour takes {:?}, and took {:?} before", bomb.id, busy.0, quiet.0);
    assert!(busy.1 < NEIGHBOUR_PATIENCE, "{}: the neighbour waited {:?}", bomb.id, busy.1);
    assert!(grown_kib <= HOST_GROWTH_KIB, "{}: the host grew by {grown_kib} KiB", bomb.id);
    assert_told(&host, bomb, &said, &fall).await;
    host.host.disable(bomb.id).await.unwrap();
    host.assert_nothing_left(bomb.id);
    host.host.shutdown().await;
}

const DEFAULTS: Bomb =
    Bomb { id: "bomb", kind: "", limit: "", harmless: 2, beyond: 0, folder: Folder::Temporary, told: Told::Forgotten };

// Requirements 92, 93: a fork bomb gets an error from the kernel, and ends with its plugin.
#[tokio::test(flavor = "multi_thread")]
async fn processes_are_refused_beyond_the_limit() {
    let told = Told::ToBoth("Resource temporarily unavailable", "24 processes and threads, its limit (`processes`)");
    explode(&Bomb { kind: "fork", limit: "processes: 24", beyond: 500, told, ..DEFAULTS }).await;
}

// Requirement 92: private memory.
#[tokio::test(flavor = "multi_thread")]
async fn private_memory_ends_at_the_limit_by_name() {
    let told = Told::ToPeople(&["the limit on memory is 96 MiB"]);
    explode(&Bomb { kind: "memory", limit: "memory_bytes: 100663296", beyond: 400, told, ..DEFAULTS }).await;
}

// Requirement 92: memory that belongs to no process.
#[tokio::test(flavor = "multi_thread")]
async fn shared_memory_ends_at_the_limit_by_name() {
    let told = Told::ToPeople(&["the limit on memory is 32 MiB"]);
    explode(&Bomb { kind: "shared", limit: "memory_bytes: 33554432", beyond: 60, told, ..DEFAULTS }).await;
}

// Requirement 93: the folder for temporary files is in memory, and small.
#[tokio::test(flavor = "multi_thread")]
async fn temporary_files_are_refused_beyond_the_limit() {
    let told = Told::ToBoth("No space left on device", "its folder for temporary files is full: 64 MiB");
    explode(&Bomb { kind: "files", limit: "memory_bytes: 1073741824", beyond: 400, told, ..DEFAULTS }).await;
}

// Requirement 93: a full disk would end more than this plugin.
#[tokio::test(flavor = "multi_thread")]
async fn own_data_ends_at_the_limit_by_name() {
    let told = Told::ToPeople(&["its own data grew to", "the limit is 8 MiB"]);
    let bomb = Bomb { kind: "files", limit: "disk_bytes: 8388608", beyond: 96, folder: Folder::Home, told, ..DEFAULTS };
    explode(&bomb).await;
}

// Requirement 93: descriptors.
#[tokio::test(flavor = "multi_thread")]
async fn descriptors_are_refused_beyond_the_limit() {
    let told = Told::ToBoth("Too many open files", "has 64 open files, its limit (`open_files`)");
    explode(&Bomb { kind: "descriptors", limit: "open_files: 64", beyond: 1000, told, ..DEFAULTS }).await;
}

// Requirement 93: a person reads that it was the limit on processor time, and not the number of a signal.
#[tokio::test(flavor = "multi_thread")]
async fn processor_time_ends_at_the_limit_by_name() {
    let told = Told::ToPeople(&["limit on processor time", "`cpu_seconds`"]);
    explode(&Bomb { kind: "cpu", limit: "cpu_seconds: 1", beyond: 25_000, told, ..DEFAULTS }).await;
}

// Requirement 71: a line that does not end is not collected.
#[tokio::test(flavor = "multi_thread")]
async fn an_endless_line_ends_at_the_limit_by_name() {
    // Two mebibytes are the longest message, where a manifest gives no other.
    let told = Told::ToPeople(&["more than the limit of 2097152 bytes"]);
    let bomb = Bomb { kind: "stdout", limit: "processes: 64", harmless: 0, beyond: 256, told, ..DEFAULTS };
    explode(&bomb).await;
}

// Requirements 79, 100: what is said on stderr is read and, beyond the last lines, forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_on_stderr_is_read_and_forgotten() {
    explode(&Bomb { kind: "stderr", limit: "processes: 64", beyond: 128, ..DEFAULTS }).await;
}

// The same for a plugin that ignores the signal of that limit: it is killed, and the limit is named all the same.
#[tokio::test(flavor = "multi_thread")]
async fn processor_time_that_goes_on_ends_by_name_too() {
    let host = TestHost::with(Settings { environment: Environment::Production, ..Settings::default() }).await;
    let stubborn = Fixture::imported("bomb", &["bombs", "--stubborn"]).backend("restart: never");
    host.run(&stubborn.extra("sandbox:\n  cpu_seconds: 1\n")).await;
    let _answer = host.call("bomb.bomb", json!({"kind": "cpu", "amount": 25_000})).await;
    let fall = fall_of(&host, "bomb").await;
    assert!(fall.contains("`cpu_seconds`"), "{fall}");
    host.host.shutdown().await;
}

// The same signal from elsewhere says nothing about that limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_is_killed_is_not_said_to_have_used_up_its_time() {
    let host = TestHost::with(Settings { environment: Environment::Production, ..Settings::default() }).await;
    let fixture = Fixture::imported("bomb", &["bombs"]).backend("restart: never");
    host.run(&fixture.extra("sandbox:\n  cpu_seconds: 60\n")).await;
    let pid = host.host.host_status("bomb").unwrap().pid.unwrap();
    let killed = std::process::Command::new("/bin/kill").args(["-KILL", &pid.to_string()]).status().unwrap();
    assert!(killed.success());
    let fall = fall_of(&host, "bomb").await;
    assert!(fall.contains("signal 9") && !fall.contains("cpu_seconds"), "{fall}");
    host.host.shutdown().await;
}
