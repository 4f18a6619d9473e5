//! The few system files a program expects to find, made up for each plugin.
//!
//! Owns their content: one user, one host name, no name server. Refuses showing the machine's own accounts, names and
//! resolvers, which would tell a plugin where it is.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::unix::ffi::OsStrExt,
};

/// The host name inside.
pub(super) const HOST_NAME: &str = "plugin";

/// Largest description of a time zone that is copied; real ones are below 4 KiB.
const MAX_TIME_ZONE_BYTES: u64 = 64 * 1024;

/// The user as it is seen inside.
#[derive(Debug, Clone)]
pub(super) struct Identity<'a> {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) home: &'a OsStr,
}

/// Names and content of the files in `/etc`.
pub(super) fn files(identity: &Identity<'_>, time_zone: Option<Vec<u8>>) -> Vec<(&'static str, Vec<u8>)> {
    let Identity { uid, gid, home } = identity;
    // A home with a separator in it would add fields or lines to the file.
    let home = if home.as_bytes().iter().any(|byte| matches!(byte, b':' | b'\n')) { b"/tmp" } else { home.as_bytes() };
    let passwd = [format!("plugin:x:{uid}:{gid}:plugin:").as_bytes(), home, b":/bin/sh\n"].concat();
    let mut files = vec![
        ("passwd", passwd),
        ("group", format!("plugin:x:{gid}:\n").into_bytes()),
        ("hosts", format!("127.0.0.1 localhost {HOST_NAME}\n::1 localhost\n").into_bytes()),
        ("hostname", format!("{HOST_NAME}\n").into_bytes()),
        ("nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n".to_vec()),
        ("resolv.conf", Vec::new()),
    ];
    files.extend(time_zone.map(|content| ("localtime", content)));
    files
}

/// The machine's time zone, so that times a plugin prints are the user's. Without one, times are in UTC.
pub(super) fn time_zone() -> Option<Vec<u8>> {
    let mut content = Vec::new();
    let read = |content: &mut Vec<u8>| -> io::Result<usize> {
        File::open("/etc/localtime")?.take(MAX_TIME_ZONE_BYTES).read_to_end(content)
    };
    read(&mut content).ok()?;
    content.starts_with(b"TZif").then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `os.userInfo()` and `getpass.getuser()` fail without an entry, and a hostile home must not add one.
    #[test]
    fn the_only_account_is_the_plugins() {
        let passwd = |home: &str| {
            let identity = Identity { uid: 1500, gid: 1600, home: OsStr::new(home) };
            String::from_utf8(files(&identity, None).remove(0).1).unwrap()
        };
        assert_eq!(passwd("/srv/home"), "plugin:x:1500:1600:plugin:/srv/home:/bin/sh\n");
        assert_eq!(passwd("/x:/bin/sh\nroot:x:0"), "plugin:x:1500:1600:plugin:/tmp:/bin/sh\n");
    }
}
