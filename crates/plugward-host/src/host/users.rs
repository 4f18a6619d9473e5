//! The users that plugins run as on a host that runs as root.
//!
//! Owns giving each plugin a user id of its own, remembered in the store: two plugins never share one, and an id is not
//! given again while a home belongs to it. Refuses making accounts: these ids exist in no list of users, and need none.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use plugward_policy::{Digest, PluginId};
use plugward_sandbox::UserPolicy;
use plugward_store::StoreError;
use serde::{Deserialize, Serialize};

use super::{HOMES_DIR, Inner};
use crate::error::HostError;

/// First user id given to plugins, and how many there are. Far above those of people and services, and below those the
/// system reserves.
const OWN_USERS: (u32, u32) = (1_900_000_000, 90_000_000);

/// The same where the machine is a container with only the usual 65,536 ids.
const OWN_USERS_IN_CONTAINER: (u32, u32) = (20_000, 30_000);

/// Setting that holds who was given which user.
const USERS_KEY: &str = "plugin_users";

/// What was given so far.
#[derive(Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
struct Given {
    /// Users by plugin; a removed plugin keeps its own until its home is gone.
    users: BTreeMap<String, u32>,
}

/// Ids to choose from.
#[derive(Debug, Clone, Copy)]
struct Range {
    first: u32,
    count: u32,
    /// Position of the first one tried: another one for each home of plugward, so that two of them on one machine do not
    /// give the same users.
    start: u32,
}

/// Who gives users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Giver {
    /// A host, which remembers in its store whom it gave.
    Host,
    /// A library of commands, which has no store to look into.
    Library,
}

impl Range {
    fn of(uid_map: &str, giver: Giver, home: &str) -> Self {
        let (first, count) = if maps(uid_map, OWN_USERS) { OWN_USERS } else { OWN_USERS_IN_CONTAINER };
        // The last one is for trying what a machine can hold; of the others, hosts and libraries have parts of their own.
        let for_hosts = (count - 1) / 3 * 2;
        let (first, count) = match giver {
            Giver::Host => (first, for_hosts),
            Giver::Library => (first + for_hosts, count - 1 - for_hosts),
        };
        // The digest's text is of fixed length; its characters spread homes evenly.
        let digest = Digest::of(home.as_bytes()).to_string();
        let number = digest.bytes().fold(0_u32, |number, byte| number.wrapping_mul(31).wrapping_add(byte.into()));
        Self { first, count, start: number % count }
    }

    /// Every id, the first one tried first.
    fn ids(self) -> impl Iterator<Item = u32> {
        (0..self.count).map(move |step| {
            // Both are below the count, and their sum fits: the count is far below half of what a number can hold.
            self.first + (self.start + step) % self.count
        })
    }
}

impl Given {
    /// The plugin's user, given now if it has none. `None` when all are taken.
    fn user_of(&mut self, plugin: &str, range: Range, owns_a_home: impl Fn(u32) -> bool) -> Option<u32> {
        if let Some(user) = self.users.get(plugin) {
            return Some(*user);
        }
        let taken: std::collections::BTreeSet<u32> = self.users.values().copied().collect();
        let user = range.ids().find(|id| !taken.contains(id) && !owns_a_home(*id))?;
        self.users.insert(plugin.to_owned(), user);
        Some(user)
    }
}

impl Inner {
    /// The user a sandboxed plugin runs as: the host's own, or on a host that runs as root an unprivileged one of the
    /// plugin's, the same at every start, because its data belong to it. Blocks.
    pub(super) fn user_of(&self, plugin: &PluginId) -> Result<UserPolicy, HostError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(UserPolicy::Same);
        }
        let range = Range::of(&uid_map(), Giver::Host, &self.config.home.to_string_lossy());
        let owners = self.home_owners();
        let store = &self.path.store;
        let broken = |error: StoreError| super::store_error(&error);
        let read = |text: Option<String>| text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let mut given: Given = read(store.setting(USERS_KEY).map_err(broken)?);
        if let Some(user) = given.users.get(plugin.as_str()) {
            return Ok(UserPolicy::Drop { uid: *user, gid: *user });
        }
        // Two plugins may be planned at the same time: what is given is read again where only one can write.
        let _turn = self.users_turn.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        given = read(store.setting(USERS_KEY).map_err(broken)?);
        let user = given.user_of(plugin.as_str(), range, |id| owners.values().any(|owner| *owner == id));
        let user = user.ok_or_else(|| HostError::internal("finding a user id that no plugin has"))?;
        let text = serde_json::to_string(&given).map_err(HostError::internal)?;
        store.set_setting(USERS_KEY, Some(&text)).map_err(broken)?;
        Ok(UserPolicy::Drop { uid: user, gid: user })
    }

    /// Takes back the users of plugins that are not installed any more and have no home. Blocks.
    pub(super) fn forget_users(&self) -> Result<(), StoreError> {
        let store = &self.path.store;
        let _turn = self.users_turn.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(text) = store.setting(USERS_KEY)? else { return Ok(()) };
        let mut given: Given = serde_json::from_str(&text).unwrap_or_default();
        let owners = self.home_owners();
        let installed: Vec<String> = store.plugins()?.into_iter().map(|row| row.id).collect();
        let before = given.users.len();
        given.users.retain(|plugin, _| installed.contains(plugin) || owners.contains_key(plugin));
        if given.users.len() == before {
            return Ok(());
        }
        store.set_setting(USERS_KEY, serde_json::to_string(&given).ok().as_deref())
    }

    /// Who owns each plugin's home.
    fn home_owners(&self) -> BTreeMap<String, u32> {
        owners_in(&self.config.home.join(HOMES_DIR))
    }
}

/// Who owns each home in a folder of homes.
fn owners_in(homes: &Path) -> BTreeMap<String, u32> {
    let entries = fs::read_dir(homes).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let owner = fs::symlink_metadata(entry.path()).ok()?.uid();
            Some((entry.file_name().to_string_lossy().into_owned(), owner))
        })
        .collect()
}

/// The user of a tool that no store knows: the owner of its home in `homes`, which becomes its own now if it was nobody's.
/// The caller sees to it that only one asks at a time. Blocks.
///
/// # Errors
///
/// If the home cannot be given away, or every id has a home.
pub(crate) fn user_by_home(homes: &Path, name: &str) -> std::io::Result<UserPolicy> {
    if !rustix::process::geteuid().is_root() {
        return Ok(UserPolicy::Same);
    }
    let range = Range::of(&uid_map(), Giver::Library, &homes.to_string_lossy());
    let owners = owners_in(homes);
    let own = owners.get(name).copied().filter(|owner| *owner >= range.first && *owner - range.first < range.count);
    let user = match own {
        Some(user) => user,
        None => {
            let free = range.ids().find(|id| owners.values().all(|owner| owner != id));
            let user = free.ok_or_else(|| std::io::Error::other("no user id is left"))?;
            std::os::unix::fs::lchown(homes.join(name), Some(user), Some(user))?;
            user
        }
    };
    Ok(UserPolicy::Drop { uid: user, gid: user })
}

/// A user for trying what this machine can hold: no plugin has it.
pub(crate) fn user_for_checks() -> UserPolicy {
    if !rustix::process::geteuid().is_root() {
        return UserPolicy::Same;
    }
    let range = Range::of(&uid_map(), Giver::Library, "");
    let id = range.first + range.count;
    UserPolicy::Drop { uid: id, gid: id }
}

fn uid_map() -> String {
    fs::read_to_string("/proc/self/uid_map").unwrap_or_default()
}

/// Whether a user namespace with this map knows all of `range`.
fn maps(uid_map: &str, (first, count): (u32, u32)) -> bool {
    uid_map.lines().any(|line| {
        let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().unwrap_or_default());
        let (inside, _outside, length) = (fields.next(), fields.next(), fields.next());
        let (inside, length) = (inside.unwrap_or_default(), length.unwrap_or_default());
        inside <= u64::from(first) && u64::from(first) + u64::from(count) <= inside + length
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "         0          0 4294967295\n";

    // Requirement 86: the same user at every start, never root, one the machine knows, and nobody else's.
    #[test]
    fn each_plugin_has_a_user_of_its_own() {
        let mut given = Given::default();
        let range = Range { first: 100, count: 3, start: 2 };
        let nobody = |_| false;
        assert_eq!(given.user_of("notes", range, nobody), Some(102));
        assert_eq!(given.user_of("mail", range, nobody), Some(100));
        assert_eq!(given.user_of("notes", range, nobody), Some(102), "the same at every start");
        assert_eq!(given.user_of("clock", range, nobody), Some(101));
        assert_eq!(
            given.user_of("fourth", range, nobody),
            None,
            "two plugins of one user could read each other's data"
        );
        given.users.remove("mail");
        // What a removed plugin left must not become the next one's.
        assert_eq!(given.user_of("fourth", range, |id| id == 100), None);
        assert_eq!(given.user_of("fourth", range, nobody), Some(100));
    }

    #[test]
    fn users_come_from_what_the_machine_has() {
        let first = |map| Range::of(map, Giver::Host, "/srv/plugward").ids().next().unwrap();
        assert!((1_900_000_000..1_990_000_000).contains(&first(WHOLE)));
        assert!((20_000..50_000).contains(&first("0 100000 65536\n")));
        assert!((20_000..50_000).contains(&first("")));
        let other = Range::of(WHOLE, Giver::Host, "/srv/other").ids().next().unwrap();
        assert_ne!(first(WHOLE), other, "two homes on one machine");
        // A library has no store to see what a host gave, so nothing that one gives is ever the other's.
        for map in [WHOLE, ""] {
            let ids = |giver| Range::of(map, giver, "/srv/plugward");
            let (host, library) = (ids(Giver::Host), ids(Giver::Library));
            assert!(host.first + host.count == library.first && library.count > 9_000);
        }
        let range = Range { first: 100, count: 3, start: 1 };
        assert_eq!(range.ids().collect::<Vec<_>>(), [101, 102, 100]);
    }
}
