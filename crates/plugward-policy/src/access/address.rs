//! Addresses that are no ordinary hosts of the internet. Owns their ranges, in every form that leads
//! to them. Refuses to resolve names: it judges the address that would be dialled.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses at which clouds hand out the keys of a machine.
const METADATA_V4: [Ipv4Addr; 5] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];

/// As [`METADATA_V4`], the one that is known for IPv6.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254);

/// The reason for addresses of private networks.
pub(super) const PRIVATE: &str = "reaches a private network";

/// Why `address` is no ordinary host of the internet, if so: metadata services, this machine,
/// private networks, and everything that cannot be a single remote host. IPv6 forms that lead to an
/// IPv4 address are judged by that address. The rule for dialling on a plugin's behalf as well.
///
/// ```
/// use plugward_policy::special_address;
/// assert!(special_address("127.0.0.1".parse().unwrap()).is_some());
/// assert!(special_address("::ffff:10.0.0.1".parse().unwrap()).is_some());
/// assert!(special_address("1.1.1.1".parse().unwrap()).is_none());
/// ```
#[must_use]
pub fn special_address(address: IpAddr) -> Option<&'static str> {
    const METADATA: &str = "reaches the metadata service that hands out a cloud machine's keys";
    const MACHINE: &str = "reaches services of this machine";
    const LINK: &str = "reaches the local link";
    const OTHER: &str = "is no address of a single host on the internet";
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            if METADATA_V4.contains(&v4) {
                Some(METADATA)
            } else if v4.is_loopback() || a == 0 {
                Some(MACHINE)
            } else if v4.is_private() || (a == 100 && b & 0xc0 == 64) {
                Some(PRIVATE)
            } else if v4.is_link_local() {
                Some(LINK)
            } else if a >= 224 || (a, b, c) == (192, 0, 0) || (a == 198 && b & 0xfe == 18) {
                Some(OTHER)
            } else {
                None
            }
        }
        IpAddr::V6(v6) => {
            if v6 == METADATA_V6 {
                Some(METADATA)
            } else if v6.is_loopback() || v6.is_unspecified() {
                Some(MACHINE)
            } else if let Some(inner) = embedded_v4(v6) {
                // Reached through a translator, even a public address is not what it looks like.
                special_address(inner.into()).or(Some(OTHER))
            } else if v6.is_unique_local() || v6.segments()[0] & 0xffc0 == 0xfec0 {
                Some(PRIVATE)
            } else if v6.is_unicast_link_local() {
                Some(LINK)
            } else if v6.segments()[0] & 0xe000 != 0x2000 {
                // Only 2000::/3 is given out; the rest is multicast or nobody's.
                Some(OTHER)
            } else {
                None
            }
        }
    }
}

/// The IPv4 address that `v6` leads to: mapped, compatible, translated (NAT64) or tunnelled (6to4,
/// Teredo).
fn embedded_v4(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = v6.segments();
    let from = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match s {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => Some(from(high, low)),
        [0x64, 0xff9b, 0 | 1, _, _, _, high, low] => Some(from(high, low)),
        [0x2002, high, low, ..] => Some(from(high, low)),
        [0x2001, 0, _, _, _, _, high, low] => Some(from(!high, !low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The addresses behind which keys and unprotected services sit, in every form they can take.
    #[test]
    fn special_addresses_are_known_in_every_form() {
        for (text, words) in [
            ("127.0.0.1", "this machine"),
            ("127.255.0.9", "this machine"),
            ("0.0.0.0", "this machine"),
            ("::1", "this machine"),
            ("::", "this machine"),
            ("::ffff:127.0.0.1", "this machine"),
            ("::127.0.0.1", "this machine"),
            ("64:ff9b::127.0.0.1", "this machine"),
            ("2002:7f00:1::", "this machine"),
            ("2001:0:1:2:3:4:80ff:fffe", "this machine"),
            ("10.1.2.3", "private"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.168.1.1", "private"),
            ("100.64.0.1", "private"),
            ("100.127.255.255", "private"),
            ("fc00::1", "private"),
            ("fec0::1", "private"),
            ("169.254.1.1", "local link"),
            ("fe80::1", "local link"),
            ("169.254.169.254", "metadata"),
            ("::ffff:169.254.169.254", "metadata"),
            ("64:ff9b:1::169.254.169.254", "metadata"),
            ("100.100.100.200", "metadata"),
            ("168.63.129.16", "metadata"),
            ("192.0.0.192", "metadata"),
            ("fd00:ec2::254", "metadata"),
            ("224.0.0.1", "no address of a single host"),
            ("255.255.255.255", "no address of a single host"),
            ("240.0.0.1", "no address of a single host"),
            ("192.0.0.1", "no address of a single host"),
            ("198.18.0.1", "no address of a single host"),
            ("ff02::1", "no address of a single host"),
            ("64:ff9b::1.1.1.1", "no address of a single host"),
            ("4000::1", "no address of a single host"),
        ] {
            let reason = special_address(text.parse().unwrap());
            assert!(reason.is_some_and(|reason| reason.contains(words)), "{text}: {reason:?}");
        }
        for text in ["1.1.1.1", "100.63.0.1", "100.128.0.1", "172.32.0.1", "192.0.1.1", "198.20.0.1", "2606:4700::1"] {
            assert_eq!(special_address(text.parse().unwrap()), None, "{text}");
        }
    }
}
