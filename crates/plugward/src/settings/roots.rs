//! The key of `config.toml` about whom the host trusts for its own requests over TLS.
//!
//! Owns finding and reading the file it names. Refuses a file that is not wholly good: who adds an authority and is not
//! told that it does not count would look for the fault elsewhere.

use std::io::Read as _;
use std::path::Path;

use plugward_host::Trust;
use plugward_policy::visible;

use super::file::Mistake;

/// Largest file of authorities read: the whole store of a distribution is 250 KiB.
const ROOTS_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Where the file is, and where that stands.
#[derive(Debug)]
pub(super) struct FileRoots {
    pub(super) path: String,
    pub(super) at: usize,
}

impl FileRoots {
    /// The machine's authorities and those of the file; a relative path lies in `home`.
    pub(super) fn read(&self, home: &Path) -> Result<Trust, Mistake> {
        let mistake = |reason: String| {
            Mistake::new(self.at, format!("file `{}` of `extra_roots`: {reason}", visible(&self.path)))
        };
        let mut bytes = Vec::new();
        std::fs::File::open(home.join(&self.path))
            .and_then(|file| file.take(ROOTS_BYTES_MAX + 1).read_to_end(&mut bytes))
            .map_err(|error| mistake(error.to_string()))?;
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > ROOTS_BYTES_MAX {
            return Err(mistake(format!("it is larger than {ROOTS_BYTES_MAX} bytes")));
        }
        Trust::with_added(&bytes).map_err(|error| mistake(error.to_string()))
    }
}
