//! What we wrote where, so that it can be taken back to the byte.
//!
//! Owns `clients/records.json` and the backups in the home. A backup holds what somebody else's file held, secrets
//! included, so both are for their owner alone. Refuses to be the truth about a client: that is the client's own file.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::file::{self, FileError};

/// Folder in the home.
const FOLDER: &str = "clients";

/// Backups kept for one settings file; older ones go.
const BACKUPS_MAX: usize = 10;

/// One file with our entry in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Name of the client.
    pub(crate) client: String,
    /// The settings file.
    pub(crate) file: PathBuf,
    /// What the file was before; none if there was none.
    pub(crate) backup: Option<PathBuf>,
    /// Digest of what we wrote. A file that is still the same can be put back to the byte.
    pub(crate) written: String,
    /// Whether we made the key that holds all servers.
    pub(crate) made_container: bool,
    /// Folders we made, outermost first.
    pub(crate) made_folders: Vec<PathBuf>,
}

/// All records of a home.
#[derive(Debug)]
pub(crate) struct Records {
    folder: PathBuf,
    records: Vec<Record>,
}

impl Records {
    /// Reads the records. Ones that cannot be read are an error: they would be written over, and with them the way back
    /// to what each file was.
    pub(crate) fn open(home: &Path) -> Result<Self, FileError> {
        let folder = home.join(FOLDER);
        let path = folder.join("records.json");
        let records = match file::read(&path)? {
            Some(text) => serde_json::from_str(&text).map_err(|error| FileError::damaged(&path, &error))?,
            None => Vec::new(),
        };
        Ok(Self { folder, records })
    }

    /// No records, for a look at files that changes none.
    pub(crate) fn none(home: &Path) -> Self {
        Self { folder: home.join(FOLDER), records: Vec::new() }
    }

    /// The record of a file.
    pub(crate) fn of(&self, path: &Path) -> Option<&Record> {
        self.records.iter().find(|record| record.file == path)
    }

    /// All records.
    pub(crate) fn all(&self) -> &[Record] {
        &self.records
    }

    /// Keeps a record, in place of an earlier one of the same file.
    pub(crate) fn put(&mut self, record: Record) -> Result<(), FileError> {
        self.records.retain(|other| other.file != record.file);
        self.records.push(record);
        self.write()
    }

    /// Forgets the record of a file.
    pub(crate) fn forget(&mut self, path: &Path) -> Result<(), FileError> {
        let before = self.records.len();
        self.records.retain(|record| record.file != path);
        if self.records.len() == before { Ok(()) } else { self.write() }
    }

    fn write(&self) -> Result<(), FileError> {
        let text = serde_json::to_string_pretty(&self.records).unwrap_or_default();
        file::write_private(&self.folder.join("records.json"), &(text + "\n"))
    }

    /// Writes a backup with a time stamp, and drops the oldest ones of the same client that no record needs.
    pub(crate) fn back_up(&self, client: &str, path: &Path, text: &str) -> Result<PathBuf, FileError> {
        let stamp = humantime::format_rfc3339_millis(SystemTime::now()).to_string().replace([':', '.'], "-");
        let name = path.file_name().map_or_else(|| "settings".into(), |name| name.to_string_lossy().into_owned());
        let folder = self.folder.join("backups");
        let backup = folder.join(format!("{client}.{stamp}.{name}"));
        file::write_private(&backup, text)?;
        let mut of_client: Vec<PathBuf> = std::fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{client}.")))
            .map(|entry| entry.path())
            .filter(|path| !self.records.iter().any(|record| record.backup.as_ref() == Some(path)))
            .collect();
        // Time stamps of one length sort by time.
        of_client.sort();
        for old in of_client.iter().rev().skip(BACKUPS_MAX) {
            let _ = std::fs::remove_file(old);
        }
        Ok(backup)
    }
}
