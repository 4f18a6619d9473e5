//! Which arguments a plan refuses: those that lead out of the package by a relative path (N8). Refuses to judge anything
//! else: absolute paths are shown to the person who approves, and what words mean is the program's business.

use std::path::{Component, Path};

use super::plan::PlanError;
use super::resolve::lexical;

/// Refuses relative arguments that lead out of the package, by `..` or through a link. Only where the plugin starts
/// inside its package: elsewhere relative paths are the machine's, and the person who approves sees the folder.
pub(super) fn check_arguments(args: &[String], cwd: &Path, package_dir: &Path) -> Result<(), PlanError> {
    if !cwd.starts_with(package_dir) {
        return Ok(());
    }
    for (index, arg) in args.iter().enumerate() {
        // `--config=../x` hides a path behind its option.
        let value = match arg.split_once('=') {
            Some((option, value)) if option.starts_with('-') => value,
            _ => arg.as_str(),
        };
        let relative = Path::new(value);
        if relative.is_absolute() || value.is_empty() {
            continue;
        }
        if climbs_out(relative, cwd, package_dir) {
            return Err(PlanError::ArgumentOutside { index, path: lexical(&cwd.join(relative)) });
        }
        // Words that are no file are no path; what they mean is the program's business.
        if let Ok(found) = cwd.join(relative).canonicalize()
            && !found.starts_with(package_dir)
        {
            return Err(PlanError::ArgumentOutside { index, path: found });
        }
    }
    Ok(())
}

/// Whether walking `relative` from `cwd` ever leaves the package, by its text alone.
fn climbs_out(relative: &Path, cwd: &Path, package_dir: &Path) -> bool {
    let mut at = cwd.to_owned();
    for part in relative.components() {
        match part {
            Component::ParentDir => {
                at.pop();
                if !at.starts_with(package_dir) {
                    return true;
                }
            }
            other => at.push(other),
        }
    }
    false
}
