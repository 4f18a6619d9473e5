//! The states of a plugin and of its host process, by the names the API uses. Owns which moves are
//! legal. Refuses to move anything: whoever does asks first, so that a late event of an old process
//! cannot turn an unhealthy plugin into a ready one.
//!
//! ```text
//! plugin:  installed <--> permission_required
//!             |   \            ^  ^   ^
//!             v    \           |  |   |
//!          starting --> ready -+  |   |      disabled <-- from every state but itself
//!             |  ^       |        |   |         |
//!             v  +-------+        |   |         +--> starting, installed, permission_required
//!           error ----------------+   +-- starting
//!
//! host:    stopped --> starting --> ready --> unhealthy --> starting
//!             ^            |          |           |
//!             +------------+----------+-----------+--- error (gave up) --> starting
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::visible::quoted;

/// A move that the state machine does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot go from `{from}` to `{to}`")]
pub struct IllegalMove {
    what: &'static str,
    from: &'static str,
    to: &'static str,
}

/// A word that is no state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} status {} is unknown", quoted(.text))]
pub struct UnknownStatus {
    what: &'static str,
    text: String,
}

/// What a plugin is, seen from outside (requirement 154).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PluginStatus {
    /// Installed, every permission granted, never enabled since.
    Installed,
    /// Waits for a person: a permission or the approval is missing.
    PermissionRequired,
    /// Enabled; its process is being started.
    Starting,
    /// Enabled and serving its tools.
    Ready,
    /// Enabled and not serving: the start failed or the process ended.
    Error,
    /// Switched off by a person.
    Disabled,
}

/// What a plugin's process is, seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostStatus {
    /// There is no process and none is wanted.
    Stopped,
    /// A process is being started and asked for its tools.
    Starting,
    /// The process answers.
    Ready,
    /// The process ended or broke the protocol; its tools are gone.
    Unhealthy,
    /// Starting failed, or the host gave up on it.
    Error,
}

impl PluginStatus {
    /// Every state.
    pub const ALL: [Self; 6] =
        [Self::Installed, Self::PermissionRequired, Self::Starting, Self::Ready, Self::Error, Self::Disabled];

    /// The state's name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Installed => "installed",
            Self::PermissionRequired => "permission_required",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Error => "error",
            Self::Disabled => "disabled",
        }
    }

    /// Where it may go from here.
    #[must_use]
    pub fn next(self) -> &'static [Self] {
        match self {
            Self::Installed => &[Self::PermissionRequired, Self::Starting, Self::Disabled],
            // Not to `Starting`: nothing starts before a person agreed (requirement 36).
            Self::PermissionRequired => &[Self::Installed, Self::Disabled],
            Self::Starting => &[Self::Ready, Self::Error, Self::Disabled, Self::PermissionRequired],
            Self::Ready => &[Self::Starting, Self::Error, Self::Disabled, Self::PermissionRequired],
            // Not to `Ready`: only a start that succeeded gets there.
            Self::Error => &[Self::Starting, Self::Disabled, Self::PermissionRequired],
            Self::Disabled => &[Self::Starting, Self::Installed, Self::PermissionRequired],
        }
    }

    /// The move to `next`.
    ///
    /// # Errors
    /// [`IllegalMove`] when there is none.
    pub fn move_to(self, next: Self) -> Result<Self, IllegalMove> {
        if self.next().contains(&next) {
            Ok(next)
        } else {
            Err(IllegalMove { what: "plugin", from: self.as_str(), to: next.as_str() })
        }
    }
}

impl HostStatus {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Stopped, Self::Starting, Self::Ready, Self::Unhealthy, Self::Error];

    /// The state's name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Unhealthy => "unhealthy",
            Self::Error => "error",
        }
    }

    /// Where it may go from here.
    #[must_use]
    pub fn next(self) -> &'static [Self] {
        match self {
            Self::Stopped => &[Self::Starting],
            Self::Starting => &[Self::Ready, Self::Unhealthy, Self::Error, Self::Stopped],
            Self::Ready => &[Self::Unhealthy, Self::Stopped],
            // Not to `Ready`: the process that could report it is the one that failed.
            Self::Unhealthy => &[Self::Starting, Self::Error, Self::Stopped],
            Self::Error => &[Self::Starting, Self::Stopped],
        }
    }

    /// The move to `next`.
    ///
    /// # Errors
    /// [`IllegalMove`] when there is none.
    pub fn move_to(self, next: Self) -> Result<Self, IllegalMove> {
        if self.next().contains(&next) {
            Ok(next)
        } else {
            Err(IllegalMove { what: "host", from: self.as_str(), to: next.as_str() })
        }
    }
}

/// Implements reading and writing of a state's name.
macro_rules! named_state {
    ($name:ident, $what:literal) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownStatus;

            fn from_str(text: &str) -> Result<Self, UnknownStatus> {
                let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
                found.ok_or_else(|| UnknownStatus { what: $what, text: text.to_owned() })
            }
        }
    };
}

named_state!(PluginStatus, "plugin");
named_state!(HostStatus, "host");

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement 154: the whole table, so that a move added by accident is seen.
    #[test]
    fn plugin_moves_are_exactly_these() {
        use PluginStatus::*;
        let legal = [
            (Installed, PermissionRequired),
            (Installed, Starting),
            (Installed, Disabled),
            (PermissionRequired, Installed),
            (PermissionRequired, Disabled),
            (Starting, Ready),
            (Starting, Error),
            (Starting, Disabled),
            (Starting, PermissionRequired),
            (Ready, Starting),
            (Ready, Error),
            (Ready, Disabled),
            (Ready, PermissionRequired),
            (Error, Starting),
            (Error, Disabled),
            (Error, PermissionRequired),
            (Disabled, Starting),
            (Disabled, Installed),
            (Disabled, PermissionRequired),
        ];
        for from in PluginStatus::ALL {
            for to in PluginStatus::ALL {
                let wanted = legal.contains(&(from, to));
                assert_eq!(from.move_to(to).is_ok(), wanted, "{from} to {to}");
            }
        }
    }

    // Requirement 154: an old process reporting late cannot make an unhealthy host ready.
    #[test]
    fn host_moves_are_exactly_these() {
        use HostStatus::*;
        let legal = [
            (Stopped, Starting),
            (Starting, Ready),
            (Starting, Unhealthy),
            (Starting, Error),
            (Starting, Stopped),
            (Ready, Unhealthy),
            (Ready, Stopped),
            (Unhealthy, Starting),
            (Unhealthy, Error),
            (Unhealthy, Stopped),
            (Error, Starting),
            (Error, Stopped),
        ];
        for from in HostStatus::ALL {
            for to in HostStatus::ALL {
                let wanted = legal.contains(&(from, to));
                assert_eq!(from.move_to(to).is_ok(), wanted, "{from} to {to}");
            }
        }
        let refused = Unhealthy.move_to(Ready).unwrap_err();
        assert_eq!(refused.to_string(), "host cannot go from `unhealthy` to `ready`");
    }

    // The API's names are a promise: clients compare these words.
    #[test]
    fn names_are_the_seeds_and_read_back() {
        for state in PluginStatus::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        for state in HostStatus::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        assert!("Ready".parse::<PluginStatus>().is_err());
    }
}
