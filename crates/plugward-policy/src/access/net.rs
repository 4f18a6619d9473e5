//! Hosts a plugin asks to reach. Owns the form of a network rule, what it matches, and which names
//! should worry. Refuses names that resolvers read differently (other characters, numbers
//! that look like names, capitals): what was agreed to has one spelling. Resolves nothing.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::address::special_address;
use crate::visible::quoted;

/// The port of a rule that names none: HTTPS, which is what nearly every service speaks.
pub const NET_PORT_DEFAULT: u16 = 443;

/// Longest host name and longest label of one, in bytes (the limits of the domain name system).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// A text that is no network rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// Not a host name, address or wildcard.
    #[error(
        "host {} is not valid: use a lower-case name like `api.example.test`, an address, or `*.example.test`",
        quoted(.0)
    )]
    Host(String),
    /// An address in an unusual form.
    #[error("address {} is not written plainly: write `{plain}`", quoted(.text))]
    Address {
        /// The text.
        text: String,
        /// The usual form.
        plain: IpAddr,
    },
    /// An IPv6 address without brackets.
    #[error("address {} needs brackets: write `[{}]`", quoted(.0), crate::visible(.0))]
    Brackets(String),
    /// Not a port.
    #[error("port {} is not a whole number from 1 to 65535", quoted(.0))]
    Port(String),
    /// A URL where a host belongs.
    #[error("host {} is a URL: write only its host and port", quoted(.0))]
    Url(String),
    /// `*:PORT`.
    #[error("`*` stands for every host and every port and takes no port")]
    AnyWithPort,
}

/// One line of the list of hosts a plugin may reach.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetRule {
    target: Target,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Target {
    Any,
    Below(String),
    Name(String),
    Address(IpAddr),
}

/// What a [`NetRule`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetTarget<'a> {
    /// Every host on every port.
    Any,
    /// Every host below this name, not the name itself. Only programs that use the proxy settings
    /// they are given can be served, because no list of names can be made of it.
    Below(&'a str),
    /// Exactly this name.
    Name(&'a str),
    /// Exactly this address.
    Address(IpAddr),
}

impl NetRule {
    /// Reads `HOST[:PORT]`, `*.NAME[:PORT]`, an address (IPv6 in brackets), or `*`.
    ///
    /// # Errors
    /// [`NetError`] for anything else, also for a second spelling of the same host.
    ///
    /// ```
    /// let rule = plugward_policy::NetRule::new("api.example.test").unwrap();
    /// assert_eq!(rule.to_string(), "api.example.test:443");
    /// ```
    pub fn new(text: &str) -> Result<Self, NetError> {
        if text == "*" {
            return Ok(Self { target: Target::Any, port: 0 });
        }
        if text.contains("//") {
            return Err(NetError::Url(text.to_owned()));
        }
        let (host, port) = split(text)?;
        let port = match port {
            None => NET_PORT_DEFAULT,
            Some(_) if host == "*" => return Err(NetError::AnyWithPort),
            Some(port) => read_port(port)?,
        };
        Ok(Self { target: read_target(host)?, port })
    }

    /// What it stands for.
    #[must_use]
    pub fn target(&self) -> NetTarget<'_> {
        match &self.target {
            Target::Any => NetTarget::Any,
            Target::Below(name) => NetTarget::Below(name),
            Target::Name(name) => NetTarget::Name(name),
            Target::Address(address) => NetTarget::Address(*address),
        }
    }

    /// The one port, `None` for every port, which only [`NetTarget::Any`] has.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        (self.target != Target::Any).then_some(self.port)
    }

    /// Whether a connection to `host` (a name as the plugin gave it, or an address without
    /// brackets) on `port` is covered. Names are compared without regard to case.
    #[must_use]
    pub fn matches(&self, host: &str, port: u16) -> bool {
        if self.target == Target::Any {
            return true;
        }
        let host = host.to_ascii_lowercase();
        let covered = match &self.target {
            Target::Any => true,
            Target::Name(name) => *name == host,
            Target::Below(name) => {
                let label = host.strip_suffix(name.as_str()).and_then(|rest| rest.strip_suffix('.'));
                label.is_some_and(|_| is_name(&host))
            }
            Target::Address(address) => host.parse() == Ok(*address),
        };
        covered && port == self.port
    }

    /// Why a person should think twice, if so.
    #[must_use]
    pub fn red_flag(&self) -> Option<&'static str> {
        match &self.target {
            Target::Any => Some("reaches every host, so that anything it reads can be sent anywhere"),
            Target::Below(name) if !name.contains('.') => Some("covers all of a top-level name"),
            Target::Below(name) | Target::Name(name) => name_flag(name),
            Target::Address(address) => special_address(*address),
        }
    }
}

impl fmt::Display for NetRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Target::Any => f.write_str("*"),
            Target::Below(name) => write!(f, "*.{name}:{}", self.port),
            Target::Name(name) => write!(f, "{name}:{}", self.port),
            Target::Address(IpAddr::V4(address)) => write!(f, "{address}:{}", self.port),
            Target::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
        }
    }
}

/// Host, brackets included, and port.
fn split(text: &str) -> Result<(&str, Option<&str>), NetError> {
    if text.starts_with('[') {
        let end = text.find(']').ok_or_else(|| NetError::Host(text.to_owned()))?;
        let (host, rest) = text.split_at(end + 1);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(NetError::Host(text.to_owned())),
        };
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err(NetError::Brackets(text.to_owned()));
    }
    match text.split_once(':') {
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

fn read_port(text: &str) -> Result<u16, NetError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let port = if digits { text.parse().ok() } else { None };
    port.ok_or_else(|| NetError::Port(text.to_owned()))
}

fn read_target(host: &str) -> Result<Target, NetError> {
    let refused = || NetError::Host(host.to_owned());
    if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or_else(refused)?;
        let address: Ipv6Addr = inner.parse().map_err(|_| refused())?;
        if address.to_string() != inner {
            return Err(NetError::Address { text: host.to_owned(), plain: address.into() });
        }
        return Ok(Target::Address(address.into()));
    }
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return Ok(Target::Address(address.into()));
    }
    match host.strip_prefix("*.") {
        Some(name) if is_name(name) => Ok(Target::Below(name.to_owned())),
        None if is_name(host) => Ok(Target::Name(host.to_owned())),
        _ => Err(refused()),
    }
}

/// Whether `name` is a host name: lower-case letters, digits and inner hyphens in each label. A
/// last label of digits makes resolvers read the whole as an address (`127.1`, `0x7f.1`).
fn is_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= LABEL_BYTES_MAX
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    let numeric = last.bytes().all(|byte| byte.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    name.len() <= NAME_BYTES_MAX && name.split('.').all(label) && !numeric
}

/// What names end in that only a local network knows.
pub(super) const LOCAL_SUFFIXES: [&str; 7] = ["local", "internal", "lan", "home", "home.arpa", "corp", "intranet"];

/// Whether `name` is `suffix` or ends in it at a dot.
pub(super) fn below(name: &str, suffix: &str) -> bool {
    name == suffix || name.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'))
}

/// Why a name should make a person think twice.
fn name_flag(name: &str) -> Option<&'static str> {
    let below = |suffix: &str| below(name, suffix);
    if below("localhost") {
        Some("reaches services of this machine")
    } else if name.starts_with("metadata.") || name == "metadata" || below("instance-data") {
        Some("reaches the metadata service that hands out a cloud machine's keys")
    } else if !name.contains('.') || LOCAL_SUFFIXES.iter().any(|suffix| below(suffix)) {
        Some("reaches a host of the local network")
    } else if name.split('.').any(|label| label.starts_with("xn--")) {
        Some("has letters in its name that may look like others")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> NetRule {
        NetRule::new(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    // Requirement 91: one host has one spelling, and nothing that resolvers read differently.
    #[test]
    fn rules_have_one_spelling() {
        for (text, canonical) in [
            ("api.example.test", "api.example.test:443"),
            ("api.example.test:443", "api.example.test:443"),
            ("api.example.test:8443", "api.example.test:8443"),
            ("*.example.test", "*.example.test:443"),
            ("*.example.test:1", "*.example.test:1"),
            ("*", "*"),
            ("192.0.2.7:80", "192.0.2.7:80"),
            ("[2001:db8::1]", "[2001:db8::1]:443"),
            ("[::1]:65535", "[::1]:65535"),
            ("localhost:3000", "localhost:3000"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example:443"),
            ("0x7f.example", "0x7f.example:443"),
        ] {
            assert_eq!(rule(text).to_string(), canonical);
            assert_eq!(rule(canonical), rule(text));
        }
        let long = format!("{}.test", "a.".repeat(130));
        let label = format!("{}.test", "a".repeat(64));
        for (bad, words) in [
            ("", "host `` is not valid"),
            ("API.example.test", "is not valid"),
            ("api.example.test.", "is not valid"),
            ("api..test", "is not valid"),
            ("-a.test", "is not valid"),
            ("a_b.test", "is not valid"),
            ("bücher.example", "is not valid"),
            ("evil\0.example.test", "is not valid"),
            ("user@example.test", "is not valid"),
            ("example.test/path", "is not valid"),
            ("https://example.test", "is a URL"),
            ("*.*", "is not valid"),
            ("*example.test", "is not valid"),
            ("a.*.test", "is not valid"),
            ("*.", "is not valid"),
            ("*.10.0.0.1", "is not valid"),
            ("127.1", "is not valid"),
            ("2130706433", "is not valid"),
            ("0x7f000001", "is not valid"),
            ("0177.0.0.1", "is not valid"),
            ("127.0.0.1.", "is not valid"),
            ("::1", "write `[::1]`"),
            ("[::1", "is not valid"),
            ("[::1]x", "is not valid"),
            ("[1.2.3.4]", "is not valid"),
            ("[0:0:0:0:0:0:0:1]", "write `::1`"),
            ("[2001:DB8::1]", "write `2001:db8::1`"),
            ("[fe80::1%eth0]", "is not valid"),
            ("a.test:", "port `` is not"),
            ("a.test:0", "port `0` is not"),
            ("a.test:080", "port `080` is not"),
            ("a.test:65536", "port `65536` is not"),
            ("a.test:+1", "port `+1` is not"),
            ("a.test:*", "port `*` is not"),
            ("a.test:443:1", "port `443:1` is not"),
            ("*:443", "takes no port"),
            (&long, "is not valid"),
            (&label, "is not valid"),
        ] {
            let shown = NetRule::new(bad).expect_err(bad).to_string();
            assert!(shown.contains(words), "{bad}: {shown}");
            assert!(!shown.contains(char::is_control), "{shown:?}");
        }
    }

    // A rule must not let a name through that only ends like the one agreed to.
    #[test]
    fn matching_is_exact() {
        for (text, host, port, wanted) in [
            ("api.example.test", "api.example.test", 443, true),
            ("api.example.test", "API.Example.test", 443, true),
            ("api.example.test", "api.example.test", 80, false),
            ("api.example.test", "x.api.example.test", 443, false),
            ("api.example.test", "api.example.test.", 443, false),
            ("*.example.test", "a.example.test", 443, true),
            ("*.example.test", "a.b.example.test", 443, true),
            ("*.example.test", "example.test", 443, false),
            ("*.example.test", "evilexample.test", 443, false),
            ("*.example.test", ".example.test", 443, false),
            ("*.example.test", "evil\0.example.test", 443, false),
            ("*.example.test", "a.example.test.evil.test", 443, false),
            ("192.0.2.7:80", "192.0.2.7", 80, true),
            ("192.0.2.7:80", "192.0.2.8", 80, false),
            ("[::1]:80", "::1", 80, true),
            ("[::1]:80", "0:0::1", 80, true),
            ("*", "anything", 9, true),
        ] {
            assert_eq!(rule(text).matches(host, port), wanted, "{text} {host} {port}");
        }
    }

    #[test]
    fn names_of_near_services_are_flagged() {
        for text in [
            "*",
            "*.test",
            "localhost",
            "db.localhost",
            "printer",
            "nas.local",
            "metadata.google.internal",
            "db.corp",
            "xn--bcher-kva.example",
            "10.0.0.1",
            "[::1]",
            "*.internal",
        ] {
            assert!(rule(text).red_flag().is_some(), "{text}");
        }
        for text in ["api.example.test", "*.example.test", "192.0.2.7", "notlocalhost.example", "local.example"] {
            assert_eq!(rule(text).red_flag(), None, "{text}");
        }
    }
}
