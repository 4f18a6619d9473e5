//! The few system files a program expects to find, made up for each plugin.
//!
//! Owns their content: one user, one host name, and the machine's name servers only where the network is open. Refuses
//! showing the machine's own accounts and names, which would tell a plugin where it is.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::unix::ffi::OsStrExt,
};

use crate::{ListedHosts, Network};

/// The host name inside.
pub(super) const HOST_NAME: &str = "plugin";

/// Largest description of a time zone that is copied; real ones are below 4 KiB.
const MAX_TIME_ZONE_BYTES: u64 = 64 * 1024;

/// Largest list of name servers that is copied; libraries read three of them.
const MAX_RESOLVER_BYTES: u64 = 64 * 1024;

/// What of the machine's own files is copied.
#[derive(Debug, Clone, Default)]
pub(super) struct Copied {
    time_zone: Option<Vec<u8>>,
    /// Where names are looked up; empty where there is no network to ask.
    resolver: Vec<u8>,
    /// Addresses of names.
    hosts: Vec<u8>,
}

/// The user as it is seen inside.
#[derive(Debug, Clone)]
pub(super) struct Identity<'a> {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) home: &'a OsStr,
}

/// Names and content of the files in `/etc`.
pub(super) fn files(identity: &Identity<'_>, copied: Copied) -> Vec<(&'static str, Vec<u8>)> {
    let Identity { uid, gid, home } = identity;
    // A home with a separator in it would add fields or lines to the file.
    let home = if home.as_bytes().iter().any(|byte| matches!(byte, b':' | b'\n')) { b"/tmp" } else { home.as_bytes() };
    let passwd = [format!("plugin:x:{uid}:{gid}:plugin:").as_bytes(), home, b":/bin/sh\n"].concat();
    let mut files = vec![
        ("passwd", passwd),
        ("group", format!("plugin:x:{gid}:\n").into_bytes()),
        ("hosts", copied.hosts),
        ("hostname", format!("{HOST_NAME}\n").into_bytes()),
        ("nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n".to_vec()),
        ("resolv.conf", copied.resolver),
    ];
    files.extend(copied.time_zone.map(|content| ("localtime", content)));
    files
}

/// Reads what is copied, and makes what depends on the network: the time zone, so that times a plugin prints are the user's (in UTC without one), and the name
/// servers if the network is open, without which its programs could connect to numbers only.
pub(super) fn copied(network: &Network) -> Copied {
    let time_zone = start_of("/etc/localtime", MAX_TIME_ZONE_BYTES).ok().filter(|zone| zone.starts_with(b"TZif"));
    let resolver = match network {
        Network::Open => start_of("/etc/resolv.conf", MAX_RESOLVER_BYTES).unwrap_or_default(),
        // Short waits: the answer comes from this machine, or it does not come.
        Network::Hosts(ListedHosts { name_server: Some(address), .. }) => {
            format!("nameserver {address}\noptions timeout:2 attempts:2\n").into_bytes()
        }
        _ => Vec::new(),
    };
    Copied { time_zone, resolver, hosts: hosts(network).into_bytes() }
}

/// The file of names. Where listeners are at IPv4 addresses, another address of the machine's own would only cost a try.
fn hosts(network: &Network) -> String {
    let mut text = format!("127.0.0.1 localhost {HOST_NAME}\n");
    match network {
        Network::Hosts(listed) => {
            for (name, address) in &listed.names {
                text += &format!("{address} {name}\n");
            }
        }
        _ => text += "::1 localhost\n",
    }
    text
}

fn start_of(path: &str, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(limit_bytes).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `os.userInfo()` and `getpass.getuser()` fail without an entry, and a hostile home must not add one.
    #[test]
    fn the_only_account_is_the_plugins() {
        let passwd = |home: &str| {
            let identity = Identity { uid: 1500, gid: 1600, home: OsStr::new(home) };
            String::from_utf8(files(&identity, Copied::default()).remove(0).1).unwrap()
        };
        assert_eq!(passwd("/srv/home"), "plugin:x:1500:1600:plugin:/srv/home:/bin/sh\n");
        assert_eq!(passwd("/x:/bin/sh\nroot:x:0"), "plugin:x:1500:1600:plugin:/tmp:/bin/sh\n");
    }
    /// With the network open, `getaddrinfo` needs a server to ask; without, nobody learns which ones the machine has.
    #[test]
    fn name_servers_are_there_with_the_network_only() {
        assert!(copied(&Network::Off).resolver.is_empty());
        let machine = std::fs::read("/etc/resolv.conf").unwrap_or_default();
        assert_eq!(copied(&Network::Open).resolver, machine);
    }

    // Requirement 91: listed names lead to their listeners, and other names are asked for where the host answers.
    #[test]
    fn listed_names_are_in_the_file() {
        let listed = ListedHosts {
            listeners: Vec::new(),
            names: vec![("api.example.test".to_owned(), [127, 8, 0, 1].into())],
            name_server: Some([127, 0, 0, 53].into()),
        };
        let made = copied(&Network::Hosts(listed));
        assert_eq!(made.hosts, b"127.0.0.1 localhost plugin\n127.8.0.1 api.example.test\n");
        assert!(made.resolver.starts_with(b"nameserver 127.0.0.53\n"));
        assert_eq!(copied(&Network::Off).hosts, b"127.0.0.1 localhost plugin\n::1 localhost\n");
    }
}
