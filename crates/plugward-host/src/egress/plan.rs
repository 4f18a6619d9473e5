//! Which listener of a plugin's network stands for which host.
//!
//! Owns giving each name an address of its own inside, so that a connection tells by where it arrives which host was
//! meant. Pure: the same permissions give the same plan. Refuses to open, resolve or dial anything.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use plugward_policy::{NetRule, NetTarget};
use plugward_sandbox::{ListedHosts, MAX_LISTENERS, Network};

/// First address given to a name, and how many there are. Within 127.0.0.0/8, so that they lead nowhere but to the
/// plugin's own network, and away from 127.0.0.1, where its own services may be.
const NAMES: (Ipv4Addr, u32) = (Ipv4Addr::new(127, 8, 0, 1), 0xfeff);

/// Where a program finds the proxy for hosts below a domain.
const PROXY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 8, 255, 254)), 3128);

/// Where a plugin asks for names that are not in its file of names.
const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 53);

/// What a listener stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Leads {
    /// The one host of this rule.
    To(NetRule),
    /// Whatever a program asks the proxy for, if a rule covers it.
    Proxy,
}

/// One listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Door {
    /// Where it is inside.
    pub(crate) at: SocketAddr,
    pub(crate) leads: Leads,
}

/// The network of one plugin, as it is described to the sandbox and then served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EgressPlan {
    pub(crate) rules: Vec<NetRule>,
    /// In the order of the listeners.
    pub(crate) doors: Vec<Door>,
    pub(crate) names: BTreeMap<String, Ipv4Addr>,
    /// Every name gets an address, and no connection leads anywhere.
    pub(crate) is_watching: bool,
}

/// A list of hosts no network can be made of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EgressPlanError {
    /// An address nobody can connect to.
    #[error("is about an address nobody can connect to")]
    Address(NetRule),
    /// More listeners than a sandbox takes.
    #[error("is one of more than {MAX_LISTENERS} hosts; `net:*.DOMAIN` takes the place of many")]
    TooMany(NetRule),
}

impl EgressPlan {
    /// The network of a plugin that may reach the hosts of `rules`, none of which is for every host.
    pub(crate) fn of(rules: &BTreeSet<NetRule>) -> Result<Self, EgressPlanError> {
        let mut plan = Self { rules: rules.iter().cloned().collect(), ..Self::default() };
        // Addresses first: where a name would have the same place, the address is what was meant.
        for rule in rules {
            let (NetTarget::Address(address), Some(port)) = (rule.target(), rule.port()) else { continue };
            if address.is_unspecified() || address.is_multicast() || is_of_a_link(address) {
                return Err(EgressPlanError::Address(rule.clone()));
            }
            plan.open((address, port).into(), Leads::To(rule.clone()));
        }
        let mut free = plan.free_addresses();
        for rule in rules {
            let (NetTarget::Name(name), Some(port)) = (rule.target(), rule.port()) else { continue };
            let address = match plan.names.get(name) {
                Some(address) => Some(*address),
                // Many programs know these names themselves and ask nobody.
                None if rule.is_this_machine() => Some(Ipv4Addr::LOCALHOST),
                None => free.next(),
            };
            let Some(address) = address else { return Err(EgressPlanError::TooMany(rule.clone())) };
            if name != "localhost" {
                plan.names.insert(name.to_owned(), address);
            }
            plan.open((address, port).into(), Leads::To(rule.clone()));
        }
        if rules.iter().any(|rule| matches!(rule.target(), NetTarget::Below(_))) {
            plan.open(PROXY, Leads::Proxy);
        }
        match plan.rules.last() {
            Some(last) if plan.doors.len() > MAX_LISTENERS => Err(EgressPlanError::TooMany(last.clone())),
            _ => Ok(plan),
        }
    }

    /// The network of a plugin that is watched: whatever name it asks for gets an address, and no connection leads anywhere.
    /// Ports are seen by whoever watches its calls.
    pub(crate) fn watching() -> Self {
        Self { is_watching: true, ..Self::default() }
    }

    /// As the sandbox is told.
    pub(crate) fn network(&self) -> Network {
        Network::Hosts(ListedHosts {
            listeners: self.doors.iter().map(|door| door.at).collect(),
            names: self.names.iter().map(|(name, address)| (name.clone(), (*address).into())).collect(),
            name_server: Some(NAME_SERVER),
        })
    }

    /// Variables that lead programs with proxy settings to the proxy; none without a rule for a domain.
    pub(crate) fn proxy_variables(&self) -> Vec<(OsString, OsString)> {
        if !self.doors.iter().any(|door| door.leads == Leads::Proxy) {
            return Vec::new();
        }
        let url = format!("http://{PROXY}");
        let variables = [("HTTPS_PROXY", url.as_str()), ("https_proxy", &url), ("NODE_USE_ENV_PROXY", "1")];
        variables.map(|(name, value)| (name.into(), value.into())).into()
    }

    fn open(&mut self, at: SocketAddr, leads: Leads) {
        if !self.doors.iter().any(|door| door.at == at) {
            self.doors.push(Door { at, leads });
        }
    }

    /// Addresses for names that no rule is about.
    fn free_addresses(&self) -> impl Iterator<Item = Ipv4Addr> + use<> {
        let taken: BTreeSet<IpAddr> = self.doors.iter().map(|door| door.at.ip()).collect();
        let (first, count) = NAMES;
        (0..count)
            .map(move |number| Ipv4Addr::from(u32::from(first) + number))
            .filter(move |it| !taken.contains(&(*it).into()))
    }
}

/// Addresses of a link mean nothing without the link.
fn is_of_a_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_broadcast() || v4.octets()[0] == 0 || v4.octets()[0] >= 224,
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.to_ipv4_mapped().is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> BTreeSet<NetRule> {
        texts.iter().map(|text| NetRule::new(text).unwrap()).collect()
    }

    fn doors(texts: &[&str]) -> Vec<String> {
        let plan = EgressPlan::of(&rules(texts)).unwrap();
        let shown = |door: &Door| match &door.leads {
            Leads::To(rule) => format!("{} {rule}", door.at),
            Leads::Proxy => format!("{} proxy", door.at),
        };
        plan.doors.iter().map(shown).collect()
    }

    // Requirement 91: a connection has to tell by its place alone which host it was for.
    #[test]
    fn every_name_has_a_place_of_its_own() {
        assert_eq!(
            doors(&["b.test", "a.test:80", "a.test:8080", "192.0.2.7:80", "[2001:db8::1]:1"]),
            [
                "192.0.2.7:80 192.0.2.7:80",
                "[2001:db8::1]:1 [2001:db8::1]:1",
                "127.8.0.1:80 a.test:80",
                "127.8.0.1:8080 a.test:8080",
                "127.8.0.2:443 b.test:443",
            ]
        );
        // An address that was agreed to is nobody else's, and this machine is where programs look for it.
        assert_eq!(
            doors(&["127.8.0.1:443", "a.test", "localhost:3000", "x.localhost:3000", "127.0.0.1:3000"]),
            ["127.0.0.1:3000 127.0.0.1:3000", "127.8.0.1:443 127.8.0.1:443", "127.8.0.2:443 a.test:443"]
        );
        assert_eq!(doors(&["*.a.test", "a.test"]), ["127.8.0.1:443 a.test:443", "127.8.255.254:3128 proxy"]);
    }

    /// A program must be told of the proxy exactly when there is one.
    #[test]
    fn proxy_settings_come_with_a_domain() {
        let plan = |texts: &[&str]| EgressPlan::of(&rules(texts)).unwrap();
        assert!(plan(&["a.test"]).proxy_variables().is_empty());
        let variables = plan(&["*.a.test"]).proxy_variables();
        assert_eq!(variables[0], ("HTTPS_PROXY".into(), "http://127.8.255.254:3128".into()));
        let Network::Hosts(listed) = plan(&["a.test", "localhost:1"]).network() else { panic!("no hosts") };
        assert_eq!(listed.names, [("a.test".to_owned(), Ipv4Addr::new(127, 8, 0, 1).into())]);
        assert_eq!(listed.name_server, Some(NAME_SERVER));
    }

    /// What could not be served is refused before a start, with the rule.
    #[test]
    fn what_no_network_can_be_made_of_is_refused() {
        for bad in ["0.0.0.0:80", "224.0.0.1:80", "255.255.255.255:80", "[ff02::1]:80", "[fe80::1]:80", "0.0.0.9:80"] {
            let error = EgressPlan::of(&rules(&[bad])).unwrap_err();
            assert_eq!(error, EgressPlanError::Address(NetRule::new(bad).unwrap()));
        }
        let many: Vec<String> = (0..=MAX_LISTENERS).map(|number| format!("h{number:03}.test")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(EgressPlan::of(&rules(&many[1..])).is_ok());
        let error = EgressPlan::of(&rules(&many)).unwrap_err();
        assert!(error.to_string().contains("more than 128 hosts"), "{error}");
    }
}
