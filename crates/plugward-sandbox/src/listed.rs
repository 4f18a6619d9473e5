//! A network of a plugin's own in which nothing but listed hosts can be found.
//!
//! Owns the description: where the plugin finds a listener for each host, under which names, and where it asks for names.
//! Who accepts the connections, and where they really lead, is the host's business: it is handed the listening sockets
//! and nothing else of that network. Refuses names that could add lines to a file, and listeners nobody could reach.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
};

use crate::SpawnError;

/// Most listeners of one plugin. All of them, and the socket for names, travel in one message of the kernel, which takes
/// 253; a plugin that needs more hosts than this is better served by a rule for a whole domain.
pub const MAX_LISTENERS: usize = 128;

/// Most names of one plugin: as many as there can be listeners.
const MAX_NAMES: usize = MAX_LISTENERS;

/// Longest name in bytes, the limit of the domain name system.
const MAX_NAME_BYTES: usize = 253;

/// Port at which names are asked for; libraries know no other.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux has such networks"))]
pub(crate) const NAME_PORT: u16 = 53;

/// What a plugin with listed hosts finds in its network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListedHosts {
    /// Where it finds a listener, in the order in which
    /// [`PluginProcess::take_listeners`](crate::PluginProcess::take_listeners) gives them. An address that is not a
    /// loopback one is made the plugin network's own; an unspecified one makes every address of its family its own, so
    /// that a connection to any of them arrives here.
    pub listeners: Vec<SocketAddr>,
    /// Names in its `/etc/hosts`, lower case, with their addresses.
    pub names: Vec<(String, IpAddr)>,
    /// Loopback address of the server it asks for other names, on port 53 and by UDP only.
    pub name_server: Option<Ipv4Addr>,
}

/// The sockets of a plugin with listed hosts, in blocking mode. Dropping them refuses further connections.
#[derive(Debug)]
pub struct Listeners {
    /// One for each of [`ListedHosts::listeners`](crate::ListedHosts::listeners), in its order.
    pub tcp: Vec<TcpListener>,
    /// Where the plugin asks for names, if that was described.
    pub names: Option<UdpSocket>,
}

impl ListedHosts {
    /// Refuses what could not be put in force, before anything starts.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux starts plugins"))]
    pub(crate) fn check(&self) -> Result<(), SpawnError> {
        let Self { listeners, names, name_server } = self;
        if listeners.len() > MAX_LISTENERS || names.len() > MAX_NAMES {
            let (asked, limit) = (listeners.len().max(names.len()), MAX_LISTENERS);
            return Err(invalid(format!(
                "lists {asked} hosts, the limit is {limit}; a rule for a domain takes one place"
            )));
        }
        let distinct: BTreeSet<&SocketAddr> = listeners.iter().collect();
        if distinct.len() != listeners.len() {
            return Err(invalid("lists a listener twice".to_owned()));
        }
        for listener in listeners {
            if listener.port() == 0 || !can_be_own(listener.ip()) {
                return Err(invalid(format!("lists `{listener}`, where nothing can listen")));
            }
        }
        if let Some((name, _)) = names.iter().find(|(name, _)| !is_plain(name)) {
            return Err(invalid(format!("lists `{}`, which is no host name", name.escape_debug())));
        }
        match name_server {
            Some(address) if !address.is_loopback() => {
                Err(invalid(format!("asks for names at `{address}`, which is no loopback address")))
            }
            _ => Ok(()),
        }
    }

    /// Ports that can be connected to.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux starts plugins"))]
    pub(crate) fn ports(&self) -> BTreeSet<u16> {
        self.listeners.iter().map(SocketAddr::port).collect()
    }
}

/// Whether a network can have `address` as its own.
fn can_be_own(address: IpAddr) -> bool {
    match address {
        // 0.0.0.0 alone stands for every address.
        IpAddr::V4(v4) => v4.is_unspecified() || !(v4.octets()[0] == 0 || v4.octets()[0] >= 224),
        // Addresses of a link need to say of which.
        IpAddr::V6(v6) => !v6.is_multicast() && !v6.is_unicast_link_local() && v6.to_ipv4_mapped().is_none(),
    }
}

fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(plain)
}

fn invalid(reason: String) -> SpawnError {
    SpawnError::InvalidSandbox { field: "network", reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(listeners: &[&str], names: &[&str]) -> ListedHosts {
        ListedHosts {
            listeners: listeners.iter().map(|text| text.parse().unwrap()).collect(),
            names: names.iter().map(|name| ((*name).to_owned(), Ipv4Addr::LOCALHOST.into())).collect(),
            name_server: Some(Ipv4Addr::new(127, 0, 0, 53)),
        }
    }

    // Requirement 91: a name with a line break in it would add a host of its own to the file the plugin reads.
    #[test]
    fn what_cannot_be_listed_is_refused() {
        assert!(
            listed(&["127.8.0.1:443", "192.0.2.7:80", "[2001:db8::1]:1", "0.0.0.0:9"], &["a.test"]).check().is_ok()
        );
        for (listeners, names, message) in [
            (&["127.8.0.1:0"][..], &[][..], "lists `127.8.0.1:0`, where nothing can listen"),
            (&["224.0.0.1:80"], &[], "lists `224.0.0.1:80`, where nothing can listen"),
            (&["0.0.0.1:80"], &[], "lists `0.0.0.1:80`, where nothing can listen"),
            (&["[fe80::1]:80"], &[], "lists `[fe80::1]:80`, where nothing can listen"),
            (&["127.8.0.1:443", "127.8.0.1:443"], &[], "lists a listener twice"),
            (&[], &["a.test\n127.0.0.1 b.test"], "lists `a.test\\n127.0.0.1 b.test`, which is no host name"),
            (&[], &["A.test"], "lists `A.test`, which is no host name"),
            (&[], &[""], "lists ``, which is no host name"),
        ] {
            let error = listed(listeners, names).check().unwrap_err();
            assert_eq!(error.to_string(), format!("sandbox network {message}"));
        }
        let many: Vec<String> = (1..=129).map(|port| format!("127.8.0.1:{port}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let error = listed(&many, &[]).check().unwrap_err().to_string();
        assert!(error.starts_with("sandbox network lists 129 hosts, the limit is 128"), "{error}");
        let outside = ListedHosts { name_server: Some(Ipv4Addr::new(192, 0, 2, 53)), ..ListedHosts::default() };
        assert!(outside.check().unwrap_err().to_string().contains("`192.0.2.53`, which is no loopback address"));
    }
}
