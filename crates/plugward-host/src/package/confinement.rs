//! From a plan to the sandbox a plugin runs in.
//!
//! Owns what each permission becomes: which folders are shown and how, the network, the limits, the user. Refuses to
//! decide whether a plugin may run without a sandbox, and refuses a permission that cannot be kept to: giving more than
//! was agreed to is no way out.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use plugward_policy::{AccessPermission, ExpandedAccess, GrantSet, NetTarget, SandboxLevel};
use plugward_sandbox::{Alias, Level, Limits, Network, SandboxSpec, UserPolicy};

use super::access::LocalAccess;
use super::runtime::RuntimePaths;
use super::shown;
use crate::egress::{EgressPlan, EgressPlanError};

/// What a plugin may touch, worked out for this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Confinement {
    /// Who it runs as when it has a sandbox.
    pub(crate) user: UserPolicy,
    /// The level the manifest asks for.
    pub(crate) level: SandboxLevel,
    /// Canonical.
    pub(crate) package_dir: PathBuf,
    /// The plugin's private home, canonical.
    pub(crate) home_dir: PathBuf,
    /// What it asks for beyond that.
    pub(crate) access: LocalAccess,
    /// Programs and libraries it needs to run at all, read-only.
    pub(crate) shared: RuntimePaths,
}

/// A permission that cannot be kept to, so the plugin does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfinementError {
    /// Lists of hosts take a network of the plugin's own.
    #[error(
        "permission `{permission}` is for single hosts, which takes sandbox level `full`, and the manifest asks for level \
         `{level}`; at that level a plugin gets no network, or with `net:*` all of it"
    )]
    HostList {
        /// The permission.
        permission: AccessPermission,
        /// The level.
        level: SandboxLevel,
    },
    /// A list no network can be made of.
    #[error("permission `{permission}` {cause}")]
    Egress {
        /// The permission.
        permission: AccessPermission,
        /// What is wrong with it.
        cause: EgressPlanError,
    },
    /// A place that is not there.
    #[error("permission `{permission}` is about `{place}`, which does not exist; create it, or revoke the permission")]
    PlaceMissing {
        /// The permission.
        permission: AccessPermission,
        /// The place.
        place: String,
    },
    /// Folders above its own that are closed to the user it would run as.
    #[error(
        "level `{level}` runs this plugin as user {uid} in the machine's own file tree, and that user cannot pass \
         {folders}; ask for level `full`, run plugward as an ordinary user, or open the way: `chmod o+x {folders}`"
    )]
    WayClosed {
        /// The level it asks for.
        level: SandboxLevel,
        /// The plugin's user.
        uid: u32,
        /// The closed folders, outermost first.
        folders: String,
    },
    /// A folder of somebody else, on a host that runs plugins as users of their own.
    #[error(
        "permission `{permission}` is about `{place}`, which belongs to another user than the one this plugin runs as; \
         run plugward as an ordinary user, or give the folder to user {uid}"
    )]
    PlaceForeign {
        /// The permission.
        permission: AccessPermission,
        /// The place.
        place: String,
        /// The plugin's user.
        uid: u32,
    },
}

impl Confinement {
    /// The sandbox with what was granted; `None` when the plugin asks for none.
    pub(crate) fn sandbox(&self, grants: &GrantSet) -> Result<Option<SandboxSpec>, ConfinementError> {
        let level = match self.level {
            SandboxLevel::None => return Ok(None),
            SandboxLevel::Limited => Level::Limited,
            SandboxLevel::Partial => Level::Partial,
            SandboxLevel::Full => Level::Full,
        };
        let access = self.access.expanded.granted(grants);
        refuse_missing(&access)?;
        let mut granted: Vec<PathBuf> = self.shared.found.iter().map(|alias| alias.place.clone()).collect();
        granted.extend(access.files_read.values().map(PathBuf::from));
        let is_granted =
            |real: &String| access.files_read.values().chain(access.files_write.values()).any(|it| it == real);
        let named = self.access.aliases.iter().filter(|(_, real)| is_granted(real));
        let mut aliases: Vec<Alias> = self.shared.found.iter().filter(|it| it.name != it.place).cloned().collect();
        aliases.extend(named.map(|(name, real)| Alias { name: name.clone(), place: real.into() }));
        let limits = access.limits;
        Ok(Some(SandboxSpec {
            package_dir: Some(self.package_dir.clone()),
            home_dir: Some(self.home_dir.clone()),
            read_only: self.shared.system.clone(),
            granted,
            aliases,
            read_write: access.files_write.values().map(PathBuf::from).collect(),
            // Public data of the machine; Node.js does not start where it is there and closed.
            certificates: true,
            network: self.network(grants, &access)?,
            limits: Limits {
                memory_bytes: Some(limits.memory_bytes),
                // Node.js reserves far more than it uses.
                address_space_bytes: None,
                cpu_s: limits.cpu_seconds,
                processes: Some(limits.processes.into()),
                open_files: Some(limits.open_files.into()),
                file_bytes: Some(limits.file_bytes),
                disk_bytes: Some(limits.disk_bytes),
                wall_s: limits.wall_seconds,
                cpu_percent: limits.cpu_percent.map(u64::from),
            },
            user: self.user,
            ..SandboxSpec::new(level)
        }))
    }

    /// The way out for the hosts that were granted; `None` for no network, and for all of it.
    pub(crate) fn egress(&self, grants: &GrantSet) -> Result<Option<EgressPlan>, ConfinementError> {
        let access = self.access.expanded.granted(grants);
        let Some(first) = access.network.first() else { return Ok(None) };
        if access.network.iter().any(|rule| rule.target() == NetTarget::Any) {
            return Ok(None);
        }
        if self.level != SandboxLevel::Full {
            let permission = AccessPermission::Network(first.clone());
            return Err(ConfinementError::HostList { permission, level: self.level });
        }
        EgressPlan::of(&access.network).map(Some).map_err(|cause| {
            let (EgressPlanError::Address(rule) | EgressPlanError::TooMany(rule)) = &cause;
            ConfinementError::Egress { permission: AccessPermission::Network(rule.clone()), cause }
        })
    }

    fn network(&self, grants: &GrantSet, access: &ExpandedAccess) -> Result<Network, ConfinementError> {
        Ok(match self.egress(grants)? {
            Some(plan) => plan.network(),
            None if access.network.is_empty() => Network::Off,
            None => Network::Open,
        })
    }

    /// Refuses to hand a folder of the machine over to a plugin's own user: permission to write there is no permission
    /// to take it away from whoever owns it.
    pub(crate) fn refuse_foreign(&self, grants: &GrantSet) -> Result<(), ConfinementError> {
        let UserPolicy::Drop { uid, .. } = self.user else { return Ok(()) };
        let access = self.access.expanded.granted(grants);
        let is_foreign = |place: &String| fs::metadata(place).map_or(true, |found| found.uid() != uid);
        match access.files_write.iter().find(|(_, place)| is_foreign(place)) {
            Some((path, place)) => {
                let permission = AccessPermission::FilesWrite(path.clone());
                Err(ConfinementError::PlaceForeign { permission, place: shown(place), uid })
            }
            None => Ok(()),
        }
    }

    /// Refuses a level at which the plugin, as a user of its own, has to pass folders that only their owner can. At level
    /// `full` it sees what it was given in a tree of its own and passes nothing else.
    pub(crate) fn refuse_closed(&self) -> Result<(), ConfinementError> {
        let (UserPolicy::Drop { uid, .. }, true) = (self.user, self.level < SandboxLevel::Full) else { return Ok(()) };
        let above = [&self.package_dir, &self.home_dir].into_iter().flat_map(|place| place.ancestors().skip(1));
        let is_closed = |folder: &Path| {
            let Ok(found) = fs::metadata(folder) else { return false };
            let needed = if found.uid() == uid { 0o100 } else { 0o001 };
            found.mode() & needed == 0
        };
        let closed: BTreeSet<&Path> = above.filter(|folder| is_closed(folder)).collect();
        if closed.is_empty() {
            return Ok(());
        }
        let folders = closed.into_iter().map(shown).collect::<Vec<_>>().join(" ");
        Err(ConfinementError::WayClosed { level: self.level, uid, folders })
    }

    /// Whether the plugin can write to `folder` whatever it is granted.
    pub(crate) fn is_own_room(&self, folder: &Path) -> bool {
        folder.starts_with(&self.home_dir) || folder.starts_with(self.temporary_dir())
    }

    /// Where the plugin finds room for temporary files at its level.
    pub(crate) fn temporary_dir(&self) -> &Path {
        if self.level == SandboxLevel::Full { Path::new("/tmp") } else { &self.home_dir }
    }

    /// What is shared with it read-only, for people.
    pub(crate) fn shared_paths(&self) -> Vec<String> {
        self.shared.names().map(shown).collect()
    }
}

fn refuse_missing(access: &ExpandedAccess) -> Result<(), ConfinementError> {
    let writes = access.files_write.iter().map(|(path, place)| (AccessPermission::FilesWrite(path.clone()), place));
    let reads = access.files_read.iter().map(|(path, place)| (AccessPermission::FilesRead(path.clone()), place));
    match writes.chain(reads).find(|(_, place)| !Path::new(place).exists()) {
        Some((permission, place)) => Err(ConfinementError::PlaceMissing { permission, place: shown(place) }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use plugward_policy::parse_manifest;

    use super::*;

    fn confinement(permissions: &str, sandbox: &str) -> (Confinement, GrantSet) {
        let text = format!(
            "id: demo\nname: Demo\nversion: 1.0.0\npermissions: {permissions}\nsandbox: {sandbox}\nbackend:\n  type: mcp\n  \
             transport: stdio\n  command: x\n"
        );
        let manifest = parse_manifest(&text, "plugin.yaml").unwrap().manifest;
        let expanded = manifest.access.expand(Some("/home/ann"), |_| None).unwrap();
        let grants = manifest.all_permissions().into_iter().collect();
        let confinement = Confinement {
            user: UserPolicy::Same,
            level: manifest.min_sandbox_level,
            package_dir: "/state/plugins/demo".into(),
            home_dir: "/state/homes/demo".into(),
            access: LocalAccess { expanded, aliases: vec![("/link".into(), "/usr/share".to_owned())] },
            shared: RuntimePaths {
                system: vec!["/usr".into()],
                found: vec![Alias { name: "/opt/run".into(), place: "/opt/run-1".into() }],
            },
        };
        (confinement, grants)
    }

    // Requirements 90, 91: a plugin that asks for nothing gets its package, its home and no network.
    #[test]
    fn nothing_asked_is_nothing_given() {
        let (confinement, grants) = confinement("[]", "{}");
        let spec = confinement.sandbox(&grants).unwrap().unwrap();
        assert_eq!((spec.level, &spec.network), (Level::Full, &Network::Off));
        assert_eq!(spec.package_dir.as_deref(), Some(Path::new("/state/plugins/demo")));
        assert_eq!(spec.home_dir.as_deref(), Some(Path::new("/state/homes/demo")));
        assert_eq!((spec.read_only, spec.read_write), (vec!["/usr".into()], Vec::new()));
    }

    // Requirements 91 to 93: each permission becomes exactly what its sentence says, and only once it is granted.
    #[test]
    fn granted_permissions_become_paths_network_and_limits() {
        let (wanted, grants) = confinement(
            "['fs.read:/usr/share', 'fs.write:/tmp', 'net:*']",
            "{memory_bytes: 67108864, cpu_seconds: 9, disk_bytes: 1048576}",
        );
        let spec = wanted.sandbox(&grants).unwrap().unwrap();
        // Only the distribution's folders are looked for again at the start; what was reviewed is opened as it was.
        assert_eq!(spec.read_only, [Path::new("/usr")]);
        assert_eq!(spec.granted, [Path::new("/opt/run-1"), Path::new("/usr/share")]);
        let aliases = [("/opt/run", "/opt/run-1"), ("/link", "/usr/share")];
        assert_eq!(spec.aliases, aliases.map(|(name, place)| Alias { name: name.into(), place: place.into() }));
        assert_eq!(spec.read_write, [Path::new("/tmp")]);
        assert_eq!(spec.network, Network::Open);
        assert_eq!((spec.limits.memory_bytes, spec.limits.cpu_s), (Some(67_108_864), Some(9)));
        assert_eq!(spec.limits.disk_bytes, Some(1_048_576));
        let spec = wanted.sandbox(&GrantSet::default()).unwrap().unwrap();
        assert_eq!((spec.granted.len(), spec.aliases.len()), (1, 1));
        assert_eq!((spec.read_only.len(), spec.read_write.len(), spec.network), (1, 0, Network::Off));
    }

    // Requirement 91: single hosts become a network in which there is nothing else, and only once they are granted.
    #[test]
    fn granted_hosts_become_a_network_of_their_own() {
        let (wanted, grants) = confinement("['net:api.example.test', 'net:192.0.2.7:80']", "{}");
        let Network::Hosts(listed) = wanted.sandbox(&grants).unwrap().unwrap().network else { panic!("no list") };
        assert_eq!((listed.listeners.len(), listed.names.len()), (2, 1));
        assert_eq!(wanted.sandbox(&GrantSet::default()).unwrap().unwrap().network, Network::Off);
        let (wanted, grants) = confinement("['net:api.example.test', 'net:*']", "{}");
        assert_eq!(wanted.sandbox(&grants).unwrap().unwrap().network, Network::Open);
    }

    // A host that runs as root must not take folders of the machine away from their owners.
    #[test]
    fn a_folder_of_somebody_else_is_not_handed_over() {
        let (wanted, grants) = confinement("['fs.write:/tmp']", "{}");
        let own = fs::metadata("/tmp").unwrap().uid();
        let run_as = |uid| Confinement { user: UserPolicy::Drop { uid, gid: uid }, ..wanted.clone() };
        let text = run_as(own + 1).refuse_foreign(&grants).unwrap_err().to_string();
        assert!(
            text.starts_with("permission `fs.write:/tmp` is about `/tmp`, which belongs to another user"),
            "{text}"
        );
        assert!(run_as(own).refuse_foreign(&grants).is_ok());
        assert!(run_as(own + 1).refuse_foreign(&GrantSet::default()).is_ok());
        assert!(wanted.refuse_foreign(&grants).is_ok());
    }

    /// A host that runs as root keeps its state in folders of its own; the plugin's user has to get through them, or the
    /// person has to read which ones and what to do.
    #[test]
    fn folders_that_the_plugins_user_cannot_pass_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["state", "state/plugins", "state/plugins/demo", "state/homes", "state/homes/demo"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        let set_mode = |name: &str, mode| {
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        set_mode("", 0o755);
        set_mode("state", 0o700);
        set_mode("state/homes", 0o700);
        let (wanted, _) = confinement("[]", "{minimum_level: partial}");
        let own = fs::metadata(&root).unwrap().uid();
        let run_as = |uid, level| Confinement {
            user: UserPolicy::Drop { uid, gid: uid },
            level,
            package_dir: root.join("state/plugins/demo"),
            home_dir: root.join("state/homes/demo"),
            ..wanted.clone()
        };
        let text = run_as(own + 1, SandboxLevel::Partial).refuse_closed().unwrap_err().to_string();
        let fix = format!("`chmod o+x {0}/state {0}/state/homes`", root.display());
        assert!(text.contains("level `partial`") && text.contains(&fix), "{text}");
        assert!(run_as(own + 1, SandboxLevel::Full).refuse_closed().is_ok());
        assert!(run_as(own, SandboxLevel::Partial).refuse_closed().is_ok());
        set_mode("state", 0o711);
        set_mode("state/homes", 0o711);
        assert!(run_as(own + 1, SandboxLevel::Partial).refuse_closed().is_ok(), "the fix works");
    }

    // Requirement 146: what cannot be enforced is an error and never something weaker.
    #[test]
    fn what_cannot_be_kept_to_is_refused_by_name() {
        for level in ["partial", "limited"] {
            let (wanted, grants) = confinement("['net:api.example.test']", &format!("{{minimum_level: {level}}}"));
            let text = wanted.sandbox(&grants).unwrap_err().to_string();
            assert!(text.starts_with("permission `net:api.example.test:443` is for single hosts"), "{text}");
            assert!(text.contains(&format!("asks for level `{level}`")), "{text}");
        }
        let (wanted, grants) = confinement("['net:224.0.0.1']", "{}");
        let text = wanted.sandbox(&grants).unwrap_err().to_string();
        assert_eq!(text, "permission `net:224.0.0.1:443` is about an address nobody can connect to");
        let (wanted, grants) = confinement("['fs.read:/no/where']", "{}");
        let text = wanted.sandbox(&grants).unwrap_err().to_string();
        assert!(text.contains("`fs.read:/no/where` is about `/no/where`, which does not exist"), "{text}");
        let (wanted, grants) = confinement("[]", "{minimum_level: none}");
        assert_eq!(wanted.sandbox(&grants).unwrap(), None);
    }
}
