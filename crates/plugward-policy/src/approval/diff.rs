//! What has changed since a person agreed, in words. Owns the order and wording of changes; every
//! field of the subject has its line here. Refuses to rank them: any change at all needs a new yes.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::{ApprovalSubject, ApprovedArgument, ToolPin};
use crate::access::{AccessPermission, ExpandedAccess, in_few_words};
use crate::visible::visible;

/// What is shown in place of a value that may be secret.
const HIDDEN: &str = "(value not shown)";

/// One difference between two approvals. Texts are safe to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What has changed, like `argument 2` or `tool send: description`.
    pub what: String,
    /// What it was; `None` when it was not there.
    pub before: Option<String>,
    /// What it is now; `None` when it is gone.
    pub after: Option<String>,
}

impl Change {
    fn new(what: impl Into<String>, before: Option<&str>, after: Option<&str>) -> Self {
        Self { what: what.into(), before: before.map(visible), after: after.map(visible) }
    }
}

pub(super) fn diff(old: &ApprovalSubject, new: &ApprovalSubject) -> Vec<Change> {
    let mut changes = Vec::new();
    changed(&mut changes, "plugin", &old.plugin, &new.plugin);
    changed(&mut changes, "version", &old.version, &new.version);
    changed(&mut changes, "source", &old.source, &new.source);
    changed(&mut changes, "package contents", &old.package_digest, &new.package_digest);
    // A server elsewhere has its URL there, which no path of a program looks like.
    let is_remote = [old, new].iter().any(|subject| subject.executable.contains("://"));
    let (place, whole) =
        if is_remote { ("address", "whole address and transport") } else { ("executable", "executable contents") };
    changed(&mut changes, place, &old.executable, &new.executable);
    let (before, after) = (old.executable_digest, new.executable_digest);
    changed(&mut changes, whole, &before, &after);
    arguments(&mut changes, &old.argv, &new.argv);
    changed(&mut changes, "working directory", &old.cwd, &new.cwd);
    let hidden = |_: &_| HIDDEN.to_owned();
    let (plain, secret) = if is_remote { ("header", "secret header") } else { ("variable", "secret variable") };
    keyed(&mut changes, plain, &old.env, &new.env, hidden);
    keyed(&mut changes, secret, &old.secret_refs, &new.secret_refs, Clone::clone);
    for permission in old.permissions.difference(&new.permissions) {
        changes.push(Change::new("permission", Some(permission.as_str()), None));
    }
    for permission in new.permissions.difference(&old.permissions) {
        changes.push(Change::new("permission", None, Some(permission.as_str())));
    }
    access(&mut changes, &old.access, &new.access);
    changed(&mut changes, "minimum sandbox level", &old.minimum_level, &new.minimum_level);
    contracts(&mut changes, old.contract.as_deref(), new.contract.as_deref());
    changes
}

fn changed<T: PartialEq + Display>(changes: &mut Vec<Change>, what: &str, old: &T, new: &T) {
    if old != new {
        changes.push(Change::new(what, Some(&old.to_string()), Some(&new.to_string())));
    }
}

fn arguments(changes: &mut Vec<Change>, old: &[ApprovedArgument], new: &[ApprovedArgument]) {
    for index in 0..old.len().max(new.len()) {
        let (before, after) = (old.get(index), new.get(index));
        if before != after {
            let masked = |argument: Option<&ApprovedArgument>| argument.map(|a| a.masked());
            let (before, after) = (masked(before), masked(after));
            let secret_only = before == after;
            let note = if secret_only { ": secret in it" } else { "" };
            let what = format!("argument {}{note}", index + 1);
            changes.push(Change::new(what, before.as_deref(), after.as_deref()));
        }
    }
}

fn keyed<T: PartialEq>(
    changes: &mut Vec<Change>,
    what: &str,
    old: &BTreeMap<String, T>,
    new: &BTreeMap<String, T>,
    show: impl Fn(&T) -> String,
) {
    let added = new.keys().filter(|key| !old.contains_key(*key));
    for key in old.keys().chain(added) {
        let (before, after) = (old.get(key), new.get(key));
        if before != after {
            let (before, after) = (before.map(&show), after.map(&show));
            let what = format!("{what} {}", visible(key));
            changes.push(Change::new(what, before.as_deref(), after.as_deref()));
        }
    }
}

/// The verb says what has become possible, so that a person need not read two lists: `may now write
/// /data`. Permissions gained come first.
fn access(changes: &mut Vec<Change>, old: &ExpandedAccess, new: &ExpandedAccess) {
    let (before, after) = (old.as_written().permissions(), new.as_written().permissions());
    let shown = |permission: &AccessPermission, place: Option<&str>| match place {
        Some(place) if !permission.to_string().ends_with(&format!(":{place}")) => {
            format!("{permission} (here {place})")
        }
        _ => permission.to_string(),
    };
    for permission in after.iter().filter(|permission| !before.contains(permission)) {
        let what = format!("may now {}", in_few_words(permission));
        changes.push(Change::new(what, None, Some(&shown(permission, new.place(permission)))));
    }
    for permission in &before {
        let (was, is) = (old.place(permission), new.place(permission));
        if !after.contains(permission) {
            let what = format!("may no longer {}", in_few_words(permission));
            changes.push(Change::new(what, Some(&shown(permission, was)), None));
        } else if was != is {
            changes.push(Change::new(format!("place of {}", visible(&permission.to_string())), was, is));
        }
    }
    for ((what, before), (_, after)) in old.limits.in_words().into_iter().zip(new.limits.in_words()) {
        if before != after {
            changes.push(Change::new(format!("limit on {what}"), Some(&before), Some(&after)));
        }
    }
}

fn contracts(changes: &mut Vec<Change>, old: Option<&[ToolPin]>, new: Option<&[ToolPin]>) {
    if old.is_some() != new.is_some() {
        let text = |seen: bool| Some(if seen { "known" } else { "not known yet" });
        changes.push(Change::new("tools", text(old.is_some()), text(new.is_some())));
    }
    let by_name = |pins: Option<&[ToolPin]>| -> BTreeMap<String, ToolPin> {
        pins.unwrap_or_default().iter().map(|pin| (pin.name.to_string(), pin.clone())).collect()
    };
    let (old, new) = (by_name(old), by_name(new));
    let added = new.keys().filter(|name| !old.contains_key(*name));
    for name in old.keys().chain(added) {
        let (before, after) = (old.get(name), new.get(name));
        let digest = |pin: Option<&ToolPin>| pin.map(|pin| pin.digest.to_string());
        let what = match (before, after) {
            (Some(before), Some(after)) if before == after => continue,
            (Some(before), Some(after)) => {
                format!("tool {name}: {}", before.changed_parts(after).join(", "))
            }
            _ => format!("tool {name}"),
        };
        changes.push(Change::new(what, digest(before).as_deref(), digest(after).as_deref()));
    }
}
