//! Handing a witness's attempts to a process that was executed and not forked.
//!
//! Owns their form as arguments, for both directions. Refuses guessing: arguments of another form are an error.

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use rustix::process::Pid;

use super::Attempts;
use crate::SandboxSpec;

impl Attempts {
    /// What [`from_arguments`](Self::from_arguments) reads; level and network are in the sandbox.
    pub(in crate::linux) fn to_arguments(&self) -> Vec<OsString> {
        vec![
            self.folder.clone().into_os_string(),
            self.tcp_port.to_string().into(),
            self.udp_port.to_string().into(),
            OsString::from_vec(self.unnamed.clone()),
            self.outside.as_raw_nonzero().to_string().into(),
        ]
    }

    pub(in crate::linux) fn from_arguments(sandbox: &SandboxSpec, arguments: &[OsString]) -> Option<Self> {
        let [folder, tcp_port, udp_port, unnamed, outside] = arguments else { return None };
        Some(Self {
            level: sandbox.level,
            network: sandbox.network.clone(),
            folder: folder.into(),
            tcp_port: tcp_port.to_str()?.parse().ok()?,
            udp_port: udp_port.to_str()?.parse().ok()?,
            unnamed: unnamed.as_bytes().to_vec(),
            outside: Pid::from_raw(outside.to_str()?.parse().ok()?)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Level, Network};

    /// A witness that looked at the wrong port would find nothing and confirm everything.
    #[test]
    fn attempts_survive() {
        let attempts = Attempts {
            level: Level::Full,
            network: Network::Off,
            folder: "/tmp/.canary".into(),
            tcp_port: 40_001,
            udp_port: 40_002,
            unnamed: b"name\xff".to_vec(),
            outside: Pid::from_raw(77).unwrap(),
        };
        let arguments = attempts.to_arguments();
        let read = Attempts::from_arguments(&SandboxSpec::new(Level::Full), &arguments).unwrap();
        assert_eq!(read.to_arguments(), arguments);
        assert!(Attempts::from_arguments(&SandboxSpec::new(Level::Full), &arguments[1..]).is_none());
    }
}
