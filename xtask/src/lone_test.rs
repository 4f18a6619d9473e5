//! One test of the large test binary, run by itself and for longer than with the others. Owns how it is built, which is the
//! way of the test command so that nothing is compiled a second time, and that it was there. Refuses a run without a limit.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::process::Job;
use crate::{test, tools};

/// Time to build everything on a busy machine.
const BUILD_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Builds what is needed and runs the test, which takes `length` at most.
pub(crate) fn run(label: &str, name: &str, length: Duration, settings: &[(&str, String)]) -> Result<()> {
    let root = tools::workspace_root()?;
    let cargo = |label: &str, limit| Job::new(tools::cargo(), label, limit).dir(&root).echo();
    cargo("building the fixture", BUILD_LIMIT).arg("build").args(test::SELECTION).run()?.success()?;
    let selection = test::SELECTION.iter().filter(|argument| **argument != "--all-targets");
    // It is in a process of its own already, and what it prints is the report.
    let job = cargo(label, BUILD_LIMIT + length).env("PLUGWARD_TEST_ALONE", name).arg("test").args(selection);
    let job = settings.iter().fold(job, |job, (setting, value)| job.env(setting, value));
    let done = job.args(["--test", "it", "--", name, "--exact", "--nocapture"]).run()?.success()?;
    if !done.stdout.contains("1 passed") {
        bail!("{label}: the test `{name}` is not there\n{}", done.tail());
    }
    Ok(())
}
