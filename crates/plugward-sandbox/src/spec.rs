//! What a plugin process is given, complete: nothing is inherited from the host beyond it.
//!
//! Owns the description and its checks. Refuses searching `PATH`, expanding anything, shells, and merging
//! environments: the caller has resolved all of that before, so that what was approved is what runs.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{Network, SandboxSpec, SpawnError};

/// Largest specification in bytes, all strings together. Linux refuses argv and environment above a quarter of the
/// stack limit (2 MiB by default), so anything near this could not be executed anyway.
pub(crate) const MAX_SPEC_BYTES: usize = 4 * 1024 * 1024;

/// Room for everything of a specification that is not a string.
const FIXED_BYTES: usize = 512;

/// An address with its port, as encoded for the launcher.
const ADDRESS_BYTES: usize = 20;

/// One plugin process to start.
///
/// `Debug` shows the names of environment variables and not their values, which may be secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct LaunchSpec {
    /// Absolute path of the program; executed as it is, without a search.
    pub executable: PathBuf,
    /// Complete argument vector including `argv[0]`. Each element arrives literally (requirements 29 and 75).
    pub argv: Vec<OsString>,
    /// Absolute path of the working directory.
    pub cwd: PathBuf,
    /// Complete environment; the plugin sees exactly these variables (requirement 78).
    pub env: Vec<(OsString, OsString)>,
    /// Times of the stop ladder.
    pub stop: StopGrace,
    /// What it may touch. `None` and level `none` leave it all rights of its user.
    pub sandbox: Option<SandboxSpec>,
}

/// Waiting times of the stop ladder (requirements 50 and 51).
///
/// The host drives the ladder. The launcher itself uses `kill_after` in one case: when a system shutdown sends it a
/// termination signal, it passes the signal on to the plugin and kills the tree after that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopGrace {
    /// Time from closing stdin until termination is requested.
    pub term_after: Duration,
    /// Time from the request for termination until the tree is killed.
    pub kill_after: Duration,
}

impl Default for StopGrace {
    /// Two seconds each: servers seen in the wild write their state within 1.5 s, and a user waits no longer than this
    /// for a plugin that ignores both.
    fn default() -> Self {
        Self { term_after: Duration::from_secs(2), kill_after: Duration::from_secs(2) }
    }
}

impl std::fmt::Debug for LaunchSpec {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&OsStr> = self.env.iter().map(|(name, _)| name.as_os_str()).collect();
        formatter
            .debug_struct("LaunchSpec")
            .field("executable", &self.executable)
            .field("argv", &self.argv)
            .field("cwd", &self.cwd)
            .field("env_names", &names)
            .field("stop", &self.stop)
            .field("sandbox", &self.sandbox)
            .finish()
    }
}

impl LaunchSpec {
    /// Refuses what no process could be started from, before one is.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux starts plugins"))]
    pub(crate) fn check(&self) -> Result<(), SpawnError> {
        for (field, path) in [("executable", &self.executable), ("working directory", &self.cwd)] {
            if !path.is_absolute() {
                return Err(invalid(field, format!("`{}` is not an absolute path", path.display())));
            }
            refuse_nul(field, path.as_os_str())?;
        }
        if self.argv.is_empty() {
            return Err(invalid("argument vector", "is empty; it starts with the program's own name".to_owned()));
        }
        for argument in &self.argv {
            refuse_nul("argument", argument)?;
        }
        for (name, value) in &self.env {
            let bytes = name.as_encoded_bytes();
            if bytes.is_empty() || bytes.contains(&b'=') {
                return Err(invalid(
                    "environment variable",
                    format!("name `{}` is empty or contains `=`", name.display()),
                ));
            }
            refuse_nul("environment variable", name)?;
            // The value may be a secret, so the name stands for it in the message.
            if value.as_encoded_bytes().contains(&0) {
                return Err(invalid(
                    "environment variable",
                    format!("`{}` has a value with a NUL byte", name.display()),
                ));
            }
        }
        if let Some(sandbox) = &self.sandbox {
            sandbox.check()?;
        }
        let size_bytes = self.size_bytes();
        if size_bytes > MAX_SPEC_BYTES {
            return Err(invalid(
                "specification",
                format!("has {size_bytes} bytes of arguments and environment, the limit is {MAX_SPEC_BYTES}"),
            ));
        }
        Ok(())
    }

    /// Bytes of all strings, with room for the length in front of each.
    fn size_bytes(&self) -> usize {
        let sandbox = self.sandbox.iter();
        let paths =
            sandbox.flat_map(|sandbox| sandbox.readable().chain(sandbox.writable()).chain(alias_paths(sandbox)));
        let listed = self.sandbox.iter().find_map(|sandbox| match &sandbox.network {
            Network::Hosts(listed) => Some(listed),
            _ => None,
        });
        let names = listed.iter().flat_map(|listed| &listed.names);
        let addresses_bytes = listed.map_or(0, |it| (it.names.len() + it.listeners.len()) * ADDRESS_BYTES);
        let strings = [self.executable.as_os_str(), self.cwd.as_os_str()]
            .into_iter()
            .chain(names.map(|(name, _)| OsStr::new(name.as_str())))
            .chain(paths.map(Path::as_os_str))
            .chain(self.argv.iter().map(OsString::as_os_str))
            .chain(self.env.iter().flat_map(|(name, value)| [name.as_os_str(), value.as_os_str()]));
        strings
            .map(|string| string.len().saturating_add(size_of::<u32>()))
            .fold(FIXED_BYTES + addresses_bytes, usize::saturating_add)
    }
}

fn alias_paths(sandbox: &SandboxSpec) -> impl Iterator<Item = &Path> {
    sandbox.aliases.iter().flat_map(|alias| [alias.name.as_path(), alias.place.as_path()])
}

fn invalid(field: &'static str, reason: String) -> SpawnError {
    SpawnError::InvalidSpec { field, reason }
}

fn refuse_nul(field: &'static str, string: &OsStr) -> Result<(), SpawnError> {
    if string.as_encoded_bytes().contains(&0) {
        return Err(invalid(field, format!("`{}` contains a NUL byte", string.display().to_string().escape_debug())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> LaunchSpec {
        LaunchSpec {
            executable: "/bin/sh".into(),
            argv: vec!["sh".into()],
            cwd: "/".into(),
            env: vec![("TOKEN".into(), "s3cret".into())],
            stop: StopGrace::default(),
            sandbox: None,
        }
    }

    /// A relative program would be looked up in whatever directory the launcher happens to be in.
    #[test]
    fn refuses_what_cannot_be_started() {
        type Change = fn(&mut LaunchSpec);
        assert!(spec().check().is_ok());
        let broken: [(&str, Change); 8] = [
            ("launch executable `sh` is not an absolute path", |s| s.executable = "sh".into()),
            ("launch working directory `.` is not an absolute path", |s| s.cwd = ".".into()),
            ("launch argument vector is empty; it starts with the program's own name", |s| s.argv.clear()),
            ("launch argument `a\\0b` contains a NUL byte", |s| s.argv.push("a\0b".into())),
            ("launch environment variable name `` is empty or contains `=`", |s| s.env.push(("".into(), "".into()))),
            ("launch environment variable name `A=B` is empty or contains `=`", |s| {
                s.env.push(("A=B".into(), "".into()));
            }),
            ("launch environment variable `A` has a value with a NUL byte", |s| s.env.push(("A".into(), "\0".into()))),
            ("launch executable `/a\\0` contains a NUL byte", |s| s.executable = "/a\0".into()),
        ];
        for (message, change) in broken {
            let mut changed = spec();
            change(&mut changed);
            assert_eq!(changed.check().unwrap_err().to_string(), message);
        }
        let mut large = spec();
        large.env.push(("A".into(), "x".repeat(MAX_SPEC_BYTES).into()));
        assert!(large.check().unwrap_err().to_string().starts_with("launch specification has 4194"));
    }

    /// A log line with the specification must not carry the secret the plugin was given.
    #[test]
    fn debug_output_hides_environment_values() {
        let shown = format!("{:?}", spec());
        assert!(shown.contains("TOKEN"));
        assert!(!shown.contains("s3cret"));
    }
}
