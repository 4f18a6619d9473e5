//! Access in sentences for people. Owns the wording, the order (most dangerous first) and the lines
//! about what a plugin does not get. Refuses to say that anything is enforced: the sentences hold at
//! sandbox level `full`, and whoever shows them shows the level beside them.

use super::net::NetTarget;
use super::{Access, AccessPermission, ExpandedAccess};
use crate::visible::visible;

/// How much a line matters to somebody who has to agree. The order is from the line to read first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Risk {
    /// Gives away more than it says; a red flag tells why.
    Danger,
    /// Can change things or send them away.
    High,
    /// Can see things, or reaches named hosts only.
    Moderate,
    /// Uses the machine, within bounds.
    Low,
    /// Says what the plugin does not get.
    Absent,
}

impl Risk {
    /// The word for it in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Danger => "danger",
            Self::High => "high",
            Self::Moderate => "moderate",
            Self::Low => "low",
            Self::Absent => "absent",
        }
    }
}

/// One sentence about what a plugin gets or does not get. Texts are safe to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLine {
    /// How much it matters.
    pub risk: Risk,
    /// The sentence without its subject and without a stop, like `may read /data and everything in it`.
    pub text: String,
    /// Why to think twice, a phrase about the thing in `text`; present exactly for [`Risk::Danger`].
    pub red_flag: Option<&'static str>,
    /// The permission behind the line, to be granted or not; `None` for limits and absences.
    pub permission: Option<AccessPermission>,
}

impl Access {
    /// What the plugin would get and what not, most dangerous first (requirement 94).
    #[must_use]
    pub fn describe(&self) -> Vec<AccessLine> {
        lines(self, |permission| (sentence(permission, None), permission.red_flag()))
    }
}

impl ExpandedAccess {
    /// As [`Access::describe`], with the places that paths stand for on this machine, and with
    /// dangers that only show there. `home` is the user's home folder.
    #[must_use]
    pub fn describe(&self, home: Option<&str>) -> Vec<AccessLine> {
        lines(&self.as_written(), |permission| {
            let place = self.place(permission);
            (sentence(permission, place), permission.red_flag_at(place, home))
        })
    }
}

fn lines(access: &Access, tell: impl Fn(&AccessPermission) -> (String, Option<&'static str>)) -> Vec<AccessLine> {
    let permissions = access.permissions().into_iter().map(|permission| {
        let (text, red_flag) = tell(&permission);
        let risk = if red_flag.is_some() { Risk::Danger } else { usual_risk(&permission) };
        AccessLine { risk, text, red_flag, permission: Some(permission) }
    });
    let plain = |risk, text: &str| AccessLine { risk, text: text.to_owned(), red_flag: None, permission: None };
    let mut lines: Vec<AccessLine> = permissions.collect();
    let limits = &access.limits;
    let risk = if limits.exceeds_default() { Risk::Moderate } else { Risk::Low };
    lines.push(plain(risk, &limits.sentence()));
    lines.extend(absences(access).into_iter().map(|text| plain(Risk::Absent, text)));
    // Stable: within one risk, the kinds keep their order.
    lines.sort_by_key(|line| line.risk);
    lines
}

fn usual_risk(permission: &AccessPermission) -> Risk {
    match permission {
        AccessPermission::Spawn | AccessPermission::FilesWrite(_) => Risk::High,
        AccessPermission::Network(rule) => match rule.target() {
            NetTarget::Any | NetTarget::Below(_) => Risk::High,
            NetTarget::Name(_) | NetTarget::Address(_) => Risk::Moderate,
        },
        AccessPermission::FilesRead(_) | AccessPermission::HostVariable(_) => Risk::Moderate,
    }
}

/// What `permission` allows, with the place its path stands for when that reads differently.
fn sentence(permission: &AccessPermission, place: Option<&str>) -> String {
    let text = match permission {
        AccessPermission::Spawn => "may start other programs".to_owned(),
        AccessPermission::FilesWrite(path) => match path.as_str() {
            "/" => "may read and change every file of this machine that you can".to_owned(),
            text => format!("may read, change and delete {text} and everything in it"),
        },
        AccessPermission::FilesRead(path) => match path.as_str() {
            "/" => "may read every file of this machine that you can".to_owned(),
            text => format!("may read {text} and everything in it"),
        },
        AccessPermission::Network(rule) => {
            let port = rule.port().unwrap_or_default();
            match rule.target() {
                NetTarget::Any => "may connect to every host on every port".to_owned(),
                NetTarget::Below(name) => format!(
                    "may connect to every host below {name}, port {port}, if it uses the proxy settings it is given"
                ),
                NetTarget::Name(name) => format!("may connect to {name}, port {port}"),
                NetTarget::Address(address) => format!("may connect to the address {address}, port {port}"),
            }
        }
        AccessPermission::HostVariable(name) => format!("is given the variable {name} of your environment"),
    };
    let written = match permission {
        AccessPermission::FilesWrite(path) | AccessPermission::FilesRead(path) => path.as_str(),
        _ => "",
    };
    match place.filter(|place| *place != written) {
        Some(place) => visible(&format!("{text} (here {place})")),
        None => visible(&text),
    }
}

/// What `permission` allows in few words, to follow `may now` in a list of changes.
pub(crate) fn in_few_words(permission: &AccessPermission) -> String {
    visible(&match permission {
        AccessPermission::Spawn => "start other programs".to_owned(),
        AccessPermission::FilesWrite(path) => format!("write {path}"),
        AccessPermission::FilesRead(path) => format!("read {path}"),
        AccessPermission::Network(rule) => match rule.target() {
            NetTarget::Any => "connect to every host on every port".to_owned(),
            _ => format!("connect to {rule}"),
        },
        AccessPermission::HostVariable(name) => format!("read the variable {name} of your environment"),
    })
}

/// What the plugin does not get.
fn absences(access: &Access) -> Vec<&'static str> {
    let mut absent = Vec::new();
    if !access.may_spawn {
        // Nothing is claimed: whether a start can be prevented depends on the sandbox.
        absent.push("does not ask to start other programs");
    }
    absent.push(match (access.files_read.is_empty(), access.files_write.is_empty()) {
        (true, true) => {
            "gets no files but its own package and data: not your home, not ~/.ssh, not the settings of other clients"
        }
        (false, true) => "gets no other files, and can change none but its own data",
        (_, false) => "gets no other files but its own package and data",
    });
    if access.network.is_empty() {
        absent.push("gets no network, not even services of this machine");
    } else if !access.network.iter().any(|rule| rule.target() == NetTarget::Any) {
        absent.push("gets no other hosts");
    }
    absent.push(match access.host_variables.is_empty() {
        true => "gets no variables of your environment but the usual ones, such as PATH and LANG",
        false => "gets no other variables of your environment but the usual ones, such as PATH and LANG",
    });
    absent
}
