//! From a host and a port to a connection, under rules that were granted.
//!
//! Owns the order of it: decide, look up, judge, dial. A name is looked up only after a rule allowed it, once for each
//! connection, and the address that was judged is the one that is dialled. What plugins open from inside their network
//! and what the host itself sends for a plugin (`outbound`) go this one way. Refuses to know what the connection is for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use plugward_policy::{NetRule, NetTarget};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::outside::Outside;

/// Time for a look-up. The system's resolver asks each of three servers for 5 s.
const LOOKUP_LIMIT: Duration = Duration::from_secs(15);

/// Time for one address to answer.
const DIAL_LIMIT: Duration = Duration::from_secs(10);

/// Addresses of one name that are tried.
const MAX_DIALS: usize = 4;

/// Why nothing is asked for on behalf of a plugin that is not on its list.
pub(super) const NOT_LISTED: &str = "nobody granted it";

/// Why a connection did not come about.
pub(crate) enum Missed {
    /// The rules do not allow it.
    Refused(String),
    /// They do, and nobody answered.
    Failed(String),
}

/// A connection to `host`, if one of `rules` allows it: decides, looks up, judges, dials, in this order.
pub(crate) async fn reach<O: Outside>(
    granted: &[NetRule],
    outside: &O,
    host: &str,
    port: u16,
) -> Result<TcpStream, Missed> {
    let rules: Vec<&NetRule> = granted.iter().filter(|rule| rule.matches(host, port)).collect();
    if rules.is_empty() {
        return Err(Missed::Refused(NOT_LISTED.to_owned()));
    }
    let addresses = addresses(outside, host, &rules).await?;
    let mut permitted = Vec::new();
    let mut first_refusal = None;
    for address in addresses {
        match refusal(granted, outside, &rules, address, port) {
            None => permitted.push(address),
            Some(reason) => {
                first_refusal.get_or_insert_with(|| format!("it leads to {address}, which {reason}"));
            }
        }
    }
    if let (true, Some(reason)) = (permitted.is_empty(), first_refusal) {
        return Err(Missed::Refused(reason));
    }
    let mut failure = "it has no address".to_owned();
    for address in permitted.into_iter().take(MAX_DIALS) {
        match timeout(DIAL_LIMIT, outside.dial((address, port).into())).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failure = error.to_string(),
            Err(_) => failure = format!("no answer within {} s", DIAL_LIMIT.as_secs()),
        }
    }
    Err(Missed::Failed(failure))
}

async fn addresses<O: Outside>(outside: &O, host: &str, rules: &[&NetRule]) -> Result<Vec<IpAddr>, Missed> {
    if let Ok(address) = host.parse() {
        return Ok(vec![address]);
    }
    // No resolver has a say in what this machine is.
    if rules.iter().any(|rule| rule.is_this_machine()) {
        return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
    }
    match timeout(LOOKUP_LIMIT, outside.resolve(host.to_owned())).await {
        Ok(Ok(addresses)) => Ok(addresses),
        Ok(Err(error)) => Err(Missed::Failed(format!("its name was not found: {error}"))),
        Err(_) => Err(Missed::Failed(format!("no name server answered within {} s", LOOKUP_LIMIT.as_secs()))),
    }
}

/// Why a connection must not end at `address`.
fn refusal<O: Outside>(
    granted: &[NetRule],
    outside: &O,
    rules: &[&NetRule],
    address: IpAddr,
    port: u16,
) -> Option<&'static str> {
    // Somebody granted the address itself, and with it that a name leads there.
    let is_granted = |rule: &NetRule| rule.target() == NetTarget::Address(address) && rule.port() == Some(port);
    if granted.iter().any(is_granted) {
        return None;
    }
    let mut refusals = rules.iter().map(|rule| rule.refuses(address));
    let first = refusals.next().flatten();
    if first.is_some() && refusals.all(|refusal| refusal.is_some()) {
        return first;
    }
    // Only names of this machine lead to loopback addresses here; any other address of it is a way around that.
    (!address.is_loopback() && outside.is_own(address)).then_some("is an address of this machine")
}
