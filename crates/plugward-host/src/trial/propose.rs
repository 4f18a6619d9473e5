//! From what a plugin wanted to the smallest set of permissions that would give it.
//!
//! Owns the judgement: what is proposed, under which name, and why something is not. Refuses proposing what a person should
//! only give after thinking twice (keys, whole homes, settings of the machine): those are told with their reason. Grants
//! nothing.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use plugward_policy::{AccessPermission, Manifest, NetTarget, Permission, visible};
use plugward_sandbox::{Attempt, AttemptKind, LocalFiles, Place};

use super::TrialAttempt;
use crate::package::LaunchPlan;

/// Files wanted in one folder before the folder is proposed instead of each of them. Two may be a file and its lock; three
/// mean that the folder is what it works on.
const FILES_FOR_A_FOLDER: usize = 3;

/// Parts a path has at least before a folder that was not itself asked for is proposed: `/srv` or `/mnt` hold things of
/// many programs.
const FOLDER_PARTS_MIN: usize = 2;

/// Permissions a manifest may have; see docs/manifest.md.
const PERMISSIONS_MAX: usize = 64;

/// Trees that no permission can be about.
const KERNEL_TREES: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Where the plugin ran and what it was told.
pub(crate) struct Around<'a> {
    pub(crate) manifest: &'a Manifest,
    pub(crate) plan: &'a LaunchPlan,
    /// The user's home, if it is known.
    pub(crate) user_home: Option<&'a str>,
    /// Plugward's own folder, canonical.
    pub(crate) own_dir: &'a Path,
    /// Names it asked for, with how often, and the addresses it was told for them.
    pub(crate) names: BTreeMap<String, (u32, Option<IpAddr>)>,
    /// The machine, asked without touching what others answer for.
    pub(crate) files: RefCell<LocalFiles>,
}

/// What comes of a trial.
#[derive(Debug, Default)]
pub(crate) struct Proposal {
    pub(crate) attempts: Vec<TrialAttempt>,
    pub(crate) permissions: Vec<String>,
    pub(crate) added: Vec<String>,
    pub(crate) unused: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

/// One attempt, judged.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Read(PathBuf),
    Write(PathBuf),
    Give(AccessPermission),
    Refuse(String),
}

/// Judges everything that was seen.
pub(crate) fn propose(seen: &[Attempt], around: &Around<'_>) -> Proposal {
    let seen = seen.iter().filter(|attempt| !is_name_server(attempt));
    let mut judged: Vec<(TrialAttempt, Verdict)> = seen.map(|it| (row(it, around), judge(it, around))).collect();
    // A name that was also connected to is told once, with its port.
    let is_connected = |told: &Option<IpAddr>| {
        let mut connected = judged.iter().filter(|(row, _)| row.what == "connect");
        told.is_some_and(|told| connected.any(|(row, _)| around.name_of(told).is_some_and(|name| row.is_about(name))))
    };
    let alone: Vec<_> = around.names.iter().filter(|(_, (_, told))| !is_connected(told)).collect();
    judged.extend(alone.into_iter().map(|(name, (count, _))| {
        let reason = "it asked for the address; a permission is for a connection, on its port".to_owned();
        (attempt("resolve", name, *count), Verdict::Refuse(reason))
    }));
    let places = Places::of(&judged, around);
    let mut proposal = Proposal::default();
    let mut needed = BTreeSet::new();
    for (mut row, verdict) in judged {
        let permission = match verdict {
            Verdict::Refuse(reason) => Err(reason),
            Verdict::Give(permission) => Ok(permission),
            Verdict::Read(path) => places.permission(&path, false, around),
            Verdict::Write(path) => places.permission(&path, true, around),
        };
        match permission {
            Ok(permission) => {
                row.permission = Some(permission.to_string());
                needed.insert(permission);
            }
            Err(reason) => row.reason = Some(reason),
        }
        proposal.attempts.push(row);
    }
    proposal.attempts.sort_by(|a, b| {
        let unanswered = |row: &TrialAttempt| row.permission.is_none();
        unanswered(a).cmp(&unanswered(b)).then(b.count.cmp(&a.count)).then_with(|| a.target.cmp(&b.target))
    });
    conclude(&mut proposal, needed, around.manifest);
    proposal
}

/// Puts the list together: what was needed, and what a trial cannot see.
fn conclude(proposal: &mut Proposal, mut needed: BTreeSet<AccessPermission>, manifest: &Manifest) {
    let declared: BTreeSet<AccessPermission> = manifest.access.permissions().into_iter().collect();
    for permission in &declared {
        if matches!(permission, AccessPermission::HostVariable(_)) {
            needed.insert(permission.clone());
        } else if !needed.contains(permission) {
            proposal.unused.push(permission.to_string());
        }
    }
    proposal.added = needed.difference(&declared).map(ToString::to_string).collect();
    let named = manifest.permissions.iter().cloned().map(Permission::Named);
    let all = named.chain(needed.into_iter().map(Permission::Access));
    proposal.permissions = all.map(|permission| permission.to_string()).collect();
    if proposal.permissions.len() > PERMISSIONS_MAX {
        let count = proposal.permissions.len();
        proposal.permissions.truncate(PERMISSIONS_MAX);
        proposal.warnings.push(format!(
            "it would need {count} permissions, and a manifest may have {PERMISSIONS_MAX}: the list is cut; choose folders \
             above them"
        ));
    }
}

impl TrialAttempt {
    /// Whether it is a connection to this host.
    fn is_about(&self, host: &str) -> bool {
        self.target.rsplit_once(':').is_some_and(|(named, _)| named == host)
    }
}

fn attempt(what: &'static str, target: &str, count: u32) -> TrialAttempt {
    TrialAttempt { what, target: visible(target), count, permission: None, reason: None }
}

fn row(seen: &Attempt, around: &Around<'_>) -> TrialAttempt {
    let what = match seen.kind {
        AttemptKind::Look => "look",
        AttemptKind::Read => "read",
        AttemptKind::Write => "write",
        AttemptKind::Execute => "execute",
        AttemptKind::Connect => "connect",
    };
    let target = seen.target.to_string_lossy();
    let named = address(&seen.target).and_then(|it| Some(format!("{}:{}", around.name_of(it.ip())?, it.port())));
    attempt(what, named.as_deref().unwrap_or(&target), seen.count)
}

fn judge(seen: &Attempt, around: &Around<'_>) -> Verdict {
    let refuse = |reason: &str| Verdict::Refuse(reason.to_owned());
    if seen.kind == AttemptKind::Connect {
        return judge_connection(&seen.target, around);
    }
    let path = Path::new(&seen.target);
    let is_start = seen.kind == AttemptKind::Execute;
    if is_start && seen.reached {
        return Verdict::Give(AccessPermission::Spawn);
    }
    if let Some(reason) = around.cannot_be_given(path, seen.kind == AttemptKind::Write) {
        return Verdict::Refuse(reason);
    }
    match seen.kind {
        AttemptKind::Look if !around.is_named(path) => {
            refuse("it only looked whether this is there, and its command does not name it")
        }
        AttemptKind::Look | AttemptKind::Read | AttemptKind::Execute => Verdict::Read(path.to_owned()),
        // A permission is about what exists.
        AttemptKind::Write if !around.is_there(path) => match path.parent().filter(|folder| is_narrow(folder)) {
            Some(folder) => match around.cannot_be_given(folder, true) {
                Some(reason) => Verdict::Refuse(format!("it would create this, and the folder {reason}")),
                None => Verdict::Write(folder.to_owned()),
            },
            None => refuse("it would create this in a folder that is not only its own"),
        },
        AttemptKind::Write => Verdict::Write(path.to_owned()),
        AttemptKind::Connect => refuse("no place"),
    }
}

fn judge_connection(target: &OsStr, around: &Around<'_>) -> Verdict {
    let Some(address) = address(target) else {
        return Verdict::Refuse("services on Unix sockets cannot be given".to_owned());
    };
    let host = match around.name_of(address.ip()) {
        Some(name) => name.to_owned(),
        None if address.is_ipv6() => format!("[{}]", address.ip()),
        None => address.ip().to_string(),
    };
    match format!("net:{host}:{}", address.port()).parse::<AccessPermission>() {
        Err(error) => Verdict::Refuse(visible(&error.to_string())),
        // The plugin chose the name it asked for; a pattern in it would give more than the one host it connected to.
        Ok(permission) if !is_one_host(&permission) => {
            Verdict::Refuse("what it asked for is a pattern and not the name of a host".to_owned())
        }
        Ok(permission) => match permission.red_flag() {
            Some(reason) => Verdict::Refuse(format!("think twice: it {reason}")),
            None => Verdict::Give(permission),
        },
    }
}

fn is_one_host(permission: &AccessPermission) -> bool {
    let AccessPermission::Network(rule) = permission else { return false };
    matches!(rule.target(), NetTarget::Name(_) | NetTarget::Address(_))
}

/// Asking for a name is told as the name.
fn is_name_server(seen: &Attempt) -> bool {
    const NAME_PORT: u16 = 53;
    seen.kind == AttemptKind::Connect
        && address(&seen.target).is_some_and(|it| it.port() == NAME_PORT && it.ip().is_loopback())
}

fn address(target: &OsStr) -> Option<SocketAddr> {
    target.to_str()?.parse().ok()
}

/// Whether a folder is deep enough to be about one thing.
fn is_narrow(folder: &Path) -> bool {
    folder.components().skip(1).count() >= FOLDER_PARTS_MIN
}

impl Around<'_> {
    fn name_of(&self, address: IpAddr) -> Option<&str> {
        self.names.iter().find(|(_, (_, told))| *told == Some(address)).map(|(name, _)| name.as_str())
    }

    fn is_there(&self, path: &Path) -> bool {
        matches!(self.files.borrow_mut().find(path), Place::Here { .. })
    }

    /// Whether the command that the person confirmed names the place, or a folder around it.
    fn is_named(&self, path: &Path) -> bool {
        let plan = self.plan;
        let texts = plan.argv.iter().skip(1).chain(plan.manifest_env.iter().map(|(_, value)| value));
        let mut places = texts.flat_map(|text| [Some(text.as_str()), text.split_once('=').map(|(_, value)| value)]);
        places.any(|place| place.is_some_and(|place| is_place(place) && path.starts_with(place)))
            || path.starts_with(&plan.cwd)
    }

    /// Why no permission is proposed for a place; none if one may be.
    fn cannot_be_given(&self, path: &Path, writes: bool) -> Option<String> {
        let Some(text) = path.to_str() else {
            return Some("its name is no text, so no manifest can name it".to_owned());
        };
        if KERNEL_TREES.iter().any(|tree| path.starts_with(tree)) {
            return Some("it belongs to the kernel and cannot be given".to_owned());
        }
        let real = match self.files.borrow_mut().find(path) {
            Place::Here { real, .. } => real,
            Place::Missing { .. } => path.to_owned(),
            Place::Elsewhere { kind } => {
                return Some(format!(
                    "it is on a file system that another machine or program answers for (`{kind}`), where a trial does not \
                     look"
                ));
            }
        };
        let package = &self.plan.confinement.package_dir;
        if writes && [path, &real].iter().any(|place| place.starts_with(package)) {
            return Some("it is its own package, which is read-only; its HOME is the place to write".to_owned());
        }
        if [path, &real].iter().any(|place| place.starts_with(self.own_dir) || self.own_dir.starts_with(place)) {
            return Some("it holds plugward's own files and cannot be given".to_owned());
        }
        let Ok(permission) = self.permission(text, writes) else {
            return Some("its name cannot be written in a manifest".to_owned());
        };
        let flag = permission.red_flag_for(self.user_home);
        let flag = flag.or_else(|| self.permission(real.to_str()?, writes).ok()?.red_flag_for(self.user_home));
        flag.map(|reason| format!("think twice: it {reason}"))
    }

    /// The permission for a place, by its shortest name.
    fn permission(&self, path: &str, writes: bool) -> Result<AccessPermission, plugward_policy::AccessError> {
        let kind = if writes { "fs.write" } else { "fs.read" };
        let below = self.user_home.filter(|home| home.len() > 1).and_then(|home| path.strip_prefix(home));
        match below.filter(|rest| rest.starts_with('/')) {
            Some(rest) => format!("{kind}:~{rest}").parse(),
            // A dollar sign would be read as a reference to a variable.
            None if path.contains("${") => Err(plugward_policy::AccessError::Kind(path.to_owned())),
            None => format!("{kind}:{path}").parse(),
        }
    }
}

fn is_place(text: &str) -> bool {
    text.starts_with('/') && Path::new(text).parent().is_some()
}

/// The places that are proposed, each standing for what lies in it.
#[derive(Debug, Default)]
struct Places {
    /// As declared in the manifest, by the place it stands for.
    declared: Vec<(PathBuf, bool, AccessPermission)>,
    read: BTreeSet<PathBuf>,
    write: BTreeSet<PathBuf>,
}

impl Places {
    fn of(judged: &[(TrialAttempt, Verdict)], around: &Around<'_>) -> Self {
        let wanted = |writes: bool| -> BTreeSet<PathBuf> {
            let of_kind = judged.iter().filter_map(|(_, verdict)| match verdict {
                Verdict::Read(path) if !writes => Some(path.clone()),
                Verdict::Write(path) if writes => Some(path.clone()),
                _ => None,
            });
            of_kind.collect()
        };
        let mut places =
            Self { declared: declared(around), read: grouped(wanted(false), around, false), write: BTreeSet::new() };
        places.write = grouped(wanted(true), around, true);
        places
    }

    /// The widest permission that is proposed for a place anyway.
    fn permission(&self, path: &Path, writes: bool, around: &Around<'_>) -> Result<AccessPermission, String> {
        let covers = |(place, may_write, _): &&(PathBuf, bool, AccessPermission)| {
            path.starts_with(place) && (*may_write || !writes)
        };
        if let Some((.., permission)) = self.declared.iter().find(covers) {
            return Ok(permission.clone());
        }
        // The way down from the root, so that a folder comes before what is in it.
        let mut way: Vec<&Path> = path.ancestors().collect();
        way.reverse();
        let write = way.iter().find(|place| self.write.contains(**place)).map(|place| (*place, true));
        let read = way.iter().find(|place| !writes && self.read.contains(**place)).map(|place| (*place, false));
        let (place, writes) = write.or(read).unwrap_or((path, writes));
        let text = place.to_str().unwrap_or_default();
        around.permission(text, writes).map_err(|error| visible(&error.to_string()))
    }
}

/// What the manifest asks for, by the place as named and as it really is.
fn declared(around: &Around<'_>) -> Vec<(PathBuf, bool, AccessPermission)> {
    let access = &around.plan.confinement.access;
    let writes = access.expanded.files_write.iter();
    let writes = writes.map(|(path, place)| (place, true, AccessPermission::FilesWrite(path.clone())));
    let reads = access.expanded.files_read.iter();
    let reads = reads.map(|(path, place)| (place, false, AccessPermission::FilesRead(path.clone())));
    let mut declared = Vec::new();
    for (place, may_write, permission) in writes.chain(reads) {
        let named = access.aliases.iter().filter(|(_, real)| real == place).map(|(named, _)| named.clone());
        declared.extend(named.chain([place.into()]).map(|it| (it, may_write, permission.clone())));
    }
    declared
}

/// Replaces many files of one folder by the folder, where that may be given.
fn grouped(mut wanted: BTreeSet<PathBuf>, around: &Around<'_>, writes: bool) -> BTreeSet<PathBuf> {
    let mut folders: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for folder in wanted.iter().filter_map(|path| path.parent()) {
        *folders.entry(folder.to_owned()).or_default() += 1;
    }
    let many = folders.into_iter().filter(|(_, count)| *count >= FILES_FOR_A_FOLDER).map(|(folder, _)| folder);
    wanted.extend(many.filter(|folder| is_narrow(folder) && around.cannot_be_given(folder, writes).is_none()));
    wanted
}
