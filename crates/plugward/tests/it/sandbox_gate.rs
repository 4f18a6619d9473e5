//! Whether a plugin starts in its sandbox, without one, or not at all.

use plugward_host::{Environment, ErrorCode, LogOrigin};
use plugward_sandbox::{
    LAUNCH_ARGUMENT, LaunchSpec, Launcher, Level, MainExit, Network, SandboxSpec, StopGrace, UserPolicy,
};

use crate::support::{Fixture, PATIENCE, Settings, TestHost, fixture, plugward};

fn at_level(id: &str, level: &str) -> Fixture {
    Fixture::imported(id, &["attempts"]).extra(&format!("sandbox:\n  minimum_level: {level}\n"))
}

async fn production() -> TestHost {
    TestHost::with(Settings { environment: Environment::Production, ..Settings::default() }).await
}

// Requirements 104, 105: outside development nothing runs with all rights of its user.
#[tokio::test(flavor = "multi_thread")]
async fn production_starts_nothing_unconfined() {
    let host = production().await;
    for level in ["none", "limited"] {
        let error = host.try_run(&at_level(level, level)).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::McpSandboxRequired, "{}", error.message);
        assert!(error.hint.unwrap().contains("PLUGWARD_ENVIRONMENT=development"));
        let review = host.host.review(level).await.unwrap();
        assert!(review.isolation.contains("will not be started"), "{}", review.isolation);
    }
}

// Requirement 69: development is no reason to run a plugin that can be confined without its walls.
#[tokio::test(flavor = "multi_thread")]
async fn development_confines_what_asks_for_it_and_tells_of_the_rest() {
    let host = TestHost::new().await;
    let view = host.run(&at_level("kept", "full")).await;
    assert_eq!((view.enforcement.unwrap().level, view.detail.as_str()), (Level::Full, "running"));
    let view = host.run(&at_level("free", "none")).await;
    assert_eq!(view.enforcement.unwrap().level, Level::None);
    assert_eq!(view.detail, "running without a sandbox, with all your rights: it asks for level `none`");
    let lines = host.host.logs("free").unwrap();
    assert!(lines.iter().any(|line| line.origin == LogOrigin::Host && line.text.contains("without a sandbox")));
}

// Requirement 146: single hosts take a network of the plugin's own; below that level it is an error and not all of the
// network.
#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_cannot_be_kept_to_stops_the_start() {
    let host = TestHost::new().await;
    for level in ["partial", "limited"] {
        let asks = at_level(level, level).permission("net:api.example.test");
        let error = host.try_run(&asks).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::PluginHostStartFailed);
        assert!(error.message.contains("`net:api.example.test:443` is for single hosts"), "{}", error.message);
        let review = host.host.review(level).await.unwrap();
        assert!(review.warnings.iter().any(|warning| warning.contains("it will not start")), "{:?}", review.warnings);
    }
    let asks = Fixture::imported("reader", &["attempts"]).permission("fs.read:/no/such/place");
    let error = host.try_run(&asks).await.unwrap_err();
    assert!(error.message.contains("`/no/such/place`, which does not exist"), "{}", error.message);
}

/// The user of a plugward whose machine is another one's sandbox.
const PLUGWARDS_USER: u32 = 61_800;

/// A machine on which no namespace can be made: a plugward inside of a sandbox that forbids making them.
struct WithoutNamespaces {
    root: tempfile::TempDir,
}

impl WithoutNamespaces {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let root = tempfile::Builder::new().prefix("pw").tempdir().unwrap();
        let place = |name: &str| root.path().join(name);
        for folder in ["", "bin", "package", "state"] {
            std::fs::create_dir_all(place(folder)).unwrap();
            std::fs::set_permissions(place(folder), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        // Where the tests are built may be closed to another user.
        std::fs::copy(plugward(), place("bin/plugward")).unwrap();
        std::fs::copy(fixture(), place("bin/mcp-fixture")).unwrap();
        std::fs::write(place("package/plugin.yaml"), at_level("kept", "full").manifest()).unwrap();
        Self { root }
    }

    /// What has to be done before, on the machine as it is; that sandbox forbids changing the modes of files too.
    fn prepare(&self, arguments: &[&str]) -> String {
        use std::os::unix::process::CommandExt as _;
        let place = |name: &str| self.root.path().join(name);
        let mut command = std::process::Command::new(place("bin/plugward"));
        command.args(arguments).env_clear().env("PLUGWARD_HOME", place("state"));
        command.env("PATH", format!("{}:/usr/bin:/bin", place("bin").display()));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(place("state"), Some(PLUGWARDS_USER), Some(PLUGWARDS_USER)).unwrap();
            command.uid(PLUGWARDS_USER).gid(PLUGWARDS_USER);
        }
        let done = command.output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    /// Exit code and everything written.
    fn run(&self, environment: &str, arguments: &[&str]) -> (MainExit, String) {
        let place = |name: &str| self.root.path().join(name);
        let mut sandbox = SandboxSpec::new(Level::Limited);
        sandbox.network = Network::Open;
        sandbox.home_dir = Some(place("state"));
        if rustix::process::geteuid().is_root() {
            sandbox.user = UserPolicy::Drop { uid: PLUGWARDS_USER, gid: PLUGWARDS_USER };
        }
        let variable = |name: &str, value: std::ffi::OsString| (name.into(), value);
        let path = format!("{}:/usr/bin:/bin", place("bin").display());
        let spec = LaunchSpec {
            executable: place("bin/plugward"),
            argv: ["plugward"].iter().chain(arguments).map(std::ffi::OsString::from).collect(),
            cwd: self.root.path().to_owned(),
            env: vec![
                variable("PATH", path.into()),
                variable("PLUGWARD_HOME", place("state").into()),
                variable("PLUGWARD_ENVIRONMENT", environment.into()),
            ],
            stop: StopGrace::default(),
            sandbox: Some(sandbox),
        };
        let started = Launcher::at(plugward(), [LAUNCH_ARGUMENT]).spawn(&spec).unwrap();
        drop(started.stdin);
        let mut text = std::io::read_to_string(std::fs::File::from(started.stdout)).unwrap();
        text += &std::io::read_to_string(std::fs::File::from(started.stderr)).unwrap();
        (started.process.wait_blocking(PATIENCE).unwrap().main, text)
    }
}

// Requirements 105, 146: where the level cannot be had, production starts nothing, and development says what it does.
#[test]
fn a_machine_without_the_level_runs_it_only_in_development_and_says_so() {
    let machine = WithoutNamespaces::new();
    let package = machine.root.path().join("package").display().to_string();
    machine.prepare(&["install", &package]);
    let review: serde_json::Value = serde_json::from_str(&machine.prepare(&["review", "kept", "--json"])).unwrap();
    machine.prepare(&["approve", "kept", "--digest", review["digest"].as_str().unwrap()]);
    let (code, text) = machine.run("production", &["enable", "kept"]);
    assert_eq!(code, MainExit::Code(4), "{text}");
    assert!(text.contains("MCP_SANDBOX_REQUIRED") && text.contains("namespaces"), "{text}");
    let (code, text) = machine.run("development", &["enable", "kept", "--json"]);
    assert_eq!(code, MainExit::Code(0), "{text}");
    assert!(text.contains("without a sandbox, with all your rights: sandbox level `full` is not possible"), "{text}");
    assert!(text.contains("\"none\""), "the level that is reported: {text}");
}

// A host that runs as root has a user for each plugin, in a tree whose folders may be closed to that user.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_with_a_user_of_its_own_is_told_what_it_cannot_pass() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let host = production().await;
    let outcome = host.try_run(&at_level("open", "partial")).await;
    if !rustix::process::geteuid().is_root() {
        assert_eq!(outcome.unwrap().enforcement.unwrap().level, Level::Partial, "its user is the owner of it all");
        return;
    }
    let error = outcome.unwrap_err();
    let (_, folders) = error.message.split_once("chmod o+x ").unwrap();
    for folder in folders.trim_end_matches('`').split(' ') {
        assert!(std::path::Path::new(folder).starts_with(host.home().canonicalize().unwrap()), "{folder}");
        let mode = std::fs::metadata(folder).unwrap().permissions().mode();
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode | 0o001)).unwrap();
    }
    let view = host.host.enable("open").await.unwrap();
    assert_eq!(view.enforcement.unwrap().level, Level::Partial, "what the message says helps");
    // Requirement 86: and no two plugins are the same user.
    host.run(&at_level("other", "full")).await;
    let owner = |id: &str| std::fs::metadata(host.home().join("homes").join(id)).unwrap().uid();
    assert!(owner("open") != owner("other") && owner("open") != 0 && owner("other") != 0);
}
