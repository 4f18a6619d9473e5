//! Packages on disk and what would be started from them: finding a manifest, copying a package into the store,
//! hashing it, resolving its command, building its environment, and the finished [`LaunchPlan`].
//!
//! Everything here reads (and [`copy_package`] writes one folder); nothing here runs a program of a package
//! (requirement 35). Which folder a package is copied to, when an approval is needed and how a process is started
//! are decided elsewhere. Trees are untrusted: links are never followed while reading, every walk is bounded in
//! entries, bytes and depth, and names are escaped before they reach a person.

mod access;
mod arguments;
mod confinement;
mod container;
mod copy;
mod environment;
mod error;
mod hash;
mod links;
mod plan;
mod program_digest;
mod remote;
mod resolve;
mod runtime;
mod source;
mod subject;
mod tree;
mod without_program;
mod working_folder;

pub(crate) use confinement::{Confinement, ConfinementError};
pub(crate) use container::ContainerRun;
pub(crate) use copy::copy_package;
pub(crate) use environment::{HostEnvironment, PASSED_VARIABLES};
pub(crate) use error::PackageError;
pub(crate) use hash::{PackageFacts, hash_package};
pub(crate) use plan::{LaunchPlan, PROJECT_SETTING, PlanError, PlanInput, plan};
pub(crate) use remote::RemotePlan;
pub(crate) use source::{MANIFEST_NAMES, locate, read_manifest};
pub(crate) use tree::PackageLimits;

/// A file name or path for people: characters that could forge a line of a message are shown escaped.
fn shown(path: impl AsRef<std::path::Path>) -> String {
    plugward_policy::visible(&path.as_ref().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn a_hostile_name_cannot_forge_a_line_of_a_message() {
        assert_eq!(shown("plain/ü name.txt"), "plain/ü name.txt");
        assert_eq!(shown("a\nerror: b"), "a\\u{a}error: b");
        assert_eq!(shown("\u{1b}[2Jx"), "\\u{1b}[2Jx");
        assert_eq!(shown("txt.\u{202e}exe"), "txt.\\u{202e}exe");
    }
}
