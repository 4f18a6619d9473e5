//! Where a connection under a network rule may end. Owns the judgement of the address that would be dialled, after a name
//! was looked up: whoever runs a name decides what it leads to, and may decide otherwise tomorrow. Resolves and dials
//! nothing.

use std::net::IpAddr;

use super::address::{PRIVATE, special_address};
use super::net::{LOCAL_SUFFIXES, NetRule, NetTarget, below};

impl NetRule {
    /// Why a connection under this rule must not end at `address`, a phrase about the address; `None` if it may.
    ///
    /// A rule for an address is about that address, whatever it is: it was agreed to as such. A name may lead to hosts of
    /// the internet. One that says so itself may lead nearer: `localhost` and names below it to this machine, names of the
    /// local network to private addresses. No name leads to a metadata service.
    ///
    /// ```
    /// let rule = plugward_policy::NetRule::new("api.example.test").unwrap();
    /// assert_eq!(rule.refuses("127.0.0.1".parse().unwrap()), Some("reaches services of this machine"));
    /// ```
    #[must_use]
    pub fn refuses(&self, address: IpAddr) -> Option<&'static str> {
        let name = match self.target() {
            NetTarget::Any => return None,
            NetTarget::Address(agreed) if agreed == address => return None,
            NetTarget::Address(_) => return Some("is another address than the one agreed to"),
            NetTarget::Name(name) | NetTarget::Below(name) => name,
        };
        match special_address(address) {
            Some(_) if address.is_loopback() && is_machine_name(name) => None,
            Some(PRIVATE) if is_local_name(name) => None,
            // What calls itself this machine must not lead away from it.
            None if is_machine_name(name) => Some("is not this machine"),
            reason => reason,
        }
    }

    /// Whether it names this machine: `localhost` or a name below it. Such names are not looked up anywhere.
    #[must_use]
    pub fn is_this_machine(&self) -> bool {
        match self.target() {
            NetTarget::Name(name) | NetTarget::Below(name) => is_machine_name(name),
            NetTarget::Address(address) => address.is_loopback(),
            NetTarget::Any => false,
        }
    }
}

fn is_machine_name(name: &str) -> bool {
    below(name, "localhost")
}

/// A name that only a local network knows, as its red flag says.
fn is_local_name(name: &str) -> bool {
    !is_machine_name(name) && (!name.contains('.') || LOCAL_SUFFIXES.iter().any(|suffix| below(name, suffix)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement 91: a name that was agreed to must not become a way to what nobody agreed to (rebinding).
    #[test]
    fn names_lead_where_they_say_and_nowhere_else() {
        const INTERNET: &str = "1.1.1.1";
        const METADATA: [&str; 3] = ["169.254.169.254", "fd00:ec2::254", "::ffff:169.254.169.254"];
        const LOOPBACK: [&str; 4] = ["127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0"];
        const PRIVATE: [&str; 3] = ["10.0.0.7", "192.168.1.1", "fd12::1"];
        let may = |rule: &str, address: &str| NetRule::new(rule).unwrap().refuses(address.parse().unwrap()).is_none();
        for (rule, internet, private, loopback) in [
            ("api.example.test", true, false, false),
            ("*.example.test", true, false, false),
            ("metadata.google.internal:80", true, true, false),
            ("printer:631", true, true, false),
            ("nas.local", true, true, false),
            ("*.corp", true, true, false),
            ("localhost:3000", false, false, true),
            ("app.localhost:3000", false, false, true),
            ("notlocalhost.example", true, false, false),
            ("*", true, true, true),
        ] {
            assert_eq!(may(rule, INTERNET), internet, "{rule}");
            assert!(PRIVATE.iter().all(|address| may(rule, address) == private), "{rule}");
            assert!(["127.0.0.1", "::1"].iter().all(|address| may(rule, address) == loopback), "{rule}");
            if rule != "*" {
                assert!(METADATA.iter().all(|address| !may(rule, address)), "{rule}");
                assert!(LOOPBACK.iter().all(|address| loopback || !may(rule, address)), "{rule}");
                assert!(!may(rule, "224.0.0.1") && !may(rule, "fe80::1"), "{rule}");
            }
        }
        assert!(may("169.254.169.254:80", "169.254.169.254") && may("127.0.0.1:80", "127.0.0.1"));
        assert!(!may("127.0.0.1:80", "127.0.0.2") && !may("127.0.0.1:80", "::ffff:127.0.0.1"));
    }

    #[test]
    fn names_of_this_machine_are_known() {
        for (rule, expected) in [
            ("localhost:1", true),
            ("a.localhost:1", true),
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("a.test", false),
        ] {
            assert_eq!(NetRule::new(rule).unwrap().is_this_machine(), expected, "{rule}");
        }
    }
}
