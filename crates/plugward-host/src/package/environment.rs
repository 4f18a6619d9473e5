//! The complete environment of a plugin's process, built up from nothing.
//!
//! Of the host's environment only a short list of names gets through; provider keys, database paths and everything
//! else stay outside (requirements 22, 76, 77, 78). `HOME` is a private folder of the plugin, never the user's, so
//! launchers that need one work and still cannot read the user's files by it. Refuses to read the process's own
//! environment: the caller gives a [`HostEnvironment`].

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::resolve::search_folders;
use super::shown;

/// Names that are passed on from the host when they are set. Proxies are not among them: a proxy address often holds
/// a password, so a deployment that needs one names it.
pub(crate) const PASSED_VARIABLES: [&str; 6] = ["USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];

/// Set for every plugin unless its manifest says otherwise. Python would otherwise keep answers in a buffer, encode
/// them in the locale's character set, and take the locale for file names.
pub(crate) const CHILD_DEFAULTS: [(&str, &str); 3] =
    [("PYTHONUNBUFFERED", "1"), ("PYTHONIOENCODING", "utf-8"), ("PYTHONUTF8", "1")];

/// `PATH` for plugins when the host has none, or none with an absolute folder.
pub(crate) const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Where Python keeps compiled files, below the plugin's home: beside the sources they would change the package, and
/// with it the digest that was approved.
const PYTHON_CACHE_FOLDER: &str = ".cache/python";

/// A variable of a manifest that no process can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvironmentError {
    /// Empty, or with `=` or a zero byte.
    #[error(
        "environment name `{}` is not valid, it needs at least one character and neither `=` nor a zero byte",
        shown(name)
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A value with a zero byte. The value is not repeated: it may be a secret.
    #[error("environment variable `{}` holds a zero byte", shown(name))]
    Value {
        /// Name of the variable.
        name: String,
    },
}

/// A snapshot of the host's own environment, so that one plan sees one state of it.
#[derive(Clone, Default)]
pub(crate) struct HostEnvironment {
    variables: BTreeMap<OsString, OsString>,
}

// Values may be secrets of the host; names are enough to debug with.
impl std::fmt::Debug for HostEnvironment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

impl HostEnvironment {
    /// An environment of exactly these variables.
    pub(crate) fn from_pairs<N: Into<OsString>, V: Into<OsString>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        Self { variables: pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }

    /// The value of `name`.
    pub(crate) fn get(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.variables.get(name.as_ref()).map(OsString::as_os_str)
    }

    /// The `PATH` plugins get: the host's without empty and relative entries, which would mean the package folder,
    /// or [`DEFAULT_PATH`].
    #[must_use]
    pub(crate) fn search_path(&self) -> OsString {
        let mut path = OsString::new();
        for folder in self.get("PATH").map(search_folders).into_iter().flatten() {
            if !path.is_empty() {
                path.push(":");
            }
            path.push(folder);
        }
        if path.is_empty() { DEFAULT_PATH.into() } else { path }
    }
}

/// Builds the environment of a plugin: `PATH`, `HOME` (= `home_dir`), [`PASSED_VARIABLES`] and `passed_too` from the
/// host as far as they are set, [`CHILD_DEFAULTS`], and on top `manifest_env` in its order. No name appears twice.
///
/// # Errors
/// [`EnvironmentError`] for a name or value of `manifest_env` that no process can have.
pub(crate) fn build_environment(
    host: &HostEnvironment,
    home_dir: &Path,
    passed_too: &[String],
    manifest_env: &[(String, String)],
) -> Result<Vec<(OsString, OsString)>, EnvironmentError> {
    let mut env: Vec<(OsString, OsString)> = Vec::new();
    let mut set = |name: OsString, value: OsString| match env.iter_mut().find(|(known, _)| *known == name) {
        Some((_, kept)) => *kept = value,
        None => env.push((name, value)),
    };
    set("PATH".into(), host.search_path());
    set("HOME".into(), home_dir.into());
    for name in PASSED_VARIABLES.into_iter().chain(passed_too.iter().map(String::as_str)) {
        // `HOME` and `PATH` have values of ours, whatever a configuration passes on.
        if let Some(value) = host.get(name).filter(|_| name != "HOME" && name != "PATH") {
            set(name.into(), value.into());
        }
    }
    for (name, value) in CHILD_DEFAULTS {
        set(name.into(), value.into());
    }
    set("PYTHONPYCACHEPREFIX".into(), home_dir.join(PYTHON_CACHE_FOLDER).into());
    for (name, value) in manifest_env {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(EnvironmentError::Name { name: name.clone() });
        }
        if value.contains('\0') {
            return Err(EnvironmentError::Value { name: name.clone() });
        }
        set(name.into(), value.into());
    }
    Ok(env)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> HostEnvironment {
        HostEnvironment::from_pairs([
            ("PATH", "/opt/bin:/usr/bin"),
            ("HOME", "/home/user"),
            ("USER", "ann"),
            ("LANG", "C.UTF-8"),
            ("TZ", "UTC"),
            ("OPENAI_API_KEY", "planted"),
            ("APP_DB_PATH", "/planted"),
            ("HTTPS_PROXY", "http://user:planted@proxy.test"),
            ("LD_PRELOAD", "/planted.so"),
        ])
    }

    fn built(extra: &[(&str, &str)], passed_too: &[&str]) -> Vec<(String, String)> {
        let extra: Vec<(String, String)> = extra.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        let passed_too: Vec<String> = passed_too.iter().map(|n| (*n).into()).collect();
        build_environment(&host(), Path::new("/state/home/demo"), &passed_too, &extra)
            .unwrap()
            .into_iter()
            .map(|(n, v)| (n.into_string().unwrap(), v.into_string().unwrap()))
            .collect()
    }

    // Requirements 22, 76, 77, 78: a planted variable of the host would be readable by every plugin.
    #[test]
    fn the_environment_is_the_list_and_nothing_else() {
        let expected = [
            ("PATH", "/opt/bin:/usr/bin"),
            ("HOME", "/state/home/demo"),
            ("USER", "ann"),
            ("LANG", "C.UTF-8"),
            ("TZ", "UTC"),
            ("PYTHONUNBUFFERED", "1"),
            ("PYTHONIOENCODING", "utf-8"),
            ("PYTHONUTF8", "1"),
            ("PYTHONPYCACHEPREFIX", "/state/home/demo/.cache/python"),
        ]
        .map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(built(&[], &[]), expected);
    }

    // Case B002: one `env` key must not replace the rest.
    #[test]
    fn the_manifest_comes_on_top_in_its_order() {
        let env = built(&[("DEMO_FLAG", "1"), ("LANG", "de_DE.UTF-8"), ("ANOTHER", "")], &[]);
        assert!(env.contains(&("PATH".into(), "/opt/bin:/usr/bin".into())));
        assert!(env.contains(&("LANG".into(), "de_DE.UTF-8".into())));
        let tail: Vec<&str> = env.iter().rev().take(2).map(|(n, _)| n.as_str()).collect();
        assert_eq!(tail, ["ANOTHER", "DEMO_FLAG"]);
        let mut names: Vec<_> = env.iter().map(|(n, _)| n).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), env.len(), "a name twice leaves it to the program which value it sees");
    }

    #[test]
    fn a_proxy_is_passed_only_when_the_deployment_names_it() {
        assert!(built(&[], &["HTTPS_PROXY", "NOT_SET"]).iter().any(|(n, _)| n == "HTTPS_PROXY"));
        assert!(!built(&[], &[]).iter().any(|(n, _)| n == "HTTPS_PROXY"));
    }

    // N15: HOME exists, and a configuration cannot turn it into the user's by passing it on.
    #[test]
    fn home_is_the_private_folder_whatever_is_passed_on() {
        let env = built(&[], &["HOME", "PATH"]);
        assert!(env.contains(&("HOME".into(), "/state/home/demo".into())));
    }

    #[test]
    fn path_loses_entries_that_mean_the_working_folder() {
        let path = |value: &str| HostEnvironment::from_pairs([("PATH", value)]).search_path();
        assert_eq!(path(":/usr/bin::bin:./x:/bin:"), "/usr/bin:/bin");
        assert_eq!(path("."), DEFAULT_PATH);
        assert_eq!(HostEnvironment::default().search_path(), DEFAULT_PATH);
    }

    #[test]
    fn names_and_values_no_process_can_have_are_refused_without_showing_the_value() {
        let build = |name: &str, value: &str| {
            build_environment(&host(), Path::new("/h"), &[], &[(name.into(), value.into())]).unwrap_err().to_string()
        };
        assert!(build("A=B", "x").starts_with("environment name `A=B` is not valid"));
        assert!(build("", "x").starts_with("environment name `` is not valid"));
        assert_eq!(build("KEY", "planted\0"), "environment variable `KEY` holds a zero byte");
    }

    #[test]
    fn debug_output_holds_names_only() {
        assert!(!format!("{:?}", host()).contains("planted"));
    }
}
