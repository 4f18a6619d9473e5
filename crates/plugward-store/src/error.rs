//! What can go wrong with the store, split by whose fault it is. Owns the mapping from SQLite result codes to those
//! faults; refuses to carry row contents in a message.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why an operation of the store failed. Nothing was changed by an operation that returns one of these.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process, or another [`Store`](crate::Store) of this one, has the home open.
    #[error("home is in use by {}", holder(*pid))]
    HomeInUse {
        /// Process id of the holder, where it could be read.
        pid: Option<u32>,
    },

    /// The home is another user's: what is written there by this one would lock that user out, or cannot be written.
    #[error("home `{}` belongs to user {owner}, and this plugward runs as user {user}", path.display())]
    HomeForeign {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who asked.
        user: u32,
    },

    /// The database cannot be read as one. It is left exactly as it was found.
    #[error(
        "database `{}` is damaged or not ours ({detail}); it was left untouched: restore a copy, or move it and its \
         `-wal` and `-shm` files aside to start empty",
        path.display()
    )]
    Corrupt {
        /// The database file.
        path: PathBuf,
        /// What SQLite or the version check found.
        detail: String,
    },

    /// The database was written by a newer Plugward.
    #[error("database has format {found}, this version of plugward knows formats up to {known}; use a newer plugward")]
    TooNew {
        /// Newest migration applied to the database.
        found: u32,
        /// Newest migration this binary knows.
        known: u32,
    },

    /// The database is older than this binary and was opened for reading only, so it cannot be brought up to date.
    #[error("database has format {found}, {known} is needed; stop the running plugward and start this version once")]
    TooOld {
        /// Newest migration applied to the database.
        found: u32,
        /// Newest migration this binary knows.
        known: u32,
    },

    /// The operating system refused something outside the database.
    #[error("`{}` cannot be used: {source}", path.display())]
    Io {
        /// File or directory concerned.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },

    /// The disk, or the quota, is full.
    #[error("disk is full: `{}` cannot grow", path.display())]
    DiskFull {
        /// The database file.
        path: PathBuf,
    },

    /// The row to be read or changed is not there.
    #[error("{what} `{id}` does not exist")]
    NotFound {
        /// Kind of row, in the words of the user.
        what: &'static str,
        /// The id that was given.
        id: String,
    },

    /// The row to be inserted is there already.
    #[error("{what} `{id}` already exists")]
    AlreadyExists {
        /// Kind of row, in the words of the user.
        what: &'static str,
        /// The id that was given.
        id: String,
    },

    /// A write was asked of a store opened with [`Store::open_read_only`](crate::Store::open_read_only).
    #[error("store was opened for reading only")]
    ReadOnly,

    /// The store is shutting down, or its writer has ended.
    #[error("store is closed")]
    Closed,

    /// SQLite failed in a way no user can act on: a fault of ours, or a lock held by a foreign program.
    #[error("database operation failed: {message}")]
    Sql {
        /// SQLite's text; never holds bound values.
        message: String,
        /// SQLite's extended result code, where it came from SQLite.
        code: Option<i32>,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::from(&error)
    }
}

impl From<&rusqlite::Error> for StoreError {
    fn from(error: &rusqlite::Error) -> Self {
        let code = match error {
            rusqlite::Error::SqliteFailure(failure, _) => Some(failure.extended_code),
            _ => None,
        };
        Self::Sql { message: error.to_string(), code }
    }
}

impl StoreError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    /// A [`StoreError::Sql`] whose code means a damaged file or a full disk becomes that, with the path a person needs.
    pub(crate) fn located(self, path: &Path) -> Self {
        let Self::Sql { message, code: Some(code) } = self else {
            return self;
        };
        match rusqlite::ffi::Error::new(code).code {
            ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt => {
                Self::Corrupt { path: path.to_owned(), detail: message }
            }
            ErrorCode::DiskFull => Self::DiskFull { path: path.to_owned() },
            _ => Self::Sql { message, code: Some(code) },
        }
    }
}
