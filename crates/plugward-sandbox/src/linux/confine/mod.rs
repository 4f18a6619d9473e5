//! What a process puts on itself last, before it becomes the plugin: limits, user, capabilities, Landlock, filter.
//!
//! Owns the order and everything prepared for it beforehand, because nothing may be allocated between fork and execution.
//! Refuses going on when a step fails.

mod bpf;
mod capabilities;
mod landlock;
mod limits;
mod seccomp;

use std::{
    ffi::OsString,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    io::Errno,
    process::{Gid, Uid},
    thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

use super::{
    failure::{Failure, Step},
    layers::Layers,
    observe,
};
use crate::{Limits, Network, SandboxSpec, UserPolicy, enforcement::Applied};

#[cfg(feature = "mutation")]
pub use landlock::cap_landlock;
pub(crate) use landlock::kernel_version as landlock_version;
pub(super) use landlock::{Access, MINIMUM_ABI, SCOPES_ABI, kernel_abi};
pub(super) use limits::{CPU_GRACE_S, MEMORY_MARGIN_BYTES, ProcessCount};

/// Steps of one process on itself, prepared.
#[derive(Debug, Default)]
pub(super) struct Confinement {
    limits: Option<(Limits, ProcessCount)>,
    user: Option<(Uid, Gid)>,
    no_new_privileges: bool,
    drop_capabilities: bool,
    /// Whether the environment of this process comes before the plugin's own: only where a test left out that layer.
    leaks_environment: bool,
    landlock: Option<landlock::Ruleset>,
    filter: Option<bpf::Program>,
    /// The way into a control group.
    group: Option<OwnedFd>,
    /// A second filter that asks an observer, and where that one waits.
    observed: Option<(bpf::Program, OwnedFd)>,
    applied: Applied,
}

impl Confinement {
    /// Prepares limits, capabilities and filter for a sandbox.
    pub(super) fn prepare(spec: &SandboxSpec, count: ProcessCount, layers: Layers) -> Self {
        let scoped = layers.has(Layers::LANDLOCK) && kernel_abi() >= SCOPES_ABI;
        let unix = seccomp::UnixSockets::of(spec.level, scoped);
        let filter = layers.has(Layers::SECCOMP).then(|| seccomp::program(&spec.network, spec.level, unix, layers));
        let applied = Applied::default()
            .with_if(filter.is_some(), Applied::SECCOMP)
            .with_if(filter.is_some() && spec.network == Network::Off, Applied::NO_SOCKETS);
        let limits = layers.has(Layers::LIMITS).then_some((spec.limits, count));
        Self {
            applied: limits.map_or(applied, |(limits, count)| applied.with(limits::applied(&limits, count))),
            limits,
            user: None,
            no_new_privileges: layers.has(Layers::NO_NEW_PRIVILEGES),
            drop_capabilities: layers.has(Layers::CAPABILITIES),
            leaks_environment: !layers.has(Layers::ENVIRONMENT),
            landlock: None,
            filter,
            group: None,
            observed: None,
        }
    }

    /// Prepares Landlock at the kernel's best version, with rules for open paths; each has the number of its path for
    /// reports. `minimum_abi` is the oldest version that will do; with 0, a kernel without Landlock goes without.
    pub(super) fn with_landlock<'a, F: AsFd + 'a>(
        mut self,
        network: &Network,
        paths: impl Iterator<Item = (usize, &'a F, Access)>,
        minimum_abi: u8,
        layers: Layers,
    ) -> Result<Self, Failure> {
        let abi = kernel_abi();
        if abi < minimum_abi {
            return Err(Failure::at(Step::LandlockVersion)(Errno::OPNOTSUPP));
        }
        if abi == 0 || !layers.has(Layers::LANDLOCK) {
            return Ok(self);
        }
        let ruleset = landlock::Ruleset::new(abi, network.into(), layers).map_err(Failure::at(Step::Landlock))?;
        if let Network::Hosts(listed) = network {
            for port in listed.ports().into_iter().filter(|_| layers.has(Layers::LANDLOCK_NETWORK)) {
                ruleset.allow_port(port).map_err(Failure::at(Step::Landlock))?;
            }
        }
        for (position, path, access) in paths.filter(|_| layers.has(Layers::LANDLOCK_FILES)) {
            ruleset.allow(path.as_fd(), access).map_err(Failure::about(Step::Landlock, position))?;
        }
        self.landlock = Some(ruleset);
        self.applied = self.applied.with(Applied::landlock(abi));
        Ok(self)
    }

    /// Changes the user as part of the steps, for levels where the launcher's own child does it.
    pub(super) fn with_user(mut self, user: UserPolicy, layers: Layers) -> Self {
        self.user = target(user).filter(|_| layers.has(Layers::USER));
        self.applied = self.applied.with_if(self.user.is_some(), Applied::OWN_USER);
        self
    }

    /// Puts the process into a control group first, through the file it is entered by.
    pub(super) fn in_group(mut self, entrance: OwnedFd) -> Self {
        self.group = Some(entrance);
        self
    }

    /// Adds the filter of a trial, which asks the observer at the other end of `socket` about every call with a name in it.
    pub(super) fn observed_by(mut self, socket: Option<OwnedFd>) -> Self {
        self.observed = socket.map(|socket| (bpf::Program::asking(observe::numbers()), socket));
        self
    }

    /// What will be in force once [`apply`](Self::apply) has succeeded.
    pub(super) fn applied(&self) -> Applied {
        self.applied
    }

    /// The variables a plugin gets beside its own. In use they are none.
    pub(super) fn leaked_environment(&self) -> Vec<(OsString, OsString)> {
        if self.leaks_environment { std::env::vars_os().collect() } else { Vec::new() }
    }

    /// Puts everything in force, the filter last. Allocates nothing.
    pub(super) fn apply(&self) -> Result<(), Failure> {
        if let Some(entrance) = &self.group {
            rustix::io::write(entrance, b"0").map_err(Failure::at(Step::Limits))?;
        }
        if let Some((limits, count)) = &self.limits {
            limits::apply(limits, *count).map_err(Failure::at(Step::Limits))?;
        }
        if self.no_new_privileges {
            set_no_new_privs(true).map_err(Failure::at(Step::Privileges))?;
        }
        if self.drop_capabilities {
            capabilities::close_all_ways_back().map_err(Failure::at(Step::Capabilities))?;
        }
        if let Some((uid, gid)) = self.user {
            set_thread_groups(&[]).map_err(Failure::at(Step::User))?;
            become_user(uid, gid)?;
        }
        if self.drop_capabilities {
            capabilities::drop_all().map_err(Failure::at(Step::Capabilities))?;
        }
        if let Some(landlock) = &self.landlock {
            landlock.restrict_self().map_err(Failure::at(Step::Landlock))?;
        }
        if let Some((asking, observer)) = &self.observed {
            let listener = seccomp::load_asking(asking).map_err(Failure::at(Step::Observer))?;
            observe::hand_over(&listener, observer.as_fd()).map_err(Failure::at(Step::Observer))?;
        }
        if let Some(filter) = &self.filter {
            seccomp::load(filter).map_err(Failure::at(Step::Seccomp))?;
        }
        Ok(())
    }
}

/// Makes a process the first choice of the kernel when memory runs out: a plugin, and never the host.
pub(super) fn put_first_out_of_memory(process: &str) -> Result<(), Failure> {
    let score = format!("/proc/{process}/oom_score_adj");
    std::fs::write(score, "1000").map_err(Failure::at(Step::OutOfMemory))
}

/// Gives up every capability, for processes of ours beside the plugin.
pub(super) fn drop_capabilities() -> Result<(), Failure> {
    capabilities::close_all_ways_back().map_err(Failure::at(Step::Capabilities))?;
    capabilities::drop_all().map_err(Failure::at(Step::Capabilities))
}

/// The user to change to, if any.
pub(super) fn target(user: UserPolicy) -> Option<(Uid, Gid)> {
    match user {
        UserPolicy::Same => None,
        UserPolicy::Drop { uid, gid } => Some((Uid::from_raw(uid), Gid::from_raw(gid))),
    }
}

/// Becomes another user, for good.
pub(super) fn become_user(uid: Uid, gid: Gid) -> Result<(), Failure> {
    set_thread_res_gid(gid, gid, gid).map_err(Failure::at(Step::User))?;
    set_thread_res_uid(uid, uid, uid).map_err(Failure::at(Step::User))
}
