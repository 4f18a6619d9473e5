//! The keys of `config.toml` about folders of plugin files.
//!
//! Owns their reading and ranges. Refuses folders that are not there no more than the loader does: they may be made later.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plugward_host::{FolderSettings, FolderWatch};
use toml::Spanned;
use toml::de::DeValue;

use super::file::{Mistake, number, text};

/// Most folders of plugin files: each is read at every look.
const FOLDERS_MAX: usize = 64;

/// Pauses between two looks, in milliseconds: shorter ones keep a disk busy, longer ones look like a setting that does
/// not work.
const POLL_MS: std::ops::RangeInclusive<u64> = 100..=3_600_000;

/// What the file says of them; absent keys are none.
#[derive(Debug, Default)]
pub(super) struct FileFolders {
    folders: Vec<PathBuf>,
    is_recursive: bool,
    poll: Option<Duration>,
}

impl FileFolders {
    /// Takes a key of the file; false if it is none of these.
    pub(super) fn take(&mut self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<bool, Mistake> {
        match name {
            "plugins_dir" => self.folders = folders(name, value)?,
            "plugins_recursive" => {
                self.is_recursive = match value.get_ref() {
                    DeValue::Boolean(is_recursive) => *is_recursive,
                    _ => return Err(Mistake::new(value.span().start, format!("`{name}` must be true or false"))),
                };
            }
            "plugins_poll_ms" => self.poll = Some(Duration::from_millis(number(name, value, POLL_MS)?)),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The settings; none without a folder. Relative folders lie in the home.
    pub(super) fn settings(self, home: &Path) -> Option<FolderSettings> {
        let folders: Vec<PathBuf> = self.folders.iter().map(|folder| home.join(folder)).collect();
        let watch = self.poll.map_or(FolderWatch::Events, FolderWatch::Poll);
        (!folders.is_empty()).then_some(FolderSettings { folders, recursive: self.is_recursive, watch })
    }
}

/// One folder, or a list of them.
fn folders(name: &str, value: &Spanned<DeValue<'_>>) -> Result<Vec<PathBuf>, Mistake> {
    let one = |value: &Spanned<DeValue<'_>>| {
        let path = text(name, value)?;
        if path.trim().is_empty() {
            return Err(Mistake::new(value.span().start, format!("`{name}` must not be empty")));
        }
        Ok(PathBuf::from(path))
    };
    let DeValue::Array(items) = value.get_ref() else { return Ok(vec![one(value)?]) };
    if items.len() > FOLDERS_MAX {
        let message = format!("`{name}` has {} folders, at most {FOLDERS_MAX} are allowed", items.len());
        return Err(Mistake::new(value.span().start, message));
    }
    items.iter().map(one).collect()
}
