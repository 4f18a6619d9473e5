//! The host's judgement of a witness, remembered until the machine or the rules change.
//!
//! Owns the names of what was confirmed (boot and rules) and reading a probe's answer. Refuses an answer that is not
//! complete.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    sync::{Mutex, PoisonError},
};

use sha2::{Digest, Sha256};

use super::DONE;
use crate::{LaunchSpec, SandboxSpec, SpawnError, enforcement::Applied, linux::wire};

/// Most rules remembered. A host with more plugins than this forgets all and asks the probe again.
const MAX_REMEMBERED: usize = 4096;
/// Longest answer of a probe in bytes; a complete one that could do everything is below 1 KiB.
pub(in crate::linux) const MAX_ANSWER_BYTES: usize = 8 * 1024;
/// Bytes of the hash shown; enough to tell rules apart, and nothing depends on it being unforgeable.
const SHOWN_HASH_BYTES: usize = 8;

/// Rules that have been confirmed in this boot, with the layers that were in force.
#[derive(Debug, Default)]
pub(in crate::linux) struct Witnesses(Mutex<BTreeMap<String, Applied>>);

impl Witnesses {
    /// The layers in force when `name` was confirmed.
    pub(in crate::linux) fn remembered(&self, name: &str) -> Option<Applied> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    pub(in crate::linux) fn remember(&self, name: String, applied: Applied) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_REMEMBERED {
            known.clear();
        }
        known.insert(name, applied);
    }

    /// Forgets what was confirmed under `name`.
    pub(in crate::linux) fn forget(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Name of the rules of a specification in this boot, as `BOOT_ID/HASH`. Arguments and environment are not part of it.
    pub(in crate::linux) fn name(spec: &LaunchSpec, sandbox: &SandboxSpec) -> String {
        let mut rules = Vec::new();
        wire::put_sandbox(&mut rules, sandbox);
        for path in [&spec.executable, &spec.cwd] {
            rules.push(0);
            rules.extend_from_slice(path.as_os_str().as_encoded_bytes());
        }
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut name = format!("{}/", boot.trim());
        for byte in &Sha256::digest(&rules)[..SHOWN_HASH_BYTES] {
            let _infallible = write!(name, "{byte:02x}");
        }
        name
    }
}

/// Reads a probe's answer: nothing but the last line is what it should be.
pub(in crate::linux) fn judge(sandbox: &SandboxSpec, answer: &str) -> Result<(), SpawnError> {
    let mut escapes: Vec<&str> = answer.lines().collect();
    if escapes.last() == Some(&DONE) {
        escapes.pop();
    } else {
        escapes.push("end before it had tried everything");
    }
    if escapes.is_empty() {
        return Ok(());
    }
    Err(SpawnError::NotHeld { level: sandbox.level, escapes: escapes.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Level, StopGrace};

    // Requirement 146: a probe that died proves nothing, and one that got through must stop the start.
    #[test]
    fn only_a_complete_answer_without_escape_counts() {
        let sandbox = SandboxSpec::new(Level::Full);
        assert!(judge(&sandbox, "done\n").is_ok());
        let text = |answer| judge(&sandbox, answer).unwrap_err().to_string();
        assert!(text("").ends_with("could end before it had tried everything"));
        assert!(text("send a datagram\ndone\n").ends_with("a probe under the same rules could send a datagram"));
        assert!(text("send a datagram\n").ends_with("could send a datagram, end before it had tried everything"));
    }

    /// What was confirmed for one plugin says nothing about another one's rules.
    #[test]
    fn rules_have_names_of_their_own() {
        let spec = |executable: &str| LaunchSpec {
            executable: executable.into(),
            argv: vec!["x".into()],
            cwd: "/".into(),
            env: vec![("TOKEN".into(), "secret".into())],
            stop: StopGrace::default(),
            sandbox: None,
        };
        let strict = SandboxSpec::new(Level::Full);
        let name = Witnesses::name(&spec("/bin/a"), &strict);
        assert_eq!(name, Witnesses::name(&LaunchSpec { env: Vec::new(), ..spec("/bin/a") }, &strict));
        assert_ne!(name, Witnesses::name(&spec("/bin/b"), &strict));
        assert_ne!(name, Witnesses::name(&spec("/bin/a"), &SandboxSpec { certificates: true, ..strict }));
        assert_eq!(name.len(), 36 + 1 + 2 * SHOWN_HASH_BYTES);
    }
}
