//! What the attacks are aimed at, and the sandbox between: all real, all ours.
//!
//! Owns a folder with a package, a plugin's data and another plugin's, a user's secret, services on every kind of socket,
//! and a canary process of the plugin's user. Refuses the user's own files as targets.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::Read,
    net::{TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixListener},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use plugward_sandbox::{
    Backend, LAUNCH_ARGUMENT, LaunchSpec, Launcher, Level, MainExit, SandboxSpec, Spawned, StopGrace, UserPolicy,
    system_paths,
};

use crate::probe::PROBE;

/// Bound for things that take milliseconds on an idle machine; generous for a loaded one.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// First argument that makes this binary a launcher without one layer.
pub(crate) const WITHOUT: &str = "launch-without";
/// What such a launcher is without if it is not a whole layer, followed by the version it has.
const NEWER_LANDLOCK: &str = "landlock-after-";
/// The same where the probe has the layer that is named next.
const AFTER_PROBE: &str = "after-probe-";
/// User of the plugins of a host that runs as root.
const PLUGIN_UID: u32 = 61_001;

pub(crate) struct World {
    pub(crate) root: PathBuf,
    pub(crate) tcp: TcpListener,
    pub(crate) udp: UdpSocket,
    pub(crate) abstract_name: String,
    pub(crate) shared_memory_key: i32,
    canary: Child,
    _listeners: [UnixListener; 2],
    _folder: tempfile::TempDir,
    _shared_file: tempfile::NamedTempFile,
    pub(crate) shared_path: PathBuf,
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The user of plugins in these tests: their own where the host is root, the host's otherwise.
pub(crate) fn plugin_user() -> UserPolicy {
    if is_root() { UserPolicy::Drop { uid: PLUGIN_UID, gid: PLUGIN_UID } } else { UserPolicy::Same }
}

/// Makes the plugin's user the owner, where it has one of its own.
pub(crate) fn give_to_plugin(path: &Path) {
    if let UserPolicy::Drop { uid, gid } = plugin_user() {
        std::os::unix::fs::chown(path, Some(uid), Some(gid)).unwrap();
    }
}

fn open_to_all(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("plugward-attacks-").tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        open_to_all(&root, 0o755);
        for name in ["package", "data", "other", "home", "other/data"] {
            fs::create_dir(root.join(name)).unwrap();
            open_to_all(&root.join(name), 0o777);
        }
        for name in ["package/main.py", "other/data/file", "home/secret"] {
            fs::write(root.join(name), "canary\n").unwrap();
            open_to_all(&root.join(name), 0o666);
        }
        fs::copy(std::env::current_exe().unwrap(), root.join("package/probe")).unwrap();
        open_to_all(&root.join("package/probe"), 0o755);
        fs::copy(root.join("package/probe"), root.join("package/unreadable")).unwrap();
        open_to_all(&root.join("package/unreadable"), 0o111);
        let named = UnixListener::bind(root.join("home/socket")).unwrap();
        open_to_all(&root.join("home/socket"), 0o777);
        let abstract_name = format!("plugward-attacks-{}", std::process::id());
        let unnamed = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&abstract_name).unwrap()).unwrap();
        let mut canary = Command::new("/bin/sleep");
        canary.arg("600").stdin(Stdio::null()).env("SECRET", "canary");
        if is_root() {
            canary.uid(PLUGIN_UID).gid(PLUGIN_UID);
        }
        let shared_file = tempfile::Builder::new().tempfile_in("/dev/shm").unwrap();
        open_to_all(shared_file.path(), 0o666);
        Self {
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            abstract_name,
            shared_memory_key: make_shared_memory(),
            canary: canary.spawn().unwrap(),
            _listeners: [named, unnamed],
            shared_path: shared_file.path().to_owned(),
            _shared_file: shared_file,
            _folder: folder,
            root,
        }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.root.join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn canary(&self) -> String {
        self.canary.id().to_string()
    }

    /// The sandbox of the plugin under attack.
    pub(crate) fn sandbox(&self, level: Level) -> SandboxSpec {
        SandboxSpec {
            package_dir: Some(self.root.join("package")),
            read_only: system_paths(),
            home_dir: Some(self.root.join("data")),
            user: plugin_user(),
            ..SandboxSpec::new(level)
        }
    }

    /// A program in the world, unconfined for level `none`.
    pub(crate) fn spec(&self, level: Level, executable: &str, arguments: &[&str]) -> LaunchSpec {
        let argv = [executable].iter().chain(arguments).map(OsString::from).collect();
        LaunchSpec {
            executable: executable.into(),
            argv,
            cwd: self.root.join("data"),
            env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("HOME".into(), self.root.join("data").into())],
            stop: StopGrace { term_after: Duration::from_millis(300), kill_after: Duration::from_millis(300) },
            sandbox: (level != Level::None).then(|| self.sandbox(level)),
        }
    }

    /// One attack.
    pub(crate) fn attack(&self, level: Level, attack: &str, arguments: &[&str]) -> LaunchSpec {
        let probe = self.path("package/probe");
        self.spec(level, &probe, &[&[PROBE, attack], arguments].concat())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ended = self.canary.kill();
        let _collected = self.canary.wait();
        remove_shared_memory(self.shared_memory_key);
    }
}

/// What a program printed and how it ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) main: MainExit,
}

/// Waits for the end of a program whose stdin is closed.
pub(crate) fn finish(spawned: Spawned) -> Outcome {
    let Spawned { stdin, stdout, stderr, process } = spawned;
    drop(stdin);
    let mut outcome = Outcome { stdout: String::new(), stderr: String::new(), main: MainExit::Unknown };
    File::from(stdout).read_to_string(&mut outcome.stdout).unwrap();
    File::from(stderr).read_to_string(&mut outcome.stderr).unwrap();
    let report = process.wait_blocking(PATIENCE).unwrap();
    assert!(report.tree_gone);
    outcome.main = report.main;
    outcome
}

/// Argument that makes the whole run go through bubblewrap.
pub(crate) const THROUGH_BWRAP: &str = "--through-bwrap";

/// Whether this run goes through bubblewrap.
pub(crate) fn through_bwrap() -> bool {
    std::env::args().any(|argument| argument == THROUGH_BWRAP)
}

/// Who makes the namespaces in this run. There is no choice, so that each is seen to work by itself.
pub(crate) fn backend() -> Backend {
    if through_bwrap() { Backend::Bwrap } else { Backend::Native }
}

pub(crate) fn launcher() -> Launcher {
    Launcher::current_exe().unwrap().with_backend(backend())
}

/// A launcher on a kernel whose Landlock is no newer than this.
pub(crate) fn launcher_with_landlock(abi: u8) -> Launcher {
    launcher_without(&format!("{NEWER_LANDLOCK}{abi}"))
}

pub(crate) fn launcher_without(layer: &str) -> Launcher {
    Launcher::at(std::env::current_exe().unwrap(), [WITHOUT, layer]).with_backend(backend())
}

/// As [`launcher_without`], but the probe has all layers.
pub(crate) fn launcher_without_after_probe(layer: &str) -> Launcher {
    launcher_without(&format!("{AFTER_PROBE}{layer}"))
}

/// Runs as the launcher without a layer if asked to.
pub(crate) fn launch_without_if_requested() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, layer] = arguments.as_slice()
        && mode == WITHOUT
    {
        if let Some(abi) = layer.strip_prefix(NEWER_LANDLOCK) {
            plugward_sandbox::launcher_main_with_landlock(abi.parse().unwrap());
        }
        match layer.strip_prefix(AFTER_PROBE) {
            Some(layer) => plugward_sandbox::launcher_main_without_after_probe(layer),
            None => plugward_sandbox::launcher_main_without(layer),
        }
    }
    // The same program, the usual launcher.
    debug_assert_ne!(WITHOUT, LAUNCH_ARGUMENT);
}

fn make_shared_memory() -> i32 {
    let key = 0x5057_0000 | (std::process::id() as i32 & 0xffff);
    #[allow(unsafe_code, reason = "System V calls have no safe wrapper")]
    // SAFETY: the call takes numbers.
    let id = unsafe { libc::shmget(key, 4096, libc::IPC_CREAT | 0o666) };
    assert!(id >= 0);
    #[allow(unsafe_code, reason = "System V calls have no safe wrapper")]
    // SAFETY: the call takes numbers.
    let id = unsafe { libc::semget(key, 1, libc::IPC_CREAT | 0o666) };
    assert!(id >= 0);
    key
}

fn remove_shared_memory(key: i32) {
    #[allow(unsafe_code, reason = "System V calls have no safe wrapper")]
    // SAFETY: the calls take numbers; removing takes no structure.
    unsafe {
        libc::semctl(libc::semget(key, 0, 0), 0, libc::IPC_RMID);
        libc::shmctl(libc::shmget(key, 0, 0), libc::IPC_RMID, std::ptr::null_mut());
    }
}
