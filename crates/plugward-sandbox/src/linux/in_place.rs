//! Levels `partial` and `limited`: the plugin in the machine's own file tree, as a child of the launcher.
//!
//! Owns what such a plugin may read beside its declared paths. Refuses being a fallback: a level is asked for, and what it
//! lacks is in the report.

use std::{os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    process::{Pid, Signal, kill_process, umask},
};

use super::{
    cgroup::Group,
    channel,
    child::{self, Task},
    confine::{self, Access, Confinement, MINIMUM_ABI, ProcessCount},
    failure::{Failure, Step},
    launch::Launch,
    layers::Layers,
    sources::Sources,
};
use crate::{LaunchSpec, Level, SandboxSpec, UserPolicy, enforcement::Applied};

/// Files of the machine that run times read at their start and take an error of for a broken machine. Every user can read
/// them. A file that does not exist here is no trouble for them either.
const SYSTEM_FILES: [&str; 9] = [
    "/etc/passwd",
    "/etc/group",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/localtime",
    "/etc/ld.so.cache",
    "/etc/ssl/openssl.cnf",
    "/usr/share/zoneinfo",
];
/// Devices without a way to the machine.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// Files a plugin makes are its user's alone.
const PLUGIN_UMASK: u32 = 0o077;

/// Starts the plugin (or what stands in for it) behind the layers a process can put on itself.
pub(super) fn start(
    launch: Launch<'_>,
    stdio: [OwnedFd; channel::PASSED_DESCRIPTORS],
    task: Task,
    group: Option<&Group>,
) -> Result<(Pid, Applied), Failure> {
    let Launch { spec, sandbox, errand, layers } = launch;
    let count = match sandbox.user {
        UserPolicy::Drop { .. } => ProcessCount::Own { overhead: 0 },
        UserPolicy::Same => ProcessCount::Shared,
    };
    let mut confinement = Confinement::prepare(sandbox, count, layers).with_user(sandbox.user, layers);
    if let Some(group) = group {
        confinement = confinement.in_group(group.entrance().map_err(Failure::at(Step::Limits))?);
    }
    if sandbox.level == Level::Partial {
        confinement = with_rules(confinement, spec, sandbox, layers)?;
    }
    std::env::set_current_dir(&spec.cwd).map_err(Failure::at(Step::Cwd))?;
    umask(Mode::from_raw_mode(PLUGIN_UMASK));
    let applied = confinement.applied();
    errand.refuse_fewer_layers(applied, Applied::FROM_INSIDE)?;
    let main = child::start(spec, stdio, confinement, task)?;
    // Only once the program runs: until then the process is closed to its own user, like the launcher it came from.
    let placed = confine::put_first_out_of_memory(&main.as_raw_nonzero().to_string());
    // One that has ended by now, and one that hides itself, cannot be placed, and the first needs no place.
    match placed {
        Err(failure) if !matches!(failure.errno, libc::ENOENT | libc::ESRCH | libc::EACCES) => {
            let _ended = kill_process(main, Signal::KILL);
            Err(failure)
        }
        _ => Ok((main, applied)),
    }
}

fn with_rules(
    confinement: Confinement,
    spec: &LaunchSpec,
    sandbox: &SandboxSpec,
    layers: Layers,
) -> Result<Confinement, Failure> {
    let sources = Sources::open(spec, sandbox)?;
    refuse_nested(&sources)?;
    let mut own = Vec::new();
    let system = SYSTEM_FILES.iter().map(|path| (Path::new(path), Access::Read));
    for (path, access) in system.chain(DEVICES.iter().map(|path| (Path::new(path), Access::Device))) {
        match openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(opened) => own.push((opened, access)),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(Failure::at(Step::SystemFiles)(error)),
        }
    }
    let declared = sources.opened.iter().map(|source| (source.position, &source.opened, source.access));
    let rules = declared.chain(own.iter().map(|(opened, access)| (0, opened, *access)));
    confinement.with_landlock(&sandbox.network, rules, MINIMUM_ABI, layers)
}

/// Rights only add up on the way down: what lies in a readable folder could be executed, what lies in a writable one be
/// written.
fn refuse_nested(sources: &Sources) -> Result<(), Failure> {
    for writable in sources.opened.iter().filter(|source| source.access == Access::Write) {
        let readable = sources.opened.iter().filter(|source| source.access == Access::Read);
        let mut nested =
            readable.filter(|other| other.path.starts_with(&writable.path) || writable.path.starts_with(&other.path));
        if nested.next().is_some() {
            return Err(Failure::about(Step::Nested, writable.position)(Errno::OPNOTSUPP));
        }
    }
    Ok(())
}
