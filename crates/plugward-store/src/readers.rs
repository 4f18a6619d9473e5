//! Connections for reading. Owns how many there are; refuses to write. Readers see what was committed when they began
//! and never wait for the writer.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::StoreError;

/// Queries are short and the machine has few disks: more connections than this would only take memory.
const READERS_MAX: usize = 4;
/// How long SQLite waits for a lock that a foreign program (a backup, a `sqlite3` shell) holds.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct Readers {
    path: Arc<Path>,
    idle: Mutex<Idle>,
    freed: Condvar,
}

#[derive(Default)]
struct Idle {
    connections: Vec<Connection>,
    /// Connections that exist, idle or lent.
    open: usize,
}

impl Readers {
    pub(crate) fn new(path: Arc<Path>) -> Self {
        Self { path, idle: Mutex::default(), freed: Condvar::new() }
    }

    /// Runs a query on a connection of its own, waiting for one if all are lent.
    pub(crate) fn read<T>(&self, query: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let lent = self.lend().map_err(|e| e.located(&self.path))?;
        match &lent.connection {
            Some(connection) => query(connection).map_err(|e| e.located(&self.path)),
            None => Err(StoreError::Closed),
        }
    }

    fn lend(&self) -> Result<Lent<'_>, StoreError> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(connection) = idle.connections.pop() {
                return Ok(Lent { readers: self, connection: Some(connection) });
            }
            if idle.open < READERS_MAX {
                idle.open += 1;
                drop(idle);
                // Gives its place back if opening fails.
                let mut lent = Lent { readers: self, connection: None };
                lent.connection = Some(open(&self.path)?);
                return Ok(lent);
            }
            idle = self.freed.wait(idle).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

struct Lent<'r> {
    readers: &'r Readers,
    connection: Option<Connection>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut idle = self.readers.idle.lock().unwrap_or_else(PoisonError::into_inner);
        match self.connection.take() {
            Some(connection) => idle.connections.push(connection),
            None => idle.open -= 1,
        }
        drop(idle);
        self.readers.freed.notify_one();
    }
}

/// Opens a connection that cannot write.
pub(crate) fn open(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.pragma_update(None, "trusted_schema", false)?;
    Ok(conn)
}
