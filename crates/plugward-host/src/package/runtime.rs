//! What of the machine a program needs to run at all: the distribution's programs and libraries, and the folders of
//! the language run time behind the executable.
//!
//! Owns finding the interpreter of a script, the run time an interpreter belongs to and the packages beside a script,
//! so that a sandbox can show them read-only. Refuses whole home folders and anything that holds plugward's own state:
//! a run time in an unusual place is then not found by the plugin, instead of showing it the user's files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use plugward_sandbox::Alias;

use super::resolve::search_folders;

/// Most interpreters behind each other; `#!/usr/bin/env node` is two.
const MAX_INTERPRETERS: usize = 4;

/// Longest first line of a script the kernel reads.
const MAX_SHEBANG_BYTES: u64 = 256;

/// Longest `pyvenv.cfg` that is read; real ones have a few lines.
const MAX_VENV_BYTES: u64 = 16 * 1024;

/// Folders of a run time's prefix that hold code. Its other folders, such as `etc` and `var`, are not needed.
const CODE_FOLDERS: [&str; 4] = ["bin", "lib", "lib64", "libexec"];

/// Folder in which packages of Node.js lie beside each other.
const NODE_PACKAGES: &str = "node_modules";

/// What must not become readable by the way.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeptPrivate<'a> {
    /// The user's home.
    pub(super) user_home: Option<&'a Path>,
    /// The folder of plugward's state.
    pub(super) own_dir: &'a Path,
}

/// What a program needs to run, as it was found by one look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RuntimePaths {
    /// The distribution's own folders. Only the owner of the machine changes them, so links on the way to them may be
    /// followed again at the start.
    pub(crate) system: Vec<PathBuf>,
    /// Everything else: each name with the place it led to. Others than the owner of the machine may be able to bend a link
    /// on the way, so a start opens the place that was looked at or fails.
    pub(crate) found: Vec<Alias>,
}

impl RuntimePaths {
    /// All of them, by the names people know.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Path> {
        self.system.iter().map(PathBuf::as_path).chain(self.found.iter().map(|alias| alias.name.as_path()))
    }
}

/// The paths, sorted, each existing. `executable` is the name it is run by, `path_var` the plugin's `PATH`.
pub(super) fn runtime_paths(
    executable: &Path,
    package_dir: &Path,
    path_var: &OsStr,
    private: KeptPrivate<'_>,
) -> RuntimePaths {
    let system = plugward_sandbox::system_paths();
    let mut found = Found { paths: BTreeMap::new(), private };
    let mut program = Some(executable.to_owned());
    for _ in 0..MAX_INTERPRETERS {
        let Some(path) = program.take() else { break };
        let Ok(file) = path.canonicalize() else { break };
        program = interpreter(&file, path_var);
        let is_shared = |place: &Path| system.iter().any(|shared| place.starts_with(shared));
        if file.starts_with(package_dir) {
            // It is there already; what interprets it may not be.
            continue;
        }
        // The name may come from the first line of a script in the package. Without this look, that line could name a key
        // or a folder of the user's, and it would be shown as if it were an interpreter.
        if !is_program(&file) {
            break;
        }
        found.add_venv(&path, package_dir);
        if is_shared(&path) && is_shared(&file) {
            continue;
        }
        // Under the name it is run by: each link on the way is made again inside.
        found.add(path.clone());
        found.add_packages(&file);
        found.add_prefix(&file);
    }
    let found = found.paths.into_iter().filter(|(name, _)| !system.contains(name));
    let found = found.map(|(name, place)| Alias { name, place }).collect();
    RuntimePaths { system, found }
}

/// What was found so far.
struct Found<'a> {
    /// Names with their real places.
    paths: BTreeMap<PathBuf, PathBuf>,
    private: KeptPrivate<'a>,
}

impl Found<'_> {
    /// Adds a path that gives nothing away.
    fn add(&mut self, path: PathBuf) {
        let Ok(real) = path.canonicalize() else { return };
        let private = [self.private.user_home, Some(self.private.own_dir)];
        let shows_private =
            private.into_iter().flatten().any(|place| place.starts_with(&real) || place.starts_with(&path))
                || real.starts_with(self.private.own_dir);
        if !shows_private && path.parent().is_some() {
            self.paths.insert(path, real);
        }
    }

    /// The virtual environment of Python that `program` lies in, if any, with the interpreter it was made from.
    fn add_venv(&mut self, program: &Path, package_dir: &Path) {
        let Some(folder) = program.parent().and_then(Path::parent) else { return };
        let Some(settings) = read_start(&folder.join("pyvenv.cfg"), MAX_VENV_BYTES) else { return };
        let settings = String::from_utf8_lossy(&settings).into_owned();
        // One in the package is there already, and a link in it leads wherever its author likes.
        if !folder.canonicalize().is_ok_and(|real| real.starts_with(package_dir)) {
            self.add(folder.join("pyvenv.cfg"));
            CODE_FOLDERS.iter().for_each(|name| self.add(folder.join(name)));
        }
        let home = settings.lines().filter_map(|line| line.split_once('=')).find(|(key, _)| key.trim() == "home");
        let Some(bin) = home.map(|(_, value)| PathBuf::from(value.trim())).filter(|bin| bin.is_absolute()) else {
            return;
        };
        let python = ["python3", "python"].into_iter().map(|name| bin.join(name)).find(|python| python.exists());
        if let Some(file) = python.and_then(|python| python.canonicalize().ok()) {
            self.add_prefix(&file);
        }
    }

    /// The packages a script of Node.js lies among: it loads its neighbours.
    fn add_packages(&mut self, file: &Path) {
        let folders = file.ancestors().filter(|folder| folder.file_name() == Some(OsStr::new(NODE_PACKAGES)));
        if let Some(outermost) = folders.last() {
            self.add(outermost.to_owned());
        }
    }

    /// The code of the run time whose `bin` folder holds `file`.
    fn add_prefix(&mut self, file: &Path) {
        let Some(prefix) = file.parent().filter(|bin| bin.ends_with("bin")).and_then(Path::parent) else { return };
        if is_runtime(prefix) {
            CODE_FOLDERS.iter().for_each(|name| self.add(prefix.join(name)));
        }
    }
}

/// Whether `file` is one that can be executed, which keys, settings and folders are not.
fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Whether `prefix` is the place of Python or Node.js itself, and not just a folder with a `bin`.
fn is_runtime(prefix: &Path) -> bool {
    let has_python = fs::read_dir(prefix.join("lib")).is_ok_and(|entries| {
        let mut names = entries.flatten().map(|entry| entry.path());
        names.any(|folder| {
            let is_python = folder.file_name().is_some_and(|name| name.as_bytes().starts_with(b"python3"));
            is_python && folder.join("os.py").exists()
        })
    });
    has_python || prefix.join("bin/node").exists()
}

/// The program that runs `file`, when it is a script.
fn interpreter(file: &Path, path_var: &OsStr) -> Option<PathBuf> {
    let start = read_start(file, MAX_SHEBANG_BYTES)?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t' | b'\r')).filter(|word| !word.is_empty());
    let program = Path::new(OsStr::from_bytes(words.next()?));
    if program.file_name() != Some(OsStr::new("env")) {
        return program.is_absolute().then(|| program.to_owned());
    }
    let name = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
    let name = OsStr::from_bytes(name);
    search_folders(path_var).map(|folder| folder.join(name)).find(|candidate| candidate.is_file())
}

/// At most `limit_bytes` from the start of a regular file.
fn read_start(path: &Path, limit_bytes: u64) -> Option<Vec<u8>> {
    // A named pipe would block the reader for as long as its author likes.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut start = Vec::new();
    File::open(path).ok()?.take(limit_bytes).read_to_end(&mut start).ok()?;
    Some(start)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Machine {
        _dir: tempfile::TempDir,
        root: PathBuf,
    }

    impl Machine {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().canonicalize().unwrap();
            let machine = Self { _dir: dir, root };
            for folder in ["package", "home/.local/share/keyrings", "state"] {
                fs::create_dir_all(machine.root.join(folder)).unwrap();
            }
            machine
        }

        fn program(&self, path: &str, text: &str) -> PathBuf {
            let file = self.root.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
            file
        }

        /// The paths beyond those of the system, relative to this machine.
        fn shared(&self, executable: &Path, path_var: &str) -> Vec<String> {
            let home = self.root.join("home");
            let private = KeptPrivate { user_home: Some(&home), own_dir: &self.root.join("state") };
            let paths = runtime_paths(executable, &self.root.join("package"), OsStr::new(path_var), private);
            assert!(paths.found.iter().all(|alias| alias.name.canonicalize().unwrap() == alias.place));
            let inside = paths.names().filter_map(|path| path.strip_prefix(&self.root).ok());
            inside.map(|path| path.display().to_string()).collect()
        }
    }

    /// An interpreter below the user's home must find its own library, and nothing else of that home be shown.
    #[test]
    fn a_runtime_in_a_home_shows_its_code_only() {
        let machine = Machine::new();
        let python = machine.program("home/.pyenv/versions/3/bin/python3.11", "\x7fELF");
        machine.program("home/.pyenv/versions/3/lib/python3.11/os.py", "");
        machine.program("home/.pyenv/versions/3/etc/secret", "");
        symlink("python3.11", python.with_file_name("python3")).unwrap();
        let shared = machine.shared(&python.with_file_name("python3"), "");
        let prefix = "home/.pyenv/versions/3";
        let wanted = ["bin", "bin/python3", "lib"].map(|name| format!("{prefix}/{name}"));
        assert_eq!(shared, wanted);
    }

    /// A program in `~/.local/bin` must not open `~/.local/share`, where keys lie.
    #[test]
    fn a_program_beside_private_files_is_shown_alone() {
        let machine = Machine::new();
        let tool = machine.program("home/.local/bin/tool", "\x7fELF");
        assert_eq!(machine.shared(&tool, ""), ["home/.local/bin/tool"]);
        let own = machine.program("home/bin/node", "\x7fELF");
        assert_eq!(machine.shared(&own, ""), ["home/bin", "home/bin/node"]);
    }

    /// `#!/usr/bin/env node` and a console script of a virtual environment, as installers make them.
    #[test]
    fn scripts_bring_their_interpreter_and_packages() {
        let machine = Machine::new();
        let node = machine.program("opt/node/bin/node", "\x7fELF");
        let script = machine.program("opt/node/lib/node_modules/server/dist/index.js", "#!/usr/bin/env node\n");
        let command = machine.root.join("opt/tools/server");
        fs::create_dir_all(command.parent().unwrap()).unwrap();
        symlink(&script, &command).unwrap();
        let shared = machine.shared(&command, node.parent().unwrap().to_str().unwrap());
        assert_eq!(
            shared,
            ["opt/node/bin", "opt/node/bin/node", "opt/node/lib", "opt/node/lib/node_modules", "opt/tools/server"]
        );

        let base = machine.program("opt/python/bin/python3", "\x7fELF");
        machine.program("opt/python/lib/python3.11/os.py", "");
        machine.program("venv/lib/python3.11/site-packages/server.py", "");
        let config = format!("home = {}\n", base.parent().unwrap().display());
        fs::create_dir_all(machine.root.join("venv/bin")).unwrap();
        fs::write(machine.root.join("venv/pyvenv.cfg"), config).unwrap();
        symlink(&base, machine.root.join("venv/bin/python")).unwrap();
        let shebang = format!("#!{}\n", machine.root.join("venv/bin/python").display());
        let script = machine.program("venv/bin/server", &shebang);
        let shared = machine.shared(&script, "");
        for wanted in ["venv/bin", "venv/lib", "venv/pyvenv.cfg", "opt/python/bin", "opt/python/lib"] {
            assert!(shared.iter().any(|path| path == wanted), "{wanted} is not among {shared:?}");
        }
    }

    /// Threat: a package whose script names a key as its interpreter, or whose virtual environment is a link to keys.
    #[test]
    fn a_package_cannot_have_private_files_shown_as_its_interpreter() {
        let machine = Machine::new();
        let key = machine.root.join("home/.local/share/keyrings/key");
        fs::write(&key, "secret").unwrap();
        let keys = key.parent().unwrap();
        for line in [
            format!("#!/usr/bin/env -S -u {} true\n", key.display()),
            format!("#!{}\n", key.display()),
            format!("#!{}\n", keys.display()),
        ] {
            let script = machine.program("package/run", &line);
            assert_eq!(machine.shared(&script, "/usr/bin"), [""; 0], "{line}");
        }
        let python = machine.program("opt/tool", "\x7fELF");
        fs::create_dir_all(machine.root.join("package/venv/bin")).unwrap();
        fs::write(machine.root.join("package/venv/pyvenv.cfg"), "").unwrap();
        symlink(keys, machine.root.join("package/venv/lib")).unwrap();
        symlink(&python, machine.root.join("package/venv/bin/python")).unwrap();
        let script = machine.program("package/run", "#!/usr/bin/env python\n");
        let bin = machine.root.join("package/venv/bin");
        assert_eq!(machine.shared(&script, bin.to_str().unwrap()), ["package/venv/bin/python"]);
    }

    /// A `pyvenv.cfg` in the user's home would otherwise make the home a virtual environment; its key folders stay out.
    #[test]
    fn what_is_private_stays_so() {
        let machine = Machine::new();
        let tool = machine.program("state/bin/node", "\x7fELF");
        machine.program("lib/python3.11/os.py", "");
        assert!(machine.shared(&tool, "").is_empty());
        let above = machine.program("bin/python3", "\x7fELF");
        assert_eq!(machine.shared(&above, ""), ["bin", "bin/python3", "lib"]);
        assert!(machine.shared(&machine.root.join("gone"), "").is_empty());
    }
}
