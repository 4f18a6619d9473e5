//! The witness on macOS: programs of the system try, under the plugin's own rules, what a plugin must not do.
//!
//! Owns a file and a service of ours, the attempts on them, and a control of each without the profile. Refuses a level if an
//! attempt succeeds, and if a control fails, because then nothing is known.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::SANDBOX_EXEC;
use crate::{
    Network, SandboxSpec, SpawnError,
    seatbelt::{Paths, profile},
};

/// Reads a file.
const READER: &str = "/bin/cat";
/// Reaches a service; `-w 2` ends it after two seconds.
const CONNECTOR: &str = "/usr/bin/nc";

/// Runs the witness; `Ok` if nothing got through.
pub(super) fn confirm(sandbox: &SandboxSpec, paths: &Paths) -> Result<(), SpawnError> {
    let not_held = |escapes: &str| SpawnError::NotHeld { level: sandbox.level, escapes: escapes.to_owned() };
    let canary = Canary::new().map_err(|_| not_held("not be tried, because its probe could not be set up"))?;
    let file = canary.file.to_string_lossy().into_owned();
    let mut attempts = vec![(READER, vec![file], "read a file it was not given")];
    let service = TcpListener::bind("127.0.0.1:0")
        .and_then(|service| Ok((service.local_addr()?.port().to_string(), service)))
        .map_err(|_| not_held("not be tried, because its probe could not be set up"))?;
    if sandbox.network == Network::Off {
        let arguments = ["-z", "-w", "2", "127.0.0.1", &service.0].map(str::to_owned).to_vec();
        attempts.push((CONNECTOR, arguments, "reach a service of this machine"));
    }
    for (program, arguments, escape) in attempts {
        if !succeeds(Command::new(program).args(&arguments)) {
            return Err(not_held("not be tried, because the probe fails without a sandbox too"));
        }
        // The witness's own program is all that its profile adds.
        let with_program = Paths { executable: PathBuf::from(program), ..paths.clone() };
        let text = profile(sandbox, &with_program).map_err(|_| not_held("not be described"))?;
        if succeeds(Command::new(SANDBOX_EXEC).arg("-p").arg(text).arg(program).args(&arguments)) {
            return Err(not_held(escape));
        }
        // A profile that nothing can run under would confirm everything.
        let harmless = profile(sandbox, &Paths { executable: "/usr/bin/true".into(), ..paths.clone() });
        let text = harmless.map_err(|_| not_held("not be described"))?;
        if !succeeds(Command::new(SANDBOX_EXEC).arg("-p").arg(text).arg("/usr/bin/true")) {
            return Err(not_held("not be tried, because nothing runs under them"));
        }
    }
    Ok(())
}

fn succeeds(command: &mut Command) -> bool {
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A file that no sandbox grants.
struct Canary {
    folder: PathBuf,
    file: PathBuf,
}

impl Canary {
    fn new() -> std::io::Result<Self> {
        let folder = Path::new("/private/tmp").join(format!(".plugward-canary-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let file = folder.join("file");
        fs::write(&file, "canary")?;
        Ok(Self { folder, file })
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        // What stays costs a few bytes until the next start of the machine.
        let _left_behind = fs::remove_dir_all(&self.folder);
    }
}
