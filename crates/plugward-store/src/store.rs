//! The store as its users see it. Owns opening, the ways to read and write, and the order of shutting down; refuses to
//! know what any row means.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, mpsc};

use rusqlite::{Connection, OpenFlags};

use crate::migrate::{self, MIGRATIONS};
use crate::queue::{Attempt, Command};
use crate::readers::{BUSY_TIMEOUT, Readers};
use crate::redact::Matcher;
use crate::writer::Writer;
use crate::{Redactor, StoreError, home};

/// The trace keeps this many spans; the oldest go first. At some 500 bytes each this is about 50 MB.
pub const SPANS_KEPT_MAX: u64 = 100_000;
/// The write-ahead log is cut back to this after a burst.
const WAL_KEPT_BYTES: i64 = 16 * 1024 * 1024;

/// Everything Plugward keeps, in one SQLite database. Cheap to clone, usable from any thread; every call blocks, and
/// a write returns when it is on the disk (requirement 144).
///
/// Dropping the last clone works off what is queued, closes the database and lets the home go.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    // In the order in which they are dropped: the lock goes last, when nothing of ours touches the files any more.
    writer: Option<Writer>,
    readers: Readers,
    redactor: Redactor,
    path: Arc<Path>,
    _lock: Option<home::HomeLock>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store in a directory, making both where they are missing, and holds it against other processes.
    ///
    /// # Errors
    /// [`StoreError::HomeInUse`], [`StoreError::TooNew`], [`StoreError::Corrupt`] (the file stays as it is) and
    /// [`StoreError::Io`].
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        Self::open_keeping(dir, SPANS_KEPT_MAX)
    }

    pub(crate) fn open_keeping(dir: &Path, spans_max: u64) -> Result<Self, StoreError> {
        home::create_dir(dir)?;
        home::refuse_foreign(dir)?;
        let lock = home::HomeLock::acquire(dir)?;
        let path: Arc<Path> = home::create_database_file(dir)?.into();
        let conn = open_for_writing(&path).map_err(|e| e.located(&path))?;
        let writer = Writer::start(conn, &path, spans_max)?;
        Ok(Self::with(Some(writer), path, Some(lock)))
    }

    /// Opens an existing store for reading beside the process that holds it. Every write returns
    /// [`StoreError::ReadOnly`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`] where there is none, [`StoreError::TooOld`], [`StoreError::TooNew`],
    /// [`StoreError::Corrupt`].
    pub fn open_read_only(dir: &Path) -> Result<Self, StoreError> {
        let path: Arc<Path> = dir.join(home::DATABASE_FILE).into();
        if !path.exists() {
            return Err(StoreError::NotFound { what: "database", id: path.display().to_string() });
        }
        let store = Self::with(None, Arc::clone(&path), None);
        let found = store.read(|conn| migrate::found(conn, MIGRATIONS, &path))?;
        let known = migrate::known(MIGRATIONS);
        if found < known {
            return Err(StoreError::TooOld { found, known });
        }
        Ok(store)
    }

    fn with(writer: Option<Writer>, path: Arc<Path>, lock: Option<home::HomeLock>) -> Self {
        let readers = Readers::new(Arc::clone(&path));
        Self { inner: Arc::new(Inner { writer, readers, redactor: Redactor::new(), path, _lock: lock }) }
    }

    /// What removes secrets from everything recorded here. The host tells it the secret values of each plugin and uses
    /// it for logs and answers too.
    #[must_use]
    pub fn redactor(&self) -> &Redactor {
        &self.inner.redactor
    }

    /// Makes several changes as one: after a crash either all of them are there or none. Returns when they are on the
    /// disk. An error of `work` undoes everything it did.
    ///
    /// `work` runs on the writer's thread and holds up every other write: it must not wait for anything.
    ///
    /// # Errors
    /// Those of `work`, [`StoreError::ReadOnly`], [`StoreError::Closed`], [`StoreError::DiskFull`].
    pub fn write<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&WriteTransaction<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let writer = self.writer()?;
        let (answer, answered) = mpsc::sync_channel(1);
        let matcher = self.inner.redactor.matcher();
        let path = Arc::clone(&self.inner.path);
        let command: Command = Box::new(move |conn| {
            let result = match conn {
                Ok(conn) => attempt(conn, &matcher, work),
                Err(error) => Err(StoreError::from(error)),
            };
            let keep = result.is_ok();
            let answer = move |committed: Result<(), &rusqlite::Error>| {
                let result = result.and_then(|value| committed.map(|()| value).map_err(StoreError::from));
                // A caller that no longer waits wants no answer.
                let _ = answer.send(result.map_err(|e| e.located(&path)));
            };
            Attempt { keep, answer: Box::new(answer) }
        });
        writer.queue().push_command(command)?;
        answered.recv().map_err(|_| StoreError::Closed)?
    }

    /// Waits until every span recorded before this call is on the disk, synced.
    ///
    /// # Errors
    /// [`StoreError::Closed`], [`StoreError::DiskFull`]. Spans that could not be written are counted by
    /// [`Store::dropped_spans`], not reported here.
    pub fn flush(&self) -> Result<(), StoreError> {
        let Some(writer) = &self.inner.writer else {
            return Ok(());
        };
        let (answer, answered) = mpsc::sync_channel(1);
        writer.queue().push_flush(answer)?;
        answered.recv().map_err(|_| StoreError::Closed)?
    }

    /// Looks through the whole database for damage. Takes time in proportion to its size.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] with the first thing found.
    pub fn check(&self) -> Result<(), StoreError> {
        self.read(|conn| {
            let found: String = conn.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
            let dangling = conn.prepare("PRAGMA foreign_key_check")?.exists([])?;
            let detail = match (found.as_str(), dangling) {
                ("ok", false) => return Ok(()),
                ("ok", true) => "a row refers to a plugin that is not there".to_owned(),
                _ => found,
            };
            Err(StoreError::Corrupt { path: self.inner.path.to_path_buf(), detail })
        })
    }

    pub(crate) fn read<T>(&self, query: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.inner.readers.read(query)
    }

    pub(crate) fn writer(&self) -> Result<&Writer, StoreError> {
        self.inner.writer.as_ref().ok_or(StoreError::ReadOnly)
    }
}

/// Changes that are committed together; see [`Store::write`].
pub struct WriteTransaction<'c> {
    pub(crate) conn: &'c Connection,
    pub(crate) matcher: &'c Matcher,
}

fn attempt<T>(
    conn: &Connection,
    matcher: &Matcher,
    work: impl FnOnce(&WriteTransaction<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    // A bug in one command must not end the writer for all others. Its savepoint undoes what it did.
    catch_unwind(AssertUnwindSafe(|| work(&WriteTransaction { conn, matcher })))
        .unwrap_or_else(|_| Err(StoreError::Sql { message: "the write itself failed".to_owned(), code: None }))
}

fn open_for_writing(path: &Arc<Path>) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    // Read before anything is set: what is not ours, or too new, is left as it was found.
    migrate::found(&conn, MIGRATIONS, path)?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "NORMAL")?;
    conn.pragma_update(None, "journal_size_limit", WAL_KEPT_BYTES)?;
    conn.pragma_update(None, "foreign_keys", true)?;
    conn.pragma_update(None, "trusted_schema", false)?;
    conn.pragma_update(None, "cell_size_check", true)?;
    migrate::migrate(&mut conn, MIGRATIONS, path)?;
    Ok(conn)
}
