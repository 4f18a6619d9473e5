//! Owns driving the built `plugward` binary the way a script would: a home of its own, no terminal, JSON out. Knows the
//! command line contract and nothing else of the program.

use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::{Finished, Job};
use crate::tools;

/// Longest any one command may take: the start-up limit of a plugin (60 s) plus copying its package on a busy machine.
pub(crate) const COMMAND_LIMIT: Duration = Duration::from_secs(180);

/// A built `plugward` with a fresh home, removed when dropped.
pub(crate) struct Plugward {
    binary: PathBuf,
    home: PathBuf,
    /// Folders of the machine beside the home, for permissions to be about.
    shared: PathBuf,
    path: OsString,
    /// The user it runs as, if it is not ours.
    user: Option<u32>,
}

impl Plugward {
    /// A fresh home for the built binary. The home is in the temporary folder: socket paths have to stay short.
    pub(crate) fn fresh(root: &Path, purpose: &str) -> Result<Self> {
        let binary = tools::debug_binaries(root)?.join("plugward");
        if !binary.is_file() {
            bail!("`{}` is not built; run `cargo build --workspace` first", binary.display());
        }
        let home = std::env::temp_dir().join(format!("plugward-{purpose}-{}", std::process::id()));
        let shared = home.with_extension("shared");
        for (folder, mode) in [(&home, 0o700), (&shared, 0o755)] {
            std::fs::DirBuilder::new()
                .mode(mode)
                .create(folder)
                .with_context(|| format!("folder `{}` cannot be made", folder.display()))?;
        }
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(tools::python_folder()?).chain(std::env::split_paths(&inherited));
        let path = std::env::join_paths(folders).context("PATH cannot be put together")?;
        Ok(Self { binary, home, shared, path, user: None })
    }

    /// The same for another user, with a copy of the binary that this one can execute, and without the folders of `PATH`
    /// that are closed to it. Takes root.
    pub(crate) fn hand_over(mut self, uid: u32) -> Result<Self> {
        let copy = self.shared.join("plugward");
        std::fs::copy(&self.binary, &copy).context("the binary cannot be copied")?;
        std::os::unix::fs::chown(&self.home, Some(uid), Some(uid)).context("the home cannot be given away")?;
        self.binary = copy;
        let open = std::env::split_paths(&self.path).filter(|folder| tools::is_open_to_all(folder));
        self.path = std::env::join_paths(open).context("PATH cannot be put together")?;
        self.user = Some(uid);
        Ok(self)
    }

    /// Where folders for permissions are.
    pub(crate) fn shared(&self) -> &Path {
        &self.shared
    }

    /// For messages: whose host it is, if it is not ours.
    pub(crate) fn whose(&self) -> String {
        self.user.map_or_else(String::new, |uid| format!(" (as user {uid})"))
    }

    /// Whether a program is on its `PATH`.
    pub(crate) fn has(&self, program: &str) -> bool {
        std::env::split_paths(&self.path).any(|folder| folder.join(program).is_file())
    }

    /// The binary.
    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    /// The home.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// What has to be set for `plugward` to find this home, apart from `PATH`.
    pub(crate) fn settings(&self) -> [(&'static str, String); 3] {
        [
            ("PLUGWARD_HOME", self.home.display().to_string()),
            ("PLUGWARD_ENVIRONMENT", "production".to_owned()),
            // Nothing stays behind when the checks end.
            ("PLUGWARD_DAEMON", "off".to_owned()),
        ]
    }

    /// Gives a job the environment under which it, or what it starts, finds this home.
    pub(crate) fn equip(&self, job: Job) -> Job {
        let inherited = std::env::vars_os().map(|(name, _)| name);
        let clean =
            inherited.filter(|name| name.to_string_lossy().starts_with("PLUGWARD_")).fold(job, Job::without_env);
        let job = match self.user {
            Some(uid) => clean.user(uid).dir("/").env("HOME", &self.shared),
            None => clean,
        };
        self.settings()
            .into_iter()
            .fold(job, |job, (name, value)| job.env(name, value))
            .env("PATH", &self.path)
            .env("REAL_SERVERS_FOLDER", &self.shared)
            .env("NO_COLOR", "1")
    }

    /// Runs one command.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<Finished> {
        let label = format!("plugward {}", arguments.join(" "));
        self.equip(Job::new(&self.binary, label, COMMAND_LIMIT)).args(arguments).run()
    }

    /// Runs one command that must succeed.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> Result<Finished> {
        self.run(arguments)?.success()
    }

    /// Runs one command that must succeed and answer in JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Result<Value> {
        let done = self.succeed(arguments)?;
        serde_json::from_str(&done.stdout)
            .with_context(|| format!("{}: standard output is no JSON\n{}", done.label, done.tail()))
    }

    /// Installs a package.
    pub(crate) fn install(&self, package: &Path) -> Result<()> {
        let package = package.to_str().context("package path is no UTF-8")?;
        self.succeed(&["install", package])?;
        Ok(())
    }

    /// Reads the digest that a person would agree to.
    pub(crate) fn review(&self, id: &str) -> Result<String> {
        let review = self.json(&["review", id, "--json"])?;
        let digest = review["digest"].as_str().with_context(|| format!("review of `{id}` shows no digest"))?;
        if !digest.starts_with("sha256:") {
            bail!("review of `{id}` shows `{digest}` as digest");
        }
        Ok(digest.to_owned())
    }

    /// Approves exactly what was reviewed.
    pub(crate) fn approve(&self, id: &str, digest: &str) -> Result<()> {
        self.succeed(&["approve", id, "--digest", digest])?;
        Ok(())
    }

    /// Internal ids of a plugin's tools.
    pub(crate) fn tools(&self, id: &str) -> Result<Vec<String>> {
        let answer = self.json(&["tools", id, "--json"])?;
        let tools = answer["tools"].as_array().with_context(|| format!("tools of `{id}` are no list"))?;
        Ok(tools.iter().filter_map(|tool| tool["name"].as_str()).map(str::to_owned).collect())
    }

    /// Ids of all plugins.
    pub(crate) fn plugins(&self) -> Result<Vec<String>> {
        let answer = self.json(&["list", "--json"])?;
        let plugins = answer["plugins"].as_array().context("list of plugins is no list")?;
        Ok(plugins.iter().filter_map(|plugin| plugin["id"].as_str()).map(str::to_owned).collect())
    }
}

impl Drop for Plugward {
    fn drop(&mut self) {
        for folder in [&self.home, &self.shared] {
            if let Err(error) = std::fs::remove_dir_all(folder) {
                eprintln!("warning: folder `{}` cannot be removed: {error}", folder.display());
            }
        }
    }
}
