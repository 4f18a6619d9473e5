//! Variables of the host's environment a plugin asks for. Owns which names may be asked for and
//! which should worry. Refuses names the host sets itself or keeps to itself. Never sees a value.

use std::fmt;

use crate::expand::is_variable_name;
use crate::secret::is_secret_name;
use crate::visible::quoted;

/// Longest name of a variable, in bytes.
pub const VARIABLE_NAME_BYTES_MAX: usize = 128;

/// What every plugin is given anyway, some of it with a value of its own: asking for it would either
/// change nothing or undo that.
const GIVEN_ANYWAY: [&str; 8] = ["HOME", "LANG", "LC_ALL", "LC_CTYPE", "PATH", "TMPDIR", "TZ", "USER"];

/// How the names of plugward's own variables begin; they lead to approvals and tokens.
const OWN_PREFIX: &str = "PLUGWARD_";

/// Variables that decide which code a program loads.
const LOADER_NAMES: [&str; 9] =
    ["BASH_ENV", "ENV", "IFS", "JAVA_TOOL_OPTIONS", "NODE_OPTIONS", "NODE_PATH", "PERL5LIB", "PERL5OPT", "RUBYOPT"];
const LOADER_PREFIXES: [&str; 4] = ["LD_", "DYLD_", "PYTHON", "GIT_"];

/// Variables that lead to services acting with the user's rights.
const SERVICE_NAMES: [&str; 10] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "DOCKER_HOST",
    "GPG_AGENT_INFO",
    "KUBECONFIG",
    "SSH_AGENT_PID",
    "SSH_AUTH_SOCK",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
];

/// A name that cannot be asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VariableError {
    /// Not a variable's name.
    #[error(
        "variable name {} is not valid: use at most {VARIABLE_NAME_BYTES_MAX} letters, digits and `_`, not starting with a digit",
        quoted(.0)
    )]
    Name(String),
    /// Set by the host for every plugin.
    #[error("variable `{0}` is given to every plugin: leave it out")]
    GivenAnyway(String),
    /// One of plugward's own.
    #[error("variable `{0}` is plugward's own and not given to plugins")]
    Own(String),
}

/// The name of a variable of the host's environment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariableName(String);

impl VariableName {
    /// Checks `text`.
    ///
    /// # Errors
    /// [`VariableError`] when it is no name, or one that plugins are not given on request.
    pub fn new(text: impl Into<String>) -> Result<Self, VariableError> {
        let text = text.into();
        if text.len() > VARIABLE_NAME_BYTES_MAX || !is_variable_name(&text) {
            Err(VariableError::Name(text))
        } else if GIVEN_ANYWAY.contains(&text.as_str()) {
            Err(VariableError::GivenAnyway(text))
        } else if text.starts_with(OWN_PREFIX) {
            Err(VariableError::Own(text))
        } else {
            Ok(Self(text))
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Why a person should think twice, if so.
    #[must_use]
    pub fn red_flag(&self) -> Option<&'static str> {
        let upper = self.0.to_ascii_uppercase();
        if SERVICE_NAMES.contains(&upper.as_str()) {
            Some("leads to a service that acts with your rights")
        } else if is_secret_name(&self.0) {
            Some("looks like a secret of yours")
        } else if LOADER_NAMES.contains(&upper.as_str())
            || LOADER_PREFIXES.iter().any(|prefix| upper.starts_with(prefix))
        {
            Some("decides which code programs load")
        } else {
            None
        }
    }
}

impl fmt::Display for VariableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirements 76-78: a plugin gets a variable only by name, and some not even then.
    #[test]
    fn names_that_can_be_asked_for() {
        for good in ["EDITOR", "http_proxy", "_X", "A1"] {
            assert_eq!(VariableName::new(good).unwrap().as_str(), good);
        }
        let long = "A".repeat(VARIABLE_NAME_BYTES_MAX + 1);
        for (bad, words) in [
            ("", "is not valid"),
            ("1A", "is not valid"),
            ("A-B", "is not valid"),
            ("A=B", "is not valid"),
            ("*", "is not valid"),
            ("Ä", "is not valid"),
            (&long, "is not valid"),
            ("HOME", "given to every plugin"),
            ("PATH", "given to every plugin"),
            ("PLUGWARD_HOME", "plugward's own"),
        ] {
            assert!(VariableName::new(bad).expect_err(bad).to_string().contains(words), "{bad}");
        }
    }

    #[test]
    fn variables_that_should_worry() {
        let flag = |name: &str| VariableName::new(name).unwrap().red_flag();
        for (name, words) in [
            ("OPENAI_API_KEY", "secret"),
            ("SSH_AUTH_SOCK", "your rights"),
            ("DOCKER_HOST", "your rights"),
            ("LD_PRELOAD", "code"),
            ("NODE_OPTIONS", "code"),
            ("PYTHONPATH", "code"),
        ] {
            assert!(flag(name).is_some_and(|reason| reason.contains(words)), "{name}");
        }
        assert_eq!(flag("EDITOR"), None);
    }
}
