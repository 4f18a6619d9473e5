//! Where the host lives and what it may do: `PLUGWARD_HOME`, `PLUGWARD_ENVIRONMENT` and `config.toml` in the home.
//!
//! Owns the reading of these, the position in every complaint about them, and the host configuration made from them.
//! Refuses defaults that loosen anything: what is absent, empty or unknown never opens the environment gate
//! (requirement 105), and a file that cannot be read in full is an error, not a warning.

mod file;
mod folders;
mod profiles;
mod roots;
mod supervision;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use plugward_host::{Environment, FolderSettings, HostConfig, Naming, SupervisionSettings, Trust};
use plugward_policy::Catalogue;
use plugward_sandbox::{Launcher, SpawnError};

pub(crate) use file::CONFIG_FILE;

use crate::profile::Profiles;

/// Variable that says whether `serve --stdio` starts a host of its own that stays; stronger than the file.
pub(crate) const DAEMON_VARIABLE: &str = "PLUGWARD_DAEMON";

/// How long a host that was started on demand stays without anybody: longer than it takes to restart an agent, and
/// short enough that plugins do not fill the memory of a machine whose agents are closed.
const DAEMON_IDLE_DEFAULT: Duration = Duration::from_secs(600);

/// Variable that names the state folder.
pub(crate) const HOME_VARIABLE: &str = "PLUGWARD_HOME";

/// Variable that sets the environment; stronger than the file.
pub(crate) const ENVIRONMENT_VARIABLE: &str = "PLUGWARD_ENVIRONMENT";

/// Variable that names the project folder, in which commands run.
const PROJECT_VARIABLE: &str = "PLUGWARD_PROJECT_DIR";
/// The state folder in a user's own folder, unless something says otherwise.
const HOME_IN_USER: &str = ".local/share/plugward";

/// Folder in the home for what belongs to a serving process: its socket, and the token of the Host API.
pub(crate) const RUN_DIR: &str = "run";

/// First pause of an automatic restart: long enough not to spin, short enough that a person hardly notices one crash
/// (case B023).
const RESTART_BASE_DELAY_DEFAULT: Duration = Duration::from_secs(1);

/// Settings that cannot be used; all of them are for the person who wrote them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// Neither a home nor a place to put one.
    #[error("no state folder: neither `{HOME_VARIABLE}` nor `HOME` is set")]
    NoHome,
    /// The file is there and cannot be read.
    #[error("settings `{path}` cannot be read: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file holds something that is no setting.
    #[error("{path}:{line}:{column}: {message}")]
    Invalid {
        /// The file.
        path: String,
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
        /// What is wrong, and what was probably meant.
        message: String,
    },
}

/// Settings of this process.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// State folder, absolute.
    pub(crate) home: PathBuf,
    /// Whether a program started without any of our variables and options has the same home.
    pub(crate) is_usual_home: bool,
    /// The environment gate.
    pub(crate) environment: Environment,
    /// What decided the environment, for `doctor`.
    pub(crate) environment_source: &'static str,
    /// Permissions known here.
    pub(crate) catalogue: Catalogue,
    /// How tools are named for MCP clients.
    pub(crate) naming: Naming,
    /// First pause of an automatic restart.
    pub(crate) restart_base_delay: Duration,
    /// What each agent gets.
    pub(crate) profiles: Profiles,
    /// Whether `serve --stdio` starts a host that stays, where none runs.
    pub(crate) is_on_demand: bool,
    /// How long such a host stays without anybody.
    pub(crate) daemon_idle: Duration,
    /// How plugins are looked after where their manifests do not say.
    pub(crate) supervision: SupervisionSettings,
    /// Folders of plugin files; none if there are none.
    pub(crate) folders: Option<FolderSettings>,
    /// Whom the host trusts for its own requests over TLS.
    pub(crate) trust: Trust,
    /// Whether there is a settings file.
    pub(crate) has_file: bool,
}

impl Settings {
    /// Reads the settings; `home` is the value of `--home`, `variable` looks into the environment.
    pub(crate) fn load(
        home: Option<PathBuf>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, SettingsError> {
        let home = locate_home(home, &variable)?;
        let file = file::read(&home.join(CONFIG_FILE))?;
        let has_file = file.is_some();
        let file = file.unwrap_or_default();
        let (environment, environment_source) = match (variable(ENVIRONMENT_VARIABLE), file.environment) {
            (Some(word), _) => (Environment::from_setting(&word.to_string_lossy()), ENVIRONMENT_VARIABLE),
            (None, Some(environment)) => (environment, CONFIG_FILE),
            (None, None) => (Environment::default(), "default"),
        };
        let catalogue = file
            .permissions
            .into_iter()
            .fold(Catalogue::seed(), |catalogue, (name, effect)| catalogue.with(name, effect));
        let is_on_demand = match variable(DAEMON_VARIABLE) {
            // Whatever else is written there was meant to change something, and only one change is possible.
            Some(word) if !word.is_empty() => word == "on-demand",
            _ => file.is_on_demand.unwrap_or(true),
        };
        let usual = variable("HOME").map(|user| PathBuf::from(user).join(HOME_IN_USER));
        let is_usual_home = usual.as_ref() == Some(&home);
        Ok(Self {
            is_usual_home,
            environment,
            environment_source,
            catalogue,
            naming: file.naming.unwrap_or_default(),
            supervision: file.supervision.over_defaults(),
            restart_base_delay: file.restart_base_delay.unwrap_or(RESTART_BASE_DELAY_DEFAULT),
            profiles: file.profiles,
            is_on_demand,
            daemon_idle: file.daemon_idle.unwrap_or(DAEMON_IDLE_DEFAULT),
            folders: file.folders.settings(&home),
            trust: file.trust,
            home,
            has_file,
        })
    }

    /// The configuration of a host with these settings.
    pub(crate) fn host_config(&self) -> Result<HostConfig, SpawnError> {
        Ok(HostConfig {
            home: self.home.clone(),
            environment: self.environment,
            catalogue: self.catalogue.clone(),
            launcher: Launcher::current_exe()?,
            // Variables that are no UTF-8 cannot be named in a manifest and are not on the list that plugins get.
            host_environment: with_project(
                std::env::vars_os()
                    .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                    .collect(),
            ),
            naming: self.naming,
            restart_base_delay: self.restart_base_delay,
            supervision: self.supervision,
            trust: self.trust.clone(),
            operator: operator(),
        })
    }
}

/// The environment with the project folder in it: the one it names, or else the folder plugward was started in.
fn with_project(mut environment: Vec<(String, String)>) -> Vec<(String, String)> {
    let named = environment.iter().any(|(name, value)| name == PROJECT_VARIABLE && !value.is_empty());
    if !named
        && let Some(folder) = std::env::current_dir().ok().and_then(|folder| folder.into_os_string().into_string().ok())
    {
        environment.retain(|(name, _)| name != PROJECT_VARIABLE);
        environment.push((PROJECT_VARIABLE.to_owned(), folder));
    }
    environment
}

/// `--home`, else the variable, else the XDG data folder. Empty values count as absent.
fn locate_home(given: Option<PathBuf>, variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, SettingsError> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = given
        .filter(|path| !path.as_os_str().is_empty())
        .or_else(|| set(HOME_VARIABLE))
        // The XDG rules: a relative path in these variables is to be ignored.
        .or_else(|| set("XDG_DATA_HOME").filter(|path| path.is_absolute()).map(|path| path.join("plugward")))
        .or_else(|| set("HOME").map(|path| path.join(HOME_IN_USER)))
        .ok_or(SettingsError::NoHome)?;
    Ok(std::path::absolute(&home).unwrap_or(home))
}

/// Who operates the host, for the record of approvals: the user id is a fact, the name a courtesy.
fn operator() -> String {
    let uid = rustix::process::getuid().as_raw();
    let name = std::env::var("USER").ok().filter(|name| {
        !name.is_empty() && name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    });
    name.map_or_else(|| format!("uid {uid}"), |name| format!("{name} (uid {uid})"))
}

#[cfg(test)]
mod tests {
    use plugward_host::FolderWatch;

    use super::*;
    use crate::profile::Mode;

    fn environment(pairs: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
    }

    fn in_home(text: &str, pairs: &'static [(&'static str, &'static str)]) -> Result<Settings, SettingsError> {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(CONFIG_FILE), text).unwrap();
        Settings::load(Some(home.path().to_owned()), environment(pairs))
    }

    // Requirement 105: only the exact word opens the gate; a typo must not run code unconfined.
    #[test]
    fn only_the_exact_word_development_opens_the_gate() {
        for word in ["", "Development", "dev", "development ", "1"] {
            let home = tempfile::tempdir().unwrap();
            let variable = |name: &str| (name == ENVIRONMENT_VARIABLE).then(|| OsString::from(word));
            let settings = Settings::load(Some(home.path().to_owned()), variable).unwrap();
            assert_eq!(settings.environment, Environment::Production, "{word:?}");
        }
        let open = in_home("", &[(ENVIRONMENT_VARIABLE, "development")]).unwrap();
        assert_eq!(open.environment, Environment::Development);
        let file = in_home("environment = \"development\"", &[]).unwrap();
        assert_eq!((file.environment, file.environment_source), (Environment::Development, CONFIG_FILE));
        let both = in_home("environment = \"development\"", &[(ENVIRONMENT_VARIABLE, "")]).unwrap();
        assert_eq!(both.environment, Environment::Production);
    }

    #[test]
    fn home_is_found_in_the_documented_order() {
        let all = environment(&[("PLUGWARD_HOME", "/a"), ("XDG_DATA_HOME", "/b"), ("HOME", "/c")]);
        assert_eq!(locate_home(Some("/flag".into()), &all).unwrap(), PathBuf::from("/flag"));
        assert_eq!(locate_home(None, &all).unwrap(), PathBuf::from("/a"));
        let xdg = environment(&[("PLUGWARD_HOME", ""), ("XDG_DATA_HOME", "/b"), ("HOME", "/c")]);
        assert_eq!(locate_home(None, xdg).unwrap(), PathBuf::from("/b/plugward"));
        let plain = environment(&[("XDG_DATA_HOME", "relative"), ("HOME", "/c")]);
        assert_eq!(locate_home(None, plain).unwrap(), PathBuf::from("/c/.local/share/plugward"));
        assert!(matches!(locate_home(None, |_| None), Err(SettingsError::NoHome)));
    }

    #[test]
    fn folders_of_plugin_files_lie_in_the_home_unless_they_say_otherwise() {
        assert_eq!(in_home("plugins_recursive = true", &[]).unwrap().folders, None);
        let one = in_home("plugins_dir = \"files\"", &[]).unwrap();
        assert_eq!(one.folders, Some(FolderSettings::of(one.home.join("files"))));
        let text = "plugins_dir = [\"/srv/a\", \"b\"]\nplugins_recursive = true\nplugins_poll_ms = 2000";
        let two = in_home(text, &[]).unwrap();
        let folders = two.folders.unwrap();
        assert_eq!(folders.folders, [PathBuf::from("/srv/a"), two.home.join("b")]);
        assert_eq!((folders.recursive, folders.watch), (true, FolderWatch::Poll(Duration::from_secs(2))));
    }

    #[test]
    fn every_setting_is_read_and_the_catalogue_is_extended() {
        let text = "\u{feff}naming = \"pass-through\"\nrestart_base_delay_ms = 20\n\
                    [permissions]\n\"notes.read\" = \"deny\"\nmail.send = \"ask\"\n";
        let settings = in_home(text, &[]).unwrap();
        assert_eq!(settings.naming, Naming::PassThrough);
        let supervised = in_home("[supervision]\nbreaker_failures = 2\nping_seconds = 0", &[]).unwrap().supervision;
        let expected = SupervisionSettings { breaker_failures: 2, ping_every: Duration::ZERO, ..Default::default() };
        assert_eq!(supervised, expected);
        assert_eq!(settings.restart_base_delay, Duration::from_millis(20));
        let effect = |name: &str| settings.catalogue.effect(&plugward_policy::PermissionName::new(name).unwrap());
        assert_eq!((effect("notes.read").as_str(), effect("mail.send").as_str()), ("deny", "ask"));
        assert_eq!(effect("notes.write").as_str(), "ask");
    }

    #[test]
    fn profiles_are_read_as_they_are_written() {
        let text = "[profiles.cursor]\nplugins = [\"a\"]\ntools = [\"b.echo\"]\nbudget_tokens = 5_000\n\
                    [profiles.zed]\nmode = \"search\"\n[profiles.default]\ntools = []\n";
        let profiles = in_home(text, &[]).unwrap().profiles;
        let cursor = profiles.of_client(Some("cursor"));
        assert_eq!((cursor.has("a", "a.x"), cursor.has("b", "b.echo"), cursor.has("b", "b.x")), (true, true, false));
        assert_eq!((cursor.budget_tokens, cursor.mode), (Some(5000), Mode::List));
        let zed = profiles.of_client(Some("zed"));
        assert_eq!((zed.has("any", "any.x"), zed.mode), (true, Mode::Search));
        assert!(!profiles.of_client(None).has("a", "a.x"));
    }

    #[test]
    fn a_host_on_demand_can_be_switched_off() {
        assert!(in_home("", &[]).unwrap().is_on_demand);
        assert!(!in_home("daemon = \"off\"", &[]).unwrap().is_on_demand);
        assert!(in_home("daemon = \"off\"", &[(DAEMON_VARIABLE, "on-demand")]).unwrap().is_on_demand);
        assert!(!in_home("", &[(DAEMON_VARIABLE, "off")]).unwrap().is_on_demand);
        assert!(in_home("", &[(DAEMON_VARIABLE, "")]).unwrap().is_on_demand);
        assert_eq!(in_home("daemon_idle_seconds = 5", &[]).unwrap().daemon_idle, Duration::from_secs(5));
    }

    /// A person who mistypes a setting must learn where, not wonder why it has no effect.
    #[test]
    fn mistakes_are_told_with_their_place() {
        let cases = [
            (
                "\nenvironmnt = \"development\"",
                "config.toml:2:1: unknown setting `environmnt`; did you mean `environment`?",
            ),
            ("environment = \"dev\"", "config.toml:1:15: environment `dev` is unknown: use production or development"),
            ("naming = 3", "config.toml:1:10: `naming` must be a text"),
            (
                "restart_base_delay_ms = -1",
                "config.toml:1:25: `restart_base_delay_ms` must be a whole number from 1 to 60000",
            ),
            ("[permissions]\nx.y = \"maybe\"", "config.toml:2:7: effect `maybe` is unknown: use allow, ask or deny"),
            ("[permissions]\n\"A b\" = \"ask\"", "config.toml:2:1: "),
            ("permissions = 1", "config.toml:1:15: `permissions` must be a table"),
            ("profiles = 1", "config.toml:1:12: `profiles` must be a table"),
            ("[profiles.a]\nplugin = []", "config.toml:2:1: unknown setting `plugin`; did you mean `plugins`?"),
            ("[profiles.a]\ntools = [\"echo\"]", "config.toml:2:10: tool `echo` is no internal id"),
            ("[profiles.a]\nplugins = [\"A b\"]", "config.toml:2:12: "),
            ("[profiles.a]\nmode = \"fast\"", "config.toml:2:8: mode `fast` is unknown: use list or search"),
            ("[profiles.\"a b\"]\n", "config.toml:1:11: name of a profile"),
            ("[profiles.a]\nbudget_tokens = 0", "config.toml:2:17: `budget_tokens` must be a whole number from 1"),
            ("daemon = \"always\"", "config.toml:1:10: daemon `always` is unknown: use on-demand or off"),
            ("daemon_idle_seconds = 0", "config.toml:1:23: `daemon_idle_seconds` must be a whole number from 1"),
            ("supervision = 1", "config.toml:1:15: `supervision` must be a table"),
            // C2: a zero is not turned into something else in silence.
            (
                "[supervision]\nbreaker_failures = 0",
                "config.toml:2:20: `breaker_failures` must be a whole number from 1 to 1000",
            ),
            (
                "[supervision]\nbreaker_open_second = 1",
                "config.toml:2:1: unknown setting `breaker_open_second`; did you mean `breaker_open_seconds`?",
            ),
            ("plugins_dir = \"\"", "config.toml:1:15: `plugins_dir` must not be empty"),
            ("plugins_dir = [\"a\", 1]", "config.toml:1:21: `plugins_dir` must be a text"),
            ("plugins_recursive = \"yes\"", "config.toml:1:21: `plugins_recursive` must be true or false"),
            ("plugins_poll_ms = 0", "config.toml:1:19: `plugins_poll_ms` must be a whole number from 100 to 3600000"),
            ("extra_roots = 1", "config.toml:1:15: `extra_roots` must be a text"),
            ("extra_roots = \"none.pem\"", "config.toml:1:15: file `none.pem` of `extra_roots`: No such file"),
            ("extra_roots = \"config.toml\"", "of `extra_roots`: no certificate is in it"),
            ("a = = 1", "config.toml:1:5: "),
            ("naming = \"prefixed\"\nnaming = \"prefixed\"", "config.toml:2:1: "),
        ];
        for (text, expected) in cases {
            let error = in_home(text, &[]).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
