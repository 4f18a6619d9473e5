//! The second stage, inside what bubblewrap has made, as the first process there.
//!
//! Owns the order of steps from there to the running plugin: the layers a process puts on itself. Refuses needing a
//! capability, which profiles for bubblewrap deny to what it starts, and ends like the first process of the native way.

use std::{
    os::fd::{AsFd, OwnedFd},
    process::exit,
};

use rustix::{
    fs::Mode,
    io::Errno,
    process::{DumpableBehavior, Pid, set_dumpable_behavior, umask},
};

use super::super::{files::Prepared, init};
use crate::{
    LaunchSpec, Level, Network,
    enforcement::Applied,
    linux::{
        channel,
        child::{self, Task},
        confine,
        failure::{Failure, Step},
        layers::Layers,
        sources::Sources,
        wire::{Errand, Purpose, Record},
        witness::Attempts,
    },
};

/// Runs to the end of the plugin and ends this process.
pub(in crate::linux) fn run(
    control: &OwnedFd,
    spec: &LaunchSpec,
    errand: Errand,
    stdio: [OwnedFd; channel::PASSED_DESCRIPTORS],
    layers: Layers,
) -> ! {
    match prepare_and_start(control, spec, errand, stdio, layers) {
        Ok((main, applied)) => {
            let _launcher_left = channel::send_short(control.as_fd(), &Record::Started { pid: 0, applied }.encode());
            let limits = spec.sandbox.as_ref().map(|sandbox| sandbox.limits).unwrap_or_default();
            init::collect_until_all_ended(main, &limits, control.as_fd());
            exit(0)
        }
        Err(failure) => {
            let _launcher_left = channel::send_short(control.as_fd(), &Record::Failed(failure).encode());
            exit(1)
        }
    }
}

fn prepare_and_start(
    control: &OwnedFd,
    spec: &LaunchSpec,
    errand: Errand,
    stdio: [OwnedFd; channel::PASSED_DESCRIPTORS],
    layers: Layers,
) -> Result<(Pid, Applied), Failure> {
    init::end_with_launcher()?;
    let malformed = Failure { step: Step::Spec, errno: 0, subject: 0 };
    let sandbox = spec.sandbox.as_ref().filter(|sandbox| sandbox.level == Level::Full).ok_or(malformed)?;
    // Without capabilities, the kernel lets a process write there only while its user may inspect it.
    set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(Failure::at(Step::Privileges))?;
    let written = confine::put_first_out_of_memory("self");
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Failure::at(Step::Privileges))?;
    written?;
    let task = match errand.purpose {
        Purpose::Plugin => Task::Plugin,
        // Its observer would be on the other side of bubblewrap.
        Purpose::Trial => return Err(malformed),
        Purpose::Witness => {
            let attempts = Attempts::from_arguments(sandbox, &spec.argv).ok_or(malformed)?;
            Task::Witness(Box::new(move || attempts.run()))
        }
    };
    // The same names lead to what was mounted; what a link leads to was mounted too.
    let prepared = Prepared::open(Sources::open(spec, sandbox)?, &Network::Off)?;
    umask(Mode::from_raw_mode(init::PLUGIN_UMASK));
    std::env::set_current_dir(&spec.cwd).map_err(Failure::at(Step::Cwd))?;
    let confinement = init::confinement(&prepared, sandbox, layers)?;
    if layers.has(Layers::LANDLOCK) && confinement.applied().landlock_abi() == 0 {
        return Err(Failure::at(Step::LandlockVersion)(Errno::OPNOTSUPP));
    }
    let applied = confinement
        .applied()
        .with(Applied::MOUNTS)
        .with(Applied::PROC)
        .with(Applied::PROCESSES)
        .with_if(sandbox.network == Network::Off, Applied::NETWORK);
    drop(prepared);
    // The one who started bubblewrap says which user this is.
    errand.refuse_fewer_layers(applied, Applied::FROM_INSIDE.without(Applied::BWRAP).without(Applied::OWN_USER))?;
    init::launcher_is_there(control)?;
    Ok((child::start(spec, stdio, confinement, task)?, applied))
}
