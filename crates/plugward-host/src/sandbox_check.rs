//! Which sandbox levels this machine can hold, found out by trying.
//!
//! Owns one short start per level, of a program that does nothing, with the probe that a real start has. Refuses to
//! conclude from kernel versions and settings: some machines report success and confine nothing.

use std::path::PathBuf;

use plugward_sandbox::{Enforcement, LaunchSpec, Launcher, Level, SandboxSpec, SpawnError, StopGrace, system_paths};

use crate::host::user_for_checks;

/// A program of every system that ends at once.
const IDLE_PROGRAMS: [&str; 2] = ["/usr/bin/true", "/bin/true"];

/// What came of trying one level.
#[derive(Debug)]
pub struct LevelCheck {
    /// The level.
    pub level: Level,
    /// What was in force, confirmed by a probe, or why the level cannot be had.
    pub outcome: Result<Enforcement, SpawnError>,
}

/// Tries the levels worth the name, strongest first. Blocks for some milliseconds each.
pub fn check_levels(launcher: &Launcher) -> Vec<LevelCheck> {
    [Level::Full, Level::Partial].into_iter().map(|level| check_level(launcher, level)).collect()
}

/// Tries one level. Blocks for some milliseconds.
pub fn check_level(launcher: &Launcher, level: Level) -> LevelCheck {
    LevelCheck { level, outcome: try_level(launcher, level) }
}

fn try_level(launcher: &Launcher, level: Level) -> Result<Enforcement, SpawnError> {
    let program = IDLE_PROGRAMS.iter().map(PathBuf::from).find(|path| path.exists());
    let executable = program.unwrap_or_else(|| PathBuf::from(IDLE_PROGRAMS[0]));
    let sandbox = SandboxSpec { read_only: system_paths(), user: user_for_checks(), ..SandboxSpec::new(level) };
    let spec = LaunchSpec {
        argv: vec![executable.clone().into_os_string()],
        executable,
        cwd: "/".into(),
        env: Vec::new(),
        stop: StopGrace::default(),
        sandbox: Some(sandbox),
    };
    // Dropping the handle ends it.
    launcher.spawn(&spec).map(|spawned| spawned.process.enforcement().clone())
}
