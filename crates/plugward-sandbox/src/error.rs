//! Why a plugin process could not be started, split by whose fault it is.
//!
//! Owns the texts a person sees: they name the step and the path. Refuses environment values and raw `Debug` output,
//! which would carry secrets or noise into reports.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::Level;

/// Failure of [`Launcher::spawn`](crate::Launcher::spawn) or of opening the launcher.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The caller described a process that cannot exist.
    #[error("launch {field} {reason}")]
    InvalidSpec {
        /// Part of the specification.
        field: &'static str,
        /// What is wrong with it, with the value.
        reason: String,
    },
    /// The caller described a sandbox that cannot be enforced.
    #[error("sandbox {field} {reason}")]
    InvalidSandbox {
        /// Part of the description.
        field: &'static str,
        /// What is wrong with it, with the value.
        reason: String,
    },
    /// A layer of the sandbox could not be put in force, so nothing was started (requirement 146).
    #[error("sandbox level `{level}` is not possible: {layer} cannot be put in force{}: {cause}{fix}", at(path.as_deref()))]
    Layer {
        /// The level asked for.
        level: Level,
        /// The missing layer.
        layer: &'static str,
        /// The declared path concerned, if it is about one.
        path: Option<PathBuf>,
        /// The system's reason.
        cause: OsCause,
        /// What usually helps, with its leading separator; empty if nothing general can be said.
        fix: &'static str,
    },
    /// The layers were put in force, but a probe under the same rules got through, so nothing was started.
    #[error("sandbox level `{level}` does not hold on this machine: a probe under the same rules could {escapes}")]
    NotHeld {
        /// The level asked for.
        level: Level,
        /// What the probe could do, in words.
        escapes: String,
    },
    /// The plugin's working directory is missing, not a directory, or closed to this user.
    #[error("working directory `{}` cannot be entered: {cause}", shown(path))]
    Cwd {
        /// The directory asked for.
        path: PathBuf,
        /// The system's reason.
        cause: OsCause,
    },
    /// The plugin's program is missing, not executable, or not a program.
    #[error("executable `{}` cannot be executed: {cause}{hint}", shown(path))]
    Exec {
        /// The program asked for.
        path: PathBuf,
        /// The system's reason.
        cause: OsCause,
        /// What the reason usually means here, with its leading separator; empty if the reason says it all.
        hint: &'static str,
    },
    /// The system refused something the launcher needs; no fault of the plugin.
    #[error("launcher cannot {action}: {cause}")]
    Launcher {
        /// What was attempted, as a verb phrase.
        action: &'static str,
        /// The system's reason.
        cause: OsCause,
    },
    /// The launcher ended before it reported a started plugin.
    #[error("launcher ended before the plugin was started ({status})")]
    LauncherLost {
        /// Exit status of the launcher in words.
        status: String,
    },
    /// The launcher did not answer in time and was killed.
    #[error("launcher gave no answer within {limit_ms} ms")]
    LauncherSilent {
        /// The limit in milliseconds.
        limit_ms: u64,
    },
    /// This operating system has no launcher yet.
    #[error("starting plugins is not supported on {system}")]
    Unsupported {
        /// Name of the operating system.
        system: &'static str,
    },
}

/// The step of a start that failed, for callers that branch on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpawnStep {
    /// Checking the specification.
    Spec,
    /// Putting the sandbox in force.
    Sandbox,
    /// Entering the working directory.
    Cwd,
    /// Executing the plugin's program.
    Exec,
    /// Starting or preparing the launcher.
    Launcher,
    /// Nothing can be started on this system.
    Platform,
}

impl SpawnError {
    /// The step that failed.
    #[must_use]
    pub const fn step(&self) -> SpawnStep {
        match self {
            Self::InvalidSpec { .. } | Self::InvalidSandbox { .. } => SpawnStep::Spec,
            Self::Layer { .. } | Self::NotHeld { .. } => SpawnStep::Sandbox,
            Self::Cwd { .. } => SpawnStep::Cwd,
            Self::Exec { .. } => SpawnStep::Exec,
            Self::Launcher { .. } | Self::LauncherLost { .. } | Self::LauncherSilent { .. } => SpawnStep::Launcher,
            Self::Unsupported { .. } => SpawnStep::Platform,
        }
    }

    /// Whether the same start may succeed later without anyone changing anything (shortage of descriptors, memory or
    /// processes, a lost launcher). A missing program is not such a case.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        use std::io::ErrorKind::{OutOfMemory, ResourceBusy, WouldBlock};
        match self {
            Self::LauncherLost { .. } | Self::LauncherSilent { .. } => true,
            Self::Launcher { cause, .. } | Self::Exec { cause, .. } | Self::Layer { cause, .. } => {
                // 23 and 24 are ENFILE and EMFILE on every supported system.
                matches!(cause.kind(), WouldBlock | OutOfMemory | ResourceBusy) || matches!(cause.errno, 23 | 24)
            }
            Self::InvalidSpec { .. }
            | Self::InvalidSandbox { .. }
            | Self::NotHeld { .. }
            | Self::Cwd { .. }
            | Self::Unsupported { .. } => false,
        }
    }
}

/// A system error number that reads as a lower-case phrase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OsCause {
    /// The number (`errno`).
    pub errno: i32,
}

impl OsCause {
    /// The portable kind of the number.
    #[must_use]
    pub fn kind(self) -> std::io::ErrorKind {
        std::io::Error::from_raw_os_error(self.errno).kind()
    }
}

impl From<std::io::Error> for OsCause {
    /// Errors without a number (made by Rust code, not by the system) become 0, which reads as such.
    fn from(error: std::io::Error) -> Self {
        Self { errno: error.raw_os_error().unwrap_or(0) }
    }
}

impl fmt::Display for OsCause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
        if self.errno == 0 {
            return formatter.write_str("unexpected answer");
        }
        match self.kind() {
            NotFound => formatter.write_str("no such file or directory"),
            PermissionDenied => formatter.write_str("permission denied"),
            NotADirectory => formatter.write_str("not a directory"),
            _ => {
                let text = std::io::Error::from_raw_os_error(self.errno).to_string().to_lowercase();
                formatter.write_str(text.split(" (os error").next().unwrap_or(&text))
            }
        }
    }
}

/// The path concerned, as part of a sentence.
fn at(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |path| format!(" at `{}`", shown(path)))
}

/// Text of a path that cannot steer the terminal it is printed on.
fn shown(path: &Path) -> String {
    let mut text = String::new();
    for character in path.display().to_string().chars() {
        if character.is_control() {
            text.extend(character.escape_default());
        } else {
            text.push(character);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reader must see which path, which step and why, in one lower-case line.
    #[test]
    fn messages_name_step_path_and_cause() {
        let error = SpawnError::Cwd { path: "/no/where".into(), cause: OsCause { errno: 2 } };
        assert_eq!(error.to_string(), "working directory `/no/where` cannot be entered: no such file or directory");
        assert_eq!(error.step(), SpawnStep::Cwd);
        assert!(!error.is_transient());
        let error = SpawnError::Launcher { action: "open a pipe", cause: OsCause { errno: 24 } };
        assert_eq!(error.to_string(), "launcher cannot open a pipe: too many open files");
        assert!(error.is_transient());
    }

    /// A path chosen by a plugin author must not clear the reader's screen.
    #[test]
    fn control_characters_in_paths_are_escaped() {
        let error = SpawnError::Exec { path: "/a\u{1b}[2J".into(), cause: OsCause { errno: 13 }, hint: "" };
        assert_eq!(error.to_string(), "executable `/a\\u{1b}[2J` cannot be executed: permission denied");
    }
}
