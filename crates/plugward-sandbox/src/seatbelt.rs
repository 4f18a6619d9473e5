//! The Seatbelt profile of a sandbox, as text.
//!
//! Owns the rules and their order (the last rule that fits counts) and the quoting of paths. Refuses reading anything: the
//! caller has resolved every path, because Seatbelt compares resolved ones. It is compiled for tests on every system.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use crate::{Network, SandboxSpec};

/// Folders every program of the system needs: loader, libraries, run time support, time zones.
const SYSTEM_READ: [&str; 7] = [
    "/usr/lib",
    "/usr/share",
    "/System/Library",
    "/System/Volumes/Preboot/Cryptexes",
    "/Library/Apple",
    "/private/var/db/dyld",
    "/private/var/db/timezone",
];
/// Single files of the same kind.
const SYSTEM_FILES: [&str; 3] = ["/private/etc/localtime", "/private/etc/hosts", "/private/etc/protocols"];
/// Where certificates are.
const CERTIFICATES: [&str; 2] = ["/private/etc/ssl", "/Library/Keychains/SystemTrustSettings.plist"];
/// Devices without a way to the machine.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];
/// Services of the system that the C library asks. A longer list would be a way out: services act for their callers.
const SERVICES: [&str; 2] = ["com.apple.system.opendirectoryd.libinfo", "com.apple.system.notification_center"];
/// Services that name look-ups and certificate checks take, for an open network.
const NETWORK_SERVICES: [&str; 2] = ["com.apple.SystemConfiguration.configd", "com.apple.trustd.agent"];
/// Where names are looked up.
const RESOLVER: &str = "/private/var/run/mDNSResponder";

/// Resolved paths of one sandbox.
#[derive(Debug, Clone, Default)]
pub(crate) struct Paths {
    /// The program.
    pub(crate) executable: PathBuf,
    /// What it may read and execute.
    pub(crate) readable: Vec<PathBuf>,
    /// What it may read and write.
    pub(crate) writable: Vec<PathBuf>,
    /// Names with links in them that lead to some of these.
    pub(crate) names: Vec<PathBuf>,
}

/// Why there is no profile for a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoProfile {
    /// Seatbelt knows addresses, not names.
    HostList,
    /// A path that is no text, which a profile is.
    PathIsNoText,
}

/// The profile.
pub(crate) fn profile(sandbox: &SandboxSpec, paths: &Paths) -> Result<String, NoProfile> {
    let mut text = String::from(
        "(version 1)\n(deny default)\n(allow process-fork)\n(allow signal (target same-sandbox))\n\
         (allow process-info* (target same-sandbox))\n(allow sysctl-read)\n(allow file-read-metadata file-test-existence \
         (literal \"/\"))\n",
    );
    for folder in SYSTEM_READ {
        rule(&mut text, "allow file-read* file-map-executable", "subpath", Path::new(folder))?;
    }
    for file in SYSTEM_FILES {
        rule(&mut text, "allow file-read*", "literal", Path::new(file))?;
    }
    for device in DEVICES {
        rule(&mut text, "allow file-read* file-write-data file-ioctl", "literal", Path::new(device))?;
    }
    if sandbox.certificates {
        for place in CERTIFICATES {
            rule(&mut text, "allow file-read*", "subpath", Path::new(place))?;
        }
    }
    services(&mut text, &SERVICES);
    // Programs look at each folder on the way to a path that is theirs.
    for name in &paths.names {
        rule(&mut text, "allow file-read-metadata", "literal", name)?;
    }
    for path in [&paths.executable].into_iter().chain(&paths.readable).chain(&paths.writable).chain(&paths.names) {
        for ancestor in path.ancestors().skip(1) {
            rule(&mut text, "allow file-read-metadata", "literal", ancestor)?;
        }
    }
    for path in [&paths.executable].into_iter().chain(&paths.readable) {
        rule(&mut text, "allow file-read* file-map-executable process-exec*", "subpath", path)?;
    }
    for path in &paths.writable {
        rule(&mut text, "allow file-read* file-write*", "subpath", path)?;
        rule(&mut text, "deny file-map-executable process-exec*", "subpath", path)?;
        rule(&mut text, "deny file-write-setugid", "subpath", path)?;
    }
    network(&mut text, &sandbox.network)?;
    Ok(text)
}

fn network(text: &mut String, network: &Network) -> Result<(), NoProfile> {
    match network {
        Network::Off => text.push_str("(deny network*)\n(deny system-socket)\n"),
        Network::Open => {
            text.push_str(
                "(deny network*)\n(allow system-socket)\n(allow network-outbound (remote ip))\n(allow network-inbound \
                 (local ip))\n(allow network-bind (local ip))\n",
            );
            rule(text, "allow network-outbound", "literal", Path::new(RESOLVER))?;
            services(text, &NETWORK_SERVICES);
        }
        _ => return Err(NoProfile::HostList),
    }
    Ok(())
}

fn services(text: &mut String, names: &[&str]) {
    for name in names {
        let _infallible = writeln!(text, "(allow mach-lookup (global-name \"{name}\"))");
    }
}

/// `(ACTION OPERATIONS (FILTER "PATH"))`
fn rule(text: &mut String, action: &str, filter: &str, path: &Path) -> Result<(), NoProfile> {
    let path = path.to_str().ok_or(NoProfile::PathIsNoText)?;
    let mut quoted = String::with_capacity(path.len());
    for character in path.chars() {
        if matches!(character, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    let _infallible = writeln!(text, "({action} ({filter} \"{quoted}\"))");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    fn paths() -> Paths {
        Paths {
            executable: "/opt/node/bin/node".into(),
            readable: vec!["/private/tmp/package".into()],
            writable: vec!["/Users/x/data \"a\\b\"".into()],
            names: vec!["/Users/x/link".into()],
        }
    }

    /// Seatbelt takes the last rule that fits, so a denial has to come after what it takes back.
    #[test]
    fn data_can_be_written_and_not_executed() {
        let text = profile(&SandboxSpec::new(Level::Partial), &paths()).unwrap();
        let place = |rule: &str| text.find(rule).unwrap_or_else(|| panic!("`{rule}` is not in\n{text}"));
        let data = r#"(subpath "/Users/x/data \"a\\b\"")"#;
        assert!(
            place(&format!("(allow file-read* file-write* {data})"))
                < place(&format!("(deny file-map-executable process-exec* {data})"))
        );
        assert!(text.starts_with("(version 1)\n(deny default)\n"));
        assert!(!text.contains("file-write* (subpath \"/private/tmp/package\")"));
        assert!(
            text.contains("(allow file-read* file-map-executable process-exec* (subpath \"/private/tmp/package\"))")
        );
        assert!(text.contains("(allow file-read-metadata (literal \"/private/tmp\"))"));
    }

    // Requirement 91: without a network there is no rule that opens one, and the last word on it is no.
    #[test]
    fn no_network_means_no_rule_for_one() {
        let off = profile(&SandboxSpec::new(Level::Partial), &paths()).unwrap();
        assert!(!off.contains("allow network") && !off.contains("trustd") && !off.contains("allow system-socket"));
        assert!(off.ends_with("(deny network*)\n(deny system-socket)\n"));
        let open = SandboxSpec { network: Network::Open, ..SandboxSpec::new(Level::Partial) };
        let open = profile(&open, &paths()).unwrap();
        assert!(open.contains("(allow network-outbound (remote ip))") && open.contains(RESOLVER));
        // Unix sockets lead to programs that act for the user.
        assert!(!open.contains("(allow network*") && !open.contains("remote unix"));
        let hosts =
            SandboxSpec { network: Network::Hosts(crate::ListedHosts::default()), ..SandboxSpec::new(Level::Partial) };
        assert_eq!(profile(&hosts, &paths()), Err(NoProfile::HostList));
    }

    /// The line structure of a profile must not be at the mercy of a folder's name.
    #[test]
    fn each_rule_is_balanced() {
        let text = profile(&SandboxSpec { certificates: true, ..SandboxSpec::new(Level::Partial) }, &paths()).unwrap();
        for line in text.lines() {
            let (opened, closed) = (line.matches('(').count(), line.matches(')').count());
            assert_eq!(opened, closed, "{line}");
        }
    }
}
